/*
 * cuda_plain.c: memory of a CUDA device that cannot map pages (no virtual memory management in the
 * device or the driver). A region (see device.h) is one cuMemAlloc.
 *
 * What a pool cannot do on it: free pages that lie apart cannot be put side by side, and a region goes
 * back only when all of it is free. The driver's cuMemFree waits for the device's work; the pool gives
 * regions back only on trim, for a lowered limit, when idle, or before it would have to refuse.
 * The driver promises addresses that are multiples of 256 bytes, no more, and so does this.
 */
#include "cuda_private.h"

ull_status ull__cuda_plain_create(struct ull__device *device, size_t count, ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    CUdeviceptr at = 0;
    if (count == 0)
        return ULL_OK;
    if (count > SIZE_MAX / device->page_bytes)
        return ULL_E_NO_MEMORY;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuMemAlloc_v2(&at, count * device->page_bytes);
    ull__cuda_leave(cuda, &scope);
    for (size_t i = 0; i < count && code == CUDA_SUCCESS; i++)
        pages[i] = at + i * device->page_bytes;
    return ull__cuda_status(code);
}

void ull__cuda_plain_destroy_pages(struct ull__device *device, size_t count, const ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (count == 0 || ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return;
    cuda->driver->cuMemFree_v2(pages[0]);
    ull__cuda_leave(cuda, &scope);
}
