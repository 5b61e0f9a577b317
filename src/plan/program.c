/* program.c: a graph with numbers. See program.h. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "op.h"
#include "ops.h"

static int64_t rounded(int64_t bytes, uint64_t alignment)
{
    int64_t unit = alignment > 0 ? (int64_t)alignment : 1;
    return (bytes + unit - 1) / unit * unit;
}

/* The buffer of a tensor's memory, made at its first use. ULL_NONE: an error. */
static int buffer_of(struct ull__program *program, int tensor, const int64_t *values,
                     const struct ull__profile *profile, struct ull_error *err)
{
    const struct ull__graph *graph = program->graph;
    int owner = ull__tensor_owner(graph, tensor);
    if (program->buffer_of[owner] != ULL_NONE) {
        program->buffer_of[tensor] = program->buffer_of[owner];
        return program->buffer_of[owner];
    }
    const struct ull__tensor *of = &graph->tensors[owner];
    int64_t bytes = ull__tensor_bytes(graph, owner, values);
    if (bytes < 0 || bytes > INT64_MAX / 4) {
        char text[160];
        ull__fail(err, ULL_E_INVALID, "tensor '%s' %s is larger than there can be", of->name,
                  ull__tensor_text(graph, owner, text, sizeof(text)));
        return ULL_NONE;
    }
    int made = program->buffer_count++;
    program->buffers[made] = (struct ull__program_buffer){.tensor = owner,
                                                          .bytes = rounded(bytes, profile->alignment),
                                                          .role = of->role,
                                                          .life = of->life,
                                                          .item = ULL_NONE,
                                                          .last_forward = ULL_NONE};
    program->buffer_of[owner] = program->buffer_of[tensor] = made;
    return made;
}

/* Appends a buffer to the references of an item, unless it is there. */
static void refer(struct ull__program *program, int first, int *count, int buffer)
{
    for (int i = 0; i < *count; ++i) {
        if (program->refs[first + i] == buffer) {
            return;
        }
    }
    program->refs[first + (*count)++] = buffer;
}

static ull_status add_item(struct ull__program *program, int at, const int64_t *values,
                           const struct ull__profile *profile, int *refs, int *choice,
                           struct ull_error *err)
{
    const struct ull__graph *graph = program->graph;
    const struct ull__node *node = &graph->nodes[at];
    struct ull__program_item *item = &program->items[program->item_count];
    *item = (struct ull__program_item){.node = at,
                                       .first_input = ULL_NONE,
                                       .inputs = *refs,
                                       .forward = node->pass == ULL_PASS_FORWARD,
                                       .update = node->phase == ULL_PHASE_UPDATE,
                                       .gathers = node->pass == ULL_PASS_FORWARD &&
                                                  node->op == &ull__op_collective &&
                                                  node->attrs.collective.kind == ULL_ALL_GATHER,
                                       .prologue = node->phase == ULL_PHASE_PROLOGUE,
                                       .inplace = (node->op->flags & ULL_OP_INPLACE) != 0};
    for (int i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] != ULL_NONE) {
            int buffer = buffer_of(program, node->inputs[i], values, profile, err);
            if (buffer == ULL_NONE) {
                return ULL_E_INVALID;
            }
            item->first_input = i == 0 ? buffer : item->first_input;
            refer(program, item->inputs, &item->input_count, buffer);
        }
    }
    item->outputs = item->inputs + item->input_count;
    for (int i = 0; i < node->output_count; ++i) {
        int buffer = buffer_of(program, node->outputs[i], values, profile, err);
        if (buffer == ULL_NONE) {
            return ULL_E_INVALID;
        }
        if (!graph->tensors[node->outputs[i]].writes) {
            struct ull__program_buffer *made = &program->buffers[buffer];
            made->item = program->item_count;
            made->last_forward = program->item_count;
            made->forward = item->forward;
            refer(program, item->outputs, &item->output_count, buffer);
        }
    }
    *refs = item->outputs + item->output_count;
    struct ull__choice *choices = &program->choices[*choice];
    item->choices = *choice;
    item->choice_count = ull__node_choices(graph, at, values, profile, choices);
    if (item->choice_count == 0) {
        return ull__fail(err, ULL_E_INVALID, "%s (node %d) needs more workspace than there can be",
                         node->op->name, at);
    }
    *choice += item->choice_count;
    for (int i = 0; i < item->choice_count; ++i) {
        choices[i].workspace = rounded(choices[i].workspace, profile->alignment);
    }
    program->item_count += 1;
    return ULL_OK;
}

/* Whether all that a node makes lies in what it reads: it does no work. Parts of a tensor are views or copies, by where they lie. */
static bool is_view(const struct ull__graph *graph, const struct ull__node *node)
{
    for (int i = 0; i < node->output_count; ++i) {
        const struct ull__tensor *output = &graph->tensors[node->outputs[i]];
        if (output->alias == ULL_NONE || output->writes) {
            return false;
        }
    }
    return node->output_count > 0;
}

/* Who reads what when, and what is there all the time. */
static ull_status look(struct ull__program *program, struct ull_error *err)
{
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        program->forward_items += item->forward && i == program->forward_items;
        for (int j = 0; j < item->input_count; ++j) {
            struct ull__program_buffer *buffer = &program->buffers[program->refs[item->inputs + j]];
            if (item->forward) {
                buffer->last_forward = i;
            } else {
                buffer->backward = true;
            }
        }
    }
    for (int i = 0; i < program->graph->loss_count; ++i) {
        int buffer = program->buffer_of[program->graph->losses[i]];
        if (buffer != ULL_NONE) {
            program->buffers[buffer].result = true;
        }
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        int64_t *total = buffer->life == ULL_LIFE_PERSISTENT ? &program->persistent_bytes
                         : buffer->life == ULL_LIFE_STEP     ? &program->step_bytes
                                                             : NULL;
        if (total != NULL) {
            program->role_bytes[buffer->role] += buffer->bytes;
            if (__builtin_add_overflow(*total, buffer->bytes, total)) {
                return ull__fail(err, ULL_E_INVALID, "the weights are larger than there can be");
            }
        }
    }
    return ULL_OK;
}

ull_status ull__program_create(const struct ull__graph *graph, const int64_t *values,
                               const struct ull__profile *profile, struct ull__program **program,
                               struct ull_error *err)
{
    struct ull__program *made = calloc(1, sizeof(*made));
    size_t refs = 1, tensors = (size_t)graph->tensor_count + 1, nodes = (size_t)graph->node_count + 1;
    for (int i = 0; i < graph->node_count; ++i) {
        refs += (size_t)(graph->nodes[i].input_count + graph->nodes[i].output_count);
    }
    if (made != NULL) {
        made->graph = graph;
        made->items = calloc(nodes, sizeof(*made->items));
        made->choices = calloc(nodes, ULL_CHOICES * sizeof(*made->choices));
        made->buffers = calloc(tensors, sizeof(*made->buffers));
        made->refs = calloc(refs, sizeof(*made->refs));
        made->buffer_of = malloc(tensors * sizeof(*made->buffer_of));
    }
    if (made == NULL || made->items == NULL || made->choices == NULL || made->buffers == NULL ||
        made->refs == NULL || made->buffer_of == NULL) {
        ull__program_destroy(made);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a program of %zu nodes", nodes - 1);
    }
    for (size_t i = 0; i < tensors; ++i) {
        made->buffer_of[i] = ULL_NONE;
    }
    int used = 0, choices = 0;
    ull_status status = ULL_OK;
    for (int i = 0; i < graph->node_count && status == ULL_OK; ++i) {
        if (!is_view(graph, &graph->nodes[i])) {
            status = add_item(made, i, values, profile, &used, &choices, err);
        }
    }
    if (status == ULL_OK) {
        status = look(made, err);
    }
    if (status == ULL_OK && !ull__program_order(made, profile)) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for a program of %zu nodes", nodes - 1);
    }
    if (status != ULL_OK) {
        ull__program_destroy(made);
        return status;
    }
    *program = made;
    return ULL_OK;
}

void ull__program_destroy(struct ull__program *program)
{
    if (program != NULL) {
        free(program->items);
        free(program->choices);
        free(program->buffers);
        free(program->refs);
        free(program->buffer_of);
        free(program);
    }
}
