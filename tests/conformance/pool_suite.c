/*
 * pool_suite.c: see pool_suite.h. Each test runs once a policy (growing, all from the start, a share from the
 * start) and a stack of adaptors (adaptors.c). The pool has 48 pages. Bytes are only touched through the
 * device. On one that cannot map, pages that lie apart are not one piece, and that is refused.
 */
#include "pool_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "adaptors.h"
#include "pool_private.h"

enum { PAGES = 48, POLICIES = 3 };

static struct ull__device *(*make_device)(void);
/* The pages of the reserve, which are never given back. */
static const uint64_t policy_keeps[POLICIES] = {0, PAGES, PAGES / 3};

struct world {
    struct ull__device *device;
    struct ull_pool *pool;
    struct adaptors adaptors;
    struct ull_alloc *alloc; /* the outermost one */
    uint64_t page;
};

static void begin(struct world *w, int policy, int stack)
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
    assert_true(adaptors_create(&w->adaptors, w->pool, stack, PAGES * w->page));
    w->alloc = adaptors_top(&w->adaptors);
}

static void end(struct world *w)
{
    char what[256] = "";
    bool whole = ull__pool_check(w->pool, what, sizeof what);
    assert_string_equal(what, "");
    assert_true(whole);
    assert_true(adaptors_destroy(&w->adaptors));
    ull_pool_destroy(w->pool);
    ull__device_destroy(w->device);
}

#define EACH_POLICY_AND_STACK(policy, stack)                                                       \
    for (int policy = 0; policy < POLICIES; policy++)                                              \
        for (int stack = 0; stack < ADAPTOR_STACKS; stack++)

static void *get(struct world *w, uint64_t bytes)
{
    void *address = NULL;
    assert_int_equal(ull_alloc_allocate(w->alloc, bytes, NULL, &address), ULL_OK);
    return address;
}

static void give(struct world *w, void *address)
{
    assert_int_equal(ull_alloc_free(w->alloc, address, NULL), ULL_OK);
}

/* Says who refused and why, and writes nothing else. */
static void refused(struct world *w, uint64_t bytes)
{
    struct ull_request request = {.bytes = bytes, .tag = "[8,512] float32"};
    struct ull_report report;
    void *address = w;
    memset(&report, 0x55, sizeof report);
    assert_int_equal(ull_alloc_request(w->alloc, &request, &report, &address), ULL_E_NO_MEMORY);
    assert_ptr_equal(address, w);
    assert_non_null(report.by);
    assert_non_null(memchr(report.text, 0, sizeof report.text));
    assert_true(strlen(report.text) > 0);
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
    EACH_POLICY_AND_STACK(policy, stack)
    {
        begin(&w, policy, stack);
        for (int i = 0; i < PAGES; i++)
            p[i] = get(&w, w.page);
        for (int i = 0; i < PAGES; i++)
            mark(&w, p[i], w.page, (uint8_t)(i + 1));
        refused(&w, 1);
        for (int i = 0; i < PAGES; i += 2)
            give(&w, p[i]);
        uint64_t half_bytes = PAGES / 2 * w.page;
        void *half = NULL;
        if (w.device->regions)
            refused(&w, half_bytes);
        else
            mark(&w, half = get(&w, half_bytes), half_bytes, 200);
        for (int i = 1; i < PAGES; i += 2)
            check_mark(&w, p[i], w.page, (uint8_t)(i + 1));
        if (half)
            check_mark(&w, half, half_bytes, 200);
        assert_int_equal(ull_alloc_free(w.alloc, half, NULL), ULL_OK);
        for (int i = 1; i < PAGES; i += 2)
            give(&w, p[i]);
        void *halves[2] = {get(&w, PAGES / 2 * w.page), get(&w, PAGES / 2 * w.page)};
        refused(&w, w.page);
        give(&w, halves[0]);
        give(&w, halves[1]);
        give(&w, get(&w, PAGES * w.page));
        end(&w);
    }
}

static void errors(void **state)
{
    struct world w;
    void *address;
    (void)state;
    EACH_POLICY_AND_STACK(policy, stack)
    {
        begin(&w, policy, stack);
        assert_int_equal(ull_alloc_allocate(w.alloc, 0, NULL, &address), ULL_E_INVALID);
        struct ull_request odd = {.bytes = 1, .alignment = 3};
        assert_int_equal(ull_alloc_request(w.alloc, &odd, NULL, &address), ULL_E_INVALID);
        odd.alignment = (uint64_t)1 << 63;
        assert_int_equal(ull_alloc_request(w.alloc, &odd, NULL, &address), ULL_E_NO_MEMORY);
        refused(&w, UINT64_MAX);
        refused(&w, UINT64_MAX - 255);
        refused(&w, PAGES * w.page + 1);
        char *p = get(&w, 4 * w.page);
        assert_int_equal(ull_alloc_free(w.alloc, p + w.page, NULL), ULL_E_INVALID);
        assert_int_equal(ull_alloc_free(w.alloc, &w, NULL), ULL_E_INVALID);
        assert_int_equal(ull_alloc_free(w.alloc, (void *)UINTPTR_MAX, NULL), ULL_E_INVALID);
        assert_int_equal(ull_alloc_free(w.alloc, NULL, NULL), ULL_OK);
        assert_int_equal(ull_alloc_use_on(w.alloc, p + w.page, NULL), ULL_E_INVALID);
        assert_int_equal(ull_alloc_use_on(w.alloc, NULL, NULL), ULL_E_INVALID);
        give(&w, p);
        assert_int_equal(ull_alloc_free(w.alloc, p, NULL), ULL_E_INVALID);
        end(&w);
    }
}

/* Two streams, one pool: both can have all of it in turn. */
static void streams(void **state)
{
    struct world w;
    (void)state;
    EACH_POLICY_AND_STACK(policy, stack)
    {
        ull__stream s[2];
        begin(&w, policy, stack);
        for (int i = 0; i < 2; i++)
            assert_int_equal(w.device->ops->stream_create(w.device, &s[i]), ULL_OK);
        for (int i = 0; i < 10; i++) {
            void *p;
            assert_int_equal(ull_alloc_allocate(w.alloc, PAGES * w.page, s[i % 2], &p), ULL_OK);
            assert_int_equal(ull_alloc_use_on(w.alloc, p, s[1 - i % 2]), ULL_OK);
            assert_int_equal(ull_alloc_free(w.alloc, p, s[i % 2]), ULL_OK);
        }
        assert_true(adaptors_end_guard(&w.adaptors));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ull_pool_forget_stream(w.pool, s[i]), ULL_OK);
            w.device->ops->stream_destroy(w.device, s[i]);
        }
        end(&w);
    }
}

static void alignments(void **state)
{
    struct world w;
    void *p[24];
    (void)state;
    EACH_POLICY_AND_STACK(policy, stack)
    {
        int count = 0;
        begin(&w, policy, stack);
        for (uint64_t alignment = 1; alignment <= 2 * w.page; alignment *= 2) {
            struct ull_request request = {.bytes = 3 * alignment / 2 + 1, .alignment = alignment};
            assert_int_equal(ull_alloc_request(w.alloc, &request, NULL, &p[count]), ULL_OK);
            assert_int_equal((uintptr_t)p[count++] % alignment, 0);
        }
        while (count > 0)
            give(&w, p[--count]);
        end(&w);
    }
}

/* What the outermost one says of itself, and what it gives back when it is asked to. */
static void accounts(void **state)
{
    struct world w;
    struct ull_alloc_info info;
    (void)state;
    EACH_POLICY_AND_STACK(policy, stack)
    {
        begin(&w, policy, stack);
        void *p = get(&w, 7 * w.page), *q = get(&w, 5 * w.page);
        ull_alloc_info(w.alloc, &info);
        assert_int_equal(info.in_use, 12 * w.page);
        assert_true(info.peak >= info.in_use && info.held >= info.in_use);
        assert_true(info.limit >= PAGES * w.page);
        give(&w, p);
        give(&w, q);
        ull_alloc_info(w.alloc, &info);
        assert_int_equal(info.in_use, 0);
        uint64_t returned = 77, held = info.held;
        assert_int_equal(ull_alloc_trim(w.alloc, UINT64_MAX, &returned), ULL_OK);
        ull_alloc_info(w.alloc, &info);
        assert_int_equal(info.held + returned, held);
        assert_int_equal(info.held, adaptors_set_aside(&w.adaptors) > policy_keeps[policy] * w.page
                                        ? adaptors_set_aside(&w.adaptors)
                                        : policy_keeps[policy] * w.page);
        end(&w);
    }
}

int pool_suite(const char *name, struct ull__device *(*make)(void))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it),  cmocka_unit_test(errors),   cmocka_unit_test(streams),
        cmocka_unit_test(alignments), cmocka_unit_test(accounts),
    };
    make_device = make;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
