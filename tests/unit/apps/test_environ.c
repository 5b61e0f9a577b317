/* test_environ.c: LD_PRELOAD keeps what the user had, --growth what the user set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "environ.h"

static void puts_ours_in_front_once(void **state)
{
    static const struct preload_paths paths = {.preload = "/l/libullage-preload.so",
                                               .nvml = "/l/libullage-nvml.so"};
    static const struct {
        const char *before;
        const char *after;
    } cases[] = {
        {NULL, "/l/libullage-preload.so /l/libullage-nvml.so"},
        {"", "/l/libullage-preload.so /l/libullage-nvml.so"},
        {"/x/a.so:/x/b.so", "/l/libullage-preload.so /l/libullage-nvml.so /x/a.so /x/b.so"},
        {"/l/libullage-preload.so /l/libullage-nvml.so /x/a.so",
         "/l/libullage-preload.so /l/libullage-nvml.so /x/a.so"},
        {"/other/libullage-preload.so  :/x/mylibullage-preload.so",
         "/l/libullage-preload.so /l/libullage-nvml.so /x/mylibullage-preload.so"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *value = environ_preload_value(&paths, cases[i].before);
        assert_string_equal(value, cases[i].after);
        free(value);
    }
}

static void growth_sets_only_what_is_not_set(void **state)
{
    (void)state;
    setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false", 1);
    unsetenv("XLA_PYTHON_CLIENT_PREALLOCATE");
    environ_set_growth(true);
    assert_string_equal(getenv("TF_FORCE_GPU_ALLOW_GROWTH"), "false");
    assert_string_equal(getenv("XLA_PYTHON_CLIENT_PREALLOCATE"), "false");
    unsetenv("TF_FORCE_GPU_ALLOW_GROWTH");
    environ_set_growth(true);
    assert_string_equal(getenv("TF_FORCE_GPU_ALLOW_GROWTH"), "true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_ours_in_front_once),
        cmocka_unit_test(growth_sets_only_what_is_not_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
