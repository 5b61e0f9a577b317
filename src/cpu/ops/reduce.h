/*
 * reduce.h: the dimensions of a reduction: what is kept and what is gone, in the order of x in memory.
 */
#ifndef ULLAGE_CPU_OPS_REDUCE_H
#define ULLAGE_CPU_OPS_REDUCE_H

#include "nest.h"

/* Some dimensions of a nest of x and y, as a list of places. */
struct places {
    int rank;
    int64_t count;
    int64_t dims[ULL_RANK], x[ULL_RANK], y[ULL_RANK];
};

ALWAYS void place_at(const struct places *places, int64_t at, int64_t *x, int64_t *y)
{
    int64_t in_x = 0, in_y = 0;
    for (int i = places->rank - 1; i > 0; --i) {
        int64_t place = at % places->dims[i];
        at /= places->dims[i];
        in_x += place * places->x[i];
        in_y += place * places->y[i];
    }
    if (places->rank > 0) {
        in_x += at * places->x[0];
        in_y += at * places->y[0];
    }
    *x = in_x;
    *y = in_y;
}

ALWAYS void places_add(struct places *places, int64_t dim, int64_t x, int64_t y)
{
    places->dims[places->rank] = dim;
    places->x[places->rank] = x;
    places->y[places->rank++] = y;
    places->count *= dim;
}

/* The strides of a reduced tensor by dimension of the whole one; 0 where it is reduced. */
ALWAYS void reduced_strides(const struct ull__cpu_operand *y, int rank, uint32_t axes, bool keep,
                            int64_t strides[ULL_RANK])
{
    int64_t own[ULL_RANK] = {0};
    strides_of(y, own);
    for (int i = 0, at = 0; i < rank; ++i) {
        bool gone = (axes >> i & 1) != 0;
        strides[i] = gone ? 0 : own[at];
        at += !gone || keep;
    }
}

/* A nest of x and y, and which of its dimensions are kept and gone. */
ALWAYS void reduction_of(struct nest *nest, const struct ull__cpu_operand *x,
                         const struct ull__cpu_operand *y, const struct ull__reduce_attrs *attrs)
{
    int64_t strides[ULL_RANK] = {0};
    nest_open(nest, x->rank, x->dims);
    strides_of(x, strides);
    nest_strides(nest, strides);
    reduced_strides(y, x->rank, attrs->axes, attrs->keep, strides);
    nest_strides(nest, strides);
    nest_close(nest);
}

#endif
