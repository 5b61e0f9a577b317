/* test_dim.c: expressions of sizes: equal ones are one, and their values are those of plain arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dim.h"

static void equal_expressions_are_one(void **state)
{
    struct ull__dims *dims = ull__dims_create();
    ull__dim b = ull__dim_symbol(dims, "batch"), t = ull__dim_symbol(dims, "time");
    (void)state;
    assert_true(ull__dim_symbol(dims, "batch") == b);
    ull__dim left = ull__dim_mul(dims, ull__dim_add(dims, b, 1), ull__dim_add(dims, t, 2));
    ull__dim right =
        ull__dim_add(dims, ull__dim_add(dims, ull__dim_mul(dims, b, t), ull__dim_mul(dims, 2, b)),
                     ull__dim_add(dims, t, 2));
    assert_true(left == right);
    assert_true(ull__dim_sub(dims, left, right) == 0);
    /* A product divides by its factors, in any order. */
    ull__dim product = ull__dim_mul(dims, ull__dim_mul(dims, b, t), 768);
    assert_true(ull__dim_div(dims, product, t) == ull__dim_mul(dims, b, 768));
    assert_true(ull__dim_div(dims, product, 64) == ull__dim_mul(dims, ull__dim_mul(dims, t, b), 12));
    assert_true(ull__dim_div(dims, product, product) == 1);
    assert_true(ull__dim_div(dims, left, ull__dim_add(dims, b, 1)) == ull__dim_add(dims, t, 2));
    /* What does not divide is an unknown, but the same one each time. */
    assert_true(ull__dim_div(dims, b, 2) == ull__dim_div(dims, b, 2));
    assert_false(ull__dim_is_const(ull__dim_div(dims, b, 2)));
    ull__dims_destroy(dims);
}

static void texts_are_readable(void **state)
{
    struct ull__dims *dims = ull__dims_create();
    ull__dim b = ull__dim_symbol(dims, "batch"), t = ull__dim_symbol(dims, "time");
    char text[128];
    (void)state;
    assert_string_equal(ull__dim_text(dims, 7, text, sizeof(text)), "7");
    assert_string_equal(ull__dim_text(dims, b, text, sizeof(text)), "batch");
    assert_string_equal(
        ull__dim_text(dims, ull__dim_sub(dims, ull__dim_mul(dims, ull__dim_mul(dims, 2, b), t), 1),
                      text, sizeof(text)),
        "2*batch*time - 1");
    assert_string_equal(
        ull__dim_text(dims, ull__dim_div(dims, ull__dim_add(dims, b, 1), 2), text, sizeof(text)),
        "floor((batch + 1)/2)");
    assert_string_equal(ull__dim_text(dims, b, text, 4), "bat");
    ull__dims_destroy(dims);
}

static void what_cannot_be_is_bad(void **state)
{
    struct ull__dims *dims = ull__dims_create();
    ull__dim b = ull__dim_symbol(dims, "batch");
    (void)state;
    assert_true(ull__dim_mul(dims, ULL_DIM_MOST, 2) == ULL_DIM_BAD);
    assert_true(ull__dim_add(dims, ULL_DIM_MOST, 1) == ULL_DIM_BAD);
    assert_true(ull__dim_div(dims, b, 0) == ULL_DIM_BAD);
    assert_true(ull__dim_add(dims, ULL_DIM_BAD, 1) == ULL_DIM_BAD);
    assert_true(ull__dim_mul(dims, b, ULL_DIM_BAD) == ULL_DIM_BAD);
    ull__dim squared = ull__dim_mul(dims, b, b);
    int64_t large[1] = {INT64_C(1) << 40};
    assert_true(ull__dim_value(dims, squared, large) == ULL_DIM_BAD);
    ull__dim none = ull__dim_div(dims, 5, ull__dim_sub(dims, b, 1));
    int64_t one[1] = {1};
    assert_true(ull__dim_value(dims, none, one) == ULL_DIM_BAD);
    assert_true(ull__dim_value(dims, b, NULL) == ULL_DIM_BAD);
    for (int i = 1; i < ULL_SYMBOLS; ++i) {
        char name[8];
        snprintf(name, sizeof(name), "s%d", i);
        assert_true(ull__dim_symbol(dims, name) != ULL_DIM_BAD);
    }
    assert_true(ull__dim_symbol(dims, "one too many") == ULL_DIM_BAD);
    ull__dims_destroy(dims);
}

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}

/* Random expressions beside the same arithmetic on numbers. */
static void values_are_those_of_arithmetic(void **state)
{
    (void)state;
    for (int turn = 0; turn < 2000; ++turn) {
        seed = (uint64_t)turn + 1;
        struct ull__dims *dims = ull__dims_create();
        int64_t values[3] = {(int64_t)draw(50) + 1, (int64_t)draw(9) + 1, (int64_t)draw(300) + 1};
        ull__dim of[40];
        int64_t is[40];
        int count = 0;
        static const char *const names[] = {"a", "b", "c"};
        for (int i = 0; i < 3; ++i) {
            of[count] = ull__dim_symbol(dims, names[i]);
            is[count++] = values[i];
        }
        of[count] = 3;
        is[count++] = 3;
        while (count < 40) {
            int i = (int)draw((uint64_t)count), j = (int)draw((uint64_t)count);
            switch (draw(5)) {
            case 0:
                of[count] = ull__dim_add(dims, of[i], of[j]);
                is[count] = is[i] + is[j];
                break;
            case 1:
                of[count] = ull__dim_sub(dims, of[i], of[j]);
                is[count] = is[i] - is[j];
                break;
            case 2:
                of[count] = ull__dim_mul(dims, of[i], of[j]);
                is[count] = is[i] * is[j];
                break;
            case 3:
                of[count] = is[j] != 0 ? ull__dim_div(dims, of[i], of[j]) : 1;
                is[count] = is[j] != 0 ? floor_div(is[i], is[j]) : 1;
                break;
            default:
                of[count] = ull__dim_max(dims, of[i], of[j]);
                is[count] = is[i] > is[j] ? is[i] : is[j];
                break;
            }
            if (of[count] == ULL_DIM_BAD || is[count] > 1000000 || is[count] < -1000000) {
                of[count] = 2;
                is[count] = 2;
            }
            assert_true(ull__dim_value(dims, of[count], values) == is[count]);
            count += 1;
        }
        struct ull__dims *copy = ull__dims_copy(dims);
        for (int i = 0; i < count; ++i) {
            assert_true(ull__dim_value(copy, of[i], values) == is[i]);
        }
        ull__dims_destroy(copy);
        ull__dims_destroy(dims);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_expressions_are_one),
        cmocka_unit_test(texts_are_readable),
        cmocka_unit_test(what_cannot_be_is_bad),
        cmocka_unit_test(values_are_those_of_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
