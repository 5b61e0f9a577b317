/*
 * exact.h: decisions to keep and drop in an exact way, for random models: what one costs, and the best of all.
 *
 * The reference plays a decision by itself: which item runs when, and what is in memory at each moment. It shares no code
 * with the scheduler. The solver is a search with bounds over all decisions: how long what is dropped takes at least, and how
 * much lies in memory at least.
 */
#ifndef ULLAGE_TEST_EXACT_H
#define ULLAGE_TEST_EXACT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_model.h"
#include "search.h"

enum { MOST_ITEMS = 256, MOST_BUFFERS = 256, OPTIMA_BATCH = 256 /* of the models in optima.csv */ };

static const struct ull__profile exact_device = {.name = "test",
                                                 .bytes_per_second = 1e9,
                                                 .matrix_per_second = 2e10,
                                                 .matrix_half_per_second = 2e10,
                                                 .flops_per_second = 1e10,
                                                 .link_per_second = 1e8,
                                                 .launch_seconds = 1e-6,
                                                 .lean_convolution = 1,
                                                 .alignment = 1};

/* NULL: an error. The model must outlive it. */
static inline struct ull__program *exact_program(struct ull__graph *model, int64_t batch)
{
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_SGD, .consume = true};
    struct ull__program *program = NULL;
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(model, batch, values);
    if (ull__step_build(model, &options, NULL) != ULL_OK ||
        ull__program_create(model, values, &exact_device, &program, NULL) != ULL_OK) {
        return NULL;
    }
    return program;
}

struct play {
    const struct ull__program *program;
    const bool *drop; /* by buffer */
    int runs[MOST_ITEMS * 2];
    int run_count;
    bool there[MOST_BUFFERS];
};

static inline void run_item(struct play *play, int item);

static inline void bring(struct play *play, int buffer)
{
    int maker = play->program->buffers[buffer].item;
    if (play->program->buffers[buffer].life == ULL_LIFE_PASSING && maker >= 0 &&
        !play->there[buffer]) {
        const struct ull__program_item *of = &play->program->items[maker];
        for (int i = 0; i < of->input_count; ++i) {
            bring(play, play->program->refs[of->inputs + i]);
        }
        run_item(play, maker);
    }
}

static inline void run_item(struct play *play, int item)
{
    const struct ull__program_item *of = &play->program->items[item];
    play->runs[play->run_count++] = item;
    for (int i = 0; i < of->output_count; ++i) {
        play->there[play->program->refs[of->outputs + i]] = true;
    }
}

static inline bool touches(const struct ull__program *program, int item, int buffer, bool outputs)
{
    const struct ull__program_item *of = &program->items[item];
    int first = outputs ? of->outputs : of->inputs,
        count = outputs ? of->output_count : of->input_count;
    for (int i = 0; i < count; ++i) {
        if (program->refs[first + i] == buffer) {
            return true;
        }
    }
    return false;
}

/* In which runs a buffer is in memory: from a run that makes it, to the last that touches it before it is gone or made anew. */
static inline void mark(const struct play *play, int buffer, bool *in)
{
    const struct ull__program *program = play->program;
    const struct ull__program_buffer *of = &program->buffers[buffer];
    memset(in, 0, sizeof(*in) * (size_t)play->run_count);
    bool keeps = !(of->forward && play->drop[buffer]);
    int split =
        play->run_count; /* of what is dropped: the first run after its last reader of the forward pass */
    for (int i = 0, seen = 0; i < play->run_count && !keeps; ++i) {
        if (play->runs[i] == of->last_forward && !seen) {
            seen = 1;
            split = i + 1;
        }
    }
    for (int part = 0; part < 2; ++part) {
        int from = part == 0 ? 0 : split, to = part == 0 ? split : play->run_count;
        int first = of->item < 0 && part == 0 ? 0 : -1, last = -1;
        for (int i = from; i < to; ++i) {
            bool makes = touches(program, play->runs[i], buffer, true);
            if (makes && first < 0) {
                first = i;
            }
            if (makes || touches(program, play->runs[i], buffer, false)) {
                last = i;
            }
        }
        for (int i = first; first >= 0 && i <= last; ++i) {
            in[i] = true;
        }
    }
}

/* In place: the output of a run takes the memory of its first input, which nobody needs after it. */
static inline bool in_place(const struct play *play, const bool *input_in, int run)
{
    const struct ull__program *program = play->program;
    const struct ull__program_item *of = &program->items[play->runs[run]];
    int input = of->first_input;
    if (!of->inplace || input < 0 || program->buffers[input].life != ULL_LIFE_PASSING ||
        program->buffers[input].item < 0 || of->output_count == 0) {
        return false;
    }
    int output = program->refs[of->outputs];
    return output != input && program->buffers[output].life == ULL_LIFE_PASSING &&
           program->buffers[output].bytes == program->buffers[input].bytes &&
           (run + 1 == play->run_count || !input_in[run + 1]);
}

static inline void reference(const struct ull__program *program, const bool *drop, int64_t *peak,
                             double *seconds)
{
    struct play play = {.program = program, .drop = drop};
    bool left[MOST_BUFFERS] = {false};
    *seconds = 0;
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            bring(&play, program->refs[item->inputs + j]);
        }
        run_item(&play, i);
        for (int b = 0; b < program->buffer_count && item->forward; ++b) {
            if (program->buffers[b].forward && drop[b] && program->buffers[b].last_forward == i &&
                !left[b]) {
                play.there[b] = false;
                left[b] = true;
            }
        }
    }
    int64_t bytes[MOST_ITEMS * 2] = {0};
    static bool in[MOST_BUFFERS][MOST_ITEMS * 2];
    for (int b = 0; b < program->buffer_count; ++b) {
        if (program->buffers[b].life == ULL_LIFE_PASSING) {
            mark(&play, b, in[b]);
            for (int i = 0; i < play.run_count; ++i) {
                bytes[i] += in[b][i] ? program->buffers[b].bytes : 0;
            }
        }
    }
    *peak = 0;
    for (int i = 0; i < play.run_count; ++i) {
        const struct ull__program_item *item = &program->items[play.runs[i]];
        *seconds += ull__item_choice(program, play.runs[i], 0)->seconds;
        if (item->first_input >= 0 && in_place(&play, in[item->first_input], i)) {
            int output = program->refs[item->outputs];
            /* Only where the output begins here. */
            if (i == 0 || !in[output][i - 1]) {
                bytes[i] -= program->buffers[output].bytes;
            }
        }
        *peak = bytes[i] > *peak ? bytes[i] : *peak;
    }
    *peak += program->step_bytes;
}

static inline int droppable(const struct ull__program *program, int *list)
{
    int count = 0;
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (buffer->forward && buffer->item >= 0 && buffer->life == ULL_LIFE_PASSING &&
            !buffer->result && buffer->bytes > 0) {
            list[count++] = i;
        }
    }
    return count;
}

static inline double seconds_of(const struct ull__found *found)
{
    return found->cost.micro_seconds + found->cost.update_seconds;
}

/* The least time that the frontier has within a peak. */
static inline double best_within(const struct ull__frontier *frontier, int64_t peak)
{
    for (int i = 0; i < frontier->count; ++i) {
        if (frontier->entries[i].cost.peak_bytes <= peak) {
            return seconds_of(&frontier->entries[i]);
        }
    }
    return 1e9;
}

/* --- The best of all decisions --- */

struct exact {
    const struct ull__program *program;
    int list[MOST_BUFFERS], count; /* what can be dropped, in the order in which it is made */
    int index[MOST_BUFFERS];       /* by buffer: its place there; -1 */
    int cheap[MOST_BUFFERS];       /* places of the list, from the fewest seconds a byte on */
    bool drop[MOST_BUFFERS];
    uint64_t again;                        /* by place: made a second time for sure */
    bool beyond[MOST_BUFFERS][MOST_ITEMS]; /* by place and item: in memory there only if it is kept */
    int64_t least[MOST_ITEMS];             /* bytes at each item at least, by what is decided */
    int64_t budget;
    double base, best; /* seconds */
    long nodes, nodes_most;
};

/* Where a buffer is in memory after the forward pass' last reader, kept or dropped. */
static inline void exact_span(const struct exact *exact, int buffer, bool kept, int *from, int *to)
{
    const struct ull__program *program = exact->program;
    const struct ull__program_buffer *of = &program->buffers[buffer];
    int first = -1, last = -1;
    for (int i = of->last_forward + 1; i < program->item_count; ++i) {
        if (touches(program, i, buffer, false)) {
            first = first < 0 ? i : first;
            last = i;
        }
    }
    *from = kept ? of->last_forward + 1 : first;
    *to = last;
    if (last < 0) {
        /* Kept for what is made again of it, which is after the forward pass; else it could be dropped as well. */
        *from = kept ? of->last_forward + 1 : 0;
        *to = kept ? program->forward_items - 1 : -1;
    }
}

static inline void exact_mark(struct exact *exact, int buffer, bool kept, int64_t sign)
{
    int from, to;
    exact_span(exact, buffer, kept, &from, &to);
    for (int i = from; i <= to; ++i) {
        exact->least[i] += sign * exact->program->buffers[buffer].bytes;
    }
}

/* What every decision has in memory: passing buffers of the forward pass until then, and all others as they are. */
static inline void exact_begin(struct exact *exact)
{
    const struct ull__program *program = exact->program;
    for (int b = 0; b < program->buffer_count; ++b) {
        const struct ull__program_buffer *of = &program->buffers[b];
        int first = of->item < 0 ? 0 : of->item, last = first;
        for (int i = first; i < program->item_count; ++i) {
            bool counts = exact->index[b] < 0 || i <= of->last_forward;
            last = counts && touches(program, i, b, false) ? i : last;
        }
        for (int i = first; of->life == ULL_LIFE_PASSING && i <= last; ++i) {
            exact->least[i] += of->bytes;
        }
    }
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        exact->base += ull__item_choice(program, i, 0)->seconds;
        exact->least[i] += program->step_bytes;
        if (item->inplace && item->output_count > 0) {
            exact->least[i] -= program->buffers[program->refs[item->outputs]].bytes;
        }
    }
    for (int i = 0; i < exact->count; ++i) {
        int from, to, dropped_from, dropped_to;
        exact_mark(exact, exact->list[i], false, 1);
        exact_span(exact, exact->list[i], true, &from, &to);
        exact_span(exact, exact->list[i], false, &dropped_from, &dropped_to);
        for (int j = from; j <= to && program->buffers[exact->list[i]].backward; ++j) {
            exact->beyond[i][j] = j < dropped_from || j > dropped_to;
        }
    }
}

/* A second time is made what is dropped and read by the backward pass, and what that needs of what is dropped. */
static inline double exact_again(struct exact *exact, int place)
{
    const struct ull__program *program = exact->program;
    const struct ull__program_item *item = &program->items[program->buffers[exact->list[place]].item];
    if ((exact->again >> place & 1) != 0) {
        return 0;
    }
    exact->again |= UINT64_C(1) << place;
    double seconds =
        item->output_count == 1
            ? ull__item_choice(program, program->buffers[exact->list[place]].item, 0)->seconds
            : 0;
    for (int i = 0; i < item->input_count; ++i) {
        int input = program->refs[item->inputs + i];
        if (exact->index[input] >= 0 && exact->drop[input]) {
            seconds += exact_again(exact, exact->index[input]);
        }
    }
    return seconds;
}

/* Seconds that what is undecided adds at least: at some item the cheapest of it must go, as if it could in parts. */
static inline double exact_rest(const struct exact *exact, int at)
{
    const struct ull__program *program = exact->program;
    double most = 0;
    for (int i = 0; i < program->item_count; ++i) {
        double excess = (double)(exact->least[i] - exact->budget), seconds = 0;
        for (int j = at; j < exact->count; ++j) {
            excess += exact->beyond[j][i] ? (double)program->buffers[exact->list[j]].bytes : 0;
        }
        for (int j = 0; j < exact->count && excess > 0; ++j) {
            int place = exact->cheap[j];
            const struct ull__program_buffer *buffer = &program->buffers[exact->list[place]];
            const struct ull__program_item *item = &program->items[buffer->item];
            if (place >= at && exact->beyond[place][i]) {
                double part = excess < (double)buffer->bytes ? excess / (double)buffer->bytes : 1;
                seconds += item->output_count == 1
                               ? part * ull__item_choice(program, buffer->item, 0)->seconds
                               : 0;
                excess -= (double)buffer->bytes;
            }
        }
        most = seconds > most ? seconds : most;
    }
    return most;
}

/* Whether something is kept that nobody reads any more: it is as good as dropped. */
static inline bool exact_keeps_in_vain(const struct exact *exact)
{
    const struct ull__program *program = exact->program;
    for (int i = 0; i < exact->count; ++i) {
        bool used = program->buffers[exact->list[i]].backward || exact->drop[exact->list[i]];
        for (int j = 0; j < exact->count && !used; ++j) {
            used = (exact->again >> j & 1) != 0 &&
                   touches(program, program->buffers[exact->list[j]].item, exact->list[i], false);
        }
        if (!used) {
            return true;
        }
    }
    return false;
}

static inline void exact_branch(struct exact *exact, int at, double seconds)
{
    const struct ull__program *program = exact->program;
    exact->nodes += 1;
    if (seconds >= exact->best || exact->nodes >= exact->nodes_most) {
        return;
    }
    for (int i = 0; i < program->item_count; ++i) {
        if (exact->least[i] > exact->budget) {
            return;
        }
    }
    if (at == exact->count) {
        int64_t peak;
        double all;
        if (exact_keeps_in_vain(exact)) {
            return;
        }
        reference(program, exact->drop, &peak, &all);
        if (peak <= exact->budget && all < exact->best) {
            exact->best = all;
        }
        return;
    }
    if (seconds + exact_rest(exact, at) >= exact->best) {
        return;
    }
    int buffer = exact->list[at];
    uint64_t again = exact->again;
    exact_mark(exact, buffer, false, -1);
    exact_mark(exact, buffer, true, 1);
    exact_branch(exact, at + 1, seconds);
    exact_mark(exact, buffer, true, -1);
    exact_mark(exact, buffer, false, 1);
    exact->drop[buffer] = true;
    double more = program->buffers[buffer].backward ? exact_again(exact, at) : 0;
    exact_branch(exact, at + 1, seconds + more);
    exact->drop[buffer] = false;
    exact->again = again;
}

static inline double exact_density(const struct exact *exact, int place)
{
    const struct ull__program_buffer *buffer = &exact->program->buffers[exact->list[place]];
    return ull__item_choice(exact->program, buffer->item, 0)->seconds / (double)buffer->bytes;
}

/* Both orders. */
static inline void exact_sort(struct exact *exact)
{
    const struct ull__program *program = exact->program;
    for (int i = 1; i < exact->count; ++i) {
        for (int j = i; j > 0 && program->buffers[exact->list[j]].item <
                                     program->buffers[exact->list[j - 1]].item;
             --j) {
            int other = exact->list[j];
            exact->list[j] = exact->list[j - 1];
            exact->list[j - 1] = other;
        }
    }
    for (int i = 0; i < exact->count; ++i) {
        exact->index[exact->list[i]] = i;
        exact->cheap[i] = i;
        for (int j = i; j > 0 && exact_density(exact, exact->cheap[j]) <
                                     exact_density(exact, exact->cheap[j - 1]);
             --j) {
            int other = exact->cheap[j];
            exact->cheap[j] = exact->cheap[j - 1];
            exact->cheap[j - 1] = other;
        }
    }
}

/*
 * The least seconds within a budget, of decisions that take less than `below`; `below` if there is none. Looks at up to
 * nodes_most nodes; the result is exact if *nodes is less.
 */
static inline double exact_best(const struct ull__program *program, int64_t budget, double below,
                                long nodes_most, long *nodes)
{
    struct exact *exact = calloc(1, sizeof(*exact));
    exact->program = program;
    exact->budget = budget;
    exact->best = below;
    exact->nodes_most = nodes_most;
    exact->count = droppable(program, exact->list);
    for (int i = 0; i < MOST_BUFFERS; ++i) {
        exact->index[i] = -1;
    }
    exact_sort(exact);
    exact_begin(exact);
    exact_branch(exact, 0, exact->base);
    double best = exact->best;
    *nodes = exact->nodes;
    free(exact);
    return best;
}

#endif
