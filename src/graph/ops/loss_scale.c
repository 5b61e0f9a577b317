/*
 * loss_scale.c: the dynamic loss scale and the counter of steps, on the device: nobody waits for the host to learn
 * whether a step counts.
 */
#include "../ops.h"

/*
 * Inputs: scale, good steps in a row, bad ones left before it is lowered (attrs.scale.hysteresis at first), found infinite.
 * New versions of the first three. A bad step takes one of those left, and with the last of them, and each further one,
 * the scale is lowered; when it grows, there are as many as at first again.
 */
static void infer_scale(struct ull__graph *g, int node)
{
    for (int i = 0; i < 3; ++i) {
        ull__op_output_version(g, node, g->nodes[node].inputs[i]);
    }
}

const struct ull__op ull__op_loss_scale = {
    .name = "loss_scale",
    .flags = ULL_OP_STATE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 4,
    .inputs_most = 4,
    .keeps = ~0u,
    .infer = infer_scale,
};

/* Input: the step. Skipped by the node's predicate, so a schedule does not advance on steps that do not count. */
static void infer_count(struct ull__graph *g, int node)
{
    ull__op_output_version(g, node, g->nodes[node].inputs[0]);
}

const struct ull__op ull__op_count_step = {
    .name = "count_step",
    .flags = ULL_OP_STATE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 1,
    .inputs_most = 1,
    .keeps = ~0u,
    .infer = infer_count,
};
