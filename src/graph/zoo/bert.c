/*
 * bert.c: BERT (Devlin et al., 2018), as its published base model is: embeddings, twelve blocks, pooler.
 *
 * It is trained to fill in masked words: the logits are products with the word embeddings (targets that are
 * not masked have -100). With classes=N the pooled first word goes to a classifier instead, as in fine-tuning.
 */
#include "zoo_internal.h"

static int embeddings(struct ull__graph *g, const struct ull__zoo_args *args, int *words)
{
    int64_t width = ull__zoo_number(args, "width"), context = ull__zoo_number(args, "context");
    ull__dim dims[2] = {g->batch, context};
    int ids = ull__graph_input(g, "input_ids", ULL_TYPE_I64, 2, dims);
    int kinds = ull__graph_input(g, "token_type_ids", ULL_TYPE_I64, 2, dims);
    int table;
    int x = ull__layer_embedding(g, "embeddings.word_embeddings", ids,
                                 ull__zoo_number(args, "vocab"), width, words);
    int kind = ull__layer_embedding(g, "embeddings.token_type_embeddings", kinds, 2, width, &table);
    /* The published model has 512 places, also where a shorter context is used. */
    int64_t places = context > 512 ? context : 512;
    int place = ull__graph_parameter(g, "embeddings.position_embeddings.weight", 2,
                                     (ull__dim[]){places, width}, ULL_INIT_NORMAL, 0.02);
    if (places != context) {
        place = ull__slice(g, place, 0, 0, context, 1);
    }
    x = ull__binary(g, ULL_BINARY_ADD, ull__binary(g, ULL_BINARY_ADD, x, kind), place);
    return ull__layer_layer_norm(g, "embeddings.LayerNorm", x, 1e-12);
}

BUILDER(bert)
{
    (void)model;
    int64_t layers = ull__zoo_number(args, "layers"), classes = ull__zoo_number(args, "classes");
    int64_t width = ull__zoo_number(args, "width");
    int words = ULL_NONE;
    ull__graph_block(graph, "embeddings");
    int x = embeddings(graph, args, &words);
    ull__graph_block_end(graph);
    struct ull__zoo_block block = {.width = width,
                                   .hidden = 4 * width,
                                   .heads = (int)ull__zoo_number(args, "heads"),
                                   .activation = ULL_UNARY_GELU,
                                   .epsilon = 1e-12,
                                   .scale = 0.02,
                                   .residual_scale = 0.02,
                                   .attention_in = "attention.self.qkv",
                                   .attention_out = "attention.output.dense",
                                   .norm1 = "attention.output.LayerNorm",
                                   .norm2 = "output.LayerNorm",
                                   .mlp_in = "intermediate.dense",
                                   .mlp_out = "output.dense"};
    for (int64_t i = 0; i < layers && ull__graph_ok(graph); ++i) {
        const char *name = ull__graph_text(graph, "encoder.layer.%lld", (long long)i);
        x = ull__layer_transformer(graph, name, x, &block);
    }
    int first =
        ull__reshape(graph, ull__slice(graph, x, 1, 0, 1, 1), 2, (ull__dim[]){graph->batch, width});
    first = ull__unary(graph, ULL_UNARY_TANH,
                       ull__layer_linear(graph, "pooler.dense", first, width, true, 0.02));
    if (classes > 0) {
        ull__finish_classifier(graph,
                               ull__layer_linear(graph, "classifier", first, classes, true, 0.02));
    } else {
        ull__graph_result(graph, first);
        ull__finish_classifier(graph, ull__linear(graph, x, words, ULL_NONE));
    }
}
