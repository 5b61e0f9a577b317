/* blockmap.c: see blockmap.h. Removal moves later entries up, so that there are no tombstones. */
#include "blockmap.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}

static size_t hash(const struct ull__block *block)
{
    return (size_t)mix(block->address + ((uint64_t)block->process << 48) +
                       ((uint64_t)block->device << 40 | (uint64_t)block->layer << 32) *
                           0x9e3779b97f4a7c15ull);
}

static bool same(const struct ull__block *a, const struct ull__block *b)
{
    return a->address == b->address && a->process == b->process && a->device == b->device &&
           a->layer == b->layer;
}

bool ull__blockmap_init(struct ull__blockmap *map, const struct ull__history *history)
{
    memset(map, 0, sizeof *map);
    map->free_place = ULL_NO_PLACE;
    map->first = malloc((history->process_count + 1ul) * sizeof *map->first);
    map->by_event = calloc(history->event_count + 1, sizeof *map->by_event);
    if (!map->first || !map->by_event) {
        ull__blockmap_finish(map);
        return false;
    }
    for (uint32_t i = 0; i < history->process_count; i++)
        map->first[i] = ULL_NO_PLACE;
    return true;
}

void ull__blockmap_finish(struct ull__blockmap *map)
{
    free(map->blocks);
    free(map->slots);
    free(map->first);
    free(map->by_event);
    memset(map, 0, sizeof *map);
}

/* What the entry leads to may be another block by now. */
uint32_t ull__blockmap_of_event(const struct ull__blockmap *map, size_t event)
{
    uint32_t place = map->by_event[event];
    bool there = place < map->place_count && map->blocks[place].layer != ULL_LAYER_NONE &&
                 map->blocks[place].event == event;
    return there ? place : ULL_NO_PLACE;
}

uint32_t ull__blockmap_before(const struct ull__blockmap *map, const struct ull__block *like)
{
    if (map->before == 0)
        return ULL_NO_PLACE;
    for (size_t at = hash(like) & map->slot_mask; map->slots[at]; at = (at + 1) & map->slot_mask) {
        if (same(&map->blocks[map->slots[at] - 1], like))
            return map->slots[at] - 1;
    }
    return ULL_NO_PLACE;
}

static void put(uint32_t *slots, size_t mask, const struct ull__block *blocks, uint32_t place)
{
    size_t at = hash(&blocks[place]) & mask;
    while (slots[at])
        at = (at + 1) & mask;
    slots[at] = place + 1;
}

/* At most half full after one more. */
static bool ensure_slot(struct ull__blockmap *map)
{
    size_t capacity = map->slots ? map->slot_mask + 1 : 0;
    if (((size_t)map->before + 1) * 2 <= capacity)
        return true;
    size_t wanted = capacity ? capacity * 2 : 256;
    uint32_t *slots = calloc(wanted, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < capacity; i++) {
        if (map->slots[i])
            put(slots, wanted - 1, map->blocks, map->slots[i] - 1);
    }
    free(map->slots);
    map->slots = slots;
    map->slot_mask = wanted - 1;
    return true;
}

static uint32_t take_place(struct ull__blockmap *map)
{
    uint32_t place = map->free_place;
    if (place != ULL_NO_PLACE) {
        map->free_place = map->blocks[place].next;
        return place;
    }
    if (map->place_count == map->place_capacity) {
        if (map->place_capacity >= ULL_NO_PLACE / 2)
            return ULL_NO_PLACE;
        uint32_t wanted = map->place_capacity ? map->place_capacity * 2 : 256;
        struct ull__block *grown = realloc(map->blocks, wanted * sizeof *grown);
        if (!grown)
            return ULL_NO_PLACE;
        map->blocks = grown;
        map->place_capacity = wanted;
    }
    return map->place_count++;
}

uint32_t ull__blockmap_add(struct ull__blockmap *map, const struct ull__block *block)
{
    bool before = block->event == ULL_NO_EVENT;
    if (before && !ensure_slot(map))
        return ULL_NO_PLACE;
    uint32_t place = take_place(map);
    if (place == ULL_NO_PLACE)
        return place;
    struct ull__block *added = &map->blocks[place];
    *added = *block;
    added->previous = ULL_NO_PLACE;
    added->next = map->first[block->process];
    if (added->next != ULL_NO_PLACE)
        map->blocks[added->next].previous = place;
    map->first[block->process] = place;
    if (before) {
        put(map->slots, map->slot_mask, map->blocks, place);
        map->before++;
    } else {
        map->by_event[block->event] = place;
    }
    map->count++;
    return place;
}

static void remove_slot(struct ull__blockmap *map, uint32_t place)
{
    size_t mask = map->slot_mask;
    size_t at = hash(&map->blocks[place]) & mask;
    while (map->slots[at] != place + 1)
        at = (at + 1) & mask;
    for (size_t next = (at + 1) & mask; map->slots[next]; next = (next + 1) & mask) {
        size_t home = hash(&map->blocks[map->slots[next] - 1]) & mask;
        /* It may move up if its home is not between the gap and where it is. */
        if (((next - home) & mask) >= ((next - at) & mask)) {
            map->slots[at] = map->slots[next];
            at = next;
        }
    }
    map->slots[at] = 0;
}

void ull__blockmap_remove(struct ull__blockmap *map, uint32_t place)
{
    struct ull__block *block = &map->blocks[place];
    if (block->event == ULL_NO_EVENT) {
        remove_slot(map, place);
        map->before--;
    }
    if (block->previous != ULL_NO_PLACE)
        map->blocks[block->previous].next = block->next;
    else
        map->first[block->process] = block->next;
    if (block->next != ULL_NO_PLACE)
        map->blocks[block->next].previous = block->previous;
    block->layer = ULL_LAYER_NONE;
    block->next = map->free_place;
    map->free_place = place;
    map->count--;
}
