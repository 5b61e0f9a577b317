/*
 * pages.c: pages of the device, where they are mapped, and giving them back.
 *
 * What is given back is taken from the highest home slots, so that those from the first requests stay
 * where they are. A page is given back only when it is free and no stream can still touch any of its
 * addresses, since unmapping waits for nothing. All lists have room for every page the device has, so what
 * the device gave is never lost for want of host memory.
 */
#include <stdlib.h>

#include "front.h"
#include "lane.h"
#include "pool_private.h"

/* --- slots --------------------------------------------------------------------------------------------- */

static void enter(struct ull_pool *pool, uint32_t slot, uint32_t home)
{
    pool->slots[slot].home = home;
    pool->slots[slot].next = slot;
    if (slot != home) {
        pool->slots[slot].next = pool->slots[home].next;
        pool->slots[home].next = slot;
    }
}

static void leave(struct ull_pool *pool, uint32_t slot)
{
    uint32_t before = slot;
    while (pool->slots[before].next != slot)
        before = pool->slots[before].next;
    pool->slots[before].next = pool->slots[slot].next;
    pool->slots[slot].home = (uint32_t)ULL_NONE;
}

static ull_status map(struct ull_pool *pool, uint32_t slot, uint64_t count, const ull__page *names)
{
    ull_status status = ULL_OK;
    if (!pool->plain)
        status = pool->device->ops->map(pool->device, ull__slot_address(pool, slot), count, names);
    if (status == ULL_OK) {
        pool->stats.maps++;
        pool->mapped += count;
    }
    return status;
}

static void unmap(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    if (!pool->plain)
        pool->device->ops->unmap(pool->device, ull__slot_address(pool, slot), count);
    pool->stats.unmaps++;
    pool->mapped -= count;
}

ull_status ull__pages_create(struct ull_pool *pool, uint32_t slot, uint64_t count)
{
    ull__page *names = pool->names + slot;
    ull_status status = pool->device->ops->create(pool->device, count, names);
    if (status != ULL_OK)
        return status;
    status = map(pool, slot, count, names);
    if (status != ULL_OK) {
        pool->device->ops->destroy_pages(pool->device, count, names);
        return status;
    }
    for (uint64_t i = 0; i < count; i++)
        enter(pool, slot + (uint32_t)i, slot + (uint32_t)i);
    pool->spare_refused = false;
    pool->held += count;
    pool->stats.pages_created += count;
    if (pool->held << pool->page_shift > pool->stats.peak_held)
        pool->stats.peak_held = pool->held << pool->page_shift;
    return ULL_OK;
}

ull_status ull__view_map(struct ull_pool *pool, uint32_t slot, uint64_t count, const uint32_t *homes)
{
    for (uint64_t i = 0; i < count; i++)
        pool->name_scratch[i] = pool->names[homes[i]];
    ull_status status = map(pool, slot, count, pool->name_scratch);
    for (uint64_t i = 0; i < count && status == ULL_OK; i++)
        enter(pool, slot + (uint32_t)i, homes[i]);
    return status;
}

void ull__view_unmap(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    unmap(pool, slot, count);
    for (uint32_t i = 0; i < count; i++)
        leave(pool, slot + i);
}

/* --- giving back --------------------------------------------------------------------------------------- */

/* Could no stream still touch the page, here or in a view? It is free. */
static bool can_return(const struct ull_pool *pool, uint32_t home)
{
    uint32_t slot = home;
    do {
        const struct ull__chunk *c = ull__cover(pool, slot);
        if (!c || !ull__lane_passed(pool, c->lane, c->seq))
            return false;
        slot = pool->slots[slot].next;
    } while (slot != home);
    return true;
}

/* Takes a page out of all views; each of its slots there is a shadow. */
static void leave_views(struct ull_pool *pool, uint32_t home)
{
    while (pool->slots[home].next != home) {
        uint32_t slot = pool->slots[home].next;
        struct ull__chunk *c = ull__isolate(pool, slot, 1);
        ull__view_unmap(pool, slot, 1);
        ull__hole_make(pool, c);
    }
}

void ull__pages_release(struct ull_pool *pool, uint32_t first, uint32_t count)
{
    for (uint32_t slot = first; slot < first + count; slot++) {
        pool->free_bits[slot / 64] &= ~((uint64_t)1 << (slot % 64));
        pool->slots[slot].home = (uint32_t)ULL_NONE;
    }
    struct ull__chunk *c = ull__isolate(pool, first, count);
    unmap(pool, first, count);
    pool->device->ops->destroy_pages(pool->device, count, pool->names + first);
    pool->held -= count;
    pool->free_pages -= count;
    pool->stats.pages_returned += count;
    ull__hole_make(pool, c);
}

uint64_t ull__pages_return(struct ull_pool *pool, uint64_t count)
{
    uint64_t keep = pool->reserve_pages, done = 0;
    uint64_t most = pool->held > keep ? pool->held - keep : 0;
    count = count < most ? count : most;
    if (pool->plain)
        return pool->held > pool->limit_pages ? ull__regions_within_limit(pool)
                                              : ull__regions_return(pool, count, 0, keep);
    if (count == 0 || !ull__host_memory(pool, 0))
        return 0;
    ull__retained_return(pool);
    for (uint32_t end = pool->home_count; end > 0 && done < count;) {
        if (pool->free_bits[(end - 1) / 64] == 0) {
            end = (end - 1) / 64 * 64;
            continue;
        }
        uint32_t first = end;
        while (first > 0 && done + (end - first) < count && ull__page_free(pool, first - 1) &&
               can_return(pool, first - 1))
            leave_views(pool, --first);
        if (first < end)
            ull__pages_release(pool, first, end - first);
        done += end - first;
        end = first < end ? first : end - 1;
    }
    if (pool->free_pages < pool->idle_low)
        pool->idle_low = pool->free_pages;
    return done;
}

void ull__idle(struct ull_pool *pool, uint64_t now)
{
    uint64_t over = pool->held > pool->limit_pages ? pool->held - pool->limit_pages : 0;
    uint64_t keep = pool->reserve_pages;
    if (now - pool->idle_since >= pool->options.idle_ns) {
        ull__fronts_drain(pool, ULL_LOOSE_ALL);
        uint64_t mark = pool->limit_pages / 100 * pool->options.watermark_percent +
                        pool->limit_pages % 100 * pool->options.watermark_percent / 100;
        uint64_t above = pool->held > mark ? pool->held - mark : 0;
        uint64_t low = pool->idle_low < pool->idle_past ? pool->idle_low : pool->idle_past;
        uint64_t idle = low < above ? low : above;
        if (pool->plain && above > 0) { /* a region may go that lies across the mark */
            ull__lanes_want(pool, (uint16_t)-1);
            ull__regions_return(pool, low, mark, keep);
            idle = 0;
        }
        over = over > idle ? over : idle;
        pool->idle_since = now;
        pool->idle_low = pool->free_pages;
        pool->idle_past = UINT64_MAX;
    }
    if (over > 0) {
        ull__lanes_want(pool, (uint16_t)-1);
        ull__pages_return(pool, over);
    }
}
