/*
 * test_bad.c: files that are wrong, cut off, or made to do harm: each a clear error, in little time. And what a
 * model without a loss gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "make.h"
#include "onnx.h"
#include "ops.h"

static struct ull__onnx_options options(void)
{
    return (struct ull__onnx_options){.label = "m.onnx", .values = true};
}

static ull_status parse(struct make *m, const struct ull__onnx_options *with,
                        struct ull__graph **graph, struct ull_error *err)
{
    size_t size;
    uint8_t *bytes = make_bytes(m, &size);
    ull_status status = ull__onnx_parse(bytes, size, with, graph, err);
    free(bytes);
    return status;
}

static void refused_with(struct make *m, const struct ull__onnx_options *with, ull_status expected,
                         const char *part)
{
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    ull_status status = parse(m, with, &graph, &err);
    assert_null(graph);
    if (status != expected || strstr(err.message, part) == NULL) {
        fail_msg("%s: '%s' does not say '%s'", ull_status_name(status), err.message, part);
    }
}

static void refused(struct make *m, const char *part)
{
    struct ull__onnx_options with = options();
    refused_with(m, &with, ULL_E_FORMAT, part);
}

static struct ull__graph *accepted(struct make *m)
{
    struct ull__onnx_options with = options();
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    if (parse(m, &with, &graph, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return graph;
}

/* x [batch, 4] times w [4, 3] is y. */
static struct make *small(void)
{
    struct make *m = make_new(13);
    make_input(m, "x", 1, "n,4");
    make_weight(m, "w", "4,3");
    make_node(m, "MatMul", "x,w", "y");
    make_output(m, "y");
    return m;
}

static void test_bytes(void **state)
{
    struct ull__onnx_options with = options();
    struct ull_error err = {{0}};
    struct ull__graph *graph = NULL;
    size_t size;
    uint8_t *bytes = make_bytes(small(), &size);
    (void)state;
    assert_int_equal(ull__onnx_parse("", 0, &with, &graph, &err), ULL_E_FORMAT);
    assert_non_null(strstr(err.message, "empty"));
    assert_int_equal(ull__onnx_parse("GIF89a and more", 15, &with, &graph, &err), ULL_E_FORMAT);
    for (size_t i = 0; i < size; ++i) { /* all that it is cut off to */
        if (ull__onnx_parse(bytes, i, &with, &graph, &err) == ULL_OK) {
            ull__graph_destroy(graph);
            graph = NULL;
        }
        assert_true(memchr(err.message, 0, sizeof(err.message)) != NULL);
    }
    assert_int_equal(ull__onnx_parse(bytes, size, &with, &graph, &err), ULL_OK);
    ull__graph_destroy(graph);
    free(bytes);
}

/* Graphs in attributes of nodes of graphs ...: `levels` messages in each other. */
static void test_nesting(void **state)
{
    static const uint8_t tags[] = {0x32, 0x0a, 0x2a}; /* attribute.g, graph.node, node.attribute */
    enum { LEVELS = 60000 };
    size_t room = LEVELS * 6, at = room, length = 0;
    uint8_t *bytes = calloc(1, room + 8);
    (void)state;
    assert_non_null(bytes);
    for (int i = 0; i < LEVELS; ++i) {
        int from_top = LEVELS - 1 - i;
        uint8_t head[6] = {from_top == 0 ? 0x3a : tags[from_top % 3]};
        size_t heads = 1;
        for (size_t rest = length; heads == 1 || rest > 0; rest >>= 7) {
            head[heads++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        }
        at -= heads;
        memcpy(bytes + at, head, heads);
        length += heads;
    }
    struct ull__onnx_options with = options();
    struct ull_error err = {{0}};
    struct ull__graph *graph = NULL;
    assert_int_equal(ull__onnx_parse(bytes + at, room - at, &with, &graph, &err), ULL_E_FORMAT);
    assert_non_null(strstr(err.message, "nested"));
    free(bytes);
}

static void test_names(void **state)
{
    struct make *m = small();
    (void)state;
    make_node(m, "Relu", "b", "a");
    make_node(m, "Relu", "a", "b");
    refused(m, "2 nodes wait for each other in a cycle");
    m = small();
    make_node(m, "Relu", "a", "a");
    refused(m, "cycle");
    m = small();
    make_node(m, "Relu", "nobody", "a");
    refused(m, "reads 'nobody', which nothing makes");
    m = small();
    make_node(m, "Relu", "y", "y");
    refused(m, "'y' is made twice");
    m = small();
    make_output(m, "z");
    refused(m, "output 'z'");
    m = make_new(13);
    make_input(m, "x", 1, "n,4");
    refused(m, "no output");
    m = small();
    make_model(m)->graph = NULL;
    refused(m, "no graph");
    m = make_new(13); /* not sorted, which works */
    make_input(m, "x", 1, "n,4");
    make_node(m, "Sigmoid", "a", "y");
    make_node(m, "Relu", "x", "a");
    make_output(m, "y");
    struct ull__graph *g = accepted(m);
    assert_int_equal(g->nodes[0].attrs.unary.kind, ULL_UNARY_RELU);
    ull__graph_destroy(g);
}

static void test_operators(void **state)
{
    struct make *m = make_new(5);
    (void)state;
    refused(m, "operator set 5: expected 6 to 17");
    refused(make_new(18), "operator set 18");
    refused(make_new(-1), "operator set -1");
    m = small();
    for (int i = 0; i < 3; ++i) {
        char name[8];
        snprintf(name, sizeof(name), "a%d", i);
        make_node(m, "Loop", "x", name);
    }
    make_node(m, "If", "x", "b");
    Onnx__NodeProto *node = make_node(m, "Attention", "x", "c");
    node->domain = make_text(m, "com.microsoft");
    make_node(m, "Relu\n\033[31m", "x", "d");
    refused(m, "not supported: Loop (3), If (1), Relu??[31m (1), com.microsoft.Attention (1)");
    m = small();
    for (int i = 0; i < 200; ++i) { /* more than there is room for */
        char name[40], type[40];
        snprintf(name, sizeof(name), "a%d", i);
        snprintf(type, sizeof(type), "Operator%d", i);
        make_node(m, type, "x", name);
    }
    refused(m, "more");
}

static void shape_refused(const char *dims, const char *part)
{
    struct make *m = make_new(13);
    make_input(m, "x", 1, dims);
    make_node(m, "Relu", "x", "y");
    make_output(m, "y");
    refused(m, part);
}

static void test_shapes(void **state)
{
    (void)state;
    shape_refused("n,-3", "dimension 1 of input 'x' is -3");
    shape_refused("-1,3", "dimension 0 of input 'x' is -1");
    shape_refused("n,9223372036854775807", "is 9223372036854775807");
    shape_refused("n,1152921504606846976,1152921504606846976", "m.onnx");
    shape_refused("n,2,2,2,2,2,2,2,2", "more than 8 dimensions");
    shape_refused("", "none of its inputs");
    struct make *m = small();
    make_weight(m, "v", "4294967296,4294967296,4294967296");
    make_node(m, "Relu", "v", "z");
    refused(m, "which cannot be");
    m = small();
    make_weight(m, "v", "4,-5");
    make_node(m, "Relu", "v", "z");
    refused(m, "is -5");
    m = small();
    make_weight(m, "v", "4,5")->n_float_data = 19;
    make_node(m, "MatMul", "x,v", "z");
    make_output(m, "z");
    refused(m, "expected 80 for its shape");
    m = small();
    make_weight(m, "v", "5,3");
    make_node(m, "MatMul", "x,v", "z");
    refused(m, "do not fit");
    m = small();
    make_weight(m, "v", "5,3")->data_type = 8; /* text */
    make_node(m, "MatMul", "x,v", "z");
    refused(m, "type 8");
}

static void reshaped(const char *shape, const char *part)
{
    struct make *m = small();
    make_list(m, "s", shape);
    make_node(m, "Reshape", "y,s", "z");
    refused(m, part);
}

static void filled(const char *type, const char *shape, const char *part)
{
    struct make *m = small();
    make_list(m, "s", shape);
    make_number(m, "one", 1);
    make_node(m, type, strcmp(type, "Expand") == 0 ? "one,s" : "s", "c");
    make_node(m, "Add", "c,c", "z");
    make_output(m, "z");
    refused(m, part);
}

/* Sizes in the numbers of a file that cannot be, or that would need much memory or time. */
static void test_numbers(void **state)
{
    (void)state;
    reshaped("-1,-1", "more than one");
    reshaped("-2,3", "is -2");
    reshaped("0,0,0", "none");
    reshaped("5,7", "for every batch");
    reshaped("1,1,1,1,1,1,1,1,-1", "at most 8");
    filled("ConstantOfShape", "1152921504606846976,1152921504606846976", "m.onnx");
    filled("Expand", "1152921504606846976,1152921504606846976", "m.onnx");
    filled("ConstantOfShape", "-7", "is -7");
    struct make *m = small();
    make_number(m, "a", 0);
    make_number(m, "b", 1e30);
    make_number(m, "c", 1);
    make_node(m, "Range", "a,b,c", "z");
    refused(m, "more than are supported");
    m = small();
    make_number(m, "a", 0);
    make_node(m, "Range", "a,a,a", "z");
    refused(m, "not all known");
    m = small();
    make_list(m, "s", "4611686018427387904,2");
    make_node(m, "Tile", "y,s", "z");
    make_output(m, "z");
    refused(m, "m.onnx");
    m = small(); /* a division of sizes by zero */
    make_list(m, "s", "0");
    make_node(m, "Shape", "y", "t");
    make_node(m, "Div", "t,s", "u");
    make_node(m, "Reshape", "y,u", "z");
    refused(m, "m.onnx");
    m = small();
    make_ints(m, make_node(m, "Transpose", "y", "z"), "perm", "0,0");
    refused(m, "order");
    m = small();
    make_int(m, make_node(m, "Softmax", "y", "z"), "axis", INT64_MIN);
    refused(m, "axis");
    m = small();
    make_input(m, "p", 1, "n,3,8,8");
    make_weight(m, "k", "2,3,3,3");
    Onnx__NodeProto *node = make_node(m, "Conv", "p,k", "z");
    make_ints(m, node, "strides", "0,1");
    refused(m, "strides is 0");
    m = small();
    make_input(m, "p", 1, "n,3,8,8");
    node = make_node(m, "MaxPool", "p", "z");
    make_ints(m, node, "kernel_shape", "900000000,900000000");
    make_ints(m, node, "pads", "1000000000,1,1,1");
    refused(m, "m.onnx");
}

/* A token that all samples begin with, for a batch that was written as a number. */
static void test_fixed_batch(void **state)
{
    (void)state;
    for (int n = 1; n < 3; ++n) {
        struct make *m = make_new(13);
        make_input(m, "x", 1, n == 1 ? "1,6,4" : "2,6,4");
        make_weight(m, "first", n == 1 ? "1,1,4" : "2,1,4");
        make_list(m, "s", n == 1 ? "1,28" : "2,28");
        make_int(m, make_node(m, "Concat", "first,x", "y"), "axis", 1);
        make_node(m, "Reshape", "y,s", "z");
        make_output(m, "z");
        if (n == 1) {
            struct ull__graph *g = accepted(m);
            char text[64];
            assert_string_equal(ull__tensor_text(g, g->outputs[0], text, sizeof(text)),
                                "f32[batch, 28]");
            ull__graph_destroy(g);
        } else {
            refused(m, "has a batch of 2");
        }
    }
}

static void fixed_shape(const char *dims, const char *shape, const char *wanted)
{
    struct make *m = make_new(13);
    make_input(m, "x", 1, dims);
    make_list(m, "s", shape);
    make_node(m, "Reshape", "x,s", "y");
    make_output(m, "y");
    struct ull__graph *g = accepted(m);
    char text[64];
    assert_string_equal(ull__tensor_text(g, g->outputs[0], text, sizeof(text)), wanted);
    ull__graph_destroy(g);
}

/* Shapes with the number of samples in them, and a dimension that is left open. */
static void test_fixed_shapes(void **state)
{
    (void)state;
    fixed_shape("2,6,4", "2,-1,2", "f32[batch, 12, 2]");
    fixed_shape("2,6,4", "12,-1", "f32[6*batch, 4]");
    fixed_shape("2,6,4", "-1,4", "f32[6*batch, 4]");
    fixed_shape("2,6,4", "-1,2,4", "f32[3*batch, 2, 4]");
    fixed_shape("2,6,4", "12,4", "f32[6*batch, 4]");
    fixed_shape("2,6,4", "2,24", "f32[batch, 24]");
    fixed_shape("1,6,4", "6,1,4", "f32[6, batch, 4]");
    fixed_shape("2,6,4", "6,2,4", "f32[6, batch, 4]");
    fixed_shape("1,6,4", "1,-1", "f32[batch, 24]");
    fixed_shape("1,6,4", "6,4", "f32[6*batch, 4]");
    fixed_shape("1,6,4", "1,2,12", "f32[batch, 2, 12]");
}

/* Of attention with time in front: what is rows of a matrix, and heads beside the samples. */
static void test_time_first(void **state)
{
    (void)state;
    struct make *m = make_new(13);
    make_input(m, "x", 1, "1,6,8");
    make_ints(m, make_node(m, "Transpose", "x", "t"), "perm", "1,0,2");
    make_list(m, "heads", "6,2,4");
    make_list(m, "flat", "6,8");
    make_list(m, "back", "6,1,8");
    make_weight(m, "w", "8,8");
    make_node(m, "Reshape", "t,heads", "q"); /* [6, 2 * batch, 4] */
    make_node(m, "Reshape", "q,flat", "r");  /* [6 * batch, 8] */
    make_node(m, "Gemm", "r,w", "l");
    make_node(m, "Reshape", "l,back", "y"); /* [6, batch, 8] */
    make_output(m, "y");
    make_output(m, "q");
    struct ull__graph *g = accepted(m);
    char text[64];
    assert_string_equal(ull__tensor_text(g, g->outputs[0], text, sizeof(text)), "f32[6, batch, 8]");
    assert_string_equal(ull__tensor_text(g, g->outputs[1], text, sizeof(text)),
                        "f32[6, 2*batch, 4]");
    ull__graph_destroy(g);
}

static void test_sizes(void **state)
{
    struct ull__onnx_options with = options();
    struct ull__onnx_size size = {"time", 5};
    (void)state;
    for (int i = 0; i < 2; ++i) {
        struct make *m = make_new(13);
        make_input(m, "x", 1, "n,time");
        make_node(m, "Relu", "x", "y");
        make_output(m, "y");
        if (i == 0) {
            refused_with(m, &with, ULL_E_INVALID, "MODEL:time=128");
        } else {
            with.sizes = &size;
            with.size_count = 1;
            refused_with(small(), &with, ULL_E_INVALID, "no open size 'time'");
            struct ull__graph *g = NULL;
            assert_int_equal(parse(m, &with, &g, NULL), ULL_OK);
            assert_int_equal(g->tensors[0].dims[1], 5);
            assert_true(g->tensors[0].dims[0] == g->batch);
            ull__graph_destroy(g);
        }
    }
}

static void loss_is(const char *dims, int type, enum ull__onnx_loss loss, const struct ull__op *op,
                    int target_rank)
{
    struct make *m = make_new(13);
    struct ull__onnx_options with = options();
    struct ull__graph *g = NULL;
    with.loss = loss;
    make_input(m, "x", type, dims);
    make_node(m, "Relu", "x", "y");
    make_output(m, "y");
    struct ull_error err = {{0}};
    if (parse(m, &with, &g, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    const struct ull__node *last = &g->nodes[g->node_count - 1];
    assert_ptr_equal(last->op, op);
    assert_int_equal(g->loss_count, 1);
    assert_string_equal(g->tensors[last->inputs[1]].name, "target");
    assert_int_equal(g->tensors[last->inputs[1]].rank, target_rank);
    assert_int_equal(g->tensors[last->inputs[0]].type, ULL_TYPE_F32);
    ull__graph_destroy(g);
}

static void test_losses(void **state)
{
    (void)state;
    loss_is("n,10", 1, ULL_ONNX_LOSS_AUTO, &ull__op_cross_entropy, 1);
    loss_is("n,5,10", 1, ULL_ONNX_LOSS_AUTO, &ull__op_cross_entropy, 2);
    loss_is("n,1", 1, ULL_ONNX_LOSS_AUTO, &ull__op_mse, 2);
    loss_is("n,10", 10, ULL_ONNX_LOSS_MSE, &ull__op_mse, 2);
    loss_is("n,2,8,8", 11, ULL_ONNX_LOSS_AUTO, &ull__op_mse, 4);
    loss_is("n,2,8,8", 1, ULL_ONNX_LOSS_CROSS_ENTROPY, &ull__op_cross_entropy, 3);
    struct make *m = make_new(13); /* a model with a loss of its own */
    make_input(m, "x", 1, "n,4");
    make_input(m, "t", 7, "n");
    make_int(m, make_node(m, "LogSoftmax", "x", "l"), "axis", 1);
    make_node(m, "NegativeLogLikelihoodLoss", "l,t", "loss");
    make_output(m, "loss");
    struct ull__graph *g = accepted(m);
    assert_int_equal(g->node_count, 1);
    assert_int_equal(g->loss_count, 1);
    assert_ptr_equal(g->nodes[0].op, &ull__op_cross_entropy);
    ull__graph_destroy(g);
    m = make_new(13);
    make_input(m, "x", 7, "n,4");
    make_node(m, "Identity", "x", "y");
    make_output(m, "y");
    refused(m, "expected floating-point numbers");
}

/* --- Weights beside the file --- */

static char folder[] = "/tmp/ullage-onnx.XXXXXX";

static void put_file(const char *name, size_t size)
{
    char path[200], zeros[256] = {0};
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(ull__file_write(path, zeros, size, NULL), ULL_OK);
}

static void outside(const char *location, const char *offset, const char *part, ull_status expected)
{
    struct make *m = small();
    Onnx__TensorProto *w = make_weight(m, "v", "4,3");
    static char *names[3] = {"location", "offset", "length"};
    struct ull__onnx_options with = options();
    w->n_float_data = 0;
    w->has_data_location = 1;
    w->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    w->n_external_data = 3;
    w->external_data = make_room(m, 3 * sizeof(void *));
    for (int i = 0; i < 3; ++i) {
        Onnx__StringStringEntryProto *entry = make_room(m, sizeof(*entry));
        onnx__string_string_entry_proto__init(entry);
        entry->key = names[i];
        entry->value = make_text(m, i == 0 ? location : i == 1 ? offset : "48");
        w->external_data[i] = entry;
    }
    make_node(m, "MatMul", "x,v", "z");
    make_output(m, "z");
    with.folder = folder;
    if (expected == ULL_OK) {
        struct ull__graph *g = NULL;
        struct ull_error err = {{0}};
        if (parse(m, &with, &g, &err) != ULL_OK) {
            fail_msg("%s", err.message);
        }
        ull__graph_destroy(g);
    } else {
        refused_with(m, &with, expected, part);
    }
}

static void test_external(void **state)
{
    char path[200];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/in", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file("w.bin", 64);
    put_file("in/w.bin", 48);
    outside("w.bin", "0", NULL, ULL_OK);
    outside("w.bin", "16", NULL, ULL_OK);
    outside("in/w.bin", "0", NULL, ULL_OK);
    outside("./in//w.bin", "0", NULL, ULL_OK);
    outside("w.bin", "17", "ends before byte 17 + 48", ULL_E_FORMAT);
    outside("w.bin", "9223372036854775807", "ends before", ULL_E_FORMAT);
    outside("w.bin", "-1", "expected a number", ULL_E_FORMAT);
    outside("none.bin", "0", "not in the folder", ULL_E_NOT_FOUND);
    outside("../w.bin", "0", "below the folder", ULL_E_FORMAT);
    outside("in/../w.bin", "0", "below the folder", ULL_E_FORMAT);
    outside("/etc/passwd", "0", "below the folder", ULL_E_FORMAT);
    outside("in", "0", "no plain file", ULL_E_FORMAT);
    outside("", "0", "no location", ULL_E_FORMAT);
    snprintf(path, sizeof(path), "%s/link", folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    outside("link", "0", "symbolic link", ULL_E_FORMAT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc", path), 0);
    outside("link/passwd", "0", "symbolic link", ULL_E_FORMAT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    outside("link", "0", "no plain file", ULL_E_FORMAT);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/in/w.bin", folder);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/in", folder);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof(path), "%s/w.bin", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* --- Mutations --- */

static void test_mutations(void **state)
{
    static const char *const names[] = {"gpt-small-eval", "resnet-small-fixed", "unet-small"};
    struct ull__onnx_options with = options();
    const char *more = getenv("ULLAGE_ONNX_MUTATIONS");
    int rounds = more != NULL ? atoi(more) : 150, fine = 0;
    uint64_t random = 88172645463325252u;
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        char path[512], *data;
        size_t size;
        snprintf(path, sizeof(path), "%s/%s.onnx", MODELS, names[i]);
        assert_int_equal(ull__file_read(path, 1 << 20, &data, &size, NULL), ULL_OK);
        char *copy = malloc(size);
        assert_non_null(copy);
        for (int j = 0; j < rounds; ++j) {
            memcpy(copy, data, size);
            for (int k = 0; k < 1 + j % 4; ++k) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                copy[random % size] ^= (char)(1 << (random >> 40) % 8);
            }
            struct ull__graph *graph = NULL;
            struct ull_error err = {{0}};
            if (ull__onnx_parse(copy, j % 7 == 0 ? random % size : size, &with, &graph, &err) ==
                ULL_OK) {
                fine += 1;
                ull__graph_destroy(graph);
            } else {
                assert_true(err.message[0] != '\0');
            }
        }
        free(copy);
        free(data);
    }
    assert_true(fine > 0); /* a weight more or less */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),       cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_names),       cmocka_unit_test(test_operators),
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_fixed_batch), cmocka_unit_test(test_fixed_shapes),
        cmocka_unit_test(test_time_first),  cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_losses),      cmocka_unit_test(test_external),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
