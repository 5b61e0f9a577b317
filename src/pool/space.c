/*
 * space.c: chunks among their neighbours, and pages between home and the views.
 *
 * Whether a page is in use is not counted by page: it is free when a free chunk covers its slot whole. A
 * request makes those pages used that it is the first to touch, and a free makes those free that it was
 * the last to touch; both are runs of slots, known from the free chunk before or after.
 *
 * Lending and giving back go by runs of pages that are neighbours at home as well.
 *
 * Nothing here fails or asks the host for memory: ull__host_memory was called before.
 */
#include "space.h"

/* --- bins and covers -------------------------------------------------------------------------------- */

static bool whole_slots(const struct ull_pool *pool, const struct ull__chunk *c, uint32_t *first,
                        uint32_t *end)
{
    if (c->size < pool->page_bytes)
        return false;
    *first = ull__slot_up(pool, c->address);
    *end = ull__slot_down(pool, c->address + c->size);
    return *first < *end;
}

void ull__cover_add(struct ull_pool *pool, struct ull__chunk *c)
{
    uint32_t first, end;
    if (whole_slots(pool, c, &first, &end)) {
        pool->slots[first].cover = c;
        ull__slotset_add(&pool->covers, first);
    }
}

void ull__cover_remove(struct ull_pool *pool, const struct ull__chunk *c)
{
    uint32_t first, end;
    if (whole_slots(pool, c, &first, &end))
        ull__slotset_remove(&pool->covers, first);
}

struct ull__chunk *ull__cover(const struct ull_pool *pool, uint32_t slot)
{
    uint32_t start = ull__slotset_last(&pool->covers, slot);
    if (start == (uint32_t)ULL_NONE)
        return NULL;
    struct ull__chunk *c = pool->slots[start].cover;
    bool covers = c->address + c->size >= ull__slot_address(pool, (uint64_t)slot + 1);
    return covers ? c : NULL;
}

void ull__free_insert(struct ull_pool *pool, struct ull__chunk *c)
{
    ull__bins_enter(pool, c);
    ull__cover_add(pool, c);
}

void ull__free_remove(struct ull_pool *pool, struct ull__chunk *c)
{
    ull__cover_remove(pool, c);
    ull__bins_leave(pool, c);
}

/* --- neighbours -------------------------------------------------------------------------------------- */

struct ull__chunk *ull__chunk_split(struct ull_pool *pool, struct ull__chunk *c, uint64_t address)
{
    return ull__split_here(pool, c, address);
}

void ull__chunk_join(struct ull_pool *pool, struct ull__chunk *c)
{
    ull__join_here(pool, c);
}

static void put_back(struct ull_pool *pool, struct ull__chunk *c)
{
    if (c->state == ULL_FREE)
        ull__free_insert(pool, c);
    else
        ull__cover_add(pool, c);
}

struct ull__chunk *ull__isolate(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    uint64_t start = ull__slot_address(pool, slot);
    uint64_t end = ull__slot_address(pool, (uint64_t)slot + count);
    struct ull__chunk *first = NULL;
    for (struct ull__chunk *c = ull__cover(pool, slot); c && c->address < end; c = c->next) {
        if (c->state == ULL_FREE)
            ull__free_remove(pool, c);
        else
            ull__cover_remove(pool, c);
        if (c->address < start) {
            struct ull__chunk *lower = c;
            c = ull__chunk_split(pool, c, start);
            put_back(pool, lower);
        }
        if (c->address + c->size > end)
            put_back(pool, ull__chunk_split(pool, c, end));
        c->state = ULL_SWEPT;
        if (first) {
            c = first;
            ull__chunk_join(pool, c);
        } else {
            first = c;
        }
    }
    return first;
}

/* --- pages -------------------------------------------------------------------------------------------- */

static void mark_free(struct ull_pool *pool, uint32_t first, uint32_t end, bool is_free)
{
    for (uint32_t at = first; at < end;) {
        uint32_t bit = at % 64, count = 64 - bit < end - at ? 64 - bit : end - at;
        uint64_t mask = (count == 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1) << bit;
        if (is_free)
            pool->free_bits[at / 64] |= mask;
        else
            pool->free_bits[at / 64] &= ~mask;
        at += count;
    }
    uint64_t now = is_free ? pool->free_pages + (end - first) : pool->free_pages - (end - first);
    pool->free_pages = now;
    pool->idle_low = now < pool->idle_low ? now : pool->idle_low; /* no branch: nothing foretells it */
}

/* How many of the pages from a slot of a view on are neighbours at home. */
static uint32_t home_run(const struct ull_pool *pool, uint32_t slot, uint32_t end)
{
    uint32_t count = 1;
    while (slot + count < end && pool->slots[slot + count].home == pool->slots[slot].home + count)
        count++;
    return count;
}

static void make_shadow(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq)
{
    c->state = ULL_SHADOW;
    c->lane = lane;
    c->seq = seq;
    ull__cover_add(pool, c);
}

struct ull__chunk *ull__lend(struct ull_pool *pool, uint32_t slot, uint32_t count)
{
    for (uint32_t at = slot, end = slot + count, run; at < end; at += run) {
        uint32_t home = pool->slots[at].home;
        run = home_run(pool, at, end);
        mark_free(pool, home, home + run, false);
        make_shadow(pool, ull__isolate(pool, home, run), ULL_CLEAN, 0);
    }
    return ull__isolate(pool, slot, count);
}

/* Free slots of a view go home, behind what they wait for. */
static void give_back(struct ull_pool *pool, uint32_t first, uint32_t end, uint16_t lane, uint64_t seq)
{
    make_shadow(pool, ull__isolate(pool, first, end - first), lane, seq);
    for (uint32_t at = first, run; at < end; at += run) {
        uint32_t home = pool->slots[at].home;
        run = home_run(pool, at, end);
        ull__make_free(pool, ull__isolate(pool, home, run), lane, seq, 0, 0);
    }
}

void ull__retained_return(struct ull_pool *pool)
{
    uint32_t slot = pool->retained;
    if (slot == (uint32_t)ULL_NONE)
        return;
    const struct ull__chunk *c = ull__cover(pool, slot);
    pool->retained = (uint32_t)ULL_NONE;
    pool->free_pages--;
    give_back(pool, slot, slot + 1, c->lane, c->seq);
}

/*
 * Slots of the view of small requests became free. The lowest one is kept, so that a program that
 * allocates and frees one small thing does not move a page back and forth.
 */
static void small_freed(struct ull_pool *pool, uint32_t first, uint32_t end, uint16_t lane,
                        uint64_t seq)
{
    if (pool->retained != (uint32_t)ULL_NONE && pool->retained > first)
        ull__retained_return(pool);
    if (pool->retained == (uint32_t)ULL_NONE) {
        pool->retained = first++;
        pool->free_pages++;
    }
    if (first < end)
        give_back(pool, first, end, lane, seq);
}

/* --- pages in parts -------------------------------------------------------------------------------------- */

enum { PARTS = 256 };

/* A page that c touches at one of its ends. */
struct edge {
    uint64_t from, to;
    uint64_t seq;  /* of one of those that wait */
    uint16_t lane; /* what its parts are to wait for */
};

static bool is_part(const struct ull__chunk *c, uint16_t lane)
{
    return c && c->state == ULL_FREE && (c->lane == lane || c->lane == ULL_CLEAN);
}

/* The same; the lane is that of the first part that waits for one. */
static bool add_part(const struct ull__chunk *c, struct edge *edge)
{
    if (edge->lane != ULL_CLEAN || !c || c->state != ULL_FREE || c->lane == ULL_CLEAN)
        return is_part(c, edge->lane);
    edge->lane = c->lane;
    edge->seq = c->seq;
    return true;
}

/*
 * Is all of the page c, or free for one lane? Looks at both sides in turn, since often only one of them has much that is free;
 * a page of which more than PARTS are there on a side is left as it is.
 */
static bool is_covered(const struct ull__chunk *c, struct edge *edge)
{
    const struct ull__chunk *low = c, *high = c;
    for (int i = 0; i < PARTS; i++) {
        bool below = low->address > edge->from, above = high->address + high->size < edge->to;
        if (!below && !above)
            return true;
        low = below ? low->prev : low;
        high = above ? high->next : high;
        if ((below && !add_part(low, edge)) || (above && !add_part(high, edge)))
            return false;
    }
    return false;
}

/* The page at the lower or the upper end of c, if it goes on there and could be united. */
static bool find_edge(const struct ull_pool *pool, const struct ull__chunk *c, bool upper,
                      uint16_t lane, uint64_t seq, struct edge *edge)
{
    const struct ull__chunk *other = upper ? c->next : c->prev;
    uint64_t at = upper ? c->address + c->size : c->address;
    uint64_t from = (at - pool->base) & ~(pool->page_bytes - 1);
    if (!other || other->state != ULL_FREE || from == at - pool->base)
        return false;
    *edge = (struct edge){.from = pool->base + from,
                          .to = pool->base + from + pool->page_bytes,
                          .seq = seq,
                          .lane = lane};
    if (!is_covered(c, edge) || edge->lane == ULL_CLEAN)
        return false;
    /* A graph would never give it back; of a stream that was forgotten nobody asks for it. */
    const struct ull__lane *l = &pool->lanes[edge->lane];
    return l->graph == 0 && !l->over;
}

/* The part of a free chunk that lies in the page waits for its lane too. */
static void relabel_part(struct ull_pool *pool, struct ull__chunk *part, const struct edge *edge,
                         uint64_t seq)
{
    ull__free_remove(pool, part);
    if (part->address < edge->from) {
        struct ull__chunk *lower = part;
        part = ull__chunk_split(pool, part, edge->from);
        ull__free_insert(pool, lower);
    }
    if (part->address + part->size > edge->to)
        ull__free_insert(pool, ull__chunk_split(pool, part, edge->to));
    part->state = ULL_SWEPT;
    ull__make_free(pool, part, edge->lane, seq, 0, 0);
}

/* All parts of the page that nobody waits for; c is not among them. */
static void relabel_parts(struct ull_pool *pool, const struct ull__chunk *c,
                          const struct edge *edge, uint64_t seq)
{
    for (struct ull__chunk *at = c->next; is_part(at, edge->lane) && at->address < edge->to;) {
        if (at->lane == ULL_CLEAN) {
            relabel_part(pool, at, edge, seq);
            at = c->next;
        } else {
            at = at->next;
        }
    }
    for (struct ull__chunk *at = c->prev;
         is_part(at, edge->lane) && at->address + at->size > edge->from;) {
        if (at->lane == ULL_CLEAN) {
            relabel_part(pool, at, edge, seq);
            at = c->prev;
        } else {
            at = at->prev;
        }
    }
}

/* c waits for nobody, others do: the part of c that lies in the page is freed for their lane. */
static struct ull__chunk *give_part(struct ull_pool *pool, struct ull__chunk *c, bool upper,
                                    const struct edge *edge)
{
    struct ull__chunk *part = c;
    if (upper)
        part = ull__chunk_split(pool, c, edge->from);
    else
        c = ull__chunk_split(pool, c, edge->to);
    ull__make_free(pool, part, edge->lane, edge->seq, 0, 0);
    return c;
}

struct ull__chunk *ull__pages_unite(struct ull_pool *pool, struct ull__chunk *c, uint16_t *lane,
                                    uint64_t *seq)
{
    /* While neighbours are joined for a request the first of them must stay what it is; and without views nobody wants pages. */
    if (pool->plain || pool->joining)
        return c;
    for (int upper = 0; upper < 2; upper++) {
        struct edge edge;
        if (!find_edge(pool, c, upper, *lane, *seq, &edge))
            continue;
        bool inside = c->address >= edge.from && c->address + c->size <= edge.to;
        if (*lane == ULL_CLEAN && !inside) {
            c = give_part(pool, c, upper, &edge);
            continue;
        }
        *seq = edge.seq;
        *lane = edge.lane;
        relabel_parts(pool, c, &edge, *seq);
    }
    return c;
}

/* --- taking and freeing -------------------------------------------------------------------------------- */

static void slots_freed(struct ull_pool *pool, uint8_t tier, uint32_t first, uint32_t end,
                        uint16_t lane, uint64_t seq)
{
    if (tier == ULL_HOME)
        mark_free(pool, first, end, true);
    else if (tier == ULL_SMALL)
        small_freed(pool, first, end, lane, seq);
    else
        give_back(pool, first, end, lane, seq);
}

void ull__slots_joined(struct ull_pool *pool, struct ull__chunk *c, uint64_t address, uint64_t end,
                       uint32_t known0, uint32_t known1)
{
    uint32_t first, last;
    if (!whole_slots(pool, c, &first, &last))
        return;
    /* Of the chunk before the first whole slot was this one too, of the one behind perhaps another. */
    uint32_t touched0 = ull__slot_down(pool, address), touched1 = ull__slot_up(pool, end);
    pool->slots[first].cover = c;
    if (first >= touched0)
        ull__slotset_add(&pool->covers, first);
    if (touched1 < last && touched1 != first)
        ull__slotset_remove(&pool->covers, touched1);
    uint8_t tier = c->tier;
    uint16_t lane = c->lane;
    uint64_t seq = c->seq;
    first = first > touched0 ? first : touched0;
    last = last < touched1 ? last : touched1;
    if (known0 >= known1)
        known0 = known1 = last;
    if (known1 < last)
        slots_freed(pool, tier, known1 > first ? known1 : first, last, lane, seq);
    last = known0 < last ? known0 : last;
    if (first < last)
        slots_freed(pool, tier, first, last, lane, seq);
}

void ull__make_free(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq,
                    uint32_t known0, uint32_t known1)
{
    ull__make_free_here(pool, c, lane, seq, known0, known1);
}

/* What is in use is not idle. */
static void limit_idle(struct ull_pool *pool)
{
    if (pool->free_pages < pool->idle_low)
        pool->idle_low = pool->free_pages;
}

/* In a view only a slot that was kept is free as a whole. */
static void slots_used(struct ull_pool *pool, uint8_t tier, uint32_t first, uint32_t end)
{
    if (tier == ULL_HOME) {
        mark_free(pool, first, end, false);
    } else {
        pool->retained = (uint32_t)ULL_NONE;
        pool->free_pages--;
        limit_idle(pool);
    }
}

void ull__slots_taken(struct ull_pool *pool, const struct ull__chunk *c, struct ull__chunk *rest,
                      uint64_t end)
{
    uint32_t first = ull__slot_up(pool, c->address), last = ull__slot_down(pool, end);
    uint32_t used = ull__slot_up(pool, c->address + c->size);
    if (first >= last)
        return;
    if (rest && used < last) {
        pool->slots[used].cover = rest;
        ull__slotset_add(&pool->covers, used);
    }
    if (used == first && rest)
        return;
    ull__slotset_remove(&pool->covers, first);
    slots_used(pool, c->tier, first, used < last ? used : last);
}

struct ull__chunk *ull__take(struct ull_pool *pool, struct ull__chunk *c, uint64_t address,
                             uint64_t size)
{
    bool lent = c->state == ULL_SWEPT;
    if (!lent && address == c->address) {
        ull__take_here(pool, c, size);
        return c;
    }
    uint32_t whole0, whole1;
    bool whole = !lent && whole_slots(pool, c, &whole0, &whole1);
    if (!lent)
        ull__free_remove(pool, c);
    if (address > c->address) {
        struct ull__chunk *lower = c;
        c = ull__chunk_split(pool, c, address);
        ull__free_insert(pool, lower);
    }
    struct ull__chunk *rest = c->size > size ? ull__chunk_split(pool, c, address + size) : NULL;
    c->state = ULL_LIVE;
    if (lent) /* a piece that a front gave may have idle pages, which never were free in the pool */
        limit_idle(pool);
    if (rest && lent) /* behind it may be the rest of a slot that is in use in this view */
        ull__make_free(pool, rest, rest->lane, rest->seq, 0, 0);
    else if (rest)
        ull__free_insert(pool, rest);
    if (whole) {
        uint32_t first = ull__slot_down(pool, address), end = ull__slot_up(pool, address + size);
        first = first > whole0 ? first : whole0;
        end = end < whole1 ? end : whole1;
        if (first < end)
            slots_used(pool, c->tier, first, end);
    }
    return c;
}
