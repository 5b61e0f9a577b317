/* reshape.c: the same elements under another shape: a view. */
#include <string.h>

#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__shape_attrs attrs = g->nodes[node].attrs.shape;
    struct ull__tensor x = *ull__in(g, node, 0);
    ull__dim before = ull__dims_product(g, x.rank, x.dims);
    ull__dim after = ull__dims_product(g, attrs.rank, attrs.dims);
    if (!ull__dim_may_equal(g->symbols, before, after)) {
        char a[128], b[128];
        ull__op_fail(g, node, "%s elements are not %s",
                     ull__dim_text(g->symbols, before, a, sizeof(a)),
                     ull__dim_text(g->symbols, after, b, sizeof(b)));
        return;
    }
    ull__op_output_view(g, node, g->nodes[node].inputs[0], x.type, attrs.rank, attrs.dims, 0);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__tensor x = *ull__in(g, node, 0);
    (void)wanted;
    dx[0] = ull__reshape(g, dy[0], x.rank, x.dims);
}

const struct ull__op ull__op_reshape = {
    .name = "reshape",
    .flags = ULL_OP_VIEW,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .gradient = gradient,
};

int ull__reshape(struct ull__graph *g, int x, int rank, const ull__dim *dims)
{
    if (x == ULL_NONE || !ull__graph_ok(g)) {
        return ULL_NONE;
    }
    if (rank < 0 || rank > ULL_RANK) {
        return ull__graph_fail(g, ULL_E_INVALID, "reshape to %d dimensions: expected at most %d",
                               rank, ULL_RANK);
    }
    union ull__attrs attrs = {.shape = {.rank = rank}};
    ull__dim others = 1;
    int rest = ULL_NONE;
    for (int i = 0; i < rank; ++i) {
        attrs.shape.dims[i] = dims[i];
        if (dims[i] == ULL_NONE) {
            rest = i;
        } else {
            others = ull__dim_mul(g->symbols, others, dims[i]);
        }
    }
    if (rest != ULL_NONE) {
        const struct ull__tensor *of = &g->tensors[x];
        attrs.shape.dims[rest] =
            ull__dim_div(g->symbols, ull__dims_product(g, of->rank, of->dims), others);
    }
    return ull__graph_apply(g, &ull__op_reshape, &attrs, &x, 1);
}

int ull__flatten(struct ull__graph *g, int x, int axis)
{
    if (x == ULL_NONE || !ull__graph_ok(g)) {
        return ULL_NONE;
    }
    const struct ull__tensor of = g->tensors[x];
    ull__dim dims[ULL_RANK];
    memcpy(dims, of.dims, sizeof(dims));
    if (axis < 0 || axis >= of.rank) {
        return ull__graph_fail(g, ULL_E_INVALID, "flatten from axis %d: expected 0 to %d", axis,
                               of.rank - 1);
    }
    dims[axis] = ull__dims_product(g, of.rank - axis, of.dims + axis);
    return ull__reshape(g, x, axis + 1, dims);
}
