/*
 * ranges.c: addresses. One large piece is set aside at the start. Home and the view of small requests take
 * twice as many slots as the device has pages, and are holes at first; the other views take the
 * rest, first fit.
 *
 * Mappings cost host memory, the card's page tables and time when pages are given back, so there
 * is a bound on them. Beyond it the view that was not used for longest is unmapped. A view can go only
 * when nothing in it is in use and no stream can still touch its addresses.
 */
#include <stdlib.h>

#include "error.h"
#include "pool_private.h"

enum { HOME_FACTOR = 2, SPARE_MAPPINGS = 64 };
#define NONE ((uint32_t)ULL_NONE)

/* --- holes of home --------------------------------------------------------------------------------------- */

static void hole_link(struct ull_pool *pool, struct ull__chunk *c)
{
    c->u.free.left = NULL;
    c->u.free.right = pool->holes;
    if (pool->holes)
        pool->holes->u.free.left = c;
    pool->holes = c;
}

static void hole_unlink(struct ull_pool *pool, struct ull__chunk *c)
{
    if (c->u.free.left)
        c->u.free.left->u.free.right = c->u.free.right;
    else
        pool->holes = c->u.free.right;
    if (c->u.free.right)
        c->u.free.right->u.free.left = c->u.free.left;
}

/* --- ranges -------------------------------------------------------------------------------------------- */

uint32_t ull__addresses_find(const struct ull_pool *pool, uint64_t count, uint64_t alignment)
{
    uint64_t at = 0, page = pool->page_bytes;
    uint64_t step = alignment > page ? alignment / page : 1;
    uint64_t offset = (pool->base >> pool->page_shift) % step;
    for (uint32_t r = ULL_HOME; r != NONE; r = pool->ranges[r].next) {
        at = (uint64_t)pool->ranges[r].first + pool->ranges[r].count;
        at += (step - (at + offset) % step) % step;
        uint32_t next = pool->ranges[r].next;
        uint64_t end = next == NONE ? pool->slot_count : pool->ranges[next].first;
        if (at < end && end - at >= count)
            return (uint32_t)at;
    }
    return NONE;
}

static uint32_t unused_range(struct ull_pool *pool)
{
    uint32_t index = pool->unused_range;
    if (index != NONE) {
        pool->unused_range = pool->ranges[index].next;
        return index;
    }
    if (pool->range_count == pool->range_capacity) {
        uint32_t capacity = pool->range_capacity ? pool->range_capacity * 2 : 16;
        struct ull__range *ranges = realloc(pool->ranges, capacity * sizeof *ranges);
        if (!ranges)
            return NONE;
        pool->ranges = ranges;
        pool->range_capacity = capacity;
    }
    return pool->range_count++;
}

/* Into the list by address, and, if it is a view for large requests, into that by size. */
static void link_range(struct ull_pool *pool, uint32_t index)
{
    struct ull__range *range = &pool->ranges[index];
    range->prev = range->next = range->by_size = NONE;
    if (index != ULL_HOME) {
        range->next = ULL_HOME;
        while (range->next != NONE && pool->ranges[range->next].first < range->first) {
            range->prev = range->next;
            range->next = pool->ranges[range->next].next;
        }
        pool->ranges[range->prev].next = index;
        if (range->next != NONE)
            pool->ranges[range->next].prev = index;
    }
    if (index > ULL_SMALL) {
        uint32_t *at = &pool->by_size;
        while (*at != NONE && pool->ranges[*at].count <= range->count)
            at = &pool->ranges[*at].by_size;
        range->by_size = *at;
        *at = index;
    }
}

uint32_t ull__range_add(struct ull_pool *pool, uint32_t first, uint32_t count)
{
    if (!ull__chunks_ensure(pool, 1))
        return NONE;
    uint32_t index = unused_range(pool);
    if (index == NONE)
        return NONE;
    struct ull__chunk *c = ull__chunk_new(pool);
    *c = (struct ull__chunk){.address = ull__slot_address(pool, first),
                             .size = (uint64_t)count << pool->page_shift,
                             .tier = (uint8_t)(index < ULL_VIEW ? index : ULL_VIEW),
                             .state = ULL_HOLE};
    pool->ranges[index] =
        (struct ull__range){.first = first, .count = count, .chunks = c, .used = pool->clock};
    link_range(pool, index);
    for (uint32_t i = 0; i < count && index != ULL_HOME; i++)
        pool->range_of[first + i] = index;
    ull__cover_add(pool, c);
    if (index == ULL_HOME)
        hole_link(pool, c);
    return index;
}

/* Pre: it is one hole, or has no chunks. */
void ull__range_drop(struct ull_pool *pool, uint32_t index)
{
    struct ull__range *range = &pool->ranges[index];
    uint32_t *at = &pool->by_size;
    while (*at != index)
        at = &pool->ranges[*at].by_size;
    *at = range->by_size;
    pool->ranges[range->prev].next = range->next;
    if (range->next != NONE)
        pool->ranges[range->next].prev = range->prev;
    if (range->chunks) {
        ull__cover_remove(pool, range->chunks);
        ull__chunk_drop(pool, range->chunks);
    }
    *range = (struct ull__range){.next = pool->unused_range};
    pool->unused_range = index;
}

/* --- holes ---------------------------------------------------------------------------------------------- */

void ull__hole_make(struct ull_pool *pool, struct ull__chunk *c)
{
    c->state = ULL_HOLE;
    c->lane = ULL_CLEAN;
    for (int i = 0; i < 2; i++) {
        struct ull__chunk *other = i == 0 ? c->next : c->prev;
        if (!other || other->state != ULL_HOLE)
            continue;
        ull__cover_remove(pool, other);
        if (c->tier == ULL_HOME)
            hole_unlink(pool, other);
        c = i == 0 ? c : other;
        ull__chunk_join(pool, c);
    }
    ull__cover_add(pool, c);
    if (c->tier == ULL_HOME)
        hole_link(pool, c);
    if (c->tier == ULL_VIEW && !c->prev && !c->next)
        ull__range_drop(pool, pool->range_of[ull__slot_down(pool, c->address)]);
}

struct ull__chunk *ull__hole_fill(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    struct ull__chunk *hole = ull__cover(pool, slot);
    if (hole->tier == ULL_HOME)
        hole_unlink(pool, hole);
    struct ull__chunk *c = ull__isolate(pool, slot, count);
    for (int i = 0; i < 2 && c->tier == ULL_HOME; i++) {
        struct ull__chunk *rest = i == 0 ? c->prev : c->next;
        if (rest && rest->state == ULL_HOLE)
            hole_link(pool, rest);
    }
    return c;
}

/* --- unmapping ranges ------------------------------------------------------------------------------------ */

/* Could it be unmapped now? *events: only some stream is in the way. */
static bool can_evict(const struct ull_pool *pool, const struct ull__range *range, bool *events)
{
    bool passed = true;
    for (const struct ull__chunk *c = range->chunks; c; c = c->next) {
        if (c->state != ULL_SHADOW && c->state != ULL_HOLE)
            return false;
        passed = passed && ull__lane_passed(pool, c->lane, c->seq);
    }
    *events |= !passed;
    return passed;
}

static void evict(struct ull_pool *pool, uint32_t index)
{
    struct ull__range *range = &pool->ranges[index];
    while (range->chunks) {
        struct ull__chunk *c = range->chunks;
        range->chunks = c->next;
        ull__cover_remove(pool, c);
        if (c->state != ULL_HOLE)
            ull__view_unmap(pool, ull__slot_down(pool, c->address),
                            (uint32_t)(c->size >> pool->page_shift));
        ull__chunk_drop(pool, c);
    }
    ull__range_drop(pool, index);
}

bool ull__range_evict(struct ull_pool *pool)
{
    for (int again = 0; again < 2; again++) {
        bool events = false;
        uint32_t oldest = NONE;
        for (uint32_t r = ULL_HOME; r != NONE; r = pool->ranges[r].next) {
            if (r > ULL_SMALL && can_evict(pool, &pool->ranges[r], &events) &&
                (oldest == NONE || pool->ranges[r].used < pool->ranges[oldest].used))
                oldest = r;
        }
        if (oldest != NONE) {
            evict(pool, oldest);
            return true;
        }
        if (!events)
            return false;
        ull__lanes_want(pool, (uint16_t)-1);
    }
    return false;
}

void ull__ranges_bound(struct ull_pool *pool, uint64_t count)
{
    while (pool->mapped + count > pool->options.mapping_factor * (pool->held + SPARE_MAPPINGS) &&
           ull__range_evict(pool))
        continue;
}

/* --- life ------------------------------------------------------------------------------------------------ */

static bool init_lists(struct ull_pool *pool)
{
    uint32_t home = pool->home_count;
    pool->unused_range = pool->by_size = pool->retained = NONE;
    pool->slots = malloc(pool->slot_count * sizeof *pool->slots);
    pool->range_of = calloc(pool->slot_count, sizeof *pool->range_of);
    pool->names = calloc(home, sizeof *pool->names);
    pool->name_scratch = calloc(home, sizeof *pool->name_scratch);
    pool->scratch = calloc(home, sizeof *pool->scratch);
    pool->free_bits = calloc(home / 64 + 1, sizeof *pool->free_bits);
    if (!pool->slots || !pool->range_of || !pool->names || !pool->name_scratch || !pool->scratch ||
        !pool->free_bits || !ull__slotset_init(&pool->covers, pool->slot_count))
        return false;
    for (uint32_t i = 0; i < pool->slot_count; i++)
        pool->slots[i].home = NONE;
    pool->small_end = home;
    return ull__range_add(pool, 0, home) == ULL_HOME && ull__range_add(pool, home, home) == ULL_SMALL;
}

ull_status ull__ranges_init(struct ull_pool *pool, struct ull_error *err)
{
    uint64_t home = pool->total_pages * HOME_FACTOR, slots = 0;
    ull_status status = ULL_E_NO_MEMORY;
    /* Fewer addresses, if it has to be. */
    for (uint64_t factor = pool->options.address_factor;
         factor >= 2 * HOME_FACTOR && status != ULL_OK; factor--) {
        slots = pool->total_pages * factor;
        if (slots < (uint64_t)1 << 24)
            status = pool->device->ops->reserve(pool->device, slots << pool->page_shift, &pool->base);
    }
    if (status != ULL_OK)
        return ull__fail(err, status, "the device has no %llu bytes of addresses for a pool",
                         (unsigned long long)(slots << pool->page_shift));
    pool->slot_count = (uint32_t)slots;
    pool->home_count = (uint32_t)home;
    if (!init_lists(pool))
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a pool over %llu pages",
                         (unsigned long long)pool->total_pages);
    return ULL_OK;
}

/* Unmaps everything, in use or not, views first; work is over. */
void ull__ranges_finish(struct ull_pool *pool)
{
    const struct ull__device_ops *ops = pool->device->ops;
    for (uint32_t slot = pool->slots ? pool->slot_count : 0; slot > 0;) {
        uint32_t end = slot;
        while (slot > 0 && pool->slots[slot - 1].home != NONE &&
               (slot == end || pool->range_of[slot - 1] == pool->range_of[end - 1]))
            slot--;
        if (slot == end) {
            slot--;
            continue;
        }
        ops->unmap(pool->device, ull__slot_address(pool, slot), end - slot);
        if (pool->range_of[slot] == ULL_HOME)
            ops->destroy_pages(pool->device, end - slot, pool->names + slot);
    }
    if (pool->slot_count)
        ops->release(pool->device, pool->base, (uint64_t)pool->slot_count << pool->page_shift);
    ull__slotset_finish(&pool->covers);
    free(pool->slots);
    free(pool->range_of);
    free(pool->ranges);
    free(pool->names);
    free(pool->name_scratch);
    free(pool->scratch);
    free(pool->free_bits);
}
