/*
 * schedule.c: the order, the stays and the peak of a decision. See schedule.h.
 *
 * This runs thousands of times for one plan, so it allocates nothing after the scheduler was made, and is linear in
 * the items.
 *
 * What is sent to the host leaves on one queue and comes back on another, one buffer after the other, while the
 * device works. A buffer's memory is free at the first item that begins after it has left; it comes back as late as
 * its next reader and those after it allow, and where even at once is too late, the device waits.
 */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

struct ull__scheduler {
    const struct ull__program *program;
    const struct ull__profile *profile;
    const struct ull__decision *decision;

    struct ull__placed *order;
    double *starts; /* by place: seconds from the beginning, without waiting */
    int count;
    struct ull__stay *stays;
    int stay_count;
    int64_t *bytes; /* by place */

    int *now;        /* by buffer: its stay; ULL_NONE: not in memory */
    int *last;       /* by buffer: its last stay, also after that */
    int *sent;       /* buffers that were sent, in the order in which their next readers come */
    double *left_at; /* by buffer: when its last byte has left */
    int sent_count;
    int *to_leave;      /* by item of the forward pass: the first buffer whose last reader it is */
    int *next_to_leave; /* by buffer */
    uint8_t *fitted;    /* by item: an algorithm, in ull__schedule_fit */
};

struct ull__scheduler *ull__scheduler_create(const struct ull__program *program,
                                             const struct ull__profile *profile)
{
    struct ull__scheduler *made = calloc(1, sizeof(*made));
    size_t places = 2 * (size_t)program->item_count + 1, buffers = (size_t)program->buffer_count + 1;
    if (made == NULL) {
        return NULL;
    }
    made->program = program;
    made->profile = profile;
    made->order = calloc(places, sizeof(*made->order));
    made->starts = calloc(places + 1, sizeof(*made->starts));
    made->bytes = calloc(places + 1, sizeof(*made->bytes));
    made->stays = calloc(2 * buffers + places, sizeof(*made->stays));
    made->now = calloc(buffers, sizeof(*made->now));
    made->last = calloc(buffers, sizeof(*made->last));
    made->sent = calloc(buffers, sizeof(*made->sent));
    made->left_at = calloc(buffers, sizeof(*made->left_at));
    made->to_leave = calloc(places, sizeof(*made->to_leave));
    made->next_to_leave = calloc(buffers, sizeof(*made->next_to_leave));
    made->fitted = calloc(places, 1);
    if (made->order == NULL || made->starts == NULL || made->bytes == NULL || made->stays == NULL ||
        made->last == NULL || made->now == NULL || made->sent == NULL || made->left_at == NULL ||
        made->to_leave == NULL || made->next_to_leave == NULL || made->fitted == NULL) {
        ull__scheduler_destroy(made);
        return NULL;
    }
    for (int i = 0; i < program->item_count; ++i) {
        made->to_leave[i] = ULL_NONE;
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (buffer->forward && buffer->life == ULL_LIFE_PASSING && buffer->last_forward != ULL_NONE) {
            made->next_to_leave[i] = made->to_leave[buffer->last_forward];
            made->to_leave[buffer->last_forward] = i;
        }
    }
    return made;
}

void ull__scheduler_destroy(struct ull__scheduler *scheduler)
{
    if (scheduler != NULL) {
        free(scheduler->order);
        free(scheduler->starts);
        free(scheduler->bytes);
        free(scheduler->stays);
        free(scheduler->now);
        free(scheduler->last);
        free(scheduler->sent);
        free(scheduler->left_at);
        free(scheduler->to_leave);
        free(scheduler->next_to_leave);
        free(scheduler->fitted);
        free(scheduler);
    }
}

bool ull__decision_create(const struct ull__program *program, struct ull__decision *decision)
{
    decision->keep = calloc((size_t)program->buffer_count + 1, 1);
    decision->algorithm = calloc((size_t)program->item_count + 1, 1);
    if (decision->keep == NULL || decision->algorithm == NULL) {
        ull__decision_finish(decision);
        return false;
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        decision->keep[i] =
            !buffer->forward || buffer->backward || buffer->result ? ULL_KEEP : ULL_DROP;
    }
    return true;
}

void ull__decision_finish(struct ull__decision *decision)
{
    free(decision->keep);
    free(decision->algorithm);
    *decision = (struct ull__decision){NULL, NULL};
}

void ull__decision_copy(const struct ull__program *program, struct ull__decision *to,
                        const struct ull__decision *from)
{
    memcpy(to->keep, from->keep, (size_t)program->buffer_count);
    memcpy(to->algorithm, from->algorithm, (size_t)program->item_count);
}

static bool passes(const struct ull__scheduler *s, int buffer)
{
    return s->program->buffers[buffer].life == ULL_LIFE_PASSING;
}

static int begin_stay(struct ull__scheduler *s, int buffer, int at)
{
    s->stays[s->stay_count] = (struct ull__stay){
        .buffer = buffer, .begin = at, .end = at, .joins = ULL_NONE, .before = ULL_NONE};
    if (buffer != ULL_NONE) {
        s->stays[s->stay_count].bytes = s->program->buffers[buffer].bytes;
        s->stays[s->stay_count].before = s->last[buffer];
        s->last[buffer] = s->stay_count;
    }
    return s->stay_count++;
}

static double item_seconds(const struct ull__scheduler *s, int item)
{
    return ull__item_choice(s->program, item, s->decision->algorithm[item])->seconds;
}

/* Puts an item, whose inputs are in memory, at the end of the order. */
static void place(struct ull__scheduler *s, int at, bool again)
{
    const struct ull__program *program = s->program;
    const struct ull__program_item *item = &program->items[at];
    int here = s->count++;
    s->order[here] = (struct ull__placed){at, again};
    s->starts[here + 1] = s->starts[here] + item_seconds(s, at);
    for (int i = 0; i < item->input_count; ++i) {
        int buffer = program->refs[item->inputs + i];
        if (passes(s, buffer)) {
            s->stays[s->now[buffer]].end = here;
        }
    }
    for (int i = 0; i < item->output_count; ++i) {
        int buffer = program->refs[item->outputs + i];
        /* A second run writes the same bits into what was kept of its outputs. */
        if (passes(s, buffer) && s->now[buffer] == ULL_NONE) {
            s->now[buffer] = begin_stay(s, buffer, here);
        } else if (passes(s, buffer) && s->stays[s->now[buffer]].end < here) {
            s->stays[s->now[buffer]].end = here;
        }
    }
    int64_t workspace = ull__item_choice(program, at, s->decision->algorithm[at])->workspace;
    if (workspace > 0) {
        s->stays[begin_stay(s, ULL_NONE, here)].bytes = workspace;
    }
}

/* After the last reader in the forward pass, what is not kept goes. */
static void leave(struct ull__scheduler *s, int item)
{
    for (int buffer = s->to_leave[item]; buffer != ULL_NONE; buffer = s->next_to_leave[buffer]) {
        if (s->decision->keep[buffer] != ULL_KEEP) {
            s->now[buffer] = ULL_NONE;
        }
    }
}

/* Sees to it that a buffer is in memory when the next item runs. */
static void need(struct ull__scheduler *s, int buffer)
{
    const struct ull__program *program = s->program;
    if (!passes(s, buffer) || s->now[buffer] != ULL_NONE) {
        return;
    }
    if (program->buffers[buffer].item == ULL_NONE) {
        s->now[buffer] = begin_stay(s, buffer, 0); /* an input: there from the beginning */
        return;
    }
    if (s->decision->keep[buffer] == ULL_SEND) {
        s->now[buffer] = begin_stay(s, buffer, s->count);
        s->stays[s->now[buffer]].returned = true;
        s->sent[s->sent_count++] = buffer;
        return;
    }
    int item = program->buffers[buffer].item;
    const struct ull__program_item *of = &program->items[item];
    for (int i = 0; i < of->input_count; ++i) {
        need(s, program->refs[of->inputs + i]);
    }
    place(s, item, true);
}

static void make_order(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    s->count = s->stay_count = s->sent_count = 0;
    for (int i = 0; i < program->buffer_count; ++i) {
        s->now[i] = s->last[i] = ULL_NONE;
    }
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            need(s, program->refs[item->inputs + j]);
        }
        place(s, i, false);
        if (item->forward) {
            leave(s, i);
        }
    }
}

/* The first place that begins at `time` or later. */
static int place_at(const struct ull__scheduler *s, double time)
{
    int low = 0, high = s->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->starts[middle] >= time) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static double transfer_seconds(const struct ull__scheduler *s, int buffer)
{
    return (double)s->program->buffers[buffer].bytes / s->profile->link_per_second;
}

/* When what is sent has left: the stays before the transfers are longer by them. */
static void send(struct ull__scheduler *s)
{
    double free_at = 0;
    for (int i = 0; i < s->stay_count; ++i) {
        struct ull__stay *stay = &s->stays[i];
        if (stay->buffer == ULL_NONE || stay->returned || !s->program->buffers[stay->buffer].forward ||
            s->decision->keep[stay->buffer] != ULL_SEND) {
            continue;
        }
        double ready = s->starts[stay->end + 1];
        free_at = (ready > free_at ? ready : free_at) + transfer_seconds(s, stay->buffer);
        s->left_at[stay->buffer] = free_at;
        int last = place_at(s, free_at) - 1;
        stay->end = last > stay->end ? last : stay->end;
        stay->end = stay->end < s->count ? stay->end : s->count - 1;
    }
}

/* When it comes back, as late as may be. Returns the seconds that the device waits for it. */
static double fetch(struct ull__scheduler *s)
{
    double waits = 0, before = s->starts[s->count];
    for (int i = s->sent_count - 1; i >= 0; --i) {
        int buffer = s->sent[i];
        struct ull__stay *stay = &s->stays[s->now[buffer]];
        double needed = s->starts[stay->begin];
        double start = (needed < before ? needed : before) - transfer_seconds(s, buffer);
        before = start;
        if (s->left_at[buffer] > start) {
            waits = s->left_at[buffer] - start > waits ? s->left_at[buffer] - start : waits;
        }
        int first = place_at(s, start + 1e-12) - 1;
        first = first < 0 ? 0 : first;
        stay->begin = first < stay->begin ? first : stay->begin;
    }
    return waits;
}

/* An item that may work in place does, where its input is needed no more and as large as its output. */
static void join(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    for (int i = 0; i < s->stay_count; ++i) {
        const struct ull__stay *stay = &s->stays[i];
        if (stay->buffer == ULL_NONE || stay->returned ||
            program->buffers[stay->buffer].item == ULL_NONE) {
            continue;
        }
        const struct ull__program_item *item = &program->items[s->order[stay->begin].item];
        int input = item->first_input;
        if (!item->inplace || input == ULL_NONE || !passes(s, input) || input == stay->buffer ||
            program->buffers[input].item == ULL_NONE || program->refs[item->outputs] != stay->buffer ||
            program->buffers[input].bytes != program->buffers[stay->buffer].bytes) {
            continue;
        }
        int from = s->last[input];
        while (from != ULL_NONE && s->stays[from].begin >= stay->begin) {
            from = s->stays[from].before;
        }
        if (from != ULL_NONE && s->stays[from].end == stay->begin) {
            s->stays[i].joins = from;
        }
    }
}

static void count_bytes(struct ull__scheduler *s, struct ull__cost_of *cost)
{
    memset(s->bytes, 0, sizeof(*s->bytes) * (size_t)(s->count + 1));
    for (int i = 0; i < s->stay_count; ++i) {
        const struct ull__stay *stay = &s->stays[i];
        /* In place, the place where both are is counted once. */
        int begin = stay->joins != ULL_NONE ? stay->begin + 1 : stay->begin;
        s->bytes[begin] += stay->bytes;
        s->bytes[stay->end + 1] -= stay->bytes;
    }
    int64_t live = s->program->step_bytes;
    for (int i = 0; i < s->count; ++i) {
        live += s->bytes[i];
        s->bytes[i] = live;
        if (live > cost->peak_bytes) {
            cost->peak_bytes = live;
            cost->peak_at = i;
        }
    }
}

static void count_seconds(const struct ull__scheduler *s, struct ull__cost_of *cost)
{
    const struct ull__program *program = s->program;
    for (int i = 0; i < s->count; ++i) {
        const struct ull__program_item *item = &program->items[s->order[i].item];
        double seconds = item_seconds(s, s->order[i].item);
        *(item->update || item->prologue ? &cost->update_seconds : &cost->micro_seconds) += seconds;
        cost->again_seconds += s->order[i].again ? seconds : 0;
        for (int j = 0; j < item->output_count && s->order[i].again; ++j) {
            int buffer = program->refs[item->outputs + j];
            cost->dropped_bytes +=
                s->decision->keep[buffer] == ULL_DROP ? program->buffers[buffer].bytes : 0;
        }
    }
    for (int i = 0; i < s->sent_count; ++i) {
        /* Two copies are two launches more, and share the memory's bandwidth with everything else. */
        double bytes = (double)program->buffers[s->sent[i]].bytes;
        cost->micro_seconds +=
            2 * (s->profile->launch_seconds + bytes / s->profile->bytes_per_second);
        cost->sent_bytes += program->buffers[s->sent[i]].bytes;
    }
}

void ull__schedule(struct ull__scheduler *s, const struct ull__decision *decision,
                   struct ull__cost_of *cost)
{
    *cost = (struct ull__cost_of){0};
    s->decision = decision;
    make_order(s);
    double waits = 0;
    if (s->sent_count > 0) {
        send(s);
        waits = fetch(s);
    }
    join(s);
    count_bytes(s, cost);
    count_seconds(s, cost);
    cost->micro_seconds += waits;
}

/* --- Algorithms --- */

/* Bytes at a place without workspace. */
static int64_t bare(const struct ull__scheduler *s, int place)
{
    int item = s->order[place].item;
    return s->bytes[place] -
           ull__item_choice(s->program, item, s->decision->algorithm[item])->workspace;
}

void ull__schedule_fit(struct ull__scheduler *s, struct ull__decision *decision, int64_t level,
                       struct ull__cost_of *cost)
{
    const struct ull__program *program = s->program;
    bool changes = false;
    memset(s->fitted, 0, (size_t)program->item_count);
    for (int place = 0; place < s->count; ++place) {
        int item = s->order[place].item, last = program->items[item].choice_count - 1;
        int64_t room = level - bare(s, place);
        while (s->fitted[item] < last &&
               ull__item_choice(program, item, s->fitted[item])->workspace > room) {
            s->fitted[item] += 1;
        }
    }
    for (int i = 0; i < program->item_count; ++i) {
        changes |= s->fitted[i] != decision->algorithm[i];
    }
    if (changes) {
        memcpy(decision->algorithm, s->fitted, (size_t)program->item_count);
        ull__schedule(s, decision, cost);
    }
}

int64_t ull__schedule_lowest(const struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    int64_t lowest = 0;
    for (int place = 0; place < s->count; ++place) {
        int item = s->order[place].item, last = program->items[item].choice_count - 1;
        int64_t bytes = bare(s, place) + ull__item_choice(program, item, last)->workspace;
        lowest = bytes > lowest ? bytes : lowest;
    }
    return lowest;
}

const struct ull__placed *ull__schedule_order(const struct ull__scheduler *scheduler, int *count)
{
    *count = scheduler->count;
    return scheduler->order;
}

const struct ull__stay *ull__schedule_stays(const struct ull__scheduler *scheduler, int *count)
{
    *count = scheduler->stay_count;
    return scheduler->stays;
}

const int64_t *ull__schedule_bytes(const struct ull__scheduler *scheduler)
{
    return scheduler->bytes;
}
