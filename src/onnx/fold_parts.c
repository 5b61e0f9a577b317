/*
 * fold_parts.c: tensors whose elements are known put together, taken apart by lists of places, and with parts replaced, which
 * is how exporters write x[1:3] = 0.
 */
#include <string.h>

#include "onnx_private.h"

bool fold_concat(const struct call *call, int axis)
{
    struct reader *r = call->reader;
    struct value *first = input(call, 0);
    ull__dim dims[ULL_RANK];
    if (first == NULL || !all_known(call)) {
        return false;
    }
    memcpy(dims, first->dims, sizeof(dims));
    dims[axis] = 0;
    int64_t before = 1, after = 1;
    for (int i = 0; i < first->rank; ++i) {
        before *= i < axis ? first->dims[i] : 1;
        after *= i > axis ? first->dims[i] : 1;
    }
    for (int i = 0; (size_t)i < call->node->n_input; ++i) {
        const struct value *part = input(call, i);
        if (part == NULL || part->rank != first->rank || part->type != first->type ||
            part->count != before * part->dims[axis] * after) {
            return false;
        }
        dims[axis] += part->dims[axis];
    }
    union cell *cells = cells_new(r, cells_count(first->rank, dims));
    if (cells == NULL) {
        return false;
    }
    union cell *to = cells;
    for (int64_t row = 0; row < before; ++row) {
        for (int i = 0; (size_t)i < call->node->n_input; ++i) {
            const struct value *part = input(call, i);
            int64_t run = part->dims[axis] * after;
            memcpy(to, part->cells + row * run, (size_t)run * sizeof(*to));
            to += run;
        }
    }
    put_cells(call, first->type, first->rank, dims, to - cells, cells);
    return true;
}

bool fold_gather(const struct call *call, int axis)
{
    struct reader *r = call->reader;
    struct value *x = input(call, 0), *index = input(call, 1);
    ull__dim dims[2 * ULL_RANK];
    int rank = 0;
    if (x == NULL || index == NULL || x->weight || !value_cells(r, x) || !value_cells(r, index) ||
        x->rank + index->rank - 1 > ULL_RANK) {
        return false;
    }
    int64_t before = 1, after = 1;
    for (int i = 0; i < x->rank; ++i) {
        for (int j = 0; i == axis && j < index->rank; ++j) {
            dims[rank++] = index->dims[j];
        }
        if (i != axis) {
            dims[rank++] = x->dims[i];
        }
        before *= i < axis ? x->dims[i] : 1;
        after *= i > axis ? x->dims[i] : 1;
    }
    int64_t count = cells_count(rank, dims);
    union cell *cells = cells_new(r, count), *to = cells;
    for (int64_t row = 0; cells != NULL && row < before; ++row) {
        for (int64_t i = 0; i < index->count; ++i) {
            int64_t at = index->cells[i].whole;
            at += at < 0 ? x->dims[axis] : 0;
            if (at < 0 || at >= x->dims[axis]) {
                call_fail(call, "element %lld of %lld", (long long)at, (long long)x->dims[axis]);
                return true;
            }
            memcpy(to, x->cells + (row * x->dims[axis] + at) * after, (size_t)after * sizeof(*to));
            to += after;
        }
    }
    put_cells(call, x->type, rank, dims, count, cells);
    return cells != NULL;
}

/* Where a part begins, by a list of places in the first dimensions. False: outside. */
static bool place_of(const struct value *x, const union cell *places, int64_t depth,
                     const int64_t *strides, int64_t *to)
{
    *to = 0;
    for (int64_t j = 0; j < depth; ++j) {
        int64_t at = places[j].whole;
        at += at < 0 ? x->dims[j] : 0;
        if (at < 0 || at >= x->dims[j]) {
            return false;
        }
        *to += at * strides[j];
    }
    return true;
}

static bool fold_scatter(const struct call *call)
{
    struct reader *r = call->reader;
    struct value *x = input(call, 0), *index = input(call, 1), *parts = input(call, 2);
    if (x == NULL || index == NULL || parts == NULL || x->weight || parts->weight ||
        index->rank < 1 || ull__type_is_float(index->type) || x->type != parts->type ||
        !value_cells(r, x) || !value_cells(r, index) || !value_cells(r, parts)) {
        return false;
    }
    int64_t depth = index->dims[index->rank - 1], part = 1, strides[ULL_RANK], to;
    if (depth < 1 || depth > x->rank) {
        return false;
    }
    strides_of(x->rank, x->dims, strides);
    for (int64_t i = depth; i < x->rank; ++i) {
        part *= x->dims[i];
    }
    int64_t count = index->count / depth;
    union cell *cells = count * part == parts->count ? cells_new(r, x->count) : NULL;
    if (cells == NULL) {
        return false;
    }
    memcpy(cells, x->cells, (size_t)x->count * sizeof(*cells));
    for (int64_t i = 0; i < count; ++i) {
        if (!place_of(x, index->cells + i * depth, depth, strides, &to)) {
            return false;
        }
        memcpy(cells + to, parts->cells + i * part, (size_t)part * sizeof(*cells));
    }
    put_cells(call, x->type, x->rank, x->dims, x->count, cells);
    return true;
}

void translate_scatter(struct call *call)
{
    const Onnx__AttributeProto *how = attribute(call, "reduction");
    if ((how != NULL && !attribute_is(call, "reduction", "none", true)) || !fold_scatter(call)) {
        call_fail(call, "only numbers that are known when the model is read are supported");
    }
}
