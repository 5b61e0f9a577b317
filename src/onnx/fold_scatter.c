/* fold_scatter.c: parts of a tensor replaced by others, of what is known: how exporters write x[1:3] = 0. */
#include <string.h>

#include "onnx_private.h"

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
