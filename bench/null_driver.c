/*
 * null_driver.c: a driver that does nothing, as fast as it can, to see what the interposer adds.
 *
 * It hands out addresses like the real one (packed below 1 MiB, whole pages above) and never takes
 * them back, so it can serve 2^45 bytes of requests. Only what bench/interpose calls is here.
 */
#include <stdatomic.h>
#include <string.h>

#include "cuda_api.h"

#define EXPORT __attribute__((visibility("default")))
#define PAGE (2ull << 20)

static _Atomic uint64_t next_page = PAGE;
static _Atomic uint64_t next_small = 1ull << 46;
static struct CUctx_st {
    int unused;
} context;

ull_fn_cuInit cuInit EXPORT;
ull_fn_cuDeviceGetCount cuDeviceGetCount EXPORT;
ull_fn_cuDeviceGet cuDeviceGet EXPORT;
ull_fn_cuDeviceGetUuid_v2 cuDeviceGetUuid_v2 EXPORT;
ull_fn_cuDeviceGetAttribute cuDeviceGetAttribute EXPORT;
ull_fn_cuDevicePrimaryCtxGetState cuDevicePrimaryCtxGetState EXPORT;
ull_fn_cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain EXPORT;
ull_fn_cuCtxSetCurrent cuCtxSetCurrent EXPORT;
ull_fn_cuCtxGetCurrent cuCtxGetCurrent EXPORT;
ull_fn_cuCtxGetDevice cuCtxGetDevice EXPORT;
ull_fn_cuMemAlloc_v2 cuMemAlloc_v2 EXPORT;
ull_fn_cuMemFree_v2 cuMemFree_v2 EXPORT;
ull_fn_cuMemGetInfo_v2 cuMemGetInfo_v2 EXPORT;
ull_fn_cuMemGetAllocationGranularity cuMemGetAllocationGranularity EXPORT;
ull_fn_cuMemAddressReserve cuMemAddressReserve EXPORT;
ull_fn_cuMemAddressFree cuMemAddressFree EXPORT;
ull_fn_cuMemCreate cuMemCreate EXPORT;
ull_fn_cuMemRelease cuMemRelease EXPORT;
ull_fn_cuMemMap cuMemMap EXPORT;
ull_fn_cuMemUnmap cuMemUnmap EXPORT;
ull_fn_cuMemSetAccess cuMemSetAccess EXPORT;
ull_fn_cuCtxSynchronize cuCtxSynchronize EXPORT;
ull_fn_cuGetProcAddress_v2 cuGetProcAddress_v2 EXPORT;

/* A launch has no hook and so no type of its own. */
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void **params, void **extra);

CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    /* The first card of tests/fakecuda, whose NVML stands beside this driver. */
    static const unsigned char bytes[16] = {0, 0, 0, 0, 0xfa, 0x4e, 0x40, 0, 0x80, 0};
    (void)dev;
    memcpy(uuid->bytes, bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    (void)attribute;
    (void)dev;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    (void)dev;
    *flags = 0;
    *active = 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    (void)dev;
    *ctx = &context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    *ctx = &context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
    if (bytes <= PAGE / 2)
        *dptr = atomic_fetch_add(&next_small, (bytes + 511) & ~511ull);
    else
        *dptr = atomic_fetch_add(&next_page, (bytes + PAGE - 1) & ~(PAGE - 1));
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    (void)dptr;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *total = *free = (size_t)1 << 45;
    return CUDA_SUCCESS;
}

/* --- what --suspendable serves allocations from --- */

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *bytes = PAGE;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    (void)alignment;
    (void)hint;
    (void)flags;
    *ptr = atomic_fetch_add(&next_page, (size + PAGE - 1) & ~(PAGE - 1));
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    (void)ptr;
    (void)size;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    static _Atomic uint64_t last;
    (void)size;
    (void)prop;
    (void)flags;
    *handle = atomic_fetch_add(&last, 1) + 1;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    (void)ptr, (void)size, (void)offset, (void)handle, (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    (void)ptr;
    (void)size;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    (void)ptr, (void)size, (void)desc, (void)count;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared_bytes, (void)stream, (void)params, (void)extra;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found)
{
    (void)version;
    (void)flags;
    *pfn = strcmp(symbol, "cuMemAlloc") == 0       ? (void *)cuMemAlloc_v2
           : strcmp(symbol, "cuLaunchKernel") == 0 ? (void *)cuLaunchKernel
                                                   : NULL;
    *found = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
