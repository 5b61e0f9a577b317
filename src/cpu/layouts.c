/*
 * layouts.c: which pictures lie channels last in memory.
 *
 * Convolutions are fastest so, and everything between them goes along. Tensors that an operator of kind SAME ties together, or
 * that lie in one memory, are one class; a class lies channels last unless an operator that knows rows only
 * touches it, or a view of another shape looks at it.
 */
#include <stdlib.h>

#include "error.h"
#include "kernels.h"

static int find(int *parent, int tensor)
{
    while (parent[tensor] != tensor) {
        parent[tensor] = parent[parent[tensor]];
        tensor = parent[tensor];
    }
    return tensor;
}

static void join(int *parent, int a, int b)
{
    parent[find(parent, a)] = find(parent, b);
}

static bool same_shape(const struct ull__graph *graph, int a, int b, const int64_t *values)
{
    const struct ull__tensor *x = &graph->tensors[a], *y = &graph->tensors[b];
    bool same = x->rank == y->rank;
    for (int i = 0; same && i < x->rank; ++i) {
        same = ull__dim_value(graph->symbols, x->dims[i], values) ==
               ull__dim_value(graph->symbols, y->dims[i], values);
    }
    return same;
}

/* Memory in common. A view of another shape must see rows; where pictures are single points both are the same. */
static void join_aliases(const struct ull__graph *graph, const int64_t *values, int *parent,
                         bool *rows)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        rows[i] |= tensor->rank != 4 || tensor->role == ULL_ROLE_PARAMETER ||
                   tensor->role == ULL_ROLE_CONSTANT || tensor->of != ULL_NONE;
        if (tensor->alias == ULL_NONE) {
            continue;
        }
        if (!tensor->writes && !same_shape(graph, i, tensor->alias, values)) {
            rows[i] = rows[tensor->alias] = true;
        } else {
            join(parent, i, tensor->alias);
        }
    }
}

static void join_operands(const struct ull__graph *graph, const struct ull__node *node,
                          const struct ull__cpu_op *run_by, const int64_t *values, int *parent,
                          bool *rows)
{
    int first = node->outputs[0];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
        bool input = i < node->input_count;
        int tensor = input ? node->inputs[i] : node->outputs[i - node->input_count];
        if (tensor == ULL_NONE) {
            continue;
        }
        if (graph->tensors[tensor].rank != 4) {
            continue;
        }
        int place = input ? i : ULL_CPU_ROWS_OUTPUT;
        if (run_by->layouts == ULL_CPU_ROWS || (place < 32 && (run_by->rows >> place & 1) != 0)) {
            rows[tensor] = true;
        } else if (run_by->layouts == ULL_CPU_SAME && same_shape(graph, tensor, first, values)) {
            join(parent, tensor, first);
        } else if (run_by->layouts == ULL_CPU_SAME) {
            rows[tensor] = true; /* broadcast against it */
        }
    }
}

ull_status ull__cpu_layouts(const struct ull__cpu_op *const *ops, const struct ull__graph *graph,
                            const int64_t *values, uint8_t *layouts, struct ull_error *err)
{
    size_t tensors = (size_t)graph->tensor_count + 1;
    int *parent = malloc(tensors * sizeof(*parent));
    bool *rows = calloc(tensors, sizeof(*rows));
    if (parent == NULL || rows == NULL) {
        free(parent);
        free(rows);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for layouts");
    }
    for (int i = 0; i < graph->tensor_count; ++i) {
        parent[i] = i;
    }
    join_aliases(graph, values, parent, rows);
    for (int i = 0; i < graph->node_count; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        const struct ull__cpu_op *run_by = ull__cpu_find(ops, node->op);
        if (run_by != NULL && node->output_count > 0) {
            join_operands(graph, node, run_by, values, parent, rows);
        }
    }
    for (int i = 0; i < graph->tensor_count; ++i) {
        rows[find(parent, i)] |= rows[i];
    }
    for (int i = 0; i < graph->tensor_count; ++i) {
        layouts[i] = rows[find(parent, i)] ? ULL_LAYOUT_ROWS : ULL_LAYOUT_CHANNELS_LAST;
    }
    free(parent);
    free(rows);
    return ULL_OK;
}
