/*
 * pool_calls.c: the driver's calls for stream-ordered memory. What they do is in pool.c.
 */
#include "pool.h"

static CUmemoryPool default_pool[FAKE_MAX_CARDS], current_pool[FAKE_MAX_CARDS];

static CUmemoryPool default_pool_of(int card)
{
    if (!default_pool[card]) {
        default_pool[card] = fake_pool_new(card, 0);
        if (default_pool[card])
            default_pool[card]->is_default = true;
    }
    return default_pool[card];
}

static CUmemoryPool pool_of(int card)
{
    if (!current_pool[card] || !fake_pool_known(current_pool[card]))
        current_pool[card] = default_pool_of(card);
    return current_pool[card];
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr p = 0;
    CUresult r = CUDA_SUCCESS;
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pool)
        pool = pool_of(stream->ctx->card);
    if (!dptr || !pool || !fake_pool_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_capturing(stream))
        r = fake_capture_alloc(stream, bytes, &p);
    else if (bytes > 0)
        r = fake_pool_allocate(pool, bytes, stream, &p);
    if (r == CUDA_SUCCESS)
        *dptr = p;
    return r;
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream)
{
    struct fake_range range;
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (dptr == 0)
        return CUDA_SUCCESS;
    if (fake_capturing(stream))
        return fake_capture_free(stream, dptr);
    if (!fake_resolve(dptr, &range) || range.base != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind == FAKE_GRAPH)
        return fake_graph_free(dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (range.kind ==
        FAKE_LINEAR) { /* legal; goes to the device when the stream has got there, here at once */
        fake_wait_stream(stream, stream->queued);
        return fake_linear_drop(dptr);
    }
    if (range.kind != FAKE_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_pool_free(dptr, stream);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    FAKE_ENTER(cuMemAllocAsync, FAKE_CONTEXT | FAKE_ALLOC);
    return alloc_async(dptr, bytes, NULL, fake_stream(stream, false));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    FAKE_ENTER(cuMemAllocAsync_ptsz, FAKE_CONTEXT | FAKE_ALLOC);
    return alloc_async(dptr, bytes, NULL, fake_stream(stream, true));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    FAKE_ENTER(cuMemAllocFromPoolAsync, FAKE_CONTEXT | FAKE_ALLOC);
    return pool ? alloc_async(dptr, bytes, pool, fake_stream(stream, false))
                : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    FAKE_ENTER(cuMemAllocFromPoolAsync_ptsz, FAKE_CONTEXT | FAKE_ALLOC);
    return pool ? alloc_async(dptr, bytes, pool, fake_stream(stream, true))
                : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
    FAKE_ENTER(cuMemFreeAsync, FAKE_CONTEXT);
    return free_async(dptr, fake_stream(stream, false));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
    FAKE_ENTER(cuMemFreeAsync_ptsz, FAKE_CONTEXT);
    return free_async(dptr, fake_stream(stream, true));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    FAKE_ENTER(cuMemPoolCreate, FAKE_INIT | FAKE_ALLOC);
    if (!pool || !props)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    int card = fake_card_of(props->location.id);
    if (card < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool made = fake_pool_new(card, props->maxSize);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = made;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    FAKE_ENTER(cuMemPoolDestroy, FAKE_INIT);
    if (!fake_pool_known(pool) || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    fake_pool_destroy(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    FAKE_ENTER(cuMemPoolTrimTo, FAKE_INIT | FAKE_UNSAFE);
    if (!fake_pool_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    fake_pool_release(pool, keep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    FAKE_ENTER(cuMemPoolGetAttribute,
               FAKE_INIT | (fake_lenient("capture.pool_attr") ? 0 : FAKE_UNSAFE));
    if (!value || !fake_pool_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute >= 1 && attribute <= 3) {
        *(int *)value = pool->reuse[attribute - 1];
        return CUDA_SUCCESS;
    }
    cuuint64_t *out = value;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *out = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *out = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *out = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *out = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *out = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    FAKE_ENTER(cuMemPoolSetAttribute, FAKE_INIT);
    if (!value || !fake_pool_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute >= 1 && attribute <= 3)
        pool->reuse[attribute - 1] = *(int *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(cuuint64_t *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && *(cuuint64_t *)value == 0)
        pool->reserved_high = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && *(cuuint64_t *)value == 0)
        pool->used_high = pool->used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    FAKE_ENTER(cuMemPoolSetAccess, FAKE_INIT);
    return fake_pool_known(pool) && (map || count == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    FAKE_ENTER(cuMemPoolGetAccess, FAKE_INIT);
    if (!flags || !location || !fake_pool_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

static CUresult get_pool(CUmemoryPool *out, CUdevice dev, bool by_default)
{
    int card = fake_card_of(dev);
    if (!out || card < 0)
        return out ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    *out = by_default ? default_pool_of(card) : pool_of(card);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetDefaultMemPool, FAKE_INIT);
    return get_pool(pool, dev, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetMemPool, FAKE_INIT);
    return get_pool(pool, dev, false);
}

static CUresult set_pool(CUdevice dev, CUmemoryPool pool)
{
    int card = fake_card_of(dev);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!fake_pool_known(pool) || pool->card != card)
        return CUDA_ERROR_INVALID_VALUE;
    current_pool[card] = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    FAKE_ENTER(cuDeviceSetMemPool, FAKE_INIT);
    return set_pool(dev, pool);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    FAKE_ENTER(cuMemGetDefaultMemPool, FAKE_INIT);
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return get_pool(pool, location->id, true);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    FAKE_ENTER(cuMemGetMemPool, FAKE_INIT);
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return get_pool(pool, location->id, false);
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    FAKE_ENTER(cuMemSetMemPool, FAKE_INIT);
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return set_pool(location->id, pool);
}
