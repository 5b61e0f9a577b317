/*
 * test_fuse.c: operators that were put together give what they gave apart: loss and gradients of whole models, in f64; models
 * give what they gave in PyTorch; and what only looks like an operator stays apart.
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

#include "file.h"
#include "make.h"
#include "onnx.h"
#include "reference.h"
#include "step.h"

enum { BATCH = 3 };

/* A model that has run forward and backward. */
struct ran {
    struct ull__graph *graph;
    struct ref *ref;
    int *gradient;
    int tensors, nodes; /* of the model alone */
};

static double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

/* By name, so that both graphs get the same; whole numbers below `words`. */
static void set_inputs(struct ran *ran, int words)
{
    for (int i = 0; i < ran->tensors; ++i) {
        const struct ull__tensor *of = &ran->graph->tensors[i];
        uint64_t seed = strlen(of->name) * 77 + (unsigned char)of->name[0];
        double *data = ref_data(ran->ref, i);
        if (of->node != ULL_NONE || (of->role != ULL_ROLE_INPUT && of->role != ULL_ROLE_PARAMETER)) {
            continue;
        }
        for (int64_t j = 0; j < ref_count(ran->ref, i); ++j) {
            if (of->role == ULL_ROLE_PARAMETER) {
                data[j] += 0.3 * draw(&seed); /* a shift is 0 before a training */
            } else {
                data[j] =
                    ull__type_is_float(of->type) ? 2 * draw(&seed) - 1 : floor(draw(&seed) * words);
            }
        }
    }
    ref_control(ran->ref, "target_count", 5);
}

static struct ran run(struct ull__graph *graph, int words)
{
    struct ran ran = {.graph = graph, .tensors = graph->tensor_count, .nodes = graph->node_count};
    int64_t values[ULL_SYMBOLS];
    ran.gradient = calloc((size_t)graph->tensor_count, sizeof(int));
    assert_non_null(ran.gradient);
    ull__differentiate(graph, ULL_NONE, ran.gradient, NULL, NULL);
    if (!ull__graph_ok(graph)) {
        fail_msg("%s", graph->error.message);
    }
    ull__graph_values(graph, BATCH, values);
    ran.ref = ref_create(graph, values);
    ref_fill(ran.ref, 1);
    set_inputs(&ran, words);
    ref_run(ran.ref, ULL_PHASE_MICRO);
    return ran;
}

static void finish(struct ran *ran)
{
    ref_destroy(ran->ref);
    ull__graph_destroy(ran->graph);
    free(ran->gradient);
}

static int named(const struct ran *ran, const char *name)
{
    for (int i = 0; i < ran->tensors; ++i) {
        if (ran->graph->tensors[i].role == ULL_ROLE_PARAMETER &&
            strcmp(ran->graph->tensors[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("no weight '%s'", name);
    return ULL_NONE;
}

static void must_agree(const struct ran *a, const struct ran *b, const char *what)
{
    double loss = ref_data(a->ref, a->graph->losses[0])[0];
    double other = ref_data(b->ref, b->graph->losses[0])[0];
    if (!(fabs(loss - other) <= 1e-6 * fabs(other))) {
        fail_msg("%s: a loss of %.12g, apart %.12g", what, loss, other);
    }
    for (int i = 0; i < a->tensors; ++i) {
        const struct ull__tensor *of = &a->graph->tensors[i];
        if (of->role != ULL_ROLE_PARAMETER || of->node != ULL_NONE) {
            continue;
        }
        int at = named(b, of->name), one = a->gradient[i], two = b->gradient[at];
        if (one == ULL_NONE || two == ULL_NONE) {
            fail_msg("%s: '%s' has no gradient", what, of->name);
        }
        double size = 0, off = 0;
        for (int64_t j = 0; j < ref_count(a->ref, one); ++j) {
            size = fmax(size, fabs(ref_data(b->ref, two)[j]));
            off = fmax(off, fabs(ref_data(a->ref, one)[j] - ref_data(b->ref, two)[j]));
        }
        if (!(off <= 1e-5 * size + 1e-9)) { /* constants in the files are f32 */
            fail_msg("%s: gradients of '%s' differ by %.3g of %.3g", what, of->name, off, size);
        }
    }
}

static struct ull__graph *read_file(const char *name, bool apart)
{
    char path[512];
    struct ull_error err = {{0}};
    struct ull__graph *graph = NULL;
    struct ull__onnx_size size = {"time", 6};
    struct ull__onnx_options options = {
        .values = true, .apart = apart, .sizes = &size, .size_count = strstr(name, "-time") != NULL};
    snprintf(path, sizeof(path), "%s/%s.onnx", MODELS, name);
    if (ull__onnx_read(path, &options, &graph, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return graph;
}

static int count_ops(const struct ull__graph *g, int nodes, const struct ull__op *op)
{
    int count = 0;
    for (int i = 0; i < nodes; ++i) {
        count += g->nodes[i].op == op;
    }
    return count;
}

static void test_models(void **state)
{
    static const struct {
        const char *name;
        int words, attentions, norms;
    } models[] = {{"gpt-small", 16, 2, 5},      {"gpt-small-time", 16, 2, 5},
                  {"gpt-small-eval", 16, 1, 3}, {"attentions", 8, 3, 4},
                  {"resnet-small", 10, 0, 0},   {"unet-small", 2, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
        struct ran fused = run(read_file(models[i].name, false), models[i].words);
        struct ran apart = run(read_file(models[i].name, true), models[i].words);
        must_agree(&fused, &apart, models[i].name);
        assert_int_equal(count_ops(fused.graph, fused.nodes, &ull__op_attention),
                         models[i].attentions);
        assert_int_equal(count_ops(fused.graph, fused.nodes, &ull__op_layer_norm) +
                             count_ops(fused.graph, fused.nodes, &ull__op_rms_norm),
                         models[i].norms);
        assert_int_equal(count_ops(apart.graph, apart.nodes, &ull__op_attention), 0);
        finish(&fused);
        finish(&apart);
    }
}

/* --- What PyTorch gives --- */

static void read_tensor(const char *name, const char *what, struct ull__onnx_tensor *tensor)
{
    char path[512], *data;
    size_t size;
    struct ull_error err = {{0}};
    snprintf(path, sizeof(path), "%s/%s.%s.pb", MODELS, name, what);
    if (ull__file_read(path, 1 << 20, &data, &size, &err) != ULL_OK ||
        ull__onnx_tensor_parse(data, size, tensor, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    free(data);
}

/* Logits of models with the weights of their files, for an input. */
static void test_pytorch(void **state)
{
    static const char *const names[] = {"gpt-small",    "gpt-small-eval",    "attentions",
                                        "resnet-small", "resnet-small-eval", "unet-small"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        struct ull__onnx_tensor input, output;
        struct ull__graph *g = read_file(names[i], false);
        int64_t values[ULL_SYMBOLS];
        read_tensor(names[i], "input", &input);
        read_tensor(names[i], "output", &output);
        ull__graph_values(g, input.dims[0], values);
        struct ref *ref = ref_create(g, values);
        ref_fill(ref, 1);
        ref_decode(input.type, input.data, ref_data(ref, 0), ref_count(ref, 0));
        ref_run(ref, ULL_PHASE_MICRO);
        int64_t count = ref_count(ref, g->outputs[0]);
        assert_int_equal(count * 4, output.bytes);
        for (int64_t j = 0; j < count; ++j) {
            double is = ref_data(ref, g->outputs[0])[j];
            double wanted = (double)((const float *)output.data)[j];
            if (!(fabs(is - wanted) <= 2e-4 * (1 + fabs(wanted)))) {
                fail_msg("%s: element %lld is %.7g: expected %.7g", names[i], (long long)j, is,
                         wanted);
            }
        }
        ref_destroy(ref);
        ull__graph_destroy(g);
        ull__onnx_tensor_finish(&input);
        ull__onnx_tensor_finish(&output);
    }
}

/* --- What looks like one --- */

static struct ull__graph *parse(struct make *m)
{
    struct ull__onnx_options options = {.label = "m", .values = true};
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    size_t size;
    uint8_t *bytes = make_bytes(m, &size);
    if (ull__onnx_parse(bytes, size, &options, &graph, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    free(bytes);
    return graph;
}

/* x * (1 + erf(x / root)) * half, with the names of numbers. */
static void check_gelu(double root, double one, double half, bool is)
{
    struct make *m = make_new(13);
    make_input(m, "x", 1, "n,4");
    make_number(m, "root", root);
    make_number(m, "one", one);
    make_number(m, "half", half);
    make_node(m, "Div", "x,root", "a");
    make_node(m, "Erf", "a", "b");
    make_node(m, "Add", "one,b", "c");
    make_node(m, "Mul", "half,x", "d");
    make_node(m, "Mul", "c,d", "y");
    make_output(m, "y");
    struct ull__graph *g = parse(m);
    assert_int_equal(
        g->nodes[0].op == &ull__op_unary && g->nodes[0].attrs.unary.kind == ULL_UNARY_GELU, is);
    ull__graph_destroy(g);
}

/* (x - mean) / sqrt(mean((x - mean)^2) + e) * w + b over an axis. */
static void check_norm(const char *axis, const char *other_axis, const char *weights, bool is)
{
    struct make *m = make_new(13);
    make_input(m, "x", 1, "n,4,6");
    make_number(m, "two", 2);
    make_number(m, "e", 1e-5);
    make_weight(m, "w", weights);
    make_weight(m, "b", weights);
    make_ints(m, make_node(m, "ReduceMean", "x", "mean"), "axes", axis);
    make_node(m, "Sub", "x,mean", "off");
    make_node(m, "Pow", "off,two", "square");
    make_ints(m, make_node(m, "ReduceMean", "square", "var"), "axes", other_axis);
    make_node(m, "Add", "var,e", "var2");
    make_node(m, "Sqrt", "var2", "root");
    make_node(m, "Div", "off,root", "n");
    make_node(m, "Mul", "n,w", "scaled");
    make_node(m, "Add", "scaled,b", "y");
    make_output(m, "y");
    struct ull__graph *g = parse(m);
    assert_int_equal(g->nodes[0].op == &ull__op_layer_norm, is);
    ull__graph_destroy(g);
}

static void test_alike(void **state)
{
    (void)state;
    check_gelu(1.41421356, 1, 0.5, true);
    check_gelu(1.5, 1, 0.5, false);
    check_gelu(1.41421356, 2, 0.5, false);
    check_gelu(1.41421356, 1, 0.25, false);
    check_norm("-1", "2", "6", true);
    check_norm("1,2", "1,2", "4,6", true);
    check_norm("1,2", "1,2", "6", false); /* weights that are repeated */
    check_norm("1", "1", "6", false);
    check_norm("2", "1,2", "6", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
