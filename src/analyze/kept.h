/* kept.h: allocations of a kind that come to the end and are never freed. Internal to analyze. */
#ifndef ULLAGE_KEPT_H
#define ULLAGE_KEPT_H

#include "facts.h"

/* The kind that keeps most bytes. */
struct ull__kept {
    uint64_t count, bytes; /* after the start of the program */
    size_t event;          /* one of them */
};

/*
 * By process; count 0: there is no such kind. To be one, at least ten must have come after the first tenth of the
 * process's allocations, the last of them in the last tenth, not one freed, and evenly enough over the record that
 * they do not look like a cache that fills (Laplace's test). NULL without memory.
 */
struct ull__kept *ull__kept_find(const struct ull__facts *facts, const uint64_t *allocs);

#endif
