/*
 * hooks_linear.c: linear, pitched and managed memory, and cuMemFree for whatever it is given.
 */
#include "interpose.h"

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return bytes > UINT64_MAX - to ? UINT64_MAX : (bytes + to - 1) / to * to;
}

/* Where the current context's memory lies. */
static bool begin(struct ull__charge *charge, uint64_t asked, const char *call)
{
    charge->gpu = ull__current_gpu();
    charge->class = ULL_CLASS_DATA;
    charge->call = call;
    /* The worst case: it touches pages that nobody else is in. */
    charge->bytes = charge->gpu ? round_up(asked, charge->gpu->page) : 0;
    return ull__reserve(charge, asked);
}

static CUresult end(struct ull__charge *charge, CUresult result, CUdeviceptr address, uint64_t bytes,
                    enum ull__block_kind kind)
{
    if (result != CUDA_SUCCESS) {
        ull__cancel(charge);
        return result;
    }
    struct ull__block block = {.address = address,
                               .bytes = bytes,
                               .ordinal = (int)(charge->gpu - ull__state.gpus),
                               .class = ULL_CLASS_DATA,
                               .kind = (uint8_t)kind};
    ull__driver->cuCtxGetCurrent(&block.context);
    block.charged = ull__pages_take(charge->gpu, address, bytes);
    if (!ull__block_add(&block)) {
        ull__driver->cuMemFree_v2(address);
        ull__pages_drop(charge->gpu, address, bytes);
        ull__cancel(charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ull__settle(charge, block.charged);
    return CUDA_SUCCESS;
}

/* Without a current context the driver answers; it takes nothing then. */
static bool no_context(void)
{
    CUdevice ordinal;
    return ull__driver->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS;
}

CUresult ull__do_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
    struct ull__charge charge;
    if (unlikely(bytes == 0 || !dptr || no_context()))
        return ull__driver->cuMemAlloc_v2(dptr, bytes);
    if (!begin(&charge, bytes, "cuMemAlloc"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAlloc_v2(dptr, bytes);
    return end(&charge, result, *dptr, bytes, BLOCK_LINEAR);
}

CUresult ull__do_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
    struct ull__charge charge;
    if (bytes == 0 || !dptr || no_context())
        return ull__driver->cuMemAllocManaged(dptr, bytes, flags);
    if (!begin(&charge, bytes, "cuMemAllocManaged"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAllocManaged(dptr, bytes, flags);
    return end(&charge, result, *dptr, bytes, BLOCK_MANAGED);
}

/* Rows begin at multiples of 512 bytes on every card seen; settled to the pitch that comes back. */
static uint64_t pitched(uint64_t width, uint64_t height)
{
    uint64_t row = round_up(width, 512);
    return height && row > INT64_MAX / height ? INT64_MAX : row * height;
}

CUresult ull__do_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width_in_bytes,
                                    size_t height, unsigned int element_size_bytes)
{
    struct ull__charge charge;
    if (width_in_bytes == 0 || height == 0 || !dptr || !pitch || no_context())
        return ull__driver->cuMemAllocPitch_v2(dptr, pitch, width_in_bytes, height,
                                               element_size_bytes);
    if (!begin(&charge, pitched(width_in_bytes, height), "cuMemAllocPitch"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAllocPitch_v2(dptr, pitch, width_in_bytes, height,
                                                      element_size_bytes);
    return end(&charge, result, *dptr, *pitch * height, BLOCK_LINEAR);
}

/* The forms of CUDA before 3.2, with 32-bit addresses. */
CUresult ull__do_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytes)
{
    struct ull__charge charge;
    if (bytes == 0 || !dptr || no_context())
        return ull__driver->cuMemAlloc(dptr, bytes);
    if (!begin(&charge, bytes, "cuMemAlloc"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAlloc(dptr, bytes);
    return end(&charge, result, *dptr, bytes, BLOCK_LINEAR);
}

CUresult ull__do_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pitch,
                                 unsigned int width_in_bytes, unsigned int height,
                                 unsigned int element_size_bytes)
{
    struct ull__charge charge;
    if (width_in_bytes == 0 || height == 0 || !dptr || !pitch || no_context())
        return ull__driver->cuMemAllocPitch(dptr, pitch, width_in_bytes, height, element_size_bytes);
    if (!begin(&charge, pitched(width_in_bytes, height), "cuMemAllocPitch"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        ull__driver->cuMemAllocPitch(dptr, pitch, width_in_bytes, height, element_size_bytes);
    return end(&charge, result, *dptr, (uint64_t)*pitch * height, BLOCK_LINEAR);
}

/* --- frees ---------------------------------------------------------------------------------------------- */

/* The books of a block whose memory is gone. */
void ull__block_ended(const struct ull__block *block)
{
    const struct ull__gpu *gpu = ull__gpu_of(block->ordinal);
    enum ull__class class = (enum ull__class)block->class;
    uint64_t bytes = block->charged;
    switch ((enum ull__block_kind)block->kind) {
    case BLOCK_POOL:
        ull__reserve_block_freed(block->owner);
        return;
    case BLOCK_SMALL_ARRAY:
        ull__small_array_ended(block);
        return;
    case BLOCK_IMPORT:
        if (gpu->device >= 0)
            ull__member_import_closed(atomic_load(&ull__state.member), gpu->device, block->key,
                                      block->bytes);
        return;
    case BLOCK_LINEAR:
    case BLOCK_MANAGED:
        bytes = ull__pages_drop(gpu, block->address, block->bytes);
        break;
    case BLOCK_ARRAY:
    case BLOCK_HOST:
    case BLOCK_CONTEXT:
        break;
    }
    if (block->key && gpu->device >= 0)
        ull__member_release_exported(atomic_load(&ull__state.member), gpu->device, class, block->key,
                                     bytes);
    else
        ull__give_back(gpu, class, bytes);
}

/*
 * The block leaves the table before the driver frees it, since its address may be given out again at
 * once, and comes back if the driver refuses.
 */
static CUresult free_block(CUdeviceptr address, CUresult (*call)(CUdeviceptr, CUstream), CUstream stream)
{
    struct ull__block block;
    if (!ull__block_take(address, &block))
        return call(address, stream); /* not ours to judge: forwarded */
    ull__turn(1);
    CUresult result = call(address, stream);
    if (result == CUDA_SUCCESS)
        ull__block_ended(&block);
    else
        ull__block_add(&block);
    ull__turn(0);
    return result;
}

static CUresult call_free(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    return ull__driver->cuMemFree_v2(address);
}

static CUresult call_free_v1(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    return ull__driver->cuMemFree((CUdeviceptr_v1)address);
}

static CUresult call_free_async(CUdeviceptr address, CUstream stream)
{
    return ull__driver->cuMemFreeAsync(address, stream);
}

static CUresult call_free_async_ptsz(CUdeviceptr address, CUstream stream)
{
    return ull__driver->cuMemFreeAsync_ptsz(address, stream);
}

CUresult ull__do_cuMemFree_v2(CUdeviceptr dptr)
{
    return free_block(dptr, call_free, NULL);
}

CUresult ull__do_cuMemFree(CUdeviceptr_v1 dptr)
{
    return free_block(dptr, call_free_v1, NULL);
}

CUresult ull__do_cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
    return free_block(dptr, call_free_async, stream);
}

CUresult ull__do_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
    return free_block(dptr, call_free_async_ptsz, stream);
}
