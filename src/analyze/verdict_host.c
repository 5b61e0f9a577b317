/*
 * verdict_host.c: the verdict on host memory. Resident memory is sampled about once a second, in whole pages, and
 * moves for reasons of its own, so only the trend of its lowest values counts. Samples at shorter distances would not give
 * a verdict sooner: while a program loads its libraries and data, for seconds, it grows as one that leaks does.
 */
#include <math.h>
#include <stdlib.h>

#include "error.h"
#include "trend.h"
#include "verdict_private.h"

enum { SAMPLES_LEAST = 20 };

/* All samples, those of a process together. */
struct samples {
    size_t *begin; /* by process, and one more */
    double *values;
    double *seconds;
};

static bool collect(const struct ull__history *history, struct samples *samples)
{
    size_t processes = history->process_count, total = 0;
    samples->begin = calloc(processes + 2, sizeof *samples->begin);
    if (!samples->begin)
        return false;
    /* Counted two places on, so that filling moves each beginning to its place. */
    for (size_t i = 0; i < history->event_count; i++) {
        if (history->events[i].kind == ULL_EVENT_HOST) {
            total++;
            if ((size_t)history->events[i].process + 2 <= processes + 1)
                samples->begin[history->events[i].process + 2]++;
        }
    }
    for (size_t p = 2; p <= processes + 1; p++)
        samples->begin[p] += samples->begin[p - 1];
    samples->values = malloc((total + 1) * sizeof *samples->values);
    samples->seconds = malloc((total + 1) * sizeof *samples->seconds);
    if (!samples->values || !samples->seconds)
        return false;
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        if (event->kind != ULL_EVENT_HOST)
            continue;
        size_t at = samples->begin[event->process + 1]++;
        samples->values[at] = (double)event->size;
        samples->seconds[at] = (double)event->time_ns / 1e9;
    }
    return true;
}

static void judge_grown(struct ull__verdict *verdict, const struct ull__trend *trend, double seconds)
{
    char from[ULL_SIZE_TEXT], to[ULL_SIZE_TEXT], slope[ULL_SIZE_TEXT];
    verdict->kind = ULL_VERDICT_LEAK;
    verdict->bytes_per_second = seconds > 0 ? trend->rise / seconds : (double)NAN;
    ull__verdict_say(
        verdict,
        "the lowest resident memory rose from %s to %s, %s a second, and still grows: in "
        "the last 40 %% at %.2f times the mean rate (%zu samples, probability of such a "
        "rise by chance %.1g)",
        ull__verdict_size(trend->level, from), ull__verdict_size(trend->level + trend->rise, to),
        ull__verdict_size(verdict->bytes_per_second, slope), trend->late, trend->count, trend->p);
}

static bool judge_process(const double *values, const double *seconds, size_t count,
                          struct ull__verdict *verdict)
{
    struct ull__trend trend;
    char level[ULL_SIZE_TEXT], rise[ULL_SIZE_TEXT];
    if (count < SAMPLES_LEAST) {
        ull__verdict_say(
            verdict, "too short to tell: %zu sample%s of host memory, one a second; %d are needed",
            count, count == 1 ? "" : "s", SAMPLES_LEAST);
        return true;
    }
    if (!ull__trend_judge(values, count, &trend))
        return false;
    verdict->confidence = trend.confidence;
    switch (trend.kind) {
    case ULL_TREND_RISING:
        judge_grown(verdict, &trend, seconds[trend.first + trend.count - 1] - seconds[trend.first]);
        break;
    case ULL_TREND_LEVELLED:
        verdict->kind = ULL_VERDICT_CACHE;
        ull__verdict_say(verdict, "resident memory grew by %s to %s after the start and levelled off",
                         ull__verdict_size(trend.rise, rise),
                         ull__verdict_size(trend.level + trend.rise, level));
        break;
    case ULL_TREND_FLAT:
        verdict->kind = ULL_VERDICT_STEADY;
        ull__verdict_say(verdict, "resident memory does not rise: %s after the start, %zu samples",
                         ull__verdict_size(trend.level, level), trend.count);
        break;
    default:
        ull__verdict_say(verdict, "resident memory went up and down %zu time%s: too few to tell",
                         trend.cycles, trend.cycles == 1 ? "" : "s");
    }
    return true;
}

static bool judge_all(const struct ull__history *history, const struct samples *samples,
                      struct ull__verdict *verdict)
{
    bool any = false;
    for (uint32_t p = 0; p < history->process_count; p++) {
        size_t begin = p ? samples->begin[p] : 0, end = samples->begin[p + 1];
        struct ull__verdict one;
        if (begin == end)
            continue;
        ull__verdict_begin(&one);
        one.process = p;
        if (!judge_process(samples->values + begin, samples->seconds + begin, end - begin, &one))
            return false;
        /* One that lived for a moment, as a compiler that was started, spoils no verdict. */
        bool brief = one.kind == ULL_VERDICT_UNKNOWN && end - begin < SAMPLES_LEAST;
        if (brief && any)
            continue;
        bool was_brief = any && verdict->kind == ULL_VERDICT_UNKNOWN &&
                         samples->begin[verdict->process + 1] -
                                 (verdict->process ? samples->begin[verdict->process] : 0) <
                             SAMPLES_LEAST;
        ull__verdict_worst(verdict, &one, !any || was_brief);
        any = true;
    }
    if (!any)
        ull__verdict_say(verdict, "the record has no samples of host memory");
    return true;
}

ull_status ull__verdict_host(const struct ull__facts *facts, struct ull__verdict *verdict,
                             struct ull_error *err)
{
    const struct ull__history *history = facts->history;
    struct samples samples = {0};
    struct ull__verdict found;
    ull__verdict_begin(&found);
    bool good = collect(history, &samples) && judge_all(history, &samples, &found);
    free(samples.begin);
    free(samples.values);
    free(samples.seconds);
    if (!good)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to judge %zu events", history->event_count);
    if (history->process_count > 1 && found.process != UINT32_MAX)
        ull__verdict_say(&found, "of process %u, %.100s", history->processes[found.process].pid,
                         ull__history_string(history, history->processes[found.process].name));
    *verdict = found;
    return ULL_OK;
}
