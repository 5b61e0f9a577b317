/*
 * test_environment.c: ULLAGE_MEMORY, ULLAGE_GROWTH and ULLAGE_CONFIG, and that a child has what its parent
 * had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ullage/config.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static const struct ull_card cards[] = {
    {"GPU-aaaaaaaa", "H200", 140 * GIB, 139 * GIB, 9, 0},
    {"GPU-bbbbbbbb", "A100", 40 * GIB, 39 * GIB, 8, 0},
    {"", "no UUID", 16 * GIB, 15 * GIB, 6, 0},
};
enum { CARDS = 3 };
static const struct ull_environment nothing;

static struct ull_config *config;
static struct ull_error err;
static struct ull_plan plan;

static int setup(void **state)
{
    (void)state;
    memset(&err, 0, sizeof err);
    memset(&plan, 0, sizeof plan);
    return ull_config_create(cards, CARDS, &config, NULL);
}

static int teardown(void **state)
{
    (void)state;
    ull_config_destroy(config);
    return 0;
}

static void planned(const struct ull_environment *environment, int count)
{
    ull_status status = ull_config_plan(config, environment, &plan, &err);
    if (status != ULL_OK)
        fail_msg("%s: %s", ull_status_name(status), err.message);
    assert_int_equal(plan.count, count);
}

static void memory_of_the_environment(void **state)
{
    (void)state;
    planned(&(struct ull_environment){.memory = "4GiB"}, CARDS);
    for (int i = 0; i < CARDS; i++) {
        assert_int_equal(plan.device[i].limit, 4 * GIB);
        assert_int_equal(plan.device[i].start, 4 * GIB);
    }
    assert_string_equal(plan.device[0].source, "ULLAGE_MEMORY");
    planned(&(struct ull_environment){.memory = "50%", .growth = "true"}, CARDS);
    assert_int_equal(plan.device[0].limit, 70 * GIB);
    assert_int_equal(plan.device[0].start, 0);
    /* A card that is named before or after all: it wins. */
    planned(&(struct ull_environment){.memory = "1=8GiB,4GiB,GPU-AAAA=25%"}, CARDS);
    assert_int_equal(plan.device[0].limit, 35 * GIB);
    assert_int_equal(plan.device[1].limit, 8 * GIB);
    assert_int_equal(plan.device[2].limit, 4 * GIB);
    /* More than a card has is all that it has, as `ullage run -m`. */
    planned(&(struct ull_environment){.memory = "1TiB", .growth = "1"}, CARDS);
    assert_int_equal(plan.device[2].limit, 16 * GIB);
}

static void bad_values(void **state)
{
    (void)state;
    static const char *const memory[] = {
        "", "0", "x", "4GiB,", "0=", "=4GiB", "101%", "-1", "0=0%"};
    static const char *const absent[] = {"3=1GiB", "99999999999999999999=1GiB", "GPU-dddd=1GiB",
                                         "x=1GiB"};
    static const char *const texts[] = {"",
                                        "2",
                                        "0;system=1",
                                        "1;",
                                        "1;system=",
                                        "1;system=-1",
                                        "1;system=99999999999999999999",
                                        "1;growth=on",
                                        "1;GPU-aaaaaaaa:growth=maybe",
                                        "1;GPU-aaaaaaaa:share=0",
                                        "1;GPU-aaaaaaaa:share=1000000001",
                                        "1;GPU-aaaaaaaa:share=1.5",
                                        "1;GPU-aaaaaaaa:mixed=2/1",
                                        "1;GPU-aaaaaaaa:mixed=0/1",
                                        "1;GPU-aaaaaaaa:logical=",
                                        "1;GPU-aaaaaaaa:logical=0/0/on",
                                        "1;GPU-aaaaaaaa:logical=1/2/on",
                                        "1;GPU-aaaaaaaa:logical=1/0/on+",
                                        "1;GPU-aaaaaaaa:logical=1/0/on/on",
                                        "1;GPU-aaaaaaaa:unknown=1",
                                        "1;GPU-zzzz:unknown=1",
                                        "1;visible=GPU-aaaaaaaa,GPU-aaaaaaaa"};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        struct ull_environment environment = {.memory = memory[i]};
        ull_status status = ull_config_plan(config, &environment, &plan, &err);
        if (status == ULL_OK || !strstr(err.message, "ULLAGE_MEMORY"))
            fail_msg("'%s': %s", memory[i], err.message);
    }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        struct ull_environment environment = {.memory = absent[i]};
        assert_int_equal(ull_config_plan(config, &environment, &plan, &err), ULL_E_NO_DEVICE);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ull_environment environment = {.config = texts[i]};
        ull_status status = ull_config_plan(config, &environment, &plan, &err);
        if (status != ULL_E_INVALID || !strstr(err.message, "ULLAGE_CONFIG"))
            fail_msg("'%s': %s, %s", texts[i], ull_status_name(status), err.message);
    }
    struct ull_environment growth = {.growth = "maybe"};
    assert_int_equal(ull_config_plan(config, &growth, &plan, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "maybe"));
}

static void the_later_wins(void **state)
{
    (void)state;
    struct ull_environment all = {.memory = "4GiB",
                                  .growth = "true",
                                  .config = "1;GPU-aaaaaaaa:logical=1073741824/0/unset",
                                  .force_growth = NULL};
    struct ull_logical_spec spec = {.memory_limit = 2 * GIB};
    planned(&all, CARDS);
    assert_int_equal(plan.device[0].limit, GIB); /* the parent's over ULLAGE_MEMORY */
    assert_int_equal(plan.device[1].limit, 4 * GIB);
    assert_true(plan.device[0].growth);
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_OK);
    planned(&all, CARDS); /* calls over both */
    assert_int_equal(plan.device[0].limit, 2 * GIB);
    assert_int_equal(plan.device[1].limit, 4 * GIB);
    all.force_growth = "false";
    planned(&all, CARDS);
    assert_false(plan.device[1].growth);
    assert_int_equal(ull_config_set_logical(config, 0, NULL, 0, &err), ULL_OK);
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_OK);
    planned(&all, CARDS);
    assert_int_equal(plan.device[1].limit, 20 * GIB);
}

/* --- export ------------------------------------------------------------------------------------------------- */

/* What a child with these cards plans from what is exported now. */
static void child_plans(const struct ull_environment *own, const struct ull_card *seen, int count,
                        struct ull_plan *of_child)
{
    char text[ULL_CONFIG_TEXT];
    struct ull_config *child;
    assert_int_equal(ull_config_export(config, own, text, sizeof text, &err), ULL_OK);
    assert_int_equal(ull_config_create(seen, count, &child, NULL), ULL_OK);
    struct ull_environment environment = {.config = text, .force_growth = own->force_growth};
    ull_status status = ull_config_plan(child, &environment, of_child, &err);
    if (status != ULL_OK)
        fail_msg("%s: %s", text, err.message);
    ull_config_destroy(child);
}

static void same(const struct ull_plan *a, const struct ull_plan *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_int_equal(a->device[i].card, b->device[i].card);
        assert_int_equal(a->device[i].limit, b->device[i].limit);
        assert_int_equal(a->device[i].start, b->device[i].start);
        assert_int_equal(a->device[i].growth, b->device[i].growth);
    }
}

static void a_child_plans_the_same(void **state)
{
    (void)state;
    struct ull_plan of_child;
    static const int two[] = {2, 0};
    struct ull_logical_spec specs[2] = {{.memory_limit = 4 * GIB, .growth = ULL_GROWTH_ON},
                                        {.memory_limit = 3 * GIB + 1, .start = GIB}};
    planned(&nothing, CARDS);
    child_plans(&nothing, cards, CARDS, &of_child);
    same(&plan, &of_child);

    struct ull_environment own = {.memory = "1=33.3%", .growth = "on"};
    planned(&own, CARDS);
    child_plans(&own, cards, CARDS, &of_child);
    same(&plan, &of_child);

    assert_int_equal(ull_config_set_logical(config, 0, specs, 2, &err), ULL_OK);
    assert_int_equal(ull_config_set_mixed(config, 1, 0.3, 1.0 / 3, &err), ULL_OK);
    assert_int_equal(ull_config_set_system_reserve(config, 77 * MIB, &err), ULL_OK);
    planned(&own, 4);
    child_plans(&own, cards, CARDS, &of_child);
    same(&plan, &of_child);

    assert_int_equal(ull_config_set_visible(config, two, 2, &err), ULL_OK);
    planned(&own, 3);
    child_plans(&own, cards, CARDS, &of_child);
    same(&plan, &of_child);
    own.force_growth = "false"; /* inherited by itself */
    planned(&own, 3);
    child_plans(&own, cards, CARDS, &of_child);
    same(&plan, &of_child);
    assert_int_equal(ull_config_set_visible(config, NULL, 0, &err), ULL_OK);
    child_plans(&own, cards, CARDS, &of_child);
    assert_int_equal(of_child.count, 0);
}

/* The child sees the cards in another order, and not all of them. */
static void a_child_finds_cards_by_uuid(void **state)
{
    (void)state;
    struct ull_plan of_child;
    struct ull_card seen[2] = {cards[1], cards[0]};
    struct ull_logical_spec spec = {.memory_limit = 2 * GIB};
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_OK);
    spec.memory_limit = GIB;
    assert_int_equal(ull_config_set_logical(config, 1, &spec, 1, &err), ULL_OK);
    child_plans(&nothing, seen, 2, &of_child);
    assert_int_equal(of_child.device[0].limit, GIB);
    assert_int_equal(of_child.device[1].limit, 2 * GIB);
    child_plans(&nothing, seen, 1, &of_child);
    assert_int_equal(of_child.count, 1);
    assert_int_equal(of_child.device[0].limit, GIB);
}

static void text_that_does_not_fit(void **state)
{
    (void)state;
    char text[ULL_CONFIG_TEXT];
    assert_int_equal(ull_config_export(config, &nothing, text, 0, &err), ULL_E_FULL);
    assert_int_equal(ull_config_export(config, &nothing, text, 8, &err), ULL_E_FULL);
    assert_int_equal(ull_config_export(config, &nothing, text, sizeof text, &err), ULL_OK);
    size_t length = strlen(text);
    assert_int_equal(ull_config_export(config, &nothing, text, length, &err), ULL_E_FULL);
    assert_int_equal(ull_config_export(config, &nothing, text, length + 1, &err), ULL_OK);
    /* The largest there is fits into ULL_CONFIG_TEXT. */
    struct ull_card many[ULL_CARDS];
    struct ull_logical_spec specs[ULL_LOGICAL_PER_CARD];
    struct ull_config *large;
    for (int i = 0; i < ULL_LOGICAL_PER_CARD; i++)
        specs[i] = (struct ull_logical_spec){INT64_MAX, INT64_MAX - 1, ULL_GROWTH_UNSET};
    for (int i = 0; i < ULL_CARDS; i++) {
        many[i] = cards[0];
        snprintf(many[i].uuid, sizeof many[i].uuid, "GPU-01234567-89ab-cdef-0123-456789abcd%02d", i);
    }
    assert_int_equal(ull_config_create(many, ULL_CARDS, &large, &err), ULL_OK);
    for (int i = 0; i < ULL_CARDS; i++) {
        assert_int_equal(ull_config_set_growth(large, i, false, &err), ULL_OK);
        assert_int_equal(ull_config_set_logical(large, i, specs, ULL_LOGICAL_PER_CARD, &err), ULL_OK);
    }
    assert_int_equal(ull_config_export(large, &nothing, text, sizeof text, &err), ULL_OK);
    ull_config_destroy(large);
}

static void the_process_own_environment(void **state)
{
    (void)state;
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    unsetenv("ULLAGE_CONFIG");
    unsetenv("ULLAGE_JOB");
    setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true", 1);
    setenv("ULLAGE_MEMORY", "50%", 1);
    planned(NULL, CARDS);
    assert_int_equal(plan.device[0].limit, 70 * GIB);
    assert_true(plan.device[0].growth);
    setenv("ULLAGE_JOB", "/dev/shm/a-job", 1); /* the card is the budget already */
    planned(NULL, CARDS);
    assert_int_equal(plan.device[0].limit, 139 * GIB - 1800 * MIB);
    unsetenv("ULLAGE_JOB");
    setenv("TF_FORCE_GPU_ALLOW_GROWTH", "sure", 1);
    assert_int_equal(ull_config_plan(config, NULL, &plan, &err), ULL_E_INVALID);
    unsetenv("TF_FORCE_GPU_ALLOW_GROWTH");
    setenv("ULLAGE_GROWTH", "yes", 1);
    unsetenv("ULLAGE_MEMORY");
    planned(NULL, CARDS);
    assert_int_equal(plan.device[1].start, 0);
    unsetenv("ULLAGE_GROWTH");
}

/* A real child: fork and exec of this program, which then plans from its environment. */
static const char *program;

static void a_real_child(void **state)
{
    (void)state;
    struct ull_logical_spec spec = {.memory_limit = 5 * GIB, .growth = ULL_GROWTH_ON};
    assert_int_equal(ull_config_set_logical(config, 1, &spec, 1, &err), ULL_OK);
    assert_int_equal(setenv("XDG_CONFIG_HOME", "/nonexistent", 1), 0);
    assert_int_equal(ull_config_export_to_children(config, &err), ULL_OK);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, "child", (char *)NULL);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    unsetenv("ULLAGE_CONFIG");
}

static int as_child(void)
{
    if (setup(NULL) != 0 || ull_config_plan(config, NULL, &plan, &err) != ULL_OK)
        return 1;
    bool right = plan.count == CARDS && plan.device[1].limit == 5 * GIB && plan.device[1].growth &&
                 plan.device[1].start == 0;
    teardown(NULL);
    return right ? 0 : 2;
}

int main(int argc, char **argv)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(memory_of_the_environment),
        ROW(bad_values),
        ROW(the_later_wins),
        ROW(a_child_plans_the_same),
        ROW(a_child_finds_cards_by_uuid),
        ROW(text_that_does_not_fit),
        ROW(the_process_own_environment),
        ROW(a_real_child),
    };
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return as_child();
    program = argv[0];
    return cmocka_run_group_tests_name("policy.environment", tests, NULL, NULL);
}
