/*
 * test_ops.c: the operators' rules: shapes as NumPy's and PyTorch's documentation has them, gradients of the shape of
 * what they are of, shapes that do not fit refused with all of them named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops.h"
#include "share.h"
#include "step.h"

static struct ull__graph *g;

static int setup(void **state)
{
    (void)state;
    g = ull__graph_create();
    return g == NULL;
}

static int teardown(void **state)
{
    (void)state;
    ull__graph_destroy(g);
    return 0;
}

static int input(const char *shape)
{
    ull__dim dims[ULL_RANK];
    int rank = 0;
    for (const char *at = shape; *at != '\0'; ++rank) {
        char *end;
        dims[rank] = *at == 'b' ? g->batch : strtoll(at, &end, 10);
        at = *at == 'b' ? at + 1 : end;
        at += *at == ',';
    }
    return ull__graph_parameter(g, "p", rank, dims, ULL_INIT_ZERO, 0);
}

static int ids(const char *shape)
{
    int tensor = input(shape);
    g->tensors[tensor].type = ULL_TYPE_I64;
    g->tensors[tensor].role = ULL_ROLE_INPUT;
    return tensor;
}

static void is(int tensor, const char *expected)
{
    char text[160];
    if (!ull__graph_ok(g)) {
        fail_msg("%s", g->error.message);
    }
    assert_string_equal(ull__tensor_text(g, tensor, text, sizeof(text)), expected);
}

static void shapes_of_pictures(void **state)
{
    (void)state;
    int x = input("b,3,224,225");
    is(ull__conv2d(g, x, input("64,3,7,7"), input("64"), ull__window(7, 2, 3)),
       "f32[batch, 64, 112, 113]");
    struct ull__window window = {.kernel = {3, 5},
                                 .stride = {2, 3},
                                 .dilation = {2, 1},
                                 .before = {1, 0},
                                 .after = {0, 2},
                                 .groups = 3};
    /* (224 + 1 - 5) / 2 + 1, (225 + 2 - 5) / 3 + 1 */
    is(ull__conv2d(g, x, input("6,1,3,5"), ULL_NONE, window), "f32[batch, 6, 111, 75]");
    is(ull__max_pool(g, x, ull__window(3, 2, 1)), "f32[batch, 3, 112, 113]");
    is(ull__graph_output(g, ull__max_pool(g, x, ull__window(3, 2, 1)), 1),
       "u8[batch, 3, 112, 113]");
    struct ull__window ceil = ull__window(2, 2, 0);
    ceil.ceil_mode = true;
    is(ull__avg_pool(g, x, ceil), "f32[batch, 3, 112, 113]");
    is(ull__global_avg_pool(g, x), "f32[batch, 3, 1, 1]");
    is(ull__upsample_nearest(g, x, 2), "f32[batch, 3, 448, 450]");
    is(ull__conv_transpose2d(g, x, input("3,8,2,2"), ULL_NONE, ull__window(2, 2, 0)),
       "f32[batch, 8, 448, 450]");
}

static void shapes_of_sequences(void **state)
{
    (void)state;
    int x = input("b,128,768");
    is(ull__linear(g, x, input("3072,768"), input("3072")), "f32[batch, 128, 3072]");
    is(ull__layer_norm(g, x, input("768"), input("768"), 2, 1e-5), "f32[batch, 128, 768]");
    int packed = input("b,128,2304");
    struct ull__attention_attrs attrs = {.heads = 12, .kv_heads = 12, .causal = true};
    int out = ull__attention(g, packed, ULL_NONE, ULL_NONE, ULL_NONE, attrs);
    is(out, "f32[batch, 128, 768]");
    is(ull__graph_output(g, out, 1), "f32[batch, 12, 128]");
    attrs.kv_heads = 4;
    is(ull__attention(g, x, input("b,64,256"), input("b,64,256"), ULL_NONE, attrs),
       "f32[batch, 128, 768]");
    is(ull__embedding(g, ids("b,128"), input("1000,768")), "f32[batch, 128, 768]");
    is(ull__rotary(g, x, 12, (struct ull__rotary_attrs){.base = 10000}), "f32[batch, 128, 768]");
    is(ull__cross_entropy(g, x, ids("b,128"), ULL_NONE, (struct ull__loss_attrs){0}), "f32[]");
    is(ull__linear_cross_entropy(g, x, input("1000,768"), ids("b,128"), ULL_NONE,
                                 (struct ull__loss_attrs){.chunk = 64}),
       "f32[]");
}

static void shapes_of_both(void **state)
{
    (void)state;
    int x = input("b,4,6");
    is(ull__matmul(g, input("5,1,2,3"), input("7,3,4"), false, false), "f32[5, 7, 2, 4]");
    is(ull__matmul(g, input("3,2"), input("4,3"), true, true), "f32[2, 4]");
    is(ull__binary(g, ULL_BINARY_ADD, x, input("4,1")), "f32[batch, 4, 6]");
    is(ull__binary(g, ULL_BINARY_LESS, x, input("6")), "bool[batch, 4, 6]");
    is(ull__where(g, ull__binary(g, ULL_BINARY_LESS, x, x), x, ull__graph_scalar(g, 1)),
       "f32[batch, 4, 6]");
    is(ull__reduce(g, ULL_REDUCE_MEAN, x, 1u << 1, false), "f32[batch, 6]");
    is(ull__reduce(g, ULL_REDUCE_MAX, x, 7, true), "f32[1, 1, 1]");
    is(ull__reshape(g, x, 2, (ull__dim[]){ULL_NONE, 3}), "f32[8*batch, 3]");
    is(ull__flatten(g, x, 1), "f32[batch, 24]");
    is(ull__transpose(g, x, (int[]){2, 0, 1}), "f32[6, batch, 4]");
    is(ull__expand(g, input("1,6"), 3, (ull__dim[]){g->batch, 4, 6}), "f32[batch, 4, 6]");
    is(ull__concat(g, (int[]){x, x, input("b,4,1")}, 3, 2), "f32[batch, 4, 13]");
    int part = ull__split(g, x, 2, 2, (ull__dim[]){2, 4});
    is(part, "f32[batch, 4, 2]");
    is(ull__graph_output(g, part, 1), "f32[batch, 4, 4]");
    is(ull__slice(g, x, 1, 3, 2, -2), "f32[batch, 2, 6]");
    is(ull__gather(g, x, ids("5,2"), 1), "f32[batch, 5, 2, 6]");
    is(ull__pad(g, x, (ull__dim[]){0, 1, 0}, (ull__dim[]){0, 2, 3}, 0), "f32[batch, 7, 9]");
    is(ull__cast(g, x, ULL_TYPE_BF16), "bf16[batch, 4, 6]");
    is(ull__mse(g, x, x, ULL_NONE), "f32[]");
    is(ull__matmul(g, input("0,3"), input("3,4"), false, false), "f32[0, 4]");
}

/* A view has no memory of its own; what is not a run of bytes is no view. */
static void views(void **state)
{
    (void)state;
    int x = input("6,4,2");
    assert_int_equal(ull__tensor_owner(g, ull__reshape(g, x, 1, (ull__dim[]){48})), x);
    int part = ull__graph_output(g, ull__split(g, x, 0, 3, NULL), 2);
    assert_int_equal(ull__tensor_owner(g, part), x);
    assert_int_equal(g->tensors[part].alias_offset, 2 * 2 * 4 * 2 * 4);
    int slice = ull__slice(g, x, 0, 1, 2, 1);
    assert_int_equal(g->tensors[slice].alias_offset, 4 * 2 * 4);
    slice = ull__slice(g, x, 1, 1, 2, 1);
    assert_int_equal(g->tensors[slice].alias, ULL_NONE);
    slice = ull__slice(g, x, 0, 0, 2, 2);
    assert_int_equal(g->tensors[slice].alias, ULL_NONE);
    /* Dimensions of 1 move without a copy. */
    int y = ull__transpose(g, input("5,1,7"), (int[]){1, 0, 2});
    assert_int_equal(g->tensors[y].alias, y - 1);
    y = ull__transpose(g, x, (int[]){1, 0, 2});
    assert_int_equal(g->tensors[y].alias, ULL_NONE);
}

static void refused(int tensor, const char *part)
{
    if (tensor != ULL_NONE || ull__graph_ok(g)) {
        fail_msg("what should be refused with '%s' was not", part);
    }
    if (strstr(g->error.message, part) == NULL) {
        fail_msg("'%s' does not say '%s'", g->error.message, part);
    }
    g->status = ULL_OK;
}

static void shapes_that_do_not_fit(void **state)
{
    (void)state;
    int x = input("b,4,6"), p = input("b,3,8,8");
    refused(ull__matmul(g, x, input("5,6"), false, false), "f32[batch, 4, 6], f32[5, 6]");
    refused(ull__binary(g, ULL_BINARY_ADD, x, input("5")), "do not fit");
    refused(ull__conv2d(g, p, input("8,4,3,3"), ULL_NONE, ull__window(3, 1, 1)), "channels");
    refused(ull__conv2d(g, p, input("8,3,9,9"), ULL_NONE, ull__window(9, 1, 0)), "smaller");
    refused(ull__conv2d(g, p, input("8,3,3,3"), ULL_NONE, ull__window(3, 0, 0)), "stride 0");
    refused(ull__max_pool(g, p, ull__window(0, 1, 0)), "window 0");
    refused(ull__reshape(g, x, 2, (ull__dim[]){g->batch, 23}), "24*batch elements");
    refused(ull__transpose(g, x, (int[]){0, 0, 1}), "order");
    refused(ull__concat(g, (int[]){x, input("b,5,6")}, 2, 2), "part 1");
    refused(ull__slice(g, x, 1, 3, 2, 1), "elements 3 to 4 of 4");
    refused(ull__slice(g, x, 3, 0, 1, 1), "axis 3");
    refused(ull__reduce(g, ULL_REDUCE_SUM, x, 1u << 3, false), "0x8");
    refused(ull__dropout(g, x, 1.5), "rate 1.5");
    refused(ull__embedding(g, x, x), "whole numbers");
    refused(ull__softmax(g, x, 3), "axis 3");
    refused(ull__attention(g, x, ULL_NONE, ULL_NONE, ULL_NONE,
                           (struct ull__attention_attrs){.heads = 4, .kv_heads = 4}),
            "equal heads");
    refused(ull__bias(g, x, input("5"), 2), "does not fit");
    int flags = input("5");
    g->tensors[flags].type = ULL_TYPE_BOOL;
    refused(ull__share_reduce(g, flags, ULL_REDUCTION_MEAN, 2, false), "yes and no have no mean");
    assert_int_not_equal(ull__share_reduce(g, flags, ULL_REDUCTION_MAX, 2, false), ULL_NONE);
    refused(ull__cross_entropy(g, x, ids("b,5"), ULL_NONE, (struct ull__loss_attrs){0}), "targets");
    ull__dim large[2] = {ULL_DIM_MOST, 8};
    refused(ull__graph_parameter(g, "n", 2, (ull__dim[]){-1, 2}, ULL_INIT_ZERO, 0), "'n' is -1");
    int many = ull__graph_parameter(g, "many", 2, large, ULL_INIT_ZERO, 0);
    assert_true(ull__tensor_bytes(g, many, NULL) == ULL_DIM_BAD);
    /* After an error nothing is made, and the first one stays. */
    int nodes = g->node_count;
    ull__binary(g, ULL_BINARY_ADD, x, input("5"));
    ull__softmax(g, x, 0);
    assert_int_equal(g->node_count, nodes + 1);
}

/* Whatever is put together, a gradient has the shape and type of what it is of. */
static void gradients_have_shapes(void **state)
{
    (void)state;
    int x = input("b,4,6"), p = input("b,3,8,9");
    int c[3];
    c[0] = ull__flatten(
        g,
        ull__conv2d(g, p, input("6,1,3,3"), input("6"),
                    (struct ull__window){{0}, {2, 1}, {1, 2}, {1, 0}, {2, 1}, 3, false, false, {0}}),
        1);
    int pooled = ull__max_pool(g, p, ull__window(3, 2, 1));
    pooled = ull__avg_pool(g, ull__upsample_nearest(g, pooled, 2), ull__window(2, 2, 0));
    pooled = ull__conv_transpose2d(g, pooled, input("3,2,3,3"), input("2"), ull__window(3, 2, 1));
    c[1] = ull__flatten(g, pooled, 1);
    int y = x;
    for (int kind = 0; kind < ULL_UNARIES; ++kind) {
        if (kind != ULL_UNARY_NOT && kind != ULL_UNARY_FLOOR && kind != ULL_UNARY_CEIL &&
            kind != ULL_UNARY_ROUND && kind != ULL_UNARY_SIGN) {
            y = ull__unary(g, (enum ull__unary)kind, y);
        }
    }
    for (int kind = 0; kind < ULL_BINARY_EQUAL; ++kind) {
        y = ull__binary(g, (enum ull__binary)kind, y, input(kind % 2 == 0 ? "4,1" : "6"));
    }
    for (int kind = 0; kind < ULL_REDUCES; ++kind) {
        y = ull__binary(g, ULL_BINARY_MUL, y, ull__reduce(g, (enum ull__reduce)kind, y, 2, true));
    }
    y = ull__where(g, ull__binary(g, ULL_BINARY_LESS, y, x), y, input("6"));
    y = ull__log_softmax(g, ull__softmax(g, y, 1), 2);
    y = ull__rms_norm(g, ull__layer_norm(g, y, input("6"), input("6"), 2, 1e-5), input("6"), 1e-5);
    y = ull__pad(g, ull__slice(g, y, 1, 0, 2, 2), (ull__dim[]){0, 1, 0}, (ull__dim[]){0, 1, 0}, 0);
    y = ull__graph_output(g, ull__split(g, y, 2, 2, NULL), 1);
    y = ull__gather(g, ull__transpose(g, y, (int[]){0, 2, 1}), ids("5"), 2);
    y = ull__dropout(g,
                     ull__expand(g, ull__reshape(g, y, 4, (ull__dim[]){g->batch, 1, 3, 5}), 4,
                                 (ull__dim[]){g->batch, 2, 3, 5}),
                     0.1);
    y = ull__cast(g, ull__cast(g, y, ULL_TYPE_F16), ULL_TYPE_F32);
    c[2] = ull__flatten(g, y, 1);
    int all = ull__concat(g, c, 3, 1);
    ull__graph_loss(g, ull__mse(g, all, ull__unary(g, ULL_UNARY_TANH, all), ULL_NONE), 1);
    ull__graph_loss(g, ull__cross_entropy(g, all, ids("b"), ULL_NONE, (struct ull__loss_attrs){0}),
                    0.5);
    int last = g->tensor_count;
    int *gradient = calloc((size_t)last, sizeof(*gradient));
    ull__differentiate(g, ULL_NONE, gradient, NULL, NULL);
    if (!ull__graph_ok(g)) {
        fail_msg("%s", g->error.message);
    }
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(g, 5, values);
    struct ull_error err = {{0}};
    if (ull__graph_check(g, values, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    for (int i = 0; i < last; ++i) {
        const struct ull__tensor *of = &g->tensors[i];
        if (of->role == ULL_ROLE_PARAMETER && of->node == ULL_NONE) {
            assert_int_not_equal(gradient[i], ULL_NONE);
        }
        if (gradient[i] != ULL_NONE) {
            const struct ull__tensor *is_of = &g->tensors[gradient[i]];
            assert_int_equal(is_of->type, of->type);
            assert_int_equal(is_of->rank, of->rank);
            for (int j = 0; j < of->rank; ++j) {
                assert_int_equal(ull__dim_value(g->symbols, is_of->dims[j], values),
                                 ull__dim_value(g->symbols, of->dims[j], values));
            }
        }
    }
    free(gradient);
}

/* Every operator of the list is complete, and has a name of its own. */
static void the_list(void **state)
{
    (void)state;
    for (int i = 0; ull__ops[i] != NULL; ++i) {
        assert_non_null(ull__ops[i]->infer);
        assert_ptr_equal(ull__op_find(ull__ops[i]->name), ull__ops[i]);
    }
    assert_null(ull__op_find("nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shapes_of_pictures, setup, teardown),
        cmocka_unit_test_setup_teardown(shapes_of_sequences, setup, teardown),
        cmocka_unit_test_setup_teardown(shapes_of_both, setup, teardown),
        cmocka_unit_test_setup_teardown(views, setup, teardown),
        cmocka_unit_test_setup_teardown(shapes_that_do_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_have_shapes, setup, teardown),
        cmocka_unit_test(the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
