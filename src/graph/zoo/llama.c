/*
 * llama.c: a decoder in the style of Llama (Touvron et al., 2023): RMS norm, rotary embedding, grouped keys, gated SiLU,
 * no biases, and weights of its own for the last layer.
 */
#include "zoo_internal.h"

struct sizes {
    int64_t width, hidden;
    int heads, kv_heads;
};

static int attention(struct ull__graph *g, const char *name, int x, const struct sizes *sizes)
{
    int64_t head = sizes->width / sizes->heads;
    struct ull__rotary_attrs rotary = {.base = 10000};
    int q = ull__layer_linear(g, ull__graph_text(g, "%s.self_attn.q_proj", name), x, sizes->width,
                              false, 0.02);
    int k = ull__layer_linear(g, ull__graph_text(g, "%s.self_attn.k_proj", name), x,
                              head * sizes->kv_heads, false, 0.02);
    int v = ull__layer_linear(g, ull__graph_text(g, "%s.self_attn.v_proj", name), x,
                              head * sizes->kv_heads, false, 0.02);
    q = ull__rotary(g, q, sizes->heads, rotary);
    k = ull__rotary(g, k, sizes->kv_heads, rotary);
    int out = ull__attention(g, q, k, v, ULL_NONE,
                             (struct ull__attention_attrs){
                                 .heads = sizes->heads, .kv_heads = sizes->kv_heads, .causal = true});
    return ull__layer_linear(g, ull__graph_text(g, "%s.self_attn.o_proj", name), out, sizes->width,
                             false, 0.02);
}

static int mlp(struct ull__graph *g, const char *name, int x, const struct sizes *sizes)
{
    int gate = ull__layer_linear(g, ull__graph_text(g, "%s.mlp.gate_proj", name), x, sizes->hidden,
                                 false, 0.02);
    int up = ull__layer_linear(g, ull__graph_text(g, "%s.mlp.up_proj", name), x, sizes->hidden,
                               false, 0.02);
    int both = ull__binary(g, ULL_BINARY_MUL, ull__unary(g, ULL_UNARY_SILU, gate), up);
    return ull__layer_linear(g, ull__graph_text(g, "%s.mlp.down_proj", name), both, sizes->width,
                             false, 0.02);
}

BUILDER(llama)
{
    (void)model;
    struct sizes sizes = {.width = ull__zoo_number(args, "width"),
                          .hidden = ull__zoo_number(args, "hidden"),
                          .heads = (int)ull__zoo_number(args, "heads"),
                          .kv_heads = (int)ull__zoo_number(args, "kv_heads")};
    int64_t context = ull__zoo_number(args, "context"), vocab = ull__zoo_number(args, "vocab");
    int64_t layers = ull__zoo_number(args, "layers"), length = ull__zoo_length(args, context);
    if (sizes.heads < 1 || sizes.kv_heads < 1 || sizes.width % sizes.heads != 0) {
        ull__graph_fail(graph, ULL_E_INVALID, "a width of %lld is not that of %d equal heads",
                        (long long)sizes.width, sizes.heads);
        return;
    }
    int table;
    int ids =
        ull__graph_input(graph, "input_ids", ULL_TYPE_I64, 2, (ull__dim[]){graph->batch, length});
    int x = ull__layer_embedding(graph, "embed_tokens", ids, vocab, sizes.width, &table);
    for (int64_t i = 0; i < layers && ull__graph_ok(graph); ++i) {
        const char *name = ull__graph_text(graph, "layers.%lld", (long long)i);
        ull__graph_block(graph, name);
        int normed =
            ull__layer_rms_norm(graph, ull__graph_text(graph, "%s.input_layernorm", name), x);
        x = ull__binary(graph, ULL_BINARY_ADD, x, attention(graph, name, normed, &sizes));
        normed = ull__layer_rms_norm(graph,
                                     ull__graph_text(graph, "%s.post_attention_layernorm", name), x);
        x = ull__binary(graph, ULL_BINARY_ADD, x, mlp(graph, name, normed, &sizes));
        ull__graph_block_end(graph);
    }
    x = ull__layer_rms_norm(graph, "norm", x);
    ull__finish_classifier(graph, ull__layer_linear(graph, "lm_head", x, vocab, false, 0.02));
}
