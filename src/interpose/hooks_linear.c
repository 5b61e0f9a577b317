/*
 * hooks_linear.c: linear, pitched and managed memory, and cuMemFree for whatever it is given.
 */
#include "async.h"
#include "interpose.h"

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return bytes > UINT64_MAX - to ? UINT64_MAX : (bytes + to - 1) / to * to;
}

enum verdict { PASS_ON, REFUSED, RESERVED };

/* Frees that had to wait for the end of a capture. */
static void free_what_is_due(void)
{
    CUdeviceptr dptr;
    while (unlikely(ull__backing_wanted()) && ull__frees_due(&dptr))
        ull__do_cuMemFree_v2(dptr);
}

/* What the driver would give, or our own: that can be moved, or that is host memory. */
static CUresult take_once(const struct ull__charge *charge, CUdeviceptr *dptr, uint64_t bytes)
{
    return charge->spilled || ull__gates_wanted()
               ? ull__backing_alloc(charge->gpu, dptr, bytes, charge->spilled)
               : ull__driver->cuMemAlloc_v2(dptr, bytes);
}

static CUresult take(struct ull__charge *charge, CUdeviceptr *dptr, uint64_t bytes)
{
    CUresult result;
    do
        result = take_once(charge, dptr, bytes);
    while (unlikely(ull__spill_instead(charge, result)));
    return result;
}

static CUresult drop(CUdeviceptr dptr)
{
    return ull__backing_wanted() ? ull__backing_free(dptr) : ull__driver->cuMemFree_v2(dptr);
}

/* Without a current context, or for nothing, the driver answers; it takes nothing then. */
static enum verdict begin(struct ull__charge *charge, uint64_t asked, bool may_spill, const char *call)
{
    CUdevice ordinal;
    uint64_t began_ns = ull__moment_now();
    free_what_is_due();
    if (unlikely(asked == 0 || ull__driver->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS))
        return PASS_ON;
    const struct ull__gpu *gpu = ull__gpu_of(ordinal);
    /* The worst case: it touches pages that nobody else is in. */
    *charge = (struct ull__charge){.gpu = gpu,
                                   .class = ULL_CLASS_DATA,
                                   .bytes = gpu ? round_up(asked, gpu->page) : 0,
                                   .call = call,
                                   .may_spill = may_spill,
                                   .began_ns = began_ns};
    return ull__reserve(charge, asked) ? RESERVED : REFUSED;
}

static CUresult end(struct ull__charge *charge, CUresult result, CUdeviceptr address,
                    uint64_t bytes, enum ull__block_kind kind)
{
    if (result != CUDA_SUCCESS) {
        ull__cancel(charge, result);
        return result;
    }
    struct ull__block block = {.address = address,
                               .bytes = bytes,
                               .ordinal = (int)(charge->gpu - ull__state.gpus),
                               .class = ULL_CLASS_DATA,
                               .kind = charge->spilled ? BLOCK_SPILLED : (uint8_t)kind};
    ull__driver->cuCtxGetCurrent(&block.context);
    if (!ull__block_add(&block)) {
        drop(address);
        ull__cancel(charge, result);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge->address = address;
    charge->asked = bytes;
    ull__settle(charge, block.charged);
    return CUDA_SUCCESS;
}

CUresult ull__do_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
    struct ull__charge charge;
    enum verdict verdict = begin(&charge, dptr ? bytes : 0, ull__backing_wanted(), "cuMemAlloc");
    if (unlikely(verdict == REFUSED))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = verdict == PASS_ON ? ull__driver->cuMemAlloc_v2(dptr, bytes)
                                    : take(&charge, dptr, bytes);
    while (verdict == RESERVED && ull__again(&charge, result));
    return verdict == PASS_ON ? result : end(&charge, result, *dptr, bytes, BLOCK_LINEAR);
}

CUresult ull__do_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
    struct ull__charge charge;
    enum verdict verdict = begin(&charge, dptr ? bytes : 0, false, "cuMemAllocManaged");
    if (verdict == REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = ull__driver->cuMemAllocManaged(dptr, bytes, flags);
    while (verdict == RESERVED && ull__again(&charge, result));
    return verdict == PASS_ON ? result : end(&charge, result, *dptr, bytes, BLOCK_MANAGED);
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
    uint64_t asked = dptr && pitch ? pitched(width_in_bytes, height) : 0;
    enum verdict verdict = begin(&charge, asked, ull__backing_wanted(), "cuMemAllocPitch");
    if (verdict == REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do {
        bool ours = verdict == RESERVED && (ull__gates_wanted() || charge.spilled);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (!ours)
            result = ull__driver->cuMemAllocPitch_v2(dptr, pitch, width_in_bytes, height,
                                                     element_size_bytes);
        if (ours || (verdict == RESERVED && ull__spill_instead(&charge, result))) {
            result = take(&charge, dptr, asked);
            if (result == CUDA_SUCCESS)
                *pitch = asked / height;
        }
    } while (verdict == RESERVED && ull__again(&charge, result));
    return verdict == PASS_ON ? result : end(&charge, result, *dptr, *pitch * height, BLOCK_LINEAR);
}

/* The forms of CUDA before 3.2, with 32-bit addresses. */
CUresult ull__do_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytes)
{
    struct ull__charge charge;
    enum verdict verdict = begin(&charge, dptr ? bytes : 0, false, "cuMemAlloc");
    if (verdict == REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMemAlloc(dptr, bytes);
    return verdict == PASS_ON ? result : end(&charge, result, *dptr, bytes, BLOCK_LINEAR);
}

CUresult ull__do_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pitch,
                                 unsigned int width_in_bytes, unsigned int height,
                                 unsigned int element_size_bytes)
{
    struct ull__charge charge;
    uint64_t asked = dptr && pitch ? pitched(width_in_bytes, height) : 0;
    enum verdict verdict = begin(&charge, asked, false, "cuMemAllocPitch");
    if (verdict == REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        ull__driver->cuMemAllocPitch(dptr, pitch, width_in_bytes, height, element_size_bytes);
    return verdict == PASS_ON ? result
                              : end(&charge, result, *dptr, (uint64_t)*pitch * height, BLOCK_LINEAR);
}

/* --- frees ---------------------------------------------------------------------------------------------- */

/* What ends with a block beside its own charge; by how much that makes the books fall. */
static uint64_t end_block(const struct ull__block *block, const struct ull__gpu *gpu)
{
    switch ((enum ull__block_kind)block->kind) {
    case BLOCK_POOL:
        ull__reserve_block_freed(block->owner);
        return 0;
    case BLOCK_SMALL_ARRAY:
        return ull__small_array_ended(block);
    case BLOCK_IMPORT:
        if (gpu->device >= 0)
            ull__member_import_closed(atomic_load(&ull__state.member), gpu->device, block->key,
                                      block->bytes);
        return 0;
    case BLOCK_LINEAR:
    case BLOCK_MANAGED:
    case BLOCK_SPILLED:
    case BLOCK_ORDERED:
    case BLOCK_ARRAY:
    case BLOCK_HOST:
    case BLOCK_CONTEXT:
    case BLOCK_STACK:
        break;
    }
    return block->charged;
}

static void tell_end(const struct ull__block *block, const struct ull__gpu *gpu, uint64_t charged,
                     const struct ull__moment *moment)
{
    enum ull__class class = (enum ull__class)block->class;
    if (block->kind == BLOCK_IMPORT) /* its memory is another's, or was left to this process */
        ull__tell_inherited();
    else if (block->kind == BLOCK_STACK) /* grew with its context, not as a block */
        ull__tell_change(gpu, class, -(int64_t)charged);
    else
        ull__tell_freed(gpu, class, block->address, block->bytes, charged, moment);
}

void ull__block_ended(struct ull__block *block, const struct ull__moment *moment)
{
    const struct ull__gpu *gpu = ull__gpu_of(block->ordinal);
    enum ull__class class = (enum ull__class)block->class;
    ull__block_leave_pages(block);
    uint64_t charged = end_block(block, gpu);
    if (block->kind == BLOCK_SPILLED) { /* nothing of the device's books */
        if (ull__recording())
            ull__tell_freed(gpu, class, block->address, block->bytes, 0, moment);
        ull__member_unspill(atomic_load(&ull__state.member), gpu->device, charged);
        return;
    }
    if (ull__recording())
        tell_end(block, gpu, charged, moment);
    if (block->key && block->kind != BLOCK_IMPORT && charged && gpu->device >= 0)
        ull__member_release_exported(atomic_load(&ull__state.member), gpu->device, class,
                                     block->key, charged);
    else
        ull__give_back(gpu, class, charged);
}

/*
 * The block leaves the table before the driver frees it, since its address may be given out again at
 * once, and comes back if the driver refuses.
 */
static CUresult free_block(CUdeviceptr address, CUresult (*call)(CUdeviceptr, CUstream),
                           CUstream stream)
{
    struct ull__block block;
    struct ull__moment moment = {ull__moment_now(), stream};
    if (!ull__block_take(address, &block))
        return call(address, stream); /* not ours to judge: forwarded */
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = call(address, stream);
    if (result == CUDA_SUCCESS)
        ull__block_ended(&block, &moment);
    else
        ull__block_put_back(&block);
    ull__turn(ULL_TURN_END);
    return result;
}

static CUresult call_free(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    return drop(address);
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
    /* Freeing waits for work, which nobody may do while a capture is open. */
    CUresult result;
    if (unlikely(ull__backing_wanted()) && ull__free_later(dptr))
        return CUDA_SUCCESS;
    if (unlikely(ull__gates_wanted()) && ull__async_free_now(dptr, &result))
        return result;
    if (unlikely(ull__backing_wanted()) && ull__async_free_waits(dptr))
        return CUDA_ERROR_INVALID_VALUE;
    return free_block(dptr, call_free, NULL);
}

CUresult ull__do_cuMemFree(CUdeviceptr_v1 dptr)
{
    return free_block(dptr, call_free_v1, NULL);
}

CUresult ull__do_cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
    CUresult result;
    if (unlikely(ull__backing_wanted()) && ull__async_free(dptr, stream, false, &result))
        return result;
    return free_block(dptr, call_free_async, stream);
}

CUresult ull__do_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
    CUresult result;
    if (unlikely(ull__backing_wanted()) && ull__async_free(dptr, stream, true, &result))
        return result;
    return free_block(dptr, call_free_async_ptsz, stream);
}
