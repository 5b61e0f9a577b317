/*
 * test_infer.c: inference: what is kept of a model, its weights in each kind, the cache, and that a plan is what it says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "infer.h"
#include "ops.h"
#include "step.h"
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
                                           .alignment = 1};

static struct ull__graph *model_of(const char *name)
{
    struct ull__graph *model = NULL;
    struct ull_error err = {{0}};
    if (ull__zoo_build(name, &model, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return model;
}

static struct ull__inference *inference_of(const struct ull__graph *model, enum ull__weights weights,
                                           int64_t batch, int64_t context, int64_t requests)
{
    struct ull__infer_request request = {.model = model,
                                         .profile = &device,
                                         .batch = batch,
                                         .weights = weights,
                                         .context = context,
                                         .requests = requests};
    struct ull__inference *made = NULL;
    struct ull_error err = {{0}};
    if (ull__infer_create(&request, &made, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return made;
}

static int count_of(const struct ull__graph *graph, const struct ull__op *op)
{
    int count = 0;
    for (int i = 0; i < graph->node_count; ++i) {
        count += graph->nodes[i].op == op;
    }
    return count;
}

static void the_graph_is_what_results_need(void **state)
{
    struct ull__graph *model = model_of("gpt2-124m:dropout=0.1");
    struct ull__graph *used = ull__inference_graph(model, ULL_TYPE_F16, ULL_TYPE_I8);
    int64_t values[ULL_SYMBOLS];
    struct ull_error err = {{0}};
    (void)state;
    assert_true(count_of(model, &ull__op_dropout) > 0);
    assert_int_equal(count_of(used, &ull__op_dropout), 0);
    assert_int_equal(count_of(used, &ull__op_cross_entropy), 0);
    assert_int_equal(used->loss_count, 0);
    assert_int_equal(used->output_count, 1);
    assert_int_equal(ull__graph_parameters(used), 124439808);
    ull__graph_values(used, 3, values);
    if (ull__graph_check(used, values, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    for (int i = 0; i < used->tensor_count; ++i) {
        const struct ull__tensor *tensor = &used->tensors[i];
        assert_int_not_equal(tensor->role, ULL_ROLE_MASTER);
        if (strcmp(tensor->name, "h.0.mlp.c_fc.weight") == 0) {
            assert_int_equal(tensor->type, ULL_TYPE_I8);
        } else if (strcmp(tensor->name, "wte.weight") == 0) {
            assert_int_equal(tensor->type, ULL_TYPE_F16); /* rows are taken from it */
        }
    }
    ull__graph_destroy(used);
    ull__graph_destroy(model);
    model = model_of("resnet20");
    used = ull__inference_graph(model, ULL_TYPE_F32, ULL_TYPE_F32);
    for (int i = 0; i < used->node_count; ++i) {
        if (used->nodes[i].op == &ull__op_batch_norm) {
            assert_false(used->nodes[i].attrs.norm.training);
            assert_int_equal(used->nodes[i].output_count, 1);
        }
    }
    ull__graph_destroy(used);
    ull__graph_destroy(model);
}

/* Without rounding, weights are 4 bytes each, 2 of those that products read, or 1 and 4 a row. */
static void weights_are_counted(void **state)
{
    struct ull__graph *model = model_of("mlp:hidden=100,layers=2");
    int count;
    (void)state;
    struct ull__inference *full = inference_of(model, ULL_WEIGHTS_FP32, 1, 0, 0);
    int64_t parameters = ull__graph_parameters(model), weights = 0, rows = 0;
    for (int i = 0; i < model->tensor_count; ++i) {
        if (model->tensors[i].role == ULL_ROLE_PARAMETER && model->tensors[i].rank == 2) {
            weights += model->tensors[i].dims[0] * model->tensors[i].dims[1];
            rows += model->tensors[i].dims[0];
        }
    }
    assert_int_equal(ull__infer_plans(full, &count)[0].bytes[ULL_ROLE_PARAMETER], 4 * parameters);
    struct ull__inference *packed = inference_of(model, ULL_WEIGHTS_INT8, 1, 0, 0);
    struct ull__inference *half = inference_of(model, ULL_WEIGHTS_FP16, 1, 0, 0);
    int64_t half_bytes = ull__infer_plans(half, &count)[0].bytes[ULL_ROLE_PARAMETER];
    assert_true(half_bytes >= 2 * parameters && half_bytes < 4 * parameters);
    assert_int_equal(half_bytes - ull__infer_plans(packed, &count)[0].bytes[ULL_ROLE_PARAMETER],
                     weights - 4 * rows);
    ull__infer_destroy(full);
    ull__infer_destroy(packed);
    ull__infer_destroy(half);
    ull__graph_destroy(model);
}

static void the_cache_is_of_heads_of_keys(void **state)
{
    struct ull__graph *model =
        model_of("llama:layers=3,width=64,heads=8,kv_heads=2,hidden=128,vocab=100,context=32");
    (void)state;
    struct ull__inference *made = inference_of(model, ULL_WEIGHTS_FP16, 1, 1000, 7);
    int count;
    /* Keys and values, 3 layers, 2 heads of 8 elements of 2 bytes. */
    int64_t a_request = INT64_C(2) * 3 * 2 * 8 * 2 * 1000;
    assert_int_equal(ull__infer_cache_bytes(made), 7 * a_request);
    assert_int_equal(ull__infer_context(made), 1000);
    const struct ull__infer_plan *plan = ull__infer_plans(made, &count);
    int64_t need = plan->peak_bytes + (int64_t)device.outside_bytes;
    assert_int_equal(ull__infer_requests_most(made, 0, need), 7);
    assert_int_equal(ull__infer_requests_most(made, 0, need - 1), 6);
    assert_int_equal(ull__infer_requests_most(made, 0, need + a_request), 8);
    assert_true(plan->token_seconds > 0);
    ull__infer_destroy(made);
    made = inference_of(model, ULL_WEIGHTS_FP32, 2, 0, 0);
    assert_int_equal(ull__infer_cache_bytes(made), INT64_C(2) * 3 * 2 * 8 * 4 * 32 * 2);
    ull__infer_destroy(made);
    ull__graph_destroy(model);
}

static void plans_are_a_frontier(void **state)
{
    static const char *const models[] = {"resnet20", "unet:image=64", "gpt-char", "vit-b16"};
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
        struct ull__graph *model = model_of(models[i]);
        struct ull__inference *made = inference_of(model, ULL_WEIGHTS_BF16, 24, 0, 0);
        int count;
        const struct ull__infer_plan *plans = ull__infer_plans(made, &count);
        assert_true(count > 1);
        for (int j = 0; j < count; ++j) {
            int64_t sum = ull__infer_cache_bytes(made);
            for (int role = 0; role < ULL_ROLES; ++role) {
                sum += plans[j].bytes[role];
            }
            assert_true(sum <= plans[j].peak_bytes && sum > plans[j].peak_bytes * 9 / 10);
            if (j > 0) {
                assert_true(plans[j].peak_bytes < plans[j - 1].peak_bytes);
                assert_true(plans[j].seconds > plans[j - 1].seconds);
            }
            int64_t budget = plans[j].peak_bytes + (int64_t)device.outside_bytes;
            assert_int_equal(ull__infer_choose(made, budget), j);
            assert_int_equal(ull__infer_choose(made, budget - 1), j + 1 < count ? j + 1 : ULL_NONE);
        }
        ull__infer_destroy(made);
        ull__graph_destroy(model);
    }
}

static void bad_requests(void **state)
{
    struct ull__graph *model = model_of("resnet20");
    struct ull__inference *made = NULL;
    struct ull__profile without = device;
    struct ull_error err = {{0}};
    (void)state;
    struct ull__infer_request request = {.model = model, .profile = &without, .batch = 1};
    request.requests = 4;
    assert_int_equal(ull__infer_create(&request, &made, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "no causal attention"));
    request.requests = 0;
    without.bf16 = false;
    request.weights = ULL_WEIGHTS_BF16;
    assert_int_equal(ull__infer_create(&request, &made, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "fp16 or fp32"));
    request.weights = ULL_WEIGHTS_INT8;
    request.batch = 0;
    assert_int_equal(ull__infer_create(&request, &made, &err), ULL_E_INVALID);
    ull__graph_destroy(model);
    model = model_of("gpt-char");
    request = (struct ull__infer_request){.model = model,
                                          .profile = &device,
                                          .batch = 1,
                                          .context = INT64_C(1) << 32,
                                          .requests = INT64_C(1) << 32};
    assert_int_equal(ull__infer_create(&request, &made, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "larger than there can be"));
    assert_null(made);
    ull__graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_graph_is_what_results_need),
        cmocka_unit_test(weights_are_counted),
        cmocka_unit_test(the_cache_is_of_heads_of_keys),
        cmocka_unit_test(plans_are_a_frontier),
        cmocka_unit_test(bad_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
