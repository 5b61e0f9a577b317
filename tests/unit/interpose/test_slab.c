/* test_slab.c: the places of a slab against a byte-by-byte model, at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "suspend.h"

enum { BYTES = 128 * SLAB_UNIT, UNITS = BYTES / SLAB_UNIT, STEPS = 200000 };

static uint64_t seed = 88172645463325252ull;

static uint64_t any(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* 0: free; else the number of the unit at which the block begins, plus one. */
static uint32_t model[UNITS];

static uint32_t first_fit(uint32_t wanted)
{
    for (uint32_t at = 0; at + wanted <= UNITS; at++) {
        uint32_t n = 0;
        while (n < wanted && model[at + n] == 0)
            n++;
        if (n == wanted)
            return at;
    }
    return UNITS;
}

static void check_find(const struct ull__slab *slab, uint64_t offset)
{
    uint64_t start = 1, bytes = 1;
    uint32_t owner = model[offset / SLAB_UNIT], n = 0;
    bool found = ull__slab_find(slab, offset, &start, &bytes);
    assert_int_equal(found, owner != 0);
    if (!found)
        return;
    while (owner - 1 + n < UNITS && model[owner - 1 + n] == owner)
        n++;
    assert_int_equal(start, (uint64_t)(owner - 1) * SLAB_UNIT);
    assert_int_equal(bytes, (uint64_t)n * SLAB_UNIT);
}

static void take(struct ull__slab *slab)
{
    uint64_t bytes = any(4) ? any(6 * SLAB_UNIT) + 1 : any(BYTES) + 1;
    uint32_t wanted = (uint32_t)((bytes + SLAB_UNIT - 1) / SLAB_UNIT), at = first_fit(wanted);
    uint64_t got = ull__slab_take(slab, bytes);
    assert_int_equal(got, at == UNITS ? UINT64_MAX : (uint64_t)at * SLAB_UNIT);
    for (uint32_t i = 0; at < UNITS && i < wanted; i++)
        model[at + i] = at + 1;
}

static void drop(struct ull__slab *slab)
{
    uint32_t owner = model[any(UNITS)];
    bool left = false;
    if (owner == 0)
        return;
    for (uint32_t i = 0; i < UNITS; i++) {
        model[i] = model[i] == owner ? 0 : model[i];
        left = left || model[i] != 0;
    }
    assert_int_equal(ull__slab_drop(slab, (uint64_t)(owner - 1) * SLAB_UNIT), !left);
}

static void as_the_model(void **state)
{
    (void)state;
    struct ull__slab *slab = ull__slab_create(BYTES);
    assert_non_null(slab);
    for (int i = 0; i < STEPS; i++) {
        if (any(2))
            take(slab);
        else
            drop(slab);
        check_find(slab, any(BYTES));
    }
    ull__slab_destroy(slab);
}

static void edges(void **state)
{
    (void)state;
    uint64_t start, bytes;
    struct ull__slab *slab = ull__slab_create(BYTES);
    assert_int_equal(ull__slab_take(slab, 0), UINT64_MAX);
    assert_int_equal(ull__slab_take(slab, BYTES + 1), UINT64_MAX);
    assert_int_equal(ull__slab_take(slab, UINT64_MAX), UINT64_MAX);
    assert_int_equal(ull__slab_take(slab, BYTES), 0);
    assert_int_equal(ull__slab_take(slab, 1), UINT64_MAX);
    assert_true(ull__slab_find(slab, BYTES - 1, &start, &bytes));
    assert_false(ull__slab_find(slab, BYTES, &start, &bytes));
    assert_true(ull__slab_drop(slab, 0));
    ull__slab_destroy(slab);
    ull__slab_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_model), cmocka_unit_test(edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
