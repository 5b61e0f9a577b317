/* order.c: see order.h. */
#include "order.h"

enum { ROUNDS = 6 };

uint64_t ull__order(uint64_t n, uint64_t key, uint64_t index)
{
    if (n < 2)
        return 0;
    unsigned int half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    const uint64_t mask = half == 32 ? 0xffffffffu : (UINT64_C(1) << half) - 1;
    uint64_t value = index;
    do {
        uint64_t left = value >> half, right = value & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (ull__mix(key + round, right) & mask);
            left = right;
            right = next;
        }
        value = left << half | right;
    } while (value >= n);
    return value;
}
