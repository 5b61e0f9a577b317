/*
 * test_offsets_hard.c: those of MiniMalloc's instances (bench/minimalloc) that take well under a second each, at the
 * capacity for which they were made; bench/offsets.sh has all eleven. And plans that do not depend on threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "file.h"
#include "offsets.h"
#include "offsets_csv.h"

static const uint64_t capacity = 1048576;

static void load(char name, struct ull__offsets_csv *csv)
{
    char path[] = INSTANCES "/X.1048576.csv", *text = NULL;
    size_t size = 0;
    struct ull_error err;
    path[sizeof INSTANCES] = name;
    if (ull__file_read(path, 1 << 20, &text, &size, &err) != ULL_OK ||
        ull__offsets_csv_parse(text, size, &err, csv) != ULL_OK)
        fail_msg("%s", err.message);
    free(text);
}

static void place(const struct ull__offsets_csv *csv, unsigned int threads, struct ull__offsets *plan)
{
    struct ull__offsets_problem problem = {
        .buffers = csv->buffers, .count = csv->count, .capacity = capacity};
    const struct ull__offsets_effort effort = {.nodes = 50000, .threads = threads};
    struct ull_error err;
    uint64_t height = 0;
    assert_int_equal(ull__offsets_solve(&problem, &effort, &err, plan), ULL_OK);
    assert_true(plan->solved);
    if (ull__offsets_check(&problem, plan->offsets, &err, &height) != ULL_OK)
        fail_msg("%s", err.message);
    assert_true(height <= capacity && height == plan->height);
}

static void all_that_are_quick(void **state)
{
    (void)state;
    for (const char *name = "BCDEFGJK"; *name; name++) {
        struct ull__offsets_csv csv;
        struct ull__offsets plan;
        load(*name, &csv);
        place(&csv, 2, &plan);
        ull__offsets_finish(&plan);
        ull__offsets_csv_finish(&csv);
    }
}

static void threads_change_nothing(void **state)
{
    (void)state;
    struct ull__offsets_csv csv;
    struct ull__offsets one, several;
    load('B', &csv);
    place(&csv, 1, &one);
    for (unsigned int threads = 2; threads <= 5; threads++) {
        place(&csv, threads, &several);
        assert_int_equal(one.nodes, several.nodes);
        assert_memory_equal(one.offsets, several.offsets, csv.count * sizeof *one.offsets);
        ull__offsets_finish(&several);
    }
    ull__offsets_finish(&one);
    ull__offsets_csv_finish(&csv);
}

/* Corrupt each offset of a plan without slack, and the checker sees it. */
static void every_corruption_is_seen(void **state)
{
    (void)state;
    struct ull__offsets_csv csv;
    struct ull__offsets plan;
    uint64_t height = 0;
    load('K', &csv);
    place(&csv, 1, &plan);
    struct ull__offsets_problem problem = {
        .buffers = csv.buffers, .count = csv.count, .capacity = capacity};
    size_t seen = 0;
    for (size_t i = 0; i < csv.count; i++) {
        uint64_t right = plan.offsets[i];
        for (int way = 0; way < 2; way++) {
            plan.offsets[i] = way ? right + csv.buffers[i].size / 2 + 1 : right - 1;
            seen += ull__offsets_check(&problem, plan.offsets, NULL, &height) != ULL_OK;
        }
        plan.offsets[i] = right;
    }
    /* Some lie beside room: they may move. */
    assert_true(seen > csv.count * 3 / 2);
    ull__offsets_finish(&plan);
    ull__offsets_csv_finish(&csv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_are_quick),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(every_corruption_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
