/*
 * cross_entropy.c: the loss of a classification, and its gradient.
 *
 * The loss is the sum over the targets that count, divided by `count`, which is the number of valid targets of the
 * whole batch: micro-batches then add up to what the batch at once would give, however the targets that
 * are ignored lie (a mean of means is another number).
 */
#include "../ops.h"

/* Inputs: logits, targets, count (optional). */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0), y = *ull__in(g, node, 1);
    bool fits =
        x.rank >= 1 && y.rank == x.rank - 1 && (y.type == ULL_TYPE_I32 || y.type == ULL_TYPE_I64);
    for (int i = 0; fits && i < y.rank; ++i) {
        fits = ull__dim_may_equal(g->symbols, x.dims[i], y.dims[i]);
    }
    if (!fits) {
        ull__op_fail(g, node, "the targets are not a whole number for each row of logits");
        return;
    }
    ull__op_output(g, node, ULL_TYPE_F32, 0, NULL);
    ull__op_output(g, node, ULL_TYPE_F32, y.rank, y.dims);
}

/* Inputs: logits, targets, logarithms of sums, dy, count (optional). */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = ull__in_elements(g, node, 0, values) * 6;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    bool counted = of.input_count > 2;
    dx[0] = ull__graph_apply(g, &ull__op_cross_entropy_grad, &of.attrs,
                             (int[]){of.inputs[0], of.inputs[1], of.outputs[1], dy[0],
                                     counted ? of.inputs[2] : ULL_NONE},
                             counted ? 5 : 4);
}

const struct ull__op ull__op_cross_entropy = {
    .name = "cross_entropy",
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 2,
    .inputs_most = 3,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 4,
    .inputs_most = 5,
    .infer = infer_grad,
    .cost = cost,
};

int ull__cross_entropy(struct ull__graph *g, int logits, int targets, int count,
                       struct ull__loss_attrs attrs)
{
    return ull__graph_apply(g, &ull__op_cross_entropy, &(union ull__attrs){.loss = attrs},
                            (int[]){logits, targets, count}, count == ULL_NONE ? 2 : 3);
}
