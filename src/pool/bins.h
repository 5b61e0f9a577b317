/*
 * bins.h: free chunks by size, for best fit with the lowest address on ties.
 *
 * Two levels, as in TLSF (Masmano et al., 2004): a power of two and 256 equal steps within it, with a
 * bit a bin, so that the next bin that has anything is found in constant time. Where TLSF takes
 * any chunk of the next bin, a bin here is a treap by (size, address), so the fit is exact. Bins are at
 * most 0.4 % wide, so most have one chunk or none: then nothing is searched. Chunks of 2 GiB and more, which are few,
 * share the last one. The priority of a treap's node is a hash of where the node is; it costs no memory.
 *
 * Bins below 64 KiB have one size each, and may have very many chunks; so each of them has a heap (heap.h) too. What
 * the host has no memory for in the heap goes into the treap, so an insertion never fails.
 *
 * What is smaller than whatever was asked for so far is a crumb: not sorted, but in a list at bin 0, which nothing else
 * has. Best fit leaves many of those over among large chunks, and most are joined with a neighbour before anybody could
 * want them. A request for less sorts those that it could have (ull__bins_sort_from); that goes by powers of two, so it
 * happens a few times.
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
    ULL_BINS = 4096
};

struct ull__bins {
    uint64_t words;     /* bit w: bits[w] is not 0 */
    unsigned int heaps; /* bins before that one have heaps; at most ULL_STEPS */
    unsigned int least; /* bins before that one are empty: it would be crumbs */
    struct ull__heap heap[ULL_STEPS];
    uint64_t bits[ULL_BINS / 64];
    struct ull__chunk *root[ULL_BINS];
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

static inline uint32_t ull__priority(const struct ull__chunk *c)
{
    return (uint32_t)(((uintptr_t)c >> 6) * 0x9e3779b1u);
}

static inline void ull__bins_set(struct ull__bins *bins, unsigned int bin)
{
    bins->bits[bin / 64] |= (uint64_t)1 << (bin % 64);
    bins->words |= (uint64_t)1 << (bin / 64);
}

static inline void ull__bins_clear(struct ull__bins *bins, unsigned int bin)
{
    if (!(bins->bits[bin / 64] &= ~((uint64_t)1 << (bin % 64))))
        bins->words &= ~((uint64_t)1 << (bin / 64));
}

/* root[0] is the one that came last; u.free.left is the next, u.free.right the one before. */
static inline __attribute__((always_inline)) void ull__crumb_add(struct ull__bins *bins,
                                                                 struct ull__chunk *c)
{
    struct ull__chunk *next = bins->root[0];
    c->bin = 0;
    c->u.free.left = next;
    c->u.free.right = NULL;
    bins->root[0] = c;
    if (next)
        next->u.free.right = c;
    else
        ull__bins_set(bins, 0);
}

static inline __attribute__((always_inline)) void ull__crumb_remove(struct ull__bins *bins,
                                                                    const struct ull__chunk *c)
{
    struct ull__chunk *next = c->u.free.left, *before = c->u.free.right;
    if (next)
        next->u.free.right = before;
    if (before) {
        before->u.free.left = next;
    } else {
        bins->root[0] = next;
        if (!next)
            ull__bins_clear(bins, 0);
    }
}

static inline __attribute__((always_inline)) void ull__bins_insert(struct ull__bins *bins,
                                                                   struct ull__chunk *c)
{
    unsigned int bin = ull__bin_of(c->size);
    struct ull__chunk **at = &bins->root[bin];
    if (bin < bins->least) {
        ull__crumb_add(bins, c);
        return;
    }
    c->bin = bin;
    if (bin < bins->heaps && ull__heap_add(&bins->heap[bin], c)) {
        ull__bins_set(bins, bin);
        return;
    }
    if (!*at) {
        *at = c;
        c->u.free.left = c->u.free.right = NULL;
        ull__bins_set(bins, bin);
        return;
    }
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

static inline __attribute__((always_inline)) void ull__bins_remove(struct ull__bins *bins,
                                                                   struct ull__chunk *c)
{
    unsigned int bin = c->bin;
    struct ull__chunk **at = &bins->root[bin];
    c->uses = 0;
    if (bin == 0) {
        ull__crumb_remove(bins, c);
        return;
    }
    if (ull__heap_has(c)) {
        ull__heap_remove(&bins->heap[bin], c);
        if (bins->heap[bin].count == 0 && !*at)
            ull__bins_clear(bins, bin);
        return;
    }
    struct ull__chunk *a = c->u.free.left, *b = c->u.free.right;
    if (*at == c && !a && !b) {
        *at = NULL;
        if (bin >= bins->heaps || bins->heap[bin].count == 0)
            ull__bins_clear(bins, bin);
        return;
    }
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

/* The smallest chunk of a bin of at least (size, address) in that order, or NULL. */
static inline struct ull__chunk *ull__bin_find(const struct ull__bins *bins, unsigned int bin,
                                               uint64_t size, uint64_t address)
{
    struct ull__chunk *best = NULL;
    for (struct ull__chunk *c = bins->root[bin]; c;) {
        if (c->size != size ? c->size < size : c->address < address) {
            c = c->u.free.right;
        } else {
            best = c;
            c = c->u.free.left;
        }
    }
    if (bin >= bins->heaps)
        return best;
    struct ull__chunk *c = ull__heap_find(&bins->heap[bin], address);
    return c && (!best || c->address < best->address) ? c : best;
}

/* Sorts crumbs from that bin on, or from the power of two before it. */
__attribute__((noinline, unused)) static void ull__bins_sort_from(struct ull__bins *bins,
                                                                  unsigned int bin)
{
    struct ull__chunk *c = bins->root[0];
    bins->least = bin < ULL_STEPS ? 1u << (31 - __builtin_clz(bin | 1)) : bin & ~(ULL_STEPS - 1u);
    bins->root[0] = NULL;
    ull__bins_clear(bins, 0);
    while (c) {
        struct ull__chunk *next = c->u.free.left;
        ull__bins_insert(bins, c);
        c = next;
    }
}

/* The smallest chunk of at least (size, address) in that order, or NULL. */
static inline struct ull__chunk *ull__bins_find(struct ull__bins *bins, uint64_t size,
                                                uint64_t address)
{
    if (!bins->words)
        return NULL;
    unsigned int bin = ull__bin_of(size);
    if (__builtin_expect(bin < bins->least, 0))
        ull__bins_sort_from(bins, bin);
    struct ull__chunk *best = ull__bin_find(bins, bin, size, address);
    if (best)
        return best;
    bin = ull__bins_next(bins, bin + 1);
    return bin == ULL_BINS ? NULL : ull__bin_find(bins, bin, 0, 0);
}

static inline void ull__bins_free(struct ull__bins *bins)
{
    for (unsigned int bin = 0; bins && bin < ULL_STEPS; bin++)
        free(bins->heap[bin].entries);
    free(bins);
}

#endif
