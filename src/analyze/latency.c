/* latency.c: see figures_private.h. Selection by counting the upper and then the lower half of the bits. */
#include <math.h>
#include <stdlib.h>

#include "figures_private.h"

enum { HALF = 1 << 16 };

bool ull__samples_keep(struct ull__samples *samples, uint32_t value)
{
    if (samples->count == samples->capacity) {
        size_t wanted = samples->capacity ? samples->capacity * 2 : 1024;
        uint32_t *grown = realloc(samples->values, wanted * sizeof *grown);
        if (!grown)
            return false;
        samples->values = grown;
        samples->capacity = wanted;
    }
    samples->values[samples->count++] = value;
    return true;
}

/* The half that holds `rank`, which becomes the rank among those with that half. */
static uint32_t pick(const size_t *counts, size_t *rank)
{
    uint32_t half = 0;
    while (*rank >= counts[half])
        *rank -= counts[half++];
    return half;
}

uint32_t ull__samples_ranked(const struct ull__samples *samples, size_t rank)
{
    size_t *counts = calloc(HALF, sizeof *counts);
    if (!counts)
        return UINT32_MAX;
    for (size_t i = 0; i < samples->count; i++)
        counts[samples->values[i] >> 16]++;
    uint32_t high = pick(counts, &rank);
    for (uint32_t i = 0; i < HALF; i++)
        counts[i] = 0;
    for (size_t i = 0; i < samples->count; i++) {
        if (samples->values[i] >> 16 == high)
            counts[samples->values[i] & (HALF - 1)]++;
    }
    uint32_t low = pick(counts, &rank);
    free(counts);
    return high << 16 | low;
}

/* The smallest value that `share` of all do not exceed. */
static double quantile(const struct ull__samples *samples, double share)
{
    size_t rank = (size_t)ceil(share * (double)samples->count);
    return (double)ull__samples_ranked(samples, rank > 0 ? rank - 1 : 0) / 1e9;
}

void ull__samples_describe(const struct ull__samples *samples, struct ull__latency *latency)
{
    latency->count = samples->count;
    latency->p50 = latency->p99 = latency->max = (double)NAN;
    if (samples->count == 0)
        return;
    latency->p50 = quantile(samples, 0.5);
    latency->p99 = quantile(samples, 0.99);
    latency->max = quantile(samples, 1);
}
