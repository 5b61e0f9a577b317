/* vit.c: the vision transformer of Dosovitskiy et al., 2020, as torchvision builds it (vit_b_16). */
#include "zoo_internal.h"

BUILDER(vit)
{
    (void)model;
    int64_t size[2], patch = ull__zoo_number(args, "patch"), width = ull__zoo_number(args, "width");
    int64_t layers = ull__zoo_number(args, "layers");
    ull__zoo_image(args, size);
    if (patch < 1 || size[0] % patch != 0 || size[1] % patch != 0) {
        ull__graph_fail(graph, ULL_E_INVALID, "a picture of %lldx%lld is not made of patches of %lld",
                        (long long)size[0], (long long)size[1], (long long)patch);
        return;
    }
    int64_t patches = size[0] / patch * (size[1] / patch);
    int x = ull__graph_input(graph, "input", ULL_TYPE_F32, 4,
                             (ull__dim[]){graph->batch, 3, size[0], size[1]});
    ull__graph_block(graph, "stem");
    x = ull__layer_conv(graph, "conv_proj", x, width, ull__window((int)patch, (int)patch, 0), true);
    x = ull__reshape(graph, x, 3, (ull__dim[]){graph->batch, width, patches});
    x = ull__graph_ok(graph) ? ull__transpose(graph, x, (int[]){0, 2, 1}) : ULL_NONE;
    int first =
        ull__graph_parameter(graph, "class_token", 3, (ull__dim[]){1, 1, width}, ULL_INIT_ZERO, 0);
    first = ull__expand(graph, first, 3, (ull__dim[]){graph->batch, 1, width});
    x = ull__concat(graph, (int[]){first, x}, 2, 1);
    int places = ull__graph_parameter(graph, "encoder.pos_embedding", 3,
                                      (ull__dim[]){1, patches + 1, width}, ULL_INIT_NORMAL, 0.02);
    x = ull__binary(graph, ULL_BINARY_ADD, x, places);
    ull__graph_block_end(graph);
    struct ull__zoo_block block = {.width = width,
                                   .hidden = 4 * width,
                                   .heads = (int)ull__zoo_number(args, "heads"),
                                   .pre_norm = true,
                                   .activation = ULL_UNARY_GELU,
                                   .epsilon = 1e-6,
                                   .attention_in = "self_attention.in_proj",
                                   .attention_out = "self_attention.out_proj",
                                   .norm1 = "ln_1",
                                   .norm2 = "ln_2",
                                   .mlp_in = "mlp.0",
                                   .mlp_out = "mlp.3"};
    for (int64_t i = 0; i < layers && ull__graph_ok(graph); ++i) {
        const char *name = ull__graph_text(graph, "encoder.layers.%lld", (long long)i);
        x = ull__layer_transformer(graph, name, x, &block);
    }
    x = ull__layer_layer_norm(graph, "encoder.ln", x, 1e-6);
    x = ull__slice(graph, x, 1, 0, 1, 1);
    x = ull__reshape(graph, x, 2, (ull__dim[]){graph->batch, width});
    ull__finish_classifier(graph, ull__layer_linear(graph, "heads.head", x,
                                                    ull__zoo_number(args, "classes"), true, 0));
}
