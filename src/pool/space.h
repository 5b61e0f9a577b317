/*
 * space.h: what a request and a free do to chunks and their neighbours. It is most of the work of both, so it is put
 * where it is called: into the short ways of pool.c, and into space.c for everybody else.
 */
#ifndef ULLAGE_POOL_SPACE_H
#define ULLAGE_POOL_SPACE_H

#include "lane.h"
#include "pool_private.h"

/* What is left to do for chunks of at least a page, which cover slots (space.c). */

/*
 * c was joined of what was free before, [address, end), and what was free behind, and is in its bins. Its slots
 * [known0, known1) were free before.
 */
void ull__slots_joined(struct ull_pool *pool, struct ull__chunk *c, uint64_t address, uint64_t end,
                       uint32_t known0, uint32_t known1);
/* c is in use; with the rest, NULL if there is none, it was a free chunk that ended at `end`. */
void ull__slots_taken(struct ull_pool *pool, const struct ull__chunk *c, struct ull__chunk *rest,
                      uint64_t end);
/*
 * c, in no bins, is about to be free for *lane behind *seq, and there are several streams. Pages at its ends that would be free
 * but for being in parts of which only some wait for a stream wait for that as a whole. What is left of c.
 */
struct ull__chunk *ull__pages_unite(struct ull_pool *pool, struct ull__chunk *c, uint16_t *lane,
                                    uint64_t *seq);

static inline __attribute__((always_inline)) struct ull__chunk *
ull__split_here(struct ull_pool *pool, struct ull__chunk *c, uint64_t address)
{
    struct ull__chunk *upper = ull__chunk_new(pool), *next = c->next;
    upper->address = address;
    upper->size = c->address + c->size - address;
    upper->prev = c;
    upper->next = next;
    upper->seq = c->seq;
    upper->uses = 0;
    upper->lane = c->lane;
    upper->state = c->state;
    upper->tier = c->tier;
    if (next)
        next->prev = upper;
    c->next = upper;
    c->size = address - c->address;
    return upper;
}

static inline __attribute__((always_inline)) void ull__join_here(struct ull_pool *pool,
                                                                 struct ull__chunk *c)
{
    struct ull__chunk *upper = c->next, *next = upper->next;
    c->size += upper->size;
    c->next = next;
    if (next)
        next->prev = c;
    ull__chunk_drop(pool, upper);
}

/* Into the bins of its lane, and out of them; covers are not looked at. */
static inline __attribute__((always_inline)) void ull__bins_enter(struct ull_pool *pool,
                                                                  struct ull__chunk *c)
{
    struct ull__lane *lane = &pool->lanes[c->lane];
    c->state = ULL_FREE;
    lane->free_bytes += c->size;
    ull__bins_insert(lane->bins[c->tier], c);
}

static inline __attribute__((always_inline)) void ull__bins_leave(struct ull_pool *pool,
                                                                  struct ull__chunk *c)
{
    struct ull__lane *lane = &pool->lanes[c->lane];
    lane->free_bytes -= c->size;
    ull__bins_remove(lane->bins[c->tier], c);
}

/* Joins a free chunk, in no bins, with its next; the result waits for whatever one of them waits for. */
static inline __attribute__((always_inline)) void ull__join_free(struct ull_pool *pool,
                                                                 struct ull__chunk *c)
{
    const struct ull__chunk *upper = c->next;
    if (c->lane == ULL_CLEAN || (c->lane == upper->lane && c->seq < upper->seq))
        c->seq = upper->seq;
    c->lane |= upper->lane;
    ull__join_here(pool, c);
}

/* As ull__make_free. */
static inline __attribute__((always_inline)) void
ull__make_free_here(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq,
                    uint32_t known0, uint32_t known1)
{
    if (__builtin_expect(c->tier == ULL_VIEW && pool->lent > 0, 0))
        c = ull__share_return(pool, c, lane, seq);
    if (__builtin_expect(pool->crowded, 0))
        c = ull__pages_unite(pool, c, &lane, &seq);
    uint64_t address = c->address, end = address + c->size;
    struct ull__chunk *prev = c->prev, *next = c->next;
    c->lane = lane;
    c->seq = seq;
    if (next && next->state == ULL_FREE && ull__lanes_join(pool, lane, next->lane)) {
        ull__bins_leave(pool, next);
        ull__join_free(pool, c);
    }
    if (prev && prev->state == ULL_FREE && ull__lanes_join(pool, c->lane, prev->lane)) {
        ull__bins_leave(pool, prev);
        ull__join_free(pool, prev);
        c = prev;
    }
    ull__bins_enter(pool, c);
    if (c->size >= pool->page_bytes)
        ull__slots_joined(pool, c, address, end, known0, known1);
}

/* As ull__take from the start of a chunk that is in bins. */
static inline __attribute__((always_inline)) void ull__take_here(struct ull_pool *pool,
                                                                 struct ull__chunk *c, uint64_t size)
{
    uint64_t whole = c->size;
    struct ull__chunk *rest = NULL;
    ull__bins_leave(pool, c);
    if (whole > size) {
        rest = ull__split_here(pool, c, c->address + size);
        ull__bins_enter(pool, rest);
    }
    c->state = ULL_LIVE;
    if (whole >= pool->page_bytes)
        ull__slots_taken(pool, c, rest, c->address + whole);
}

#endif
