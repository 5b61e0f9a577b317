/*
 * dropout.c: zeros in random places. Which ones follows from the layer's key, the step and the sample (random.h), so nothing has to
 * be kept for the gradient, which drops the same places of dy; and a second run, another micro-batch or another
 * device draw alike.
 */
#include "../ops.h"

/* Inputs: x, the generator. */
static void infer(struct ull__graph *g, int node)
{
    double rate = g->nodes[node].attrs.dropout.rate;
    if (!(rate >= 0 && rate < 1)) {
        ull__op_fail(g, node, "rate %g: expected 0 up to 1", rate);
        return;
    }
    if (ull__in(g, node, 1)->type != ULL_TYPE_I64 || ull__in(g, node, 1)->rank != 1) {
        ull__op_fail(g, node, "the generator is not a vector of i64");
        return;
    }
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = ull__out_elements(g, node, 0, values) * 10;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    dx[0] = ull__graph_apply(g, &ull__op_dropout, &of.attrs, (int[]){dy[0], of.inputs[1]}, 2);
}

const struct ull__op ull__op_dropout = {
    .name = "dropout",
    .flags = ULL_OP_RANDOM | ULL_OP_INPLACE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .keeps = 1u << 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

int ull__dropout(struct ull__graph *g, int x, double rate)
{
    if (rate == 0) {
        return x;
    }
    int generator = ull__graph_generator(g);
    union ull__attrs attrs = {.dropout = {.rate = rate, .key = (uint32_t)g->node_count}};
    return ull__graph_apply(g, &ull__op_dropout, &attrs, (int[]){x, generator}, 2);
}
