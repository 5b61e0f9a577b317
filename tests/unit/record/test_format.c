/* test_format.c: every number and every event come back as they were written, and no bytes are read past the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format.h"

static const uint64_t edges[] = {0,
                                 1,
                                 63,
                                 64,
                                 127,
                                 128,
                                 511,
                                 512,
                                 1024,
                                 4096,
                                 (2 << 20) - 1,
                                 2 << 20,
                                 1ull << 32,
                                 (1ull << 55) - 1,
                                 1ull << 62,
                                 (1ull << 63) - 1,
                                 1ull << 63,
                                 (1ull << 63) + 512,
                                 UINT64_MAX - 511,
                                 UINT64_MAX};
enum { EDGES = sizeof edges / sizeof *edges };

static uint64_t random_state = 1;

static uint64_t any(void)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return random_state ^ random_state >> 29;
}

/* As zlib and everybody else computes it. */
static void checksum_of_the_world(void **state)
{
    (void)state;
    const char *text = "123456789";
    assert_int_equal(ull__crc(0, text, 9), 0xcbf43926u);
    char big[1000];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)any();
    for (size_t cut = 0; cut < sizeof big; cut += 13)
        assert_int_equal(ull__crc(ull__crc(0, big, cut), big + cut, sizeof big - cut),
                         ull__crc(0, big, sizeof big));
}

static void numbers_come_back(void **state)
{
    (void)state;
    uint8_t bytes[16];
    for (int i = 0; i < EDGES; i++) {
        uint8_t *end = ull__put_number(bytes, edges[i]);
        struct ull__cursor cursor = {.at = bytes, .end = end};
        assert_true(ull__get_number(&cursor) == edges[i]);
        assert_false(cursor.failed);
        assert_ptr_equal(cursor.at, end);
        end = ull__put_signed(bytes, (int64_t)edges[i]);
        cursor = (struct ull__cursor){.at = bytes, .end = end};
        assert_true(ull__get_signed(&cursor) == (int64_t)edges[i]);
        cursor = (struct ull__cursor){.at = bytes, .end = end - 1};
        ull__get_number(&cursor);
        assert_true(cursor.failed);
    }
    memset(bytes, 0xff, sizeof bytes); /* no number of 64 bits */
    struct ull__cursor cursor = {.at = bytes, .end = bytes + sizeof bytes};
    assert_int_equal(ull__get_number(&cursor), 0);
    assert_true(cursor.failed);
}

static void comes_back(const struct ull__event *events, size_t count)
{
    uint8_t *bytes = malloc(count * ULL_EVENT_MOST), *at = bytes;
    struct ull__deltas last = {.time_ns = events[0].time_ns};
    for (size_t i = 0; i < count; i++) {
        uint8_t *end = ull__put_event(at, &events[i], &last);
        assert_true(end - at <= ULL_EVENT_MOST);
        at = end;
    }
    struct ull__cursor cursor = {.at = bytes, .end = at};
    last = (struct ull__deltas){.time_ns = events[0].time_ns};
    for (size_t i = 0; i < count; i++) {
        struct ull__event got;
        assert_true(ull__get_event(&cursor, &got, &last));
        assert_memory_equal(&got, &events[i], sizeof got);
    }
    assert_ptr_equal(cursor.at, at);
    free(bytes);
}

static void events_come_back(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct ull__event *events = calloc(COUNT, sizeof *events);
    for (int i = 0; i < COUNT; i++) {
        struct ull__event *event = &events[i];
        /* Fields stay as before, are an edge, or anything. */
        if (i > 0 && any() % 2)
            *event = events[i - 1];
        event->kind = (uint8_t)(1 + any() % (ULL_EVENT_KINDS - 1));
        event->class = (uint8_t)(any() % ULL_CLASSES);
        event->time_ns = any() % 3 ? event->time_ns + any() % 100000 : edges[any() % EDGES];
        event->address = any() % 3 ? any() : edges[any() % EDGES];
        event->size = any() % 3 ? any() >> any() % 64 : edges[any() % EDGES];
        event->charged = any() % 3 == 0   ? (int64_t)event->size
                         : any() % 2 == 0 ? 0
                                          : (int64_t)edges[any() % EDGES];
        event->latency_ns = (uint32_t)(any() >> any() % 64);
        if (any() % 4 == 0) {
            event->stream = any();
            event->thread = (uint32_t)any();
            event->stack = (uint32_t)any();
            event->tag = (uint32_t)any();
            event->result = (int16_t)any();
            event->process = (uint16_t)any();
            event->device = (uint8_t)any();
            event->wait = (uint8_t)any();
        }
    }
    comes_back(events, COUNT);
    free(events);
}

/* What a training loop does: the aim is under 20 bytes an event. */
static void events_are_small(void **state)
{
    (void)state;
    uint8_t bytes[ULL_EVENT_MOST];
    struct ull__deltas last = {0};
    size_t sum = 0;
    uint64_t time = 0;
    for (int i = 0; i < 10000; i++) {
        time += any() % 200000;
        struct ull__event event = {.time_ns = time,
                                   .address = 0x7f0000000000ull + any() % (1ull << 36) / 512 * 512,
                                   .size = any() % (64u << 20),
                                   .charged = any() % 3 ? 0 : (int64_t)(any() % 32 << 21),
                                   .latency_ns = (uint32_t)(any() % 100000),
                                   .thread = 4711,
                                   .kind = any() % 2 ? ULL_EVENT_ALLOC : ULL_EVENT_FREE,
                                   .class = ULL_CLASS_DATA};
        sum += (size_t)(ull__put_event(bytes, &event, &last) - bytes);
    }
    assert_true(sum / 10000 < 20);
}

static void heads_come_back(void **state)
{
    (void)state;
    uint8_t bytes[ULL_BLOCK_HEAD], again[ULL_BLOCK_HEAD];
    struct ull__block_head got, head = {1, 2, 3, 4, 5, 1ull << 40, 7, 1ull << 63, 9, 10};
    ull__head_put(bytes, &head);
    assert_true(ull__head_get(bytes, &got));
    ull__head_put(again, &got);
    assert_memory_equal(again, bytes, sizeof bytes);
    assert_true(got.version == 1 && got.type == 2 && got.payload == 3 && got.check == 4);
    assert_true(got.pid == 5 && got.started == 1ull << 40 && got.sequence == 7);
    assert_true(got.base == 1ull << 63 && got.dropped == 9 && got.events == 10);
    for (int bit = 0; bit < ULL_BLOCK_HEAD * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(ull__head_get(bytes, &got));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* Whatever the bytes are, nothing is read outside of them (ASan looks). */
static void noise_is_survived(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t size = any() % 40;
        uint8_t *bytes = malloc(size + 1);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)(any() % 3 ? any() % 16 : any());
        struct ull__cursor cursor = {.at = bytes, .end = bytes + size};
        struct ull__deltas last = {0};
        struct ull__event event;
        while (cursor.at < cursor.end && ull__get_event(&cursor, &event, &last))
            assert_true(event.kind > 0 && event.kind < ULL_EVENT_KINDS);
        assert_true(cursor.at <= bytes + size);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum_of_the_world), cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(events_come_back),      cmocka_unit_test(events_are_small),
        cmocka_unit_test(heads_come_back),       cmocka_unit_test(noise_is_survived)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
