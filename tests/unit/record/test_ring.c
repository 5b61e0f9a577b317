/* test_ring.c: with many threads at once nothing is lost that is not counted, and nothing comes twice or torn. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ring.h"

enum { THREADS = 6, EACH = 30000 };

static struct ull__event numbered(uint32_t thread, uint64_t number)
{
    return (struct ull__event){.time_ns = number,
                               .address = number * 7,
                               .size = number * 11 + thread,
                               .thread = thread,
                               .kind = ULL_EVENT_ALLOC};
}

static bool is_whole(const struct ull__event *event)
{
    struct ull__event wanted = numbered(event->thread, event->time_ns);
    return memcmp(event, &wanted, sizeof wanted) == 0;
}

static void one_thread(void **state)
{
    (void)state;
    struct ull__ring *ring = ull__ring_create(8);
    struct ull__event got[16];
    for (uint64_t round = 0; round < 100; round++) {
        for (uint64_t i = 0; i < 8; i++) {
            struct ull__event event = numbered(1, round * 10 + i);
            assert_true(ull__ring_put(ring, &event));
        }
        struct ull__event event = numbered(1, 0);
        assert_false(ull__ring_put(ring, &event));
        assert_int_equal(ull__ring_dropped(ring), round + 1);
        assert_int_equal(ull__ring_take(ring, got, 3), 3);
        assert_int_equal(ull__ring_take(ring, got + 3, 13), 5);
        assert_int_equal(ull__ring_take(ring, got, 0), 0);
        for (uint64_t i = 0; i < 8; i++)
            assert_true(got[i].time_ns == round * 10 + i && is_whole(&got[i]));
    }
    ull__ring_destroy(ring);
    ull__ring_destroy(NULL);
}

static struct ull__ring *shared;
static _Atomic uint32_t next_thread;
static _Atomic uint64_t refused;
static _Atomic int running;

static void *put_all(void *data)
{
    uint32_t thread = atomic_fetch_add(&next_thread, 1);
    (void)data;
    for (uint64_t i = 1; i <= EACH; i++) {
        struct ull__event event = numbered(thread, i);
        if (!ull__ring_put(shared, &event))
            atomic_fetch_add(&refused, 1);
    }
    atomic_fetch_sub(&running, 1);
    ull__ring_wake(shared);
    return NULL;
}

static void many_threads(uint32_t capacity)
{
    pthread_t threads[THREADS];
    uint64_t last[THREADS] = {0}, taken = 0;
    struct ull__event got[100];
    shared = ull__ring_create(capacity);
    atomic_store(&next_thread, 0);
    atomic_store(&refused, 0);
    atomic_store(&running, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, put_all, NULL);
    for (bool last_look = false;;) {
        uint32_t count = ull__ring_take(shared, got, 100);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(got[i].thread < THREADS && is_whole(&got[i]));
            assert_true(got[i].time_ns > last[got[i].thread]); /* each thread's own order is kept */
            last[got[i].thread] = got[i].time_ns;
        }
        taken += count;
        if (count == 0 && last_look)
            break;
        last_look = atomic_load(&running) == 0;
        if (count == 0 && !last_look)
            ull__ring_wait(shared, 1000000);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(taken + refused, (uint64_t)THREADS * EACH);
    assert_int_equal(ull__ring_dropped(shared), refused);
    ull__ring_destroy(shared);
}

static void nothing_is_lost(void **state)
{
    (void)state;
    many_threads(1 << 18); /* room for all */
    assert_int_equal(refused, 0);
}

static void what_is_lost_is_counted(void **state)
{
    (void)state;
    many_threads(16);
    many_threads(2);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *wait_long(void *data)
{
    double before = seconds();
    ull__ring_wait(shared, 20000000000ull);
    *(double *)data = seconds() - before;
    return NULL;
}

/* Who waits is woken at half full, by hand, and never sleeps if it is half full already. */
static void wakes(void **state)
{
    (void)state;
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        pthread_t thread;
        double waited = 0;
        shared = ull__ring_create(64);
        pthread_create(&thread, NULL, wait_long, &waited);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        for (uint64_t i = 0; i < 40 && !by_hand; i++) {
            struct ull__event event = numbered(0, i);
            assert_true(ull__ring_put(shared, &event));
        }
        /* By hand until it worked: the thread may not have been asleep yet. */
        for (int i = 0; i < 100 && by_hand; i++) {
            ull__ring_wake(shared);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        pthread_join(thread, NULL);
        assert_true(waited < 15);
        if (!by_hand)
            wait_long(&waited);
        assert_true(waited < 15);
        ull__ring_destroy(shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread), cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(what_is_lost_is_counted), cmocka_unit_test(wakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
