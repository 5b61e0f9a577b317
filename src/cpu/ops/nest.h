/*
 * nest.h: loops over a tensor in the order of its memory, with other operands along, broadcast or in another order.
 *
 * Dimensions that all operands go through in one stride are made one, so that for operands of one shape and layout a
 * single loop is left.
 */
#ifndef ULLAGE_CPU_OPS_NEST_H
#define ULLAGE_CPU_OPS_NEST_H

#include "tile.h"

enum { NEST_OPERANDS = 4 };

struct nest {
    int rank, operands;
    int64_t elements;
    int64_t dims[ULL_RANK]; /* outermost first */
    int64_t strides[NEST_OPERANDS][ULL_RANK];
};

/* The dimensions of an operand, from the outermost in memory; returns the rank. */
ALWAYS int memory_order(const struct ull__cpu_operand *x, int order[ULL_RANK])
{
    static const int last[4] = {0, 2, 3, 1};
    for (int i = 0; i < x->rank; ++i) {
        order[i] = x->layout == ULL_LAYOUT_CHANNELS_LAST && x->rank == 4 ? last[i] : i;
    }
    return x->rank;
}

/* In elements, by dimension. */
ALWAYS void strides_of(const struct ull__cpu_operand *x, int64_t strides[ULL_RANK])
{
    int order[ULL_RANK], rank = memory_order(x, order);
    int64_t below = 1;
    for (int i = rank - 1; i >= 0; --i) {
        strides[order[i]] = below;
        below *= x->dims[order[i]];
    }
}

/* Adds an operand with its strides by dimension of operand 0 (before the nest is closed). */
ALWAYS void nest_strides(struct nest *nest, const int64_t *strides)
{
    memcpy(nest->strides[nest->operands++], strides, sizeof(nest->strides[0]));
}

/* Opens a nest over a shape. */
ALWAYS void nest_open(struct nest *nest, int rank, const int64_t *dims)
{
    memset(nest, 0, sizeof(*nest));
    nest->rank = rank;
    nest->elements = 1;
    for (int i = 0; i < rank; ++i) {
        nest->dims[i] = dims[i];
        nest->elements *= dims[i];
    }
}

/* Adds an operand that is broadcast to the nest's shape. */
ALWAYS void nest_broadcast(struct nest *nest, const struct ull__cpu_operand *x)
{
    int64_t own[ULL_RANK] = {0}, strides[ULL_RANK] = {0};
    strides_of(x, own);
    for (int i = 0; i < x->rank; ++i) {
        int at = nest->rank - x->rank + i;
        strides[at] = x->dims[i] == 1 ? 0 : own[i];
    }
    nest_strides(nest, strides);
}

/* Sorts dimensions from the largest stride of operand 0 to the smallest, and makes one of those that are one. */
ALWAYS void nest_close(struct nest *nest)
{
    int rank = 0;
    for (int i = 0; i < nest->rank; ++i) {
        if (nest->dims[i] == 1) {
            continue;
        }
        int at = rank++;
        int64_t dim = nest->dims[i], strides[NEST_OPERANDS];
        for (int k = 0; k < nest->operands; ++k) {
            strides[k] = nest->strides[k][i];
        }
        for (; at > 0 && nest->strides[0][at - 1] < strides[0]; --at) {
            nest->dims[at] = nest->dims[at - 1];
            for (int k = 0; k < nest->operands; ++k) {
                nest->strides[k][at] = nest->strides[k][at - 1];
            }
        }
        nest->dims[at] = dim;
        for (int k = 0; k < nest->operands; ++k) {
            nest->strides[k][at] = strides[k];
        }
    }
    int merged = 0;
    for (int i = 0; i < rank; ++i) {
        bool one = merged > 0;
        for (int k = 0; one && k < nest->operands; ++k) {
            one = nest->strides[k][merged - 1] == nest->strides[k][i] * nest->dims[i];
        }
        int at = one ? merged - 1 : merged++;
        nest->dims[at] = one ? nest->dims[at] * nest->dims[i] : nest->dims[i];
        for (int k = 0; k < nest->operands; ++k) {
            nest->strides[k][at] = nest->strides[k][i];
        }
    }
    nest->rank = merged;
    if (merged == 0) {
        nest->rank = 1;
        nest->dims[0] = 1;
    }
}

/* A run of n elements; at[k] is where operand k begins, stride[k] how far its elements are apart. */
typedef void nest_body(const void *context, const int64_t *at, const int64_t *stride, int64_t n);

/* Calls body for runs of at most `longest`, over the thread's part. */
ALWAYS void nest_run(const struct nest *nest, int64_t longest, int thread, int threads,
                     nest_body *body, const void *context)
{
    int64_t begin, end, inner = nest->dims[nest->rank - 1], place[ULL_RANK];
    int64_t at[NEST_OPERANDS] = {0}, stride[NEST_OPERANDS] = {0};
    ull__part(nest->elements, nest->rank == 1 || inner % UNIT == 0 ? UNIT : inner, thread, threads,
              &begin, &end);
    if (begin >= end) {
        return;
    }
    int64_t rest = begin;
    for (int i = nest->rank - 1; i >= 0; --i) {
        place[i] = rest % nest->dims[i];
        rest /= nest->dims[i];
        for (int k = 0; k < nest->operands; ++k) {
            at[k] += place[i] * nest->strides[k][i];
        }
    }
    for (int k = 0; k < nest->operands; ++k) {
        stride[k] = nest->strides[k][nest->rank - 1];
    }
    while (begin < end) {
        int last = nest->rank - 1;
        int64_t n = least(least(inner - place[last], end - begin), longest);
        body(context, at, stride, n);
        begin += n;
        place[last] += n;
        for (int k = 0; k < nest->operands; ++k) {
            at[k] += n * stride[k];
        }
        for (int i = last; i > 0 && place[i] == nest->dims[i]; --i) {
            place[i] = 0;
            ++place[i - 1];
            for (int k = 0; k < nest->operands; ++k) {
                at[k] += nest->strides[k][i - 1] - nest->dims[i] * nest->strides[k][i];
            }
        }
    }
}

/* n elements of an operand as f32: in place if they lie so, else in the tile. */
ALWAYS const float *nest_read(enum ull__type type, const void *from, int64_t at, int64_t stride,
                              int64_t n, float *tile)
{
    if (stride == 0) {
        load_any_f32(type, from, at, 1, 1, tile);
        float value = tile[0];
        for (int64_t i = 1; i < n; ++i) {
            tile[i] = value;
        }
        return tile;
    }
    if (stride == 1 && type == ULL_TYPE_F32) {
        return (const float *)from + at;
    }
    if (stride == 1 && is_real(type)) {
        return read_f32(type, from, at, n, tile);
    }
    load_any_f32(type, from, at, stride, n, tile);
    return tile;
}

/* Where to put n elements that nest_wrote brings to their places, `stride` apart: there, or into the tile. */
ALWAYS float *nest_write(enum ull__type type, void *to, int64_t at, int64_t stride, float *tile)
{
    return stride == 1 ? write_f32(type, to, at, tile) : tile;
}

ALWAYS void nest_wrote(enum ull__type type, void *to, int64_t at, int64_t stride, const float *tile,
                       int64_t n)
{
    if (stride == 1) {
        wrote_f32(type, to, at, tile, n);
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        set_f32(type, to, at + i * stride, tile[i]);
    }
}

/* A nest over output 0 with inputs 0 to count - 1 broadcast to it. */
ALWAYS void nest_of(struct nest *nest, const struct ull__kernel *kernel, int count)
{
    int64_t strides[ULL_RANK] = {0};
    nest_open(nest, kernel->outputs[0].rank, kernel->outputs[0].dims);
    strides_of(&kernel->outputs[0], strides);
    nest_strides(nest, strides);
    for (int i = 0; i < count; ++i) {
        nest_broadcast(nest, &kernel->inputs[i]);
    }
    nest_close(nest);
}

#endif
