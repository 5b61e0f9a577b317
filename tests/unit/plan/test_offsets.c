/*
 * test_offsets.c: plans of small random problems beside all orders tried, in both forms, with alignments and pinned
 * buffers; large ones that look like training; what is refused. The checker looks at every plan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "offsets.h"

static uint64_t seed = 20261129;

static uint64_t below(uint64_t limit)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % limit;
}

/* --- problems -------------------------------------------------------------------------------------------- */

enum { SMALL = 7 };

struct small {
    struct ull__buffer buffers[SMALL];
    size_t count;
    bool conflict[SMALL][SMALL]; /* of the predicate's form */
};

static bool ask(const void *context, size_t left, size_t right)
{
    const struct small *small = context;
    assert_true(left < right && right < small->count);
    return small->conflict[left][right];
}

static bool overlap(const struct ull__buffer *a, const struct ull__buffer *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

/* `wild`: any graph of conflicts; else that of the lifetimes. */
static void make_small(struct small *small, bool aligned, bool wild)
{
    memset(small, 0, sizeof *small);
    small->count = 1 + below(SMALL);
    for (size_t i = 0; i < small->count; i++) {
        struct ull__buffer *buffer = &small->buffers[i];
        buffer->size = below(20) == 0 ? 0 : 1 + below(12);
        buffer->alignment = aligned ? 1u << below(4) : below(2);
        buffer->lower = (int64_t)below(8) - 4;
        buffer->upper = buffer->lower + 1 + (int64_t)below(6);
    }
    for (size_t i = 0; i < small->count; i++) {
        for (size_t j = i + 1; j < small->count; j++)
            small->conflict[i][j] = wild ? below(2) : overlap(&small->buffers[i], &small->buffers[j]);
    }
}

/* Pins some, at offsets where they do not meet. */
static void pin_some(struct small *small)
{
    for (size_t i = 0; i < small->count; i++) {
        struct ull__buffer *buffer = &small->buffers[i];
        uint64_t align = buffer->alignment ? buffer->alignment : 1;
        uint64_t offset = below(20) / align * align;
        bool meets = below(3) != 0;
        for (size_t j = 0; j < i; j++)
            meets |= small->buffers[j].pinned && small->conflict[j][i] &&
                     small->buffers[j].offset < offset + buffer->size &&
                     offset < small->buffers[j].offset + small->buffers[j].size;
        buffer->pinned = !meets;
        buffer->offset = meets ? 0 : offset;
    }
}

/* --- all orders tried ------------------------------------------------------------------------------------------ */

/* The lowest place of a buffer beside those in `placed`, by trying every offset. */
static uint64_t lowest(const struct small *small, size_t b, const bool *placed, const uint64_t *at)
{
    const struct ull__buffer *buffer = &small->buffers[b];
    uint64_t step = buffer->alignment ? buffer->alignment : 1;
    for (uint64_t offset = 0;; offset += step) {
        bool free = true;
        for (size_t i = 0; i < small->count; i++)
            free &= !placed[i] || !small->conflict[i < b ? i : b][i < b ? b : i] ||
                    at[i] + small->buffers[i].size <= offset || offset + buffer->size <= at[i] ||
                    small->buffers[i].size == 0;
        if (free)
            return offset;
    }
}

static void try_all(const struct small *small, bool *placed, uint64_t *at, uint64_t height,
                    uint64_t *best)
{
    bool complete = true;
    for (size_t b = 0; b < small->count && height < *best; b++) {
        if (placed[b] || small->buffers[b].size == 0)
            continue;
        complete = false;
        at[b] = lowest(small, b, placed, at);
        uint64_t end = at[b] + small->buffers[b].size;
        placed[b] = true;
        try_all(small, placed, at, end > height ? end : height, best);
        placed[b] = false;
    }
    if (complete && height < *best)
        *best = height;
}

static uint64_t lowest_of_all(const struct small *small)
{
    bool placed[SMALL] = {0};
    uint64_t at[SMALL] = {0}, height = 0, best = UINT64_MAX;
    for (size_t i = 0; i < small->count; i++) {
        const struct ull__buffer *buffer = &small->buffers[i];
        if (!buffer->pinned || buffer->size == 0)
            continue;
        placed[i] = true;
        at[i] = buffer->offset;
        height = at[i] + buffer->size > height ? at[i] + buffer->size : height;
    }
    try_all(small, placed, at, height, &best);
    return best;
}

/* --- tests ----------------------------------------------------------------------------------------------------- */

static void solve_with(const struct ull__offsets_problem *problem, uint64_t nodes,
                       unsigned int threads, struct ull__offsets *plan)
{
    const struct ull__offsets_effort effort = {nodes, threads};
    struct ull_error err = {.message = ""};
    struct ull__offsets_problem any = *problem;
    uint64_t height = 0, bound = 0;
    if (ull__offsets_solve(problem, &effort, &err, plan) != ULL_OK)
        fail_msg("%s", err.message);
    any.capacity = ULL__OFFSETS_LOWEST;
    if (ull__offsets_check(&any, plan->offsets, &err, &height) != ULL_OK)
        fail_msg("%s", err.message);
    assert_int_equal(height, plan->height);
    assert_true(plan->lower_bound <= plan->height);
    assert_int_equal(ull__offsets_lower_bound(problem, &err, &bound), ULL_OK);
    assert_int_equal(bound, plan->lower_bound);
    if (problem->capacity != ULL__OFFSETS_LOWEST) {
        assert_true(plan->solved == (plan->height <= problem->capacity));
        assert_true(!plan->infeasible || !plan->solved);
    }
}

static void solve(const struct ull__offsets_problem *problem, struct ull__offsets *plan)
{
    solve_with(problem, 0, 1, plan);
}

/* The lowest plan is found and known to be; just enough capacity is, and a byte less is known to be too little. */
static void beside_all_orders(void **state)
{
    (void)state;
    for (int round = 0; round < 4000; round++) {
        struct small small;
        bool wild = round & 1;
        make_small(&small, round & 2, wild);
        if (round & 4)
            pin_some(&small);
        uint64_t best = lowest_of_all(&small);
        struct ull__offsets_problem problem = {small.buffers, small.count, ULL__OFFSETS_LOWEST,
                                               wild || round & 8 ? ask : NULL, &small};
        struct ull__offsets plan;
        solve(&problem, &plan);
        assert_true(plan.height >= best && plan.lower_bound <= best);
        ull__offsets_finish(&plan);
        solve_with(&problem, 100000, 1, &plan);
        assert_int_equal(plan.height, best);
        assert_true(plan.solved && !plan.infeasible);
        ull__offsets_finish(&plan);
        problem.capacity = best;
        solve_with(&problem, 100000, 1, &plan);
        assert_true(plan.solved && plan.height == best);
        ull__offsets_finish(&plan);
        if (best == 0)
            continue;
        problem.capacity = best - 1;
        solve_with(&problem, 100000, 1, &plan);
        assert_true(!plan.solved && plan.infeasible && plan.height >= best);
        ull__offsets_finish(&plan);
    }
}

/* Forward keeps activations that backward frees in the opposite order, with temporaries on both ways. */
static size_t make_training(struct ull__buffer *buffers, int layers, int kept)
{
    size_t count = 0;
    for (int l = 0; l < layers; l++) {
        uint64_t size = (1 + below(64)) * (4096u << below(8));
        int forward = 4 * l, backward = 4 * (2 * layers - l);
        for (int k = 0; k < kept; k++)
            buffers[count++] = (struct ull__buffer){.size = size / (1 + below(3)) + below(1000),
                                                    .lower = forward + k % 3,
                                                    .upper = backward + 1 + k % 2};
        buffers[count++] = (struct ull__buffer){
            .size = size, .lower = forward, .upper = forward + 1 + (int)below(8)};
        buffers[count++] =
            (struct ull__buffer){.size = size, .lower = backward - 3, .upper = backward + 4};
        if (below(3) == 0)
            buffers[count++] =
                (struct ull__buffer){.size = size / 4, .lower = backward, .upper = 8 * layers + 8};
    }
    for (size_t i = 0; i < count; i++)
        buffers[i].alignment = 256;
    return count;
}

static void large(void **state)
{
    (void)state;
    struct ull__buffer *buffers = calloc(4000, sizeof *buffers);
    assert_non_null(buffers);
    for (int kept = 1; kept <= 3; kept++) {
        size_t count = make_training(buffers, 600, kept);
        struct ull__offsets_problem problem = {
            .buffers = buffers, .count = count, .capacity = ULL__OFFSETS_LOWEST};
        struct ull__offsets plan, again;
        solve(&problem, &plan);
        solve(&problem, &again);
        assert_memory_equal(plan.offsets, again.offsets, count * sizeof *plan.offsets);
        if ((plan.height - plan.lower_bound) * 100 > plan.lower_bound)
            fail_msg("height %llu is over 1 %% above %llu", (unsigned long long)plan.height,
                     (unsigned long long)plan.lower_bound);
        ull__offsets_finish(&plan);
        ull__offsets_finish(&again);
    }
    free(buffers);
}

static void nothing_to_place(void **state)
{
    (void)state;
    struct ull__buffer empty[2] = {{.lower = 0, .upper = 4}, {.lower = 1, .upper = 2}};
    struct ull__offsets_problem problem = {.capacity = 0};
    struct ull__offsets plan;
    solve(&problem, &plan);
    assert_true(plan.solved && plan.height == 0);
    ull__offsets_finish(&plan);
    problem = (struct ull__offsets_problem){.buffers = empty, .count = 2, .capacity = 0};
    solve(&problem, &plan);
    assert_true(plan.solved && plan.height == 0 && plan.count == 2);
    ull__offsets_finish(&plan);
    ull__offsets_finish(&(struct ull__offsets){0});
}

static void refused(const struct ull__buffer *buffers, size_t count, const char *word)
{
    struct ull__offsets_problem problem = {
        .buffers = buffers, .count = count, .capacity = ULL__OFFSETS_LOWEST};
    struct ull__offsets plan = {.height = 77};
    struct ull_error err = {.message = ""};
    uint64_t bound = 77;
    assert_int_equal(ull__offsets_solve(&problem, &(struct ull__offsets_effort){0}, &err, &plan),
                     ULL_E_INVALID);
    if (!strstr(err.message, word))
        fail_msg("'%s' does not say '%s'", err.message, word);
    assert_int_equal(plan.height, 77);
    assert_int_equal(ull__offsets_lower_bound(&problem, NULL, &bound), ULL_E_INVALID);
    assert_int_equal(bound, 77);
}

static void bad_input(void **state)
{
    (void)state;
    const struct ull__buffer good = {.size = 8, .lower = 0, .upper = 1};
    struct ull__buffer pair[2] = {good, good};
    pair[1].alignment = 24;
    refused(pair, 2, "buffer 1 has alignment 24");
    pair[1] = good;
    pair[1].upper = 0;
    refused(pair, 2, "buffer 1 is live from 0 to 0");
    pair[1] = good;
    pair[1].size = UINT64_MAX;
    refused(pair, 2, "2^62");
    pair[0].size = pair[1].size = UINT64_C(1) << 61;
    refused(pair, 2, "2^62");
    pair[0] = pair[1] = good;
    pair[1].alignment = UINT64_C(1) << 63;
    refused(pair, 2, "2^62");
    pair[1] = (struct ull__buffer){
        .size = 8, .alignment = 8, .lower = 0, .upper = 1, .pinned = true, .offset = 4};
    refused(pair, 2, "buffer 1 is pinned to offset 4");
    pair[1].offset = UINT64_MAX - 7;
    refused(pair, 2, "2^62");
    pair[0].pinned = true;
    pair[0].offset = 9;
    pair[1].offset = 8;
    refused(pair, 2, "buffers 0 and 1 are pinned");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_all_orders),
        cmocka_unit_test(large),
        cmocka_unit_test(nothing_to_place),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
