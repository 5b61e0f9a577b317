/*
 * move.c: copies between memory spaces, and collectives among devices.
 *
 * Every device of a group runs the same nodes in the same order. A tensor is cut along an axis into as many equal parts as there are
 * devices, device i has the i-th; where that does not come out even, the last parts are filled up with zeros.
 */
#include "../ops.h"

static void infer_copy(struct ull__graph *g, int node)
{
    int made = ull__op_output_like(g, node, g->nodes[node].inputs[0]);
    if (made != ULL_NONE) {
        g->tensors[made].space = (enum ull__space)g->nodes[node].attrs.copy.space;
        g->nodes[node].queue =
            g->tensors[made].space == ULL_SPACE_DEVICE ? ULL_QUEUE_TO_DEVICE : ULL_QUEUE_TO_HOST;
    }
}

const struct ull__op ull__op_copy = {
    .name = "copy",
    .flags = ULL_OP_COPY,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .keeps = ~0u,
    .infer = infer_copy,
};

static bool cuts(int kind)
{
    return kind == ULL_REDUCE_SCATTER || kind == ULL_OWN_PART;
}

/* The shape of the result; false: the attributes do not fit. */
static bool collective_dims(struct ull__graph *g, const struct ull__collective_attrs *attrs,
                            struct ull__tensor *x)
{
    if (attrs->size < 1 || attrs->axis < 0 || attrs->axis >= (x->rank > 0 ? x->rank : 1) ||
        (x->rank == 0 && (cuts(attrs->kind) || attrs->kind == ULL_ALL_GATHER))) {
        return false;
    }
    if (attrs->kind == ULL_ALL_GATHER && attrs->whole != 0) {
        ull__dim part = ull__dim_div_up(g->symbols, attrs->whole, attrs->size);
        bool fits = ull__dim_may_equal(g->symbols, part, x->dims[attrs->axis]);
        x->dims[attrs->axis] = attrs->whole;
        return fits;
    }
    if (attrs->kind == ULL_ALL_GATHER) {
        x->dims[attrs->axis] = ull__dim_mul(g->symbols, x->dims[attrs->axis], attrs->size);
    } else if (cuts(attrs->kind)) {
        x->dims[attrs->axis] = ull__dim_div_up(g->symbols, x->dims[attrs->axis], attrs->size);
    }
    return true;
}

/* Inputs: what each device has; a tensor of the result's shape that gets it as its new version, or ULL_NONE. */
static void infer_collective(struct ull__graph *g, int node)
{
    const struct ull__collective_attrs attrs = g->nodes[node].attrs.collective;
    struct ull__tensor x = *ull__in(g, node, 0);
    if (!collective_dims(g, &attrs, &x)) {
        ull__op_fail(g, node, "%d devices along axis %d: expected at least one, and an axis",
                     attrs.size, attrs.axis);
        return;
    }
    bool adds = attrs.kind == ULL_ALL_REDUCE || attrs.kind == ULL_REDUCE_SCATTER;
    if (adds && attrs.reduce == ULL_REDUCTION_MEAN && x.type == ULL_TYPE_BOOL) {
        ull__op_fail(g, node, "yes and no have no mean: expected numbers, or the largest");
        return;
    }
    g->nodes[node].queue = ULL_QUEUE_COMM;
    if (ull__has_in(g, node, 1)) {
        const struct ull__tensor *into = ull__in(g, node, 1);
        bool fits = into->rank == x.rank && into->type == x.type;
        for (int i = 0; i < x.rank && fits; ++i) {
            fits = ull__dim_may_equal(g->symbols, x.dims[i], into->dims[i]);
        }
        if (!fits) {
            ull__op_fail(g, node, "the result does not fit into the tensor that is to get it");
            return;
        }
        ull__op_output_version(g, node, g->nodes[node].inputs[1]);
        return;
    }
    int made = ull__op_output(g, node, x.type, x.rank, x.dims);
    if (made != ULL_NONE && cuts(attrs.kind)) {
        g->tensors[made].shard_axis = attrs.axis;
        g->tensors[made].shard_group = attrs.group;
    }
}

/*
 * Bytes are those that a device sends; it receives as many meanwhile. In a ring each byte of what is reduced goes n - 1 of n times
 * around, and what is gathered too (Patarasuk and Yuan, 2009). To take one's own part is a copy within the device.
 */
static void cost_collective(const struct ull__graph *g, int node, const int64_t *values,
                            struct ull__cost *cost)
{
    const struct ull__collective_attrs *attrs = &g->nodes[node].attrs.collective;
    double width = ull__type_bits(ull__in(g, node, 0)->type) / 8.0;
    double in = ull__in_elements(g, node, 0, values), out = ull__out_elements(g, node, 0, values);
    double bytes = width * (in > out ? in : out), others = (attrs->size - 1.0) / attrs->size;
    switch (attrs->kind) {
    case ULL_ALL_REDUCE:
        cost->bytes = 2 * bytes * others;
        cost->flops = in * others;
        break;
    case ULL_REDUCE_SCATTER:
        cost->bytes = bytes * others;
        cost->flops = in * others;
        break;
    case ULL_OWN_PART:
        cost->bytes = 2 * width * out;
        break;
    default:
        cost->bytes = bytes * others;
        break;
    }
}

/* Each device has the gradient by the whole that it alone was given: they are added, and each keeps its part. */
static void gradient_collective(struct ull__graph *g, int node, const int *dy, const bool *wanted,
                                int *dx)
{
    union ull__attrs attrs = g->nodes[node].attrs;
    if (attrs.collective.kind != ULL_ALL_GATHER || ull__has_in(g, node, 1)) {
        ull__op_fail(g, node, "only what is gathered has a gradient");
        return;
    }
    if (wanted[0] && dy[0] != ULL_NONE) {
        attrs.collective.kind = ULL_REDUCE_SCATTER;
        attrs.collective.reduce = ULL_REDUCTION_SUM;
        dx[0] = ull__graph_apply(g, &ull__op_collective, &attrs, dy, 1);
    }
}

const struct ull__op ull__op_collective = {
    .name = "collective",
    .flags = ULL_OP_COLLECTIVE | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 2,
    .keeps = ~0u,
    .infer = infer_collective,
    .cost = cost_collective,
    .gradient = gradient_collective,
};
