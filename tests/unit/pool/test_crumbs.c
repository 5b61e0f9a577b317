/*
 * test_crumbs.c: chunks that nobody asked for so far (bins.h) cost nobody much when somebody does: few are sorted by one
 * request, there are never very many, and whatever is not sorted yet is found before a page is taken.
 */
#include "world.h"

#include "lane.h"

enum { MANY = 20000 };
#define KIB ((uint64_t)1 << 10)

static void *at[MANY];

/* Free chunks that are not sorted; *largest: of all free ones. */
static uint64_t crumbs(const struct world *w, uint64_t *largest)
{
    const struct ull_pool *pool = w->pool;
    uint64_t count = 0;
    *largest = 0;
    for (uint32_t r = ULL_HOME; r != (uint32_t)ULL_NONE; r = pool->ranges[r].next) {
        for (const struct ull__chunk *c = pool->ranges[r].chunks; c; c = c->next) {
            if (c->state != ULL_FREE)
                continue;
            count += c->bin == 0;
            *largest = c->size > *largest ? c->size : *largest;
        }
    }
    return count;
}

static void is_whole(const struct world *w)
{
    char what[256] = "";
    bool good = ull__pool_check(w->pool, what, sizeof what);
    assert_string_equal(what, "");
    assert_true(good);
}

/* Blocks that fill pages, of which every second one is free: smaller than whatever the stream found free so far. */
static void make_holes(struct world *w, int count, uint64_t size)
{
    for (int i = 0; i < count; i++)
        at[i] = get(w, size);
    for (int i = 0; i < count; i += 2)
        give(w, at[i]);
}

static void a_smaller_request_sorts_a_few(void **state)
{
    struct world *w = *state;
    uint64_t largest;
    start(w);
    make_holes(w, 3200, 64 * KIB);
    uint64_t held = stats(w).held, count = crumbs(w, &largest);
    assert_true(count > 40 * ULL_SORT);
    for (int i = 0; i < 100; i++) {
        void *p = get(w, 40 * KIB);
        uint64_t now = crumbs(w, &largest);
        assert_true(now + ULL_SORT >= count);
        count = now;
        assert_int_equal(stats(w).largest_free, largest);
        if (i % 8 == 0)
            is_whole(w);
        if (i % 2 == 0)
            give(w, p);
    }
    assert_true(count <= 50); /* what is left of 64 KiB */
    assert_int_equal(stats(w).held, held);
}

/* The one hole that is large enough is the last to be sorted. */
static void what_is_not_sorted_is_found(void **state)
{
    struct world *w = *state;
    uint64_t largest;
    start(w);
    void *large = get(w, 16 * KIB);
    for (int i = 0; i < 2046; i++)
        at[i] = get(w, 8 * KIB);
    uint64_t held = stats(w).held;
    assert_int_equal(held, 8 * PAGE);
    give(w, large);
    for (int i = 1; i < 2046; i += 2)
        give(w, at[i]);
    assert_true(crumbs(w, &largest) > 4 * ULL_SORT);
    assert_int_equal(stats(w).largest_free, 16 * KIB);
    get(w, 6 * KIB);
    assert_int_equal(stats(w).largest_free, 16 * KIB);
    assert_ptr_equal(get(w, 12 * KIB), large);
    assert_int_equal(stats(w).held, held);
}

/* The one that fits is sorted behind the first of those that have the size, but not the place. */
static void an_aligned_request_finds_it_too(void **state)
{
    struct world *w = *state;
    struct ull_request r = {.bytes = 12 * KIB, .alignment = 16 * KIB};
    void *p;
    start(w);
    for (int i = 0; i < 1024; i++)
        at[i] = get(w, 8 * KIB);
    uint64_t held = stats(w).held;
    assert_int_equal(held, 4 * PAGE);
    give(w, at[2]);
    give(w, at[3]);
    for (int i = 0; i < ULL_SORT + 8; i++) {
        give(w, at[8 * i + 9]);
        give(w, at[8 * i + 10]);
    }
    assert_int_equal(ull_pool_request(w->pool, &r, NULL, &p), ULL_OK);
    assert_ptr_equal(p, at[2]);
    assert_int_equal(stats(w).held, held);
}

static void there_are_never_very_many(void **state)
{
    struct world *w = *state;
    uint64_t largest, most = 0;
    start(w);
    make_holes(w, MANY, 4 * KIB);
    most = crumbs(w, &largest);
    assert_in_range(most, ULL_CRUMBS / 2, ULL_CRUMBS + 2 * ULL_SAMPLE);
    assert_true(w->pool->crumbless);
    is_whole(w);
    get(w, 2 * KIB);
    for (int i = 1; i < MANY; i += 2)
        give(w, at[i]);
    is_whole(w);
    /* Once there are few again, what comes is left unsorted again. */
    for (int i = 0; i < ULL_REVIEW; i++)
        give(w, get(w, 2 * KIB));
    assert_false(w->pool->crumbless);
    assert_true(w->pool->lanes[w->pool->last_lane].bins[ULL_SMALL]->least > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_smaller_request_sorts_a_few),
        TEST(what_is_not_sorted_is_found),
        TEST(an_aligned_request_finds_it_too),
        TEST(there_are_never_very_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
