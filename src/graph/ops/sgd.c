/*
 * sgd.c: stochastic gradient descent with momentum, Nesterov's too; decay is added to the gradient.
 *
 * Inputs: weight, gradient, learning rate, factor of the gradient (ULL_NONE: 1), momentum (ULL_NONE: none), the
 * 16-bit weight that is made of the new one (ULL_NONE: none). Outputs: new versions of weight, momentum, 16-bit weight.
 */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    ull__op_output_version(g, node, g->nodes[node].inputs[0]);
    for (int i = 4; i < 6; ++i) {
        if (ull__has_in(g, node, i)) {
            ull__op_output_version(g, node, g->nodes[node].inputs[i]);
        }
    }
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = 6 * ull__in_elements(g, node, 0, values);
}

const struct ull__op ull__op_sgd = {
    .name = "sgd",
    .flags = ULL_OP_STATE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 3,
    .inputs_most = 6,
    .keeps = ~0u,
    .infer = infer,
    .cost = cost,
};
