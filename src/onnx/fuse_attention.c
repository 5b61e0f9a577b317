/*
 * fuse_attention.c: softmax(q k' * scale + mask) v, as exporters write it: with masks added or chosen, a causal one as a
 * constant; scaled before or after the product; heads as a dimension of their own or in that of the samples.
 *
 * Where heads were made of a width by reshape and transpose, and are put back behind, the operator takes the widths
 * as they are; and where these are the three parts of one tensor, that tensor.
 */
#include <math.h>

#include "fuse.h"

struct attention {
    int q, k, v;
    int k_order[4]; /* k is transposed by it; k_turned false: it is as it should be */
    bool k_turned;
    int mask;
    bool causal;
    double scale, dropout;
    uint32_t key;
    int generator;
};

enum mask { MASK_NONE, MASK_CAUSAL, MASK_OTHER };

/* An element of a constant; NAN: it is none that is known. */
static double constant_at(const struct ull__tensor *tensor, int64_t i)
{
    union cell cell;
    size_t bytes = (size_t)(ull__type_bits(tensor->type) / 8);
    if (tensor->data == NULL || (size_t)(i + 1) * bytes > tensor->data_bytes) {
        return NAN;
    }
    cells_from_bytes(tensor->type, (const char *)tensor->data + (size_t)i * bytes, 1, &cell);
    return ull__type_is_float(tensor->type) ? cell.real : (double)cell.whole;
}

static bool is_far_below(double number)
{
    return number <= -9e3; /* NAN is not */
}

/* What a constant mask does: added (`chosen` 0), or where it is 1 or not 1 (`chosen` 1 or -1). */
static enum mask kind_of_mask(const struct fuse *f, int tensor, int chosen)
{
    const struct ull__tensor *of = &f->from->tensors[tensor];
    if (of->role != ULL_ROLE_CONSTANT || of->rank < 2) {
        return MASK_OTHER;
    }
    int64_t rows = of->dims[of->rank - 2], columns = of->dims[of->rank - 1];
    for (int i = 0; i < of->rank - 2; ++i) {
        if (of->dims[i] != 1) {
            return MASK_OTHER;
        }
    }
    bool causal = rows == columns, none = true;
    for (int64_t i = 0; i < rows && (causal || none); ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            double number = constant_at(of, i * columns + j);
            bool hidden = chosen == 0 ? is_far_below(number) : (number != 0) == (chosen > 0);
            bool plain = chosen != 0 || hidden || number == 0;
            causal = causal && plain && hidden == (j > i);
            none = none && plain && !hidden;
        }
    }
    return none ? MASK_NONE : causal ? MASK_CAUSAL : MASK_OTHER;
}

/* Whether a mask may be added: it is not trained, and is broadcast to [n, heads, t, s] as it is. */
static bool can_add(const struct fuse *f, int tensor, int rank)
{
    return !f->trained[tensor] && f->from->tensors[tensor].rank <= (rank == 4 ? 4 : 2);
}

/* Takes a mask off; the products without it, or ULL_NONE. */
static int without_mask(const struct fuse *f, int tensor, struct attention *a)
{
    int side[2], rank = f->from->tensors[tensor].rank;
    const struct ull__node *where = made_by(f, tensor, &ull__op_where);
    for (int i = 1; where != NULL && i < 3; ++i) {
        const struct ull__tensor *filling = &f->from->tensors[where->inputs[i]];
        if (filling->role == ULL_ROLE_CONSTANT && filling->data != NULL &&
            filling->data_bytes == (size_t)(ull__type_bits(filling->type) / 8) &&
            is_far_below(constant_at(filling, 0))) {
            enum mask kind = kind_of_mask(f, where->inputs[0], i == 1 ? 1 : -1);
            a->causal |= kind == MASK_CAUSAL;
            return kind != MASK_OTHER ? where->inputs[3 - i] : ULL_NONE;
        }
    }
    if (!is_binary(f, tensor, ULL_BINARY_ADD, &side[0], &side[1])) {
        return ULL_NONE;
    }
    for (int i = 0; i < 2; ++i) {
        int mask = side[1 - i];
        if (f->uses[side[i]] != 1 || f->from->tensors[side[i]].rank != rank) {
            continue;
        }
        enum mask kind = kind_of_mask(f, mask, 0);
        if (kind == MASK_OTHER && (a->mask != ULL_NONE || !can_add(f, mask, rank) ||
                                   made_by(f, mask, &ull__op_matmul) != NULL)) {
            continue;
        }
        a->causal |= kind == MASK_CAUSAL;
        a->mask = kind == MASK_OTHER ? mask : a->mask;
        return side[i];
    }
    return ULL_NONE;
}

static int without_scale(const struct fuse *f, int tensor, double *scale)
{
    double alpha, beta;
    for (int x; f->uses[tensor] == 1 &&
                (x = input_of_scale(f, tensor, &alpha, &beta)) != ULL_NONE && beta == 0;) {
        *scale *= alpha;
        tensor = x;
    }
    return tensor;
}

/* The product of q and k that softmax is of, through scale and masks. */
static const struct ull__node *find_scores(const struct fuse *f, int tensor, struct attention *a)
{
    for (int i = 0; i < 4 && tensor != ULL_NONE && f->uses[tensor] == 1; ++i) {
        tensor = without_scale(f, tensor, &a->scale);
        const struct ull__node *scores = made_by(f, tensor, &ull__op_matmul);
        if (scores != NULL) {
            return f->uses[tensor] == 1 ? scores : NULL;
        }
        if (a->scale != 1 && i > 0) {
            return NULL; /* a mask that was scaled too */
        }
        tensor = without_mask(f, tensor, a);
    }
    return NULL;
}

/* k as [.., s, d], of the matrix that it is in the product. */
static bool find_keys(const struct fuse *f, const struct ull__node *scores, struct attention *a)
{
    int b = without_scale(f, scores->inputs[1], &a->scale);
    if (scores->attrs.matmul.transpose_b) {
        a->k = b;
        return true;
    }
    const struct ull__node *turn = made_by(f, b, &ull__op_transpose);
    int rank = f->from->tensors[b].rank;
    if (turn == NULL || rank > 4) {
        return false;
    }
    a->k = turn->inputs[0];
    for (int i = 0; i < rank; ++i) {
        int from = i < rank - 2 ? i : i == rank - 2 ? rank - 1 : rank - 2;
        a->k_order[i] = turn->attrs.shape.order[from];
        a->k_turned |= a->k_order[i] != i;
    }
    return true;
}

static bool find(const struct fuse *f, int tensor, struct attention *a)
{
    const struct ull__node *last = made_by(f, tensor, &ull__op_matmul);
    *a = (struct attention){.mask = ULL_NONE, .scale = 1, .generator = ULL_NONE};
    if (last == NULL || last->attrs.matmul.transpose_a || last->attrs.matmul.transpose_b) {
        return false;
    }
    int weights = last->inputs[0], rank = f->from->tensors[tensor].rank;
    const struct ull__node *dropout = made_by(f, weights, &ull__op_dropout);
    if (dropout != NULL && f->uses[weights] == 1) {
        a->dropout = dropout->attrs.dropout.rate;
        a->key = dropout->attrs.dropout.key;
        a->generator = dropout->inputs[1];
        weights = dropout->inputs[0];
    }
    const struct ull__node *softmax = made_by(f, weights, &ull__op_softmax);
    if (softmax == NULL || f->uses[weights] != 1 || softmax->attrs.axis.axis != rank - 1 ||
        (rank != 3 && rank != 4)) {
        return false;
    }
    const struct ull__node *scores = find_scores(f, softmax->inputs[0], a);
    if (scores == NULL || scores->attrs.matmul.transpose_a || !find_keys(f, scores, a)) {
        return false;
    }
    a->q = without_scale(f, scores->inputs[0], &a->scale);
    a->v = last->inputs[1];
    return f->from->tensors[a->q].rank == rank && f->from->tensors[a->k].rank == rank &&
           f->from->tensors[a->v].rank == rank;
}

static bool is_order(const int *order, int a, int b, int c, int d)
{
    return order[0] == a && order[1] == b && order[2] == c && order[3] == d;
}

/* [n, heads, t, d] of [n, t, heads, d]: the latter, or what it was made of by reshape if that is [n, t, heads * d]. */
static int side_by_side(const struct fuse *f, int tensor)
{
    const struct ull__node *turn = made_by(f, tensor, &ull__op_transpose);
    if (turn == NULL || !is_order(turn->attrs.shape.order, 0, 2, 1, 3)) {
        return ULL_NONE;
    }
    return turn->inputs[0];
}

static int unshaped(const struct fuse *f, int tensor)
{
    const struct ull__node *shape = made_by(f, tensor, &ull__op_reshape);
    if (shape == NULL) {
        return tensor;
    }
    const struct ull__tensor *from = &f->from->tensors[shape->inputs[0]],
                             *to = &f->from->tensors[tensor];
    return from->rank == 3 && from->dims[0] == to->dims[0] && from->dims[1] == to->dims[1]
               ? shape->inputs[0]
               : tensor;
}

/* Whether a tensor is part `i` of three of the width of another one, cut by split or slice: that one. */
static int part_of(const struct fuse *f, int tensor, int i)
{
    const struct ull__node *split = made_by(f, tensor, &ull__op_split);
    const struct ull__node *slice = made_by(f, tensor, &ull__op_slice);
    const struct ull__node *cut = split != NULL ? split : slice;
    const struct ull__tensor *of = &f->from->tensors[tensor];
    if (cut == NULL || of->rank != 3 || cut->attrs.axis.axis != 2) {
        return ULL_NONE;
    }
    ull__dim width = of->dims[2], whole = f->from->tensors[cut->inputs[0]].dims[2];
    bool fits = ull__dim_is_const(width) && ull__dim_is_const(whole) && whole == 3 * width;
    if (split != NULL) {
        fits = fits && of->output == i && split->output_count == 3;
        for (int j = 0; fits && j < 3; ++j) {
            fits = split->attrs.axis.sizes[j] == width;
        }
    } else {
        fits = fits && slice->attrs.axis.step == 1 && slice->attrs.axis.begin == i * width;
    }
    return fits ? cut->inputs[0] : ULL_NONE;
}

/* The tensor that three are the parts of, in this order. */
static int whole_of(const struct fuse *f, const int *parts)
{
    int whole = part_of(f, parts[0], 0);
    return whole != ULL_NONE && part_of(f, parts[1], 1) == whole && part_of(f, parts[2], 2) == whole
               ? whole
               : ULL_NONE;
}

/* Heads side by side in front and behind: sets the inputs. */
static bool make_flat(const struct fuse *f, const struct attention *a, struct match *match)
{
    int q = side_by_side(f, a->q), v = side_by_side(f, a->v);
    int k =
        a->k_turned ? (is_order(a->k_order, 0, 2, 1, 3) ? a->k : ULL_NONE) : side_by_side(f, a->k);
    if (q == ULL_NONE || k == ULL_NONE || v == ULL_NONE) {
        return false;
    }
    match->flat = true;
    match->inputs[0] = unshaped(f, q);
    match->inputs[1] = unshaped(f, k);
    match->inputs[2] = unshaped(f, v);
    int whole = a->mask == ULL_NONE ? whole_of(f, match->inputs) : ULL_NONE;
    if (whole != ULL_NONE) {
        match->inputs[0] = whole;
        match->inputs[1] = match->inputs[2] = ULL_NONE;
        match->count = a->generator != ULL_NONE ? 5 : 1;
    }
    return true;
}

/* The product whose heads this puts side by side; ULL_NONE. */
static int product_before(const struct fuse *f, int tensor)
{
    const struct ull__node *shape = made_by(f, tensor, &ull__op_reshape);
    if (shape == NULL || f->uses[shape->inputs[0]] != 1) {
        return ULL_NONE;
    }
    int product = side_by_side(f, shape->inputs[0]);
    const struct ull__tensor *from = &f->from->tensors[shape->inputs[0]],
                             *to = &f->from->tensors[tensor];
    bool fits = product != ULL_NONE && f->uses[product] == 1 && from->rank == 4 && to->rank == 3 &&
                from->dims[0] == to->dims[0] && from->dims[1] == to->dims[1];
    return fits ? product : ULL_NONE;
}

bool match_attention(const struct fuse *f, int tensor, struct match *match)
{
    struct attention a;
    int before = product_before(f, tensor);
    bool flat = before != ULL_NONE && find(f, before, &a);
    if (!flat && !find(f, tensor, &a)) {
        return false;
    }
    const struct ull__tensor *q = &f->from->tensors[a.q];
    ull__dim heads = q->rank == 4 ? q->dims[1] : 1;
    if (!ull__dim_is_const(heads) || heads < 1 || heads > 1 << 20) {
        return false;
    }
    *match = (struct match){.op = &ull__op_attention,
                            .attrs = {.attention = {.heads = (int)heads,
                                                    .kv_heads = (int)heads,
                                                    .causal = a.causal,
                                                    .scale = a.scale,
                                                    .dropout = a.dropout,
                                                    .key = a.key}},
                            .inputs = {a.q, a.k, a.v, a.mask, a.generator},
                            .count = a.generator != ULL_NONE ? 5
                                     : a.mask != ULL_NONE    ? 4
                                                             : 3,
                            .turned = a.k_turned ? 1 : ULL_NONE};
    for (int i = 0; i < 4; ++i) {
        match->order[i] = a.k_order[i];
    }
    if (flat && !make_flat(f, &a, match)) {
        return false;
    }
    return true;
}
