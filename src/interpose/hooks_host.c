/*
 * hooks_host.c: pinned host memory. It counts where the device has no memory of its own (integrated
 * GPUs), since there it is the device's memory; elsewhere these hooks only pass on.
 */
#include "interpose.h"

enum { HOST_PAGE = 4096 };

static const struct ull__gpu *integrated(void)
{
    const struct ull__gpu *gpu = ull__current_gpu();
    return gpu && gpu->integrated ? gpu : NULL;
}

static bool begin(struct ull__charge *charge, const struct ull__gpu *gpu, uint64_t bytes,
                  const char *call)
{
    *charge = (struct ull__charge){.gpu = gpu,
                                   .class = ULL_CLASS_DATA,
                                   .bytes = bytes > INT64_MAX - HOST_PAGE
                                                ? INT64_MAX
                                                : (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE,
                                   .call = call,
                                   .began_ns = ull__moment_now()};
    return ull__reserve(charge, bytes);
}

static CUresult end(struct ull__charge *charge, CUresult result, void *address, uint64_t bytes)
{
    if (result != CUDA_SUCCESS) {
        ull__cancel(charge, result);
        return result;
    }
    struct ull__block block = {.address = (uint64_t)(uintptr_t)address,
                               .bytes = bytes,
                               .charged = charge->bytes,
                               .ordinal = (int)(charge->gpu - ull__state.gpus),
                               .class = ULL_CLASS_DATA,
                               .kind = BLOCK_HOST};
    ull__driver->cuCtxGetCurrent(&block.context);
    ull__block_add(&block);
    charge->address = block.address;
    ull__settle(charge, charge->bytes);
    return result;
}

CUresult ull__do_cuMemAllocHost(void **p, unsigned int bytes)
{
    const struct ull__gpu *gpu = integrated();
    struct ull__charge charge;
    if (!gpu || bytes == 0)
        return ull__driver->cuMemAllocHost(p, bytes);
    if (!begin(&charge, gpu, bytes, "cuMemAllocHost"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAllocHost(p, bytes);
    return end(&charge, result, result == CUDA_SUCCESS ? *p : NULL, bytes);
}

CUresult ull__do_cuMemAllocHost_v2(void **p, size_t bytes)
{
    const struct ull__gpu *gpu = integrated();
    struct ull__charge charge;
    if (!gpu || bytes == 0)
        return ull__driver->cuMemAllocHost_v2(p, bytes);
    if (!begin(&charge, gpu, bytes, "cuMemAllocHost"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAllocHost_v2(p, bytes);
    return end(&charge, result, result == CUDA_SUCCESS ? *p : NULL, bytes);
}

CUresult ull__do_cuMemHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    const struct ull__gpu *gpu = integrated();
    struct ull__charge charge;
    if (!gpu || bytes == 0)
        return ull__driver->cuMemHostAlloc(p, bytes, flags);
    if (!begin(&charge, gpu, bytes, "cuMemHostAlloc"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemHostAlloc(p, bytes, flags);
    return end(&charge, result, result == CUDA_SUCCESS ? *p : NULL, bytes);
}

CUresult ull__do_cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
    const struct ull__gpu *gpu = integrated();
    struct ull__charge charge;
    if (!gpu || bytes == 0)
        return ull__driver->cuMemHostRegister(p, bytes, flags);
    if (!begin(&charge, gpu, bytes, "cuMemHostRegister"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end(&charge, ull__driver->cuMemHostRegister(p, bytes, flags), p, bytes);
}

CUresult ull__do_cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    const struct ull__gpu *gpu = integrated();
    struct ull__charge charge;
    if (!gpu || bytes == 0)
        return ull__driver->cuMemHostRegister_v2(p, bytes, flags);
    if (!begin(&charge, gpu, bytes, "cuMemHostRegister"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return end(&charge, ull__driver->cuMemHostRegister_v2(p, bytes, flags), p, bytes);
}

static CUresult freed(void *p, CUresult (*call)(void *))
{
    struct ull__block block;
    struct ull__moment moment = {.began_ns = ull__moment_now()};
    bool known = ull__block_take((uint64_t)(uintptr_t)p, &block);
    CUresult result = call(p);
    if (known && result == CUDA_SUCCESS)
        ull__block_ended(&block, &moment);
    else if (known)
        ull__block_put_back(&block);
    return result;
}

CUresult ull__do_cuMemFreeHost(void *p)
{
    return freed(p, ull__driver->cuMemFreeHost);
}

CUresult ull__do_cuMemHostUnregister(void *p)
{
    return freed(p, ull__driver->cuMemHostUnregister);
}
