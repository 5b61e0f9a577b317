/* concat.c: tensors one behind the other along an axis; its gradient is split. */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    const struct ull__node of = g->nodes[node];
    struct ull__tensor all = *ull__in(g, node, 0);
    int axis = of.attrs.axis.axis;
    if (axis < 0 || axis >= all.rank) {
        ull__op_fail(g, node, "axis %d: expected 0 to %d", axis, all.rank - 1);
        return;
    }
    for (int i = 1; i < of.input_count; ++i) {
        const struct ull__tensor *part = ull__in(g, node, i);
        bool fits = part->rank == all.rank && part->type == all.type;
        for (int j = 0; fits && j < all.rank; ++j) {
            fits = j == axis || ull__dim_may_equal(g->symbols, part->dims[j], all.dims[j]);
        }
        if (!fits) {
            ull__op_fail(g, node, "part %d does not fit along axis %d", i, axis);
            return;
        }
        all.dims[axis] = ull__dim_add(g->symbols, all.dims[axis], part->dims[axis]);
    }
    ull__op_output(g, node, all.type, all.rank, all.dims);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    int axis = of.attrs.axis.axis;
    ull__dim begin = 0;
    for (int i = 0; i < of.input_count; ++i) {
        ull__dim size = g->tensors[of.inputs[i]].dims[axis];
        if (wanted[i]) {
            dx[i] = ull__slice(g, dy[0], axis, begin, size, 1);
        }
        begin = ull__dim_add(g->symbols, begin, size);
    }
}

const struct ull__op ull__op_concat = {
    .name = "concat",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = ULL_NONE,
    .infer = infer,
    .gradient = gradient,
};

int ull__concat(struct ull__graph *g, const int *parts, int count, int axis)
{
    union ull__attrs attrs = {.axis = {.axis = axis}};
    return ull__graph_apply(g, &ull__op_concat, &attrs, parts, count);
}
