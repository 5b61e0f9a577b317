/*
 * rms_norm.c: division by the root of the mean square over the last dimension, and its gradient. The mean is f32
 * whatever x is.
 */
#include "../ops.h"

/* Inputs: x, scale. */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0);
    const struct ull__tensor *scale = ull__in(g, node, 1);
    if (x.rank < 1 || scale->rank != 1 ||
        !ull__dim_may_equal(g->symbols, scale->dims[0], x.dims[x.rank - 1])) {
        ull__op_fail(g, node, "the scale is not a vector as long as the last dimension");
        return;
    }
    ull__op_output(g, node, x.type, x.rank, x.dims);
    ull__op_output(g, node, ULL_TYPE_F32, x.rank - 1, x.dims);
}

/* Inputs: dy, x, scale, 1/sqrt(mean square + epsilon). Outputs: of x and scale. */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    bool grad = (g->nodes[node].op->flags & ULL_OP_GRADIENT) != 0;
    cost->flops = ull__in_elements(g, node, 0, values) * (grad ? 9 : 4);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    int grad = ull__graph_node(g, &ull__op_rms_norm_grad, &of.attrs,
                               (int[]){dy[0], of.inputs[0], of.inputs[1], of.outputs[1]}, 4);
    for (int i = 0; i < 2 && grad != ULL_NONE; ++i) {
        dx[i] = g->nodes[grad].outputs[i];
    }
}

const struct ull__op ull__op_rms_norm = {
    .name = "rms_norm",
    .flags = ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .keeps = 1u << 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 4,
    .inputs_most = 4,
    .infer = infer_grad,
    .cost = cost,
};

int ull__rms_norm(struct ull__graph *g, int x, int scale, double epsilon)
{
    union ull__attrs attrs = {.norm = {.epsilon = epsilon}};
    return ull__graph_apply(g, &ull__op_rms_norm, &attrs, (int[]){x, scale}, 2);
}
