/* ops_points.c: operators on points of pictures and places of matrices: enlarging, blocks of points as channels, triangles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnx_private.h"

/* Times that a dimension grows; 0: not a whole number of times. */
static int64_t times_of(struct call *call, const struct value *x, int axis, const double *scales,
                        const ull__dim *sizes)
{
    if (scales != NULL) {
        double whole = nearbyint(scales[axis]);
        return fabs(whole - scales[axis]) < 1e-6 && whole >= 1 && whole < 1e6 ? (int64_t)whole : 0;
    }
    if (same_size(call->reader, sizes[axis], x->dims[axis])) {
        return 1;
    }
    bool plain = ull__dim_is_const(sizes[axis]) && ull__dim_is_const(x->dims[axis]);
    return plain && x->dims[axis] > 0 && sizes[axis] % x->dims[axis] == 0 &&
                   sizes[axis] < (INT64_C(1) << 31)
               ? sizes[axis] / x->dims[axis]
               : 0;
}

static bool read_scales(struct call *call, int at, int rank, double *scales)
{
    const Onnx__AttributeProto *list = attribute(call, "scales");
    struct value *value = has_input(call, at) ? input(call, at) : NULL;
    if (value != NULL && value_cells(call->reader, value) && value->count == rank) {
        for (int i = 0; i < rank; ++i) {
            scales[i] = value->cells[i].real;
        }
        return ull__type_is_float(value->type);
    }
    for (int i = 0; list != NULL && list->n_floats == (size_t)rank && i < rank; ++i) {
        scales[i] = (double)list->floats[i];
    }
    return list != NULL && list->n_floats == (size_t)rank;
}

/* Repeats each element of a dimension. */
static int repeat(struct ull__graph *g, int y, int axis, int64_t times)
{
    const struct ull__tensor of = g->tensors[y];
    ull__dim dims[ULL_RANK + 1], wide[ULL_RANK + 1], last[ULL_RANK];
    if (of.rank == ULL_RANK) {
        return ull__graph_fail(g, ULL_E_FORMAT, "too many dimensions to enlarge");
    }
    for (int i = 0, j = 0; i < of.rank; ++i) {
        last[i] = i == axis ? ull__dim_mul(g->symbols, of.dims[i], times) : of.dims[i];
        dims[j] = of.dims[i];
        wide[j++] = of.dims[i];
        if (i == axis) {
            dims[j] = 1;
            wide[j++] = times;
        }
    }
    y = ull__expand(g, ull__reshape(g, y, of.rank + 1, dims), of.rank + 1, wide);
    return ull__reshape(g, y, of.rank, last);
}

/* Whether a whole factor repeats each element, by how places are rounded and where they are. */
static bool repeats(const struct call *call)
{
    bool half = attribute_is(call, "coordinate_transformation_mode", "half_pixel", true) ||
                attribute_is(call, "coordinate_transformation_mode", "pytorch_half_pixel", true);
    bool begin = attribute_is(call, "coordinate_transformation_mode", "asymmetric", false);
    bool nearest = attribute_is(call, "nearest_mode", "round_prefer_floor", true) ||
                   attribute_is(call, "nearest_mode", "round_prefer_ceil", true);
    return (half && nearest) || (begin && attribute_is(call, "nearest_mode", "floor", false));
}

/* Nearest neighbours by a whole factor. */
void translate_resize(struct call *call)
{
    struct value *x = input(call, 0);
    bool upsample = call->opset < 10 || strcmp(call->node->op_type, "Upsample") == 0;
    double scales[ULL_RANK];
    ull__dim sizes[ULL_RANK];
    int count = 0;
    if (x == NULL) {
        return;
    }
    bool scaled = read_scales(call, upsample || call->opset < 11 ? 1 : 2, x->rank, scales);
    bool sized = !scaled && has_input(call, 3) && wholes(call, 3, ULL_RANK, sizes, &count) &&
                 count == x->rank;
    bool fits = upsample || call->opset < 11 || repeats(call);
    if (!attribute_is(call, "mode", "nearest", true) || !fits || (!scaled && !sized)) {
        call_fail(call, "only nearest neighbours are supported, by scales or sizes that are known");
        return;
    }
    int64_t times[ULL_RANK];
    bool grows = false;
    for (int i = 0; i < x->rank; ++i) {
        times[i] = times_of(call, x, i, scaled ? scales : NULL, sizes);
        grows |= times[i] != 1;
        if (times[i] == 0) {
            call_fail(call, "dimension %d does not grow a whole number of times", i);
            return;
        }
    }
    int y = tensor(call, 0);
    if (!grows) {
        put_same(call, 0, x);
    } else if (x->rank == 4 && times[0] == 1 && times[1] == 1) {
        struct ull__window window = ull__window(1, 1, 0);
        window.stride[0] = (int)times[2];
        window.stride[1] = (int)times[3];
        put(call, 0,
            ull__graph_apply(call->graph, &ull__op_upsample_nearest,
                             &(union ull__attrs){.window = window}, &y, 1));
    } else {
        for (int i = 0; i < x->rank && y != ULL_NONE; ++i) {
            y = times[i] != 1 ? repeat(call->graph, y, i, times[i]) : y;
        }
        put(call, 0, y);
    }
}

/* DepthToSpace and SpaceToDepth. */
void translate_depth(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *x = input(call, 0);
    int64_t block = attribute_int(call, "blocksize", 0);
    bool to_space = strcmp(call->node->op_type, "DepthToSpace") == 0;
    bool columns_first = attribute_is(call, "mode", "CRD", false);
    if (x == NULL || x->rank != 4 || block < 1 || block > 1 << 15) {
        call_fail(call, "expected pictures and a size of blocks");
        return;
    }
    struct ull__dims *d = g->symbols;
    ull__dim n = x->dims[0], c = x->dims[1], h = x->dims[2], w = x->dims[3], square = block * block;
    int y = tensor(call, 0);
    if (to_space) {
        ull__dim less = ull__dim_div(d, c, square);
        const int order[2][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}};
        y = ull__reshape(g, y, 6,
                         columns_first ? (ull__dim[]){n, less, block, block, h, w}
                                       : (ull__dim[]){n, block, block, less, h, w});
        y = ull__transpose(g, y, order[columns_first]);
        y = ull__reshape(
            g, y, 4, (ull__dim[]){n, less, ull__dim_mul(d, h, block), ull__dim_mul(d, w, block)});
    } else {
        ull__dim fewer = ull__dim_div(d, h, block), less = ull__dim_div(d, w, block);
        y = ull__reshape(g, y, 6, (ull__dim[]){n, c, fewer, block, less, block});
        y = ull__transpose(g, y, (int[]){0, 3, 5, 1, 2, 4});
        y = ull__reshape(g, y, 4, (ull__dim[]){n, ull__dim_mul(d, c, square), fewer, less});
    }
    put(call, 0, y);
}

/* Zeros above or below a diagonal: of what is known now, else by a mask. */
void translate_trilu(struct call *call)
{
    struct value *x = input(call, 0);
    double diagonal = 0;
    bool upper = attribute_int(call, "upper", 1) != 0;
    if (x == NULL || x->rank < 2 || (has_input(call, 1) && !scalar(call, 1, &diagonal))) {
        call_fail(call, "expected matrices, and a diagonal that is known");
        return;
    }
    ull__dim rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
    bool known = !x->weight && value_cells(call->reader, x);
    int64_t count;
    if (!ull__dim_is_const(rows) || !ull__dim_is_const(columns) ||
        __builtin_mul_overflow(rows, columns, &count) || count > CELLS_OF_ONE) {
        call_fail(call, "the matrices are too large");
        return;
    }
    union cell *cells = cells_new(call->reader, known ? x->count : count);
    for (int64_t i = 0; cells != NULL && i < (known ? x->count : count); ++i) {
        double off = (double)(i % columns - i / columns % rows);
        bool stays = upper ? off >= diagonal : off <= diagonal;
        if (!known) {
            cells[i].whole = stays;
        } else if (stays) {
            cells[i] = x->cells[i];
        }
    }
    if (known) {
        put_cells(call, x->type, x->rank, x->dims, x->count, cells);
        return;
    }
    char *mask = cells != NULL ? malloc((size_t)count + 1) : NULL;
    if (mask != NULL) {
        cells_to_bytes(ULL_TYPE_BOOL, cells, count, mask);
        int chosen = ull__graph_constant(call->graph, "", ULL_TYPE_BOOL, 2,
                                         (ull__dim[]){rows, columns}, mask, (size_t)count);
        int zero = ull__cast(call->graph, ull__graph_scalar(call->graph, 0), x->type);
        int y = tensor(call, 0);
        put(call, 0, ull__where(call->graph, chosen, y, zero));
    }
    free(mask);
}
