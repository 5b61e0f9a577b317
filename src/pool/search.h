/*
 * search.h: where a request finds its memory (search.c). With pool->lock held.
 */
#ifndef ULLAGE_POOL_SEARCH_H
#define ULLAGE_POOL_SEARCH_H

#include "pool_private.h"

struct ull__need {
    uint64_t size, alignment; /* size: rounded to units */
    bool small;
    uint16_t lane;
    struct ull__front *front; /* of the stream, or NULL */
};

/* Host memory for whatever a request may need, had before anything is changed; false: there is none. */
static inline bool ull__host_ready(struct ull_pool *pool)
{
    return ull__table_ensure(&pool->live, 1) && ull__host_memory(pool, 0);
}

/* The one that fits better; either may be NULL. */
static inline struct ull__chunk *ull__better(struct ull__chunk *a, struct ull__chunk *b)
{
    return !a || (b && b->size < a->size) ? b : a;
}

/* Bytes from the start of a chunk to the first aligned place. Apart, since hardly a request asks. */
uint64_t ull__lost_to(const struct ull_pool *pool, const struct ull__chunk *c, uint64_t alignment);
/* The best fit of what is free; NULL: nothing is large enough. */
struct ull__chunk *ull__need_find(const struct ull_pool *pool, const struct ull__need *need);
/* For a small request: what large ones left over of pages, but no page that one could have whole. */
struct ull__chunk *ull__need_left_over(const struct ull_pool *pool, const struct ull__need *need);
/* For a request that finds nothing free so: all else that can be done, and at last a wait for pending frees. */
struct ull__chunk *ull__need_search(struct ull_pool *pool, const struct ull__need *need,
                                    struct ull__shortage *shortage);

#endif
