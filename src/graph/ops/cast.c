/* cast.c: the same values in another type. */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0);
    ull__op_output(g, node, g->nodes[node].attrs.cast.to, x.rank, x.dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    enum ull__type type = ull__in(g, node, 0)->type;
    (void)wanted;
    dx[0] = ull__type_is_float(type) ? ull__cast(g, dy[0], type) : ULL_NONE;
}

const struct ull__op ull__op_cast = {
    .name = "cast",
    .flags = ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .keeps = 1u << 0,
    .infer = infer,
    .gradient = gradient,
};

int ull__cast(struct ull__graph *g, int x, enum ull__type to)
{
    if (x == ULL_NONE || !ull__graph_ok(g) || g->tensors[x].type == to) {
        return x;
    }
    union ull__attrs attrs = {.cast = {.to = to}};
    return ull__graph_apply(g, &ull__op_cast, &attrs, &x, 1);
}
