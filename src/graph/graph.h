/*
 * graph.h: a training step, or an inference, as tensors and the nodes that make them.
 *
 *     struct ull__graph *g = ull__graph_create();
 *     int x = ull__graph_input(g, "x", ULL_TYPE_F32, 2, (ull__dim[]){g->batch, 784});
 *     int w = ull__graph_parameter(g, "fc.weight", 2, (ull__dim[]){10, 784}, ULL_INIT_KAIMING);
 *     int y = ull__linear(g, x, w, ULL_NONE);                         (ops.h)
 *     if (!ull__graph_ok(g)) ... g->error ...
 *
 * Tensors and nodes are numbers, given out from 0 in order of making; a node comes after all that it reads, so the
 * order of the numbers is a legal order to run them in. What goes wrong while a graph is built (shapes that do
 * not fit, no memory) is kept in g->error, the first one; from then on every call gives ULL_NONE and does nothing,
 * so that a model is written without a check after each call. The error names the node.
 *
 * A tensor is written once. State that changes (statistics, accumulated gradients, weights) is a tensor of its
 * own for each version: the new one is an output of the node that writes, and names the old one, whose
 * memory it takes, as its alias (`writes`). Who reads the old version must run before.
 *
 * A graph has no values but those of constants, and knows no device. Not thread safe; reading is.
 */
#ifndef ULLAGE_GRAPH_H
#define ULLAGE_GRAPH_H

#include "attrs.h"
#include "dim.h"
#include "type.h"
#include "ullage/status.h"

enum { ULL_NONE = -1, ULL_RANK = 8 };

struct ull__op;

/* When a node runs, k the number of micro-steps of a step: once before, k times, once after. */
enum ull__phase { ULL_PHASE_PROLOGUE, ULL_PHASE_MICRO, ULL_PHASE_UPDATE };

enum ull__pass { ULL_PASS_FORWARD, ULL_PASS_BACKWARD, ULL_PASS_UPDATE };

/* Which queue of a device it is put into. */
enum ull__queue { ULL_QUEUE_COMPUTE, ULL_QUEUE_TO_HOST, ULL_QUEUE_TO_DEVICE, ULL_QUEUE_COMM };

/* How long a tensor's bytes are needed. */
enum ull__life {
    ULL_LIFE_PERSISTENT, /* from step to step */
    ULL_LIFE_STEP,       /* over the micro-steps up to the update: accumulated gradients */
    ULL_LIFE_PASSING,    /* within one phase, from its node to its last reader */
};

enum ull__space { ULL_SPACE_DEVICE, ULL_SPACE_PINNED, ULL_SPACE_HOST };

/* How a tensor lies in memory. Blocked: channels in blocks of `block`, the last one padded. */
enum ull__tensor_layout { ULL_LAYOUT_ROWS, ULL_LAYOUT_CHANNELS_LAST, ULL_LAYOUT_BLOCKED };

/* How a parameter is filled before the first step; fans as PyTorch's _calculate_fan_in_and_fan_out counts. */
enum ull__init {
    ULL_INIT_ZERO,
    ULL_INIT_ONE,
    ULL_INIT_NORMAL,  /* of standard deviation `init_scale` */
    ULL_INIT_KAIMING, /* normal, sqrt(2 / fan out): convolutions of a ResNet */
    ULL_INIT_UNIFORM, /* +- 1 / sqrt(fan in): PyTorch's default of Linear and Conv2d */
    ULL_INIT_DATA,    /* the bytes in `data` */
};

struct ull__tensor {
    const char *name; /* "layer1.0.conv1.weight"; "" if it has none */
    enum ull__type type;
    enum ull__role role;
    enum ull__life life;
    enum ull__space space;
    enum ull__tensor_layout layout;
    int block; /* of a blocked layout */
    int rank;
    ull__dim dims[ULL_RANK];
    int node;   /* that makes it; ULL_NONE: it is there before the phase */
    int output; /* its number among that node's */

    /* Memory shared with another tensor: ULL_NONE, or whose, from which byte on. */
    int alias;
    ull__dim alias_offset;
    bool writes; /* a new version of `alias`, in its place; else a view of it */

    /* Cut along an axis over a group of devices: axis ULL_NONE if it is whole. dims are those of one part. */
    int shard_axis, shard_group;

    int of; /* gradient, master weights, optimizer state: of this parameter; else ULL_NONE */

    enum ull__init init; /* parameters and state */
    double init_scale;
    const void *data; /* constants, and parameters that came with values: rows, the graph's; else NULL */
    size_t data_bytes;
};

struct ull__node {
    const struct ull__op *op;
    union ull__attrs attrs;
    int *inputs; /* ULL_NONE for an optional one that is not there */
    int input_count;
    int *outputs;
    int output_count;
    enum ull__phase phase;
    enum ull__pass pass;
    enum ull__queue queue;
    int predicate; /* a bool on the device: its writes happen only where it is false (found infinite); or ULL_NONE */
    int block;   /* which block of the model it belongs to; ULL_NONE outside of all */
    int forward; /* the node whose gradient it is part of; else ULL_NONE */
};

struct ull__graph {
    const char *name;
    struct ull__dims *symbols;
    ull__dim batch; /* the symbol "batch": samples in a micro-step */

    struct ull__tensor *tensors;
    int tensor_count;
    struct ull__node *nodes;
    int node_count;

    /* What a training ends in: scalars that are minimized, added with these weights. */
    int losses[8];
    double loss_weights[8];
    int loss_count;
    int outputs[16]; /* what an inference gives, e.g. logits */
    int output_count;

    /* Names of blocks, in order. */
    const char **blocks;
    int block_count;

    /* Given to the nodes that are made next. */
    enum ull__phase phase;
    enum ull__pass pass;
    int block, forward, predicate;

    ull_status status; /* ULL_OK until something failed */
    struct ull_error error;

    struct ull__arena *arena; /* names, lists, data */
    int tensor_room, node_room, block_room;
};

struct ull__graph *ull__graph_create(void);
void ull__graph_destroy(struct ull__graph *graph);
/* Takes over the other's memory: names, lists and data that both point to are good as long as `graph` is. */
void ull__graph_adopt(struct ull__graph *graph, struct ull__graph *other);

static inline bool ull__graph_ok(const struct ull__graph *graph)
{
    return graph->status == ULL_OK;
}

/* Keeps the first error; always returns ULL_NONE. */
int ull__graph_fail(struct ull__graph *graph, ull_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Memory that lives as long as the graph, filled with zeros; NULL and an error without memory. */
void *ull__graph_alloc(struct ull__graph *graph, size_t size);
const char *ull__graph_text(struct ull__graph *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- Tensors that no node makes. Names are copied. --- */

/* Any tensor: role, life and everything else as given; its node is ULL_NONE. */
int ull__graph_tensor(struct ull__graph *graph, const struct ull__tensor *tensor);
int ull__graph_input(struct ull__graph *graph, const char *name, enum ull__type type, int rank,
                     const ull__dim *dims);
/* f32. scale is for ULL_INIT_NORMAL. */
int ull__graph_parameter(struct ull__graph *graph, const char *name, int rank, const ull__dim *dims,
                         enum ull__init init, double scale);
/* f32, kept between steps, filled with ZERO or ONE. */
int ull__graph_state(struct ull__graph *graph, const char *name, int rank, const ull__dim *dims,
                     enum ull__init init);
/* The bytes are copied. */
int ull__graph_constant(struct ull__graph *graph, const char *name, enum ull__type type, int rank,
                        const ull__dim *dims, const void *data, size_t bytes);
/* An f32 constant of rank 0. */
int ull__graph_scalar(struct ull__graph *graph, double value);
/* The control scalar of that name (ULL_TYPE_F32, or as given), made if it is not there. */
int ull__graph_control(struct ull__graph *graph, const char *name, enum ull__type type);
/* The control vector "generator" that what is random draws by: random.h. */
int ull__graph_generator(struct ull__graph *graph);

/* --- Nodes --- */

/*
 * Adds a node: its outputs are made, with the shapes and types that the operator's rule gives. attrs may be
 * NULL. Returns the node, or ULL_NONE with the error kept.
 */
int ull__graph_node(struct ull__graph *graph, const struct ull__op *op,
                    const union ull__attrs *attrs, const int *inputs, int input_count);
/* The same, and the first output. */
int ull__graph_apply(struct ull__graph *graph, const struct ull__op *op,
                     const union ull__attrs *attrs, const int *inputs, int input_count);
/* Output i of the node that makes `tensor`. */
int ull__graph_output(const struct ull__graph *graph, int tensor, int i);

/* Opens a block of the model ("layer1.0"): what is made until the end belongs to it. Not nested. */
void ull__graph_block(struct ull__graph *graph, const char *name);
void ull__graph_block_end(struct ull__graph *graph);

void ull__graph_loss(struct ull__graph *graph, int tensor, double weight);
void ull__graph_result(struct ull__graph *graph, int tensor);

/* --- Sizes. values: those of the symbols, in the order of g->symbols --- */

/* All symbols at 1 but batch; room for ULL_SYMBOLS. */
void ull__graph_values(const struct ull__graph *graph, int64_t batch, int64_t *values);
/* ULL_DIM_BAD for an overflow or a negative size. */
int64_t ull__tensor_elements(const struct ull__graph *graph, int tensor, const int64_t *values);
/* With the padding of a blocked layout. */
int64_t ull__tensor_bytes(const struct ull__graph *graph, int tensor, const int64_t *values);
/* "f32[batch, 64, 112, 112]". Returns buffer. */
const char *ull__tensor_text(const struct ull__graph *graph, int tensor, char *buffer, size_t size);
/* The owner of the memory that a tensor lies in: itself, or what its aliases lead to. */
int ull__tensor_owner(const struct ull__graph *graph, int tensor);
/* Elements of all parameters. */
int64_t ull__graph_parameters(const struct ull__graph *graph);

/*
 * Whether every node reads only what is there before it, shapes are the rules', every alias is in range, and
 * every dimension has a value of at least 0 at `values`. Shares no code with the building of it.
 */
ull_status ull__graph_check(const struct ull__graph *graph, const int64_t *values,
                            struct ull_error *err);

#endif
