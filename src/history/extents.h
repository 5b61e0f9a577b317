/*
 * extents.h: ranges of addresses that do not overlap, found by any address in them in logarithmic time.
 */
#ifndef ULLAGE_EXTENTS_H
#define ULLAGE_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

struct ull__extent {
    uint64_t begin, end; /* end is the first address behind it; begin < end */
    uint64_t value;      /* the caller's */
};

struct ull__extents {
    void *root;
};

/* It must not overlap any that is there. False without memory. */
bool ull__extents_add(struct ull__extents *extents, const struct ull__extent *extent);
/* Any one that overlaps; false if none does. Finding may change its value through the pointer. */
struct ull__extent *ull__extents_find(const struct ull__extents *extents, uint64_t begin,
                                      uint64_t end);
/* Finds and removes. */
bool ull__extents_take(struct ull__extents *extents, uint64_t begin, uint64_t end,
                       struct ull__extent *taken);
/* Removes any one; false when none is left. */
bool ull__extents_pop(struct ull__extents *extents, struct ull__extent *taken);
void ull__extents_finish(struct ull__extents *extents);

#endif
