/* test_golden.c: whole models of the zoo against PyTorch in f64: logits, loss, every gradient, ten steps of three optimizers. */
#include "golden.h"
#include "models.h"

static const char *const names[] = {"mlp", "resnet20", "vit", "gpt", "llama"};

static const double TOLERANCE = 1e-10;

static struct ull__graph *build(const struct golden *golden)
{
    struct ull__graph *graph;
    struct ull_error err = {{0}};
    if (ull__zoo_build(golden->model, &graph, &err) != ULL_OK) {
        fail_msg("%s: %s", golden->model, err.message);
    }
    return graph;
}

static struct ref *start(const struct ull__graph *graph, const struct golden *golden)
{
    struct ref *ref = reference_of(graph, golden->batch);
    int logits = graph->outputs[0];
    int64_t classes = ref_size(ref, logits, graph->tensors[logits].rank - 1);
    ref_fill(ref, 1);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        int64_t dims[ULL_RANK];
        for (int j = 0; j < tensor->rank; ++j) {
            dims[j] = ref_size(ref, i, j);
        }
        if (is_parameter(graph, i)) {
            golden_parameter(tensor->name, tensor->rank, dims, ref_data(ref, i));
        } else if (tensor->role == ULL_ROLE_INPUT && tensor->node == ULL_NONE) {
            golden_input(tensor->name, classes, ref_count(ref, i), ref_data(ref, i));
        }
        if (strcmp(tensor->name, "target") == 0) {
            double valid = 0;
            for (int64_t j = 0; j < ref_count(ref, i); ++j) {
                valid += ref_data(ref, i)[j] != -100;
            }
            ref_control(ref, "target_count", valid);
        }
    }
    return ref;
}

static void must_be(const struct golden *golden, const char *prefix, const char *name,
                    const double *values, int64_t count)
{
    const struct golden_list *list = golden_find(golden, prefix, name);
    if (list == NULL || list->count != count) {
        fail_msg("%s: PyTorch has no %lld numbers of %s%s", golden->model, (long long)count, prefix,
                 name);
    }
    double most = 0;
    for (int64_t i = 0; i < count; ++i) {
        most = fmax(most, fabs(list->values[i]));
    }
    for (int64_t i = 0; i < count; ++i) {
        if (!(fabs(values[i] - list->values[i]) <= TOLERANCE * fmax(most, 1e-3))) {
            fail_msg("%s: %s%s, element %lld: %.14g, PyTorch has %.14g", golden->model, prefix,
                     name, (long long)i, values[i], list->values[i]);
        }
    }
}

static void check_gradients(const struct golden *golden)
{
    struct ull__graph *graph = build(golden);
    int parameters = 0, lists = 0;
    int *gradient = calloc((size_t)graph->tensor_count, sizeof(*gradient));
    int tensors = graph->tensor_count;
    ull__differentiate(graph, ULL_NONE, gradient, NULL, NULL);
    struct ref *ref = start(graph, golden);
    ref_run(ref, ULL_PHASE_MICRO);
    must_be(golden, "", "logits", ref_data(ref, graph->outputs[0]),
            ref_count(ref, graph->outputs[0]));
    must_be(golden, "", "loss", ref_data(ref, graph->losses[0]), 1);
    for (int i = 0; i < tensors; ++i) {
        if (is_parameter(graph, i)) {
            must_be(golden, "gradient/", graph->tensors[i].name, ref_data(ref, gradient[i]),
                    ref_count(ref, i));
            parameters += 1;
        }
    }
    for (int i = 0; i < golden->count; ++i) {
        lists += strncmp(golden->lists[i].name, "gradient/", 9) == 0;
    }
    assert_int_equal(parameters, lists);
    ref_destroy(ref);
    free(gradient);
    ull__graph_destroy(graph);
}

static void check_steps(const struct golden *golden, int optimizer)
{
    struct ull__step_options options;
    struct ull__graph *graph = build(golden);
    char prefix[16];
    double rate, losses[GOLDEN_STEPS];
    snprintf(prefix, sizeof(prefix), "%s/", golden_optimizer(optimizer, &options, &rate));
    assert_int_equal(ull__step_build(graph, &options, NULL), ULL_OK);
    struct ref *ref = start(graph, golden);
    ref_control(ref, "learning_rate", rate);
    for (int step = 0; step < GOLDEN_STEPS; ++step) {
        ref_run(ref, ULL_PHASE_MICRO);
        losses[step] = ref_data(ref, graph->losses[0])[0];
        ref_run(ref, ULL_PHASE_UPDATE);
    }
    must_be(golden, prefix, "losses", losses, GOLDEN_STEPS);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        bool is_state = tensor->role == ULL_ROLE_STATE && tensor->node == ULL_NONE;
        if (is_state || is_parameter(graph, i)) {
            double sums[2] = {0, 0};
            for (int64_t j = 0; j < ref_count(ref, i); ++j) {
                sums[0] += ref_data(ref, i)[j] * ref_data(ref, i)[j];
                sums[1] += ref_data(ref, i)[j];
            }
            sums[0] = sqrt(sums[0]);
            must_be(golden, prefix, tensor->name, sums, 2);
        }
    }
    ref_destroy(ref);
    ull__graph_destroy(graph);
}

static void models_are_pytorch_s(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        struct golden *golden = golden_open(GOLDEN_FOLDER, names[i]);
        check_gradients(golden);
        for (int j = 0; j < GOLDEN_OPTIMIZERS; ++j) {
            check_steps(golden, j);
        }
        golden_close(golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_are_pytorch_s)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
