/* slice.c: every step-th element of an axis from a place on; a view where that is a run. Its gradient has zeros around. */
#include "../ops.h"

static bool is_run(const struct ull__tensor *x, const struct ull__axis_attrs *attrs)
{
    for (int i = 0; i < attrs->axis; ++i) {
        if (x->dims[i] != 1) {
            return false;
        }
    }
    return attrs->step == 1 && ull__type_bits(x->type) >= 8;
}

static void infer(struct ull__graph *g, int node)
{
    const struct ull__axis_attrs attrs = g->nodes[node].attrs.axis;
    struct ull__tensor x = *ull__in(g, node, 0);
    if (attrs.axis < 0 || attrs.axis >= x.rank || attrs.step == 0) {
        ull__op_fail(g, node, "axis %d, step %d: expected an axis from 0 to %d and a step",
                     attrs.axis, attrs.step, x.rank - 1);
        return;
    }
    ull__dim whole = x.dims[attrs.axis];
    if (ull__dim_is_const(whole) && ull__dim_is_const(attrs.begin) &&
        ull__dim_is_const(attrs.size) && attrs.size > 0) {
        int64_t last = attrs.begin + (attrs.size - 1) * attrs.step;
        if (attrs.begin < 0 || attrs.begin >= whole || last < 0 || last >= whole) {
            ull__op_fail(g, node, "elements %lld to %lld of %lld", (long long)attrs.begin,
                         (long long)last, (long long)whole);
            return;
        }
    }
    x.dims[attrs.axis] = attrs.size;
    if (is_run(&x, &attrs)) {
        ull__dim below = ull__dims_product(g, x.rank - attrs.axis - 1, x.dims + attrs.axis + 1);
        ull__dim offset = ull__dim_mul(g->symbols, ull__dim_mul(g->symbols, below, attrs.begin),
                                       ull__type_bits(x.type) / 8);
        ull__op_output_view(g, node, g->nodes[node].inputs[0], x.type, x.rank, x.dims, offset);
    } else {
        ull__op_output(g, node, x.type, x.rank, x.dims);
    }
}

/* attrs.axis.size is that of the axis before. */
static void infer_grad(struct ull__graph *g, int node)
{
    struct ull__tensor dy = *ull__in(g, node, 0);
    dy.dims[g->nodes[node].attrs.axis.axis] = g->nodes[node].attrs.axis.size;
    ull__op_output(g, node, dy.type, dy.rank, dy.dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    union ull__attrs attrs = g->nodes[node].attrs;
    (void)wanted;
    attrs.axis.size = ull__in(g, node, 0)->dims[attrs.axis.axis];
    dx[0] = ull__graph_apply(g, &ull__op_slice_grad, &attrs, dy, 1);
}

const struct ull__op ull__op_slice = {
    .name = "slice",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .gradient = gradient,
};

const struct ull__op ull__op_slice_grad = {
    .name = "slice_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer_grad,
};

int ull__slice(struct ull__graph *g, int x, int axis, ull__dim begin, ull__dim size, int step)
{
    union ull__attrs attrs = {.axis = {.axis = axis, .begin = begin, .size = size, .step = step}};
    return ull__graph_apply(g, &ull__op_slice, &attrs, &x, 1);
}
