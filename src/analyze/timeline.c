/* timeline.c: see timeline.h. */
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

/* Of a piece of time, by these; its last is where the next piece begins. */
enum { HELD_LOW, HELD_HIGH, LIVE_LOW, LIVE_HIGH, LAST, KEPT };

struct kept {
    struct ull__point point;
    uint64_t step; /* one event may be several */
};

struct piece {
    struct kept kept[KEPT];
    bool any;
};

struct work {
    struct piece *pieces;
    size_t piece_count;
    const struct ull__walk *walk;
    const struct ull__totals *totals;
    struct ull__timeline *timeline;
    uint64_t step;
};

static struct ull__point point_now(const struct work *work)
{
    const struct ull__walk *walk = work->walk;
    struct ull__point point = {.time_ns = walk->event ? walk->event->time_ns : 0,
                               .held = work->totals->held,
                               .live = work->totals->live,
                               .event = walk->event ? walk->at : 0};
    memcpy(point.by_class, work->totals->by_class, sizeof point.by_class);
    return point;
}

static struct piece *piece_at(struct work *work, uint64_t time_ns)
{
    uint64_t end = work->timeline->end_ns;
    size_t at =
        end ? (size_t)((unsigned __int128)time_ns * work->piece_count / ((unsigned __int128)end + 1))
            : 0;
    return &work->pieces[at < work->piece_count ? at : work->piece_count - 1];
}

static void keep(struct work *work)
{
    const struct ull__totals *totals = work->totals;
    struct piece *piece = piece_at(work, work->walk->event->time_ns);
    bool first = !piece->any;
    const bool wins[KEPT] = {first || totals->held < piece->kept[HELD_LOW].point.held,
                             first || totals->held > piece->kept[HELD_HIGH].point.held,
                             first || totals->live < piece->kept[LIVE_LOW].point.live,
                             first || totals->live > piece->kept[LIVE_HIGH].point.live, true};
    struct kept now = {point_now(work), work->step++};
    for (int i = 0; i < KEPT; i++) {
        if (wins[i])
            piece->kept[i] = now;
    }
    piece->any = true;
}

static int by_step(const void *left, const void *right)
{
    const struct kept *a = left, *b = right;
    return a->step < b->step ? -1 : a->step > b->step;
}

static bool same(const struct ull__point *a, const struct ull__point *b)
{
    return a->event == b->event && a->held == b->held && a->live == b->live;
}

static void emit(struct work *work)
{
    struct ull__timeline *timeline = work->timeline;
    for (size_t i = 0; i < work->piece_count; i++) {
        struct piece *piece = &work->pieces[i];
        if (!piece->any)
            continue;
        qsort(piece->kept, KEPT, sizeof *piece->kept, by_step);
        for (int k = 0; k < KEPT; k++) {
            if (!same(&timeline->points[timeline->count - 1], &piece->kept[k].point))
                timeline->points[timeline->count++] = piece->kept[k].point;
        }
    }
    struct ull__point *last = &timeline->points[timeline->count - 1];
    if (last->time_ns < timeline->end_ns) {
        timeline->points[timeline->count] = *last;
        timeline->points[timeline->count++].time_ns = timeline->end_ns;
    }
}

static bool fill(struct work *work, const struct ull__facts *facts, int device)
{
    struct ull__walk *walk = ull__walk_create(facts);
    if (!walk)
        return false;
    work->walk = walk;
    work->totals = device < 0 ? &walk->all : &walk->devices[device];
    work->timeline->points[work->timeline->count++] = point_now(work);
    while (ull__walk_next(walk)) {
        if (walk->step != ULL_STEP_OTHER && walk->step != ULL_STEP_STRAY &&
            walk->step != ULL_STEP_REFUSED)
            keep(work);
    }
    bool good = !ull__walk_failed(walk);
    if (good)
        emit(work);
    ull__walk_destroy(walk);
    return good;
}

ull_status ull__timeline_create(const struct ull__facts *facts, int device, size_t most,
                                struct ull__timeline **timeline, struct ull_error *err)
{
    struct work work = {.piece_count = ((most < 16 ? 16 : most) - 2) / KEPT,
                        .timeline = calloc(1, sizeof **timeline)};
    work.pieces = calloc(work.piece_count, sizeof *work.pieces);
    bool good = work.pieces && work.timeline;
    if (good) {
        work.timeline->end_ns = facts->history->end_ns;
        work.timeline->points = malloc((work.piece_count * KEPT + 2) * sizeof *work.timeline->points);
        good = work.timeline->points && fill(&work, facts, device);
    }
    free(work.pieces);
    if (!good) {
        ull__timeline_destroy(work.timeline);
        return ull__fail(err, ULL_E_SYSTEM, "no memory for a timeline of %zu points", most);
    }
    *timeline = work.timeline;
    return ULL_OK;
}

void ull__timeline_destroy(struct ull__timeline *timeline)
{
    if (!timeline)
        return;
    free(timeline->points);
    free(timeline);
}
