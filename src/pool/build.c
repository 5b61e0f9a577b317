/*
 * build.c: getting pages side by side when no free chunk at home is large enough.
 *
 * First, a view that was made before and whose pages are free now is used again; no call of the device is
 * needed. Otherwise there are two ways. Home is extended with new pages behind a free chunk at the edge of
 * a hole. Or a view is made of free pages, wherever they lie, and of the missing new ones. The way with
 * fewer new pages is taken, so memory is refused only when the free pages and those left under the limit
 * together are too few: nothing depends on where free pages lie. When no new page is needed it is
 * always a view, so that home stays as it is.
 *
 * Before it is refused, a request is served by a view that begins in the free end of a page in use, if there is one
 * (share.c): it takes a page less.
 *
 * Pages come from the largest free chunks first: few pieces, so lending and giving back is quick.
 */
#include "lane.h"
#include "pool_private.h"

#define NONE ((uint32_t)ULL_NONE)

/* How an extension of home would look. */
struct extension {
    struct ull__chunk *hole, *edge; /* edge: the free chunk before the hole, or NULL */
    uint64_t pages;
};

/* Free pages, in pool->scratch from `at` on. */
struct gathered {
    uint64_t at, count;
};

static bool usable(const struct ull__chunk *c, uint16_t lane)
{
    return c && c->state == ULL_FREE && (c->lane == lane || c->lane == ULL_CLEAN);
}

static uint64_t align_up(uint64_t address, uint64_t alignment)
{
    return (address + alignment - 1) & ~(alignment - 1);
}

/* Does the page wait for the lane? */
static bool is_of_lane(const struct ull_pool *pool, uint32_t home)
{
    return ull__cover(pool, home)->lane != ULL_CLEAN;
}

/*
 * What of a view the request does not take is a part of the last page: it waits for the lane if that page
 * did, unless that has passed already. A captured graph would never give back what was not its own.
 */
static void label(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, bool of_lane)
{
    bool waits = of_lane && !ull__lane_passed(pool, lane, pool->lanes[lane].seq);
    c->lane = waits ? lane : ULL_CLEAN;
    c->seq = waits ? pool->lanes[lane].seq : 0;
}

/* --- free pages ------------------------------------------------------------------------------------------ */

static void gather_bin(struct ull_pool *pool, const struct ull__chunk *first, uint64_t enough,
                       struct gathered *g)
{
    /* By size, largest first, without a stack: each step searches from the root. */
    const struct ull__chunk *done = NULL;
    while (g->count < enough && done != first) {
        const struct ull__chunk *c = first;
        for (const struct ull__chunk *at = first->u.free.left; at;) {
            if (!done || ull__chunk_before(at->size, at->address, done)) {
                c = at;
                at = at->u.free.right;
            } else {
                at = at->u.free.left;
            }
        }
        done = c;
        uint32_t slot = ull__slot_up(pool, c->address);
        uint32_t end = ull__slot_down(pool, c->address + c->size);
        for (; slot < end && g->count < enough; slot++)
            pool->scratch[g->at + g->count++] = slot;
    }
}

static struct gathered gather(struct ull_pool *pool, uint16_t lane, uint64_t enough, uint64_t at)
{
    struct gathered g = {.at = at};
    unsigned int least = ull__bin_of(pool->page_bytes);
    const struct ull__bins *clean = pool->lanes[ULL_CLEAN].bins[ULL_HOME];
    const struct ull__bins *own = pool->lanes[lane].bins[ULL_HOME];
    unsigned int a = ull__bins_before(clean, ULL_BINS);
    unsigned int b = own == clean ? ULL_BINS : ull__bins_before(own, ULL_BINS);
    while (g.count < enough) {
        bool has_a = a < ULL_BINS && a >= least, has_b = b < ULL_BINS && b >= least;
        if (!has_a && !has_b)
            break;
        if (has_a && (!has_b || a >= b)) {
            gather_bin(pool, clean->first[a], enough, &g);
            a = ull__bins_before(clean, a);
        } else {
            gather_bin(pool, own->first[b], enough, &g);
            b = ull__bins_before(own, b);
        }
    }
    return g;
}

bool ull__pages_suffice(struct ull_pool *pool, uint16_t lane, uint64_t count)
{
    return count <= pool->free_pages && gather(pool, lane, count, 0).count >= count;
}

/* --- views that are there --------------------------------------------------------------------------------- */

bool ull__pages_usable(const struct ull_pool *pool, uint32_t first, uint32_t count, uint16_t lane,
                       uint32_t *busy)
{
    const struct ull__slot *slots = &pool->slots[first];
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i].home == NONE || !ull__page_free(pool, slots[i].home)) {
            *busy = i;
            return false;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ull__chunk *c = ull__cover(pool, slots[i].home);
        if (!usable(c, lane))
            return false;
        if (!pool->crowded && pool->last_graph == 0 && c->lane != ULL_CLEAN)
            return true; /* all the rest is the lane's too, or nobody's */
    }
    return true;
}

struct ull__chunk *ull__use_view(struct ull_pool *pool, uint64_t pages, uint64_t alignment,
                                 uint16_t lane)
{
    for (uint32_t i = ull__views_from(pool, pages); i < pool->view_count; i++) {
        struct ull__view *view = &pool->views[i];
        if (view->count / 2 > pages)
            break;
        uint32_t home = pool->slots[view->first + view->busy].home;
        if (view->busy < pages && (home == NONE || !ull__page_free(pool, home)))
            continue;
        if (ull__slot_address(pool, view->first) % alignment != 0 ||
            !ull__pages_usable(pool, view->first, (uint32_t)pages, lane, &view->busy))
            continue;
        bool of_lane = is_of_lane(pool, pool->slots[view->first + pages - 1].home);
        struct ull__chunk *c = ull__lend(pool, view->first, (uint32_t)pages);
        label(pool, c, lane, of_lane);
        return c;
    }
    return NULL;
}

/* --- extending home ---------------------------------------------------------------------------------------- */

/* The hole that takes fewest pages, the lowest of those. */
static struct extension find_extension(const struct ull_pool *pool, uint64_t size,
                                       uint64_t alignment, uint16_t lane)
{
    struct extension best = {0};
    for (struct ull__chunk *hole = pool->holes; hole; hole = hole->u.free.right) {
        struct ull__chunk *edge = usable(hole->prev, lane) ? hole->prev : NULL;
        uint64_t start = align_up(edge ? edge->address : hole->address, alignment);
        uint64_t pages = ull__pages_for(pool, start + size - hole->address);
        if (start + size <= hole->address || pages << pool->page_shift > hole->size)
            continue;
        if (!best.hole || pages < best.pages ||
            (pages == best.pages && hole->address < best.hole->address))
            best = (struct extension){.hole = hole, .edge = edge, .pages = pages};
    }
    return best;
}

static void relabel(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq)
{
    ull__free_remove(pool, c);
    c->lane = lane;
    c->seq = seq;
    ull__free_insert(pool, c);
}

/* New pages at the start of a hole, free for everybody or, beside the edge, for whom that is. */
static ull_status extend(struct ull_pool *pool, const struct extension *e)
{
    uint32_t slot = ull__slot_down(pool, e->hole->address);
    ull_status status = ull__pages_create(pool, slot, e->pages);
    if (status != ULL_OK)
        return status;
    uint16_t lane = e->edge ? e->edge->lane : ULL_CLEAN;
    struct ull__chunk *c = ull__hole_fill(pool, slot, (uint32_t)e->pages);
    ull__make_free(pool, c, lane, 0, 0, 0);
    return ULL_OK;
}

struct ull__chunk *ull__grow(struct ull_pool *pool, uint64_t size, uint16_t lane, uint64_t most,
                             bool *refused)
{
    struct extension e = find_extension(pool, size, ULL_UNIT, lane);
    if (!e.hole || e.pages > most || !ull__host_memory(pool, 0))
        return NULL;
    uint32_t slot = ull__slot_down(pool, e.hole->address);
    *refused = extend(pool, &e) != ULL_OK;
    return *refused ? NULL : ull__cover(pool, slot);
}

/* --- making a view ------------------------------------------------------------------------------------------ */

/* New pages at the lowest hole that has room for them; their home slots to pool->scratch[at...]. */
static ull_status add_pages(struct ull_pool *pool, uint64_t count, uint64_t at)
{
    struct extension e = {.pages = count};
    if (count == 0)
        return ULL_OK;
    for (struct ull__chunk *hole = pool->holes; hole; hole = hole->u.free.right) {
        if (hole->size >> pool->page_shift >= count && (!e.hole || hole->address < e.hole->address))
            e.hole = hole;
    }
    if (!e.hole)
        return ULL_E_NO_MEMORY;
    uint32_t slot = ull__slot_down(pool, e.hole->address);
    ull_status status = extend(pool, &e);
    for (uint64_t i = 0; i < count && status == ULL_OK; i++)
        pool->scratch[at + i] = slot + (uint32_t)i;
    return status;
}

/* A view of the pages in pool->scratch; their order is that of addresses. It is a shadow. */
static ull_status make_view(struct ull_pool *pool, uint32_t first, uint64_t pages)
{
    uint32_t range = ull__range_add(pool, first, (uint32_t)pages);
    if (range == NONE)
        return ULL_E_NO_MEMORY;
    ull_status status = ull__view_map(pool, first, pages, pool->scratch);
    if (status != ULL_OK)
        ull__range_drop(pool, range);
    else
        pool->ranges[range].chunks->state = ULL_SHADOW;
    return status;
}

static uint32_t find_addresses(struct ull_pool *pool, uint64_t pages, uint64_t alignment)
{
    for (;;) {
        uint32_t first = ull__addresses_find(pool, pages, alignment);
        if (first != NONE || !(ull__range_evict(pool) || ull__ranges_shrink(pool)))
            return first;
    }
}

/* --- all of it ------------------------------------------------------------------------------------------------ */

static ull_status build_view(struct ull_pool *pool, uint64_t alignment, uint16_t lane,
                             const struct ull__plan *plan, struct ull__chunk **chunk)
{
    uint64_t shared = plan->end != NULL, pages = plan->whole + shared;
    ull__ranges_bound(pool, pages);
    uint32_t first = find_addresses(pool, pages, alignment);
    if (first == NONE)
        return ULL_E_FULL;
    if (shared)
        pool->scratch[0] = pool->slots[ull__slot_down(pool, plan->end->address)].home;
    struct gathered g = gather(pool, lane, plan->whole, shared);
    ull_status status = add_pages(pool, plan->whole - g.count, shared + g.count);
    bool of_lane = status == ULL_OK && is_of_lane(pool, pool->scratch[pages - 1]);
    if (status == ULL_OK)
        status = make_view(pool, first, pages);
    if (status == ULL_OK) {
        *chunk = shared ? ull__share_use(pool, first, plan) : ull__lend(pool, first, (uint32_t)pages);
        label(pool, *chunk, lane, of_lane);
    }
    return status;
}

/* The end of a page is lent first, so that nothing is joined with it meanwhile. */
static ull_status build_shared(struct ull_pool *pool, uint16_t lane, const struct ull__plan *plan,
                               struct ull__chunk **chunk)
{
    ull_status status = ULL_OK;
    ull__share_lend(pool, plan);
    if (plan->first != NONE) {
        bool of_lane = is_of_lane(pool, pool->slots[plan->first + plan->whole].home);
        *chunk = ull__share_use(pool, plan->first, plan);
        label(pool, *chunk, lane, of_lane);
    } else {
        status = build_view(pool, ULL_UNIT, lane, plan, chunk);
    }
    if (status != ULL_OK)
        ull__share_undo(pool, plan);
    return status;
}

/* New pages that the plan takes. */
static uint64_t missing(const struct ull__plan *plan, uint64_t available)
{
    return plan->whole > available ? plan->whole - available : 0;
}

ull_status ull__build(struct ull_pool *pool, uint64_t size, uint64_t alignment, uint16_t lane,
                      struct ull__shortage *shortage, struct ull__chunk **chunk)
{
    uint64_t needed = ull__pages_for(pool, size);
    uint64_t left = pool->limit_pages > pool->held ? pool->limit_pages - pool->held : 0;
    *shortage = (struct ull__shortage){.needed = needed, .left = left};
    if (needed > pool->total_pages || !ull__host_memory(pool, pool->plain ? 0 : 2 * needed))
        return ULL_E_NO_MEMORY;
    if (pool->plain)
        return ull__regions_build(pool, size, alignment, shortage, chunk);
    *chunk = ull__use_view(pool, needed, alignment, lane);
    if (*chunk)
        return ULL_OK;
    struct ull__plan plan = {.whole = needed, .first = NONE};
    uint64_t available = gather(pool, lane, needed, 0).count;
    struct extension e = find_extension(pool, size, alignment, lane);
    bool extends = e.hole && e.pages <= missing(&plan, available);
    shortage->available = available;
    if ((extends ? e.pages : missing(&plan, available)) > left) {
        if (alignment != ULL_UNIT || !ull__share_find(pool, size, lane, &plan) ||
            missing(&plan, available) > left)
            return ULL_E_NO_MEMORY;
        extends = false;
    }
    ull_status status;
    if (extends) {
        uint32_t slot = ull__slot_down(pool, e.hole->address);
        status = extend(pool, &e);
        *chunk = status == ULL_OK ? ull__cover(pool, slot) : NULL;
    } else if (plan.end) {
        status = build_shared(pool, lane, &plan, chunk);
    } else {
        status = build_view(pool, alignment, lane, &plan, chunk);
    }
    shortage->device_full = status != ULL_OK && status != ULL_E_FULL;
    return status == ULL_OK ? ULL_OK : ULL_E_NO_MEMORY;
}

/* The first slot of small requests that is a shadow with a usable page, or has no page at all. */
static uint32_t find_small_slot(const struct ull_pool *pool, uint16_t lane, uint32_t *empty)
{
    uint32_t end = 2 * pool->home_count;
    *empty = pool->small_end < end ? pool->small_end : NONE;
    for (uint32_t slot = pool->home_count; slot < pool->small_end; slot++) {
        uint32_t home = pool->slots[slot].home;
        if (home == NONE)
            *empty = *empty == pool->small_end || *empty == NONE ? slot : *empty;
        else if (ull__page_free(pool, home) && usable(ull__cover(pool, home), lane))
            return slot;
    }
    return NONE;
}

/* Binds a slot without page to a free or new page. */
static ull_status bind_small(struct ull_pool *pool, uint32_t slot, uint16_t lane,
                             struct ull__shortage *shortage)
{
    struct gathered g = gather(pool, lane, 1, 0);
    shortage->available = g.count;
    if (slot == NONE || 1 - g.count > shortage->left)
        return ULL_E_NO_MEMORY;
    ull_status status = add_pages(pool, 1 - g.count, 0);
    if (status == ULL_OK)
        status = ull__view_map(pool, slot, 1, pool->scratch);
    if (status != ULL_OK) {
        shortage->device_full = true;
        return status;
    }
    struct ull__chunk *c = ull__hole_fill(pool, slot, 1);
    c->state = ULL_SHADOW;
    ull__cover_add(pool, c);
    if (slot >= pool->small_end)
        pool->small_end = slot + 1;
    return ULL_OK;
}

ull_status ull__build_small(struct ull_pool *pool, uint16_t lane, struct ull__shortage *shortage,
                            struct ull__chunk **chunk)
{
    uint64_t left = pool->limit_pages > pool->held ? pool->limit_pages - pool->held : 0;
    *shortage = (struct ull__shortage){.needed = 1, .left = left};
    if (!ull__host_memory(pool, 2))
        return ULL_E_NO_MEMORY;
    /* It is for another lane, or an aligned request was not seen to fit there. */
    ull__retained_return(pool);
    uint32_t empty, slot = find_small_slot(pool, lane, &empty);
    if (slot == NONE) {
        slot = empty;
        ull_status status = bind_small(pool, slot, lane, shortage);
        if (status != ULL_OK)
            return status;
    }
    const struct ull__chunk *page = ull__cover(pool, pool->slots[slot].home);
    uint16_t tag = page->lane;
    uint64_t seq = page->seq;
    struct ull__chunk *c = ull__lend(pool, slot, 1);
    pool->retained = slot; /* free until the request takes it */
    pool->free_pages++;
    ull__make_free(pool, c, tag, seq, slot, slot + 1);
    *chunk = ull__cover(pool, slot);
    return ULL_OK;
}

ull_status ull__commit(struct ull_pool *pool, uint64_t count)
{
    if (pool->plain)
        return ull__regions_commit(pool, count);
    return ull__host_memory(pool, 0) ? add_pages(pool, count, 0) : ULL_E_NO_MEMORY;
}

/* --- joining for one lane ------------------------------------------------------------------------------------- */

/* A free chunk in two at an address within; returns the upper one. */
static struct ull__chunk *cut(struct ull_pool *pool, struct ull__chunk *c, uint64_t address)
{
    ull__free_remove(pool, c);
    struct ull__chunk *upper = ull__chunk_split(pool, c, address);
    ull__free_insert(pool, c);
    ull__free_insert(pool, upper);
    return upper;
}

/*
 * Makes [from, end) of the free chunks from c on one chunk that waits for the lane. Whole pages before and
 * behind, which nobody waits for, stay so.
 */
static struct ull__chunk *join_run(struct ull_pool *pool, struct ull__chunk *c, uint64_t from,
                                   uint64_t end, uint16_t lane)
{
    uint64_t first = ull__slot_address(pool, ull__slot_down(pool, from));
    uint64_t last = ull__slot_address(pool, ull__slot_up(pool, end));
    while (c->address + c->size <= from)
        c = c->next;
    if (c->address + c->size >= end)
        return c;
    if (c->lane != lane && c->address < first)
        c = cut(pool, c, first);
    else if (c->lane != lane && c->prev && c->prev->state == ULL_FREE && c->prev->lane == lane)
        c = c->prev;
    if (c->lane != lane)
        relabel(pool, c, lane, 0); /* the next one is of the lane, and the later of both counts */
    pool->joining = true;
    while (c->address + c->size < end) {
        struct ull__chunk *next = c->next;
        if (next->lane != lane && next->address + next->size > last)
            cut(pool, next, last);
        ull__free_remove(pool, next);
        next->state = ULL_SWEPT;
        ull__make_free(pool, next, lane, next->lane == lane ? next->seq : 0,
                       ull__slot_up(pool, next->address),
                       ull__slot_down(pool, next->address + next->size));
    }
    pool->joining = false;
    return c;
}

struct ull__chunk *ull__coalesce(struct ull_pool *pool, uint64_t size, uint64_t alignment,
                                 uint16_t lane)
{
    struct ull__chunk *start = NULL;
    for (struct ull__chunk *c = pool->ranges[ULL_HOME].chunks; c; c = c->next) {
        if (!usable(c, lane)) {
            start = NULL;
            continue;
        }
        if (!start)
            start = c;
        uint64_t place = ull__place(pool, start->address);
        uint64_t from = start->address + (align_up(place, alignment) - place);
        if (from + size <= c->address + c->size)
            return join_run(pool, start, from, from + size, lane);
    }
    return NULL;
}
