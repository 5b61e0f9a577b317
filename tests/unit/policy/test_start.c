/* test_start.c: from a configuration to pools on host devices, and what is too late afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "ullage/config.h"

#define MIB ((uint64_t)1 << 20)

static const struct ull_card cards[] = {
    {"GPU-aaaaaaaa", "host", 64 * MIB, 64 * MIB, 9, 0},
    {"GPU-bbbbbbbb", "host", 32 * MIB, 32 * MIB, 9, 0},
};
static const struct ull_environment nothing;

static struct ull_config *config;
static struct ull_error err;
static struct ull_devices *devices;
static int opened, closed, fail_at;

static ull_status open_host(void *context, int card, const struct ull_card *facts,
                            struct ull__device **device, struct ull_error *error)
{
    assert_ptr_equal(context, &opened);
    if (fail_at == card)
        return ULL_E_DRIVER;
    opened++;
    return ull__device_host_create(facts->total_bytes, 0, device, error);
}

static void close_host(void *context, struct ull__device *device)
{
    (void)context;
    closed++;
    ull__device_destroy(device);
}

static const struct ull_opener opener = {&opened, open_host, close_host};

static int setup(void **state)
{
    (void)state;
    opened = closed = 0;
    fail_at = -1;
    devices = NULL;
    memset(&err, 0, sizeof err);
    struct ull_logical_spec specs[2] = {{.memory_limit = 24 * MIB},
                                        {.memory_limit = 40 * MIB, .growth = ULL_GROWTH_ON}};
    struct ull_logical_spec mixed = {.memory_limit = 24 * MIB, .start = 8 * MIB};
    return ull_config_create(cards, 2, &config, NULL) ||
           ull_config_set_logical(config, 0, specs, 2, NULL) ||
           ull_config_set_logical(config, 1, &mixed, 1, NULL);
}

static int teardown(void **state)
{
    (void)state;
    ull_devices_stop(devices);
    ull_config_destroy(config);
    return opened - closed;
}

static void start(void)
{
    ull_status status = ull_config_start(config, &nothing, &opener, "train.c:42", &devices, &err);
    if (status != ULL_OK)
        fail_msg("%s", err.message);
}

static uint64_t held(int i)
{
    struct ull_alloc_info info;
    ull_alloc_info(ull_devices_alloc(devices, i), &info);
    return info.held;
}

static void pools_as_planned(void **state)
{
    (void)state;
    void *a, *b;
    start();
    assert_int_equal(opened, 2); /* two logical devices share one card */
    assert_int_equal(ull_devices_count(devices), 3);
    assert_int_equal(held(0), 24 * MIB); /* all at the start */
    assert_int_equal(held(1), 0);        /* growing */
    assert_int_equal(held(2), 8 * MIB);  /* mixed */
    for (int i = 0; i < 3; i++) {
        struct ull_pool_options policy;
        ull_pool_policy(ull_devices_pool(devices, i), &policy);
        assert_int_equal(policy.growth, ull_devices_plan(devices, i)->growth);
        assert_int_equal(policy.limit, ull_devices_plan(devices, i)->limit);
    }
    assert_int_equal(ull_alloc_allocate(ull_devices_alloc(devices, 0), 24 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_allocate(ull_devices_alloc(devices, 0), 1, NULL, &b),
                     ULL_E_NO_MEMORY); /* though the card has room */
    assert_int_equal(ull_alloc_allocate(ull_devices_alloc(devices, 1), 40 * MIB, NULL, &b), ULL_OK);
    assert_int_equal(ull_alloc_free(ull_devices_alloc(devices, 0), b, NULL), ULL_E_INVALID);
    assert_int_equal(ull_alloc_allocate(ull_devices_alloc(devices, 2), 24 * MIB, NULL, &b), ULL_OK);
    assert_int_equal(held(2), 24 * MIB);
    assert_int_equal(ull_devices_plan(devices, 2)->card, 1);
    assert_non_null(ull_devices_pool(devices, 2));
    assert_null(ull_devices_plan(devices, 3));
    assert_null(ull_devices_pool(devices, -1));
    assert_null(ull_devices_alloc(devices, 3));
    assert_null(ull_devices_guarded(devices, 3));
}

static void guard_on_a_logical_device(void **state)
{
    (void)state;
    struct ull_guard *guard;
    void *a;
    start();
    assert_int_equal(ull_guard_begin(ull_devices_guarded(devices, 1), 16 * MIB, &guard, NULL),
                     ULL_OK);
    assert_int_equal(ull_alloc_allocate(ull_devices_alloc(devices, 1), 16 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    assert_int_equal(ull_alloc_free(ull_devices_alloc(devices, 1), a, NULL), ULL_OK);
}

static void memory_info_and_reset(void **state)
{
    (void)state;
    struct ull_memory_info info;
    void *a;
    start();
    struct ull_alloc *alloc = ull_devices_alloc(devices, 1);
    assert_int_equal(ull_alloc_allocate(alloc, 10 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_free(alloc, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(alloc, 3 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_devices_memory_info(devices, 1, &info), ULL_OK);
    assert_int_equal(info.current, 3 * MIB);
    assert_int_equal(info.peak, 10 * MIB);
    assert_int_equal(ull_devices_reset_memory_stats(devices, 1), ULL_OK);
    assert_int_equal(ull_devices_memory_info(devices, 1, &info), ULL_OK);
    assert_int_equal(info.current, 3 * MIB);
    assert_int_equal(info.peak, 3 * MIB);
    assert_int_equal(ull_devices_memory_info(devices, 0, &info), ULL_OK);
    assert_int_equal(info.current, 0); /* pages held are not handed out */
    assert_int_equal(ull_devices_memory_info(devices, 3, &info), ULL_E_NO_DEVICE);
    assert_int_equal(ull_devices_reset_memory_stats(devices, -1), ULL_E_NO_DEVICE);
}

static void too_late(ull_status status)
{
    assert_int_equal(status, ULL_E_STARTED);
    if (!strstr(err.message, "train.c:42") || !strstr(err.message, "ull_config_start"))
        fail_msg("'%s' does not name the call that started", err.message);
    err.message[0] = 0;
}

static void changes_after_the_start(void **state)
{
    (void)state;
    static const int one[] = {1};
    struct ull_logical_spec spec[ULL_LOGICAL_PER_CARD];
    struct ull_devices *second = NULL;
    start();
    too_late(ull_config_set_visible(config, one, 1, &err));
    too_late(ull_config_set_logical(config, 1, NULL, 0, &err));
    too_late(ull_config_set_system_reserve(config, 1, &err));
    too_late(ull_config_start(config, &nothing, &opener, NULL, &second, &err));
    assert_null(second);
    int count = ull_config_logical(config, 0, spec);
    assert_int_equal(count, 2); /* asking is fine */
    assert_int_equal(ull_config_set_logical(config, 0, spec, count, &err), ULL_OK); /* no change */
    spec[0].memory_limit++;
    too_late(ull_config_set_logical(config, 0, spec, count, &err));
    ull_devices_stop(devices);
    devices = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ull_config_set_logical(config, i, NULL, 0, &err), ULL_OK);
        assert_int_equal(ull_config_set_growth(config, i, true, &err), ULL_OK);
    }
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_OK);
    start();
    assert_int_equal(ull_config_set_growth(config, 1, true, &err), ULL_OK); /* no change */
    assert_int_equal(ull_config_set_share(config, 0.5, &err), ULL_OK);
    too_late(ull_config_set_growth(config, 1, false, &err));
    too_late(ull_config_set_share(config, 0.25, &err));
    ull_devices_stop(devices);
    devices = NULL;
    assert_int_equal(ull_config_set_share(config, 0, &err), ULL_OK);
    assert_int_equal(ull_config_set_mixed(config, 0, 0.25, 0.5, &err), ULL_OK);
    assert_int_equal(ull_config_set_mixed(config, 1, 0.25, 0.5, &err), ULL_OK);
    start();
    assert_int_equal(held(0), 16 * MIB);
    assert_int_equal(ull_config_set_mixed(config, 1, 0.25, 0.5, &err), ULL_OK);
    too_late(ull_config_set_mixed(config, 1, 0.25, 0.75, &err));
}

static void a_start_that_fails_leaves_nothing(void **state)
{
    (void)state;
    fail_at = 1;
    assert_int_equal(ull_config_start(config, &nothing, &opener, NULL, &devices, &err), ULL_E_DRIVER);
    assert_int_equal(opened, 1);
    assert_int_equal(closed, 1);
    fail_at = -1;
    /* Nothing has started: changes are fine, and so is another attempt. */
    assert_int_equal(ull_config_set_logical(config, 1, NULL, 0, &err), ULL_OK);
    assert_int_equal(ull_config_set_system_reserve(config, 0, &err), ULL_OK);
    start();
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(pools_as_planned),
        ROW(guard_on_a_logical_device),
        ROW(memory_info_and_reset),
        ROW(changes_after_the_start),
        ROW(a_start_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests_name("policy.start", tests, NULL, NULL);
}
