/* figures_private.h: parts of figures.c in files of their own. */
#ifndef ULLAGE_FIGURES_PRIVATE_H
#define ULLAGE_FIGURES_PRIVATE_H

#include "figures.h"

/* gaps.c: free pieces inside the driver's blocks that have chunks in them, on one device, now. */
struct ull__gaps {
    uint64_t size, free, largest;
};
/* False without memory. size 0: no chunk lies in a known block. */
bool ull__gaps_measure(const struct ull__walk *walk, uint32_t device, struct ull__gaps *gaps);

/* holders.c: what is live on the main device at its peak of live bytes. */
ull_status ull__figures_holders(const struct ull__facts *facts, struct ull__figures *figures,
                                struct ull_error *err);

/* latency.c: numbers of nanoseconds as they come, then their quantiles. */
struct ull__samples {
    uint32_t *values;
    size_t count, capacity;
};
bool ull__samples_keep(struct ull__samples *samples, uint32_t value);
/* The value that would be at `rank` in order, below count. UINT32_MAX without memory. */
uint32_t ull__samples_ranked(const struct ull__samples *samples, size_t rank);
void ull__samples_describe(const struct ull__samples *samples, struct ull__latency *latency);

#endif
