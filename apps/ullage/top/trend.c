/* trend.c: see trend.h. */
#include "trend.h"

#include <string.h>

void trend_add(struct trend *trend, uint64_t bytes)
{
    if (trend->count == TREND_POINTS) {
        memmove(trend->values, trend->values + 1, (TREND_POINTS - 1) * sizeof *trend->values);
        trend->count--;
    }
    trend->values[trend->count++] = bytes;
    trend->seen++;
}

static void extremes(const uint64_t *values, int count, uint64_t *low, uint64_t *high)
{
    *low = UINT64_MAX;
    *high = 0;
    for (int i = 0; i < count; i++) {
        *low = values[i] < *low ? values[i] : *low;
        *high = values[i] > *high ? values[i] : *high;
    }
}

enum trend_verdict trend_verdict(const struct trend *trend)
{
    uint64_t low[3], high[3];
    if (trend->count < TREND_LEAST)
        return TREND_TOO_SHORT;
    for (int third = 0; third < 3; third++) {
        int from = trend->count * third / 3, to = trend->count * (third + 1) / 3;
        extremes(trend->values + from, to - from, &low[third], &high[third]);
    }
    uint64_t least = high[0] / 100 > 1 << 20 ? high[0] / 100 : 1 << 20;
    if (low[0] < low[1] && low[1] < low[2] && low[2] - low[0] >= least)
        return TREND_GROWING;
    if (high[0] > high[1] && high[1] > high[2] && high[0] - high[2] >= least)
        return TREND_SHRINKING;
    return TREND_STEADY;
}

const char *trend_verdict_name(enum trend_verdict verdict)
{
    static const char *const names[] = {"", "shrinking", "steady", "growing"};
    return names[verdict];
}

void trend_line(const struct trend *trend, int width, unsigned char *heights)
{
    uint64_t each = width > 0 ? (TREND_POINTS + (uint64_t)width - 1) / (uint64_t)width : 1;
    uint64_t newest = trend->seen ? (trend->seen - 1) / each : 0, low = UINT64_MAX, high = 0;
    uint64_t columns[TREND_POINTS] = {0};
    bool known[TREND_POINTS] = {false};
    memset(heights, 0, width > 0 ? (size_t)width : 0);
    for (int i = 0; i < trend->count; i++) {
        uint64_t number = trend->seen - (uint64_t)trend->count + (uint64_t)i;
        uint64_t back = newest - number / each;
        if (back >= (uint64_t)width || back >= TREND_POINTS)
            continue;
        known[back] = true;
        columns[back] = trend->values[i] > columns[back] ? trend->values[i] : columns[back];
    }
    for (int back = 0; back < width && back < TREND_POINTS; back++) {
        if (!known[back])
            continue;
        low = columns[back] < low ? columns[back] : low;
        high = columns[back] > high ? columns[back] : high;
    }
    for (int back = 0; back < width && back < TREND_POINTS; back++) {
        uint64_t level = TREND_LEVELS / 2;
        if (high - low > high / 50 && known[back])
            level = 1 + (columns[back] - low) * (TREND_LEVELS - 1) / (high - low);
        heights[width - 1 - back] = known[back] && columns[back] > 0 ? (unsigned char)level : 0;
    }
}
