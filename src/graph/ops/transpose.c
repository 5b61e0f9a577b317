/* transpose.c: another order of the dimensions. A copy, unless only dimensions of 1 move: then a view. */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__shape_attrs *attrs = &g->nodes[node].attrs.shape;
    struct ull__tensor x = *ull__in(g, node, 0);
    ull__dim dims[ULL_RANK];
    unsigned seen = 0;
    for (int i = 0; i < x.rank; ++i) {
        int from = attrs->order[i];
        if (from < 0 || from >= x.rank || (seen >> from & 1) != 0) {
            ull__op_fail(g, node, "the order is not one of its %d dimensions", x.rank);
            return;
        }
        seen |= 1u << from;
        dims[i] = x.dims[from];
    }
    ull__op_output(g, node, x.type, x.rank, dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__shape_attrs attrs = g->nodes[node].attrs.shape;
    int rank = ull__in(g, node, 0)->rank, inverse[ULL_RANK] = {0};
    (void)wanted;
    for (int i = 0; i < rank; ++i) {
        inverse[attrs.order[i]] = i;
    }
    dx[0] = ull__transpose(g, dy[0], inverse);
}

const struct ull__op ull__op_transpose = {
    .name = "transpose",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .gradient = gradient,
};

int ull__transpose(struct ull__graph *g, int x, const int *order)
{
    if (x == ULL_NONE || !ull__graph_ok(g)) {
        return ULL_NONE;
    }
    const struct ull__tensor of = g->tensors[x];
    union ull__attrs attrs = {.shape = {.rank = of.rank}};
    ull__dim dims[ULL_RANK];
    int last = -1;
    bool moves = false;
    unsigned seen = 0;
    for (int i = 0; i < of.rank; ++i) {
        attrs.shape.order[i] = order[i];
        if (order[i] >= 0 && order[i] < of.rank) {
            dims[i] = of.dims[order[i]];
            moves |= (seen >> order[i] & 1) != 0;
            seen |= 1u << order[i];
            if (dims[i] != 1) {
                moves |= order[i] < last;
                last = order[i];
            }
        } else {
            moves = true;
        }
    }
    return moves ? ull__graph_apply(g, &ull__op_transpose, &attrs, &x, 1)
                 : ull__reshape(g, x, of.rank, dims);
}
