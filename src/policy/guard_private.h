/*
 * guard_private.h: a guard and its allocator. Everything but what says otherwise is under `swap`, held
 * for writing.
 */
#ifndef ULLAGE_GUARD_PRIVATE_H
#define ULLAGE_GUARD_PRIVATE_H

#include <stdatomic.h>

#include "policy_private.h"

enum { ULL_GUARD_GRAIN = 2 << 20 };

struct guarded {
    struct ull_alloc alloc;
    struct ull_alloc *upstream;
    /*
     * Held for reading around an ordinary request, for writing while memory that is set aside changes
     * hands: between the two calls of upstream that this takes, nobody else may get it.
     */
    pthread_rwlock_t swap;
    struct ull__sizes sizes;          /* what guards have handed out */
    _Atomic size_t recorded;          /* how many are in sizes; read without the lock */
    _Atomic uint64_t set_aside;       /* by all guards; read without the lock */
    struct ull_guard *holding;        /* those with a piece, linked by next_holding */
    struct ull_guard *_Atomic shared; /* the guard for threads without one; read without the lock */
    struct ull__reliefs fallbacks;
};

struct ull_guard {
    struct guarded *owner;
    struct ull_guard *below; /* the thread's list of open guards, the innermost first; the thread's own */
    struct ull_guard *outer;  /* of the same allocator and thread: gets what this one leaves */
    struct ull_guard *before; /* owner->shared before this one */
    struct ull_guard_options options;
    bool open;
    size_t references; /* by itself while open, by entries of sizes, by inner guards */
    uint64_t bytes;    /* options.bytes, rounded */
    uint64_t used, peak;
    uint64_t lent;       /* to inner guards */
    uint64_t from_outer; /* of the outer's `lent`, ours */
    void *held;          /* the piece that is set aside; NULL for none */
    uint64_t held_bytes;
    void *stream; /* on which it is held */
    struct ull_guard *next_holding;
};

/* Frees the piece that is set aside. */
void ull__guard_release(struct ull_guard *guard);
/* Makes the piece as large as what is neither used nor lent, on `stream`; less where memory lacks. */
void ull__guard_settle(struct ull_guard *guard, void *stream);
/* Sets aside all that the guard asks for, out of its outer guard first. Nothing changes on failure. */
ull_status ull__guard_reserve(struct ull_guard *guard, struct ull_report *report);
/* Serves a request out of the guard. */
ull_status ull__guard_serve(struct ull_guard *guard, const struct ull_request *request,
                            struct ull_report *report, void **address);
/* Is it what a guard has set aside? Then the program has no business with it. */
bool ull__guard_holds(const struct guarded *owner, const void *address);
/* Takes back what the guard or one inside it handed out. ULL_E_NOT_FOUND if no guard did. */
ull_status ull__guard_take_back(struct guarded *owner, void *address, void *stream);
/* Closes a guard: its piece and what it still has in use go to the outer one. */
void ull__guard_close(struct ull_guard *guard);
/* One who knows the guard less: it is freed with the last, and lets go of its outer guard. */
void ull__guard_unreference(struct ull_guard *guard);

#endif
