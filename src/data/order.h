/*
 * order.h: the order of an epoch and whatever is drawn, computed from numbers alone.
 *
 * ull__order is a permutation of 0 … n-1: a Feistel network over the next even number of bits, walked
 * until it lands below n (four steps at most on average). It needs no memory, so that a position in a
 * training restores its order. Good enough to shuffle; no cryptography.
 */
#ifndef ULLAGE_DATA_ORDER_H
#define ULLAGE_DATA_ORDER_H

#include <stdint.h>

/* A well mixed number of two. */
static inline uint64_t ull__mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b * 0xd1342543de82ef95u)) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A row of numbers from a seed (splitmix64). */
struct ull__draws {
    uint64_t state;
};

static inline uint64_t ull__draw(struct ull__draws *draws)
{
    return ull__mix(draws->state += 0x9e3779b97f4a7c15u, 0);
}

/* 0 <= x < 1 */
static inline double ull__draw_unit(struct ull__draws *draws)
{
    return (double)(ull__draw(draws) >> 11) * 0x1p-53;
}

/* 0 <= x < n; n is at least 1. The bias is below n / 2^64. */
static inline uint64_t ull__draw_below(struct ull__draws *draws, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)ull__draw(draws) * n) >> 64);
}

/* Where the index-th of n goes under this key. index < n. */
uint64_t ull__order(uint64_t n, uint64_t key, uint64_t index);

#endif
