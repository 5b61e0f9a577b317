/*
 * map.h: finds a 32-bit number by a 64-bit key: an address, or a value of a pickle. Open addressing; entries can
 * go again without a trace. UINT32_MAX is no value.
 */
#ifndef ULLAGE_MAP_H
#define ULLAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ull__map_slot {
    uint64_t key;
    uint32_t value; /* + 1; 0: empty */
};

struct ull__map {
    struct ull__map_slot *slots;
    size_t capacity, count;
};

#define ULL_MAP_NONE UINT32_MAX

/* Adds or replaces; false without memory. */
bool ull__map_put(struct ull__map *map, uint64_t key, uint32_t value);
/* ULL_MAP_NONE if it is not there. */
uint32_t ull__map_get(const struct ull__map *map, uint64_t key);
/* Gets and removes. */
uint32_t ull__map_take(struct ull__map *map, uint64_t key);
void ull__map_finish(struct ull__map *map);

#endif
