/* share.c: see share.h. */
#include "share.h"

static int flat(struct ull__graph *graph, int x)
{
    return ull__reshape(graph, x, 1, (ull__dim[]){ULL_NONE});
}

static union ull__attrs attrs_of(enum ull__collective kind, int devices)
{
    return (union ull__attrs){
        .collective = {.kind = kind, .reduce = ULL_REDUCTION_SUM, .size = devices}};
}

void ull__share_cut(struct ull__graph *graph, struct ull__tensor *tensor, int devices)
{
    ull__dim whole = ull__dims_product(graph, tensor->rank, tensor->dims);
    tensor->rank = 1;
    tensor->dims[0] = ull__dim_div_up(graph->symbols, whole, devices);
    tensor->shard_axis = 0;
    tensor->shard_group = 0;
}

int ull__share_reduce(struct ull__graph *graph, int x, enum ull__reduction reduce, int devices,
                      bool in_place)
{
    union ull__attrs attrs = attrs_of(ULL_ALL_REDUCE, devices);
    attrs.collective.reduce = reduce;
    return ull__graph_apply(graph, &ull__op_collective, &attrs, (int[]){x, x}, in_place ? 2 : 1);
}

int ull__share_scatter(struct ull__graph *graph, int x, int devices)
{
    union ull__attrs attrs = attrs_of(ULL_REDUCE_SCATTER, devices);
    x = flat(graph, x);
    return ull__graph_apply(graph, &ull__op_collective, &attrs, &x, 1);
}

int ull__share_part(struct ull__graph *graph, int x, int devices)
{
    union ull__attrs attrs = attrs_of(ULL_OWN_PART, devices);
    x = flat(graph, x);
    return ull__graph_apply(graph, &ull__op_collective, &attrs, &x, 1);
}

int ull__share_gather(struct ull__graph *graph, int part, const struct ull__tensor *like, int into,
                      int devices)
{
    union ull__attrs attrs = attrs_of(ULL_ALL_GATHER, devices);
    struct ull__tensor of = *like; /* the list moves when nodes are added */
    attrs.collective.whole = ull__dims_product(graph, of.rank, of.dims);
    int inputs[2] = {part, into != ULL_NONE ? flat(graph, into) : ULL_NONE};
    int made = ull__graph_apply(graph, &ull__op_collective, &attrs, inputs, into != ULL_NONE ? 2 : 1);
    return into != ULL_NONE ? made : ull__reshape(graph, made, of.rank, of.dims);
}
