/*
 * inference.c: a model as it is used: what its results need and nothing else, without dropout, with the statistics of batch norm
 * that training left, and weights in fewer bits. See step.h.
 */
#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "ops.h"
#include "step.h"

struct reducing {
    const struct ull__graph *from;
    struct ull__graph *to;
    bool *needed; /* by old tensor */
    bool *packed; /* by old tensor: weights of products alone */
    int *tensor;  /* by old tensor: the new one */
    enum ull__type weights;
};

/* Backwards from the results. A model that names none is used for its losses. */
static void find_needed(struct reducing *reducing)
{
    const struct ull__graph *from = reducing->from;
    for (int i = 0; i < from->output_count; ++i) {
        reducing->needed[from->outputs[i]] = true;
    }
    for (int i = 0; i < from->loss_count && from->output_count == 0; ++i) {
        reducing->needed[from->losses[i]] = true;
    }
    for (int i = from->node_count - 1; i >= 0; --i) {
        const struct ull__node *node = &from->nodes[i];
        bool needed = false;
        for (int j = 0; j < node->output_count; ++j) {
            needed |= reducing->needed[node->outputs[j]];
        }
        for (int j = 0; j < node->input_count && needed; ++j) {
            bool counter = node->op == &ull__op_dropout && j > 0;
            if (node->inputs[j] != ULL_NONE && !counter) {
                reducing->needed[node->inputs[j]] = true;
            }
        }
        for (int j = 0; j < node->output_count && needed; ++j) {
            reducing->needed[node->outputs[j]] = true;
        }
    }
}

static bool takes_weights(const struct ull__op *op)
{
    return op == &ull__op_matmul || op == &ull__op_conv2d || op == &ull__op_conv_transpose2d;
}

/* Weights can be in 8 bits where all that read them are products, which have them as their second operand. */
static void find_packed(struct reducing *reducing)
{
    const struct ull__graph *from = reducing->from;
    for (int i = 0; i < from->tensor_count; ++i) {
        const struct ull__tensor *tensor = &from->tensors[i];
        reducing->packed[i] = tensor->role == ULL_ROLE_PARAMETER && tensor->rank >= 2;
    }
    for (int i = 0; i < from->node_count; ++i) {
        const struct ull__node *node = &from->nodes[i];
        if (!reducing->needed[node->outputs[0]]) {
            continue;
        }
        for (int j = 0; j < node->input_count; ++j) {
            if (node->inputs[j] != ULL_NONE && !(j == 1 && takes_weights(node->op))) {
                reducing->packed[node->inputs[j]] = false;
            }
        }
    }
}

static void take_sources(struct reducing *reducing)
{
    for (int i = 0; i < reducing->from->tensor_count; ++i) {
        struct ull__tensor tensor = reducing->from->tensors[i];
        if (tensor.node != ULL_NONE || !reducing->needed[i]) {
            continue;
        }
        if (reducing->packed[i] && ull__type_bits(reducing->weights) == 8) {
            tensor.type = reducing->weights;
        }
        tensor.data = NULL; /* what is in them does not matter here */
        tensor.data_bytes = 0;
        tensor.of = ULL_NONE;
        reducing->tensor[i] = ull__graph_tensor(reducing->to, &tensor);
    }
}

static void take_node(struct reducing *reducing, const struct ull__node *node)
{
    struct ull__graph *to = reducing->to;
    union ull__attrs attrs = node->attrs;
    if (node->op == &ull__op_dropout) {
        reducing->tensor[node->outputs[0]] = reducing->tensor[node->inputs[0]];
        return;
    }
    if (node->op == &ull__op_batch_norm) {
        attrs.norm.training = false;
    }
    if (node->op == &ull__op_attention) {
        attrs.attention.dropout = 0;
    }
    int *inputs = ull__graph_alloc(to, sizeof(*inputs) * (size_t)(node->input_count + 1));
    for (int i = 0; inputs != NULL && i < node->input_count; ++i) {
        inputs[i] = node->inputs[i] == ULL_NONE ? ULL_NONE : reducing->tensor[node->inputs[i]];
    }
    to->block = node->block;
    int made = inputs != NULL ? ull__graph_node(to, node->op, &attrs, inputs, node->input_count)
                              : ULL_NONE;
    /* Batch norm has fewer outputs here. */
    for (int i = 0; made != ULL_NONE && i < to->nodes[made].output_count; ++i) {
        int output = to->nodes[made].outputs[i];
        const char *name = reducing->from->tensors[node->outputs[i]].name;
        reducing->tensor[node->outputs[i]] = output;
        to->tensors[output].name = name[0] != '\0' ? ull__graph_text(to, "%s", name) : "";
    }
}

static void reduce(struct reducing *reducing)
{
    const struct ull__graph *from = reducing->from;
    struct ull__graph *to = reducing->to;
    for (int i = 0; i < from->block_count; ++i) {
        ull__graph_block(to, from->blocks[i]);
    }
    to->name = ull__graph_text(to, "%s", from->name);
    to->batch = from->batch;
    find_needed(reducing);
    find_packed(reducing);
    take_sources(reducing);
    for (int i = 0; i < from->node_count && ull__graph_ok(to); ++i) {
        if (reducing->needed[from->nodes[i].outputs[0]]) {
            take_node(reducing, &from->nodes[i]);
        }
    }
    for (int i = 0; i < from->output_count && ull__graph_ok(to); ++i) {
        ull__graph_result(to, reducing->tensor[from->outputs[i]]);
    }
    for (int i = 0; i < from->loss_count && from->output_count == 0 && ull__graph_ok(to); ++i) {
        ull__graph_result(to, reducing->tensor[from->losses[i]]);
    }
    to->block = ULL_NONE;
}

struct ull__graph *ull__inference_graph(const struct ull__graph *model, enum ull__type compute,
                                        enum ull__type weights)
{
    struct ull__graph *from =
        ull__type_is_half(compute) ? ull__mixed_precision(model, compute) : ull__graph_copy(model);
    size_t tensors = from != NULL ? (size_t)from->tensor_count + 1 : 1;
    struct reducing reducing = {.from = from,
                                .to = ull__graph_create(),
                                .needed = calloc(tensors, sizeof(bool)),
                                .packed = calloc(tensors, sizeof(bool)),
                                .tensor = calloc(tensors, sizeof(int)),
                                .weights = weights};
    struct ull__dims *symbols = from != NULL ? ull__dims_copy(from->symbols) : NULL;
    if (reducing.to != NULL && symbols != NULL && reducing.needed != NULL &&
        reducing.packed != NULL && reducing.tensor != NULL) {
        ull__dims_destroy(reducing.to->symbols);
        reducing.to->symbols = symbols;
        symbols = NULL;
        if (ull__graph_ok(from)) {
            reduce(&reducing);
        } else {
            ull__graph_fail(reducing.to, from->status, "%s", from->error.message);
        }
    } else {
        ull__graph_destroy(reducing.to);
        reducing.to = NULL;
    }
    ull__dims_destroy(symbols);
    ull__graph_destroy(from);
    free(reducing.needed);
    free(reducing.packed);
    free(reducing.tensor);
    return reducing.to;
}
