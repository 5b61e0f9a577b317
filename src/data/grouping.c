/* grouping.c: see grouping.h. */
#include "grouping.h"

#include <stdlib.h>

#include "data_private.h"

enum { POOL_BATCHES = 64 };

/* Pools of an epoch, of about POOL_BATCHES batches each. */
static uint64_t pools_of(const struct ull__group_order *order)
{
    uint64_t whole = POOL_BATCHES * order->batch;
    uint64_t pools = (order->samples + whole / 2) / whole;
    return pools ? pools : 1;
}

/* Where pool i of an epoch begins: the first with the epoch, others with a batch. */
static uint64_t pool_begin(const struct ull__group_order *order, uint64_t epoch, uint64_t i)
{
    uint64_t begin = epoch * order->samples, end = begin + order->samples, pools = pools_of(order);
    if (i == 0 || i == pools)
        return i ? end : begin;
    uint64_t first = (begin + order->batch - 1) / order->batch * order->batch;
    uint64_t batches = (end - first) / order->batch;
    return first + batches * i / pools * order->batch;
}

ull_status ull__group_pool_create(const struct ull__group_order *order,
                                  struct ull__group_pool *pool, struct ull_error *err)
{
    /* A pool may have half as many again, and parts of the batches at both ends. */
    uint64_t most = (POOL_BATCHES + POOL_BATCHES / 2 + 3) * order->batch;
    most = order->samples < most ? order->samples : most;
    *pool = (struct ull__group_pool){.items = malloc(most * sizeof *pool->items),
                                     .order = malloc(most * sizeof *pool->order)};
    return pool->items && pool->order
               ? ULL_OK
               : ull__data_no_memory(err, most * sizeof *pool->items, "the order of samples");
}

void ull__group_pool_finish(struct ull__group_pool *pool)
{
    free(pool->items);
    free(pool->order);
}

static int by_length(const void *left, const void *right)
{
    const struct ull__group_item *a = left, *b = right;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

static void arrange(const struct ull__group_order *order, struct ull__group_pool *pool)
{
    const uint64_t count = pool->end - pool->first, batch = order->batch;
    uint64_t head = (batch - pool->first % batch) % batch;
    head = head < count ? head : count;
    const uint64_t tail = (count - head) % batch, full = (count - head) / batch;
    const uint64_t key = ull__mix(ull__mix(order->seed, pool->first), 0x706f6f6cu);
    for (uint64_t i = 0; i < head; i++)
        pool->order[i] = pool->items[i].index;
    for (uint64_t i = 0; i < tail; i++)
        pool->order[count - tail + i] = pool->items[head + i].index;
    for (uint64_t b = 0; b < full; b++) {
        uint64_t from = order->shuffle ? ull__order(full, key, b) : b;
        for (uint64_t i = 0; i < batch; i++)
            pool->order[head + b * batch + i] = pool->items[head + tail + from * batch + i].index;
    }
}

static void enter(const struct ull__group_order *order, struct ull__group_pool *pool,
                  uint64_t position)
{
    const uint64_t epoch = position / order->samples, start = epoch * order->samples;
    uint64_t low = 0, high = pools_of(order);
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (pool_begin(order, epoch, mid) <= position)
            low = mid;
        else
            high = mid;
    }
    pool->first = pool_begin(order, epoch, low);
    pool->end = pool_begin(order, epoch, low + 1);
    const uint64_t count = pool->end - pool->first;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = pool->first - start + i;
        if (order->shuffle)
            index = ull__order(order->samples, ull__mix(order->seed, epoch), index);
        int64_t length = order->length(order->data, order->part, index);
        pool->items[i] = (struct ull__group_item){index, (uint32_t)length, (uint32_t)i};
    }
    qsort(pool->items, count, sizeof *pool->items, by_length);
    arrange(order, pool);
}

uint64_t ull__group_index(const struct ull__group_order *order, struct ull__group_pool *pool,
                          uint64_t position)
{
    if (position < pool->first || position >= pool->end)
        enter(order, pool, position);
    return pool->order[position - pool->first];
}
