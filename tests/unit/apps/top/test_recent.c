/* test_recent.c: which way the last samples go, and the line that is drawn of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scene.h"

#define MIB (1ull << 20)

static enum trend_verdict verdict_of(uint64_t (*value)(int), int count)
{
    struct trend trend = {.count = 0};
    for (int i = 0; i < count; i++)
        trend_add(&trend, value(i));
    return trend_verdict(&trend);
}

static uint64_t flat(int i)
{
    (void)i;
    return 500 * MIB;
}
static uint64_t up(int i)
{
    return 500 * MIB + (uint64_t)i * MIB;
}
static uint64_t down(int i)
{
    return 500 * MIB - (uint64_t)i * MIB;
}
static uint64_t crawl(int i) /* 1 KiB a sample */
{
    return 500 * MIB + (uint64_t)i * 1024;
}
static uint64_t sawtooth(int i)
{
    return 200 * MIB + (uint64_t)(i % 7) * 100 * MIB;
}
static uint64_t rising_sawtooth(int i)
{
    return sawtooth(i) + (uint64_t)i * 2 * MIB;
}
static uint64_t warm_up(int i)
{
    return i < 15 ? (uint64_t)i * 100 * MIB : 1500 * MIB;
}
static uint64_t nothing(int i)
{
    (void)i;
    return 0;
}
static uint64_t freed(int i)
{
    return i < 50 ? 500 * MIB : 100 * MIB;
}

static void verdicts(void **state)
{
    (void)state;
    assert_int_equal(verdict_of(up, 0), TREND_TOO_SHORT);
    assert_int_equal(verdict_of(up, 9), TREND_TOO_SHORT);
    assert_int_equal(verdict_of(up, 12), TREND_GROWING);
    assert_int_equal(verdict_of(up, 500), TREND_GROWING);
    assert_int_equal(verdict_of(down, 60), TREND_SHRINKING);
    assert_int_equal(verdict_of(flat, 60), TREND_STEADY);
    assert_int_equal(verdict_of(crawl, 60), TREND_GROWING); /* no number of bytes is too small */
    assert_int_equal(verdict_of(nothing, 60), TREND_STEADY);
    assert_int_equal(verdict_of(sawtooth, 60), TREND_STEADY);
    assert_int_equal(verdict_of(sawtooth, 64), TREND_STEADY);
    assert_int_equal(verdict_of(rising_sawtooth, 60), TREND_GROWING);
    assert_int_equal(verdict_of(warm_up, 60), TREND_CACHE);   /* it has what it needs */
    assert_int_equal(verdict_of(freed, 60), TREND_TOO_SHORT); /* once up or down tells nothing */
    assert_string_equal(trend_verdict_name(TREND_GROWING), "growing");
}

static void the_oldest_go(void **state)
{
    (void)state;
    struct trend trend = {.count = 0};
    scene_course(&trend, 0, 1, 100);
    assert_int_equal(trend.count, TREND_POINTS);
    assert_int_equal(trend.values[0], 40);
    assert_int_equal(trend.values[TREND_POINTS - 1], 99);
    assert_int_equal(trend.seen, 100);
}

static void lines(void **state)
{
    (void)state;
    struct trend trend = {.count = 0};
    unsigned char heights[TREND_POINTS + 1];
    memset(heights, 99, sizeof heights);
    trend_line(&trend, 6, heights);
    for (int i = 0; i < 6; i++)
        assert_int_equal(heights[i], 0);
    assert_int_equal(heights[6], 99);
    scene_course(&trend, MIB, MIB, 60);
    trend_line(&trend, 6, heights); /* ten samples a column */
    const unsigned char stairs[] = {1, 2, 3, 5, 6, 8};
    assert_memory_equal(heights, stairs, sizeof stairs);
    trend_line(&trend, 60, heights);
    assert_int_equal(heights[0], 1);
    assert_int_equal(heights[59], TREND_LEVELS);
    /* A value stays in its column until the line moves: nine more samples start one new column. */
    struct trend flat_then = {.count = 0};
    scene_course(&flat_then, 100 * MIB, 0, 30);
    trend_line(&flat_then, 6, heights);
    const unsigned char half[] = {0, 0, 0, 4, 4, 4};
    assert_memory_equal(heights, half, sizeof half);
    trend_line(&flat_then, 0, heights);
    trend_line(&flat_then, 1, heights);
    assert_int_equal(heights[0], 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(verdicts), cmocka_unit_test(the_oldest_go),
                                       cmocka_unit_test(lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
