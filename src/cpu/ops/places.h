/*
 * places.h: copies of elements of any whole number of bytes from places to places: runs by memcpy, and where the one's
 * innermost dimension is not the other's, blocks that stay in the cache.
 */
#ifndef ULLAGE_CPU_OPS_PLACES_H
#define ULLAGE_CPU_OPS_PLACES_H

#include "nest.h"

enum { SIDE = 32 }; /* of a block */

/* Operand 0 of the nest is what is dense, 1 the other; `out`: which of both is written. */
struct copying {
    struct nest nest;
    int64_t size; /* of an element */
    char *to;
    const char *from;
    int out;
};

#define COPY_ELEMENTS(c_type)                                                                      \
    for (int64_t i = 0; i < n; ++i) {                                                              \
        ((c_type *)(void *)to)[i * to_stride] =                                                    \
            ((const c_type *)(const void *)from)[i * from_stride];                                 \
    }                                                                                              \
    break;

ALWAYS void copy_run(int64_t size, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t n)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1:
        COPY_ELEMENTS(uint8_t)
    case 2:
        COPY_ELEMENTS(uint16_t)
    case 4:
        COPY_ELEMENTS(uint32_t)
    default:
        COPY_ELEMENTS(uint64_t)
    }
}

ALWAYS void copy_body(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct copying *of = context;
    int to = of->out, from = 1 - of->out;
    copy_run(of->size, of->to + at[to] * of->size, stride[to], of->from + at[from] * of->size,
             stride[from], n);
}

/* The dimension in which operand 1 is dense, if that is not the innermost and blocks are worth it; else -1. */
ALWAYS int crossing(const struct nest *nest)
{
    int last = nest->rank - 1, found = -1;
    for (int i = 0; i < last; ++i) {
        found = nest->strides[1][i] == 1 && nest->dims[i] >= 4 ? i : found;
    }
    return nest->strides[1][last] > 1 && nest->dims[last] >= 4 && nest->strides[0][last] == 1 ? found
                                                                                              : -1;
}

/* A block: rows along dimension `cross`, columns along the innermost. */
ALWAYS void copy_block(const struct copying *of, int cross, const int64_t *at, int64_t rows,
                       int64_t columns)
{
    const struct nest *nest = &of->nest;
    int last = nest->rank - 1, to = of->out, from = 1 - of->out;
    for (int64_t i = 0; i < rows; ++i) {
        int64_t to_at = at[to] + i * nest->strides[to][cross];
        int64_t from_at = at[from] + i * nest->strides[from][cross];
        copy_run(of->size, of->to + to_at * of->size, nest->strides[to][last],
                 of->from + from_at * of->size, nest->strides[from][last], columns);
    }
}

ALWAYS void copy_crossing(const struct copying *of, int cross, int thread, int threads)
{
    const struct nest *nest = &of->nest;
    int last = nest->rank - 1;
    int64_t rows = (nest->dims[cross] + SIDE - 1) / SIDE,
            columns = (nest->dims[last] + SIDE - 1) / SIDE;
    int64_t others = nest->elements / (nest->dims[cross] * nest->dims[last]), begin, end;
    ull__part(others * rows * columns, 1, thread, threads, &begin, &end);
    for (int64_t unit = begin; unit < end; ++unit) {
        int64_t left = unit % columns * SIDE, top = unit / columns % rows * SIDE;
        int64_t rest = unit / columns / rows, at[2] = {0, 0};
        for (int i = last - 1; i >= 0; --i) {
            int64_t place = i == cross ? top : rest % nest->dims[i];
            rest = i == cross ? rest : rest / nest->dims[i];
            at[0] += place * nest->strides[0][i];
            at[1] += place * nest->strides[1][i];
        }
        at[0] += left * nest->strides[0][last];
        at[1] += left * nest->strides[1][last];
        copy_block(of, cross, at, least(SIDE, nest->dims[cross] - top),
                   least(SIDE, nest->dims[last] - left));
    }
}

/* The thread's part of a copy; closes the nest. */
ALWAYS void copy_places(struct copying *of, int thread, int threads)
{
    nest_close(&of->nest);
    if (of->nest.elements == 0) {
        return;
    }
    int cross = crossing(&of->nest);
    if (cross >= 0) {
        copy_crossing(of, cross, thread, threads);
    } else {
        nest_run(&of->nest, INT64_MAX, thread, threads, copy_body, of);
    }
}

/* Opens a copy over a shape between operands whose elements are `a` (dense) and `b` apart by dimension. */
ALWAYS void copy_open(struct copying *of, enum ull__type type, int rank, const int64_t *dims,
                      const int64_t *a, const int64_t *b, int out)
{
    nest_open(&of->nest, rank, dims);
    nest_strides(&of->nest, a);
    nest_strides(&of->nest, b);
    of->size = size_of(type);
    of->out = out;
}

ALWAYS ull_status prepare_bytes(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                                struct ull_error *err)
{
    (void)library;
    return kernel->outputs[0].type != ULL_TYPE_BIT ? ULL_OK : no_types(kernel, err);
}

#endif
