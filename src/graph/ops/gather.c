/* gather.c: slices of a tensor along an axis by an index of any shape, and their gradient. */
#include "../ops.h"

/* Inputs: x, index. */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0), index = *ull__in(g, node, 1);
    int axis = g->nodes[node].attrs.axis.axis, rank = 0;
    ull__dim dims[2 * ULL_RANK];
    if ((index.type != ULL_TYPE_I32 && index.type != ULL_TYPE_I64) || axis < 0 || axis >= x.rank) {
        ull__op_fail(g, node, "expected an index of whole numbers, and an axis from 0 to %d, not %d",
                     x.rank - 1, axis);
        return;
    }
    for (int i = 0; i < x.rank; ++i) {
        for (int j = 0; i == axis && j < index.rank; ++j) {
            dims[rank++] = index.dims[j];
        }
        if (i != axis) {
            dims[rank++] = x.dims[i];
        }
    }
    ull__op_output(g, node, x.type, rank, dims);
}

/* Inputs: dy, index. attrs.axis.size is that of the axis before. */
static void infer_grad(struct ull__graph *g, int node)
{
    struct ull__tensor dy = *ull__in(g, node, 0), index = *ull__in(g, node, 1);
    const struct ull__axis_attrs *attrs = &g->nodes[node].attrs.axis;
    ull__dim dims[ULL_RANK];
    int rank = 0;
    for (int i = 0; i < dy.rank - index.rank + 1; ++i) {
        dims[rank++] = i < attrs->axis    ? dy.dims[i]
                       : i == attrs->axis ? attrs->size
                                          : dy.dims[i + index.rank - 1];
    }
    ull__op_output(g, node, dy.type, rank, dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    if (wanted[0]) {
        union ull__attrs attrs = of.attrs;
        attrs.axis.size = g->tensors[of.inputs[0]].dims[attrs.axis.axis];
        dx[0] = ull__graph_apply(g, &ull__op_gather_grad, &attrs, (int[]){dy[0], of.inputs[1]}, 2);
    }
}

const struct ull__op ull__op_gather = {
    .name = "gather",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .gradient = gradient,
};

const struct ull__op ull__op_gather_grad = {
    .name = "gather_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer_grad,
};

int ull__gather(struct ull__graph *g, int x, int index, int axis)
{
    union ull__attrs attrs = {.axis = {.axis = axis}};
    return ull__graph_apply(g, &ull__op_gather, &attrs, (int[]){x, index}, 2);
}
