/* test_load.c: several writers' numbers become one history's, and processes begin and end where they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "load.h"
#include "writer.h"

static char path[] = "/tmp/ullage-test-load-XXXXXX";
static char id[ULL_RECORD_ID];

static struct ull__writer *open_writer(void)
{
    struct ull__writer *writer;
    struct ull_error err;
    if (ull__writer_open(path, id, &writer, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return writer;
}

static struct ull__history *load(void)
{
    struct ull__history *history = NULL;
    struct ull_error err = {""};
    if (ull__history_load(path, &history, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return history;
}

static int fresh(void **state)
{
    (void)state;
    unlink(path);
    return ull__record_create(path, id, NULL) == ULL_OK ? 0 : -1;
}

static void device(struct ull__writer *writer, const char *uuid, uint64_t budget)
{
    ull__writer_device(
        writer,
        &(struct ull__record_device){
            .uuid = uuid, .name = "Card", .logical = 0, .physical = -1, .budget_bytes = budget});
}

static void process(struct ull__writer *writer, uint32_t number, uint32_t pid, uint64_t ticks,
                    uint64_t begin_ns, const char *name)
{
    ull__writer_process(
        writer, number,
        &(struct ull__record_process){
            .pid = pid, .parent = 1, .start_ticks = ticks, .begin_ns = begin_ns, .name = name});
}

static void event(struct ull__writer *writer, int kind, uint64_t time_ns, uint16_t of, uint8_t on,
                  uint64_t size, const char *tag)
{
    struct ull__event what = {.time_ns = time_ns,
                              .size = size,
                              .kind = (uint8_t)kind,
                              .device = on,
                              .process = of,
                              .tag = ull__writer_text(writer, tag)};
    ull__writer_event(writer, &what);
}

static const struct ull__event *find(const struct ull__history *history, int kind, uint16_t of)
{
    for (size_t i = 0; i < history->event_count; i++)
        if (history->events[i].kind == kind && history->events[i].process == of)
            return &history->events[i];
    return NULL;
}

/* A supervisor and two guests, whose numbers all mean something else. */
static void numbers_are_put_together(void **state)
{
    (void)state;
    uint64_t now = ull__record_now();
    struct ull__writer *run = open_writer(), *one = open_writer(), *two = open_writer();
    ull__writer_job(run, "training", "python train.py", "0.1");
    device(run, "GPU-a", 7);
    device(run, "GPU-b", 8);
    process(run, 1, 100, 5, now + 10, "sh");
    ull__writer_flush(run, 0);
    device(two, "GPU-b", 99);
    process(two, 0, 101, 6, now + 30, "python");
    event(two, ULL_EVENT_CHUNK_ALLOC, now + 50, 0, 0, 512, "weights");
    ull__writer_flush(two, 4);
    device(one, "GPU-b", 98);
    device(one, "GPU-a", 97);
    process(one, 0, 100, 5, now + 20, "python");
    event(one, ULL_EVENT_ALLOC, now + 40, 0, 1, 4096, "activations");
    ull__writer_close(one);
    process(run, 2, 101, 6, now + 35, "python");
    event(run, ULL_EVENT_HOST, now + 60, 1, ULL_EVENT_NO_DEVICE, 1000, NULL);
    event(run, ULL_EVENT_HOST, now + 61, 2, ULL_EVENT_NO_DEVICE, 2000, NULL);
    ull__writer_close(run);
    ull__writer_close(two);

    struct ull__history *history = load();
    assert_string_equal(ull__history_string(history, history->job), "training");
    assert_string_equal(ull__history_string(history, history->command), "python train.py");
    assert_true(history->unix_ns > 1500000000000000000ull);
    assert_int_equal(history->device_count, 2);
    assert_int_equal(history->devices[0].budget_bytes, 7);
    assert_int_equal(history->devices[1].budget_bytes, 8);
    assert_int_equal(history->devices[1].physical, -1);
    assert_int_equal(history->process_count, 2);
    assert_int_equal(history->processes[0].pid, 100);
    assert_string_equal(ull__history_string(history, history->processes[0].name), "python");
    assert_int_equal(history->processes[1].pid, 101);
    assert_int_equal(history->processes[1].dropped, 4);
    assert_int_equal(history->dropped, 4);
    const struct ull__event *alloc = find(history, ULL_EVENT_ALLOC, 0);
    assert_int_equal(alloc->device, 0);
    assert_string_equal(ull__history_string(history, alloc->tag), "activations");
    assert_int_equal(find(history, ULL_EVENT_CHUNK_ALLOC, 1)->device, 1);
    assert_int_equal(find(history, ULL_EVENT_HOST, 0)->size, 1000);
    assert_int_equal(find(history, ULL_EVENT_HOST, 1)->size, 2000);
    for (size_t i = 1; i < history->event_count; i++)
        assert_true(history->events[i - 1].time_ns <= history->events[i].time_ns);
    assert_false(history->over);
    assert_false(history->processes[0].ended);
    ull__history_destroy(history);
}

/* sh starts, executes python (with CUDA), which executes another with CUDA. Two processes for two writers. */
static void an_exec_is_a_new_process(void **state)
{
    (void)state;
    uint64_t now = ull__record_now();
    struct ull__writer *run = open_writer();
    ull__writer_job(run, "j", "c", "v");
    process(run, 1, 100, 5, now + 10, "sh");
    ull__writer_flush(run, 0);
    struct ull__writer *first = open_writer();
    process(first, 0, 100, 5, now + 20, "python");
    event(first, ULL_EVENT_ALLOC, now + 30, 0, ULL_EVENT_NO_DEVICE, 1, NULL);
    ull__writer_close(first);
    usleep(10); /* writers are told apart by when they began */
    struct ull__writer *second = open_writer();
    process(second, 0, 100, 5, now + 1000, "next");
    event(second, ULL_EVENT_ALLOC, now + 1100, 0, ULL_EVENT_NO_DEVICE, 2, NULL);
    ull__writer_close(second);
    event(run, ULL_EVENT_HOST, now + 1200, 1, ULL_EVENT_NO_DEVICE, 77, NULL);
    struct ull__event end = {.time_ns = now + 2000,
                             .kind = ULL_EVENT_END,
                             .process = 1,
                             .result = 3,
                             .device = ULL_EVENT_NO_DEVICE};
    ull__writer_event(run, &end);
    ull__writer_over(run, now + 2100, 3);
    ull__writer_close(run);
    struct ull__history *history = load();
    assert_int_equal(history->process_count, 2);
    assert_true(history->processes[0].ended && history->processes[1].ended);
    assert_int_equal(history->processes[0].exit_code, -1);
    assert_int_equal(history->processes[1].exit_code, 3);
    assert_int_equal(history->processes[0].end_ns, history->processes[1].begin_ns);
    assert_true(history->over);
    assert_int_equal(find(history, ULL_EVENT_HOST, 1)->size, 77);
    assert_null(find(history, ULL_EVENT_HOST, 0));
    assert_int_equal(find(history, ULL_EVENT_END, 1)->result, 3);
    assert_int_equal(find(history, ULL_EVENT_END, 0)->time_ns, history->processes[0].end_ns);
    assert_int_equal(find(history, ULL_EVENT_START, 0)->time_ns, history->processes[0].begin_ns);
    ull__history_destroy(history);
}

/* A process says itself when it ends, and its supervisor a little later with which code. */
static void one_end_a_process(void **state)
{
    (void)state;
    uint64_t now = ull__record_now();
    struct ull__writer *run = open_writer(), *guest = open_writer();
    struct ull__event end = {
        .kind = ULL_EVENT_END, .device = ULL_EVENT_NO_DEVICE, .result = -1, .time_ns = now + 500};
    ull__writer_job(run, "j", "c", "v");
    process(run, 1, 100, 5, now, "a");
    process(guest, 0, 100, 5, now, "a");
    ull__writer_event(guest, &end);
    ull__writer_close(guest);
    end.process = 1;
    end.time_ns = now + 900;
    end.result = 137;
    ull__writer_event(run, &end);
    ull__writer_close(run);
    struct ull__history *history = load();
    uint64_t begin = history->processes[0].begin_ns;
    assert_int_equal(history->event_count, 2);
    assert_int_equal(history->events[1].kind, ULL_EVENT_END);
    assert_int_equal(history->processes[0].exit_code, 137);
    assert_true(history->processes[0].end_ns - begin <= 500);
    ull__history_destroy(history);
}

/* More processes than a history has numbers for are left out and counted, not an error. */
static void too_many_processes(void **state)
{
    (void)state;
    uint64_t now = ull__record_now();
    struct ull__writer *run = open_writer();
    for (uint32_t i = 0; i < 66000; i++) {
        process(run, 1, i + 1, i, now, "short");
        event(run, ULL_EVENT_HOST, now, 1, ULL_EVENT_NO_DEVICE, i, NULL);
    }
    ull__writer_close(run);
    struct ull__history *history = load();
    assert_int_equal(history->process_count, 65535);
    assert_int_equal(history->dropped, 66000 - 65535);
    ull__history_destroy(history);
}

static ull_status loads(struct ull_error *err)
{
    struct ull__history *history = NULL;
    ull_status status = ull__history_load(path, &history, err);
    if (status == ULL_OK)
        ull__history_destroy(history);
    return status;
}

/* Right checksums around numbers that nobody defined. */
static void wrong_numbers(void **state)
{
    struct ull_error err;
    for (int what = 0; what < 5; what++) {
        assert_int_equal(fresh(state), 0);
        struct ull__writer *writer = open_writer();
        if (what > 0)
            process(writer, 0, 1, 1, 1, "a");
        ull__writer_event(writer, &(struct ull__event){
                                      .kind = ULL_EVENT_ALLOC,
                                      .device = what == 1 ? 0 : ULL_EVENT_NO_DEVICE,
                                      .process = what == 2 ? 1 : 0,
                                      .stack = what == 3 ? 1 : 0,
                                      .tag = what == 4 ? 2 : 0,
                                  });
        ull__writer_close(writer);
        assert_int_equal(loads(&err), ULL_E_FORMAT);
        assert_non_null(strstr(err.message, "offset 0"));
    }
}

/* Bytes changed at random, with the checks made right again: any answer, but no crash. */
static void fuzzed(void **state)
{
    static uint8_t data[1 << 16], other[1 << 16];
    struct ull_error err;
    numbers_are_put_together(state);
    FILE *file = fopen(path, "r");
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    srand(7);
    for (int round = 0; round < 3000; round++) {
        struct ull__block_head head;
        memcpy(other, data, size);
        for (int i = rand() % 4; i >= 0; i--)
            other[(size_t)rand() % size] = (uint8_t)(rand() % 3 ? rand() % 8 : rand());
        for (size_t at = 0; at + ULL_BLOCK_HEAD <= size; at++) {
            if (!ull__head_get(data + at, &head) || at + ULL_BLOCK_HEAD + head.payload > size)
                continue;
            head.check = ull__crc(0, other + at + ULL_BLOCK_HEAD, head.payload);
            ull__head_put(other + at, &head);
        }
        file = fopen(path, "w");
        fwrite(other, 1, size, file);
        fclose(file);
        loads(&err);
    }
}

int main(void)
{
    close(mkstemp(path));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(numbers_are_put_together, fresh),
        cmocka_unit_test_setup(an_exec_is_a_new_process, fresh),
        cmocka_unit_test_setup(one_end_a_process, fresh),
        cmocka_unit_test_setup(too_many_processes, fresh),
        cmocka_unit_test_setup(wrong_numbers, fresh),
        cmocka_unit_test_setup(fuzzed, fresh),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
