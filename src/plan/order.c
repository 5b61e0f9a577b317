/*
 * order.c: a better order of a program's items. See ull__program_order in program.h.
 *
 * Differentiation gives the order of the forward pass backwards, which is right but for branches: the gradient of a
 * short branch is ready long before it is added to the other's. An item that makes more than it frees is put off
 * until just before its first reader. From the last item to the first, so that what feeds an item that was put off
 * can be put off as well.
 *
 * Whether what others read before, and an item that waits holds until then, counts as well, is tried both ways: for parts of
 * a gradient that are cut out of a whole, as those of a concatenation, it is right, for others by chance.
 *
 * What an item must not pass: a reader of what it makes, and who overwrites what it reads (a new version of a
 * weight). The order of random draws and of writes to state does not change the results: both are keyed.
 */
#include "search.h"

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

/* Bytes that an item makes, less those of what is read among items[0 .. count) by nobody behind the place `from`. */
static int64_t makes(const struct ull__program *program, const int *order, int at, int from, int count)
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
        for (int j = from + 1; j < count && last; ++j) {
            last = !reads(program, order[j], input);
        }
        bytes -= last ? program->buffers[input].bytes : 0;
    }
    return bytes;
}

/* Puts items, as they were at first, in the order that the list says. */
static void permute(struct ull__program *program, const struct ull__program_item *items,
                    const int *order)
{
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &items[order[i]];
        program->items[i] = *item;
        for (int j = 0; j < item->output_count; ++j) {
            program->buffers[program->refs[item->outputs + j]].item = i;
        }
    }
}

/*
 * Puts items off that make more than they free: where they are, or, if `waiting`, where they would come, up to which they
 * hold what others read before.
 */
static void put_off(const struct ull__program *program, int *order, bool waiting)
{
    int count = program->item_count;
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
        if (to > i && read && makes(program, order, i, waiting ? to : i, count) > 0) {
            memmove(&order[i], &order[i + 1], sizeof(*order) * (size_t)(to - i));
            order[to] = item;
        }
    }
}

/* How bad an order is: bytes at the peaks, and over all places. */
struct needs {
    int64_t peaks;
    double area;
};

static void add_needs(struct ull__scheduler *scheduler, const struct ull__decision *decision,
                      struct needs *needs)
{
    struct ull__cost_of cost;
    int count;
    ull__schedule_cost(scheduler, decision, &cost);
    const int64_t *bytes = ull__schedule_bytes(scheduler, &count);
    needs->peaks += cost.peak_bytes;
    for (int i = 0; i < count; ++i) {
        needs->area += (double)bytes[i];
    }
}

/* Where all is kept, and where only what crosses blocks is. False without memory. */
static bool look(const struct ull__program *program, const struct ull__profile *profile,
                 struct needs *needs)
{
    struct ull__scheduler *scheduler = ull__scheduler_create(program, profile);
    struct ull__decision decision = {NULL, NULL};
    bool *cut = calloc((size_t)program->forward_items + 1, sizeof(*cut));
    bool fine = false;
    *needs = (struct needs){0, 0};
    if (scheduler != NULL && cut != NULL && ull__decision_create(program, &decision)) {
        add_needs(scheduler, &decision, needs);
        if (!ull__cuts_at_blocks(program, 1, cut)) {
            ull__cuts_by_bytes(program, 4, cut);
        }
        ull__decide_by_cuts(program, cut, &decision);
        add_needs(scheduler, &decision, needs);
        fine = true;
    }
    ull__scheduler_destroy(scheduler);
    ull__decision_finish(&decision);
    free(cut);
    return fine;
}

bool ull__program_order(struct ull__program *program, const struct ull__profile *profile)
{
    size_t count = (size_t)program->item_count + 1;
    int *order = malloc(count * sizeof(*order));
    struct ull__program_item *items = malloc(count * sizeof(*items));
    struct ull__program first = *program; /* with the items as they were */
    struct needs needs[2];
    bool fine = order != NULL && items != NULL;
    if (fine) {
        memcpy(items, program->items, (count - 1) * sizeof(*items));
        first.items = items;
    }
    for (int turn = 0; turn < 2 && fine; ++turn) {
        put_off(&first, order, turn == 1);
        permute(program, items, order);
        fine = look(program, profile, &needs[turn]);
    }
    if (fine && (needs[0].peaks < needs[1].peaks ||
                 (needs[0].peaks == needs[1].peaks && needs[0].area <= needs[1].area))) {
        put_off(&first, order, false);
        permute(program, items, order);
    }
    free(order);
    free(items);
    return fine;
}
