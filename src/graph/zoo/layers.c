/* layers.c: layers with their parameters, for the builders of models. See zoo_internal.h. */
#include "zoo_internal.h"

/* The size of dimension 1 of pictures, or of the last one of anything else; models have it constant. */
int64_t ull__channels(const struct ull__graph *g, int x)
{
    if (x == ULL_NONE) {
        return 1;
    }
    const struct ull__tensor *of = &g->tensors[x];
    return of->dims[of->rank == 4 ? 1 : of->rank - 1];
}

int ull__layer_linear(struct ull__graph *g, const char *name, int x, int64_t out, bool bias,
                      double scale)
{
    enum ull__init init = scale > 0 ? ULL_INIT_NORMAL : ULL_INIT_UNIFORM;
    int w = ull__graph_parameter(g, ull__graph_text(g, "%s.weight", name), 2,
                                 (ull__dim[]){out, ull__channels(g, x)}, init, scale);
    int b = ULL_NONE;
    if (bias) {
        b = ull__graph_parameter(g, ull__graph_text(g, "%s.bias", name), 1, (ull__dim[]){out},
                                 scale > 0 ? ULL_INIT_ZERO : ULL_INIT_UNIFORM, 0);
    }
    return ull__linear(g, x, w, b);
}

int ull__layer_conv(struct ull__graph *g, const char *name, int x, int64_t out,
                    struct ull__window window, bool bias)
{
    ull__dim dims[4] = {out, ull__channels(g, x) / window.groups, window.kernel[0], window.kernel[1]};
    int w = ull__graph_parameter(g, ull__graph_text(g, "%s.weight", name), 4, dims,
                                 bias ? ULL_INIT_UNIFORM : ULL_INIT_KAIMING, 0);
    int b = ULL_NONE;
    if (bias) {
        b = ull__graph_parameter(g, ull__graph_text(g, "%s.bias", name), 1, dims, ULL_INIT_UNIFORM,
                                 0);
    }
    return ull__conv2d(g, x, w, b, window);
}

int ull__layer_batch_norm(struct ull__graph *g, const char *name, int x)
{
    ull__dim dims[1] = {ull__channels(g, x)};
    int scale =
        ull__graph_parameter(g, ull__graph_text(g, "%s.weight", name), 1, dims, ULL_INIT_ONE, 0);
    int shift =
        ull__graph_parameter(g, ull__graph_text(g, "%s.bias", name), 1, dims, ULL_INIT_ZERO, 0);
    int mean =
        ull__graph_state(g, ull__graph_text(g, "%s.running_mean", name), 1, dims, ULL_INIT_ZERO);
    int var = ull__graph_state(g, ull__graph_text(g, "%s.running_var", name), 1, dims, ULL_INIT_ONE);
    return ull__batch_norm(
        g, x, scale, shift, mean, var,
        (struct ull__norm_attrs){.axis = 1, .epsilon = 1e-5, .momentum = 0.1, .training = true});
}

int ull__layer_layer_norm(struct ull__graph *g, const char *name, int x, double epsilon)
{
    ull__dim dims[1] = {ull__channels(g, x)};
    int scale =
        ull__graph_parameter(g, ull__graph_text(g, "%s.weight", name), 1, dims, ULL_INIT_ONE, 0);
    int shift =
        ull__graph_parameter(g, ull__graph_text(g, "%s.bias", name), 1, dims, ULL_INIT_ZERO, 0);
    return x == ULL_NONE ? ULL_NONE
                         : ull__layer_norm(g, x, scale, shift, g->tensors[x].rank - 1, epsilon);
}

int ull__layer_rms_norm(struct ull__graph *g, const char *name, int x)
{
    int scale = ull__graph_parameter(g, ull__graph_text(g, "%s.weight", name), 1,
                                     (ull__dim[]){ull__channels(g, x)}, ULL_INIT_ONE, 0);
    return ull__rms_norm(g, x, scale, 1e-5);
}

int ull__layer_embedding(struct ull__graph *g, const char *name, int ids, int64_t rows,
                         int64_t width, int *table)
{
    *table = ull__graph_parameter(g, ull__graph_text(g, "%s.weight", name), 2,
                                  (ull__dim[]){rows, width}, ULL_INIT_NORMAL, 0.02);
    return ids == ULL_NONE ? ULL_NONE : ull__embedding(g, ids, *table);
}

void ull__finish_classifier(struct ull__graph *g, int logits)
{
    if (logits == ULL_NONE) {
        return;
    }
    const struct ull__tensor of = g->tensors[logits];
    int target = ull__graph_input(g, "target", ULL_TYPE_I64, of.rank - 1, of.dims);
    int count = ull__graph_control(g, "target_count", ULL_TYPE_F32);
    ull__graph_result(g, logits);
    ull__graph_loss(
        g, ull__cross_entropy(g, logits, target, count, (struct ull__loss_attrs){.ignored = -100}),
        1);
}

/* The half of a block that is attention, without norm and residual stream. */
static int attention(struct ull__graph *g, const char *name, int x, const struct ull__zoo_block *block)
{
    int packed = ull__layer_linear(g, ull__graph_text(g, "%s.%s", name, block->attention_in), x,
                                   3 * block->width, true, block->scale);
    int out = ull__attention(g, packed, ULL_NONE, ULL_NONE, ULL_NONE,
                             (struct ull__attention_attrs){.heads = block->heads,
                                                           .kv_heads = block->heads,
                                                           .causal = block->causal,
                                                           .dropout = block->dropout});
    out = ull__layer_linear(g, ull__graph_text(g, "%s.%s", name, block->attention_out), out,
                            block->width, true, block->residual_scale);
    return ull__dropout(g, out, block->dropout);
}

static int mlp(struct ull__graph *g, const char *name, int x, const struct ull__zoo_block *block)
{
    int out = ull__layer_linear(g, ull__graph_text(g, "%s.%s", name, block->mlp_in), x,
                                block->hidden, true, block->scale);
    out = ull__unary(g, block->activation, out);
    out = ull__layer_linear(g, ull__graph_text(g, "%s.%s", name, block->mlp_out), out, block->width,
                            true, block->residual_scale);
    return ull__dropout(g, out, block->dropout);
}

int ull__layer_transformer(struct ull__graph *g, const char *name, int x,
                           const struct ull__zoo_block *block)
{
    const char *norm1 = ull__graph_text(g, "%s.%s", name, block->norm1);
    const char *norm2 = ull__graph_text(g, "%s.%s", name, block->norm2);
    ull__graph_block(g, name);
    if (block->pre_norm) {
        int a = attention(g, name, ull__layer_layer_norm(g, norm1, x, block->epsilon), block);
        x = ull__binary(g, ULL_BINARY_ADD, x, a);
        int m = mlp(g, name, ull__layer_layer_norm(g, norm2, x, block->epsilon), block);
        x = ull__binary(g, ULL_BINARY_ADD, x, m);
    } else {
        int a = attention(g, name, x, block);
        x = ull__layer_layer_norm(g, norm1, ull__binary(g, ULL_BINARY_ADD, x, a), block->epsilon);
        int m = mlp(g, name, x, block);
        x = ull__layer_layer_norm(g, norm2, ull__binary(g, ULL_BINARY_ADD, x, m), block->epsilon);
    }
    ull__graph_block_end(g);
    return x;
}
