/*
 * perfetto_counters.c: what is held by class and what is live over time, of each device and of the PROCESSES processes
 * that held most, for perfetto.c. A counter has at most POINTS points, in which no peak is lost.
 */
#include <stdlib.h>

#include "json_keys.h"
#include "perfetto.h"

enum { POINTS = 12000, ALL_POINTS = 120000, PROCESSES = 200 };

/* Of one device (process -1) or one process (device -1), with the last point of each piece of time that is worth one. */
struct counter {
    int device, process;
    uint64_t by_class[ULL_CLASSES], live;
    uint64_t held;
    bool ever[ULL_CLASSES]; /* classes that it ever has anything of */
};

static bool counts(const struct counter *counter, uint32_t process, uint32_t device)
{
    return (counter->device < 0 || (uint32_t)counter->device == device) &&
           (counter->process < 0 || (uint32_t)counter->process == process);
}

/* Viewers draw a line for each class that is named. */
static void find_classes(const struct ull__spans *spans, struct counter *counter)
{
    for (size_t i = 0; i < spans->span_count; i++) {
        const struct ull__span_kind *kind = &spans->kinds[spans->spans[i].kind];
        if (spans->spans[i].held > 0 && counts(counter, kind->process, kind->device))
            counter->ever[kind->class] = true;
    }
    for (size_t i = 0; i < spans->adjust_count; i++) {
        const struct ull__adjust *adjust = &spans->adjusts[i];
        if (adjust->held != 0 && counts(counter, adjust->process, adjust->device))
            counter->ever[adjust->class] = true;
    }
}

/* False if the change is not of this counter. */
static bool apply(const struct ull__spans *spans, const struct ull__change *change,
                  struct counter *counter)
{
    if (change->what == ULL_CHANGE_ADJUSTED) {
        const struct ull__adjust *adjust = &spans->adjusts[change->number];
        if (!counts(counter, adjust->process, adjust->device))
            return false;
        counter->by_class[adjust->class] += (uint64_t)adjust->held;
        counter->held += (uint64_t)adjust->held;
        counter->live += (uint64_t)adjust->live;
        return true;
    }
    const struct ull__span *span = &spans->spans[change->number];
    const struct ull__span_kind *kind = &spans->kinds[span->kind];
    uint64_t sign = change->what == ULL_CHANGE_CAME ? 1 : UINT64_MAX;
    if (!counts(counter, kind->process, kind->device))
        return false;
    counter->by_class[kind->class] += sign * span->held;
    counter->held += sign * span->held;
    counter->live += kind->live ? sign * span->size : 0;
    return true;
}

static void put_counter(struct perfetto *work, const struct counter *counter, uint64_t ns,
                        uint32_t pid)
{
    perfetto_begin(work, "C", "held", pid, ns);
    perfetto_args(work);
    for (int c = 0; c < ULL_CLASSES; c++)
        if (counter->ever[c])
            key_u64(&work->json, ull__class_name((enum ull__class)c), counter->by_class[c]);
    perfetto_end(work);
    perfetto_begin(work, "C", "live", pid, ns);
    perfetto_args(work);
    key_u64(&work->json, "bytes", counter->live);
    perfetto_end(work);
}

/* What is kept of a piece of time: the highest and lowest of held and of live, and the last. */
enum { KEEPS = 5 };

struct piece {
    struct counter counters[KEEPS];
    uint64_t at[KEEPS];
    bool any;
};

static void keep(struct piece *piece, const struct counter *now, uint64_t moment)
{
    const bool wins[KEEPS] = {!piece->any || now->held > piece->counters[0].held,
                              !piece->any || now->held < piece->counters[1].held,
                              !piece->any || now->live > piece->counters[2].live,
                              !piece->any || now->live < piece->counters[3].live, true};
    for (int i = 0; i < KEEPS; i++) {
        if (wins[i]) {
            piece->counters[i] = *now;
            piece->at[i] = moment;
        }
    }
    piece->any = true;
}

/* In order of time, each once. */
static void put_piece(struct perfetto *work, struct piece *piece, uint32_t pid)
{
    uint64_t done = 0;
    for (bool first = true; piece->any; first = false) {
        int next = -1;
        for (int i = 0; i < KEEPS; i++) {
            if ((first || piece->at[i] > done) && (next < 0 || piece->at[i] < piece->at[next]))
                next = i;
        }
        if (next < 0)
            break;
        done = piece->at[next];
        put_counter(work, &piece->counters[next], done, pid);
    }
    piece->any = false;
}

static void put_course(struct perfetto *work, int device, int process, uint32_t pid, size_t points)
{
    const struct ull__spans *spans = work->spans;
    struct counter counter = {.device = device, .process = process};
    struct piece piece = {.any = false};
    find_classes(spans, &counter);
    uint64_t length = spans->end / (points / KEEPS) + 1, until = length;
    for (size_t i = 0; i < spans->change_count; i++) {
        const struct ull__change *change = &spans->changes[i];
        if (!apply(spans, change, &counter))
            continue;
        if (change->moment >= until) {
            put_piece(work, &piece, pid);
            until = change->moment / length * length + length;
        }
        keep(&piece, &counter, change->moment);
    }
    put_piece(work, &piece, pid);
}

int perfetto_by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The peak that a process must reach to be shown. False without memory. */
static bool find_least_peak(const struct ull__figures *figures, uint64_t *least)
{
    uint64_t *peaks = malloc(((size_t)figures->process_count + 1) * sizeof *peaks);
    if (!peaks)
        return false;
    for (uint32_t p = 0; p < figures->process_count; p++)
        peaks[p] = figures->processes[p].course.peak_bytes;
    qsort(peaks, figures->process_count, sizeof *peaks, perfetto_by_size);
    *least = figures->process_count > PROCESSES ? peaks[PROCESSES - 1] : 1;
    *least = *least > 0 ? *least : 1;
    free(peaks);
    return true;
}

void perfetto_counters(struct perfetto *work)
{
    const struct ull__figures *figures = work->input->figures;
    uint64_t least;
    uint32_t shown = 0;
    if (!find_least_peak(figures, &least)) {
        work->failed = true;
        return;
    }
    for (uint32_t p = 0; p < figures->process_count; p++)
        shown += figures->processes[p].course.peak_bytes >= least;
    shown = shown < PROCESSES ? shown : PROCESSES;
    size_t points = ALL_POINTS / (figures->device_count + shown + 1);
    points = points > POINTS ? POINTS : points < KEEPS * 4 ? KEEPS * 4 : points;
    for (uint32_t d = 0; d < figures->device_count; d++)
        put_course(work, (int)d, -1, d + 1, points);
    for (uint32_t p = 0; p < figures->process_count && shown > 0; p++) {
        if (figures->processes[p].course.peak_bytes >= least) {
            put_course(work, -1, (int)p, work->pids[p], points);
            shown--;
        }
    }
}
