/* ops_shape.c: operators that move elements or tell their number. */
#include <string.h>

#include "onnx_private.h"

static int64_t elements_of_list(const Onnx__AttributeProto *list)
{
    return (int64_t)(list->n_ints > 0 ? list->n_ints : list->n_floats);
}

/* A number or a list of numbers in an attribute of its own. */
static void put_list(struct call *call, const Onnx__AttributeProto *list, bool reals, bool alone)
{
    enum ull__type type = reals ? ULL_TYPE_F32 : ULL_TYPE_I64;
    int64_t count = alone ? 1 : elements_of_list(list);
    union cell *cells = cells_new(call->reader, count);
    for (int64_t i = 0; cells != NULL && i < count; ++i) {
        if (reals) {
            cells[i].real = (double)(alone ? list->f : list->floats[i]);
        } else {
            cells[i].whole = alone ? list->i : list->ints[i];
        }
    }
    put_cells(call, type, alone ? 0 : 1, &count, count, cells);
}

void translate_constant(struct call *call)
{
    const Onnx__AttributeProto *found;
    if ((found = attribute(call, "value")) != NULL && found->t != NULL) {
        struct value value = {
            .name = call->node->output[0], .initializer = found->t, .tensor = ULL_NONE};
        if (!value_load(call->reader, &value)) {
            return;
        }
        value.weight = false;
        if (!value_cells(call->reader, &value)) {
            call_fail(call, "%lld elements are more than a constant may have",
                      (long long)value.count);
            return;
        }
        put_cells(call, value.type, value.rank, value.dims, value.count, value.cells);
    } else if ((found = attribute(call, "value_int")) != NULL) {
        put_list(call, found, false, true);
    } else if ((found = attribute(call, "value_float")) != NULL) {
        put_list(call, found, true, true);
    } else if ((found = attribute(call, "value_ints")) != NULL) {
        put_list(call, found, false, false);
    } else if ((found = attribute(call, "value_floats")) != NULL) {
        put_list(call, found, true, false);
    } else {
        call_fail(call, "it holds no tensor of numbers");
    }
}

static bool shape_given(struct call *call, int i, ull__dim *dims, int *rank)
{
    if (!wholes(call, i, ULL_RANK, dims, rank)) {
        return false;
    }
    for (int j = 0; j < *rank; ++j) {
        if (ull__dim_is_const(dims[j]) && dims[j] < -1) {
            call_fail(call, "dimension %d is %lld", j, (long long)dims[j]);
            return false;
        }
    }
    return true;
}

void translate_constant_of_shape(struct call *call)
{
    ull__dim dims[ULL_RANK];
    int rank;
    const Onnx__AttributeProto *found = attribute(call, "value");
    struct value filling = {.name = "", .type = ULL_TYPE_F32, .count = 1, .tensor = ULL_NONE};
    union cell zero = {.real = 0};
    filling.cells = &zero;
    if (found != NULL && found->t != NULL) {
        filling.cells = NULL;
        filling.initializer = found->t;
        if (!value_load(call->reader, &filling) || filling.count != 1 ||
            !value_cells(call->reader, &filling)) {
            call_fail(call, "its value is not one number");
            return;
        }
    }
    filling.weight = false;
    if (!shape_given(call, 0, dims, &rank) ||
        fold_fill(call, filling.type, rank, dims, filling.cells[0])) {
        return;
    }
    filling.rank = 0;
    put(call, 0, ull__expand(call->graph, value_tensor(call->reader, &filling), rank, dims));
}

void translate_shape(struct call *call)
{
    struct value *x = input(call, 0);
    if (x == NULL) {
        return;
    }
    int64_t begin = attribute_int(call, "start", 0), end = attribute_int(call, "end", x->rank);
    begin += begin < 0 ? x->rank : 0;
    end += end < 0 ? x->rank : 0;
    begin = begin < 0 ? 0 : begin > x->rank ? x->rank : begin;
    end = end < begin ? begin : end > x->rank ? x->rank : end;
    int64_t count = end - begin;
    union cell *cells = cells_new(call->reader, count);
    for (int64_t i = 0; cells != NULL && i < count; ++i) {
        cells[i].whole = x->dims[begin + i];
    }
    put_cells(call, ULL_TYPE_I64, 1, &count, count, cells);
}

void translate_size(struct call *call)
{
    struct value *x = input(call, 0);
    union cell *cells = cells_new(call->reader, 1);
    if (x != NULL && cells != NULL) {
        cells[0].whole = ull__dims_product(call->graph, x->rank, x->dims);
        put_cells(call, ULL_TYPE_I64, 0, NULL, 1, cells);
    }
}

void translate_range(struct call *call)
{
    double begin, end, step;
    struct value *first = input(call, 0);
    if (first == NULL || !scalar(call, 0, &begin) || !scalar(call, 1, &end) ||
        !scalar(call, 2, &step) || step == 0) {
        call_fail(call, "begin, end and step are not all known");
        return;
    }
    double wanted = (end - begin) / step;
    ull__dim count = wanted <= 0 ? 0 : wanted > 1e9 ? 1000000000 : (ull__dim)wanted;
    count += wanted > (double)count ? 1 : 0;
    union cell *cells = cells_new(call->reader, count);
    for (int64_t i = 0; cells != NULL && i < count; ++i) {
        double number = begin + (double)i * step;
        if (ull__type_is_float(first->type)) {
            cells[i].real = number;
        } else {
            cells[i].whole = (int64_t)number;
        }
    }
    if (cells == NULL) {
        call_fail(call, "%lld numbers are more than are supported", (long long)count);
        return;
    }
    put_cells(call, first->type, 1, &count, count, cells);
}

/* Where a dimension is left open (see below): the first one is a multiple of the batch, if it was before and can be. */
static void follow_batch_beside(struct call *call, const struct value *x, int rank, ull__dim *dims)
{
    struct ull__graph *g = call->graph;
    int64_t first = call->reader->first;
    if (first == 0 || rank == 0 || x->rank == 0 || dims[0] == ULL_NONE ||
        !ull__dim_is_const(dims[0]) || dims[0] % first != 0 || ull__dim_is_const(x->dims[0])) {
        return;
    }
    ull__dim begin = ull__dim_mul(g->symbols, g->batch, dims[0] / first), others = begin;
    for (int i = 1; i < rank; ++i) {
        others = dims[i] == ULL_NONE ? others : ull__dim_mul(g->symbols, others, dims[i]);
    }
    ull__dim all = ull__dims_product(g, x->rank, x->dims);
    ull__dim rest = others == 0 ? 0 : ull__dim_div(g->symbols, all, others);
    if (others != 0 && same_size(call->reader, ull__dim_mul(g->symbols, rest, others), all)) {
        dims[0] = begin;
    }
}

/*
 * A shape that was written with the number of samples that the file was made with: one dimension becomes a multiple of
 * the batch, so that the elements are as many as there are. Which one is a guess where several would do.
 */
static bool follow_batch(struct call *call, const struct value *x, int rank, ull__dim *dims)
{
    struct ull__graph *g = call->graph;
    ull__dim there = ull__dims_product(g, x->rank, x->dims), asked = 1;
    int64_t first = call->reader->first;
    for (int i = 0; i < rank; ++i) {
        if (dims[i] == ULL_NONE) {
            follow_batch_beside(call, x, rank, dims);
            return true;
        }
        asked = ull__dim_mul(g->symbols, asked, dims[i]);
    }
    if (same_size(call->reader, there, asked)) {
        return true;
    }
    /* First a dimension of just that number; then multiples: of rows of a matrix, else behind what is as before. */
    for (int turn = 0; turn < 2 && first > 0; ++turn) {
        bool rows = turn == 1 && rank == 2 && x->rank > 2;
        for (int i = 0; i < rank; ++i) {
            bool fits =
                ull__dim_is_const(dims[i]) && (turn == 0 ? dims[i] == first : dims[i] % first == 0);
            if (!fits || (!rows && i < x->rank && dims[i] == x->dims[i])) {
                continue;
            }
            ull__dim before = dims[i];
            dims[i] = ull__dim_mul(g->symbols, g->batch, dims[i] / first);
            if (same_size(call->reader, there, ull__dims_product(g, rank, dims))) {
                return true;
            }
            dims[i] = before;
        }
    }
    char texts[2][96];
    call_fail(call, "%s elements are not %s for every batch",
              ull__dim_text(g->symbols, there, texts[0], sizeof(texts[0])),
              ull__dim_text(g->symbols, asked, texts[1], sizeof(texts[1])));
    return false;
}

/* x in another shape, folded if its elements are known. */
static void put_reshaped(struct call *call, int rank, const ull__dim *dims)
{
    struct value *x = input(call, 0);
    if (x != NULL && (x->weight || !value_cells(call->reader, x) || !fold_same(call, x, rank, dims))) {
        put(call, 0, ull__reshape(call->graph, tensor(call, 0), rank, dims));
    }
}

void translate_reshape(struct call *call)
{
    struct value *x = input(call, 0);
    ull__dim dims[ULL_RANK];
    int rank, rest = ULL_NONE;
    if (x == NULL || !shape_given(call, 1, dims, &rank)) {
        return;
    }
    for (int i = 0; i < rank; ++i) {
        if (dims[i] == 0 && attribute_int(call, "allowzero", 0) == 0) {
            if (i >= x->rank) {
                call_fail(call, "dimension %d is that of a tensor that has none", i);
                return;
            }
            dims[i] = x->dims[i];
        }
        if (dims[i] == ULL_NONE && rest != ULL_NONE) {
            call_fail(call, "more than one dimension is open");
            return;
        }
        rest = dims[i] == ULL_NONE ? i : rest;
    }
    if (!follow_batch(call, x, rank, dims)) {
        return;
    }
    if (rest != ULL_NONE) {
        ull__dim others = 1, all = ull__dims_product(call->graph, x->rank, x->dims);
        for (int i = 0; i < rank; ++i) {
            others = i == rest ? others : ull__dim_mul(call->graph->symbols, others, dims[i]);
        }
        dims[rest] = others == 0 ? 0 : ull__dim_div(call->graph->symbols, all, others);
        if (!same_size(call->reader, ull__dim_mul(call->graph->symbols, dims[rest], others), all)) {
            call_fail(call, "the elements do not fit");
            return;
        }
    }
    put_reshaped(call, rank, dims);
}

void translate_flatten(struct call *call)
{
    struct value *x = input(call, 0);
    if (x == NULL) {
        return;
    }
    int64_t axis = attribute_int(call, "axis", 1);
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis > x->rank) {
        call_fail(call, "axis %lld of %d dimensions", (long long)axis, x->rank);
        return;
    }
    ull__dim dims[2] = {ull__dims_product(call->graph, (int)axis, x->dims),
                        ull__dims_product(call->graph, x->rank - (int)axis, x->dims + axis)};
    put_reshaped(call, 2, dims);
}

/* Axes of an attribute, from set 13 on of an input, as bits among `rank`. */
static bool axes_given(struct call *call, int rank, uint32_t *axes)
{
    int64_t list[ULL_RANK];
    int count = 0;
    *axes = 0;
    bool given = has_input(call, 1) ? integers(call, 1, ULL_RANK, list, &count)
                                    : attribute_ints(call, "axes", ULL_RANK, list, &count);
    for (int i = 0; given && i < count; ++i) {
        int axis = axis_of(call, list[i], rank);
        if (axis == ULL_NONE || (*axes >> axis & 1) != 0) {
            call_fail(call, "axis %lld is named twice", (long long)list[i]);
            return false;
        }
        *axes |= 1u << axis;
    }
    return given;
}

void translate_squeeze(struct call *call)
{
    struct value *x = input(call, 0);
    uint32_t axes = 0;
    bool given = x != NULL && axes_given(call, x->rank, &axes);
    ull__dim dims[ULL_RANK];
    int rank = 0;
    for (int i = 0; x != NULL && i < x->rank; ++i) {
        bool gone = given ? (axes >> i & 1) != 0 : x->dims[i] == 1;
        if (gone && x->dims[i] != 1) {
            call_fail(call, "dimension %d is not 1", i);
            return;
        }
        if (!gone) {
            dims[rank++] = x->dims[i];
        }
    }
    put_reshaped(call, rank, dims);
}

void translate_unsqueeze(struct call *call)
{
    struct value *x = input(call, 0);
    int64_t list[ULL_RANK];
    int count = 0, from = 0;
    uint32_t axes;
    if (x == NULL || (has_input(call, 1) ? !integers(call, 1, ULL_RANK, list, &count)
                                         : !attribute_ints(call, "axes", ULL_RANK, list, &count))) {
        call_fail(call, "its axes are not known");
        return;
    }
    if (x->rank + count > ULL_RANK) {
        call_fail(call, "%d dimensions: expected at most %d", x->rank + count, ULL_RANK);
        return;
    }
    ull__dim dims[ULL_RANK];
    if (!axes_given(call, x->rank + count, &axes)) {
        return;
    }
    for (int i = 0; i < x->rank + count; ++i) {
        dims[i] = (axes >> i & 1) != 0 ? 1 : x->dims[from++];
    }
    put_reshaped(call, x->rank + count, dims);
}

void translate_transpose(struct call *call)
{
    struct value *x = input(call, 0);
    int64_t list[ULL_RANK], strides[ULL_RANK], moved[ULL_RANK];
    int order[ULL_RANK], count = 0;
    ull__dim dims[ULL_RANK];
    uint32_t seen = 0;
    if (x == NULL) {
        return;
    }
    bool given = attribute_ints(call, "perm", ULL_RANK, list, &count);
    for (int i = 0; i < x->rank; ++i) {
        int64_t from = given && i < count ? list[i] : x->rank - 1 - i;
        if (from < 0 || from >= x->rank || (given && count != x->rank) || (seen >> from & 1) != 0) {
            call_fail(call, "its order is not one of %d dimensions", x->rank);
            return;
        }
        seen |= 1u << from;
        order[i] = (int)from;
        dims[i] = x->dims[from];
    }
    if (!x->weight && value_cells(call->reader, x)) {
        strides_of(x->rank, x->dims, strides);
        for (int i = 0; i < x->rank; ++i) {
            moved[i] = strides[order[i]];
        }
        if (fold_move(call, x, 0, x->rank, dims, moved)) {
            return;
        }
    }
    put(call, 0, ull__transpose(call->graph, tensor(call, 0), order));
}

void translate_expand(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *x = input(call, 0);
    ull__dim asked[ULL_RANK], dims[ULL_RANK];
    int64_t strides[ULL_RANK], own[ULL_RANK];
    int rank, wide;
    if (x == NULL || !shape_given(call, 1, asked, &rank)) {
        return;
    }
    int64_t first = call->reader->first;
    for (int i = 0; i < rank; ++i) {
        int at = i - (rank - x->rank);
        asked[i] = asked[i] < 0 && ull__dim_is_const(asked[i]) ? 1 : asked[i];
        if (at >= 0 && asked[i] == first && first > 1 && !ull__dim_is_const(x->dims[at])) {
            asked[i] = x->dims[at]; /* the number of samples that the file was made with */
        } else if (i == 0 && asked[i] == first && first > 1 && (at < 0 || x->dims[at] == 1)) {
            asked[i] = g->batch;
        }
    }
    if (!ull__dims_broadcast(g, x->rank, x->dims, rank, asked, &wide, dims)) {
        call_fail(call, "the shapes do not fit");
        return;
    }
    if (!x->weight && value_cells(call->reader, x)) {
        strides_of(x->rank, x->dims, own);
        for (int i = 0; i < wide; ++i) {
            int at = i - (wide - x->rank);
            strides[i] = at < 0 || x->dims[at] == 1 ? 0 : own[at];
        }
        if (fold_move(call, x, 0, wide, dims, strides)) {
            return;
        }
    }
    bool same = wide == x->rank && memcmp(dims, x->dims, sizeof(*dims) * (size_t)wide) == 0;
    if (same) {
        put_same(call, 0, x);
    } else {
        put(call, 0, ull__expand(g, tensor(call, 0), wide, dims));
    }
}

/* As a repetition of a new dimension before each one that is repeated. */
void translate_tile(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *x = input(call, 0);
    ull__dim times[ULL_RANK], open[2 * ULL_RANK], wide[2 * ULL_RANK], dims[ULL_RANK];
    int count, rank = 0;
    if (x == NULL || !wholes(call, 1, ULL_RANK, times, &count)) {
        return;
    }
    if (count != x->rank) {
        call_fail(call, "%d numbers for %d dimensions", count, x->rank);
        return;
    }
    for (int i = 0; i < x->rank; ++i) {
        if (times[i] != 1) {
            open[rank] = 1;
            wide[rank++] = times[i];
        }
        open[rank] = x->dims[i];
        wide[rank++] = x->dims[i];
        dims[i] = ull__dim_mul(g->symbols, x->dims[i], times[i]);
    }
    if (rank > ULL_RANK) {
        call_fail(call, "too many dimensions are repeated");
        return;
    }
    int y = ull__reshape(g, tensor(call, 0), rank, open);
    y = rank > x->rank ? ull__expand(g, y, rank, wide) : y;
    put(call, 0, ull__reshape(g, y, x->rank, dims));
}
