/* test_conf.c: which value wins, and whether it is told who set it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "conf.h"
#include "file.h"

static void reads_lines(void **state)
{
    struct ull__conf conf = {0};
    bool growth;
    (void)state;
    assert_int_equal(ull__conf_read(&conf,
                                    "# comment\n\n  memory = 4GiB   # half\r\ngrowth=on\n"
                                    "report = /tmp/a#b.json\nmemory = 40%",
                                    "/etc/x", NULL),
                     ULL_OK);
    assert_string_equal(conf.item[ULL_CONF_MEMORY].value, "40%");
    assert_string_equal(conf.item[ULL_CONF_MEMORY].set_by, "/etc/x line 6");
    assert_string_equal(conf.item[ULL_CONF_REPORT].value, "/tmp/a#b.json");
    assert_int_equal(ull__conf_bool(&conf, ULL_CONF_GROWTH, &growth, NULL), ULL_OK);
    assert_true(growth);
    assert_false(conf.item[ULL_CONF_LOG].set);
}

static void refuses_bad_lines(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"memory 4GiB", "line 1"},
        {"\nmemroy = 4GiB", "line 2: unknown key 'memroy'"},
        {"memory =", "no value"},
        {"= 4", "unknown key ''"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ull__conf conf = {0};
        struct ull_error err;
        assert_int_equal(ull__conf_read(&conf, cases[i].text, "file", &err), ULL_E_FORMAT);
        assert_non_null(strstr(err.message, cases[i].says));
        assert_non_null(strstr(err.message, "file"));
    }
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    struct ull__conf conf = {0};
    assert_int_equal(ull__conf_read(&conf, longest, "file", NULL), ULL_E_FORMAT);
}

static void refuses_bad_truths(void **state)
{
    struct ull__conf conf = {0};
    struct ull_error err;
    bool growth = true;
    (void)state;
    ull__conf_set(&conf, ULL_CONF_GROWTH, "maybe", "ULLAGE_GROWTH in the environment", NULL);
    assert_int_equal(ull__conf_bool(&conf, ULL_CONF_GROWTH, &growth, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "maybe"));
    assert_non_null(strstr(err.message, "ULLAGE_GROWTH"));
    ull__conf_set(&conf, ULL_CONF_GROWTH, "FALSE", "x", NULL);
    assert_int_equal(ull__conf_bool(&conf, ULL_CONF_GROWTH, &growth, NULL), ULL_OK);
    assert_false(growth);
}

static void later_sources_win(void **state)
{
    char folder[] = "/tmp/ullage-test-conf-XXXXXX", path[128];
    static const char text[] = "memory = 1GiB\nlog = /tmp/log\n";
    struct ull__conf conf;
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CONFIG_HOME", folder, 1);
    snprintf(path, sizeof path, "%s/ullage", folder);
    assert_int_equal(ull__folder_create(path, NULL), ULL_OK);
    snprintf(path, sizeof path, "%s/ullage/ullage.conf", folder);
    assert_int_equal(ull__file_write(path, text, strlen(text), NULL), ULL_OK);
    setenv("ULLAGE_MEMORY", "2GiB", 1);
    setenv("ULLAGE_REPORT", "", 1);
    assert_int_equal(ull__conf_load(&conf, NULL), ULL_OK);
    assert_string_equal(conf.item[ULL_CONF_MEMORY].value, "2GiB");
    assert_string_equal(conf.item[ULL_CONF_MEMORY].set_by, "ULLAGE_MEMORY in the environment");
    assert_string_equal(conf.item[ULL_CONF_LOG].value, "/tmp/log");
    assert_non_null(strstr(conf.item[ULL_CONF_LOG].set_by, "ullage.conf line 2"));
    assert_false(conf.item[ULL_CONF_REPORT].set);
    ull__conf_set(&conf, ULL_CONF_MEMORY, "3GiB", "-m on the command line", NULL);
    assert_string_equal(conf.item[ULL_CONF_MEMORY].value, "3GiB");
    unlink(path);
    snprintf(path, sizeof path, "%s/ullage", folder);
    rmdir(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_lines),
        cmocka_unit_test(refuses_bad_lines),
        cmocka_unit_test(refuses_bad_truths),
        cmocka_unit_test(later_sources_win),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
