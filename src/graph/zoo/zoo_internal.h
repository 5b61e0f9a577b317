/* zoo_internal.h: what the builders of models share. */
#ifndef ULLAGE_GRAPH_ZOO_INTERNAL_H
#define ULLAGE_GRAPH_ZOO_INTERNAL_H

#include "../ops.h"
#include "../zoo.h"

#define RESNET_ARGUMENTS "image=224 channels=3 stem=7 classes=1000"
#define GPT_ARGUMENTS(layers, width, heads)                                                        \
    "context=1024 vocab=50257 layers=" #layers " width=" #width " heads=" #heads                   \
    " dropout=0 length=0"

struct ull__zoo_args {
    struct ull__graph *graph;
    const char *name;
    const char *given;    /* "image=32,classes=10" */
    const char *defaults; /* of the model, separated by blanks */
};

/* A whole number; an error in the graph for a bad one. */
int64_t ull__zoo_number(const struct ull__zoo_args *args, const char *key);
/* From 0 to below 1; 0 if it was not given. */
double ull__zoo_real(const struct ull__zoo_args *args, const char *key);
/* "length", which is the context where it is 0; an error in the graph for more than that. */
int64_t ull__zoo_length(const struct ull__zoo_args *args, int64_t context);
/* "image": height, width. */
void ull__zoo_image(const struct ull__zoo_args *args, int64_t size[2]);

#define BUILDER(name)                                                                              \
    void ull__zoo_##name(struct ull__graph *graph, const struct ull__zoo_model *model,             \
                         const struct ull__zoo_args *args)
BUILDER(mlp);
BUILDER(lenet);
BUILDER(resnet_small);
BUILDER(resnet);
BUILDER(vit);
BUILDER(unet);
BUILDER(bert);
BUILDER(gpt);
BUILDER(llama);

/* --- Layers with their parameters, named as PyTorch names them: "<name>.weight", "<name>.bias". --- */

int64_t ull__channels(const struct ull__graph *g, int x);
int ull__layer_linear(struct ull__graph *g, const char *name, int x, int64_t out, bool bias,
                      double scale); /* scale 0: PyTorch's default, else a normal of this deviation */
int ull__layer_conv(struct ull__graph *g, const char *name, int x, int64_t out,
                    struct ull__window window, bool bias);
int ull__layer_batch_norm(struct ull__graph *g, const char *name, int x);
int ull__layer_layer_norm(struct ull__graph *g, const char *name, int x, double epsilon);
int ull__layer_rms_norm(struct ull__graph *g, const char *name, int x);
int ull__layer_embedding(struct ull__graph *g, const char *name, int ids, int64_t rows,
                         int64_t width, int *table);
/* Cross-entropy with targets "target" of the shape of all but the last dimension, and the logits as the result. */
void ull__finish_classifier(struct ull__graph *g, int logits);

/* What a transformer's block is made of. */
struct ull__zoo_block {
    int64_t width, hidden;
    int heads;
    bool causal, pre_norm;
    enum ull__unary activation;
    double epsilon, dropout, scale;
    double residual_scale; /* of the two projections that end in the residual stream */
    const char *attention_in, *attention_out, *norm1, *norm2, *mlp_in, *mlp_out;
};
/* Attention and two layers, with residual streams around both; name is put before those of the parameters. */
int ull__layer_transformer(struct ull__graph *g, const char *name, int x,
                           const struct ull__zoo_block *block);

#endif
