/*
 * async.h: with `run --suspendable`, the memory that a program orders by streams, from a pool of ours.
 *
 * async_device.c is what the pool (src/pool) takes its pages from: the driver's virtual-memory calls, each charged
 * to the job. async.c has a pool for each device, and serves what the program asks of the driver's default pool;
 * async_free.c frees it, and frees later what cannot be freed yet; async_own.c answers for the driver about
 * that pool; async_move.c takes its pages out and back for evict.c.
 */
#ifndef ULLAGE_ASYNC_H
#define ULLAGE_ASYNC_H

#include "suspend.h"
#include "ullage/pool.h"

/* --- async_device.c ---------------------------------------------------------------------------------------- */

struct ull__device;

/* In a context that lives until ull__async_device_dead was called. NULL: it cannot map pages, or no host memory. */
struct ull__device *ull__async_device_create(const struct ull__gpu *gpu, CUcontext context);
void ull__async_device_destroy(struct ull__device *device);
/* Its context is gone, and with it all work and events: from now on memory is only given back. */
void ull__async_device_dead(struct ull__device *device);
/* Pages come and go without a change of the books, since they are out but the job's own. */
void ull__async_device_moving(struct ull__device *device, bool moving);
/* Another device may use what is mapped from now on: flags as of cuMemSetAccess. */
void ull__async_device_access(struct ull__device *device, int peer, int flags);
CUresult ull__async_device_grant(struct ull__device *device, uint64_t address, uint64_t bytes);
/* Puts a stream behind an event of the device's. */
bool ull__async_device_follow(void *device, void *stream, uint64_t event);
/*
 * What this thread has reserved already: the next pages are taken from it and not charged again. Returns what is
 * left of the one before.
 */
uint64_t ull__async_credit(uint64_t bytes);
/* Was it the card that had no pages, and not the account, when this thread's credit was used last? */
bool ull__async_card_full(void);

/* --- async.c: a device's pool ------------------------------------------------------------------------------- */

struct ull__async {
    struct ull_pool *_Atomic pool; /* NULL: none yet, or its context ended */
    struct ull__device *device;
    CUcontext context;            /* primary */
    CUmemoryPool default_pool;    /* the driver's, in whose place it is */
    _Atomic bool impossible;      /* it cannot, or shall not be made in this process */
    _Atomic bool no_dependencies; /* the program forbade that streams wait for others */
    _Atomic uint64_t threshold;   /* of release */
    _Atomic uint64_t looked_ns;   /* when it was last looked at for pages that nobody needs */
    _Atomic uint64_t used_floor, held_floor; /* peaks from before one of the two was reset */
};

/* The pool of a device, NULL if it has none. */
struct ull__async *ull__async_of(int ordinal);
/* Which pool an address belongs to, by its range of addresses; NULL: none. */
struct ull__async *ull__async_at(CUdeviceptr at);
static inline struct ull_pool *ull__async_pool(struct ull__async *async)
{
    return async ? atomic_load_explicit(&async->pool, memory_order_acquire) : NULL;
}
/* Is it the stream of a thread? Then its handle means another stream in each. */
static inline bool ull__is_per_thread(CUstream stream, bool per_thread)
{
    return stream == CU_STREAM_PER_THREAD || (per_thread && !stream);
}
/* The device whose pool lives in a context; NULL: there is no such pool. */
const struct ull__gpu *ull__async_gpu(CUcontext context);
/* The context of a stream, or the current one for a default stream. */
CUcontext ull__context_of_stream(CUstream stream);

/*
 * Serves an allocation that the driver would serve from `pool`, for a stream that is not captured. False: it is the
 * driver's to serve.
 */
bool ull__async_alloc(const struct ull__gpu *gpu, CUmemoryPool pool, CUdeviceptr *dptr,
                      size_t bytes, CUstream stream, bool per_thread, const char *call,
                      uint64_t began_ns, CUresult *result);
/* Gives free pages back, as cuMemPoolTrimTo; `keep` counts what is in use. gpu NULL: of all devices. */
void ull__async_trim(const struct ull__gpu *gpu, uint64_t keep);
/* A stream will be destroyed. */
void ull__async_stream_gone(CUstream stream);
/* A context was destroyed. */
void ull__async_context_ended(CUcontext context);
void ull__async_forget(void);
/* The program has waited for work: memory that nothing needed for a while goes back. */
void ull__async_synchronized(void);

/* --- async_free.c ------------------------------------------------------------------------------------------- */

/*
 * cuMemFreeAsync of what is ours, be it a block of a pool or of cuMemAlloc. False: it is the driver's, or the
 * stream is captured.
 */
bool ull__async_free(CUdeviceptr dptr, CUstream stream, bool per_thread, CUresult *result);
/* cuMemFree of a block of a pool: waits for the context. False: it is none. */
bool ull__async_free_now(CUdeviceptr dptr, CUresult *result);
/* Does anything wait for a stream? */
bool ull__async_frees_wait(void);
/* Was it freed, and waits? Then it must not be freed again, as the driver would say too. */
bool ull__async_free_waits(CUdeviceptr dptr);
/* Frees what had to wait for a stream that has passed. */
void ull__async_free_due(void);
void ull__async_free_context_ended(CUcontext context);
void ull__async_free_forget(void);

/* --- async_own.c -------------------------------------------------------------------------------------------- */

/* cuMemPoolTrimTo of the pool in whose place ours is. */
void ull__async_trim_pool(CUmemoryPool pool, size_t keep);
/* The block of a pool of ours that an address lies in. */
bool ull__async_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, struct ull__async **async);

/* --- async_move.c: while the gate is closed only -------------------------------------------------------------- */

/* What waits for streams is freed, and free pages go back: they need not be moved. */
void ull__async_before_move(void);
/* Runs of pages as pieces, which stay where they are until the gate opens. */
size_t ull__async_pieces(struct ull__piece **pieces, size_t max);
size_t ull__async_piece_count(void);
/* Before the first of its pieces goes out, and after the last is back. */
void ull__async_views_out(void);
CUresult ull__async_views_in(void);
/* Of one piece. */
CUresult ull__async_make(struct ull__piece *piece);
void ull__async_unmake(struct ull__piece *piece);
CUresult ull__async_map(const struct ull__piece *piece);
void ull__async_unmap(struct ull__piece *piece);
void ull__async_move_forget(void);

#endif
