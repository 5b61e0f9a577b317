/*
 * share.c: requests that begin in a page that another one ends in.
 *
 * A request seldom ends where a page does, and what is left of its last page is too little for the next one if
 * that one's pages lie elsewhere. So a view may begin in the free end of a page that is in use otherwise: that page
 * is mapped once more, as the first of the view, and the request goes from there on into whole pages. It takes a
 * page less.
 *
 * A shared page stays where it is in use, at home or in a view. The end that was free there is LENT: in
 * nobody's bins, joined with nothing. In the new view the start of the first slot is REST. When the
 * new view's request is freed, the end goes back at once, as if it had been freed where it is LENT, and the slot in the
 * new view is a shadow again. So all that is true of pages stays so: a page is free when nothing touches it through any
 * range, and at one place only.
 *
 * The shadow notes the last free, though its first part may have been used before. That is enough: whoever
 * used that used the end too, so the end could be had only by one that comes after.
 *
 * It has its price, so it is done only before a request is refused. A page that two share is whole again only when both
 * are gone, so that programs whose requests are hardly larger than pages are left with more pieces. And where less is
 * held, more has to be mapped, and a step that is repeated comes to rest later (docs/bench.md has figures).
 *
 * What it cannot do: a free piece that does not touch the end of its page is not shared.
 */
#include "lane.h"
#include "pool_private.h"

#define NONE ((uint32_t)ULL_NONE)

/* So many free chunks are looked at in each of a lane's bins. */
enum { LOOKS = 16 };

/* --- views that are there --------------------------------------------------------------------------------- */

/* The view that was made first of those that begin with the page: the newest are next behind home. */
static uint32_t find_view(struct ull_pool *pool, uint32_t place, uint64_t whole, uint16_t lane)
{
    uint32_t home = pool->slots[place].home, found = NONE, busy;
    for (uint32_t slot = pool->slots[home].next; slot != home; slot = pool->slots[slot].next) {
        const struct ull__range *range = &pool->ranges[pool->range_of[slot]];
        if (slot != place && pool->range_of[slot] > ULL_SMALL && range->first == slot &&
            range->count > whole && ull__cover(pool, slot) &&
            ull__pages_usable(pool, slot + 1, (uint32_t)whole, lane, &busy))
            found = slot;
    }
    return found;
}

/* --- free ends ---------------------------------------------------------------------------------------------- */

/* Bytes from the start of the chunk to the end of its page, if all of them are the chunk's and not the whole page. */
static uint64_t end_of_page(const struct ull_pool *pool, const struct ull__chunk *c)
{
    uint64_t offset = (c->address - pool->base) & (pool->page_bytes - 1);
    uint64_t bytes = pool->page_bytes - offset;
    return offset != 0 && c->size >= bytes ? bytes : 0;
}

/* Looks for an end that has a view; the best fit otherwise. True: the plan has a view. */
static bool look(struct ull_pool *pool, struct ull__bins *bins, uint64_t over, uint16_t lane,
                 struct ull__plan *plan)
{
    ull__bins_sort_all(bins, over); /* a refusal comes next */
    struct ull__chunk *c = ull__bins_find(bins, over, 0);
    for (int i = 0; c && i < LOOKS; i++) {
        uint64_t bytes = end_of_page(pool, c);
        uint32_t place = ull__slot_down(pool, c->address);
        uint32_t first = bytes >= over ? find_view(pool, place, plan->whole, lane) : NONE;
        if (first != NONE ||
            (bytes >= over && (!plan->end || bytes < plan->bytes ||
                               (bytes == plan->bytes && c->address < plan->end->address)))) {
            plan->end = c;
            plan->bytes = bytes;
            plan->first = first;
        }
        if (first != NONE)
            return true;
        c = ull__bins_find(bins, c->size, c->address + 1);
    }
    return false;
}

bool ull__share_find(struct ull_pool *pool, uint64_t size, uint16_t lane, struct ull__plan *plan)
{
    struct ull__plan shared = {.whole = size >> pool->page_shift, .first = NONE};
    uint64_t over = size & (pool->page_bytes - 1);
    if (over == 0 || shared.whole == 0)
        return false;
    for (int tier = ULL_HOME; tier <= ULL_VIEW; tier += ULL_VIEW - ULL_HOME) {
        if (look(pool, pool->lanes[ULL_CLEAN].bins[tier], over, lane, &shared) ||
            (lane != ULL_CLEAN && look(pool, pool->lanes[lane].bins[tier], over, lane, &shared)))
            break;
    }
    if (shared.end)
        *plan = shared;
    return shared.end != NULL;
}

/* --- lending ------------------------------------------------------------------------------------------------- */

void ull__share_lend(struct ull_pool *pool, const struct ull__plan *plan)
{
    struct ull__chunk *c = plan->end;
    ull__free_remove(pool, c);
    if (c->size > plan->bytes)
        ull__free_insert(pool, ull__chunk_split(pool, c, c->address + plan->bytes));
    c->state = ULL_LENT;
    pool->lent++;
}

static void take_back(struct ull_pool *pool, struct ull__chunk *lent, uint16_t lane, uint64_t seq)
{
    bool passed = ull__lane_passed(pool, lane, seq);
    pool->lent--;
    ull__make_free(pool, lent, passed ? ULL_CLEAN : lane, passed ? 0 : seq, 0, 0);
}

void ull__share_undo(struct ull_pool *pool, const struct ull__plan *plan)
{
    take_back(pool, plan->end, plan->end->lane, plan->end->seq);
}

struct ull__chunk *ull__share_use(struct ull_pool *pool, uint32_t first, const struct ull__plan *plan)
{
    struct ull__chunk *rest = ull__isolate(pool, first, 1);
    struct ull__chunk *c =
        ull__chunk_split(pool, rest, ull__slot_address(pool, (uint64_t)first + 1) - plan->bytes);
    rest->state = ULL_REST;
    pool->slots[first].cover = plan->end;
    ull__lend(pool, first + 1, (uint32_t)plan->whole);
    ull__chunk_join(pool, c);
    return c;
}

struct ull__chunk *ull__share_return(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane,
                                     uint64_t seq)
{
    uint32_t slot = ull__slot_down(pool, c->address);
    struct ull__chunk *rest = c->prev;
    if (!rest || rest->state != ULL_REST)
        return c;
    c = ull__chunk_split(pool, c, ull__slot_address(pool, (uint64_t)slot + 1));
    ull__chunk_join(pool, rest);
    rest->state = ULL_SHADOW;
    rest->lane = lane;
    rest->seq = seq;
    struct ull__chunk *lent = pool->slots[slot].cover;
    ull__cover_add(pool, rest);
    take_back(pool, lent, lane, seq);
    return c;
}
