/* kinds.c: see kinds.h. */
#include "kinds.h"

#include <stdlib.h>
#include <string.h>

static bool sized(const struct ull__event *event, bool by_size)
{
    return by_size || (event->stack == 0 && event->tag == 0);
}

bool ull__kinds_same(const struct ull__event *a, const struct ull__event *b, bool by_size)
{
    return a->stack == b->stack && a->tag == b->tag && a->process == b->process &&
           a->kind == b->kind && a->class == b->class && a->device == b->device &&
           (a->size == b->size || !sized(a, by_size));
}

static size_t hash(const struct ull__event *event, bool by_size)
{
    uint64_t x = sized(event, by_size) ? event->size * 0x9e3779b97f4a7c15ull : 0;
    x ^= ((uint64_t)event->stack << 32 | event->tag) * 0xd6e8feb86659fd93ull;
    x ^= ((uint64_t)event->process << 24 | (uint64_t)event->kind << 16 |
          (uint64_t)event->class << 8 | event->device) *
         0xc2b2ae3d27d4eb4full;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return (size_t)(x ^ x >> 32);
}

static bool grow(struct ull__kinds *kinds)
{
    size_t slots = kinds->slots ? (kinds->mask + 1) * 2 : 1024;
    uint32_t *grown = calloc(slots, sizeof *grown);
    size_t *events = realloc(kinds->events, slots / 2 * sizeof *events);
    if (events)
        kinds->events = events;
    if (!grown || !events) {
        free(grown);
        return false;
    }
    free(kinds->slots);
    kinds->slots = grown;
    kinds->mask = slots - 1;
    kinds->capacity = (uint32_t)(slots / 2);
    for (uint32_t i = 0; i < kinds->count; i++) {
        size_t at = hash(&kinds->history->events[kinds->events[i]], kinds->by_size) & kinds->mask;
        while (grown[at])
            at = (at + 1) & kinds->mask;
        grown[at] = i + 1;
    }
    return true;
}

bool ull__kinds_init(struct ull__kinds *kinds, const struct ull__history *history, bool by_size,
                     uint32_t most)
{
    memset(kinds, 0, sizeof *kinds);
    kinds->history = history;
    kinds->by_size = by_size;
    kinds->most = most;
    return grow(kinds);
}

void ull__kinds_finish(struct ull__kinds *kinds)
{
    free(kinds->events);
    free(kinds->slots);
    memset(kinds, 0, sizeof *kinds);
}

bool ull__kinds_of(struct ull__kinds *kinds, size_t event, uint32_t *number)
{
    const struct ull__event *like = &kinds->history->events[event];
    if (kinds->count == kinds->capacity && kinds->count < kinds->most && !grow(kinds))
        return false;
    size_t slot = hash(like, kinds->by_size) & kinds->mask;
    for (; kinds->slots[slot]; slot = (slot + 1) & kinds->mask) {
        uint32_t known = kinds->slots[slot] - 1;
        if (ull__kinds_same(&kinds->history->events[kinds->events[known]], like, kinds->by_size)) {
            *number = known;
            return true;
        }
    }
    *number = ULL_NO_KIND;
    if (kinds->count == kinds->capacity || kinds->count >= kinds->most)
        return true;
    kinds->events[kinds->count] = event;
    kinds->slots[slot] = kinds->count + 1;
    *number = kinds->count++;
    return true;
}
