/*
 * gates.c: the gate in front of calls that make a device work; see suspend.h.
 *
 * A thread counts itself in, then looks whether the gate is closed; who closes it sets that first and then looks
 * at the counts. So one of the two sees the other. The counts are spread over cache lines, so that threads
 * which launch at the same time do not fight for one; it costs two locked additions a call.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "async.h"
#include "jump.h"

struct ull__gate ull__gate;

static _Atomic uint32_t last_lane;
static __thread struct ull__gate_lane *own_lane __attribute__((tls_model("initial-exec")));
static __thread uint32_t depth __attribute__((tls_model("initial-exec")));
static __thread bool launched __attribute__((tls_model("initial-exec"))); /* anything, ever */

bool ull__gates_wanted(void)
{
    static _Atomic int wanted; /* 0: not looked yet; 1: no; 2: yes */
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (unlikely(known == 0)) {
        const char *text = getenv("ULLAGE_SUSPENDABLE");
        known = text && strcmp(text, "1") == 0 ? 2 : 1;
        atomic_store(&wanted, known);
    }
    return known == 2;
}

bool ull__backing_wanted(void)
{
    static _Atomic int wanted;
    int known = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (unlikely(known == 0)) {
        const char *text = getenv("ULLAGE_SPILL");
        known = (text && strcmp(text, "1") == 0) || ull__gates_wanted() ? 2 : 1;
        atomic_store(&wanted, known);
    }
    return known == 2;
}

struct ull__gate_lane *ull__gate_lane(void)
{
    if (unlikely(!own_lane))
        own_lane = &ull__gate.lanes[atomic_fetch_add(&last_lane, 1) % GATE_LANES];
    return own_lane;
}

/*
 * The gate is closed: out again, and in once it is open, or where a pass is to be had. Who looks for a pass is counted
 * in, so that whoever finds none left and nobody inside knows that nobody comes any more.
 */
static bool take(_Atomic uint32_t *from)
{
    uint32_t passes = atomic_load(from);
    while (passes > 0)
        if (atomic_compare_exchange_weak(from, &passes, passes - 1))
            return true;
    return false;
}

static bool may_come_in(void)
{
    return !atomic_load(&ull__gate.closed) || (!launched && take(&ull__gate.passes_beside)) ||
           take(&ull__gate.passes);
}

void ull__gate_wait(struct ull__gate_lane *lane)
{
    for (;;) {
        uint32_t bell = atomic_load(&ull__gate.bell);
        if (may_come_in())
            return;
        atomic_fetch_add(&ull__gate.beside, !launched);
        atomic_fetch_sub(&lane->inside, 1);
        syscall(SYS_futex, &ull__gate.bell, FUTEX_WAIT_PRIVATE, bell, NULL, NULL, 0);
        atomic_fetch_add(&lane->inside, 1);
        atomic_fetch_sub(&ull__gate.beside, !launched);
    }
}

static void ring(int most)
{
    atomic_fetch_add(&ull__gate.bell, 1);
    syscall(SYS_futex, &ull__gate.bell, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

void ull__gate_open(void)
{
    atomic_store(&ull__gate.passes, 0);
    atomic_store(&ull__gate.passes_beside, 0);
    atomic_store(&ull__gate.closed, 0);
    ring(INT_MAX);
}

/* All are woken where not all may take it. */
void ull__gate_let_in(bool beside)
{
    atomic_store(beside ? &ull__gate.passes_beside : &ull__gate.passes, 1);
    ring(beside ? INT_MAX : 1);
}

bool ull__gate_has_pass(void)
{
    return atomic_load(&ull__gate.passes) + atomic_load(&ull__gate.passes_beside) > 0;
}

bool ull__gate_let_none_in(void)
{
    uint32_t left = atomic_exchange(&ull__gate.passes, 0);
    return left + atomic_exchange(&ull__gate.passes_beside, 0) == 0;
}

struct ull__gate_lane *ull__gate_enter(bool launches)
{
    struct ull__gate_lane *lane = ull__gate_lane();
    if (launches)
        launched = true;
    if (depth++ > 0)
        return lane;
    atomic_fetch_add(&lane->inside, 1);
    if (unlikely(atomic_load(&ull__gate.closed)))
        ull__gate_wait(lane);
    return lane;
}

void ull__gate_leave(struct ull__gate_lane *lane)
{
    if (--depth == 0)
        atomic_fetch_sub_explicit(&lane->inside, 1, memory_order_release);
}

void ull__gate_pause(void)
{
    if (depth > 0)
        atomic_fetch_sub_explicit(&ull__gate_lane()->inside, 1, memory_order_release);
}

void ull__gate_go_on(void)
{
    struct ull__gate_lane *lane = ull__gate_lane();
    if (depth == 0)
        return;
    atomic_fetch_add(&lane->inside, 1);
    if (atomic_load(&ull__gate.closed))
        ull__gate_wait(lane);
}

/* Its one thread is the one that forked, and it was in no call. */
void ull__gates_forget(void)
{
    for (int i = 0; i < GATE_LANES; i++)
        atomic_store(&ull__gate.lanes[i].inside, 0);
    atomic_store(&ull__gate.closed, 0);
    atomic_store(&ull__gate.passes, 0);
    atomic_store(&ull__gate.passes_beside, 0);
    atomic_store(&ull__gate.beside, 0);
    depth = 0;
}

/* --- the entry points ---------------------------------------------------------------------------------- */

#define CU_HOOK(symbol, base, since, since_pt, params, args)
#define CU_CALL(symbol, base, since, since_pt, exempt, params)
#define CU_PASS(symbol, base, since, since_pt, exempt)
#define CU_GATE(symbol, base, since, since_pt, exempt, params, args)                               \
    static CUresult gated_##symbol params                                                          \
    {                                                                                              \
        const union ull__cuda *real = ull__jump_driver();                                          \
        if (unlikely(!real || !real->symbol))                                                      \
            return real ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;                         \
        if (unlikely(!ull__held())) /* a forked child must not wait for its parent's memory */     \
            return real->symbol args;                                                              \
        struct ull__gate_lane *lane = ull__gate_enter(ull__is_launch(#symbol));                    \
        CUresult result = real->symbol args;                                                       \
        ull__gate_leave(lane);                                                                     \
        return result;                                                                             \
    }
#define CU_OWN(symbol, base, since, since_pt, exempt, params, args)                                \
    static CUresult gated_##symbol params                                                          \
    {                                                                                              \
        const union ull__cuda *real = ull__jump_driver();                                          \
        if (unlikely(!real || !real->symbol))                                                      \
            return real ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;                         \
        if (!ull__held())                                                                          \
            return real->symbol args;                                                              \
        struct ull__gate_lane *lane = ull__gate_enter(false);                                      \
        CUresult result = ull__own_##symbol args;                                                  \
        ull__gate_leave(lane);                                                                     \
        return result;                                                                             \
    }
/* Not through the gate: it may wait for long, and holds nothing up. */
#define CU_SYNC(symbol, base, since, since_pt, exempt, params, args)                               \
    static CUresult gated_##symbol params                                                          \
    {                                                                                              \
        const union ull__cuda *real = ull__jump_driver();                                          \
        if (unlikely(!real || !real->symbol))                                                      \
            return real ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;                         \
        CUresult result = real->symbol args;                                                       \
        if (result == CUDA_SUCCESS && ull__held())                                                 \
            ull__async_synchronized();                                                             \
        return result;                                                                             \
    }
/* A capture counts as open from before it begins until after it ended, well or not. */
#define CU_CAPTURE(symbol, base, since, since_pt, exempt, params, args)                            \
    static CUresult gated_##symbol params                                                          \
    {                                                                                              \
        const union ull__cuda *real = ull__jump_driver();                                          \
        bool begins = #symbol[8] == 'B'; /* cuStreamBegin... */                                    \
        if (unlikely(!real || !real->symbol))                                                      \
            return real ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;                         \
        if (unlikely(!ull__held())) /* a forked child must not wait for its parent's memory */     \
            return real->symbol args;                                                              \
        struct ull__gate_lane *lane = ull__gate_enter(false);                                      \
        CUresult result = real->symbol args;                                                       \
        if (begins && result == CUDA_SUCCESS)                                                      \
            ull__capture_began(stream);                                                            \
        else if (!begins)                                                                          \
            ull__capture_ended(stream);                                                            \
        ull__gate_leave(lane);                                                                     \
        return result;                                                                             \
    }
#include "cuda_api.def"

/* Which of them are needed where nothing is ever suspended. */
static const struct {
    void *function;
    bool always;
} gated[ULL_CU_COUNT] = {
#define CU_HOOK(symbol, base, since, since_pt, params, args) {NULL, false},
#define CU_CALL(symbol, base, since, since_pt, exempt, params) {NULL, false},
#define CU_PASS(symbol, base, since, since_pt, exempt) {NULL, false},
#define CU_GATE(symbol, base, since, since_pt, exempt, params, args)                               \
    {(void *)gated_##symbol, false},
#define CU_OWN(symbol, base, since, since_pt, exempt, params, args) {(void *)gated_##symbol, true},
#define CU_CAPTURE(symbol, base, since, since_pt, exempt, params, args)                            \
    {(void *)gated_##symbol, true},
#define CU_SYNC(symbol, base, since, since_pt, exempt, params, args)                               \
    {(void *)gated_##symbol, false},
#include "cuda_api.def"
};

void *ull__gated(int index)
{
    bool needed = gated[index].always ? ull__backing_wanted() : ull__gates_wanted();
    return needed ? gated[index].function : NULL;
}
