/*
 * test_page.c: the data that a page is drawn from is whole and bounded whatever the history holds: histories that no
 * program makes, with limits so small that all of them count. What the data says is tested in tests/e2e/page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "report/html.h"

static uint64_t seed;

static uint64_t any(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = seed >> 11 ^ seed << 31;
    return seed >> 61 == 0 ? UINT64_MAX - x % 3 : seed >> 61 == 1 ? x : x % 64;
}

static uint32_t any_text(struct ull__history *history)
{
    char text[800];
    size_t size = any() % 4 ? any() % 12 : any() % sizeof text;
    for (size_t i = 0; i < size % sizeof text; i++)
        text[i] = any() % 3 ? "<>/&\"'s\\"[any() % 8] : (char)(any() % 256);
    return ull__history_text(history, text, size % sizeof text);
}

static struct ull__history *wild(uint64_t number)
{
    struct ull__history *history = ull__history_create();
    uint32_t tags[10], stacks[20];
    seed = number;
    uint32_t processes = 1 + (uint32_t)(any() % 4), devices = 1 + (uint32_t)(any() % 3);
    for (uint32_t p = 0; p < processes; p++)
        ull__history_process(history, &(struct ull__history_process){.pid = (uint32_t)any() % 9,
                                                                     .name = any_text(history)});
    for (uint32_t d = 0; d < devices; d++)
        ull__history_device(history, &(struct ull__history_device){.logical = (int)d - 1,
                                                                   .uuid = any_text(history),
                                                                   .budget_bytes = any()});
    for (int i = 0; i < 10; i++)
        tags[i] = any_text(history);
    for (int i = 0; i < 20; i++) {
        struct ull__frame frames[6];
        uint32_t count = (uint32_t)(any() % 6);
        for (uint32_t f = 0; f < count; f++)
            frames[f] = (struct ull__frame){any_text(history), any_text(history), (uint32_t)any()};
        stacks[i] = ull__history_stack(history, frames, count);
    }
    for (uint64_t i = 0, n = any() % 8 ? 400 : any() % 3; i < n; i++) {
        struct ull__event event = {.time_ns = any() >> 3,
                                   .address = any() % 90,
                                   .size = any(),
                                   .charged = (int64_t)any(),
                                   .latency_ns = (uint32_t)any(),
                                   .tag = tags[any() % 10],
                                   .stack = stacks[any() % 20],
                                   .result = any() % 5 == 0,
                                   .process = (uint16_t)(any() % processes),
                                   .kind = (uint8_t)(1 + any() % (ULL_EVENT_KINDS - 1)),
                                   .class = (uint8_t)(any() % ULL_CLASSES),
                                   .wait = (uint8_t)any()};
        event.device = any() % 8 ? (uint8_t)(any() % devices) : ULL_EVENT_NO_DEVICE;
        assert_true(ull__history_add(history, &event));
    }
    assert_int_equal(ull__history_finish(history, 0, NULL), ULL_OK);
    return history;
}

/* --- what is asked of it ------------------------------------------------------------------------------------ */

static size_t number(const json_t *data, const char *key)
{
    const json_t *value = json_object_get(data, key);
    assert_true(json_is_real(value));
    return (size_t)json_real_value(value);
}

/* The length of a list of numbers in rows of `width`, the column `column` of which stays below `bound`. */
static size_t rows(const json_t *data, const char *key, size_t width, size_t column, size_t bound)
{
    const json_t *list = json_object_get(data, key);
    assert_true(json_is_array(list));
    size_t size = json_array_size(list);
    assert_int_equal(size % width, 0);
    for (size_t i = column; i < size; i += width)
        assert_true(json_real_value(json_array_get(list, i)) < (double)bound);
    return size / width;
}

static void check(const json_t *data, const struct html_limits *limits,
                  const struct ull__history *history)
{
    size_t texts = json_array_size(json_object_get(data, "texts"));
    size_t frames = rows(data, "frames", 3, 0, texts);
    size_t nodes = rows(data, "nodes", 2, 1, frames), bytes = 0;
    rows(data, "frames", 3, 1, texts);
    assert_true(nodes <= limits->nodes && frames <= limits->nodes + 1);
    rows(data, "nodes", 2, 0, nodes + 1);
    /* Those that are alike become one: at most as many more as there are processes, devices, classes ... */
    size_t kinds = rows(data, "kinds", 7, 5, texts);
    assert_true(kinds <= limits->kinds + (size_t)history->process_count *
                                             (history->device_count + 1) * ULL_CLASSES * 4);
    rows(data, "kinds", 7, 6, nodes + 1);
    rows(data, "kinds", 7, 0, history->process_count);
    assert_true(number(data, "span_count") <= limits->spans);
    const char *lists[] = {"refusals", "waits", "budgets", "marks", "host"};
    const size_t widths[] = {7, 6, 3, 3, 3};
    for (int i = 0; i < 5; i++)
        assert_true(rows(data, lists[i], widths[i], 0, SIZE_MAX) <= limits->marks);
    rows(data, "refusals", 7, 5, texts);
    rows(data, "refusals", 7, 6, nodes + 1);
    rows(data, "marks", 3, 2, texts);
    for (size_t i = 0; i < texts; i++)
        bytes += json_string_length(json_array_get(json_object_get(data, "texts"), i));
    assert_true(bytes <= limits->text_bytes * 3 + 3); /* what is not UTF-8 becomes longer */
}

static void one(const struct html_limits *limits, uint64_t seed_of_history)
{
    struct ull__history *history = wild(seed_of_history);
    struct ull__facts *facts = ull__facts_create(history);
    struct ull__figures *figures;
    struct ull_json json;
    assert_int_equal(ull__figures_create(facts, ULL_ROLE_TRAINING, &figures, NULL), ULL_OK);
    struct report_input input = {
        .path = "a file", .history = history, .facts = facts, .figures = figures};
    ull__json_init(&json, NULL);
    assert_true(html_data(&json, &input, limits));
    assert_true(ull__json_finish(&json));
    json_error_t error;
    json_t *data = json_loads(json.text, JSON_DECODE_INT_AS_REAL, &error);
    if (!data)
        fail_msg("%s at %d", error.text, error.position);
    check(data, limits, history);
    json_decref(data);
    ull__json_free(&json);
    ull__figures_destroy(figures);
    ull__facts_destroy(facts);
    ull__history_destroy(history);
}

static void small_limits(void **state)
{
    static const struct html_limits limits = {
        .spans = 20, .pieces = 5, .kinds = 6, .nodes = 10, .text_bytes = 60, .marks = 3};
    (void)state;
    for (uint64_t i = 1; i <= 150; i++)
        one(&limits, i);
}

static void no_room_at_all(void **state)
{
    static const struct html_limits limits = {.spans = 1};
    (void)state;
    for (uint64_t i = 1; i <= 50; i++)
        one(&limits, i);
}

static void usual_limits(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 20; i++)
        one(&html_limits, i);
}

/* Traces of the same histories are JSON too. */
static void traces(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        struct ull__history *history = wild(i);
        struct ull__facts *facts = ull__facts_create(history);
        struct ull__figures *figures;
        char *text = NULL;
        size_t size = 0;
        json_error_t error;
        assert_int_equal(ull__figures_create(facts, ULL_ROLE_TRAINING, &figures, NULL), ULL_OK);
        struct report_input input = {.history = history, .facts = facts, .figures = figures};
        FILE *out = open_memstream(&text, &size);
        assert_int_equal(report_perfetto(&input, out, NULL), ULL_OK);
        fclose(out);
        json_t *trace = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, &error);
        if (!trace)
            fail_msg("%s at %d", error.text, error.position);
        assert_true(json_is_array(json_object_get(trace, "traceEvents")));
        json_decref(trace);
        free(text);
        ull__figures_destroy(figures);
        ull__facts_destroy(facts);
        ull__history_destroy(history);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_limits),
        cmocka_unit_test(no_room_at_all),
        cmocka_unit_test(usual_limits),
        cmocka_unit_test(traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
