/*
 * test_learning.c: times that steps show take the place of those that were measured alone; a choice goes by them, and is made only
 * where one is asked for.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_private.h"
#include "trainee.h"

#define TOKENS "gpt-char:context=12,vocab=20,layers=2,width=32,heads=2"

static struct ull__session_options options(int64_t batch)
{
    return (struct ull__session_options){
        .budget_bytes = UINT64_C(1) << 32,
        .plan = {.batch = batch, .precision = ULL_PRECISION_F32, .optimizer = ULL_OPTIMIZER_ADAMW}};
}

/* Not those of updates, which are the same in all plans. */
static bool is_own(const struct ull__bucket *bucket, int item)
{
    return !bucket->program->items[item].update && !bucket->program->items[item].prologue;
}

/* How many times as long the plan's own kernels must take for its step to take `seconds`. */
static double times_for(const struct ull__session *session, const double *prices, double now,
                        double seconds)
{
    double sum = 0;
    for (int i = 0; i < session->at->program->item_count; ++i) {
        sum += is_own(session->at, i) ? session->at->pace.weights[i] * prices[i] : 0;
    }
    return (sum + seconds - now) / sum;
}

/* Tells the meter that the kernels of the plan in force take `times` as long as it says. */
static void tell(struct ull__session *session, const double *prices, double times, int steps)
{
    struct ull__bucket *bucket = session->at;
    int count = bucket->program->item_count;
    struct ull__took *took = calloc((size_t)count, sizeof(*took));
    for (int step = 0; step < steps; ++step) {
        for (int i = 0; i < count; ++i) {
            double here = is_own(bucket, i) ? times : 1;
            took[i] =
                (struct ull__took){prices[i] > 0 ? 2 * here * prices[i] : 0, prices[i] > 0 ? 2 : 0};
        }
        ull__meter_learn(session->meter, bucket->pace.full, took, count, 1);
    }
    free(took);
}

static double *prices_of(const struct ull__session *session)
{
    int count = session->at->program->item_count;
    double *prices = calloc((size_t)count, sizeof(*prices));
    for (int i = 0; i < count; ++i) {
        prices[i] = ull__meter_price(session->meter, &session->at->pace.full[i]);
    }
    return prices;
}

static double price(struct ull__session *session)
{
    assert_true(ull__session_reprice(session));
    return ull__bucket_plan(session->at)->step_seconds;
}

static void kernels_are_learned(void **state)
{
    (void)state;
    struct trainee *trainee = trainee_create(TOKENS, options(8));
    struct ull__session *session = trainee->session;
    int count = session->at->program->item_count, plans;
    double *prices = prices_of(session), before = price(session);
    const struct ull__plan *all = ull__planner_plans(session->at->planner, &plans);
    double other = all[plans - 1].step_seconds;
    assert_true(all[plans - 1].micro_batch < all[session->at->plan].micro_batch);
    tell(session, prices, 3, 5);
    for (int i = 0; i < count; ++i) {
        double now = ull__meter_price(session->meter, &session->at->pace.full[i]);
        double wanted = is_own(session->at, i) ? 3 * prices[i] : prices[i];
        assert_true(prices[i] <= 0 || fabs(now / wanted - 1) < 0.01);
    }
    double times = price(session) / before;
    assert_true(times > 1.5 && times < 3.1);
    /* Kernels with other numbers of samples were not seen, and are thought to be like these. */
    double others = all[plans - 1].step_seconds / other;
    assert_true(others > 1.5 && others < 3.1);
    /* Two steps that were disturbed change nothing. */
    tell(session, prices, 100, 2);
    assert_true(fabs(price(session) / before - times) < 0.05);
    tell(session, prices, 1, 5);
    assert_true(fabs(price(session) / before - 1) < 0.05);
    free(prices);
    trainee_destroy(trainee);
}

/* What steps take says how fast the machine is, for all plans. */
static void predictions_follow_steps(void **state)
{
    (void)state;
    struct trainee *trainee = trainee_create(TOKENS, options(8));
    struct ull__session_info info;
    double low = 1e30, high = 0;
    for (int i = 0; i < 8; ++i) {
        struct ull__step_result result;
        assert_int_equal(ull__session_step(trainee->session, &trainee->source, 0.01, &result, NULL),
                         ULL_OK);
        assert_true(result.predicted_seconds > 0);
        low = i > 0 && result.seconds < low ? result.seconds : low;
        high = i > 0 && result.seconds > high ? result.seconds : high;
    }
    ull__session_info(trainee->session, &info);
    const struct ull__session_bucket *bucket = &info.buckets[0];
    assert_true(bucket->measured_seconds >= low && bucket->measured_seconds <= high);
    assert_true(fabs(bucket->predicted_seconds / bucket->measured_seconds - 1) < 1e-6);
    assert_true(trainee->session->load > 0 && trainee->session->besides >= 0);
    assert_true(fabs(price(trainee->session) / bucket->predicted_seconds - 1) < 0.5);
    trainee_destroy(trainee);
}

static void choices_go_by_what_was_learned(void **state)
{
    (void)state;
    struct trainee *trainee = trainee_create(TOKENS, options(2));
    struct ull__session *session = trainee->session;
    struct ull__session_info first, second, now;
    double *large = prices_of(session);
    bool changed = true;
    ull__session_info(session, &first);
    tell(session, large, 1, 5);
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, 0, 0, &changed, NULL), ULL_OK);
    assert_false(changed);
    /* The other micro-batch, which turns out to take less time. */
    bool halves = first.chosen->micro_batch == 2;
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, halves ? 0 : 2, halves ? 1 : 0,
                                         &changed, NULL),
                     ULL_OK);
    assert_true(changed);
    double before = first.chosen->step_seconds;
    ull__session_info(session, &second);
    double *small = prices_of(session), now_seconds = price(session);
    tell(session, small, times_for(session, small, now_seconds, 0.8 * before), 5);
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, 0, 0, &changed, NULL), ULL_OK);
    ull__session_info(session, &now);
    assert_int_equal(now.chosen->micro_batch, second.chosen->micro_batch);
    assert_true(now.buckets[0].planned_seconds > first.buckets[0].planned_seconds);
    /* And then twice as long. */
    tell(session, small, times_for(session, small, now_seconds, 2 * before), 5);
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, 0, 0, &changed, NULL), ULL_OK);
    ull__session_info(session, &now);
    assert_true(changed && now.chosen->micro_batch != second.chosen->micro_batch);
    free(small);
    free(large);
    trainee_destroy(trainee);
}

/* A plan is not left for what is hardly any faster. */
static void plans_do_not_flap(void **state)
{
    (void)state;
    struct trainee *trainee = trainee_create(TOKENS, options(2));
    struct ull__session *session = trainee->session;
    bool changed;
    double *one = prices_of(session);
    tell(session, one, 1, 5);
    double before = price(session);
    bool halves = ull__bucket_plan(session->at)->micro_batch == 2;
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, halves ? 0 : 2, halves ? 1 : 0,
                                         &changed, NULL),
                     ULL_OK);
    assert_true(changed);
    double *other = prices_of(session), now = price(session);
    int64_t micro = ull__bucket_plan(session->at)->micro_batch;
    tell(session, other, times_for(session, other, now, 1.03 * before), 5);
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, 0, 0, &changed, NULL), ULL_OK);
    assert_false(changed);
    assert_int_equal(ull__bucket_plan(session->at)->micro_batch, micro);
    tell(session, other, times_for(session, other, now, 1.2 * before), 5);
    assert_int_equal(ull__session_replan(session, UINT64_C(1) << 32, 0, 0, &changed, NULL), ULL_OK);
    assert_true(changed);
    free(other);
    free(one);
    trainee_destroy(trainee);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_learned),
        cmocka_unit_test(predictions_follow_steps),
        cmocka_unit_test(choices_go_by_what_was_learned),
        cmocka_unit_test(plans_do_not_flap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
