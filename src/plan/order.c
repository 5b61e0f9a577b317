/*
 * order.c: a better order of a program's items. See ull__program_order in program.h.
 *
 * Differentiation gives the order of the forward pass backwards, which is right but for branches: the gradient of a
 * short branch is ready long before it is added to the other's. An item that makes more than it frees is put off
 * until just before its first reader. From the last item to the first, so that what feeds an item that was put off
 * can be put off as well.
 *
 * What an item must not pass: a reader of what it makes, and who overwrites what it reads (a new version of a
 * weight). The order of random draws and of writes to state does not change the results: both are keyed.
 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "op.h"

/* Whether `item` reads a buffer. */
static bool reads(const struct ull__program *program, int item, int buffer)
{
    const struct ull__program_item *of = &program->items[item];
    for (int i = 0; i < of->input_count; ++i) {
        if (program->refs[of->inputs + i] == buffer) {
            return true;
        }
    }
    return false;
}

/* Whether `later` has to stay behind `item`. */
static bool must_follow(const struct ull__program *program, int item, int later)
{
    const struct ull__program_item *of = &program->items[item];
    for (int i = 0; i < of->output_count; ++i) {
        if (reads(program, later, program->refs[of->outputs + i])) {
            return true;
        }
    }
    const struct ull__node *writer = &program->graph->nodes[program->items[later].node];
    for (int i = 0; i < writer->output_count; ++i) {
        if (program->graph->tensors[writer->outputs[i]].writes &&
            reads(program, item, program->buffer_of[writer->outputs[i]])) {
            return true;
        }
    }
    return false;
}

/* Writes to state keep their places. */
static bool writes_state(const struct ull__program *program, int item)
{
    const struct ull__node *node = &program->graph->nodes[program->items[item].node];
    for (int i = 0; i < node->output_count; ++i) {
        if (program->graph->tensors[node->outputs[i]].writes) {
            return true;
        }
    }
    return false;
}

/* Bytes that an item makes, less those of which it is the last reader among items[0 .. count). */
static int64_t makes(const struct ull__program *program, const int *order, int at, int count)
{
    const struct ull__program_item *item = &program->items[order[at]];
    int64_t bytes = 0;
    for (int i = 0; i < item->output_count; ++i) {
        const struct ull__program_buffer *made = &program->buffers[program->refs[item->outputs + i]];
        bytes += made->life == ULL_LIFE_PASSING ? made->bytes : 0;
    }
    for (int i = 0; i < item->input_count; ++i) {
        int input = program->refs[item->inputs + i];
        bool last = program->buffers[input].life == ULL_LIFE_PASSING &&
                    program->buffers[input].item != ULL_NONE;
        for (int j = at + 1; j < count && last; ++j) {
            last = !reads(program, order[j], input);
        }
        bytes -= last ? program->buffers[input].bytes : 0;
    }
    return bytes;
}

/* Puts items in the order that the list says. */
static bool permute(struct ull__program *program, const int *order)
{
    size_t count = (size_t)program->item_count;
    struct ull__program_item *items = malloc(count * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; ++i) {
        items[i] = program->items[order[i]];
    }
    memcpy(program->items, items, count * sizeof(*items));
    free(items);
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->output_count; ++j) {
            program->buffers[program->refs[item->outputs + j]].item = i;
        }
    }
    return true;
}

bool ull__program_order(struct ull__program *program)
{
    int count = program->item_count;
    int *order = malloc(((size_t)count + 1) * sizeof(*order));
    if (order == NULL) {
        return false;
    }
    for (int i = 0; i < count; ++i) {
        order[i] = i;
    }
    for (int i = count - 2; i >= program->forward_items; --i) {
        int item = order[i], to = i;
        if (program->items[item].update || writes_state(program, item)) {
            continue;
        }
        while (to + 1 < count && !must_follow(program, item, order[to + 1]) &&
               program->items[order[to + 1]].update == program->items[item].update) {
            to += 1;
        }
        /* Without a reader there is nothing to wait for. */
        bool read = to + 1 < count && must_follow(program, item, order[to + 1]);
        if (to > i && read && makes(program, order, i, count) > 0) {
            memmove(&order[i], &order[i + 1], sizeof(*order) * (size_t)(to - i));
            order[to] = item;
        }
    }
    bool done = permute(program, order);
    free(order);
    return done;
}
