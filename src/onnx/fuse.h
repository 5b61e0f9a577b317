/* fuse.h: what the files of the fusion share. */
#ifndef ULLAGE_ONNX_FUSE_H
#define ULLAGE_ONNX_FUSE_H

#include "onnx_private.h"

/* One operator in the place of several: what is put where the last of them was. */
struct match {
    const struct ull__op *op;
    union ull__attrs attrs;
    int inputs[5], count;
    int turned; /* the input (of attention) that is transposed by `order` first; ULL_NONE */
    int order[4];
    bool flat; /* the inputs are reshaped to three dimensions, heads side by side */
};

struct fuse {
    const struct ull__graph *from;
    struct ull__graph *to;
    int *uses;           /* by tensor: of it, by what is not dropped */
    bool *trained;       /* by tensor: made of parameters */
    bool *live;          /* by node */
    struct match *match; /* by node; op NULL: none */
    int *mapped;         /* by tensor: the new one */
    int *blocks;         /* by block: the new one */
};

/* The node that makes a tensor; NULL: none, or an other operator. */
static inline const struct ull__node *made_by(const struct fuse *f, int tensor,
                                              const struct ull__op *op)
{
    int node = tensor != ULL_NONE ? f->from->tensors[tensor].node : ULL_NONE;
    return node != ULL_NONE && f->from->nodes[node].op == op ? &f->from->nodes[node] : NULL;
}

/* The input of a function; ULL_NONE: it is no such function. */
static inline int input_of_unary(const struct fuse *f, int tensor, enum ull__unary kind)
{
    const struct ull__node *node = made_by(f, tensor, &ull__op_unary);
    return node != NULL && node->attrs.unary.kind == (int)kind ? node->inputs[0] : ULL_NONE;
}

static inline bool is_binary(const struct fuse *f, int tensor, enum ull__binary kind, int *a, int *b)
{
    const struct ull__node *node = made_by(f, tensor, &ull__op_binary);
    if (node == NULL || node->attrs.binary.kind != (int)kind) {
        return false;
    }
    *a = node->inputs[0];
    *b = node->inputs[1];
    return true;
}

/* alpha * x + beta: x. */
static inline int input_of_scale(const struct fuse *f, int tensor, double *alpha, double *beta)
{
    int x = input_of_unary(f, tensor, ULL_UNARY_SCALE);
    if (x != ULL_NONE) {
        const struct ull__unary_attrs *attrs =
            &f->from->nodes[f->from->tensors[tensor].node].attrs.unary;
        *alpha = attrs->alpha;
        *beta = attrs->beta;
    }
    return x;
}

bool near(double a, double b);

/* Each: whether the node is the end of one; then `match` is filled in. */
bool match_activation(const struct fuse *f, int tensor, struct match *match);
bool match_norm(const struct fuse *f, int tensor, struct match *match);
bool match_attention(const struct fuse *f, int tensor, struct match *match);
bool match_product(const struct fuse *f, int tensor, struct match *match);

#endif
