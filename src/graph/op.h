/*
 * op.h: what an operator is: its rules of shape, cost, gradient and workspace.
 *
 * Each operator is one file of src/graph/ops that holds these rules and those of its gradient operators, and
 * fills one struct ull__op each. ops.def lists them all; ops.h has the functions that build with them.
 */
#ifndef ULLAGE_GRAPH_OP_H
#define ULLAGE_GRAPH_OP_H

#include "graph.h"

/* Work of one run of a node. Time is made of it by a device's rates: the larger of arithmetic and traffic. */
struct ull__cost {
    double matrix_flops; /* multiplications and additions that matrix units can do; an addition counts as one */
    double flops; /* all others */
    double bytes; /* read from and written to memory */
};

/* Which type a node computes in when precision is mixed. */
enum ull__precision_class {
    ULL_PRECISION_HALF, /* matrix products, convolutions, attention: 16-bit operands, f32 accumulation */
    ULL_PRECISION_FOLLOW, /* whatever its inputs have; 16 bits only if all do that are floating */
    ULL_PRECISION_FULL,   /* f32: losses, softmax, powers, sums over many */
};

enum ull__op_flag {
    ULL_OP_VIEW = 1 << 0, /* output 0 is a view of input 0: no work, no memory */
    ULL_OP_INPLACE =
        1 << 1, /* output 0 may take the memory of input 0 if nobody reads that afterwards */
    ULL_OP_RANDOM = 1 << 2, /* draws by its key, the step and the sample: a second run gives the same */
    ULL_OP_STATE = 1 << 3, /* has outputs that write state, which happens once, in the first run */
    ULL_OP_GRADIENT = 1 << 4,    /* of another operator; not in a model */
    ULL_OP_COPY = 1 << 5,        /* between memory spaces */
    ULL_OP_COLLECTIVE = 1 << 6,  /* among devices */
    ULL_OP_ELEMENTWISE = 1 << 7, /* one pass over its data: may be fused with its neighbours */
};

struct ull__op {
    const char *name; /* "conv2d" */
    unsigned flags;
    enum ull__precision_class precision;
    int inputs_least, inputs_most; /* most ULL_NONE: any number */
    unsigned optional; /* bit i: input i may be ULL_NONE, besides those after inputs_least */
    unsigned keeps; /* bit i: input i keeps its type when precision is mixed (scales, statistics) */

    /*
     * Makes the node's outputs with ull__op_output. Fails by ull__graph_fail, naming shapes. The node's
     * inputs that are not optional are there.
     */
    void (*infer)(struct ull__graph *graph, int node);
    /* NULL: reads every input and writes every output once, and one operation for each element of output 0. */
    void (*cost)(const struct ull__graph *graph, int node, const int64_t *values,
                 struct ull__cost *cost);
    /*
     * Appends the nodes that compute the gradients of its inputs. dy[i] is the gradient of output i or ULL_NONE
     * (not all are); wanted[i] says of which inputs one is needed; put it into dx[i], ULL_NONE for zero.
     * What these nodes read of the forward pass is what has to be kept or recomputed. NULL: none is defined,
     * it is an error to need one; operators of integers and gradients.
     */
    void (*gradient)(struct ull__graph *graph, int node, const int *dy, const bool *wanted, int *dx);
    /* Bytes beside inputs and outputs while it runs: the most that it may take; NULL: none. */
    int64_t (*workspace)(const struct ull__graph *graph, int node, const int64_t *values);
};

/* All operators, in the order of ops.def, a NULL at the end. */
extern const struct ull__op *const ull__ops[];
/* NULL: no operator of that name. */
const struct ull__op *ull__op_find(const char *name);

/* --- For the rules --- */

/* Makes the next output of the node that is being inferred. Returns the tensor. */
int ull__op_output(struct ull__graph *graph, int node, enum ull__type type, int rank,
                   const ull__dim *dims);
/* The same, of the shape and type of a tensor. */
int ull__op_output_like(struct ull__graph *graph, int node, int like);
/* A new version of a state tensor, in its memory. */
int ull__op_output_version(struct ull__graph *graph, int node, int of);
/* A view of a tensor's bytes from `offset` on. */
int ull__op_output_view(struct ull__graph *graph, int node, int of, enum ull__type type, int rank,
                        const ull__dim *dims, ull__dim offset);

/* An error in the shapes of a node's inputs: the message, and then all of these shapes. */
void ull__op_fail(struct ull__graph *graph, int node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The tensor that input i is; the node must have it. */
static inline const struct ull__tensor *ull__in(const struct ull__graph *graph, int node, int i)
{
    return &graph->tensors[graph->nodes[node].inputs[i]];
}

static inline bool ull__has_in(const struct ull__graph *graph, int node, int i)
{
    return i < graph->nodes[node].input_count && graph->nodes[node].inputs[i] != ULL_NONE;
}

/* Elements and bytes of input or output i as numbers for costs; 0 if it is not there. */
double ull__in_elements(const struct ull__graph *graph, int node, int i, const int64_t *values);
double ull__out_elements(const struct ull__graph *graph, int node, int i, const int64_t *values);

/* Every input read and every output written once; views and what is not there count nothing. */
double ull__op_traffic(const struct ull__graph *graph, int node, const int64_t *values);
void ull__op_cost(const struct ull__graph *graph, int node, const int64_t *values,
                  struct ull__cost *cost);
int64_t ull__op_workspace(const struct ull__graph *graph, int node, const int64_t *values);

/* The shape that two are broadcast to, from the last dimension on. False: they do not fit. */
bool ull__dims_broadcast(struct ull__graph *graph, int rank_a, const ull__dim *a, int rank_b,
                         const ull__dim *b, int *rank, ull__dim *dims);
/* Sums what was broadcast, so that `tensor` gets the shape of `like`; itself if it has it. */
int ull__op_sum_to(struct ull__graph *graph, int tensor, int like);
/* The product of all dimensions. */
ull__dim ull__dims_product(struct ull__graph *graph, int rank, const ull__dim *dims);

#endif
