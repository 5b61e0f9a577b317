/* ops_move.c: operators that take tensors apart and put them together. */
#include <stdlib.h>
#include <string.h>

#include "onnx_private.h"

/* A part with the samples that the file was made with is repeated for the batch: a token that all samples begin with. */
static int with_batch(struct call *call, int part, ull__dim batch)
{
    const struct ull__tensor of = call->graph->tensors[part];
    if (of.dims[0] == 1 && call->reader->first == 1 && !ull__dim_is_const(batch)) {
        ull__dim dims[ULL_RANK];
        memcpy(dims, of.dims, sizeof(dims));
        dims[0] = batch;
        return ull__expand(call->graph, part, of.rank, dims);
    }
    return part;
}

static bool check_parts(struct call *call, const int *parts, int count, int axis)
{
    const struct ull__tensor *first = &call->graph->tensors[parts[0]];
    for (int i = 1; i < count; ++i) {
        const struct ull__tensor *part = &call->graph->tensors[parts[i]];
        for (int j = 0; j < first->rank; ++j) {
            if (part->rank != first->rank ||
                (j != axis && !same_size(call->reader, first->dims[j], part->dims[j]))) {
                char texts[2][160];
                call_fail(call, "%s and %s do not fit for every batch",
                          ull__tensor_text(call->graph, parts[0], texts[0], sizeof(texts[0])),
                          ull__tensor_text(call->graph, parts[i], texts[1], sizeof(texts[1])));
                return false;
            }
        }
    }
    return true;
}

void translate_concat(struct call *call)
{
    struct value *x = input(call, 0);
    int count = (int)call->node->n_input;
    int axis = x != NULL ? attribute_axis(call, "axis", call->opset < 4 ? 1 : 0, x->rank) : ULL_NONE;
    if (axis == ULL_NONE || fold_concat(call, axis) || !reader_ok(call->reader)) {
        return;
    }
    int *parts = reader_alloc(call->reader, (size_t)count, sizeof(*parts));
    ull__dim batch = 1;
    for (int i = 0; parts != NULL && i < count; ++i) {
        parts[i] = tensor(call, i);
        if (parts[i] == ULL_NONE) {
            return;
        }
        const struct ull__tensor *part = &call->graph->tensors[parts[i]];
        batch = part->rank > 0 && !ull__dim_is_const(part->dims[0]) ? part->dims[0] : batch;
    }
    for (int i = 0; parts != NULL && i < count && axis > 0; ++i) {
        parts[i] = with_batch(call, parts[i], batch);
        if (parts[i] == ULL_NONE) {
            return;
        }
    }
    if (parts != NULL && check_parts(call, parts, count, axis)) {
        put(call, 0, ull__concat(call->graph, parts, count, axis));
    }
}

void translate_split(struct call *call)
{
    enum { MOST = 16 };
    struct value *x = input(call, 0);
    ull__dim sizes[MOST];
    int count = (int)call->node->n_output, given = 0;
    int axis = x != NULL ? attribute_axis(call, "axis", 0, x->rank) : ULL_NONE;
    if (axis == ULL_NONE) {
        return;
    }
    bool listed = has_input(call, 1) ? wholes(call, 1, MOST, sizes, &given)
                                     : attribute_ints(call, "split", MOST, sizes, &given);
    if (count < 1 || count > MOST || (listed && given != count)) {
        call_fail(call, "%d parts and %d sizes: expected 1 to %d of both", count, given, MOST);
        return;
    }
    if (!listed && ull__dim_is_const(x->dims[axis]) && x->dims[axis] % count != 0) {
        call_fail(call, "%lld elements are not %d equal parts", (long long)x->dims[axis], count);
        return;
    }
    int y = ull__split(call->graph, tensor(call, 0), axis, count, listed ? sizes : NULL);
    for (int i = 0; i < count; ++i) {
        put(call, i, ull__graph_output(call->graph, y, i));
    }
}

struct cut {
    int axis;
    ull__dim begin, size;
    int64_t step;
};

/* Where a place is that may count from the end, brought into the tensor. */
static ull__dim place_in(struct call *call, ull__dim place, ull__dim whole, ull__dim least,
                         ull__dim most)
{
    if (ull__dim_is_const(place) && place < 0) {
        place =
            place < -(INT64_C(1) << 40) ? least : ull__dim_add(call->graph->symbols, place, whole);
    }
    if (ull__dim_is_const(place) && place >= INT64_C(1) << 31) {
        return most; /* "to the end" */
    }
    if (ull__dim_is_const(place) && ull__dim_is_const(least) && place < least) {
        return least;
    }
    return ull__dim_is_const(place) && ull__dim_is_const(most) && place > most ? most : place;
}

static bool make_cut(struct call *call, const struct value *x, struct cut *cut, ull__dim begin,
                     ull__dim end, int64_t step)
{
    struct ull__dims *dims = call->graph->symbols;
    ull__dim whole = x->dims[cut->axis];
    if (step == 0 || llabs(step) > INT32_MAX) {
        call_fail(call, "a step of %lld", (long long)step);
        return false;
    }
    ull__dim last = ull__dim_sub(dims, whole, 1);
    if (step > 0) {
        begin = place_in(call, begin, whole, 0, whole);
        end = place_in(call, end, whole, 0, whole);
        cut->size = ull__dim_div_up(dims, ull__dim_sub(dims, end, begin), step);
    } else {
        begin = place_in(call, begin, whole, 0, last);
        end = ull__dim_is_const(end) &&
                      end <= -1 - (ull__dim_is_const(whole) ? whole : ULL_DIM_MOST / 2)
                  ? -1
                  : place_in(call, end, whole, -1, last);
        cut->size = ull__dim_div_up(dims, ull__dim_sub(dims, begin, end), -step);
    }
    cut->begin = begin;
    cut->step = step;
    if (cut->size == ULL_DIM_BAD || begin == ULL_DIM_BAD) {
        call_fail(call, "its places are not within dimension %d", cut->axis);
        return false;
    }
    if (ull__dim_is_const(cut->size) && cut->size < 0) {
        cut->size = 0;
    }
    return true;
}

/* Reads what is cut. Returns how many axes, ULL_NONE: an error. */
static int read_cuts(struct call *call, const struct value *x, struct cut cuts[ULL_RANK])
{
    ull__dim begin[ULL_RANK], end[ULL_RANK];
    int64_t axes[ULL_RANK], steps[ULL_RANK];
    int count = 0, ends = 0, named = 0, stepped = 0;
    bool fine;
    if (call->opset >= 10) {
        fine = wholes(call, 1, ULL_RANK, begin, &count) && wholes(call, 2, ULL_RANK, end, &ends) &&
               (!has_input(call, 3) || integers(call, 3, ULL_RANK, axes, &named)) &&
               (!has_input(call, 4) || integers(call, 4, ULL_RANK, steps, &stepped));
    } else {
        fine = attribute_ints(call, "starts", ULL_RANK, begin, &count) &&
               attribute_ints(call, "ends", ULL_RANK, end, &ends);
        attribute_ints(call, "axes", ULL_RANK, axes, &named);
    }
    if (!fine || count != ends || count > x->rank || (named != 0 && named != count) ||
        (stepped != 0 && stepped != count)) {
        call_fail(call, "begins, ends, axes and steps are not as many");
        return ULL_NONE;
    }
    for (int i = 0; i < count; ++i) {
        cuts[i].axis = axis_of(call, named != 0 ? axes[i] : i, x->rank);
        if (cuts[i].axis == ULL_NONE ||
            !make_cut(call, x, &cuts[i], begin[i], end[i], stepped != 0 ? steps[i] : 1)) {
            return ULL_NONE;
        }
    }
    return count;
}

void translate_slice(struct call *call)
{
    struct value *x = input(call, 0);
    struct cut cuts[ULL_RANK];
    ull__dim dims[ULL_RANK];
    int64_t strides[ULL_RANK], base = 0;
    int count = x != NULL ? read_cuts(call, x, cuts) : ULL_NONE;
    if (count == ULL_NONE) {
        return;
    }
    memcpy(dims, x->dims, sizeof(dims));
    for (int i = 0; i < count; ++i) {
        dims[cuts[i].axis] = cuts[i].size;
    }
    if (x->weight || !value_cells(call->reader, x)) {
        int y = tensor(call, 0);
        for (int i = 0; i < count && y != ULL_NONE; ++i) {
            if (cuts[i].begin != 0 || cuts[i].step != 1 || cuts[i].size != x->dims[cuts[i].axis]) {
                y = ull__slice(call->graph, y, cuts[i].axis, cuts[i].begin, cuts[i].size,
                               (int)cuts[i].step);
            }
        }
        if (count == 0 || y == x->tensor) {
            put_same(call, 0, x);
            return;
        }
        put(call, 0, y);
    }
    if (value_cells(call->reader, x)) { /* of a mask, which is not a weight though it looks like one */
        strides_of(x->rank, x->dims, strides);
        for (int i = 0; i < count; ++i) {
            int axis = cuts[i].axis;
            if (!ull__dim_is_const(cuts[i].begin) ||
                (cuts[i].size > 0 && (cuts[i].begin < 0 || cuts[i].begin >= x->dims[axis]))) {
                return;
            }
            base += cuts[i].begin * strides[axis];
            strides[axis] *= cuts[i].step;
        }
        fold_move(call, x, base, x->rank, dims, strides);
    }
}

/* Whether an index is known and one run of numbers. */
static bool is_run(struct call *call, struct value *index, int64_t whole, int64_t *begin)
{
    if (index->rank > 1 || index->count < 1 || !value_cells(call->reader, index)) {
        return false;
    }
    for (int64_t i = 0; i < index->count; ++i) {
        if (!ull__dim_is_const(index->cells[i].whole) ||
            index->cells[i].whole != index->cells[0].whole + i) {
            return false;
        }
    }
    *begin = index->cells[0].whole + (index->cells[0].whole < 0 ? whole : 0);
    return *begin >= 0 && *begin <= whole - index->count;
}

void translate_gather(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *x = input(call, 0), *index = input(call, 1);
    int axis = x != NULL && index != NULL ? attribute_axis(call, "axis", 0, x->rank) : ULL_NONE;
    int64_t begin;
    if (axis == ULL_NONE || fold_gather(call, axis)) {
        return;
    }
    if (ull__dim_is_const(x->dims[axis]) && is_run(call, index, x->dims[axis], &begin)) {
        int y = tensor(call, 0);
        if (index->rank == 1 && index->count == x->dims[axis]) {
            put_same(call, 0, x);
            return;
        }
        y = ull__slice(g, y, axis, begin, index->count, 1);
        if (index->rank == 0 && y != ULL_NONE) {
            ull__dim dims[ULL_RANK];
            for (int i = 0, rank = 0; i < x->rank; ++i) {
                if (i != axis) {
                    dims[rank++] = x->dims[i];
                }
            }
            y = ull__reshape(g, y, x->rank - 1, dims);
        }
        put(call, 0, y);
    } else if (x->rank + index->rank - 1 > ULL_RANK) {
        call_fail(call, "its result would have more than %d dimensions", ULL_RANK);
    } else if (axis == 0 && x->rank == 2 && x->weight) {
        int table = tensor(call, 0);
        put(call, 0, ull__embedding(g, tensor(call, 1), table));
    } else {
        int from = tensor(call, 0);
        put(call, 0, ull__gather(g, from, tensor(call, 1), axis));
    }
}

void translate_pad(struct call *call)
{
    struct value *x = input(call, 0);
    ull__dim sizes[2 * ULL_RANK], before[ULL_RANK], after[ULL_RANK];
    double filling = 0;
    int count = 0;
    if (x == NULL) {
        return;
    }
    if (!attribute_is(call, "mode", "constant", true)) {
        call_fail(call, "only a constant is put around");
        return;
    }
    if (call->opset < 11) {
        attribute_ints(call, "pads", 2 * ULL_RANK, sizes, &count);
        filling = attribute_float(call, "value", 0);
    } else if (!wholes(call, 1, 2 * ULL_RANK, sizes, &count) ||
               (has_input(call, 2) && !scalar(call, 2, &filling))) {
        call_fail(call, "how much and what is put around is not known");
        return;
    }
    if (count != 2 * x->rank) {
        call_fail(call, "%d sizes for %d dimensions", count, x->rank);
        return;
    }
    bool any = false;
    int y = tensor(call, 0);
    for (int i = 0; i < x->rank && y != ULL_NONE; ++i) {
        before[i] = sizes[i];
        after[i] = sizes[x->rank + i];
        /* What is cut off. */
        if ((ull__dim_is_const(before[i]) && before[i] < 0) ||
            (ull__dim_is_const(after[i]) && after[i] < 0)) {
            ull__dim front = ull__dim_is_const(before[i]) && before[i] < 0 ? -before[i] : 0;
            ull__dim back = ull__dim_is_const(after[i]) && after[i] < 0 ? -after[i] : 0;
            ull__dim left = ull__dim_sub(call->graph->symbols, x->dims[i], front + back);
            y = ull__slice(call->graph, y, i, front, left, 1);
            before[i] = front > 0 ? 0 : before[i];
            after[i] = back > 0 ? 0 : after[i];
        }
        any |= before[i] != 0 || after[i] != 0;
    }
    if (any) {
        put(call, 0, ull__pad(call->graph, y, before, after, filling));
    } else if (y == x->tensor) {
        put_same(call, 0, x);
    } else {
        put(call, 0, y);
    }
}
