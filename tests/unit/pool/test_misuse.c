/*
 * test_misuse.c: what a program should not do with a pool, or hardly ever does: an error or a plain answer, never
 * a crash, and the pool is intact (teardown looks at it).
 */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Everything that could be taken for memory in use, and is not. */
static void addresses_that_are_none(void **state)
{
    struct world *w = *state;
    start(w);
    char *large = get(w, 3 * PAGE), *small = get(w, 300), *freed = get(w, PAGE);
    int on_the_stack;
    give(w, freed);
    void *const wrong[] = {
        freed,
        large + 1,
        large + 256,
        large + PAGE,
        large + 3 * PAGE,
        large - 256,
        small + 1,
        small + 256,
        small + 512,
        &on_the_stack,
        w->pool,
        (void *)(uintptr_t)1,
        (void *)(uintptr_t)256,
        (void *)(UINTPTR_MAX - 255),
        (void *)UINTPTR_MAX,
        (void *)(uintptr_t)w->pool->base,
        (char *)(uintptr_t)w->pool->base - 256,
        (void *)(uintptr_t)(w->pool->base + ((uint64_t)w->pool->slot_count << w->pool->page_shift)),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (wrong[i] == (void *)large || wrong[i] == (void *)small)
            continue; /* where the first one happens to lie */
        assert_int_equal(ull_pool_free(w->pool, wrong[i], NULL), ULL_E_INVALID);
        assert_int_equal(ull_pool_free(w->pool, wrong[i], w->streams[1]), ULL_E_INVALID);
        assert_int_equal(ull_pool_use_on(w->pool, wrong[i], w->streams[0]), ULL_E_INVALID);
    }
    assert_int_equal(stats(w).count, 2);
    give(w, large);
    give(w, small);
}

/* Of another pool on the same device. */
static void memory_of_a_sibling(void **state)
{
    struct world *w = *state;
    struct ull_pool *other;
    void *theirs;
    start(w);
    assert_int_equal(ull_pool_create(w->device, &w->options, &other, NULL), ULL_OK);
    assert_int_equal(ull_pool_allocate(other, PAGE, NULL, &theirs), ULL_OK);
    get(w, PAGE);
    assert_int_equal(ull_pool_free(w->pool, theirs, NULL), ULL_E_INVALID);
    assert_int_equal(ull_pool_free(other, theirs, NULL), ULL_OK);
    ull_pool_destroy(other);
}

static void freed_twice_in_every_state(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0;
    start(w);
    ull__device_host_delay(w->device, true);
    void *pending = get_on(w, PAGE, w->streams[0]), *waiting = get_on(w, PAGE, w->streams[0]);
    ull_pool_use_on(w->pool, waiting, w->streams[1]);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    void *captured = get_on(w, PAGE, w->streams[0]);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_OK);
    void *const p[] = {pending, waiting, captured};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ull_pool_free(w->pool, p[i], w->streams[0]), ULL_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(ull_pool_free(w->pool, p[i], w->streams[k]), ULL_E_INVALID);
            assert_int_equal(ull_pool_use_on(w->pool, p[i], w->streams[k]), ULL_E_INVALID);
        }
    }
    ull_pool_trim(w->pool, UINT64_MAX, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ull_pool_free(w->pool, p[i], NULL), ULL_E_INVALID);
    assert_int_equal(stats(w).frees, 3);
}

static void numbers_at_the_edge(void **state)
{
    struct world *w = *state;
    static const uint64_t edges[] = {0,
                                     1,
                                     255,
                                     256,
                                     PAGE - 1,
                                     PAGE,
                                     PAGE + 1,
                                     256 * PAGE - 1,
                                     256 * PAGE,
                                     256 * PAGE + 1,
                                     (uint64_t)1 << 32,
                                     INT64_MAX,
                                     (uint64_t)1 << 63,
                                     UINT64_MAX - PAGE,
                                     UINT64_MAX - 255,
                                     UINT64_MAX};
    enum { EDGES = sizeof edges / sizeof *edges };
    start(w);
    for (int i = 0; i < EDGES * EDGES; i++) {
        struct ull_request r = {.bytes = edges[i / EDGES], .alignment = edges[i % EDGES]};
        bool valid = r.bytes > 0 && (r.alignment & (r.alignment - 1)) == 0;
        bool fits = r.bytes <= 256 * PAGE && r.alignment <= PAGE;
        void *p = w;
        ull_status status = ull_pool_request(w->pool, &r, NULL, &p);
        assert_int_equal(status == ULL_E_INVALID, !valid);
        assert_true(status == ULL_OK || p == w);
        assert_true(!valid || !fits || status == ULL_OK);
        if (status == ULL_OK) {
            assert_int_equal((uintptr_t)p % (r.alignment ? r.alignment : 256), 0);
            give(w, p);
        }
    }
    for (int i = 0; i < EDGES; i++) {
        ull_status status = ull_pool_prewarm(w->pool, edges[i]);
        assert_int_equal(status, edges[i] == 0            ? ULL_E_INVALID
                                 : edges[i] <= 256 * PAGE ? ULL_OK
                                                          : ULL_E_NO_MEMORY);
        status = ull_pool_set_reserve(w->pool, edges[i]);
        assert_int_equal(status, edges[i] <= 256 * PAGE ? ULL_OK : ULL_E_INVALID);
        assert_int_equal(ull_pool_set_limit(w->pool, edges[i]), ULL_OK);
        ull_pool_trim(w->pool, edges[i], NULL);
        assert_int_equal(ull_pool_set_reserve(w->pool, 0), ULL_OK);
        ull_pool_set_limit(w->pool, 0);
    }
    give(w, get(w, 256 * PAGE));
}

/* With everything in it: in use at home and in views, small, pending, waiting, in a graph that has begun. */
static void destroyed_in_the_middle(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0;
    void *p[40];
    w->options.limit = 60 * PAGE;
    start(w);
    ull__device_host_delay(w->device, true);
    for (int i = 0; i < 40; i++)
        p[i] = get_on(w, i % 4 == 3 ? 300 : PAGE, w->streams[i % 2]);
    for (int i = 0; i < 40; i += 3) {
        ull_pool_use_on(w->pool, p[i], w->streams[1]);
        w->device->ops->fill(w->device, (uintptr_t)p[i], 1, 300, w->streams[1]);
        ull_pool_free(w->pool, p[i], w->streams[0]);
    }
    get_on(w, 25 * PAGE, w->streams[0]);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[1], &graph), ULL_OK);
    ull_pool_free(w->pool, get_on(w, PAGE, w->streams[1]), w->streams[1]);
    get_on(w, PAGE, w->streams[1]);
}

/* Streams that come and go, never forgotten and then all: far more than a program has. */
static void many_streams(void **state)
{
    struct world *w = *state;
    enum { MANY = 2000 };
    static ull__stream streams[MANY];
    w->options.limit = 16 * PAGE;
    start(w);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(w->device->ops->stream_create(w->device, &streams[i]), ULL_OK);
        ull_pool_free(w->pool, get_on(w, 4 * PAGE, streams[i]), streams[i]);
    }
    give(w, get(w, 16 * PAGE));
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ull_pool_forget_stream(w->pool, streams[i]), ULL_OK);
        assert_int_equal(ull_pool_forget_stream(w->pool, streams[i]), ULL_OK);
        w->device->ops->stream_destroy(w->device, streams[i]);
    }
    give(w, get(w, 16 * PAGE));
    assert_int_equal(stats(w).in_use, 0);
}

static void calls_of_graphs_out_of_order(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0, none = 5;
    start(w);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_E_INVALID);
    assert_int_equal(ull_pool_graph_release(w->pool, 0, NULL), ULL_E_NOT_FOUND);
    assert_int_equal(ull_pool_graph_release(w->pool, UINT64_MAX, NULL), ULL_E_NOT_FOUND);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &none), ULL_E_NOT_FOUND);
    assert_int_equal(none, 5);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    void *p = get_on(w, PAGE, w->streams[0]);
    /* Released while it is captured: the stream is an ordinary one again. */
    assert_int_equal(ull_pool_graph_release(w->pool, graph, w->streams[0]), ULL_OK);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_E_INVALID);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_E_NOT_FOUND);
    ull_pool_free(w->pool, p, w->streams[0]);
    /* A stream that is forgotten in its capture. */
    graph = 0;
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[1], &graph), ULL_OK);
    p = get_on(w, PAGE, w->streams[1]);
    assert_int_equal(ull_pool_forget_stream(w->pool, w->streams[1]), ULL_OK);
    ull_pool_free(w->pool, p, NULL);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, NULL), ULL_OK);
    get(w, 256 * PAGE);
}

/* --- threads ---------------------------------------------------------------------------------------------- */

static atomic_int working;

static void *ask(void *context)
{
    struct world *w = context;
    for (int i = 0; i < 4000; i++) {
        void *p = NULL;
        if (ull_pool_allocate(w->pool, 1 + (uint64_t)(i * 7919 % 5) * PAGE, NULL, &p) == ULL_OK &&
            ull_pool_free(w->pool, p, NULL) != ULL_OK)
            abort();
    }
    atomic_fetch_sub(&working, 1);
    return NULL;
}

/* The limit falls under what threads use, the reserve and trims go up and down: never above the limit then. */
static void limits_under_threads(void **state)
{
    struct world *w = *state;
    pthread_t threads[3];
    w->options.now_ns = NULL;
    start(w);
    atomic_store(&working, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, w), 0);
    for (uint64_t i = 0; atomic_load(&working) > 0; i++) {
        ull_pool_set_limit(w->pool, i % 3 == 0 ? PAGE : i % 3 == 1 ? 12 * PAGE : 0);
        ull_pool_set_reserve(w->pool, i % 5 * PAGE);
        ull_pool_trim(w->pool, i % 7 * PAGE, NULL);
        ull_pool_prewarm(w->pool, PAGE);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(stats(w).in_use, 0);
    ull_pool_set_reserve(w->pool, 0);
    ull_pool_set_limit(w->pool, 3 * PAGE);
    assert_true(stats(w).held <= 3 * PAGE);
    give(w, get(w, 3 * PAGE));
}

/* --- forked children -------------------------------------------------------------------------------------- */

/* True if each call says that the pool is not this process's. */
static bool all_refuse(struct world *w, void *address)
{
    uint64_t number = 0;
    void *p = NULL;
    struct ull_stats s = {.size = sizeof s};
    struct ull_pool_options o;
    ull__stream stream = w->streams[0];
    const ull_status answers[] = {
        ull_pool_allocate(w->pool, PAGE, stream, &p),
        ull_pool_free(w->pool, address, stream),
        ull_pool_use_on(w->pool, address, stream),
        ull_pool_forget_stream(w->pool, stream),
        ull_pool_graph_begin(w->pool, stream, &number),
        ull_pool_graph_end(w->pool, stream),
        ull_pool_graph_release(w->pool, 1, stream),
        ull_pool_set_limit(w->pool, PAGE),
        ull_pool_set_reserve(w->pool, PAGE),
        ull_pool_trim(w->pool, UINT64_MAX, &number),
        ull_pool_prewarm(w->pool, PAGE),
        ull_pool_stats(w->pool, &s),
    };
    ull_pool_stats_reset(w->pool);
    ull_pool_policy(w->pool, &o);
    bool good = p == NULL && number == 0 && o.growth == w->options.growth &&
                ull_pool_graph_of(w->pool, stream) == 0;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        good = good && answers[i] == ULL_E_NO_DEVICE;
    ull_pool_destroy(w->pool);
    return good;
}

static void *hold_the_lock(void *context)
{
    struct world *w = context;
    while (atomic_load(&working))
        ull_pool_trim(w->pool, 0, NULL);
    return NULL;
}

/* Also when another thread had the lock in the moment of the fork; what the parent has stays as it is. */
static void forked_children(void **state)
{
    struct world *w = *state;
    pthread_t thread;
    start(w);
    char *p = get(w, 2 * PAGE);
    give(w, get(w, 5 * PAGE));
    memset(p, 7, 2 * PAGE);
    atomic_store(&working, 1);
    assert_int_equal(pthread_create(&thread, NULL, hold_the_lock, w), 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            alarm(20);
            _exit(all_refuse(w, p) ? 0 : 1);
        }
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
    }
    atomic_store(&working, 0);
    pthread_join(thread, NULL);
    assert_true(p[0] == 7 && p[2 * PAGE - 1] == 7);
    assert_int_equal(stats(w).count, 1);
    give(w, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(addresses_that_are_none),
        TEST(memory_of_a_sibling),
        TEST(freed_twice_in_every_state),
        TEST(numbers_at_the_edge),
        TEST(destroyed_in_the_middle),
        TEST(many_streams),
        TEST(calls_of_graphs_out_of_order),
        TEST(limits_under_threads),
        TEST(forked_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
