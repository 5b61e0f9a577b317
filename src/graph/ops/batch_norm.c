/*
 * batch_norm.c: batch normalization over samples, heights and widths, and its gradient.
 *
 * In training the statistics are those of attrs.norm.group samples (0: of the whole micro-batch); each group's
 * mean and variance count for the running ones in turn. These are state: their new versions are outputs, which are
 * written in the first run of the node and not when it is recomputed. Statistics are f32 whatever x is.
 */
#include "../ops.h"
#include "../step.h"

/* How many groups of samples have statistics of their own. */
static ull__dim groups_of(struct ull__graph *g, const struct ull__tensor *x, int64_t group)
{
    return group == 0 ? 1 : ull__dim_div_up(g->symbols, x->dims[0], group);
}

/* Inputs: x, scale, shift, mean, var. */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0);
    const struct ull__norm_attrs *attrs = &g->nodes[node].attrs.norm;
    if (x.rank < 2) {
        ull__op_fail(g, node, "expected samples and channels");
        return;
    }
    for (int i = 1; i < 5; ++i) {
        const struct ull__tensor *vector = ull__in(g, node, i);
        if (vector->rank != 1 || !ull__dim_may_equal(g->symbols, vector->dims[0], x.dims[1])) {
            ull__op_fail(g, node, "input %d is not a vector with an element a channel", i);
            return;
        }
    }
    ull__op_output(g, node, x.type, x.rank, x.dims);
    if (!attrs->training) {
        return;
    }
    ull__dim groups = attrs->group == 0 ? 1 : ull__dim_div_up(g->symbols, x.dims[0], attrs->group);
    ull__dim dims[2] = {groups, x.dims[1]};
    ull__op_output(g, node, ULL_TYPE_F32, 2, dims);
    ull__op_output(g, node, ULL_TYPE_F32, 2, dims);
    ull__op_output_version(g, node, g->nodes[node].inputs[3]);
    ull__op_output_version(g, node, g->nodes[node].inputs[4]);
}

/* Inputs: dy, x, scale, mean, 1/sqrt(var + epsilon). */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
}

/* Once over x for the statistics, once more to apply them. */
static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    double elements = ull__in_elements(g, node, 0, values);
    bool grad = g->nodes[node].op == &ull__op_batch_norm_grad;
    bool twice = grad || g->nodes[node].attrs.norm.training;
    double width = ull__type_bits(ull__in(g, node, 0)->type) / 8.0;
    cost->flops = elements * (grad ? 10 : twice ? 6 : 2);
    cost->bytes += twice ? elements * width * (grad ? 2 : 1) : 0;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    if (!of.attrs.norm.training) {
        ull__op_fail(g, node, "no gradient is defined outside of training");
        return;
    }
    int grad =
        ull__graph_node(g, &ull__op_batch_norm_grad, &of.attrs,
                        (int[]){dy[0], of.inputs[0], of.inputs[1], of.outputs[1], of.outputs[2]}, 5);
    for (int i = 0; i < 3 && grad != ULL_NONE; ++i) {
        dx[i] = g->nodes[grad].outputs[i];
    }
}

const struct ull__op ull__op_batch_norm = {
    .name = "batch_norm",
    .flags = ULL_OP_STATE | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 5,
    .inputs_most = 5,
    .keeps = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 5,
    .inputs_most = 5,
    .infer = infer_grad,
    .cost = cost,
};

int ull__batch_norm(struct ull__graph *g, int x, int scale, int shift, int mean, int var,
                    struct ull__norm_attrs attrs)
{
    return ull__graph_apply(g, &ull__op_batch_norm, &(union ull__attrs){.norm = attrs},
                            (int[]){x, scale, shift, mean, var}, 5);
}

bool ull__has_bn(const struct ull__graph *model)
{
    for (int i = 0; i < model->node_count; ++i) {
        if (model->nodes[i].op == &ull__op_batch_norm && model->nodes[i].attrs.norm.training) {
            return true;
        }
    }
    return false;
}

void ull__set_bn_group(struct ull__graph *model, int64_t group)
{
    for (int i = 0; i < model->node_count; ++i) {
        struct ull__node *node = &model->nodes[i];
        if (node->op == &ull__op_batch_norm && node->attrs.norm.training) {
            node->attrs.norm.group = group;
            ull__dim groups = groups_of(model, ull__in(model, i, 0), group);
            model->tensors[node->outputs[1]].dims[0] = groups;
            model->tensors[node->outputs[2]].dims[0] = groups;
        }
    }
}
