/*
 * test_move.c: a pool whose pages are taken away under its addresses and come back, with every byte and mapping
 * where it was; and what a pool needs to stand in for the driver's (move.h).
 */
#include <stdlib.h>

#include "move.h"
#include "world.h"

enum { BLOCKS = 24, STEPS = 600, MOST_RUN = 5, MARK = 65536 };

static struct {
    unsigned char *at;
    uint64_t bytes;
    unsigned char value;
} blocks[BLOCKS];
static int count;
static uint64_t seed;

static uint64_t any(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* Their value is at the first and the last byte, and some between. */
static bool holds(int i)
{
    const unsigned char *at = blocks[i].at;
    bool good = at[0] == blocks[i].value && at[blocks[i].bytes - 1] == blocks[i].value;
    for (uint64_t k = 0; k < blocks[i].bytes; k += MARK)
        good = good && at[k] == blocks[i].value;
    return good;
}

static void step(struct world *w)
{
    if (count == BLOCKS || (count > 0 && any(5) < 2)) {
        int i = (int)any((uint64_t)count);
        assert_true(holds(i));
        assert_int_equal(ull_pool_free(w->pool, blocks[i].at, w->streams[any(2)]), ULL_OK);
        blocks[i] = blocks[--count];
        return;
    }
    uint64_t bytes = any(3) ? 1 + any(MIB / 2) : 1 + any(10 * MIB);
    void *at;
    if (ull_pool_allocate(w->pool, bytes, w->streams[any(2)], &at) != ULL_OK)
        return;
    blocks[count].at = at;
    blocks[count].bytes = bytes;
    blocks[count].value = (unsigned char)(1 + any(255));
    for (uint64_t k = 0; k < bytes; k += MARK)
        blocks[count].at[k] = blocks[count].value;
    blocks[count].at[bytes - 1] = blocks[count].value;
    count++;
}

struct copy {
    struct ull__run run;
    unsigned char *bytes;
};

static int by_chance(const void *a, const void *b)
{
    return (int)((const struct copy *)a)->bytes[0] - (int)((const struct copy *)b)->bytes[0];
}

/* All pages go and come back, in another order. */
static void move_all(struct world *w)
{
    static struct ull__run runs[256];
    static struct copy copies[256];
    uint64_t sum = 0;
    size_t n = ull__move_runs(w->pool, MOST_RUN, NULL, 0);
    assert_true(n <= 256 && ull__move_runs(w->pool, MOST_RUN, runs, 256) == n);
    struct ull_stats before = stats(w);
    ull__move_views_out(w->pool);
    for (size_t i = 0; i < n; i++) {
        assert_true(runs[i].count <= MOST_RUN && runs[i].bytes == runs[i].count * PAGE);
        copies[i] = (struct copy){runs[i], malloc(runs[i].bytes)};
        memcpy(copies[i].bytes, (void *)(uintptr_t)runs[i].address, runs[i].bytes);
        ull__move_unmap(w->pool, &runs[i]);
        sum += runs[i].bytes;
    }
    struct ull__device_held held = ull__device_host_held(w->device);
    assert_int_equal(held.pages + held.mappings, 0);
    assert_int_equal(sum, before.held);
    qsort(copies, n, sizeof *copies, by_chance);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ull__move_make(w->pool, &copies[i].run), ULL_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ull__move_map(w->pool, &copies[i].run), ULL_OK);
        memcpy((void *)(uintptr_t)copies[i].run.address, copies[i].bytes, copies[i].run.bytes);
        free(copies[i].bytes);
    }
    assert_int_equal(ull__move_views_in(w->pool), ULL_OK);
    assert_int_equal(stats(w).held, before.held);
    assert_int_equal(stats(w).in_use, before.in_use);
}

static void moves_at_random(void **state)
{
    struct world *w = *state;
    char what[256];
    uint64_t maps = 0;
    w->options.limit = 24 * PAGE; /* so that views are made */
    start(w);
    for (int i = 0; i < STEPS; i++) {
        step(w);
        if (i % 100 != 99)
            continue;
        maps += w->pool->mapped - w->pool->held;
        move_all(w);
        for (int k = 0; k < count; k++)
            assert_true(holds(k));
        assert_true(ull__pool_check(w->pool, what, sizeof what));
    }
    assert_true(maps > 20); /* else views were not tried */
    count = 0;
}

/* The device has no room for all of it at first, then it cannot map a view. */
static void comes_back_at_the_second_try(void **state)
{
    struct world *w = *state;
    struct ull__run runs[64];
    w->options.limit = 24 * PAGE;
    start(w);
    for (int i = 0; i < 300; i++)
        step(w);
    move_all(w);
    assert_true(w->pool->mapped > w->pool->held);
    size_t n = ull__move_runs(w->pool, MOST_RUN, runs, 64);
    unsigned char *bytes = malloc(64 * MOST_RUN * PAGE);
    assert_true(n > 2 && n <= 64);
    ull__move_views_out(w->pool);
    for (size_t i = 0; i < n; i++) {
        memcpy(bytes + i * MOST_RUN * PAGE, (void *)(uintptr_t)runs[i].address, runs[i].bytes);
        ull__move_unmap(w->pool, &runs[i]);
    }
    assert_int_equal(ull__move_make(w->pool, &runs[0]), ULL_OK);
    ull__device_host_fail_at(w->device, 1);
    assert_int_equal(ull__move_make(w->pool, &runs[1]), ULL_E_NO_MEMORY);
    ull__move_unmake(w->pool, &runs[0]);
    assert_int_equal(ull__device_host_held(w->device).pages, 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ull__move_make(w->pool, &runs[i]), ULL_OK);
        ull__device_host_fail_at(w->device, 1);
        assert_int_not_equal(ull__move_map(w->pool, &runs[i]), ULL_OK);
        assert_int_equal(ull__move_map(w->pool, &runs[i]), ULL_OK);
        memcpy((void *)(uintptr_t)runs[i].address, bytes + i * MOST_RUN * PAGE, runs[i].bytes);
    }
    uint64_t at_home = ull__device_host_held(w->device).mappings;
    for (uint64_t fail = 1;; fail++) {
        ull__device_host_fail_at(w->device, fail);
        if (ull__move_views_in(w->pool) == ULL_OK)
            break;
        assert_int_equal(ull__device_host_held(w->device).mappings, at_home);
    }
    ull__device_host_fail_at(w->device, 0);
    assert_int_equal(ull__device_host_held(w->device).mappings, w->pool->mapped);
    for (int k = 0; k < count; k++)
        assert_true(holds(k));
    free(bytes);
    count = 0;
}

/* Every address of a block finds it; one byte behind it finds another or none; a free one finds none. */
static void finds_blocks(void **state)
{
    struct world *w = *state;
    uint64_t start_at, bytes;
    w->options.limit = 24 * PAGE;
    start(w);
    for (int i = 0; i < STEPS; i++) {
        step(w);
        for (int k = 0; k < count && i % 50 == 0; k++) {
            uint64_t at = (uintptr_t)blocks[k].at;
            assert_true(ull__pool_find(w->pool, at + any(blocks[k].bytes), &start_at, &bytes));
            assert_true(start_at == at && bytes == blocks[k].bytes);
            assert_true(!ull__pool_find(w->pool, at + blocks[k].bytes, &start_at, &bytes) ||
                        start_at != at);
        }
    }
    uint64_t last = (uintptr_t)blocks[0].at;
    assert_int_equal(ull_pool_free(w->pool, blocks[0].at, w->streams[0]), ULL_OK);
    assert_false(ull__pool_find(w->pool, last, &start_at, &bytes));
    assert_false(ull__pool_find(w->pool, 4096, &start_at, &bytes));
    count = 0;
}

/* --- following ------------------------------------------------------------------------------------------------- */

static int waited;

static bool wait_on(void *device, ull__stream stream, ull__event event)
{
    assert_non_null(device);
    assert_non_null(stream);
    assert_true(event != 0);
    waited++;
    return true;
}

static bool cannot_wait(void *device, ull__stream stream, ull__event event)
{
    (void)device, (void)stream, (void)event;
    return false;
}

/* What the first stream freed is the second's without the host waiting, and then in the second's order. */
static void follows(void **state)
{
    struct world *w = *state;
    void *address, *p;
    w->options.limit = 4 * PAGE;
    w->options.wait_ns = 0;
    start(w);
    ull__device_host_delay(w->device, true);
    p = get_on(w, 4 * PAGE, w->streams[0]);
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_int_equal(ull_pool_allocate(w->pool, 4 * PAGE, w->streams[1], &address), ULL_E_NO_MEMORY);
    assert_false(ull__pool_follow(w->pool, w->streams[1], cannot_wait, w->device));
    assert_int_equal(ull_pool_allocate(w->pool, 4 * PAGE, w->streams[1], &address), ULL_E_NO_MEMORY);
    waited = 0;
    assert_true(ull__pool_follow(w->pool, w->streams[1], wait_on, w->device));
    assert_int_equal(waited, 1);
    assert_ptr_equal(get_on(w, 4 * PAGE, w->streams[1]), p);
    ull_pool_free(w->pool, p, w->streams[1]);
    /* The first stream has to wait for the second now, though its own event has not passed either. */
    assert_int_equal(ull_pool_allocate(w->pool, 4 * PAGE, w->streams[0], &address), ULL_E_NO_MEMORY);
    assert_false(ull__pool_follow(w->pool, w->streams[1], wait_on, w->device)); /* nothing is left */
    assert_true(ull__pool_follow(w->pool, w->streams[0], wait_on, w->device));
    assert_ptr_equal(get_on(w, 4 * PAGE, w->streams[0]), p);
}

static void gives_back_what_rests(void **state)
{
    struct world *w = *state;
    w->options.watermark_percent = 100;
    w->options.idle_ns = UINT64_MAX;
    start(w);
    void *kept = get_on(w, PAGE, w->streams[0]);
    void *p = get_on(w, 10 * PAGE, w->streams[0]);
    assert_int_equal(ull__pool_rest(w->pool, 0), 0);
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_int_equal(ull__pool_rest(w->pool, 0), 0); /* it was needed since the last time */
    assert_int_equal(ull__pool_rest(w->pool, 8 * PAGE), 3 * PAGE);
    p = get_on(w, 5 * PAGE, w->streams[0]);
    ull_pool_free(w->pool, p, w->streams[0]);
    assert_int_equal(ull__pool_rest(w->pool, 0), 2 * PAGE);
    assert_int_equal(ull__pool_trim_to(w->pool, 4 * PAGE), 2 * PAGE);
    assert_int_equal(stats(w).held, 4 * PAGE);
    assert_int_equal(ull__pool_trim_to(w->pool, 0), 3 * PAGE);
    ull_pool_free(w->pool, kept, w->streams[0]);
}

static int set_up(void **state)
{
    seed = 88172645463325252ull;
    count = 0;
    return setup(state);
}

#define TEST_MOVE(name) cmocka_unit_test_setup_teardown(name, set_up, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_MOVE(moves_at_random),       TEST_MOVE(comes_back_at_the_second_try),
        TEST_MOVE(finds_blocks),          TEST_MOVE(follows),
        TEST_MOVE(gives_back_what_rests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
