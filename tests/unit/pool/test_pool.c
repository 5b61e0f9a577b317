/*
 * test_pool.c: what a pool promises, one promise a test. Each of the kinds of bug reports about other
 * allocators that an allocator can have (research: PyTorch, RMM, TensorFlow) has a test with its number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "pool_private.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)

struct world {
    struct ull__device *device;
    struct ull_pool *pool;
    struct ull_pool_options options;
    ull__stream streams[2];
    uint64_t clock;
};

static uint64_t world_now(void *context)
{
    return ((struct world *)context)->clock;
}

static void start(struct world *w)
{
    assert_int_equal(ull_pool_create(w->device, &w->options, &w->pool, NULL), ULL_OK);
}

static int setup(void **state)
{
    static struct world w;
    w = (struct world){0};
    if (ull__device_host_create(256 * PAGE, 0, &w.device, NULL) != ULL_OK)
        return -1;
    for (int i = 0; i < 2; i++)
        w.device->ops->stream_create(w.device, &w.streams[i]);
    ull_pool_options_init(&w.options);
    w.options.now_ns = world_now;
    w.options.now_context = &w;
    *state = &w;
    return 0;
}

/* Whatever a test did, the pool is whole and the device gets everything back. */
static int teardown(void **state)
{
    struct world *w = *state;
    char what[256];
    if (w->pool && !ull__pool_check(w->pool, what, sizeof what)) {
        print_error("%s\n", what);
        return -1;
    }
    ull_pool_destroy(w->pool);
    struct ull__device_held held = ull__device_host_held(w->device);
    for (int i = 0; i < 2; i++)
        w->device->ops->stream_destroy(w->device, w->streams[i]);
    ull__device_destroy(w->device);
    return held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses ? -1 : 0;
}

static void *get_on(struct world *w, uint64_t bytes, ull__stream stream)
{
    void *address = NULL;
    assert_int_equal(ull_pool_allocate(w->pool, bytes, stream, &address), ULL_OK);
    assert_non_null(address);
    return address;
}

static void *get(struct world *w, uint64_t bytes)
{
    return get_on(w, bytes, NULL);
}

static void give(struct world *w, void *address)
{
    assert_int_equal(ull_pool_free(w->pool, address, NULL), ULL_OK);
}

static void refused(struct world *w, uint64_t bytes)
{
    void *address = w;
    assert_int_equal(ull_pool_allocate(w->pool, bytes, NULL, &address), ULL_E_NO_MEMORY);
    assert_ptr_equal(address, w);
}

static struct ull_stats stats(struct world *w)
{
    struct ull_stats s = {.size = sizeof s};
    assert_int_equal(ull_pool_stats(w->pool, &s), ULL_OK);
    return s;
}

/* --- sizes and errors ---------------------------------------------------------------------------------- */

static void refuses_odd_sizes(void **state)
{
    struct world *w = *state;
    void *address = w;
    start(w);
    assert_int_equal(ull_pool_allocate(w->pool, 0, NULL, &address), ULL_E_INVALID);
    refused(w, UINT64_MAX);
    refused(w, UINT64_MAX - 254);
    refused(w, UINT64_MAX / 2);
    refused(w, 256 * PAGE + 1);
    struct ull_request r = {.bytes = 1, .alignment = 3};
    assert_int_equal(ull_pool_request(w->pool, &r, NULL, &address), ULL_E_INVALID);
    r.alignment = (uint64_t)1 << 63;
    assert_int_equal(ull_pool_request(w->pool, &r, NULL, &address), ULL_E_NO_MEMORY);
    r.bytes = UINT64_MAX;
    r.alignment = PAGE;
    assert_int_equal(ull_pool_request(w->pool, &r, NULL, &address), ULL_E_NO_MEMORY);
    assert_ptr_equal(address, w);
    give(w, get(w, 1));
    give(w, get(w, 256 * PAGE));
}

static void aligns(void **state)
{
    struct world *w = *state;
    start(w);
    for (uint64_t alignment = 1; alignment <= 16 * PAGE; alignment *= 2) {
        for (uint64_t bytes = 1; bytes <= 3 * PAGE; bytes = bytes * 5 + 1) {
            void *address;
            struct ull_request r = {.bytes = bytes, .alignment = alignment};
            assert_int_equal(ull_pool_request(w->pool, &r, NULL, &address), ULL_OK);
            assert_int_equal((uintptr_t)address % (alignment < 256 ? 256 : alignment), 0);
            if (bytes % 3 == 0)
                give(w, address);
        }
    }
}

static void bad_frees_change_nothing(void **state)
{
    struct world *w = *state;
    int foreign;
    start(w);
    char *large = get(w, 5 * MIB), *small = get(w, 1000);
    assert_int_equal(ull_pool_free(w->pool, NULL, NULL), ULL_OK);
    assert_int_equal(ull_pool_free(w->pool, &foreign, NULL), ULL_E_INVALID);
    assert_int_equal(ull_pool_free(w->pool, large + 256, NULL), ULL_E_INVALID);
    assert_int_equal(ull_pool_free(w->pool, large + 1, NULL), ULL_E_INVALID);
    assert_int_equal(ull_pool_free(w->pool, (void *)UINTPTR_MAX, NULL), ULL_E_INVALID);
    assert_int_equal(ull_pool_use_on(w->pool, small + 256, NULL), ULL_E_INVALID);
    assert_int_equal(stats(w).count, 2);
    give(w, large);
    assert_int_equal(ull_pool_free(w->pool, large, NULL), ULL_E_INVALID);
    give(w, small);
    assert_int_equal(ull_pool_free(w->pool, small, NULL), ULL_E_INVALID);
    assert_int_equal(stats(w).in_use, 0);
}

/* --- placing ------------------------------------------------------------------------------------------- */

/* pytorch/pytorch#183451: pointers that change from step to step make graphs be recorded anew. */
static void lowest_address_on_ties(void **state)
{
    struct world *w = *state;
    void *p[8];
    start(w);
    for (int i = 0; i < 8; i++)
        p[i] = get(w, 3 * MIB);
    give(w, p[5]);
    give(w, p[1]);
    give(w, p[3]);
    assert_ptr_equal(get(w, 3 * MIB), p[1]);
    assert_ptr_equal(get(w, 3 * MIB), p[3]);
    assert_ptr_equal(get(w, 3 * MIB), p[5]);
}

static void best_fit(void **state)
{
    struct world *w = *state;
    void *p[6];
    start(w);
    for (int i = 0; i < 6; i++)
        p[i] = get(w, (uint64_t)(9 - i) * MIB);
    give(w, p[0]);
    give(w, p[2]);
    give(w, p[4]);
    assert_ptr_equal(get(w, 5 * MIB), p[4]);
    assert_ptr_equal(get(w, 6 * MIB), p[2]);
}

/* pytorch/pytorch#35901: small survivors make a large segment useless. */
static void small_survivors_pin_no_large_memory(void **state)
{
    struct world *w = *state;
    start(w);
    void *large[100];
    for (int i = 0; i < 100; i++) {
        large[i] = get(w, 5 * MIB);
        get(w, 1000);
    }
    for (int i = 0; i < 100; i++)
        give(w, large[i]);
    get(w, 255 * PAGE); /* all but the page of the survivors */
}

/* tensorflow/tensorflow#6111, rapidsai/rmm#1957, #496: what grew in pieces serves the whole. */
static void grown_in_pieces_serves_the_whole(void **state)
{
    struct world *w = *state;
    void *p[256];
    w->options.reserve = 64 * PAGE;
    start(w);
    for (int i = 0; i < 256; i++)
        p[i] = get(w, PAGE);
    refused(w, PAGE);
    for (int i = 1; i < 256; i += 2)
        give(w, p[i]);
    void *half = get(w, 128 * PAGE); /* every second page */
    refused(w, PAGE);
    give(w, half);
    for (int i = 0; i < 256; i += 2)
        give(w, p[i]);
    get(w, 256 * PAGE);
}

static void bytes_are_the_same_through_every_alias(void **state)
{
    struct world *w = *state;
    void *p[8];
    w->options.limit = 8 * PAGE;
    start(w);
    for (int i = 0; i < 8; i++) {
        p[i] = get(w, PAGE);
        memset(p[i], i + 1, PAGE);
    }
    give(w, p[1]);
    give(w, p[3]);
    give(w, p[6]);
    unsigned char *view = get(w, 3 * PAGE);
    memset(view, 99, 3 * PAGE);
    for (int i = 0; i < 8; i++) {
        const unsigned char *bytes = p[i];
        int expected = i == 1 || i == 3 || i == 6 ? 99 : i + 1;
        assert_int_equal(bytes[0], expected);
        assert_int_equal(bytes[PAGE - 1], expected);
    }
}

/* One step of a program; what it keeps from step to step is in `kept`. */
static void step(struct world *w)
{
    void *p[40];
    for (int i = 0; i < 40; i++)
        p[i] = get(w, (uint64_t)(i * 37 % 11 + 1) * MIB / 2 + 256);
    for (int i = 0; i < 40; i += 3)
        give(w, p[i]);
    void *large = get(w, 25 * MIB), *larger = get(w, 31 * MIB);
    for (int i = 1; i < 40; i += 3)
        give(w, p[i]);
    give(w, large);
    void *last = get(w, 60 * MIB);
    for (int i = 2; i < 40; i += 3)
        give(w, p[i]);
    give(w, larger);
    give(w, last);
}

static void repeated_steps_map_nothing(void **state)
{
    struct world *w = *state;
    start(w);
    step(w);
    step(w);
    struct ull_stats before = stats(w);
    for (int i = 0; i < 20; i++)
        step(w);
    struct ull_stats after = stats(w);
    assert_int_equal(after.maps, before.maps);
    assert_int_equal(after.unmaps, before.unmaps);
    assert_int_equal(after.pages_created, before.pages_created);
}

/* --- limits -------------------------------------------------------------------------------------------- */

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

/* --- streams ------------------------------------------------------------------------------------------- */

static void order_of_streams(void **state)
{
    struct world *w = *state;
    w->options.limit = 4 * PAGE;
    start(w);
    ull__device_host_delay(w->device, true);
    void *p = get_on(w, 2 * PAGE, w->streams[0]);
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_ptr_equal(get_on(w, 2 * PAGE, w->streams[0]), p); /* at once on the same stream */
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_int_equal(ull__device_host_calls(w->device).records, 0);
    void *q = get_on(w, 2 * PAGE, w->streams[1]);
    assert_ptr_not_equal(p, q);
    assert_int_equal(stats(w).held, 4 * PAGE);
    ull__device_host_advance(w->device, w->streams[0], 1);
    assert_ptr_equal(get_on(w, 2 * PAGE, w->streams[1]), p); /* it has passed */
    assert_int_equal(stats(w).waits, 0);
}

/* The best of what the stream has free and what nobody waits for. */
static void best_fit_over_lanes(void **state)
{
    struct world *w = *state;
    void *p[4];
    start(w);
    for (int i = 0; i < 4; i++)
        p[i] = get_on(w, (i == 0 ? 5 : 3) * MIB, w->streams[0]);
    get_on(w, 40 * MIB, w->streams[1]);
    ull_pool_free(w->pool, p[0], w->streams[0]);
    ull_pool_trim(w->pool, 1, NULL); /* p[0] has passed, and two of its pages are there still */
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, p[2], w->streams[0]);
    assert_ptr_equal(get_on(w, 3 * MIB, w->streams[0]), p[2]);
}

static void waits_before_it_refuses(void **state)
{
    struct world *w = *state;
    w->options.limit = 4 * PAGE;
    start(w);
    ull__device_host_delay(w->device, true);
    void *p = get_on(w, 4 * PAGE, w->streams[0]);
    ull_pool_free(w->pool, p, w->streams[0]);
    get_on(w, 4 * PAGE, w->streams[1]);
    assert_int_equal(stats(w).waits, 1);
}

static void does_not_wait_when_told_so(void **state)
{
    struct world *w = *state;
    void *address;
    w->options.limit = 4 * PAGE;
    w->options.wait_ns = 0;
    start(w);
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, get_on(w, 4 * PAGE, w->streams[0]), w->streams[0]);
    assert_int_equal(ull_pool_allocate(w->pool, PAGE, w->streams[1], &address), ULL_E_NO_MEMORY);
}

/* pytorch/pytorch#147168: memory that a second stream used comes back as soon as that has passed. */
static void use_on_a_second_stream(void **state)
{
    struct world *w = *state;
    start(w);
    ull__device_host_delay(w->device, true);
    void *p = get_on(w, 3 * PAGE, w->streams[0]);
    assert_int_equal(ull_pool_use_on(w->pool, p, w->streams[1]), ULL_OK);
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_ptr_not_equal(get_on(w, 3 * PAGE, w->streams[0]), p);
    ull__device_host_advance(w->device, w->streams[1], 1);
    for (int i = 0; i < 2 * ULL_SAMPLE; i++)
        ull_pool_free(w->pool, get_on(w, 256, w->streams[0]), w->streams[0]);
    assert_ptr_equal(get_on(w, 3 * PAGE, w->streams[0]), p);
}

/* rapidsai/rmm#2039, Megatron-LM#6885: what a stream that is idle now has freed is there for all. */
static void idle_stream_strands_nothing(void **state)
{
    struct world *w = *state;
    w->options.limit = 100 * PAGE;
    start(w);
    void *p[100];
    for (int i = 0; i < 100; i++)
        p[i] = get_on(w, PAGE, w->streams[i % 2]);
    for (int i = 0; i < 100; i++)
        ull_pool_free(w->pool, p[i], w->streams[i % 2]);
    get_on(w, 100 * PAGE, w->streams[0]);
}

/* pytorch/pytorch#196258: nothing is unmapped under work that is not over. */
static void trim_leaves_what_is_pending(void **state)
{
    struct world *w = *state;
    uint64_t returned;
    start(w);
    ull__device_host_delay(w->device, true);
    void *p = get_on(w, 8 * PAGE, w->streams[0]);
    w->device->ops->fill(w->device, (uintptr_t)p, 1, 8 * PAGE, w->streams[0]);
    ull_pool_free(w->pool, p, w->streams[0]);
    ull_pool_trim(w->pool, UINT64_MAX, &returned);
    assert_int_equal(returned, 0);
    ull__device_host_advance(w->device, w->streams[0], 2);
    ull_pool_trim(w->pool, UINT64_MAX, &returned);
    assert_int_equal(returned, 8 * PAGE);
}

static void forgotten_streams_come_back(void **state)
{
    struct world *w = *state;
    start(w);
    for (int i = 0; i < 300; i++) {
        ull__stream stream;
        w->device->ops->stream_create(w->device, &stream);
        ull_pool_free(w->pool, get_on(w, 3 * PAGE, stream), stream);
        assert_int_equal(ull_pool_forget_stream(w->pool, stream), ULL_OK);
        w->device->ops->stream_destroy(w->device, stream);
    }
    assert_int_equal(stats(w).held, 3 * PAGE);
    assert_true(w->pool->lane_count < 8);
}

static void captured_memory_is_the_graphs(void **state)
{
    struct world *w = *state;
    w->options.limit = 8 * PAGE;
    start(w);
    ull__stream s = w->streams[0];
    ull__device_host_capture(w->device, s, true);
    void *p = get_on(w, 2 * PAGE, s);
    ull_pool_free(w->pool, p, s);
    assert_ptr_equal(get_on(w, 2 * PAGE, s), p); /* the capture reuses it */
    ull__device_host_capture(w->device, s, false);
    ull_pool_free(w->pool, p, s); /* outside: still the graph's */
    void *q = get_on(w, 6 * PAGE, s);
    assert_ptr_not_equal(p, q);
    refused(w, 2 * PAGE);
    uint64_t graph = ull_pool_graph_of(w->pool, s);
    assert_int_not_equal(graph, 0);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, s), ULL_OK);
    get_on(w, 2 * PAGE, s);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, s), ULL_E_NOT_FOUND);
}

static void graph_of_two_streams(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0, wrong = 77;
    start(w);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_E_INVALID);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[1], &graph), ULL_OK);
    assert_int_equal(ull_pool_graph_begin(w->pool, NULL, &wrong), ULL_E_NOT_FOUND);
    void *p = get_on(w, PAGE, w->streams[0]), *q = get_on(w, PAGE, w->streams[1]);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_OK);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_E_INVALID);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[1]), ULL_OK);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, w->streams[0]), ULL_OK);
    ull_pool_free(w->pool, p, w->streams[0]);
    ull_pool_free(w->pool, q, w->streams[1]);
    get(w, 256 * PAGE);
}

/* --- telling ------------------------------------------------------------------------------------------- */

static void statistics(void **state)
{
    struct world *w = *state;
    w->options.limit = 4 * PAGE;
    start(w);
    assert_true(stats(w).fragmentation == 0);
    void *p = get(w, 4 * PAGE - 1);
    struct ull_stats s = stats(w);
    assert_int_equal(s.in_use, 4 * PAGE);
    assert_int_equal(s.requested, 4 * PAGE - 1);
    assert_int_equal(s.waste, 1);
    assert_int_equal(s.free, 0);
    assert_true(s.fragmentation == 0); /* tensorflow: not a number on a full pool */
    assert_int_equal(s.average_in_use, 4 * PAGE);
    refused(w, 1);
    give(w, p);
    s = stats(w);
    assert_int_equal(s.refusals, 1);
    assert_int_equal(s.average_in_use, 2 * PAGE);
    assert_true(s.peak_to_average == 2);
    assert_int_equal(s.largest_free, 4 * PAGE);
    assert_int_equal(s.peak_held, 4 * PAGE);
    assert_true(s.latency_p50_ns <= s.latency_p99_ns && s.latency_p99_ns <= s.latency_max_ns);
    ull_pool_stats_reset(w->pool);
    s = stats(w);
    assert_int_equal(s.peak_in_use, 0);
    assert_int_equal(s.allocations, 0);
    assert_int_equal(s.held, 4 * PAGE);
    struct ull_stats old;
    memset(&old, 0x55, sizeof old);
    old.size = offsetof(struct ull_stats, requested);
    assert_int_equal(ull_pool_stats(w->pool, &old), ULL_OK);
    assert_int_equal(old.version, ULL_STATS_VERSION);
    assert_int_equal(old.requested, 0x5555555555555555);
    old.size = 4;
    assert_int_equal(ull_pool_stats(w->pool, &old), ULL_E_INVALID);
}

/* pytorch/pytorch#29554, #173049: the report has the fragmentation and speaks of the policy in force. */
static void report_of_a_refusal(void **state)
{
    struct world *w = *state;
    struct ull_request r = {.bytes = 5 * PAGE, .tag = "[8,512,512,3] float32"};
    struct ull_refusal refusal;
    void *address;
    char text[4096];
    w->options.limit = 8 * PAGE;
    start(w);
    get(w, 3 * MIB);
    assert_int_equal(ull_pool_request(w->pool, &r, NULL, &address), ULL_OK);
    r.tag = NULL;
    assert_int_equal(ull_pool_request(w->pool, &r, &refusal, &address), ULL_E_NO_MEMORY);
    assert_int_equal(refusal.wanted, 5 * PAGE);
    assert_int_equal(refusal.held, 7 * PAGE);
    assert_int_equal(refusal.left, PAGE);
    assert_int_equal(refusal.holder_count, 2);
    assert_string_equal(refusal.holders[0].tag, "[8,512,512,3] float32");
    assert_int_equal(refusal.holders[1].bytes, 3 * MIB);
    ull_refusal_text(&refusal, text, sizeof text);
    assert_non_null(strstr(text, "fragmentation"));
    assert_non_null(strstr(text, "[8,512,512,3] float32"));
    assert_non_null(strstr(text, "Raise the limit"));
    ull_refusal_text(&refusal, text, 10);
    assert_int_equal(strlen(text), 9);
    ull_pool_set_limit(w->pool, 0);
    ull__page pages[249];
    assert_int_equal(w->device->ops->create(w->device, 249, pages), ULL_OK);
    assert_int_equal(ull_pool_request(w->pool, &r, &refusal, &address), ULL_E_NO_MEMORY);
    assert_true(refusal.device_full);
    ull_refusal_text(&refusal, text, sizeof text);
    assert_null(strstr(text, "Raise the limit"));
    w->device->ops->destroy_pages(w->device, 249, pages);
}

static bool add_up(void *context, const struct ull_chunk_info *info)
{
    uint64_t *bytes = context;
    bytes[info->state] += info->bytes;
    return true;
}

static void walk_adds_up(void **state)
{
    struct world *w = *state;
    uint64_t bytes[5] = {0};
    start(w);
    void *p[8];
    for (int i = 0; i < 8; i++)
        p[i] = get(w, PAGE);
    for (int i = 0; i < 8; i += 2)
        give(w, p[i]);
    get(w, 3 * PAGE);
    ull_pool_walk(w->pool, add_up, bytes);
    struct ull_stats s = stats(w);
    assert_int_equal(bytes[ULL_CHUNK_IN_USE], s.in_use);
    assert_int_equal(bytes[ULL_CHUNK_FREE] + bytes[ULL_CHUNK_PENDING], s.free);
    uint64_t all = 0;
    for (int i = 0; i < 5; i++)
        all += bytes[i];
    assert_int_equal(all, s.mapped);
}

static void policy_can_be_asked(void **state)
{
    struct world *w = *state;
    struct ull_pool_options o;
    struct ull_pool *pool;
    struct ull_error error;
    w->options.limit = 100 * PAGE;
    start(w);
    ull_pool_set_limit(w->pool, 50 * PAGE);
    ull_pool_policy(w->pool, &o);
    assert_int_equal(o.limit, 50 * PAGE);
    assert_int_equal(o.watermark_percent, 70);
    o.reserve = 60 * PAGE;
    assert_int_equal(ull_pool_create(w->device, &o, &pool, &error), ULL_E_INVALID);
    assert_non_null(strstr(error.message, "reserve"));
    o.watermark_percent = 101;
    assert_int_equal(ull_pool_create(w->device, &o, &pool, &error), ULL_E_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(refuses_odd_sizes),
        TEST(aligns),
        TEST(bad_frees_change_nothing),
        TEST(lowest_address_on_ties),
        TEST(best_fit),
        TEST(small_survivors_pin_no_large_memory),
        TEST(grown_in_pieces_serves_the_whole),
        TEST(bytes_are_the_same_through_every_alias),
        TEST(repeated_steps_map_nothing),
        TEST(limit_changes),
        TEST(reserve_and_no_growth),
        TEST(share_then_growth),
        TEST(prewarmed_requests_call_no_device),
        TEST(idle_pages_are_given_back),
        TEST(pages_in_use_now_and_then_stay),
        TEST(level_stays_over_hours),
        TEST(order_of_streams),
        TEST(best_fit_over_lanes),
        TEST(waits_before_it_refuses),
        TEST(does_not_wait_when_told_so),
        TEST(use_on_a_second_stream),
        TEST(idle_stream_strands_nothing),
        TEST(trim_leaves_what_is_pending),
        TEST(forgotten_streams_come_back),
        TEST(captured_memory_is_the_graphs),
        TEST(graph_of_two_streams),
        TEST(statistics),
        TEST(report_of_a_refusal),
        TEST(walk_adds_up),
        TEST(policy_can_be_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
