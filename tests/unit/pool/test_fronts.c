/* test_fronts.c: streams that keep for themselves what they freed, as when threads share a pool. */
#include "front.h"
#include "world.h"

static void start_with_fronts(struct world *w)
{
    start(w);
    w->pool->fronts_forced = true;
}

/* Pieces that are free in fronts. */
static uint64_t loose(struct world *w)
{
    uint64_t count = 0;
    for (unsigned int i = 0; i < w->pool->front_count; i++)
        count += w->pool->fronts[i]->free_count;
    return count;
}

static void free_on(struct world *w, void *address, ull__stream stream)
{
    assert_int_equal(ull_pool_free(w->pool, address, stream), ULL_OK);
}

static void same_size_is_reused(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    void *a = get_on(w, 5000, w->streams[0]), *b = get_on(w, 5000, w->streams[0]);
    uint64_t before = loose(w);
    free_on(w, a, w->streams[0]);
    assert_int_equal(loose(w), before + 1);
    assert_ptr_equal(get_on(w, 4900, w->streams[0]), a); /* as many units */
    assert_int_equal(loose(w), before);
    ull__device_host_delay(w->device, true);
    w->device->ops->copy_in(w->device, (uintptr_t)b, "x", 1, w->streams[0]);
    free_on(w, b, w->streams[0]);
    assert_ptr_not_equal(get_on(w, 5000, w->streams[1]), b); /* another stream has to wait for it */
    w->device->ops->synchronize(w->device, w->streams[0]);
}

static void threads_that_do_not_meet_have_none(void **state)
{
    struct world *w = *state;
    start(w);
    for (int i = 0; i < 1000; i++)
        free_on(w, get_on(w, 5000, w->streams[i % 2]), w->streams[i % 2]);
    assert_int_equal(w->pool->front_count, 0);
    w->pool->lock.contended = 1000; /* as if they had */
    free_on(w, get_on(w, 5000, w->streams[0]), w->streams[0]);
    assert_int_equal(loose(w), 1);
}

static void closed_when_one_is_left(void **state)
{
    struct world *w = *state;
    start(w);
    w->pool->lock.contended = 1000;
    void *kept = get_on(w, 7000, w->streams[0]);
    assert_true(ull__fronts_any(w->pool));
    for (int i = 0; i < 300 * ULL_REVIEW && ull__fronts_any(w->pool); i++)
        free_on(w, get_on(w, 5000, w->streams[0]), w->streams[0]);
    assert_false(ull__fronts_any(w->pool));
    assert_int_equal(loose(w), 0);
    free_on(w, kept, w->streams[0]);
    assert_int_equal(ull_pool_free(w->pool, kept, w->streams[0]), ULL_E_INVALID);
}

static void loose_memory_is_free_for_all(void **state)
{
    struct world *w = *state;
    void *all[64];
    w->options.limit = 64 * PAGE;
    start_with_fronts(w);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 32; i++)
            all[s * 32 + i] = get_on(w, PAGE, w->streams[s]);
    }
    refused(w, 1);
    for (int i = 0; i < 64; i++)
        free_on(w, all[i], w->streams[i / 32]);
    assert_true(loose(w) > 0);
    get_on(w, 64 * PAGE, w->streams[0]); /* which takes what was loose for either */
    refused(w, 1);
    assert_int_equal(stats(w).held, 64 * PAGE);
}

static void loose_memory_is_trimmed(void **state)
{
    struct world *w = *state;
    uint64_t returned;
    start_with_fronts(w);
    free_on(w, get_on(w, 8 * PAGE, w->streams[0]), w->streams[0]);
    assert_int_equal(ull_pool_trim(w->pool, UINT64_MAX, &returned), ULL_OK);
    assert_int_equal(returned, 8 * PAGE);
}

/* Without the pool: what the first request of a page left is the front's. */
static void pieces_are_cut_and_joined(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    get_on(w, 256, w->streams[0]);
    free_on(w, get_on(w, 100000, w->streams[0]),
            w->streams[0]); /* above a peak the pool would be asked */
    char *a = get_on(w, 1024, w->streams[0]), *b = get_on(w, 1024, w->streams[0]);
    free_on(w, a, w->streams[0]);
    uint64_t pieces = loose(w), clock = w->pool->clock;
    free_on(w, b, w->streams[0]); /* with what is before and behind it: one piece less */
    assert_int_equal(loose(w), pieces - 1);
    assert_ptr_equal(get_on(w, 512, w->streams[0]), a);
    assert_ptr_equal(get_on(w, 1536, w->streams[0]), a + 512);
    assert_ptr_equal(get_on(w, 256, w->streams[0]), a + 2048);
    assert_int_equal(w->pool->clock, clock);
    free_on(w, a + 512, w->streams[0]);
    assert_int_equal(ull_pool_free(w->pool, a + 512, w->streams[0]), ULL_E_INVALID);
    assert_ptr_equal(get_on(w, 1280, w->streams[0]), a + 512);
    assert_int_equal(stats(w).in_use, 256 + 512 + 1280 + 256);
}

/* Blocks that lie side by side are one once a request needs it, however they came to be. */
static void blocks_are_merged(void **state)
{
    struct world *w = *state;
    enum { COUNT = 3000, ROUNDS = 4 };
    static void *all[COUNT];
    start_with_fronts(w);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t bytes = (uint64_t)512 << round;
        for (int i = 0; i < COUNT >> round; i++)
            all[i] = get_on(w, bytes, w->streams[0]);
        if (round == 0)
            stats(w); /* which dissolves all blocks */
        for (int i = 0; i < COUNT >> round; i++)
            free_on(w, all[i], w->streams[0]);
    }
    assert_in_range(loose(w), 1, COUNT / 8);
    assert_int_equal(w->pool->held, (COUNT * 512 + PAGE - 1) / PAGE);
    assert_int_equal(stats(w).in_use, 0);
    assert_int_equal(stats(w).peak_in_use, COUNT * 512);
}

/* The other stream's block is cut; what is in use in it stays where it is and can be freed on either. */
static void a_block_gives_what_is_free_in_it(void **state)
{
    struct world *w = *state;
    w->options.limit = 16 * PAGE;
    start_with_fronts(w);
    free_on(w, get_on(w, 16 * PAGE, w->streams[0]), w->streams[0]);
    void *used[4];
    for (int i = 0; i < 4; i++)
        used[i] = get_on(w, 2 * PAGE, w->streams[0]);
    free_on(w, used[1], w->streams[0]);
    void *other = get_on(w, 10 * PAGE, w->streams[1]);
    refused(w, 1);
    free_on(w, used[0], w->streams[1]);
    free_on(w, used[2], w->streams[0]);
    assert_int_equal(ull_pool_use_on(w->pool, used[3], w->streams[1]), ULL_OK);
    free_on(w, used[3], w->streams[0]);
    free_on(w, other, w->streams[0]);
    get_on(w, 16 * PAGE, w->streams[1]);
    assert_int_equal(stats(w).held, 16 * PAGE);
}

/* What the other stream does not take stays in its front, on both sides of what it takes. */
static void the_rest_of_a_block_stays(void **state)
{
    struct world *w = *state;
    w->options.limit = 16 * PAGE;
    start_with_fronts(w);
    free_on(w, get_on(w, 16 * PAGE, w->streams[0]), w->streams[0]);
    char *used[5];
    for (int i = 0; i < 5; i++)
        used[i] = get_on(w, 2 * PAGE, w->streams[0]);
    free_on(w, used[1], w->streams[0]);
    free_on(w, used[3], w->streams[0]);
    assert_int_equal(loose(w), 3);
    char *end =
        get_on(w, PAGE + PAGE / 2, w->streams[1]); /* of the six behind, which have room for more */
    assert_ptr_equal(end, used[4] + 2 * PAGE);
    assert_int_equal(loose(w), 3);
    free_on(w, used[2], w->streams[0]);
    assert_ptr_equal(get_on(w, 5 * PAGE, w->streams[1]), used[1]); /* from the middle */
    assert_int_equal(loose(w), 2);
    free_on(w, used[0], w->streams[0]);
    free_on(w, used[4], w->streams[0]);
    assert_int_equal(loose(w), 4);
    assert_ptr_equal(get_on(w, PAGE, w->streams[0]), used[0]);
    assert_ptr_equal(get_on(w, 2 * PAGE, w->streams[0]), used[4]);
    assert_ptr_equal(get_on(w, 4 * PAGE, w->streams[0]), end + PAGE + PAGE / 2);
    refused(w, 3 * PAGE);
    free_on(w, end, w->streams[0]);
    free_on(w, used[0], w->streams[1]);
    get_on(w, 4 * PAGE, w->streams[1]);
    refused(w, PAGE);
    assert_int_equal(stats(w).held, 16 * PAGE);
}

static void nothing_is_served_above_a_lowered_limit(void **state)
{
    struct world *w = *state;
    void *address;
    start_with_fronts(w);
    void *a = get_on(w, 3 * PAGE, w->streams[0]);
    free_on(w, get_on(w, 5000, w->streams[0]), w->streams[0]);
    assert_int_equal(ull_pool_set_limit(w->pool, PAGE), ULL_OK);
    assert_int_equal(ull_pool_allocate(w->pool, 5000, w->streams[0], &address), ULL_E_NO_MEMORY);
    free_on(w, a, w->streams[0]);
    get_on(w, 5000, w->streams[0]);
}

static void wrong_frees_are_refused(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    char *a = get_on(w, 5000, w->streams[0]), *b = get_on(w, 5000, w->streams[0]);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(ull_pool_free(w->pool, a + 256, w->streams[s]), ULL_E_INVALID);
        assert_int_equal(ull_pool_free(w->pool, &a, w->streams[s]), ULL_E_INVALID);
    }
    free_on(w, a, w->streams[0]);
    free_on(w, b, w->streams[1]); /* another stream than the one that asked for it */
    for (int s = 0; s < 2; s++) {
        assert_int_equal(ull_pool_free(w->pool, a, w->streams[s]), ULL_E_INVALID);
        assert_int_equal(ull_pool_free(w->pool, b, w->streams[s]), ULL_E_INVALID);
        assert_int_equal(ull_pool_use_on(w->pool, a, w->streams[s]), ULL_E_INVALID);
    }
    assert_int_equal(stats(w).frees, 2);
}

static void memory_of_two_streams_passes_by(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    ull__device_host_delay(w->device, true);
    void *a = get_on(w, 5000, w->streams[0]);
    assert_int_equal(ull_pool_use_on(w->pool, a, w->streams[1]), ULL_OK);
    w->device->ops->copy_in(w->device, (uintptr_t)a, "x", 1, w->streams[1]);
    free_on(w, a, w->streams[0]);
    assert_int_equal(loose(w), 0);
    assert_ptr_not_equal(get_on(w, 5000, w->streams[0]), a);
    w->device->ops->synchronize(w->device, w->streams[1]);
}

static void a_capture_passes_by(void **state)
{
    struct world *w = *state;
    uint64_t graph = 0;
    start_with_fronts(w);
    void *a = get_on(w, 5000, w->streams[0]), *b = get_on(w, 5000, w->streams[0]);
    free_on(w, a, w->streams[0]);
    assert_int_equal(ull_pool_graph_begin(w->pool, w->streams[0], &graph), ULL_OK);
    assert_int_equal(loose(w), 0);
    free_on(w, b, w->streams[0]); /* the graph's from now on */
    void *c = get_on(w, 5000, w->streams[0]);
    free_on(w, c, w->streams[0]);
    assert_int_equal(loose(w), 0);
    assert_int_equal(ull_pool_graph_end(w->pool, w->streams[0]), ULL_OK);
    assert_ptr_not_equal(get_on(w, 5000, w->streams[0]), c);
    assert_int_equal(ull_pool_graph_release(w->pool, graph, w->streams[0]), ULL_OK);
}

static void an_ended_stream_leaves_nothing(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    void *a = get_on(w, 5000, w->streams[0]), *b = get_on(w, 5000, w->streams[0]);
    free_on(w, a, w->streams[0]);
    assert_int_equal(ull_pool_forget_stream(w->pool, w->streams[0]), ULL_OK);
    assert_int_equal(loose(w), 0);
    free_on(w, b, w->streams[1]);
    assert_int_equal(stats(w).in_use, 0);
}

/* Against counting: after every operation; or seldom, so that fronts have something to add up. */
static void figures_are_exact(void **state)
{
    struct world *w = *state;
    struct {
        void *address;
        uint64_t bytes;
    } held[64] = {0};
    uint64_t random = 1, in_use = 0, requested = 0, peak = 0, peak_requested = 0, count = 0,
             largest = 0;
    int before = 0;
    start_with_fronts(w);
    for (int i = 0; i < 40000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (random >> 33) % 64, stream = at % 2;
        if (held[at].address) {
            free_on(w, held[at].address, w->streams[stream]);
            in_use -= (held[at].bytes + 255) / 256 * 256;
            requested -= held[at].bytes;
            held[at].address = NULL;
            count--;
        } else {
            held[at].bytes = 1 + (random >> 45) % 8 * 70000 + (random >> 60);
            held[at].address = get_on(w, held[at].bytes, w->streams[stream]);
            in_use += (held[at].bytes + 255) / 256 * 256;
            requested += held[at].bytes;
            largest = held[at].bytes > largest ? held[at].bytes : largest;
            count++;
        }
        peak = in_use > peak ? in_use : peak;
        peak_requested = requested > peak_requested ? requested : peak_requested;
        if (i % (i < 2000 ? 1 : 97) != 0)
            continue;
        struct ull_stats s = stats(w);
        assert_int_equal(s.in_use, in_use);
        assert_int_equal(s.requested, requested);
        assert_int_equal(s.peak_in_use, peak);
        assert_int_equal(s.peak_requested, peak_requested);
        assert_int_equal(s.count, count);
        assert_int_equal(s.largest, largest);
        assert_int_equal(s.allocations + s.frees, i + 1 - before);
        assert_true(s.average_in_use <= s.peak_in_use);
        if (i > 20000) {
            before = i + 1;
            ull_pool_stats_reset(w->pool);
            peak = in_use;
            peak_requested = requested;
            largest = 0;
        }
    }
}

/* 104 pages at the peak, every second of which is free in the front. */
static void free_every_second(struct world *w)
{
    void *all[104];
    for (int i = 0; i < 104; i++)
        all[i] = get_on(w, PAGE, w->streams[0]);
    for (int i = 0; i < 104; i += 2)
        free_on(w, all[i], w->streams[0]);
    assert_int_equal(w->pool->held, 104);
}

/* Less than a fiftieth above the peak, in the place of free pages that lie apart; from then on those. */
static void a_few_pages_are_spared(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    free_every_second(w);
    get_on(w, 2 * PAGE, w->streams[1]);
    assert_int_equal(w->pool->held, 104 + 104 / 52);
    for (int i = 0; i < 25; i++)
        get_on(w, 2 * PAGE, w->streams[i % 2]);
    assert_int_equal(w->pool->held, 104 + 104 / 52);
    assert_int_equal(stats(w).in_use, 104 * PAGE);
}

static void none_are_spared_near_the_limit(void **state)
{
    struct world *w = *state;
    w->options.limit = 118 * PAGE;
    start_with_fronts(w);
    free_every_second(w);
    for (int i = 0; i < 26; i++)
        get_on(w, 2 * PAGE, w->streams[1]);
    assert_int_equal(w->pool->held, 104);
}

/* Then the free ones have to do, and it is not asked again before it gave some that were needed. */
static void a_device_has_none_to_spare(void **state)
{
    struct world *w = *state;
    start_with_fronts(w);
    free_every_second(w);
    ull__device_host_fail_at(w->device, 1);
    for (int i = 0; i < 26; i++)
        get_on(w, 2 * PAGE, w->streams[1]);
    assert_int_equal(ull__device_host_fail_at_left(w->device), 0);
    assert_int_equal(w->pool->held, 104);
    assert_int_equal(stats(w).in_use, 104 * PAGE);
    get_on(w, 2 * PAGE, w->streams[0]); /* this one needs two new pages */
    void *a = get_on(w, 2 * PAGE, w->streams[0]), *b = get_on(w, 2 * PAGE, w->streams[0]);
    free_on(w, a, w->streams[0]);
    free_on(w, b, w->streams[0]);
    assert_in_range(w->pool->held, 110, 110 + 110 / 52);
}

static void a_device_is_not_asked_at_each_peak(void **state)
{
    struct world *w = *state;
    void *all[207];
    w->options.small_bytes = 0;
    start_with_fronts(w);
    for (int i = 0; i < 207; i++)
        all[i] = get_on(w, PAGE, w->streams[0]);
    get_on(w, PAGE / 2, w->streams[0]);
    for (int i = 0; i < 207; i += 2)
        free_on(w, all[i], w->streams[0]);
    ull__device_host_fail_at(w->device, 1);
    for (int i = 0; i < 52; i++)
        get_on(w, 2 * PAGE, w->streams[1]);
    assert_int_equal(ull__device_host_fail_at_left(w->device), 0);
    uint64_t creates = ull__device_host_calls(w->device).creates, peak = stats(w).peak_requested;
    get_on(w, PAGE / 2, w->streams[0]);
    assert_int_equal(stats(w).peak_requested, peak + PAGE / 2);
    free_on(w, all[1], w->streams[0]);
    free_on(w, all[3], w->streams[0]);
    get_on(w, 2 * PAGE, w->streams[0]);
    assert_int_equal(ull__device_host_calls(w->device).creates, creates);
}

/* From front to front as it is, with what the requests after it need; the rest stays. */
static void a_piece_goes_from_front_to_front(void **state)
{
    struct world *w = *state;
    w->options.limit = 64 * PAGE;
    start_with_fronts(w);
    char *a = get_on(w, 32 * PAGE, w->streams[0]);
    char *b = get_on(w, 4 * PAGE, w->streams[0]);
    get_on(w, 28 * PAGE, w->streams[0]);
    free_on(w, a, w->streams[0]);
    free_on(w, b, w->streams[0]);
    assert_ptr_equal(get_on(w, PAGE, w->streams[1]), a);
    uint64_t clock = w->pool->clock;
    for (int i = 1; i < 8; i++)
        assert_ptr_equal(get_on(w, PAGE, w->streams[1]), a + i * PAGE);
    assert_int_equal(w->pool->clock, clock); /* the front had them */
    assert_ptr_equal(get_on(w, 20 * PAGE, w->streams[0]), a + 8 * PAGE);
    /* One that the card may still work on is not handed over. */
    ull__device_host_delay(w->device, true);
    w->device->ops->copy_in(w->device, (uintptr_t)a, "x", 1, w->streams[1]);
    free_on(w, a, w->streams[1]);
    for (int i = 0; i < 8; i++)
        assert_ptr_not_equal(get_on(w, PAGE, w->streams[0]), a);
    w->device->ops->synchronize(w->device, w->streams[1]);
    assert_ptr_equal(get_on(w, PAGE, w->streams[0]), a);
    refused(w, 1);
}

/* Pages that nobody used for a while go with the piece; those that are in use then are idle no longer. */
static void a_piece_takes_its_idle_pages_along(void **state)
{
    struct world *w = *state;
    w->options.limit = 64 * PAGE;
    start_with_fronts(w);
    void *a = get_on(w, 8 * PAGE, w->streams[0]);
    get_on(w, 56 * PAGE, w->streams[0]);
    free_on(w, a, w->streams[0]);
    ull__fronts_idle(w->pool);
    assert_ptr_equal(get_on(w, 3 * PAGE, w->streams[1]), a);
    assert_int_equal(w->pool->free_pages, 0);
    assert_int_equal(w->pool->idle_low, 0);
    assert_int_equal(ull__fronts_idle(w->pool), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(same_size_is_reused),
        TEST(threads_that_do_not_meet_have_none),
        TEST(closed_when_one_is_left),
        TEST(loose_memory_is_free_for_all),
        TEST(loose_memory_is_trimmed),
        TEST(pieces_are_cut_and_joined),
        TEST(blocks_are_merged),
        TEST(a_block_gives_what_is_free_in_it),
        TEST(the_rest_of_a_block_stays),
        TEST(nothing_is_served_above_a_lowered_limit),
        TEST(wrong_frees_are_refused),
        TEST(memory_of_two_streams_passes_by),
        TEST(a_capture_passes_by),
        TEST(an_ended_stream_leaves_nothing),
        TEST(figures_are_exact),
        TEST(a_few_pages_are_spared),
        TEST(none_are_spared_near_the_limit),
        TEST(a_device_has_none_to_spare),
        TEST(a_device_is_not_asked_at_each_peak),
        TEST(a_piece_goes_from_front_to_front),
        TEST(a_piece_takes_its_idle_pages_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
