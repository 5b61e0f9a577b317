/*
 * resnet.c: residual networks for large pictures, as torchvision builds them ("v1.5": the bottleneck's stride is at
 * its 3x3 convolution). Source: He et al., 2015.
 */
#include "zoo_internal.h"

static int conv_norm(struct ull__graph *g, const char *block, const char *conv, const char *norm,
                     int x, int64_t out, struct ull__window window)
{
    x = ull__layer_conv(g, ull__graph_text(g, "%s.%s", block, conv), x, out, window, false);
    return ull__layer_batch_norm(g, ull__graph_text(g, "%s.%s", block, norm), x);
}

/* expansion 1: two 3x3 convolutions; 4: 1x1, 3x3, 1x1. */
static int residual(struct ull__graph *g, const char *name, int x, int64_t planes, int stride,
                    int expansion)
{
    int64_t out = planes * expansion;
    ull__graph_block(g, name);
    int y, past = x;
    if (expansion == 1) {
        y = conv_norm(g, name, "conv1", "bn1", x, planes, ull__window(3, stride, 1));
        y = ull__unary(g, ULL_UNARY_RELU, y);
        y = conv_norm(g, name, "conv2", "bn2", y, planes, ull__window(3, 1, 1));
    } else {
        y = conv_norm(g, name, "conv1", "bn1", x, planes, ull__window(1, 1, 0));
        y = ull__unary(g, ULL_UNARY_RELU, y);
        y = conv_norm(g, name, "conv2", "bn2", y, planes, ull__window(3, stride, 1));
        y = ull__unary(g, ULL_UNARY_RELU, y);
        y = conv_norm(g, name, "conv3", "bn3", y, out, ull__window(1, 1, 0));
    }
    if (stride != 1 || ull__channels(g, x) != out) {
        past = conv_norm(g, name, "downsample.0", "downsample.1", x, out, ull__window(1, stride, 0));
    }
    x = ull__unary(g, ULL_UNARY_RELU, ull__binary(g, ULL_BINARY_ADD, y, past));
    ull__graph_block_end(g);
    return x;
}

/* model->size: blocks of the four stages, expansion. stem=3: a 3x3 convolution of stride 1 and no pooling. */
BUILDER(resnet)
{
    int64_t size[2], stem = ull__zoo_number(args, "stem");
    ull__zoo_image(args, size);
    ull__dim dims[4] = {graph->batch, ull__zoo_number(args, "channels"), size[0], size[1]};
    int x = ull__graph_input(graph, "input", ULL_TYPE_F32, 4, dims);
    if (stem != 3 && stem != 7) {
        ull__graph_fail(graph, ULL_E_INVALID,
                        "stem=%lld: expected 7 (7x7, stride 2, pooling) or 3 (3x3, stride 1)",
                        (long long)stem);
    }
    ull__graph_block(graph, "stem");
    x = ull__layer_conv(graph, "conv1", x, 64,
                        stem == 7 ? ull__window(7, 2, 3) : ull__window(3, 1, 1), false);
    x = ull__unary(graph, ULL_UNARY_RELU, ull__layer_batch_norm(graph, "bn1", x));
    if (stem == 7) {
        x = ull__max_pool(graph, x, ull__window(3, 2, 1));
    }
    ull__graph_block_end(graph);
    for (int stage = 0; stage < 4; ++stage) {
        for (int i = 0; i < model->size[stage] && ull__graph_ok(graph); ++i) {
            x = residual(graph, ull__graph_text(graph, "layer%d.%d", stage + 1, i), x,
                         (int64_t)64 << stage, stage > 0 && i == 0 ? 2 : 1, model->size[4]);
        }
    }
    x = ull__flatten(graph, ull__global_avg_pool(graph, x), 1);
    ull__finish_classifier(
        graph, ull__layer_linear(graph, "fc", x, ull__zoo_number(args, "classes"), true, 0));
}
