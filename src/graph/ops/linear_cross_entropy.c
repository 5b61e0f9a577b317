/*
 * linear_cross_entropy.c: the last layer of a language model and its loss in one, some rows at a time: the logits,
 * rows x vocabulary in f32, are the largest tensor of such a model and are never whole here. The gradient makes them
 * again, which costs a third product.
 *
 * Source: Cut Your Losses in Large-Vocabulary Language Models (Wijmans et al., 2024).
 */
#include "../ops.h"

/* Inputs: x [..., width], w [classes, width], targets, count (optional). */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0), w = *ull__in(g, node, 1), y = *ull__in(g, node, 2);
    bool fits = x.rank >= 2 && w.rank == 2 && y.rank == x.rank - 1 &&
                ull__dim_may_equal(g->symbols, x.dims[x.rank - 1], w.dims[1]) &&
                (y.type == ULL_TYPE_I32 || y.type == ULL_TYPE_I64);
    for (int i = 0; fits && i < y.rank; ++i) {
        fits = ull__dim_may_equal(g->symbols, x.dims[i], y.dims[i]);
    }
    if (!fits) {
        ull__op_fail(g, node, "rows, weights and targets do not fit");
        return;
    }
    ull__op_output(g, node, ULL_TYPE_F32, 0, NULL);
    ull__op_output(g, node, ULL_TYPE_F32, y.rank, y.dims);
}

/* Inputs: x, w, targets, logarithms of sums, dy, count (optional). Outputs: of x and of w. */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
    ull__op_output_like(g, node, g->nodes[node].inputs[1]);
}

static double classes(const struct ull__graph *g, int node, const int64_t *values)
{
    return (double)ull__dim_value(g->symbols, ull__in(g, node, 1)->dims[0], values);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    bool grad = (g->nodes[node].op->flags & ULL_OP_GRADIENT) != 0;
    double rows = ull__in_elements(g, node, 2, values), all = classes(g, node, values);
    cost->matrix_flops = 2 * ull__in_elements(g, node, 0, values) * all * (grad ? 3 : 1);
    cost->flops = rows * all * 6;
    /* The logits of each turn go to memory and back. */
    cost->bytes += rows * all * 4 * (grad ? 4 : 2);
}

/* The logits of one turn, in f32, and in the gradient once more in the type of the products. */
static int64_t workspace(const struct ull__graph *g, int node, const int64_t *values)
{
    const struct ull__node *of = &g->nodes[node];
    int64_t rows = ull__tensor_elements(g, of->inputs[2], values);
    int64_t chunk = of->attrs.loss.chunk, bytes;
    bool grad = (of->op->flags & ULL_OP_GRADIENT) != 0,
         half = ull__type_is_half(ull__in(g, node, 0)->type);
    if (chunk > 0 && chunk < rows) {
        rows = chunk;
    }
    int64_t all = ull__dim_value(g->symbols, ull__in(g, node, 1)->dims[0], values);
    if (rows < 0 || all < 0 || __builtin_mul_overflow(rows, all, &bytes) ||
        __builtin_mul_overflow(bytes, grad && half ? 6 : 4, &bytes)) {
        return ULL_DIM_BAD;
    }
    return bytes;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    (void)wanted;
    bool counted = of.input_count > 3;
    int grad = ull__graph_node(g, &ull__op_linear_cross_entropy_grad, &of.attrs,
                               (int[]){of.inputs[0], of.inputs[1], of.inputs[2], of.outputs[1],
                                       dy[0], counted ? of.inputs[3] : ULL_NONE},
                               counted ? 6 : 5);
    for (int i = 0; i < 2 && grad != ULL_NONE; ++i) {
        dx[i] = g->nodes[grad].outputs[i];
    }
}

const struct ull__op ull__op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 3,
    .inputs_most = 4,
    .keeps = 1u << 2 | 1u << 3,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
    .workspace = workspace,
};

const struct ull__op ull__op_linear_cross_entropy_grad = {
    .name = "linear_cross_entropy_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 5,
    .inputs_most = 6,
    .infer = infer_grad,
    .cost = cost,
    .workspace = workspace,
};

int ull__linear_cross_entropy(struct ull__graph *g, int x, int w, int targets, int count,
                              struct ull__loss_attrs attrs)
{
    return ull__graph_apply(g, &ull__op_linear_cross_entropy, &(union ull__attrs){.loss = attrs},
                            (int[]){x, w, targets, count}, count == ULL_NONE ? 3 : 4);
}
