/* recent.c: see recent.h. */
#include "recent.h"

#include <string.h>

#include "trend.h"

static bool all_same(const struct trend *trend)
{
    for (int i = 1; i < trend->count; i++)
        if (trend->values[i] != trend->values[0])
            return false;
    return true;
}

/* With `sign` -1 of the values upside down, so that a fall is a rise. */
static enum ull__trend_kind judge(const struct trend *trend, int sign)
{
    double marks[TREND_POINTS];
    struct ull__trend found;
    for (int i = 0; i < trend->count; i++)
        marks[i] = sign * (double)trend->values[i];
    return ull__trend_judge(marks, (size_t)trend->count, &found) ? found.kind : ULL_TREND_SHORT;
}

static enum trend_verdict verdict_now(const struct trend *trend)
{
    if (trend->count < ULL_TREND_LEAST)
        return TREND_TOO_SHORT;
    if (all_same(trend))
        return TREND_STEADY;
    enum ull__trend_kind kind = judge(trend, 1);
    if (kind == ULL_TREND_RISING)
        return TREND_GROWING;
    if (kind == ULL_TREND_LEVELLED)
        return TREND_CACHE;
    if (judge(trend, -1) == ULL_TREND_RISING)
        return TREND_SHRINKING;
    return kind == ULL_TREND_FLAT ? TREND_STEADY : TREND_TOO_SHORT;
}

void trend_add(struct trend *trend, uint64_t bytes)
{
    enum { EACH = 4 }; /* a verdict takes some 0.2 ms, and there may be hundreds of processes */
    if (trend->count == TREND_POINTS) {
        memmove(trend->values, trend->values + 1, (TREND_POINTS - 1) * sizeof *trend->values);
        trend->count--;
    }
    trend->values[trend->count++] = bytes;
    trend->seen++;
    if (trend->seen % EACH == 0 || trend->count <= ULL_TREND_LEAST)
        trend->verdict = verdict_now(trend);
}

enum trend_verdict trend_verdict(const struct trend *trend)
{
    return trend->verdict;
}

const char *trend_verdict_name(enum trend_verdict verdict)
{
    static const char *const names[] = {"", "shrinking", "steady", "cache", "growing"};
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
