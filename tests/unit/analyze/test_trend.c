/* test_trend.c: the statistics, where the right answer is known from elsewhere, and false alarms by counting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "trend.h"

static uint64_t seed = 42;

static double unit(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static void near(double value, double want, double within)
{
    if (fabs(value - want) > within)
        fail_msg("%.6f is not %.6f", value, want);
}

/* By hand from the definitions; ties as in Gilbert's book, section 16.4. */
static void rank_test(void **state)
{
    (void)state;
    const double rising[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const double falling[] = {9, 8, 7, 6, 5};
    const double ties[] = {10, 22, 21, 30, 22, 30, 22, 40, 37, 40};
    /* S = 45, variance 125: z = 44 / 11.18 = 3.936 */
    near(ull__mann_kendall(rising, 10), 4.15e-5, 2e-6);
    near(ull__mann_kendall(falling, 5), 1, 0);
    /* S = 45 - 5 ties - 2 * 5 discordant ones; ties of 3, 2 and 2. */
    double s = 0;
    for (int i = 0; i < 10; i++) {
        for (int j = i + 1; j < 10; j++)
            s += ties[j] > ties[i] ? 1 : ties[j] < ties[i] ? -1 : 0;
    }
    double variance = (10 * 9 * 25 - 3 * 2 * 11 - 2 * (2 * 1 * 9)) / 18.0;
    near(ull__mann_kendall(ties, 10), 0.5 * erfc((s - 1) / sqrt(variance) / sqrt(2)), 1e-12);
    near(ull__theil_sen(rising, 10), 1, 0);
    /* One wild value moves it little. */
    const double wild[] = {1, 2, 3, 1000, 5, 6, 7};
    near(ull__theil_sen(wild, 7), 1, 0.01);
}

static enum ull__trend_kind kind_of(const double *marks, size_t count)
{
    struct ull__trend trend;
    assert_true(ull__trend_judge(marks, count, &trend));
    assert_true(trend.confidence >= 0 && trend.confidence <= 1);
    return trend.kind;
}

static void shapes(void **state)
{
    (void)state;
    double line[300], plateau[300], flat[300], lump[300], saw[300];
    for (int i = 0; i < 300; i++) {
        line[i] = 1000 + i;
        plateau[i] = 1000 + (i < 150 ? i : 150);
        flat[i] = 1000;
        lump[i] = i < 140 ? 1000 : 2000;
        saw[i] = 1000 + i % 20 * 100;
    }
    assert_int_equal(kind_of(line, 300), ULL_TREND_RISING);
    assert_int_equal(kind_of(plateau, 300), ULL_TREND_LEVELLED);
    assert_int_equal(kind_of(flat, 300), ULL_TREND_FLAT);
    assert_true(kind_of(lump, 300) == ULL_TREND_LEVELLED || kind_of(lump, 300) == ULL_TREND_UNSURE);
    assert_int_equal(kind_of(saw, 300), ULL_TREND_FLAT);
    assert_int_equal(kind_of(saw, 60), ULL_TREND_SHORT); /* three teeth */
    assert_int_equal(kind_of(line, 9), ULL_TREND_SHORT);
    assert_int_equal(kind_of(line, 10), ULL_TREND_RISING);
}

/* A rise far below the noise of single marks, but not below that of their lowest. */
static void rise_in_noise(void **state)
{
    (void)state;
    int found = 0;
    for (int round = 0; round < 50; round++) {
        double marks[2000];
        for (int i = 0; i < 2000; i++)
            marks[i] = 1e6 + 0.1 * i + 1000 * unit();
        found += kind_of(marks, 2000) == ULL_TREND_RISING;
    }
    assert_true(found >= 48);
}

/* Noise of several kinds: almost never a rise that goes on. */
static void false_alarms(void **state)
{
    (void)state;
    int alarms = 0, rounds = 0;
    for (int round = 0; round < 400; round++, rounds += 3) {
        double even[200], heavy[200], slow[200], level = 0;
        for (int i = 0; i < 200; i++) {
            even[i] = 1000 * unit();
            heavy[i] = 1000 / (0.001 + unit());
            level = 0.7 * level + 100 * (unit() - 0.5);
            slow[i] = 1e6 + level;
        }
        alarms += kind_of(even, 200) == ULL_TREND_RISING;
        alarms += kind_of(heavy, 200) == ULL_TREND_RISING;
        alarms += kind_of(slow, 200) == ULL_TREND_RISING;
    }
    if (alarms * 100 > rounds)
        fail_msg("%d false alarms in %d series", alarms, rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_test),
        cmocka_unit_test(shapes),
        cmocka_unit_test(rise_in_noise),
        cmocka_unit_test(false_alarms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
