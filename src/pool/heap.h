/*
 * heap.h: chunks of one size but for the first of them, the lowest address first.
 *
 * A heap of eight ways in an array, whose top is apart (bins.h): an insertion hardly ever moves anything, neither does a
 * removal from the middle, and both are predicted well; so it costs half of what a tree does. Places 0 to 7 are below
 * the top, and below place n are eight from 8 (n + 1) on. A chunk knows its place, in u.free.right with the lowest bit
 * set, which a pointer to a chunk never has.
 *
 * The array needs host memory. If there is none, ull__heap_add says so and the chunk has to go elsewhere.
 */
#ifndef ULLAGE_HEAP_H
#define ULLAGE_HEAP_H

#include <stdlib.h>

#include "chunk.h"

struct ull__heap_entry {
    uint64_t address;
    struct ull__chunk *chunk;
};

struct ull__heap {
    struct ull__heap_entry *entries;
    uint32_t count, capacity;
    uint32_t elsewhere; /* so many of the bin had no room here */
};

enum { ULL_HEAP_WAYS = 8, ULL_HEAP_LEAST = 8 };

/* Is the chunk, which is free and in a bin, in a heap? */
static inline bool ull__heap_has(const struct ull__chunk *c)
{
    return (uintptr_t)c->u.free.right & 1;
}

static inline uint32_t ull__heap_place(const struct ull__chunk *c)
{
    return (uint32_t)((uintptr_t)c->u.free.right >> 1);
}

static inline void ull__heap_put(struct ull__heap *heap, uint32_t place, struct ull__heap_entry entry)
{
    heap->entries[place] = entry;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    entry.chunk->u.free.right = (struct ull__chunk *)((uintptr_t)place << 1 | 1);
}

/* Puts an entry at a place, or above it as long as it is lower than what is there. */
static inline void ull__heap_rise(struct ull__heap *heap, uint32_t place, struct ull__heap_entry entry)
{
    while (place >= ULL_HEAP_WAYS) {
        uint32_t above = place / ULL_HEAP_WAYS - 1;
        if (heap->entries[above].address <= entry.address)
            break;
        ull__heap_put(heap, place, heap->entries[above]);
        place = above;
    }
    ull__heap_put(heap, place, entry);
}

static inline bool ull__heap_grow(struct ull__heap *heap)
{
    uint32_t capacity = heap->capacity ? heap->capacity * 2 : ULL_HEAP_LEAST;
    struct ull__heap_entry *entries =
        capacity > heap->capacity ? realloc(heap->entries, capacity * sizeof *entries) : NULL;
    if (!entries)
        return false;
    heap->entries = entries;
    heap->capacity = capacity;
    return true;
}

static inline bool ull__heap_add(struct ull__heap *heap, struct ull__chunk *c)
{
    struct ull__heap_entry entry = {.address = c->address, .chunk = c};
    if (heap->count == heap->capacity && !ull__heap_grow(heap))
        return false;
    ull__heap_rise(heap, heap->count++, entry);
    return true;
}

/* The lowest of up to eight from a place on, which is there. */
static inline uint32_t ull__heap_lowest(const struct ull__heap *heap, uint32_t from)
{
    const struct ull__heap_entry *e = &heap->entries[from];
    uint32_t end = heap->count - from, lowest = 0;
    uint64_t address = e->address;
    end = end < ULL_HEAP_WAYS ? end : ULL_HEAP_WAYS;
    for (uint32_t i = 1; i < end; i++) {
        bool lower = e[i].address < address;
        lowest = lower ? i : lowest;
        address = lower ? e[i].address : address;
    }
    return from + lowest;
}

/* Fills the hole at a place with the lowest of what is below it, or with `last`. */
static inline void ull__heap_sink(struct ull__heap *heap, uint32_t place, struct ull__heap_entry last)
{
    for (uint32_t below; (below = (place + 1) * ULL_HEAP_WAYS) < heap->count;) {
        below = ull__heap_lowest(heap, below);
        if (heap->entries[below].address > last.address)
            break;
        ull__heap_put(heap, place, heap->entries[below]);
        place = below;
    }
    ull__heap_put(heap, place, last);
}

static inline void ull__heap_remove_at(struct ull__heap *heap, uint32_t place)
{
    if (place == --heap->count)
        return;
    struct ull__heap_entry last = heap->entries[heap->count];
    if (place >= ULL_HEAP_WAYS && heap->entries[place / ULL_HEAP_WAYS - 1].address > last.address)
        ull__heap_rise(heap, place, last);
    else
        ull__heap_sink(heap, place, last);
}

/* The lowest address; there is one. */
static inline uint64_t ull__heap_top(const struct ull__heap *heap)
{
    return heap->entries[ull__heap_lowest(heap, 0)].address;
}

/* Takes the lowest out; there is one. */
static inline struct ull__chunk *ull__heap_pop(struct ull__heap *heap)
{
    uint32_t place = ull__heap_lowest(heap, 0);
    struct ull__chunk *c = heap->entries[place].chunk;
    ull__heap_remove_at(heap, place);
    return c;
}

/* Behind a place and all that is below it: the next of the same eight, or behind what these are below. Or `count`. */
static inline uint32_t ull__heap_behind(const struct ull__heap *heap, uint32_t place)
{
    while (place % ULL_HEAP_WAYS == ULL_HEAP_WAYS - 1 || place + 1 == heap->count) {
        if (place < ULL_HEAP_WAYS)
            return heap->count;
        place = place / ULL_HEAP_WAYS - 1;
    }
    return place + 1;
}

/* The chunk with the lowest address from that one on, or NULL. Looks below those that are before it, and nowhere else. */
static inline struct ull__chunk *ull__heap_find(const struct ull__heap *heap, uint64_t address)
{
    const struct ull__heap_entry *best = NULL;
    for (uint32_t place = 0; place < heap->count;) {
        const struct ull__heap_entry *e = &heap->entries[place];
        uint32_t below = (place + 1) * ULL_HEAP_WAYS;
        if (e->address < address && below < heap->count) {
            place = below;
            continue;
        }
        if (e->address >= address && (!best || e->address < best->address))
            best = e;
        place = ull__heap_behind(heap, place);
    }
    return best ? best->chunk : NULL;
}

#endif
