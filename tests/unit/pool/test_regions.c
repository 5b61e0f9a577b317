/*
 * test_regions.c: a pool over a device that cannot map pages: how it grows, what it gives back, when it
 * refuses and what it says then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plain_host.h"
#include "pool_private.h"

#define PAGE ((uint64_t)64 << 10)
enum { PAGES = 256, LATER = 1000 };

struct world {
    struct ull__device *device;
    struct ull_pool *pool;
    struct ull_pool_options options;
    uint64_t clock, others;
};

static uint64_t world_now(void *context)
{
    return ((struct world *)context)->clock;
}

static int setup_with(void **state, uint64_t shift)
{
    static struct world w;
    w = (struct world){0};
    if (ull__device_host_create(PAGES * PAGE, PAGE, &w.device, NULL) != ULL_OK ||
        !(w.device = plain_host(w.device, shift)))
        return -1;
    ull_pool_options_init(&w.options);
    w.options.now_ns = world_now;
    w.options.now_context = &w;
    *state = &w;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, 0);
}

static int setup_shifted(void **state)
{
    return setup_with(state, 768);
}

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
    ull__device_destroy(w->device);
    return held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses ? -1 : 0;
}

static void start(struct world *w, uint64_t limit, uint64_t reserve)
{
    w->options.limit = limit * PAGE;
    w->options.reserve = reserve * PAGE;
    assert_int_equal(ull_pool_create(w->device, &w->options, &w->pool, NULL), ULL_OK);
}

static void *get(struct world *w, uint64_t bytes)
{
    void *address = NULL;
    assert_int_equal(ull_pool_allocate(w->pool, bytes, NULL, &address), ULL_OK);
    return address;
}

static void give(struct world *w, void *address)
{
    assert_int_equal(ull_pool_free(w->pool, address, NULL), ULL_OK);
}

static struct ull_refusal refused(struct world *w, uint64_t bytes)
{
    struct ull_request request = {.bytes = bytes};
    struct ull_refusal refusal;
    void *address = w;
    assert_int_equal(ull_pool_request(w->pool, &request, &refusal, &address), ULL_E_NO_MEMORY);
    assert_ptr_equal(address, w);
    assert_true(refusal.regions);
    return refusal;
}

static struct ull_stats stats(struct world *w)
{
    struct ull_stats s = {.size = sizeof s};
    assert_int_equal(ull_pool_stats(w->pool, &s), ULL_OK);
    return s;
}

static void held_is(struct world *w, uint64_t pages)
{
    assert_int_equal(stats(w).held, pages * PAGE);
    assert_int_equal(ull__device_host_held(w->device).pages, pages + w->others);
}

/* Takes pages of the device away from under the pool. */
static void other_takes(struct world *w, size_t count, ull__page *pages)
{
    assert_int_equal(w->device->ops->create(w->device, count, pages), ULL_OK);
    w->others = count;
}

static void other_gives(struct world *w, const ull__page *pages)
{
    w->device->ops->destroy_pages(w->device, w->others, pages);
    w->others = 0;
}

/* --- growing ------------------------------------------------------------------------------------------ */

static void grows_by_as_much_as_it_has(void **state)
{
    struct world *w = *state;
    static const uint64_t held[] = {1, 2, 4, 8, 16, 32, 48};
    start(w, 48, 0); /* the last region is what the limit leaves */
    held_is(w, 0);
    for (unsigned int i = 0, pages = 0; i < 7; i++) {
        for (; pages < held[i]; pages++) {
            get(w, PAGE);
            held_is(w, held[i]);
        }
    }
    assert_int_equal(stats(w).maps, 7);
    assert_int_equal(refused(w, 1).held, 48 * PAGE);
}

static void a_region_has_what_the_request_needs(void **state)
{
    struct world *w = *state;
    start(w, 0, 0);
    void *a = get(w, 20 * PAGE - 100);
    held_is(w, 20);
    give(w, a);
    assert_ptr_equal(get(w, 20 * PAGE), a);
    get(w, 30 * PAGE);
    held_is(w, 50);
    struct ull_pool_options o;
    ull_pool_policy(w->pool, &o);
    assert_int_equal(o.small_bytes, 0);
}

static void leaves_half_of_what_is_free_to_others(void **state)
{
    struct world *w = *state;
    ull__page taken[PAGES];
    start(w, 0, 0);
    get(w, 40 * PAGE);
    other_takes(w, 200, taken); /* 16 are left */
    get(w, PAGE);
    held_is(w, 48);
    get(w, 7 * PAGE);
    get(w, 8 * PAGE); /* but all of it if need be */
    held_is(w, 56);
    struct ull_refusal r = refused(w, PAGE);
    assert_true(r.device_full);
    other_gives(w, taken);
    get(w, PAGE);
}

static void takes_less_when_the_device_refuses(void **state)
{
    struct world *w = *state;
    start(w, 0, 0);
    get(w, 40 * PAGE);
    ull__device_host_fail_at(w->device, 2); /* the first is the question how much is free */
    get(w, 3 * PAGE);
    held_is(w, 76);
    get(w, 30 * PAGE);
    ull__device_host_fail_at(w->device, 1);
    get(w, 40 * PAGE); /* if that is not known: what the request needs */
    held_is(w, 116);
}

static void all_at_the_start(void **state)
{
    struct world *w = *state;
    w->options.growth = false;
    start(w, 0, 64);
    held_is(w, 64);
    assert_int_equal(stats(w).largest_free, 64 * PAGE);
    for (int i = 0; i < 64; i++)
        get(w, PAGE);
    assert_int_equal(refused(w, 1).growth, false);
    assert_int_equal(stats(w).maps, 1);
}

static void all_at_the_start_in_pieces(void **state)
{
    struct world *w = *state;
    w->options.growth = false;
    ull__device_host_fail_at(w->device, 2);
    start(w, 0, 100);
    held_is(w, 100);
    assert_int_equal(stats(w).maps, 2);
    assert_int_equal(stats(w).largest_free, 90 * PAGE);
    give(w, get(w, 100 * PAGE)); /* both go for one */
    held_is(w, 100);
}

static void mixed_growth(void **state)
{
    struct world *w = *state;
    start(w, 64, 20);
    held_is(w, 20);
    void *a = get(w, 20 * PAGE);
    void *b = get(w, PAGE);
    held_is(w, 40);
    give(w, a);
    give(w, b);
    uint64_t returned;
    assert_int_equal(ull_pool_trim(w->pool, UINT64_MAX, &returned), ULL_OK);
    assert_int_equal(returned, 20 * PAGE);
    held_is(w, 20);
    assert_int_equal(ull_pool_set_reserve(w->pool, 30 * PAGE), ULL_OK);
    held_is(w, 30);
    assert_int_equal(ull_pool_set_reserve(w->pool, 65 * PAGE), ULL_E_INVALID);
    ull__page taken[PAGES];
    other_takes(w, PAGES - 40, taken);
    assert_int_equal(ull_pool_set_reserve(w->pool, 50 * PAGE), ULL_E_NO_MEMORY);
    held_is(w, 30); /* not a part of it */
    assert_int_equal(stats(w).reserve, 30 * PAGE);
    other_gives(w, taken);
}

static void prewarmed(void **state)
{
    struct world *w = *state;
    start(w, 0, 0);
    assert_int_equal(ull_pool_prewarm(w->pool, 30 * PAGE), ULL_OK);
    assert_int_equal(ull_pool_prewarm(w->pool, 30 * PAGE), ULL_OK);
    held_is(w, 30);
    get(w, 30 * PAGE);
    assert_int_equal(stats(w).maps, 1);
    assert_int_equal(ull_pool_prewarm(w->pool, 300 * PAGE), ULL_E_NO_MEMORY);
}

/* --- giving back -------------------------------------------------------------------------------------- */

static void only_whole_regions_go(void **state)
{
    struct world *w = *state;
    uint64_t returned = 1;
    start(w, 0, 0);
    void *a = get(w, 10 * PAGE), *b = get(w, 10 * PAGE), *c = get(w, 20 * PAGE);
    give(w, b);
    give(w, get(w, 5 * PAGE));
    void *small = get(w, 1);
    give(w, c);
    assert_int_equal(ull_pool_trim(w->pool, UINT64_MAX, &returned), ULL_OK);
    assert_int_equal(returned, 20 * PAGE);
    held_is(w, 20);
    assert_int_equal(ull_pool_trim(w->pool, UINT64_MAX, &returned), ULL_OK);
    assert_int_equal(returned, 0);
    give(w, small);
    assert_int_equal(ull_pool_trim(w->pool, 9 * PAGE, &returned), ULL_OK);
    assert_int_equal(returned, 0); /* it would be more than was asked */
    assert_int_equal(ull_pool_trim(w->pool, 10 * PAGE, &returned), ULL_OK);
    assert_int_equal(returned, 10 * PAGE);
    give(w, a);
}

static void a_lowered_limit(void **state)
{
    struct world *w = *state;
    start(w, 0, 16);
    void *a = get(w, 16 * PAGE), *b = get(w, 8 * PAGE); /* 16 and 16 */
    held_is(w, 32);
    assert_int_equal(ull_pool_set_limit(w->pool, 12 * PAGE), ULL_OK);
    held_is(w, 32);
    struct ull_refusal r = refused(w, PAGE);
    assert_int_equal(r.limit, 12 * PAGE);
    give(w, b);
    refused(w, PAGE);
    held_is(w, 16);
    give(w, a);
    void *c = get(w, PAGE); /* the region was too much, so the reserve is taken anew */
    held_is(w, 12);
    give(w, c);
}

static void the_watermark(void **state)
{
    struct world *w = *state;
    start(w, 100, 0);
    w->options.idle_ns = 0;
    void *a = get(w, 40 * PAGE), *b = get(w, 60 * PAGE), *c;
    give(w, b);
    for (int i = 0; i < LATER; i++)
        give(w, get(w, PAGE));
    held_is(w, 100);
    c = get(w, 60 * PAGE); /* used within the time */
    w->clock += 10000000000u;
    give(w, c);
    for (int i = 0; i < LATER; i++)
        give(w, get(w, 60 * PAGE));
    held_is(w, 100);
    w->clock += 10000000000u;
    give(w, a);
    for (int i = 0; i < LATER; i++)
        give(w, get(w, PAGE));
    w->clock += 10000000000u;
    for (int i = 0; i < LATER; i++)
        give(w, get(w, PAGE));
    assert_true(stats(w).held <= 70 * PAGE); /* one of the two went */
    assert_true(stats(w).held > 0);
}

static void free_regions_make_room(void **state)
{
    struct world *w = *state;
    void *p[4];
    start(w, 40, 0);
    for (int i = 0; i < 4; i++)
        p[i] = get(w, 10 * PAGE); /* regions of 10, 10 and 20 */
    uint64_t maps = stats(w).maps;
    give(w, p[0]);
    give(w, p[1]);
    refused(w, 21 * PAGE); /* they would not be enough, and stay */
    held_is(w, 40);
    assert_int_equal(stats(w).maps, maps);
    void *large = get(w, 20 * PAGE);
    held_is(w, 40);
    give(w, large);
    give(w, p[2]);
    give(w, p[3]);
    give(w, get(w, 40 * PAGE));
    refused(w, 40 * PAGE + 1);
}

static void a_full_device_gets_free_regions(void **state)
{
    struct world *w = *state;
    ull__page taken[PAGES];
    start(w, 0, 0);
    void *a = get(w, 10 * PAGE), *b = get(w, 10 * PAGE);
    other_takes(w, PAGES - 20, taken);
    give(w, a);
    give(w, b);
    get(w, 20 * PAGE);
    held_is(w, 20);
    assert_true(refused(w, 1).device_full);
    other_gives(w, taken);
}

/* What still waits for its stream cannot go yet: the request waits, even with one stream only. */
static void waits_for_a_region_to_go(void **state)
{
    struct world *w = *state;
    ull__device_host_delay(w->device, true);
    start(w, 40, 0);
    for (int i = 0; i < 4; i++) {
        void *p = get(w, 10 * PAGE);
        assert_int_equal(w->device->ops->fill(w->device, (uintptr_t)p, 1, PAGE, NULL), ULL_OK);
        give(w, p);
    }
    void *p = get(w, 10 * PAGE), *q = get(w, 5 * PAGE);
    assert_int_equal(w->device->ops->fill(w->device, (uintptr_t)p, 1, 10 * PAGE, NULL), ULL_OK);
    give(w, p);
    give(w, q);
    get(w, 40 * PAGE);
    assert_true(stats(w).waits > 0);
    held_is(w, 40);
}

/* --- refusals and reports -------------------------------------------------------------------------------- */

static void says_why(void **state)
{
    struct world *w = *state;
    char text[2048];
    void *p[8];
    start(w, 8, 0);
    w->options.reserve = 0;
    for (int i = 0; i < 8; i++)
        p[i] = get(w, PAGE);
    for (int i = 1; i < 8; i += 2)
        give(w, p[i]);
    struct ull_refusal r = refused(w, 2 * PAGE);
    assert_int_equal(r.free, 4 * PAGE);
    assert_int_equal(r.largest_free, PAGE);
    assert_int_equal(r.free_pages, PAGE);
    assert_int_equal(r.left, 0);
    assert_int_equal(r.wanted_pages, 2 * PAGE);
    assert_false(r.device_full);
    assert_true(r.fragmentation > 0.74 && r.fragmentation < 0.76);
    assert_int_equal(r.holder_count, 4);
    ull_refusal_text(&r, text, sizeof text);
    if (!strstr(text, "largest free run 64.0 KiB, left under the limit for a new region 0"))
        fail_msg("%s", text);
    for (unsigned int i = 0; i < 4; i++) {
        bool is_one = false;
        for (int k = 0; k < 8; k += 2)
            is_one |= r.holders[i].address == (uintptr_t)p[k];
        assert_true(is_one);
    }
}

struct walked {
    uint64_t last, in_use, all;
};

static bool note(void *context, const struct ull_chunk_info *info)
{
    struct walked *walked = context;
    assert_true(info->address > walked->last);
    walked->last = info->address + info->bytes - 1;
    walked->all += info->bytes;
    walked->in_use += info->state == ULL_CHUNK_IN_USE ? info->bytes : 0;
    return true;
}

static void walks_by_address(void **state)
{
    struct world *w = *state;
    struct walked walked = {0};
    start(w, 0, 0);
    ull_pool_walk(w->pool, note, &walked);
    assert_int_equal(walked.all, 0);
    for (unsigned int i = 1; i < 12; i++)
        get(w, i * PAGE / 2);
    ull_pool_walk(w->pool, note, &walked);
    struct ull_stats s = stats(w);
    assert_int_equal(walked.all, s.held);
    assert_int_equal(walked.in_use, s.in_use);
    assert_int_equal(s.mapped, s.held);
}

static void alignment(void **state)
{
    struct world *w = *state;
    start(w, 0, 0);
    for (uint64_t a = 1; a <= 16 * PAGE; a *= 2) {
        for (uint64_t bytes = 1; bytes < 4 * PAGE; bytes = bytes * 5 + 1) {
            struct ull_request request = {.bytes = bytes, .alignment = a};
            void *address;
            assert_int_equal(ull_pool_request(w->pool, &request, NULL, &address), ULL_OK);
            assert_int_equal((uintptr_t)address % a, 0);
            give(w, address);
        }
    }
    struct ull_request request = {.bytes = PAGE, .alignment = (uint64_t)1 << 62};
    void *address;
    assert_int_equal(ull_pool_request(w->pool, &request, NULL, &address), ULL_E_NO_MEMORY);
    assert_int_equal(ull_pool_trim(w->pool, UINT64_MAX, NULL), ULL_OK);
    assert_int_equal(stats(w).held, 0); /* else there may be such a place by chance */
    request = (struct ull_request){.bytes = PAGE, .alignment = PAGES * PAGE};
    assert_int_equal(ull_pool_request(w->pool, &request, NULL, &address), ULL_E_NO_MEMORY);
}

/* A run of free neighbours begins within a page, of which the part before it waits for nobody. */
static void a_run_within_a_page(void **state)
{
    struct world *w = *state;
    const struct ull__device_ops *ops = w->device->ops;
    static const uint64_t bytes[] = {256, PAGE / 4, PAGE / 4, PAGE / 2 - 256};
    ull__stream streams[2];
    void *parts[4], *address;
    ops->stream_create(w->device, &streams[0]);
    ops->stream_create(w->device, &streams[1]);
    start(w, 1, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ull_pool_allocate(w->pool, bytes[i], streams[i != 1], &parts[i]), ULL_OK);
    ull_pool_free(w->pool, parts[0], streams[1]);
    ull_pool_free(w->pool, parts[2], streams[1]);
    ull_pool_trim(w->pool, PAGE, NULL); /* both have passed */
    ull__device_host_delay(w->device, true);
    ull_pool_free(w->pool, parts[1], streams[0]);
    ull_pool_free(w->pool, parts[3], streams[1]);
    ull_pool_trim(w->pool, PAGE, NULL);
    ull__device_host_advance(w->device, streams[1], 1);
    ull_pool_trim(w->pool, PAGE, NULL);
    struct ull_request request = {.bytes = PAGE - 512, .alignment = 512, .stream = streams[0]};
    assert_int_equal(ull_pool_request(w->pool, &request, NULL, &address), ULL_OK);
    assert_ptr_equal(address, parts[1]);
    char what[256];
    assert_true(ull__pool_check(w->pool, what, sizeof what));
    ull_pool_free(w->pool, address, streams[0]);
    ull_pool_destroy(w->pool);
    w->pool = NULL;
    for (int i = 0; i < 2; i++)
        ops->stream_destroy(w->device, streams[i]);
}

/* The pool's own addresses mean nothing to a program. */
static void foreign_addresses(void **state)
{
    struct world *w = *state;
    start(w, 0, 0);
    char *p = get(w, 3 * PAGE);
    for (uint64_t slot = 0; slot < 64; slot++)
        assert_int_equal(ull_pool_free(w->pool, (void *)(uintptr_t)((slot + 1) * PAGE), NULL),
                         ULL_E_INVALID);
    assert_int_equal(ull_pool_free(w->pool, p + PAGE, NULL), ULL_E_INVALID);
    assert_int_equal(ull_pool_use_on(w->pool, p, NULL), ULL_OK);
    give(w, p);
    assert_int_equal(ull_pool_free(w->pool, p, NULL), ULL_E_INVALID);
}

static void rests(void **state)
{
    struct world *w = *state;
    void *p[20];
    start(w, 0, 0);
    uint64_t maps = 0;
    for (int round = 0; round < 10; round++) {
        for (unsigned int i = 0; i < 20; i++)
            p[i] = get(w, (i * 7 % 5 + 1) * PAGE - i * 100);
        for (unsigned int i = 0; i < 20; i++)
            give(w, p[(i * 3) % 20]);
        if (round == 2)
            maps = stats(w).maps;
    }
    assert_int_equal(stats(w).maps, maps);
    assert_int_equal(stats(w).unmaps, 0);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define SHIFTED(test) cmocka_unit_test_setup_teardown(test, setup_shifted, teardown)
    const struct CMUnitTest tests[] = {
        TEST(grows_by_as_much_as_it_has),
        TEST(a_region_has_what_the_request_needs),
        TEST(leaves_half_of_what_is_free_to_others),
        TEST(takes_less_when_the_device_refuses),
        TEST(all_at_the_start),
        TEST(all_at_the_start_in_pieces),
        TEST(mixed_growth),
        TEST(prewarmed),
        TEST(only_whole_regions_go),
        TEST(a_lowered_limit),
        TEST(the_watermark),
        TEST(free_regions_make_room),
        TEST(a_full_device_gets_free_regions),
        TEST(waits_for_a_region_to_go),
        TEST(says_why),
        TEST(walks_by_address),
        TEST(alignment),
        SHIFTED(alignment),
        TEST(foreign_addresses),
        SHIFTED(a_run_within_a_page),
        TEST(rests),
    };
    return cmocka_run_group_tests_name("pool.regions", tests, NULL, NULL);
}
