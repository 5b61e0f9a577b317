/* fixed.c: what no decision changes of a schedule, and room for the rest. See schedule_private.h. */
#include <stdlib.h>

#include "schedule_private.h"

struct room {
    char *base; /* NULL: it is only measured */
    size_t used;
};

static void *carve(struct room *room, size_t count, size_t size)
{
    size_t at = (room->used + 15) / 16 * 16;
    room->used = at + count * size;
    return room->base == NULL ? NULL : room->base + at;
}

static void carve_all(struct ull__scheduler *s, struct room *room)
{
    const struct ull__program *program = s->program;
    size_t items = (size_t)program->item_count + 2, buffers = (size_t)program->buffer_count + 1;
    size_t refs = 1;
    for (int i = 0; i < program->item_count; ++i) {
        refs += (size_t)(program->items[i].input_count + program->items[i].output_count);
    }
#define CARVE(name, count) s->name = carve(room, count, sizeof(*s->name))
    CARVE(movers, buffers);
    CARVE(mover_of, buffers);
    CARVE(first_begins, 2 * buffers);
    CARVE(first_ends, 2 * buffers);
    CARVE(moved, refs);
    CARVE(reads, items);
    CARVE(makes, items);
    CARVE(readings, items);
    CARVE(last_touch, buffers);
    CARVE(joins_fixed, items);
    CARVE(fixed, items);
    CARVE(between, items);
    CARVE(micro, items);
    CARVE(update, items);

    CARVE(algorithm, items);
    CARVE(seconds, items);
    CARVE(workspace, items);
    CARVE(base_bytes, items);
    CARVE(base_starts, items);
    CARVE(micro_before, items);

    CARVE(stay, buffers);
    CARVE(begins, 2 * buffers);
    CARVE(ends, 2 * buffers);
    CARVE(returned, buffers);
    CARVE(joined, 2 * buffers);
    CARVE(again, items);
    CARVE(second, buffers);
    CARVE(sent, buffers);
    CARVE(sent_at, buffers);
    CARVE(reading_at, items);
    CARVE(reading_joined, items);
    CARVE(left_at, buffers);
    CARVE(starts, 2 * items);
    CARVE(change, 2 * items);
    CARVE(bytes, 2 * items);

    CARVE(order, 2 * items);
    CARVE(stays, 2 * buffers + 2 * items);
    CARVE(last, buffers);
    CARVE(place_of, items);
    CARVE(fitted, items);
#undef CARVE
}

static bool passes(const struct ull__program *program, int buffer)
{
    return program->buffers[buffer].life == ULL_LIFE_PASSING;
}

static void add_mover(struct ull__scheduler *s, int buffer)
{
    const struct ull__program_buffer *of = &s->program->buffers[buffer];
    s->mover_of[buffer] = s->mover_count;
    s->first_begins[2 * s->mover_count] = of->item == ULL_NONE ? 0 : of->item;
    s->first_begins[2 * s->mover_count + 1] = ULL_NONE;
    s->first_ends[2 * s->mover_count] = of->last_forward;
    s->movers[s->mover_count++] = (struct ull__mover){
        .buffer = buffer,
        .item = of->item,
        .joins = ULL_NONE,
        .bytes = of->bytes,
    };
}

static void find_movers(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        s->mover_of[i] = ULL_NONE;
        if (passes(program, i) && buffer->item == ULL_NONE && buffer->last_forward != ULL_NONE) {
            add_mover(s, i);
        }
    }
    s->input_count = s->mover_count;
    for (int i = 0; i < program->forward_items; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->output_count; ++j) {
            if (passes(program, program->refs[item->outputs + j])) {
                add_mover(s, program->refs[item->outputs + j]);
            }
        }
    }
}

/* The movers among some references, appended to `moved`. */
static struct ull__span span_of(struct ull__scheduler *s, int *used, int first, int count)
{
    struct ull__span span = {*used, 0};
    for (int i = 0; i < count; ++i) {
        int mover = s->mover_of[s->program->refs[first + i]];
        if (mover != ULL_NONE) {
            s->moved[(*used)++] = mover;
            span.count += 1;
        }
    }
    return span;
}

/* The buffer whose memory an item's output 0 takes over, if nobody needs it any more; ULL_NONE. */
static int taken_over(const struct ull__program *program, const struct ull__program_item *item)
{
    int input = item->first_input;
    if (!item->inplace || input == ULL_NONE || item->output_count == 0) {
        return ULL_NONE;
    }
    int output = program->refs[item->outputs];
    bool fits = passes(program, input) && passes(program, output) && input != output &&
                program->buffers[input].item != ULL_NONE &&
                program->buffers[input].bytes == program->buffers[output].bytes;
    return fits ? input : ULL_NONE;
}

static void find_readings(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    int used = 0;
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        struct ull__span reads = span_of(s, &used, item->inputs, item->input_count);
        int from = taken_over(program, item);
        int mover = from == ULL_NONE ? ULL_NONE : s->mover_of[from];
        s->joins_fixed[i] = from != ULL_NONE && mover == ULL_NONE && s->last_touch[from] == i;
        if (i < program->forward_items) {
            s->reads[i] = reads;
            s->makes[i] = span_of(s, &used, item->outputs, item->output_count);
            if (mover != ULL_NONE) {
                s->movers[s->mover_of[program->refs[item->outputs]]].joins = mover;
            }
        } else if (reads.count > 0) {
            int64_t bytes =
                mover == ULL_NONE ? 0 : program->buffers[program->refs[item->outputs]].bytes;
            s->readings[s->reading_count++] = (struct ull__reading){i, reads, mover, bytes};
        }
    }
}

static void find_last_touches(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    for (int i = 0; i < program->buffer_count; ++i) {
        s->last_touch[i] = ULL_NONE;
    }
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            s->last_touch[program->refs[item->inputs + j]] = i;
        }
        for (int j = 0; j < item->output_count; ++j) {
            s->last_touch[program->refs[item->outputs + j]] = i;
        }
    }
}

/* Bytes of what is no mover, by item. */
static void add_up(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (!passes(program, i) || s->mover_of[i] != ULL_NONE || s->last_touch[i] == ULL_NONE) {
            continue;
        }
        int made = buffer->item == ULL_NONE ? 0 : buffer->item;
        bool joins = buffer->item != ULL_NONE && s->joins_fixed[made] &&
                     program->refs[program->items[made].outputs] == i;
        s->fixed[made + joins] += buffer->bytes;
        s->fixed[s->last_touch[i] + 1] -= buffer->bytes;
        s->between[made + 1] += buffer->bytes;
        s->between[s->last_touch[i] + 1] -= buffer->bytes;
    }
    int64_t live = program->step_bytes, gap = program->step_bytes;
    for (int i = 0; i < program->item_count; ++i) {
        s->fixed[i] = live += s->fixed[i];
        s->between[i] = gap += s->between[i];
        if (program->items[i].update || program->items[i].prologue) {
            s->update[s->update_count++] = i;
        } else {
            s->micro[s->micro_count++] = i;
        }
    }
}

struct ull__scheduler *ull__scheduler_create(const struct ull__program *program,
                                             const struct ull__profile *profile)
{
    struct ull__scheduler *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return NULL;
    }
    struct room room = {NULL, 0};
    made->program = program;
    made->profile = profile;
    carve_all(made, &room);
    made->room = calloc(room.used, 1);
    if (made->room == NULL) {
        free(made);
        return NULL;
    }
    room = (struct room){made->room, 0};
    carve_all(made, &room);
    find_movers(made);
    find_last_touches(made);
    find_readings(made);
    add_up(made);
    return made;
}

void ull__scheduler_destroy(struct ull__scheduler *scheduler)
{
    if (scheduler != NULL) {
        free(scheduler->room);
        free(scheduler);
    }
}
