/*
 * test_parallel.c: layers over devices: parts are those of the whole, one part that is everything needs what one device does,
 * and plans keep their promises.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cut.h"
#include "random_model.h"
#include "zoo.h"

static const struct ull__profile device = {.name = "test",
                                           .bytes_per_second = 1e9,
                                           .matrix_per_second = 2e10,
                                           .matrix_half_per_second = 4e10,
                                           .flops_per_second = 1e10,
                                           .link_per_second = 1e9,
                                           .launch_seconds = 1e-6,
                                           .lean_convolution = 1.3,
                                           .bf16 = true,
                                           .f16 = true,
                                           .outside_bytes = 1000,
                                           .alignment = 64};

static struct ull__program *program_of(struct ull__graph *model, int64_t batch, bool accumulate,
                                       int64_t *values)
{
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAM, .accumulate = accumulate};
    struct ull__program *program = NULL;
    assert_int_equal(ull__step_build(model, &options, NULL), ULL_OK);
    ull__graph_values(model, batch, values);
    assert_int_equal(ull__program_create(model, values, &device, &program, NULL), ULL_OK);
    return program;
}

/* Random decisions about what is dropped. */
static void decide(const struct ull__program *program, uint64_t *seed, struct ull__decision *decision)
{
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (buffer->forward && buffer->item != ULL_NONE && !buffer->result) {
            decision->keep[i] = random_below(seed, 3) == 0 ? ULL_DROP : ULL_KEEP;
        }
    }
}

/* One part with all units needs at once what the scheduler says, and takes as long. */
static void everything_on_one_device(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        uint64_t random = seed;
        int64_t values[ULL_SYMBOLS];
        struct ull__graph *model = random_model(seed, 3 + (int)(seed % 14));
        struct ull__program *program = program_of(model, 8, seed % 2 == 0, values);
        struct ull__scheduler *scheduler = ull__scheduler_create(program, &device);
        struct ull__decision decision;
        struct ull__cost_of cost;
        struct ull__units units;
        assert_true(ull__decision_create(program, &decision));
        decide(program, &random, &decision);
        ull__schedule(scheduler, &decision, &cost);
        assert_true(ull__units_create(program, values, &units));
        struct ull__cut_schedule *cut = ull__cut_create(&units, &device, &decision, NULL);
        struct ull__stage stage = {.first = 0, .last = units.count - 1, .in_flight = 1};
        assert_true(ull__cut_stage(cut, false, &stage));
        assert_int_equal(stage.passing_bytes, cost.peak_bytes - program->step_bytes);
        assert_int_equal(stage.persistent_bytes, program->persistent_bytes + program->step_bytes);
        assert_int_equal(stage.sent_bytes, 0);
        assert_true(stage.seconds > cost.micro_seconds * 0.999999 &&
                    stage.seconds < cost.micro_seconds * 1.000001);
        assert_int_equal(stage.parameters, ull__graph_parameters(model));
        /* Of several in flight, what is kept and what passes are apart. */
        stage.in_flight = 3;
        int64_t together = stage.passing_bytes;
        assert_true(ull__cut_stage(cut, false, &stage));
        assert_true(stage.kept_bytes + stage.passing_bytes >= together);
        assert_true(stage.kept_bytes <= together && stage.passing_bytes <= together);
        ull__cut_destroy(cut);
        ull__units_destroy(&units);
        ull__decision_finish(&decision);
        ull__scheduler_destroy(scheduler);
        ull__program_destroy(program);
        ull__graph_destroy(model);
    }
}

static struct ull__parallel *parallel_of(const char *name, enum ull__parallel_kind kind,
                                         int devices, int64_t batch, struct ull__graph **model)
{
    struct ull__parallel *made = NULL;
    struct ull_error err = {{0}};
    assert_int_equal(ull__zoo_build(name, model, NULL), ULL_OK);
    struct ull__plan_request request = {.model = *model,
                                        .profile = &device,
                                        .batch = batch,
                                        .bn_group = 1,
                                        .precision = ULL_PRECISION_BF16,
                                        .max_accumulation = 6,
                                        .optimizer = ULL_OPTIMIZER_ADAM};
    if (ull__parallel_create(&request, kind, devices, &made, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return made;
}

static void check_plan(const struct ull__parallel_plan *plan, const struct ull__plan *source,
                       enum ull__parallel_kind kind, int devices, int64_t parameters)
{
    int next = 0;
    int64_t most = 0, all = 0;
    for (int i = 0; i < devices; ++i) {
        const struct ull__stage *stage = &plan->stages[i];
        int flying = kind == ULL_PARALLEL_PIPELINE ? devices - i : 1;
        assert_int_equal(stage->first, next);
        assert_true(stage->last >= stage->first);
        assert_int_equal(stage->in_flight,
                         flying < source->accumulation ? flying : source->accumulation);
        assert_int_equal(stage->peak_bytes, stage->persistent_bytes + stage->passing_bytes +
                                                stage->in_flight * stage->kept_bytes);
        assert_true(stage->sent_bytes > 0);
        most = stage->peak_bytes > most ? stage->peak_bytes : most;
        all += stage->parameters;
        next = stage->last + 1;
    }
    assert_int_equal(plan->peak_bytes, most);
    assert_int_equal(all, parameters);
}

static void promises(void **state)
{
    static const char *const models[] = {"resnet20:width=8,image=16",
                                         "llama:layers=5,width=32,heads=2,kv_heads=2,hidden=64,"
                                         "vocab=50,context=16"};
    (void)state;
    for (int run = 0; run < 4; run += 3) {
        enum ull__parallel_kind kind = run % 2 == 0 ? ULL_PARALLEL_MODEL : ULL_PARALLEL_PIPELINE;
        int devices = run < 2 ? 2 : 5, count;
        struct ull__graph *model;
        struct ull__parallel *made = parallel_of(models[run / 2 % 2], kind, devices, 6, &model);
        const struct ull__parallel_plan *plans = ull__parallel_plans(made, &count);
        int smallest = ull__parallel_smallest(made);
        int64_t least = plans[smallest].peak_bytes + (int64_t)device.outside_bytes;
        double before = 1e300;
        assert_int_equal(ull__parallel_choose(made, least - 1), ULL_NONE);
        for (int64_t budget = least; budget < 4 * least; budget += budget / 9) {
            int chosen = ull__parallel_choose(made, budget);
            assert_int_not_equal(chosen, ULL_NONE);
            assert_true(plans[chosen].peak_bytes + (int64_t)device.outside_bytes <= budget);
            assert_true(plans[chosen].step_seconds <= before);
            before = plans[chosen].step_seconds;
            check_plan(&plans[chosen], ull__parallel_source(made, chosen), kind, devices,
                       ull__graph_parameters(model));
        }
        ull__parallel_destroy(made);
        ull__graph_destroy(model);
    }
}

/* Weights of an embedding that are the last layer's too lie on the first and on the last device. */
static void tied_weights_lie_on_both(void **state)
{
    struct ull__graph *model;
    int count;
    (void)state;
    struct ull__parallel *made = parallel_of("gpt-char:layers=4", ULL_PARALLEL_MODEL, 2, 4, &model);
    const struct ull__parallel_plan *plan = &ull__parallel_plans(made, &count)[0];
    int64_t twice = 0;
    for (int i = 0; i < model->tensor_count; ++i) {
        if (strcmp(model->tensors[i].name, "wte.weight") == 0) {
            twice = model->tensors[i].dims[0] * model->tensors[i].dims[1];
        }
    }
    assert_true(twice > 0);
    assert_int_equal(plan->stages[0].parameters + plan->stages[1].parameters,
                     ull__graph_parameters(model) + twice);
    ull__parallel_destroy(made);
    ull__graph_destroy(model);
}

static void too_few_parts(void **state)
{
    struct ull__graph *model;
    struct ull__parallel *made = NULL;
    struct ull_error err = {{0}};
    (void)state;
    assert_int_equal(ull__zoo_build("gpt-char:layers=2", &model, NULL), ULL_OK);
    struct ull__plan_request request = {.model = model,
                                        .profile = &device,
                                        .batch = 4,
                                        .precision = ULL_PRECISION_F32,
                                        .max_accumulation = 1};
    assert_int_equal(ull__parallel_create(&request, ULL_PARALLEL_MODEL, 40, &made, &err),
                     ULL_E_INVALID);
    assert_non_null(strstr(err.message, "too few for 40 devices"));
    assert_int_equal(ull__parallel_create(&request, ULL_PARALLEL_MODEL, 1, &made, &err),
                     ULL_E_INVALID);
    assert_null(made);
    ull__graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_on_one_device),
        cmocka_unit_test(promises),
        cmocka_unit_test(tied_weights_lie_on_both),
        cmocka_unit_test(too_few_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
