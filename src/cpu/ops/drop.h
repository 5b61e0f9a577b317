/* drop.h: what dropout draws (random.h), for a run of elements of a sample; 16 blocks of the generator side by side. */
#ifndef ULLAGE_CPU_OPS_DROP_H
#define ULLAGE_CPU_OPS_DROP_H

#include "random.h"
#include "tile.h"

enum { DROP_LANES = 16 };

struct drop {
    uint32_t seed, key;
    int64_t step, sample; /* of the first sample */
    uint32_t bound;       /* draws below are dropped */
    float factor;         /* of what stays */
};

ALWAYS struct drop drop_of(const void *generator, double rate, uint32_t key)
{
    const int64_t *from = generator;
    return (struct drop){
        .seed = (uint32_t)from[ULL_GENERATOR_SEED],
        .key = key,
        .step = from[ULL_GENERATOR_STEP],
        .sample = from[ULL_GENERATOR_SAMPLE],
        .bound = (uint32_t)(rate * 0x1p32),
        .factor = (float)(1 / (1 - rate)),
    };
}

/* The parts of a counter that all elements of a sample have in common. */
ALWAYS void drop_counter(const struct drop *of, int64_t sample, uint32_t counter[4])
{
    uint64_t n = (uint64_t)(of->sample + sample), step = (uint64_t)of->step;
    counter[1] = (uint32_t)n;
    counter[2] = (uint32_t)step;
    counter[3] = (uint32_t)(n >> 32 & 0xffff) | (uint32_t)(step >> 32 & 0xffff) << 16;
}

/* Blocks side by side: c0 has their numbers, and all four become the draws. */
ALWAYS void drop_lanes(const struct drop *of, int64_t sample, uint32_t *c0, uint32_t *c1,
                       uint32_t *c2, uint32_t *c3)
{
    uint32_t k0 = of->seed, k1 = of->key, counter[4];
    drop_counter(of, sample, counter);
    for (int i = 0; i < DROP_LANES; ++i) {
        c1[i] = counter[1];
        c2[i] = counter[2];
        c3[i] = counter[3];
    }
    for (int round = 0; round < 10; ++round) {
        SIMD for (int i = 0; i < DROP_LANES; ++i)
        {
            uint64_t even = UINT64_C(0xD2511F53) * c0[i], odd = UINT64_C(0xCD9E8D57) * c2[i];
            c0[i] = (uint32_t)(odd >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(even >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)odd;
            c3[i] = (uint32_t)even;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Blocks first to first + DROP_LANES - 1: four draws each, one behind the other. */
ALWAYS void drop_blocks(const struct drop *of, int64_t sample, uint32_t first,
                        uint32_t draws[DROP_LANES * 4])
{
    uint32_t c0[DROP_LANES], c1[DROP_LANES], c2[DROP_LANES], c3[DROP_LANES];
    for (uint32_t i = 0; i < DROP_LANES; ++i) {
        c0[i] = first + i;
    }
    drop_lanes(of, sample, c0, c1, c2, c3);
    for (int i = 0; i < DROP_LANES; ++i) {
        draws[4 * i] = c0[i];
        draws[4 * i + 1] = c1[i];
        draws[4 * i + 2] = c2[i];
        draws[4 * i + 3] = c3[i];
    }
}

/* What n elements of a sample, from `first` on, are multiplied with. */
ALWAYS void drop_factors(const struct drop *of, int64_t sample, int64_t first, int64_t n,
                         float *factors)
{
    uint32_t draws[DROP_LANES * 4];
    for (int64_t done = 0; done < n;) {
        int64_t skip = (first + done) % 4;
        int64_t part = least(n - done, DROP_LANES * 4 - skip);
        drop_blocks(of, sample, (uint32_t)((first + done) / 4), draws);
        for (int64_t i = 0; i < part; ++i) {
            factors[done + i] = draws[skip + i] >= of->bound ? of->factor : 0.0f;
        }
        done += part;
    }
}

/* The same for elements `stride` apart: a block for each. */
ALWAYS void drop_apart(const struct drop *of, int64_t sample, int64_t first, int64_t stride,
                       int64_t n, float *factors)
{
    uint32_t c0[DROP_LANES], c1[DROP_LANES], c2[DROP_LANES], c3[DROP_LANES];
    uint32_t which[DROP_LANES];
    float lanes[DROP_LANES];
    for (int64_t done = 0; done < n; done += DROP_LANES) {
        uint64_t at = (uint64_t)(first + done * stride);
        SIMD for (int i = 0; i < DROP_LANES; ++i)
        {
            uint64_t index = at + (uint64_t)i * (uint64_t)stride;
            c0[i] = (uint32_t)(index >> 2);
            which[i] = (uint32_t)index & 3;
        }
        drop_lanes(of, sample, c0, c1, c2, c3);
        SIMD for (int i = 0; i < DROP_LANES; ++i)
        {
            uint32_t w = which[i], low = c0[i], high = c2[i];
            low = w == 1 ? c1[i] : low;
            high = w == 3 ? c3[i] : high;
            lanes[i] = (w < 2 ? low : high) >= of->bound ? of->factor : 0.0f;
        }
        memcpy(factors + done, lanes, (size_t)least(DROP_LANES, n - done) * sizeof(*lanes));
    }
}

#endif
