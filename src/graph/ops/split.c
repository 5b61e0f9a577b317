/* split.c: a tensor in parts along an axis: views where the parts lie one behind the other, else copies. */
#include "../ops.h"

/* Whether what lies before the axis is one, so that a part of the axis is a run of bytes. */
static bool is_run(const struct ull__tensor *x, int axis)
{
    for (int i = 0; i < axis; ++i) {
        if (x->dims[i] != 1) {
            return false;
        }
    }
    return ull__type_bits(x->type) >= 8;
}

static void infer(struct ull__graph *g, int node)
{
    const struct ull__axis_attrs attrs = g->nodes[node].attrs.axis;
    struct ull__tensor x = *ull__in(g, node, 0);
    if (attrs.axis < 0 || attrs.axis >= x.rank) {
        ull__op_fail(g, node, "axis %d: expected 0 to %d", attrs.axis, x.rank - 1);
        return;
    }
    ull__dim whole = x.dims[attrs.axis], begin = 0;
    ull__dim below = ull__dim_mul(
        g->symbols, ull__dims_product(g, x.rank - attrs.axis - 1, x.dims + attrs.axis + 1),
        ull__type_bits(x.type) / 8);
    for (int i = 0; i < attrs.count; ++i) {
        x.dims[attrs.axis] = attrs.sizes[i];
        if (is_run(&x, attrs.axis)) {
            ull__op_output_view(g, node, g->nodes[node].inputs[0], x.type, x.rank, x.dims,
                                ull__dim_mul(g->symbols, begin, below));
        } else {
            ull__op_output(g, node, x.type, x.rank, x.dims);
        }
        begin = ull__dim_add(g->symbols, begin, attrs.sizes[i]);
    }
    if (!ull__dim_may_equal(g->symbols, begin, whole)) {
        ull__op_fail(g, node, "the %d parts are not the whole of axis %d", attrs.count, attrs.axis);
    }
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    int parts[16];
    (void)wanted;
    for (int i = 0; i < of.output_count; ++i) {
        parts[i] = dy[i];
        if (parts[i] == ULL_NONE) {
            const struct ull__tensor part = g->tensors[of.outputs[i]];
            parts[i] = ull__cast(g, ull__expand(g, ull__graph_scalar(g, 0), part.rank, part.dims),
                                 part.type);
        }
    }
    dx[0] = ull__concat(g, parts, of.output_count, of.attrs.axis.axis);
}

const struct ull__op ull__op_split = {
    .name = "split",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .gradient = gradient,
};

int ull__split(struct ull__graph *g, int x, int axis, int count, const ull__dim *sizes)
{
    if (x == ULL_NONE || !ull__graph_ok(g)) {
        return ULL_NONE;
    }
    const struct ull__tensor of = g->tensors[x];
    union ull__attrs attrs = {.axis = {.axis = axis, .count = count}};
    if (count < 1 || count > 16 || axis < 0 || axis >= of.rank) {
        return ull__graph_fail(g, ULL_E_INVALID, "split of axis %d in %d parts: expected 1 to 16",
                               axis, count);
    }
    for (int i = 0; i < count; ++i) {
        attrs.axis.sizes[i] =
            sizes != NULL ? sizes[i] : ull__dim_div(g->symbols, of.dims[axis], count);
    }
    return ull__graph_apply(g, &ull__op_split, &attrs, &x, 1);
}
