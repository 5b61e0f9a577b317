/* test_figures.c: the numbers of a report from histories small enough to compute them by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "build.h"
#include "diff.h"
#include "figures.h"
#include "timeline.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define SECOND 1000000000ull

static struct ull__figures *figures_of(struct ull__facts *facts, enum ull__role role)
{
    struct ull__figures *figures = NULL;
    struct ull_error err = {""};
    assert_int_equal(ull__figures_create(facts, role, &figures, &err), ULL_OK);
    return figures;
}

static void near(double value, double want)
{
    assert_true(fabs(value - want) < 1e-9 * (1 + fabs(want)));
}

static void peak_and_average(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    /* Nothing for 1 s, 1 GiB for 1 s, 3 GiB for 2 s, 1 GiB for 1 s, nothing for 5 s. */
    build_event(history, 1 * SECOND, ULL_EVENT_ALLOC, 0x1000, GIB);
    build_event(history, 2 * SECOND, ULL_EVENT_ALLOC, 0x2000, 2 * GIB);
    build_event(history, 4 * SECOND, ULL_EVENT_FREE, 0x2000, 2 * GIB);
    build_event(history, 5 * SECOND, ULL_EVENT_FREE, 0x1000, GIB);
    history->end_ns = 10 * SECOND;
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_INFERENCE);
    const struct ull__course *course = &figures->devices[0].course;
    assert_int_equal(figures->main, 0);
    assert_int_equal(course->peak_bytes, 3 * GIB);
    assert_int_equal(course->peak_ns, 2 * SECOND);
    assert_int_equal(course->average_bytes, 2 * GIB); /* (1 + 6 + 1) / 4 */
    near(course->peak_to_average, 1.5);
    assert_int_equal(figures->devices[0].needed_bytes, 3 * GIB);
    assert_int_equal(figures->devices[0].suggested_bytes,
                     ull__suggest(3 * GIB, 16 * GIB, ULL_ROLE_INFERENCE));
    assert_true(isnan(figures->devices[0].fragmentation));
    assert_int_equal(figures->devices[0].alone, ULL_ALONE_UNKNOWN);
    assert_int_equal(figures->holder_count, 2);
    assert_int_equal(figures->holders[0].bytes, 2 * GIB);
    assert_int_equal(figures->holders[1].since_ns, SECOND);
    /* 2 s and 4 s are 4^10 us = 1.05 s and more, below 4^11. */
    assert_int_equal(figures->ages[10], 2);
    assert_int_equal(figures->sizes[30] + figures->sizes[31], 2);
    assert_int_equal(figures->never_freed, 0);
    ull__figures_destroy(figures);
    build_free(facts);
}

static void nothing_at_all(void **state)
{
    (void)state;
    struct ull__facts *facts = build_facts(build_history());
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
    assert_int_equal(figures->main, -1);
    assert_int_equal(figures->devices[0].suggested_bytes, 0);
    assert_true(isnan(figures->driver.p50));
    assert_int_equal(figures->holder_count, 0);
    ull__figures_destroy(figures);
    build_free(facts);
}

static void latencies(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    for (uint64_t i = 1; i <= 1000; i++)
        build_event(history, i, ULL_EVENT_ALLOC, i << 12, 512)->latency_ns =
            (uint32_t)((i * 7919 % 1000 + 1) * 1000);
    build_event(history, 2000, ULL_EVENT_ALLOC, 1, 512)->latency_ns = 0; /* not known */
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
    assert_int_equal(figures->driver.count, 1000);
    near(figures->driver.p50, 500e-6);
    near(figures->driver.p99, 990e-6);
    near(figures->driver.max, 1000e-6);
    assert_int_equal(figures->chunks.count, 0);
    ull__figures_destroy(figures);
    build_free(facts);
}

static void refusals_and_waits(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    history->devices[0].budget_bytes = 4 * GIB;
    build_event(history, 1, ULL_EVENT_ALLOC, 0x1000, 3 * GIB)->latency_ns = 1000;
    build_event(history, 2, ULL_EVENT_ALLOC, 0, GIB + 300 * MIB)->result =
        2; /* a workspace too large */
    struct ull__event *waited = build_event(history, 3, ULL_EVENT_ALLOC, 0x2000, 512 * MIB);
    waited->wait = ULL_WAIT_TRIM | ULL_WAIT_STREAM;
    waited->latency_ns = 2001000;
    struct ull__event *last = build_event(history, 4, ULL_EVENT_ALLOC, 0, 2 * GIB); /* the end */
    last->result = 2;
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
    const struct ull__pressure *pressure = &figures->pressure;
    assert_int_equal(pressure->refusals, 2);
    assert_int_equal(pressure->survived, 1);
    assert_int_equal(pressure->more_bytes, 300 * MIB);
    assert_int_equal(pressure->waited, 1);
    assert_int_equal(pressure->by_wait[1], 1);
    assert_int_equal(pressure->by_wait[2], 1);
    assert_int_equal(pressure->by_wait[0], 0);
    assert_true(figures->devices[0].stopped_short);
    assert_int_equal(figures->devices[0].needed_bytes, 5 * GIB + 512 * MIB);
    assert_true(figures->devices[0].preallocated); /* 3 of 4 GiB in one early piece */
    ull__figures_destroy(figures);
    build_free(facts);
}

/* The usual call takes 1 us, the one that waited 2.001 ms: 2 ms were lost. */
static void cost_of_waits(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    for (uint64_t i = 1; i <= 9; i++)
        build_event(history, i, ULL_EVENT_ALLOC, i << 12, 512)->latency_ns = 1000;
    struct ull__event *waited = build_event(history, 10, ULL_EVENT_ALLOC, 1, 512);
    waited->wait = ULL_WAIT_RETRY;
    waited->latency_ns = 2001000;
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
    near(figures->pressure.waited_seconds, 2e-3);
    ull__figures_destroy(figures);
    build_free(facts);
}

static void fragmentation(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    /* A segment of 10 MiB with chunks at 2 and 5: gaps of 2, 2 and 4; and one that is another library's. */
    build_event(history, 0, ULL_EVENT_ALLOC, 0x10000000, 10 * MIB);
    build_event(history, 0, ULL_EVENT_ALLOC, 0x90000000, 50 * MIB);
    build_event(history, 0, ULL_EVENT_CHUNK_ALLOC, 0x10000000 + 2 * MIB, MIB);
    build_event(history, 0, ULL_EVENT_CHUNK_ALLOC, 0x10000000 + 5 * MIB, MIB);
    build_event(history, 100, ULL_EVENT_MARK, 0, 0);
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
    near(figures->devices[0].fragmentation, 0.5);
    near(figures->devices[0].free_share, 0.8);
    ull__figures_destroy(figures);
    build_free(facts);
}

static void on_the_card(void **state)
{
    (void)state;
    for (uint64_t others = 0; others < 2; others++) {
        struct ull__history *history = build_history();
        build_event(history, 1, ULL_EVENT_ALLOC, 0x1000, GIB);
        build_event(history, 2, ULL_EVENT_CARD, 0, GIB);
        build_event(history, 3, ULL_EVENT_CARD, others, GIB);
        struct ull__facts *facts = build_facts(history);
        struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
        assert_int_equal(figures->devices[0].alone, others ? ULL_ALONE_NO : ULL_ALONE_YES);
        ull__figures_destroy(figures);
        build_free(facts);
    }
}

static void holders_by_tag(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    uint32_t weights = ull__history_text(history, "weights", 7);
    uint32_t other = ull__history_text(history, "other", 5);
    for (uint64_t i = 1; i <= 5; i++)
        build_event(history, i, ULL_EVENT_ALLOC, i << 20, i * 1000)->tag = weights;
    build_event(history, 6, ULL_EVENT_ALLOC, 0x1, 14999)->tag = other;
    for (uint64_t i = 0; i < 40; i++)
        build_event(history, 7, ULL_EVENT_ALLOC, 0x1000 + i, 100 + i); /* each size by itself */
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts, ULL_ROLE_TRAINING);
    assert_int_equal(figures->holder_count, ULL_HOLDERS);
    assert_int_equal(figures->holders[0].tag, weights);
    assert_int_equal(figures->holders[0].bytes, 15000);
    assert_int_equal(figures->holders[0].count, 5);
    assert_int_equal(figures->holders[0].largest, 5000);
    assert_int_equal(figures->holders[1].bytes, 14999);
    uint64_t sum = figures->rest_bytes;
    for (int i = 0; i < figures->holder_count; i++)
        sum += figures->holders[i].bytes;
    assert_int_equal(sum, figures->devices[0].course.live_peak_bytes);
    ull__figures_destroy(figures);
    build_free(facts);
}

/* --- timelines ------------------------------------------------------------------------------------------ */

/* Each point is what a walk says there, and nothing is higher or lower than the points around it. */
static void timeline_keeps_extremes(void **state)
{
    (void)state;
    enum { EVENTS = 20000, POINTS = 400 };
    struct ull__history *history = build_history();
    uint64_t seed = 9, lives = 0;
    static uint64_t held[EVENTS], sizes[EVENTS + 1];
    for (uint64_t i = 0; i < EVENTS; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        bool frees = lives > 0 && seed >> 63;
        if (!frees)
            sizes[++lives] = (seed >> 20) % 100000;
        if (frees)
            build_event(history, i * 1000, ULL_EVENT_FREE, lives, sizes[lives]);
        else
            build_event(history, i * 1000, ULL_EVENT_ALLOC, lives, sizes[lives]);
        lives -= frees;
    }
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    uint64_t top = 0;
    for (size_t i = 0; ull__walk_next(walk); i++) {
        held[i] = walk->all.held;
        top = held[i] > top ? held[i] : top;
    }
    ull__walk_destroy(walk);
    struct ull__timeline *timeline = NULL;
    assert_int_equal(ull__timeline_create(facts, 0, POINTS, &timeline, NULL), ULL_OK);
    assert_true(timeline->count > POINTS / 4 && timeline->count <= POINTS);
    uint64_t most = 0;
    for (size_t i = 1; i + 1 < timeline->count; i++) {
        const struct ull__point *a = &timeline->points[i - 1], *b = &timeline->points[i];
        assert_true(a->time_ns <= b->time_ns);
        assert_int_equal(b->held, held[b->event]);
        assert_int_equal(b->by_class[ULL_CLASS_DATA], b->held);
        most = b->held > most ? b->held : most;
        if (i == 1)
            continue;
        /* A piece has five points at most. */
        uint64_t low = UINT64_MAX, high = 0;
        for (size_t k = i > 5 ? i - 5 : 0; k < i + 5 && k < timeline->count; k++) {
            low = timeline->points[k].held < low ? timeline->points[k].held : low;
            high = timeline->points[k].held > high ? timeline->points[k].held : high;
        }
        for (size_t e = a->event; e <= b->event; e++)
            assert_true(held[e] >= low && held[e] <= high);
    }
    assert_int_equal(most, top);
    ull__timeline_destroy(timeline);
    build_free(facts);
}

/* A small history is told as it is. */
static void timeline_of_little(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 10, ULL_EVENT_ALLOC, 1, 100);
    build_event(history, 20, ULL_EVENT_FREE, 1, 100);
    history->end_ns = 50;
    struct ull__facts *facts = build_facts(history);
    struct ull__timeline *timeline = NULL;
    assert_int_equal(ull__timeline_create(facts, ULL_TIMELINE_ALL, 1000, &timeline, NULL), ULL_OK);
    static const uint64_t want[][2] = {{0, 0}, {10, 100}, {20, 0}, {50, 0}};
    assert_int_equal(timeline->count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(timeline->points[i].time_ns, want[i][0]);
        assert_int_equal(timeline->points[i].held, want[i][1]);
    }
    ull__timeline_destroy(timeline);
    build_free(facts);
}

/* --- differences ---------------------------------------------------------------------------------------- */

static struct ull__facts *tagged(const char *first, uint64_t first_bytes, const char *second,
                                 uint64_t second_bytes)
{
    struct ull__history *history = build_history();
    uint32_t one = ull__history_text(history, first, strlen(first));
    uint32_t two = ull__history_text(history, second, strlen(second));
    build_event(history, 1, ULL_EVENT_ALLOC, 1, first_bytes)->tag = one;
    build_event(history, 2, ULL_EVENT_ALLOC, 2, second_bytes)->tag = two;
    return build_facts(history);
}

static void what_grew(void **state)
{
    (void)state;
    /* The same tags, with other numbers. */
    struct ull__facts *before = tagged("a", 1000, "b", 2000), *after = tagged("b", 5000, "c", 10);
    struct ull__figures *then = figures_of(before, ULL_ROLE_TRAINING);
    struct ull__figures *now = figures_of(after, ULL_ROLE_TRAINING);
    struct ull__diff *diff = NULL;
    assert_int_equal(ull__diff_create(before, then, after, now, &diff, NULL), ULL_OK);
    static const struct {
        const char *name;
        uint64_t before, after;
    } want[] = {{"b", 2000, 5000}, {"c", 0, 10}, {"a", 1000, 0}};
    assert_int_equal(diff->counts[ULL_DIFF_TAG], 3);
    for (size_t i = 0; i < 3; i++) {
        const struct ull__diff_row *row = &diff->rows[ULL_DIFF_TAG][i];
        assert_string_equal(row->name, want[i].name);
        assert_int_equal(row->before_bytes, want[i].before);
        assert_int_equal(row->after_bytes, want[i].after);
    }
    assert_int_equal(diff->counts[ULL_DIFF_CLASS], 1);
    assert_int_equal(diff->rows[ULL_DIFF_CLASS][0].after_bytes, 5010);
    ull__diff_destroy(diff);
    ull__figures_destroy(then);
    ull__figures_destroy(now);
    build_free(before);
    build_free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peak_and_average),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(latencies),
        cmocka_unit_test(refusals_and_waits),
        cmocka_unit_test(cost_of_waits),
        cmocka_unit_test(fragmentation),
        cmocka_unit_test(on_the_card),
        cmocka_unit_test(holders_by_tag),
        cmocka_unit_test(timeline_keeps_extremes),
        cmocka_unit_test(timeline_of_little),
        cmocka_unit_test(what_grew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
