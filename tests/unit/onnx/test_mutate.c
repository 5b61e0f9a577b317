/*
 * test_mutate.c: models that are well-formed messages and make no sense: other operators, inputs, numbers and shapes in
 * models that PyTorch wrote. Each is a graph whose sizes are there for every batch, or an error.
 *
 *   ULLAGE_ONNX_MUTATIONS=N   as many of each file; ULLAGE_ONNX_SEED=N other ones
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file.h"
#include "onnx.h"
#include "onnx.pb-c.h"
#include "step.h"

static uint64_t state = 1;

static size_t below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return n == 0 ? 0 : (size_t)(state >> 11) % n;
}

static int64_t number(void)
{
    static const int64_t numbers[] = {0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      5,
                                      7,
                                      16,
                                      64,
                                      -1,
                                      -2,
                                      -7,
                                      1000,
                                      INT32_MAX,
                                      INT64_MAX,
                                      INT64_MIN,
                                      INT64_C(1) << 40,
                                      INT64_C(1) << 61,
                                      INT64_C(1) << 31,
                                      -(INT64_C(1) << 33)};
    return numbers[below(sizeof(numbers) / sizeof(numbers[0]))];
}

static void set_text(char **text, const char *to)
{
    char *copy = strdup(to);
    if (*text != protobuf_c_empty_string) {
        free(*text);
    }
    *text = copy;
}

/* The name of some value. */
static const char *some_name(const Onnx__GraphProto *g)
{
    if (below(3) == 0 && g->n_initializer > 0) {
        return g->initializer[below(g->n_initializer)]->name;
    }
    const Onnx__NodeProto *node = g->node[below(g->n_node)];
    return node->n_output > 0 ? node->output[below(node->n_output)] : "";
}

static void change_tensor(Onnx__TensorProto *t)
{
    switch (below(4)) {
    case 0:
        if (t->n_dims > 0) {
            t->dims[below(t->n_dims)] = number();
        }
        break;
    case 1:
        t->data_type = (int32_t)below(17);
        break;
    case 2:
        t->n_dims = below(t->n_dims + 1);
        break;
    default:
        if (t->has_raw_data && t->data_type == 7 && t->raw_data.len >= 8) {
            int64_t value = number();
            memcpy(t->raw_data.data + below(t->raw_data.len / 8) * 8, &value, 8);
        } else if (t->has_raw_data && t->raw_data.len > 0) {
            t->raw_data.data[below(t->raw_data.len)] ^= (uint8_t)(1u << below(8));
        }
    }
}

static void change_attribute(Onnx__AttributeProto *a)
{
    static const char *const names[] = {
        "axis",    "axes",  "perm",  "to",        "keepdims", "alpha", "kernel_shape",
        "strides", "pads",  "group", "dilations", "split",    "value", "blocksize",
        "upper",   "start", "end",   "allowzero", "mode"};
    if (below(6) == 0) {
        set_text(&a->name, names[below(sizeof(names) / sizeof(names[0]))]);
    } else if (a->t != NULL) {
        change_tensor(a->t);
    } else if (a->n_ints > 0) {
        a->ints[below(a->n_ints)] = number();
        a->n_ints -= below(5) == 0;
    } else {
        a->has_i = 1;
        a->i = number();
    }
}

static void change_node(const Onnx__GraphProto *g, Onnx__NodeProto *node)
{
    int operators = 0;
    while (ull__onnx_operator(operators) != NULL) {
        operators += 1;
    }
    switch (below(5)) {
    case 0:
        set_text(&node->op_type, ull__onnx_operator((int)below((size_t)operators)));
        break;
    case 1:
    case 2:
        if (node->n_input > 0) {
            set_text(&node->input[below(node->n_input)], below(9) == 0 ? "" : some_name(g));
        }
        break;
    case 3:
        if (node->n_input > 1 && below(2) == 0) {
            free(node->input[--node->n_input]);
        } else if (node->n_output > 1) {
            free(node->output[--node->n_output]);
        }
        break;
    default:
        if (node->n_attribute > 0) {
            change_attribute(node->attribute[below(node->n_attribute)]);
        }
    }
}

static void change(Onnx__ModelProto *model)
{
    Onnx__GraphProto *g = model->graph;
    size_t kind = below(12);
    if (kind == 0) {
        model->opset_import[0]->version = 6 + (int64_t)below(12);
    } else if (kind == 1) {
        Onnx__TensorShapeProto *shape = g->input[0]->type->tensor_type->shape;
        Onnx__TensorShapeProto__Dimension *dim = shape->dim[below(shape->n_dim)];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
            dim->dim_value = number();
        }
    } else if (kind == 2 && g->n_initializer > 0) {
        change_tensor(g->initializer[below(g->n_initializer)]);
    } else if (kind == 3) {
        set_text(&g->output[0]->name, some_name(g));
    } else {
        change_node(g, g->node[below(g->n_node)]);
    }
}

/* Whether it was accepted. */
static bool try_one(const uint8_t *data, size_t size, bool values)
{
    struct ull__onnx_options options = {.label = "m", .values = values, .as_is = below(8) == 0};
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    int64_t sizes[ULL_SYMBOLS];
    if (ull__onnx_parse(data, size, &options, &graph, &err) != ULL_OK) {
        assert_null(graph);
        assert_true(err.message[0] != '\0');
        if (getenv("ULLAGE_ONNX_SAY") != NULL) {
            print_message("%s\n", err.message);
        }
        return false;
    }
    ull__graph_values(graph, 64, sizes);
    if (ull__graph_check(graph, sizes, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    struct ull__step_options step = {.optimizer = ULL_OPTIMIZER_ADAMW};
    if (graph->loss_count > 0 && ull__step_build(graph, &step, &err) == ULL_OK) {
        ull__graph_values(graph, 3, sizes);
        if (ull__graph_check(graph, sizes, &err) != ULL_OK && getenv("ULLAGE_ONNX_SAY") != NULL) {
            print_message("step: %s\n", err.message);
        }
    }
    ull__graph_destroy(graph);
    return true;
}

static int mutate(const char *name, int rounds)
{
    char path[512], *data;
    size_t size;
    int fine = 0;
    snprintf(path, sizeof(path), "%s/%s.onnx", MODELS, name);
    assert_int_equal(ull__file_read(path, 1 << 20, &data, &size, NULL), ULL_OK);
    for (int i = 0; i < rounds; ++i) {
        uint64_t before = state;
        Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size, (uint8_t *)data);
        assert_non_null(model);
        for (size_t j = below(4) + 1; j > 0; --j) {
            change(model);
        }
        size_t length = onnx__model_proto__get_packed_size(model);
        uint8_t *bytes = malloc(length + 1);
        assert_non_null(bytes);
        onnx__model_proto__pack(model, bytes);
        onnx__model_proto__free_unpacked(model, NULL);
        if (getenv("ULLAGE_ONNX_SAY") != NULL) {
            print_message("%s, seed %llu: ", name, (unsigned long long)before);
        }
        fine += try_one(bytes, length, i % 2 == 0);
        free(bytes);
    }
    free(data);
    return fine;
}

static void test_mutations(void **unused)
{
    static const char *const names[] = {"gpt-small",         "gpt-small-fixed", "gpt-small-eval",
                                        "resnet-small-eval", "resnet-small",    "unet-small"};
    const char *more = getenv("ULLAGE_ONNX_MUTATIONS"), *seed = getenv("ULLAGE_ONNX_SEED");
    int rounds = more != NULL ? atoi(more) : 100, fine = 0, all = 0;
    (void)unused;
    state = seed != NULL ? strtoull(seed, NULL, 10) : 88172645463325252u;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        fine += mutate(names[i], rounds);
        all += rounds;
    }
    print_message("%d of %d are models\n", fine, all);
    assert_true(rounds < 100 || (fine > all / 10 && fine < all * 9 / 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
