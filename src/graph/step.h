/*
 * step.h: from the graph of a model to that of a training step:
 *
 *     model --ull__mixed_precision--> model --ull__step_build--> forward, backward, update
 *
 * Each is a pass from graph to graph. A model has its forward pass and its losses (ull__graph_loss).
 */
#ifndef ULLAGE_GRAPH_STEP_H
#define ULLAGE_GRAPH_STEP_H

#include "graph.h"

/* A graph like it: the same numbers of tensors and nodes. NULL without memory. */
struct ull__graph *ull__graph_copy(const struct ull__graph *graph);

/*
 * The model with 16-bit weights and activations where that is harmless: matrix products, convolutions and attention
 * take 16-bit operands and add in f32, element-wise operators follow their inputs, and softmax, statistics of
 * norms, sums, logits and losses stay f32. Weights that such an operator reads are kept in 16 bits for it, beside f32 master
 * weights that the update works on (role MASTER, `of` the weight). NULL without memory, or with the error kept
 * in the result.
 *
 * Source: Mixed Precision Training (Micikevicius et al., 2017).
 */
struct ull__graph *ull__mixed_precision(const struct ull__graph *model, enum ull__type half);

/*
 * The model with each cross-entropy of a product of matrices as one node that makes the logits some rows at a time
 * (linear_cross_entropy.c). NULL: there is none, or no memory.
 */
struct ull__graph *ull__chunk_loss(const struct ull__graph *model);

/*
 * The model as it is used: the nodes that its results need (its losses, where it names no results), without dropout, batch norm by
 * the statistics of the training. `compute`: f32, f16 or bf16, as ull__mixed_precision has it, without masters. `weights`:
 * f8 or i8 stores the weights of products and convolutions so, and products read them so; tables that rows are taken from,
 * biases and norms stay as they are. Anything else: no change. NULL without memory, or with the error kept in the result.
 */
struct ull__graph *ull__inference_graph(const struct ull__graph *model, enum ull__type compute,
                                        enum ull__type weights);

/*
 * The model as one of `devices` has it that share a batch: the count of targets ("target_count", the device's own) is added up over
 * all of them before the first micro-step; and by the stage of ZeRO (share.h), 0 to 3, master weights are cut, and weights
 * themselves, which are gathered before their first reader. After ull__mixed_precision, before ull__step_build, which has to
 * be told the same. NULL without memory, or with the error kept in the result.
 */
struct ull__graph *ull__data_parallel(const struct ull__graph *model, int devices, int stage);

/* Sets how many samples share the statistics of batch norm, everywhere; 0: the whole micro-batch. */
void ull__set_bn_group(struct ull__graph *model, int64_t group);
/* Whether a model has batch norm in training. */
bool ull__has_bn(const struct ull__graph *model);

enum ull__optimizer { ULL_OPTIMIZER_SGD, ULL_OPTIMIZER_ADAM, ULL_OPTIMIZER_ADAMW };

struct ull__step_options {
    enum ull__optimizer optimizer;
    struct ull__optimizer_attrs attrs; /* limit 0: no clipping */
    bool accumulate; /* gradients of micro-steps are added up in f32; else there is one micro-step */
    bool loss_scale; /* f16: the loss is scaled, and steps with infinite gradients are skipped */
    struct ull__scale_attrs scale; /* of the loss; what is 0 becomes: growth 2, back-off 0.5, interval 2000,
                                      hysteresis 2, floor 1, ceiling 2^24 */
    bool consume; /* each weight is updated as soon as its gradient is there, which is gone then; not with
                        clipping, a loss scale or accumulation, which need all gradients first */
    int devices;    /* that share the batch; 0: 1. Else the model is ull__data_parallel's */
    int zero_stage; /* 0 to 3 */
};

/*
 * Appends the backward pass and the update. Gradients get role GRADIENT and `of`. ULL_E_INVALID: no loss, a
 * node without a gradient rule on the way, `consume` with what excludes it.
 */
ull_status ull__step_build(struct ull__graph *graph, const struct ull__step_options *options,
                           struct ull_error *err);

/*
 * Appends the backward pass alone. gradient[i] becomes the gradient of tensor i, of the graph as it was, or ULL_NONE;
 * room for graph->tensor_count numbers. `done` is called as soon as the gradient of a parameter is complete, and may
 * add nodes; NULL is fine.
 */
void ull__differentiate(struct ull__graph *graph, int seed, int *gradient,
                        void (*done)(struct ull__graph *graph, int parameter, int gradient,
                                     void *context),
                        void *context);

#endif
