/*
 * ops.h: functions that add nodes: what a model is written with. See graph.h for errors and ULL_NONE.
 *
 * Each returns its first result; further ones are had by ull__graph_output. Shapes are rows-major, pictures
 * [samples, channels, height, width], sequences [samples, time, width]. An operator without a function here (updates,
 * checks, gradients) is added by who needs it, by ull__graph_apply.
 *
 * Semantics are those of PyTorch's functions of the like names where nothing else is said.
 */
#ifndef ULLAGE_GRAPH_OPS_H
#define ULLAGE_GRAPH_OPS_H

#include "op.h"

#define X(name) extern const struct ull__op ull__op_##name;
#include "ops.def"
#undef X

/* Element-wise functions of one tensor: name, text (ONNX's where there is one), what the gradient reads. */
#define ULL_UNARY_MAP(X)                                                                           \
    X(RELU, "relu", OUTPUT)                                                                        \
    X(GELU, "gelu", INPUT) /* by erf */                                                            \
    X(GELU_TANH, "gelu_tanh", INPUT)                                                               \
    X(SILU, "silu", INPUT)                                                                         \
    X(SIGMOID, "sigmoid", OUTPUT)                                                                  \
    X(TANH, "tanh", OUTPUT)                                                                        \
    X(EXP, "exp", OUTPUT)                                                                          \
    X(LOG, "log", INPUT)                                                                           \
    X(SQRT, "sqrt", OUTPUT)                                                                        \
    X(RSQRT, "rsqrt", OUTPUT)                                                                      \
    X(RECIPROCAL, "reciprocal", OUTPUT)                                                            \
    X(ERF, "erf", INPUT)                                                                           \
    X(NEG, "neg", NOTHING)                                                                         \
    X(ABS, "abs", INPUT)                                                                           \
    X(SQUARE, "square", INPUT)                                                                     \
    X(SIN, "sin", INPUT)                                                                           \
    X(COS, "cos", INPUT)                                                                           \
    X(FLOOR, "floor", NOTHING)                                                                     \
    X(CEIL, "ceil", NOTHING)                                                                       \
    X(ROUND, "round", NOTHING) /* halves to even */                                                \
    X(SIGN, "sign", NOTHING)                                                                       \
    X(NOT, "not", NOTHING) /* of bool */                                                           \
    X(IDENTITY, "identity", NOTHING)                                                               \
    X(LEAKY_RELU, "leaky_relu", INPUT) /* alpha: the slope below zero */                           \
    X(ELU, "elu", INPUT)               /* alpha */                                                 \
    X(SOFTPLUS, "softplus", INPUT)                                                                 \
    X(HARD_SIGMOID, "hard_sigmoid", INPUT) /* max(0, min(1, alpha*x + beta)) */                    \
    X(CLIP, "clip", INPUT)                 /* alpha: least, beta: most */                          \
    X(SCALE, "scale", NOTHING)             /* alpha * x + beta */                                  \
    X(POW, "pow", INPUT)                   /* to the alpha */

/*
 * Element-wise functions of two tensors that are broadcast to each other. Where both are equal, the gradient of min and
 * max is shared.
 */
#define ULL_BINARY_MAP(X)                                                                          \
    X(ADD, "add")                                                                                  \
    X(SUB, "sub")                                                                                  \
    X(MUL, "mul")                                                                                  \
    X(DIV, "div")                                                                                  \
    X(POW, "pow")                                                                                  \
    X(MIN, "min")                                                                                  \
    X(MAX, "max")                                                                                  \
    X(EQUAL, "equal")                                                                              \
    X(LESS, "less")                                                                                \
    X(LESS_EQUAL, "less_equal")                                                                    \
    X(GREATER, "greater")                                                                          \
    X(GREATER_EQUAL, "greater_equal")                                                              \
    X(AND, "and")                                                                                  \
    X(OR, "or")                                                                                    \
    X(XOR, "xor")

/* The gradient of max and min is shared by all that are equal to it. */
#define ULL_REDUCE_MAP(X)                                                                          \
    X(SUM, "sum")                                                                                  \
    X(MEAN, "mean")                                                                                \
    X(MAX, "max")                                                                                  \
    X(MIN, "min")                                                                                  \
    X(PROD, "prod")                                                                                \
    X(SUM_SQUARE, "sum_square")                                                                    \
    X(L1, "l1")                                                                                    \
    X(L2, "l2")

enum ull__unary_saves { ULL_SAVES_NOTHING, ULL_SAVES_INPUT, ULL_SAVES_OUTPUT };
enum ull__unary {
#define X(name, text, saves) ULL_UNARY_##name,
    ULL_UNARY_MAP(X)
#undef X
        ULL_UNARIES
};
enum ull__binary {
#define X(name, text) ULL_BINARY_##name,
    ULL_BINARY_MAP(X)
#undef X
        ULL_BINARIES
};
enum ull__reduce {
#define X(name, text) ULL_REDUCE_##name,
    ULL_REDUCE_MAP(X)
#undef X
        ULL_REDUCES
};
/* What is done among the devices of a group, and what each has afterwards. */
enum ull__collective {
    ULL_ALL_REDUCE,     /* the same reduction of what all have */
    ULL_REDUCE_SCATTER, /* its own part of that */
    ULL_ALL_GATHER,     /* all parts */
    ULL_BROADCAST,      /* what the first one had */
    ULL_OWN_PART,       /* its own part of what all have; nothing is sent */
};
/* Added up or compared device by device, the first one first: in f32 for types of 16 bits. Of bools, MAX is `or`. */
enum ull__reduction { ULL_REDUCTION_SUM, ULL_REDUCTION_MEAN, ULL_REDUCTION_MAX };

/* --- Pictures --- */

/* A window of square kernel, stride and padding, without dilation, in one group. */
struct ull__window ull__window(int kernel, int stride, int padding);
/* x [n, c, h, w], w [out, c / groups, kh, kw], b [out] or ULL_NONE. */
int ull__conv2d(struct ull__graph *g, int x, int w, int b, struct ull__window window);
/* x [n, c, h, w], w [c, out / groups, kh, kw]. */
int ull__conv_transpose2d(struct ull__graph *g, int x, int w, int b, struct ull__window window);
/*
 * Second output: which element of its window, in rows, each was: of equal ones the first (u8; i32 for windows of over
 * 256).
 */
int ull__max_pool(struct ull__graph *g, int x, struct ull__window window);
int ull__avg_pool(struct ull__graph *g, int x, struct ull__window window);
/* [n, c, h, w] to [n, c, 1, 1]. */
int ull__global_avg_pool(struct ull__graph *g, int x);
/* Height and width times a whole factor, each element repeated. */
int ull__upsample_nearest(struct ull__graph *g, int x, int factor);
/*
 * mean and var are state. Outputs: y, and in training the batch's mean and 1/sqrt(var + epsilon) by group and channel,
 * and the new versions of mean and var.
 */
int ull__batch_norm(struct ull__graph *g, int x, int scale, int shift, int mean, int var,
                    struct ull__norm_attrs attrs);

/* --- Sequences --- */

/* Over the dimensions from axis on. Outputs: y, mean, 1/sqrt(var + epsilon). shift may be ULL_NONE. */
int ull__layer_norm(struct ull__graph *g, int x, int scale, int shift, int axis, double epsilon);
/* Over the last dimension; outputs: y, 1/sqrt(mean square + epsilon). */
int ull__rms_norm(struct ull__graph *g, int x, int scale, double epsilon);
/* ids of any shape, of i32 or i64; table [rows, width]. Gives ids' shape and width. */
int ull__embedding(struct ull__graph *g, int ids, int table);
/*
 * q [n, t, heads * d], k and v [n, s, kv_heads * d]; or all of rank 4, [n, heads, t, d]; or packed: q is
 * [n, t, (heads + 2 * kv_heads) * d] and k and v are ULL_NONE. mask: added to the products, broadcast to
 * [n, heads, t, s], or ULL_NONE. Outputs: o as q (packed: [n, t, heads * d]), log of the sums [n, heads, t] in f32.
 * The products are never in memory as a whole. A query that sees no key gives zeros, and minus infinity.
 */
int ull__attention(struct ull__graph *g, int q, int k, int v, int mask,
                   struct ull__attention_attrs attrs);
/*
 * x [n, t, heads * d] of `heads` heads; positions count from 0. With r elements of a head to be turned, elements i and i + r/2
 * (interleaved: 2i and 2i + 1) are turned as (a, b) to (a cos - b sin, b cos + a sin) by position * base^(-2i / r); inverse:
 * by the negative angle.
 */
int ull__rotary(struct ull__graph *g, int x, int heads, struct ull__rotary_attrs attrs);

/* --- Both --- */

/* Batched over the leading dimensions, broadcast. */
int ull__matmul(struct ull__graph *g, int a, int b, bool transpose_a, bool transpose_b);
/* x [..., in], w [out, in], b [out] or ULL_NONE. */
int ull__linear(struct ull__graph *g, int x, int w, int b);
/* Adds a vector along an axis. */
int ull__bias(struct ull__graph *g, int x, int b, int axis);
int ull__unary(struct ull__graph *g, enum ull__unary kind, int x);
int ull__unary_with(struct ull__graph *g, enum ull__unary kind, int x, double alpha, double beta);
int ull__binary(struct ull__graph *g, enum ull__binary kind, int a, int b);
int ull__where(struct ull__graph *g, int condition, int a, int b);
int ull__reduce(struct ull__graph *g, enum ull__reduce kind, int x, uint32_t axes, bool keep);
int ull__softmax(struct ull__graph *g, int x, int axis);
int ull__log_softmax(struct ull__graph *g, int x, int axis);
/* One dimension may be ULL_NONE: what is left. A view. */
int ull__reshape(struct ull__graph *g, int x, int rank, const ull__dim *dims);
/* [n, ...] to [n, product of the rest], or from another axis on. */
int ull__flatten(struct ull__graph *g, int x, int axis);
/* order[i]: which dimension of x becomes dimension i. */
int ull__transpose(struct ull__graph *g, int x, const int *order);
/* Repeats dimensions of 1. */
int ull__expand(struct ull__graph *g, int x, int rank, const ull__dim *dims);
int ull__concat(struct ull__graph *g, const int *parts, int count, int axis);
/* Outputs: the parts. sizes NULL: equal ones. */
int ull__split(struct ull__graph *g, int x, int axis, int count, const ull__dim *sizes);
/* size elements from begin on, step apart. */
int ull__slice(struct ull__graph *g, int x, int axis, ull__dim begin, ull__dim size, int step);
/* index i32 or i64, of any shape, takes the place of the axis. */
int ull__gather(struct ull__graph *g, int x, int index, int axis);
int ull__pad(struct ull__graph *g, int x, const ull__dim *before, const ull__dim *after,
             double value);
/* Scales what stays by 1 / (1 - rate). Rate 0: x itself. Each call has a key of its own. */
int ull__dropout(struct ull__graph *g, int x, double rate);
int ull__cast(struct ull__graph *g, int x, enum ull__type to);

/* --- Losses: scalars, f32, the sum over what counts divided by `count`; 0, and their gradients too, where that is 0 --- */

/* count: an f32 scalar (ull__graph_control "target_count"), or ULL_NONE: the targets of this micro-batch. */
/* logits [..., classes], targets of the leading shape. Outputs: loss, log of the sums [rows], f32. */
int ull__cross_entropy(struct ull__graph *g, int logits, int targets, int count,
                       struct ull__loss_attrs attrs);
/* The same of ull__linear(x, w), whose result is made in turns of attrs.chunk rows and never whole. */
int ull__linear_cross_entropy(struct ull__graph *g, int x, int w, int targets, int count,
                              struct ull__loss_attrs attrs);
/* Mean of squares of the difference; count as above, of elements. */
int ull__mse(struct ull__graph *g, int x, int target, int count);

const char *ull__unary_text(enum ull__unary kind);
const char *ull__binary_text(enum ull__binary kind);
const char *ull__reduce_text(enum ull__reduce kind);

#endif
