/* test_step.c: backward passes, mixed precision and updates of whole models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops.h"
#include "step.h"
#include "zoo.h"

static struct ull__graph *model(const char *text)
{
    struct ull__graph *graph;
    struct ull_error err = {{0}};
    if (ull__zoo_build(text, &graph, &err) != ULL_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return graph;
}

static void must_check(const struct ull__graph *graph)
{
    int64_t values[ULL_SYMBOLS];
    struct ull_error err = {{0}};
    ull__graph_values(graph, 2, values);
    if (ull__graph_check(graph, values, &err) != ULL_OK) {
        fail_msg("%s: %s", graph->name, err.message);
    }
}

/* Every parameter has one gradient of its own shape, and one update writes it. */
static void check_step(const struct ull__graph *graph, bool mixed)
{
    must_check(graph);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role != ULL_ROLE_PARAMETER || tensor->node != ULL_NONE) {
            continue;
        }
        int updates = 0, gradients = 0, masters = 0;
        for (int j = 0; j < graph->tensor_count; ++j) {
            const struct ull__tensor *other = &graph->tensors[j];
            updates += other->writes && other->alias == i;
            masters += other->role == ULL_ROLE_MASTER && other->node == ULL_NONE && other->of == i;
            gradients += other->role == ULL_ROLE_GRADIENT && other->of == i;
            if (other->role == ULL_ROLE_GRADIENT && other->of == i && other->alias == ULL_NONE) {
                assert_int_equal(ull__tensor_elements(graph, j, NULL),
                                 ull__tensor_elements(graph, i, NULL));
            }
        }
        bool unused = strncmp(tensor->name, "pooler", 6) == 0;
        if (updates != !unused || (gradients == 0) != unused) {
            fail_msg("%s: '%s' has %d updates and %d gradients", graph->name, tensor->name, updates,
                     gradients);
        }
        assert_int_equal(masters, mixed && ull__type_is_half(tensor->type));
    }
}

static void every_model_trains(void **state)
{
    (void)state;
    for (int i = 0; ull__zoo[i].name != NULL; ++i) {
        for (int variant = 0; variant < 4; ++variant) {
            struct ull__graph *graph = model(ull__zoo[i].name);
            if (variant >= 1) {
                struct ull__graph *mixed =
                    ull__mixed_precision(graph, variant == 1 ? ULL_TYPE_BF16 : ULL_TYPE_F16);
                assert_non_null(mixed);
                ull__graph_destroy(graph);
                graph = mixed;
                must_check(graph);
            }
            struct ull__step_options options = {
                .optimizer = (enum ull__optimizer)(variant % 3),
                .attrs = {.momentum = 0.9, .limit = variant == 2 ? 1 : 0},
                .accumulate = variant == 2,
                .loss_scale = variant >= 2,
                .consume = variant == 1};
            struct ull_error err = {{0}};
            if (ull__step_build(graph, &options, &err) != ULL_OK) {
                fail_msg("%s: %s", ull__zoo[i].name, err.message);
            }
            check_step(graph, variant >= 1);
            ull__graph_destroy(graph);
        }
    }
}

static double backward_flops(const struct ull__graph *graph, double *forward)
{
    int64_t values[ULL_SYMBOLS];
    double backward = 0;
    *forward = 0;
    ull__graph_values(graph, 1, values);
    for (int i = 0; i < graph->node_count; ++i) {
        struct ull__cost cost;
        ull__op_cost(graph, i, values, &cost);
        if (graph->nodes[i].pass == ULL_PASS_BACKWARD) {
            backward += cost.matrix_flops;
        } else {
            *forward += cost.matrix_flops;
        }
    }
    return backward;
}

/* ResNet-50 takes 8.18e9 operations forward (4.09e9 multiply-adds, as torchvision says), and twice that backward. */
static void known_numbers_of_operations(void **state)
{
    struct ull__graph *graph = model("resnet50");
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_SGD};
    double forward, backward;
    (void)state;
    assert_int_equal(ull__step_build(graph, &options, NULL), ULL_OK);
    backward = backward_flops(graph, &forward);
    assert_true(forward > 2 * 4.08e9 && forward < 2 * 4.10e9);
    /* The first convolution's input needs no gradient. */
    assert_true(backward > 1.93 * forward && backward < 2 * forward);
    ull__graph_destroy(graph);
    /* 6 operations a parameter and token are a rule of thumb (Kaplan et al., 2020); attention comes on top. */
    graph = model("gpt2-124m");
    assert_int_equal(ull__step_build(graph, &options, NULL), ULL_OK);
    backward = backward_flops(graph, &forward);
    double thumb = 6.0 * 1024 * (124439808.0 - 1024 * 768);
    assert_true(forward + backward > thumb && forward + backward < 1.1 * thumb);
    ull__graph_destroy(graph);
}

/* Mixed precision: logits and loss stay f32, what is kept of a transformer's block is 16 bits. */
static void what_stays_single(void **state)
{
    struct ull__graph *graph = model("gpt2-124m:layers=2,context=64");
    struct ull__graph *mixed = ull__mixed_precision(graph, ULL_TYPE_BF16);
    int halves = 0;
    (void)state;
    assert_int_equal(mixed->tensors[mixed->outputs[0]].type, ULL_TYPE_F32);
    assert_int_equal(mixed->tensors[mixed->losses[0]].type, ULL_TYPE_F32);
    for (int i = 0; i < mixed->node_count; ++i) {
        const struct ull__node *node = &mixed->nodes[i];
        if (node->op == &ull__op_attention || node->op == &ull__op_layer_norm) {
            assert_int_equal(mixed->tensors[node->outputs[0]].type, ULL_TYPE_BF16);
            assert_int_equal(mixed->tensors[node->outputs[1]].type, ULL_TYPE_F32);
        }
        if (node->op == &ull__op_layer_norm) {
            assert_int_equal(mixed->tensors[node->inputs[1]].type, ULL_TYPE_F32);
        }
        assert_ptr_not_equal(node->op, &ull__op_cast);
        halves += ull__type_is_half(mixed->tensors[node->outputs[0]].type);
    }
    assert_true(halves > 20);
    assert_int_equal(ull__graph_parameters(mixed), ull__graph_parameters(graph));
    struct ull__graph *copy = ull__graph_copy(graph);
    assert_int_equal(copy->node_count, graph->node_count);
    assert_int_equal(copy->tensor_count, graph->tensor_count);
    ull__graph_destroy(copy);
    ull__graph_destroy(mixed);
    ull__graph_destroy(graph);
}

static void errors_are_told(void **state)
{
    struct ull_error err = {{0}};
    struct ull__graph *graph = ull__graph_create();
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_SGD};
    (void)state;
    assert_int_equal(ull__step_build(graph, &options, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "no loss"));
    ull__graph_destroy(graph);
    graph = model("mlp");
    options.consume = options.accumulate = true;
    assert_int_equal(ull__step_build(graph, &options, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "consumed"));
    ull__graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_trains),
        cmocka_unit_test(known_numbers_of_operations),
        cmocka_unit_test(what_stays_single),
        cmocka_unit_test(errors_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
