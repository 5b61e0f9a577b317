/*
 * rotary.c: turns pairs of a head's elements by angles that grow with the position. Its gradient is the same the
 * other way round.
 *
 * Source: RoFormer (Su et al., 2021); the pairs are halves of a head as in LLaMA's published code for Transformers, or
 * neighbours (interleaved).
 */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__tensor *x = ull__in(g, node, 0);
    int heads = g->nodes[node].attrs.rotary.heads;
    if (x->rank != 3 || heads < 1 ||
        (ull__dim_is_const(x->dims[2]) && x->dims[2] % (2 * heads) != 0)) {
        ull__op_fail(g, node, "expected [samples, time, %d heads of an even width]", heads);
        return;
    }
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = ull__out_elements(g, node, 0, values) * 4;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    union ull__attrs attrs = g->nodes[node].attrs;
    (void)wanted;
    attrs.rotary.inverse = !attrs.rotary.inverse;
    dx[0] = ull__graph_apply(g, &ull__op_rotary, &attrs, dy, 1);
}

const struct ull__op ull__op_rotary = {
    .name = "rotary",
    .flags = ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

int ull__rotary(struct ull__graph *g, int x, int heads, struct ull__rotary_attrs attrs)
{
    attrs.heads = heads;
    return ull__graph_apply(g, &ull__op_rotary, &(union ull__attrs){.rotary = attrs}, &x, 1);
}
