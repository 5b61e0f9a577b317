/* marks.c: see marks.h. */
#include "marks.h"

#include <math.h>
#include <stdlib.h>

enum { PERIODS_LEAST = 10, ALLOCS_LEAST = 2 * ULL_WINDOWS };

struct work {
    const struct ull__facts *facts;
    const struct ull__periods *periods;
    struct ull__walk *walk;
    struct ull__marks *marks;
    uint64_t *births; /* by place of the block: its process's allocations till then */
    uint32_t birth_capacity;
};

static bool most_of(uint64_t begin_ns, uint64_t end_ns, const struct ull__marks *marks)
{
    return end_ns - begin_ns >= (marks->end_ns - marks->begin_ns) / 2;
}

/* Periods must fill most of the time: what repeats only in the first seconds says nothing of the hours after. */
static enum ull__pieces choose(const struct work *work, uint32_t p)
{
    const struct ull__period *period = &work->periods->processes[p];
    const struct ull__marks *marks = &work->marks[p];
    if (period->anchor != ULL_NO_EVENT && period->count >= PERIODS_LEAST &&
        most_of(period->first_ns, period->last_ns, marks))
        return ULL_PIECES_PERIODS;
    bool many = work->periods->allocs[p] >= ALLOCS_LEAST;
    /* Where all allocations are seen, few of them are too few however long nothing happened since. */
    if (!most_of(work->periods->first_ns[p], work->periods->last_ns[p], marks))
        return many || !work->facts->processes[p].chunks ? ULL_PIECES_TIMES : ULL_PIECES_NONE;
    return many ? ULL_PIECES_ALLOCS : ULL_PIECES_NONE;
}

static bool push(struct ull__marks *marks)
{
    if (marks->count == marks->capacity) {
        size_t wanted = marks->capacity ? marks->capacity * 2 : ULL_WINDOWS;
        double *live = realloc(marks->live, wanted * sizeof *live);
        if (live)
            marks->live = live;
        double *blocks = realloc(marks->blocks, wanted * sizeof *blocks);
        if (blocks)
            marks->blocks = blocks;
        if (!live || !blocks)
            return false;
        marks->capacity = wanted;
    }
    marks->live[marks->count] = (double)marks->low.live;
    marks->blocks[marks->count++] = (double)marks->low.blocks;
    return true;
}

/* When window `number` is over. */
static uint64_t window_end(const struct ull__marks *marks, size_t number)
{
    unsigned __int128 whole = marks->end_ns - marks->begin_ns;
    return marks->begin_ns + (uint64_t)(whole * (number + 1) / ULL_WINDOWS);
}

static void lower(struct ull__low *low, const struct ull__low *state)
{
    low->live = state->live < low->live ? state->live : low->live;
    low->held = state->held < low->held ? state->held : low->held;
    low->blocks = state->blocks < low->blocks ? state->blocks : low->blocks;
}

/* Windows that were over before `now_ns`; in those without a step all was as it is. */
static bool pass_windows(struct ull__marks *marks, uint64_t now_ns, bool to_the_end)
{
    while (marks->held_count < ULL_WINDOWS &&
           (now_ns > window_end(marks, marks->held_count) || to_the_end)) {
        marks->held[marks->held_count++] = (double)marks->held_low.held;
        marks->held_low = marks->state;
        if (marks->pieces != ULL_PIECES_TIMES)
            continue;
        if (!push(marks))
            return false;
        marks->low = marks->state;
    }
    return true;
}

/* The step begins a piece: what was before it belongs to the last one. */
static bool begins(const struct work *work, const struct ull__marks *marks)
{
    const struct ull__walk *walk = work->walk;
    if (marks->pieces == ULL_PIECES_PERIODS)
        return (walk->step == ULL_STEP_CAME || walk->event->kind == ULL_EVENT_MARK) &&
               ull__periods_begins(work->periods, walk->event);
    if (marks->pieces != ULL_PIECES_ALLOCS || walk->step != ULL_STEP_CAME ||
        !ull__block_is_live(work->facts, &walk->block))
        return false;
    uint64_t all = work->periods->allocs[walk->event->process];
    return marks->allocs * ULL_WINDOWS / all > (marks->allocs - 1) * ULL_WINDOWS / all;
}

/* Frees after the last allocation are the program's end. */
static bool note_age(struct work *work, struct ull__marks *marks)
{
    const struct ull__walk *walk = work->walk;
    if (!ull__block_is_live(work->facts, &walk->block))
        return true;
    if (walk->place >= work->birth_capacity) {
        uint32_t wanted = walk->place < 512 ? 1024 : walk->place * 2;
        uint64_t *grown = realloc(work->births, wanted * sizeof *grown);
        if (!grown)
            return false;
        work->births = grown;
        work->birth_capacity = wanted;
    }
    if (walk->step == ULL_STEP_CAME) {
        work->births[walk->place] = ++marks->allocs;
    } else if (walk->step == ULL_STEP_FREED && walk->block.event != ULL_NO_EVENT &&
               marks->allocs < work->periods->allocs[walk->block.process]) {
        uint64_t age = marks->allocs - work->births[walk->place] + 1;
        marks->ages[63 - __builtin_clzll(age)] += (double)walk->block.size;
    }
    return true;
}

static bool take_step(struct work *work)
{
    const struct ull__walk *walk = work->walk;
    uint32_t p = walk->event->process;
    struct ull__marks *marks = &work->marks[p];
    const struct ull__totals *now = &walk->processes[p];
    const struct ull__process_facts *facts = &work->facts->processes[p];
    if (!facts->driver && !facts->chunks)
        return true;
    bool block = walk->step == ULL_STEP_CAME || walk->step == ULL_STEP_FREED;
    if (walk->step == ULL_STEP_LEFT || walk->step == ULL_STEP_ENDED)
        return true; /* its end is no low */
    if (block && !note_age(work, marks))
        return false;
    if (marks->any && !pass_windows(marks, walk->event->time_ns, false))
        return false;
    marks->state = (struct ull__low){now->live, now->held, now->blocks};
    marks->peak = now->held > marks->peak ? now->held : marks->peak;
    if (!marks->any)
        marks->low = marks->held_low = marks->state;
    marks->any = true;
    if (begins(work, marks)) {
        if (!push(marks))
            return false;
        marks->low = marks->state;
    }
    lower(&marks->low, &marks->state);
    lower(&marks->held_low, &marks->state);
    return true;
}

/* By the median age of the bytes that were freed. */
static void find_turnovers(struct ull__marks *marks)
{
    double all = 0, sum = 0;
    for (int i = 0; i < 64; i++)
        all += marks->ages[i];
    marks->freed = all;
    for (int i = 0; all > 0 && i < 64; i++) {
        double before = sum;
        sum += marks->ages[i];
        if (sum * 2 < all)
            continue;
        /* Within a bucket evenly by order of magnitude. */
        double age = ldexp(exp2((all / 2 - before) / marks->ages[i]), i);
        marks->turnovers = (double)marks->allocs / age;
        return;
    }
}

static void find_times(struct work *work, uint32_t p)
{
    const struct ull__history *history = work->facts->history;
    const struct ull__history_process *process = &history->processes[p];
    const struct ull__process_facts *facts = &work->facts->processes[p];
    struct ull__marks *marks = &work->marks[p];
    marks->begin_ns = facts->first_ns;
    marks->end_ns =
        process->ended && process->end_ns > facts->last_ns ? process->end_ns : history->end_ns;
    if (marks->end_ns < facts->last_ns)
        marks->end_ns = facts->last_ns;
    marks->pieces = choose(work, p);
}

struct ull__marks *ull__marks_collect(const struct ull__facts *facts,
                                      const struct ull__periods *periods)
{
    uint32_t processes = facts->history->process_count;
    struct work work = {.facts = facts, .periods = periods, .walk = ull__walk_create(facts)};
    work.marks = calloc(processes + 1, sizeof *work.marks);
    bool good = work.walk && work.marks;
    for (uint32_t p = 0; good && p < processes; p++)
        find_times(&work, p);
    while (good && ull__walk_next(work.walk))
        good = take_step(&work);
    good = good && !ull__walk_failed(work.walk);
    for (uint32_t p = 0; good && p < processes; p++) {
        struct ull__marks *marks = &work.marks[p];
        if (marks->any)
            good = pass_windows(marks, marks->end_ns, true);
        find_turnovers(marks);
    }
    free(work.births);
    ull__walk_destroy(work.walk);
    if (!good) {
        ull__marks_destroy(work.marks, processes);
        return NULL;
    }
    return work.marks;
}

void ull__marks_destroy(struct ull__marks *marks, uint32_t process_count)
{
    for (uint32_t p = 0; marks && p < process_count; p++) {
        free(marks[p].live);
        free(marks[p].blocks);
    }
    free(marks);
}
