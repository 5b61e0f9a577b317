/* move.c: copies between memory spaces, and collectives among devices. */
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

/* attrs.collective.size devices share; gathered and scattered along attrs.collective.axis. */
static void infer_collective(struct ull__graph *g, int node)
{
    const struct ull__collective_attrs attrs = g->nodes[node].attrs.collective;
    struct ull__tensor x = *ull__in(g, node, 0);
    if (attrs.size < 1 || attrs.axis < 0 || (x.rank > 0 && attrs.axis >= x.rank)) {
        ull__op_fail(g, node, "%d devices along axis %d: expected at least one, and an axis",
                     attrs.size, attrs.axis);
        return;
    }
    if (attrs.kind == ULL_ALL_GATHER) {
        x.dims[attrs.axis] = ull__dim_mul(g->symbols, x.dims[attrs.axis], attrs.size);
    } else if (attrs.kind == ULL_REDUCE_SCATTER) {
        x.dims[attrs.axis] = ull__dim_div_up(g->symbols, x.dims[attrs.axis], attrs.size);
    }
    int made = ull__op_output(g, node, x.type, x.rank, x.dims);
    if (made != ULL_NONE) {
        g->nodes[node].queue = ULL_QUEUE_COMM;
        if (attrs.kind == ULL_REDUCE_SCATTER) {
            g->tensors[made].shard_axis = attrs.axis;
            g->tensors[made].shard_group = attrs.group;
        }
    }
}

const struct ull__op ull__op_collective = {
    .name = "collective",
    .flags = ULL_OP_COLLECTIVE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .keeps = ~0u,
    .infer = infer_collective,
};
