/*
 * graph.c: making graphs: tensors, nodes, blocks. See graph.h.
 *
 * Names, lists and data lie in an arena of large pieces that goes with the graph. Tensors and nodes are arrays
 * that move when they grow: a pointer into them is good until the next one is made.
 */
#include "graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "random.h"

enum { ARENA_PIECE = 64 * 1024 };

struct ull__arena {
    struct ull__arena *before;
    size_t used, size;
    max_align_t bytes[];
};

struct ull__graph *ull__graph_create(void)
{
    struct ull__graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL) {
        return NULL;
    }
    graph->name = "";
    graph->symbols = ull__dims_create();
    graph->phase = ULL_PHASE_MICRO;
    graph->block = graph->forward = graph->predicate = ULL_NONE;
    graph->batch = graph->symbols != NULL ? ull__dim_symbol(graph->symbols, "batch") : ULL_DIM_BAD;
    if (graph->batch == ULL_DIM_BAD) {
        ull__graph_destroy(graph);
        return NULL;
    }
    return graph;
}

void ull__graph_destroy(struct ull__graph *graph)
{
    if (graph == NULL) {
        return;
    }
    while (graph->arena != NULL) {
        struct ull__arena *before = graph->arena->before;
        free(graph->arena);
        graph->arena = before;
    }
    ull__dims_destroy(graph->symbols);
    free(graph->tensors);
    free(graph->nodes);
    free(graph->blocks);
    free(graph);
}

void ull__graph_adopt(struct ull__graph *graph, struct ull__graph *other)
{
    struct ull__arena **end = &graph->arena;
    while (*end != NULL) {
        end = &(*end)->before;
    }
    *end = other->arena;
    other->arena = NULL;
}

int ull__graph_fail(struct ull__graph *graph, ull_status status, const char *format, ...)
{
    if (graph->status == ULL_OK) {
        graph->status = status;
        va_list list;
        va_start(list, format);
        vsnprintf(graph->error.message, sizeof(graph->error.message), format, list);
        va_end(list);
    }
    return ULL_NONE;
}

void *ull__graph_alloc(struct ull__graph *graph, size_t size)
{
    struct ull__arena *arena = graph->arena;
    size_t whole = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (whole < size) {
        ull__graph_fail(graph, ULL_E_NO_MEMORY, "%zu bytes are more than there can be", size);
        return NULL;
    }
    if (arena == NULL || arena->size - arena->used < whole) {
        size_t room = whole > ARENA_PIECE ? whole : ARENA_PIECE;
        arena = calloc(1, sizeof(*arena) + room);
        if (arena == NULL) {
            ull__graph_fail(graph, ULL_E_NO_MEMORY, "no memory for %zu bytes of a graph", size);
            return NULL;
        }
        arena->size = room;
        arena->before = graph->arena;
        graph->arena = arena;
    }
    void *result = (char *)arena->bytes + arena->used;
    arena->used += whole;
    return result;
}

const char *ull__graph_text(struct ull__graph *graph, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = length < 0 ? NULL : ull__graph_alloc(graph, (size_t)length + 1);
    if (text == NULL) {
        return "";
    }
    va_start(list, format);
    vsnprintf(text, (size_t)length + 1, format, list);
    va_end(list);
    return text;
}

/* Makes room for one more element of an array. */
static bool grow(struct ull__graph *graph, void **array, int count, int *room, size_t size)
{
    if (count < *room) {
        return true;
    }
    int more = *room == 0 ? 64 : 2 * *room;
    void *larger = realloc(*array, size * (size_t)more);
    if (larger == NULL) {
        ull__graph_fail(graph, ULL_E_NO_MEMORY, "no memory for a graph of %d parts", more);
        return false;
    }
    *array = larger;
    *room = more;
    return true;
}

int ull__graph_tensor(struct ull__graph *graph, const struct ull__tensor *tensor)
{
    if (!ull__graph_ok(graph)) {
        return ULL_NONE;
    }
    const char *name = tensor->name != NULL ? tensor->name : "";
    if (tensor->rank < 0 || tensor->rank > ULL_RANK) {
        return ull__graph_fail(graph, ULL_E_INVALID,
                               "tensor '%.100s' has %d dimensions: expected at most %d", name,
                               tensor->rank, ULL_RANK);
    }
    for (int i = 0; i < tensor->rank; ++i) {
        if (tensor->dims[i] == ULL_DIM_BAD ||
            (ull__dim_is_const(tensor->dims[i]) && tensor->dims[i] < 0)) {
            char text[64];
            return ull__graph_fail(
                graph, ULL_E_INVALID, "dimension %d of tensor '%.100s' is %s: expected 0 to 2^60",
                i, name, ull__dim_text(graph->symbols, tensor->dims[i], text, sizeof(text)));
        }
    }
    if (!grow(graph, (void **)&graph->tensors, graph->tensor_count, &graph->tensor_room,
              sizeof(*tensor))) {
        return ULL_NONE;
    }
    struct ull__tensor *made = &graph->tensors[graph->tensor_count];
    *made = *tensor;
    made->name = name[0] != '\0' ? ull__graph_text(graph, "%s", name) : "";
    return ull__graph_ok(graph) ? graph->tensor_count++ : ULL_NONE;
}

/* A tensor without a node. */
static struct ull__tensor plain(const char *name, enum ull__type type, enum ull__role role,
                                enum ull__life life, int rank, const ull__dim *dims)
{
    struct ull__tensor tensor = {.name = name,
                                 .type = type,
                                 .role = role,
                                 .life = life,
                                 .rank = rank,
                                 .node = ULL_NONE,
                                 .alias = ULL_NONE,
                                 .shard_axis = ULL_NONE,
                                 .shard_group = ULL_NONE,
                                 .of = ULL_NONE};
    if (rank > 0 && rank <= ULL_RANK) {
        memcpy(tensor.dims, dims, sizeof(*dims) * (size_t)rank);
    }
    return tensor;
}

int ull__graph_input(struct ull__graph *graph, const char *name, enum ull__type type, int rank,
                     const ull__dim *dims)
{
    struct ull__tensor tensor = plain(name, type, ULL_ROLE_INPUT, ULL_LIFE_PASSING, rank, dims);
    return ull__graph_tensor(graph, &tensor);
}

int ull__graph_parameter(struct ull__graph *graph, const char *name, int rank, const ull__dim *dims,
                         enum ull__init init, double scale)
{
    struct ull__tensor tensor =
        plain(name, ULL_TYPE_F32, ULL_ROLE_PARAMETER, ULL_LIFE_PERSISTENT, rank, dims);
    tensor.init = init;
    tensor.init_scale = scale;
    return ull__graph_tensor(graph, &tensor);
}

int ull__graph_state(struct ull__graph *graph, const char *name, int rank, const ull__dim *dims,
                     enum ull__init init)
{
    struct ull__tensor tensor =
        plain(name, ULL_TYPE_F32, ULL_ROLE_STATE, ULL_LIFE_PERSISTENT, rank, dims);
    tensor.init = init;
    return ull__graph_tensor(graph, &tensor);
}

int ull__graph_constant(struct ull__graph *graph, const char *name, enum ull__type type, int rank,
                        const ull__dim *dims, const void *data, size_t bytes)
{
    struct ull__tensor tensor = plain(name, type, ULL_ROLE_CONSTANT, ULL_LIFE_PERSISTENT, rank, dims);
    void *copy = ull__graph_alloc(graph, bytes > 0 ? bytes : 1);
    if (copy == NULL) {
        return ULL_NONE;
    }
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    tensor.data = copy;
    tensor.data_bytes = bytes;
    tensor.init = ULL_INIT_DATA;
    return ull__graph_tensor(graph, &tensor);
}

int ull__graph_scalar(struct ull__graph *graph, double value)
{
    float single = (float)value;
    return ull__graph_constant(graph, "", ULL_TYPE_F32, 0, NULL, &single, sizeof(single));
}

static int control(struct ull__graph *graph, const char *name, enum ull__type type, int rank,
                   const ull__dim *dims)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role == ULL_ROLE_CONTROL && tensor->node == ULL_NONE &&
            strcmp(tensor->name, name) == 0) {
            return i;
        }
    }
    struct ull__tensor tensor = plain(name, type, ULL_ROLE_CONTROL, ULL_LIFE_PERSISTENT, rank, dims);
    return ull__graph_tensor(graph, &tensor);
}

int ull__graph_control(struct ull__graph *graph, const char *name, enum ull__type type)
{
    return control(graph, name, type, 0, NULL);
}

int ull__graph_generator(struct ull__graph *graph)
{
    return control(graph, "generator", ULL_TYPE_I64, 1, (ull__dim[]){ULL_GENERATOR_SIZE});
}

/* An operator's inputs are there, and as many as it takes. */
static bool inputs_fit(struct ull__graph *graph, const struct ull__op *op, const int *inputs,
                       int count)
{
    if (count < op->inputs_least || (op->inputs_most != ULL_NONE && count > op->inputs_most)) {
        ull__graph_fail(graph, ULL_E_INVALID, "%s has %d inputs: expected %d to %d", op->name,
                        count, op->inputs_least, op->inputs_most);
        return false;
    }
    for (int i = 0; i < count; ++i) {
        if (inputs[i] < ULL_NONE || inputs[i] >= graph->tensor_count ||
            (inputs[i] == ULL_NONE && i < op->inputs_least && (op->optional >> i & 1) == 0)) {
            ull__graph_fail(graph, ULL_E_INVALID, "input %d of %s is missing", i, op->name);
            return false;
        }
    }
    return true;
}

int ull__graph_node(struct ull__graph *graph, const struct ull__op *op,
                    const union ull__attrs *attrs, const int *inputs, int input_count)
{
    if (!ull__graph_ok(graph) || !inputs_fit(graph, op, inputs, input_count) ||
        !grow(graph, (void **)&graph->nodes, graph->node_count, &graph->node_room,
              sizeof(struct ull__node))) {
        return ULL_NONE;
    }
    int *list = ull__graph_alloc(graph, sizeof(*list) * (size_t)(input_count > 0 ? input_count : 1));
    if (list == NULL) {
        return ULL_NONE;
    }
    if (input_count > 0) {
        memcpy(list, inputs, sizeof(*list) * (size_t)input_count);
    }
    int node = graph->node_count++;
    graph->nodes[node] = (struct ull__node){.op = op,
                                            .inputs = list,
                                            .input_count = input_count,
                                            .phase = graph->phase,
                                            .pass = graph->pass,
                                            .predicate = graph->predicate,
                                            .block = graph->block,
                                            .forward = graph->forward};
    if (attrs != NULL) {
        graph->nodes[node].attrs = *attrs;
    }
    op->infer(graph, node);
    return ull__graph_ok(graph) ? node : ULL_NONE;
}

int ull__graph_apply(struct ull__graph *graph, const struct ull__op *op,
                     const union ull__attrs *attrs, const int *inputs, int input_count)
{
    int node = ull__graph_node(graph, op, attrs, inputs, input_count);
    return node == ULL_NONE ? ULL_NONE : graph->nodes[node].outputs[0];
}

int ull__graph_output(const struct ull__graph *graph, int tensor, int i)
{
    if (tensor == ULL_NONE || graph->tensors[tensor].node == ULL_NONE) {
        return ULL_NONE;
    }
    const struct ull__node *node = &graph->nodes[graph->tensors[tensor].node];
    return i < node->output_count ? node->outputs[i] : ULL_NONE;
}

void ull__graph_block(struct ull__graph *graph, const char *name)
{
    if (!grow(graph, (void **)&graph->blocks, graph->block_count, &graph->block_room,
              sizeof(*graph->blocks))) {
        return;
    }
    graph->blocks[graph->block_count] = ull__graph_text(graph, "%s", name);
    graph->block = graph->block_count++;
}

void ull__graph_block_end(struct ull__graph *graph)
{
    graph->block = ULL_NONE;
}

void ull__graph_loss(struct ull__graph *graph, int tensor, double weight)
{
    int most = (int)(sizeof(graph->losses) / sizeof(graph->losses[0]));
    if (!ull__graph_ok(graph)) {
        return;
    }
    if (graph->loss_count == most || tensor == ULL_NONE || graph->tensors[tensor].rank != 0) {
        ull__graph_fail(graph, ULL_E_INVALID, "a loss must be a scalar, and at most %d of them",
                        most);
        return;
    }
    graph->losses[graph->loss_count] = tensor;
    graph->loss_weights[graph->loss_count++] = weight;
}

void ull__graph_result(struct ull__graph *graph, int tensor)
{
    int most = (int)(sizeof(graph->outputs) / sizeof(graph->outputs[0]));
    if (!ull__graph_ok(graph)) {
        return;
    }
    if (graph->output_count == most || tensor == ULL_NONE) {
        ull__graph_fail(graph, ULL_E_INVALID, "a graph has at most %d outputs", most);
        return;
    }
    graph->outputs[graph->output_count++] = tensor;
}
