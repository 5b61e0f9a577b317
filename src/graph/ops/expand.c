/* expand.c: repeats dimensions of 1; its gradient sums them. */
#include <string.h>

#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__shape_attrs attrs = g->nodes[node].attrs.shape;
    struct ull__tensor x = *ull__in(g, node, 0);
    int rank;
    ull__dim dims[ULL_RANK];
    if (!ull__dims_broadcast(g, x.rank, x.dims, attrs.rank, attrs.dims, &rank, dims)) {
        ull__op_fail(g, node, "cannot be expanded");
        return;
    }
    ull__op_output(g, node, x.type, rank, dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    dx[0] = ull__op_sum_to(g, dy[0], g->nodes[node].inputs[0]);
}

const struct ull__op ull__op_expand = {
    .name = "expand",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .gradient = gradient,
};

int ull__expand(struct ull__graph *g, int x, int rank, const ull__dim *dims)
{
    if (rank < 0 || rank > ULL_RANK) {
        return ull__graph_fail(g, ULL_E_INVALID, "expand to %d dimensions: expected at most %d",
                               rank, ULL_RANK);
    }
    union ull__attrs attrs = {.shape = {.rank = rank}};
    if (rank > 0) {
        memcpy(attrs.shape.dims, dims, sizeof(*dims) * (size_t)rank);
    }
    return ull__graph_apply(g, &ull__op_expand, &attrs, &x, 1);
}
