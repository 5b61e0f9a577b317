/* test_order.c: an epoch's order has everybody once, and differs by seed and epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "order.h"

static void is_permutation(uint64_t n, uint64_t key)
{
    unsigned char *seen = calloc(n, 1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = ull__order(n, key, i);
        if (at >= n || seen[at])
            fail_msg("of %d, number %d goes to %d", (int)n, (int)i, (int)at);
        seen[at] = 1;
    }
    free(seen);
}

static void everybody_once(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++)
        for (uint64_t key = 0; key < 8; key++)
            is_permutation(n, ull__mix(key, n));
    static const uint64_t sizes[] = {1023, 1024, 1025, 4096, 4097, 60000, 65536, 65537, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        is_permutation(sizes[i], i);
}

static void large_ones_stay_inside(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_C(1) << 40, (UINT64_C(1) << 62) + 1, UINT64_MAX};
    for (size_t s = 0; s < 3; s++)
        for (uint64_t i = 0; i < 1000; i++)
            assert_true(ull__order(sizes[s], 3, sizes[s] - 1 - i) < sizes[s]);
}

/* How often each of few lands at each place: chi-square with generous bounds. */
static void nobody_has_a_place(void **state)
{
    (void)state;
    enum { N = 10, TRIES = 20000 };
    static int count[N][N];
    for (uint64_t key = 0; key < TRIES; key++)
        for (uint64_t i = 0; i < N; i++)
            count[i][ull__order(N, ull__mix(5, key), i)]++;
    double chi = 0, expected = (double)TRIES / N;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            chi += (count[i][j] - expected) * (count[i][j] - expected) / expected;
    if (chi > 150) /* 81 degrees of freedom: 150 is beyond one in 100,000 */
        fail_msg("chi-square %g", chi);
}

static void epochs_differ(void **state)
{
    (void)state;
    int same = 0, neighbours = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t a = ull__order(10000, ull__mix(1, 0), i), b = ull__order(10000, ull__mix(1, 1), i);
        same += a == b;
        neighbours += ull__order(10000, ull__mix(1, 0), (i + 1) % 10000) == a + 1;
    }
    assert_in_range(same, 0, 10);
    assert_in_range(neighbours, 0, 10);
}

static void draws_are_in_range(void **state)
{
    (void)state;
    struct ull__draws draws = {1};
    double sum = 0;
    int count[7] = {0};
    for (int i = 0; i < 70000; i++) {
        double unit = ull__draw_unit(&draws);
        assert_true(unit >= 0 && unit < 1);
        sum += unit;
        count[ull__draw_below(&draws, 7)]++;
    }
    assert_true(sum > 34500 && sum < 35500);
    for (int i = 0; i < 7; i++)
        assert_in_range(count[i], 9500, 10500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_once),     cmocka_unit_test(large_ones_stay_inside),
        cmocka_unit_test(nobody_has_a_place), cmocka_unit_test(epochs_differ),
        cmocka_unit_test(draws_are_in_range),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
