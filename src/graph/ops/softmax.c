/* softmax.c: softmax and its logarithm along an axis, and their gradients, which read the output. */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__tensor *x = ull__in(g, node, 0);
    int axis = g->nodes[node].attrs.axis.axis;
    if (axis < 0 || axis >= x->rank) {
        ull__op_fail(g, node, "axis %d: expected 0 to %d", axis, x->rank - 1);
        return;
    }
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = ull__out_elements(g, node, 0, values) * 8;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    dx[0] = ull__graph_apply(
        g, of.op == &ull__op_softmax ? &ull__op_softmax_grad : &ull__op_log_softmax_grad, &of.attrs,
        (int[]){dy[0], of.outputs[0]}, 2);
}

const struct ull__op ull__op_softmax = {
    .name = "softmax",
    .flags = ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_log_softmax = {
    .name = "log_softmax",
    .flags = ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

/* Inputs: dy, y. */
const struct ull__op ull__op_softmax_grad = {
    .name = "softmax_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .cost = cost,
};

const struct ull__op ull__op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .cost = cost,
};

static int add(struct ull__graph *g, const struct ull__op *op, int x, int axis)
{
    union ull__attrs attrs = {.axis = {.axis = axis}};
    return ull__graph_apply(g, op, &attrs, &x, 1);
}

int ull__softmax(struct ull__graph *g, int x, int axis)
{
    return add(g, &ull__op_softmax, x, axis);
}

int ull__log_softmax(struct ull__graph *g, int x, int axis)
{
    return add(g, &ull__op_log_softmax, x, axis);
}
