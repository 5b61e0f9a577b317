/*
 * adam.c: Adam (Kingma and Ba, 2014) and AdamW (Loshchilov and Hutter, 2017: attrs.optimizer.decoupled).
 *
 * Inputs: weight, gradient, learning rate, factor of the gradient (ULL_NONE: 1), step (from 1, for the correction of
 * the bias), first moment, second moment, the 16-bit weight that is made of the new one (ULL_NONE: none).
 * Outputs: new versions of weight, both moments, 16-bit weight.
 */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    static const int versions[] = {0, 5, 6, 7};
    for (int i = 0; i < 4; ++i) {
        if (ull__has_in(g, node, versions[i])) {
            ull__op_output_version(g, node, g->nodes[node].inputs[versions[i]]);
        }
    }
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = 16 * ull__in_elements(g, node, 0, values);
}

const struct ull__op ull__op_adam = {
    .name = "adam",
    .flags = ULL_OP_STATE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 7,
    .inputs_most = 8,
    .optional = 1u << 3,
    .keeps = ~0u,
    .infer = infer,
    .cost = cost,
};
