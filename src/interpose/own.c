/*
 * own.c: with `run --suspendable`, what the program is told of blocks that are ours: the same as of the driver's
 * own. Of everything else the driver is asked.
 */
#include <string.h>

#include "async.h"

CUresult ull__own_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
    CUdeviceptr start;
    uint64_t bytes;
    CUcontext context;
    if (!ull__backing_find(dptr, &start, &bytes, NULL) &&
        !ull__async_find(dptr, &start, &bytes, NULL) &&
        !ull__pass_find(dptr, &start, &bytes, &context))
        return ull__driver->cuMemGetAddressRange_v2(base, size, dptr);
    struct ull__block block;
    if (ull__block_find(start, &block)) /* what was asked for, not whole units */
        bytes = block.bytes;
    if (base)
        *base = start;
    if (size)
        *size = bytes;
    return CUDA_SUCCESS;
}

CUresult ull__own_cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 dptr)
{
    CUdeviceptr start = 0;
    size_t bytes = 0;
    CUresult result = ull__own_cuMemGetAddressRange_v2(&start, &bytes, dptr);
    if (result != CUDA_SUCCESS)
        return result;
    if (base)
        *base = (CUdeviceptr_v1)start;
    if (size)
        *size = (unsigned int)bytes;
    return result;
}

/* The same for a block of a pool of ours: as of one of the driver's default pool. */
static bool answer_ordered(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUdeviceptr start;
    uint64_t bytes;
    struct ull__async *async;
    if (!ull__async_find(ptr, &start, &bytes, &async))
        return false;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = start;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memset(data, 0, sizeof(unsigned long long));
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = async->default_pool;
        return true;
    default:
        return false;
    }
}

/* True if it is one that the driver would answer differently for mapped memory; then it is answered. */
static bool answer(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUdeviceptr start;
    uint64_t bytes;
    struct ull__piece piece = {0};
    struct ull__block block;
    if (!data)
        return false;
    if (!ull__backing_find(ptr, &start, &bytes, &piece) &&
        !ull__pass_find(ptr, &start, &bytes, &piece.context))
        return answer_ordered(data, attribute, ptr);
    bool known = ull__block_find(start, &block);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = known ? block.context : piece.context;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = start;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = known ? block.bytes : bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memset(data, 0, sizeof(unsigned long long));
        return true;
    default:
        return false;
    }
}

CUresult ull__own_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    return answer(data, attribute, ptr) ? CUDA_SUCCESS
                                        : ull__driver->cuPointerGetAttribute(data, attribute, ptr);
}

CUresult ull__own_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                         void **data, CUdeviceptr ptr)
{
    CUresult result = ull__driver->cuPointerGetAttributes(count, attributes, data, ptr);
    for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++)
        answer(data[i], attributes[i], ptr);
    return result;
}

/* That copies of it are synchronous cannot be said of mapped memory; they are where it matters. */
CUresult ull__own_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                        CUdeviceptr ptr)
{
    CUdeviceptr start;
    uint64_t bytes;
    CUresult result = ull__driver->cuPointerSetAttribute(value, attribute, ptr);
    bool ours =
        attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
        (ull__backing_find(ptr, &start, &bytes, NULL) || ull__async_find(ptr, &start, &bytes, NULL));
    return result != CUDA_SUCCESS && ours ? CUDA_SUCCESS : result;
}

/* --- peers: access is a right of each mapping here, not of a context ---------------------------------------- */

static bool device_of_context(CUcontext context, CUdevice *device)
{
    const union ull__cuda *real = ull__driver;
    CUcontext before = NULL;
    real->cuCtxGetCurrent(&before);
    bool known = real->cuCtxSetCurrent(context) == CUDA_SUCCESS &&
                 real->cuCtxGetDevice(device) == CUDA_SUCCESS;
    real->cuCtxSetCurrent(before);
    return known;
}

static CUresult peer(CUcontext context, CUresult result, bool access)
{
    CUdevice own, other;
    if (result != CUDA_SUCCESS || ull__driver->cuCtxGetDevice(&own) != CUDA_SUCCESS ||
        !device_of_context(context, &other) || own < 0 || own >= MAX_ORDINALS || other < 0 ||
        other >= MAX_ORDINALS || own == other)
        return result;
    return ull__backing_peer(other, own, access);
}

CUresult ull__own_cuCtxEnablePeerAccess(CUcontext context, unsigned int flags)
{
    return peer(context, ull__driver->cuCtxEnablePeerAccess(context, flags), true);
}

CUresult ull__own_cuCtxDisablePeerAccess(CUcontext context)
{
    return peer(context, ull__driver->cuCtxDisablePeerAccess(context), false);
}
