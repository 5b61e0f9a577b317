/*
 * interpose.h: what the files of the preload library share.
 *
 * The library stands in for libcuda.so.1 inside a program that knows nothing of it. Every entry point
 * of the driver is exported as a jump (jump.S); those of cuda_api.def's CU_HOOK lead to a hook, which
 * charges the job's ledger around the real call. Rules, each from a bug of somebody:
 *
 *  - A hook returns what the driver returned, or CUDA_ERROR_OUT_OF_MEMORY. Frees of what we do not
 *    know are forwarded.
 *  - No lock is held across a driver call. What a call will take at most is reserved before it and
 *    settled to what it took after it.
 *  - Nothing happens before the program's first cuInit: no thread, no file. There is no exit, signal,
 *    umask, or environment change ever; text goes to standard error through ull__say only.
 *  - A policy that cannot be read fails closed: cuInit fails, saying why.
 */
#ifndef ULLAGE_INTERPOSE_H
#define ULLAGE_INTERPOSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_load.h"
#include "event.h"
#include "member.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { MAX_ORDINALS = 64 };

/* What this process knows of a device of its own numbering. */
struct ull__gpu {
    int device; /* in the ledger; -1: the job has no such device */
    char uuid[ULL_UUID_TEXT];
    bool integrated;        /* pinned host memory counts */
    uint64_t page;          /* what the driver takes at least: its mapping granularity */
    uint64_t stack_threads; /* threads that can be resident: a byte of stack costs that much */
};

enum ull__phase {
    ULL_UNDECIDED, /* before cuInit */
    ULL_FREE,      /* no job: every hook passes on */
    ULL_HELD,      /* member of a job */
    ULL_BARRED,    /* of a job that could not be joined: cuInit fails */
};

struct ull__state {
    _Atomic int phase;
    struct ull__member *_Atomic member;
    _Atomic int gpu_count;
    struct ull__gpu gpus[MAX_ORDINALS];
    /* Charged calls: under way (low half), begun and ended (high half); see ull__turn. */
    _Atomic uint64_t turns;
    _Atomic bool context_measured[MAX_ORDINALS]; /* else charged with what the last one took */
    _Atomic bool code_changed;                   /* something ran whose memory only NVML shows */
    _Atomic bool recording;                      /* hooks tell what they do (recorder.c) */
};
extern struct ull__state ull__state;

/* --- start.c: joining the job -------------------------------------------------------------------- */

/* The real driver; loaded before any ull__do_ function runs. */
extern const union ull__cuda *_Atomic ull__driver;
/* True if this process is held: the first thing that a hook asks. */
static inline bool ull__held(void);
/* The device of the current context, or of an ordinal. NULL: no context, or not a device at all. */
const struct ull__gpu *ull__current_gpu(void);
const struct ull__gpu *ull__gpu_of(CUdevice ordinal);
/* After a fork without exec: forget what the parent had. */
void ull__check_fork(void);
/* Marks this process's memory so that a forked child can be told from its parent. */
extern _Atomic int *_Atomic ull__alive;

/* --- charge.c: reserve, settle, refuse --------------------------------------------------------------- */

struct ull__charge {
    const struct ull__gpu *gpu;
    enum ull__class class;
    uint64_t bytes; /* reserved */
    const char *call;
    bool ordered;    /* in the order of a stream: */
    CUstream stream; /* what was freed on it before is free for this call */
    bool may_spill;  /* host memory will do, if the job has `run --spill` */
    bool spilled;    /* it must be host memory: `bytes` are in the job's second account */
    /* For the record: */
    uint64_t began_ns; /* ull__moment_now at the beginning of the call; 0: nothing is recorded */
    uint64_t asked;    /* by the program */
    uint64_t address;  /* of the block, filled in before it is settled; 0: no block of its own */
    uint8_t wait;      /* enum ull__event_wait */
    struct ull__want want; /* while it waits for room: ull__again */
};

/*
 * Reserves bytes before a driver call. False: refused (the line and the record are made), and the
 * call must return CUDA_ERROR_OUT_OF_MEMORY. `asked` is what the program asked for.
 */
bool ull__reserve(struct ull__charge *charge, uint64_t asked);
/*
 * The driver answered `result` to a reserved call. True: the card was full, and host memory is reserved instead;
 * the call is to be made for that.
 */
bool ull__spill_instead(struct ull__charge *charge, CUresult result);
/*
 * The driver answered `result` to a reserved call. True: it was out of memory, a daemon has made room since,
 * and it is reserved again: make the call again. False: settle or cancel.
 */
bool ull__again(struct ull__charge *charge, CUresult result);
/* Waits until a stream's work is over, a second at most, unless it is being captured. */
void ull__wait_for_stream(CUstream stream);
/* See ull__member_want; nothing may be under way. */
bool ull__wait_for_room(const struct ull__gpu *gpu, uint64_t bytes, struct ull__want *want);
/* The driver took `taken` bytes: gives back the rest, or charges what is missing. */
void ull__settle(struct ull__charge *charge, uint64_t taken);
/* The driver took nothing, and answered `result`. */
void ull__cancel(struct ull__charge *charge, CUresult result);
void ull__give_back(const struct ull__gpu *gpu, enum ull__class class, uint64_t bytes);
/* The same where no block's end tells it. */
void ull__lower(const struct ull__gpu *gpu, enum ull__class class, uint64_t bytes);
/* A call that takes memory which no argument tells may be made only while there is any left. */
bool ull__may_grow(const struct ull__gpu *gpu, enum ull__class class, const char *call);

/*
 * Every charged call turns once before and once after it, so that whoever measures can tell whether
 * anything was going on: nothing if the number is the same afterwards and its low half is what it
 * should be.
 */
enum { ULL_TURN_BEGIN, ULL_TURN_END };
#define ULL_TURN_BEGUN ((1ull << 32) + 1) /* by which it rises when one begins */
#define ULL_TURN_ENDED ((1ull << 32) - 1)
static inline void ull__turn(int which)
{
    atomic_fetch_add(&ull__state.turns, which == ULL_TURN_BEGIN ? ULL_TURN_BEGUN : ULL_TURN_ENDED);
}

static inline uint32_t ull__calls_under_way(uint64_t turns)
{
    return (uint32_t)turns;
}

/* --- recorder.c: `run --record` ---------------------------------------------------------------------- */

/* When a call that frees began, and on which stream. */
struct ull__moment {
    uint64_t began_ns;
    CUstream stream;
};

/* The one branch that recording costs where there is none. */
static inline bool ull__recording(void)
{
    return unlikely(atomic_load_explicit(&ull__state.recording, memory_order_relaxed));
}
uint64_t ull__tell_clock(void);
static inline uint64_t ull__moment_now(void)
{
    return ull__recording() ? ull__tell_clock() : 0;
}

/*
 * These are called only while ull__recording(): of what the books rise by, afterwards; of what they fall by,
 * before. So what a record adds up to is never more than the books hold.
 */
/* What became of a charged call: memory for which the books rose by `charged`, or a refusal or error. */
void ull__tell_call(const struct ull__charge *charge, uint64_t charged, CUresult result);
void ull__tell_freed(const struct ull__gpu *gpu, enum ull__class class, uint64_t address,
                     uint64_t bytes, uint64_t charged, const struct ull__moment *moment);
/* The books changed without a block. */
void ull__tell_change(const struct ull__gpu *gpu, enum ull__class class, int64_t change);
/* What passed to this process from others, or was given back of it, since the last time. */
void ull__tell_inherited(void);
void ull__recorder_start(const struct ull__identity *identity);
void ull__recorder_forget(void);

/* --- say.c ----------------------------------------------------------------------------------------- */

/* One line on standard error, whole, "ullage: " in front. */
void ull__say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ull__say_refusal(const struct ull__refusal *refusal, uint64_t suppressed);

/* --- blocks.c: live allocations by address ----------------------------------------------------------- */

struct ull__block {
    uint64_t address; /* device address, or a handle for arrays and host memory; never 0 */
    uint64_t bytes;   /* asked for */
    uint64_t charged; /* bytes that began with this block; of an import: how often it is open */
    uint64_t hidden;  /* of a context: what of `charged` is in no process's figure of the driver */
    uint64_t key;     /* name given to other processes, 0: none */
    uint64_t born_ns;
    CUcontext context; /* destroyed with it; NULL: outlives contexts */
    void *owner;       /* the pool it came from, or NULL */
    int ordinal;       /* of the device */
    uint8_t class;     /* enum ull__class */
    uint8_t kind;      /* enum ull__block_kind */
};

enum ull__block_kind {
    BLOCK_LINEAR = 1, /* charged by pages of addresses */
    BLOCK_MANAGED,    /* the same, but NVML does not count it for the process */
    BLOCK_SPILLED,    /* the same, but host memory: charged to the job's second account */
    BLOCK_POOL,       /* charged through its pool's reserve */
    BLOCK_ORDERED,    /* of a pool of ours, which charges its pages (async.c) */
    BLOCK_ARRAY,
    BLOCK_SMALL_ARRAY, /* packed with others: charged together */
    BLOCK_HOST,        /* pinned memory of an integrated device */
    BLOCK_IMPORT,      /* memory of another process, opened here */
    BLOCK_CONTEXT,     /* the context itself */
    BLOCK_STACK,       /* of a context, beyond what it began with */
};

/*
 * All of these take the table's lock themselves. Linear and managed blocks are charged by pages: add
 * fills in what the block began. take looks up and removes before the driver frees, since the address
 * may be given out again at once; then either the block has ended (ull__block_ended), and what its
 * pages come to is seen, or the driver refused, and it is put back. add fails only without host memory.
 */
bool ull__block_add(struct ull__block *block);
bool ull__block_take(uint64_t address, struct ull__block *block);
void ull__block_put_back(struct ull__block *block);
/*
 * Memory of another process that the driver has opened: true if it was not open here before, false if it is
 * open once more. And that the driver has closed: true, and the block, if it is not open here any more.
 */
bool ull__block_opened(struct ull__block *block);
bool ull__block_closed(uint64_t address, uint64_t key, struct ull__block *block);
/* Of a block that was taken, and whose memory is gone: fills in what ended with it, and the name it had. */
void ull__block_leave_pages(struct ull__block *block);
bool ull__block_find(uint64_t address, struct ull__block *block);
bool ull__block_set_key(uint64_t address, uint64_t key, struct ull__block *block);
/* Removes one block of a destroyed context and returns true, or false when none is left. */
bool ull__block_take_of_context(CUcontext context, struct ull__block *block);
int ull__block_largest(int ordinal, struct ull__holder *holders, int max);
uint64_t ull__block_sum(int ordinal, enum ull__block_kind kind);
/* What the device's contexts are charged with that is in no figure for this process. */
uint64_t ull__block_hidden_sum(int ordinal);
/*
 * Something is charged less than was thought: true if it is still there and had so much. And the hidden part of the device's
 * contexts: the bytes by which they fell. Both in place: a context that ends meanwhile is found, and not put back.
 */
bool ull__block_lower(uint64_t address, uint64_t bytes);
uint64_t ull__block_lower_hidden(int ordinal, uint64_t most);
/* Contexts of this process that are alive; at most `max`. */
int ull__block_contexts(CUcontext *contexts, int max);
/* The block if it is the only one of its kind on the device. */
bool ull__block_only(int ordinal, enum ull__block_kind kind, struct ull__block *block);
/* The books of a block whose memory is gone (hooks_linear.c). `moment` NULL: with something else. */
void ull__block_ended(struct ull__block *block, const struct ull__moment *moment);
/* hooks_array.c: bytes to give back, by which the charge of small arrays falls. */
uint64_t ull__small_array_ended(const struct ull__block *block);
/* What small arrays are charged beyond the pages that they fill, and giving back some of it. */
uint64_t ull__arrays_slack(const struct ull__gpu *gpu);
void ull__arrays_lower_slack(const struct ull__gpu *gpu, uint64_t bytes);
void ull__arrays_forget(void);
void ull__blocks_forget(void);

/* --- pages.c: what packed allocations take -------------------------------------------------------------- */

/* For blocks.c, under its lock. Bytes that the driver took for [address, address + bytes), by the pages that are touched anew. */
uint64_t ull__pages_take(const struct ull__gpu *gpu, uint64_t address, uint64_t bytes);
/* The reverse, after the driver has freed: bytes whose last user went. */
uint64_t ull__pages_drop(const struct ull__gpu *gpu, uint64_t address, uint64_t bytes);
/* The name of a block that is gone stays with its first page, which others use; and taking one from there, 0: none is left. */
void ull__pages_leave_name(const struct ull__gpu *gpu, uint64_t address, uint64_t name);
uint64_t ull__pages_take_name(const struct ull__gpu *gpu, uint64_t address);
void ull__pages_forget(void);

/* --- reserve.c: pools and graph memory --------------------------------------------------------------- */

struct ull__reserve;
/* The reserve of a pool, or (pool NULL) of graph memory on a device; made on first use. */
struct ull__reserve *ull__reserve_of(const struct ull__gpu *gpu, CUmemoryPool pool);
/* The device of a known pool, NULL if it is not known. */
const struct ull__gpu *ull__reserve_gpu(CUmemoryPool pool);
/* Fills in *charge, whose beginning the caller has set. */
bool ull__reserve_begin(struct ull__reserve *reserve, uint64_t worst, uint64_t asked,
                        const char *call, CUstream stream, struct ull__charge *charge);
void ull__reserve_end(struct ull__reserve *reserve, uint64_t worst);
void ull__reserve_refresh(struct ull__reserve *reserve);
uint64_t ull__reserve_charged(struct ull__reserve *reserve);
/* Reads every reserve again; with `trim`, lets them give back what they do not use first. */
void ull__reserves_refresh(const struct ull__gpu *gpu, bool trim);
void ull__reserve_pool_destroyed(CUmemoryPool pool, bool before);
/* What stands in the books for destroyed pools, and giving back some of it. */
uint64_t ull__reserves_destroyed(const struct ull__gpu *gpu);
void ull__reserves_lower_destroyed(const struct ull__gpu *gpu, uint64_t bytes);
void ull__reserve_block_added(struct ull__reserve *reserve);
void ull__reserve_block_freed(struct ull__reserve *reserve);
void ull__reserves_forget(void);

/* Is this stream being captured? `unsure` where the driver does not say. (hooks_pool.c) */
bool ull__capturing(CUstream stream, bool per_thread, bool unsure);

/* --- hooks_vmm.c, hooks_graph.c, hooks_context.c: their own books ----------------------------------- */

void ull__handles_forget(void);
void ull__graphs_forget(void);
void ull__contexts_forget(void);
/* NULL: the program has none. */
CUcontext ull__primary_context(CUdevice ordinal);
/* Around what one thread at a time may do with a device's contexts. Whoever waits is outside the gate. */
void ull__context_change_begin(CUdevice ordinal);
void ull__context_change_end(CUdevice ordinal);

/* --- measure.c: NVML's figure for this process ------------------------------------------------------ */

/* Loads NVML; called by the parked thread. */
void ull__measure_start(void);
bool ull__measure_ready(uint64_t wait_ns);
/* What NVML says this process holds on a device; false if it cannot tell. */
bool ull__measure(const struct ull__gpu *gpu, uint64_t *bytes);
/* True once NVML is known to list this process: then its figure will settle what is in doubt. */
bool ull__measure_works(void);
/* What the card is in use by, if nobody else is seen on it; for where no figure is to be had. */
bool ull__measure_card(const struct ull__gpu *gpu, uint64_t *bytes);
/* What is in use on the card and in no process's figure; `others` changes with the figures of other processes. */
struct ull__unnamed {
    uint64_t bytes, others;
};
bool ull__measure_unnamed(const struct ull__gpu *gpu, struct ull__unnamed *unnamed);
/* Contexts are charged no more than what is known by now of their hidden part. */
void ull__measure_lower_hidden(const struct ull__gpu *gpu);
/*
 * Charges (or gives back) what NVML shows beyond the books, as class module, and what the books hold
 * in doubt as far as NVML does not show it. Does nothing while other calls are under way. While another thread is at it,
 * nothing either, or with `waits`, before a refusal, not until that one is through (for 20 ms at most).
 */
void ull__measure_rest(bool waits);
/* Before a context is made: who is listed now. After it: which pid NVML knows this process by. */
void ull__measure_before(const struct ull__gpu *gpu);
void ull__measure_find_pid(const struct ull__gpu *gpu);
ull__listed_fn ull__measure_listed;
void ull__measure_forget(void);

/* --- keeper.c: the parked thread -------------------------------------------------------------------- */

/* Starts it; it joins the job at `path`. The status of joining. */
ull_status ull__keeper_start(const char *path, struct ull_error *err);

/* --- threads.c --------------------------------------------------------------------------------------- */

/* Starts a detached thread with all signals blocked; 0 or an errno. */
int ull__own_thread(void *(*run)(void *data), void *data);

/* --- route.c ------------------------------------------------------------------------------------------- */

/* The hook for an address that the driver returned, or the address itself. */
void *ull__route(void *real);
/* True if the driver's address is one of cuda_api.def's. */
bool ull__route_known(void *real);
void ull__route_build(const union ull__cuda *real);
bool ull__route_is_hooked_base(const char *base);
/* What the program was handed before it became a member of its job, for the report. */
void ull__route_report(struct ull__member *member);

/* --- family.c -------------------------------------------------------------------------------------------- */

/*
 * With `run --each`: pid of the direct child of the command that this process descends from, or 0;
 * and when that child started, as in ull__identity.
 */
uint32_t ull__family_root(uint64_t *ticks);

/* A driver call of our own inside the guest's thread that must not disturb a capture. */
#define ULL_RELAXED(real, statement)                                                               \
    do {                                                                                           \
        CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;                                \
        bool swapped_ = (real)->cuThreadExchangeStreamCaptureMode &&                               \
                        (real)->cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;         \
        statement;                                                                                 \
        if (swapped_)                                                                              \
            (real)->cuThreadExchangeStreamCaptureMode(&mode_);                                     \
    } while (0)

static inline bool ull__held(void)
{
    _Atomic int *alive = atomic_load_explicit(&ull__alive, memory_order_acquire);
    if (unlikely(atomic_load_explicit(alive, memory_order_relaxed) == 0))
        ull__check_fork();
    return likely(atomic_load_explicit(&ull__state.phase, memory_order_acquire) == ULL_HELD);
}

/*
 * Every hook of cuda_api.def is two functions: ull__hook_NAME, which the program calls (gate.c), and
 * ull__do_NAME, which it calls when this process is held and the driver has the call.
 */
#define CU_HOOK(symbol, base, since, since_pt, params, args)                                       \
    ull_fn_##symbol ull__hook_##symbol, ull__do_##symbol;
#define CU_CALL(symbol, base, since, since_pt, exempt, params)
#define CU_PASS(symbol, base, since, since_pt, exempt)
#include "cuda_api.def"

#endif
