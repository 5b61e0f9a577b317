/*
 * test_plan.c: what a planner promises, on random models: a peak within the budget, a larger budget never slower, the
 * same plan for the same request, the smallest feasible budget, and not a byte less.
 *
 * ULLAGE_PLANS sets how many models.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "explain.h"
#include "plan.h"
#include "random_model.h"
#include "search.h"
#include "zoo.h"

static struct ull__profile device = {.name = "test",
                                     .bytes_per_second = 1e9,
                                     .matrix_per_second = 2e10,
                                     .matrix_half_per_second = 4e10,
                                     .flops_per_second = 1e10,
                                     .link_per_second = 1e9,
                                     .launch_seconds = 1e-6,
                                     .lean_convolution = 1.3,
                                     .bf16 = true,
                                     .f16 = true,
                                     .host_bytes = 1u << 30,
                                     .outside_bytes = 1000,
                                     .alignment = 64};

static struct ull__planner *planner_of(const struct ull__graph *model, int64_t batch, bool plain)
{
    struct ull__plan_request request = {.model = model,
                                        .profile = &device,
                                        .batch = batch,
                                        .optimizer = ULL_OPTIMIZER_ADAM,
                                        .host_bytes = ULL_NONE,
                                        .devices = batch % 8 == 0 ? 4 : 1,
                                        .plain = plain};
    struct ull__planner *planner = NULL;
    struct ull_error err = {{0}};
    if (ull__planner_create(&request, &planner, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return planner;
}

static void check_promises(uint64_t seed)
{
    struct ull__graph *model = random_model(seed, 3 + (int)(seed % 9));
    int64_t batch = 1 + (int64_t)(seed % 12);
    struct ull__planner *planner = planner_of(model, batch, false),
                        *again = planner_of(model, batch, false);
    int count, other;
    const struct ull__plan *plans = ull__planner_plans(planner, &count);
    const struct ull__plan *same = ull__planner_plans(again, &other);
    int smallest = ull__planner_smallest(planner);
    int64_t least = plans[smallest].peak_bytes + (int64_t)device.outside_bytes;
    assert_int_equal(count, other);
    assert_int_equal(ull__planner_choose(planner, least - 1), ULL_NONE);
    assert_int_not_equal(ull__planner_choose(planner, least), ULL_NONE);
    double before = 1e300;
    for (int64_t budget = least; budget < 2 * plans[0].bound_bytes + 2000; budget += budget / 7 + 1) {
        int chosen = ull__planner_choose(planner, budget);
        assert_int_equal(chosen, ull__planner_choose(again, budget));
        const struct ull__plan *plan = &plans[chosen];
        assert_true(plan->peak_bytes + (int64_t)device.outside_bytes <= budget);
        assert_true(plan->bound_bytes <= plan->peak_bytes);
        assert_true(plan->step_seconds <= before);
        int64_t mine = batch % 8 == 0 ? batch / 4 : batch; /* of each device */
        assert_true(plan->micro_batch * plan->accumulation >= mine &&
                    plan->micro_batch * (plan->accumulation - 1) < mine);
        assert_memory_equal(&plan->step_seconds, &same[chosen].step_seconds, sizeof(double));
        before = plan->step_seconds;
        /* Addresses pass the check, and the components are no more than the peak. */
        struct ull__plan_layout layout;
        assert_int_equal(ull__planner_layout(planner, chosen, &layout, NULL), ULL_OK);
        int64_t sum = 0;
        for (int i = 0; i < ULL_ROLES; ++i) {
            assert_true(layout.at_peak[i] >= 0);
            sum += layout.at_peak[i];
        }
        assert_int_equal(sum, plan->bound_bytes);
        ull__plan_layout_finish(&layout);
        struct ull__plan_step steps[ULL_TECHNIQUES];
        int step_count;
        assert_int_equal(ull__plan_steps(planner, chosen, steps, &step_count, NULL), ULL_OK);
        assert_int_equal(steps[step_count - 1].bound_bytes, plan->bound_bytes);
    }
    ull__planner_destroy(planner);
    ull__planner_destroy(again);
    ull__graph_destroy(model);
}

static void promises(void **state)
{
    const char *text = getenv("ULLAGE_PLANS");
    int plans = text != NULL ? atoi(text) : 1000;
    (void)state;
    for (int seed = 1; seed <= plans; ++seed) {
        check_promises((uint64_t)seed);
    }
}

/* The statistics group of batch norm is the user's: it never cuts a group, and a group of the batch allows no cut. */
static void batch_norm_groups_stay_whole(void **state)
{
    struct ull__graph *model;
    (void)state;
    assert_int_equal(ull__zoo_build("resnet20:width=4,image=8", &model, NULL), ULL_OK);
    for (int64_t group = 2; group <= 24; group *= 2) {
        struct ull__plan_request request = {.model = model,
                                            .profile = &device,
                                            .batch = 24,
                                            .bn_group = 24 % group == 0 ? group : 24,
                                            .host_bytes = ULL_NONE};
        struct ull__planner *planner;
        int count;
        assert_int_equal(ull__planner_create(&request, &planner, NULL), ULL_OK);
        const struct ull__plan *plans = ull__planner_plans(planner, &count);
        for (int i = 0; i < count; ++i) {
            assert_int_equal(plans[i].micro_batch % request.bn_group, 0);
            assert_int_equal(plans[i].micro_batch * plans[i].accumulation, 24);
        }
        ull__planner_destroy(planner);
    }
    ull__graph_destroy(model);
}

/* A plan is better than what people do by hand: checkpoints at every nth block. */
static void better_than_checkpoints_by_hand(void **state)
{
    static const char *const models[] = {"resnet50", "unet:image=128", "gpt2-124m:context=256"};
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
        struct ull__graph *model;
        assert_int_equal(ull__zoo_build(models[i], &model, NULL), ULL_OK);
        struct ull__plan_request request = {.model = model,
                                            .profile = &device,
                                            .batch = 16,
                                            .bn_group = 16,
                                            .precision = ULL_PRECISION_F32,
                                            .max_accumulation = 1,
                                            .host_bytes = 0};
        struct ull__planner *planner;
        int count;
        assert_int_equal(ull__planner_create(&request, &planner, NULL), ULL_OK);
        const struct ull__plan *plans = ull__planner_plans(planner, &count);
        const struct ull__program *program = ull__planner_program(planner, 0);
        struct ull__scheduler *scheduler = ull__scheduler_create(program, &device);
        bool *cut = calloc((size_t)program->forward_items + 1, sizeof(*cut));
        for (int every = 1; every <= 6; ++every) {
            struct ull__decision decision;
            struct ull__cost_of cost;
            assert_true(ull__decision_create(program, &decision));
            assert_true(ull__cuts_at_blocks(program, every, cut));
            ull__decide_by_cuts(program, cut, &decision);
            ull__schedule(scheduler, &decision, &cost);
            int64_t peak = cost.peak_bytes + program->persistent_bytes;
            double seconds = cost.micro_seconds + cost.update_seconds;
            int at = 0;
            while (at + 1 < count && plans[at].bound_bytes > peak) {
                at += 1;
            }
            assert_true(plans[at].bound_bytes <= peak);
            assert_true(plans[at].step_seconds < seconds);
            ull__decision_finish(&decision);
        }
        free(cut);
        ull__scheduler_destroy(scheduler);
        ull__planner_destroy(planner);
        ull__graph_destroy(model);
    }
}

static void bad_requests(void **state)
{
    struct ull__graph *model = random_model(1, 4);
    struct ull__planner *planner = NULL;
    struct ull_error err = {{0}};
    (void)state;
    struct ull__plan_request request = {.model = model, .profile = &device, .host_bytes = ULL_NONE};
    assert_int_equal(ull__planner_create(&request, &planner, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "batch of 0"));
    request.batch = 10;
    request.bn_group = 3;
    assert_int_equal(ull__planner_create(&request, &planner, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "groups of 3"));
    request.bn_group = 0;
    request.devices = 3;
    assert_int_equal(ull__planner_create(&request, &planner, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "3 devices"));
    assert_null(planner);
    ull__graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises),
        cmocka_unit_test(batch_norm_groups_stay_whole),
        cmocka_unit_test(better_than_checkpoints_by_hand),
        cmocka_unit_test(bad_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
