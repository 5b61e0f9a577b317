/*
 * heap.h: chunks of one size, the lowest address first.
 *
 * A heap of eight ways in an array: an insertion hardly ever moves anything, neither does a removal from the middle,
 * and both are predicted well; so it costs half of what a tree does. A chunk knows its place, in u.free.right with
 * the lowest bit set, which a pointer to a chunk never has. u.free.left is not used.
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

/* The lowest is apart: most heaps have no other. Place n from 1 on is entries[n - 1]. */
struct ull__heap {
    struct ull__heap_entry top;
    struct ull__heap_entry *entries;
    uint32_t count, capacity; /* capacity: of entries */
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

static inline struct ull__heap_entry *ull__heap_at(struct ull__heap *heap, uint32_t place)
{
    return place == 0 ? &heap->top : &heap->entries[place - 1];
}

static inline void ull__heap_put(struct ull__heap_entry *at, uint32_t place,
                                 struct ull__heap_entry entry)
{
    *at = entry;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    entry.chunk->u.free.right = (struct ull__chunk *)((uintptr_t)place << 1 | 1);
}

/* Puts an entry at a place, or above it as long as it is lower than what is there. */
static inline void ull__heap_rise(struct ull__heap *heap, uint32_t place, struct ull__heap_entry entry)
{
    while (place > 0) {
        uint32_t above = (place - 1) / ULL_HEAP_WAYS;
        const struct ull__heap_entry *parent = ull__heap_at(heap, above);
        if (parent->address <= entry.address)
            break;
        ull__heap_put(&heap->entries[place - 1], place, *parent);
        place = above;
    }
    ull__heap_put(ull__heap_at(heap, place), place, entry);
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
    if (heap->count > heap->capacity && !ull__heap_grow(heap))
        return false;
    ull__heap_rise(heap, heap->count++, entry);
    return true;
}

/* Fills the hole at a place with the lowest of what is below it, or with `last`. */
__attribute__((noinline, unused)) static void ull__heap_sink(struct ull__heap *heap, uint32_t place,
                                                             struct ull__heap_entry last)
{
    struct ull__heap_entry *e = heap->entries;
    for (uint32_t below; (below = place * ULL_HEAP_WAYS) + 1 < heap->count;) { /* e[below]: the first */
        uint32_t end = heap->count - 1 - below, lowest = 0;
        uint64_t address = e[below].address;
        end = end < ULL_HEAP_WAYS ? end : ULL_HEAP_WAYS;
        for (uint32_t i = 1; i < end; i++) {
            bool lower = e[below + i].address < address;
            lowest = lower ? i : lowest;
            address = lower ? e[below + i].address : address;
        }
        if (address > last.address)
            break;
        ull__heap_put(ull__heap_at(heap, place), place, e[below + lowest]);
        place = below + lowest + 1;
    }
    ull__heap_put(ull__heap_at(heap, place), place, last);
}

static inline void ull__heap_remove(struct ull__heap *heap, const struct ull__chunk *c)
{
    uint32_t place = ull__heap_place(c);
    if (place == --heap->count)
        return;
    struct ull__heap_entry last = heap->entries[heap->count - 1];
    if (place > 0 && ull__heap_at(heap, (place - 1) / ULL_HEAP_WAYS)->address > last.address)
        ull__heap_rise(heap, place, last);
    else
        ull__heap_sink(heap, place, last);
}

/* The chunk with the lowest address from that one on, or NULL. */
static inline struct ull__chunk *ull__heap_find(const struct ull__heap *heap, uint64_t address)
{
    if (heap->count == 0)
        return NULL;
    if (heap->top.address >= address)
        return heap->top.chunk;
    const struct ull__heap_entry *best = NULL;
    for (uint32_t i = 0; i + 1 < heap->count; i++) {
        const struct ull__heap_entry *e = &heap->entries[i];
        if (e->address >= address && (!best || e->address < best->address))
            best = e;
    }
    return best ? best->chunk : NULL;
}

#endif
