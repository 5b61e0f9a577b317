/* test_message.c: messages as bytes and back, and bytes that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "message.h"

static struct ull__ipc_message full(void)
{
    struct ull__ipc_message message = {.kind = ULL_IPC_FAILED,
                                       .number = 0xfedcba98,
                                       .job = "0123456789abcde",
                                       .status = ULL_E_NO_MEMORY,
                                       .moved_bytes = UINT64_MAX,
                                       .to_move_bytes = 1,
                                       .nanoseconds = 1ull << 40,
                                       .daemon = 4321};
    memset(message.text, 'x', sizeof message.text - 1);
    return message;
}

static void there_and_back(void **state)
{
    struct ull__ipc_message message = full(), read;
    uint8_t bytes[ULL_IPC_MOST];
    ull_status status;
    (void)state;
    size_t size = ull__ipc_encode(&message, bytes);
    assert_true(size <= sizeof bytes);
    assert_int_equal(ull__ipc_size(bytes, size, &status), size);
    assert_int_equal(ull__ipc_decode(bytes, size, &read, NULL), ULL_OK);
    assert_int_equal(read.kind, message.kind);
    assert_true(read.number == message.number && read.status == message.status);
    assert_string_equal(read.job, message.job);
    assert_string_equal(read.text, message.text);
    assert_true(read.moved_bytes == message.moved_bytes && read.to_move_bytes == 1 &&
                read.nanoseconds == message.nanoseconds && read.daemon == message.daemon);
}

static void empty_fields_take_no_place(void **state)
{
    uint8_t bytes[ULL_IPC_MOST];
    (void)state;
    assert_int_equal(ull__ipc_encode(&(struct ull__ipc_message){.kind = ULL_IPC_PING}, bytes),
                     ULL_IPC_HEAD);
}

/* Of every beginning of a message it is said that more is needed, and never that it is whole. */
static void parts_are_waited_for(void **state)
{
    struct ull__ipc_message message = full(), read;
    uint8_t bytes[ULL_IPC_MOST];
    (void)state;
    size_t size = ull__ipc_encode(&message, bytes);
    for (size_t part = 0; part < size; part++) {
        ull_status status;
        assert_int_equal(ull__ipc_size(bytes, part, &status), 0);
        assert_int_equal(status, ULL_OK);
        assert_int_equal(ull__ipc_decode(bytes, part, &read, NULL), ULL_E_FORMAT);
    }
}

/* A field that this version does not know, in front of one that it does. */
static void later_fields_are_passed_over(void **state)
{
    uint8_t bytes[ULL_IPC_MOST] = {'U',         'L', ULL_IPC_VERSION,
                                   ULL_IPC_RUN, 7,   0,
                                   0,           0,   14,
                                   0,           0,   0,
                                   200,         0,   2,
                                   0,           9,   9,
                                   1,           0,   4,
                                   0,           'j', 'o',
                                   'b',         '1'};
    struct ull__ipc_message read;
    (void)state;
    assert_int_equal(ull__ipc_decode(bytes, ULL_IPC_HEAD + 14, &read, NULL), ULL_OK);
    assert_string_equal(read.job, "job1");
}

static void expect_bad(uint8_t *bytes, size_t at, uint8_t value, size_t size)
{
    struct ull__ipc_message read = {.kind = 99};
    uint8_t before = bytes[at];
    bytes[at] = value;
    assert_int_equal(ull__ipc_decode(bytes, size, &read, NULL), ULL_E_FORMAT);
    assert_int_equal(read.kind, 99); /* untouched */
    bytes[at] = before;
}

static void what_does_not_add_up_is_refused(void **state)
{
    struct ull__ipc_message message = {.kind = ULL_IPC_RUN, .job = "job1", .moved_bytes = 5};
    uint8_t bytes[ULL_IPC_MOST];
    ull_status status;
    (void)state;
    size_t size = ull__ipc_encode(&message, bytes);
    expect_bad(bytes, 0, 'X', size);
    expect_bad(bytes, 2, ULL_IPC_VERSION + 1, size);
    expect_bad(bytes, 8, (uint8_t)(size - ULL_IPC_HEAD - 1), size); /* the whole is shorter */
    expect_bad(bytes, ULL_IPC_HEAD + 2, 200, size);                 /* a field leads out of it */
    expect_bad(bytes, ULL_IPC_HEAD + 3, 255, size);
    expect_bad(bytes, ULL_IPC_HEAD + 5, 0, size);  /* a text with its end in the middle */
    expect_bad(bytes, ULL_IPC_HEAD + 10, 7, size); /* a number of another size */
    bytes[10] = 1;                                 /* 64 KiB and more */
    assert_int_equal(ull__ipc_size(bytes, ULL_IPC_HEAD, &status), 0);
    assert_int_equal(status, ULL_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(empty_fields_take_no_place),
        cmocka_unit_test(parts_are_waited_for),
        cmocka_unit_test(later_fields_are_passed_over),
        cmocka_unit_test(what_does_not_add_up_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
