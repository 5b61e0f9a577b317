/*
 * offsets.h: lifetimes to addresses. Given buffers with sizes and lifetimes, an offset for each in one block of
 * memory, so that no two that are needed at the same time overlap, and the block is small.
 *
 * Which buffers may not overlap is said in one of two forms:
 *
 * - Lifetimes: half-open intervals [lower, upper) of any clock, for a schedule that runs in one order. Two buffers
 *   conflict if they share a moment. This is the fast form.
 * - A predicate over pairs, for schedules with several queues, where there is no one clock: two buffers do *not*
 *   conflict only if a happens-before path links the last uses of one to the first write of the other. The solver
 *   asks it about every pair once or twice, so it takes at most ULL__OFFSETS_PREDICATE_MOST buffers.
 *
 * A buffer may be pinned to an offset (a persistent region, whose addresses are the same in several plans); the
 * others go around it. Sizes are bytes; an offset is a multiple of the buffer's alignment.
 *
 * How: several greedy orders, the best of which is improved by moving forward what stuck out; then, where that leaves
 * a gap over the lower bound, an exact search (offsets_search.h) within a number of nodes. Nothing depends on time, on
 * addresses or on how many threads run, so the same input gives the same plan on every machine.
 *
 * What it cannot do: move a buffer while it is live, split one, or place several blocks at once.
 */
#ifndef ULLAGE_PLAN_OFFSETS_H
#define ULLAGE_PLAN_OFFSETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

/* For `capacity`: there is none, the plan is to be as low as possible. */
#define ULL__OFFSETS_LOWEST UINT64_MAX

enum {
    ULL__OFFSETS_PREDICATE_MOST = 32768,
    ULL__OFFSETS_THREADS_MOST = 64,
};

struct ull__buffer {
    uint64_t size;      /* bytes; 0 takes no room and conflicts with nothing */
    uint64_t alignment; /* a power of two; 0 is taken as 1 */
    int64_t lower,
        upper; /* live from lower up to and not including upper; not read in the predicate's form */
    bool pinned;     /* stays at `offset` */
    uint64_t offset; /* read only if pinned; a multiple of the alignment */
};

/*
 * May `left` and `right` not share an address? Indices of buffers, left < right. Pure, and called by one thread.
 * Lifetimes are not looked at where there is a predicate.
 */
typedef bool ull__conflict_fn(const void *context, size_t left, size_t right);

struct ull__offsets_problem {
    const struct ull__buffer *buffers;
    size_t count;
    uint64_t capacity;          /* bytes: any plan up to this will do; or ULL__OFFSETS_LOWEST */
    ull__conflict_fn *conflict; /* NULL: by lifetimes */
    const void *context;        /* of the predicate */
};

/* How hard to try. {0} is heuristics only, in one thread: what a planner calls for each of many candidates. */
struct ull__offsets_effort {
    uint64_t nodes; /* of the exact search at most; 0: no search. A million takes about a second. */
    unsigned int threads; /* that search; 0 or 1: the caller's alone. The plan does not depend on it. */
};

struct ull__offsets {
    uint64_t *offsets; /* by buffer; owned, freed by ull__offsets_finish */
    size_t count;
    uint64_t height;      /* the highest end of a buffer: bytes that the block must have */
    uint64_t lower_bound; /* no plan is lower than this; see below */
    uint64_t nodes;       /* of the exact search; the same with any number of threads */
    bool solved;     /* height <= capacity; without a capacity: it is known that no plan is lower */
    bool infeasible; /* it is known that no plan has height <= capacity */
};

/*
 * Finds offsets. ULL_OK with the lowest plan found also where it is not `solved`: the caller sees by how much it is
 * too high.
 *
 * lower_bound is by liveness: the most bytes live at one moment (with a predicate: the heaviest set of mutually
 * conflicting buffers found). Padding that no plan can avoid, because all alignments are above 1, and the ends of
 * pinned buffers count.
 *
 * ULL_E_INVALID with the buffer's index in err: a lifetime that ends before it begins, an alignment that is no power
 * of two, a pinned offset that is not aligned, two pinned buffers that conflict and overlap, sizes that add up to
 * 2^62 or more, too many buffers. ULL_E_SYSTEM: no memory for it. Thread safe; allocates; starts threads if
 * effort->threads says so and joins them.
 */
ull_status ull__offsets_solve(const struct ull__offsets_problem *problem,
                              const struct ull__offsets_effort *effort, struct ull_error *err,
                              struct ull__offsets *plan);

/* Frees what the plan owns; a plan of zeros is fine. */
void ull__offsets_finish(struct ull__offsets *plan);

/*
 * The lower bound alone, in time n log n (lifetimes) or n squared (predicate). Errors as above. For a planner that
 * compares many schedules before it places one.
 */
ull_status ull__offsets_lower_bound(const struct ull__offsets_problem *problem,
                                    struct ull_error *err, uint64_t *lower_bound);

/*
 * Checks a plan; shares no code with the solver, and tries every pair. ULL_OK and *height, or ULL_E_INVALID with the
 * first fault in err: an offset that is not aligned, a pinned buffer elsewhere, an end that overflows or is above the
 * capacity (if there is one), two buffers that conflict and overlap.
 */
ull_status ull__offsets_check(const struct ull__offsets_problem *problem, const uint64_t *offsets,
                              struct ull_error *err, uint64_t *height);

#endif
