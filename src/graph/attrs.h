/*
 * attrs.h: what an operator is told besides its inputs. Each operator reads its own member (ops.def says which).
 */
#ifndef ULLAGE_GRAPH_ATTRS_H
#define ULLAGE_GRAPH_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

#include "dim.h"
#include "type.h"

union ull__attrs {
    /* Convolution and pooling over two dimensions; order: height, width. */
    struct ull__window {
        int kernel[2]; /* pooling; a convolution's is its weights' */
        int stride[2], dilation[2];
        int before[2], after[2]; /* padding */
        int groups;
        bool ceil_mode; /* pooling: a window that begins inside counts */
        bool count_padding; /* average pooling divides by what of the window is in the picture or its padding; else
                               in the picture alone */
        ull__dim size[2]; /* gradients: height and width of the input */
    } window;
    struct ull__matmul_attrs {
        bool transpose_a, transpose_b; /* of the last two dimensions */
        bool full; /* the product is f32 also of 16-bit operands; sums are in f32 in any case */
    } matmul;
    struct ull__norm_attrs {
        int axis; /* the first that is normalized (layer, RMS); batch norm: the channels' */
        double epsilon;
        double momentum; /* batch norm: new = (1 - momentum) * old + momentum * batch's, the unbiased variance */
        int64_t group; /* batch norm: samples that share statistics; 0: the whole micro-batch */
        bool training;
    } norm;
    struct ull__unary_attrs {
        int kind;     /* enum ull__unary */
        double alpha; /* slope of leaky ReLU, exponent, lower bound of clip ... */
        double beta;
    } unary;
    struct ull__binary_attrs {
        int kind; /* enum ull__binary */
    } binary;
    struct ull__reduce_attrs {
        int kind;      /* enum ull__reduce */
        uint32_t axes; /* bit i: dimension i */
        bool keep;     /* as 1 */
        int rank;      /* gradients: the shape of what was reduced */
        ull__dim dims[8];
    } reduce;
    struct ull__shape_attrs {
        int rank;
        ull__dim dims[8];
        int order[8]; /* transpose */
    } shape;
    struct ull__axis_attrs {
        int axis;
        int count;          /* split: parts */
        ull__dim sizes[16]; /* split: of each; gradient of concat */
        ull__dim begin;     /* slice */
        int step;           /* slice; may be negative, then it begins at `begin` and goes down */
        ull__dim size; /* of the dimension before (gradients of slice and gather), or after (slice) */
    } axis;
    struct ull__pad_attrs {
        int rank;
        ull__dim before[8], after[8];
        double value;
    } pad;
    struct ull__attention_attrs {
        int heads, kv_heads; /* of the query, of key and value (grouped) */
        bool causal;         /* query i sees keys 0 to i, however many keys there are */
        int64_t window;      /* query i sees keys over i - window, and below i + window; 0: all */
        double scale;        /* of the products; 0: 1 / sqrt(head size) */
        double dropout;      /* of the probabilities: random.h */
        uint32_t key;
    } attention;
    struct ull__rotary_attrs {
        double base;
        int heads;
        int turned; /* elements of a head that are turned; 0: all */
        bool inverse;
        bool interleaved;
    } rotary;
    struct ull__dropout_attrs {
        double rate;
        uint32_t key; /* which generator: the layer's number */
    } dropout;
    struct ull__loss_attrs {
        int64_t ignored;  /* the target that does not count, e.g. -100 */
        double smoothing; /* of labels */
        int64_t chunk;    /* linear and loss in one: rows a turn; 0: all */
        bool has_bias;
    } loss;
    struct ull__cast_attrs {
        enum ull__type to;
    } cast;
    struct ull__optimizer_attrs {
        double momentum, beta1, beta2, epsilon, weight_decay;
        double limit; /* clipping: the largest global norm */
        bool nesterov;
        bool decoupled; /* decay of the weights themselves: AdamW */
    } optimizer;
    struct ull__scale_attrs {
        double growth, backoff; /* what the loss scale is multiplied with */
        int64_t interval;       /* good steps in a row before it grows */
        int64_t hysteresis;     /* bad steps before it is lowered, counted anew when it grows */
        double floor, ceiling;
    } scale;
    struct ull__copy_attrs {
        int space; /* enum ull__space: where to */
    } copy;
    struct ull__collective_attrs {
        int kind;              /* enum ull__collective */
        int reduce;            /* enum ull__reduction */
        int group, axis, size; /* `size` devices; parts are along the axis */
        ull__dim whole; /* gathering: how long the result is along the axis; 0: as all parts together */
    } collective;
};

#endif
