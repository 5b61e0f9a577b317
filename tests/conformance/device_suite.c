/*
 * device_suite.c: see device_suite.h. A device is made anew for each test.
 */
#include "device_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 16 };

static struct ull__device *(*make_device)(void);

static int setup(void **state)
{
    *state = make_device();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    ull__device_destroy(*state);
    return 0;
}

static uint64_t free_bytes(struct ull__device *d)
{
    uint64_t free_now = 0, total = 0;
    assert_int_equal(d->ops->memory(d, &free_now, &total), ULL_OK);
    assert_true(free_now <= total);
    return free_now;
}

/* Writes and reads bytes of the device, waiting for both. */
static void write_byte(struct ull__device *d, uint64_t address, unsigned char value)
{
    assert_int_equal(d->ops->copy_in(d, address, &value, 1, NULL), ULL_OK);
    assert_int_equal(d->ops->synchronize(d, NULL), ULL_OK);
}

static unsigned char read_byte(struct ull__device *d, uint64_t address)
{
    unsigned char value = 0;
    assert_int_equal(d->ops->copy_out(d, &value, address, 1, NULL), ULL_OK);
    assert_int_equal(d->ops->synchronize(d, NULL), ULL_OK);
    return value;
}

/* `count` pages side by side, wherever; *at is where. */
static void take(struct ull__device *d, size_t count, ull__page *page, uint64_t *at)
{
    if (!d->regions)
        assert_int_equal(d->ops->reserve(d, count * d->page_bytes, at), ULL_OK);
    assert_int_equal(d->ops->create(d, count, page), ULL_OK);
    if (d->regions)
        *at = page[0];
    else
        assert_int_equal(d->ops->map(d, *at, count, page), ULL_OK);
}

static void give(struct ull__device *d, size_t count, const ull__page *page, uint64_t at)
{
    if (!d->regions)
        d->ops->unmap(d, at, count);
    d->ops->destroy_pages(d, count, page);
    if (!d->regions)
        d->ops->release(d, at, count * d->page_bytes);
}

static void addresses(void **state)
{
    struct ull__device *d = *state;
    if (d->regions) {
        assert_null(d->ops->reserve);
        assert_null(d->ops->release);
        assert_null(d->ops->map);
        assert_null(d->ops->unmap);
        return;
    }
    uint64_t page = d->page_bytes, address[2];
    assert_true(page >= 4096 && (page & (page - 1)) == 0);
    assert_int_equal(d->ops->reserve(d, MANY * page, &address[0]), ULL_OK);
    assert_int_equal(d->ops->reserve(d, page, &address[1]), ULL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(address[i], 0);
        assert_int_equal(address[i] % page, 0);
    }
    assert_true(address[1] < address[0] || address[1] >= address[0] + MANY * page);
    uint64_t before = address[1];
    assert_int_equal(d->ops->reserve(d, 1, &address[1]), ULL_E_INVALID);
    assert_int_equal(d->ops->reserve(d, 0, &address[1]), ULL_E_INVALID);
    assert_int_equal(d->ops->reserve(d, UINT64_MAX / page * page, &address[1]), ULL_E_NO_MEMORY);
    assert_int_equal(address[1], before);
    d->ops->release(d, address[1], page);
    d->ops->release(d, address[0], MANY * page);
}

static void pages(void **state)
{
    struct ull__device *d = *state;
    ull__page page[MANY];
    uint64_t before = free_bytes(d);
    assert_int_equal(d->ops->create(d, MANY, page), ULL_OK);
    for (int i = 0; i < MANY; i++) {
        assert_int_not_equal(page[i], 0);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(page[i], page[k]);
    }
    assert_true(free_bytes(d) <= before - MANY * d->page_bytes);
    if (d->regions) {
        d->ops->destroy_pages(d, MANY, page);
    } else {
        d->ops->destroy_pages(d, MANY / 2, page);
        d->ops->destroy_pages(d, MANY / 2, page + MANY / 2);
    }
    assert_int_equal(free_bytes(d), before);
}

/* Side by side within a region, apart from others, all with bytes of their own; gone in any order. */
static void regions(void **state)
{
    struct ull__device *d = *state;
    uint64_t size = d->page_bytes, before = free_bytes(d);
    ull__page page[3][MANY];
    if (!d->regions)
        return;
    for (unsigned int r = 0; r < 3; r++) {
        size_t count = (size_t)4 << r;
        assert_int_equal(d->ops->create(d, count, page[r]), ULL_OK);
        assert_int_equal(page[r][0] % 256, 0);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(page[r][i], page[r][0] + i * size);
            write_byte(d, page[r][i] + size - 1, (unsigned char)(r * MANY + i + 1));
        }
        for (unsigned int other = 0; other < r; other++)
            assert_true(page[r][0] >= page[other][0] + ((size_t)4 << other) * size ||
                        page[other][0] >= page[r][0] + count * size);
    }
    d->ops->destroy_pages(d, 8, page[1]);
    for (unsigned int r = 0; r < 3; r += 2) {
        for (size_t i = 0; i < (size_t)4 << r; i++)
            assert_int_equal(read_byte(d, page[r][i] + size - 1), r * MANY + i + 1);
    }
    d->ops->destroy_pages(d, 4, page[0]);
    d->ops->destroy_pages(d, 16, page[2]);
    assert_int_equal(free_bytes(d), before);
}

static void all_pages_or_none(void **state)
{
    struct ull__device *d = *state;
    uint64_t before = free_bytes(d);
    size_t count = (size_t)(before / d->page_bytes) + 1;
    ull__page *page = calloc(count, sizeof *page);
    assert_int_equal(d->ops->create(d, count, page), ULL_E_NO_MEMORY);
    assert_int_equal(free_bytes(d), before);
    free(page);
}

static void aliases_show_the_same_bytes(void **state)
{
    struct ull__device *d = *state;
    uint64_t size = d->page_bytes, at;
    ull__page page[4], turned[4];
    if (d->regions)
        return; /* there are none */
    assert_int_equal(d->ops->reserve(d, MANY * size, &at), ULL_OK);
    assert_int_equal(d->ops->create(d, 4, page), ULL_OK);
    for (int i = 0; i < 4; i++)
        turned[i] = page[3 - i];
    assert_int_equal(d->ops->map(d, at, 4, page), ULL_OK);
    assert_int_equal(d->ops->map(d, at + 8 * size, 4, turned), ULL_OK);
    for (unsigned int i = 0; i < 4; i++)
        write_byte(d, at + i * size + 5, (unsigned char)(i + 1));
    for (unsigned int i = 0; i < 4; i++)
        assert_int_equal(read_byte(d, at + (8 + i) * size + 5), 4 - i);
    /* A part of what was mapped together can go alone; the other place keeps its bytes. */
    d->ops->unmap(d, at + size, 2);
    assert_int_equal(read_byte(d, at + 9 * size + 5), 3);
    assert_int_equal(read_byte(d, at + 3 * size + 5), 4);
    assert_int_equal(d->ops->map(d, at + size, 1, &page[0]), ULL_OK);
    assert_int_equal(read_byte(d, at + size + 5), 1);
    d->ops->unmap(d, at, 2);
    d->ops->unmap(d, at + 3 * size, 1);
    d->ops->unmap(d, at + 8 * size, 4);
    d->ops->destroy_pages(d, 4, page);
    d->ops->release(d, at, MANY * size);
}

static void copies_of_any_size(void **state)
{
    struct ull__device *d = *state;
    uint64_t size = 2 * d->page_bytes, at;
    unsigned char *in = malloc(size), *out = calloc(size, 1);
    ull__page page[2];
    for (uint64_t i = 0; i < size; i++)
        in[i] = (unsigned char)(i * 31 >> 3);
    take(d, 2, page, &at);
    assert_int_equal(d->ops->copy_in(d, at, in, size, NULL), ULL_OK);
    assert_int_equal(d->ops->fill(d, at + 3, 7, 11, NULL), ULL_OK);
    assert_int_equal(d->ops->copy_out(d, out, at, size, NULL), ULL_OK);
    assert_int_equal(d->ops->synchronize(d, NULL), ULL_OK);
    memset(in + 3, 7, 11);
    assert_memory_equal(in, out, size);
    give(d, 2, page, at);
    free(in);
    free(out);
}

static void order(void **state)
{
    struct ull__device *d = *state;
    ull__stream stream[2];
    ull__event event[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d->ops->stream_create(d, &stream[i]), ULL_OK);
        assert_false(d->ops->capturing(d, stream[i]));
        assert_int_equal(d->ops->record(d, stream[i], &event[i]), ULL_OK);
        assert_int_not_equal(event[i], 0);
    }
    assert_false(d->ops->capturing(d, NULL));
    assert_true(d->ops->wait(d, event[0], UINT64_MAX));
    assert_true(d->ops->done(d, event[0]));
    assert_int_equal(d->ops->synchronize(d, stream[1]), ULL_OK);
    assert_true(d->ops->done(d, event[1]));
    for (int i = 0; i < 2; i++) {
        d->ops->forget(d, event[i]);
        d->ops->stream_destroy(d, stream[i]);
    }
}

int device_suite(const char *name, struct ull__device *(*make)(void))
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(addresses),
        TEST(pages),
        TEST(all_pages_or_none),
        TEST(aliases_show_the_same_bytes),
        TEST(copies_of_any_size),
        TEST(order),
        TEST(regions),
    };
#undef TEST
    make_device = make;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
