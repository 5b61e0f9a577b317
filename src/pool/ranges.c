/*
 * ranges.c: addresses. One large piece is set aside at the start. Home and the view of small requests take
 * twice as many slots as the device has pages, and are holes at first; the other views take the
 * rest, next fit.
 *
 * Mappings cost host memory, the card's page tables and time when pages are given back, so there
 * is a bound on them. Beyond it the view that was not used for longest is unmapped. A view can go only
 * when nothing in it is in use and no stream can still touch its addresses.
 *
 * When addresses run out, views that are in use in the middle lose what is not in use at their ends. A
 * program that keeps one page in each of very many views could still leave no room for a large one; what
 * is in use never moves. By default there are twelve times as many slots for views as pages.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "lane.h"
#include "pool_private.h"

enum { HOME_FACTOR = 2, PLAIN_HOME_FACTOR = 4, SPARE_MAPPINGS = 64 };
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

/* Room behind one range; at the alignment. */
static uint32_t room_behind(const struct ull_pool *pool, uint32_t range, uint64_t count,
                            uint64_t alignment)
{
    uint64_t step = alignment > pool->page_bytes ? alignment >> pool->page_shift : 1;
    uint64_t offset = (pool->base >> pool->page_shift) % step;
    uint64_t at = (uint64_t)pool->ranges[range].first + pool->ranges[range].count;
    uint32_t next = pool->ranges[range].next;
    uint64_t end = next == NONE ? pool->slot_count : pool->ranges[next].first;
    at += (step - (at + offset) % step) % step;
    return at < end && end - at >= count ? (uint32_t)at : NONE;
}

uint32_t ull__addresses_find(struct ull_pool *pool, uint64_t count, uint64_t alignment)
{
    uint32_t start = pool->cursor, range = start;
    do {
        uint32_t at = room_behind(pool, range, count, alignment);
        if (at != NONE) {
            pool->cursor = range;
            return at;
        }
        range = pool->ranges[range].next == NONE ? ULL_HOME : pool->ranges[range].next;
    } while (range != start);
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
        struct ull__view *views = realloc(pool->views, capacity * sizeof *views);
        if (!views)
            return NONE;
        pool->views = views;
        pool->range_capacity = capacity;
    }
    return pool->range_count++;
}

/* The first place in pool->views with more slots than that. */
static uint32_t view_place(const struct ull_pool *pool, uint32_t count)
{
    uint32_t low = 0, high = pool->view_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pool->views[middle].count <= count)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t ull__views_from(const struct ull_pool *pool, uint64_t count)
{
    return view_place(pool, (uint32_t)count - 1);
}

static void link_view(struct ull_pool *pool, uint32_t index)
{
    const struct ull__range *range = &pool->ranges[index];
    uint32_t place = view_place(pool, range->count);
    memmove(&pool->views[place + 1], &pool->views[place],
            (pool->view_count - place) * sizeof *pool->views);
    pool->views[place] =
        (struct ull__view){.count = range->count, .first = range->first, .range = index};
    pool->view_count++;
}

static void unlink_view(struct ull_pool *pool, uint32_t index)
{
    uint32_t place = view_place(pool, pool->ranges[index].count) - 1;
    while (pool->views[place].range != index)
        place--;
    pool->view_count--;
    memmove(&pool->views[place], &pool->views[place + 1],
            (pool->view_count - place) * sizeof *pool->views);
}

static void link_used(struct ull_pool *pool, uint32_t index)
{
    pool->ranges[index].newer = NONE;
    pool->ranges[index].older = pool->newest;
    if (pool->newest != NONE)
        pool->ranges[pool->newest].newer = index;
    else
        pool->oldest = index;
    pool->newest = index;
}

static void unlink_used(struct ull_pool *pool, uint32_t index)
{
    const struct ull__range *range = &pool->ranges[index];
    if (range->newer != NONE)
        pool->ranges[range->newer].older = range->older;
    else
        pool->newest = range->older;
    if (range->older != NONE)
        pool->ranges[range->older].newer = range->newer;
    else
        pool->oldest = range->newer;
}

void ull__range_used(struct ull_pool *pool, uint32_t index)
{
    if (pool->newest != index) {
        unlink_used(pool, index);
        link_used(pool, index);
    }
}

/* Into the list by address, behind the range where the addresses were found, and among the views. */
static void link_range(struct ull_pool *pool, uint32_t index)
{
    struct ull__range *range = &pool->ranges[index];
    range->prev = range->next = NONE;
    if (index != ULL_HOME) {
        range->prev = pool->cursor;
        range->next = pool->ranges[pool->cursor].next;
        pool->ranges[range->prev].next = index;
        if (range->next != NONE)
            pool->ranges[range->next].prev = index;
        pool->cursor = index;
    }
    if (index > ULL_SMALL) {
        link_view(pool, index);
        link_used(pool, index);
    }
}

static void unlink_range(struct ull_pool *pool, uint32_t index)
{
    const struct ull__range *range = &pool->ranges[index];
    unlink_view(pool, index);
    unlink_used(pool, index);
    if (pool->cursor == index)
        pool->cursor = range->prev;
    pool->ranges[range->prev].next = range->next;
    if (range->next != NONE)
        pool->ranges[range->next].prev = range->prev;
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
    pool->ranges[index] = (struct ull__range){.first = first, .count = count, .chunks = c};
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
    unlink_range(pool, index);
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

/* Can this chunk at the end of a view be let go? */
static bool is_spare(const struct ull_pool *pool, const struct ull__chunk *c)
{
    return (c->state == ULL_SHADOW || c->state == ULL_HOLE) &&
           ull__lane_passed(pool, c->lane, c->seq);
}

static uint32_t drop_end(struct ull_pool *pool, struct ull__chunk *c)
{
    uint32_t first = ull__slot_down(pool, c->address);
    uint32_t count = (uint32_t)(c->size >> pool->page_shift);
    ull__cover_remove(pool, c);
    if (c->state == ULL_SHADOW)
        ull__view_unmap(pool, first, count);
    if (c->next)
        c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    ull__chunk_drop(pool, c);
    return count;
}

/* Lets go of the slots at both ends of a view that is in use in the middle. */
static bool shrink(struct ull_pool *pool, uint32_t index)
{
    struct ull__range *range = &pool->ranges[index];
    struct ull__chunk *last = range->chunks;
    while (last->next)
        last = last->next;
    if (!is_spare(pool, range->chunks) && !is_spare(pool, last))
        return false;
    unlink_view(pool, index);
    while (is_spare(pool, range->chunks)) {
        struct ull__chunk *c = range->chunks;
        range->chunks = c->next;
        uint32_t count = drop_end(pool, c);
        range->first += count;
        range->count -= count;
    }
    while (is_spare(pool, last)) {
        struct ull__chunk *c = last;
        last = c->prev;
        range->count -= drop_end(pool, c);
    }
    link_view(pool, index);
    return true;
}

bool ull__ranges_shrink(struct ull_pool *pool)
{
    bool any = false;
    for (uint32_t r = pool->oldest; r != NONE; r = pool->ranges[r].newer)
        any |= shrink(pool, r);
    return any;
}

bool ull__range_evict(struct ull_pool *pool)
{
    for (int again = 0; again < 2; again++) {
        bool events = false;
        for (uint32_t r = pool->oldest; r != NONE; r = pool->ranges[r].newer) {
            if (can_evict(pool, &pool->ranges[r], &events)) {
                evict(pool, r);
                return true;
            }
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
    pool->unused_range = pool->retained = pool->newest = pool->oldest = NONE;
    pool->cursor = ULL_HOME;
    pool->slots = malloc(pool->slot_count * sizeof *pool->slots);
    for (uint32_t i = 0; pool->slots && i < pool->slot_count; i++)
        pool->slots[i].home = NONE;
    pool->range_of = calloc(pool->slot_count, sizeof *pool->range_of);
    pool->names = calloc(home, sizeof *pool->names);
    pool->name_scratch = calloc(home, sizeof *pool->name_scratch);
    pool->scratch = calloc(home, sizeof *pool->scratch);
    pool->free_bits = calloc(home / 64 + 1, sizeof *pool->free_bits);
    if (!pool->slots || !pool->range_of || !pool->names || !pool->name_scratch || !pool->scratch ||
        !pool->free_bits || !ull__slotset_init(&pool->covers, pool->slot_count))
        return false;
    pool->small_end = home;
    return ull__range_add(pool, 0, home) == ULL_HOME && ull__range_add(pool, home, home) == ULL_SMALL;
}

ull_status ull__ranges_init(struct ull_pool *pool, struct ull_error *err)
{
    uint64_t home = pool->total_pages * HOME_FACTOR, slots = 0;
    ull_status status = ULL_E_NO_MEMORY;
    if (pool->plain) { /* made-up addresses: see regions.c */
        home = pool->total_pages * PLAIN_HOME_FACTOR;
        slots = 2 * home;
        pool->base = pool->region_alignment = pool->page_bytes;
        status = slots < (uint64_t)1 << 24 ? ULL_OK : ULL_E_NO_MEMORY;
    }
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

/* Views first. */
static void unmap_all(struct ull_pool *pool)
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
}

/* Unmaps everything, in use or not; work is over. */
void ull__ranges_finish(struct ull_pool *pool)
{
    if (pool->plain)
        ull__regions_finish(pool);
    else
        unmap_all(pool);
    ull__slotset_finish(&pool->covers);
    free(pool->slots);
    free(pool->range_of);
    free(pool->ranges);
    free(pool->views);
    free(pool->names);
    free(pool->name_scratch);
    free(pool->scratch);
    free(pool->free_bits);
}
