/*
 * gate.c: what a program calls for every hooked entry point.
 *
 * All of them are the same, so they are made from the list: pass the call on if this process is under
 * no budget, do ours if it is, and refuse if it should be but is not (fail closed). With `run --suspendable`
 * they wait while the memory is elsewhere.
 */
#include <stdlib.h>

#include "interpose.h"
#include "jump.h"
#include "suspend.h"

/* These decide whether a process is held, so they come before that. */
static inline bool before_start(int index)
{
    return index == ULL_CU_cuInit || index == ULL_CU_cuGetProcAddress ||
           index == ULL_CU_cuGetProcAddress_v2;
}

/* Not held: because there is no job, or because the program has not called cuInit yet? */
static bool is_free(void)
{
    int phase = atomic_load(&ull__state.phase);
    const char *job = phase == ULL_UNDECIDED ? getenv("ULLAGE_JOB") : NULL;
    return phase == ULL_FREE || (phase == ULL_UNDECIDED && (!job || !job[0]));
}

#define CU_HOOK(symbol, base, since, since_pt, params, args)                                       \
    CUresult ull__hook_##symbol params                                                             \
    {                                                                                              \
        const union ull__cuda *real = ull__jump_driver();                                          \
        if (unlikely(!real || !real->symbol))                                                      \
            return real ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;                         \
        bool held = ull__held(); /* also notices a fork, so it comes first */                      \
        if (before_start(ULL_CU_##symbol) || (held && likely(!ull__gates_wanted())))               \
            return ull__do_##symbol args;                                                          \
        if (held) {                                                                                \
            struct ull__gate_lane *lane = ull__gate_enter(ull__is_launch(#symbol));                \
            CUresult result = ull__do_##symbol args;                                               \
            ull__gate_leave(lane);                                                                 \
            return result;                                                                         \
        }                                                                                          \
        return is_free() ? real->symbol args : CUDA_ERROR_NOT_INITIALIZED;                         \
    }
#define CU_CALL(symbol, base, since, since_pt, exempt, params)
#define CU_PASS(symbol, base, since, since_pt, exempt)
#include "cuda_api.def"
