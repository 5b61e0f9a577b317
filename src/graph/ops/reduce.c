/* reduce.c: sums, means, maxima ... over some dimensions, and their gradients. */
#include <string.h>

#include "../ops.h"

static const char *const texts[] = {
#define X(name, text) text,
    ULL_REDUCE_MAP(X)
#undef X
};

const char *ull__reduce_text(enum ull__reduce kind)
{
    return texts[kind];
}

static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0);
    const struct ull__reduce_attrs *attrs = &g->nodes[node].attrs.reduce;
    if (attrs->axes >> x.rank != 0) {
        ull__op_fail(g, node, "dimensions %#x are not all there", attrs->axes);
        return;
    }
    ull__dim dims[ULL_RANK];
    int rank = 0;
    for (int i = 0; i < x.rank; ++i) {
        bool gone = (attrs->axes >> i & 1) != 0;
        if (!gone || attrs->keep) {
            dims[rank++] = gone ? 1 : x.dims[i];
        }
    }
    ull__op_output(g, node, x.type, rank, dims);
}

/* Inputs: dy, x, y; the last two only where the kind needs them. attrs.reduce has the shape of x. */
static void infer_grad(struct ull__graph *g, int node)
{
    const struct ull__reduce_attrs attrs = g->nodes[node].attrs.reduce;
    ull__op_output(g, node, ull__in(g, node, 0)->type, attrs.rank, attrs.dims);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    cost->flops = ull__in_elements(g, node, 0, values);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    union ull__attrs attrs = of.attrs;
    const struct ull__tensor *x = &g->tensors[of.inputs[0]];
    (void)wanted;
    attrs.reduce.rank = x->rank;
    memcpy(attrs.reduce.dims, x->dims, sizeof(x->dims));
    bool linear = attrs.reduce.kind == ULL_REDUCE_SUM || attrs.reduce.kind == ULL_REDUCE_MEAN;
    bool input_alone =
        attrs.reduce.kind == ULL_REDUCE_SUM_SQUARE || attrs.reduce.kind == ULL_REDUCE_L1;
    dx[0] = ull__graph_apply(g, &ull__op_reduce_grad, &attrs,
                             (int[]){dy[0], of.inputs[0], of.outputs[0]},
                             linear        ? 1
                             : input_alone ? 2
                                           : 3);
}

const struct ull__op ull__op_reduce = {
    .name = "reduce",
    .precision = ULL_PRECISION_FULL,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_reduce_grad = {
    .name = "reduce_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 3,
    .infer = infer_grad,
};

int ull__reduce(struct ull__graph *g, enum ull__reduce kind, int x, uint32_t axes, bool keep)
{
    union ull__attrs attrs = {.reduce = {.kind = (int)kind, .axes = axes, .keep = keep}};
    return ull__graph_apply(g, &ull__op_reduce, &attrs, &x, 1);
}
