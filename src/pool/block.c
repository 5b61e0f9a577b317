/*
 * block.c: what a front has, and how it is cut and joined without the pool's lock.
 *
 * A block is a chunk that the pool gave to a front: in use for the pool, in its list, and what the pool may look at
 * of it, its neighbours and its place in that list, the front does not write. Its pieces are chunks that the pool
 * does not know, in a list of their own that ends where the block does. They are cut and joined as the pool does with its
 * own chunks, by best fit.
 *
 * Blocks beside each other become one, with what the pool has free between them, when the front lacks a piece (merge). Only
 * what lies beside new ones is looked at: the rest was looked at before. What the pool frees beside an old block later
 * stays the pool's.
 * If the pool wants to have one piece, it is cut out of its block (give); if it wants to have all that is free in a
 * block, that is dissolved: its pieces come into the pool's list in its place. All that is done with both locks held.
 * What was in use in a block that was dissolved is a block again once it is freed.
 *
 *   block   LIVE, front: whose; block: its first piece; linked in f->blocks or f->fresh by
 *           u.free. Or block NULL: in use as a whole, in the front's table
 *   piece   TAKEN in the table, FREE in the bins; block: what it is a piece of
 */
#include "front.h"
#include "pool_private.h"

enum { STOCK_LEAST = 8, STOCK = 64, STOCK_MOST = 1024, MOST_PIECES = 1024 };
/* The lane of a block, which has none. FRESH: not merged since it was opened. FULL: it has many pieces, and is left so. */
enum { FRESH = ULL_CLEAN, KNOWN, FULL };

/* --- chunks to be ------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) struct ull__chunk *stock_pop(struct ull__front *f)
{
    struct ull__chunk *c = f->stock;
    f->stock = c->next;
    f->stock_count--;
    return c;
}

static inline __attribute__((always_inline)) void stock_push(struct ull__front *f,
                                                             struct ull__chunk *c)
{
    c->next = f->stock;
    f->stock = c;
    f->stock_count++;
}

bool ull__stock_fill(struct ull_pool *pool, struct ull__front *f)
{
    while (f->stock_count > STOCK_MOST)
        ull__chunk_drop(pool, stock_pop(f));
    if (f->stock_count >= STOCK_LEAST)
        return true;
    if (!ull__chunks_ensure(pool, 4 * (pool->mapped - pool->held) + 16 + STOCK))
        return false;
    while (f->stock_count < STOCK)
        stock_push(f, ull__chunk_new(pool));
    return true;
}

void ull__stock_return(struct ull_pool *pool, struct ull__front *f)
{
    while (f->stock)
        ull__chunk_drop(pool, stock_pop(f));
}

/* A chunk in use that is in no front may bear the number of a use there. */
static uint32_t front_mark(const struct ull__front *f)
{
    return UINT32_MAX - f->index;
}

/* --- pieces ------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) struct ull__bins *bins_of(struct ull__front *f,
                                                                       const struct ull__chunk *c)
{
    return f->free[c->tier == ULL_SMALL];
}

/* Whole pages of a piece. */
static inline __attribute__((always_inline)) uint64_t pages_of(const struct ull_pool *pool,
                                                               const struct ull__chunk *c)
{
    if (c->size < pool->page_bytes)
        return 0;
    uint32_t first = ull__slot_up(pool, c->address), end = ull__slot_down(pool, c->address + c->size);
    return first < end ? end - first : 0;
}

static inline __attribute__((always_inline)) void
piece_insert(const struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c)
{
    ull__bins_insert(bins_of(f, c), c);
    f->free_count++;
    f->free_pages += pages_of(pool, c);
}

static inline __attribute__((always_inline)) void
piece_remove(const struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c)
{
    ull__bins_remove(bins_of(f, c), c);
    f->free_count--;
    f->free_pages -= pages_of(pool, c);
}

static struct ull__chunk **list_of(struct ull__front *f, const struct ull__chunk *block)
{
    return block->lane == FRESH ? &f->fresh : &f->blocks;
}

static void block_link(struct ull__front *f, struct ull__chunk *block, struct ull__chunk *first)
{
    struct ull__chunk **list = list_of(f, block);
    block->block = first;
    block->u.free.left = *list;
    block->u.free.right = NULL;
    if (*list)
        (*list)->u.free.right = block;
    *list = block;
}

static void block_unlink(struct ull__front *f, struct ull__chunk *block)
{
    struct ull__chunk *next = block->u.free.left, *prev = block->u.free.right;
    if (next)
        next->u.free.right = prev;
    if (prev)
        prev->u.free.left = next;
    else
        *list_of(f, block) = next;
    block->block = NULL;
}

/* Makes a block of what is one; its only piece, FREE and in no bins. */
static struct ull__chunk *block_open(struct ull__front *f, struct ull__chunk *block)
{
    struct ull__chunk *c = stock_pop(f);
    *c = (struct ull__chunk){.address = block->address,
                             .size = block->size,
                             .block = block,
                             .tier = block->tier,
                             .state = ULL_FREE};
    block_link(f, block, c);
    return c;
}

/* Of a piece in no bins; one of the stock. */
static inline __attribute__((always_inline)) struct ull__chunk *
cut(const struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c, uint64_t size)
{
    if (c->size > size) {
        struct ull__chunk *upper = stock_pop(f);
        *upper = (struct ull__chunk){.address = c->address + size,
                                     .size = c->size - size,
                                     .prev = c,
                                     .next = c->next,
                                     .block = c->block,
                                     .tier = c->tier,
                                     .state = ULL_FREE};
        if (c->next)
            c->next->prev = upper;
        c->next = upper;
        c->size = size;
        piece_insert(pool, f, upper);
    }
    c->state = ULL_TAKEN;
    return c;
}

static bool shows_whole_page(const struct ull_pool *pool, const struct ull__chunk *c)
{
    return ull__slot_up(pool, c->address) < ull__slot_down(pool, c->address + c->size);
}

/*
 * Pages that go from the pool to the front, or back, are not used by that: as many of those that were idle go with
 * them. `low` is what the one that gives them had idle before.
 */
static void idle_moves(uint64_t low, uint64_t pages, uint64_t *from, uint64_t *to)
{
    uint64_t moved = pages < low ? pages : low, left = low - moved;
    *from = *from < left ? *from : left;
    *to += moved;
}

struct ull__chunk *ull__block_adopt(struct ull_pool *pool, struct ull__front *f,
                                    struct ull__chunk *c, uint64_t size)
{
    uint64_t low = pool->idle_low, before = f->free_pages;
    /* All of it, so that the next requests find something. */
    c = ull__take(pool, c, c->address, c->size);
    c->lane = ULL_CLEAN;
    c->front = front_mark(f);
    c = cut(pool, f, block_open(f, c), size);
    idle_moves(low, f->free_pages - before, &pool->idle_low, &f->idle_low);
    return c;
}

struct ull__chunk *ull__piece_take(const struct ull_pool *pool, struct ull__front *f, uint64_t size,
                                   bool small)
{
    struct ull__chunk *c = ull__bins_find(f->free[small], size, 0);
    if (small && size > pool->page_bytes / ULL_MEDIUM) { /* as the pool does */
        struct ull__chunk *other = ull__bins_find(f->free[0], size, 0);
        if (other && (!c || other->size < c->size) && !shows_whole_page(pool, other))
            c = other;
    }
    if (!c || (c->size > size && !f->stock))
        return NULL;
    piece_remove(pool, f, c);
    c = cut(pool, f, c, size);
    if (f->free_pages < f->idle_low)
        f->idle_low = f->free_pages;
    return c;
}

static inline __attribute__((always_inline)) void join_next(struct ull__front *f,
                                                            struct ull__chunk *c)
{
    struct ull__chunk *upper = c->next;
    c->size += upper->size;
    c->next = upper->next;
    if (c->next)
        c->next->prev = c;
    stock_push(f, upper);
}

bool ull__piece_free(const struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c)
{
    if (c->state == ULL_LIVE) {
        if (!f->stock)
            return false;
        piece_insert(pool, f, block_open(f, c));
        return true;
    }
    c->state = ULL_FREE;
    if (c->next && c->next->state == ULL_FREE) {
        piece_remove(pool, f, c->next);
        join_next(f, c);
    }
    if (c->prev && c->prev->state == ULL_FREE) {
        c = c->prev;
        piece_remove(pool, f, c);
        join_next(f, c);
    }
    piece_insert(pool, f, c);
    return true;
}

/* --- merging ------------------------------------------------------------------------------------------------- */

static bool merges(const struct ull__front *f, const struct ull__chunk *c)
{
    if (!c)
        return false;
    if (c->state == ULL_LIVE)
        return c->front == front_mark(f) && c->lane != FULL;
    return c->state == ULL_FREE && (c->lane == f->lane || c->lane == ULL_CLEAN);
}

/* Its first piece. */
static struct ull__chunk *pieces_of(struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c)
{
    struct ull__chunk *first = c->block;
    if (c->state == ULL_FREE) {
        uint64_t low = pool->idle_low;
        ull__take(pool, c, c->address, c->size);
        idle_moves(low, pages_of(pool, c), &pool->idle_low, &f->idle_low);
        c->state = ULL_FREE;
        c->lane = ULL_CLEAN;
        c->uses = 0;
        c->prev = c->next = NULL;
        piece_insert(pool, f, c);
        return c;
    }
    if (first) {
        block_unlink(f, c);
        ull__chunk_drop(pool, c);
        return first;
    }
    c->state = ULL_TAKEN;
    c->uses = 0;
    c->prev = c->next = NULL;
    return c;
}

/* Puts pieces, the first of which is `at`, behind the last one of a block; which is the last then. */
static struct ull__chunk *append_pieces(const struct ull_pool *pool, struct ull__front *f,
                                        struct ull__chunk *block, struct ull__chunk *last,
                                        struct ull__chunk *at, unsigned int *count)
{
    at->prev = last;
    if (last)
        last->next = at;
    else
        block->block = at;
    for (struct ull__chunk *c = at; c; c = c->next) {
        c->block = block;
        ++*count;
    }
    if (last && last->state == ULL_FREE && at->state == ULL_FREE) {
        piece_remove(pool, f, last);
        piece_remove(pool, f, at);
        join_next(f, last);
        piece_insert(pool, f, last);
        at = last;
    }
    while (at->next)
        at = at->next;
    return at;
}

/* What merges from `first` on is one block, a new one in no list, until it has many pieces. */
static struct ull__chunk *merge_from(struct ull_pool *pool, struct ull__front *f,
                                     struct ull__chunk *first)
{
    struct ull__chunk *block = stock_pop(f), *last = NULL, *prev = first->prev, *next = first;
    unsigned int count = 0;
    *block = (struct ull__chunk){
        .address = first->address, .tier = first->tier, .state = ULL_LIVE, .front = front_mark(f)};
    while (merges(f, next) && count < MOST_PIECES) {
        struct ull__chunk *at = next;
        next = at->next;
        block->size += at->size;
        last = append_pieces(pool, f, block, last, pieces_of(pool, f, at), &count);
    }
    block->lane = count < MOST_PIECES ? KNOWN : FULL;
    block->prev = prev;
    block->next = next;
    if (next)
        next->prev = block;
    if (prev)
        prev->next = block;
    else
        pool->ranges[pool->range_of[ull__slot_down(pool, block->address)]].chunks = block;
    return block;
}

bool ull__blocks_merge(struct ull_pool *pool, struct ull__front *f)
{
    bool any = false;
    while (f->fresh && ull__stock_fill(pool, f)) {
        struct ull__chunk *block = f->fresh, *first = block, *pieces = block->block;
        unsigned int looks = 0;
        while (merges(f, first->prev) && ++looks < MOST_PIECES)
            first = first->prev;
        if (first != block || merges(f, block->next)) {
            block = merge_from(pool, f, first);
            pieces = block->block;
            any = true;
        } else {
            block_unlink(f, block);
            block->lane = KNOWN;
        }
        block_link(f, block, pieces);
    }
    return any;
}

/* --- back to the pool ---------------------------------------------------------------------------------------- */

/* A piece that is free leaves the front, on its way to the pool. */
static void piece_leave(const struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c,
                        struct ull__chunk **ready)
{
    piece_remove(pool, f, c);
    c->state = ULL_SWEPT;
    c->u.free.left = *ready;
    *ready = c;
}

/* Links a chunk into the pool's list, before or behind another one. */
static void list_before(struct ull_pool *pool, struct ull__chunk *next, struct ull__chunk *c)
{
    c->prev = next->prev;
    c->next = next;
    next->prev = c;
    if (c->prev)
        c->prev->next = c;
    else
        pool->ranges[pool->range_of[ull__slot_down(pool, c->address)]].chunks = c;
}

static void list_behind(struct ull__chunk *prev, struct ull__chunk *c)
{
    c->prev = prev;
    c->next = prev->next;
    prev->next = c;
    if (c->next)
        c->next->prev = c;
}

/* Are there fewer pieces before this one than behind it? */
static bool is_low(const struct ull__chunk *c)
{
    const struct ull__chunk *low = c->prev, *high = c->next;
    while (low && high) {
        low = low->prev;
        high = high->next;
    }
    return !low;
}

/* The pieces from `first` to the end of their list become a block of so many bytes; it is in the pool's list after that. */
static struct ull__chunk *block_part(struct ull__front *f, struct ull__chunk *first, uint64_t bytes)
{
    const struct ull__chunk *block = first->block;
    struct ull__chunk *part = stock_pop(f);
    *part = (struct ull__chunk){.address = first->address,
                                .size = bytes,
                                .tier = block->tier,
                                .state = ULL_LIVE,
                                .front = block->front,
                                .lane = block->lane};
    for (struct ull__chunk *c = first; c; c = c->next)
        c->block = part;
    block_link(f, part, first);
    return part;
}

void ull__piece_give(struct ull_pool *pool, struct ull__front *f, struct ull__chunk *c,
                     struct ull__chunk **ready)
{
    struct ull__chunk *block = c->block, *low = c->prev, *high = c->next;
    if ((!low && !high) || !f->stock) {
        ull__block_dissolve(pool, f, block, ready);
        return;
    }
    uint64_t pages = f->free_pages, below = c->address - block->address;
    uint64_t above = block->size - below - c->size;
    bool lower = is_low(c);
    piece_leave(pool, f, c, ready);
    if (low)
        low->next = NULL;
    if (high)
        high->prev = NULL;
    if (lower) { /* the block goes on behind it */
        if (low)
            list_before(pool, block, block_part(f, block->block, below));
        block->block = high;
        block->address = high->address;
        block->size = above;
        list_before(pool, block, c);
    } else {
        if (high)
            list_behind(block, block_part(f, high, above));
        block->size = below;
        list_behind(block, c);
    }
    idle_moves(f->idle_low, pages - f->free_pages, &f->idle_low, &pool->idle_low);
}

void ull__block_dissolve(struct ull_pool *pool, struct ull__front *f, struct ull__chunk *block,
                         struct ull__chunk **ready)
{
    struct ull__chunk *c = block->block;
    uint64_t pages = f->free_pages;
    block_unlink(f, block);
    c->prev = block->prev;
    if (c->prev)
        c->prev->next = c;
    else
        pool->ranges[pool->range_of[ull__slot_down(pool, c->address)]].chunks = c;
    for (;; c = c->next) {
        if (c->state == ULL_FREE) {
            piece_leave(pool, f, c, ready);
        } else {
            c->state = ULL_LIVE;
            c->front = front_mark(f);
            c->block = NULL;
        }
        if (!c->next)
            break;
    }
    c->next = block->next;
    if (c->next)
        c->next->prev = c;
    idle_moves(f->idle_low, pages - f->free_pages, &f->idle_low, &pool->idle_low);
    ull__chunk_drop(pool, block);
}

bool ull__blocks_dissolve(struct ull_pool *pool, struct ull__front *f, enum ull__loose which,
                          struct ull__chunk **ready)
{
    for (int kind = 0; kind < 2; kind++) {
        struct ull__bins *bins = f->free[kind];
        if (which != ULL_LOOSE_ALL && kind != (which == ULL_LOOSE_SMALL))
            continue;
        for (unsigned int bin; (bin = ull__bins_next(bins, 0)) < ULL_BINS;)
            ull__block_dissolve(pool, f, bins->first[bin]->block, ready);
    }
    return *ready != NULL;
}
