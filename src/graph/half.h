/*
 * half.h: 16-bit storage of f32 arithmetic: rounds to nearest, ties to even; NaN stays NaN; f16 overflows to infinity.
 *
 * Written so that loops over it become vector instructions. f16 needs the F16C instructions to be fast.
 */
#ifndef ULLAGE_GRAPH_HALF_H
#define ULLAGE_GRAPH_HALF_H

#include <stdint.h>
#include <string.h>

#include "type.h"

static inline float ull__bf16_load(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static inline uint16_t ull__bf16_store(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float ull__f16_load(uint16_t bits)
{
    _Float16 half;
    memcpy(&half, &bits, sizeof(half));
    return (float)half;
}

static inline uint16_t ull__f16_store(float value)
{
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof(bits));
    return bits;
}

/* n elements of a floating type to or from f32; a copy for f32. */
static inline void ull__load_f32(enum ull__type type, const void *from, float *to, int64_t n)
{
    if (type == ULL_TYPE_F32) {
        memcpy(to, from, (size_t)n * sizeof(float));
    } else if (type == ULL_TYPE_BF16) {
        const uint16_t *bits = from;
        for (int64_t i = 0; i < n; ++i) {
            to[i] = ull__bf16_load(bits[i]);
        }
    } else {
        const uint16_t *bits = from;
        for (int64_t i = 0; i < n; ++i) {
            to[i] = ull__f16_load(bits[i]);
        }
    }
}

static inline void ull__store_f32(enum ull__type type, const float *from, void *to, int64_t n)
{
    if (type == ULL_TYPE_F32) {
        memcpy(to, from, (size_t)n * sizeof(float));
    } else if (type == ULL_TYPE_BF16) {
        uint16_t *bits = to;
        for (int64_t i = 0; i < n; ++i) {
            bits[i] = ull__bf16_store(from[i]);
        }
    } else {
        uint16_t *bits = to;
        for (int64_t i = 0; i < n; ++i) {
            bits[i] = ull__f16_store(from[i]);
        }
    }
}

/* Element i of an array of a floating type (f32, f16, bf16). */
static inline void ull__put_float(enum ull__type type, void *array, int64_t i, float value)
{
    size_t width = type == ULL_TYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    ull__store_f32(type, &value, (char *)array + (size_t)i * width, 1);
}

#endif
