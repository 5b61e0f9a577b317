/*
 * policy.h: what stands between a program and a pool: limits, retries, guards.
 *
 * All of them are allocators over an allocator (`upstream`), so they are put together like pipes:
 *
 *     pool -> limit -> guard -> retry -> the program
 *
 * ull_alloc_over_pool makes the innermost one, each ..._create below puts another in front. An adaptor
 * does not own its upstream: destroy from the outside in. Sizes are bytes, times nanoseconds.
 *
 * Thread safe, apart from create and destroy of one and the same object. Calls return statuses as in
 * status.h; a request that is refused is ULL_E_NO_MEMORY, and the report says who refused it and why.
 */
#ifndef ULLAGE_POLICY_H
#define ULLAGE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/pool.h"
#include "ullage/status.h"

struct ull_alloc;

enum { ULL_REPORT_TEXT = 3072 };

/* Why a request was refused. Written on refusal only. */
struct ull_report {
    const char *by;          /* the name of the allocator that refused: "pool", "limit", ... */
    struct ull_refusal pool; /* what the pool said; all zero if it was not asked */
    /* For a person: the refusal, then what was tried, each with the settings in force. */
    char text[ULL_REPORT_TEXT];
};

/* What an allocator knows of itself. */
struct ull_alloc_info {
    uint64_t in_use; /* held by requests that went through this allocator */
    uint64_t peak;   /* most of that at a time */
    uint64_t limit;  /* most that it lets through at a time; UINT64_MAX if it sets none */
    uint64_t held;   /* of the device, by the pool below */
};

/* All are required. An implementation embeds struct ull_alloc first. */
struct ull_alloc_ops {
    const char *name;
    /* As ull_pool_request; report is never NULL and is written on refusal. */
    ull_status (*allocate)(struct ull_alloc *alloc, const struct ull_request *request,
                           struct ull_report *report, void **address);
    /* As ull_pool_free and ull_pool_use_on. address is not NULL. */
    ull_status (*free)(struct ull_alloc *alloc, void *address, void *stream);
    ull_status (*use_on)(struct ull_alloc *alloc, void *address, void *stream);
    void (*info)(struct ull_alloc *alloc, struct ull_alloc_info *info);
    /* Gives up to `bytes` that nobody uses back to the device. */
    ull_status (*trim)(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned);
    /* Ends the adaptor, not its upstream. Pre: no call is in it. */
    void (*destroy)(struct ull_alloc *alloc);
};

struct ull_alloc {
    const struct ull_alloc_ops *ops;
};

/*
 * The calls of a program. ULL_E_INVALID: 0 bytes, an alignment that is no power of two, an address that
 * is not in use. report may be NULL. Freeing NULL is fine.
 */
ull_status ull_alloc_request(struct ull_alloc *alloc, const struct ull_request *request,
                             struct ull_report *report, void **address);
ull_status ull_alloc_allocate(struct ull_alloc *alloc, uint64_t bytes, void *stream, void **address);
ull_status ull_alloc_free(struct ull_alloc *alloc, void *address, void *stream);
ull_status ull_alloc_use_on(struct ull_alloc *alloc, void *address, void *stream);
void ull_alloc_info(struct ull_alloc *alloc, struct ull_alloc_info *info);
ull_status ull_alloc_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned);
void ull_alloc_destroy(struct ull_alloc *alloc); /* NULL is fine */

/* A pool as an allocator. The pool must outlive it. ULL_E_NO_MEMORY: no host memory. */
ull_status ull_alloc_over_pool(struct ull_pool *pool, struct ull_alloc **alloc);

/* --- limits ---------------------------------------------------------------------------------------------- */

/*
 * Lets at most `bytes` (rounded up to 256 for each request) be in use through it at a time; there may be
 * several over one pool. What it refuses it refuses without asking upstream. ULL_E_INVALID: 0 bytes.
 */
ull_status ull_limit_create(struct ull_alloc *upstream, uint64_t bytes, struct ull_alloc **limit,
                            struct ull_error *err);
/* Changes the limit. Below what is in use nothing is taken away; requests are refused until it fits. */
ull_status ull_limit_set(struct ull_alloc *limit, uint64_t bytes);

/* Refuses single requests above `bytes`, which is a bug's usual size. ULL_E_INVALID: 0 bytes. */
ull_status ull_max_request_create(struct ull_alloc *upstream, uint64_t bytes,
                                  struct ull_alloc **max_request, struct ull_error *err);

/* --- shortage -------------------------------------------------------------------------------------------- */

/*
 * Something of the program's that can give memory back: caches, a smaller batch. `wanted` are the bytes
 * of the request. Returns the bytes that it gave back as far as it knows, 0 for none. Called without
 * locks, on the thread whose request is short; it may free and allocate, but what it allocates is
 * refused without further steps.
 */
typedef uint64_t (*ull_relief_fn)(void *context, uint64_t wanted);

enum { ULL_RELIEFS = 16 }; /* most that one allocator can have */

struct ull_retry_group;

/* Those whose pools share one device. It must outlive its members. */
ull_status ull_retry_group_create(struct ull_retry_group **group);
void ull_retry_group_destroy(struct ull_retry_group *group); /* NULL is fine */

/*
 * On shortage, step by step until the request is served: the pool below reuses frees that wait for
 * streams (it does so by itself); caches of the other members of the group are trimmed; the callbacks
 * run in the order of their registration; then up to wait_ns of waiting for a free by another thread.
 * A thread waits only while another one could free: one that has called a member of this group, lives,
 * and does not wait itself. So a single thread never waits (TensorFlow's allocator_retry.cc waits 10 s
 * in that case). group NULL: a group of its own. wait_ns 0: no wait.
 */
ull_status ull_retry_create(struct ull_alloc *upstream, struct ull_retry_group *group,
                            uint64_t wait_ns, struct ull_alloc **retry, struct ull_error *err);
/* name is for the report and stays in place. ULL_E_FULL after ULL_RELIEFS, ULL_E_INVALID. */
ull_status ull_retry_add_callback(struct ull_alloc *retry, const char *name, ull_relief_fn callback,
                                  void *context);
/* Takes the callback out and waits until no other thread is in it. ULL_E_NOT_FOUND. */
ull_status ull_retry_remove_callback(struct ull_alloc *retry, ull_relief_fn callback, void *context);
/* Counts the calling thread as one that could free, before its first call. */
void ull_retry_announce_thread(struct ull_alloc *retry);
/*
 * Siblings and callbacks for `wanted` bytes without a request of one's own; says how many bytes came
 * back. An ull_relief_fn with the retry adaptor as its context, as a fallback of a guard below it.
 */
uint64_t ull_retry_relieve(void *retry, uint64_t wanted);

/* --- guards ---------------------------------------------------------------------------------------------- */

struct ull_guard;

struct ull_guard_options {
    uint64_t bytes;             /* to reserve, at least 1 */
    uint64_t max_request;       /* refuse larger single requests within the guard; 0: any size */
    unsigned int max_fallbacks; /* run at most so many fallbacks on shortage */
    bool cap;                   /* refuse what would go above `bytes` within the guard */
    bool all_threads;           /* count requests of threads without a guard of their own too */
    void *stream;               /* that the work in the guard will mostly use */
};

/* An allocator that can reserve for a while. ULL_E_NO_MEMORY: no host memory. */
ull_status ull_guard_create(struct ull_alloc *upstream, struct ull_alloc **guarded,
                            struct ull_error *err);
/* Registers a fallback of all guards. As ull_retry_add_callback. */
ull_status ull_guard_add_fallback(struct ull_alloc *guarded, const char *name,
                                  ull_relief_fn fallback, void *context);

/*
 * Sets `bytes` aside for the requests of this thread: they are taken from upstream now, so that nobody
 * else can have them, and handed out to this thread until the guard ends. On shortage at most
 * max_fallbacks fallbacks run in order until together they gave back enough, then it is tried once more.
 * ULL_E_NO_MEMORY: refused, and nothing is reserved; ULL_E_INVALID.
 *
 * What is freed within the guard is reserved again, on the stream on which it was freed: such a stream has to
 * live until the guard ends. A request beyond the reservation is an ordinary
 * request. Guards nest: an inner one takes from what the outer one has left, and only the rest from
 * upstream.
 *
 * How firm it is: requests of whole multiples of 2 MiB up to the reservation are served in any order,
 * whatever others do. Other sizes share pages with their neighbours, so that each of them may leave up to
 * two pages unusable when it is freed while others take all they can: ull_guard_info tells what is left.
 * Small requests (pool.h: small_bytes) may take a page of their own. Reserve some pages more for those.
 */
ull_status ull_guard_begin(struct ull_alloc *guarded, uint64_t bytes, struct ull_guard **guard,
                           struct ull_report *report);
ull_status ull_guard_begin_with(struct ull_alloc *guarded, const struct ull_guard_options *options,
                                struct ull_guard **guard, struct ull_report *report);
/*
 * Gives back what was not used; what is still in use becomes the outer guard's or ordinary memory. By
 * the thread that began it, the innermost one first; ULL_E_INVALID, with nothing changed, otherwise.
 */
ull_status ull_guard_end(struct ull_guard *guard);

struct ull_guard_info {
    uint64_t bytes, in_use, peak; /* reserved at the start; used within the guard */
    uint64_t left;                /* still set aside */
};
void ull_guard_info(struct ull_guard *guard, struct ull_guard_info *info);

#endif
