/*
 * front.h: what a stream has for itself while several threads share the pool (front.c, block.c). A function that says
 * nothing else is called with pool->lock held.
 */
#ifndef ULLAGE_POOL_FRONT_H
#define ULLAGE_POOL_FRONT_H

#include "pool_private.h"

/* A front asks for so many times the size first, and then for the size: a request like this one will follow. */
enum { ULL_FRONT_MORE = 4 };

/* See front.c. Under its own lock, but for what is said. */
struct ull__front {
    _Alignas(ULL_LINE) struct ull__lock lock;
    unsigned int index;               /* in pool->fronts */
    bool open;                        /* changes under both locks, as lane does */
    uint16_t lane;                    /* the stream's */
    uint64_t operations, seen;        /* seen: how many there were at the last review */
    int64_t in_use, requested, count; /* change since all was added up */
    int64_t room, room_requested;     /* how far the first two may rise */
    uint64_t allocations, frees, largest, others;
    unsigned __int128 in_use_sum;
    struct ull__table live;    /* chunks in use by the program */
    struct ull__bins *free[2]; /* pieces that are free; [1]: in the view of small requests */
    uint64_t free_count;
    uint64_t free_pages, idle_low; /* whole pages in them; the fewest since somebody looked last */
    struct ull__chunk *blocks, *fresh; /* that are cut, linked by u.free; fresh: not merged yet */
    struct ull__chunk *stock;          /* chunks to be, linked by next */
    uint32_t stock_count;
    uint64_t latency_max_ns, latency[ULL_LATENCY_BUCKETS];
};

/* --- block.c: what a front has free; with its lock ------------------------------------------------------ */

/* Which of them; SMALL: those in the view of small requests. */
enum ull__loose { ULL_LOOSE_LARGE, ULL_LOOSE_SMALL, ULL_LOOSE_ALL };
/* A piece for the request, in use from now on, or NULL. */
struct ull__chunk *ull__piece_take(const struct ull_pool *pool, struct ull__front *f, uint64_t size,
                                   bool small);
/* Makes one in use free; false, and nothing is changed: that takes a chunk, and none is in stock. */
bool ull__piece_free(const struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c);
/* Joins new blocks of the front with what lies beside them, with the pool's lock too. True if there was anything. */
bool ull__blocks_merge(struct ull_pool *pool, struct ull__front *f);
/*
 * Makes a block of a chunk that the pool has free, or another front gave, and cuts the request out of it; one of the stock
 * is needed, and the pool's lock.
 */
struct ull__chunk *ull__block_adopt(struct ull_pool *pool, struct ull__front *f,
                                    struct ull__chunk *c, uint64_t size);
/*
 * With the pool's lock too: their pieces are the pool's chunks from now on. Those that were free are SWEPT and put onto
 * *ready, linked by u.free.left.
 */
void ull__block_dissolve(struct ull_pool *pool, struct ull__front *f, struct ull__chunk *block,
                         struct ull__chunk **ready);
/*
 * The same for one piece that is free: what is left of its block on each side stays a block. If no chunk is in stock for
 * that, all of it is dissolved.
 */
void ull__piece_give(struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c,
                     struct ull__chunk **ready);
bool ull__blocks_dissolve(struct ull_pool *pool, struct ull__front *f, enum ull__loose which,
                          struct ull__chunk **ready);
/* Makes sure that some pieces can be cut; with the pool's lock too. */
bool ull__stock_fill(struct ull_pool *pool, struct ull__front *f);
void ull__stock_return(struct ull_pool *pool, struct ull__front *f);

/* --- front.c ---------------------------------------------------------------------------------------- */

/* Are there any? Takes no lock. */
static inline bool ull__fronts_any(const struct ull_pool *pool)
{
    return atomic_load_explicit(&pool->fronts_seen, memory_order_acquire) != 0;
}

/* The front that the stream may have. Takes no lock. */
static inline struct ull__front *ull__front_of(struct ull_pool *pool, ull__stream stream)
{
    unsigned int count = atomic_load_explicit(&pool->fronts_seen, memory_order_acquire);
    for (unsigned int i = 0; i < count; i++) {
        if (atomic_load_explicit(&pool->front_streams[i], memory_order_relaxed) == stream)
            return pool->fronts[i];
    }
    return NULL;
}

/* Serve a request and a free without the pool's lock; false: the pool has to. */
bool ull__front_allocate(struct ull_pool *pool, const struct ull_request *request, void **address);
bool ull__front_free(struct ull_pool *pool, uint64_t address, ull__stream stream);
/* The same with the pool's lock, for it to count. A piece that is in use from now on, or NULL. */
struct ull__chunk *ull__front_take(const struct ull_pool *pool, struct ull__front *f, uint16_t lane,
                                   uint64_t size, bool small);
/* What was freed, as it was then, its size and requested size; false: it is not in the front. */
bool ull__front_put(struct ull_pool *pool, struct ull__front *f, uint16_t lane, uint64_t address,
                    uint64_t *size, uint64_t *requested);
/* Takes a chunk that the pool has free, and cuts the request out of it; NULL: it cannot, and the chunk is as it was. */
struct ull__chunk *ull__front_adopt(struct ull_pool *pool, struct ull__front *f, uint16_t lane,
                                    struct ull__chunk *c, uint64_t size);
/* Takes a chunk in use out of whichever front's table it is in, or NULL. */
struct ull__chunk *ull__fronts_take(struct ull_pool *pool, uint64_t address);
/* Frees what is loose in one, or in all; true if there was anything. SMALL: of small requests. */
bool ull__front_drain(struct ull_pool *pool, struct ull__front *f, enum ull__loose which);
bool ull__front_merge(struct ull_pool *pool, struct ull__front *f);
bool ull__fronts_drain(struct ull_pool *pool, enum ull__loose which);
/* The fewest free pages that they had since the last call, added up. */
uint64_t ull__fronts_idle(struct ull_pool *pool);
/*
 * Takes a free piece of at least that size back from one of them; false: none has any. *chunk is set to it, SWEPT and in no
 * bins, if nobody has to wait for it; else it is free for the front's stream.
 */
bool ull__fronts_lend(struct ull_pool *pool, uint64_t size, bool small, struct ull__chunk **chunk);
/*
 * Between the two, nothing is loose, nobody else changes anything, pool->stats is what all did together,
 * and each chunk in use is in a table that may be read.
 */
void ull__fronts_hold(struct ull_pool *pool);
void ull__fronts_release(struct ull_pool *pool);
/* Do threads wait for the pool so often that fronts pay? */
static inline bool ull__fronts_wanted(const struct ull_pool *pool)
{
    return (pool->lock.contended >= ULL_CONTENDED || pool->fronts_forced) && !pool->plain;
}
void ull__front_open(struct ull_pool *pool, uint16_t lane);
/* For a stream that ends or is captured. */
void ull__front_close(struct ull_pool *pool, ull__stream stream);
/* All of them; also while more is held than the limit allows, when nothing may be handed out. */
void ull__fronts_close(struct ull_pool *pool);
/* Closes fronts that nobody needs any more; now and then. */
void ull__fronts_review(struct ull_pool *pool);
void ull__fronts_finish(struct ull_pool *pool);

#endif
