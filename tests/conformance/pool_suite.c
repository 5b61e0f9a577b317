/*
 * pool_suite.c: see pool_suite.h. Each test runs once a policy: growing, all from the start, and a share
 * from the start. The pool has 48 pages. Bytes are only touched through the device.
 */
#include "pool_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool_private.h"

enum { PAGES = 48 };

static struct ull__device *(*make_device)(void);

struct world {
    struct ull__device *device;
    struct ull_pool *pool;
    uint64_t page;
};

static void begin(struct world *w, int policy)
{
    struct ull_pool_options o;
    w->device = make_device();
    assert_non_null(w->device);
    w->page = w->device->page_bytes;
    ull_pool_options_init(&o);
    o.limit = PAGES * w->page;
    o.growth = policy != 1;
    o.reserve = policy == 0 ? 0 : policy == 1 ? PAGES * w->page : PAGES / 3 * w->page;
    assert_int_equal(ull_pool_create(w->device, &o, &w->pool, NULL), ULL_OK);
}

static void end(struct world *w)
{
    char what[256] = "";
    bool whole = ull__pool_check(w->pool, what, sizeof what);
    assert_string_equal(what, "");
    assert_true(whole);
    ull_pool_destroy(w->pool);
    ull__device_destroy(w->device);
}

static void *get(struct world *w, uint64_t bytes)
{
    void *address = NULL;
    assert_int_equal(ull_pool_allocate(w->pool, bytes, NULL, &address), ULL_OK);
    return address;
}

static void mark(struct world *w, void *address, uint64_t bytes, uint8_t value)
{
    uint64_t at = (uintptr_t)address;
    assert_int_equal(w->device->ops->fill(w->device, at, value, 1, NULL), ULL_OK);
    assert_int_equal(w->device->ops->fill(w->device, at + bytes - 1, value, 1, NULL), ULL_OK);
}

static void check_mark(struct world *w, void *address, uint64_t bytes, uint8_t value)
{
    uint8_t first = 0, last = 0;
    uint64_t at = (uintptr_t)address;
    w->device->ops->copy_out(w->device, &first, at, 1, NULL);
    w->device->ops->copy_out(w->device, &last, at + bytes - 1, 1, NULL);
    assert_int_equal(w->device->ops->synchronize(w->device, NULL), ULL_OK);
    assert_int_equal(first, value);
    assert_int_equal(last, value);
}

/* All of the limit can be had, in any pieces, whatever was there before. */
static void all_of_it(void **state)
{
    struct world w;
    void *p[PAGES];
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        begin(&w, policy);
        for (int i = 0; i < PAGES; i++)
            p[i] = get(&w, w.page);
        for (int i = 0; i < PAGES; i++)
            mark(&w, p[i], w.page, (uint8_t)(i + 1));
        void *none;
        assert_int_equal(ull_pool_allocate(w.pool, 1, NULL, &none), ULL_E_NO_MEMORY);
        for (int i = 0; i < PAGES; i += 2)
            assert_int_equal(ull_pool_free(w.pool, p[i], NULL), ULL_OK);
        void *half = get(&w, PAGES / 2 * w.page);
        mark(&w, half, PAGES / 2 * w.page, 200);
        for (int i = 1; i < PAGES; i += 2)
            check_mark(&w, p[i], w.page, (uint8_t)(i + 1));
        check_mark(&w, half, PAGES / 2 * w.page, 200);
        assert_int_equal(ull_pool_free(w.pool, half, NULL), ULL_OK);
        for (int i = 1; i < PAGES; i += 2)
            assert_int_equal(ull_pool_free(w.pool, p[i], NULL), ULL_OK);
        get(&w, PAGES * w.page);
        end(&w);
    }
}

static void errors(void **state)
{
    struct world w;
    void *address;
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        begin(&w, policy);
        assert_int_equal(ull_pool_allocate(w.pool, 0, NULL, &address), ULL_E_INVALID);
        assert_int_equal(ull_pool_allocate(w.pool, UINT64_MAX, NULL, &address), ULL_E_NO_MEMORY);
        char *p = get(&w, 4 * w.page);
        assert_int_equal(ull_pool_free(w.pool, p + w.page, NULL), ULL_E_INVALID);
        assert_int_equal(ull_pool_free(w.pool, &w, NULL), ULL_E_INVALID);
        assert_int_equal(ull_pool_free(w.pool, p, NULL), ULL_OK);
        assert_int_equal(ull_pool_free(w.pool, p, NULL), ULL_E_INVALID);
        end(&w);
    }
}

/* Two streams, one pool: both can have all of it in turn. */
static void streams(void **state)
{
    struct world w;
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        ull__stream s[2];
        begin(&w, policy);
        for (int i = 0; i < 2; i++)
            assert_int_equal(w.device->ops->stream_create(w.device, &s[i]), ULL_OK);
        for (int i = 0; i < 10; i++) {
            void *p;
            assert_int_equal(ull_pool_allocate(w.pool, PAGES * w.page, s[i % 2], &p), ULL_OK);
            assert_int_equal(ull_pool_use_on(w.pool, p, s[1 - i % 2]), ULL_OK);
            assert_int_equal(ull_pool_free(w.pool, p, s[i % 2]), ULL_OK);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ull_pool_forget_stream(w.pool, s[i]), ULL_OK);
            w.device->ops->stream_destroy(w.device, s[i]);
        }
        end(&w);
    }
}

int pool_suite(const char *name, struct ull__device *(*make)(void))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it),
        cmocka_unit_test(errors),
        cmocka_unit_test(streams),
    };
    make_device = make;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
