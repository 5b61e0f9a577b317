/*
 * pool.h: an allocator over the memory of one device. It never refuses while there is room.
 *
 * A request is refused only if the pages that are free, after waiting for frees that are pending, and
 * the pages left under the limit are together fewer than the request needs: pages lie anywhere and are
 * mapped side by side when they are needed. Memory is handed out in units of 256 bytes. Nothing of the
 * pool's own is in device memory.
 *
 * That does not hold on a device that cannot map pages ("cuda-plain", device.h). The pool takes regions
 * there, each as large as all before together, and refuses when no free run in a region fits and the
 * limit or the device leaves no room for a further region, though regions that are free as a whole are
 * given back for it. Trims, the watermark and a lowered limit give back such regions only.
 *
 * Order. Every request and every free names a stream. What was freed on a stream may be handed out
 * again to requests on the same stream at once, to others only after the stream has passed the point
 * of the free. NULL is the default stream, in no special relation to others.
 *
 * A pool is its process's own: in a forked child every call on it answers ULL_E_NO_DEVICE and does nothing, so
 * that destructors may run there. (Adaptors of policy.h have locks of their own; leave them alone there.)
 *
 * In a job of `ullage run` (ULLAGE_JOB is set) that ullaged serves, pages of a card that nobody needed for a second are
 * offered to others, and given back when they are asked for, by a thread of the library's that lives as long as
 * there are pools. Do not unload the library meanwhile.
 *
 * All functions are thread safe. Addresses are of the device: do not read them from the host.
 */
#ifndef ULLAGE_POOL_H
#define ULLAGE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/stats.h"
#include "ullage/status.h"

struct ull__device;
struct ull_pool;

/* The policy of a pool. ull_pool_options_init sets the defaults, which are in brackets. */
struct ull_pool_options {
    uint64_t limit;   /* most bytes of pages held [0: all that the device has] */
    uint64_t reserve; /* pages held from the start on and never given back [0] */
    bool growth; /* take further pages when needed, up to the limit; else `reserve` is all [true] */
    /* Requests of at most so many bytes are kept apart from larger ones, but may fill what those leave over of
     * their pages [1 MiB; none where pages cannot be mapped]. */
    uint64_t small_bytes;
    /* Free pages above this share of the limit that nothing needed for idle_ns are given back. */
    unsigned int watermark_percent; /* [70] */
    uint64_t idle_ns;               /* [10 s] */
    /* Longest wait for a stream before a request is refused [UINT64_MAX: as long as it takes]. */
    uint64_t wait_ns;
    /* Addresses set aside, as a multiple of what the device has [16]; mappings kept, as a multiple of
     * the pages held [6]. Pages may be mapped in several places at a time. */
    unsigned int address_factor, mapping_factor;
    uint64_t (*now_ns)(void *context); /* [the monotonic clock] */
    void *now_context;
};

/* One who holds memory, in a report. */
struct ull_holder {
    uint64_t address, bytes; /* bytes as asked for */
    char tag[64];            /* "" if there was none; cut to fit */
};

enum { ULL_REFUSAL_HOLDERS = 8 };

/* Why a request was refused. */
struct ull_refusal {
    uint64_t wanted;       /* bytes asked for */
    uint64_t wanted_pages; /* pages that this takes, in bytes */
    uint64_t limit;        /* of this pool */
    uint64_t held;         /* pages held, in bytes */
    uint64_t in_use;       /* bytes of chunks in use */
    uint64_t free;         /* held - in_use */
    uint64_t free_pages; /* bytes of pages that this request could have had; regions: in one run */
    uint64_t left;       /* bytes of pages left under the limit */
    uint64_t pending;    /* bytes that still wait for a stream */
    uint64_t largest_free; /* largest run of free addresses */
    double fragmentation;  /* 1 - largest_free / free */
    bool device_full;      /* the limit would have allowed it, the device had no memory */
    bool growth;           /* the policy in force */
    bool regions; /* of a device that cannot map pages: a run has to be free, not only pages */
    unsigned int holder_count;
    struct ull_holder holders[ULL_REFUSAL_HOLDERS]; /* largest first */
};

struct ull_request {
    uint64_t bytes;
    uint64_t alignment; /* a power of two; 0: 256 */
    void *stream;
    const char *tag; /* NULL, or a text that stays in place as long as the memory is in use */
};

void ull_pool_options_init(struct ull_pool_options *options);

/*
 * Makes a pool over a device, which must outlive it. options NULL: the defaults. ULL_E_INVALID for an
 * option out of range; ULL_E_NO_MEMORY if the device or the host has too little for the reserve.
 */
ull_status ull_pool_create(struct ull__device *device, const struct ull_pool_options *options,
                           struct ull_pool **pool, struct ull_error *err);
/*
 * Ends a pool and gives back all it holds, in use or not, after waiting for every stream it knows.
 * No other thread may be in a call. NULL is fine.
 */
void ull_pool_destroy(struct ull_pool *pool);

/*
 * Memory for work on `stream`. ULL_E_INVALID for 0 bytes or an alignment that is no power of two;
 * ULL_E_NO_MEMORY when refused, and then *refusal (may be NULL) says why. A size too large for any
 * device is refused like any other.
 */
ull_status ull_pool_allocate(struct ull_pool *pool, uint64_t bytes, void *stream, void **address);
ull_status ull_pool_request(struct ull_pool *pool, const struct ull_request *request,
                            struct ull_refusal *refusal, void **address);

/*
 * Gives memory back behind all work that `stream` has now. NULL is fine. ULL_E_INVALID, with nothing
 * changed, for what is not the start of memory in use: freed before, an inner address, not of the pool.
 * ULL_E_NO_MEMORY, with nothing changed, if the pool does not know the stream yet and the host has no memory to
 * remember it; on a stream that the pool knows a free always works.
 */
ull_status ull_pool_free(struct ull_pool *pool, void *address, void *stream);

/*
 * Says that work on `stream` uses the memory too: when it is freed, it will also wait for what that
 * stream has then. ULL_E_INVALID as for free, ULL_E_NO_MEMORY if the host has none; then wait for the
 * stream before freeing.
 */
ull_status ull_pool_use_on(struct ull_pool *pool, void *address, void *stream);

/* Forgets a stream that will be destroyed: call it while the stream is still valid. */
ull_status ull_pool_forget_stream(struct ull_pool *pool, void *stream);

/*
 * Captured graphs. From begin to end, requests on the stream are the graph's: their memory, and what
 * is freed on the stream meanwhile, is reused by this graph only until release, since the graph will
 * touch it each time it is launched. *graph 0 begins a new graph, else the stream joins that graph.
 * A stream that the device finds being captured without a begin gets a graph of its own, which is over with
 * the first request or free on the stream that finds it not captured: two captures without one in between are
 * one graph.
 * release: the graph will not be launched after what `stream` has now. ULL_E_NOT_FOUND, ULL_E_INVALID.
 */
ull_status ull_pool_graph_begin(struct ull_pool *pool, void *stream, uint64_t *graph);
ull_status ull_pool_graph_end(struct ull_pool *pool, void *stream);
ull_status ull_pool_graph_release(struct ull_pool *pool, uint64_t graph, void *stream);
/* The graph that the stream's requests belong to now, or belonged to last; 0 for none. */
uint64_t ull_pool_graph_of(struct ull_pool *pool, void *stream);

/*
 * Changes the limit (0: all the device has). Lowering gives free pages back; while more is in use than
 * the new limit, requests that need pages are refused, and pages are given back as they become free.
 */
ull_status ull_pool_set_limit(struct ull_pool *pool, uint64_t limit);
/* Changes the reserve, taking pages now; without growth it is the limit too. ULL_E_INVALID above the limit, ULL_E_NO_MEMORY. */
ull_status ull_pool_set_reserve(struct ull_pool *pool, uint64_t reserve);
/*
 * Gives up to `bytes` of free pages back to the device, keeping the reserve; *returned (may be NULL)
 * says how many bytes. Waits for no stream: pages whose streams have not passed stay.
 */
ull_status ull_pool_trim(struct ull_pool *pool, uint64_t bytes, uint64_t *returned);
/* Takes and maps pages so that `bytes` in one piece can be had without a call of the driver. */
ull_status ull_pool_prewarm(struct ull_pool *pool, uint64_t bytes);

/* Fills stats->size bytes of *stats. ULL_E_INVALID if size is less than the two first fields. */
ull_status ull_pool_stats(struct ull_pool *pool, struct ull_stats *stats);
/* Peaks, averages, latencies and counts begin anew from what is now. */
void ull_pool_stats_reset(struct ull_pool *pool);
/* The policy in force, after all changes. */
void ull_pool_policy(struct ull_pool *pool, struct ull_pool_options *options);
/* One or several lines for a person that say why a request was refused and what would help. */
void ull_refusal_text(const struct ull_refusal *refusal, char *text, size_t size);

enum ull_chunk_state {
    ULL_CHUNK_IN_USE,
    ULL_CHUNK_FREE,
    ULL_CHUNK_PENDING, /* free for one stream or graph only, until it has passed */
    ULL_CHUNK_WAITING, /* freed, but streams that used it have not passed */
    ULL_CHUNK_SHADOW   /* free addresses whose pages are in use at other addresses */
};

struct ull_chunk_info {
    uint64_t address, bytes, requested;
    enum ull_chunk_state state;
    const char *tag; /* NULL if there was none */
};

/*
 * Calls visit for every chunk in address order; false ends the walk. The pool is locked meanwhile: visit
 * must not call it.
 */
void ull_pool_walk(struct ull_pool *pool,
                   bool (*visit)(void *context, const struct ull_chunk_info *), void *context);

#endif
