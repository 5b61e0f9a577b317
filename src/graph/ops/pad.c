/* pad.c: a value around a tensor; its gradient is the slice without it. */
#include <string.h>

#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__pad_attrs attrs = g->nodes[node].attrs.pad;
    struct ull__tensor x = *ull__in(g, node, 0);
    for (int i = 0; i < x.rank; ++i) {
        x.dims[i] = ull__dim_add(g->symbols, ull__dim_add(g->symbols, x.dims[i], attrs.before[i]),
                                 attrs.after[i]);
    }
    ull__op_output(g, node, x.type, x.rank, x.dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__pad_attrs attrs = g->nodes[node].attrs.pad;
    const struct ull__tensor x = *ull__in(g, node, 0);
    (void)wanted;
    dx[0] = dy[0];
    for (int i = 0; i < x.rank; ++i) {
        if (attrs.before[i] != 0 || attrs.after[i] != 0) {
            dx[0] = ull__slice(g, dx[0], i, attrs.before[i], x.dims[i], 1);
        }
    }
}

const struct ull__op ull__op_pad = {
    .name = "pad",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .gradient = gradient,
};

int ull__pad(struct ull__graph *g, int x, const ull__dim *before, const ull__dim *after, double value)
{
    if (x == ULL_NONE || !ull__graph_ok(g)) {
        return ULL_NONE;
    }
    union ull__attrs attrs = {.pad = {.rank = g->tensors[x].rank, .value = value}};
    memcpy(attrs.pad.before, before, sizeof(*before) * (size_t)attrs.pad.rank);
    memcpy(attrs.pad.after, after, sizeof(*after) * (size_t)attrs.pad.rank);
    return ull__graph_apply(g, &ull__op_pad, &attrs, &x, 1);
}
