/*
 * test_search.c: decisions to keep and drop beside exact ones.
 *
 * Small models are tried in every way to keep and drop; of larger ones, optima.csv has the least times that a search with
 * bounds has found (make_optima.c). What the planner's search finds has to cost what the reference (exact.h) says, and to be
 * within 5 % of the least time for every peak that the reference reaches.
 *
 * ULLAGE_PLANS sets how many graphs of each kind, if fewer are wanted.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exact.h"

/* What was found is what it says. */
static void check_frontier(const struct ull__program *program, const struct ull__frontier *frontier)
{
    for (int i = 0; i < frontier->count; ++i) {
        bool drop[MOST_BUFFERS];
        int64_t peak;
        double seconds;
        for (int b = 0; b < program->buffer_count; ++b) {
            drop[b] = frontier->entries[i].decision.keep[b] == ULL_DROP;
        }
        reference(program, drop, &peak, &seconds);
        assert_int_equal(peak, frontier->entries[i].cost.peak_bytes);
        assert_true(seconds / seconds_of(&frontier->entries[i]) > 1 - 1e-9 &&
                    seconds / seconds_of(&frontier->entries[i]) < 1 + 1e-9);
        if (i > 0) {
            assert_true(frontier->entries[i].cost.peak_bytes <
                        frontier->entries[i - 1].cost.peak_bytes);
            assert_true(seconds_of(&frontier->entries[i]) > seconds_of(&frontier->entries[i - 1]));
        }
    }
}

static void search(const struct ull__program *program, struct ull__frontier *frontier)
{
    struct ull__search_options options = {.fastest = true};
    assert_true(program->item_count <= MOST_ITEMS && program->buffer_count <= MOST_BUFFERS);
    assert_int_equal(ull__search(program, &exact_device, &options, frontier, NULL), ULL_OK);
    check_frontier(program, frontier);
}

/* Every way to keep and drop. */
static void compare(uint64_t seed, int nodes, int64_t batch, double allowed)
{
    struct ull__graph *model = random_model(seed, nodes);
    struct ull__program *program = exact_program(model, batch);
    struct ull__frontier frontier = {NULL, 0, 0};
    assert_non_null(program);
    int list[MOST_BUFFERS], count = droppable(program, list);
    assert_true(program->forward_items >= nodes && count <= 16);
    search(program, &frontier);
    int64_t budget = frontier.entries[frontier.count / 2].cost.peak_bytes;
    double best = 1e9;
    for (unsigned ways = 0; ways < 1u << count; ++ways) {
        bool drop[MOST_BUFFERS] = {false};
        int64_t peak;
        double seconds;
        for (int i = 0; i < count; ++i) {
            drop[list[i]] = (ways >> i & 1) != 0;
        }
        reference(program, drop, &peak, &seconds);
        double ours = best_within(&frontier, peak);
        if (ours > seconds * allowed) {
            fail_msg("seed %d: %.3f us within %lld bytes where %.3f us are possible", (int)seed,
                     ours * 1e6, (long long)peak, seconds * 1e6);
        }
        best = peak <= budget && seconds < best ? seconds : best;
    }
    /* The solver with bounds finds the same. */
    long looked;
    double solved = exact_best(program, budget, 1e9, LONG_MAX, &looked);
    assert_true(solved > best * (1 - 1e-9) && solved < best * (1 + 1e-9));
    ull__frontier_finish(&frontier);
    ull__program_destroy(program);
    ull__graph_destroy(model);
}

static int graphs_of(int most)
{
    const char *text = getenv("ULLAGE_PLANS");
    int wanted = text != NULL ? atoi(text) : most;
    return wanted < most ? wanted : most;
}

static void few_buffers_are_searched_completely(void **state)
{
    (void)state;
    for (int seed = 1; seed <= graphs_of(200); ++seed) {
        compare((uint64_t)seed, 4 + seed % 9, seed % 2 == 0 ? 8 : 256, 1 + 1e-9);
    }
}

/* Above 13 buffers the search is a heuristic. */
static void more_are_within_five_percent(void **state)
{
    (void)state;
    for (int seed = 1001; seed <= 1004; ++seed) {
        compare((uint64_t)seed, 14, seed % 2 == 0 ? 8 : 256, 1.05);
    }
}

/* Graphs of 25 nodes, with less effort than a planner makes: about what a model of a thousand nodes gets. */
static void large_ones_are_within_five_percent(void **state)
{
    FILE *file = fopen(OPTIMA, "r");
    int seed, nodes, last = -1, graphs = 0;
    long long budget;
    double best;
    struct ull__graph *model = NULL;
    struct ull__program *program = NULL;
    struct ull__frontier frontier = {NULL, 0, 0};
    (void)state;
    assert_non_null(file);
    while (fscanf(file, "%d,%d,%lld,%lf", &seed, &nodes, &budget, &best) == 4) {
        if (seed != last) {
            if (graphs == graphs_of(1000)) {
                break;
            }
            struct ull__search_options options = {.fastest = true, .schedules = 12000};
            ull__frontier_finish(&frontier);
            ull__program_destroy(program);
            ull__graph_destroy(model);
            model = random_model((uint64_t)seed, nodes);
            program = exact_program(model, OPTIMA_BATCH);
            assert_non_null(program);
            assert_int_equal(ull__search(program, &exact_device, &options, &frontier, NULL), ULL_OK);
            last = seed;
            graphs += 1;
        }
        double ours = best_within(&frontier, budget);
        if (ours > best * 1.05) {
            fail_msg("seed %d: %.3f us within %lld bytes where %.3f us are possible", seed,
                     ours * 1e6, budget, best * 1e6);
        }
        if (ours < best * (1 - 1e-9)) {
            fail_msg(
                "seed %d: less than the least: graphs or costs are other ones, make optima.csv "
                "anew",
                seed);
        }
    }
    assert_true(graphs >= graphs_of(50));
    fclose(file);
    ull__frontier_finish(&frontier);
    ull__program_destroy(program);
    ull__graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_buffers_are_searched_completely),
        cmocka_unit_test(more_are_within_five_percent),
        cmocka_unit_test(large_ones_are_within_five_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
