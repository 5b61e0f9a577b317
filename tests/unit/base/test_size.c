/* test_size.c: sizes from text and to text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "size.h"

static void reads_all_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1", 1},
        {"1B", 1},
        {"512Ki", 512 << 10},
        {"4K", 4096},
        {"4KB", 4000},
        {"4096M", 4ull << 30},
        {"4GiB", 4ull << 30},
        {"4G", 4ull << 30},
        {"4Gi", 4ull << 30},
        {"4GB", 4000000000ull},
        {"1.5GiB", 3ull << 29},
        {"0.1GiB", 107374182},
        {"4.1GiB", 4402341478ull},
        {"2T", 2ull << 40},
        {"1.5", 1},
        {"7.9429496729699999TiB", 8733365524270},
        {"9223372036854775807", INT64_MAX},
        {"0.00000000000000000000001T", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        ull_status status = ull__size_parse(cases[i].text, &bytes, NULL);
        assert_int_equal(status, cases[i].bytes ? ULL_OK : ULL_E_INVALID);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void refuses_all_else(void **state)
{
    static const char *const bad[] = {"",
                                      "10XB",
                                      "-1",
                                      "0",
                                      "0GiB",
                                      " 4G",
                                      "4 GiB",
                                      "4G ",
                                      "GiB",
                                      "4g",
                                      "4gib",
                                      "1e9",
                                      "+4G",
                                      ".5G",
                                      "5.G",
                                      "0x10",
                                      "1.2.3G",
                                      "4GiBB",
                                      "40%",
                                      "8388608T",
                                      "9223372036854775808",
                                      "18446744073709551616",
                                      "99999999999999999999999999G"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ull_error err = {""};
        uint64_t bytes = 77;
        assert_int_equal(ull__size_parse(bad[i], &bytes, &err), ULL_E_INVALID);
        assert_int_equal(bytes, 77);
        assert_non_null(strstr(err.message, bad[i]));
        assert_non_null(strstr(err.message, "expected"));
    }
}

static void reads_shares(void **state)
{
    struct ull_size size;
    (void)state;
    assert_int_equal(ull__size_or_share_parse("40%", &size, NULL), ULL_OK);
    assert_true(size.percent > 39.999 && size.percent < 40.001);
    assert_int_equal(size.bytes, 0);
    assert_int_equal(ull__size_or_share_parse("12.5%", &size, NULL), ULL_OK);
    assert_true(size.percent > 12.499 && size.percent < 12.501);
    assert_int_equal(ull__size_or_share_parse("100%", &size, NULL), ULL_OK);
    assert_int_equal(ull__size_or_share_parse("4GiB", &size, NULL), ULL_OK);
    assert_true(size.percent == 0 && size.bytes == 4ull << 30);
    static const char *const bad[] = {"400%", "100.1%", "0%",   "-5%", "%",
                                      "4G%",  "40 %",   "40%%", "1e1%"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ull_error err = {""};
        assert_int_equal(ull__size_or_share_parse(bad[i], &size, &err), ULL_E_INVALID);
        assert_non_null(strstr(err.message, bad[i]));
    }
}

static void writes_one_digit(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {512, "512 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {2ull << 20, "2.0 MiB"},
        {3650722201ull, "3.4 GiB"},
        {(1ull << 30) - 1, "1.0 GiB"},
        {1023ull << 20, "1023.0 MiB"},
        {INT64_MAX, "8.0 EiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char buffer[ULL_SIZE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ull__size_text(cases[i].bytes, buffer), cases[i].text);
}

/* What is written is enough if it is read back as a limit. */
static void rounds_up_what_is_needed(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {1023, "1023 B"},         {1024, "1.0 KiB"},
        {1025, "1.1 KiB"},        {4104650752ull, "3.9 GiB"}, /* 3.8 to nearest */
        {4ull << 30, "4.0 GiB"},  {(1023ull << 20) + (1023 << 10), "1.0 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char buffer[ULL_SIZE_TEXT];
    struct ull_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ull_size size;
        char typed[ULL_SIZE_TEXT] = "";
        assert_string_equal(ull__size_text_up(cases[i].bytes, buffer), cases[i].text);
        if (cases[i].bytes == UINT64_MAX)
            continue;
        sscanf(buffer, "%8s", typed);
        strcat(typed, strchr(buffer, ' ') + 1);
        assert_int_equal(ull__size_or_share_parse(typed, &size, &err), ULL_OK);
        assert_true(size.bytes >= cases[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_units),
        cmocka_unit_test(refuses_all_else),
        cmocka_unit_test(reads_shares),
        cmocka_unit_test(writes_one_digit),
        cmocka_unit_test(rounds_up_what_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
