/* bias.c: adds a vector along an axis. Its gradient is that of the sum, and sums of it. */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__tensor *x = ull__in(g, node, 0), *b = ull__in(g, node, 1);
    int axis = g->nodes[node].attrs.axis.axis;
    if (axis < 0 || axis >= x->rank || b->rank != 1 ||
        !ull__dim_may_equal(g->symbols, x->dims[axis], b->dims[0])) {
        ull__op_fail(g, node, "the vector does not fit dimension %d", axis);
        return;
    }
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    dx[0] = dy[0];
    if (wanted[1]) {
        int rank = g->tensors[of.inputs[0]].rank;
        uint32_t axes = ((1u << rank) - 1) & ~(1u << of.attrs.axis.axis);
        dx[1] = axes == 0 ? dy[0] : ull__reduce(g, ULL_REDUCE_SUM, dy[0], axes, false);
    }
}

const struct ull__op ull__op_bias = {
    .name = "bias",
    .flags = ULL_OP_INPLACE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .keeps = 1u << 1,
    .infer = infer,
    .gradient = gradient,
};

int ull__bias(struct ull__graph *g, int x, int b, int axis)
{
    union ull__attrs attrs = {.axis = {.axis = axis}};
    return ull__graph_apply(g, &ull__op_bias, &attrs, (int[]){x, b}, 2);
}
