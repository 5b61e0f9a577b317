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
ull_fn_cuGetProcAddress_v2 cuGetProcAddress_v2 EXPORT;

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

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found)
{
    (void)version;
    (void)flags;
    *pfn = strcmp(symbol, "cuMemAlloc") == 0 ? (void *)cuMemAlloc_v2 : NULL;
    *found = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
