/*
 * test_models.c: whole models by the processor's kernels, one after the other in memory of its own for each tensor: what
 * they compute is PyTorch's (tests/data/golden), and adding up micro-batches in f32 costs no accuracy.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu.h"
#include "golden.h"
#include "step.h"
#include "zoo.h"

static const char *const names[] = {"mlp", "resnet20", "vit", "gpt", "llama"};

static struct ull__backend *backend;

/* A graph with its kernels and bytes. `ref` gives sizes, and what is there before the first node. */
struct run {
    const struct ull__graph *graph;
    int64_t values[ULL_SYMBOLS];
    struct ref *ref;
    char **bytes; /* by tensor */
};

static void put(struct run *run, int tensor)
{
    ref_encode(run->graph->tensors[tensor].type, ref_data(run->ref, tensor), run->bytes[tensor],
               ref_count(run->ref, tensor));
}

/* The elements of a tensor as the kernels left them. Caller frees. */
static double *get(const struct run *run, int tensor)
{
    int64_t count = ref_count(run->ref, tensor);
    double *elements = calloc((size_t)count + 1, sizeof(*elements));
    ref_decode(run->graph->tensors[tensor].type, run->bytes[tensor], elements, count);
    return elements;
}

static struct run *run_create(const struct ull__graph *graph, int64_t batch)
{
    struct run *run = calloc(1, sizeof(*run));
    run->graph = graph;
    ull__graph_values(graph, batch, run->values);
    run->ref = ref_create(graph, run->values);
    run->bytes = calloc((size_t)graph->tensor_count + 1, sizeof(*run->bytes));
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->alias != ULL_NONE) {
            run->bytes[i] = run->bytes[tensor->alias] +
                            ull__dim_value(graph->symbols, tensor->alias_offset, run->values);
            continue;
        }
        size_t bytes = (size_t)ull__tensor_bytes(graph, i, run->values);
        run->bytes[i] = aligned_alloc(64, (bytes + 127) / 64 * 64);
        assert_non_null(run->bytes[i]);
    }
    return run;
}

static void run_destroy(struct run *run)
{
    for (int i = 0; i < run->graph->tensor_count; ++i) {
        if (run->graph->tensors[i].alias == ULL_NONE) {
            free(run->bytes[i]);
        }
    }
    free(run->bytes);
    ref_destroy(run->ref);
    free(run);
}

static bool is_view(const struct run *run, const struct ull__node *node)
{
    bool views = true;
    for (int i = 0; i < node->output_count; ++i) {
        const struct ull__tensor *out = &run->graph->tensors[node->outputs[i]];
        views = views && out->alias != ULL_NONE && !out->writes;
    }
    return views;
}

static void run_node(struct run *run, int at)
{
    const struct ull__node *node = &run->graph->nodes[at];
    const struct ull__backend_ops *ops = backend->ops;
    struct ull__selecting what = {
        .graph = run->graph, .node = at, .values = run->values, .most_workspace = ULL_NONE};
    struct ull__selection selection;
    struct ull__kernel *kernel;
    struct ull_error err = {{0}};
    void *in[32] = {NULL}, *out[32] = {NULL};
    if (is_view(run, node)) {
        return;
    }
    if (ops->select(backend, &what, &selection, &err) != ULL_OK ||
        ops->compile(backend, &what, &kernel, &err) != ULL_OK) {
        fail_msg("%s: %s", run->graph->name, err.message);
    }
    assert_true(node->input_count <= 32 && node->output_count <= 32);
    for (int i = 0; i < node->input_count; ++i) {
        in[i] = node->inputs[i] != ULL_NONE ? run->bytes[node->inputs[i]] : NULL;
    }
    for (int i = 0; i < node->output_count; ++i) {
        out[i] = run->bytes[node->outputs[i]];
    }
    void *workspace = aligned_alloc(64, ((size_t)selection.workspace + 127) / 64 * 64);
    struct ull__launch launch = {.inputs = in, .outputs = out, .workspace = workspace};
    ops->enqueue(backend, node->queue, kernel, &launch);
    assert_int_equal(ops->synchronize(backend, NULL), ULL_OK);
    ops->release(backend, kernel);
    free(workspace);
}

/* Everything that is there before, as the reference has it; then the nodes. */
static void run_all(struct run *run)
{
    for (int i = 0; i < run->graph->tensor_count; ++i) {
        if (run->graph->tensors[i].node == ULL_NONE && run->graph->tensors[i].alias == ULL_NONE &&
            run->graph->tensors[i].role != ULL_ROLE_GRADIENT) {
            put(run, i);
        }
    }
    for (int i = 0; i < run->graph->node_count; ++i) {
        if (run->graph->nodes[i].phase == ULL_PHASE_MICRO) {
            run_node(run, i);
        }
    }
}

/* --- Values: as tools/make_golden.py has them --- */

static bool is_source(const struct ull__graph *graph, int tensor, enum ull__role role)
{
    return graph->tensors[tensor].role == role && graph->tensors[tensor].node == ULL_NONE;
}

/* Samples from `first` on of a batch of `whole`. */
static void fill(struct ref *ref, const struct ull__graph *graph, int64_t first, int64_t whole)
{
    const struct ull__tensor *logits = &graph->tensors[graph->outputs[0]];
    int64_t classes = ref_size(ref, graph->outputs[0], logits->rank - 1);
    ref_fill(ref, 1);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        int64_t dims[ULL_RANK], count = ref_count(ref, i);
        for (int j = 0; j < tensor->rank; ++j) {
            dims[j] = ref_size(ref, i, j);
        }
        if (is_source(graph, i, ULL_ROLE_PARAMETER)) {
            golden_parameter(tensor->name, tensor->rank, dims, ref_data(ref, i));
        } else if (is_source(graph, i, ULL_ROLE_INPUT)) {
            int64_t each = count / dims[0];
            double *all = calloc((size_t)(each * whole) + 1, sizeof(*all)), valid = 0;
            golden_input(tensor->name, classes, each * whole, all);
            memcpy(ref_data(ref, i), all + first * each, sizeof(*all) * (size_t)count);
            for (int64_t j = 0; j < each * whole; ++j) {
                valid += all[j] != -100;
            }
            if (strcmp(tensor->name, "target") == 0) {
                ref_control(ref, "target_count", valid);
            }
            free(all);
        }
    }
}

/* Squares of the difference of lists, and of the second one. */
struct distance {
    double off, size;
};

static void add_distance(struct distance *distance, const double *a, const double *b, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        distance->off += (a[i] - b[i]) * (a[i] - b[i]);
        distance->size += b[i] * b[i];
    }
}

static double relative(struct distance distance)
{
    return sqrt(distance.off / distance.size);
}

static void must_be(const struct golden *golden, const char *prefix, const char *name,
                    struct run *run, int tensor)
{
    const struct golden_list *list = golden_find(golden, prefix, name);
    assert_non_null(list);
    assert_int_equal(list->count, ref_count(run->ref, tensor));
    double *values = get(run, tensor);
    struct distance distance = {0, 1e-12};
    add_distance(&distance, values, list->values, list->count);
    if (!(relative(distance) <= 5e-5)) {
        fail_msg("%s: %s%s is off by %g", golden->model, prefix, name, relative(distance));
    }
    free(values);
}

static struct ull__graph *build(const char *text)
{
    struct ull__graph *graph;
    struct ull_error err = {{0}};
    if (ull__zoo_build(text, &graph, &err) != ULL_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return graph;
}

static void models_are_pytorch_s(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        struct golden *golden = golden_open(GOLDEN_FOLDER, names[i]);
        struct ull__graph *graph = build(golden->model);
        int tensors = graph->tensor_count;
        int *gradient = calloc((size_t)tensors, sizeof(*gradient));
        ull__differentiate(graph, ULL_NONE, gradient, NULL, NULL);
        struct run *run = run_create(graph, golden->batch);
        fill(run->ref, graph, 0, golden->batch);
        run_all(run);
        must_be(golden, "", "logits", run, graph->outputs[0]);
        must_be(golden, "", "loss", run, graph->losses[0]);
        for (int j = 0; j < tensors; ++j) {
            if (is_source(graph, j, ULL_ROLE_PARAMETER)) {
                must_be(golden, "gradient/", graph->tensors[j].name, run, gradient[j]);
            }
        }
        run_destroy(run);
        free(gradient);
        ull__graph_destroy(graph);
        golden_close(golden);
    }
}

/* --- Micro-batches --- */

static const char gpt[] = "gpt-char:context=12,vocab=17,layers=2,width=24,heads=3";
enum { BATCH = 8 };

static struct ull__graph *accumulating(void)
{
    struct ull__graph *graph = build(gpt);
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_SGD, .accumulate = true};
    assert_int_equal(ull__step_build(graph, &options, NULL), ULL_OK);
    return graph;
}

/* What micro-batches have added up to, of each parameter: the tensor that is there before. */
static bool is_sum(const struct ull__graph *graph, int tensor)
{
    return is_source(graph, tensor, ULL_ROLE_GRADIENT);
}

static struct run *gathered(const struct ull__graph *graph, int parts)
{
    struct run *run = run_create(graph, BATCH / parts);
    for (int part = 0; part < parts; ++part) {
        fill(run->ref, graph, BATCH / parts * part, BATCH);
        ref_control(run->ref, "adding", part > 0);
        run_all(run);
    }
    return run;
}

static void sums_of_micro_batches_are_as_good(void **state)
{
    struct ull__graph *graph = accumulating();
    struct run *whole = gathered(graph, 1), *split = gathered(graph, BATCH);
    struct distance of_whole = {0, 0}, of_split = {0, 0}, between = {0, 0};
    int64_t values[ULL_SYMBOLS];
    (void)state;
    ull__graph_values(graph, BATCH, values);
    struct ref *exact = ref_create(graph, values);
    fill(exact, graph, 0, BATCH);
    ref_run(exact, ULL_PHASE_MICRO);
    for (int i = 0; i < graph->tensor_count; ++i) {
        if (is_sum(graph, i)) {
            double *a = get(whole, i), *b = get(split, i);
            add_distance(&of_whole, a, ref_data(exact, i), ref_count(exact, i));
            add_distance(&of_split, b, ref_data(exact, i), ref_count(exact, i));
            add_distance(&between, b, a, ref_count(exact, i));
            free(a);
            free(b);
        }
    }
    assert_true(of_whole.size > 0);
    if (!(relative(of_split) <= 2 * relative(of_whole)) || !(relative(between) <= 1e-6)) {
        fail_msg("gradients in f32 are off by %g at once, %g in %d parts, and differ by %g",
                 relative(of_whole), relative(of_split), BATCH, relative(between));
    }
    ref_destroy(exact);
    run_destroy(whole);
    run_destroy(split);
    ull__graph_destroy(graph);
}

static int setup(void **state)
{
    (void)state;
    return ull__cpu_create(&(struct ull__cpu_options){.threads = 2}, &backend, NULL) != ULL_OK;
}

static int teardown(void **state)
{
    (void)state;
    backend->ops->destroy(backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_pytorch_s),
        cmocka_unit_test(sums_of_micro_batches_are_as_good),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
