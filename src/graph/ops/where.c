/* where.c: an element of one of two tensors, as a condition says. All three are broadcast. */
#include "../ops.h"

/* Inputs: condition, a, b. */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor c = *ull__in(g, node, 0), a = *ull__in(g, node, 1), b = *ull__in(g, node, 2);
    int rank, both;
    ull__dim dims[ULL_RANK], all[ULL_RANK];
    if (!ull__dims_broadcast(g, a.rank, a.dims, b.rank, b.dims, &rank, dims) ||
        !ull__dims_broadcast(g, c.rank, c.dims, rank, dims, &both, all)) {
        ull__op_fail(g, node, "the shapes do not fit");
        return;
    }
    ull__op_output(g, node, a.rank == 0 && b.rank > 0 ? b.type : a.type, both, all);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    int zero = ull__graph_scalar(g, 0);
    if (wanted[1]) {
        dx[1] = ull__op_sum_to(g, ull__where(g, of.inputs[0], dy[0], zero), of.inputs[1]);
    }
    if (wanted[2]) {
        dx[2] = ull__op_sum_to(g, ull__where(g, of.inputs[0], zero, dy[0]), of.inputs[2]);
    }
}

const struct ull__op ull__op_where = {
    .name = "where",
    .flags = ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 3,
    .inputs_most = 3,
    .keeps = 1u << 0,
    .infer = infer,
    .gradient = gradient,
};

int ull__where(struct ull__graph *g, int condition, int a, int b)
{
    return ull__graph_apply(g, &ull__op_where, NULL, (int[]){condition, a, b}, 3);
}
