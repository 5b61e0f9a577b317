/*
 * accumulate.c: adds a gradient to what the micro-steps before it have gathered, in f32; the first of a step overwrites.
 *
 * Source of the rule: bf16 sums stop growing after some hundred additions (llm.c, pull request 676), so the
 * sum is f32 whatever the gradient is.
 */
#include "../ops.h"

/* Inputs: the sum, the gradient, a bool: add (false: overwrite). */
static void infer(struct ull__graph *g, int node)
{
    ull__op_output_version(g, node, g->nodes[node].inputs[0]);
}

const struct ull__op ull__op_accumulate = {
    .name = "accumulate",
    .flags = ULL_OP_STATE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 3,
    .inputs_most = 3,
    .keeps = ~0u,
    .infer = infer,
};
