/*
 * bins.h: free chunks by size, for best fit with the lowest address on ties.
 *
 * Two levels, as in TLSF (Masmano et al., 2004): a power of two and 16 equal steps within it, with a
 * bit a bin, so that the next bin that has anything is found in constant time. Where TLSF takes
 * any chunk of the next bin, a bin here is a treap by (size, address), so the fit is exact: bins are
 * at most 6 % wide, so few chunks share one and the search within it is short. Below 4 KiB a bin has
 * one size. The priority of a treap's node is a hash of where the node is; it costs no memory.
 */
#ifndef ULLAGE_BINS_H
#define ULLAGE_BINS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "chunk.h"

enum { ULL_UNIT_SHIFT = 8, ULL_UNIT = 1 << ULL_UNIT_SHIFT, ULL_BINS = 704 };

struct ull__bins {
    uint32_t words; /* bit w: bits[w] is not 0 */
    uint64_t bits[ULL_BINS / 64];
    struct ull__chunk *root[ULL_BINS];
};

/* Any size of at least one unit. */
static inline unsigned int ull__bin_of(uint64_t size)
{
    uint64_t units = size >> ULL_UNIT_SHIFT;
    if (units < 16)
        return (unsigned int)units;
    unsigned int log = 63 - (unsigned int)__builtin_clzll(units);
    return (log - 3) * 16 + (unsigned int)((units >> (log - 4)) & 15);
}

static inline bool ull__chunk_before(uint64_t size, uint64_t address, const struct ull__chunk *c)
{
    return size != c->size ? size < c->size : address < c->address;
}

static inline uint32_t ull__priority(const struct ull__chunk *c)
{
    return (uint32_t)(((uintptr_t)c >> 6) * 0x9e3779b1u);
}

static inline void ull__bins_insert(struct ull__bins *bins, struct ull__chunk *c)
{
    unsigned int bin = ull__bin_of(c->size);
    struct ull__chunk **at = &bins->root[bin];
    if (!*at) {
        bins->bits[bin / 64] |= (uint64_t)1 << (bin % 64);
        bins->words |= (uint32_t)1 << (bin / 64);
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

static inline void ull__bins_remove(struct ull__bins *bins, struct ull__chunk *c)
{
    unsigned int bin = ull__bin_of(c->size);
    struct ull__chunk **at = &bins->root[bin];
    while (*at != c)
        at = ull__chunk_before(c->size, c->address, *at) ? &(*at)->u.free.left : &(*at)->u.free.right;
    struct ull__chunk *a = c->u.free.left, *b = c->u.free.right;
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
    if (!bins->root[bin]) {
        bins->bits[bin / 64] &= ~((uint64_t)1 << (bin % 64));
        if (!bins->bits[bin / 64])
            bins->words &= ~((uint32_t)1 << (bin / 64));
    }
}

/* The first bin from `bin` on that has a chunk, or ULL_BINS. */
static inline unsigned int ull__bins_next(const struct ull__bins *bins, unsigned int bin)
{
    if (bin >= ULL_BINS)
        return ULL_BINS;
    uint64_t here = bins->bits[bin / 64] >> (bin % 64);
    if (here)
        return bin + (unsigned int)__builtin_ctzll(here);
    uint32_t words = bins->words & ~(((uint32_t)2 << (bin / 64)) - 1);
    if (!words)
        return ULL_BINS;
    unsigned int word = (unsigned int)__builtin_ctz(words);
    return word * 64 + (unsigned int)__builtin_ctzll(bins->bits[word]);
}

/* The smallest chunk of at least (size, address) in that order, or NULL. */
static inline struct ull__chunk *ull__bins_find(const struct ull__bins *bins, uint64_t size,
                                                uint64_t address)
{
    if (!bins->words)
        return NULL;
    unsigned int bin = ull__bin_of(size);
    struct ull__chunk *best = NULL;
    for (struct ull__chunk *c = bins->root[bin]; c;) {
        if (c->size != size ? c->size < size : c->address < address) {
            c = c->u.free.right;
        } else {
            best = c;
            c = c->u.free.left;
        }
    }
    if (best)
        return best;
    bin = ull__bins_next(bins, bin + 1);
    if (bin == ULL_BINS)
        return NULL;
    best = bins->root[bin];
    while (best->u.free.left)
        best = best->u.free.left;
    return best;
}

#endif
