/*
 * test_wild.c: histories that no program makes, as a damaged file may hold: any size, any address, any order. All
 * that is asked is that every analysis ends with something, under the sanitizers too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "build.h"
#include "diff.h"
#include "figures.h"
#include "spans.h"
#include "timeline.h"
#include "verdict.h"

static uint64_t seed;

static uint64_t any(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t x = seed >> 11 ^ seed << 31;
    switch (seed >> 60) {
    case 0:
        return UINT64_MAX - x % 3;
    case 1:
        return INT64_MAX - x % 3;
    case 2:
        return (uint64_t)INT64_MIN + x % 3;
    case 3:
        return x;
    case 4:
        return 0;
    default:
        return x % 64;
    }
}

static struct ull__facts *wild(uint64_t number)
{
    struct ull__history *history = build_history();
    seed = number;
    uint32_t processes = 1 + (uint32_t)(any() % 4), devices = 1 + (uint32_t)(any() % 3);
    for (uint32_t p = 1; p < processes; p++)
        ull__history_process(history, &(struct ull__history_process){.pid = (uint32_t)any()});
    for (uint32_t d = 1; d < devices; d++)
        ull__history_device(history,
                            &(struct ull__history_device){.logical = -1, .total_bytes = any()});
    for (uint32_t p = 0; p < processes; p++) {
        history->processes[p].ended = any() & 1;
        history->processes[p].end_ns = any();
        history->processes[p].exit_code = (int32_t)any();
    }
    uint32_t tag = ull__history_text(history, "tag", 3);
    for (uint64_t i = 0, n = any() % 16 ? 600 : any() % 3; i < n; i++) {
        struct ull__event event = {.time_ns = any() >> 2,
                                   .address = any(),
                                   .size = any(),
                                   .charged = (int64_t)any(),
                                   .latency_ns = (uint32_t)any(),
                                   .tag = any() & 1 ? tag : 0,
                                   .result = (int16_t)(any() % 3 ? 0 : any()),
                                   .process = (uint16_t)(any() % processes),
                                   .kind = (uint8_t)(1 + any() % (ULL_EVENT_KINDS - 1)),
                                   .class = (uint8_t)(any() % ULL_CLASSES),
                                   .wait = (uint8_t)any()};
        event.device = any() % 8 ? (uint8_t)(any() % devices) : ULL_EVENT_NO_DEVICE;
        assert_true(ull__history_add(history, &event));
    }
    history->dropped = any() & 1 ? any() : 0;
    return build_facts(history);
}

static void analyze(struct ull__facts *facts, const struct ull__facts *other)
{
    struct ull_error err;
    struct ull__figures *figures = NULL, *before = NULL;
    struct ull__timeline *timeline = NULL;
    struct ull__diff *diff = NULL;
    struct ull__verdict verdict;
    assert_int_equal(ull__figures_create(facts, ULL_ROLE_INFERENCE, &figures, &err), ULL_OK);
    assert_int_equal(ull__figures_create(other, ULL_ROLE_TRAINING, &before, &err), ULL_OK);
    for (int d = ULL_TIMELINE_ALL; d < (int)facts->history->device_count; d++) {
        assert_int_equal(ull__timeline_create(facts, d, 100, &timeline, &err), ULL_OK);
        assert_true(timeline->count >= 1 && timeline->count <= 100);
        ull__timeline_destroy(timeline);
    }
    for (size_t most = 0; most < 60; most += 20) {
        struct ull__spans *spans;
        assert_int_equal(ull__spans_create(facts, figures, most, 7, &spans, &err), ULL_OK);
        assert_true(most == 0 || spans->span_count <= most);
        ull__spans_destroy(spans);
    }
    assert_int_equal(ull__verdict_device(facts, &verdict, &err), ULL_OK);
    assert_true(verdict.confidence >= 0 && verdict.confidence <= 1 && verdict.evidence_count > 0);
    assert_int_equal(ull__verdict_host(facts, &verdict, &err), ULL_OK);
    assert_true(verdict.confidence >= 0 && verdict.confidence <= 1 && verdict.evidence_count > 0);
    assert_int_equal(ull__diff_create(other, before, facts, figures, &diff, &err), ULL_OK);
    ull__diff_destroy(diff);
    ull__figures_destroy(figures);
    ull__figures_destroy(before);
}

static void anything(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 200; number++) {
        struct ull__facts *facts = wild(number), *other = wild(number + 1);
        analyze(facts, other);
        build_free(facts);
        build_free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(anything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
