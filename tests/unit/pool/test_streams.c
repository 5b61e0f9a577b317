/*
 * test_streams.c: when memory that was freed may be used again: streams and captured graphs.
 * Each of the kinds of bug reports about other allocators that an allocator can have has a test with
 * its number: "project#number".
 */
#include "world.h"

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

/* A stream alone: its pages go to the device, so that there is room under a lowered limit, once it has passed. */
static void waits_above_a_lowered_limit(void **state)
{
    struct world *w = *state;
    start(w);
    void *kept = get_on(w, PAGE, w->streams[0]);
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, get_on(w, 8 * PAGE, w->streams[0]), w->streams[0]);
    ull_pool_set_limit(w->pool, 4 * PAGE);
    assert_int_equal(stats(w).held, 9 * PAGE);
    get_on(w, 3 * PAGE, w->streams[0]);
    assert_int_equal(stats(w).held, 4 * PAGE);
    ull_pool_free(w->pool, kept, w->streams[0]);
}

/* Two halves of a page, one of which a stream freed before the other stream went, are a page. */
static void halves_of_a_page_after_a_stream_ended(void **state)
{
    struct world *w = *state;
    w->options.limit = 2 * PAGE;
    w->options.small_bytes = 0;
    start(w);
    ull__stream ended;
    assert_int_equal(w->device->ops->stream_create(w->device, &ended), ULL_OK);
    ull_pool_free(w->pool, get_on(w, 2 * PAGE, ended), ended);
    void *low = get_on(w, PAGE / 2, w->streams[0]), *high = get_on(w, PAGE / 2, w->streams[0]);
    ull_pool_free(w->pool, low, w->streams[0]);
    ull_pool_trim(w->pool, 1, NULL); /* that half waits for nobody any more */
    get_on(w, PAGE, w->streams[0]);
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, high, w->streams[0]);
    assert_int_equal(ull_pool_forget_stream(w->pool, ended), ULL_OK);
    w->device->ops->stream_destroy(w->device, ended);
    get_on(w, PAGE, w->streams[0]);
}

/* 2.5 pages and the half page behind them, all that a pool of 4 pages has but for one; both streams have been seen. */
static void *halves(struct world *w, ull__stream first, void **half)
{
    w->options.limit = w->options.reserve = 4 * PAGE;
    w->options.small_bytes = w->options.wait_ns = 0;
    start(w);
    w->pool->fronts_forced = false; /* a front would keep the half */
    ull_pool_free(w->pool, get_on(w, PAGE, w->streams[1]), w->streams[1]);
    void *p = get_on(w, 5 * PAGE / 2, first);
    *half = get_on(w, PAGE / 2, w->streams[0]);
    assert_ptr_equal(*half, (char *)p + 5 * PAGE / 2);
    get_on(w, PAGE, w->streams[0]);
    return p;
}

/* A half for which nobody waits and one that waits for a stream are a page for that stream; whole pages stay as they are. */
static void halves_of_a_page_wait_together(void **state)
{
    struct world *w = *state;
    void *half, *p = halves(w, w->streams[0], &half);
    ull_pool_free(w->pool, p, w->streams[0]);
    ull_pool_trim(w->pool, 1, NULL); /* it has passed, and the reserve is not given back */
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, half, w->streams[0]);
    assert_ptr_equal(get_on(w, PAGE, w->streams[0]), (char *)p + 2 * PAGE);
    assert_ptr_equal(get_on(w, 2 * PAGE, w->streams[1]), p);
}

/* The same when the first half passes after the other one was freed. */
static void half_of_a_page_passes_later(void **state)
{
    struct world *w = *state;
    void *half, *p = halves(w, w->streams[1], &half);
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, p, w->streams[1]);
    ull_pool_free(w->pool, half, w->streams[0]);
    ull_pool_trim(w->pool, 1, NULL);
    ull__device_host_advance(w->device, w->streams[1], 1);
    ull_pool_trim(w->pool, 1, NULL);
    assert_ptr_equal(get_on(w, PAGE, w->streams[0]), (char *)p + 2 * PAGE);
    assert_ptr_equal(get_on(w, 2 * PAGE, w->streams[0]), p);
}

/* The same when what passes last lies apart from what waits. */
static void quarter_of_a_page_waits(void **state)
{
    struct world *w = *state;
    w->options.limit = w->options.reserve = PAGE;
    w->options.small_bytes = 0;
    start(w);
    w->pool->fronts_forced = false;
    void *a = get_on(w, PAGE / 4, w->streams[0]), *b = get_on(w, PAGE / 4, w->streams[0]);
    void *c = get_on(w, PAGE / 2, w->streams[1]);
    ull_pool_free(w->pool, b, w->streams[0]);
    ull_pool_trim(w->pool, 1, NULL);
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, a, w->streams[0]);
    ull_pool_free(w->pool, c, w->streams[1]);
    ull_pool_trim(w->pool, 1, NULL);
    assert_int_equal(stats(w).free_pages, 0);
    ull__device_host_advance(w->device, w->streams[1], 1);
    ull_pool_trim(w->pool, 1, NULL);
    assert_int_equal(stats(w).free_pages, PAGE);
    assert_int_equal(stats(w).pending, PAGE);
}

/* A stream that was forgotten asks for no page. */
static void half_of_a_page_is_for_others(void **state)
{
    struct world *w = *state;
    w->options.limit = w->options.reserve = PAGE;
    w->options.small_bytes = w->options.wait_ns = 0;
    start(w);
    w->pool->fronts_forced = false;
    void *a = get_on(w, PAGE / 2, w->streams[0]), *b = get_on(w, PAGE / 2, w->streams[1]);
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, a, w->streams[0]);
    ull_pool_forget_stream(w->pool, w->streams[0]);
    ull_pool_free(w->pool, b, w->streams[1]);
    ull_pool_trim(w->pool, 1, NULL);
    ull__device_host_advance(w->device, w->streams[1], 1);
    ull_pool_trim(w->pool, 1, NULL);
    assert_int_equal(stats(w).pending, PAGE / 2);
    assert_ptr_equal(get_on(w, PAGE / 2, w->streams[1]), b);
}

/* Nothing of a graph that was released waits for it, also while memory that it asked for is in use. */
static void released_graph_keeps_no_page(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0;
    w->options.small_bytes = PAGE;
    start(w);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    void *small = get_on(w, PAGE, w->streams[0]);
    get_on(w, 2 * PAGE, w->streams[0]);
    ull_pool_free(w->pool, small, w->streams[0]);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_OK);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, w->streams[0]), ULL_OK);
    ull_pool_trim(w->pool, 3 * PAGE, NULL);
    assert_int_equal(stats(w).held, 2 * PAGE);
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

/*
 * A program that said that a second stream uses the memory, and then ends that stream, frees the memory
 * later: it comes back as soon as what the stream had has passed, though nobody can ask the stream any more.
 */
static void used_on_a_stream_that_ended(void **state)
{
    struct world *w = *state;
    w->options.limit = 8 * PAGE;
    start(w);
    ull__device_host_delay(w->device, true);
    ull__stream ended;
    assert_int_equal(w->device->ops->stream_create(w->device, &ended), ULL_OK);
    void *p = get_on(w, 4 * PAGE, w->streams[0]), *q = get_on(w, 4 * PAGE, w->streams[0]);
    assert_int_equal(ull_pool_use_on(w->pool, p, ended), ULL_OK);
    assert_int_equal(ull_pool_use_on(w->pool, q, ended), ULL_OK);
    w->device->ops->fill(w->device, (uintptr_t)p, 1, 4 * PAGE, ended);
    assert_int_equal(ull_pool_forget_stream(w->pool, ended), ULL_OK);
    ull_pool_free(w->pool, p, w->streams[0]); /* before its work is over */
    assert_int_equal(stats(w).pending, 4 * PAGE);
    w->device->ops->stream_destroy(w->device, ended); /* which waits for it */
    assert_ptr_equal(get_on(w, 4 * PAGE, w->streams[0]), p);
    ull_pool_free(w->pool, q, w->streams[0]); /* and afterwards */
    assert_ptr_equal(get_on(w, 4 * PAGE, w->streams[0]), q);
}

/* The same for a graph that used it, and was released before the memory was freed. */
static void used_by_a_graph_that_is_gone(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0;
    w->options.limit = 4 * PAGE;
    start(w);
    void *p = get_on(w, 4 * PAGE, w->streams[0]);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[1], &graph), ULL_OK);
    assert_int_equal(ull_pool_use_on(w->pool, p, w->streams[1]), ULL_OK);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[1]), ULL_OK);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, w->streams[1]), ULL_OK);
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_ptr_equal(get_on(w, 4 * PAGE, w->streams[0]), p);
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

/* Nothing was asked for between the end of a capture that nobody announced and the next begin. */
static void begins_after_a_capture_without_begin(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0;
    start(w);
    ull__device_host_capture(w->device, w->streams[0], true);
    void *p = get_on(w, PAGE, w->streams[0]);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_E_INVALID);
    ull__device_host_capture(w->device, w->streams[0], false);
    ull_pool_free(w->pool, p, NULL);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    assert_ptr_not_equal(get_on(w, PAGE, w->streams[0]), p);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(order_of_streams),
        TEST(best_fit_over_lanes),
        TEST(waits_before_it_refuses),
        TEST(does_not_wait_when_told_so),
        TEST(waits_above_a_lowered_limit),
        TEST(halves_of_a_page_after_a_stream_ended),
        TEST(halves_of_a_page_wait_together),
        TEST(half_of_a_page_passes_later),
        TEST(quarter_of_a_page_waits),
        TEST(half_of_a_page_is_for_others),
        TEST(released_graph_keeps_no_page),
        TEST(use_on_a_second_stream),
        TEST(idle_stream_strands_nothing),
        TEST(trim_leaves_what_is_pending),
        TEST(forgotten_streams_come_back),
        TEST(used_on_a_stream_that_ended),
        TEST(used_by_a_graph_that_is_gone),
        TEST(captured_memory_is_the_graphs),
        TEST(begins_after_a_capture_without_begin),
        TEST(graph_of_two_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
