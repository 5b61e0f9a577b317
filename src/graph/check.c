/*
 * check.c: whether a graph is one: see ull__graph_check in graph.h. It looks at the lists alone and calls no rule.
 */
#include <stdio.h>

#include "error.h"
#include "op.h"

static ull_status check_tensor(const struct ull__graph *graph, int at, const int64_t *values,
                               struct ull_error *err)
{
    const struct ull__tensor *tensor = &graph->tensors[at];
    int64_t bytes = ull__tensor_bytes(graph, at, values);
    char text[160];
    ull__tensor_text(graph, at, text, sizeof(text));
    if (bytes < 0) {
        return ull__fail(err, ULL_E_INVALID, "tensor %d '%s' %s has no size of at least 0", at,
                         tensor->name, text);
    }
    if (tensor->node != ULL_NONE && (tensor->node >= graph->node_count ||
                                     tensor->output >= graph->nodes[tensor->node].output_count ||
                                     graph->nodes[tensor->node].outputs[tensor->output] != at)) {
        return ull__fail(err, ULL_E_INVALID, "tensor %d is not the output it says", at);
    }
    if (tensor->alias == ULL_NONE) {
        return ULL_OK;
    }
    int64_t offset = ull__dim_value(graph->symbols, tensor->alias_offset, values);
    int64_t whole = tensor->alias >= 0 && tensor->alias < at
                        ? ull__tensor_bytes(graph, tensor->alias, values)
                        : -1;
    if (whole < 0 || offset < 0 || offset > whole || bytes > whole - offset) {
        return ull__fail(err, ULL_E_INVALID, "tensor %d %s is not within tensor %d", at, text,
                         tensor->alias);
    }
    return ULL_OK;
}

/* Whether a tensor is there when a node runs. */
static bool is_there(const struct ull__graph *graph, int tensor, int node)
{
    if (tensor < 0 || tensor >= graph->tensor_count) {
        return false;
    }
    int maker = graph->tensors[tensor].node;
    return maker == ULL_NONE ||
           (maker < node && graph->nodes[maker].phase <= graph->nodes[node].phase);
}

ull_status ull__graph_check(const struct ull__graph *graph, const int64_t *values,
                            struct ull_error *err)
{
    if (graph->status != ULL_OK) {
        return ull__fail(err, graph->status, "%s", graph->error.message);
    }
    for (int i = 0; i < graph->tensor_count; ++i) {
        ull_status status = check_tensor(graph, i, values, err);
        if (status != ULL_OK) {
            return status;
        }
    }
    for (int i = 0; i < graph->node_count; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        for (int j = 0; j < node->input_count; ++j) {
            if (node->inputs[j] != ULL_NONE && !is_there(graph, node->inputs[j], i)) {
                return ull__fail(err, ULL_E_INVALID, "%s (node %d) reads tensor %d before it is made",
                                 node->op->name, i, node->inputs[j]);
            }
        }
        if (node->predicate != ULL_NONE && !is_there(graph, node->predicate, i)) {
            return ull__fail(err, ULL_E_INVALID, "%s (node %d) has a predicate that is not there",
                             node->op->name, i);
        }
        for (int j = 0; j < node->output_count; ++j) {
            if (graph->tensors[node->outputs[j]].node != i) {
                return ull__fail(err, ULL_E_INVALID, "%s (node %d) does not make its output %d",
                                 node->op->name, i, j);
            }
        }
    }
    return ULL_OK;
}
