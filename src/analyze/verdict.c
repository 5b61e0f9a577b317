/*
 * verdict.c: see verdict.h. Marks (marks.c) of each process are judged for a trend (trend.c); here that becomes a
 * verdict in words.
 */
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "error.h"
#include "kept.h"
#include "marks.h"
#include "size.h"
#include "suspects.h"
#include "trend.h"
#include "verdict_private.h"

enum {
    SUSPECTS = 3,
    TURNOVERS_LEAST = 8,
    ROUNDS_LEAST = 200 /* more than one pass through a network usually has of the same kind */
};

/* A process is hidden from a record of the driver alone if it has an allocator of its own: the driver's calls
 * stop after the start. */
struct subject {
    const struct ull__facts *facts;
    const struct ull__periods *periods;
    const struct ull__marks *marks; /* of this process */
    uint32_t process;
    const struct ull__kept *kept; /* of this process */
    struct ull__trend trend, held;
};

static const char *piece_name(const struct subject *subject)
{
    switch (subject->marks->pieces) {
    case ULL_PIECES_PERIODS:
        return "periods";
    case ULL_PIECES_ALLOCS:
        return "pieces of equal numbers of allocations";
    default:
        return "pieces of equal time";
    }
}

static double seconds_judged(const struct subject *subject)
{
    return (double)(subject->marks->end_ns - subject->marks->begin_ns) / 1e9;
}

/* --- evidence ------------------------------------------------------------------------------------------------- */

static void say_leak(struct ull__verdict *verdict, const struct subject *subject)
{
    const struct ull__trend *trend = &subject->trend;
    char from[ULL_SIZE_TEXT], to[ULL_SIZE_TEXT], slope[ULL_SIZE_TEXT];
    double whole = (double)subject->marks->count;
    double mean = trend->rise / (double)(trend->count > 1 ? trend->count - 1 : 1);
    bool periods = subject->marks->pieces == ULL_PIECES_PERIODS;
    verdict->bytes_per_second = mean * whole / seconds_judged(subject);
    if (periods)
        verdict->bytes_per_period = mean;
    ull__verdict_say(
        verdict, "the lowest that live bytes fall to rose from %s to %s and never came back, %s%s",
        ull__verdict_size(trend->level, from), ull__verdict_size(trend->level + trend->rise, to),
        ull__verdict_size(periods ? mean : verdict->bytes_per_second, slope),
        periods ? " a period" : " a second");
    ull__verdict_say(
        verdict,
        "it still grows at the end: in the last 40 %% of the record at %.2f times the mean rate "
        "(%zu %s, probability of such a rise by chance %.1g)",
        trend->late, trend->count, piece_name(subject), trend->p);
}

static bool say_suspects(const struct ull__facts *facts, const struct ull__marks *marks,
                         struct ull__verdict *verdict)
{
    struct ull__holder suspects[SUSPECTS];
    uint64_t whole = marks->end_ns - marks->begin_ns;
    /* Without what came last and had no time to be freed. */
    int count = ull__suspects_find(facts, verdict->process, marks->begin_ns + whole / 10,
                                   marks->end_ns - whole / 20, suspects, SUSPECTS);
    for (int i = 0; i < count; i++) {
        char text[ULL_EVIDENCE_TEXT - 24];
        ull__holder_describe(facts->history, &suspects[i], text, sizeof text);
        ull__verdict_say(verdict, "kept since: %s", text);
    }
    return count >= 0;
}

static void say_levelled(struct ull__verdict *verdict, const struct ull__trend *trend,
                         const char *what)
{
    char rise[ULL_SIZE_TEXT], level[ULL_SIZE_TEXT];
    ull__verdict_say(
        verdict,
        "%s grew by %s to %s after the start, but not for ever: noticeably the last time after "
        "%.0f %% of the record, and in its last 40 %% at %.2f times the mean rate",
        what, ull__verdict_size(trend->rise, rise),
        ull__verdict_size(trend->level + trend->rise, level), trend->last_step * 100, trend->late);
}

static void say_flat(struct ull__verdict *verdict, const struct subject *subject)
{
    char level[ULL_SIZE_TEXT];
    ull__verdict_say(verdict, "the lowest that live bytes fall to is %s, without a rise over %zu %s",
                     ull__verdict_size(subject->trend.level, level), subject->trend.count,
                     piece_name(subject));
}

static void say_better_record(struct ull__verdict *verdict)
{
    ull__verdict_say(
        verdict,
        "this record has the driver's calls only, and there are hardly any after the start: an "
        "allocator inside the program may hide what it gives out");
    ull__verdict_say(
        verdict, "for a verdict run it over ullage's pool, or give `ullage report` a snapshot of "
                 "PyTorch's (torch.cuda.memory._record_memory_history, _dump_snapshot)");
}

/* A record of one step shows what a step allocates, not what it leaves. */
static bool few_turnovers(const struct subject *subject)
{
    double turnovers = subject->marks->turnovers;
    bool chunks = subject->facts->processes[subject->process].chunks;
    return turnovers < TURNOVERS_LEAST && (turnovers > 0 || chunks);
}

static void say_short(struct ull__verdict *verdict, const struct subject *subject)
{
    const struct ull__trend *trend = &subject->trend;
    const struct ull__period *period = &subject->periods->processes[subject->process];
    unsigned long long allocs = subject->periods->allocs[subject->process];
    if (few_turnovers(subject))
        ull__verdict_say(
            verdict, "too short to tell: the usual byte was allocated anew %.1f times in %llu allocations, %d are needed",
            subject->marks->turnovers, allocs, TURNOVERS_LEAST);
    else if (trend->cycles > 0)
        ull__verdict_say(verdict,
                         "too short to tell: live bytes went up and down %zu time%s, %d are needed",
                         trend->cycles, trend->cycles == 1 ? "" : "s", ULL_TREND_CYCLES);
    else if (period->anchor != ULL_NO_EVENT && period->count < ULL_TREND_LEAST)
        ull__verdict_say(verdict,
                         "too short to tell: %llu periods in %llu allocations, %d are needed",
                         (unsigned long long)period->count, allocs, ULL_TREND_LEAST + 1);
    else
        ull__verdict_say(verdict, "too short to tell: %llu allocations, and nothing that repeats",
                         allocs);
}

static void say_unsure(struct ull__verdict *verdict, const struct subject *subject)
{
    char rise[ULL_SIZE_TEXT];
    ull__verdict_say(
        verdict,
        "live bytes grew by %s in about %.0f steps: too few to tell whether there will be more",
        ull__verdict_size(subject->trend.rise, rise), subject->trend.steps);
}

static void say_one_pass(struct ull__verdict *verdict, const struct subject *subject)
{
    const struct ull__trend *trend = &subject->trend;
    char rise[ULL_SIZE_TEXT];
    ull__verdict_say(
        verdict,
        "too short to tell: live bytes rose by %s to the end, and %.0f %% of all that was "
        "allocated stayed, as in one pass through a deep network",
        ull__verdict_size(trend->rise, rise),
        100 * trend->rise / (trend->rise + subject->marks->freed));
    ull__verdict_say(verdict, "a record of more steps tells a leak from that");
}

/* --- one process ------------------------------------------------------------------------------------------------ */

/* Growth that frees which were lost could explain: each makes one block that seems to live for ever. */
static bool dropped_explain(const struct subject *subject)
{
    const struct ull__marks *marks = subject->marks;
    uint64_t dropped = subject->facts->history->dropped;
    if (dropped == 0 || marks->count == 0)
        return false;
    double low = marks->blocks[marks->count - 1], first = low;
    for (size_t i = marks->count; i-- > 0;) {
        low = marks->blocks[i] < low ? marks->blocks[i] : low;
        if (i == subject->trend.first)
            first = low;
    }
    return marks->blocks[marks->count - 1] - first <= (double)dropped;
}

static void judge_held(struct ull__verdict *verdict, const struct subject *subject)
{
    const struct ull__trend *held = &subject->held;
    if (held->kind != ULL_TREND_RISING && held->kind != ULL_TREND_LEVELLED)
        return;
    if (verdict->kind != ULL_VERDICT_STEADY || held->rise < 0.02 * (held->level + held->rise))
        return;
    verdict->kind = ULL_VERDICT_CACHE;
    verdict->confidence =
        held->confidence < verdict->confidence ? held->confidence : verdict->confidence;
    char rise[ULL_SIZE_TEXT];
    ull__verdict_say(
        verdict, "what is held grew by %s all the same: kept by the allocator, not by the program",
        ull__verdict_size(held->rise, rise));
}

static void judge_grown(struct ull__verdict *verdict, const struct subject *subject, bool hidden)
{
    verdict->kind = ULL_VERDICT_LEAK;
    verdict->confidence = subject->trend.confidence;
    say_leak(verdict, subject);
    if (hidden) {
        verdict->confidence *= 0.8;
        ull__verdict_say(
            verdict, "this is told from the driver's calls alone: an allocator's segments grow");
    }
}

/*
 * One pass through a deep network, too, makes the same in each layer and keeps it, until it is through or out of
 * memory. Only if most of what comes goes again, or in more rounds than a network has layers, is that a leak.
 */
static bool may_be_one_pass(const struct subject *subject, double kept)
{
    const struct ull__marks *marks = subject->marks;
    bool many = marks->pieces == ULL_PIECES_PERIODS && marks->count > ROUNDS_LEAST;
    bool segments = marks->freed <= 0 && !subject->facts->processes[subject->process].chunks;
    return !many && !segments && kept > 0.3 * (kept + marks->freed);
}

/* Sums do not show it, but of one kind all stay. */
static void judge_kept(struct ull__verdict *verdict, const struct subject *subject)
{
    const struct ull__history *history = subject->facts->history;
    const struct ull__kept *kept = subject->kept;
    struct ull__holder holder = {.bytes = kept->bytes,
                                 .count = kept->count,
                                 .tag = history->events[kept->event].tag,
                                 .stack = history->events[kept->event].stack,
                                 .largest = history->events[kept->event].size};
    char text[ULL_EVIDENCE_TEXT - 100];
    double n = (double)kept->count, seconds = seconds_judged(subject);
    verdict->kind = ULL_VERDICT_LEAK;
    verdict->confidence = n / (n + 4);
    verdict->bytes_per_second = seconds > 0 ? (double)kept->bytes / (0.9 * seconds) : (double)NAN;
    if (subject->marks->pieces == ULL_PIECES_PERIODS)
        verdict->bytes_per_period = (double)kept->bytes / (0.9 * (double)subject->marks->count);
    ull__holder_describe(history, &holder, text, sizeof text);
    ull__verdict_say(
        verdict, "of one kind all that came since the start stay to the end, not one was freed: %s",
        text);
    ull__verdict_say(verdict,
                     "what comes and goes beside them is so much more that the sum of live "
                     "bytes hardly shows it");
}

static void judge_process(struct ull__verdict *verdict, const struct subject *subject)
{
    const struct ull__trend *trend = &subject->trend;
    const struct ull__period *period = &subject->periods->processes[subject->process];
    bool hidden = !subject->facts->processes[subject->process].chunks &&
                  subject->marks->pieces == ULL_PIECES_TIMES;
    ull__verdict_begin(verdict);
    verdict->process = subject->process;
    if (subject->marks->pieces == ULL_PIECES_PERIODS) {
        verdict->periods = period->count;
        verdict->period_seconds = period->seconds;
    }
    if (trend->kind != ULL_TREND_FLAT && trend->kind != ULL_TREND_SHORT && dropped_explain(subject)) {
        ull__verdict_say(
            verdict,
            "live bytes seem to grow, but %llu events were dropped, and frees among them "
            "would look the same",
            (unsigned long long)subject->facts->history->dropped);
        return;
    }
    if (!hidden && few_turnovers(subject)) {
        say_short(verdict, subject);
        return;
    }
    if (trend->kind == ULL_TREND_RISING && may_be_one_pass(subject, trend->rise)) {
        say_one_pass(verdict, subject);
        return;
    }
    if (trend->kind == ULL_TREND_RISING) {
        judge_grown(verdict, subject, hidden);
        return;
    }
    if (hidden) {
        say_better_record(verdict);
        return;
    }
    if (subject->kept->count > subject->facts->history->dropped &&
        !may_be_one_pass(subject, (double)subject->kept->bytes)) {
        judge_kept(verdict, subject);
        return;
    }
    verdict->confidence = trend->confidence;
    switch (trend->kind) {
    case ULL_TREND_SHORT:
        say_short(verdict, subject);
        break;
    case ULL_TREND_UNSURE:
        say_unsure(verdict, subject);
        break;
    case ULL_TREND_LEVELLED:
        verdict->kind = ULL_VERDICT_CACHE;
        say_levelled(verdict, trend, "what is live");
        break;
    default:
        verdict->kind = ULL_VERDICT_STEADY;
        say_flat(verdict, subject);
        judge_held(verdict, subject);
    }
}

/* --- all of them ------------------------------------------------------------------------------------------------ */

/* Processes that never held much beside the others, as a shell that made a context, cannot spoil a verdict. */
static bool counts(const struct ull__marks *marks, uint64_t most)
{
    return marks->peak >= most / 20;
}

static uint64_t most_held(const struct ull__marks *marks, uint32_t processes)
{
    uint64_t most = 0;
    for (uint32_t p = 0; p < processes; p++)
        most = marks[p].peak > most ? marks[p].peak : most;
    return most;
}

static bool judge_all(const struct ull__facts *facts, const struct ull__periods *periods,
                      const struct ull__marks *marks, const struct ull__kept *kept,
                      struct ull__verdict *verdict)
{
    uint32_t processes = facts->history->process_count;
    uint64_t most = most_held(marks, processes);
    bool any = false;
    for (uint32_t p = 0; p < processes; p++) {
        struct subject subject = {facts, periods, &marks[p], p, &kept[p], {0}, {0}};
        struct ull__verdict one;
        if (!marks[p].any)
            continue;
        if (!ull__trend_judge(marks[p].live, marks[p].count, &subject.trend) ||
            !ull__trend_judge(marks[p].held, marks[p].held_count, &subject.held))
            return false;
        judge_process(&one, &subject);
        if (one.kind != ULL_VERDICT_LEAK && !counts(&marks[p], most))
            continue;
        ull__verdict_worst(verdict, &one, !any);
        any = true;
    }
    if (!any)
        ull__verdict_say(verdict, "no process held device memory");
    if (verdict->kind != ULL_VERDICT_LEAK)
        return true;
    /* What it is made of; found only once, since it takes another walk. */
    const struct ull__marks *worst = &marks[verdict->process];
    struct ull__trend trend;
    if (!ull__trend_judge(worst->live, worst->count, &trend))
        return false;
    return trend.kind != ULL_TREND_RISING || say_suspects(facts, worst, verdict);
}

static void say_whose(const struct ull__facts *facts, struct ull__verdict *verdict)
{
    if (facts->history->process_count > 1 && verdict->process != UINT32_MAX) {
        const struct ull__history_process *process = &facts->history->processes[verdict->process];
        ull__verdict_say(verdict, "of process %u, %.100s", process->pid,
                         ull__history_string(facts->history, process->name));
    }
    if (facts->history->dropped > 0 && verdict->kind != ULL_VERDICT_UNKNOWN)
        verdict->confidence *= 0.9;
}

ull_status ull__verdict_device(const struct ull__facts *facts, struct ull__verdict *verdict,
                               struct ull_error *err)
{
    struct ull__periods *periods = ull__periods_find(facts);
    struct ull__marks *marks = periods ? ull__marks_collect(facts, periods) : NULL;
    struct ull__kept *kept = marks ? ull__kept_find(facts, periods->allocs) : NULL;
    struct ull__verdict found;
    ull__verdict_begin(&found);
    bool good = kept && judge_all(facts, periods, marks, kept, &found);
    free(kept);
    ull__marks_destroy(marks, facts->history->process_count);
    ull__periods_destroy(periods);
    if (!good)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to look for a leak in %zu events",
                         facts->history->event_count);
    say_whose(facts, &found);
    *verdict = found;
    return ULL_OK;
}
