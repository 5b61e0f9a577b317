/*
 * check.c: the invariants of a pool, for tests. Reads everything; calls no code that changes anything.
 */
#include <stdarg.h>
#include <stdio.h>

#include "front.h"
#include "lane.h"
#include "pool_private.h"

#define NONE ((uint32_t)ULL_NONE)

struct findings {
    char *what;
    size_t size;
    bool good;
    uint64_t free_bytes, live, in_use, waiting, mapped, chunks, lent, shared;
};

__attribute__((format(printf, 3, 4))) static void expect(struct findings *f, bool good,
                                                         const char *format, ...)
{
    va_list args;
    if (good || !f->good)
        return;
    f->good = false;
    va_start(args, format);
    vsnprintf(f->what, f->size, format, args);
    va_end(args);
}

static bool is_crumb(const struct ull__bins *bins, const struct ull__chunk *c)
{
    const struct ull__chunk *next = c->u.free.left, *before = c->u.free.right;
    bool linked = before ? before->u.free.left == c : bins->first[0] == c || bins->unsorted == c;
    return linked && (!next || next->u.free.right == c) && ull__bin_of(c->size) < bins->sorted;
}

static bool is_in_heap(const struct ull__heap *heap, const struct ull__chunk *c)
{
    uint32_t place = ull__heap_place(c);
    return place < heap->count && heap->entries[place].chunk == c &&
           heap->entries[place].address == c->address &&
           (place < ULL_HEAP_WAYS || heap->entries[place / ULL_HEAP_WAYS - 1].address <= c->address);
}

/* The first; else behind it, in the heap where it says or in the treap. Or among the crumbs. */
static bool in_bin(const struct ull__bins *bins, const struct ull__chunk *c)
{
    unsigned int bin = c->bin;
    if (bin == 0)
        return is_crumb(bins, c);
    if (bin != ull__bin_of(c->size))
        return false;
    const struct ull__chunk *first = bins->first[bin];
    if (c == first)
        return true;
    if (!(bins->more[bin / 64] >> (bin % 64) & 1) || ull__chunk_before(c->size, c->address, first))
        return false;
    if (bin < bins->heaps && ull__heap_has(c))
        return is_in_heap(&bins->heap[bin], c);
    const struct ull__chunk *root = first->u.free.left;
    while (root && root != c)
        root = ull__chunk_before(c->size, c->address, root) ? root->u.free.left : root->u.free.right;
    return root == c;
}

static void check_crumbs(const struct ull__bins *bins, struct findings *f)
{
    bool any = bins->bits[0] & 1, many = bins->more[0] & 1;
    expect(f, bins->least <= bins->listed && bins->listed <= bins->sorted,
           "crumbs below %u, %u, %u", bins->least, bins->listed, bins->sorted);
    expect(f, !bins->unsorted || many, "crumbs are unsorted, and there are none");
    expect(f, !many || (any && (bins->first[0] || bins->unsorted)), "many crumbs are none");
    for (const struct ull__chunk *c = any ? bins->first[0] : NULL; c; c = c->u.free.left)
        expect(f, ull__bin_of(c->size) < bins->listed, "crumb %llx is too large",
               (unsigned long long)c->address);
}

static bool in_a_table(const struct ull_pool *pool, const struct ull__chunk *c)
{
    bool in = ull__table_find(&pool->live, c->address) == c;
    for (unsigned int i = 0; i < pool->front_count; i++)
        in ^= ull__table_find(&pool->fronts[i]->live, c->address) == c;
    return in;
}

static void check_chunk(struct ull_pool *pool, const struct ull__chunk *c, struct findings *f)
{
    unsigned long long at = c->address;
    const struct ull__chunk *next = c->next;
    expect(f, c->size > 0 && c->size % ULL_UNIT == 0 && c->address % ULL_UNIT == 0,
           "chunk %llx: size %llu", at, (unsigned long long)c->size);
    expect(f, c->tier != ULL_VIEW || c->state != ULL_HOLE || c->prev || next,
           "view at %llx is nothing but a hole", at);
    expect(f, c->state != ULL_SWEPT, "chunk %llx is between two lanes", at);
    if (next) {
        expect(f, next->prev == c && next->address == c->address + c->size,
               "chunk %llx and its next are not neighbours", at);
        expect(f, !(c->state == ULL_HOLE && next->state == ULL_HOLE), "two holes at %llx", at);
        expect(f, !(c->state == ULL_FREE && next->state == ULL_FREE && c->lane == next->lane),
               "two free chunks of one lane at %llx", at);
    }
    uint32_t first = ull__slot_up(pool, c->address);
    uint32_t end = ull__slot_down(pool, c->address + c->size);
    if (c->state == ULL_FREE) {
        const struct ull__bins *bins = pool->lanes[c->lane].bins[c->tier];
        unsigned int bin = c->bin;
        expect(f,
               c->lane == ULL_CLEAN || pool->lanes[c->lane].graph ||
                   c->seq > pool->lanes[c->lane].passed,
               "free chunk %llx waits for what has passed", at);
        expect(f, in_bin(bins, c), "free chunk %llx is not in its bin", at);
        expect(f, bins->bits[bin / 64] >> (bin % 64) & 1 && bins->words >> (bin / 64) & 1,
               "bin %u has no bit", bin);
    }
    if (c->state == ULL_LIVE)
        expect(f, in_a_table(pool, c), "chunk %llx is not in the table", at);
    if (c->state == ULL_SHADOW || c->state == ULL_HOLE)
        expect(f, c->address % pool->page_bytes == 0 && c->size % pool->page_bytes == 0,
               "shadow or hole %llx is not of whole slots", at);
    expect(f,
           c->state != ULL_LENT ||
               (end == first && c->address + c->size == ull__slot_address(pool, end)),
           "lent chunk %llx is not the end of a slot", at);
    bool covers = c->state != ULL_LIVE && c->state != ULL_WAITING;
    for (uint32_t slot = first; slot < end; slot++) {
        expect(f, (pool->slots[slot].home == NONE) == (c->state == ULL_HOLE),
               "slot %u of chunk %llx: home %u in state %u", slot, at, pool->slots[slot].home,
               c->state);
        expect(f, c->tier != ULL_VIEW || c->state != ULL_FREE, "view slot %u is free", slot);
        expect(f, c->tier != ULL_SMALL || c->state != ULL_FREE || slot == pool->retained,
               "small slot %u is free", slot);
        bool set = ull__slotset_next(&pool->covers, slot, slot + 1) == slot;
        expect(f, set == (covers && slot == first), "slot %u: a cover begins or does not", slot);
        expect(f, !covers || ull__cover(pool, slot) == c, "slot %u: not covered by %llx", slot, at);
    }
}

/* A view that begins in a page of another range: what is in use there is lent by that one. */
static void check_rest(const struct ull_pool *pool, const struct ull__range *range,
                       struct findings *f)
{
    const struct ull__chunk *rest = range->chunks, *next = rest->next;
    const struct ull__slot *slot = &pool->slots[range->first];
    unsigned long long at = rest->address;
    if (rest->state != ULL_REST)
        return;
    const struct ull__chunk *lent = slot->cover;
    uint32_t place = ull__slot_down(pool, lent->address);
    f->shared++;
    expect(f, next && (next->state == ULL_LIVE || next->state == ULL_WAITING),
           "nobody uses what is behind %llx", at);
    expect(f,
           lent->state == ULL_LENT && pool->slots[place].home == slot->home &&
               lent->size + rest->size == pool->page_bytes,
           "what is behind %llx is not lent", at);
}

static void count_chunk(const struct ull__chunk *c, struct findings *f)
{
    f->chunks++;
    if (c->state == ULL_LIVE) {
        f->live++;
        f->in_use += c->size;
    }
    f->lent += c->state == ULL_LENT;
    if (c->state == ULL_WAITING)
        f->waiting += c->size;
    if (c->state == ULL_FREE)
        f->free_bytes += c->size;
}

static void check_ranges(struct ull_pool *pool, struct findings *f)
{
    uint64_t end_before = 0;
    for (uint32_t r = ULL_HOME; r != NONE; r = pool->ranges[r].next) {
        const struct ull__range *range = &pool->ranges[r];
        uint64_t at = ull__slot_address(pool, range->first);
        expect(f, range->first >= end_before, "range %u overlaps", r);
        expect(f, range->chunks && !range->chunks->prev, "range %u: first chunk", r);
        for (const struct ull__chunk *c = range->chunks; c; c = c->next) {
            expect(f, c->address == at, "range %u: a gap", r);
            expect(f, c->state != ULL_REST || (r > ULL_SMALL && !c->prev),
                   "range %u: rest in the middle", r);
            at = c->address + c->size;
            check_chunk(pool, c, f);
            count_chunk(c, f);
        }
        check_rest(pool, range, f);
        end_before = (uint64_t)range->first + range->count;
        expect(f, at == ull__slot_address(pool, end_before), "range %u: too short", r);
        for (uint32_t slot = range->first; slot < end_before; slot++) {
            uint32_t home = pool->slots[slot].home;
            if (home == NONE)
                continue;
            f->mapped++;
            expect(f, pool->range_of[slot] == r, "slot %u: range %u", slot, pool->range_of[slot]);
            expect(f, pool->slots[home].home == home, "slot %u: page %u is not held", slot, home);
        }
    }
}

/* Regions hold all pages, none lies in two, and a hole is before and behind each. */
static void check_regions(struct ull_pool *pool, struct findings *f)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < pool->region_count && f->good; i++) {
        const struct ull__region *region = &pool->regions[i];
        uint32_t end = region->first + region->count;
        const struct ull__chunk *before = ull__cover(pool, region->first - 1);
        const struct ull__chunk *behind = ull__cover(pool, end);
        pages += region->count;
        expect(f, before && before->state == ULL_HOLE && behind && behind->state == ULL_HOLE,
               "region at slot %u has a neighbour", region->first);
        expect(f, before && before->next && before->next->address % pool->page_bytes == 0,
               "region at slot %u: first chunk", region->first);
        uint64_t address = ull__slot_address(pool, end) - ULL_UNIT;
        expect(f, ull__at_place(pool, ull__place(pool, address)) == address,
               "region at slot %u: its places are not its own", region->first);
        for (uint32_t slot = region->first; slot < end; slot++)
            expect(f,
                   pool->slots[slot].home == slot &&
                       pool->names[slot] == pool->names[region->first] +
                                                ((uint64_t)(slot - region->first) << pool->page_shift),
                   "slot %u is not of its region", slot);
    }
    expect(f, !pool->plain || pages == pool->held, "regions have %llu pages",
           (unsigned long long)pages);
}

/* A page is used at one of its slots, and a shadow or no more than lent at all others; or it is free at home. */
static void check_page(struct ull_pool *pool, uint32_t home, uint64_t *free_pages, struct findings *f)
{
    uint32_t slot = home, slots = 0, shadows = 0;
    const struct ull__chunk *c = ull__cover(pool, home);
    bool is_free = c && c->state == ULL_FREE;
    do {
        c = ull__cover(pool, slot);
        expect(f, pool->slots[slot].home == home, "slot %u is in the ring of page %u", slot, home);
        expect(f, slot == home || pool->range_of[slot] != ULL_HOME, "page %u is home twice", home);
        const struct ull__range *range = &pool->ranges[pool->range_of[slot]];
        bool rests = slot == range->first && range->chunks->state == ULL_REST;
        shadows += rests || (c && c->state == ULL_SHADOW);
        slots++;
        slot = pool->slots[slot].next;
    } while (slot != home && slots <= pool->slot_count);
    expect(f, shadows == slots - 1, "page %u: %u slots, %u shadows", home, slots, shadows);
    expect(f, is_free == ull__page_free(pool, home), "page %u: free bit", home);
    *free_pages += is_free;
}

bool ull__pool_check(struct ull_pool *pool, char *what, size_t size)
{
    struct findings f = {.what = what, .size = size, .good = true};
    uint64_t free_pages = 0, held = 0, lanes = 0;
    ull__lock(&pool->lock);
    ull__fronts_hold(pool);
    uint64_t table_count = pool->live.count;
    for (unsigned int i = 0; i < pool->front_count; i++)
        table_count += pool->fronts[i]->live.count;
    check_ranges(pool, &f);
    check_regions(pool, &f);
    for (uint32_t i = 0; i < pool->home_count && f.good; i++) {
        if (pool->slots[i].home == NONE)
            continue;
        held++;
        check_page(pool, i, &free_pages, &f);
    }
    free_pages += pool->retained != NONE;
    for (uint32_t i = 0; i < pool->lane_count; i++) {
        lanes += pool->lanes[i].free_bytes;
        for (int tier = 0; tier < ULL_TIERS; tier++)
            check_crumbs(pool->lanes[i].bins[tier], &f);
    }
    expect(&f, held == pool->held, "%llu pages held, not %llu", (unsigned long long)held,
           (unsigned long long)pool->held);
    expect(&f, free_pages == pool->free_pages, "%llu free pages, not %llu",
           (unsigned long long)free_pages, (unsigned long long)pool->free_pages);
    expect(&f, pool->plain || pool->idle_low <= pool->free_pages,
           "%llu pages were idle, and %llu are free", (unsigned long long)pool->idle_low,
           (unsigned long long)pool->free_pages);
    expect(&f, f.mapped == pool->mapped, "%llu mappings, not %llu", (unsigned long long)f.mapped,
           (unsigned long long)pool->mapped);
    expect(&f, f.live == table_count && f.live == pool->stats.count,
           "%llu chunks in use, %llu in the table", (unsigned long long)f.live,
           (unsigned long long)table_count);
    expect(&f, f.in_use == pool->stats.in_use, "in use %llu", (unsigned long long)f.in_use);
    expect(&f, f.waiting == pool->waiting_bytes, "waiting %llu", (unsigned long long)f.waiting);
    expect(&f, f.lent == f.shared && f.lent == pool->lent, "%llu chunks lent, to %llu, not %llu",
           (unsigned long long)f.lent, (unsigned long long)f.shared, (unsigned long long)pool->lent);
    expect(&f, lanes == f.free_bytes, "lanes have %llu free", (unsigned long long)lanes);
    expect(&f, f.chunks == pool->chunk_count, "%llu chunks, not %llu", (unsigned long long)f.chunks,
           (unsigned long long)pool->chunk_count);
    ull__fronts_release(pool);
    ull__unlock(&pool->lock);
    return f.good;
}
