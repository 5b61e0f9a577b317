/*
 * test_spans.c: from spans and changes alone the books of any moment come out as the walk has them; of too many spans
 * those that cover most stay, and sums are still right at the peaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "build.h"
#include "spans.h"

enum {
    STEP = 1000,
    PROCESSES = 3,
    DEVICES = 2
}; /* nanoseconds between events: more than one has steps */

static uint64_t seed;

static uint64_t below(uint64_t most)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % most;
}

/* Three processes on two devices and on none, of which one has an allocator of its own; lost and repeated
 * events, refusals, charges, ends. */
static struct ull__facts *random_history(uint64_t number, int events)
{
    struct ull__history *history = build_history();
    seed = number;
    for (uint32_t p = 1; p < PROCESSES; p++)
        ull__history_process(history, &(struct ull__history_process){.pid = 10 + p});
    ull__history_device(history, &(struct ull__history_device){.logical = 1});
    uint32_t tag = ull__history_text(history, "tag", 3);
    for (int i = 0; i < events; i++) {
        static const uint8_t kinds[] = {ULL_EVENT_ALLOC, ULL_EVENT_ALLOC,  ULL_EVENT_FREE,
                                        ULL_EVENT_FREE,  ULL_EVENT_CHARGE, ULL_EVENT_MARK};
        struct ull__event event = {.time_ns = (uint64_t)(i + 1) * STEP,
                                   .address = 1 + below(40),
                                   .size = 1 + below(5000),
                                   .tag = below(2) ? tag : 0,
                                   .process = (uint16_t)below(PROCESSES),
                                   .kind = kinds[below(6)],
                                   .class = (uint8_t)below(ULL_CLASSES),
                                   .result = below(20) == 0,
                                   .device =
                                       below(9) ? (uint8_t)below(DEVICES) : ULL_EVENT_NO_DEVICE};
        event.charged = (int64_t)(event.size + below(100));
        if (event.kind == ULL_EVENT_CHARGE && below(2))
            event.charged = -event.charged;
        if (event.process == 1 && below(3) && event.kind < ULL_EVENT_CHARGE)
            event.kind += ULL_EVENT_CHUNK_ALLOC - ULL_EVENT_ALLOC;
        if (below(60) == 0)
            event.kind = ULL_EVENT_END;
        assert_true(ull__history_add(history, &event));
    }
    return build_facts(history);
}

/* --- books from changes ----------------------------------------------------------------------------------- */

struct books {
    uint64_t by_class[PROCESSES][DEVICES + 1][ULL_CLASSES];
    uint64_t live[PROCESSES][DEVICES + 1];
    size_t next;
};

static void apply_until(const struct ull__spans *spans, struct books *books, uint64_t moment)
{
    for (; books->next < spans->change_count && spans->changes[books->next].moment <= moment;
         books->next++) {
        const struct ull__change *change = &spans->changes[books->next];
        if (change->what == ULL_CHANGE_ADJUSTED) {
            const struct ull__adjust *adjust = &spans->adjusts[change->number];
            uint32_t device = adjust->device < DEVICES ? adjust->device : DEVICES;
            books->by_class[adjust->process][device][adjust->class] += (uint64_t)adjust->held;
            books->live[adjust->process][device] += (uint64_t)adjust->live;
            continue;
        }
        const struct ull__span *span = &spans->spans[change->number];
        const struct ull__span_kind *kind = &spans->kinds[span->kind];
        uint32_t device = kind->device < DEVICES ? kind->device : DEVICES;
        uint64_t sign = change->what == ULL_CHANGE_CAME ? 1 : UINT64_MAX;
        assert_true(change->what == ULL_CHANGE_CAME ? span->from == change->moment
                                                    : span->to == change->moment);
        books->by_class[kind->process][device][kind->class] += sign * span->held;
        books->live[kind->process][device] += kind->live ? sign * span->size : 0;
    }
}

static void compare(const struct ull__walk *walk, const struct books *books)
{
    for (uint32_t p = 0; p < PROCESSES; p++) {
        for (uint32_t d = 0; d <= DEVICES; d++) {
            const struct ull__totals *is = ull__walk_share(walk, p, d < DEVICES ? d : 255);
            assert_memory_equal(books->by_class[p][d], is->by_class, sizeof is->by_class);
            assert_int_equal(books->live[p][d], is->live);
        }
    }
}

static struct ull__figures *figures_of(const struct ull__facts *facts)
{
    struct ull__figures *figures;
    assert_int_equal(ull__figures_create(facts, ULL_ROLE_TRAINING, &figures, NULL), ULL_OK);
    return figures;
}

static void sums_are_those_of_the_walk(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 30; number++) {
        struct ull__facts *facts = random_history(number, 400);
        struct ull__figures *figures = figures_of(facts);
        struct ull__spans *spans;
        struct books books = {.next = 0};
        assert_int_equal(ull__spans_create(facts, figures, 0, 0, &spans, NULL), ULL_OK);
        struct ull__walk *walk = ull__walk_create(facts);
        for (size_t at = 0; at < facts->history->event_count; at++) {
            assert_true(ull__walk_through(walk, at));
            apply_until(spans, &books, facts->history->events[at].time_ns + STEP - 1);
            compare(walk, &books);
        }
        assert_int_equal(books.next, spans->change_count);
        for (size_t i = 1; i < spans->change_count; i++)
            assert_true(spans->changes[i].moment > spans->changes[i - 1].moment);
        assert_true(spans->end > spans->changes[spans->change_count - 1].moment);
        ull__walk_destroy(walk);
        ull__spans_destroy(spans);
        ull__figures_destroy(figures);
        build_free(facts);
    }
}

/* --- folding ------------------------------------------------------------------------------------------------ */

static uint64_t held_of(const struct books *books, int process, int device)
{
    uint64_t held = 0;
    for (int p = 0; p < PROCESSES; p++) {
        for (int d = 0; d <= DEVICES; d++) {
            for (int c = 0; c < ULL_CLASSES; c++) {
                if ((process < 0 || p == process) && (device < 0 || d == device))
                    held += books->by_class[p][d][c];
            }
        }
    }
    return held;
}

static void check_peak(const struct ull__spans *spans, const struct ull__course *course,
                       int process, int device)
{
    struct books books = {.next = 0};
    if (course->peak_event == ULL_NO_EVENT)
        return;
    apply_until(spans, &books, course->peak_ns + STEP - 1);
    assert_int_equal(held_of(&books, process, device), course->peak_bytes);
}

static void check_peaks(const struct ull__spans *spans, const struct ull__figures *figures)
{
    check_peak(spans, &figures->all, -1, -1);
    for (int d = 0; d < DEVICES; d++)
        check_peak(spans, &figures->devices[d].course, -1, d);
    for (int p = 0; p < PROCESSES; p++)
        check_peak(spans, &figures->processes[p].course, p, -1);
}

static void folded_sums_are_right_at_the_peaks(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 30; number++) {
        struct ull__facts *facts = random_history(number, 400);
        struct ull__figures *figures = figures_of(facts);
        struct ull__spans *all, *spans;
        struct books books = {.next = 0};
        assert_int_equal(ull__spans_create(facts, figures, 0, 0, &all, NULL), ULL_OK);
        assert_int_equal(ull__spans_create(facts, figures, 20, 10, &spans, NULL), ULL_OK);
        assert_int_equal(spans->span_count, 20);
        assert_int_equal(spans->folded, all->span_count - 20);
        check_peaks(all, figures);
        check_peaks(spans, figures);
        struct ull__walk *walk = ull__walk_create(facts);
        assert_true(ull__walk_through(walk, facts->history->event_count - 1));
        apply_until(spans, &books, UINT64_MAX);
        compare(walk, &books);
        for (size_t i = 1; i < spans->change_count; i++)
            assert_true(spans->changes[i].moment >= spans->changes[i - 1].moment);
        ull__walk_destroy(walk);
        ull__spans_destroy(all);
        ull__spans_destroy(spans);
        ull__figures_destroy(figures);
        build_free(facts);
    }
}

/* Large or long ones stay; small ones that were short-lived go. */
static void what_covers_most_stays(void **state)
{
    struct ull__history *history = build_history();
    struct ull__spans *spans;
    (void)state;
    build_event(history, 10, ULL_EVENT_ALLOC, 1, 100);
    build_event(history, 20, ULL_EVENT_ALLOC, 2, 1000000);
    build_event(history, 21, ULL_EVENT_FREE, 2, 1000000);
    for (uint64_t i = 0; i < 50; i++) {
        build_event(history, 100 + 10 * i, ULL_EVENT_ALLOC, 3, 10);
        build_event(history, 101 + 10 * i, ULL_EVENT_FREE, 3, 10);
    }
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts);
    assert_int_equal(ull__spans_create(facts, figures, 2, 4, &spans, NULL), ULL_OK);
    assert_int_equal(spans->span_count, 2);
    assert_int_equal(spans->spans[0].size, 100);
    assert_int_equal(spans->spans[0].to, ULL_NEVER);
    assert_int_equal(spans->spans[1].size, 1000000);
    assert_int_equal(spans->folded, 50);
    assert_int_equal(spans->folded_bytes, 500);
    ull__spans_destroy(spans);
    ull__figures_destroy(figures);
    build_free(facts);
}

/* Events of the same moment stay apart, in their order. */
static void equal_times_stay_apart(void **state)
{
    struct ull__history *history = build_history();
    struct ull__spans *spans;
    (void)state;
    for (uint64_t i = 1; i <= 5; i++)
        build_event(history, 7, ULL_EVENT_ALLOC, i, 10 * i);
    build_event(history, 7, ULL_EVENT_FREE, 5, 50);
    build_event(history, 9, ULL_EVENT_FREE, 4, 40);
    struct ull__facts *facts = build_facts(history);
    struct ull__figures *figures = figures_of(facts);
    assert_int_equal(ull__spans_create(facts, figures, 0, 0, &spans, NULL), ULL_OK);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(spans->changes[i].moment, 7 + i);
    assert_int_equal(spans->end, 14);
    assert_int_equal(spans->spans[4].to, 12);
    ull__spans_destroy(spans);
    ull__figures_destroy(figures);
    build_free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_walk),
        cmocka_unit_test(folded_sums_are_right_at_the_peaks),
        cmocka_unit_test(what_covers_most_stays),
        cmocka_unit_test(equal_times_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
