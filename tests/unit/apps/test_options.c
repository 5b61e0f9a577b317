/* test_options.c: options of `ullage run`, and who is said to have set them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "run_options.h"

enum { WORDS = 16 };

static int parse(struct run_options *options, char *argv[])
{
    int argc = 0;
    while (argv[argc])
        argc++;
    return run_options_parse(argc, argv, options);
}

#define ARGV(...) ((char *[WORDS]){"run", __VA_ARGS__})

static int clean(void **state)
{
    (void)state;
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    unsetenv("ULLAGE_MEMORY");
    unsetenv("ULLAGE_GROWTH");
    unsetenv("ULLAGE_REPORT");
    unsetenv("ULLAGE_LOG");
    return 0;
}

static void reads_options_up_to_the_command(void **state)
{
    static struct run_options options;
    char text[256];
    (void)state;
    assert_int_equal(parse(&options, ARGV("-m", "4GiB", "-g0,1", "--growth", "--each", "-q",
                                          "--max-request=1GiB", "--name", "x", "cmd", "-m", "9")),
                     0);
    assert_true(options.growth && options.each && options.quiet && options.budget_from_call);
    assert_int_equal(options.max_request, 1 << 30);
    assert_int_equal(options.budget.count, 1);
    assert_string_equal(options.gpus, "0,1");
    assert_string_equal(options.command[0], "cmd");
    assert_string_equal(options.command[1], "-m");
    run_options_describe(&options, text, sizeof text);
    assert_non_null(strstr(text, "memory=4GiB (-m on the command line); growth=true (--growth on"));
    assert_non_null(strstr(text, "gpus=0,1 (-g on the command line)"));
}

static void the_environment_is_below_the_call(void **state)
{
    static struct run_options options;
    char text[256];
    (void)state;
    setenv("ULLAGE_MEMORY", "25%", 1);
    setenv("ULLAGE_GROWTH", "1", 1);
    assert_int_equal(parse(&options, ARGV("--", "cmd")), 0);
    run_options_describe(&options, text, sizeof text);
    assert_string_equal(text, "memory=25% (ULLAGE_MEMORY in the environment); "
                              "growth=1 (ULLAGE_GROWTH in the environment)");
    assert_true(options.growth && !options.budget_from_call);
    assert_int_equal(parse(&options, ARGV("-m", "2G", "cmd")), 0);
    assert_true(options.budget.rules[0].size.bytes == 2ull << 30);
    run_options_describe(&options, text, 20); /* cut, not overrun */
    assert_int_equal(strlen(text), 19);
}

static void host_memory_for_moves(void **state)
{
    static struct run_options options;
    char text[256];
    (void)state;
    assert_int_equal(parse(&options, ARGV("-m", "1G", "--suspendable", "--pinned", "3GiB", "cmd")),
                     0);
    assert_true(options.pinned == 3ull << 30 && !options.never_pins && options.suspendable);
    run_options_describe(&options, text, sizeof text);
    assert_non_null(strstr(text, "pinned=3.0 GiB (--pinned on the command line)"));
    assert_int_equal(parse(&options, ARGV("-m", "1G", "--suspendable", "--pinned=none", "cmd")), 0);
    assert_true(options.pinned == 0 && options.never_pins);
    assert_int_equal(parse(&options, ARGV("-m", "1G", "--suspendable", "cmd")), 0);
    assert_true(options.pinned == 0 && !options.never_pins);
    /* The last one holds. */
    assert_int_equal(
        parse(&options, ARGV("--suspendable", "--pinned", "none", "--pinned", "1G", "cmd")), 0);
    assert_true(options.pinned == 1ull << 30 && !options.never_pins);
    assert_int_equal(parse(&options, ARGV("--suspendable", "--pinned", "3X", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("--suspendable", "--pinned", "10%", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("--suspendable", "--pinned", "", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("--pinned", "1G", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("--pinned", "none", "cmd")), 2);
}

static void wrong_usage_is_2(void **state)
{
    static struct run_options options;
    (void)state;
    assert_int_equal(parse(&options, ARGV("-m", "4GiB")), 2);
    assert_int_equal(parse(&options, ARGV("-m")), 2);
    assert_int_equal(parse(&options, ARGV("--nonsense", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("-x", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("-m", "10XB", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("--max-request", "40%", "cmd")), 2);
    assert_int_equal(parse(&options, ARGV("--name", "", "cmd")), 2);
    setenv("ULLAGE_GROWTH", "perhaps", 1);
    assert_int_equal(parse(&options, ARGV("cmd")), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_options_up_to_the_command, clean),
        cmocka_unit_test_setup(the_environment_is_below_the_call, clean),
        cmocka_unit_test_setup(host_memory_for_moves, clean),
        cmocka_unit_test_setup(wrong_usage_is_2, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
