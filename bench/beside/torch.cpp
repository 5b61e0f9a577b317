/*
 * torch.cpp: PyTorch's CUDACachingAllocator out of an installed wheel, native and with expandable segments.
 *
 * It is one for the process and grows only, so "create" empties its cache, sets its limit, and chooses between the two.
 * Needs a card, or cudart.c over the fake driver.
 */
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "allocator.h"

namespace c10::cuda::_internal
{ /* exported, in no header */
void setHasPrimaryContext(bool (*function)(DeviceIndex));
}

namespace caching = c10::cuda::CUDACachingAllocator;

namespace
{

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

/* Two streams of PyTorch's, kept for the life of the process as PyTorch keeps them. */
struct Torch {
    c10::cuda::CUDAStream streams[2] = {c10::cuda::getStreamFromPool(),
                                        c10::cuda::getStreamFromPool()};
};

Torch *torch()
{
    static Torch *the = [] {
        c10::cuda::_internal::setHasPrimaryContext(
            [](c10::DeviceIndex) { return true; }); /* else libtorch's */
        caching::init(c10::cuda::device_count());
        return new Torch;
    }();
    return the;
}

void *Create(const char *settings, uint64_t limit, uint64_t reserve)
{
    if (reserve)
        return nullptr;
    Torch *the = torch();
    c10::CachingAllocator::setAllocatorSettings(settings);
    caching::emptyCache();
    caching::resetPeakStats(0);
    size_t free_bytes = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
    caching::setMemoryFraction(limit ? static_cast<double>(limit) / static_cast<double>(total) : 1.0,
                               0);
    return the;
}

void *CreateNative(uint64_t limit, uint64_t reserve)
{
    return Create("expandable_segments:False", limit, reserve);
}

void *CreateExpandable(uint64_t limit, uint64_t reserve)
{
    return Create("expandable_segments:True", limit, reserve);
}

void Destroy(void *)
{
    caching::emptyCache();
}

void *Allocate(void *, uint64_t bytes, void *stream)
{
    try {
        return caching::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
    } catch (const c10::OutOfMemoryError &) {
        return nullptr;
    }
}

void Give(void *, void *address, void *)
{
    caching::raw_delete(address);
}

uint64_t PeakHeld(void *)
{
    return static_cast<uint64_t>(caching::getDeviceStats(0).reserved_bytes[kAll].peak);
}

void *Stream(void *allocator, unsigned int number)
{
    return static_cast<Torch *>(allocator)->streams[number].stream();
}

const beside_allocator kAllocators[] = {
    {"PyTorch", false, true, true, CreateNative, Destroy, Allocate, Give, PeakHeld, Stream},
    {"PyTorch, expandable", false, true, true, CreateExpandable, Destroy, Allocate, Give, PeakHeld,
     Stream},
    {}};

} // namespace

extern "C" const struct beside_allocator *beside_allocators(void)
{
    return kAllocators;
}
