/*
 * tile.h: how kernels read and write elements: runs of them as f32 (or whole numbers) in tiles on the stack, f32 itself in place.
 *
 * A run that is f32 and dense is not copied. Threads begin at multiples of UNIT, so that which element is done by vector
 * instructions, and with it each bit, does not depend on how many threads there are.
 */
#ifndef ULLAGE_CPU_OPS_TILE_H
#define ULLAGE_CPU_OPS_TILE_H

#include "../kernel.h"
#include "error.h"
#include "half.h"

enum { TILE = 1024, UNIT = 64 };

#define SIMD _Pragma("omp simd")
#define ALWAYS static inline __attribute__((always_inline, unused))

/* X(type, C type) of all types but the floating ones of 16 bits and those of less than a byte. */
#define PLAIN_TYPES(X)                                                                             \
    X(F32, float)                                                                                  \
    X(F64, double)                                                                                 \
    X(I64, int64_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(I16, int16_t)                                                                                \
    X(I8, int8_t)                                                                                  \
    X(U8, uint8_t)                                                                                 \
    X(U16, uint16_t)                                                                               \
    X(U32, uint32_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(BOOL, uint8_t)

ALWAYS int64_t size_of(enum ull__type type)
{
    return ull__type_bits(type) / 8;
}

/* f32, bf16, f16: what is computed in f32. */
ALWAYS bool is_real(enum ull__type type)
{
    return type == ULL_TYPE_F32 || type == ULL_TYPE_BF16 || type == ULL_TYPE_F16;
}

ALWAYS bool is_index(enum ull__type type)
{
    return type == ULL_TYPE_I32 || type == ULL_TYPE_I64;
}

ALWAYS int64_t index_at(enum ull__type type, const void *from, int64_t at)
{
    return type == ULL_TYPE_I32 ? ((const int32_t *)from)[at] : ((const int64_t *)from)[at];
}

ALWAYS int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

ALWAYS int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* n elements from `at` on as f32: where they lie, or in the tile. For is_real types. */
ALWAYS const float *read_f32(enum ull__type type, const void *from, int64_t at, int64_t n, float *tile)
{
    if (type == ULL_TYPE_F32) {
        return (const float *)from + at;
    }
    ull__load_f32(type, (const uint16_t *)from + at, tile, n);
    return tile;
}

/* Where to put n elements that `wrote_f32` brings to `at`: their place, or the tile. */
ALWAYS float *write_f32(enum ull__type type, void *to, int64_t at, float *tile)
{
    return type == ULL_TYPE_F32 ? (float *)to + at : tile;
}

ALWAYS void wrote_f32(enum ull__type type, void *to, int64_t at, const float *tile, int64_t n)
{
    if (type != ULL_TYPE_F32) {
        ull__store_f32(type, tile, (uint16_t *)to + at, n);
    }
}

/* One element. */
ALWAYS float f32_at(enum ull__type type, const void *from, int64_t at)
{
    return type == ULL_TYPE_F32    ? ((const float *)from)[at]
           : type == ULL_TYPE_BF16 ? ull__bf16_load(((const uint16_t *)from)[at])
                                   : ull__f16_load(((const uint16_t *)from)[at]);
}

ALWAYS void set_f32(enum ull__type type, void *to, int64_t at, float value)
{
    if (type == ULL_TYPE_F32) {
        ((float *)to)[at] = value;
    } else {
        ((uint16_t *)to)[at] = type == ULL_TYPE_BF16 ? ull__bf16_store(value) : ull__f16_store(value);
    }
}

/* n elements, `stride` apart, of any type but bits. */
ALWAYS void load_any_f32(enum ull__type type, const void *from, int64_t at, int64_t stride,
                         int64_t n, float *to)
{
    switch (type) {
#define X(name, c)                                                                                 \
    case ULL_TYPE_##name:                                                                          \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            to[i] = (float)((const c *)from)[at + i * stride];                                     \
        }                                                                                          \
        break;
        PLAIN_TYPES(X)
#undef X
    case ULL_TYPE_BF16:
        for (int64_t i = 0; i < n; ++i) {
            to[i] = ull__bf16_load(((const uint16_t *)from)[at + i * stride]);
        }
        break;
    default:
        for (int64_t i = 0; i < n; ++i) {
            to[i] = ull__f16_load(((const uint16_t *)from)[at + i * stride]);
        }
        break;
    }
}

/* The same as whole numbers, for types that are. */
ALWAYS void load_any_i64(enum ull__type type, const void *from, int64_t at, int64_t stride,
                         int64_t n, int64_t *to)
{
    switch (type) {
#define X(name, c)                                                                                 \
    case ULL_TYPE_##name:                                                                          \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            to[i] = (int64_t)((const c *)from)[at + i * stride];                                   \
        }                                                                                          \
        break;
        PLAIN_TYPES(X)
#undef X
    default:
        break;
    }
}

ALWAYS void store_any_i64(enum ull__type type, const int64_t *from, void *to, int64_t at, int64_t n)
{
    switch (type) {
    case ULL_TYPE_BOOL:
        for (int64_t i = 0; i < n; ++i) {
            ((uint8_t *)to)[at + i] = from[i] != 0;
        }
        break;
    case ULL_TYPE_I64:
    case ULL_TYPE_U64:
        memcpy((int64_t *)to + at, from, (size_t)n * sizeof(*from));
        break;
    case ULL_TYPE_I32:
    case ULL_TYPE_U32:
        for (int64_t i = 0; i < n; ++i) {
            ((uint32_t *)to)[at + i] = (uint32_t)from[i];
        }
        break;
    case ULL_TYPE_I16:
    case ULL_TYPE_U16:
        for (int64_t i = 0; i < n; ++i) {
            ((uint16_t *)to)[at + i] = (uint16_t)from[i];
        }
        break;
    default:
        for (int64_t i = 0; i < n; ++i) {
            ((uint8_t *)to)[at + i] = (uint8_t)from[i];
        }
        break;
    }
}

/* Fails with the operator's name and types, for `prepare`. */
ALWAYS ull_status no_types(const struct ull__kernel *kernel, struct ull_error *err)
{
    return ull__fail(err, ULL_E_NOT_FOUND, "%s from %s to %s: not on the processor", kernel->op->name,
                     kernel->input_count > 0 ? ull__type_text(kernel->inputs[0].type) : "nothing",
                     kernel->output_count > 0 ? ull__type_text(kernel->outputs[0].type) : "nothing");
}

/* Whether all operands that are there are computed in f32. */
ALWAYS bool all_real(const struct ull__kernel *kernel)
{
    bool real = true;
    for (int i = 0; i < kernel->input_count; ++i) {
        real &= !kernel->inputs[i].there || is_real(kernel->inputs[i].type);
    }
    for (int i = 0; i < kernel->output_count; ++i) {
        real &= !kernel->outputs[i].there || is_real(kernel->outputs[i].type);
    }
    return real;
}

ALWAYS ull_status prepare_real(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                               struct ull_error *err)
{
    (void)library;
    return all_real(kernel) ? ULL_OK : no_types(kernel, err);
}

#endif
