/* search.c: finding decisions. See search.h. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "search_private.h"

enum {
    LEVELS = 24,
    FEW = 13,
    EXACTLY_TRIED = 6,
    TAKEN_BACK = 48,
    SQUEEZES = 2500,
    WANDERINGS = 8000
};

/* --- Looking at decisions --- */

static void count_look(struct ull__searching *s)
{
    s->schedules_left -= 1;
    if (s->options->progress != NULL) {
        atomic_fetch_add_explicit(&s->options->progress->done, 1, memory_order_relaxed);
    }
}

static void look(struct ull__searching *s, const struct ull__decision *decision,
                 struct ull__cost_of *cost)
{
    ull__schedule_cost(s->scheduler, decision, cost);
    count_look(s);
    if (cost->sent_bytes <= s->options->host_bytes &&
        !ull__frontier_put(s->frontier, s->program, decision, cost)) {
        s->failed = true;
    }
}

/* Bytes above a level, added over all places: falls with each step down, also where many places are equally high. */
static double above(const struct ull__searching *s, int64_t level)
{
    int count;
    double total = 0;
    const int64_t *bytes = ull__schedule_bytes(s->scheduler, &count);
    for (int i = 0; i < count; ++i) {
        total += bytes[i] > level ? (double)(bytes[i] - level) : 0;
    }
    return total;
}

static void apply(struct ull__decision *decision, const struct ull__move *move)
{
    if (move->buffer == ULL_NONE) {
        decision->algorithm[move->item] += 1;
    } else {
        decision->keep[move->buffer] = (uint8_t)move->to;
    }
}

/* One step down towards a level. False: nothing lowers it. */
static bool step_down(struct ull__searching *s, int64_t level)
{
    struct ull__move moves[EXACTLY_TRIED + 2];
    int count = ull__moves_at(s, s->cost.peak_at, moves, EXACTLY_TRIED);
    count += ull__sends_at(s, s->cost.peak_at, moves + count, 2);
    double before = above(s, level), best = 0;
    int chosen = -1;
    for (int i = 0; i < count; ++i) {
        struct ull__cost_of cost;
        ull__decision_copy(s->program, &s->trial, &s->current);
        apply(&s->trial, &moves[i]);
        look(s, &s->trial, &cost);
        double fewer = before - above(s, level);
        double more = ull__seconds_of(&cost) - ull__seconds_of(&s->cost);
        double worth = fewer / ((more > 0 ? more : 0) + 1e-9);
        if (fewer > 0 && worth > best) {
            best = worth;
            chosen = i;
        }
    }
    if (chosen < 0) {
        ull__schedule_cost(s->scheduler, &s->current, &s->cost);
        return false;
    }
    apply(&s->current, &moves[chosen]);
    ull__schedule_cost(s->scheduler, &s->current, &s->cost);
    return true;
}

/* Takes back what turns out not to be needed below a level, what saves the most time first. */
static void take_back(struct ull__searching *s, int64_t level, int most)
{
    struct ull__move moves[TAKEN_BACK];
    int count = 0;
    most = most < TAKEN_BACK ? most : TAKEN_BACK;
    if (!s->options->fastest) {
        ull__schedule_fit(s->scheduler, &s->current, level, &s->cost);
    }
    for (int i = 0; i < s->candidate_count; ++i) {
        int buffer = s->candidates[i];
        if (s->current.keep[buffer] != ULL_KEEP && s->program->buffers[buffer].backward) {
            ull__move_insert(
                moves, &count, most,
                &(struct ull__move){
                    buffer, ULL_NONE, ULL_KEEP,
                    ull__item_choice(s->program, s->program->buffers[buffer].item, 0)->seconds});
        }
    }
    for (int i = 0; i < count && s->schedules_left > 0; ++i) {
        uint8_t was = s->current.keep[moves[i].buffer];
        struct ull__cost_of cost;
        s->current.keep[moves[i].buffer] = ULL_KEEP;
        look(s, &s->current, &cost);
        if (cost.peak_bytes <= level && ull__seconds_of(&cost) < ull__seconds_of(&s->cost)) {
            s->cost = cost;
        } else {
            s->current.keep[moves[i].buffer] = was;
        }
    }
    ull__schedule_cost(s->scheduler, &s->current, &s->cost);
}

/* --- Where to begin --- */

/* From decisions by cuts: each is taken as it is, and then filled up to some levels. */
static void begin_at_cuts(struct ull__searching *s, const struct ull__decision *first)
{
    bool *cut = calloc((size_t)s->program->forward_items + 1, sizeof(*cut));
    if (cut == NULL) {
        s->failed = true;
        return;
    }
    static const int parts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24};
    for (size_t i = 0; i < 2 * sizeof(parts) / sizeof(parts[0]) && s->schedules_left > 0; ++i) {
        size_t which = i / 2;
        if (i % 2 == 0) {
            if (!ull__cuts_at_blocks(s->program, parts[which], cut)) {
                continue;
            }
        } else {
            ull__cuts_by_bytes(s->program, parts[which] + 1, cut);
        }
        ull__decision_copy(s->program, &s->current, first);
        ull__decide_by_cuts(s->program, cut, &s->current);
        look(s, &s->current, &s->cost);
        int64_t peak = s->cost.peak_bytes;
        for (int step = 0; step < 4 && s->schedules_left > 0; ++step) {
            take_back(s, peak + peak * step / 8, TAKEN_BACK);
        }
    }
    free(cut);
}

/* --- Algorithms --- */

enum { FITS = 4 };

/* Whether any item can do with less workspace. */
static bool has_choices(const struct ull__searching *s)
{
    for (int i = 0; i < s->program->item_count && !s->options->fastest; ++i) {
        if (s->program->items[i].choice_count > 1) {
            return true;
        }
    }
    return false;
}

/* Gives a decision the fastest algorithms for its peak, and for levels down to the lowest that they allow. */
static void fit(struct ull__searching *s)
{
    struct ull__cost_of cost;
    ull__schedule_cost(s->scheduler, &s->current, &cost);
    int64_t highest = cost.peak_bytes, lowest = ull__schedule_lowest(s->scheduler);
    for (int i = 0; i < FITS && !s->failed; ++i) {
        int64_t level = highest - (int64_t)((double)(highest - lowest) * i / (FITS - 1));
        ull__schedule_fit(s->scheduler, &s->current, level, &cost);
        s->failed |= cost.sent_bytes <= s->options->host_bytes &&
                     !ull__frontier_put(s->frontier, s->program, &s->current, &cost);
        if (lowest >= highest) {
            break;
        }
    }
}

/* All decisions of the frontier as it is. */
static void fit_all(struct ull__searching *s)
{
    struct ull__frontier before = {NULL, 0, 0};
    for (int i = 0; i < s->frontier->count && !s->failed; ++i) {
        const struct ull__found *found = &s->frontier->entries[i];
        s->failed |= !ull__frontier_put(&before, s->program, &found->decision, &found->cost);
    }
    for (int i = 0; i < before.count && !s->failed; ++i) {
        ull__decision_copy(s->program, &s->current, &before.entries[i].decision);
        fit(s);
    }
    ull__frontier_finish(&before);
}

/* --- The whole --- */

static void find_candidates(struct ull__searching *s)
{
    for (int i = 0; i < s->program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &s->program->buffers[i];
        if (buffer->forward && buffer->item != ULL_NONE && buffer->life == ULL_LIFE_PASSING &&
            buffer->bytes > 0 && !buffer->result && buffer->bytes >= s->options->smallest_dropped) {
            s->candidates[s->candidate_count++] = i;
        }
    }
}

/* All ways to keep and drop. */
static void search_all(struct ull__searching *s, const struct ull__decision *first)
{
    for (unsigned ways = 0; ways < 1u << s->candidate_count; ++ways) {
        ull__decision_copy(s->program, &s->current, first);
        for (int i = 0; i < s->candidate_count; ++i) {
            s->current.keep[s->candidates[i]] = (ways >> i & 1) != 0 ? ULL_DROP : ULL_KEEP;
        }
        look(s, &s->current, &s->cost);
    }
}

/* Downwards over levels between the most and the least that is needed. */
static void descend(struct ull__searching *s, const struct ull__decision *first)
{
    int levels = s->options->levels > 0 ? s->options->levels : LEVELS;
    ull__decision_copy(s->program, &s->current, first);
    look(s, &s->current, &s->cost);
    int64_t most = s->cost.peak_bytes;
    for (int i = 1; i <= levels && s->schedules_left > 0 && !s->failed; ++i) {
        int64_t level = most - (int64_t)((double)most * i / (levels + 1));
        while (s->cost.peak_bytes > level && s->schedules_left > 0) {
            if (!step_down(s, level)) {
                return;
            }
        }
        take_back(s, level, TAKEN_BACK);
    }
}

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* From what was found, small changes at random places of the frontier; those that are better become part of it. */
static void wander(struct ull__searching *s, long tries)
{
    uint64_t seed = 1;
    for (long i = 0; i < tries && s->schedules_left > 0 && !s->failed && s->frontier->count > 0; ++i) {
        /* Every other try at the end with the least memory, where steps downwards get stuck first. */
        int width = i % 2 == 0 ? s->frontier->count : s->frontier->count / 16 + 1;
        int from = s->frontier->count - 1 - (int)(draw(&seed) % (uint64_t)width);
        ull__decision_copy(s->program, &s->current, &s->frontier->entries[from].decision);
        int changes = 1 + (int)(draw(&seed) % 3);
        bool changed = false;
        for (int j = 0; j < changes; ++j) {
            int buffer = s->candidates[draw(&seed) % (uint64_t)s->candidate_count];
            bool sends = s->options->host_bytes > 0 && s->program->buffers[buffer].backward &&
                         s->program->buffers[buffer].bytes >= ULL_SEND_LEAST;
            uint8_t to = (uint8_t)(draw(&seed) % (sends ? 3 : 2));
            changed |= s->current.keep[buffer] != to;
            s->current.keep[buffer] = to;
        }
        if (changed) {
            look(s, &s->current, &s->cost);
        } else {
            count_look(s); /* the frontier has it */
        }
    }
}

/*
 * From the decision with the least memory, small changes that do not raise what lies above a level a little below its peak,
 * so that it may cross flat places where single steps gain nothing.
 */
static void squeeze(struct ull__searching *s, long tries)
{
    uint64_t seed = 2;
    struct ull__cost_of cost;
    int64_t level = 0, peak = -1;
    double here = 0;
    for (long i = 0; i < tries && s->schedules_left > 0 && !s->failed && s->frontier->count > 0; ++i) {
        const struct ull__found *least = &s->frontier->entries[s->frontier->count - 1];
        if (least->cost.peak_bytes != peak || i % 512 == 0) {
            peak = least->cost.peak_bytes;
            level = peak - peak / 16;
            ull__decision_copy(s->program, &s->current, &least->decision);
            ull__schedule_cost(s->scheduler, &s->current, &cost);
            here = above(s, level);
        }
        ull__decision_copy(s->program, &s->trial, &s->current);
        for (int changes = 1 + (int)(draw(&seed) % 3); changes > 0; --changes) {
            int buffer = s->candidates[draw(&seed) % (uint64_t)s->candidate_count];
            s->trial.keep[buffer] = s->trial.keep[buffer] == ULL_DROP ? ULL_KEEP : ULL_DROP;
        }
        look(s, &s->trial, &cost);
        double there = above(s, level);
        if (there <= here) {
            here = there;
            ull__decision_copy(s->program, &s->current, &s->trial);
        }
    }
}

static ull_status run(struct ull__searching *s, const struct ull__decision *first)
{
    if (s->candidate_count <= FEW && !s->options->no_drop && s->options->host_bytes == 0) {
        search_all(s, first);
    } else {
        descend(s, first);
        if (!s->options->no_drop && s->candidate_count > 0) {
            begin_at_cuts(s, first);
            squeeze(s, s->schedules_left / 4 < SQUEEZES ? s->schedules_left / 4 : SQUEEZES);
            wander(s, s->schedules_left < WANDERINGS ? s->schedules_left : WANDERINGS);
        }
    }
    if (has_choices(s)) {
        fit_all(s);
    }
    return s->failed ? ULL_E_NO_MEMORY : ULL_OK;
}

long ull__search_schedules(const struct ull__program *program,
                           const struct ull__search_options *options)
{
    /* A schedule takes about as long as there are items. */
    return options->schedules > 0 ? options->schedules : 12000000 / (program->item_count + 100);
}

ull_status ull__search(const struct ull__program *program, const struct ull__profile *profile,
                       const struct ull__search_options *options, struct ull__frontier *frontier,
                       struct ull_error *err)
{
    struct ull__decision first = {NULL, NULL};
    struct ull__searching s = {.program = program,
                               .options = options,
                               .scheduler = ull__scheduler_create(program, profile),
                               .frontier = frontier,
                               .candidates = calloc((size_t)program->buffer_count + 1, sizeof(int)),
                               .seen = calloc((size_t)program->buffer_count + 1, sizeof(bool))};
    s.schedules_left = ull__search_schedules(program, options);
    ull_status status = ULL_E_NO_MEMORY;
    if (s.scheduler != NULL && s.candidates != NULL && s.seen != NULL &&
        ull__decision_create(program, &first) && ull__decision_create(program, &s.current) &&
        ull__decision_create(program, &s.trial)) {
        /* Weights that are cut are there to be whole only while they are used; to keep them is what may be tried. */
        for (int i = 0; i < program->item_count; ++i) {
            for (int j = 0; j < program->items[i].output_count && program->items[i].gathers; ++j) {
                first.keep[program->refs[program->items[i].outputs + j]] = ULL_DROP;
            }
        }
        find_candidates(&s);
        status = run(&s, &first);
    }
    if (options->progress != NULL && s.schedules_left > 0) {
        atomic_fetch_add(&options->progress->done, s.schedules_left); /* it needed fewer */
    }
    ull__scheduler_destroy(s.scheduler);
    ull__decision_finish(&first);
    ull__decision_finish(&s.current);
    ull__decision_finish(&s.trial);
    free(s.candidates);
    free(s.seen);
    if (status != ULL_OK) {
        ull__frontier_finish(frontier);
        return ull__fail(err, status, "no memory to plan %d nodes", program->item_count);
    }
    return ULL_OK;
}
