/*
 * test_algorithms.c: choices of algorithms: from a table, by rule, within a bound; and that those which are fitted to a level are the
 * fastest that keep to it, at no place more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops.h"
#include "schedule.h"
#include "step.h"
#include "zoo.h"

static struct ull__profile device(void)
{
    return (struct ull__profile){.name = "test",
                                 .bytes_per_second = 1e12,
                                 .matrix_per_second = 1e13,
                                 .matrix_half_per_second = 1e13,
                                 .flops_per_second = 1e12,
                                 .link_per_second = 1e10,
                                 .host_bytes_per_second = 1e10,
                                 .launch_seconds = 1e-6,
                                 .lean_convolution = 1.5,
                                 .alignment = 256};
}

/* Three ways forward, two by weights for small windows only, in f32. */
static struct ull__profile with_table(void)
{
    struct ull__profile profile = device();
    profile.algorithms = (struct ull__algorithms){
        .classes = {{.op = &ull__op_conv2d,
                     .f32 = true,
                     .count = 3,
                     .algorithms =
                         {{.name = "none", .slowdown = 3},
                          {.name = "copies",
                           .multiples = {[ULL_WORKSPACE_INPUT] = 1, [ULL_WORKSPACE_OUTPUT] = 2},
                           .slowdown = 1},
                          {.name = "half", .multiples = {[ULL_WORKSPACE_INPUT] = 0.5}, .slowdown = 2}}},
                    {.op = &ull__op_conv2d_grad_weight,
                     .f32 = true,
                     .window_most = 9,
                     .count = 2,
                     .algorithms = {{.name = "parts", .parts = 8, .parts_most = 4096, .slowdown = 1},
                                    {.name = "whole", .slowdown = 1.5}}}},
        .count = 2};
    return profile;
}

static struct ull__program *program_of(const char *model, const struct ull__profile *profile,
                                       struct ull__graph **graph)
{
    int64_t values[ULL_SYMBOLS];
    struct ull__program *program;
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAM};
    assert_int_equal(ull__zoo_build(model, graph, NULL), ULL_OK);
    assert_int_equal(ull__step_build(*graph, &options, NULL), ULL_OK);
    ull__graph_values(*graph, 32, values);
    assert_int_equal(ull__program_create(*graph, values, profile, &program, NULL), ULL_OK);
    return program;
}

/* The first item of an operator. */
static int item_of(const struct ull__program *program, const struct ull__op *op)
{
    for (int i = 0; i < program->item_count; ++i) {
        if (program->graph->nodes[program->items[i].node].op == op) {
            return i;
        }
    }
    fail_msg("no %s", op->name);
    return 0;
}

static void tables(void **state)
{
    struct ull__profile profile = with_table();
    struct ull__graph *graph;
    (void)state;
    /* lenet: 32 pictures of 1 x 32 x 32 to 6 x 28 x 28, windows of 25 elements. */
    struct ull__program *program = program_of("lenet", &profile, &graph);
    int forward = item_of(program, &ull__op_conv2d);
    int64_t input = INT64_C(32) * 32 * 32 * 4, output = INT64_C(32) * 6 * 28 * 28 * 4;
    assert_int_equal(program->items[forward].choice_count, 3);
    assert_string_equal(ull__item_choice(program, forward, 0)->name, "copies");
    assert_int_equal(ull__item_choice(program, forward, 0)->workspace, input + 2 * output);
    assert_string_equal(ull__item_choice(program, forward, 1)->name, "half");
    assert_int_equal(ull__item_choice(program, forward, 1)->workspace, (input / 2 + 255) / 256 * 256);
    assert_string_equal(ull__item_choice(program, forward, 2)->name, "none");
    double fastest = ull__item_choice(program, forward, 0)->seconds;
    double slowest = ull__item_choice(program, forward, 2)->seconds;
    assert_true(slowest > 2.999 * fastest && slowest < 3.001 * fastest);
    /* In no class: the operator's rule, or the profile's word for convolutions. */
    int weights = item_of(program, &ull__op_conv2d_grad_weight);
    assert_int_equal(program->items[weights].choice_count, 2);
    assert_string_equal(ull__item_choice(program, weights, 0)->name, "columns");
    assert_int_equal(ull__item_choice(program, weights, 1)->workspace, 0);
    ull__program_destroy(program);
    ull__graph_destroy(graph);

    /* resnet20: windows of 9 elements; 16 x 3 x 9 weights are 1,728 bytes, 8 of them more than 4,096. */
    program = program_of("resnet20", &profile, &graph);
    for (int i = 0; i < program->item_count; ++i) {
        if (program->graph->nodes[program->items[i].node].op == &ull__op_conv2d_grad_weight) {
            assert_string_equal(ull__item_choice(program, i, 0)->name, "parts");
            assert_true(ull__item_choice(program, i, 0)->workspace <= 4096);
        }
    }
    ull__program_destroy(program);
    ull__graph_destroy(graph);
}

/* --max-workspace: what takes more is left out, unless there is nothing else. */
static void bounds(void **state)
{
    struct ull__profile profile = with_table();
    struct ull__graph *graph;
    (void)state;
    profile.most_workspace = INT64_C(32) * 28 * 28 * 4;
    struct ull__program *program = program_of("lenet", &profile, &graph);
    int forward = item_of(program, &ull__op_conv2d);
    assert_int_equal(program->items[forward].choice_count, 2);
    assert_string_equal(ull__item_choice(program, forward, 0)->name, "half");
    ull__program_destroy(program);
    ull__graph_destroy(graph);

    profile.algorithms.classes[0].algorithms[0].multiples[ULL_WORKSPACE_OUTPUT] = 0.25;
    profile.most_workspace = 256;
    program = program_of("lenet", &profile, &graph);
    forward = item_of(program, &ull__op_conv2d);
    assert_int_equal(program->items[forward].choice_count, 1);
    assert_string_equal(ull__item_choice(program, forward, 0)->name, "half");
    ull__program_destroy(program);
    ull__graph_destroy(graph);
}

static void check_fit(struct ull__scheduler *scheduler, const struct ull__program *program,
                      struct ull__decision *decision, int64_t level)
{
    struct ull__cost_of cost, again, other;
    ull__schedule(scheduler, decision, &cost);
    ull__schedule_fit(scheduler, decision, level, &cost);
    ull__schedule(scheduler, decision, &again);
    assert_memory_equal(&cost, &again, sizeof(cost));
    assert_true(cost.peak_bytes <= level);
    for (int i = 0; i < program->item_count; ++i) {
        if (decision->algorithm[i] > 0) {
            decision->algorithm[i] -= 1;
            ull__schedule(scheduler, decision, &other);
            assert_true(other.peak_bytes > level);
            decision->algorithm[i] += 1;
        }
    }
}

static void fitted(void **state)
{
    static const char *const models[] = {"lenet", "resnet20"};
    struct ull__profile profile = with_table();
    (void)state;
    for (int model = 0; model < 2; ++model) {
        struct ull__graph *graph;
        struct ull__program *program = program_of(models[model], &profile, &graph);
        struct ull__scheduler *scheduler = ull__scheduler_create(program, &profile);
        struct ull__decision decision;
        struct ull__cost_of cost;
        assert_true(ull__decision_create(program, &decision));
        for (int turn = 0; turn < 3; ++turn) {
            /* Everything kept, then some of it, so that items run twice. */
            for (int i = 0; i < program->buffer_count && turn > 0; ++i) {
                const struct ull__program_buffer *buffer = &program->buffers[i];
                bool may = buffer->forward && buffer->item != ULL_NONE && !buffer->result &&
                           buffer->life == ULL_LIFE_PASSING;
                decision.keep[i] = may && (i * 7 + turn) % 3 == 0 ? ULL_DROP : decision.keep[i];
            }
            memset(decision.algorithm, 0, (size_t)program->item_count);
            ull__schedule(scheduler, &decision, &cost);
            int64_t lowest = ull__schedule_lowest(scheduler), highest = cost.peak_bytes;
            assert_true(lowest < highest);
            for (int i = 0; i <= 4; ++i) {
                check_fit(scheduler, program, &decision, lowest + (highest - lowest) * i / 4);
            }
            for (int i = 0; i < program->item_count; ++i) {
                decision.algorithm[i] = (uint8_t)(program->items[i].choice_count - 1);
            }
            ull__schedule(scheduler, &decision, &cost);
            assert_int_equal(cost.peak_bytes, lowest);
        }
        ull__decision_finish(&decision);
        ull__scheduler_destroy(scheduler);
        ull__program_destroy(program);
        ull__graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(bounds),
        cmocka_unit_test(fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
