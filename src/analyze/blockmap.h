/*
 * blockmap.h: the blocks that exist at a moment. Internal to analyze.
 *
 * Blocks keep their place in an array for as long as they exist, so that others can keep notes by place. Which event
 * ends which block was found once (facts.h), so that a block that an event brought is found by that event, without
 * a search; those that existed before are found by process, device, layer and address, in a table with open
 * addressing. Blocks of a process are linked.
 */
#ifndef ULLAGE_BLOCKMAP_H
#define ULLAGE_BLOCKMAP_H

#include "facts.h"

enum { ULL_NO_PLACE = UINT32_MAX };

struct ull__blockmap {
    struct ull__block *blocks;
    uint32_t place_count, place_capacity, count;
    uint32_t free_place; /* first of a list through `next` */
    uint32_t *by_event;  /* place of the block that it brought */
    uint32_t *slots;     /* place + 1 of those that existed before; 0: empty */
    size_t slot_mask;    /* slots - 1; with slots NULL 0 */
    uint32_t before;     /* blocks in slots */
    uint32_t *first;     /* by process: place of its first block */
};

bool ull__blockmap_init(struct ull__blockmap *map, const struct ull__history *history);
void ull__blockmap_finish(struct ull__blockmap *map);
/* The place of the block that `event` brought, if it is there still, or ULL_NO_PLACE. */
uint32_t ull__blockmap_of_event(const struct ull__blockmap *map, size_t event);
/* The place of the block from before the record with the key of `like`, or ULL_NO_PLACE. */
uint32_t ull__blockmap_before(const struct ull__blockmap *map, const struct ull__block *like);
/* Adds a block that is not there; its place, or ULL_NO_PLACE without memory. */
uint32_t ull__blockmap_add(struct ull__blockmap *map, const struct ull__block *block);
void ull__blockmap_remove(struct ull__blockmap *map, uint32_t place);

#endif
