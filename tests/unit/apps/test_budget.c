/* test_budget.c: -m from text to bytes per device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "devices.h"

#define GIB (1ull << 30)

static struct machine machine;
static struct ull__job_spec job;

static int three_cards(void **state)
{
    (void)state;
    memset(&machine, 0, sizeof machine);
    memset(&job, 0, sizeof job);
    for (int i = 0; i < 3; i++) {
        snprintf(machine.devices[i].uuid, ULL_UUID_TEXT, "GPU-%daaaaaaa", i);
        machine.devices[i].physical = i;
        machine.devices[i].total_bytes = (uint64_t)(i + 1) * 10 * GIB;
        machine.cuda_order[i] = i;
    }
    machine.count = machine.cuda_count = 3;
    return 0;
}

static ull_status apply(const char *text, const char *visible_text, struct ull_error *err)
{
    struct budget budget = {0};
    struct selection visible;
    int capped;
    ull_status status = text ? budget_parse(text, &budget, err) : ULL_OK;
    devices_visible(&machine, visible_text, &visible);
    return status == ULL_OK ? budget_apply(&budget, &machine, &visible, &job, &capped, err) : status;
}

static void check(int place, int logical, int physical, uint64_t bytes)
{
    assert_int_equal(job.devices[place].logical, logical);
    assert_int_equal(job.devices[place].physical, physical);
    assert_int_equal(job.devices[place].budget_bytes, bytes);
}

static void one_size_holds_everywhere(void **state)
{
    (void)state;
    assert_int_equal(apply("4GiB", "2,0", NULL), ULL_OK);
    assert_int_equal(job.device_count, 3);
    check(0, 0, 2, 4 * GIB);
    check(1, 1, 0, 4 * GIB);
    check(2, -1, 1, 4 * GIB); /* not visible, held all the same */
}

static void a_share_is_of_each_card(void **state)
{
    (void)state;
    assert_int_equal(apply("40%", "2,0", NULL), ULL_OK);
    check(0, 0, 2, 12 * GIB);
    check(1, 1, 0, 4 * GIB);
    check(2, -1, 1, 8 * GIB);
}

static void rules_name_logical_devices(void **state)
{
    (void)state;
    assert_int_equal(apply("0=4GiB,1=50%", "2,0", NULL), ULL_OK);
    check(0, 0, 2, 4 * GIB);
    check(1, 1, 0, 5 * GIB);
    check(2, -1, 1, 20 * GIB);
    assert_int_equal(apply("25%,GPU-1=1GiB", "2,0", NULL), ULL_OK);
    check(0, 0, 2, 30 * GIB / 4);
    check(2, -1, 1, GIB);
}

static void budgets_end_at_the_card(void **state)
{
    (void)state;
    assert_int_equal(apply("15GiB", NULL, NULL), ULL_OK);
    check(0, 0, 0, 10 * GIB);
    check(1, 1, 1, 15 * GIB);
    assert_int_equal(apply(NULL, NULL, NULL), ULL_OK);
    check(2, 2, 2, 30 * GIB);
}

static void names_what_is_wrong(void **state)
{
    static const struct {
        const char *text;
        ull_status status;
        const char *says;
    } cases[] = {
        {"10XB", ULL_E_INVALID, "10XB"},
        {"-1", ULL_E_INVALID, "-1"},
        {"0", ULL_E_INVALID, "0"},
        {"400%", ULL_E_INVALID, "400%"},
        {"", ULL_E_INVALID, "expected"},
        {"0=", ULL_E_INVALID, "expected"},
        {"=4GiB", ULL_E_INVALID, "expected"},
        {"0=4GiB,", ULL_E_INVALID, "expected"},
        {"0=1G,0=2G", ULL_E_INVALID, "second"},
        {"1G,2G", ULL_E_INVALID, "second"},
        {"a=1G", ULL_E_INVALID, "'a'"},
        {"-1=1G", ULL_E_INVALID, "'-1'"},
        {"5=4GiB", ULL_E_NO_DEVICE, "5"},
        {"2=4GiB", ULL_E_NO_DEVICE, "2 GPUs"},
        {"GPU-9=4GiB", ULL_E_NO_DEVICE, "GPU-9"},
        {"GPU-=4GiB", ULL_E_NO_DEVICE, "several"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ull_error err = {""};
        assert_int_equal(apply(cases[i].text, "0,1", &err), cases[i].status);
        if (!strstr(err.message, cases[i].says))
            fail_msg("'%s' gives: %s", cases[i].text, err.message);
    }
}

static void a_card_of_unknown_size_cannot_be_held(void **state)
{
    struct ull_error err;
    (void)state;
    machine.devices[1].total_bytes = 0;
    assert_int_equal(apply("4GiB", NULL, &err), ULL_E_NO_DEVICE);
    assert_non_null(strstr(err.message, "GPU-1aaaaaaa"));
}

static void maps_logical_to_physical(void **state)
{
    char text[DEVICE_MAP_TEXT];
    (void)state;
    assert_int_equal(apply("4GiB", "2", NULL), ULL_OK);
    assert_string_equal(device_map_text(&job.devices[0], text),
                        "logical 0 = physical 2 (GPU-2aaaaaaa)");
    assert_string_equal(device_map_text(&job.devices[1], text),
                        "not visible = physical 0 (GPU-0aaaaaaa)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_size_holds_everywhere, three_cards),
        cmocka_unit_test_setup(a_share_is_of_each_card, three_cards),
        cmocka_unit_test_setup(rules_name_logical_devices, three_cards),
        cmocka_unit_test_setup(budgets_end_at_the_card, three_cards),
        cmocka_unit_test_setup(names_what_is_wrong, three_cards),
        cmocka_unit_test_setup(a_card_of_unknown_size_cannot_be_held, three_cards),
        cmocka_unit_test_setup(maps_logical_to_physical, three_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
