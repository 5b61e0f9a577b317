/*
 * eager_rules.c: what PyTorch's operators do with memory: which inputs autocast casts, what writes in place, what
 * autograd saves, what is a view. One rule an operator, none a model. See eager.h for their source.
 */
#include "eager_private.h"

/* Bytes of a tensor in the type that it has in this mode, or in 16 bits. */
int64_t ull__eager_bytes_of(struct eager *e, int tensor, bool half)
{
    int64_t elements = ull__tensor_elements(e->graph, tensor, e->values);
    int bits = half ? 16 : ull__type_bits(e->graph->tensors[tensor].type);
    if (elements < 0 || elements > INT64_MAX / 128) {
        e->failed = true;
        return 0;
    }
    return (elements * bits + 7) / 8;
}

int64_t ull__eager_own_bytes(struct eager *e, int tensor)
{
    return ull__eager_bytes_of(e, tensor, e->half[tensor]);
}

bool ull__eager_is_weight(const struct eager *e, int tensor)
{
    return e->graph->tensors[tensor].role == ULL_ROLE_PARAMETER &&
           e->graph->tensors[tensor].node == ULL_NONE;
}

/* Autocast's lists. */
enum casts ull__eager_casts_of(const struct ull__node *node)
{
    const struct ull__op *op = node->op;
    if (op == &ull__op_conv2d || op == &ull__op_conv_transpose2d || op == &ull__op_matmul ||
        op == &ull__op_attention) {
        return CAST_HALF;
    }
    if (op == &ull__op_softmax || op == &ull__op_log_softmax || op == &ull__op_layer_norm ||
        op == &ull__op_rms_norm || op == &ull__op_cross_entropy || op == &ull__op_mse) {
        return CAST_FULL;
    }
    if (op == &ull__op_unary) {
        int kind = node->attrs.unary.kind;
        bool full = kind == ULL_UNARY_EXP || kind == ULL_UNARY_LOG || kind == ULL_UNARY_POW ||
                    kind == ULL_UNARY_RECIPROCAL || kind == ULL_UNARY_RSQRT ||
                    kind == ULL_UNARY_SOFTPLUS;
        return full ? CAST_FULL : CAST_NONE;
    }
    if (op == &ull__op_reduce) {
        return node->attrs.reduce.kind == ULL_REDUCE_MEAN ? CAST_NONE : CAST_FULL;
    }
    return CAST_NONE;
}

bool ull__eager_is_float(const struct eager *e, int tensor)
{
    return ull__type_is_float(e->graph->tensors[tensor].type);
}

bool ull__eager_is_view(const struct eager *e, const struct ull__node *node)
{
    if (node->op == &ull__op_reshape) {
        return !e->scattered[node->inputs[0]];
    }
    return node->op == &ull__op_transpose || node->op == &ull__op_expand ||
           node->op == &ull__op_split || node->op == &ull__op_slice;
}

/* Writes into its first input, as models are written: biases are part of a product, ReLU is in place where it can be. */
bool ull__eager_in_place(const struct eager *e, int at, bool half)
{
    const struct ull__node *node = &e->graph->nodes[at];
    if (node->op == &ull__op_bias) {
        return true;
    }
    int input = node->input_count > 0 ? node->inputs[0] : ULL_NONE;
    bool relu = node->op == &ull__op_unary && node->attrs.unary.kind == ULL_UNARY_RELU;
    if (!relu || input == ULL_NONE || e->of[input] == ULL_NONE || ull__eager_is_weight(e, input) ||
        e->last_reader[input] != at || e->storages[e->of[input]].references > 1) {
        return false;
    }
    return e->half[input] == half; /* sums are mostly written as x = x + y, and are not */
}

/* The type of an operator's floating results. */
bool ull__eager_half_result(const struct eager *e, const struct ull__node *node)
{
    switch (ull__eager_casts_of(node)) {
    case CAST_HALF:
        return e->mode.amp;
    case CAST_FULL:
        return false;
    default:
        break;
    }
    if (node->op == &ull__op_bias || node->op == &ull__op_batch_norm) {
        return e->half[node->inputs[0]];
    }
    bool any = false;
    for (int i = 0; i < node->input_count; ++i) {
        int input = node->inputs[i];
        if (input != ULL_NONE && ull__eager_is_float(e, input) && e->graph->tensors[input].rank > 0) {
            if (!e->half[input]) {
                return false; /* the wider type wins */
            }
            any = true;
        }
    }
    return any;
}

/* Which inputs autograd saves for the gradient, as a mask; and whether it saves output 0. */
unsigned ull__eager_saved_inputs(const struct eager *e, const struct ull__node *node, bool *output)
{
    const struct ull__op *op = node->op;
    *output = false;
    if (op == &ull__op_conv2d || op == &ull__op_conv_transpose2d || op == &ull__op_matmul) {
        bool first = e->wanted[node->inputs[0]], second = e->wanted[node->inputs[1]];
        return (second ? 1u : 0) | (first ? 2u : 0);
    }
    if (op == &ull__op_attention) {
        *output = true;
        return 7u;
    }
    if (op == &ull__op_unary) {
        static const enum ull__unary_saves saves[] = {
#define X(name, text, what) ULL_SAVES_##what,
            ULL_UNARY_MAP(X)
#undef X
        };
        *output = saves[node->attrs.unary.kind] == ULL_SAVES_OUTPUT;
        return saves[node->attrs.unary.kind] == ULL_SAVES_INPUT ? 1u : 0;
    }
    if (op == &ull__op_binary) {
        int kind = node->attrs.binary.kind;
        return kind == ULL_BINARY_ADD || kind == ULL_BINARY_SUB ? 0
               : kind == ULL_BINARY_MUL
                   ? (e->wanted[node->inputs[1]] ? 1u : 0) | (e->wanted[node->inputs[0]] ? 2u : 0)
                   : 3u;
    }
    if (op == &ull__op_softmax || op == &ull__op_log_softmax) {
        *output = true;
        return 0;
    }
    if (op == &ull__op_mse) {
        return 3u;
    }
    return op == &ull__op_batch_norm || op == &ull__op_layer_norm || op == &ull__op_rms_norm ||
                   op == &ull__op_max_pool || op == &ull__op_avg_pool || op == &ull__op_where
               ? 1u
               : 0;
}

/* What an operator allocates for its gradient besides: statistics, indices, masks, log-probabilities. */
int64_t ull__eager_saved_besides(struct eager *e, const struct ull__node *node)
{
    if (node->op == &ull__op_max_pool) {
        return 8 * ull__tensor_elements(e->graph, node->outputs[0], e->values); /* int64 */
    }
    if (node->op == &ull__op_dropout) {
        return ull__tensor_elements(e->graph, node->outputs[0], e->values); /* bool */
    }
    if (node->op == &ull__op_cross_entropy) {
        return ull__eager_bytes_of(e, node->inputs[0], false); /* the output of log_softmax, f32 */
    }
    int64_t total = 0;
    for (int i = 1; i < node->output_count; ++i) {
        const struct ull__tensor *output = &e->graph->tensors[node->outputs[i]];
        total += output->writes ? 0 : ull__eager_bytes_of(e, node->outputs[i], false);
    }
    return total;
}

/*
 * cuDNN's fastest algorithms work on channels last, so pictures that lie by rows are copied into the workspace, those before
 * the convolution and those after it, and weights of more than one element a channel too; a gradient by weights has up to 8 MiB of
 * partial sums besides. A 1 x 1 convolution without strides is a product of what is there, but for the forward pass in 16 bits.
 * Without matrix units, as where each channel is a group, nothing is copied. Measured on an H200 (docs/gpu-results.md).
 */
int64_t ull__eager_workspace(struct eager *e, const struct ull__node *node, int direction)
{
    enum { SUMS_MOST = 8 << 20, SUMS = 16 };
    bool bias = direction > 1; /* its gradient is a sum */
    if ((node->op != &ull__op_conv2d && node->op != &ull__op_conv_transpose2d) || bias) {
        return 0;
    }
    const struct ull__window *window = &node->attrs.window;
    const struct ull__tensor *weights = &e->graph->tensors[node->inputs[1]];
    int64_t area = ull__dim_value(e->graph->symbols, weights->dims[2], e->values) *
                   ull__dim_value(e->graph->symbols, weights->dims[3], e->values);
    bool half = e->mode.amp, point = area == 1 && window->stride[0] == 1 && window->stride[1] == 1;
    int64_t w = ull__eager_bytes_of(e, node->inputs[1], half);
    int64_t sums = SUMS * ull__eager_bytes_of(e, node->inputs[1], false);
    int64_t bytes = direction == 1 ? (sums < SUMS_MOST ? sums : SUMS_MOST) : 0;
    if (window->groups > 1 && ull__dim_value(e->graph->symbols, weights->dims[1], e->values) == 1) {
        return 0;
    }
    if (!point || (half && direction == EAGER_FORWARD)) {
        bytes += ull__eager_bytes_of(e, node->inputs[0], half) +
                 ull__eager_bytes_of(e, node->outputs[0], half) + (area > 1 ? w : 0);
    }
    return bytes;
}

/* Whether an operator reads an input in 16 bits. */
bool ull__eager_reads_half(const struct eager *e, const struct ull__node *node, int input)
{
    enum casts casts = e->mode.amp ? ull__eager_casts_of(node) : CAST_NONE;
    return casts == CAST_NONE ? e->half[input] : casts == CAST_HALF;
}

/* Operators whose gradient is the one of the result, maybe under another shape or in another type. */
bool ull__eager_passes_on(const struct ull__node *node)
{
    bool sum = node->op == &ull__op_binary && node->attrs.binary.kind == ULL_BINARY_ADD;
    bool scale = node->op == &ull__op_unary && node->attrs.unary.kind == ULL_UNARY_IDENTITY;
    return sum || scale || node->op == &ull__op_bias || node->op == &ull__op_reshape ||
           node->op == &ull__op_transpose;
}
