/*
 * hooks_stacks.c: what grows with a context.
 *
 * The memory for stacks is the stack limit times all threads that can be resident: raising it from 1
 * to 16 KiB took 4 GiB on an H200 at once. So a raise is reserved like an allocation.
 */
#include "interpose.h"

/* The stacks of the current context took (or gave back) so much. Its address is odd, as no other's. */
static void change_stacks(int ordinal, int64_t delta)
{
    struct ull__block block;
    CUcontext context = NULL;
    ull__driver->cuCtxGetCurrent(&context);
    uint64_t address = (uint64_t)(uintptr_t)context + 1;
    if (!ull__block_take(address, &block))
        block = (struct ull__block){.address = address,
                                    .context = context,
                                    .ordinal = ordinal,
                                    .class = ULL_CLASS_MODULE,
                                    .kind = BLOCK_STACK};
    if (delta < 0 && (uint64_t)-delta > block.charged)
        delta = -(int64_t)block.charged;
    block.bytes = block.charged += (uint64_t)delta;
    if (delta < 0)
        ull__lower(ull__gpu_of(ordinal), ULL_CLASS_MODULE, (uint64_t)-delta);
    if (block.charged > 0)
        ull__block_add(&block);
}

static CUresult lower_limit(const struct ull__gpu *gpu, CUlimit limit, size_t old, size_t value)
{
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = ull__driver->cuCtxSetLimit(limit, value);
    if (result == CUDA_SUCCESS && old > value)
        change_stacks((int)(gpu - ull__state.gpus), -(int64_t)((old - value) * gpu->stack_threads));
    ull__turn(ULL_TURN_END);
    return result;
}

static CUresult raise_limit(const struct ull__gpu *gpu, CUlimit limit, size_t old, size_t value)
{
    struct ull__charge charge = {.gpu = gpu,
                                 .class = ULL_CLASS_MODULE,
                                 .bytes = (value - old) * gpu->stack_threads,
                                 .call = "cuCtxSetLimit",
                                 .began_ns = ull__moment_now()};
    if (!ull__reserve(&charge, charge.bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS) {
        ull__cancel(&charge, result);
        return result;
    }
    change_stacks((int)(gpu - ull__state.gpus), (int64_t)charge.bytes);
    ull__settle(&charge, charge.bytes); /* corrected by NVML's figure with the rest of the class */
    return result;
}

/* By one thread at a time: of two that raise it at once the second has nothing to pay. */
static CUresult set_stacks(const struct ull__gpu *gpu, CUlimit limit, size_t value)
{
    size_t old = 0;
    if (ull__driver->cuCtxGetLimit(&old, limit) != CUDA_SUCCESS ||
        (value > old && value - old > INT64_MAX / gpu->stack_threads))
        return ull__driver->cuCtxSetLimit(limit, value);
    return value > old ? raise_limit(gpu, limit, old, value) : lower_limit(gpu, limit, old, value);
}

CUresult ull__do_cuCtxSetLimit(CUlimit limit, size_t value)
{
    const struct ull__gpu *gpu = ull__current_gpu();
    atomic_store(&ull__state.code_changed, true);
    if (limit != CU_LIMIT_STACK_SIZE || !gpu || gpu->device < 0 || gpu->stack_threads == 0)
        return ull__driver->cuCtxSetLimit(limit, value);
    int ordinal = (int)(gpu - ull__state.gpus);
    ull__context_change_begin(ordinal);
    CUresult result = set_stacks(gpu, limit, value);
    ull__context_change_end(ordinal);
    atomic_store(&ull__state.code_changed, true);
    return result;
}
