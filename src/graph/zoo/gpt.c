/* gpt.c: GPT-2 (Radford et al., 2019) in all sizes, with the embeddings as the last layer's weights. */
#include <math.h>

#include "zoo_internal.h"

BUILDER(gpt)
{
    (void)model;
    int64_t context = ull__zoo_number(args, "context"), width = ull__zoo_number(args, "width");
    int64_t layers = ull__zoo_number(args, "layers"), length = ull__zoo_length(args, context);
    double dropout = ull__zoo_real(args, "dropout");
    int words;
    int ids =
        ull__graph_input(graph, "input_ids", ULL_TYPE_I64, 2, (ull__dim[]){graph->batch, length});
    ull__graph_block(graph, "embeddings");
    int x = ull__layer_embedding(graph, "wte", ids, ull__zoo_number(args, "vocab"), width, &words);
    int places = ull__graph_parameter(graph, "wpe.weight", 2, (ull__dim[]){context, width},
                                      ULL_INIT_NORMAL, 0.02);
    if (length < context) {
        places = ull__slice(graph, places, 0, 0, length, 1);
    }
    x = ull__dropout(graph, ull__binary(graph, ULL_BINARY_ADD, x, places), dropout);
    ull__graph_block_end(graph);
    struct ull__zoo_block block = {.width = width,
                                   .hidden = 4 * width,
                                   .heads = (int)ull__zoo_number(args, "heads"),
                                   .causal = true,
                                   .pre_norm = true,
                                   .activation = ULL_UNARY_GELU_TANH,
                                   .epsilon = 1e-5,
                                   .dropout = dropout,
                                   .scale = 0.02,
                                   .residual_scale =
                                       0.02 / sqrt(2.0 * (double)(layers > 0 ? layers : 1)),
                                   .attention_in = "attn.c_attn",
                                   .attention_out = "attn.c_proj",
                                   .norm1 = "ln_1",
                                   .norm2 = "ln_2",
                                   .mlp_in = "mlp.c_fc",
                                   .mlp_out = "mlp.c_proj"};
    for (int64_t i = 0; i < layers && ull__graph_ok(graph); ++i) {
        x = ull__layer_transformer(graph, ull__graph_text(graph, "h.%lld", (long long)i), x, &block);
    }
    x = ull__layer_layer_norm(graph, "ln_f", x, 1e-5);
    ull__finish_classifier(graph, ull__linear(graph, x, words, ULL_NONE));
}
