/* units.c: a program cut into units. See cut.h. */
#include <stdlib.h>
#include <string.h>

#include "cut.h"
#include "op.h"

static const char *name_of(const struct ull__program *program, int first, int last)
{
    const struct ull__graph *graph = program->graph;
    int block = graph->nodes[program->items[first].node].block;
    if (block != ULL_NONE) {
        return graph->blocks[block];
    }
    for (int i = first; i <= last; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            const struct ull__program_buffer *buffer =
                &program->buffers[program->refs[item->inputs + j]];
            if (buffer->role == ULL_ROLE_PARAMETER) {
                return graph->tensors[buffer->tensor].name;
            }
        }
    }
    return graph->nodes[program->items[first].node].op->name;
}

/* Runs of the forward pass in one block; where there are no blocks, every item is one. */
static void cut_forward(struct ull__units *units)
{
    const struct ull__program *program = units->program;
    const struct ull__graph *graph = program->graph;
    int first = 0;
    for (int i = 0; i < program->forward_items; ++i) {
        int block = graph->nodes[program->items[i].node].block;
        int before = i > 0 ? graph->nodes[program->items[i - 1].node].block : block;
        if (i > 0 && (graph->block_count == 0 || block != before)) {
            units->names[units->count++] = name_of(program, first, i - 1);
            first = i;
        }
        units->of_item[i] = units->count;
    }
    if (program->forward_items > 0) {
        units->names[units->count++] = name_of(program, first, program->forward_items - 1);
    }
}

int ull__unit_parameter(const struct ull__program *program, int buffer)
{
    const struct ull__tensor *tensor = &program->graph->tensors[program->buffers[buffer].tensor];
    int parameter = tensor->role == ULL_ROLE_PARAMETER ? program->buffers[buffer].tensor : tensor->of;
    return parameter == ULL_NONE ? ULL_NONE : program->buffer_of[parameter];
}

static void set_home(struct ull__units *units, int buffer, int unit)
{
    units->home[(size_t)buffer * (size_t)units->count + (size_t)unit] = true;
}

bool ull__unit_home(const struct ull__units *units, int buffer, int unit)
{
    return units->home[(size_t)buffer * (size_t)units->count + (size_t)unit];
}

/* Where persistent buffers lie: weights where the forward pass reads them, and with them what is theirs. */
static void find_homes(struct ull__units *units)
{
    const struct ull__program *program = units->program;
    for (int i = 0; i < program->forward_items; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            set_home(units, program->refs[item->inputs + j], units->of_item[i]);
        }
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        int parameter = ull__unit_parameter(program, i);
        for (int unit = 0; unit < units->count && parameter != ULL_NONE && parameter != i; ++unit) {
            if (ull__unit_home(units, parameter, unit)) {
                set_home(units, i, unit);
            }
        }
    }
}

/* The unit of weights that an item works on; ULL_NONE: none. */
static int unit_by_weights(const struct ull__units *units, const struct ull__program_item *item)
{
    const struct ull__program *program = units->program;
    for (int j = 0; j < item->input_count + item->output_count; ++j) {
        int parameter = ull__unit_parameter(program, program->refs[item->inputs + j]);
        for (int unit = 0; unit < units->count && parameter != ULL_NONE; ++unit) {
            if (ull__unit_home(units, parameter, unit)) {
                return unit;
            }
        }
    }
    return ULL_NONE;
}

/* The units between which a buffer is read. */
static void find_readers(struct ull__units *units)
{
    const struct ull__program *program = units->program;
    for (int i = 0; i < program->buffer_count; ++i) {
        units->first_reader[i] = units->last_reader[i] = ULL_NONE;
    }
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        int unit = units->of_item[i];
        for (int j = 0; j < item->input_count && !item->update; ++j) {
            int buffer = program->refs[item->inputs + j];
            int *first = &units->first_reader[buffer], *last = &units->last_reader[buffer];
            *first = *first == ULL_NONE || unit < *first ? unit : *first;
            *last = unit > *last ? unit : *last;
        }
    }
}

static void place_others(struct ull__units *units)
{
    const struct ull__program *program = units->program;
    const struct ull__graph *graph = program->graph;
    int *of_node = malloc(((size_t)graph->node_count + 1) * sizeof(*of_node));
    /* A node that is a view has no item: its gradient goes with the item before it. */
    for (int node = 0, item = 0; of_node != NULL && node < graph->node_count; ++node) {
        while (item + 1 < program->forward_items && program->items[item + 1].node <= node) {
            item += 1;
        }
        of_node[node] = units->of_item[item];
    }
    for (int i = program->forward_items; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        const struct ull__node *node = &graph->nodes[item->node];
        int unit = node->pass == ULL_PASS_UPDATE ? unit_by_weights(units, item) : ULL_NONE;
        if (unit == ULL_NONE && node->pass != ULL_PASS_UPDATE) {
            unit = node->forward != ULL_NONE && of_node != NULL ? of_node[node->forward]
                                                                : units->count - 1;
        }
        units->of_item[i] = unit == ULL_NONE ? 0 : unit;
    }
    free(of_node);
}

bool ull__units_create(const struct ull__program *program, const int64_t *values,
                       struct ull__units *units)
{
    size_t items = (size_t)program->item_count + 1, buffers = (size_t)program->buffer_count + 1;
    *units = (struct ull__units){.program = program};
    memcpy(units->values, values, sizeof(units->values));
    units->of_item = calloc(items, sizeof(*units->of_item));
    units->names = calloc(items, sizeof(*units->names));
    units->first_reader = calloc(buffers, sizeof(*units->first_reader));
    units->last_reader = calloc(buffers, sizeof(*units->last_reader));
    if (units->of_item == NULL || units->names == NULL || units->first_reader == NULL ||
        units->last_reader == NULL) {
        ull__units_destroy(units);
        return false;
    }
    cut_forward(units);
    units->home = calloc(buffers * (size_t)(units->count + 1), sizeof(*units->home));
    if (units->home == NULL) {
        ull__units_destroy(units);
        return false;
    }
    find_homes(units);
    place_others(units);
    find_readers(units);
    return true;
}

void ull__units_destroy(struct ull__units *units)
{
    free(units->of_item);
    free(units->home);
    free(units->names);
    free(units->first_reader);
    free(units->last_reader);
    *units = (struct ull__units){0};
}
