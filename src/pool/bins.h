/*
 * bins.h: free chunks by size, for best fit with the lowest address on ties.
 *
 * Two levels, as in TLSF (Masmano et al., 2004): a power of two and 256 equal steps within it, with a
 * bit a bin, so that the next bin that has anything is found in constant time. Where TLSF takes
 * any chunk of the next bin, a bin here knows the first of its chunks by (size, address), so the fit is exact. Bins are at
 * most 0.4 % wide, so most have one chunk or none: then nothing is searched. Chunks of 2 GiB and more, which are few,
 * share the last one. That a bin has others is another bit, so that what has none is put in and taken out without a look
 * at anything else: the bits are in the first cache, chunks are not, and a branch that waits for one costs twice.
 *
 * The others of a bin are a treap by (size, address) below the first, at its u.free.left. The priority of a treap's node
 * is a hash of where the node is; it costs no memory. Bins below 64 KiB have one size each, and may have very many
 * chunks; so the others are in a heap (heap.h) there. What the host has no memory for in the heap goes into the treap, so
 * an insertion never fails.
 *
 * What is smaller than whatever was asked for so far is a crumb: not sorted, but in a list at bin 0, which nothing else
 * has. Best fit leaves many of those over among large chunks, and most are joined with a neighbour before anybody could
 * want them. From the first request for less on what it could have is sorted as it comes (`least`; by powers of two, so
 * that happens a few times). What is there already is sorted a few at a time (ull__bins_sort), by requests that are small
 * enough to have it (`sorted`); others do not notice. Meanwhile such a request may get a larger chunk than the best. One
 * that finds nothing may take no page and must not be refused until all is sorted (ull__bins_sort_all).
 */
#ifndef ULLAGE_BINS_H
#define ULLAGE_BINS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "heap.h"

enum {
    ULL_UNIT_SHIFT = 8,
    ULL_UNIT = 1 << ULL_UNIT_SHIFT,
    ULL_STEP_SHIFT = 8,
    ULL_STEPS = 1 << ULL_STEP_SHIFT,
    ULL_BINS = 4096,
    ULL_SORT = 32 /* so many crumbs are sorted by one request */
};

struct ull__bins {
    uint64_t words;      /* bit w: bits[w] is not 0 */
    unsigned int heaps;  /* bins before that one have heaps; at most ULL_STEPS */
    unsigned int least;  /* what belongs before that bin is a crumb when it comes */
    unsigned int sorted; /* no crumb, and nothing unsorted, belongs into a bin from that one on */
    unsigned int listed; /* nor does a crumb into one from that one on; least <= listed <= sorted */
    struct ull__chunk *unsorted; /* crumbs that may be none any more, or NULL; more[0] has its bit then */
    uint64_t bits[ULL_BINS / 64]; /* what has any */
    uint64_t more[ULL_BINS / 64]; /* what has, or may have, more than one */
    struct ull__chunk *first[ULL_BINS];
    struct ull__heap heap[ULL_STEPS];
};

/* Any size of at least one unit. */
static inline unsigned int ull__bin_of(uint64_t size)
{
    uint64_t units = size >> ULL_UNIT_SHIFT;
    unsigned int above = 63 - ULL_STEP_SHIFT - (unsigned int)__builtin_clzll(units | ULL_STEPS);
    uint64_t bin = above * (uint64_t)ULL_STEPS + (units >> above);
    return bin < ULL_BINS ? (unsigned int)bin : ULL_BINS - 1;
}

static inline bool ull__chunk_before(uint64_t size, uint64_t address, const struct ull__chunk *c)
{
    return size != c->size ? size < c->size : address < c->address;
}

static inline uint64_t ull__bin_bit(unsigned int bin)
{
    return (uint64_t)1 << (bin % 64);
}

static inline void ull__bins_set(struct ull__bins *bins, unsigned int bin)
{
    bins->bits[bin / 64] |= ull__bin_bit(bin);
    bins->words |= ull__bin_bit(bin / 64);
}

static inline void ull__bins_clear(struct ull__bins *bins, unsigned int bin)
{
    if (!(bins->bits[bin / 64] &= ~ull__bin_bit(bin)))
        bins->words &= ~ull__bin_bit(bin / 64);
}

/* --- treaps ---------------------------------------------------------------------------------------------- */

static inline uint32_t ull__priority(const struct ull__chunk *c)
{
    return (uint32_t)(((uintptr_t)c >> 6) * 0x9e3779b1u);
}

static inline void ull__treap_insert(struct ull__chunk **at, struct ull__chunk *c)
{
    uint32_t priority = ull__priority(c);
    while (*at && ull__priority(*at) >= priority)
        at = ull__chunk_before(c->size, c->address, *at) ? &(*at)->u.free.left : &(*at)->u.free.right;
    struct ull__chunk *rest = *at, **low = &c->u.free.left, **high = &c->u.free.right;
    *at = c;
    while (rest) {
        if (ull__chunk_before(c->size, c->address, rest)) {
            *high = rest;
            high = &rest->u.free.left;
            rest = rest->u.free.left;
        } else {
            *low = rest;
            low = &rest->u.free.right;
            rest = rest->u.free.right;
        }
    }
    *low = *high = NULL;
}

static inline void ull__treap_remove(struct ull__chunk **at, const struct ull__chunk *c)
{
    struct ull__chunk *a = c->u.free.left, *b = c->u.free.right;
    while (*at != c)
        at = ull__chunk_before(c->size, c->address, *at) ? &(*at)->u.free.left : &(*at)->u.free.right;
    while (a && b) {
        if (ull__priority(a) >= ull__priority(b)) {
            *at = a;
            at = &a->u.free.right;
            a = a->u.free.right;
        } else {
            *at = b;
            at = &b->u.free.left;
            b = b->u.free.left;
        }
    }
    *at = a ? a : b;
}

/* Where the first of a treap is linked; there is one. */
static inline struct ull__chunk **ull__treap_first(struct ull__chunk **at)
{
    while ((*at)->u.free.left)
        at = &(*at)->u.free.left;
    return at;
}

/* The first of at least (size, address), or NULL. */
static inline struct ull__chunk *ull__treap_find(struct ull__chunk *root, uint64_t size,
                                                 uint64_t address)
{
    struct ull__chunk *best = NULL;
    for (struct ull__chunk *c = root; c;) {
        if (ull__chunk_before(size, address, c) || (c->size == size && c->address == address)) {
            best = c;
            c = c->u.free.left;
        } else {
            c = c->u.free.right;
        }
    }
    return best;
}

/* --- crumbs ---------------------------------------------------------------------------------------------- */

/*
 * There is one already, or something unsorted. first[0] came last, NULL if there are only unsorted ones; u.free.left is the
 * next, u.free.right the one before.
 */
static inline void ull__crumb_add(struct ull__bins *bins, struct ull__chunk *c)
{
    struct ull__chunk *next = bins->first[0];
    c->u.free.left = next;
    c->u.free.right = NULL;
    if (next)
        next->u.free.right = c;
    bins->first[0] = c;
}

/* Of the crumbs, or of what is unsorted. */
static inline void ull__crumb_remove(struct ull__bins *bins, const struct ull__chunk *c)
{
    struct ull__chunk *next = c->u.free.left, *before = c->u.free.right;
    if (next)
        next->u.free.right = before;
    if (before) {
        before->u.free.left = next;
        return;
    }
    if (c == bins->unsorted)
        bins->unsorted = next;
    else
        bins->first[0] = next;
    if (!next && !bins->first[0] && !bins->unsorted) {
        bins->more[0] &= ~(uint64_t)1;
        ull__bins_clear(bins, 0);
    }
}

/* All crumbs are to be sorted. Nothing is unsorted so far. */
static inline void ull__crumbs_unsort(struct ull__bins *bins)
{
    bins->listed = bins->least;
    if (bins->bits[0] & 1) {
        bins->unsorted = bins->first[0];
        bins->first[0] = NULL;
        bins->more[0] |= 1;
    }
}

/* What comes is a crumb if it belongs before that bin. */
static inline void ull__crumbs_below(struct ull__bins *bins, unsigned int bin)
{
    bins->least = bin;
    bins->listed = bin > bins->listed ? bin : bins->listed;
    bins->sorted = bin > bins->sorted ? bin : bins->sorted;
}

/* --- putting in and taking out --------------------------------------------------------------------------- */

/* Into a bin that has some. */
__attribute__((noinline, unused)) static void
ull__bins_insert_more(struct ull__bins *bins, unsigned int bin, struct ull__chunk *c)
{
    struct ull__chunk *first = bins->first[bin], *other = c;
    bins->more[bin / 64] |= ull__bin_bit(bin);
    if (bin == 0) {
        ull__crumb_add(bins, c);
        return;
    }
    if (ull__chunk_before(c->size, c->address, first)) {
        c->u.free.left = first->u.free.left;
        c->u.free.right = NULL;
        bins->first[bin] = c;
        other = first;
        first = c;
    }
    if (bin < bins->heaps) {
        if (ull__heap_add(&bins->heap[bin], other))
            return;
        bins->heap[bin].elsewhere++;
    }
    ull__treap_insert(&first->u.free.left, other);
}

static inline __attribute__((always_inline)) void ull__bins_insert(struct ull__bins *bins,
                                                                   struct ull__chunk *c)
{
    unsigned int bin = ull__bin_of(c->size);
    bin = bin < bins->least ? 0 : bin;
    c->bin = bin;
    if (bins->bits[bin / 64] & ull__bin_bit(bin)) {
        ull__bins_insert_more(bins, bin, c);
        return;
    }
    bins->first[bin] = c;
    c->u.free.left = c->u.free.right = NULL;
    ull__bins_set(bins, bin);
}

/* The first leaves; the next one of the bin, which has one, takes its place. What is in a treap stays below it. */
static inline void ull__bin_advance(struct ull__bins *bins, unsigned int bin)
{
    struct ull__chunk **root = &bins->first[bin]->u.free.left, **low = NULL, *c;
    struct ull__heap *heap = bin < bins->heaps ? &bins->heap[bin] : NULL;
    if (!heap || heap->elsewhere)
        low = ull__treap_first(root);
    if (heap && heap->count && (!low || ull__heap_top(heap) < (*low)->address)) {
        c = ull__heap_pop(heap);
    } else {
        c = *low;
        *low = c->u.free.right;
        if (heap)
            heap->elsewhere--;
    }
    c->u.free.left = *root;
    c->u.free.right = NULL;
    bins->first[bin] = c;
}

/* Out of a bin that has, or may have, others. */
__attribute__((noinline, unused)) static void
ull__bins_remove_more(struct ull__bins *bins, unsigned int bin, struct ull__chunk *c)
{
    struct ull__heap *heap = bin < bins->heaps ? &bins->heap[bin] : NULL;
    if (bin == 0) {
        ull__crumb_remove(bins, c);
        return;
    }
    if (bins->first[bin] == c) {
        ull__bin_advance(bins, bin);
    } else if (heap && ull__heap_has(c)) {
        ull__heap_remove_at(heap, ull__heap_place(c));
    } else {
        ull__treap_remove(&bins->first[bin]->u.free.left, c);
        if (heap)
            heap->elsewhere--;
    }
    if (heap ? heap->count + heap->elsewhere == 0 : !bins->first[bin]->u.free.left)
        bins->more[bin / 64] &= ~ull__bin_bit(bin);
}

static inline __attribute__((always_inline)) void ull__bins_remove(struct ull__bins *bins,
                                                                   struct ull__chunk *c)
{
    unsigned int bin = c->bin;
    c->uses = 0;
    if (bins->more[bin / 64] & ull__bin_bit(bin))
        ull__bins_remove_more(bins, bin, c);
    else
        ull__bins_clear(bins, bin);
}

/* Puts a list of crumbs before a list that is linked by u.free.right alone, in no order. */
static inline struct ull__chunk *ull__crumbs_before(struct ull__chunk *crumbs, struct ull__chunk *all)
{
    while (crumbs) {
        struct ull__chunk *next = crumbs->u.free.left;
        crumbs->u.free.right = all;
        all = crumbs;
        crumbs = next;
    }
    return all;
}

/* Empties a bin: its chunks, linked by u.free.right in no order. */
static inline struct ull__chunk *ull__bin_take_all(struct ull__bins *bins, unsigned int bin)
{
    struct ull__chunk *all = bins->first[bin], *c;
    if (bin == 0) {
        all = ull__crumbs_before(all, ull__crumbs_before(bins->unsorted, NULL));
        bins->unsorted = NULL;
        bins->listed = bins->sorted = bins->least;
        bins->more[0] &= ~(uint64_t)1;
        ull__bins_clear(bins, 0);
        return all;
    }
    c = all->u.free.left;
    all->u.free.right = NULL;
    while (c) { /* a treap turns into a list by rotations */
        struct ull__chunk *left = c->u.free.left;
        if (left) {
            c->u.free.left = left->u.free.right;
            left->u.free.right = c;
            c = left;
            continue;
        }
        struct ull__chunk *next = c->u.free.right;
        c->u.free.right = all;
        all = c;
        c = next;
    }
    for (uint32_t i = 0; bin < bins->heaps && i < bins->heap[bin].count; i++) {
        c = bins->heap[bin].entries[i].chunk;
        c->u.free.right = all;
        all = c;
    }
    if (bin < bins->heaps)
        bins->heap[bin].count = bins->heap[bin].elsewhere = 0;
    bins->more[bin / 64] &= ~ull__bin_bit(bin);
    ull__bins_clear(bins, bin);
    return all;
}

/* --- sorting crumbs -------------------------------------------------------------------------------------- */

/* Sorts at most so many crumbs, for a request that belongs into that bin, which is before `sorted`. */
__attribute__((noinline, unused)) static void ull__bins_sort(struct ull__bins *bins,
                                                             unsigned int bin, uint64_t most)
{
    if (bin < bins->least)
        bins->least = bin < ULL_STEPS ? 1u << (31 - __builtin_clz(bin | 1)) : bin & ~(ULL_STEPS - 1u);
    for (; most > 0; most--) {
        if (!bins->unsorted && bins->listed > bins->least)
            ull__crumbs_unsort(bins); /* also those that came while others were sorted */
        struct ull__chunk *c = bins->unsorted;
        if (!c) {
            bins->sorted = bins->least;
            return;
        }
        ull__crumb_remove(bins, c);
        ull__bins_insert(bins, c);
    }
}

/* Sorts all that a request for the size could have; true if that may be anything. */
static inline bool ull__bins_sort_all(struct ull__bins *bins, uint64_t size)
{
    unsigned int bin = ull__bin_of(size);
    if (!bins->words || bin >= bins->sorted)
        return false;
    ull__bins_sort(bins, bin, UINT64_MAX);
    return true;
}

/* --- finding --------------------------------------------------------------------------------------------- */

/* The first bin from `bin` on that has a chunk, or ULL_BINS. */
static inline unsigned int ull__bins_next(const struct ull__bins *bins, unsigned int bin)
{
    if (bin >= ULL_BINS)
        return ULL_BINS;
    uint64_t here = bins->bits[bin / 64] >> (bin % 64);
    if (here)
        return bin + (unsigned int)__builtin_ctzll(here);
    uint64_t words = bins->words & ~(((uint64_t)2 << (bin / 64)) - 1);
    if (!words)
        return ULL_BINS;
    unsigned int word = (unsigned int)__builtin_ctzll(words);
    return word * 64 + (unsigned int)__builtin_ctzll(bins->bits[word]);
}

/* The last bin before `bin` that has a chunk, or ULL_BINS. */
static inline unsigned int ull__bins_before(const struct ull__bins *bins, unsigned int bin)
{
    uint64_t here = bin % 64 ? bins->bits[bin / 64] & (((uint64_t)1 << (bin % 64)) - 1) : 0;
    unsigned int word = bin / 64;
    if (!here) {
        uint64_t words = word < 64 ? bins->words & (((uint64_t)1 << word) - 1) : bins->words;
        if (!words)
            return ULL_BINS;
        word = 63 - (unsigned int)__builtin_clzll(words);
        here = bins->bits[word];
    }
    return word * 64 + 63 - (unsigned int)__builtin_clzll(here);
}

/* Of a bin whose first one is less than (size, address): the smallest of at least that, or NULL. */
__attribute__((noinline, unused)) static struct ull__chunk *
ull__bin_find_more(const struct ull__bins *bins, unsigned int bin, uint64_t size, uint64_t address)
{
    struct ull__chunk *c = NULL, *other = NULL;
    if (bin >= bins->heaps || bins->heap[bin].elsewhere)
        c = ull__treap_find(bins->first[bin]->u.free.left, size, address);
    if (bin < bins->heaps)
        other = ull__heap_find(&bins->heap[bin], address);
    return other && (!c || other->address < c->address) ? other : c;
}

/* The smallest chunk of at least (size, address) in that order, of those that are sorted; or NULL. */
static inline struct ull__chunk *ull__bins_find(struct ull__bins *bins, uint64_t size,
                                                uint64_t address)
{
    if (!bins->words)
        return NULL;
    unsigned int bin = ull__bin_of(size);
    if (__builtin_expect(bin < bins->sorted, 0))
        ull__bins_sort(bins, bin, ULL_SORT);
    unsigned int at = ull__bins_next(bins, bin);
    if (at == ULL_BINS)
        return NULL;
    struct ull__chunk *c = bins->first[at];
    if (c->size > size || (c->size == size && c->address >= address))
        return c;
    if (bins->more[bin / 64] & ull__bin_bit(bin)) {
        c = ull__bin_find_more(bins, bin, size, address);
        if (c)
            return c;
    }
    at = ull__bins_next(bins, bin + 1);
    return at == ULL_BINS ? NULL : bins->first[at];
}

static inline void ull__bins_free(struct ull__bins *bins)
{
    for (unsigned int bin = 0; bins && bin < ULL_STEPS; bin++)
        free(bins->heap[bin].entries);
    free(bins);
}

#endif
