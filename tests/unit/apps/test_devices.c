/*
 * test_devices.c: CUDA_VISIBLE_DEVICES and -g. The table `driver` is what driver 580.159 answered on a
 * machine with two H200 cards (cuDeviceGetCount and UUIDs for each value of the variable).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "devices.h"

#define A "GPU-18123933-ec74-4399-fcac-0f82628aec99"
#define B "GPU-93f6e897-3b2d-3c8a-a1c7-4a689d9a62b6"

static struct machine machine;

static void add(const char *uuid, int physical, bool divided)
{
    struct machine_device *device = &machine.devices[machine.count];
    memset(device, 0, sizeof *device);
    snprintf(device->uuid, sizeof device->uuid, "%s", uuid);
    device->physical = physical;
    device->divided = divided;
    device->total_bytes = 6ull << 30;
    if (!divided)
        machine.cuda_order[machine.cuda_count++] = machine.count;
    machine.count++;
}

static int two_cards(void **state)
{
    (void)state;
    memset(&machine, 0, sizeof machine);
    add(A, 0, false);
    add(B, 1, false);
    return 0;
}

static void reads_the_variable_as_the_driver(void **state)
{
    static const struct {
        const char *value;
        const char *sees; /* "0", "1", "01", "10" or "" */
    } driver[] = {
        {"", ""},
        {"0,1", "01"},
        {"1,0", "10"},
        {"0,0", ""},
        {"1,1,0", ""},
        {"0,5,1", "0"},
        {"5,0", ""},
        {"-1", ""},
        {"0,-1,1", "0"},
        {" 1", "1"},
        {"1 ,0", "10"},
        {"1, 0", "10"},
        {"0,,1", "0"},
        {",", ""},
        {"1,", "1"},
        {"abc", ""},
        {"0abc", "0"},
        {"1x,0", "10"},
        {"+1", "1"},
        {"01", "1"},
        {"0x1", "0"},
        {B, "1"},
        {B "," A, "10"},
        {"GPU-93f6", "1"},
        {"GPU-93f6,GPU-18123933", "10"},
        {B ",0", "1"},
        {"0," B, "0"},
        {"1," B, "1"},
        {"GPU-", ""},
        {"GPU-93F6E897-3B2D-3C8A-A1C7-4A689D9A62B6", "1"},
        {"GPU-93f6e897x", ""},
        {"gpu-93f6e897", ""},
        {A "," A, ""},
        {"93f6e897-3b2d-3c8a-a1c7-4a689d9a62b6", ""},
        {" " B, ""},
        {B " ", "1"},
        {"GPU-zz," A, ""},
        {A ",GPU-zz," B, "0"},
        {"NoDevFiles", ""},
        {"none", ""},
        {"all", ""},
        {"1.0", "1"},
        {"99999999999", ""},
        {"4294967296", "0"},
        {"GPU-9", "1"},
        {"0;1", "0"},
        {"0 1", "0"},
        {A ", " B, "0"},
        {"GPU-18123933zz", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof driver / sizeof *driver; i++) {
        struct selection visible;
        char sees[8] = "";
        devices_visible(&machine, driver[i].value, &visible);
        for (int d = 0; d < visible.count; d++)
            sees[d] = (char)('0' + visible.place[d]);
        if (strcmp(sees, driver[i].sees) != 0)
            fail_msg("CUDA_VISIBLE_DEVICES='%s': got '%s', the driver sees '%s'", driver[i].value,
                     sees, driver[i].sees);
    }
}

/* Every order of every subset of four cards, by index and by UUID. */
static void takes_every_order(void **state)
{
    static const char *const uuids[] = {"GPU-aa", "GPU-ab", "GPU-b0", "GPU-b1"};
    (void)state;
    memset(&machine, 0, sizeof machine);
    for (int i = 0; i < 4; i++)
        add(uuids[i], i, false);
    for (int code = 0; code < 5 * 5 * 5 * 5; code++) {
        char by_index[64] = "", by_uuid[64] = "";
        int wanted[4], count = 0, seen = 0;
        bool twice = false;
        for (int i = 0, rest = code; i < 4; i++, rest /= 5) {
            int card = rest % 5;
            if (card == 4)
                break;
            twice |= seen >> card & 1;
            seen |= 1 << card;
            wanted[count++] = card;
            snprintf(by_index + strlen(by_index), 8, "%s%d", count > 1 ? "," : "", card);
            snprintf(by_uuid + strlen(by_uuid), 16, "%s%s", count > 1 ? "," : "", uuids[card]);
        }
        struct selection first, second;
        devices_visible(&machine, by_index, &first);
        devices_visible(&machine, by_uuid, &second);
        assert_int_equal(first.count, twice ? 0 : count);
        assert_int_equal(second.count, first.count);
        for (int i = 0; i < first.count; i++) {
            assert_int_equal(first.place[i], wanted[i]);
            assert_int_equal(second.place[i], wanted[i]);
        }
    }
}

static void follows_the_cuda_order(void **state)
{
    struct selection visible;
    (void)state;
    machine.cuda_order[0] = 1;
    machine.cuda_order[1] = 0;
    devices_visible(&machine, NULL, &visible);
    assert_int_equal(visible.count, 2);
    assert_int_equal(visible.place[0], 1);
    devices_visible(&machine, "1", &visible);
    assert_int_equal(visible.place[0], 0);
}

static const char *rank_variable, *rank_value;

static char *get(const char *name)
{
    return rank_variable && strcmp(name, rank_variable) == 0 ? (char *)(size_t)rank_value : NULL;
}

static ull_status select_gpus(const char *text, struct selection *selected, struct ull_error *err)
{
    struct selection visible;
    devices_visible(&machine, NULL, &visible);
    return devices_select(&machine, text, &visible, get, selected, err);
}

static void selects_by_index_and_uuid(void **state)
{
    struct selection selected;
    struct ull_error err;
    char list[256];
    (void)state;
    machine.cuda_order[0] = 1; /* -g counts as nvidia-smi all the same */
    machine.cuda_order[1] = 0;
    assert_int_equal(select_gpus("1,0", &selected, &err), ULL_OK);
    assert_string_equal(devices_uuid_list(&machine, &selected, list, sizeof list), B "," A);
    assert_int_equal(select_gpus("GPU-93f6,0", &selected, &err), ULL_OK);
    assert_string_equal(devices_uuid_list(&machine, &selected, list, sizeof list), B "," A);
    static const struct {
        const char *text;
        ull_status status;
    } bad[] = {{"9", ULL_E_NO_DEVICE},
               {"GPU-77", ULL_E_NO_DEVICE},
               {"GPU-", ULL_E_NO_DEVICE},
               {"0,9", ULL_E_NO_DEVICE},
               {"", ULL_E_INVALID},
               {"x", ULL_E_INVALID},
               {"-1", ULL_E_INVALID},
               {"0,0", ULL_E_INVALID},
               {"0,", ULL_E_INVALID},
               {"1x", ULL_E_INVALID},
               {"99999999999999999999", ULL_E_INVALID}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(select_gpus(bad[i].text, &selected, &err), bad[i].status);
    select_gpus("9", &selected, &err);
    assert_non_null(strstr(err.message, "9"));
    assert_non_null(strstr(err.message, "0 to 1"));
}

static void selects_by_local_rank(void **state)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK",
                                            "SLURM_LOCALID", "HOROVOD_LOCAL_RANK"};
    struct selection selected;
    (void)state;
    for (int i = 0; i < 4; i++) {
        rank_variable = variables[i];
        rank_value = "1";
        assert_int_equal(select_gpus("local", &selected, NULL), ULL_OK);
        assert_int_equal(selected.place[0], 1);
        rank_value = "2"; /* more ranks than cards share them in turn */
        assert_int_equal(select_gpus("local", &selected, NULL), ULL_OK);
        assert_int_equal(selected.place[0], 0);
        rank_value = "one";
        assert_int_equal(select_gpus("local", &selected, NULL), ULL_E_INVALID);
    }
    rank_variable = NULL;
    assert_int_equal(select_gpus("local", &selected, NULL), ULL_E_INVALID);
}

static void gives_instances_of_divided_cards(void **state)
{
    struct selection selected;
    struct ull_error err;
    (void)state;
    add("GPU-dddddddd", 2, true);
    add("MIG-11111111", 2, false);
    add("MIG-22222222", 2, false);
    assert_int_equal(select_gpus("MIG-2", &selected, NULL), ULL_OK);
    assert_int_equal(selected.place[0], 4);
    assert_int_equal(select_gpus("2", &selected, &err), ULL_E_NO_DEVICE);
    assert_non_null(strstr(err.message, "MIG"));
    devices_visible(&machine, "MIG-22222222,MIG-11111111", &selected);
    assert_int_equal(selected.count, 2);
    assert_int_equal(selected.place[0], 4);
    devices_visible(&machine, "GPU-dddddddd", &selected);
    assert_int_equal(selected.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_the_variable_as_the_driver, two_cards),
        cmocka_unit_test_setup(takes_every_order, two_cards),
        cmocka_unit_test_setup(follows_the_cuda_order, two_cards),
        cmocka_unit_test_setup(selects_by_index_and_uuid, two_cards),
        cmocka_unit_test_setup(selects_by_local_rank, two_cards),
        cmocka_unit_test_setup(gives_instances_of_divided_cards, two_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
