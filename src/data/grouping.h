/*
 * grouping.h: an order that brings samples of like lengths together, computed from the position alone.
 *
 * The shuffled order of an epoch is cut into pools of some batches. A pool is sorted by length and cut into batches
 * again, which come in a drawn order, so that what a step sees says nothing of its place in the epoch. Batches are those
 * of the endless row of positions (batch b begins at b * batch); where one lies over the end of an epoch, both
 * epochs give it their pools' shortest. Every sample is there exactly once an epoch.
 */
#ifndef ULLAGE_DATA_GROUPING_H
#define ULLAGE_DATA_GROUPING_H

#include "data.h"

struct ull__group_order {
    uint64_t samples; /* of an epoch */
    uint64_t batch;   /* samples of a step */
    uint64_t seed;
    bool shuffle; /* else the order of the data, pool by pool */
    /* Of the sample at a place of the data. */
    int64_t (*length)(const struct ull__data *data, enum ull__data_part part, uint64_t index);
    const struct ull__data *data;
    enum ull__data_part part;
};

struct ull__group_item {
    uint64_t index;
    uint32_t length, rank;
};

/* One thread's: the pool that it was last in. */
struct ull__group_pool {
    struct ull__group_item *items;
    uint64_t *order; /* by position, from `first` on */
    uint64_t first, end;
};

/* Room for any pool of this order. ULL_E_NO_MEMORY. Caller finishes. */
ull_status ull__group_pool_create(const struct ull__group_order *order,
                                  struct ull__group_pool *pool, struct ull_error *err);
void ull__group_pool_finish(struct ull__group_pool *pool);

/* Which sample of the data is at a position. Allocates nothing of its own. */
uint64_t ull__group_index(const struct ull__group_order *order, struct ull__group_pool *pool,
                          uint64_t position);

#endif
