/*
 * test_techniques.c: what a plan does to a training: nothing but memory and time.
 *
 * Models are small, and have what is hard to recompute: batch norm, dropout, attention that drops.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "shuffle.h"
#include "trainee.h"

/* Sanitizers look at each once. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FEW = 1 };
#else
enum { FEW = 0 };
#endif

/* Whose activations are large enough to be sent. */
#define LONG "gpt-char:context=256,vocab=20,layers=1,width=128,heads=1"
#define PICTURES "resnet20:image=8,channels=3,width=8,classes=10"
#define TOKENS "gpt-char:context=12,vocab=20,layers=2,width=32,heads=2,dropout=0.1"

/* Loss in turns adds in another order; the rest only moves memory and time. */
static bool whole_loss(void *context, int64_t length, const struct ull__plan *plan)
{
    (void)context;
    (void)length;
    return !plan->chunked_loss;
}

static struct ull__session_options options(uint64_t budget, int64_t batch)
{
    return (struct ull__session_options){.budget_bytes = budget,
                                         .rates = true,
                                         .accepts = whole_loss,
                                         .plan = {.batch = batch,
                                                  .bn_group = 4,
                                                  .precision = ULL_PRECISION_F32,
                                                  .optimizer = ULL_OPTIMIZER_ADAMW,
                                                  .max_accumulation = 1}};
}

static const struct ull__plan *plan_of(struct trainee *trainee, uint64_t *peak)
{
    struct ull__session_info info;
    ull__session_info(trainee->session, &info);
    *peak = info.predicted_peak_bytes;
    return info.chosen;
}

static uint64_t smallest(struct trainee *trainee)
{
    struct ull__session_info info;
    ull__session_info(trainee->session, &info);
    int count, least = ull__planner_smallest((struct ull__planner *)(uintptr_t)info.planner);
    return (uint64_t)ull__planner_plans(info.planner, &count)[least].peak_bytes;
}

static void is_as_predicted(struct trainee *trainee)
{
    struct ull__session_info info;
    ull__session_info(trainee->session, &info);
    assert_int_equal(info.measured_peak_bytes, info.predicted_peak_bytes);
}

/* The smallest of these. */
static uint64_t smallest_whole(struct trainee *trainee)
{
    struct ull__session_info info;
    int count;
    int64_t least = INT64_MAX;
    ull__session_info(trainee->session, &info);
    const struct ull__plan *plans = ull__planner_plans(info.planner, &count);
    for (int i = 0; i < count; ++i) {
        int64_t peak = plans[i].chunked_loss
                           ? INT64_MAX
                           : ull__planner_place((struct ull__planner *)(uintptr_t)info.planner, i);
        least = peak < least ? peak : least;
    }
    return (uint64_t)least;
}

/* The same micro-batch in less memory: not a bit may differ. */
static void recomputation_changes_nothing(const char *model, enum ull__precision precision)
{
    struct ull__session_options wide = options(UINT64_C(1) << 32, 8);
    wide.plan.precision = precision;
    struct trainee *a = trainee_create(model, wide);
    struct ull__session_options tight = wide;
    tight.budget_bytes = smallest_whole(a);
    struct trainee *b = trainee_create(model, tight);
    uint64_t large, small;
    plan_of(a, &large);
    assert_true(plan_of(b, &small)->cost.dropped_bytes > 0);
    assert_true(small < large);
    for (int i = 0; i < 3; ++i) {
        assert_true(trainee_step(a, 0.01) == trainee_step(b, 0.01));
    }
    assert_true(trainee_same(a, b));
    is_as_predicted(a);
    is_as_predicted(b);
    trainee_destroy(a);
    trainee_destroy(b);
}

static void recomputed_pictures(void **state)
{
    (void)state;
    recomputation_changes_nothing(PICTURES, ULL_PRECISION_BF16);
    if (!FEW) {
        recomputation_changes_nothing(PICTURES, ULL_PRECISION_F32);
    }
}

static void recomputed_tokens(void **state)
{
    (void)state;
    recomputation_changes_nothing(TOKENS, ULL_PRECISION_F16);
    if (!FEW) {
        recomputation_changes_nothing(TOKENS, ULL_PRECISION_F32);
    }
}

/* Activations and the optimizer's state in a second region: the same bits, fewer bytes in the first. */
static void offload_changes_nothing(void **state)
{
    (void)state;
    static const char *const models[] = {PICTURES, TOKENS};
    for (int i = FEW; i < 2; ++i) {
        struct ull__session_options plain = options(UINT64_C(1) << 32, 8), offloaded = plain;
        offloaded.plan.host_bytes = 1 << 30;
        struct trainee *a = trainee_create(models[i], plain);
        struct trainee *probe = trainee_create(models[i], offloaded);
        offloaded.budget_bytes = smallest_whole(probe);
        assert_true(offloaded.budget_bytes < smallest_whole(a));
        trainee_destroy(probe);
        struct trainee *b = trainee_create(models[i], offloaded);
        uint64_t peak;
        const struct ull__plan *plan = plan_of(b, &peak);
        assert_true(plan->offload_optimizer);
        assert_true(peak <= offloaded.budget_bytes);
        for (int j = 0; j < 3; ++j) {
            assert_true(trainee_step(a, 0.01) == trainee_step(b, 0.01));
        }
        assert_true(trainee_same(a, b));
        is_as_predicted(b);
        trainee_destroy(a);
        trainee_destroy(b);
    }
}

/* Queues run in any order that their events allow; and kernels write where they may, and nowhere else. */
static void any_order_gives_the_same_bits(void **state)
{
    (void)state;
    struct ull_error err;
    struct ull__backend *cpu;
    assert_int_equal(ull__cpu_create(&(struct ull__cpu_options){.threads = 2}, &cpu, &err), ULL_OK);
    struct ull__session_options inner = options(UINT64_C(1) << 32, 8);
    inner.plan.host_bytes = 1 << 30;
    struct trainee *probe = trainee_create(TOKENS, inner);
    inner.budget_bytes = smallest_whole(probe);
    trainee_destroy(probe);
    struct trainee *straight = trainee_create(TOKENS, inner);
    for (unsigned int seed = 1; seed <= (FEW ? 1 : 3); ++seed) {
        struct ull__session_options shuffled = inner;
        shuffled.backend = shuffle_create(cpu, seed);
        struct trainee *trainee = trainee_create(TOKENS, shuffled);
        struct ull__session_info info;
        int count;
        ull__session_info(trainee->session, &info);
        assert_true(info.chosen->offload_optimizer);
        /* Weights and state lie in the persistent region, from its first tensor on. */
        const struct ull__session_tensor *tensors = ull__session_tensors(trainee->session, &count);
        char *begin = tensors[0].data;
        for (int i = 0; i < count; ++i) {
            begin = tensors[i].role == ULL_ROLE_PARAMETER && (char *)tensors[i].data < begin
                        ? tensors[i].data
                        : begin;
        }
        shuffle_watch(shuffled.backend, begin, (size_t)info.persistent_bytes);
        for (int i = 0; i < 2; ++i) {
            double loss = trainee_step(trainee, 0.01);
            assert_true(loss == (seed == 1 ? trainee_step(straight, 0.01) : loss));
        }
        assert_true(trainee_same(trainee, straight));
        assert_true(shuffle_choices(shuffled.backend) > 0);
        assert_int_equal(shuffle_strays(shuffled.backend), 0);
        trainee_destroy(trainee);
        shuffled.backend->ops->destroy(shuffled.backend);
    }
    trainee_destroy(straight);
    cpu->ops->destroy(cpu);
}

/* Micro-batches of any size, the last one smaller: the same training but for rounding. */
static void accumulation_is_the_same_training(void **state)
{
    (void)state;
    struct ull__session_options whole = options(UINT64_C(1) << 32, 67);
    whole.plan.bn_group = 0;
    whole.plan.optimizer =
        ULL_OPTIMIZER_SGD; /* Adam makes steps of rounding errors where a gradient is zero */
    struct trainee *a = trainee_create("lenet:image=28,channels=1,classes=10", whole);
    struct ull__session_options split = whole;
    split.plan.max_accumulation = 4;
    struct trainee *b = trainee_create("lenet:image=28,channels=1,classes=10", split);
    bool changed;
    struct ull_error err;
    assert_int_equal(ull__session_replan(b->session, smallest(b), 0, 0, &changed, &err), ULL_OK);
    assert_true(changed);
    uint64_t peak;
    assert_true(plan_of(b, &peak)->micro_batch < 67); /* 67 is prime: the last one is smaller */
    for (int i = 0; i < 5; ++i) {
        double x = trainee_step(a, 0.01), y = trainee_step(b, 0.01);
        assert_true(fabs(x - y) < 1e-5 * fabs(x));
        b->first = a->first;
    }
    assert_true(trainee_difference(a, b) < 1e-5);
    trainee_destroy(a);
    trainee_destroy(b);
}

/* Between steps a plan may change: weights stay, the training goes on. */
static bool has_state_there(void *context, int64_t length, const struct ull__plan *plan)
{
    (void)context;
    (void)length;
    return plan->offload_optimizer;
}

/* With the optimizer's state in it, which goes along. */
static void the_second_region_may_grow(void **state)
{
    (void)state;
    struct ull__session_options o = options(UINT64_C(1) << 32, 8);
    o.accepts = has_state_there;
    o.plan.max_accumulation = 1;
    o.plan.host_bytes = INT64_C(1) << 30;
    /* Copies take little time, and kernels much: what does not stay is sent. */
    struct ull__profile profile = trainee_profile;
    profile.link_per_second = 1e13;
    profile.matrix_per_second = profile.flops_per_second = 1e7;
    o.plan.profile = &profile;
    struct trainee *a = trainee_create(LONG, o), *b = trainee_create(LONG, o);
    struct ull__session_info before, after;
    int grown = 0;
    for (int i = 0; i < 100 && grown < 2; ++i) {
        bool changed;
        ull__session_info(b->session, &before);
        trainee_step(a, 0.001);
        trainee_step(b, 0.001);
        if (ull__session_replan(b->session, before.predicted_peak_bytes * 9 / 10, 0, 0, &changed,
                                NULL) != ULL_OK) {
            break;
        }
        ull__session_info(b->session, &after);
        assert_true(after.chosen->offload_optimizer);
        grown += after.host_bytes > before.host_bytes;
        assert_true(trainee_step(a, 0.001) == trainee_step(b, 0.001));
    }
    assert_true(grown > 0);
    assert_true(trainee_same(a, b));
    trainee_destroy(a);
    trainee_destroy(b);
}

static void a_plan_may_change(void **state)
{
    (void)state;
    struct ull__session_options o = options(UINT64_C(1) << 32, 8);
    o.plan.max_accumulation = 0;
    struct trainee *a = trainee_create(TOKENS, o), *b = trainee_create(TOKENS, o);
    struct ull_error err;
    bool changed;
    uint64_t before, after;
    for (int i = 0; i < 6; ++i) {
        if (i == 2) {
            plan_of(b, &before);
            assert_int_equal(ull__session_replan(b->session, smallest(b), 0, 0, &changed, &err),
                             ULL_OK);
            assert_true(changed);
            plan_of(b, &after);
            assert_true(after < before);
        }
        if (i == 4) {
            assert_int_equal(
                ull__session_replan(b->session, UINT64_C(1) << 32, 0, 0, &changed, &err), ULL_OK);
            assert_true(changed);
        }
        double x = trainee_step(a, 0.001), y = trainee_step(b, 0.001);
        assert_true(fabs(x - y) < 1e-4 * fabs(x));
        is_as_predicted(b);
    }
    assert_int_equal(ull__session_replan(b->session, 1000, 0, 0, &changed, &err), ULL_E_NO_MEMORY);
    trainee_step(b, 0.001);
    trainee_destroy(a);
    trainee_destroy(b);
}

/* An overflow: nothing is updated, the scale falls; without one the schedule goes on. */
static void overflows_are_skipped(void **state)
{
    (void)state;
    struct ull__session_options o = options(UINT64_C(1) << 32, 8);
    o.plan.precision = ULL_PRECISION_F16;
    o.plan.scale.hysteresis = 1;
    o.initial_loss_scale = 3e38;
    struct trainee *a = trainee_create(TOKENS, o);
    o.initial_loss_scale = 128;
    struct trainee *fresh = trainee_create(TOKENS, o);
    struct ull__session_info info;
    trainee_step(a, 0.01);
    ull__session_info(a->session, &info);
    assert_int_equal(info.steps, 0);
    assert_true(info.loss_scale < 3e38);
    assert_true(trainee_same(a, fresh));
    int steps = 0;
    while (info.steps == 0 && steps++ < 200) {
        a->first = 0;
        trainee_step(a, 0.01);
        ull__session_info(a->session, &info);
    }
    assert_int_equal(info.steps, 1);
    assert_true(info.loss_scale >= 1);
    trainee_destroy(a);
    trainee_destroy(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offload_changes_nothing), /* threads that compute, and that copy */
#if !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(recomputed_pictures),
        cmocka_unit_test(recomputed_tokens),
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(accumulation_is_the_same_training),
        cmocka_unit_test(a_plan_may_change),
        cmocka_unit_test(the_second_region_may_grow),
        cmocka_unit_test(overflows_are_skipped),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
