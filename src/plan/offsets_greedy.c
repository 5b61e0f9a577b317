/*
 * offsets_greedy.c: offsets by greedy orders.
 *
 * The buffers are placed one after the other, each at the lowest offset where it meets no conflicting one that was
 * placed before (first fit), or in the tightest gap (best fit). What matters is the order: several are tried, each is
 * given up as soon as it reaches the best height so far, and the best is improved for some rounds: what stuck out
 * moves forward in the order.
 *
 * What was placed is kept by offset in blocks of bounded size, so that placing the n-th takes n steps over memory that
 * lies in a row, and no more.
 */
#include <stdlib.h>
#include <string.h>

#include "offsets_private.h"

enum {
    BLOCK = 64,   /* placed buffers in a block at most */
    ROUNDS = 400, /* of improvement at most, and ROUNDS_EACH for each buffer */
    ROUNDS_EACH = 8,
    /* Steps over placed buffers after which no further order is begun; a quick plan has a tenth. A billion is a second. */
    ORDERS_WORK = 600000000,
    IMPROVE_WORK = 60000000,
    CLOSE = 2048, /* a quick plan is good if it is at most this part above what is enough */
};

struct block {
    uint32_t count;
    uint32_t buffer[BLOCK];
    uint32_t first[BLOCK], end[BLOCK]; /* with lifetimes */
    uint64_t offset[BLOCK], top[BLOCK];
};

struct greedy {
    const struct ull__instance *in;
    struct block **blocks; /* by offset; all that were ever needed are kept behind them */
    size_t used, made, room;
    uint64_t *offset; /* of the order under way */
    uint64_t *best;   /* the caller's */
    uint64_t height;  /* bytes; of best */
    uint64_t enough;  /* bytes: nobody needs it lower */
    uint64_t good;    /* bytes: as low as is worth the time */
    uint32_t *pinned;
    size_t pinned_count;
    uint64_t steps;
    bool failed; /* no memory */
};

void ull__sort_largest(uint32_t *order, uint32_t *scratch, size_t count, const uint64_t *key)
{
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t middle = from + width < count ? from + width : count;
            size_t to = from + 2 * width < count ? from + 2 * width : count;
            for (size_t l = from, r = middle, k = from; k < to; k++) {
                bool left = r >= to || (l < middle && key[order[l]] >= key[order[r]]);
                scratch[k] = left ? order[l++] : order[r++];
            }
        }
        memcpy(order, scratch, count * sizeof *order);
    }
}

/* --- what was placed, by offset ------------------------------------------------------------------------------- */

/* A fresh block at place `at`; false without memory. */
static bool insert_block(struct greedy *g, size_t at)
{
    if (g->used == g->made) {
        if (g->made == g->room) {
            size_t room = g->room ? 2 * g->room : 16;
            struct block **more = realloc(g->blocks, room * sizeof *more);
            if (!more)
                return false;
            g->blocks = more;
            g->room = room;
        }
        if (!(g->blocks[g->made] = malloc(sizeof(struct block))))
            return false;
        g->made++;
    }
    struct block *fresh = g->blocks[g->used];
    memmove(g->blocks + at + 1, g->blocks + at, (g->used - at) * sizeof *g->blocks);
    g->blocks[at] = fresh;
    g->used++;
    fresh->count = 0;
    return true;
}

static void move_entries(struct block *to, uint32_t at, const struct block *from, uint32_t first,
                         uint32_t count)
{
    memmove(to->buffer + at, from->buffer + first, count * sizeof *to->buffer);
    memmove(to->first + at, from->first + first, count * sizeof *to->first);
    memmove(to->end + at, from->end + first, count * sizeof *to->end);
    memmove(to->offset + at, from->offset + first, count * sizeof *to->offset);
    memmove(to->top + at, from->top + first, count * sizeof *to->top);
}

static bool insert(struct greedy *g, uint32_t b, uint64_t offset)
{
    size_t low = 0, high = g->used; /* the last block that begins at or below offset, else the first */
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (g->blocks[middle]->offset[0] <= offset)
            low = middle;
        else
            high = middle;
    }
    if (g->used == 0 && !insert_block(g, 0))
        return false;
    if (g->blocks[low]->count == BLOCK) {
        if (!insert_block(g, low + 1))
            return false;
        struct block *full = g->blocks[low], *fresh = g->blocks[low + 1];
        move_entries(fresh, 0, full, BLOCK / 2, BLOCK / 2);
        full->count = fresh->count = BLOCK / 2;
        if (fresh->offset[0] <= offset)
            low++;
    }
    struct block *block = g->blocks[low];
    uint32_t at = block->count;
    while (at > 0 && block->offset[at - 1] > offset)
        at--;
    move_entries(block, at + 1, block, at, block->count - at);
    block->buffer[at] = b;
    block->first[at] = g->in->first ? g->in->first[b] : 0;
    block->end[at] = g->in->first ? g->in->end[b] : 0;
    block->offset[at] = offset;
    block->top[at] = offset + g->in->size[b];
    block->count++;
    g->offset[b] = offset;
    return true;
}

/* --- one buffer ----------------------------------------------------------------------------------------------- */

struct gap {
    uint64_t cursor; /* all below is taken, or was no better */
    uint64_t size, align;
    uint64_t best, best_room; /* the tightest gap so far */
    bool tight;               /* best fit */
};

/* Goes past one conflicting buffer at [offset, top). True when the place at the cursor is to be taken. */
static inline bool pass(struct gap *gap, uint64_t offset, uint64_t top)
{
    if (offset > gap->cursor) {
        uint64_t at = ull__align_up(gap->cursor, gap->align);
        if (at + gap->size <= offset) {
            if (!gap->tight) {
                gap->cursor = at;
                return true;
            }
            if (offset - gap->cursor < gap->best_room) {
                gap->best = at;
                gap->best_room = offset - gap->cursor;
            }
        }
    }
    gap->cursor = top > gap->cursor ? top : gap->cursor;
    return false;
}

static uint64_t find_place(struct greedy *g, uint32_t b, bool tight)
{
    const struct ull__instance *in = g->in;
    struct gap gap = {0, in->size[b], in->align[b], UINT64_MAX, UINT64_MAX, tight};
    const uint64_t *row = in->rows ? in->rows + b * in->words : NULL;
    uint32_t first = row ? 0 : in->first[b], end = row ? 0 : in->end[b];
    for (size_t k = 0; k < g->used; k++) {
        const struct block *block = g->blocks[k];
        g->steps += block->count;
        for (uint32_t i = 0; i < block->count; i++) {
            bool meets = row ? row[block->buffer[i] / 64] >> (block->buffer[i] % 64) & 1
                             : (block->first[i] < end) & (first < block->end[i]);
            if (meets && pass(&gap, block->offset[i], block->top[i]))
                return gap.cursor;
        }
    }
    return gap.best != UINT64_MAX ? gap.best : ull__align_up(gap.cursor, gap.align);
}

/* --- one order ------------------------------------------------------------------------------------------------ */

/*
 * Places all in this order, the pinned ones first. False if it became no lower than what is known, or there was no
 * memory; else it is the best now. `over` (may be NULL) gets a mark for each buffer that stuck out over `limit`
 * bytes; an order is then not given up, so that all that stick out are known.
 */
static bool try_order(struct greedy *g, const uint32_t *order, bool tight, uint64_t limit,
                      uint8_t *over)
{
    const struct ull__instance *in = g->in;
    uint64_t height = 0;
    g->used = 0;
    for (size_t k = 0; k < g->pinned_count; k++)
        if (!insert(g, g->pinned[k], in->pin[g->pinned[k]]))
            return g->failed = true, false;
    for (size_t k = 0; k < in->count; k++) {
        uint32_t b = order[k];
        uint64_t offset = in->pin[b];
        if (offset == ULL__UNPINNED) {
            offset = find_place(g, b, tight);
            if (!insert(g, b, offset))
                return g->failed = true, false;
        }
        uint64_t end = ull__end_bytes(in, b, offset);
        height = end > height ? end : height;
        if (over)
            over[b] = end > limit;
        else if (height >= g->height)
            return false;
    }
    if (height >= g->height)
        return false;
    g->height = height;
    memcpy(g->best, g->offset, in->count * sizeof *g->best);
    return true;
}

/* --- orders --------------------------------------------------------------------------------------------------- */

/* Those that are best for training first: a quick plan is often done with the first. */
enum key { BUSY_LENGTH, SIZE, BUSY_SIZE, LENGTH, AREA, BUSY_AREA, EARLY, LATE, KEYS };

static uint64_t area(const struct ull__instance *in, size_t b)
{
    return (uint64_t)(((unsigned __int128)in->size[b] * in->length[b]) >> 40);
}

/* Sorts from the least important key to the most: the sort keeps the order of what is equal. */
static void make_order(const struct ull__instance *in, enum key key, uint64_t *value,
                       uint32_t *scratch, uint32_t *order)
{
    size_t n = in->count;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    ull__sort_largest(order, scratch, n, in->size);
    if (key == SIZE || key == BUSY_SIZE)
        ull__sort_largest(order, scratch, n, in->length);
    if (key == SIZE || key == BUSY_SIZE)
        ull__sort_largest(order, scratch, n, in->size);
    if (key == LENGTH || key == BUSY_LENGTH)
        ull__sort_largest(order, scratch, n, in->length);
    for (size_t i = 0; i < n; i++)
        value[i] = key == AREA || key == BUSY_AREA ? area(in, i)
                   : key == LATE                   ? in->end ? in->end[i] : i
                   : in->first                     ? UINT32_MAX - in->first[i]
                                                   : UINT32_MAX - i;
    if (key == AREA || key == BUSY_AREA || key == EARLY || key == LATE)
        ull__sort_largest(order, scratch, n, value);
    if (key == BUSY_LENGTH || key == BUSY_SIZE || key == BUSY_AREA)
        ull__sort_largest(order, scratch, n, in->busiest);
}

/* Moves those with a mark forward by `step` places at most, keeping their order among each other. */
static void move_forward(uint32_t *order, size_t count, const uint8_t *over, size_t step)
{
    size_t barrier = 0;
    for (size_t k = 0; k < count; k++) {
        if (!over[order[k]])
            continue;
        size_t to = k > step ? k - step : 0;
        to = to < barrier ? barrier : to;
        uint32_t b = order[k];
        memmove(order + to + 1, order + to, (k - to) * sizeof *order);
        order[to] = b;
        barrier = to + 1;
    }
}

static void improve(struct greedy *g, uint32_t *order, bool tight, uint8_t *over, uint64_t work)
{
    size_t n = g->in->count;
    g->steps = 0;
    size_t rounds = n < ROUNDS / ROUNDS_EACH ? n * ROUNDS_EACH : ROUNDS;
    for (size_t round = 0; round < rounds && g->height > g->good; round++) {
        uint64_t limit = g->enough;
        try_order(g, order, tight, limit, over);
        if (g->failed || g->steps > work)
            return;
        move_forward(order, n, over, 1 + n / (4 + 4 * (round % 4)));
    }
}

bool ull__greedy(const struct ull__instance *in, uint64_t enough, bool quick, uint64_t *offsets,
                 uint64_t *height)
{
    size_t n = in->count;
    unsigned int part = quick ? 10 : 1; /* of the work */
    struct greedy g = {.in = in,
                       .best = offsets,
                       .height = UINT64_MAX,
                       .enough = enough,
                       .good = quick ? enough + enough / CLOSE : enough};
    uint32_t *order = calloc(n, sizeof *order), *scratch = calloc(n, sizeof *scratch);
    uint64_t *value = calloc(n, sizeof *value);
    uint8_t *over = calloc(n, sizeof *over);
    g.offset = calloc(n, sizeof *g.offset);
    g.pinned = calloc(n, sizeof *g.pinned);
    g.failed = !order || !scratch || !value || !over || !g.offset || !g.pinned;
    for (size_t i = 0; !g.failed && i < n; i++)
        if (in->pin[i] != ULL__UNPINNED)
            g.pinned[g.pinned_count++] = (uint32_t)i;
    int best_key = 0;
    bool best_tight = false;
    for (int k = 0; k < 2 * KEYS && !g.failed && g.height > g.good; k++) {
        if (g.steps > ORDERS_WORK / part)
            break;
        make_order(in, (enum key)(k / 2), value, scratch, order);
        if (try_order(&g, order, k % 2, 0, NULL)) {
            best_key = k / 2;
            best_tight = k % 2;
        }
    }
    if (!g.failed && g.height > g.good) {
        make_order(in, (enum key)best_key, value, scratch, order);
        improve(&g, order, best_tight, over, IMPROVE_WORK / part);
    }
    for (size_t k = 0; k < g.made; k++)
        free(g.blocks[k]);
    free(g.blocks);
    free(g.offset);
    free(g.pinned);
    free(order);
    free(scratch);
    free(value);
    free(over);
    *height = g.height;
    return !g.failed;
}
