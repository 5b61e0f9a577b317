/* test_limit.c: limits and the largest request, against a fake upstream and over a pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "fake.h"

enum { KIB = 1024, MIB = 1 << 20 };

static struct fake fake;

static void counts_and_refuses(void **state)
{
    (void)state;
    fake_init(&fake, UINT64_MAX);
    struct ull_alloc *limit;
    assert_int_equal(ull_limit_create(&fake.alloc, 1000 * KIB, &limit, NULL), ULL_OK);
    void *a, *b, *c = &fake;
    assert_int_equal(ull_alloc_allocate(limit, 600 * KIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_allocate(limit, 400 * KIB, NULL, &b), ULL_OK); /* exactly full */
    struct ull_request request = {.bytes = 1, .tag = "[3] float32"};
    struct ull_report report;
    assert_int_equal(ull_alloc_request(limit, &request, &report, &c), ULL_E_NO_MEMORY);
    assert_ptr_equal(c, &fake); /* untouched */
    assert_string_equal(report.by, "limit");
    assert_non_null(strstr(report.text, "[3] float32"));
    assert_non_null(strstr(report.text, "1000.0 KiB of 1000.0 KiB"));
    assert_int_equal(fake.refusals, 0); /* not asked */
    assert_int_equal(fake.allocations, 2);

    assert_int_equal(ull_alloc_free(limit, b, NULL), ULL_OK);
    assert_int_equal(ull_alloc_free(limit, b, NULL), ULL_E_INVALID);  /* twice */
    assert_int_equal(ull_alloc_free(limit, &c, NULL), ULL_E_INVALID); /* foreign */
    assert_int_equal(ull_alloc_free(limit, (char *)a + 256, NULL), ULL_E_INVALID);
    assert_int_equal(ull_alloc_free(limit, NULL, NULL), ULL_OK);
    struct ull_alloc_info info;
    ull_alloc_info(limit, &info);
    assert_int_equal(info.in_use, 600 * KIB);
    assert_int_equal(info.peak, 1000 * KIB);
    assert_int_equal(info.limit, 1000 * KIB);
    assert_int_equal(ull_alloc_use_on(limit, a, NULL), ULL_OK);
    assert_int_equal(fake.uses, 1);
    assert_int_equal(ull_alloc_free(limit, a, NULL), ULL_OK);
    ull_alloc_info(limit, &info);
    assert_int_equal(info.in_use, 0);
    ull_alloc_destroy(limit);
}

static void gives_back_what_upstream_refuses(void **state)
{
    (void)state;
    fake_init(&fake, 100 * KIB);
    struct ull_alloc *limit;
    void *a;
    assert_int_equal(ull_limit_create(&fake.alloc, MIB, &limit, NULL), ULL_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ull_alloc_allocate(limit, 200 * KIB, NULL, &a), ULL_E_NO_MEMORY);
    struct ull_alloc_info info;
    ull_alloc_info(limit, &info);
    assert_int_equal(info.in_use, 0);
    assert_int_equal(info.peak, 0);
    assert_int_equal(ull_alloc_allocate(limit, 100 * KIB, NULL, &a), ULL_OK);
    ull_alloc_destroy(limit);
}

static void odd_values(void **state)
{
    (void)state;
    fake_init(&fake, UINT64_MAX);
    struct ull_alloc *limit, *max;
    struct ull_error err;
    void *a;
    assert_int_equal(ull_limit_create(&fake.alloc, 0, &limit, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "0 bytes"));
    assert_int_equal(ull_max_request_create(&fake.alloc, 0, &max, &err), ULL_E_INVALID);
    assert_int_equal(ull_limit_create(&fake.alloc, UINT64_MAX, &limit, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(limit, 0, NULL, &a), ULL_E_INVALID);
    struct ull_request request = {.bytes = 64, .alignment = 48};
    assert_int_equal(ull_alloc_request(limit, &request, NULL, &a), ULL_E_INVALID);
    assert_int_equal(ull_alloc_allocate(limit, UINT64_MAX, NULL, &a), ULL_E_NO_MEMORY);
    assert_int_equal(ull_alloc_allocate(limit, 1, NULL, &a), ULL_OK); /* counts as 256 */
    assert_int_equal(ull_alloc_allocate(limit, UINT64_MAX - 300, NULL, &a), ULL_E_NO_MEMORY);
    assert_int_equal(ull_limit_set(limit, 0), ULL_E_INVALID);
    assert_int_equal(ull_limit_set(&fake.alloc, 1), ULL_E_INVALID); /* not a limit */
    struct ull_alloc_info info;
    ull_alloc_info(limit, &info);
    assert_int_equal(info.in_use, 256);
    ull_alloc_destroy(limit);
    ull_alloc_destroy(NULL);
}

static void lowered_and_raised(void **state)
{
    (void)state;
    fake_init(&fake, UINT64_MAX);
    struct ull_alloc *limit;
    void *a, *b;
    assert_int_equal(ull_limit_create(&fake.alloc, MIB, &limit, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(limit, MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_limit_set(limit, MIB / 2), ULL_OK);
    assert_int_equal(ull_alloc_allocate(limit, 1, NULL, &b), ULL_E_NO_MEMORY);
    assert_int_equal(ull_alloc_free(limit, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(limit, MIB / 2 + 1, NULL, &b), ULL_E_NO_MEMORY);
    assert_int_equal(ull_alloc_allocate(limit, MIB / 2, NULL, &b), ULL_OK);
    assert_int_equal(ull_limit_set(limit, MIB), ULL_OK);
    assert_int_equal(ull_alloc_allocate(limit, MIB / 2, NULL, &a), ULL_OK);
    ull_alloc_destroy(limit);
}

static void max_request_by_size_only(void **state)
{
    (void)state;
    fake_init(&fake, UINT64_MAX);
    struct ull_alloc *max;
    void *a;
    assert_int_equal(ull_max_request_create(&fake.alloc, MIB, &max, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(max, MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_allocate(max, MIB, NULL, &a), ULL_OK);
    struct ull_request request = {.bytes = MIB + 1, .tag = "logits"};
    struct ull_report report;
    assert_int_equal(ull_alloc_request(max, &request, &report, &a), ULL_E_NO_MEMORY);
    assert_string_equal(report.by, "max_request");
    assert_non_null(strstr(report.text, "logits"));
    assert_non_null(strstr(report.text, "1.0 MiB"));
    assert_int_equal(fake.refusals, 0);
    assert_int_equal(ull_alloc_free(max, a, NULL), ULL_OK);
    ull_alloc_destroy(max);
}

/* Two limits share a pool: each keeps its own line, and the pool its own too. */
static void several_over_one_pool(void **state)
{
    (void)state;
    struct ull__device *device;
    struct ull_pool *pool;
    struct ull_alloc *base, *one, *two;
    void *a, *b, *c;
    assert_int_equal(ull__device_host_create(16 * MIB, 0, &device, NULL), ULL_OK);
    assert_int_equal(ull_pool_create(device, NULL, &pool, NULL), ULL_OK);
    assert_int_equal(ull_alloc_over_pool(pool, &base), ULL_OK);
    assert_int_equal(ull_limit_create(base, 12 * MIB, &one, NULL), ULL_OK);
    assert_int_equal(ull_limit_create(base, 8 * MIB, &two, NULL), ULL_OK);
    assert_int_equal(ull_alloc_allocate(one, 10 * MIB, NULL, &a), ULL_OK);
    assert_int_equal(ull_alloc_allocate(one, 4 * MIB, NULL, &b), ULL_E_NO_MEMORY);
    assert_int_equal(ull_alloc_allocate(two, 4 * MIB, NULL, &b), ULL_OK);
    struct ull_request request = {.bytes = 4 * MIB};
    struct ull_report report;
    assert_int_equal(ull_alloc_request(two, &request, &report, &c), ULL_E_NO_MEMORY);
    assert_string_equal(report.by, "pool"); /* two's own limit would have allowed it */
    assert_int_equal(report.pool.wanted, 4 * MIB);
    assert_int_equal(ull_alloc_free(two, a, NULL), ULL_E_INVALID); /* the other's */
    assert_int_equal(ull_alloc_free(one, a, NULL), ULL_OK);
    assert_int_equal(ull_alloc_request(two, &request, &report, &c), ULL_OK);
    ull_alloc_destroy(two);
    ull_alloc_destroy(one);
    ull_alloc_destroy(base);
    ull_pool_destroy(pool);
    ull__device_destroy(device);
}

/* --- threads ---------------------------------------------------------------------------------------------- */

static struct ull_alloc *shared;

static void *allocate_and_free(void *seed)
{
    unsigned int random = (unsigned int)(uintptr_t)seed;
    uintptr_t served = 0;
    for (int i = 0; i < 3000; i++) {
        void *a;
        random = random * 1103515245u + 12345u;
        if (ull_alloc_allocate(shared, 1 + (random >> 16) % (300 * KIB), NULL, &a) == ULL_OK) {
            served++;
            if (ull_alloc_free(shared, a, NULL) != ULL_OK)
                return NULL;
        }
    }
    return (void *)served;
}

static void never_above_under_threads(void **state)
{
    (void)state;
    fake_init(&fake, UINT64_MAX);
    assert_int_equal(ull_limit_create(&fake.alloc, 512 * KIB, &shared, NULL), ULL_OK);
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, allocate_and_free, (void *)(i + 1));
    for (int i = 0; i < 8; i++) {
        void *served;
        pthread_join(threads[i], &served);
        assert_non_null(served);
    }
    assert_true(fake.peak <= 512 * KIB);
    struct ull_alloc_info info;
    ull_alloc_info(shared, &info);
    assert_int_equal(info.in_use, 0);
    ull_alloc_destroy(shared);
}

/*
 * Two threads each ask for 300 of 512 over and over, one at a time of them fits: with an addition that is
 * taken back both could be refused at once. Here somebody always gets through.
 */
static pthread_barrier_t barrier;
static _Atomic int won;

static void *ask_at_once(void *unused)
{
    (void)unused;
    for (int i = 0; i < 2000; i++) {
        void *a = NULL;
        pthread_barrier_wait(&barrier);
        if (ull_alloc_allocate(shared, 300 * KIB, NULL, &a) == ULL_OK)
            won++;
        pthread_barrier_wait(&barrier);
        ull_alloc_free(shared, a, NULL);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void somebody_gets_through(void **state)
{
    (void)state;
    fake_init(&fake, UINT64_MAX);
    assert_int_equal(ull_limit_create(&fake.alloc, 512 * KIB, &shared, NULL), ULL_OK);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t threads[2];
    won = 0;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, ask_at_once, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(won, 2000);
    ull_alloc_destroy(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_refuses),
        cmocka_unit_test(gives_back_what_upstream_refuses),
        cmocka_unit_test(odd_values),
        cmocka_unit_test(lowered_and_raised),
        cmocka_unit_test(max_request_by_size_only),
        cmocka_unit_test(several_over_one_pool),
        cmocka_unit_test(never_above_under_threads),
        cmocka_unit_test(somebody_gets_through),
    };
    return cmocka_run_group_tests_name("policy.limit", tests, NULL, NULL);
}
