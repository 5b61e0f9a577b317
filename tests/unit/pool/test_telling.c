/*
 * test_telling.c: what a pool tells: statistics, the report of a refusal, the walk, the policy.
 * Each of the kinds of bug reports about other allocators that an allocator can have has a test with
 * its number: "project#number".
 */
#include "world.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(statistics),
        TEST(report_of_a_refusal),
        TEST(walk_adds_up),
        TEST(policy_can_be_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
