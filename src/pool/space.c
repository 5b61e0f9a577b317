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
#include "pool_private.h"

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

/* These two are most of what a request and a free do, so they are put where they are called. */
static inline __attribute__((always_inline)) void insert_free(struct ull_pool *pool,
                                                              struct ull__chunk *c)
{
    struct ull__lane *lane = &pool->lanes[c->lane];
    c->state = ULL_FREE;
    ull__bins_insert(lane->bins[c->tier], c);
    lane->free_bytes += c->size;
    if (c->size >= pool->page_bytes)
        ull__cover_add(pool, c);
}

static inline __attribute__((always_inline)) void remove_free(struct ull_pool *pool,
                                                              struct ull__chunk *c)
{
    struct ull__lane *lane = &pool->lanes[c->lane];
    if (c->size >= pool->page_bytes)
        ull__cover_remove(pool, c);
    lane->free_bytes -= c->size;
    ull__bins_remove(lane->bins[c->tier], c);
}

void ull__free_insert(struct ull_pool *pool, struct ull__chunk *c)
{
    insert_free(pool, c);
}

void ull__free_remove(struct ull_pool *pool, struct ull__chunk *c)
{
    remove_free(pool, c);
}

/* --- neighbours -------------------------------------------------------------------------------------- */

struct ull__chunk *ull__chunk_split(struct ull_pool *pool, struct ull__chunk *c, uint64_t address)
{
    struct ull__chunk *upper = ull__chunk_new(pool);
    *upper = (struct ull__chunk){.address = address,
                                 .size = c->address + c->size - address,
                                 .prev = c,
                                 .next = c->next,
                                 .seq = c->seq,
                                 .lane = c->lane,
                                 .tier = c->tier,
                                 .state = c->state};
    if (c->next)
        c->next->prev = upper;
    c->next = upper;
    c->size = address - c->address;
    return upper;
}

void ull__chunk_join(struct ull_pool *pool, struct ull__chunk *c)
{
    struct ull__chunk *upper = c->next;
    c->size += upper->size;
    c->next = upper->next;
    if (c->next)
        c->next->prev = c;
    ull__chunk_drop(pool, upper);
}

/* Joins a free chunk, in no bins, with its next; the result waits for whatever one of them waits for. */
static void join_free(struct ull_pool *pool, struct ull__chunk *c)
{
    const struct ull__chunk *upper = c->next;
    if (c->lane == ULL_CLEAN || (c->lane == upper->lane && c->seq < upper->seq))
        c->seq = upper->seq;
    c->lane |= upper->lane;
    ull__chunk_join(pool, c);
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
    if (is_free)
        pool->free_pages += end - first;
    else
        pool->free_pages -= end - first;
    if (pool->free_pages < pool->idle_low)
        pool->idle_low = pool->free_pages;
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

/* Whole slots of c, which was joined of what was free before and of [touched0, touched1). */
__attribute__((noinline)) static void slots_joined(struct ull_pool *pool, const struct ull__chunk *c,
                                                   uint32_t touched0, uint32_t touched1,
                                                   uint32_t known0, uint32_t known1)
{
    uint32_t first, end;
    if (!whole_slots(pool, c, &first, &end))
        return;
    uint8_t tier = c->tier;
    uint16_t lane = c->lane;
    uint64_t seq = c->seq;
    first = first > touched0 ? first : touched0;
    end = end < touched1 ? end : touched1;
    if (known0 >= known1)
        known0 = known1 = end;
    if (known1 < end)
        slots_freed(pool, tier, known1 > first ? known1 : first, end, lane, seq);
    end = known0 < end ? known0 : end;
    if (first < end)
        slots_freed(pool, tier, first, end, lane, seq);
}

void ull__make_free(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq,
                    uint32_t known0, uint32_t known1)
{
    if (__builtin_expect(c->tier == ULL_VIEW && pool->lent > 0, 0))
        c = ull__share_return(pool, c, lane, seq);
    uint64_t address = c->address, end = address + c->size;
    c->lane = lane;
    c->seq = seq;
    struct ull__chunk *prev = c->prev, *next = c->next;
    if (next && next->state == ULL_FREE && ull__lanes_join(pool, lane, next->lane)) {
        remove_free(pool, next);
        join_free(pool, c);
    }
    if (prev && prev->state == ULL_FREE && ull__lanes_join(pool, c->lane, prev->lane)) {
        remove_free(pool, prev);
        join_free(pool, prev);
        c = prev;
    }
    insert_free(pool, c);
    if (c->size >= pool->page_bytes)
        slots_joined(pool, c, ull__slot_down(pool, address), ull__slot_up(pool, end), known0, known1);
}

struct ull__chunk *ull__take(struct ull_pool *pool, struct ull__chunk *c, uint64_t address,
                             uint64_t size)
{
    uint32_t whole0 = 0, whole1 = 0;
    bool lent = c->state == ULL_SWEPT;
    bool whole = !lent && whole_slots(pool, c, &whole0, &whole1);
    if (!lent)
        remove_free(pool, c);
    if (address > c->address) {
        struct ull__chunk *lower = c;
        c = ull__chunk_split(pool, c, address);
        insert_free(pool, lower);
    }
    struct ull__chunk *rest = c->size > size ? ull__chunk_split(pool, c, address + size) : NULL;
    c->state = ULL_LIVE;
    if (rest && lent) /* behind it may be the rest of a slot that is in use in this view */
        ull__make_free(pool, rest, rest->lane, rest->seq, 0, 0);
    else if (rest)
        insert_free(pool, rest);
    if (whole) {
        uint32_t first = ull__slot_down(pool, address), end = ull__slot_up(pool, address + size);
        first = first > whole0 ? first : whole0;
        end = end < whole1 ? end : whole1;
        if (first < end && c->tier == ULL_HOME) {
            mark_free(pool, first, end, false);
        } else if (first < end) { /* in a view only a slot that was kept is free as a whole */
            pool->retained = (uint32_t)ULL_NONE;
            pool->free_pages--;
        }
    }
    return c;
}
