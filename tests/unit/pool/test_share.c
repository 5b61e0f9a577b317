/*
 * test_share.c: requests that begin in the page that another one ends in (src/pool/share.c): when they do, that
 * nobody's bytes change, and when the page is free again.
 */
#include "world.h"

/* All of `pages` in single ones, `free_pages` of which are given back, no two of them neighbours. */
static void scatter(struct world *w, int pages, int free_pages, void **p)
{
    w->options.limit = (uint64_t)pages * PAGE;
    start(w);
    for (int i = 0; i < pages; i++)
        p[i] = get(w, PAGE);
    for (int i = 0; i < free_pages; i++) {
        give(w, p[2 * i + 1]);
        p[2 * i + 1] = NULL;
    }
}

static void whole(struct world *w)
{
    char what[256];
    if (!ull__pool_check(w->pool, what, sizeof what))
        fail_msg("%s", what);
}

static void fill(void *p, uint64_t bytes, int value)
{
    memset(p, value, bytes);
}

static void holds(const void *p, uint64_t bytes, int value)
{
    const unsigned char *at = p;
    for (uint64_t i = 0; i < bytes; i += i + 256 < bytes ? 255 : 1)
        assert_int_equal(at[i], value);
}

/* Three free pages for two requests of a page and a half. */
static void begins_where_another_ends(void **state)
{
    struct world *w = *state;
    void *p[8];
    scatter(w, 8, 3, p);
    void *a = get(w, 3 * MIB), *b = get(w, 3 * MIB);
    assert_int_equal(w->pool->lent, 1);
    assert_int_equal(stats(w).held, 8 * PAGE);
    whole(w);
    for (int i = 0; i < 8; i++) {
        if (p[i])
            fill(p[i], PAGE, i + 1);
    }
    fill(a, 3 * MIB, 100);
    fill(b, 3 * MIB, 101);
    holds(a, 3 * MIB, 100);
    for (int i = 0; i < 8; i++) {
        if (p[i])
            holds(p[i], PAGE, i + 1);
    }
    refused(w, PAGE);
    refused(w, 3 * PAGE / 2);
    give(w, a);
    whole(w);
    assert_int_equal(stats(w).free_pages, PAGE); /* of the other one b has half */
    holds(b, 3 * MIB, 101);
    give(w, b);
    assert_int_equal(stats(w).free_pages, 3 * PAGE);
    assert_int_equal(w->pool->lent, 0);
    get(w, 3 * PAGE);
}

/* The second begins in the first's page and ends in one that the third begins in; freed in any order. */
static void three_in_a_row(void **state)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const uint64_t bytes = 17 * MIB / 2; /* of four pages and a quarter */
    struct world *w = *state;
    void *p[32], *row[3];
    scatter(w, 32, 13, p);
    for (int order = 0; order < 6; order++) {
        for (int i = 0; i < 4; i++)
            p[i] = get(w, PAGE);
        row[0] = get(w, bytes);
        row[1] = get(w, bytes);
        for (int i = 0; i < 4; i++)
            give(w, p[i]);
        row[2] = get(w, bytes);
        assert_int_equal(w->pool->lent, 2);
        refused(w, PAGE);
        for (int i = 0; i < 3; i++)
            fill(row[i], bytes, i + 1);
        for (int i = 0; i < 3; i++) {
            whole(w);
            for (int k = i; k < 3; k++)
                holds(row[orders[order][k]], bytes, orders[order][k] + 1);
            give(w, row[orders[order][i]]);
        }
        assert_int_equal(stats(w).free_pages, 13 * PAGE);
    }
}

/* A step that shares under its limit, repeated, finds its views again. */
static void repeated_steps_map_nothing(void **state)
{
    struct world *w = *state;
    struct ull_stats before, after;
    void *p[32], *row[3];
    scatter(w, 32, 14, p);
    for (int i = 0; i < 20; i++) {
        before = stats(w);
        for (int k = 0; k < 3; k++)
            row[k] = get(w, 17 * MIB / 2);
        assert_int_equal(w->pool->lent, 1);
        for (int k = 0; k < 3; k++)
            give(w, row[k]);
        after = stats(w);
        assert_true(i < 2 || after.maps + after.unmaps == before.maps + before.unmaps);
    }
}

/* What lies before it and behind it in its pages is used meanwhile. */
static void around_it_memory_is_used(void **state)
{
    struct world *w = *state;
    void *p[8];
    scatter(w, 8, 3, p);
    char *a = get(w, 3 * MIB), *b = get(w, 5 * MIB / 2);
    char *behind = get(w, MIB / 2);
    assert_int_equal(w->pool->lent, 1);
    assert_ptr_equal(behind, b + 5 * MIB / 2);
    give(w, a);
    char *page = get(w, PAGE), *before = get(w, MIB);
    assert_ptr_equal(before, a + PAGE);
    refused(w, 256);
    fill(page, PAGE, 1);
    fill(before, MIB, 2);
    fill(b, 5 * MIB / 2, 3);
    fill(behind, MIB / 2, 4);
    holds(page, PAGE, 1);
    holds(before, MIB, 2);
    holds(b, 5 * MIB / 2, 3);
    give(w, b);
    whole(w);
    holds(before, MIB, 2);
    holds(behind, MIB / 2, 4);
    give(w, page);
    give(w, before);
    give(w, behind);
    assert_int_equal(stats(w).free_pages, 3 * PAGE);
}

/* The page is not free for another stream until both who shared it have passed. */
static void streams_wait_for_both(void **state)
{
    struct world *w = *state;
    void *p[8];
    w->options.wait_ns = 0;
    scatter(w, 8, 3, p);
    void *a = get_on(w, 3 * MIB, w->streams[0]), *b = get_on(w, 3 * MIB, w->streams[0]), *c = NULL;
    assert_int_equal(w->pool->lent, 1);
    ull__device_host_delay(w->device, true);
    assert_int_equal(ull_pool_free(w->pool, a, w->streams[0]), ULL_OK);
    assert_int_equal(ull_pool_allocate(w->pool, PAGE, w->streams[1], &c), ULL_E_NO_MEMORY);
    ull__device_host_advance(w->device, w->streams[0], 100);
    assert_int_equal(ull_pool_allocate(w->pool, PAGE, w->streams[1], &c), ULL_OK);
    assert_int_equal(ull_pool_use_on(w->pool, b, w->streams[1]), ULL_OK);
    assert_int_equal(ull_pool_free(w->pool, b, w->streams[0]), ULL_OK);
    assert_int_equal(w->pool->lent, 1); /* until the second stream has passed */
    whole(w);
    ull__device_host_advance(w->device, w->streams[0], 100);
    assert_int_equal(ull_pool_allocate(w->pool, 2 * PAGE, w->streams[0], &c), ULL_E_NO_MEMORY);
    assert_int_equal(w->pool->lent, 1);
    ull__device_host_advance(w->device, w->streams[1], 100);
    assert_int_equal(ull_pool_allocate(w->pool, 2 * PAGE, w->streams[1], &c), ULL_E_NO_MEMORY);
    assert_int_equal(w->pool->lent, 0); /* now the first one's free is waited for */
    whole(w);
    ull__device_host_advance(w->device, w->streams[0], 100);
    assert_int_equal(ull_pool_allocate(w->pool, 2 * PAGE, w->streams[1], &c), ULL_OK);
}

/* What is shared does not go to the device, and all of it when both are gone. */
static void trimmed_when_both_are_gone(void **state)
{
    struct world *w = *state;
    void *p[8];
    uint64_t returned;
    scatter(w, 8, 3, p);
    void *a = get(w, 3 * MIB), *b = get(w, 3 * MIB);
    give(w, b);
    b = get(w, 3 * MIB);
    assert_int_equal(w->pool->lent, 1);
    give(w, a);
    ull_pool_trim(w->pool, UINT64_MAX, &returned);
    assert_int_equal(returned, PAGE);
    fill(b, 3 * MIB, 7);
    holds(b, 3 * MIB, 7);
    give(w, b);
    ull_pool_trim(w->pool, UINT64_MAX, &returned);
    assert_int_equal(returned, 2 * PAGE);
    whole(w);
}

/* No request shares that is at an alignment: the end of a page seldom is. */
static void aligned_ones_do_not(void **state)
{
    struct world *w = *state;
    void *p[8], *address;
    scatter(w, 8, 3, p);
    get(w, 3 * MIB);
    struct ull_request r = {.bytes = 3 * MIB, .alignment = 4096};
    assert_int_equal(ull_pool_request(w->pool, &r, NULL, &address), ULL_E_NO_MEMORY);
    get(w, 3 * MIB);
}

/* As long as there is room for whole pages, they are taken. */
static void none_shares_that_may_grow(void **state)
{
    struct world *w = *state;
    void *p[8];
    scatter(w, 8, 3, p);
    get(w, 3 * MIB);
    ull_pool_set_limit(w->pool, 9 * PAGE);
    void *b = get(w, 3 * MIB);
    assert_int_equal(stats(w).held, 9 * PAGE);
    assert_int_equal(w->pool->lent, 0);
    give(w, b);
    ull_pool_set_limit(w->pool, 8 * PAGE);
    get(w, 3 * MIB);
    assert_int_equal(w->pool->lent, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(begins_where_another_ends),  TEST(three_in_a_row),
        TEST(repeated_steps_map_nothing), TEST(around_it_memory_is_used),
        TEST(streams_wait_for_both),      TEST(trimmed_when_both_are_gone),
        TEST(aligned_ones_do_not),        TEST(none_shares_that_may_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
