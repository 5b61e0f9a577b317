/* test_suggest.c: what to ask for next time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "size.h"
#include "suggest.h"

#define GIB (1ull << 30)

static void suggests_a_fifth_more(void **state)
{
    static const struct {
        uint64_t peak;
        uint64_t total;
        const char *text;
    } cases[] = {
        {34 * GIB / 10, 16 * GIB, "4.1GiB"}, /* x 1.2 */
        {GIB, 16 * GIB, "1.5GiB"},           /* + 0.5 GiB */
        {1, 16 * GIB, "0.6GiB"},
        {15 * GIB, 16 * GIB, "16.0GiB"}, /* never above the card */
        {14 * GIB, 15 * GIB + 12345, "15.0GiB"},
        {15 * GIB + 1, 15 * GIB + 12345, "100%"},
        {50ull << 20, 60ull << 20, "100%"},
        {40 * GIB, 0, "48.0GiB"},
    };
    char text[ULL_SUGGEST_TEXT];
    (void)state;
    assert_int_equal(ull__suggest(0, GIB, ULL_ROLE_TRAINING), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = ull__suggest(cases[i].peak, cases[i].total, ULL_ROLE_TRAINING);
        assert_string_equal(ull__suggest_text(bytes, text), cases[i].text);
        assert_true(bytes >= cases[i].peak);
        assert_true(cases[i].total == 0 || bytes <= cases[i].total);
    }
}

/* The text given to -m must mean the bytes that the report says. */
static void text_and_bytes_agree(void **state)
{
    char text[ULL_SUGGEST_TEXT];
    (void)state;
    for (uint64_t peak = 1; peak < 200 * GIB; peak += 123456789) {
        uint64_t bytes = ull__suggest(peak, 0, ULL_ROLE_TRAINING), read;
        assert_int_equal(ull__size_parse(ull__suggest_text(bytes, text), &read, NULL), ULL_OK);
        assert_int_equal(read, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suggests_a_fifth_more),
        cmocka_unit_test(text_and_bytes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
