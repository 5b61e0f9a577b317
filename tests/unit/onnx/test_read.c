/*
 * test_read.c: models that PyTorch wrote (tools/export_onnx.py) become the graphs that the zoo has of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "onnx.h"
#include "ops.h"
#include "step.h"
#include "zoo.h"

static struct ull__graph *read_model(const char *name, bool values, const char *size, int64_t number)
{
    char path[512];
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    struct ull__onnx_size given = {.value = number};
    struct ull__onnx_options options = {.values = values, .sizes = &given, .size_count = size != NULL};
    snprintf(given.name, sizeof(given.name), "%s", size != NULL ? size : "");
    snprintf(path, sizeof(path), "%s/%s.onnx", MODELS, name);
    if (ull__onnx_read(path, &options, &graph, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return graph;
}

/* Operators with what distinguishes them, shapes and blocks, a line each. */
static char *described(const struct ull__graph *g)
{
    size_t room = (size_t)g->node_count * 400 + 1, at = 0;
    char *text = calloc(1, room);
    assert_non_null(text);
    for (int i = 0; i < g->node_count; ++i) {
        const struct ull__node *node = &g->nodes[i];
        bool first = node->block != ULL_NONE && (i == 0 || g->nodes[i - 1].block != node->block);
        at += (size_t)snprintf(text + at, room - at, "%c %s",
                               first                     ? '*'
                               : node->block != ULL_NONE ? '|'
                                                         : ' ',
                               node->op->name);
        if (node->op == &ull__op_unary) {
            at += (size_t)snprintf(text + at, room - at, " %s",
                                   ull__unary_text((enum ull__unary)node->attrs.unary.kind));
        } else if (node->op == &ull__op_attention) {
            at += (size_t)snprintf(text + at, room - at, " %d heads, causal %d",
                                   node->attrs.attention.heads, node->attrs.attention.causal);
        } else if (node->op == &ull__op_matmul) {
            at += (size_t)snprintf(text + at, room - at, " %d %d", node->attrs.matmul.transpose_a,
                                   node->attrs.matmul.transpose_b);
        }
        for (int j = 0; j < node->input_count + node->output_count; ++j) {
            char shape[128];
            int tensor =
                j < node->input_count ? node->inputs[j] : node->outputs[j - node->input_count];
            if (tensor != ULL_NONE) {
                at += (size_t)snprintf(text + at, room - at, "%s %s",
                                       j == node->input_count ? " ->" : "",
                                       ull__tensor_text(g, tensor, shape, sizeof(shape)));
            }
        }
        at += (size_t)snprintf(text + at, room - at, "\n");
    }
    return text;
}

static void must_be_same(const struct ull__graph *one, const struct ull__graph *other)
{
    char *a = described(one), *b = described(other);
    for (char *x = a, *y = b; *x != '\0' || *y != '\0';) {
        size_t n = strcspn(x, "\n"), m = strcspn(y, "\n");
        if (n != m || memcmp(x, y, n) != 0) {
            fail_msg("%s: '%.*s'\n%s: '%.*s'", one->name, (int)n, x, other->name, (int)m, y);
        }
        x += n + 1;
        y += m + 1;
    }
    free(a);
    free(b);
}

static void must_be(const char *name, const char *zoo)
{
    struct ull_error err = {{0}};
    struct ull__graph *read = read_model(name, false, NULL, 0), *built = NULL;
    if (ull__zoo_build(zoo, &built, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(ull__graph_parameters(read), ull__graph_parameters(built));
    assert_int_equal(read->tensor_count, built->tensor_count);
    must_be_same(read, built);
    ull__graph_destroy(read);
    ull__graph_destroy(built);
}

static void test_zoo(void **state)
{
    (void)state;
    must_be("resnet18", "resnet18");
    must_be("resnet50", "resnet50"); /* of one sample: the batch is a symbol all the same */
    must_be("gpt2-32", "gpt2-124m:context=32");
}

/* The same model in other operator sets, and with other dimensions open. */
static void test_same(void **state)
{
    (void)state;
    struct ull__graph *one = read_model("gpt-small", true, NULL, 0);
    struct ull__graph *fixed = read_model("gpt-small-fixed", true, NULL, 0);
    struct ull__graph *open = read_model("gpt-small-time", true, "time", 16);
    must_be_same(one, fixed);
    must_be_same(one, open);
    ull__graph_destroy(fixed);
    ull__graph_destroy(open);
    open = read_model("gpt-small-time", true, "time", 5);    /* the mask is cut */
    assert_int_equal(open->node_count, one->node_count + 1); /* and the table of places */
    ull__graph_destroy(open);
    ull__graph_destroy(one);
    one = read_model("resnet-small", true, NULL, 0);
    fixed = read_model("resnet-small-fixed", true, NULL, 0);
    must_be_same(one, fixed);
    ull__graph_destroy(fixed);
    ull__graph_destroy(one);
}

static int find_tensor(const struct ull__graph *g, const char *name)
{
    for (int i = 0; i < g->tensor_count; ++i) {
        if (strcmp(g->tensors[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("no tensor '%s'", name);
    return ULL_NONE;
}

static int count_ops(const struct ull__graph *g, const struct ull__op *op)
{
    int count = 0;
    for (int i = 0; i < g->node_count; ++i) {
        count += g->nodes[i].op == op;
    }
    return count;
}

/* Weights have their values, statistics are state, and nothing that is no weight is trained. */
static void test_values(void **state)
{
    (void)state;
    struct ull__graph *g = read_model("resnet-small", true, NULL, 0);
    const struct ull__tensor *w = &g->tensors[find_tensor(g, "layer1.0.bn1.weight")];
    assert_int_equal(w->role, ULL_ROLE_PARAMETER);
    assert_int_equal(w->init, ULL_INIT_DATA);
    assert_int_equal(w->data_bytes, 8 * sizeof(float));
    assert_true(((const float *)w->data)[7] == 1);
    w = &g->tensors[find_tensor(g, "layer1.0.bn1.running_var")];
    assert_int_equal(w->role, ULL_ROLE_STATE);
    assert_true(w->data != NULL && ((const float *)w->data)[0] > 0.5f);
    ull__graph_destroy(g);
    g = read_model("resnet-small", false, NULL, 0);
    assert_null(g->tensors[find_tensor(g, "layer1.0.bn1.weight")].data);
    ull__graph_destroy(g);
    g = read_model("gpt-small-eval", true, NULL, 0); /* GELU by erf; weights that were named once */
    assert_int_equal(count_ops(g, &ull__op_attention), 1);
    assert_int_equal(count_ops(g, &ull__op_layer_norm), 3);
    assert_int_equal(g->tensors[find_tensor(g, "ln_f.weight")].role, ULL_ROLE_PARAMETER);
    assert_int_equal(g->tensors[find_tensor(g, "h.0.ln_1.weight")].role, ULL_ROLE_PARAMETER);
    ull__graph_destroy(g);
    g = read_model("unet-small", true, NULL, 0);
    assert_int_equal(count_ops(g, &ull__op_mse), 1);
    assert_int_equal(count_ops(g, &ull__op_conv_transpose2d), 2);
    assert_int_equal(count_ops(g, &ull__op_pad), 0);
    ull__graph_destroy(g);
}

/* What was read can be trained. */
static void test_step(void **state)
{
    static const char *const names[] = {"resnet-small", "resnet-small-eval", "gpt-small",
                                        "gpt-small-eval", "unet-small"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAMW};
        struct ull__graph *g = read_model(names[i], false, NULL, 0);
        struct ull_error err = {{0}};
        int64_t values[ULL_SYMBOLS];
        if (ull__step_build(g, &options, &err) != ULL_OK) {
            fail_msg("%s: %s", names[i], err.message);
        }
        ull__graph_values(g, 7, values);
        if (ull__graph_check(g, values, &err) != ULL_OK) {
            fail_msg("%s: %s", names[i], err.message);
        }
        ull__graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zoo),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
