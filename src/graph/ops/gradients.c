/*
 * gradients.c: what is asked of all gradients together, once a step: whether they are finite, the square of their
 * norm, and the factor that clips them (and takes the loss scale out).
 */
#include "../ops.h"

static void infer_finite(struct ull__graph *g, int node)
{
    ull__op_output(g, node, ULL_TYPE_BOOL, 0, NULL);
}

static void infer_norm(struct ull__graph *g, int node)
{
    ull__op_output(g, node, ULL_TYPE_F32, 0, NULL);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    for (int i = 0; i < g->nodes[node].input_count; ++i) {
        cost->flops += 2 * ull__in_elements(g, node, i, values);
    }
}

/* Inputs: gradients. Output: whether any element of any is infinite or not a number. */
const struct ull__op ull__op_finite = {
    .name = "finite",
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 1,
    .inputs_most = ULL_NONE,
    .keeps = ~0u,
    .infer = infer_finite,
    .cost = cost,
};

/* Inputs: gradients. */
const struct ull__op ull__op_norm_square = {
    .name = "norm_square",
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 1,
    .inputs_most = ULL_NONE,
    .keeps = ~0u,
    .infer = infer_norm,
    .cost = cost,
};

/*
 * Inputs: loss scale or ULL_NONE, square of the norm or ULL_NONE. Output: what the update multiplies gradients
 * with: 1 / scale, and where the norm without the scale is over attrs.optimizer.limit, times limit / norm.
 */
const struct ull__op ull__op_clip = {
    .name = "clip",
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 0,
    .inputs_most = 2,
    .keeps = ~0u,
    .infer = infer_norm,
};
