/*
 * move.c: a pool's pages out and back under their addresses, and what a pool needs to stand in for the driver's
 * own; see move.h.
 *
 * Pages move as home has them, whether they are in use, free, or a part of each: the caller trims before. A page
 * whose device memory is gone keeps its slots, here and in views, so nothing of the pool's lists changes; only its
 * name does, when it comes back.
 *
 * Not for a device with regions, where addresses come from the device: there are no runs then.
 */
#include "move.h"

#include "front.h"
#include "lane.h"
#include "pool_private.h"

/* --- home -------------------------------------------------------------------------------------------------- */

static bool has_page(const struct ull_pool *pool, uint32_t slot)
{
    return pool->slots[slot].home != (uint32_t)ULL_NONE;
}

size_t ull__move_runs(struct ull_pool *pool, uint32_t most, struct ull__run *runs, size_t max)
{
    size_t count = 0;
    ull__lock(&pool->lock);
    for (uint32_t slot = 0; !pool->plain && slot < pool->home_count;) {
        uint32_t end = slot;
        while (end < pool->home_count && end - slot < most && has_page(pool, end))
            end++;
        if (end == slot) {
            slot++;
            continue;
        }
        if (count < max)
            runs[count] = (struct ull__run){.address = ull__slot_address(pool, slot),
                                            .bytes = (uint64_t)(end - slot) << pool->page_shift,
                                            .slot = slot,
                                            .count = end - slot};
        count++;
        slot = end;
    }
    ull__unlock(&pool->lock);
    return count;
}

void ull__move_unmap(struct ull_pool *pool, const struct ull__run *run)
{
    pool->device->ops->unmap(pool->device, run->address, run->count);
    ull__move_unmake(pool, run);
}

/* The device may write names before it fails, so they go to their place when it has not. */
ull_status ull__move_make(struct ull_pool *pool, const struct ull__run *run)
{
    ull_status status = pool->device->ops->create(pool->device, run->count, pool->name_scratch);
    for (uint32_t i = 0; i < run->count && status == ULL_OK; i++)
        pool->names[run->slot + i] = pool->name_scratch[i];
    return status;
}

void ull__move_unmake(struct ull_pool *pool, const struct ull__run *run)
{
    pool->device->ops->destroy_pages(pool->device, run->count, pool->names + run->slot);
}

ull_status ull__move_map(struct ull_pool *pool, const struct ull__run *run)
{
    return pool->device->ops->map(pool->device, run->address, run->count, pool->names + run->slot);
}

/* --- views ------------------------------------------------------------------------------------------------- */

/* From a slot of a range on, the next that has pages; false: none. Shadows are mapped too. */
static bool next_piece(const struct ull_pool *pool, const struct ull__range *range, uint32_t *slot,
                       uint32_t *end)
{
    uint32_t last = range->first + range->count;
    while (*slot < last && !has_page(pool, *slot))
        (*slot)++;
    *end = *slot;
    while (*end < last && has_page(pool, *end))
        (*end)++;
    return *slot < last;
}

/* Calls `does` for the mapped pieces of ranges behind home; stops where it fails, and says at which slot. */
static ull_status each_view(struct ull_pool *pool,
                            ull_status (*does)(struct ull_pool *pool, uint32_t slot, uint32_t count),
                            uint32_t until, uint32_t *failed)
{
    for (uint32_t r = pool->ranges[ULL_HOME].next; r != (uint32_t)ULL_NONE; r = pool->ranges[r].next) {
        uint32_t end, slot = pool->ranges[r].first;
        for (; next_piece(pool, &pool->ranges[r], &slot, &end); slot = end) {
            if (slot >= until)
                return ULL_OK;
            ull_status status = does(pool, slot, end - slot);
            if (status != ULL_OK) {
                *failed = slot;
                return status;
            }
        }
    }
    return ULL_OK;
}

static ull_status unmap_view(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    pool->device->ops->unmap(pool->device, ull__slot_address(pool, slot), count);
    return ULL_OK;
}

/* A piece may be longer than the scratch has room for: a view has each page once, so it is not. */
static ull_status map_view(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        pool->name_scratch[i] = pool->names[pool->slots[slot + i].home];
    return pool->device->ops->map(pool->device, ull__slot_address(pool, slot), count,
                                  pool->name_scratch);
}

void ull__move_views_out(struct ull_pool *pool)
{
    uint32_t failed;
    ull__lock(&pool->lock);
    if (!pool->plain)
        each_view(pool, unmap_view, UINT32_MAX, &failed);
    ull__unlock(&pool->lock);
}

ull_status ull__move_views_in(struct ull_pool *pool)
{
    uint32_t failed = 0;
    ull_status status = ULL_OK;
    ull__lock(&pool->lock);
    if (!pool->plain)
        status = each_view(pool, map_view, UINT32_MAX, &failed);
    if (status != ULL_OK) {
        uint32_t unused;
        each_view(pool, unmap_view, failed, &unused);
    }
    ull__unlock(&pool->lock);
    return status;
}

/* --- standing in for the driver's ------------------------------------------------------------------------- */

void ull__pool_mapped(struct ull_pool *pool,
                      void (*visit)(void *context, uint64_t address, uint64_t bytes), void *context)
{
    ull__lock(&pool->lock);
    for (uint32_t r = ULL_HOME; r != (uint32_t)ULL_NONE && !pool->plain; r = pool->ranges[r].next) {
        uint32_t end, slot = pool->ranges[r].first;
        for (; next_piece(pool, &pool->ranges[r], &slot, &end); slot = end)
            visit(context, ull__slot_address(pool, slot), (uint64_t)(end - slot) << pool->page_shift);
    }
    ull__unlock(&pool->lock);
}

/* What is loose in a front is in no table, so it must not be taken for memory in use. */
static bool in_use(const struct ull_pool *pool, const struct ull__chunk *c)
{
    bool live = c->state == ULL_LIVE && ull__table_find(&pool->live, c->address) == c;
    for (unsigned int i = 0; i < pool->front_count && !live && c->state == ULL_LIVE; i++)
        live = ull__table_find(&pool->fronts[i]->live, c->address) == c;
    return live;
}

/* From the last chunk before it that a whole slot is covered by, or from where the range begins. */
static const struct ull__chunk *chunk_at(const struct ull_pool *pool, uint64_t address)
{
    uint32_t slot = ull__slot_down(pool, address);
    const struct ull__range *range = &pool->ranges[pool->range_of[slot]];
    uint32_t near = ull__slotset_last(&pool->covers, slot);
    const struct ull__chunk *c = range->chunks;
    if (near != UINT32_MAX && near >= range->first)
        c = pool->slots[near].cover;
    while (c && c->address > address)
        c = c->prev;
    while (c && address - c->address >= c->size)
        c = c->next;
    return c;
}

bool ull__pool_find(struct ull_pool *pool, uint64_t address, uint64_t *start, uint64_t *requested)
{
    if (ull__is_parents(pool) || pool->plain || address < pool->base ||
        (address - pool->base) >> pool->page_shift >= pool->slot_count)
        return false;
    ull__lock(&pool->lock);
    ull__fronts_hold(pool);
    bool found = false;
    if (has_page(pool, ull__slot_down(pool, address))) {
        const struct ull__chunk *c = chunk_at(pool, address);
        found = c && in_use(pool, c) && address - c->address < c->u.live.requested;
        if (found) {
            *start = c->address;
            *requested = c->u.live.requested;
        }
    }
    ull__fronts_release(pool);
    ull__unlock(&pool->lock);
    return found;
}

bool ull__pool_follow(struct ull_pool *pool, ull__stream stream,
                      bool (*wait)(void *context, ull__stream stream, ull__event event),
                      void *context)
{
    if (ull__is_parents(pool))
        return false;
    ull__lock(&pool->lock);
    bool more = ull__fronts_drain(pool, ULL_LOOSE_ALL);
    uint16_t own = ull__lane_of(pool, stream);
    if (own != 0 && !pool->lanes[own].graph_lane) {
        more |= ull__lanes_want(pool, own);
        more |= ull__lanes_follow(pool, own, wait, context);
    }
    ull__unlock(&pool->lock);
    return more;
}

static uint64_t bytes_above(const struct ull_pool *pool, uint64_t keep)
{
    uint64_t held = pool->held << pool->page_shift;
    return held > keep ? held - keep : 0;
}

uint64_t ull__pool_trim_to(struct ull_pool *pool, uint64_t keep)
{
    uint64_t pages = 0;
    if (ull__is_parents(pool))
        return 0;
    ull__lock(&pool->lock);
    ull__fronts_drain(pool, ULL_LOOSE_ALL);
    ull__lanes_want(pool, (uint16_t)-1);
    pages = ull__pages_return(pool, bytes_above(pool, keep) >> pool->page_shift);
    ull__unlock(&pool->lock);
    return pages << pool->page_shift;
}

uint64_t ull__pool_rest(struct ull_pool *pool, uint64_t keep)
{
    uint64_t pages = 0;
    if (ull__is_parents(pool))
        return 0;
    ull__lock(&pool->lock);
    ull__fronts_drain(pool, ULL_LOOSE_ALL); /* with what rested there */
    uint64_t idle = pool->idle_low, above = bytes_above(pool, keep) >> pool->page_shift;
    if (idle > 0 && above > 0) {
        ull__lanes_want(pool, (uint16_t)-1);
        pages = ull__pages_return(pool, idle < above ? idle : above);
    }
    pool->idle_low = pool->free_pages;
    ull__unlock(&pool->lock);
    return pages << pool->page_shift;
}
