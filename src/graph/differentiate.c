/*
 * differentiate.c: the backward pass, from graph to graph. See step.h.
 *
 * Reverse mode: nodes from the last to the first, each with the gradients of its outputs; what several readers of a
 * tensor give is added as it comes. A parameter's gradient is complete once the first node that reads it
 * has been passed. Nothing is appended for tensors that no parameter leads to.
 */
#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "ops.h"
#include "step.h"

struct work {
    struct ull__graph *graph;
    int nodes, tensors; /* of the forward pass */
    bool *wanted;       /* by tensor: a parameter leads to it */
    int *first_reader;  /* by tensor: a node */
    int *gradient;
    void (*done)(struct ull__graph *graph, int parameter, int gradient, void *context);
    void *context;
};

static void find_wanted(struct work *work)
{
    const struct ull__graph *graph = work->graph;
    for (int i = 0; i < work->tensors; ++i) {
        work->wanted[i] =
            graph->tensors[i].role == ULL_ROLE_PARAMETER && graph->tensors[i].node == ULL_NONE;
        work->first_reader[i] = ULL_NONE;
    }
    for (int i = 0; i < work->nodes; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        bool any = false;
        for (int j = 0; j < node->input_count; ++j) {
            int input = node->inputs[j];
            if (input != ULL_NONE) {
                any |= work->wanted[input];
                if (work->first_reader[input] == ULL_NONE) {
                    work->first_reader[input] = i;
                }
            }
        }
        for (int j = 0; j < node->output_count; ++j) {
            const struct ull__tensor *output = &graph->tensors[node->outputs[j]];
            work->wanted[node->outputs[j]] =
                any && ull__type_is_float(output->type) && output->role != ULL_ROLE_STATE;
        }
    }
}

/* Adds to the gradient of a tensor; in the tensor's own type. */
static void contribute(struct work *work, int tensor, int gradient)
{
    struct ull__graph *graph = work->graph;
    gradient = ull__cast(graph, gradient, graph->tensors[tensor].type);
    if (work->gradient[tensor] == ULL_NONE) {
        work->gradient[tensor] = gradient;
    } else {
        work->gradient[tensor] = ull__binary(graph, ULL_BINARY_ADD, work->gradient[tensor], gradient);
    }
}

static bool begin(struct work *work)
{
    struct ull__graph *graph = work->graph;
    size_t tensors = (size_t)(work->tensors > 0 ? work->tensors : 1);
    work->wanted = calloc(tensors, sizeof(*work->wanted));
    work->first_reader = calloc(tensors, sizeof(*work->first_reader));
    if (work->wanted == NULL || work->first_reader == NULL) {
        ull__graph_fail(graph, ULL_E_NO_MEMORY, "no memory to differentiate %d nodes", work->nodes);
        return false;
    }
    for (int i = 0; i < work->tensors; ++i) {
        work->gradient[i] = ULL_NONE;
    }
    find_wanted(work);
    return true;
}

/* The gradients of what a node reads. */
static void pass_node(struct work *work, int at)
{
    struct ull__graph *graph = work->graph;
    const struct ull__node node = graph->nodes[at]; /* the list moves when nodes are added */
    int dy[64], *dx = NULL;
    bool *wanted = NULL, any_dy = false, any = false;
    size_t inputs = (size_t)(node.input_count > 0 ? node.input_count : 1);
    for (int i = 0; i < node.output_count && i < 64; ++i) {
        dy[i] = work->gradient[node.outputs[i]];
        any_dy |= dy[i] != ULL_NONE;
    }
    if (!any_dy) {
        return;
    }
    dx = malloc(inputs * sizeof(*dx));
    wanted = calloc(inputs, sizeof(*wanted));
    if (dx == NULL || wanted == NULL) {
        ull__graph_fail(graph, ULL_E_NO_MEMORY, "no memory to differentiate a node");
    }
    for (int i = 0; ull__graph_ok(graph) && i < node.input_count; ++i) {
        dx[i] = ULL_NONE;
        wanted[i] = node.inputs[i] != ULL_NONE && work->wanted[node.inputs[i]];
        any |= wanted[i];
    }
    if (any && node.op->gradient == NULL) {
        ull__graph_fail(graph, ULL_E_INVALID, "%s (node %d) has no gradient", node.op->name, at);
    }
    if (any && ull__graph_ok(graph)) {
        graph->forward = at;
        graph->block = node.block;
        node.op->gradient(graph, at, dy, wanted, dx);
        for (int i = 0; ull__graph_ok(graph) && i < node.input_count; ++i) {
            if (wanted[i] && dx[i] != ULL_NONE) {
                contribute(work, node.inputs[i], dx[i]);
            }
        }
    }
    free(dx);
    free(wanted);
}

/* Marks a parameter's gradient, and the memory it lies in, for what it is. */
static void complete(struct work *work, int parameter)
{
    struct ull__graph *graph = work->graph;
    int gradient = work->gradient[parameter];
    for (int at = gradient; at != ULL_NONE; at = graph->tensors[at].alias) {
        graph->tensors[at].role = ULL_ROLE_GRADIENT;
        graph->tensors[at].of = parameter;
    }
    if (gradient != ULL_NONE && work->done != NULL) {
        work->done(graph, parameter, gradient, work->context);
    }
}

void ull__differentiate(struct ull__graph *graph, int seed, int *gradient,
                        void (*done)(struct ull__graph *graph, int parameter, int gradient,
                                     void *context),
                        void *context)
{
    struct work work = {.graph = graph,
                        .nodes = graph->node_count,
                        .tensors = graph->tensor_count,
                        .gradient = gradient,
                        .done = done,
                        .context = context};
    enum ull__pass pass = graph->pass;
    graph->pass = ULL_PASS_BACKWARD;
    if (begin(&work)) {
        for (int i = 0; i < graph->loss_count && ull__graph_ok(graph); ++i) {
            int weight = ull__graph_scalar(graph, graph->loss_weights[i]);
            contribute(&work, graph->losses[i],
                       seed == ULL_NONE ? weight : ull__binary(graph, ULL_BINARY_MUL, seed, weight));
        }
        for (int i = work.nodes - 1; i >= 0 && ull__graph_ok(graph); --i) {
            const struct ull__node node = graph->nodes[i];
            pass_node(&work, i);
            for (int j = 0; j < node.input_count && ull__graph_ok(graph); ++j) {
                int input = node.inputs[j];
                bool again = false;
                for (int k = 0; k < j; ++k) {
                    again |= node.inputs[k] == input;
                }
                /* A view of a parameter has its role, and is none by itself. */
                if (input != ULL_NONE && !again && work.first_reader[input] == i &&
                    work.wanted[input] && graph->tensors[input].role == ULL_ROLE_PARAMETER &&
                    graph->tensors[input].node == ULL_NONE) {
                    complete(&work, input);
                }
            }
        }
    }
    graph->pass = pass;
    graph->forward = graph->block = ULL_NONE;
    free(work.wanted);
    free(work.first_reader);
}
