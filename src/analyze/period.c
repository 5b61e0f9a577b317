/* period.c: see period.h. */
#include "period.h"

#include <math.h>
#include <stdlib.h>

#include "kinds.h"

/* More kinds than this are not told apart: a program whose sizes are all different has no period by kinds. */
enum { KINDS_MOST = 1 << 18, LEAST = 3 };

struct kind {
    size_t event; /* the first of it */
    uint64_t last_at, last_ns;
    uint64_t count;
    double squares; /* of the distances */
    uint64_t first_at;
};

/* The entry of an event's kind; NULL when there are too many. False without memory. */
static bool find_kind(struct ull__kinds *kinds, struct kind **items, size_t event, uint64_t at,
                      struct kind **found)
{
    uint32_t number, before = kinds->count;
    *found = NULL;
    if (!ull__kinds_of(kinds, event, &number))
        return false;
    if (number == ULL_NO_KIND)
        return true;
    if (number == before && (before == 0 || (before & (before - 1)) == 0)) {
        /* Room for twice as many. */
        struct kind *grown = realloc(*items, (before ? before * 2 : 1) * sizeof *grown);
        if (!grown)
            return false;
        *items = grown;
    }
    *found = &(*items)[number];
    if (number == before)
        **found = (struct kind){.event = event, .first_at = at, .last_at = at};
    return true;
}

static bool count_kinds(const struct ull__facts *facts, struct ull__periods *periods,
                        struct ull__kinds *kinds, struct kind **items)
{
    const struct ull__history *history = facts->history;
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        bool mark = event->kind == ULL_EVENT_MARK;
        enum ull__layer live =
            facts->processes[event->process].chunks ? ULL_LAYER_CHUNK : ULL_LAYER_DRIVER;
        struct kind *kind;
        if (!mark && (!ull__is_alloc(event) || event->result != 0 || ull__event_layer(event) != live))
            continue;
        if (!mark && periods->allocs[event->process]++ == 0)
            periods->first_ns[event->process] = event->time_ns;
        if (!mark)
            periods->last_ns[event->process] = event->time_ns;
        uint64_t at = periods->allocs[event->process];
        if (!find_kind(kinds, items, i, at, &kind))
            return false;
        if (!kind)
            continue;
        double distance = (double)(at - kind->last_at);
        kind->squares += distance * distance;
        kind->last_at = at;
        kind->last_ns = event->time_ns;
        kind->count++;
    }
    return true;
}

/* --- choice --------------------------------------------------------------------------------------------------- */

/* qsort has no room for it. */
static _Thread_local const struct ull__event *sort_events;

static int by_process_and_count(const void *left, const void *right)
{
    const struct kind *a = left, *b = right;
    uint16_t p = sort_events[a->event].process, q = sort_events[b->event].process;
    if (p != q)
        return p < q ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return a->event < b->event ? -1 : a->event > b->event;
}

static double spread_of(const struct kind *kind)
{
    double n = (double)kind->count - 1;
    double mean = (double)(kind->last_at - kind->first_at) / n;
    double variance = kind->squares / n - mean * mean;
    return mean > 0 ? sqrt(variance > 0 ? variance : 0) / mean : (double)INFINITY;
}

/* It comes from early on to the end. */
static bool spans(const struct kind *kind, uint64_t allocs)
{
    return kind->count >= LEAST && kind->first_at <= allocs / 10 * 4 + 4 &&
           kind->last_at + allocs / 10 + 4 >= allocs;
}

static void choose(struct ull__period *period, const struct ull__event *events,
                   const struct kind *kind)
{
    period->anchor = kind->event;
    period->count = kind->count;
    period->first_ns = events[kind->event].time_ns;
    period->last_ns = kind->last_ns;
    period->seconds = (double)(kind->last_ns - period->first_ns) / 1e9 / (double)(kind->count - 1);
    period->spread = spread_of(kind);
}

static bool is_mark(const struct ull__event *events, const struct kind *kind)
{
    return events[kind->event].kind == ULL_EVENT_MARK;
}

/* Of the kinds that `takes` lets through, those of about one count that explain most allocations; the most regular
 * of them. NULL: none. Kinds are in order of their counts. */
typedef bool takes_fn(const struct kind *kind);

static const struct kind *find_best(const struct kind *kinds, size_t count,
                                    const struct ull__event *events, uint64_t allocs, takes_fn *takes)
{
    uint64_t best_sum = 0, sum = 0;
    size_t begin = 0, best_begin = 0, best_end = 0;
    const struct kind *best = NULL;
    for (size_t i = 0; i < count; i++) {
        if (is_mark(events, &kinds[i]) || !spans(&kinds[i], allocs) || !takes(&kinds[i]))
            continue;
        /* Equally often: one more or less for the ends, or one in fifty. */
        for (; kinds[begin].count + 1 + kinds[i].count / 50 < kinds[i].count; begin++) {
            if (!is_mark(events, &kinds[begin]) && spans(&kinds[begin], allocs) &&
                takes(&kinds[begin]))
                sum -= kinds[begin].count;
        }
        sum += kinds[i].count;
        if (sum > best_sum) {
            best_sum = sum;
            best_begin = begin;
            best_end = i + 1;
        }
    }
    for (size_t i = best_begin; i < best_end; i++) {
        if (!is_mark(events, &kinds[i]) && spans(&kinds[i], allocs) && takes(&kinds[i]) &&
            (!best || spread_of(&kinds[i]) < spread_of(best)))
            best = &kinds[i];
    }
    return best;
}

/* A layer of a network is a loop too, but its rounds are at uneven distances: the next step is further away. */
static bool is_regular(const struct kind *kind)
{
    return kind->count >= 10 && spread_of(kind) < 0.2;
}

static bool is_any(const struct kind *kind)
{
    (void)kind;
    return true;
}

/* Kinds of one process, by count. */
static void choose_anchor(const struct kind *kinds, size_t count, const struct ull__event *events,
                          uint64_t allocs, struct ull__period *period)
{
    const struct kind *best = NULL;
    for (size_t i = 0; i < count; i++) {
        if (is_mark(events, &kinds[i]) && kinds[i].count >= 10 && spans(&kinds[i], allocs) &&
            (!best || kinds[i].count > best->count))
            best = &kinds[i];
    }
    if (!best)
        best = find_best(kinds, count, events, allocs, is_regular);
    if (!best)
        best = find_best(kinds, count, events, allocs, is_any);
    if (best)
        choose(period, events, best);
}

static void choose_anchors(struct ull__periods *periods, struct kind *kinds, size_t count)
{
    const struct ull__event *events = periods->history->events;
    sort_events = events;
    if (count > 0)
        qsort(kinds, count, sizeof *kinds, by_process_and_count);
    for (size_t begin = 0; begin < count;) {
        uint16_t process = events[kinds[begin].event].process;
        size_t end = begin;
        while (end < count && events[kinds[end].event].process == process)
            end++;
        choose_anchor(kinds + begin, end - begin, events, periods->allocs[process],
                      &periods->processes[process]);
        begin = end;
    }
}

struct ull__periods *ull__periods_find(const struct ull__facts *facts)
{
    struct ull__periods *periods = calloc(1, sizeof *periods);
    struct ull__kinds kinds = {0};
    struct kind *items = NULL;
    size_t processes = facts->history->process_count + 1;
    if (!periods)
        return NULL;
    periods->history = facts->history;
    periods->processes = calloc(processes, sizeof *periods->processes);
    periods->allocs = calloc(processes, sizeof *periods->allocs);
    periods->first_ns = calloc(processes, sizeof *periods->first_ns);
    periods->last_ns = calloc(processes, sizeof *periods->last_ns);
    bool good = periods->processes && periods->allocs && periods->first_ns && periods->last_ns;
    for (size_t p = 0; good && p < processes; p++)
        periods->processes[p].anchor = ULL_NO_EVENT;
    good = good && ull__kinds_init(&kinds, facts->history, true, KINDS_MOST) &&
           count_kinds(facts, periods, &kinds, &items);
    if (good)
        choose_anchors(periods, items, kinds.count);
    free(items);
    ull__kinds_finish(&kinds);
    if (!good) {
        ull__periods_destroy(periods);
        return NULL;
    }
    return periods;
}

void ull__periods_destroy(struct ull__periods *periods)
{
    if (!periods)
        return;
    free(periods->processes);
    free(periods->allocs);
    free(periods->first_ns);
    free(periods->last_ns);
    free(periods);
}

bool ull__periods_begins(const struct ull__periods *periods, const struct ull__event *event)
{
    size_t anchor = periods->processes[event->process].anchor;
    return anchor != ULL_NO_EVENT && event->result == 0 &&
           ull__kinds_same(&periods->history->events[anchor], event, true);
}
