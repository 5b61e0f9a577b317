/*
 * test_limits.c: how much a pool holds: limits, reserves, what is given back and when.
 * Each of the kinds of bug reports about other allocators that an allocator can have has a test with
 * its number: "project#number".
 */
#include "world.h"

static void limit_changes(void **state)
{
    struct world *w = *state;
    void *p[32];
    start(w);
    for (int i = 0; i < 32; i++)
        p[i] = get(w, PAGE);
    for (int i = 16; i < 32; i++)
        give(w, p[i]);
    assert_int_equal(stats(w).held, 32 * PAGE);
    ull_pool_set_limit(w->pool, 20 * PAGE);
    assert_int_equal(stats(w).held, 20 * PAGE);
    ull_pool_set_limit(w->pool, 10 * PAGE);
    assert_int_equal(stats(w).held, 16 * PAGE);
    refused(w, 256);
    for (int i = 0; i < 7; i++)
        give(w, p[i]);
    get(w, PAGE);
    assert_int_equal(stats(w).held, 10 * PAGE);
    ull_pool_set_limit(w->pool, 0);
    get(w, 200 * PAGE);
}

static void reserve_and_no_growth(void **state)
{
    struct world *w = *state;
    w->options.growth = false;
    w->options.reserve = 10 * PAGE;
    start(w);
    assert_int_equal(stats(w).held, 10 * PAGE);
    void *p = get(w, 10 * PAGE);
    refused(w, 256);
    give(w, p);
    uint64_t returned;
    ull_pool_trim(w->pool, UINT64_MAX, &returned);
    assert_int_equal(returned, 0);
    assert_int_equal(ull_pool_set_reserve(w->pool, 12 * PAGE), ULL_OK);
    get(w, 12 * PAGE);
    assert_int_equal(ull__device_host_calls(w->device).creates, 2);
    assert_int_equal(ull_pool_set_reserve(w->pool, UINT64_MAX), ULL_E_INVALID);
}

/* A limit need not be of whole pages; what is held never is above it, however it is taken. */
static void a_limit_between_pages(void **state)
{
    struct world *w = *state;
    for (int growth = 0; growth < 2; growth++) {
        for (int reserved = 0; reserved < 2; reserved++) {
            w->options.growth = growth;
            w->options.limit = 10 * PAGE + PAGE / 2 + 1;
            w->options.reserve = reserved ? w->options.limit : 0;
            start(w);
            void *p = get(w, 10 * PAGE);
            assert_int_equal(stats(w).held, 10 * PAGE);
            refused(w, PAGE / 2);
            assert_int_equal(ull_pool_set_limit(w->pool, 9 * PAGE + 1), ULL_OK);
            give(w, p);
            give(w, get(w, 9 * PAGE));
            assert_int_equal(stats(w).held, 9 * PAGE);
            ull_pool_destroy(w->pool);
            w->pool = NULL;
        }
    }
}

static void share_then_growth(void **state)
{
    struct world *w = *state;
    w->options.reserve = 30 * PAGE;
    w->options.limit = 80 * PAGE;
    start(w);
    void *p = get(w, 80 * PAGE);
    refused(w, 1);
    give(w, p);
    uint64_t returned;
    ull_pool_trim(w->pool, UINT64_MAX, &returned);
    assert_int_equal(returned, 50 * PAGE);
    assert_int_equal(stats(w).held, 30 * PAGE);
}

static void prewarmed_requests_call_no_device(void **state)
{
    struct world *w = *state;
    start(w);
    assert_int_equal(ull_pool_prewarm(w->pool, 40 * MIB), ULL_OK);
    struct ull__device_calls before = ull__device_host_calls(w->device);
    give(w, get(w, 40 * MIB));
    struct ull__device_calls after = ull__device_host_calls(w->device);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(ull_pool_prewarm(w->pool, 257 * PAGE), ULL_E_NO_MEMORY);
}

/* Pages above the watermark that nothing needed for ten seconds go, without a thread. */
static void idle_pages_are_given_back(void **state)
{
    struct world *w = *state;
    w->options.limit = 100 * PAGE;
    w->options.reserve = 5 * PAGE;
    start(w);
    void *p = get(w, 100 * PAGE);
    give(w, p);
    for (int i = 0; i < 3000; i++) {
        w->clock += 1000000;
        give(w, get(w, PAGE));
    }
    assert_int_equal(stats(w).held, 100 * PAGE); /* three seconds */
    for (int i = 0; i < 30000; i++) {
        w->clock += 1000000;
        give(w, get(w, PAGE));
    }
    assert_int_equal(stats(w).held, 70 * PAGE);
}

/* What was needed within the ten seconds stays, though it is free whenever somebody looks. */
static void pages_in_use_now_and_then_stay(void **state)
{
    struct world *w = *state;
    w->options.limit = 100 * PAGE;
    start(w);
    for (int i = 0; i < 10000; i++) {
        w->clock += 10000000;
        give(w, get(w, i % 400 == 0 ? 100 * PAGE : PAGE));
    }
    assert_int_equal(stats(w).held, 100 * PAGE);
    assert_int_equal(stats(w).pages_returned, 0);
}

static void level_stays_over_hours(void **state)
{
    struct world *w = *state;
    void *p[64] = {0};
    uint64_t random = 1, level = 0;
    start(w);
    for (int i = 0; i < 300000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        int at = random >> 58;
        if (p[at])
            give(w, p[at]);
        p[at] = get(w, 1 + (random >> 20) % (8 * MIB));
        w->clock += 50000000;
        if (i == 30000)
            level = stats(w).held;
    }
    assert_true(stats(w).held <= level + level / 20);
    assert_true(stats(w).mapped <= 6 * (stats(w).held + 64 * PAGE));
}

/* Without growth the reserve is the limit: what is above a lower one goes at once. */
static void a_lower_reserve_without_growth(void **state)
{
    struct world *w = *state;
    w->options.growth = false;
    w->options.reserve = 64 * PAGE;
    start(w);
    assert_int_equal(ull_pool_set_reserve(w->pool, 16 * PAGE), ULL_OK);
    assert_int_equal(stats(w).held, 16 * PAGE);
    get(w, 16 * PAGE);
    refused(w, PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lower_reserve_without_growth),
        TEST(limit_changes),
        TEST(a_limit_between_pages),
        TEST(reserve_and_no_growth),
        TEST(share_then_growth),
        TEST(prewarmed_requests_call_no_device),
        TEST(idle_pages_are_given_back),
        TEST(pages_in_use_now_and_then_stay),
        TEST(level_stays_over_hours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
