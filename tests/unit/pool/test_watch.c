/* test_watch.c: what is told of pools to one who follows them, and what they say that is idle. */
#include "watch.h"
#include "world.h"

static struct {
    const struct ull_pool *pool;
    int made, ended;
} seen;

static void watcher(struct ull_pool *pool, bool made)
{
    seen.pool = pool;
    made ? seen.made++ : seen.ended++;
}

static uint64_t idle(struct world *w)
{
    uint64_t bytes = UINT64_MAX;
    assert_true(ull__pool_idle(w->pool, &bytes));
    return bytes / PAGE;
}

static void told_of_both_ends(void **state)
{
    struct world *w = *state;
    struct ull_pool *other = NULL;
    struct ull_pool_options bad = w->options;
    bad.reserve = 300 * PAGE;
    ull__pool_watch(watcher);
    assert_int_equal(ull_pool_create(w->device, &w->options, &other, NULL), ULL_OK);
    assert_int_equal(seen.made, 1);
    assert_ptr_equal(seen.pool, other);
    assert_ptr_equal(ull__pool_device(other), w->device);
    ull_pool_destroy(other);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(ull_pool_create(w->device, &bad, &other, NULL), ULL_E_INVALID);
    assert_int_equal(seen.made, 1); /* what never was is not told of */
    ull__pool_watch(NULL);
    start(w);
    assert_int_equal(seen.made, 1);
}

/* The fewest free pages since the last look. */
static void the_least_since_the_last_look(void **state)
{
    struct world *w = *state;
    start(w);
    void *a = get(w, 40 * PAGE), *b = get(w, 20 * PAGE);
    assert_int_equal(idle(w), 0);
    give(w, b);
    assert_int_equal(idle(w), 0); /* they were used a moment ago */
    assert_int_equal(idle(w), 20);
    give(w, get(w, 15 * PAGE));
    assert_int_equal(idle(w), 5);
    assert_int_equal(idle(w), 20);
    give(w, a);
    idle(w);
    assert_int_equal(idle(w), 60);
    uint64_t returned = 0;
    assert_int_equal(ull_pool_trim(w->pool, 25 * PAGE, &returned), ULL_OK);
    assert_int_equal(returned, 25 * PAGE);
    assert_int_equal(idle(w), 35);
}

/* What it says is what a trim gives: without the reserve, and without what belongs to graphs. */
static void as_a_trim_would(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0, returned = 0;
    w->options.reserve = 10 * PAGE;
    start(w);
    give(w, get(w, 30 * PAGE));
    idle(w);
    assert_int_equal(idle(w), 20);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    void *p = get_on(w, 12 * PAGE, w->streams[0]);
    assert_int_equal(ull_pool_free(w->pool, p, w->streams[0]), ULL_OK);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_OK);
    idle(w);
    uint64_t said = idle(w);
    assert_true(said <= 18);
    assert_int_equal(ull_pool_trim(w->pool, UINT64_MAX, &returned), ULL_OK);
    assert_true(returned / PAGE >= said && said + 2 >= returned / PAGE);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, w->streams[0]), ULL_OK);
}

/* Somebody who is in the pool is not waited for. */
static void never_waits(void **state)
{
    struct world *w = *state;
    uint64_t bytes = 7;
    start(w);
    ull__lock(&w->pool->lock);
    assert_false(ull__pool_idle(w->pool, &bytes));
    assert_int_equal(bytes, 7);
    ull__unlock(&w->pool->lock);
    assert_int_equal(w->pool->lock.contended, 0);
}

/* What streams keep for themselves comes back once in a while, so that it is not kept for ever. */
static void loose_pages_too(void **state)
{
    struct world *w = *state;
    void *all[8];
    start(w);
    w->pool->fronts_forced = true;
    for (int i = 0; i < 8; i++)
        all[i] = get_on(w, PAGE, w->streams[0]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ull_pool_free(w->pool, all[i], w->streams[0]), ULL_OK);
    uint64_t last = 0;
    for (int i = 0; i < 12; i++)
        last = idle(w);
    assert_int_equal(last, 8);
}

/* Looks do not hide anything from the pool's own watermark, which sees ten seconds. */
static void the_watermark_is_as_before(void **state)
{
    struct world *w = *state;
    w->options.limit = 100 * PAGE;
    start(w);
    for (int i = 0; i < 10000; i++) {
        w->clock += 10000000;
        give(w, get(w, i % 400 == 0 ? 100 * PAGE : PAGE));
        if (i % 7 == 0)
            idle(w);
    }
    assert_int_equal(stats(w).pages_returned, 0); /* needed every four seconds */
    for (int i = 0; i < 10000; i++) {
        w->clock += 10000000;
        give(w, get(w, PAGE));
        if (i % 7 == 0)
            idle(w);
    }
    assert_int_equal(stats(w).held, 70 * PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(told_of_both_ends), TEST(the_least_since_the_last_look),
        TEST(as_a_trim_would),   TEST(never_waits),
        TEST(loose_pages_too),   TEST(the_watermark_is_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
