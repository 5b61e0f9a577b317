/*
 * schedule.c: the peak and the time of a decision. See schedule.h, and schedule_private.h for how.
 *
 * This runs tens of thousands of times for one plan, so it allocates nothing after the scheduler was made, goes through
 * what a decision can change alone, and only adds up the rest.
 *
 * What is sent to the host leaves on one queue and comes back on another, one buffer after the other, while the
 * device works. A buffer's memory is free at the first item that begins after it has left; it comes back as late as
 * its next reader and those after it allow, and where even at once is too late, the device waits.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule_private.h"

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

bool ull__decision_clone(const struct ull__program *program, struct ull__decision *to,
                         const struct ull__decision *from)
{
    to->keep = malloc((size_t)program->buffer_count + 1);
    to->algorithm = malloc((size_t)program->item_count + 1);
    if (to->keep == NULL || to->algorithm == NULL) {
        ull__decision_finish(to);
        return false;
    }
    ull__decision_copy(program, to, from);
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

/* --- By algorithms --- */

/* Times and workspaces of all items, unless they are those of the last decision. */
static void price(struct ull__scheduler *s)
{
    const struct ull__program *program = s->program;
    const uint8_t *algorithm = s->decision->algorithm;
    if (s->priced && memcmp(s->algorithm, algorithm, (size_t)program->item_count) == 0) {
        return;
    }
    memcpy(s->algorithm, algorithm, (size_t)program->item_count);
    s->priced = true;
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__choice *choice = ull__item_choice(program, i, algorithm[i]);
        s->seconds[i] = choice->seconds;
        s->workspace[i] = choice->workspace;
        s->base_bytes[i] = s->fixed[i] + choice->workspace;
        s->base_starts[i + 1] = s->base_starts[i] + choice->seconds;
    }
    for (int i = 0; i < s->micro_count; ++i) {
        s->micro_before[i + 1] = s->micro_before[i] + s->seconds[s->micro[i]];
    }
    s->update_seconds = 0;
    for (int i = 0; i < s->update_count; ++i) {
        s->update_seconds += s->seconds[s->update[i]];
    }
}

/* --- Second runs --- */

static void need(struct ull__scheduler *s, int mover, int before);

static void run_again(struct ull__scheduler *s, int item, int before)
{
    const struct ull__span reads = s->reads[item], makes = s->makes[item];
    for (int i = 0; i < reads.count; ++i) {
        int read = s->moved[reads.first + i];
        if (s->stay[read] == ULL_NONE) {
            need(s, read, before);
        }
    }
    int here = before + s->again_count;
    for (int i = 0; i < reads.count; ++i) {
        s->ends[s->stay[s->moved[reads.first + i]]] = here;
    }
    for (int i = 0; i < makes.count; ++i) {
        int made = s->moved[makes.first + i];
        /* It writes the same bits into what was kept of its outputs. */
        if (s->stay[made] == ULL_NONE) {
            s->stay[made] = 2 * made + 1;
            s->begins[2 * made + 1] = here;
            s->second[s->second_count++] = made;
        }
        s->ends[s->stay[made]] = here;
    }
    s->again[s->again_count++] = (struct ull__again){item, before};
}

/* Sees to it that a mover that is gone is in memory before an item. */
static void need(struct ull__scheduler *s, int mover, int before)
{
    if (s->decision->keep[s->movers[mover].buffer] != ULL_SEND) {
        run_again(s, s->movers[mover].item, before);
        return;
    }
    s->stay[mover] = 2 * mover + 1;
    s->begins[2 * mover + 1] = s->ends[2 * mover + 1] = before + s->again_count;
    s->returned[mover] = true;
    s->sent_at[s->sent_count] = before + s->again_count;
    s->sent[s->sent_count++] = mover;
}

/* The stays of movers, up to their last readers. */
static void make_stays(struct ull__scheduler *s)
{
    const uint8_t *keep = s->decision->keep;
    size_t bytes = 2 * sizeof(int) * (size_t)s->mover_count;
    for (int i = 0; i < s->sent_count; ++i) {
        s->returned[s->sent[i]] = false;
    }
    s->again_count = s->second_count = s->sent_count = 0;
    memcpy(s->begins, s->first_begins, bytes);
    memcpy(s->ends, s->first_ends, bytes);
    for (int i = 0; i < s->input_count; ++i) {
        s->stay[i] = 2 * i;
    }
    /* Behind its last reader of the forward pass, what is not kept goes. */
    for (int i = s->input_count; i < s->mover_count; ++i) {
        s->stay[i] = keep[s->movers[i].buffer] == ULL_KEEP ? 2 * i : ULL_NONE;
    }
    for (int i = 0; i < s->reading_count; ++i) {
        const struct ull__reading *reading = &s->readings[i];
        const int *reads = &s->moved[reading->reads.first];
        for (int j = 0; j < reading->reads.count; ++j) {
            if (s->stay[reads[j]] == ULL_NONE) {
                need(s, reads[j], reading->item);
            }
        }
        int here = reading->item + s->again_count;
        for (int j = 0; j < reading->reads.count; ++j) {
            s->ends[s->stay[reads[j]]] = here;
        }
        s->reading_at[i] = here;
    }
    s->count = s->program->item_count + s->again_count;
}

/* --- What is sent --- */

/* Seconds from the beginning to each place, without waiting. */
static void find_starts(struct ull__scheduler *s)
{
    int place = s->again_count > 0 ? s->again[0].before : s->program->item_count, item = place;
    memcpy(s->starts, s->base_starts, sizeof(*s->starts) * (size_t)(place + 1));
    double at = s->starts[place];
    for (int i = 0; i < s->again_count; ++i) {
        for (; item < s->again[i].before; ++item) {
            s->starts[++place] = at += s->seconds[item];
        }
        s->starts[++place] = at += s->seconds[s->again[i].item];
    }
    for (; item < s->program->item_count; ++item) {
        s->starts[++place] = at += s->seconds[item];
    }
}

static double transfer_seconds(const struct ull__scheduler *s, int mover)
{
    return (double)s->movers[mover].bytes / s->profile->link_per_second;
}

/* The last byte of one stay leaves: the stay is longer by it. `place`: the first that begins when the one before it had left. */
static void send_one(struct ull__scheduler *s, int stay, double *free_at, int *place)
{
    double ready = s->starts[s->ends[stay] + 1];
    *free_at = (ready > *free_at ? ready : *free_at) + transfer_seconds(s, stay / 2);
    s->left_at[stay / 2] = *free_at;
    while (*place < s->count && s->starts[*place] < *free_at) {
        *place += 1;
    }
    s->ends[stay] = *place - 1 > s->ends[stay] ? *place - 1 : s->ends[stay];
    s->ends[stay] = s->ends[stay] < s->count ? s->ends[stay] : s->count - 1;
}

static void send(struct ull__scheduler *s)
{
    const uint8_t *keep = s->decision->keep;
    double free_at = 0;
    int place = 0;
    for (int i = s->input_count; i < s->mover_count; ++i) {
        if (keep[s->movers[i].buffer] == ULL_SEND) {
            send_one(s, 2 * i, &free_at, &place);
        }
    }
    /* An item that was run again for another of its outputs has made it again as well. */
    for (int i = 0; i < s->second_count; ++i) {
        if (keep[s->movers[s->second[i]].buffer] == ULL_SEND) {
            send_one(s, 2 * s->second[i] + 1, &free_at, &place);
        }
    }
}

/* When it comes back, as late as may be. Returns the seconds that the device waits for it. */
static double fetch(struct ull__scheduler *s)
{
    double waits = 0, before = s->starts[s->count];
    int place = s->count;
    for (int i = s->sent_count - 1; i >= 0; --i) {
        int mover = s->sent[i], *begin = &s->begins[2 * mover + 1];
        double needed = s->starts[*begin];
        double start = (needed < before ? needed : before) - transfer_seconds(s, mover);
        before = start;
        if (s->left_at[mover] > start) {
            waits = s->left_at[mover] - start > waits ? s->left_at[mover] - start : waits;
        }
        /* Each starts no later than the one behind it. */
        while (place > 0 && s->starts[place - 1] >= start + 1e-12) {
            place -= 1;
        }
        int first = place > 0 ? place - 1 : 0;
        *begin = first < *begin ? first : *begin;
    }
    return waits;
}

/* --- Bytes --- */

/* An item that may work in place does, where its input is needed no more: from the place behind it on, its output counts. */
static bool joins(const struct ull__scheduler *s, int from, int place)
{
    return from != ULL_NONE && s->ends[ull__stay_before(s, from, place)] == place;
}

static inline void add_stay(struct ull__scheduler *s, int stay, bool joined)
{
    int64_t bytes = s->movers[stay / 2].bytes;
    s->joined[stay] = joined;
    s->change[s->begins[stay] + joined] += bytes;
    s->change[s->ends[stay] + 1] -= bytes;
}

static void add_stays(struct ull__scheduler *s)
{
    memset(s->change, 0, sizeof(*s->change) * (size_t)(s->count + 2));
    for (int i = 0; i < s->mover_count; ++i) {
        /* In the forward pass its input is in its first stay. */
        int from = s->movers[i].joins;
        add_stay(s, 2 * i, from != ULL_NONE && s->ends[2 * from] == s->begins[2 * i]);
    }
    for (int i = 0; i < s->second_count; ++i) {
        int stay = 2 * s->second[i] + 1;
        add_stay(s, stay, joins(s, s->movers[stay / 2].joins, s->begins[stay]));
    }
    for (int i = 0; i < s->sent_count; ++i) {
        add_stay(s, 2 * s->sent[i] + 1, false);
    }
    for (int i = 0; i < s->reading_count; ++i) {
        int place = s->reading_at[i];
        s->reading_joined[i] = joins(s, s->readings[i].joins, place);
        if (s->reading_joined[i]) {
            s->change[place] -= s->readings[i].out_bytes;
            s->change[place + 1] += s->readings[i].out_bytes;
        }
    }
}

/* Bytes at places from `place` on that are those of items from `first` to before `last`. */
static void fill_bytes(struct ull__scheduler *s, int place, int first, int last, int64_t *live,
                       struct ull__cost_of *cost)
{
    for (int item = first; item < last; ++item, ++place) {
        *live += s->change[place];
        s->bytes[place] = s->base_bytes[item] + *live;
        if (s->bytes[place] > cost->peak_bytes) {
            cost->peak_bytes = s->bytes[place];
            cost->peak_at = place;
        }
    }
}

static void count_bytes(struct ull__scheduler *s, struct ull__cost_of *cost)
{
    int item = 0;
    int64_t live = 0;
    add_stays(s);
    for (int i = 0; i < s->again_count; ++i) {
        int before = s->again[i].before, place = before + i;
        fill_bytes(s, item + i, item, before, &live, cost);
        item = before;
        live += s->change[place];
        s->bytes[place] = s->between[before] + s->workspace[s->again[i].item] + live;
        if (s->bytes[place] > cost->peak_bytes) {
            cost->peak_bytes = s->bytes[place];
            cost->peak_at = place;
        }
    }
    fill_bytes(s, item + s->again_count, item, s->program->item_count, &live, cost);
}

/* --- Seconds --- */

/* The first of `micro` that is not before an item. */
static int micro_from(const struct ull__scheduler *s, int item)
{
    int low = 0, high = s->micro_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->micro[middle] >= item) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* All is added up in the order in which it runs: sums of floating-point numbers depend on it. A second run is the micro-step's. */
static void count_seconds(const struct ull__scheduler *s, struct ull__cost_of *cost)
{
    const struct ull__program *program = s->program;
    int at = s->again_count > 0 ? micro_from(s, s->again[0].before) : s->micro_count;
    double micro = s->micro_before[at];
    for (int i = 0; i < s->again_count; ++i) {
        int again = s->again[i].item;
        const struct ull__program_item *item = &program->items[again];
        for (; at < s->micro_count && s->micro[at] < s->again[i].before; ++at) {
            micro += s->seconds[s->micro[at]];
        }
        micro += s->seconds[again];
        cost->again_seconds += s->seconds[again];
        for (int j = 0; j < item->output_count; ++j) {
            int buffer = program->refs[item->outputs + j];
            cost->dropped_bytes +=
                s->decision->keep[buffer] == ULL_DROP ? program->buffers[buffer].bytes : 0;
        }
    }
    for (; at < s->micro_count; ++at) {
        micro += s->seconds[s->micro[at]];
    }
    cost->micro_seconds = micro;
    cost->update_seconds = s->update_seconds;
    for (int i = 0; i < s->sent_count; ++i) {
        /* Two copies are two launches more, and share the memory's bandwidth with everything else. */
        double bytes = (double)s->movers[s->sent[i]].bytes;
        cost->micro_seconds +=
            2 * (s->profile->launch_seconds + bytes / s->profile->bytes_per_second);
        cost->sent_bytes += s->movers[s->sent[i]].bytes;
    }
}

void ull__schedule_cost(struct ull__scheduler *s, const struct ull__decision *decision,
                        struct ull__cost_of *cost)
{
    *cost = (struct ull__cost_of){0};
    s->decision = decision;
    s->ordered = false;
    price(s);
    make_stays(s);
    double waits = 0;
    if (s->sent_count > 0) {
        find_starts(s);
        send(s);
        waits = fetch(s);
    }
    count_bytes(s, cost);
    count_seconds(s, cost);
    cost->micro_seconds += waits;
}

void ull__schedule(struct ull__scheduler *s, const struct ull__decision *decision,
                   struct ull__cost_of *cost)
{
    ull__schedule_cost(s, decision, cost);
    ull__schedule_list(s);
}

const int64_t *ull__schedule_bytes(const struct ull__scheduler *s, int *count)
{
    *count = s->count;
    return s->bytes;
}

void ull__schedule_kept(const struct ull__scheduler *s, int buffer, int *begin, int *end)
{
    int stay = 2 * s->mover_of[buffer];
    *begin = s->begins[stay];
    *end = s->ends[stay];
}
