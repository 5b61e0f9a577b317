/* test_retry.c: the steps on shortage, their order, and who may wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "device.h"
#include "fake.h"

enum { MIB = 1 << 20 };

static struct fake fake, others[3];
static char order[64];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A callback that makes room, and writes its letter into `order`. */
struct giver {
    char letter;
    uint64_t gives;
};

static uint64_t give(void *context, uint64_t wanted)
{
    struct giver *giver = context;
    assert_true(wanted > 0);
    order[strlen(order)] = giver->letter;
    fake.capacity += giver->gives;
    return giver->gives;
}

static void steps_in_order(void **state)
{
    (void)state;
    fake_init(&fake, 1 * MIB);
    fake.device_full = true;
    struct ull_retry_group *group;
    struct ull_alloc *retry, *sibling[3];
    memset(order, 0, sizeof order);
    assert_int_equal(ull_retry_group_create(&group), ULL_OK);
    assert_int_equal(ull_retry_create(&fake.alloc, group, 0, &retry, NULL), ULL_OK);
    for (int i = 0; i < 3; i++) {
        fake_init(&others[i], 0);
        others[i].gives_to = &fake;
        assert_int_equal(ull_retry_create(&others[i].alloc, group, 0, &sibling[i], NULL), ULL_OK);
    }
    struct giver first = {'a', 0}, second = {'b', 2 * MIB}, third = {'c', 4 * MIB};
    ull_retry_add_callback(retry, "first", give, &first);
    ull_retry_add_callback(retry, "second", give, &second);
    ull_retry_add_callback(retry, "third", give, &third);
    void *a;
    /* Fits: no step is taken. */
    assert_int_equal(ull_alloc_allocate(retry, MIB, NULL, &a), ULL_OK);
    assert_int_equal(others[0].trims, 0);
    /* The second sibling has enough: the third and the callbacks are left alone. */
    others[1].cached = MIB;
    assert_int_equal(ull_alloc_allocate(retry, MIB, NULL, &a), ULL_OK);
    assert_int_equal(others[0].trims + others[1].trims, 2);
    assert_int_equal(others[2].trims, 0);
    assert_string_equal(order, "");
    /* No caches are left: callbacks in their order, until it fits. */
    assert_int_equal(ull_alloc_allocate(retry, 2 * MIB, NULL, &a), ULL_OK);
    assert_string_equal(order, "ab");
    assert_int_equal(others[2].trims, 1);
    /* All in vain: the report says what was tried. */
    second.gives = third.gives = 0;
    struct ull_request request = {.bytes = 100 * MIB};
    struct ull_report report;
    assert_int_equal(ull_alloc_request(retry, &request, &report, &a), ULL_E_NO_MEMORY);
    assert_string_equal(order, "ababc");
    assert_string_equal(report.by, "fake");
    assert_non_null(strstr(report.text, "fake: full"));
    assert_non_null(strstr(report.text, "3 trimmed, 0 B given back"));
    assert_non_null(strstr(report.text, "callback 'third': 0 B"));
    assert_non_null(strstr(report.text, "waiting for other threads: off"));
    for (int i = 0; i < 3; i++)
        ull_alloc_destroy(sibling[i]);
    ull_alloc_destroy(retry);
    ull_retry_group_destroy(group);
}

/* A limit refused, not the device: siblings keep their pages. */
static void siblings_only_when_the_device_is_full(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    fake_init(&others[0], 0);
    others[0].cached = 8 * MIB;
    struct ull_retry_group *group;
    struct ull_alloc *retry, *sibling;
    assert_int_equal(ull_retry_group_create(&group), ULL_OK);
    assert_int_equal(ull_retry_create(&fake.alloc, group, 0, &retry, NULL), ULL_OK);
    assert_int_equal(ull_retry_create(&others[0].alloc, group, 0, &sibling, NULL), ULL_OK);
    struct ull_request request = {.bytes = 2 * MIB};
    struct ull_report report;
    void *a;
    assert_int_equal(ull_alloc_request(retry, &request, &report, &a), ULL_E_NO_MEMORY);
    assert_int_equal(others[0].trims, 0);
    assert_non_null(strstr(report.text, "left alone"));
    ull_alloc_destroy(sibling);
    ull_alloc_destroy(retry);
    ull_retry_group_destroy(group);
}

/* Real pools: one has cached what the other one needs. */
static void pools_on_one_device(void **state)
{
    (void)state;
    struct ull__device *device;
    struct ull_pool *pool[2];
    struct ull_alloc *base[2], *retry[2];
    struct ull_retry_group *group;
    void *a, *b;
    assert_int_equal(ull__device_host_create(16 * MIB, 0, &device, NULL), ULL_OK);
    assert_int_equal(ull_retry_group_create(&group), ULL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ull_pool_create(device, NULL, &pool[i], NULL), ULL_OK);
        assert_int_equal(ull_alloc_over_pool(pool[i], &base[i]), ULL_OK);
        assert_int_equal(ull_retry_create(base[i], group, 0, &retry[i], NULL), ULL_OK);
    }
    assert_int_equal(ull_alloc_allocate(retry[0], 12 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_free(retry[0], a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(base[1], 12 * MIB, NULL, &b), ULL_E_NO_MEMORY);
    assert_int_equal(ull_alloc_allocate(retry[1], 12 * MIB, NULL, &b), ULL_OK);
    for (int i = 0; i < 2; i++) {
        ull_alloc_destroy(retry[i]);
        ull_alloc_destroy(base[i]);
        ull_pool_destroy(pool[i]);
    }
    ull_retry_group_destroy(group);
    ull__device_destroy(device);
}

static uint64_t allocate_inside(void *context, uint64_t wanted)
{
    void *a;
    order[strlen(order)] = 'x';
    assert_int_equal(ull_alloc_allocate(context, wanted, NULL, &a), ULL_E_NO_MEMORY);
    return 0;
}

static uint64_t leave_inside(void *context, uint64_t wanted)
{
    (void)wanted;
    assert_int_equal(ull_retry_remove_callback(context, leave_inside, context), ULL_OK);
    return 0;
}

static void callbacks_that_call_back(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    memset(order, 0, sizeof order);
    struct ull_alloc *retry;
    void *a;
    assert_int_equal(ull_retry_create(&fake.alloc, NULL, 1000000, &retry, NULL), ULL_OK);
    assert_int_equal(ull_retry_add_callback(retry, "inside", allocate_inside, retry), ULL_OK);
    assert_int_equal(ull_retry_add_callback(retry, "leaves", leave_inside, retry), ULL_OK);
    assert_int_equal(ull_alloc_allocate(retry, 2 * MIB, NULL, &a), ULL_E_NO_MEMORY);
    assert_string_equal(order, "x"); /* once, not for ever */
    assert_int_equal(ull_retry_remove_callback(retry, leave_inside, retry), ULL_E_NOT_FOUND);
    assert_int_equal(ull_retry_remove_callback(retry, allocate_inside, retry), ULL_OK);
    assert_int_equal(ull_alloc_allocate(retry, 2 * MIB, NULL, &a), ULL_E_NO_MEMORY);
    assert_string_equal(order, "x");
    assert_int_equal(ull_retry_add_callback(retry, "none", NULL, NULL), ULL_E_INVALID);
    assert_int_equal(ull_retry_add_callback(&fake.alloc, "no retry", give, NULL), ULL_E_INVALID);
    for (int i = 0; i < ULL_RELIEFS; i++)
        assert_int_equal(ull_retry_add_callback(retry, "many", give, NULL), ULL_OK);
    assert_int_equal(ull_retry_add_callback(retry, "too many", give, NULL), ULL_E_FULL);
    ull_alloc_destroy(retry);
}

/* --- waiting ---------------------------------------------------------------------------------------------- */

static struct ull_alloc *shared;
static void *held;
static pthread_barrier_t barrier;

static void a_single_thread_never_waits(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    struct ull_alloc *retry;
    assert_int_equal(ull_retry_create(&fake.alloc, NULL, 20000000000u, &retry, NULL), ULL_OK);
    struct ull_request request = {.bytes = 2 * MIB};
    struct ull_report report;
    void *a;
    uint64_t began = now_ns();
    assert_int_equal(ull_alloc_request(retry, &request, &report, &a), ULL_E_NO_MEMORY);
    assert_true(now_ns() - began < 5000000000u);
    assert_non_null(strstr(report.text, "no other thread could free"));
    ull_alloc_destroy(retry);
}

static void *free_later(void *unused)
{
    (void)unused;
    ull_retry_announce_thread(shared);
    pthread_barrier_wait(&barrier);
    usleep(20000);
    ull_alloc_free(shared, held, NULL);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void waits_for_another_thread(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    assert_int_equal(ull_retry_create(&fake.alloc, NULL, 60000000000u, &shared, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(shared, MIB, NULL, &held), ULL_OK);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, free_later, NULL);
    pthread_barrier_wait(&barrier);
    void *a;
    assert_int_equal(ull_alloc_allocate(shared, MIB, NULL, &a), ULL_OK);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    ull_alloc_destroy(shared);
}

static void *idle(void *unused)
{
    (void)unused;
    ull_retry_announce_thread(shared);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void waits_no_longer_than_told(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    assert_int_equal(ull_retry_create(&fake.alloc, NULL, 30000000, &shared, NULL), ULL_OK);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, idle, NULL);
    pthread_barrier_wait(&barrier);
    struct ull_request request = {.bytes = 2 * MIB};
    struct ull_report report;
    void *a;
    uint64_t began = now_ns();
    assert_int_equal(ull_alloc_request(shared, &request, &report, &a), ULL_E_NO_MEMORY);
    uint64_t took = now_ns() - began;
    assert_true(took >= 30000000 && took < 10000000000u);
    assert_non_null(strstr(report.text, "of at most 30.0 ms"));
    assert_null(strstr(report.text, "no other thread"));
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    ull_alloc_destroy(shared);
}

/* The only other thread ends while we wait: nobody is left who could free. */
static void *end_soon(void *unused)
{
    (void)unused;
    ull_retry_announce_thread(shared);
    pthread_barrier_wait(&barrier);
    usleep(20000);
    return NULL;
}

static void stops_waiting_when_the_others_end(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    assert_int_equal(ull_retry_create(&fake.alloc, NULL, 600000000000u, &shared, NULL), ULL_OK);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, end_soon, NULL);
    pthread_barrier_wait(&barrier);
    struct ull_request request = {.bytes = 2 * MIB};
    struct ull_report report;
    void *a;
    assert_int_equal(ull_alloc_request(shared, &request, &report, &a), ULL_E_NO_MEMORY);
    assert_non_null(strstr(report.text, "no other thread could free"));
    pthread_join(thread, NULL);
    ull_alloc_destroy(shared);
}

/* All are short at once: the last to come is refused, frees, and so the others go on. No deadlock. */
static void *short_together(void *unused)
{
    (void)unused;
    for (int i = 0; i < 300; i++) {
        void *a = NULL, *b = NULL;
        if (ull_alloc_allocate(shared, 256 * 1024, NULL, &a) == ULL_OK &&
            ull_alloc_allocate(shared, 512 * 1024, NULL, &b) == ULL_OK)
            ull_alloc_free(shared, b, NULL);
        ull_alloc_free(shared, a, NULL);
    }
    return NULL;
}

static void nobody_waits_for_the_waiting(void **state)
{
    (void)state;
    fake_init(&fake, MIB);
    assert_int_equal(ull_retry_create(&fake.alloc, NULL, 3600000000000u, &shared, NULL), ULL_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, short_together, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(fake.in_use, 0);
    ull_alloc_destroy(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_in_order),
        cmocka_unit_test(siblings_only_when_the_device_is_full),
        cmocka_unit_test(pools_on_one_device),
        cmocka_unit_test(callbacks_that_call_back),
        cmocka_unit_test(a_single_thread_never_waits),
        cmocka_unit_test(waits_for_another_thread),
        cmocka_unit_test(waits_no_longer_than_told),
        cmocka_unit_test(stops_waiting_when_the_others_end),
        cmocka_unit_test(nobody_waits_for_the_waiting),
    };
    return cmocka_run_group_tests_name("policy.retry", tests, NULL, NULL);
}
