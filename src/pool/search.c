/*
 * search.c: where a request finds its memory.
 *
 * A request takes the best fit among what its stream has free and what nobody waits for. If there is
 * none, in this order: frees of other streams that have passed, free neighbours that wait for this
 * stream joined with those that wait for none, free pages put together with the missing new ones
 * (build.c; where the device cannot map pages, a new region: regions.c), and at last a wait for frees that
 * are pending.
 *
 * Small requests are kept apart: they have ranges of their own, though both kinds share the pages.
 * A program keeps many small things for long (parameters of biases, counters, states); one of
 * them in the middle of what was a large tensor would take that page out of use for large requests, and
 * a run of them would cut the memory into pieces (pytorch/pytorch#35901). Above small_bytes a chunk
 * holds about half a page at least, so that what it blocks is of its own size. What must not be lost that way is
 * what large requests leave over of their pages, for no large one fits there. It is for small ones before they
 * are refused, and for those above an eighth of a page at once, if it fits better: what these pin is small.
 */
#include "search.h"

#include "front.h"
#include "lane.h"

enum { ALIGNED_LOOKS = 16 };
/* Held is at most 1/52 above the peak requested, so below 1.02 of it, for spare pages; and 1/8 of the limit is left. */
enum { SPARE_PART = 52, FAR_PART = 8 };

/* --- finding -------------------------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t address, uint64_t alignment)
{
    return (address + alignment - 1) & ~(alignment - 1);
}

__attribute__((noinline)) uint64_t ull__lost_to(const struct ull_pool *pool,
                                                const struct ull__chunk *c, uint64_t alignment)
{
    uint64_t place = ull__place(pool, c->address);
    return align_up(place, alignment) - place;
}

static bool fits(const struct ull_pool *pool, const struct ull__chunk *c, uint64_t size,
                 uint64_t alignment)
{
    uint64_t lost = ull__lost_to(pool, c, alignment);
    return c->size >= lost && c->size - lost >= size;
}

/* The best fit at an alignment: a few are looked at in order, then one is taken that must do. */
static struct ull__chunk *look_aligned(const struct ull_pool *pool, struct ull__bins *bins,
                                       const struct ull__need *need)
{
    struct ull__chunk *c = ull__bins_find(bins, need->size, 0);
    for (int i = 0; c && i < ALIGNED_LOOKS; i++) {
        if (fits(pool, c, need->size, need->alignment))
            return c;
        c = ull__bins_find(bins, c->size, c->address + 1);
    }
    return c ? ull__bins_find(bins, need->size + need->alignment - ULL_UNIT, 0) : NULL;
}

/* What is sorted while it looks on may be one that it has gone past. */
static struct ull__chunk *find_aligned(const struct ull_pool *pool, struct ull__bins *bins,
                                       const struct ull__need *need)
{
    bool sorted = ull__bin_of(need->size) >= bins->sorted;
    struct ull__chunk *c = look_aligned(pool, bins, need);
    if (c || sorted)
        return c;
    ull__bins_sort_all(bins, need->size);
    return look_aligned(pool, bins, need);
}

static inline struct ull__chunk *find_in(const struct ull_pool *pool, uint16_t lane,
                                         unsigned int tier, const struct ull__need *need)
{
    struct ull__bins *bins = pool->lanes[lane].bins[tier];
    if (!bins->words)
        return NULL;
    if (need->alignment == ULL_UNIT)
        return ull__bins_find(bins, need->size, 0);
    return find_aligned(pool, bins, need);
}

static inline struct ull__chunk *find_tier(const struct ull_pool *pool, unsigned int tier,
                                           const struct ull__need *need)
{
    struct ull__chunk *own = find_in(pool, need->lane, tier, need);
    struct ull__chunk *clean = find_in(pool, ULL_CLEAN, tier, need);
    if (!own || !clean)
        return own ? own : clean;
    return ull__chunk_before(own->size, own->address, clean) ? own : clean;
}

static bool has_whole_page(const struct ull_pool *pool, const struct ull__chunk *c)
{
    return ull__slot_up(pool, c->address) < ull__slot_down(pool, c->address + c->size);
}

__attribute__((noinline)) struct ull__chunk *ull__need_left_over(const struct ull_pool *pool,
                                                                 const struct ull__need *need)
{
    struct ull__chunk *home = find_tier(pool, ULL_HOME, need);
    struct ull__chunk *view = find_tier(pool, ULL_VIEW, need);
    return ull__better(home && !has_whole_page(pool, home) ? home : NULL,
                       view && !has_whole_page(pool, view) ? view : NULL);
}

/* Large ones at home first; then in what requests that were served through views left over. */
struct ull__chunk *ull__need_find(const struct ull_pool *pool, const struct ull__need *need)
{
    struct ull__chunk *c = find_tier(pool, need->small ? ULL_SMALL : ULL_HOME, need);
    if (need->small && need->size > pool->page_bytes / ULL_MEDIUM)
        return ull__better(c, ull__need_left_over(pool, need));
    return c || need->small ? c : find_tier(pool, ULL_VIEW, need);
}

/* --- when nothing is found at once ---------------------------------------------------------------------- */

/* Sorts all crumbs there that the request could have; true if there may be any. */
static bool sort_tier(struct ull_pool *pool, unsigned int tier, const struct ull__need *need)
{
    bool own = ull__bins_sort_all(pool->lanes[need->lane].bins[tier], need->size);
    return ull__bins_sort_all(pool->lanes[ULL_CLEAN].bins[tier], need->size) || own;
}

static bool sort_left_over(struct ull_pool *pool, const struct ull__need *need)
{
    bool home = sort_tier(pool, ULL_HOME, need);
    return sort_tier(pool, ULL_VIEW, need) || home;
}

/* As ull__need_find, which may not have seen all crumbs. Elsewhere nothing is sorted for less than is asked for there. */
static struct ull__chunk *find_sorted(struct ull_pool *pool, const struct ull__need *need)
{
    bool any = need->small && sort_tier(pool, ULL_SMALL, need);
    if (!need->small || need->size > pool->page_bytes / ULL_MEDIUM)
        any = sort_left_over(pool, need) || any;
    return any ? ull__need_find(pool, need) : NULL;
}

/* Gives back what is above a limit that was lowered. */
static bool within_limit(struct ull_pool *pool)
{
    if (pool->held > pool->limit_pages) {
        ull__fronts_drain(pool, ULL_LOOSE_ALL);
        ull__lanes_want(pool, (uint16_t)-1);
        ull__pages_return(pool, pool->held - pool->limit_pages);
    }
    return pool->held <= pool->limit_pages;
}

/* With several streams, what needs nothing that others freed: they will want it again. */
static struct ull__chunk *find_alone(struct ull_pool *pool, const struct ull__need *need,
                                     struct ull__shortage *shortage)
{
    struct ull__chunk *c = NULL;
    if (!pool->crowded || pool->plain)
        return NULL;
    if (!need->small)
        return ull__use_view(pool, shortage->needed, need->alignment, need->lane);
    if (ull__pages_suffice(pool, need->lane, 1))
        ull__build_small(pool, need->lane, shortage, &c);
    return c;
}

/*
 * New pages, though free ones would do: putting those side by side keeps all threads waiting, and a hundredth more
 * memory saves half of that. Only while little more is held than was requested at the peak, and the limit is far.
 */
static struct ull__chunk *take_spare(struct ull_pool *pool, const struct ull__need *need)
{
    uint64_t peak = pool->stats.peak_requested;
    uint64_t target = (peak + peak / SPARE_PART) >> pool->page_shift;
    uint64_t most = pool->limit_pages - pool->limit_pages / FAR_PART;
    target = target < most ? target : most;
    if (pool->held >= target || pool->spare_refused)
        return NULL;
    return ull__grow(pool, need->size, need->lane, target - pool->held, &pool->spare_refused);
}

/* What fronts have free and can do without easily, see front.c. */
static struct ull__chunk *find_in_fronts(struct ull_pool *pool, const struct ull__need *need,
                                         enum ull__loose kind)
{
    struct ull__chunk *c = NULL;
    if (!need->front)
        return NULL;
    if (ull__front_merge(pool, need->front))
        c = ull__front_take(pool, need->front, need->lane, need->size, need->small);
    if (!c && ull__fronts_lend(pool, need->size, need->small, &c) && !c) {
        c = ull__need_find(pool, need);
        if (!c && ull__lanes_want(pool, need->lane))
            c = ull__need_find(pool, need);
    }
    return c || !ull__front_drain(pool, need->front, kind) ? c : ull__need_find(pool, need);
}

/* Everything that can be done without waiting. */
static struct ull__chunk *find_more(struct ull_pool *pool, const struct ull__need *need,
                                    struct ull__shortage *shortage)
{
    struct ull__chunk *c = NULL;
    *shortage = (struct ull__shortage){.needed = ull__pages_for(pool, need->size)};
    if (!within_limit(pool))
        return NULL;
    c = find_sorted(pool, need);
    if (c)
        return c;
    if (need->front && !need->small) {
        c = take_spare(pool, need);
        if (c)
            return c;
    }
    enum ull__loose kind = need->small ? ULL_LOOSE_SMALL : ULL_LOOSE_LARGE;
    c = find_in_fronts(pool, need, kind);
    if (c)
        return c;
    c = find_alone(pool, need, shortage);
    if (c)
        return c;
    bool more = ull__fronts_drain(pool, kind) || pool->plain;
    /* A region can go only when the own stream has passed it too; and nothing but this finds what is free. */
    if (ull__lanes_want(pool, pool->plain ? (uint16_t)-1 : need->lane) || more)
        c = ull__need_find(pool, need);
    /* What is loose of the other kind is left alone as long as no new page depends on it. */
    if (!c && pool->front_count > 0 && !ull__pages_suffice(pool, need->lane, shortage->needed) &&
        ull__fronts_drain(pool, ULL_LOOSE_ALL)) {
        ull__lanes_want(pool, need->lane);
        c = ull__need_find(pool, need);
    }
    if (c)
        return c;
    if (need->small) {
        ull__build_small(pool, need->lane, shortage, &c);
        if (!c)
            sort_left_over(pool, need);
        return c ? c : ull__need_left_over(pool, need);
    }
    if (pool->retained != (uint32_t)ULL_NONE) {
        ull__retained_return(pool);
        c = ull__need_find(pool, need);
    }
    if (!c && (pool->crowded || pool->plain)) /* plain: for an aligned fit that was not looked at */
        c = ull__coalesce(pool, need->size, need->alignment, need->lane);
    if (!c)
        ull__build(pool, need->size, need->alignment, need->lane, shortage, &c);
    return c;
}

/*
 * For other streams first. Then, with several streams, for the own one too: half a page that waits for it
 * and half a page that nobody waits for are a free page only after that. Above a limit that was lowered
 * also with one: only what has passed can be given back. So it is with regions.
 */
static bool wait_for_frees(struct ull_pool *pool, const struct ull__need *need, uint64_t timeout_ns)
{
    if (ull__lanes_wait(pool, need->lane, timeout_ns))
        return true;
    if (!pool->crowded && pool->held <= pool->limit_pages && !pool->plain)
        return false;
    return ull__lanes_want(pool, (uint16_t)-1) || ull__lanes_wait(pool, (uint16_t)-1, timeout_ns);
}

__attribute__((noinline)) struct ull__chunk *ull__need_search(struct ull_pool *pool,
                                                              const struct ull__need *need,
                                                              struct ull__shortage *shortage)
{
    if (need->lane == 0 || need->size > pool->total_pages << pool->page_shift ||
        need->alignment > (uint64_t)pool->slot_count << pool->page_shift || !ull__host_ready(pool))
        return NULL;
    struct ull__chunk *c = find_more(pool, need, shortage);
    uint64_t waited = 0;
    while (!c && waited < pool->options.wait_ns) {
        uint64_t from = ull__now(pool);
        if (!wait_for_frees(pool, need, pool->options.wait_ns - waited))
            break;
        waited += ull__now(pool) - from;
        if (!ull__host_ready(pool))
            break;
        c = pool->held <= pool->limit_pages ? ull__need_find(pool, need) : NULL;
        c = c ? c : find_more(pool, need, shortage);
    }
    return c;
}
