/*
 * period.h: where a program does the same thing again.
 *
 * Two allocations are of a kind if size, class, device, stack and tag are the same. In a loop most kinds come
 * equally often, as often as the loop goes round or a multiple of it. So the number of times that explains most
 * allocations is taken, and of the kinds that come that often the one at the most regular distances: each time it
 * comes a period begins. Since a beginning is an event and not a multiple of some length, jitter, extra
 * allocations and pauses do no harm. Marks of the program's own (MARK events) are preferred.
 *
 * If sizes differ in every round and nothing else is known of the allocations, no period is found.
 */
#ifndef ULLAGE_PERIOD_H
#define ULLAGE_PERIOD_H

#include "facts.h"

struct ull__period {
    size_t anchor;  /* an event of the kind that begins periods; ULL_NO_EVENT: none was found */
    uint64_t count; /* beginnings */
    uint64_t first_ns, last_ns;
    double seconds; /* mean */
    double spread;  /* standard deviation of the distances over their mean, in allocations */
};

struct ull__periods {
    const struct ull__history *history;
    struct ull__period *processes;
    uint64_t *allocs;             /* by process: of the layer that is live */
    uint64_t *first_ns, *last_ns; /* of these */
};

/* NULL without memory. */
struct ull__periods *ull__periods_find(const struct ull__facts *facts);
void ull__periods_destroy(struct ull__periods *periods);

/* A period of its process begins with this event. */
bool ull__periods_begins(const struct ull__periods *periods, const struct ull__event *event);

#endif
