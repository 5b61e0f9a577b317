/* test_guard.c: memory set aside: over a fake upstream for the arithmetic, over a pool for the promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device.h"
#include "fake.h"

/* Guards set whole pages aside. */
enum { MIB = 1 << 20, PAGE = 2 * MIB };

static struct fake fake;
static struct ull_alloc *guarded;

static int setup(void **state)
{
    (void)state;
    fake_init(&fake, 10 * PAGE);
    return ull_guard_create(&fake.alloc, &guarded, NULL);
}

static int teardown(void **state)
{
    (void)state;
    ull_alloc_destroy(guarded);
    return 0;
}

static uint64_t left(struct ull_guard *guard)
{
    struct ull_guard_info info;
    ull_guard_info(guard, &info);
    return info.left;
}

static void *in_other_thread(void *bytes)
{
    void *a = NULL;
    ull_alloc_allocate(guarded, (uintptr_t)bytes, NULL, &a);
    return a;
}

/* What a thread without a guard gets. */
static void *elsewhere(uint64_t bytes)
{
    pthread_t thread;
    void *a;
    pthread_create(&thread, NULL, in_other_thread, (void *)(uintptr_t)bytes);
    pthread_join(thread, &a);
    return a;
}

static void reserves_and_gives_back(void **state)
{
    (void)state;
    struct ull_guard *guard;
    void *a, *b, *other;
    assert_int_equal(ull_guard_begin(guarded, 8 * PAGE, &guard, NULL), ULL_OK);
    assert_int_equal(fake.in_use, 8 * PAGE); /* taken, not looked at */
    assert_null(elsewhere(3 * PAGE));
    other = elsewhere(2 * PAGE);
    assert_non_null(other);
    assert_int_equal(ull_alloc_allocate(guarded, 5 * PAGE, NULL, &a), ULL_OK);
    assert_int_equal(left(guard), 3 * PAGE);
    assert_int_equal(fake.in_use, 10 * PAGE);
    struct ull_alloc_info info;
    ull_alloc_info(guarded, &info);
    assert_int_equal(info.in_use, 7 * PAGE); /* without what is only set aside */
    /* Freed within the guard: set aside again, not for others. */
    assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_OK);
    assert_int_equal(left(guard), 8 * PAGE);
    assert_null(elsewhere(1));
    assert_int_equal(ull_alloc_allocate(guarded, 4 * PAGE, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_allocate(guarded, 4 * PAGE, NULL, &b), ULL_OK);
    assert_int_equal(left(guard), 0);
    assert_int_equal(ull_alloc_free(guarded, b, NULL), ULL_OK);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    assert_int_equal(fake.in_use, 6 * PAGE); /* a and other */
    assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_E_INVALID);
    assert_int_equal(ull_alloc_free(guarded, other, NULL), ULL_OK);
    assert_int_equal(fake.in_use, 0);
}

static void nests(void **state)
{
    (void)state;
    struct ull_guard *outer, *inner;
    void *a, *b;
    assert_int_equal(ull_guard_begin(guarded, 6 * PAGE, &outer, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(guarded, 1 * PAGE, NULL, &a), ULL_OK);
    /* Fits into the outer one: no further memory is taken. */
    assert_int_equal(ull_guard_begin(guarded, 4 * PAGE, &inner, NULL), ULL_OK);
    assert_int_equal(fake.in_use, 6 * PAGE);
    assert_int_equal(left(outer), 1 * PAGE);
    assert_int_equal(left(inner), 4 * PAGE);
    assert_int_equal(ull_alloc_allocate(guarded, 3 * PAGE, NULL, &b), ULL_OK);
    assert_int_equal(left(outer), 1 * PAGE);
    assert_int_equal(left(inner), 1 * PAGE);
    assert_int_equal(ull_guard_end(outer), ULL_E_INVALID); /* not the innermost */
    assert_int_equal(ull_guard_end(inner), ULL_OK);
    assert_int_equal(left(outer), 2 * PAGE); /* 6 - 1 - 3 */
    assert_int_equal(fake.in_use, 6 * PAGE);
    assert_int_equal(ull_alloc_free(guarded, b, NULL), ULL_OK); /* made in a guard that has ended */
    assert_int_equal(left(outer), 5 * PAGE);
    /* Larger than what the outer one has left: the rest comes from upstream. */
    assert_int_equal(ull_guard_begin(guarded, 8 * PAGE, &inner, NULL), ULL_OK);
    assert_int_equal(fake.in_use, 9 * PAGE);
    assert_int_equal(left(outer), 0);
    assert_int_equal(ull_guard_end(inner), ULL_OK);
    assert_int_equal(left(outer), 5 * PAGE);
    assert_int_equal(fake.in_use, 6 * PAGE);
    /* An inner one that is refused leaves the outer one as it was. */
    assert_int_equal(ull_guard_begin(guarded, 10 * PAGE, &inner, NULL), ULL_E_NO_MEMORY);
    assert_int_equal(left(outer), 5 * PAGE);
    assert_int_equal(ull_guard_end(outer), ULL_OK);
    assert_int_equal(fake.in_use, PAGE);
    assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_OK);
}

static char order[32];

static uint64_t make_room(void *pages, uint64_t wanted)
{
    assert_int_equal(wanted, 12 * PAGE);
    order[strlen(order)] = (char)('0' + (uintptr_t)pages);
    fake.capacity += (uintptr_t)pages * PAGE;
    return (uintptr_t)pages * PAGE;
}

static void fallbacks_then_one_retry(void **state)
{
    (void)state;
    struct ull_guard *guard;
    struct ull_report report;
    for (uintptr_t pages = 0; pages < 4; pages++)
        assert_int_equal(ull_guard_add_fallback(guarded, "smaller batch", make_room, (void *)pages),
                         ULL_OK);
    struct ull_guard_options options = {.bytes = 12 * PAGE};
    memset(order, 0, sizeof order);
    /* None allowed: refused at once. */
    assert_int_equal(ull_guard_begin_with(guarded, &options, &guard, &report), ULL_E_NO_MEMORY);
    assert_string_equal(order, "");
    assert_int_equal(fake.refusals, 1);
    /* At most two, and one retry after both of them, not one after each. */
    options.max_fallbacks = 2;
    assert_int_equal(ull_guard_begin_with(guarded, &options, &guard, &report), ULL_E_NO_MEMORY);
    assert_string_equal(order, "01");
    assert_int_equal(fake.refusals, 3);
    assert_non_null(
        strstr(report.text, "at most 2: 'smaller batch' (0 B), 'smaller batch' (2.0 MiB)"));
    /* With all of them it fits. */
    memset(order, 0, sizeof order);
    options.max_fallbacks = 4;
    assert_int_equal(ull_guard_begin_with(guarded, &options, &guard, &report), ULL_OK);
    assert_string_equal(order, "0123");
    assert_int_equal(fake.refusals, 4);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
}

static uint64_t plenty(void *context, uint64_t wanted)
{
    (void)context;
    fake.capacity += wanted;
    return wanted;
}

static void fallbacks_stop_when_it_is_enough(void **state)
{
    (void)state;
    struct ull_guard *guard;
    memset(order, 0, sizeof order);
    ull_guard_add_fallback(guarded, "plenty", plenty, NULL);
    ull_guard_add_fallback(guarded, "not needed", make_room, (void *)1);
    assert_int_equal(ull_guard_begin(guarded, 12 * PAGE, &guard, NULL), ULL_OK);
    assert_string_equal(order, "");
    assert_int_equal(ull_guard_end(guard), ULL_OK);
}

static void sizes_within_a_guard(void **state)
{
    (void)state;
    struct ull_guard *guard;
    struct ull_report report;
    void *a, *b;
    struct ull_guard_options options = {.bytes = 4 * PAGE, .max_request = 2 * PAGE, .cap = true};
    assert_int_equal(ull_guard_begin_with(guarded, &options, &guard, NULL), ULL_OK);
    struct ull_request request = {.bytes = 2 * PAGE + 1};
    assert_int_equal(ull_alloc_request(guarded, &request, &report, &a), ULL_E_NO_MEMORY);
    assert_string_equal(report.by, "guard");
    assert_non_null(strstr(report.text, "single requests may be 4.0 MiB"));
    request.bytes = 2 * PAGE;
    assert_int_equal(ull_alloc_request(guarded, &request, &report, &a), ULL_OK);
    assert_int_equal(ull_alloc_request(guarded, &request, &report, &b), ULL_OK);
    request.bytes = 1;
    assert_int_equal(ull_alloc_request(guarded, &request, &report, &b), ULL_E_NO_MEMORY);
    assert_non_null(strstr(report.text, "cap is 8.0 MiB"));
    request.bytes = UINT64_MAX;
    assert_int_equal(ull_alloc_request(guarded, &request, &report, &b), ULL_E_NO_MEMORY);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    /* Without a cap a larger request is an ordinary one. */
    assert_int_equal(ull_guard_begin(guarded, 1 * PAGE, &guard, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(guarded, 3 * PAGE, NULL, &b), ULL_OK);
    assert_int_equal(left(guard), 0);
    assert_int_equal(ull_alloc_free(guarded, b, NULL), ULL_OK);
    assert_int_equal(left(guard), PAGE);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    assert_int_equal(fake.in_use, 4 * PAGE);
}

static void *end_it(void *guard)
{
    return (void *)(intptr_t)ull_guard_end(guard);
}

static void odd_values(void **state)
{
    (void)state;
    struct ull_guard *guard = NULL;
    pthread_t thread;
    void *status;
    assert_int_equal(ull_guard_begin(guarded, 0, &guard, NULL), ULL_E_INVALID);
    assert_int_equal(ull_guard_begin(&fake.alloc, 1, &guard, NULL), ULL_E_INVALID);
    assert_int_equal(ull_guard_begin(guarded, UINT64_MAX, &guard, NULL), ULL_E_NO_MEMORY);
    assert_int_equal(ull_guard_begin(guarded, UINT64_MAX - 1000, &guard, NULL), ULL_E_NO_MEMORY);
    assert_null(guard);
    assert_int_equal(ull_guard_end(NULL), ULL_E_INVALID);
    assert_int_equal(ull_guard_begin(guarded, 1, &guard, NULL), ULL_OK);
    pthread_create(&thread, NULL, end_it, guard);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, ULL_E_INVALID); /* another thread's */
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    assert_int_equal(ull_guard_end(guard), ULL_E_INVALID); /* only its address is looked at */
    assert_int_equal(fake.in_use, 0);
}

static void *begin_for_all(void *unused)
{
    (void)unused;
    struct ull_guard *guard;
    struct ull_guard_options options = {.bytes = PAGE, .all_threads = true};
    return (void *)(intptr_t)ull_guard_begin_with(guarded, &options, &guard, NULL);
}

static void for_all_threads(void **state)
{
    (void)state;
    struct ull_guard *guard, *second;
    struct ull_guard_options options = {.bytes = 8 * PAGE, .all_threads = true};
    assert_int_equal(ull_guard_begin_with(guarded, &options, &guard, NULL), ULL_OK);
    void *a = elsewhere(6 * PAGE); /* as a backward pass in a thread of its own */
    assert_non_null(a);
    assert_int_equal(left(guard), 2 * PAGE);
    pthread_t thread;
    void *status;
    pthread_create(&thread, NULL, begin_for_all, NULL);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, ULL_E_INVALID); /* one thread's at a time */
    options.bytes = PAGE;
    assert_int_equal(ull_guard_begin_with(guarded, &options, &second, NULL), ULL_OK);
    void *b = elsewhere(PAGE);
    assert_int_equal(left(second), 0);
    assert_int_equal(ull_guard_end(second), ULL_OK);
    assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_free(guarded, b, NULL), ULL_OK);
    assert_int_equal(left(guard), 8 * PAGE);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    a = elsewhere(10 * PAGE);
    assert_non_null(a);
    assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_OK);
}

/* --- over a pool ------------------------------------------------------------------------------------------ */

static struct ull_pool *pool;
static struct ull__device *device;
static struct ull_alloc *base;

static int setup_pool(void **state)
{
    (void)state;
    struct ull_pool_options options;
    ull_pool_options_init(&options);
    options.limit = 64 * MIB;
    return ull__device_host_create(64 * MIB, 0, &device, NULL) ||
           ull_pool_create(device, &options, &pool, NULL) || ull_alloc_over_pool(pool, &base) ||
           ull_guard_create(base, &guarded, NULL);
}

static int teardown_pool(void **state)
{
    (void)state;
    ull_alloc_destroy(guarded);
    ull_alloc_destroy(base);
    ull_pool_destroy(pool);
    ull__device_destroy(device);
    return 0;
}

enum { GRABBERS = 3 };

static _Atomic bool stop;      /* end */
static _Atomic bool hold_back; /* let go of everything, and take nothing */
static _Atomic int held_back;

/* Takes all it can get, over and over, in pieces that cut the memory up. */
static void *grab(void *seed)
{
    void *live[64] = {0};
    unsigned int random = (unsigned int)(uintptr_t)seed;
    while (!stop) {
        if (hold_back) {
            for (int i = 0; i < 64; i++) {
                ull_alloc_free(guarded, live[i], NULL);
                live[i] = NULL;
            }
            held_back++;
            while (hold_back && !stop)
                usleep(100);
            continue;
        }
        random = random * 1103515245u + 12345u;
        void **place = &live[(random >> 8) % 64];
        ull_alloc_free(guarded, *place, NULL);
        *place = NULL;
        ull_alloc_allocate(guarded, 1 + (random >> 4) % (5 * MIB), NULL, place);
    }
    for (int i = 0; i < 64; i++)
        ull_alloc_free(guarded, live[i], NULL);
    return NULL;
}

static uint64_t let_go(void *unused, uint64_t wanted)
{
    (void)unused;
    held_back = 0;
    hold_back = true;
    for (int i = 0; i < 20000 && held_back < GRABBERS; i++)
        usleep(100);
    return wanted;
}

/* Others are out of memory all the time; within the guard no request is refused. */
static void keeps_its_promise_against_threads(void **state)
{
    (void)state;
    pthread_t threads[GRABBERS];
    stop = hold_back = false;
    assert_int_equal(ull_guard_add_fallback(guarded, "let go", let_go, NULL), ULL_OK);
    for (uintptr_t i = 0; i < GRABBERS; i++)
        pthread_create(&threads[i], NULL, grab, (void *)(i + 7));
    for (int round = 0; round < 40; round++) {
        struct ull_guard *guard;
        assert_int_equal(ull_guard_begin(guarded, 24 * MIB, &guard, NULL), ULL_OK);
        hold_back = false;
        for (int step = 0; step < 4; step++) {
            void *a = NULL, *b = NULL, *c = NULL;
            usleep(500); /* for the others to take the rest */
            assert_int_equal(ull_alloc_allocate(guarded, 12 * MIB, NULL, &a), ULL_OK);
            assert_int_equal(ull_alloc_allocate(guarded, 4 * MIB, NULL, &b), ULL_OK);
            assert_int_equal(ull_alloc_free(guarded, a, NULL), ULL_OK);
            assert_int_equal(ull_alloc_allocate(guarded, 20 * MIB, NULL, &c), ULL_OK);
            assert_int_equal(ull_alloc_free(guarded, b, NULL), ULL_OK);
            assert_int_equal(ull_alloc_free(guarded, c, NULL), ULL_OK);
        }
        assert_int_equal(ull_guard_end(guard), ULL_OK);
    }
    stop = true;
    for (int i = 0; i < GRABBERS; i++)
        pthread_join(threads[i], NULL);
    struct ull_alloc_info info;
    ull_alloc_info(base, &info);
    assert_int_equal(info.in_use, 0);
}

/* Guards of many threads at once, nested. */
static void *guards_at_once(void *unused)
{
    (void)unused;
    for (int i = 0; i < 300; i++) {
        struct ull_guard *outer, *inner;
        void *a = NULL;
        if (ull_guard_begin(guarded, 16 * MIB, &outer, NULL) != ULL_OK)
            continue;
        if (ull_guard_begin(guarded, 8 * MIB, &inner, NULL) != ULL_OK ||
            ull_alloc_allocate(guarded, 8 * MIB, NULL, &a) != ULL_OK ||
            ull_guard_end(inner) != ULL_OK || ull_alloc_free(guarded, a, NULL) != ULL_OK ||
            ull_guard_end(outer) != ULL_OK)
            return guarded;
    }
    return NULL;
}

static void guards_of_several_threads(void **state)
{
    (void)state;
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, guards_at_once, NULL);
    for (int i = 0; i < 6; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    struct ull_alloc_info info;
    ull_alloc_info(base, &info);
    assert_int_equal(info.in_use, 0);
}

/* A guard below a retry adaptor is helped by the other pools' caches through its fallback. */
static void helped_by_siblings(void **state)
{
    (void)state;
    struct ull_pool *other;
    struct ull_alloc *other_base, *retry, *other_retry;
    struct ull_retry_group *group;
    struct ull_guard *guard;
    void *a;
    assert_int_equal(ull_pool_create(device, NULL, &other, NULL), ULL_OK);
    assert_int_equal(ull_alloc_over_pool(other, &other_base), ULL_OK);
    assert_int_equal(ull_retry_group_create(&group), ULL_OK);
    assert_int_equal(ull_retry_create(guarded, group, 0, &retry, NULL), ULL_OK);
    assert_int_equal(ull_retry_create(other_base, group, 0, &other_retry, NULL), ULL_OK);
    assert_int_equal(ull_guard_add_fallback(guarded, "shortage", ull_retry_relieve, retry), ULL_OK);
    assert_int_equal(ull_alloc_allocate(other_retry, 48 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_free(other_retry, a, NULL), ULL_OK);
    assert_int_equal(ull_guard_begin(guarded, 40 * MIB, &guard, NULL), ULL_OK);
    assert_int_equal(ull_guard_end(guard), ULL_OK);
    ull_alloc_destroy(other_retry);
    ull_alloc_destroy(retry);
    ull_retry_group_destroy(group);
    ull_alloc_destroy(other_base);
    ull_pool_destroy(other);
}

int main(void)
{
#define OVER_FAKE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define OVER_POOL(test) cmocka_unit_test_setup_teardown(test, setup_pool, teardown_pool)
    const struct CMUnitTest tests[] = {
        OVER_FAKE(reserves_and_gives_back),   OVER_FAKE(nests),
        OVER_FAKE(fallbacks_then_one_retry),  OVER_FAKE(fallbacks_stop_when_it_is_enough),
        OVER_FAKE(sizes_within_a_guard),      OVER_FAKE(odd_values),
        OVER_FAKE(for_all_threads),           OVER_POOL(keeps_its_promise_against_threads),
        OVER_POOL(guards_of_several_threads), OVER_POOL(helped_by_siblings),
    };
    return cmocka_run_group_tests_name("policy.guard", tests, NULL, NULL);
}
