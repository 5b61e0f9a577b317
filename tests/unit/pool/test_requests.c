/*
 * test_requests.c: what a request gets: sizes, alignment, places, and what a bad free changes.
 * Each of the kinds of bug reports about other allocators that an allocator can have has a test with
 * its number: "project#number".
 */
#include "world.h"

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

/* A cache that grows with each token, experts of a mixture: requests of half a megabyte between larger ones. */
static void what_large_ones_leave_over_is_filled(void **state)
{
    struct world *w = *state;
    void *large[40];
    start(w);
    for (int i = 0; i < 40; i++)
        large[i] = get(w, 3 * MIB / 2);
    for (int i = 0; i < 40; i += 2)
        give(w, large[i]);
    get(w, 1000);
    uint64_t held = stats(w).held;
    for (int i = 0; i < 20 * 3; i++)
        get(w, MIB / 2);
    assert_int_equal(stats(w).held, held);
}

/* With no page left, a small request is refused only if it fits nowhere. */
static void small_ones_are_not_refused_beside_a_hole(void **state)
{
    struct world *w = *state;
    start(w);
    get(w, 256 * PAGE - MIB);
    assert_int_equal(stats(w).largest_free, MIB); /* smaller than what was asked for so far */
    for (int i = 0; i < 8; i++)
        get(w, MIB / 8);
    refused(w, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(refuses_odd_sizes),
        TEST(aligns),
        TEST(bad_frees_change_nothing),
        TEST(lowest_address_on_ties),
        TEST(best_fit),
        TEST(small_survivors_pin_no_large_memory),
        TEST(what_large_ones_leave_over_is_filled),
        TEST(small_ones_are_not_refused_beside_a_hole),
        TEST(grown_in_pieces_serves_the_whole),
        TEST(bytes_are_the_same_through_every_alias),
        TEST(repeated_steps_map_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
