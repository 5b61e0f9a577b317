/* fuse_norm.c: GELU, SiLU, layer norm and RMS norm, as exporters take them apart. */
#include <math.h>

#include "fuse.h"

/* A product of tensors and a number. */
struct product {
    int factors[6], count;
    double number;
};

/* Takes a product apart, through what only it reads. False: too many factors. */
static bool take_apart(const struct fuse *f, int tensor, bool root, int depth, struct product *product)
{
    int a, b;
    double alpha, beta = 1;
    if (depth < 6 && (root || f->uses[tensor] == 1)) {
        if (is_binary(f, tensor, ULL_BINARY_MUL, &a, &b)) {
            return take_apart(f, a, false, depth + 1, product) &&
                   take_apart(f, b, false, depth + 1, product);
        }
        a = input_of_scale(f, tensor, &alpha, &beta);
        if (a != ULL_NONE && beta == 0) {
            product->number *= alpha;
            return take_apart(f, a, false, depth + 1, product);
        }
        a = input_of_unary(f, tensor, ULL_UNARY_SQUARE);
        int power = a != ULL_NONE ? 2 : 0;
        if (a == ULL_NONE) {
            a = input_of_unary(f, tensor, ULL_UNARY_POW);
            power = a != ULL_NONE &&
                            f->from->nodes[f->from->tensors[tensor].node].attrs.unary.alpha == 3
                        ? 3
                        : 0;
        }
        for (int i = 0; i < power; ++i) {
            if (product->count == 6) {
                return false;
            }
            product->factors[product->count++] = a;
        }
        if (power > 0) {
            return true;
        }
    }
    if (product->count == 6) {
        return false;
    }
    product->factors[product->count++] = tensor;
    return true;
}

static bool is_power(const struct product *product, int x, int power, double number)
{
    bool all = product->count == power && near(product->number, number);
    for (int i = 0; i < product->count; ++i) {
        all = all && product->factors[i] == x;
    }
    return all;
}

/* sqrt(2/pi) * (x + 0.044715 x^3), or with x before the brackets. */
static bool is_gelu_inside(const struct fuse *f, int tensor, int x)
{
    struct product product = {.number = 1};
    if (!take_apart(f, tensor, false, 0, &product) || !near(product.number, sqrt(2 / M_PI))) {
        return false;
    }
    if (product.count == 1) {
        int side[2];
        if (!is_binary(f, product.factors[0], ULL_BINARY_ADD, &side[0], &side[1])) {
            return false;
        }
        for (int i = 0; i < 2; ++i) {
            struct product cube = {.number = 1};
            if (side[i] == x && take_apart(f, side[1 - i], false, 0, &cube) &&
                is_power(&cube, x, 3, 0.044715)) {
                return true;
            }
        }
        return false;
    }
    for (int i = 0; product.count == 2 && i < 2; ++i) {
        struct product square = {.number = 1};
        double alpha, beta;
        int inside = input_of_scale(f, product.factors[1 - i], &alpha, &beta);
        if (product.factors[i] == x && inside != ULL_NONE && near(beta, 1) &&
            take_apart(f, inside, false, 0, &square)) {
            square.number *= alpha;
            return is_power(&square, x, 2, 0.044715);
        }
    }
    return false;
}

/* The kind of GELU that x times this (times the number) is. */
static bool is_gelu_factor(const struct fuse *f, int tensor, int x, double number,
                           enum ull__unary *kind)
{
    double alpha, beta;
    int inside = input_of_scale(f, tensor, &alpha, &beta);
    if (inside == ULL_NONE || !near(number * alpha, 0.5) || !near(number * beta, 0.5)) {
        return false;
    }
    int erf = input_of_unary(f, inside, ULL_UNARY_ERF);
    int tanh = input_of_unary(f, inside, ULL_UNARY_TANH);
    if (erf != ULL_NONE) {
        *kind = ULL_UNARY_GELU;
        return input_of_scale(f, erf, &alpha, &beta) == x && near(alpha, sqrt(0.5)) && beta == 0;
    }
    *kind = ULL_UNARY_GELU_TANH;
    return tanh != ULL_NONE && is_gelu_inside(f, tanh, x);
}

bool match_activation(const struct fuse *f, int tensor, struct match *match)
{
    struct product product = {.number = 1};
    if (!take_apart(f, tensor, true, 0, &product) || product.count != 2) {
        return false;
    }
    for (int i = 0; i < 2; ++i) {
        int x = product.factors[i], other = product.factors[1 - i];
        enum ull__unary kind = ULL_UNARY_SILU;
        if ((product.number == 1 && input_of_unary(f, other, ULL_UNARY_SIGMOID) == x) ||
            is_gelu_factor(f, other, x, product.number, &kind)) {
            *match = (struct match){.op = &ull__op_unary,
                                    .attrs = {.unary = {.kind = (int)kind, .alpha = 1}},
                                    .inputs = {x},
                                    .count = 1,
                                    .turned = ULL_NONE};
            return true;
        }
    }
    return false;
}

/* What is averaged over the last dimensions from *axis on. */
static int input_of_mean(const struct fuse *f, int tensor, int *axis)
{
    const struct ull__node *node = made_by(f, tensor, &ull__op_reduce);
    if (node == NULL || node->attrs.reduce.kind != ULL_REDUCE_MEAN || !node->attrs.reduce.keep) {
        return ULL_NONE;
    }
    int rank = f->from->tensors[node->inputs[0]].rank;
    for (*axis = 0; *axis < rank; ++*axis) {
        if (node->attrs.reduce.axes == (((1u << rank) - 1) & ~((1u << *axis) - 1))) {
            return node->inputs[0];
        }
    }
    return ULL_NONE;
}

/* mean of squares + epsilon, of x: whether it is that. */
static bool is_variance(const struct fuse *f, int tensor, int x, int *axis, double *epsilon)
{
    double alpha;
    int a, b, mean = input_of_scale(f, tensor, &alpha, epsilon);
    int squares = mean != ULL_NONE && alpha == 1 ? input_of_mean(f, mean, axis) : ULL_NONE;
    return squares != ULL_NONE &&
           (input_of_unary(f, squares, ULL_UNARY_SQUARE) == x ||
            (is_binary(f, squares, ULL_BINARY_MUL, &a, &b) && a == x && b == x));
}

/* x / sqrt(mean(x^2) + epsilon), in one of three ways: x. */
static int normalized(const struct fuse *f, int tensor, int *axis, double *epsilon)
{
    int side[2];
    if (is_binary(f, tensor, ULL_BINARY_DIV, &side[0], &side[1])) {
        int variance = input_of_unary(f, side[1], ULL_UNARY_SQRT);
        return variance != ULL_NONE && is_variance(f, variance, side[0], axis, epsilon) ? side[0]
                                                                                        : ULL_NONE;
    }
    if (!is_binary(f, tensor, ULL_BINARY_MUL, &side[0], &side[1])) {
        return ULL_NONE;
    }
    for (int i = 0; i < 2; ++i) {
        int root = input_of_unary(f, side[1 - i], ULL_UNARY_RECIPROCAL);
        int variance = root != ULL_NONE ? input_of_unary(f, root, ULL_UNARY_SQRT)
                                        : input_of_unary(f, side[1 - i], ULL_UNARY_RSQRT);
        if (variance != ULL_NONE && is_variance(f, variance, side[i], axis, epsilon)) {
            return side[i];
        }
    }
    return ULL_NONE;
}

/* Whether a tensor has the dimensions of another from an axis on. */
static bool has_shape_of(const struct fuse *f, int tensor, int x, int axis)
{
    const struct ull__tensor *w = &f->from->tensors[tensor], *of = &f->from->tensors[x];
    bool fits = w->rank == of->rank - axis;
    for (int i = 0; fits && i < w->rank; ++i) {
        fits = w->dims[i] == of->dims[axis + i];
    }
    return fits;
}

bool match_norm(const struct fuse *f, int tensor, struct match *match)
{
    int sum[2], side[2], mean[2], axis, mean_axis;
    double epsilon;
    bool shifted = is_binary(f, tensor, ULL_BINARY_ADD, &sum[0], &sum[1]);
    for (int i = 0; i < (shifted ? 2 : 1); ++i) {
        if (!is_binary(f, shifted ? sum[i] : tensor, ULL_BINARY_MUL, &side[0], &side[1])) {
            continue;
        }
        for (int j = 0; j < 2; ++j) {
            int off = normalized(f, side[j], &axis, &epsilon), w = side[1 - j];
            if (off == ULL_NONE || !has_shape_of(f, w, off, axis) ||
                (shifted && !has_shape_of(f, sum[1 - i], off, axis))) {
                continue;
            }
            bool centred = is_binary(f, off, ULL_BINARY_SUB, &mean[0], &mean[1]) &&
                           input_of_mean(f, mean[1], &mean_axis) == mean[0] && mean_axis == axis;
            if (!centred && (shifted || f->from->tensors[w].rank != 1)) {
                continue; /* an RMS norm has no shift */
            }
            *match = (struct match){.op = centred ? &ull__op_layer_norm : &ull__op_rms_norm,
                                    .attrs = {.norm = {.axis = axis, .epsilon = epsilon}},
                                    .inputs = {centred ? mean[0] : off, w, sum[1 - i]},
                                    .count = shifted ? 3 : 2,
                                    .turned = ULL_NONE};
            return true;
        }
    }
    return false;
}
