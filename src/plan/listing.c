/* listing.c: the order and the stays of a decision in full, and algorithms that fit. See schedule_private.h. */
#include <string.h>

#include "schedule_private.h"

/* --- The order --- */

static void list_order(struct ull__scheduler *s)
{
    int place = 0, item = 0;
    for (int i = 0; i < s->again_count && !s->ordered; ++i) {
        for (; item < s->again[i].before; ++item) {
            s->order[place++] = (struct ull__placed){item, false};
        }
        s->order[place++] = (struct ull__placed){s->again[i].item, true};
    }
    for (; item < s->program->item_count && !s->ordered; ++item) {
        s->order[place++] = (struct ull__placed){item, false};
    }
    s->ordered = true;
}

int ull__schedule_item(const struct ull__scheduler *s, int place)
{
    /* How many second runs are before the place. */
    int low = 0, high = s->again_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->again[middle].before + middle >= place) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    bool again = low < s->again_count && s->again[low].before + low == place;
    return again ? s->again[low].item : place - low;
}

/* --- The stays --- */

static void add(struct ull__scheduler *s, struct ull__stay stay)
{
    stay.joins = stay.before = ULL_NONE;
    if (stay.buffer != ULL_NONE) {
        stay.bytes = s->program->buffers[stay.buffer].bytes;
        stay.before = s->last[stay.buffer];
        s->last[stay.buffer] = s->stay_count;
    }
    s->stays[s->stay_count++] = stay;
}

static void add_mover(struct ull__scheduler *s, int stay)
{
    add(s, (struct ull__stay){.buffer = s->movers[stay / 2].buffer,
                              .begin = s->begins[stay],
                              .end = s->ends[stay],
                              .returned = stay % 2 == 1 && s->returned[stay / 2]});
}

/* A stay of a buffer that is no mover: it ends where its last reader is, which is found at the end. */
static void add_fixed(struct ull__scheduler *s, int buffer, int place)
{
    add(s, (struct ull__stay){.buffer = buffer, .begin = place, .end = s->last_touch[buffer]});
}

/* The memory that a stay takes over. */
static void join(struct ull__scheduler *s, int input)
{
    struct ull__stay *stay = &s->stays[s->stay_count - 1];
    int from = s->last[input];
    while (s->stays[from].begin >= stay->begin) {
        from = s->stays[from].before;
    }
    stay->joins = from;
}

/* What an item reads first, or makes, at a place. */
static void list_inputs(struct ull__scheduler *s, const struct ull__program_item *item)
{
    for (int i = 0; i < item->input_count; ++i) {
        int buffer = s->program->refs[item->inputs + i], mover = s->mover_of[buffer];
        const struct ull__program_buffer *of = &s->program->buffers[buffer];
        if (of->life == ULL_LIFE_PASSING && of->item == ULL_NONE && s->last[buffer] == ULL_NONE) {
            if (mover != ULL_NONE) {
                add_mover(s, 2 * mover);
            } else {
                add_fixed(s, buffer, 0);
            }
        }
    }
}

static void list_outputs(struct ull__scheduler *s, const struct ull__program_item *item, int place,
                         bool again, bool joined)
{
    for (int i = 0; i < item->output_count; ++i) {
        int buffer = s->program->refs[item->outputs + i], mover = s->mover_of[buffer];
        int stay = 2 * mover + again;
        if (s->program->buffers[buffer].life != ULL_LIFE_PASSING) {
            continue;
        }
        if (mover == ULL_NONE) {
            add_fixed(s, buffer, place);
        } else if (s->begins[stay] == place && !(again && s->returned[mover])) {
            add_mover(s, stay);
            joined = s->joined[stay];
        } else {
            continue;
        }
        if (i == 0 && joined) {
            join(s, item->first_input);
        }
    }
}

static void list_stays(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    int *place_of = s->place_of, sent = 0, reading = 0;
    s->stay_count = 0;
    for (int i = 0; i < program->buffer_count; ++i) {
        s->last[i] = ULL_NONE;
    }
    for (int place = 0; place < s->count; ++place) {
        int at = s->order[place].item;
        bool again = s->order[place].again, joined = s->joins_fixed[at];
        for (; sent < s->sent_count && s->sent_at[sent] == place; ++sent) {
            add_mover(s, 2 * s->sent[sent] + 1);
        }
        if (!again) {
            place_of[at] = place;
            list_inputs(s, &program->items[at]);
            if (reading < s->reading_count && s->readings[reading].item == at) {
                joined |= s->reading_joined[reading++];
            }
        }
        list_outputs(s, &program->items[at], place, again, joined);
        if (s->workspace[at] > 0) {
            add(s, (struct ull__stay){
                       .buffer = ULL_NONE, .bytes = s->workspace[at], .begin = place, .end = place});
        }
    }
    for (int i = 0; i < s->stay_count; ++i) {
        struct ull__stay *stay = &s->stays[i];
        if (stay->buffer != ULL_NONE && s->mover_of[stay->buffer] == ULL_NONE) {
            stay->end = place_of[stay->end];
        }
    }
}

void ull__schedule_list(struct ull__scheduler *s)
{
    list_order(s);
    list_stays(s);
}

const struct ull__placed *ull__schedule_order(const struct ull__scheduler *s, int *count)
{
    *count = s->count;
    return s->order;
}

const struct ull__stay *ull__schedule_stays(const struct ull__scheduler *s, int *count)
{
    *count = s->stay_count;
    return s->stays;
}

/* --- Algorithms --- */

/* Bytes at a place without workspace. */
static int64_t bare(const struct ull__scheduler *s, int place)
{
    return s->bytes[place] - s->workspace[s->order[place].item];
}

void ull__schedule_fit(struct ull__scheduler *s, struct ull__decision *decision, int64_t level,
                       struct ull__cost_of *cost)
{
    const struct ull__program *program = s->program;
    list_order(s);
    memset(s->fitted, 0, (size_t)program->item_count);
    for (int place = 0; place < s->count; ++place) {
        int item = s->order[place].item, last = program->items[item].choice_count - 1;
        int64_t room = level - bare(s, place);
        while (s->fitted[item] < last &&
               ull__item_choice(program, item, s->fitted[item])->workspace > room) {
            s->fitted[item] += 1;
        }
    }
    if (memcmp(s->fitted, decision->algorithm, (size_t)program->item_count) != 0) {
        memcpy(decision->algorithm, s->fitted, (size_t)program->item_count);
        ull__schedule_cost(s, decision, cost);
    }
}

int64_t ull__schedule_lowest(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    int64_t lowest = 0;
    list_order(s);
    for (int place = 0; place < s->count; ++place) {
        int item = s->order[place].item, last = program->items[item].choice_count - 1;
        int64_t bytes = bare(s, place) + ull__item_choice(program, item, last)->workspace;
        lowest = bytes > lowest ? bytes : lowest;
    }
    return lowest;
}
