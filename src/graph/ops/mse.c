/* mse.c: mean squared error, divided by the elements of the whole batch (see cross_entropy.c), and its gradient. */
#include "../ops.h"

/* Inputs: x, target, count (optional). */
static void infer(struct ull__graph *g, int node)
{
    const struct ull__tensor *x = ull__in(g, node, 0), *y = ull__in(g, node, 1);
    bool fits = x->rank == y->rank;
    for (int i = 0; fits && i < x->rank; ++i) {
        fits = ull__dim_may_equal(g->symbols, x->dims[i], y->dims[i]);
    }
    if (!fits) {
        ull__op_fail(g, node, "the shapes differ");
        return;
    }
    ull__op_output(g, node, ULL_TYPE_F32, 0, NULL);
}

/* Inputs: x, target, dy, count (optional). */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = ull__in_elements(g, node, 0, values) * 3;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    bool counted = of.input_count > 2;
    dx[0] = ull__graph_apply(
        g, &ull__op_mse_grad, NULL,
        (int[]){of.inputs[0], of.inputs[1], dy[0], counted ? of.inputs[2] : ULL_NONE},
        counted ? 4 : 3);
    if (wanted[1]) {
        dx[1] = ull__unary(g, ULL_UNARY_NEG, dx[0]);
    }
}

const struct ull__op ull__op_mse = {
    .name = "mse",
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 2,
    .inputs_most = 3,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_mse_grad = {
    .name = "mse_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 3,
    .inputs_most = 4,
    .infer = infer_grad,
    .cost = cost,
};

int ull__mse(struct ull__graph *g, int x, int target, int count)
{
    return ull__graph_apply(g, &ull__op_mse, NULL, (int[]){x, target, count},
                            count == ULL_NONE ? 2 : 3);
}
