/*
 * test_buckets.c: samples of several lengths over the same weights: what is computed is what each sample gives alone, and memory is
 * what was predicted, that of the largest.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_private.h"
#include "trainee.h"
#include "zoo.h"

#define MODEL "gpt-char:context=24,vocab=13,layers=2,width=16,heads=2"
enum { WHOLE = 24, VOCAB = 13, SAMPLES = 48, BATCH = 6 };

/* Documents whose lengths come from a list, one for each batch or mixed. */
struct documents {
    int64_t first;
    int64_t length[SAMPLES];
};

static int32_t token(int64_t sample, int64_t i)
{
    return (int32_t)((sample * 7 + i * 5 + i * i * sample % 11) % VOCAB);
}

static uint64_t valid(void *context, int64_t first, int64_t count)
{
    const struct documents *d = context;
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        sum += (uint64_t)d->length[d->first + first + i];
    }
    return sum;
}

static int64_t longest(void *context, int64_t first, int64_t count)
{
    const struct documents *d = context;
    int64_t most = 0;
    for (int64_t i = 0; i < count; ++i) {
        int64_t length = d->length[d->first + first + i];
        most = length > most ? length : most;
    }
    return most;
}

static ull_status read_documents(void *context, int64_t first, int64_t count, void *x,
                                 int32_t *targets, struct ull_error *err)
{
    const struct documents *d = context;
    (void)err;
    for (int64_t i = 0; i < count; ++i) {
        int64_t sample = d->first + first + i;
        for (int64_t j = 0; j < WHOLE; ++j) {
            bool there = j < d->length[sample];
            ((int32_t *)x)[i * WHOLE + j] = there ? token(sample, j) : 0;
            targets[i * WHOLE + j] = there ? token(sample, j + 1) : -100;
        }
    }
    return ULL_OK;
}

struct world {
    struct ull__graph *shorter[2];
    struct trainee *trainee;
    struct documents documents;
    struct ull__source source;
};

static void open_world(struct world *world, bool buckets, uint64_t budget)
{
    const char *const models[] = {MODEL ",length=8", MODEL ",length=15"};
    struct ull_error err = {{0}};
    *world = (struct world){.source = {.valid = valid, .length = longest, .read = read_documents}};
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(ull__zoo_build(models[i], &world->shorter[i], &err), ULL_OK);
    }
    struct ull__session_options options = {
        .budget_bytes = budget,
        .rates = true,
        .shorter = (const struct ull__graph *const *)world->shorter,
        .shorter_count = buckets ? 2 : 0,
        .plan = {.batch = BATCH,
                 .bn_group = 1,
                 .precision = ULL_PRECISION_F32,
                 /* AdamW makes steps of noise, as of a key's bias */
                 .optimizer = ULL_OPTIMIZER_SGD}};
    world->trainee = trainee_create(MODEL, options);
    world->source.context = &world->documents;
    for (int64_t i = 0; i < SAMPLES; ++i) {
        /* Batches of up to 5, 24, 13 and 8 tokens in turns. */
        const int64_t most[] = {5, 24, 13, 8};
        world->documents.length[i] = most[i / BATCH % 4] - i * 3 % 4;
    }
}

static void close_world(struct world *world)
{
    trainee_destroy(world->trainee);
    for (int i = 0; i < 2; ++i) {
        ull__graph_destroy(world->shorter[i]);
    }
}

static struct ull__step_result step(struct world *world)
{
    struct ull__step_result result;
    struct ull_error err = {{0}};
    if (ull__session_step(world->trainee->session, &world->source, 0.01, &result, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    world->documents.first += BATCH;
    return result;
}

/* The mean over the targets of the batch, each document alone in the model of just its length. */
static double alone(struct world *world)
{
    struct ull__session *from = world->trainee->session;
    double sum = 0;
    uint64_t targets = 0;
    for (int64_t i = 0; i < BATCH; ++i) {
        int64_t sample = world->documents.first + i, length = world->documents.length[sample];
        char model[160];
        int count, others;
        snprintf(model, sizeof(model), MODEL ",length=%lld", (long long)length);
        struct trainee *one = trainee_create(
            model, (struct ull__session_options){.budget_bytes = UINT64_C(1) << 32,
                                                 .rates = true,
                                                 .backend = from->backend,
                                                 .plan = {.batch = 1,
                                                          .bn_group = 1,
                                                          .precision = ULL_PRECISION_F32,
                                                          .plain = true,
                                                          .optimizer = ULL_OPTIMIZER_SGD}});
        const struct ull__session_tensor *weights = ull__session_tensors(from, &count);
        const struct ull__session_tensor *to = ull__session_tensors(one->session, &others);
        for (int a = 0; a < others; ++a) {
            for (int b = 0; b < count; ++b) {
                if (to[a].role == ULL_ROLE_PARAMETER && weights[b].role == ULL_ROLE_PARAMETER &&
                    strcmp(to[a].name, weights[b].name) == 0) {
                    memcpy(to[a].data, weights[b].data, to[a].bytes);
                }
            }
        }
        int32_t x[WHOLE], y[WHOLE];
        float logits[VOCAB];
        for (int64_t j = 0; j < length; ++j) {
            x[j] = token(sample, j);
            y[j] = token(sample, j + 1);
        }
        for (int64_t j = 0; j < length; ++j) {
            struct ull_error err;
            assert_int_equal(ull__session_logits(one->session, x, j, logits, &err), ULL_OK);
            double all = 0;
            for (int k = 0; k < VOCAB; ++k) {
                all += exp((double)logits[k]);
            }
            sum += log(all) - (double)logits[y[j]];
            targets += 1;
        }
        trainee_destroy(one);
    }
    return sum / (double)targets;
}

static void a_batch_is_its_documents(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, true, UINT64_C(1) << 32);
    const int64_t ran[] = {8, 24, 15, 8};
    for (int i = 0; i < 4; ++i) {
        double expected = alone(&world);
        struct ull__step_result result = step(&world);
        assert_int_equal(result.length, ran[i]);
        assert_int_equal(result.targets, valid(&world.documents, -BATCH, BATCH));
        if (!(fabs(result.loss - expected) < 1e-6 * expected)) {
            fail_msg("step %d: %.9g, alone %.9g", i, result.loss, expected);
        }
    }
    close_world(&world);
}

/* All filled up to the longest: the same training, but for the order of sums. */
static void buckets_change_time_alone(void **state)
{
    (void)state;
    struct world bucketed, filled;
    open_world(&bucketed, true, UINT64_C(1) << 32);
    open_world(&filled, false, UINT64_C(1) << 32);
    for (int i = 0; i < 8; ++i) {
        double a = step(&bucketed).loss, b = step(&filled).loss;
        assert_true(fabs(a - b) < 1e-6 * fabs(b));
    }
    double difference = trainee_difference(bucketed.trainee, filled.trainee);
    if (!(difference < 2e-5)) {
        fail_msg("weights differ by %g", difference);
    }
    struct ull__evaluation a, b;
    int32_t said[SAMPLES * WHOLE] = {0}, wanted[SAMPLES * WHOLE] = {0};
    struct ull_error err;
    bucketed.documents.first = filled.documents.first = 0;
    assert_int_equal(
        ull__session_evaluate(bucketed.trainee->session, &bucketed.source, SAMPLES, said, &a, &err),
        ULL_OK);
    assert_int_equal(
        ull__session_evaluate(filled.trainee->session, &filled.source, SAMPLES, wanted, &b, &err),
        ULL_OK);
    assert_true(a.valid == b.valid && fabs(a.loss - b.loss) < 1e-5 * b.loss);
    int other = 0;
    for (int i = 0; i < SAMPLES * WHOLE; ++i) {
        other += i % WHOLE < bucketed.documents.length[i / WHOLE] && said[i] != wanted[i];
    }
    assert_true(other <= 2); /* of equal logits */
    close_world(&bucketed);
    close_world(&filled);
}

static uint64_t largest(const struct ull__session_info *info)
{
    uint64_t most = 0;
    for (int i = 0; i < info->bucket_count; ++i) {
        most = info->buckets[i].step_bytes > most ? info->buckets[i].step_bytes : most;
    }
    return most;
}

static void memory_is_that_of_the_largest(void **state)
{
    (void)state;
    struct world world;
    struct ull__session_info info;
    int count, again;
    open_world(&world, true, UINT64_C(1) << 32);
    struct ull__session *session = world.trainee->session;
    ull__session_info(session, &info);
    assert_int_equal(info.bucket_count, 3);
    assert_int_equal(info.predicted_peak_bytes, info.persistent_bytes + largest(&info));
    uint64_t whole = info.predicted_peak_bytes;
    step(&world); /* 5 tokens */
    ull__session_info(session, &info);
    assert_int_equal(info.measured_peak_bytes, info.expected_peak_bytes);
    assert_true(info.expected_peak_bytes < whole);
    step(&world); /* 24 */
    ull__session_info(session, &info);
    assert_int_equal(info.measured_peak_bytes, whole);
    assert_int_equal(info.expected_peak_bytes, whole);
    /* A smaller budget while it runs: other plans, the same weights in the same places. */
    const void *data = ull__session_tensors(session, &count)[0].data;
    bool changed = false;
    struct ull_error err = {{0}};
    int64_t micro = info.chosen->micro_batch;
    if (ull__session_replan(session, whole * 3 / 5, 0, 0, &changed, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(changed);
    assert_ptr_equal(ull__session_tensors(session, &again)[0].data, data);
    for (int i = 0; i < 6; ++i) {
        double expected = alone(&world), loss = step(&world).loss;
        assert_true(fabs(loss - expected) < 1e-6 * expected);
    }
    ull__session_info(session, &info);
    assert_true(info.measured_peak_bytes == info.predicted_peak_bytes &&
                info.predicted_peak_bytes <= whole * 3 / 5);
    /* Bounds of the longest are of as many tokens for the others. */
    assert_int_equal(ull__session_replan(session, whole, 0, 2, &changed, &err), ULL_OK);
    ull__session_info(session, &info);
    assert_true(info.chosen->micro_batch <= 2 && micro > 2);
    assert_true(info.buckets[0].chosen->micro_batch <= 6);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_its_documents),
        cmocka_unit_test(buckets_change_time_alone),
        cmocka_unit_test(memory_is_that_of_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
