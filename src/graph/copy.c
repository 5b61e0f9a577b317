/*
 * copy.c: a copy of a graph, with other types where precision is mixed. See step.h.
 *
 * The copy has a table of symbols that is the same as the old one, so sizes in attributes mean what they meant. Nodes
 * are added in the old order through the operators' rules, which give the new types; casts are put in
 * between where an operator wants another type than there is, once for each tensor and type.
 */
#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "ops.h"
#include "share.h"
#include "step.h"

struct copying {
    const struct ull__graph *from;
    struct ull__graph *to;
    int *tensor;     /* by old tensor: the new one */
    bool *halved;    /* by old tensor: a parameter that becomes 16-bit */
    bool *only_full; /* by old tensor: read by operators of class FULL alone, and not a result */
    enum ull__type half; /* F32: nothing changes */
    bool chunk;          /* products whose rows only a loss reads become part of it */
    bool *merged;        /* by old node: such a product */
    int devices, stage;  /* of ull__data_parallel; devices 0: not wanted */
    bool *cut; /* by old tensor: weights of which there is a part, and that were not gathered yet */
};

static bool keeps(const struct ull__op *op, int input)
{
    return input < 32 ? (op->keeps >> input & 1) != 0 : op->keeps == ~0u;
}

/* Functions of few operations whose results are as good in 16 bits. */
static bool is_harmless(int kind)
{
    return kind == ULL_UNARY_RELU || kind == ULL_UNARY_GELU || kind == ULL_UNARY_GELU_TANH ||
           kind == ULL_UNARY_SILU || kind == ULL_UNARY_SIGMOID || kind == ULL_UNARY_TANH ||
           kind == ULL_UNARY_NEG || kind == ULL_UNARY_ABS || kind == ULL_UNARY_IDENTITY ||
           kind == ULL_UNARY_LEAKY_RELU || kind == ULL_UNARY_ELU || kind == ULL_UNARY_SCALE ||
           kind == ULL_UNARY_CLIP || kind == ULL_UNARY_HARD_SIGMOID || kind == ULL_UNARY_ERF;
}

static enum ull__precision_class class_of(const struct ull__node *node)
{
    if (node->op == &ull__op_unary && !is_harmless(node->attrs.unary.kind)) {
        return ULL_PRECISION_FULL;
    }
    if (node->op == &ull__op_binary &&
        (node->attrs.binary.kind == ULL_BINARY_POW || node->attrs.binary.kind == ULL_BINARY_DIV)) {
        return ULL_PRECISION_FULL;
    }
    if (node->op == &ull__op_reduce && node->attrs.reduce.kind == ULL_REDUCE_MEAN) {
        return ULL_PRECISION_FOLLOW; /* pooling: the sum is in f32 as every sum, the result is not larger than the parts */
    }
    if (node->op == &ull__op_embedding) {
        return ULL_PRECISION_HALF;
    }
    return node->op->precision;
}

static void look(struct copying *copying)
{
    const struct ull__graph *from = copying->from;
    for (int i = 0; i < from->tensor_count; ++i) {
        copying->only_full[i] = true;
    }
    for (int i = 0; i < from->output_count; ++i) {
        copying->only_full[from->outputs[i]] = true; /* a result is f32 as well */
    }
    for (int i = 0; i < from->node_count; ++i) {
        const struct ull__node *node = &from->nodes[i];
        enum ull__precision_class class = class_of(node);
        for (int j = 0; j < node->input_count; ++j) {
            int input = node->inputs[j];
            if (input == ULL_NONE || keeps(node->op, j)) {
                continue;
            }
            if (class != ULL_PRECISION_FULL) {
                copying->only_full[input] = false;
                copying->halved[input] |= from->tensors[input].role == ULL_ROLE_PARAMETER &&
                                          from->tensors[input].type == ULL_TYPE_F32;
            }
        }
    }
}

/* Whether a device has only its part of a tensor that is there before the first node. */
static bool is_cut(const struct copying *copying, int tensor)
{
    const struct ull__graph *from = copying->from;
    const struct ull__tensor *of = &from->tensors[tensor];
    bool large = ull__tensor_elements(from, tensor, NULL) >= ULL_SHARD_LEAST;
    return copying->devices > 1 && ((of->role == ULL_ROLE_MASTER && copying->stage >= 1) ||
                                    (of->role == ULL_ROLE_PARAMETER && copying->stage >= 3 && large));
}

/* What is there before the first node. */
static void copy_sources(struct copying *copying)
{
    for (int i = 0; i < copying->from->tensor_count && ull__graph_ok(copying->to); ++i) {
        struct ull__tensor tensor = copying->from->tensors[i];
        if (tensor.node != ULL_NONE) {
            continue;
        }
        if (tensor.data != NULL) {
            void *data = ull__graph_alloc(copying->to, tensor.data_bytes > 0 ? tensor.data_bytes : 1);
            if (data == NULL) {
                return;
            }
            memcpy(data, tensor.data, tensor.data_bytes);
            tensor.data = data;
        }
        bool halved = copying->half != ULL_TYPE_F32 && copying->halved[i];
        if (halved) {
            tensor.type = copying->half;
        }
        if (is_cut(copying, i)) {
            ull__share_cut(copying->to, &tensor, copying->devices);
            copying->cut[i] = tensor.role == ULL_ROLE_PARAMETER;
        }
        tensor.of = tensor.of != ULL_NONE ? copying->tensor[tensor.of] : ULL_NONE;
        copying->tensor[i] = ull__graph_tensor(copying->to, &tensor);
        if (halved) {
            tensor.type = ULL_TYPE_F32;
            tensor.role = ULL_ROLE_MASTER;
            tensor.of = copying->tensor[i];
            ull__graph_tensor(copying->to, &tensor);
        }
    }
}

/* The targets of all devices, once a step. */
static void add_targets_up(struct copying *copying)
{
    const struct ull__graph *from = copying->from;
    struct ull__graph *to = copying->to;
    for (int i = 0; copying->devices > 1 && i < from->tensor_count && ull__graph_ok(to); ++i) {
        const struct ull__tensor *of = &from->tensors[i];
        if (of->node == ULL_NONE && of->role == ULL_ROLE_CONTROL &&
            strcmp(of->name, "target_count") == 0) {
            to->phase = ULL_PHASE_PROLOGUE;
            int all = ull__share_reduce(to, copying->tensor[i], ULL_REDUCTION_SUM, copying->devices,
                                        false);
            if (all != ULL_NONE) {
                to->tensors[all].life = ULL_LIFE_STEP;
                to->tensors[all].role = ULL_ROLE_CONTROL;
                to->tensors[all].name = ull__graph_text(to, "target_count.all");
                copying->tensor[i] = all;
            }
        }
    }
}

/* The whole of weights of which there is a part, before who reads them first. */
static void gather_weights(struct copying *copying, const struct ull__node *node)
{
    struct ull__graph *to = copying->to;
    for (int i = 0; i < node->input_count; ++i) {
        int old = node->inputs[i];
        if (old == ULL_NONE || !copying->cut[old] || !ull__graph_ok(to)) {
            continue;
        }
        struct ull__tensor like = copying->from->tensors[old];
        int whole = ull__share_gather(to, copying->tensor[old], &like, ULL_NONE, copying->devices);
        for (int at = whole; at != ULL_NONE; at = to->tensors[at].alias) {
            to->tensors[at].role = ULL_ROLE_PARAMETER;
        }
        copying->tensor[old] = whole;
        copying->cut[old] = false;
    }
}

/* Rows of logits at a time: about 64 MiB of them. */
static int64_t chunk_of(const struct ull__graph *graph, int weights)
{
    int64_t classes = ull__dim_value(graph->symbols, graph->tensors[weights].dims[0], NULL);
    int64_t rows = classes > 0 ? (INT64_C(1) << 24) / classes : 4096;
    return rows < 64 ? 64 : rows > 4096 ? 4096 : rows / 64 * 64;
}

/* Products of rows with a matrix, without a bias, that nobody reads but one loss. */
static int find_merged(struct copying *copying)
{
    const struct ull__graph *from = copying->from;
    int found = 0;
    for (int i = 0; i < from->node_count; ++i) {
        const struct ull__node *node = &from->nodes[i];
        int logits = node->op == &ull__op_cross_entropy ? node->inputs[0] : ULL_NONE;
        int maker = logits != ULL_NONE ? from->tensors[logits].node : ULL_NONE;
        if (maker == ULL_NONE || from->nodes[maker].op != &ull__op_matmul) {
            continue;
        }
        const struct ull__node *product = &from->nodes[maker];
        int readers = 0;
        for (int j = maker + 1; j < from->node_count; ++j) {
            for (int k = 0; k < from->nodes[j].input_count; ++k) {
                readers += from->nodes[j].inputs[k] == logits;
            }
        }
        copying->merged[maker] = readers == 1 && product->attrs.matmul.transpose_b &&
                                 !product->attrs.matmul.transpose_a &&
                                 from->tensors[product->inputs[1]].rank == 2;
        found += copying->merged[maker];
    }
    return found;
}

/* The type that an operator wants its operands in; ULL_TYPES: as they are. */
static enum ull__type wanted_type(const struct copying *copying, const struct ull__node *node)
{
    const struct ull__graph *to = copying->to;
    if (copying->half == ULL_TYPE_F32) {
        return ULL_TYPES;
    }
    switch (class_of(node)) {
    case ULL_PRECISION_HALF:
        return copying->half;
    case ULL_PRECISION_FULL:
        return ULL_TYPE_F32;
    default:
        break;
    }
    bool half = false, full = false;
    for (int i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] == ULL_NONE || keeps(node->op, i)) {
            continue;
        }
        const struct ull__tensor *input = &to->tensors[copying->tensor[node->inputs[i]]];
        bool source = input->role == ULL_ROLE_PARAMETER || input->role == ULL_ROLE_CONSTANT;
        half |= ull__type_is_half(input->type) && !source;
        full |= input->type == ULL_TYPE_F32 && !source && input->rank > 0;
    }
    return half && !full ? copying->half : full ? ULL_TYPE_F32 : ULL_TYPES;
}

static int operand(struct copying *copying, int old, enum ull__type type, int *casts)
{
    struct ull__graph *to = copying->to;
    int tensor = copying->tensor[old];
    const struct ull__tensor *of = &to->tensors[tensor];
    bool castable = of->type == ULL_TYPE_F32 || ull__type_is_half(of->type);
    if (type == ULL_TYPES || !castable || of->type == type ||
        (of->rank == 0 && of->role == ULL_ROLE_CONSTANT)) {
        return tensor;
    }
    if (casts[old] == ULL_NONE || to->tensors[casts[old]].type != type) {
        casts[old] = ull__cast(to, tensor, type);
    }
    return casts[old];
}

/* Whether a tensor is the result of a product that becomes part of a loss. */
static bool is_merged(const struct copying *copying, int tensor)
{
    int maker = copying->from->tensors[tensor].node;
    return maker != ULL_NONE && copying->merged[maker];
}

static void copy_node(struct copying *copying, int at, int *casts)
{
    struct ull__graph *to = copying->to;
    const struct ull__node *node = &copying->from->nodes[at];
    enum ull__type type = wanted_type(copying, node);
    union ull__attrs attrs = node->attrs;
    if (copying->merged[at]) {
        return;
    }
    int *inputs = ull__graph_alloc(to, sizeof(*inputs) * (size_t)(node->input_count + 2));
    to->phase = node->phase;
    to->pass = node->pass;
    to->block = node->block;
    to->forward = node->forward;
    to->predicate = node->predicate != ULL_NONE ? copying->tensor[node->predicate] : ULL_NONE;
    gather_weights(copying, node);
    for (int i = 0; inputs != NULL && i < node->input_count; ++i) {
        int input = node->inputs[i];
        inputs[i] = input == ULL_NONE    ? ULL_NONE
                    : keeps(node->op, i) ? copying->tensor[input]
                                         : operand(copying, input, type, casts);
    }
    if (node->op == &ull__op_matmul && ull__type_is_half(type)) {
        attrs.matmul.full = copying->only_full[node->outputs[0]];
    }
    const struct ull__op *op = node->op;
    int count = node->input_count;
    if (inputs != NULL && op == &ull__op_cross_entropy && is_merged(copying, node->inputs[0])) {
        const struct ull__node *product =
            &copying->from->nodes[copying->from->tensors[node->inputs[0]].node];
        op = &ull__op_linear_cross_entropy;
        attrs.loss.chunk = chunk_of(copying->from, product->inputs[1]);
        memmove(inputs + 2, inputs + 1, sizeof(*inputs) * (size_t)(count - 1));
        inputs[0] = copying->tensor[product->inputs[0]];
        inputs[1] = copying->tensor[product->inputs[1]];
        count += 1;
    }
    int made = inputs != NULL ? ull__graph_node(to, op, &attrs, inputs, count) : ULL_NONE;
    for (int i = 0; made != ULL_NONE && i < node->output_count; ++i) {
        int output = to->nodes[made].outputs[i];
        const struct ull__tensor *old = &copying->from->tensors[node->outputs[i]];
        copying->tensor[node->outputs[i]] = output;
        to->tensors[output].name = old->name[0] != '\0' ? ull__graph_text(to, "%s", old->name) : "";
        to->tensors[output].role = old->role;
        to->tensors[output].of = old->of != ULL_NONE ? copying->tensor[old->of] : ULL_NONE;
    }
}

static void copy_ends(struct copying *copying)
{
    const struct ull__graph *from = copying->from;
    struct ull__graph *to = copying->to;
    for (int i = 0; i < from->loss_count; ++i) {
        ull__graph_loss(to, copying->tensor[from->losses[i]], from->loss_weights[i]);
    }
    for (int i = 0; i < from->output_count; ++i) {
        if (!is_merged(copying, from->outputs[i])) {
            ull__graph_result(to, copying->tensor[from->outputs[i]]);
        }
    }
    to->phase = ULL_PHASE_MICRO;
    to->pass = ULL_PASS_FORWARD;
    to->block = to->forward = to->predicate = ULL_NONE;
}

static struct ull__graph *copy(struct copying copying)
{
    const struct ull__graph *from = copying.from;
    size_t tensors = (size_t)from->tensor_count + 1;
    copying.to = ull__graph_create();
    copying.tensor = calloc(tensors, sizeof(int));
    copying.halved = calloc(tensors, sizeof(bool));
    copying.only_full = calloc(tensors, sizeof(bool));
    copying.cut = calloc(tensors, sizeof(bool));
    copying.merged = calloc((size_t)from->node_count + 1, sizeof(bool));
    int *casts = malloc(tensors * sizeof(*casts));
    struct ull__graph *to = copying.to;
    struct ull__dims *symbols = ull__dims_copy(from->symbols);
    if (to != NULL && symbols != NULL && copying.tensor != NULL && copying.halved != NULL &&
        copying.only_full != NULL && copying.cut != NULL && copying.merged != NULL &&
        casts != NULL && (!copying.chunk || find_merged(&copying) > 0)) {
        ull__dims_destroy(to->symbols);
        to->symbols = symbols;
        to->batch = from->batch;
        to->name = ull__graph_text(to, "%s", from->name);
        symbols = NULL;
        for (int i = 0; i < from->block_count; ++i) {
            ull__graph_block(to, from->blocks[i]);
        }
        for (size_t i = 0; i < tensors; ++i) {
            casts[i] = ULL_NONE;
        }
        look(&copying);
        copy_sources(&copying);
        ull__graph_block_end(to);
        add_targets_up(&copying);
        for (int i = 0; i < from->node_count && ull__graph_ok(to); ++i) {
            copy_node(&copying, i, casts);
        }
        copy_ends(&copying);
    } else {
        ull__graph_destroy(to);
        to = NULL;
    }
    ull__dims_destroy(symbols);
    free(copying.tensor);
    free(copying.halved);
    free(copying.only_full);
    free(copying.cut);
    free(copying.merged);
    free(casts);
    return to;
}

struct ull__graph *ull__graph_copy(const struct ull__graph *graph)
{
    return copy((struct copying){.from = graph, .half = ULL_TYPE_F32});
}

struct ull__graph *ull__mixed_precision(const struct ull__graph *model, enum ull__type half)
{
    return copy((struct copying){.from = model, .half = half});
}

struct ull__graph *ull__chunk_loss(const struct ull__graph *model)
{
    return copy((struct copying){.from = model, .half = ULL_TYPE_F32, .chunk = true});
}

struct ull__graph *ull__data_parallel(const struct ull__graph *model, int devices, int stage)
{
    return copy(
        (struct copying){.from = model, .half = ULL_TYPE_F32, .devices = devices, .stage = stage});
}
