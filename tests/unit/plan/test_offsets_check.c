/* test_offsets_check.c: the checker of plans. A plan that is right passes; with any one thing wrong it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "offsets.h"

/* Three layers that leave no room: 0 under 1 under 2 in [0, 4), 3 beside 0 and 1, later. */
static const struct ull__buffer full[] = {
    {.size = 10, .lower = 0, .upper = 4},
    {.size = 20, .lower = 0, .upper = 4},
    {.size = 30, .lower = 0, .upper = 8},
    {.size = 30, .lower = 4, .upper = 8, .alignment = 0},
};
enum { FULL = sizeof full / sizeof *full };
static const uint64_t right[FULL] = {0, 10, 30, 0};

static ull_status check(const struct ull__buffer *buffers, size_t count, uint64_t capacity,
                        const uint64_t *offsets, struct ull_error *err, uint64_t *height)
{
    struct ull__offsets_problem problem = {.buffers = buffers, .count = count, .capacity = capacity};
    return ull__offsets_check(&problem, offsets, err, height);
}

static void faulty(const struct ull__buffer *buffers, size_t count, uint64_t capacity,
                   const uint64_t *offsets, const char *word)
{
    struct ull_error err = {.message = ""};
    uint64_t height = 77;
    assert_int_equal(check(buffers, count, capacity, offsets, &err, &height), ULL_E_INVALID);
    assert_int_equal(height, 77);
    if (!strstr(err.message, word))
        fail_msg("'%s' does not say '%s'", err.message, word);
}

static void passes(void **state)
{
    (void)state;
    uint64_t height = 0;
    assert_int_equal(check(full, FULL, 60, right, NULL, &height), ULL_OK);
    assert_int_equal(height, 60);
    assert_int_equal(check(full, FULL, ULL__OFFSETS_LOWEST, right, NULL, &height), ULL_OK);
    assert_int_equal(check(full, 0, 0, right, NULL, &height), ULL_OK);
    assert_int_equal(height, 0);
}

/* Every offset, moved to every other place, is a fault: there is no room in the plan. */
static void one_offset_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < FULL; i++) {
        for (uint64_t offset = 0; offset <= 70; offset++) {
            uint64_t offsets[FULL];
            memcpy(offsets, right, sizeof right);
            offsets[i] = offset;
            if (offset != right[i])
                faulty(full, FULL, 60, offsets, "buffer");
        }
    }
}

static void one_rule_broken(void **state)
{
    (void)state;
    struct ull__buffer buffers[FULL];
    uint64_t offsets[FULL];
    faulty(full, FULL, 59, right, "above the capacity");
    memcpy(offsets, right, sizeof right);
    offsets[2] = UINT64_MAX - 5;
    faulty(full, FULL, ULL__OFFSETS_LOWEST, offsets, "buffer 2");
    memcpy(buffers, full, sizeof full);
    buffers[1].alignment = 4;
    faulty(buffers, FULL, 60, right, "expected a multiple of 4");
    memcpy(buffers, full, sizeof full);
    buffers[3].pinned = true;
    buffers[3].offset = 30;
    faulty(buffers, FULL, 60, right, "pinned");
    memcpy(buffers, full, sizeof full);
    buffers[1].upper = 5;
    faulty(buffers, FULL, 60, right, "buffers 1 and 3 overlap");
}

static bool all_conflict(const void *context, size_t left, size_t right_one)
{
    (void)context;
    return left != right_one;
}

static bool none_conflict(const void *context, size_t left, size_t right_one)
{
    (void)context;
    (void)left;
    (void)right_one;
    return false;
}

/* The predicate alone decides where there is one. */
static void predicate(void **state)
{
    (void)state;
    const uint64_t zeros[FULL] = {0};
    uint64_t height = 0;
    struct ull__offsets_problem problem = {full, FULL, 60, all_conflict, NULL};
    assert_int_equal(ull__offsets_check(&problem, right, NULL, &height), ULL_E_INVALID);
    problem.conflict = none_conflict;
    assert_int_equal(ull__offsets_check(&problem, zeros, NULL, &height), ULL_OK);
    assert_int_equal(height, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes),
        cmocka_unit_test(one_offset_wrong),
        cmocka_unit_test(one_rule_broken),
        cmocka_unit_test(predicate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
