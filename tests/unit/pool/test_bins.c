/*
 * test_bins.c: bins alone, against a look through all chunks that are in them: the smallest of at least a size and an
 * address, as the pool asks for it. With and without host memory for the heaps of small sizes, and with crumbs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static bool scarce;
static void *scarce_realloc(void *at, size_t size)
{
    return scarce ? NULL : realloc(at, size);
}
#define realloc scarce_realloc
#include "bins.h"
#undef realloc

enum { CHUNKS = 4000, STEPS = 60000 };

#define LAST_BIN ((uint64_t)1 << 31) /* from this size on all share it */

static struct ull__chunk *chunks; /* chunk i at address (i + 1) * ULL_UNIT; prev: not NULL if it is in a bin */

static uint64_t random_state;

static uint64_t random_below(uint64_t end)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % end;
}

/* Most of few sizes; some of any, up to where a bin has four of them; and a few that share the last bin with all larger ones. */
static uint64_t random_size(void)
{
    uint64_t kind = random_below(16);
    if (kind == 0)
        return LAST_BIN * (1 + random_below(64)) + random_below(4) * ULL_UNIT;
    return (1 + random_below(kind < 4 ? 8 * ULL_STEPS : 5)) * ULL_UNIT;
}

static struct ull__chunk *expected(uint64_t size, uint64_t address)
{
    struct ull__chunk *best = NULL;
    for (int i = 0; i < CHUNKS; i++) {
        struct ull__chunk *c = &chunks[i];
        if (c->prev && (c->size > size || (c->size == size && c->address >= address)) &&
            (!best || ull__chunk_before(c->size, c->address, best)))
            best = c;
    }
    return best;
}

static struct ull__bins *new_bins(unsigned int heaps)
{
    struct ull__bins *bins = calloc(1, sizeof *bins);
    chunks = aligned_alloc(64, CHUNKS * sizeof *chunks);
    assert_true(bins && chunks);
    bins->heaps = heaps;
    for (uint64_t i = 0; i < CHUNKS; i++)
        chunks[i] = (struct ull__chunk){.address = (i + 1) * ULL_UNIT};
    return bins;
}

static void step(struct ull__bins *bins)
{
    struct ull__chunk *c = &chunks[random_below(CHUNKS)];
    if (c->prev) {
        ull__bins_remove(bins, c);
        c->prev = NULL;
    } else {
        c->size = random_size();
        c->prev = c;
        ull__bins_insert(bins, c);
    }
}

static void is_as_expected(struct ull__bins *bins)
{
    uint64_t size = random_size();
    uint64_t address = random_below(2) ? 0 : random_below(CHUNKS + 2) * ULL_UNIT;
    assert_ptr_equal(ull__bins_find(bins, size, address), expected(size, address));
}

/* Takes the smallest out until nothing is left. */
static void empty(struct ull__bins *bins)
{
    struct ull__chunk *c;
    while ((c = ull__bins_find(bins, ULL_UNIT, 0))) {
        assert_ptr_equal(c, expected(ULL_UNIT, 0));
        ull__bins_remove(bins, c);
        c->prev = NULL;
    }
    assert_null(expected(ULL_UNIT, 0));
    assert_int_equal(bins->words, 0);
    ull__bins_free(bins);
    free(chunks);
}

static void any(unsigned int heaps, bool sometimes_scarce)
{
    struct ull__bins *bins = new_bins(heaps);
    random_state = 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < STEPS; i++) {
        scarce = sometimes_scarce && i / 1000 % 3 != 2;
        step(bins);
        if (i % 16 == 0)
            is_as_expected(bins);
    }
    scarce = false;
    empty(bins);
}

/* Above those of one size each, a bin is no wider than 1 / ULL_STEPS of its sizes. */
static void test_narrow(void **state)
{
    (void)state;
    assert_int_equal(ull__bin_of(ULL_UNIT), 1);
    for (uint64_t size = ULL_UNIT; size < LAST_BIN;
         size += (size / (4 * ULL_UNIT * ULL_STEPS) + 1) * ULL_UNIT) {
        unsigned int bin = ull__bin_of(size), next = ull__bin_of(size + ULL_UNIT);
        assert_true(next == bin || next == bin + 1 || next == ULL_BINS - 1);
        uint64_t wide = size < ULL_STEPS * ULL_UNIT
                            ? ULL_UNIT
                            : size / ULL_STEPS / ULL_UNIT * ULL_UNIT + ULL_UNIT;
        assert_true(bin == ULL_BINS - 1 || ull__bin_of(size + wide) > bin);
    }
    assert_int_equal(ull__bin_of(LAST_BIN), ULL_BINS - 1);
    assert_int_equal(ull__bin_of(UINT64_MAX - ULL_UNIT), ULL_BINS - 1);
}

static void test_smallest_first(void **state)
{
    (void)state;
    any(ULL_STEPS, false);
}

static void test_few_heaps(void **state)
{
    (void)state;
    any(3, false);
    any(0, false);
}

static void test_no_memory_for_heaps(void **state)
{
    (void)state;
    any(ULL_STEPS, true);
}

static int crumbs(const struct ull__bins *bins)
{
    int count = 0;
    for (int i = 0; i < CHUNKS; i++)
        count += chunks[i].prev && chunks[i].bin == 0;
    for (const struct ull__chunk *c = bins->bits[0] & 1 ? bins->first[0] : NULL; c; c = c->u.free.left)
        assert_true(c->prev && ull__bin_of(c->size) < bins->listed);
    return count;
}

/* As find, which sorts a few at most and may miss a better one meanwhile, but not if it has to find something. */
static void is_nearly_as_expected(struct ull__bins *bins, uint64_t size)
{
    bool exact = ull__bin_of(size) >= bins->sorted;
    int before = crumbs(bins);
    const struct ull__chunk *c = ull__bins_find(bins, size, 0), *best = expected(size, 0);
    int sorted = before - crumbs(bins);
    assert_in_range(sorted, 0, exact ? 0 : ULL_SORT);
    if (c != best) {
        assert_false(exact);
        assert_true(ull__bin_of(size) < bins->sorted);
        assert_true(!c || !ull__chunk_before(c->size, c->address, best));
        assert_true(ull__bins_sort_all(bins, size));
        assert_false(ull__bins_sort_all(bins, size));
        assert_ptr_equal(ull__bins_find(bins, size, 0), best);
    }
}

/* Nobody asks for less than `least`, which goes down and up while the bins are in use; what is below stays as it came. */
static void test_crumbs(void **state)
{
    (void)state;
    struct ull__bins *bins = new_bins(ULL_STEPS);
    uint64_t least = 4 * ULL_STEPS;
    int lowered = 0, missed = 0;
    ull__crumbs_below(bins, ull__bin_of(least * ULL_UNIT));
    random_state = 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < STEPS; i++) {
        step(bins);
        uint64_t size = (least + random_below(4 * ULL_STEPS)) * ULL_UNIT;
        if (i % 16 == 0)
            is_nearly_as_expected(bins, size);
        missed += bins->unsorted && i % 16 == 0;
        if (i % (STEPS / 32) == 0) {
            assert_true(crumbs(bins) > (i ? CHUNKS / 16 : 0));
            least = least * 3 / 4;
            lowered += ull__bin_of(least * ULL_UNIT) < bins->least;
        }
        if (i % (STEPS / 2) == STEPS / 2 - 1) {
            least = 4 * ULL_STEPS;
            ull__crumbs_below(bins, ull__bin_of(least * ULL_UNIT));
        }
    }
    assert_in_range(lowered, 8, 32);
    assert_in_range(missed, 100, STEPS / 16);
    ull__bins_sort_all(bins, ULL_UNIT);
    empty(bins);
}

/* All crumbs are sorted after as many requests for less as it takes, whatever comes and goes meanwhile. */
static void test_crumbs_get_sorted(void **state)
{
    (void)state;
    struct ull__bins *bins = new_bins(ULL_STEPS);
    ull__crumbs_below(bins, ULL_STEPS);
    random_state = 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < 8 * CHUNKS; i++)
        step(bins);
    int count = crumbs(bins);
    assert_in_range(count, CHUNKS / 4, CHUNKS);
    for (int i = 0; i <= 2 * count / ULL_SORT + 1; i++) {
        step(bins);
        ull__bins_find(bins, 2 * ULL_UNIT, 0);
    }
    assert_int_equal(bins->sorted, 2);
    assert_null(bins->unsorted);
    /* What is left is smaller, and may be taken out as a whole. */
    count = crumbs(bins);
    assert_true(count > 0);
    ull__bins_find(bins, ULL_UNIT, 0);
    assert_non_null(bins->unsorted);
    for (struct ull__chunk *c = ull__bin_take_all(bins, 0), *next; c; c = next) {
        next = c->u.free.right;
        ull__bins_insert(bins, c);
        assert_int_equal(c->bin, 1);
    }
    assert_int_equal(crumbs(bins), 0);
    empty(bins);
}

/* However many of one size there are, each is found behind the one before. */
static void test_one_size_in_order(void **state)
{
    (void)state;
    struct ull__bins *bins = new_bins(ULL_STEPS);
    for (uint64_t i = 0; i < CHUNKS; i++) {
        struct ull__chunk *c = &chunks[i * 1237 % CHUNKS];
        c->size = 2 * ULL_UNIT;
        c->prev = c;
        ull__bins_insert(bins, c);
    }
    const struct ull__chunk *c = ull__bins_find(bins, ULL_UNIT, 0);
    for (int i = 0; i < CHUNKS; i++) {
        assert_ptr_equal(c, &chunks[i]);
        c = ull__bins_find(bins, c->size, c->address + 1);
    }
    assert_null(c);
    empty(bins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_smallest_first),
        cmocka_unit_test(test_few_heaps),
        cmocka_unit_test(test_no_memory_for_heaps),
        cmocka_unit_test(test_crumbs),
        cmocka_unit_test(test_crumbs_get_sorted),
        cmocka_unit_test(test_one_size_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
