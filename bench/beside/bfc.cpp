/*
 * bfc.cpp: TensorFlow's BFC allocator out of an installed wheel, over addresses of this machine that nothing touches.
 *
 * As TensorFlow makes it for a GPU: regions that are not joined, which may be freed when fragmentation would refuse a
 * request. It does not wait for others to free when it refuses, since no others are there. It knows no streams.
 */
#include <sys/mman.h>

#include <atomic>
#include <memory>

#include "allocator.h"
#include "xla/tsl/framework/bfc_allocator.h"

namespace
{

constexpr size_t kAlignment = size_t{2} << 20; /* as the driver's large allocations are */
constexpr size_t kDevice = size_t{96} << 30;

/* Regions of addresses; counts what is held. */
class Regions : public tsl::SubAllocator
{
  public:
    Regions() : tsl::SubAllocator({}, {})
    {
    }

    void *Alloc(size_t, size_t bytes, size_t *received) override
    {
        size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        void *all = mmap(nullptr, whole + kAlignment, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
            return nullptr;
        auto start = reinterpret_cast<uintptr_t>(all);
        uintptr_t aligned = (start + kAlignment - 1) / kAlignment * kAlignment;
        if (aligned > start)
            munmap(all, aligned - start);
        if (start + kAlignment > aligned)
            munmap(reinterpret_cast<void *>(aligned + whole), start + kAlignment - aligned);
        held_ += bytes;
        if (held_ > peak_)
            peak_ = held_;
        *received = bytes;
        return reinterpret_cast<void *>(aligned);
    }

    void Free(void *address, size_t bytes) override
    {
        munmap(address, bytes);
        held_ -= bytes;
    }

    bool SupportsCoalescing() const override
    {
        return false;
    }

    uint64_t peak() const
    {
        return peak_;
    }

  private:
    uint64_t held_ = 0, peak_ = 0; /* called with BFC's lock held */
};

struct Bfc {
    Regions *regions; /* bfc's own */
    std::unique_ptr<tsl::BFCAllocator> bfc;
};

void *Create(uint64_t limit, uint64_t reserve)
{
    tsl::BFCAllocator::Options options;
    options.allow_growth = reserve == 0;
    options.allow_retry_on_failure = false;
    options.garbage_collection = true;
    auto regions = std::make_unique<Regions>();
    auto *bfc = new Bfc{regions.get(), nullptr};
    size_t total = reserve ? reserve : limit ? limit : kDevice;
    bfc->bfc = std::make_unique<tsl::BFCAllocator>(std::move(regions), total, "beside", options);
    return bfc;
}

void Destroy(void *allocator)
{
    delete static_cast<Bfc *>(allocator);
}

void *Allocate(void *allocator, uint64_t bytes, void *)
{
    return static_cast<Bfc *>(allocator)->bfc->AllocateRaw(tsl::Allocator::kAllocatorAlignment,
                                                           bytes);
}

void Give(void *allocator, void *address, void *)
{
    static_cast<Bfc *>(allocator)->bfc->DeallocateRaw(address);
}

uint64_t PeakHeld(void *allocator)
{
    return static_cast<Bfc *>(allocator)->regions->peak();
}

const beside_allocator kAllocators[] = {
    {"BFC", true, true, true, Create, Destroy, Allocate, Give, PeakHeld, nullptr}, {}};

} // namespace

extern "C" const struct beside_allocator *beside_allocators(void)
{
    return kAllocators;
}
