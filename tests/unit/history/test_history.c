/* test_history.c: texts and stacks are kept once, events come out by time, wrong numbers are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "history.h"

static struct ull__history *with_process(void)
{
    struct ull__history *history = ull__history_create();
    assert_non_null(history);
    assert_int_equal(ull__history_process(history, &(struct ull__history_process){.pid = 7}), 0);
    return history;
}

static struct ull__event event_at(uint64_t time_ns, uint64_t size)
{
    return (struct ull__event){
        .time_ns = time_ns, .size = size, .kind = ULL_EVENT_HOST, .device = ULL_EVENT_NO_DEVICE};
}

static void texts_once(void **state)
{
    (void)state;
    struct ull__history *history = with_process();
    char text[16];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 5000; i++) {
            int size = snprintf(text, sizeof text, "text %u", i);
            assert_int_equal(ull__history_text(history, text, (size_t)size), i + 1);
        }
    }
    assert_int_equal(ull__history_text(history, "", 0), 0);
    assert_int_equal(ull__history_text(history, "text 77 and more", 7), 78);
    assert_string_equal(ull__history_string(history, 78), "text 77");
    assert_string_equal(ull__history_string(history, 1u << 30), "");
    ull__history_destroy(history);
}

static void stacks_once(void **state)
{
    (void)state;
    struct ull__history *history = with_process();
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 1000; i++) {
            struct ull__frame frames[3] = {{.line = i}, {.line = 1}, {.line = 2}};
            assert_int_equal(ull__history_stack(history, frames, 3), i + 1);
        }
    }
    assert_int_equal(ull__history_stack(history, NULL, 0), 0);
    assert_int_equal(history->frame_count, 3000);
    ull__history_destroy(history);
}

static void sorted_and_stable(void **state)
{
    (void)state;
    enum { EVENTS = 20000 };
    struct ull__history *history = with_process();
    uint64_t seed = 1;
    for (uint64_t i = 0; i < EVENTS; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        struct ull__event event = event_at(1000 + (seed >> 33) % 500, i);
        assert_true(ull__history_add(history, &event));
    }
    assert_int_equal(ull__history_finish(history, 1100, NULL), ULL_OK);
    assert_int_equal(history->event_count, EVENTS);
    uint64_t sum = history->events[0].size;
    for (size_t i = 1; i < EVENTS; i++) {
        const struct ull__event *a = &history->events[i - 1], *b = &history->events[i];
        assert_true(a->time_ns < b->time_ns || a->time_ns == 0 ||
                    (a->time_ns == b->time_ns && a->size < b->size));
        sum += b->size;
    }
    assert_int_equal(sum, (uint64_t)EVENTS * (EVENTS - 1) / 2);
    assert_int_equal(history->end_ns, history->events[EVENTS - 1].time_ns);
    ull__history_destroy(history);
}

static void wrong_numbers(void **state)
{
    (void)state;
    struct ull__event good = event_at(1, 1), bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].process = 1;
    bad[1].kind = ULL_EVENT_KINDS;
    bad[2].class = ULL_CLASSES;
    bad[3].stack = 1;
    bad[4].tag = 1;
    bad[5].device = 0;
    for (int i = 0; i < 6; i++) {
        struct ull__history *history = with_process();
        struct ull_error err = {""};
        assert_true(ull__history_add(history, &good));
        assert_true(ull__history_add(history, &bad[i]));
        assert_int_equal(ull__history_finish(history, 0, &err), ULL_E_FORMAT);
        assert_non_null(strstr(err.message, "event 1 "));
        ull__history_destroy(history);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_once),
        cmocka_unit_test(stacks_once),
        cmocka_unit_test(sorted_and_stable),
        cmocka_unit_test(wrong_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
