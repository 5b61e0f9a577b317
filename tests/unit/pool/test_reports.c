/*
 * test_reports.c: kinds of bug reports about other allocators ("project#number") that have no test among those
 * of one promise (test_requests.c, test_streams.c, test_telling.c). pytorch/pytorch#188008 and the like, a
 * map that fails halfway, are tests/fault/pool and tests/conformance/device_cuda.c.
 */
#include "world.h"

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % n;
}

/* Requests and frees of all sizes; in the end everything is free. */
static void traffic(struct world *w, int operations)
{
    void *p[48] = {0};
    for (int i = 0; i < operations + 48; i++) {
        int at = i < operations ? (int)random_below(48) : i - operations;
        if (p[at])
            give(w, p[at]);
        p[at] = NULL;
        uint64_t bytes = 1 + random_below(random_below(4) ? PAGE / 8 : 3 * PAGE);
        if (i < operations && ull_pool_allocate(w->pool, bytes, NULL, &p[at]) != ULL_OK)
            p[at] = NULL;
    }
}

/*
 * pytorch/pytorch#110194, rapidsai/rmm#1245: after hundreds of gigabytes of traffic a pool that is half empty
 * refuses. Here all that is not in use can be had, in one piece.
 */
static void long_traffic_leaves_all_usable(void **state)
{
    struct world *w = *state;
    void *kept[8];
    w->options.limit = 64 * PAGE;
    start(w);
    for (int round = 0; round < 8; round++) {
        kept[round] = get(w, PAGE);
        traffic(w, 5000);
        give(w, get(w, (uint64_t)(63 - round) * PAGE));
        assert_true(stats(w).held <= 64 * PAGE);
    }
    for (int round = 0; round < 8; round++)
        give(w, kept[round]);
    get(w, 64 * PAGE);
}

/*
 * rapidsai/rmm#496: growth that doubles asks for more than there is, and fails though the request would have
 * fitted. tensorflow/tsl's back-off then never ends. Here exactly what is missing is asked for.
 */
static void grows_into_what_is_left(void **state)
{
    struct world *w = *state;
    ull__page others[200];
    start(w);
    assert_int_equal(w->device->ops->create(w->device, 200, others), ULL_OK);
    get(w, 40 * PAGE);
    void *address = w;
    assert_int_equal(ull_pool_allocate(w->pool, 17 * PAGE, NULL, &address), ULL_E_NO_MEMORY);
    assert_ptr_equal(address, w);
    get(w, 16 * PAGE);
    refused(w, 1);
    w->device->ops->destroy_pages(w->device, 200, others);
    get(w, 200 * PAGE);
}

/* The same if the device fails each time: a request is refused after a few calls, none is left to try. */
static void a_device_that_keeps_failing(void **state)
{
    struct world *w = *state;
    start(w);
    for (uint64_t bytes = 1; bytes <= 64 * PAGE; bytes = bytes * 3 + 1) {
        struct ull__device_calls before = ull__device_host_calls(w->device);
        ull__device_host_fail_at(w->device, 1);
        refused(w, bytes);
        struct ull__device_calls after = ull__device_host_calls(w->device);
        assert_in_range(after.creates - before.creates, 1, 2);
        assert_int_equal(stats(w).held, 0);
    }
}

/* jax-ml/jax#19213: growth that was not honoured, which only nvidia-smi could tell. */
static void growth_is_as_it_says(void **state)
{
    struct world *w = *state;
    struct ull_pool_options o;
    for (int growth = 0; growth < 2; growth++) {
        w->options.growth = growth;
        w->options.limit = 100 * PAGE;
        start(w);
        ull_pool_policy(w->pool, &o);
        assert_int_equal(o.growth, growth);
        assert_int_equal(stats(w).held, growth ? 0 : 100 * PAGE);
        assert_int_equal(ull__device_host_held(w->device).pages, growth ? 0 : 100);
        get(w, 10 * PAGE);
        assert_int_equal(ull__device_host_held(w->device).pages, growth ? 10 : 100);
        ull_pool_destroy(w->pool);
        w->pool = NULL;
    }
}

/* tensorflow/tensorflow#11915: a limit that nobody set and no statistic shows. */
static void the_limit_is_all_there_is(void **state)
{
    struct world *w = *state;
    struct ull_refusal refusal;
    struct ull_request request = {.bytes = 257 * PAGE};
    void *address;
    start(w);
    assert_int_equal(stats(w).limit, 256 * PAGE);
    assert_int_equal(ull_pool_request(w->pool, &request, &refusal, &address), ULL_E_NO_MEMORY);
    assert_int_equal(refusal.limit, 256 * PAGE);
    get(w, stats(w).limit);
}

/* pytorch/pytorch#119452: options that are each fine and together trip over each other. */
static void options_together(void **state)
{
    struct world *w = *state;
    char what[256];
    for (int i = 0; i < 216; i++) {
        int watermark = i / 2 % 3, small = i / 6 % 3, factor = i / 18 % 2, wait = i / 36 % 2;
        w->options.growth = i % 2;
        w->options.watermark_percent = (unsigned int)watermark * 50;
        w->options.small_bytes = small == 0 ? 0 : small == 1 ? 4096 : UINT64_MAX;
        w->options.mapping_factor = factor ? 1 : UINT32_MAX;
        w->options.wait_ns = wait ? 0 : UINT64_MAX;
        w->options.idle_ns = i / 72 * 1000;
        w->options.limit = 40 * PAGE + PAGE / 2;
        w->options.reserve = i % 2 ? (uint64_t)(i % 5) * PAGE : 0;
        start(w);
        traffic(w, 300);
        ull_pool_trim(w->pool, 7 * PAGE, NULL);
        ull_pool_set_limit(w->pool, 20 * PAGE);
        traffic(w, 100);
        assert_true(ull__pool_check(w->pool, what, sizeof what));
        get(w, stats(w).limit / PAGE * PAGE);
        ull_pool_destroy(w->pool);
        w->pool = NULL;
        w->clock += 1000;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(long_traffic_leaves_all_usable), TEST(grows_into_what_is_left),
        TEST(a_device_that_keeps_failing),    TEST(growth_is_as_it_says),
        TEST(the_limit_is_all_there_is),      TEST(options_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
