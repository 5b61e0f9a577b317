/*
 * cpu_ops.c: how long each kernel of the processor takes, beside the bytes that it has to move and the arithmetic.
 *
 *     cpu_ops [-t THREADS] [-p f32|bf16|f16] [OPERATOR]
 *
 * Shapes are those of a ResNet's first stage at batch 64, and of a small language model. Times are of the processor, not of
 * the clock on the wall, divided by the threads: a machine that does other things disturbs less.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu.h"
#include "ops.h"
#include "step.h"

struct bench {
    struct ull__backend *backend;
    const char *only;
    int threads;
    enum ull__type type;
};

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *at;
    if (posix_memalign(&at, 64, bytes + 64) != 0) {
        fprintf(stderr, "cpu_ops: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(at, 0, bytes + 64);
    return at;
}

/* Numbers that are ordinary in every type. */
static void *values(const struct ull__graph *g, int tensor, const int64_t *sizes)
{
    int64_t count = ull__tensor_elements(g, tensor, sizes);
    char *at = memory((size_t)ull__tensor_bytes(g, tensor, sizes));
    for (int64_t i = 0; i < count; ++i) {
        float value = (float)(i % 97) / 97 - 0.4f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (g->tensors[tensor].type == ULL_TYPE_F32) {
            memcpy(at + 4 * i, &bits, 4);
        } else if (g->tensors[tensor].type == ULL_TYPE_BF16) {
            memcpy(at + 2 * i, (uint16_t[]){(uint16_t)(bits >> 16)}, 2);
        } else if (g->tensors[tensor].type == ULL_TYPE_F16) {
            memcpy(at + 2 * i, (uint16_t[]){(uint16_t)(0x3000 + i % 1000)}, 2);
        } else if (g->tensors[tensor].type == ULL_TYPE_I32) {
            memcpy(at + 4 * i, (int32_t[]){(int32_t)(i * 7 % 90)}, 4);
        }
    }
    return at;
}

static void time_node(const struct bench *b, const struct ull__graph *g, int at,
                      const int64_t *sizes, const uint8_t *layouts)
{
    const struct ull__node *node = &g->nodes[at];
    struct ull__selecting what = {
        .graph = g, .node = at, .values = sizes, .layouts = layouts, .most_workspace = ULL_NONE};
    struct ull__selection selection;
    struct ull__kernel *kernel;
    struct ull_error err = {{0}};
    void *in[32] = {NULL}, *out[32] = {NULL}, *own[32] = {NULL};
    if (b->backend->ops->select(b->backend, &what, &selection, &err) != ULL_OK ||
        b->backend->ops->compile(b->backend, &what, &kernel, &err) != ULL_OK) {
        printf("%-26s %s\n", node->op->name, err.message);
        return;
    }
    for (int i = 0; i < node->input_count; ++i) {
        in[i] = node->inputs[i] != ULL_NONE ? values(g, node->inputs[i], sizes) : NULL;
    }
    for (int i = 0; i < node->output_count; ++i) {
        const struct ull__tensor *made = &g->tensors[node->outputs[i]];
        for (int j = 0; made->alias != ULL_NONE && j < node->input_count; ++j) {
            out[i] = node->inputs[j] == made->alias ? in[j] : out[i];
        }
        own[i] =
            out[i] == NULL ? memory((size_t)ull__tensor_bytes(g, node->outputs[i], sizes)) : NULL;
        out[i] = out[i] == NULL ? own[i] : out[i];
    }
    void *workspace = memory((size_t)selection.workspace);
    struct ull__launch launch = {.inputs = in, .outputs = out, .workspace = workspace};
    double best = 1e9, spent = 0;
    for (int i = 0; i < 200 && (i < 4 || spent < 0.3); ++i) {
        double begin = now();
        b->backend->ops->enqueue(b->backend, node->queue, kernel, &launch);
        b->backend->ops->synchronize(b->backend, NULL);
        double took = now() - begin;
        spent += took;
        best = took < best ? took : best;
    }
    struct ull__cost cost;
    char text[128];
    ull__op_cost(g, at, sizes, &cost);
    best /= b->threads;
    printf("%-26s %-30s %8.0f us %6.1f GB/s %7.1f Gflop/s %9.2f MB %s\n", node->op->name,
           ull__tensor_text(g, node->outputs[0], text, sizeof(text)), best * 1e6,
           cost.bytes / best * 1e-9, (cost.matrix_flops + cost.flops) / best * 1e-9,
           (double)selection.workspace * 1e-6, selection.algorithm);
    b->backend->ops->release(b->backend, kernel);
    for (int i = 0; i < 32; ++i) {
        free(in[i]);
        free(own[i]);
    }
    free(workspace);
}

static void time_graph(const struct bench *b, struct ull__graph *g, int result)
{
    int64_t sizes[ULL_SYMBOLS];
    struct ull_error err = {{0}};
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAMW,
                                        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
                                        .accumulate = true};
    if (result != ULL_NONE) {
        uint32_t all = (1u << g->tensors[result].rank) - 1;
        ull__graph_loss(
            g, ull__cast(g, ull__reduce(g, ULL_REDUCE_SUM, result, all, false), ULL_TYPE_F32), 1);
    }
    if (!ull__graph_ok(g) || ull__step_build(g, &options, &err) != ULL_OK) {
        fprintf(stderr, "cpu_ops: %s\n", g->error.message);
        exit(1);
    }
    ull__graph_values(g, 64, sizes);
    uint8_t *layouts = calloc((size_t)g->tensor_count + 1, 1);
    if (layouts == NULL || b->backend->ops->layouts(b->backend, g, sizes, layouts, &err) != ULL_OK) {
        exit(1);
    }
    for (int i = 0; i < g->node_count; ++i) {
        const struct ull__node *node = &g->nodes[i];
        bool view = (node->op->flags & ULL_OP_VIEW) != 0;
        if (!view && (b->only == NULL || strncmp(node->op->name, b->only, strlen(b->only)) == 0)) {
            time_node(b, g, i, sizes, layouts);
        }
    }
    free(layouts);
    ull__graph_destroy(g);
}

/* A parameter stands for what comes from before, so that its gradient is asked for. */
static int before(struct ull__graph *g, const struct bench *b, int rank, const ull__dim *dims)
{
    int x = ull__graph_parameter(g, "x", rank, dims, ULL_INIT_ZERO, 1);
    return ull__cast(g, x, b->type);
}

static void pictures(const struct bench *b, int64_t channels, int64_t side)
{
    struct ull__graph *g = ull__graph_create();
    ull__dim dims[4] = {64, channels, side, side};
    int one = ull__graph_parameter(g, "scale", 1, dims + 1, ULL_INIT_ONE, 1);
    int two = ull__graph_parameter(g, "shift", 1, dims + 1, ULL_INIT_ONE, 1);
    int w = ull__cast(
        g, ull__graph_parameter(g, "w", 4, (ull__dim[]){channels, channels, 3, 3}, ULL_INIT_ONE, 1),
        b->type);
    int mean = ull__graph_state(g, "mean", 1, dims + 1, ULL_INIT_ZERO);
    int var = ull__graph_state(g, "var", 1, dims + 1, ULL_INIT_ONE);
    struct ull__norm_attrs norm = {.epsilon = 1e-5, .momentum = 0.1, .group = 32, .training = true};
    int x = ull__conv2d(g, before(g, b, 4, dims), w, ULL_NONE, ull__window(3, 1, 1));
    x = ull__batch_norm(g, x, one, two, mean, var, norm);
    int y = ull__unary(g, ULL_UNARY_RELU, ull__bias(g, x, one, 1));
    y = ull__binary(g, ULL_BINARY_ADD, y, x);
    y = ull__max_pool(g, y, ull__window(3, 2, 1));
    y = ull__avg_pool(g, y, ull__window(2, 2, 0));
    y = ull__upsample_nearest(g, y, 2);
    y = ull__concat(g, (int[]){y, y}, 2, 1);
    y = ull__dropout(g, y, 0.1);
    time_graph(b, g, ull__global_avg_pool(g, y));
}

static void sequences(const struct bench *b, int64_t n, int64_t t, int64_t width, int heads,
                      int64_t classes)
{
    struct ull__graph *g = ull__graph_create();
    ull__dim dims[3] = {n, t, width}, wide = width;
    int ids = ull__graph_input(g, "ids", ULL_TYPE_I32, 2, dims);
    int scale = ull__graph_parameter(g, "scale", 1, &wide, ULL_INIT_ONE, 1);
    int table = ull__cast(
        g, ull__graph_parameter(g, "table", 2, (ull__dim[]){classes, width}, ULL_INIT_ZERO, 1),
        b->type);
    int qkv = ull__cast(
        g, ull__graph_parameter(g, "qkv", 2, (ull__dim[]){3 * width, width}, ULL_INIT_ZERO, 1),
        b->type);
    int x = ull__embedding(g, ids, table);
    x = ull__layer_norm(g, x, scale, scale, 2, 1e-5);
    x = ull__rms_norm(g, x, scale, 1e-5);
    x = ull__rotary(g, x, heads, (struct ull__rotary_attrs){.base = 10000});
    x = ull__attention(
        g, ull__linear(g, x, qkv, ULL_NONE), ULL_NONE, ULL_NONE, ULL_NONE,
        (struct ull__attention_attrs){.heads = heads, .kv_heads = heads, .causal = true});
    x = ull__unary(g, ULL_UNARY_GELU, ull__bias(g, x, scale, 2));
    x = ull__unary(g, ULL_UNARY_GELU_TANH, x);
    x = ull__unary(g, ULL_UNARY_SILU, x);
    x = ull__dropout(g, x, 0.1);
    x = ull__transpose(g, ull__transpose(g, x, (int[]){0, 2, 1}), (int[]){0, 2, 1});
    struct ull__loss_attrs loss = {.ignored = -100, .chunk = 1024};
    ull__graph_loss(g, ull__linear_cross_entropy(g, x, table, ids, ULL_NONE, loss), 1);
    int logits = ull__cast(g, ull__linear(g, x, table, ULL_NONE), ULL_TYPE_F32);
    ull__graph_loss(g,
                    ull__cross_entropy(g, ull__log_softmax(g, ull__softmax(g, logits, 2), 2), ids,
                                       ULL_NONE, loss),
                    1);
    time_graph(b, g, ULL_NONE);
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = 1, .type = ULL_TYPE_F32};
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) {
            b.threads = atoi(argv[++i]);
        } else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc &&
                   ull__type_parse(argv[i + 1], &b.type)) {
            ++i;
        } else {
            b.only = argv[i];
        }
    }
    struct ull_error err = {{0}};
    struct ull__cpu_options options = {.threads = b.threads};
    if (ull__cpu_create(&options, &b.backend, &err) != ULL_OK) {
        fprintf(stderr, "cpu_ops: %s\n", err.message);
        return 1;
    }
    printf("%s\n", ull__cpu_describe(b.backend));
    pictures(&b, 64, 28);
    pictures(&b, 16, 28);
    sequences(&b, 16, 256, 128, 4, 96);
    sequences(&b, 4, 512, 512, 8, 8192);
    b.backend->ops->destroy(b.backend);
    return 0;
}
