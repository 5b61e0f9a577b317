/*
 * test_config.c: TensorFlow's controls on made-up cards. Each test shows one row of docs/tensorflow.md,
 * under the name that is given there.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ullage/config.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Two cards of different kinds, and one that is nearly full. */
static const struct ull_card cards[] = {
    {"GPU-aaaaaaaa", "H200", 140 * GIB, 139 * GIB, 9, 0},
    {"GPU-bbbbbbbb", "A100", 40 * GIB, 39 * GIB, 8, 0},
    {"GPU-cccccccc", "P100", 16 * GIB, 1 * GIB, 6, 0},
};
static const struct ull_environment nothing;

static struct ull_config *config;
static struct ull_error err;
static struct ull_plan plan;

static int setup(void **state)
{
    (void)state;
    memset(&err, 0, sizeof err);
    memset(&plan, 0, sizeof plan);
    return ull_config_create(cards, 2, &config, NULL);
}

static int teardown(void **state)
{
    (void)state;
    ull_config_destroy(config);
    return 0;
}

static void says(const char *text)
{
    if (!strstr(err.message, text))
        fail_msg("'%s' does not say '%s'", err.message, text);
}

static void planned(const struct ull_environment *environment, int count)
{
    ull_status status = ull_config_plan(config, environment, &plan, &err);
    if (status != ULL_OK)
        fail_msg("%s: %s", ull_status_name(status), err.message);
    assert_int_equal(plan.count, count);
}

static void is(int i, int card, uint64_t limit, uint64_t start, bool growth)
{
    assert_int_equal(plan.device[i].card, card);
    assert_int_equal(plan.device[i].limit, limit);
    assert_int_equal(plan.device[i].start, start);
    assert_int_equal(plan.device[i].growth, growth);
}

static void is_refused(const struct ull_environment *environment, ull_status expected)
{
    struct ull_plan before = plan;
    assert_int_equal(ull_config_plan(config, environment, &plan, &err), expected);
    assert_memory_equal(&before, &plan, sizeof plan); /* results untouched */
}

/* --- cards ------------------------------------------------------------------------------------------------- */

static void physical_devices(void **state)
{
    (void)state;
    const struct ull_card *list;
    assert_int_equal(ull_config_cards(config, &list), 2);
    assert_string_equal(list[1].uuid, "GPU-bbbbbbbb");
    struct ull_config *other = NULL;
    assert_int_equal(ull_config_create(cards, -1, &other, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_create(cards, ULL_CARDS + 1, &other, &err), ULL_E_INVALID);
    assert_null(other);
    assert_int_equal(ull_config_create(NULL, 0, &other, &err), ULL_OK); /* no GPU at all */
    assert_int_equal(ull_config_plan(other, &nothing, &plan, &err), ULL_OK);
    assert_int_equal(plan.count, 0);
    ull_config_destroy(other);
    ull_config_destroy(NULL);
}

static void visible_devices(void **state)
{
    (void)state;
    static const int swapped[] = {1, 0}, twice[] = {1, 1}, beyond[] = {2}, below[] = {-1};
    planned(&nothing, 2);
    assert_int_equal(ull_config_set_visible(config, swapped, 2, &err), ULL_OK);
    planned(&nothing, 2);
    assert_int_equal(plan.device[0].card, 1); /* in the order given */
    assert_int_equal(ull_config_set_visible(config, swapped, 1, &err), ULL_OK);
    planned(&nothing, 1);
    assert_int_equal(plan.device[0].card, 1);
    assert_int_equal(ull_config_set_visible(config, twice, 2, &err), ULL_E_INVALID);
    says("twice");
    assert_int_equal(ull_config_set_visible(config, beyond, 1, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_visible(config, below, 1, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_visible(config, swapped, 3, &err), ULL_E_INVALID);
    planned(&nothing, 1); /* what was refused changed nothing */
    assert_int_equal(ull_config_set_visible(config, NULL, 0, &err), ULL_OK);
    planned(&nothing, 0); /* all hidden */
}

/* --- default ------------------------------------------------------------------------------------------------ */

static void default_is_all_but_the_system_reserve(void **state)
{
    (void)state;
    planned(&nothing, 2);
    is(0, 0, 139 * GIB - 1800 * MIB, 139 * GIB - 1800 * MIB, false);
    is(1, 1, 39 * GIB - 1536 * MIB, 39 * GIB - 1536 * MIB, false);
    assert_string_equal(plan.device[0].source, "default");
}

static void system_reserve_by_capability(void **state)
{
    (void)state;
    assert_int_equal(ull_system_reserve(2 * GIB - 1, 9), 225 * MIB);
    assert_int_equal(ull_system_reserve(2 * GIB, 9), 1800 * MIB);
    assert_int_equal(ull_system_reserve(16 * GIB, 3), 500 * MIB);
    assert_int_equal(ull_system_reserve(16 * GIB, 6), 500 * MIB);
    assert_int_equal(ull_system_reserve(16 * GIB, 7), 1050 * MIB);
    assert_int_equal(ull_system_reserve(16 * GIB, 8), 1536 * MIB);
    assert_int_equal(ull_system_reserve(16 * GIB, 9), 1800 * MIB);
    assert_int_equal(ull_system_reserve(16 * GIB, 12), 1800 * MIB);
    assert_int_equal(ull_system_reserve(0, 0), 225 * MIB);
}

static void default_without_room(void **state)
{
    (void)state;
    struct ull_card full = cards[2];
    struct ull_config *other;
    full.free_bytes = 225 * MIB;
    assert_int_equal(ull_config_create(&full, 1, &other, NULL), ULL_OK);
    assert_int_equal(ull_config_plan(other, &nothing, &plan, &err), ULL_E_NO_MEMORY);
    says("225.0 MiB free");
    ull_config_destroy(other);
    full.free_bytes += 1;
    assert_int_equal(ull_config_create(&full, 1, &other, NULL), ULL_OK);
    assert_int_equal(ull_config_plan(other, &nothing, &plan, &err), ULL_OK);
    is(0, 0, 1, 1, false);
    ull_config_destroy(other);
}

static void system_reserve_by_setting(void **state)
{
    (void)state;
    assert_int_equal(ull_config_set_system_reserve(config, 4 * GIB, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 135 * GIB, 135 * GIB, false);
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_E_INVALID);
    says("exclude each other");
    assert_int_equal(ull_config_set_system_reserve(config, 0, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 139 * GIB, 139 * GIB, false);
    assert_int_equal(ull_config_set_system_reserve(config, 200 * GIB, &err), ULL_OK);
    is_refused(&nothing, ULL_E_NO_MEMORY);
}

/* --- growth -------------------------------------------------------------------------------------------------- */

static void growth_takes_nothing_at_the_start(void **state)
{
    (void)state;
    assert_int_equal(ull_config_growth(config, 0), ULL_GROWTH_UNSET);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ull_config_set_growth(config, i, true, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 139 * GIB - 1800 * MIB, 0, true);
    is(1, 1, 39 * GIB - 1536 * MIB, 0, true);
    assert_int_equal(ull_config_growth(config, 1), ULL_GROWTH_ON);
    assert_int_equal(ull_config_set_growth(config, 2, true, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_growth(config, -1, true, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_growth(config, 2), ULL_GROWTH_UNSET);
}

static void growth_must_not_differ(void **state)
{
    (void)state;
    static const int first[] = {0};
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    is_refused(&nothing, ULL_E_INVALID);
    says("card 0");
    says("card 1");
    /* Only visible cards count. */
    assert_int_equal(ull_config_set_visible(config, first, 1, &err), ULL_OK);
    planned(&nothing, 1);
    is(0, 0, 139 * GIB - 1800 * MIB, 0, true);
}

static void growth_is_not_compared_beside_logical_devices(void **state)
{
    (void)state;
    struct ull_logical_spec half = {.memory_limit = 4 * GIB};
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 1, &half, 1, &err), ULL_OK);
    planned(&nothing, 2);
    assert_true(plan.device[0].growth);
    assert_false(plan.device[1].growth);
}

static void forced_growth(void **state)
{
    (void)state;
    static const struct ull_environment on = {.force_growth = "true"},
                                        off = {.force_growth = "false"};
    uint64_t limit = 139 * GIB - 1800 * MIB;
    planned(&on, 2);
    is(0, 0, limit, 0, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ull_config_set_growth(config, i, true, &err), ULL_OK);
    planned(&off, 2); /* over the program */
    is(0, 0, limit, limit, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ull_config_set_growth(config, i, false, &err), ULL_OK);
    planned(&on, 2);
    is(0, 0, limit, 0, true);
}

static void forced_growth_with_a_bad_value(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "1", "0", "True", "TRUE", "yes", " true", "true ", "on"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ull_environment environment = {.force_growth = bad[i]};
        is_refused(&environment, ULL_E_INVALID);
        says("TF_FORCE_GPU_ALLOW_GROWTH");
        says("expected true or false");
    }
}

/* --- limits and logical devices -------------------------------------------------------------------------------- */

static void limit_without_growth(void **state)
{
    (void)state;
    static const int second[] = {1};
    struct ull_logical_spec one = {.memory_limit = 4 * GIB};
    assert_int_equal(ull_config_set_visible(config, second, 1, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 1, &one, 1, &err), ULL_OK);
    planned(&nothing, 1);
    is(0, 1, 4 * GIB, 4 * GIB, false); /* all of it at the start, as TensorFlow's */
}

static void limit_with_growth(void **state)
{
    (void)state;
    static const struct ull_environment on = {.force_growth = "true"};
    struct ull_logical_spec spec = {.memory_limit = 4 * GIB, .growth = ULL_GROWTH_ON};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ull_config_set_logical(config, i, &spec, 1, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 4 * GIB, 0, true);
    /* By the variable, which is the only way in TensorFlow 2. */
    spec.growth = ULL_GROWTH_UNSET;
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_OK);
    planned(&on, 2);
    is(0, 0, 4 * GIB, 0, true);
    /* By call afterwards it is refused, with the way that works. */
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_E_INVALID);
    says("specs");
}

/* TensorFlow forgets growth that was set before the limit; ours keeps it. */
static void growth_set_before_the_limit_is_kept(void **state)
{
    (void)state;
    struct ull_logical_spec specs[2] = {{.memory_limit = 4 * GIB},
                                        {.memory_limit = 2 * GIB, .growth = ULL_GROWTH_OFF}};
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 0, specs, 2, &err), ULL_OK);
    planned(&nothing, 3);
    is(0, 0, 4 * GIB, 0, true);
    is(1, 0, 2 * GIB, 2 * GIB, false);
}

static void several_logical_devices(void **state)
{
    (void)state;
    struct ull_logical_spec specs[ULL_LOGICAL_PER_CARD + 1], read[ULL_LOGICAL_PER_CARD];
    for (int i = 0; i <= ULL_LOGICAL_PER_CARD; i++)
        specs[i] = (struct ull_logical_spec){.memory_limit = (uint64_t)(i + 1) * GIB};
    assert_int_equal(ull_config_set_logical(config, 0, specs, 3, &err), ULL_OK);
    planned(&nothing, 4);
    for (int i = 0; i < 3; i++)
        is(i, 0, (uint64_t)(i + 1) * GIB, (uint64_t)(i + 1) * GIB, false);
    assert_int_equal(plan.device[3].card, 1); /* different limits on different cards */
    assert_int_equal(ull_config_logical(config, 0, read), 3);
    assert_int_equal(read[2].memory_limit, 3 * GIB);
    assert_int_equal(ull_config_logical(config, 1, NULL), 0);
    assert_int_equal(ull_config_logical(config, 7, NULL), 0);

    assert_int_equal(ull_config_set_logical(config, 0, specs, ULL_LOGICAL_PER_CARD + 1, &err),
                     ULL_E_INVALID);
    assert_int_equal(ull_config_set_logical(config, 0, specs, -1, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_logical(config, 2, specs, 1, &err), ULL_E_INVALID);
    specs[1].memory_limit = 0;
    assert_int_equal(ull_config_set_logical(config, 0, specs, 2, &err), ULL_E_INVALID);
    says("needs one");
    assert_int_equal(ull_config_logical(config, 0, NULL), 3); /* as before */
    assert_int_equal(ull_config_set_logical(config, 0, NULL, 0, &err), ULL_OK);
    planned(&nothing, 2);
}

static void limits_above_the_card(void **state)
{
    (void)state;
    struct ull_logical_spec specs[2] = {{.memory_limit = 30 * GIB}, {.memory_limit = 30 * GIB}};
    assert_int_equal(ull_config_set_logical(config, 1, specs, 2, &err), ULL_OK);
    is_refused(&nothing, ULL_E_INVALID); /* 60 GiB at the start on a card of 40 */
    says("60.0 GiB");
    specs[0].growth = specs[1].growth = ULL_GROWTH_ON;
    assert_int_equal(ull_config_set_logical(config, 1, specs, 2, &err), ULL_OK);
    planned(&nothing, 3); /* growing, they need not have their peaks together */
    specs[0].memory_limit = 40 * GIB + 1;
    assert_int_equal(ull_config_set_logical(config, 1, specs, 2, &err), ULL_OK);
    is_refused(&nothing, ULL_E_INVALID);
    specs[0] = (struct ull_logical_spec){.memory_limit = UINT64_MAX};
    assert_int_equal(ull_config_set_logical(config, 1, specs, 1, &err), ULL_OK);
    is_refused(&nothing, ULL_E_INVALID);
    specs[0].memory_limit = 39 * GIB + MIB; /* fits the card, but not what is free */
    assert_int_equal(ull_config_set_logical(config, 1, specs, 1, &err), ULL_OK);
    is_refused(&nothing, ULL_E_NO_MEMORY);
}

/* --- shares ------------------------------------------------------------------------------------------------------ */

static void share_of_the_total(void **state)
{
    (void)state;
    assert_int_equal(ull_config_set_share(config, 0.25, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 35 * GIB, 35 * GIB, false); /* of 140, though 139 are free */
    is(1, 1, 10 * GIB, 10 * GIB, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ull_config_set_growth(config, i, true, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 35 * GIB, 0, true);
    assert_int_equal(ull_config_set_share(config, 1.0, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 140 * GIB, 0, true);
    assert_int_equal(ull_config_set_share(config, 0, &err), ULL_OK); /* 0 is the default, as there */
    planned(&nothing, 2);
    assert_string_equal(plan.device[0].source, "default");
}

static void share_out_of_range(void **state)
{
    (void)state;
    const double bad[] = {-0.1, 1.0000001, 2, 1e300, NAN, INFINITY, -INFINITY, 1e-12};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ull_config_set_share(config, bad[i], &err), ULL_E_INVALID);
        assert_int_equal(ull_config_set_mixed(config, 0, bad[i], 0.5, &err), ULL_E_INVALID);
        assert_int_equal(ull_config_set_mixed(config, 0, 0.5, bad[i], &err), ULL_E_INVALID);
    }
    assert_int_equal(ull_config_set_share(config, 2, &err), ULL_E_INVALID);
    says("memory of the host");
    planned(&nothing, 2);
    assert_string_equal(plan.device[0].source, "default");
}

static void share_and_logical_devices_exclude_each_other(void **state)
{
    (void)state;
    struct ull_logical_spec spec = {.memory_limit = GIB};
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_E_INVALID);
    says("exclude each other");
    assert_int_equal(ull_config_set_share(config, 0, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_OK);
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_E_INVALID);
    says("exclude each other");
}

static void mixed_start_then_growth(void **state)
{
    (void)state;
    static const struct ull_environment off = {.force_growth = "false"},
                                        on = {.force_growth = "true"};
    assert_int_equal(ull_config_set_mixed(config, 0, 0.3, 0.8, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 112 * GIB, 42 * GIB, true);
    assert_false(plan.device[1].growth); /* the other card as ever */
    planned(&on, 2);
    is(0, 0, 112 * GIB, 42 * GIB, true);
    planned(&off, 2); /* no growth: all of it at the start */
    is(0, 0, 112 * GIB, 112 * GIB, false);
    assert_int_equal(ull_config_set_growth(config, 0, false, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_mixed(config, 0, 0.8, 0.3, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_mixed(config, 2, 0.3, 0.8, &err), ULL_E_INVALID);
    assert_int_equal(ull_config_set_growth(config, 1, false, &err), ULL_OK);
    assert_int_equal(ull_config_set_mixed(config, 1, 0.3, 0.8, &err), ULL_E_INVALID);

    /* The same for a logical device, in bytes. */
    struct ull_logical_spec spec = {.memory_limit = 8 * GIB, .start = 3 * GIB};
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_OK);
    planned(&nothing, 2);
    is(0, 0, 8 * GIB, 3 * GIB, true);
    assert_int_equal(ull_config_set_mixed(config, 0, 0.3, 0.8, &err), ULL_E_INVALID);
    spec.growth = ULL_GROWTH_OFF;
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_E_INVALID);
    spec = (struct ull_logical_spec){.memory_limit = GIB, .start = 2 * GIB};
    assert_int_equal(ull_config_set_logical(config, 0, &spec, 1, &err), ULL_E_INVALID);
}

/* --- programs that open their cards one by one ------------------------------------------------------------ */

static void is_planned_alone(const struct ull_environment *environment, int card, uint64_t free_bytes)
{
    ull_status status = ull_config_plan_card(config, environment, card, free_bytes, &plan, &err);
    if (status != ULL_OK)
        fail_msg("%s: %s", ull_status_name(status), err.message);
}

static void one_card_of_several(void **state)
{
    (void)state;
    static const struct ull_environment text = {
        .config = "1;visible=GPU-bbbbbbbb;GPU-bbbbbbbb:logical=1073741824/0/on+2147483648/0/off"};
    struct ull_plan before;
    is_planned_alone(&nothing, 1, 20 * GIB); /* of what is free now */
    assert_int_equal(plan.count, 1);
    is(0, 1, 20 * GIB - 1536 * MIB, 20 * GIB - 1536 * MIB, false);
    assert_false(plan.device[0].set);
    is_planned_alone(&text, 1, 20 * GIB);
    assert_int_equal(plan.count, 2);
    is(1, 1, 2 * GIB, 2 * GIB, false);
    assert_true(plan.device[0].set);
    before = plan;
    assert_int_equal(ull_config_plan_card(config, &text, 0, GIB, &plan, &err), ULL_E_NO_DEVICE);
    says("card 0 is not among the visible cards");
    assert_int_equal(ull_config_plan_card(config, &nothing, 2, GIB, &plan, &err), ULL_E_NO_DEVICE);
    says("card 2 is not there");
    assert_int_equal(ull_config_plan_card(config, &nothing, -1, GIB, &plan, &err), ULL_E_NO_DEVICE);
    assert_memory_equal(&before, &plan, sizeof plan);
    /* What is wrong with another card is that card's. */
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    assert_int_equal(ull_config_set_growth(config, 1, false, &err), ULL_OK);
    is_planned_alone(&nothing, 0, 20 * GIB);
    assert_int_equal(ull_config_set_system_reserve(config, GIB, &err), ULL_OK);
    is_planned_alone(&nothing, 0, 20 * GIB);
    is(0, 0, 19 * GIB, 0, true);
    assert_true(plan.device[0].set);
}

static void growth_by_default(void **state)
{
    (void)state;
    static const struct ull_environment off = {.growth = "false"},
                                        forced = {.force_growth = "false"};
    assert_int_equal(ull_config_set_growth_default(config, true, &err), ULL_OK);
    planned(&nothing, 2);
    assert_true(plan.device[0].growth);
    planned(&off, 2);
    assert_false(plan.device[0].growth);
    planned(&forced, 2);
    assert_false(plan.device[0].growth);
    /* One of two cards says what the default is: they do not differ. */
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    planned(&nothing, 2);
    assert_int_equal(ull_config_set_growth(config, 0, false, &err), ULL_OK);
    is_refused(&nothing, ULL_E_INVALID);
}

static void growth_over_a_parents_logical_devices(void **state)
{
    (void)state;
    static const struct ull_environment text = {
        .config = "1;GPU-aaaaaaaa:logical=1073741824/0/on+2147483648/0/unset"};
    planned(&text, 3);
    assert_true(plan.device[0].growth);
    assert_false(plan.device[1].growth);
    assert_int_equal(ull_config_set_growth(config, 0, false, &err), ULL_OK);
    planned(&text, 3);
    assert_false(plan.device[0].growth);
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    planned(&text, 3);
    assert_true(plan.device[1].growth);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(physical_devices),
        ROW(visible_devices),
        ROW(default_is_all_but_the_system_reserve),
        ROW(system_reserve_by_capability),
        ROW(default_without_room),
        ROW(system_reserve_by_setting),
        ROW(growth_takes_nothing_at_the_start),
        ROW(growth_must_not_differ),
        ROW(growth_is_not_compared_beside_logical_devices),
        ROW(forced_growth),
        ROW(forced_growth_with_a_bad_value),
        ROW(limit_without_growth),
        ROW(limit_with_growth),
        ROW(growth_set_before_the_limit_is_kept),
        ROW(several_logical_devices),
        ROW(limits_above_the_card),
        ROW(share_of_the_total),
        ROW(share_out_of_range),
        ROW(share_and_logical_devices_exclude_each_other),
        ROW(mixed_start_then_growth),
        ROW(one_card_of_several),
        ROW(growth_by_default),
        ROW(growth_over_a_parents_logical_devices),
    };
    return cmocka_run_group_tests_name("policy.config", tests, NULL, NULL);
}
