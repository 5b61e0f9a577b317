/* map.c: see map.h. */
#include "map.h"

#include <stdlib.h>

static size_t home(const struct ull__map *map, uint64_t key)
{
    uint64_t hash = key * 0x9e3779b97f4a7c15ull;
    return (hash ^ hash >> 32) & (map->capacity - 1);
}

/* Where the key is, or the empty slot where it would go. */
static size_t place(const struct ull__map *map, uint64_t key)
{
    size_t at = home(map, key);
    while (map->slots[at].value != 0 && map->slots[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static bool ensure(struct ull__map *map)
{
    if (map->count * 2 + 2 <= map->capacity)
        return true;
    struct ull__map grown = {.capacity = map->capacity ? map->capacity * 2 : 256,
                             .count = map->count};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].value != 0)
            grown.slots[place(&grown, map->slots[i].key)] = map->slots[i];
    free(map->slots);
    *map = grown;
    return true;
}

bool ull__map_put(struct ull__map *map, uint64_t key, uint32_t value)
{
    if (!ensure(map))
        return false;
    struct ull__map_slot *slot = &map->slots[place(map, key)];
    map->count += slot->value == 0;
    *slot = (struct ull__map_slot){.key = key, .value = value + 1};
    return true;
}

uint32_t ull__map_get(const struct ull__map *map, uint64_t key)
{
    return map->capacity ? map->slots[place(map, key)].value - 1 : ULL_MAP_NONE;
}

uint32_t ull__map_take(struct ull__map *map, uint64_t key)
{
    if (map->capacity == 0)
        return ULL_MAP_NONE;
    size_t at = place(map, key);
    uint32_t value = map->slots[at].value - 1;
    if (value == ULL_MAP_NONE)
        return value;
    map->count--;
    /* Whoever was pushed past this slot moves up, so that no search ends here too early. */
    size_t mask = map->capacity - 1;
    for (size_t next = (at + 1) & mask; map->slots[next].value != 0; next = (next + 1) & mask) {
        size_t from = home(map, map->slots[next].key);
        if (((next - from) & mask) >= ((next - at) & mask)) {
            map->slots[at] = map->slots[next];
            at = next;
        }
    }
    map->slots[at].value = 0;
    return value;
}

void ull__map_finish(struct ull__map *map)
{
    free(map->slots);
    *map = (struct ull__map){0};
}
