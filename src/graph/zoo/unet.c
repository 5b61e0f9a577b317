/*
 * unet.c: the U-Net of Ronneberger et al., 2015, as it is mostly used today: convolutions padded, so that the result is
 * as large as the picture, batch norm behind each, transposed convolutions on the way up, and the skipped picture
 * cut to size. Its 31,037,698 parameters (3 channels, 2 classes) are those of the most used PyTorch version
 * (milesial/Pytorch-UNet, not bilinear).
 */
#include "zoo_internal.h"

static int twice(struct ull__graph *g, const char *name, int x, int64_t out)
{
    for (int i = 0; i < 2; ++i) {
        x = ull__layer_conv(g, ull__graph_text(g, "%s.conv%d", name, i + 1), x, out,
                            ull__window(3, 1, 1), false);
        x = ull__layer_batch_norm(g, ull__graph_text(g, "%s.bn%d", name, i + 1), x);
        x = ull__unary(g, ULL_UNARY_RELU, x);
    }
    return x;
}

/* Up to twice the size, padded to that of `beside`, which is put in front. */
static int up(struct ull__graph *g, const char *name, int x, int beside, int64_t out)
{
    ull__dim dims[4] = {ull__channels(g, x), out, 2, 2};
    int w = ull__graph_parameter(g, ull__graph_text(g, "%s.up.weight", name), 4, dims,
                                 ULL_INIT_UNIFORM, 0);
    int b = ull__graph_parameter(g, ull__graph_text(g, "%s.up.bias", name), 1, dims + 1,
                                 ULL_INIT_UNIFORM, 0);
    x = ull__conv_transpose2d(g, x, w, b, ull__window(2, 2, 0));
    if (x == ULL_NONE) {
        return x;
    }
    ull__dim before[4] = {0}, after[4] = {0};
    bool smaller = false;
    for (int i = 2; i < 4; ++i) {
        ull__dim missing =
            ull__dim_sub(g->symbols, g->tensors[beside].dims[i], g->tensors[x].dims[i]);
        before[i] = ull__dim_div(g->symbols, missing, 2);
        after[i] = ull__dim_sub(g->symbols, missing, before[i]);
        smaller |= missing != 0;
    }
    if (smaller) {
        x = ull__pad(g, x, before, after, 0);
    }
    return ull__concat(g, (int[]){beside, x}, 2, 1);
}

BUILDER(unet)
{
    (void)model;
    int64_t size[2], width = ull__zoo_number(args, "width");
    ull__zoo_image(args, size);
    ull__dim dims[4] = {graph->batch, ull__zoo_number(args, "channels"), size[0], size[1]};
    int x = ull__graph_input(graph, "input", ULL_TYPE_F32, 4, dims), skipped[4];
    for (int level = 0; level < 5 && ull__graph_ok(graph); ++level) {
        const char *name = ull__graph_text(graph, "down%d", level);
        ull__graph_block(graph, name);
        if (level > 0) {
            skipped[level - 1] = x;
            x = ull__max_pool(graph, x, ull__window(2, 2, 0));
        }
        x = twice(graph, name, x, width << level);
        ull__graph_block_end(graph);
    }
    for (int level = 3; level >= 0 && ull__graph_ok(graph); --level) {
        const char *name = ull__graph_text(graph, "up%d", level);
        ull__graph_block(graph, name);
        x = twice(graph, name, up(graph, name, x, skipped[level], width << level), width << level);
        ull__graph_block_end(graph);
    }
    x = ull__layer_conv(graph, "out", x, ull__zoo_number(args, "classes"), ull__window(1, 1, 0),
                        true);
    /* Classes last, a row of logits for each point of the picture. */
    x = ull__graph_ok(graph) ? ull__transpose(graph, x, (int[]){0, 2, 3, 1}) : ULL_NONE;
    ull__finish_classifier(graph, x);
}
