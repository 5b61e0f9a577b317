/* op.c: the list of operators, and what their rules share. See op.h. */
#include "op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops.h"

const struct ull__op *const ull__ops[] = {
#define X(name) &ull__op_##name,
#include "ops.def"
#undef X
    NULL,
};

const struct ull__op *ull__op_find(const char *name)
{
    for (int i = 0; ull__ops[i] != NULL; ++i) {
        if (strcmp(ull__ops[i]->name, name) == 0) {
            return ull__ops[i];
        }
    }
    return NULL;
}

/* Puts a tensor into the list of a node's outputs. */
static int give(struct ull__graph *graph, int node, struct ull__tensor *tensor)
{
    struct ull__node *of = &graph->nodes[node];
    tensor->node = node;
    tensor->output = of->output_count;
    int made = ull__graph_tensor(graph, tensor);
    int *list = ull__graph_alloc(graph, sizeof(*list) * (size_t)(of->output_count + 1));
    if (made == ULL_NONE || list == NULL) {
        return ULL_NONE;
    }
    if (of->output_count > 0) {
        memcpy(list, of->outputs, sizeof(*list) * (size_t)of->output_count);
    }
    list[of->output_count++] = made;
    of->outputs = list;
    return made;
}

static struct ull__tensor fresh(enum ull__type type, int rank, const ull__dim *dims)
{
    struct ull__tensor tensor = {.type = type,
                                 .role = ULL_ROLE_ACTIVATION,
                                 .life = ULL_LIFE_PASSING,
                                 .rank = rank,
                                 .alias = ULL_NONE,
                                 .shard_axis = ULL_NONE,
                                 .shard_group = ULL_NONE,
                                 .of = ULL_NONE};
    if (rank > 0 && rank <= ULL_RANK) {
        memcpy(tensor.dims, dims, sizeof(*dims) * (size_t)rank);
    }
    return tensor;
}

int ull__op_output(struct ull__graph *graph, int node, enum ull__type type, int rank,
                   const ull__dim *dims)
{
    struct ull__tensor tensor = fresh(type, rank, dims);
    return give(graph, node, &tensor);
}

int ull__op_output_like(struct ull__graph *graph, int node, int like)
{
    struct ull__tensor of = graph->tensors[like];
    return ull__op_output(graph, node, of.type, of.rank, of.dims);
}

int ull__op_output_version(struct ull__graph *graph, int node, int of)
{
    struct ull__tensor tensor = graph->tensors[of];
    tensor.alias = of;
    tensor.alias_offset = 0;
    tensor.writes = true;
    tensor.data = NULL;
    tensor.data_bytes = 0;
    return give(graph, node, &tensor);
}

int ull__op_output_view(struct ull__graph *graph, int node, int of, enum ull__type type, int rank,
                        const ull__dim *dims, ull__dim offset)
{
    struct ull__tensor tensor = fresh(type, rank, dims);
    tensor.role = graph->tensors[of].role;
    tensor.life = graph->tensors[of].life;
    tensor.space = graph->tensors[of].space;
    tensor.alias = of;
    tensor.alias_offset = offset;
    return give(graph, node, &tensor);
}

void ull__op_fail(struct ull__graph *graph, int node, const char *format, ...)
{
    const struct ull__node *of = &graph->nodes[node];
    char message[200], shapes[400] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    size_t used = 0;
    for (int i = 0; i < of->input_count && used < sizeof(shapes) - 1; ++i) {
        char text[160] = "none";
        if (of->inputs[i] != ULL_NONE) {
            ull__tensor_text(graph, of->inputs[i], text, sizeof(text));
        }
        used +=
            (size_t)snprintf(shapes + used, sizeof(shapes) - used, "%s%s", i > 0 ? ", " : "", text);
    }
    ull__graph_fail(graph, ULL_E_INVALID, "%s (node %d%s%s): %s; its inputs are %s", of->op->name,
                    node, of->block != ULL_NONE ? ", block " : "",
                    of->block != ULL_NONE ? graph->blocks[of->block] : "", message, shapes);
}

static double elements(const struct ull__graph *graph, int tensor, const int64_t *values)
{
    int64_t count = tensor == ULL_NONE ? 0 : ull__tensor_elements(graph, tensor, values);
    return count < 0 ? 0 : (double)count;
}

double ull__in_elements(const struct ull__graph *graph, int node, int i, const int64_t *values)
{
    const struct ull__node *of = &graph->nodes[node];
    return i < of->input_count ? elements(graph, of->inputs[i], values) : 0;
}

double ull__out_elements(const struct ull__graph *graph, int node, int i, const int64_t *values)
{
    const struct ull__node *of = &graph->nodes[node];
    return i < of->output_count ? elements(graph, of->outputs[i], values) : 0;
}

static double bytes(const struct ull__graph *graph, int tensor, const int64_t *values)
{
    return elements(graph, tensor, values) * ull__type_bits(graph->tensors[tensor].type) / 8;
}

double ull__op_traffic(const struct ull__graph *graph, int node, const int64_t *values)
{
    const struct ull__node *of = &graph->nodes[node];
    double total = 0;
    for (int i = 0; i < of->input_count; ++i) {
        if (of->inputs[i] != ULL_NONE) {
            total += bytes(graph, of->inputs[i], values);
        }
    }
    for (int i = 0; i < of->output_count; ++i) {
        if (graph->tensors[of->outputs[i]].alias == ULL_NONE ||
            graph->tensors[of->outputs[i]].writes) {
            total += bytes(graph, of->outputs[i], values);
        }
    }
    return total;
}

void ull__op_cost(const struct ull__graph *graph, int node, const int64_t *values,
                  struct ull__cost *cost)
{
    const struct ull__op *op = graph->nodes[node].op;
    *cost = (struct ull__cost){0};
    if ((op->flags & ULL_OP_VIEW) != 0) {
        return;
    }
    cost->bytes = ull__op_traffic(graph, node, values);
    if (op->cost != NULL) {
        op->cost(graph, node, values, cost);
    } else {
        cost->flops = ull__out_elements(graph, node, 0, values);
    }
}

int64_t ull__op_workspace(const struct ull__graph *graph, int node, const int64_t *values)
{
    const struct ull__op *op = graph->nodes[node].op;
    return op->workspace != NULL ? op->workspace(graph, node, values) : 0;
}

ull__dim ull__dims_product(struct ull__graph *graph, int rank, const ull__dim *dims)
{
    ull__dim product = 1;
    for (int i = 0; i < rank; ++i) {
        product = ull__dim_mul(graph->symbols, product, dims[i]);
    }
    return product;
}

bool ull__dims_broadcast(struct ull__graph *graph, int rank_a, const ull__dim *a, int rank_b,
                         const ull__dim *b, int *rank, ull__dim *dims)
{
    *rank = rank_a > rank_b ? rank_a : rank_b;
    for (int i = 0; i < *rank; ++i) {
        int at_a = i - (*rank - rank_a), at_b = i - (*rank - rank_b);
        ull__dim of_a = at_a < 0 ? 1 : a[at_a], of_b = at_b < 0 ? 1 : b[at_b];
        if (of_a == 1 || of_b == 1) {
            dims[i] = of_a == 1 ? of_b : of_a;
        } else if (ull__dim_may_equal(graph->symbols, of_a, of_b)) {
            dims[i] = ull__dim_is_const(of_b) ? of_b : of_a;
        } else {
            return false;
        }
    }
    return true;
}

int ull__op_sum_to(struct ull__graph *graph, int tensor, int like)
{
    if (tensor == ULL_NONE || like == ULL_NONE) {
        return ULL_NONE;
    }
    struct ull__tensor from = graph->tensors[tensor], to = graph->tensors[like];
    uint32_t axes = 0;
    for (int i = 0; i < from.rank; ++i) {
        int at = i - (from.rank - to.rank);
        if (at < 0 || (to.dims[at] == 1 && from.dims[i] != 1)) {
            axes |= 1u << i;
        }
    }
    if (axes == 0) {
        return tensor;
    }
    int sum = ull__reduce(graph, ULL_REDUCE_SUM, tensor, axes, true);
    return from.rank == to.rank ? sum : ull__reshape(graph, sum, to.rank, to.dims);
}
