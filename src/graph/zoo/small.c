/* small.c: models that fit anywhere: mlp, LeNet-5, and residual networks for small pictures. */
#include "zoo_internal.h"

BUILDER(mlp)
{
    (void)model;
    ull__dim dims[2] = {graph->batch, ull__zoo_number(args, "inputs")};
    int64_t hidden = ull__zoo_number(args, "hidden"), layers = ull__zoo_number(args, "layers");
    int x = ull__graph_input(graph, "input", ULL_TYPE_F32, 2, dims);
    if (layers > 1000) {
        ull__graph_fail(graph, ULL_E_INVALID, "%lld layers: expected at most 1000",
                        (long long)layers);
    }
    for (int64_t i = 0; i < layers && ull__graph_ok(graph); ++i) {
        const char *name = ull__graph_text(graph, "layers.%lld", (long long)i);
        ull__graph_block(graph, name);
        x = ull__unary(graph, ULL_UNARY_RELU, ull__layer_linear(graph, name, x, hidden, true, 0));
        ull__graph_block_end(graph);
    }
    ull__finish_classifier(
        graph, ull__layer_linear(graph, "head", x, ull__zoo_number(args, "classes"), true, 0));
}

/* Source: LeCun et al., 1998, with ReLU and maxima as it is taught; 28x28 pictures are padded to 32x32. */
BUILDER(lenet)
{
    (void)model;
    int64_t size[2];
    ull__zoo_image(args, size);
    ull__dim dims[4] = {graph->batch, ull__zoo_number(args, "channels"), size[0], size[1]};
    int x = ull__graph_input(graph, "input", ULL_TYPE_F32, 4, dims);
    x = ull__layer_conv(graph, "conv1", x, 6, ull__window(5, 1, size[0] == 28 ? 2 : 0), true);
    x = ull__max_pool(graph, ull__unary(graph, ULL_UNARY_RELU, x), ull__window(2, 2, 0));
    x = ull__layer_conv(graph, "conv2", x, 16, ull__window(5, 1, 0), true);
    x = ull__max_pool(graph, ull__unary(graph, ULL_UNARY_RELU, x), ull__window(2, 2, 0));
    x = ull__flatten(graph, x, 1);
    x = ull__unary(graph, ULL_UNARY_RELU, ull__layer_linear(graph, "fc1", x, 120, true, 0));
    x = ull__unary(graph, ULL_UNARY_RELU, ull__layer_linear(graph, "fc2", x, 84, true, 0));
    ull__finish_classifier(
        graph, ull__layer_linear(graph, "fc3", x, ull__zoo_number(args, "classes"), true, 0));
}

/* The way past a block that halves the picture and doubles the channels: every second element, zeros around. */
static int shortcut(struct ull__graph *g, int x, int64_t channels)
{
    if (!ull__graph_ok(g) || ull__channels(g, x) == channels) {
        return x;
    }
    for (int axis = 2; axis < 4; ++axis) {
        ull__dim half = ull__dim_div_up(g->symbols, g->tensors[x].dims[axis], 2);
        x = ull__slice(g, x, axis, 0, half, 2);
        if (x == ULL_NONE) {
            return x;
        }
    }
    ull__dim side = (channels - ull__channels(g, x)) / 2;
    return ull__pad(g, x, (ull__dim[]){0, side, 0, 0},
                    (ull__dim[]){0, channels - ull__channels(g, x) - side, 0, 0}, 0);
}

/* Source: He et al., 2015, section 4.2, with shortcuts of kind A. model->size[0] blocks a stage. */
BUILDER(resnet_small)
{
    int64_t size[2], width = ull__zoo_number(args, "width");
    ull__zoo_image(args, size);
    ull__dim dims[4] = {graph->batch, ull__zoo_number(args, "channels"), size[0], size[1]};
    int x = ull__graph_input(graph, "input", ULL_TYPE_F32, 4, dims);
    x = ull__layer_conv(graph, "conv1", x, width, ull__window(3, 1, 1), false);
    x = ull__unary(graph, ULL_UNARY_RELU, ull__layer_batch_norm(graph, "bn1", x));
    for (int stage = 0; stage < 3; ++stage) {
        for (int i = 0; i < model->size[0] && ull__graph_ok(graph); ++i) {
            const char *name = ull__graph_text(graph, "layer%d.%d", stage + 1, i);
            int64_t channels = width << stage;
            int stride = stage > 0 && i == 0 ? 2 : 1;
            ull__graph_block(graph, name);
            int y = ull__layer_conv(graph, ull__graph_text(graph, "%s.conv1", name), x, channels,
                                    ull__window(3, stride, 1), false);
            y = ull__layer_batch_norm(graph, ull__graph_text(graph, "%s.bn1", name), y);
            y = ull__layer_conv(graph, ull__graph_text(graph, "%s.conv2", name),
                                ull__unary(graph, ULL_UNARY_RELU, y), channels,
                                ull__window(3, 1, 1), false);
            y = ull__layer_batch_norm(graph, ull__graph_text(graph, "%s.bn2", name), y);
            y = ull__binary(graph, ULL_BINARY_ADD, y, shortcut(graph, x, channels));
            x = ull__unary(graph, ULL_UNARY_RELU, y);
            ull__graph_block_end(graph);
        }
    }
    x = ull__flatten(graph, ull__global_avg_pool(graph, x), 1);
    ull__finish_classifier(
        graph, ull__layer_linear(graph, "fc", x, ull__zoo_number(args, "classes"), true, 0));
}
