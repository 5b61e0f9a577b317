/*
 * allocator.cpp: what PyTorch calls for every tensor.
 *
 * The size that PyTorch keeps beside a pointer is not needed, the pool knows. A free names the
 * stream of the request, as PyTorch hands it back, so memory is reused on that stream at once, and on
 * others after it has passed; Tensor.record_stream adds further streams.
 */
#include <cstdio>
#include <stdexcept>

#include "graphs.h"
#include "out_of_memory.h"
#include "pools.h"
#include "ullage_torch.h"

using namespace ullage;

void *ullage_torch_alloc(ssize_t size, int device, void *stream)
{
    if (size == 0)
        return nullptr;
    Pool &pool = open_pool(device);
    join_graphs(pool, stream);
    ull_request request = {};
    /* A negative size comes from an overflow: refused as what it is, too much. */
    request.bytes = static_cast<uint64_t>(size);
    request.stream = stream;
    ull_report report;
    void *address;
    ull_status status = ull_alloc_request(pool.alloc, &request, &report, &address);
    if (status == ULL_E_NO_MEMORY)
        throw_out_of_memory(refused(pool, request.bytes, report));
    if (status != ULL_OK)
        throw std::runtime_error(std::string("ullage: ") + ull_status_text(status));
    refuse_capture(pool, address, stream);
    return address;
}

void ullage_torch_free(void *ptr, ssize_t, int device, void *stream)
{
    if (!ptr)
        return;
    Pool *pool = find_pool(device);
    ull_status status = pool ? ull_alloc_free(pool->alloc, ptr, stream) : ULL_E_NOT_FOUND;
    if (status != ULL_OK)
        std::fprintf(stderr, "ullage: %p on device %d could not be freed: %s\n", ptr, device,
                     ull_status_text(status));
}

void ullage_torch_record_stream(void *ptr, void *stream)
{
    if (!ptr)
        return;
    /* PyTorch names no device; an address belongs to one only, and the others say so. */
    ull_status status = ULL_E_INVALID;
    each_pool([&](Pool &pool) {
        if (status == ULL_E_INVALID)
            status = ull_alloc_use_on(pool.alloc, ptr, stream);
    });
    if (status != ULL_OK)
        throw std::runtime_error(std::string("ullage: record_stream: ") + ull_status_text(status));
}

void ullage_torch_empty_cache(void)
{
    each_pool([](Pool &pool) { ull_pool_trim(pool.pool, UINT64_MAX, nullptr); });
}

void ullage_torch_memory_fraction(double fraction, int device)
{
    Pool &pool = open_pool(device);
    uint64_t free_bytes, total;
    ull_status status = pool.seam->ops->memory(pool.seam, &free_bytes, &total);
    if (status == ULL_OK && !(fraction > 0 && fraction <= 1))
        status = ULL_E_INVALID;
    if (status == ULL_OK)
        status = ull_pool_set_limit(pool.pool,
                                    static_cast<uint64_t>(static_cast<double>(total) * fraction));
    if (status != ULL_OK)
        throw std::runtime_error(std::string("ullage: set_per_process_memory_fraction: ") +
                                 ull_status_text(status));
}
