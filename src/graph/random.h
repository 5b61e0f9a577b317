/*
 * random.h: what dropout draws, for every implementation of it alike: a function, not a state.
 *
 * The draw for an element depends on the seed, the layer (attrs.dropout.key), the step, the sample's number in the
 * whole run of a step, and the element's place within the sample; on nothing else. So a recomputed layer, a batch in
 * other micro-batches, a gradient and another device all draw alike, and nothing has to be kept.
 *
 * The input "generator" (ull__graph_generator) is i64[3]: seed, step, and the number of the first sample of this
 * micro-batch within the batch of the step, over all devices. The host writes it before each micro-step. The
 * first dimension of what is dropped is samples: element (s, i), i counting in rows over the rest, is
 *
 *     block  = philox(counter = {low 32 of i / 4, low 32 of n, low 32 of step,
 *                                bits 32 to 47 of n, and above them bits 32 to 47 of step},
 *                     key     = {low 32 of seed, key of the layer})       with n = first sample + s
 *     draw   = block[i % 4]
 *     it stays, times 1 / (1 - rate), if draw >= floor(rate * 2^32); else it is 0
 *
 * Attention drops probabilities: i counts in rows over [heads, queries, keys]. A tensor of rank 0 is one sample.
 * i is below 2^34 and n and step are below 2^48.
 *
 * Source: Parallel Random Numbers: As Easy as 1, 2, 3 (Salmon et al., 2011): Philox4x32 with ten rounds.
 */
#ifndef ULLAGE_GRAPH_RANDOM_H
#define ULLAGE_GRAPH_RANDOM_H

#include <stdint.h>

enum { ULL_GENERATOR_SEED, ULL_GENERATOR_STEP, ULL_GENERATOR_SAMPLE, ULL_GENERATOR_SIZE };

/* Four draws. */
static inline void ull__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t draws[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
        uint64_t even = UINT64_C(0xD2511F53) * c0, odd = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(odd >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(even >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)odd;
        c3 = (uint32_t)even;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    draws[0] = c0;
    draws[1] = c1;
    draws[2] = c2;
    draws[3] = c3;
}

#endif
