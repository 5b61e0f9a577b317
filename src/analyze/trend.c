/* trend.c: see trend.h. */
#include "trend.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, SCALES = 4 };

static const size_t scales[SCALES] = {48, 24, 12, 8}; /* groups */

/* A rise must be less likely by chance than this at one of four scales. */
static const double significant = 0.0005;

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* --- rank statistics -------------------------------------------------------------------------------------- */

double ull__mann_kendall(const double *values, size_t count)
{
    double sorted[MOST], sum = 0, n = (double)count;
    if (count < 3 || count > MOST)
        return 1;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++)
            sum += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
    }
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    double variance = n * (n - 1) * (2 * n + 5);
    for (size_t i = 0; i < count;) {
        size_t same = 1;
        while (i + same < count && sorted[i + same] == sorted[i])
            same++;
        double t = (double)same;
        variance -= t * (t - 1) * (2 * t + 5);
        i += same;
    }
    variance /= 18;
    if (variance <= 0 || sum <= 0)
        return 1;
    return 0.5 * erfc((sum - 1) / sqrt(variance) / sqrt(2.0));
}

double ull__theil_sen(const double *values, size_t count)
{
    static const size_t pairs_most = MOST * (MOST - 1) / 2;
    double slopes[MOST * (MOST - 1) / 2];
    size_t pairs = 0;
    if (count < 2 || count > MOST)
        return 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count && pairs < pairs_most; j++)
            slopes[pairs++] = (values[j] - values[i]) / (double)(j - i);
    }
    qsort(slopes, pairs, sizeof *slopes, ascending);
    return pairs % 2 ? slopes[pairs / 2] : (slopes[pairs / 2 - 1] + slopes[pairs / 2]) / 2;
}

/* The lowest of each of `groups` equal groups of marks. */
static void group_lows(const double *marks, size_t count, size_t groups, double *lows)
{
    for (size_t g = 0; g < groups; g++) {
        size_t begin = g * count / groups, end = (g + 1) * count / groups;
        lows[g] = marks[begin];
        for (size_t i = begin + 1; i < end; i++)
            lows[g] = marks[i] < lows[g] ? marks[i] : lows[g];
    }
}

/* The best evidence of a rise at any scale. */
static void test_rise(const double *marks, size_t count, struct ull__trend *trend)
{
    double lows[MOST];
    bool tested = false;
    trend->p = 1;
    for (int s = 0; s < SCALES; s++) {
        size_t groups = scales[s];
        if (groups > count) {
            if (tested || (s + 1 < SCALES && scales[s + 1] <= count))
                continue;
            groups = count;
        }
        group_lows(marks, count, groups, lows);
        double p = ull__mann_kendall(lows, groups);
        if (!tested || p < trend->p) {
            trend->p = p;
            trend->slope = ull__theil_sen(lows, groups) * (double)groups / (double)count;
        }
        tested = true;
    }
}

/* --- shape --------------------------------------------------------------------------------------------------- */

/* In place: what is never fallen below again. */
static void make_floor(double *marks, size_t count)
{
    for (size_t i = count - 1; i-- > 0;)
        marks[i] = marks[i + 1] < marks[i] ? marks[i + 1] : marks[i];
}

/* Half of the growth of the floor comes in steps of at least this. */
static double usual_step(const double *floors, size_t first, size_t count, double *scratch)
{
    double total = floors[count - 1] - floors[first], sum = 0;
    size_t steps = 0;
    for (size_t i = first + 1; i < count; i++) {
        if (floors[i] > floors[i - 1])
            scratch[steps++] = floors[i] - floors[i - 1];
    }
    qsort(scratch, steps, sizeof *scratch, ascending);
    for (size_t i = steps; i-- > 0;) {
        sum += scratch[i];
        if (sum * 2 >= total)
            return scratch[i];
    }
    return 0;
}

/* Laplace's statistic of the steps, each at most as heavy as the usual one; about -2 and less: they came early. */
static double laplace(const double *floors, size_t count, double usual, struct ull__trend *trend)
{
    double weight = 0, squares = 0, moment = 0;
    for (size_t i = 1; i < count; i++) {
        double step = floors[i] - floors[i - 1];
        step = step > usual ? usual : step;
        double at = (double)i / (double)count;
        weight += step;
        squares += step * step;
        moment += step * at;
        if (step > usual / 4)
            trend->last_step = at;
    }
    if (weight <= 0)
        return 0;
    trend->steps = weight * weight / squares;
    return (moment / weight - 0.5) * sqrt(12 * trend->steps);
}

static void judge_shape(const double *floors, size_t count, double *scratch, struct ull__trend *trend)
{
    size_t first = trend->first;
    size_t late = first + (size_t)((double)(count - first) * 0.6);
    trend->level = floors[first];
    trend->rise = floors[count - 1] - floors[first];
    trend->late = 0;
    if (trend->p > significant || trend->rise <= 0) {
        trend->kind = ULL_TREND_FLAT;
        return;
    }
    trend->late = (floors[count - 1] - floors[late]) / trend->rise / 0.4;
    double early = laplace(floors, count, usual_step(floors, first, count, scratch), trend);
    bool few = trend->steps < 20;
    if ((trend->late < 0.25 && (!few || early < -1.64)) || (trend->late < 0.6 && early < -2.33) ||
        (trend->late < 1 && few && early < -1.9))
        trend->kind = ULL_TREND_LEVELLED;
    else if (trend->late < 0.25 || trend->steps < 5)
        trend->kind = early < -0.8 ? ULL_TREND_LEVELLED : ULL_TREND_UNSURE;
    else
        trend->kind = ULL_TREND_RISING;
    /* A step or two that hardly change anything are no growth. */
    if (trend->kind != ULL_TREND_RISING && trend->rise < 0.005 * trend->level)
        trend->kind = ULL_TREND_FLAT;
}

/* --- cycles -------------------------------------------------------------------------------------------------- */

/* Ups and downs of at least `size`; *trough is where the last one was lowest. */
static size_t count_swings(const double *marks, size_t count, double size, size_t *trough)
{
    size_t low = 0, high = 0, swings = 0;
    bool up = false;
    *trough = 0;
    for (size_t i = 1; i < count; i++) {
        low = marks[i] <= marks[low] ? i : low;
        high = marks[i] >= marks[high] ? i : high;
        if (!up && marks[i] - marks[low] >= size) {
            up = true;
            *trough = low;
            high = i;
        } else if (up && marks[high] - marks[i] >= size) {
            up = false;
            low = i;
            swings++;
        }
    }
    if (!up)
        *trough = low;
    return swings;
}

/* The deepest fall from a mark to a later one. */
static double deepest_fall(const double *marks, size_t count)
{
    double high = marks[0], fall = 0;
    for (size_t i = 1; i < count; i++) {
        high = marks[i] > high ? marks[i] : high;
        fall = high - marks[i] > fall ? high - marks[i] : fall;
    }
    return fall;
}

/* Between what one tenth lies below and one tenth above. */
static double spread_of(const double *values, size_t count, double *sorted)
{
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    return sorted[count - 1 - count / 10] - sorted[count / 10];
}

/*
 * Do the marks, but for their trend, go up and down? A curve that only bends does not: it never falls. How many
 * were seen, SIZE_MAX if none; and since the last one is not over, how many marks come before its end.
 */
static void look_for_cycles(const double *marks, size_t count, double *scratch,
                            struct ull__trend *trend)
{
    double lows[MOST], *rest = scratch + count;
    size_t groups = count < 48 ? count : 48, trough;
    group_lows(marks, count, groups, lows);
    double slope = ull__theil_sen(lows, groups) * (double)groups / (double)count;
    for (size_t i = 0; i < count; i++)
        rest[i] = marks[i] - slope * (double)i;
    double spread = spread_of(rest, count, scratch);
    trend->cycles = SIZE_MAX;
    if (spread <= 0 || deepest_fall(marks, count) < spread / 2)
        return;
    trend->cycles = count_swings(rest, count, spread / 3, &trough);
    if (trend->cycles >= ULL_TREND_CYCLES)
        trend->count = trough + 1;
}

/* --- all of it ----------------------------------------------------------------------------------------------- */

static double confidence(const struct ull__trend *trend)
{
    double seen = (double)trend->count / ((double)trend->count + 4);
    switch (trend->kind) {
    case ULL_TREND_RISING:
        return (1 - trend->p) * trend->steps / (trend->steps + 1) * seen;
    case ULL_TREND_LEVELLED:
        return (1 - trend->p) * seen * (trend->late < 0.25 ? 0.95 : 0.8);
    case ULL_TREND_FLAT:
        return seen * 0.99;
    default:
        return 0;
    }
}

bool ull__trend_judge(const double *marks, size_t count, struct ull__trend *trend)
{
    *trend = (struct ull__trend){.kind = ULL_TREND_SHORT, .p = 1, .count = count};
    if (count < ULL_TREND_LEAST)
        return true;
    double *floors = malloc(3 * count * sizeof *floors), *scratch = floors + count;
    if (!floors)
        return false;
    memcpy(floors, marks, count * sizeof *floors);
    make_floor(floors, count);
    trend->first = count / 10 > 0 ? count / 10 : 1;
    trend->count = count - count / 20 - trend->first;
    const double *judged = marks + trend->first;
    look_for_cycles(judged, trend->count, scratch, trend);
    if (trend->cycles >= ULL_TREND_CYCLES && trend->count >= ULL_TREND_LEAST - 2) {
        test_rise(judged, trend->count, trend);
        judge_shape(floors, trend->first + trend->count, scratch, trend);
    }
    if (trend->cycles == SIZE_MAX)
        trend->cycles = 0;
    trend->confidence = confidence(trend);
    free(floors);
    return true;
}
