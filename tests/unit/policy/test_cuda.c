/* test_cuda.c: the cards of the CUDA driver as a configuration, over the fake driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ullage/config.h"

#define MIB ((uint64_t)1 << 20)

static const struct ull_environment nothing;
static struct ull_error err;

static void cards_of_the_driver(void **state)
{
    (void)state;
    struct ull_config *config;
    const struct ull_card *cards;
    assert_int_equal(ull_config_create_cuda(&config, &err), ULL_OK);
    assert_true(ull_config_cards(config, &cards) >= 1);
    assert_int_equal(strncmp(cards[0].uuid, "GPU-", 4), 0);
    assert_int_equal(strlen(cards[0].uuid), 40);
    assert_true(cards[0].name[0] != 0);
    assert_int_equal(cards[0].major, 9);
    assert_true(cards[0].total_bytes > 1024 * MIB);
    ull_config_destroy(config);
}

/* What is free is read with the context in place, so the default leaves room for it. */
static void default_of_what_is_free(void **state)
{
    (void)state;
    struct ull_config *config;
    struct ull_devices *devices;
    const struct ull_card *cards;
    static const int first[] = {0};
    struct ull_opener opener = ull_opener_cuda();
    assert_int_equal(ull_config_create_cuda(&config, &err), ULL_OK);
    assert_int_equal(ull_config_set_visible(config, first, 1, &err), ULL_OK);
    assert_int_equal(ull_config_set_growth(config, 0, true, &err), ULL_OK);
    if (ull_config_start(config, &nothing, &opener, ULL_HERE, &devices, &err) != ULL_OK)
        fail_msg("%s", err.message);
    ull_config_cards(config, &cards);
    assert_true(cards[0].free_bytes < cards[0].total_bytes);
    assert_int_equal(ull_devices_plan(devices, 0)->limit,
                     cards[0].free_bytes - ull_system_reserve(cards[0].free_bytes, 9));
    ull_devices_stop(devices);
    ull_config_destroy(config);
}

static void logical_devices_of_a_card(void **state)
{
    (void)state;
    struct ull_config *config;
    struct ull_devices *devices;
    static const int first[] = {0};
    struct ull_logical_spec specs[] = {{.memory_limit = 64 * MIB},
                                       {.memory_limit = 128 * MIB, .growth = ULL_GROWTH_ON}};
    struct ull_opener opener = ull_opener_cuda();
    void *a, *b;
    assert_int_equal(ull_config_create_cuda(&config, &err), ULL_OK);
    assert_int_equal(ull_config_set_visible(config, first, 1, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 0, specs, 2, &err), ULL_OK);
    if (ull_config_start(config, &nothing, &opener, ULL_HERE, &devices, &err) != ULL_OK)
        fail_msg("%s", err.message);
    assert_int_equal(ull_devices_count(devices), 2);
    struct ull_alloc *one = ull_devices_alloc(devices, 0), *two = ull_devices_alloc(devices, 1);
    assert_int_equal(ull_alloc_allocate(one, 64 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_allocate(one, 1, NULL, &b), ULL_E_NO_MEMORY);
    assert_int_equal(ull_alloc_allocate(two, 100 * MIB, NULL, &b), ULL_OK);
    assert_int_equal(ull_alloc_free(one, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_free(two, b, NULL), ULL_OK);
    ull_devices_stop(devices);
    ull_config_destroy(config);
}

/* A card that cannot map pages: a growing pool grows by regions there, another takes all at the start. */
static void without_virtual_memory(void **state)
{
    (void)state;
    struct ull_config *config;
    struct ull_devices *devices;
    static const int first[] = {0};
    struct ull_logical_spec spec[2] = {{.memory_limit = 128 * MIB, .growth = ULL_GROWTH_ON},
                                       {.memory_limit = 64 * MIB, .growth = ULL_GROWTH_OFF}};
    struct ull_opener opener = ull_opener_cuda();
    struct ull_alloc_info info;
    void *a, *small;
    assert_int_equal(ull_config_create_cuda(&config, &err), ULL_OK);
    assert_int_equal(ull_config_set_visible(config, first, 1, &err), ULL_OK);
    assert_int_equal(ull_config_set_logical(config, 0, spec, 2, &err), ULL_OK);
    if (ull_config_start(config, &nothing, &opener, ULL_HERE, &devices, &err) != ULL_OK)
        fail_msg("%s", err.message);
    struct ull_alloc *alloc = ull_devices_alloc(devices, 0);
    ull_alloc_info(ull_devices_alloc(devices, 1), &info);
    assert_int_equal(info.held, 64 * MIB);
    ull_alloc_info(alloc, &info);
    assert_int_equal(info.held, 0);
    assert_int_equal(ull_alloc_allocate(alloc, 1000, NULL, &small), ULL_OK);
    assert_int_equal(ull_alloc_allocate(alloc, 100 * MIB, NULL, &a), ULL_OK);
    ull_alloc_info(alloc, &info);
    assert_true(info.held >= 100 * MIB && info.held < 104 * MIB);
    assert_int_equal(ull_alloc_free(alloc, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_free(alloc, small, NULL), ULL_OK);
    ull_devices_stop(devices);
    ull_config_destroy(config);
}

static int without_a_driver(void)
{
    struct ull_config *config;
    ull_status status = ull_config_create_cuda(&config, &err);
    return status == ULL_E_NO_DEVICE && strstr(err.message, "libcuda.so.1") ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_of_the_driver),
        cmocka_unit_test(default_of_what_is_free),
        cmocka_unit_test(logical_devices_of_a_card),
    };
    const struct CMUnitTest plain[] = {cmocka_unit_test(without_virtual_memory)};
    if (argc > 1 && strcmp(argv[1], "no-driver") == 0)
        return without_a_driver();
    if (argc > 1 && strcmp(argv[1], "plain") == 0)
        return cmocka_run_group_tests_name("policy.cuda.plain", plain, NULL, NULL);
    return cmocka_run_group_tests_name("policy.cuda", tests, NULL, NULL);
}
