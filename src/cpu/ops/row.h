/*
 * row.h: what softmax and losses do with a row of numbers: its maximum, the sum of its exponentials.
 *
 * Sums are f32 in vectors over a tile and f64 over tiles.
 */
#ifndef ULLAGE_CPU_OPS_ROW_H
#define ULLAGE_CPU_OPS_ROW_H

#include "tile.h"
#include "vmath.h"

/* The larger one; NaN if there is one. */
ALWAYS float row_max(const float *x, int64_t n, float most)
{
    float lanes[32];
    int64_t i = 0;
    for (int j = 0; j < 32; ++j) {
        lanes[j] = most;
    }
    for (; i + 32 <= n; i += 32) {
        SIMD for (int j = 0; j < 32; ++j)
        {
            float v = x[i + j], a = lanes[j];
            lanes[j] = v > a || v != v ? v : a;
        }
    }
    for (int j = 0; i < n; ++i, ++j) {
        lanes[j] = x[i] > lanes[j] || x[i] != x[i] ? x[i] : lanes[j];
    }
    for (int j = 0; j < 32; ++j) {
        most = lanes[j] > most || lanes[j] != lanes[j] ? lanes[j] : most;
    }
    return most;
}

/* The sum of exp(x - most). */
ALWAYS float row_sum(const float *x, int64_t n, float most)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
        sum += exp_low(x[i] - most);
    }
    return sum;
}

ALWAYS float row_add(const float *x, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
        sum += x[i];
    }
    return sum;
}

/* Maximum and sum of exponentials of n elements in memory. A row of minus infinity alone has the sum 0. */
ALWAYS float row_statistics(enum ull__type type, const void *x, int64_t at, int64_t n, float *tile,
                            double *sum)
{
    float most = -INFINITY;
    double total = 0;
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t part = least(TILE, n - i);
        most = row_max(read_f32(type, x, at + i, part, tile), part, most);
    }
    for (int64_t i = 0; i < n && most > -INFINITY; i += TILE) {
        int64_t part = least(TILE, n - i);
        total += (double)row_sum(read_f32(type, x, at + i, part, tile), part, most);
    }
    *sum = most != most ? (double)most : total;
    return most;
}

#endif
