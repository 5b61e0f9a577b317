/*
 * regions.c: a pool over a device that cannot map pages (device.h: regions).
 *
 * There memory and addresses come only together. Home is not one piece of addresses but has a region of
 * the device here and there, each between two holes of a slot at least, so that no chunk and no run of
 * free pages crosses from one region into another; that is all that the rest of the pool needs to know.
 * Addresses of chunks are the pool's own then, made up; where a page is says its name, and what is given
 * out and taken back are those (ull__place). There are no views: small requests are served at home too.
 *
 * Growth. A new region is as large as all that the pool holds, so the pool doubles and their number
 * grows with the logarithm; but never more than the limit leaves, nor, beyond what the request
 * needs, more than half of what the device has free. When the device refuses, smaller ones are
 * tried down to what the request needs. Regions that are free as a whole go back on trim, at the
 * watermark, for a lowered limit, and to make room for one that a request needs.
 *
 * What cannot hold here is that a request is refused only if the pages are too few: a page that is in
 * use stays where it is, and splits what is free beside it. What holds: a request is refused only if,
 * after waiting for frees that are pending, no free run in any region has room for it, and, with all
 * regions given back that are free as a whole, the limit or the device leaves no room for a region of
 * its size. For an alignment that the device's addresses did not have so far, the region needs
 * room for moving up to it.
 */
#include <stdlib.h>

#include "lane.h"
#include "pool_private.h"

uint64_t ull__regions_place(const struct ull_pool *pool, uint64_t address)
{
    return pool->names[ull__slot_down(pool, address)] + (address & (pool->page_bytes - 1));
}

/* One by one: the regions are few, and the one asked for is mostly the largest, hence one of the last. */
uint64_t ull__regions_at_place(const struct ull_pool *pool, uint64_t place)
{
    for (uint32_t i = pool->region_count; i-- > 0;) {
        const struct ull__region *region = &pool->regions[i];
        uint64_t within = place - pool->names[region->first];
        if (within < (uint64_t)region->count << pool->page_shift)
            return ull__slot_address(pool, region->first) + within;
    }
    return 0;
}

static uint64_t left_under(const struct ull_pool *pool)
{
    return pool->limit_pages > pool->held ? pool->limit_pages - pool->held : 0;
}

/* Could it go now: is all of it free, and passed by every stream? */
static bool is_idle(const struct ull_pool *pool, const struct ull__region *region)
{
    const struct ull__chunk *c = ull__cover(pool, region->first);
    return c && c->state == ULL_FREE && c->size == (uint64_t)region->count << pool->page_shift &&
           ull__lane_passed(pool, c->lane, c->seq);
}

/* --- taking a region ------------------------------------------------------------------------------------ */

static bool ensure_regions(struct ull_pool *pool)
{
    if (pool->region_count < pool->region_capacity)
        return true;
    uint32_t capacity = pool->region_capacity ? pool->region_capacity * 2 : 16;
    struct ull__region *regions = realloc(pool->regions, capacity * sizeof *regions);
    if (!regions)
        return false;
    pool->regions = regions;
    pool->region_capacity = capacity;
    return true;
}

/* The lowest place in home with a slot to spare on both sides, or ULL_NONE. */
static uint32_t find_place(const struct ull_pool *pool, uint64_t count)
{
    const struct ull__chunk *best = NULL;
    for (const struct ull__chunk *hole = pool->holes; hole; hole = hole->u.free.right) {
        if (hole->size >> pool->page_shift >= count + 2 && (!best || hole->address < best->address))
            best = hole;
    }
    return best ? ull__slot_down(pool, best->address) + 1 : (uint32_t)ULL_NONE;
}

/* One region of `count` pages, free for everybody. */
static ull_status add_region(struct ull_pool *pool, uint64_t count, uint32_t *first)
{
    uint32_t slot = find_place(pool, count);
    if (slot == (uint32_t)ULL_NONE || !ensure_regions(pool) || !ull__host_memory(pool, 0))
        return ULL_E_NO_MEMORY;
    ull_status status = ull__pages_create(pool, slot, count);
    if (status != ULL_OK)
        return status;
    uint64_t alignment = pool->names[slot] & -pool->names[slot];
    if (alignment < pool->region_alignment)
        pool->region_alignment = alignment;
    pool->regions[pool->region_count++] =
        (struct ull__region){.first = slot, .count = (uint32_t)count};
    ull__make_free(pool, ull__hole_fill(pool, slot, (uint32_t)count), ULL_CLEAN, 0, 0, 0);
    *first = slot;
    return ULL_OK;
}

/* The pages that a new region should have: at least `least`, which the limit allows. */
static uint64_t wanted_pages(const struct ull_pool *pool, uint64_t least)
{
    uint64_t reserve = pool->reserve_pages, free_bytes, total;
    uint64_t wanted = pool->held;
    if (pool->device->ops->memory(pool->device, &free_bytes, &total) != ULL_OK)
        return least;
    if (wanted > free_bytes >> pool->page_shift >> 1)
        wanted = free_bytes >> pool->page_shift >> 1;
    if (reserve > pool->held && wanted < reserve - pool->held)
        wanted = reserve - pool->held;
    if (wanted > left_under(pool))
        wanted = left_under(pool);
    return wanted > least ? wanted : least;
}

uint64_t ull__regions_idle(const struct ull_pool *pool)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < pool->region_count; i++)
        count += is_idle(pool, &pool->regions[i]) ? pool->regions[i].count : 0;
    return count;
}

/* What went for something else may have been the reserve. If it cannot be had again, so be it. */
static void restore_reserve(struct ull_pool *pool)
{
    if (pool->held < pool->reserve_pages)
        ull__regions_commit(pool, pool->reserve_pages - pool->held);
}

/* One region: as much of `wanted` as the device gives, `least` at least. */
static ull_status take_region(struct ull_pool *pool, uint64_t least, uint64_t wanted, uint32_t *first)
{
    for (;;) {
        ull_status status = add_region(pool, wanted, first);
        if (status != ULL_E_NO_MEMORY || wanted == least)
            return status;
        wanted = wanted / 10 * 9 + wanted % 10 * 9 / 10;
        if (wanted < least)
            wanted = least;
    }
}

/*
 * A region of `needed` pages at least, within the limit; others that are free may go for it. The caller has
 * looked which events have passed, and what that made free is not enough.
 */
static ull_status grow(struct ull_pool *pool, uint64_t needed, uint32_t *first)
{
    if (needed > left_under(pool)) {
        if (needed > pool->limit_pages ||
            pool->held - ull__regions_idle(pool) > pool->limit_pages - needed)
            return ULL_E_FULL;
        ull__regions_return(pool, UINT64_MAX, pool->limit_pages - needed, 0);
    }
    ull_status status = take_region(pool, needed, wanted_pages(pool, needed), first);
    if (status == ULL_E_NO_MEMORY && ull__regions_return(pool, UINT64_MAX, 0, 0) > 0)
        status = take_region(pool, needed, needed, first);
    if (status != ULL_OK)
        restore_reserve(pool);
    return status;
}

/* --- giving regions back -------------------------------------------------------------------------------- */

static void give_region(struct ull_pool *pool, uint32_t index)
{
    struct ull__region region = pool->regions[index];
    pool->regions[index] = pool->regions[--pool->region_count];
    ull__pages_release(pool, region.first, region.count);
}

uint64_t ull__regions_return(struct ull_pool *pool, uint64_t most, uint64_t target, uint64_t keep)
{
    uint64_t done = 0;
    if (pool->held <= target || !ull__host_memory(pool, 0))
        return 0;
    for (uint32_t i = pool->region_count; i-- > 0 && pool->held > target;) {
        uint64_t count = pool->regions[i].count;
        if (count > most - done || pool->held - count < keep || !is_idle(pool, &pool->regions[i]))
            continue;
        give_region(pool, i);
        done += count;
    }
    if (pool->free_pages < pool->idle_low)
        pool->idle_low = pool->free_pages;
    return done;
}

uint64_t ull__regions_within_limit(struct ull_pool *pool)
{
    uint64_t done = ull__regions_return(pool, UINT64_MAX, pool->limit_pages, 0);
    if (done > 0)
        restore_reserve(pool);
    return done;
}

/* --- what the rest of the pool calls --------------------------------------------------------------------- */

ull_status ull__regions_commit(struct ull_pool *pool, uint64_t count)
{
    uint64_t before = pool->held, target = before + count;
    ull_status status = ULL_OK;
    uint32_t first;
    while (pool->held < target && status == ULL_OK)
        status = take_region(pool, 1, target - pool->held, &first);
    while (status != ULL_OK && pool->held > before)
        give_region(pool, pool->region_count - 1);
    return status;
}

/* Does the whole of the region's one free chunk have room? */
static bool has_room(const struct ull_pool *pool, const struct ull__chunk *c, uint64_t size,
                     uint64_t alignment)
{
    uint64_t place = ull__place(pool, c->address);
    uint64_t lost = (place + alignment - 1) / alignment * alignment - place;
    return c->size >= lost && c->size - lost >= size;
}

ull_status ull__regions_build(struct ull_pool *pool, uint64_t size, uint64_t alignment,
                              struct ull__shortage *shortage, struct ull__chunk **chunk)
{
    ull_status status = ULL_E_NO_MEMORY;
    for (int again = 0; again < 2 && !*chunk; again++) {
        /* The address is known only when there is one. */
        uint64_t room = alignment <= pool->region_alignment ? 0 : alignment - ULL_UNIT;
        uint32_t first;
        if (room > UINT64_MAX - size || ull__pages_for(pool, size + room) > pool->total_pages)
            return ULL_E_NO_MEMORY;
        status = grow(pool, ull__pages_for(pool, size + room), &first);
        shortage->left = left_under(pool);
        if (status != ULL_OK)
            break;
        struct ull__chunk *c = ull__cover(pool, first);
        if (has_room(pool, c, size, alignment))
            *chunk = c;
    }
    if (*chunk)
        return ULL_OK;
    shortage->available = ull__largest_free(pool) >> pool->page_shift;
    shortage->device_full = status != ULL_E_FULL;
    return ULL_E_NO_MEMORY;
}

const struct ull__chunk *ull__regions_next(const struct ull_pool *pool, uint64_t *place)
{
    uint32_t best = (uint32_t)ULL_NONE;
    for (uint32_t i = 0; i < pool->region_count; i++) {
        uint32_t first = pool->regions[i].first;
        if (pool->names[first] > *place &&
            (best == (uint32_t)ULL_NONE || pool->names[first] < pool->names[best]))
            best = first;
    }
    if (best == (uint32_t)ULL_NONE)
        return NULL;
    *place = pool->names[best];
    return ull__cover(pool, best - 1)->next; /* behind the hole before it */
}

void ull__regions_finish(struct ull_pool *pool)
{
    for (uint32_t i = 0; i < pool->region_count; i++)
        pool->device->ops->destroy_pages(pool->device, pool->regions[i].count,
                                         pool->names + pool->regions[i].first);
    free(pool->regions);
}
