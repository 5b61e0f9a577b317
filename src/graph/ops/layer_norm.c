/*
 * layer_norm.c: normalization over the last dimensions, and its gradient. Statistics are f32 whatever x is.
 */
#include "../ops.h"

/* Inputs: x, scale, shift (optional). */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0);
    int axis = g->nodes[node].attrs.norm.axis;
    if (axis < 0 || axis >= x.rank) {
        ull__op_fail(g, node, "axis %d: expected 0 to %d", axis, x.rank - 1);
        return;
    }
    for (int i = 1; i < g->nodes[node].input_count; ++i) {
        const struct ull__tensor *scale = ull__in(g, node, i);
        bool fits = scale->rank == x.rank - axis;
        for (int j = 0; fits && j < scale->rank; ++j) {
            fits = ull__dim_may_equal(g->symbols, scale->dims[j], x.dims[axis + j]);
        }
        if (!fits) {
            ull__op_fail(g, node, "input %d does not have the shape that is normalized", i);
            return;
        }
    }
    ull__op_output(g, node, x.type, x.rank, x.dims);
    ull__op_output(g, node, ULL_TYPE_F32, axis, x.dims);
    ull__op_output(g, node, ULL_TYPE_F32, axis, x.dims);
}

/* Inputs: dy, x, scale, mean, 1/sqrt(var + epsilon). Outputs: of x, scale and shift. */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    bool grad = (g->nodes[node].op->flags & ULL_OP_GRADIENT) != 0;
    cost->flops = ull__in_elements(g, node, 0, values) * (grad ? 12 : 7);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    int grad =
        ull__graph_node(g, &ull__op_layer_norm_grad, &of.attrs,
                        (int[]){dy[0], of.inputs[0], of.inputs[1], of.outputs[1], of.outputs[2]}, 5);
    for (int i = 0; i < of.input_count && grad != ULL_NONE; ++i) {
        dx[i] = g->nodes[grad].outputs[i];
    }
}

const struct ull__op ull__op_layer_norm = {
    .name = "layer_norm",
    .flags = ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 3,
    .keeps = 1u << 1 | 1u << 2,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 5,
    .inputs_most = 5,
    .infer = infer_grad,
    .cost = cost,
};

int ull__layer_norm(struct ull__graph *g, int x, int scale, int shift, int axis, double epsilon)
{
    union ull__attrs attrs = {.norm = {.axis = axis, .epsilon = epsilon}};
    return ull__graph_apply(g, &ull__op_layer_norm, &attrs, (int[]){x, scale, shift},
                            shift == ULL_NONE ? 2 : 3);
}
