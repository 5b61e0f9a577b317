/*
 * kinds.h: numbers for allocations that are alike, the same for the same kind. Internal to analyze.
 *
 * Alike are those of one process, layer, class and device with the same tag and stack; and of the same size, always or
 * only where neither tag nor stack says what they are.
 */
#ifndef ULLAGE_KINDS_H
#define ULLAGE_KINDS_H

#include "history.h"

struct ull__kinds {
    const struct ull__history *history;
    bool by_size;   /* always */
    size_t *events; /* by number: the first of it */
    uint32_t count, capacity, most;
    uint32_t *slots; /* number + 1; 0: empty */
    size_t mask;
};

enum { ULL_NO_KIND = UINT32_MAX };

bool ull__kinds_init(struct ull__kinds *kinds, const struct ull__history *history, bool by_size,
                     uint32_t most);
void ull__kinds_finish(struct ull__kinds *kinds);
/* The number of an event's kind, counted from 0, new if it is the first of it; ULL_NO_KIND when there are `most`
 * already. False without memory. */
bool ull__kinds_of(struct ull__kinds *kinds, size_t event, uint32_t *number);
bool ull__kinds_same(const struct ull__event *a, const struct ull__event *b, bool by_size);

#endif
