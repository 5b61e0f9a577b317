/* ops_math.c: element-wise operators, reductions and softmax. */
#include <math.h>
#include <string.h>

#include "onnx_private.h"

static const struct {
    const char *name;
    enum ull__unary kind;
} unaries[] = {
    {"Abs", ULL_UNARY_ABS},         {"Ceil", ULL_UNARY_CEIL},
    {"Cos", ULL_UNARY_COS},         {"Erf", ULL_UNARY_ERF},
    {"Exp", ULL_UNARY_EXP},         {"Floor", ULL_UNARY_FLOOR},
    {"Log", ULL_UNARY_LOG},         {"Neg", ULL_UNARY_NEG},
    {"Not", ULL_UNARY_NOT},         {"Relu", ULL_UNARY_RELU},
    {"Round", ULL_UNARY_ROUND},     {"Reciprocal", ULL_UNARY_RECIPROCAL},
    {"Sigmoid", ULL_UNARY_SIGMOID}, {"Sign", ULL_UNARY_SIGN},
    {"Sin", ULL_UNARY_SIN},         {"Softplus", ULL_UNARY_SOFTPLUS},
    {"Sqrt", ULL_UNARY_SQRT},       {"Tanh", ULL_UNARY_TANH},
};

static const struct {
    const char *name;
    enum ull__binary kind;
} binaries[] = {
    {"Add", ULL_BINARY_ADD},         {"And", ULL_BINARY_AND},
    {"Div", ULL_BINARY_DIV},         {"Equal", ULL_BINARY_EQUAL},
    {"Greater", ULL_BINARY_GREATER}, {"GreaterOrEqual", ULL_BINARY_GREATER_EQUAL},
    {"Less", ULL_BINARY_LESS},       {"LessOrEqual", ULL_BINARY_LESS_EQUAL},
    {"Mul", ULL_BINARY_MUL},         {"Or", ULL_BINARY_OR},
    {"Sub", ULL_BINARY_SUB},         {"Xor", ULL_BINARY_XOR},
};

static bool is(const struct call *call, const char *name)
{
    return strcmp(call->node->op_type, name) == 0;
}

void translate_unary(struct call *call)
{
    for (size_t i = 0; i < sizeof(unaries) / sizeof(unaries[0]); ++i) {
        if (is(call, unaries[i].name)) {
            if (!fold_unary(call, unaries[i].kind)) {
                put(call, 0, ull__unary(call->graph, unaries[i].kind, tensor(call, 0)));
            }
            return;
        }
    }
}

/* Functions that are made of others. */
void translate_composed(struct call *call)
{
    struct ull__graph *g = call->graph;
    int x = tensor(call, 0), y = ULL_NONE;
    double alpha = attribute_float(call, "alpha",
                                   is(call, "HardSigmoid") ? 0.2
                                   : is(call, "LeakyRelu") ? 0.01
                                   : is(call, "Selu")      ? 1.67326319217681884765625
                                                           : 1);
    if (is(call, "Elu")) {
        y = ull__unary_with(g, ULL_UNARY_ELU, x, alpha, 0);
    } else if (is(call, "LeakyRelu")) {
        y = ull__unary_with(g, ULL_UNARY_LEAKY_RELU, x, alpha, 0);
    } else if (is(call, "HardSigmoid")) {
        y = ull__unary_with(g, ULL_UNARY_HARD_SIGMOID, x, alpha, attribute_float(call, "beta", 0.5));
    } else if (is(call, "HardSwish")) {
        y = ull__binary(g, ULL_BINARY_MUL, x,
                        ull__unary_with(g, ULL_UNARY_HARD_SIGMOID, x, 1.0 / 6, 0.5));
    } else if (is(call, "Selu")) {
        y = ull__unary_with(g, ULL_UNARY_SCALE, ull__unary_with(g, ULL_UNARY_ELU, x, alpha, 0),
                            attribute_float(call, "gamma", 1.05070102214813232421875), 0);
    } else if (is(call, "Celu")) {
        y = ull__unary_with(g, ULL_UNARY_SCALE, x, 1 / alpha, 0);
        y = ull__unary_with(g, ULL_UNARY_ELU, y, 1, 0);
        y = ull__unary_with(g, ULL_UNARY_SCALE, y, alpha, 0);
    } else if (is(call, "Softsign")) {
        y = ull__unary_with(g, ULL_UNARY_SCALE, ull__unary(g, ULL_UNARY_ABS, x), 1, 1);
        y = ull__binary(g, ULL_BINARY_DIV, x, y);
    } else if (is(call, "Tan")) {
        y = ull__binary(g, ULL_BINARY_DIV, ull__unary(g, ULL_UNARY_SIN, x),
                        ull__unary(g, ULL_UNARY_COS, x));
    } else if (is(call, "Sinh") || is(call, "Cosh")) {
        int up = ull__unary_with(g, ULL_UNARY_SCALE, ull__unary(g, ULL_UNARY_EXP, x), 0.5, 0);
        int down = ull__unary(g, ULL_UNARY_EXP, ull__unary(g, ULL_UNARY_NEG, x));
        down = ull__unary_with(g, ULL_UNARY_SCALE, down, is(call, "Sinh") ? -0.5 : 0.5, 0);
        y = ull__binary(g, ULL_BINARY_ADD, up, down);
    } else if (is(call, "ThresholdedRelu")) {
        int above = ull__binary(g, ULL_BINARY_GREATER, x, ull__graph_scalar(g, alpha));
        y = ull__where(g, above, x, ull__graph_scalar(g, 0));
    }
    put(call, 0, y);
}

void translate_mod(struct call *call)
{
    if (!fold_mod(call)) {
        call_fail(call, "only whole numbers that are known when the model is read are supported");
    }
}

void translate_prelu(struct call *call)
{
    struct ull__graph *g = call->graph;
    int x = tensor(call, 0), slope = tensor(call, 1);
    if (x == ULL_NONE || slope == ULL_NONE) {
        return;
    }
    const struct ull__tensor by = g->tensors[slope];
    if (call->opset < 7 && by.rank == 1 && by.dims[0] != 1 && g->tensors[x].rank > 2) {
        ull__dim dims[ULL_RANK] = {by.dims[0], 1, 1, 1, 1, 1, 1, 1}; /* one a channel */
        slope = ull__reshape(g, slope, g->tensors[x].rank - 1, dims);
    }
    int below = ull__binary(g, ULL_BINARY_LESS, x, ull__graph_scalar(g, 0));
    put(call, 0, ull__where(g, below, ull__binary(g, ULL_BINARY_MUL, slope, x), x));
}

/* Whether all dimensions of two tensors that are broadcast fit for every batch. */
static bool fits_always(const struct call *call, int a, int b)
{
    const struct ull__tensor *one = &call->graph->tensors[a], *other = &call->graph->tensors[b];
    for (int i = 1; i <= one->rank && i <= other->rank; ++i) {
        ull__dim left = one->dims[one->rank - i], right = other->dims[other->rank - i];
        if (left != 1 && right != 1 && !same_size(call->reader, left, right)) {
            char texts[2][160];
            call_fail(call, "%s and %s do not fit for every batch",
                      ull__tensor_text(call->graph, a, texts[0], sizeof(texts[0])),
                      ull__tensor_text(call->graph, b, texts[1], sizeof(texts[1])));
            return false;
        }
    }
    return true;
}

static int checked_binary(const struct call *call, enum ull__binary kind, int a, int b)
{
    if (a == ULL_NONE || b == ULL_NONE || !fits_always(call, a, b)) {
        return ULL_NONE;
    }
    return ull__binary(call->graph, kind, a, b);
}

/* With a number that is known: in one pass, without a tensor for it. ULL_NONE: there is no such form. */
static int with_number(const struct call *call, enum ull__binary kind, int x, double number,
                       bool first)
{
    struct ull__graph *g = call->graph;
    switch (kind) {
    case ULL_BINARY_ADD:
        return ull__unary_with(g, ULL_UNARY_SCALE, x, 1, number);
    case ULL_BINARY_SUB:
        return ull__unary_with(g, ULL_UNARY_SCALE, x, first ? -1 : 1, first ? number : -number);
    case ULL_BINARY_MUL:
        return ull__unary_with(g, ULL_UNARY_SCALE, x, number, 0);
    case ULL_BINARY_DIV:
        if (!first) {
            return ull__unary_with(g, ULL_UNARY_SCALE, x, 1 / number, 0);
        }
        x = ull__unary(g, ULL_UNARY_RECIPROCAL, x);
        return number == 1 ? x : ull__unary_with(g, ULL_UNARY_SCALE, x, number, 0);
    case ULL_BINARY_POW:
        return first          ? ULL_NONE
               : number == 2  ? ull__unary(g, ULL_UNARY_SQUARE, x)
               : number == .5 ? ull__unary(g, ULL_UNARY_SQRT, x)
                              : ull__unary_with(g, ULL_UNARY_POW, x, number, 0);
    default:
        return ULL_NONE;
    }
}

/* b with dimensions of 1 behind, as operator set 6 says by attributes. */
static int placed(const struct call *call, int a, int b)
{
    if (call->opset >= 7 || attribute_int(call, "broadcast", 0) == 0 ||
        attribute(call, "axis") == NULL || a == ULL_NONE || b == ULL_NONE) {
        return b;
    }
    const struct ull__tensor small = call->graph->tensors[b];
    int rank = call->graph->tensors[a].rank;
    int axis = attribute_axis(call, "axis", 0, rank);
    ull__dim dims[ULL_RANK];
    if (axis == ULL_NONE || axis + small.rank > rank) {
        call_fail(call, "the second tensor does not fit from that axis on");
        return ULL_NONE;
    }
    for (int i = 0; i < rank - axis; ++i) {
        dims[i] = i < small.rank ? small.dims[i] : 1;
    }
    return ull__reshape(call->graph, b, rank - axis, dims);
}

static void binary(struct call *call, enum ull__binary kind)
{
    struct value *a = input(call, 0), *b = input(call, 1);
    double number;
    if (a == NULL || b == NULL || fold_binary(call, kind)) {
        return;
    }
    bool floats = ull__type_is_float(a->type) && a->type == b->type;
    for (int i = 0; i < 2 && floats; ++i) {
        struct value *other = i == 0 ? b : a;
        if (scalar(call, i, &number) && other->rank >= (i == 0 ? a : b)->rank && isfinite(number)) {
            int y = with_number(call, kind, tensor(call, 1 - i), number, i == 0);
            if (y != ULL_NONE) {
                put(call, 0, y);
                return;
            }
        }
    }
    int x = tensor(call, 0);
    put(call, 0, checked_binary(call, kind, x, placed(call, x, tensor(call, 1))));
}

void translate_binary(struct call *call)
{
    for (size_t i = 0; i < sizeof(binaries) / sizeof(binaries[0]); ++i) {
        if (is(call, binaries[i].name)) {
            binary(call, binaries[i].kind);
            return;
        }
    }
}

void translate_pow(struct call *call)
{
    struct value *a = input(call, 0), *b = input(call, 1);
    double number;
    if (a != NULL && b != NULL && a->type != b->type && ull__type_is_float(a->type) &&
        scalar(call, 1, &number)) {
        put(call, 0, with_number(call, ULL_BINARY_POW, tensor(call, 0), number, false));
    } else {
        binary(call, ULL_BINARY_POW);
    }
}

/* Sum, Mean, Min, Max of any number of tensors. */
void translate_variadic(struct call *call)
{
    enum ull__binary kind = is(call, "Min")   ? ULL_BINARY_MIN
                            : is(call, "Max") ? ULL_BINARY_MAX
                                              : ULL_BINARY_ADD;
    if (call->node->n_input == 2 && !is(call, "Mean") && fold_binary(call, kind)) {
        return;
    }
    int y = tensor(call, 0);
    for (int i = 1; (size_t)i < call->node->n_input && y != ULL_NONE; ++i) {
        y = checked_binary(call, kind, y, tensor(call, i));
    }
    if (is(call, "Mean") && call->node->n_input > 1) {
        y = ull__unary_with(call->graph, ULL_UNARY_SCALE, y, 1.0 / (double)call->node->n_input, 0);
    }
    if (call->node->n_input == 1 && y != ULL_NONE) {
        put_same(call, 0, input(call, 0));
    } else {
        put(call, 0, y);
    }
}

void translate_where(struct call *call)
{
    if (fold_where(call)) {
        return;
    }
    int c = tensor(call, 0), a = tensor(call, 1), b = tensor(call, 2);
    if (c != ULL_NONE && a != ULL_NONE && b != ULL_NONE && fits_always(call, c, a) &&
        fits_always(call, c, b) && fits_always(call, a, b)) {
        put(call, 0, ull__where(call->graph, c, a, b));
    }
}

void translate_cast(struct call *call)
{
    struct value *x = input(call, 0), *like = is(call, "CastLike") ? input(call, 1) : NULL;
    enum ull__type to =
        like != NULL ? like->type : type_of_file((int32_t)attribute_int(call, "to", 0));
    if (x == NULL || to == ULL_TYPES) {
        call_fail(call, "the type %lld is not supported", (long long)attribute_int(call, "to", 0));
        return;
    }
    to = type_in_graph(call->reader, to);
    if (x->type == to) {
        put_same(call, 0, x);
    } else if (!fold_cast(call, to)) {
        put(call, 0, ull__cast(call->graph, tensor(call, 0), to));
    }
}

void translate_identity(struct call *call)
{
    put_same(call, 0, input(call, 0));
}

/* Outside of a training, and with a rate of 0, it does nothing. */
void translate_dropout(struct call *call)
{
    double rate = 0.5, training = call->opset < 12;
    if (call->opset >= 12) {
        if (has_input(call, 1) && !scalar(call, 1, &rate)) {
            call_fail(call, "its rate is not known");
        }
        if (has_input(call, 2) && !scalar(call, 2, &training)) {
            call_fail(call, "whether it is in training is not known");
        }
    } else {
        rate = attribute_float(call, "ratio", 0.5);
        training = attribute_int(call, "is_test", 0) == 0;
    }
    if (training == 0 || rate == 0 || call->reader->options->as_is) {
        put_same(call, 0, input(call, 0));
    } else if (rate < 0 || rate >= 1) {
        call_fail(call, "its rate is %g: expected 0 to below 1", rate);
    } else {
        put(call, 0, ull__dropout(call->graph, tensor(call, 0), rate));
    }
    if (wants_output(call, 1)) {
        int x = tensor(call, 0); /* of what stays: without dropout, all */
        ull__dim dims[ULL_RANK];
        unsigned char yes = 1;
        if (x != ULL_NONE) {
            const struct ull__tensor of = call->graph->tensors[x];
            memcpy(dims, of.dims, sizeof(dims));
            int one = ull__graph_constant(call->graph, "", ULL_TYPE_BOOL, 0, NULL, &yes, 1);
            put(call, 1, ull__expand(call->graph, one, of.rank, dims));
        }
    }
}

void translate_clip(struct call *call)
{
    struct value *x = input(call, 0);
    double least = -INFINITY, most = INFINITY;
    if (x == NULL) {
        return;
    }
    if (call->opset < 11) {
        least = attribute_float(call, "min", least);
        most = attribute_float(call, "max", most);
    } else if ((has_input(call, 1) && !scalar(call, 1, &least)) ||
               (has_input(call, 2) && !scalar(call, 2, &most))) {
        int y = tensor(call, 0);
        y = has_input(call, 1) ? checked_binary(call, ULL_BINARY_MAX, y, tensor(call, 1)) : y;
        y = has_input(call, 2) ? checked_binary(call, ULL_BINARY_MIN, y, tensor(call, 2)) : y;
        put(call, 0, y);
        return;
    }
    put(call, 0, ull__unary_with(call->graph, ULL_UNARY_CLIP, tensor(call, 0), least, most));
}

/* The axes: of an attribute, of an input in newer sets; all if there are none. False: the tensor as it is. */
static bool axes_of(struct call *call, int rank, uint32_t *axes)
{
    int64_t list[ULL_RANK];
    int count = 0;
    bool given = has_input(call, 1) ? integers(call, 1, ULL_RANK, list, &count)
                                    : attribute_ints(call, "axes", ULL_RANK, list, &count);
    *axes = 0;
    for (int i = 0; given && i < count; ++i) {
        int axis = axis_of(call, list[i], rank);
        *axes |= axis != ULL_NONE ? 1u << axis : 0;
    }
    if (*axes == 0 && attribute_int(call, "noop_with_empty_axes", 0) != 0) {
        return false;
    }
    *axes = *axes == 0 ? (1u << rank) - 1 : *axes;
    return true;
}

void translate_reduce(struct call *call)
{
    static const struct {
        const char *name;
        enum ull__reduce kind;
    } kinds[] = {{"ReduceSum", ULL_REDUCE_SUM},    {"ReduceMean", ULL_REDUCE_MEAN},
                 {"ReduceMax", ULL_REDUCE_MAX},    {"ReduceMin", ULL_REDUCE_MIN},
                 {"ReduceProd", ULL_REDUCE_PROD},  {"ReduceSumSquare", ULL_REDUCE_SUM_SQUARE},
                 {"ReduceL1", ULL_REDUCE_L1},      {"ReduceL2", ULL_REDUCE_L2},
                 {"ReduceLogSum", ULL_REDUCE_SUM}, {"ReduceLogSumExp", ULL_REDUCE_SUM}};
    struct ull__graph *g = call->graph;
    struct value *from = input(call, 0);
    uint32_t axes;
    int x = tensor(call, 0);
    if (x == ULL_NONE) {
        return;
    }
    if (!axes_of(call, from->rank, &axes)) {
        put_same(call, 0, from);
        return;
    }
    bool keep = attribute_int(call, "keepdims", 1) != 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
        if (is(call, kinds[i].name)) {
            x = is(call, "ReduceLogSumExp") ? ull__unary(g, ULL_UNARY_EXP, x) : x;
            x = ull__reduce(g, kinds[i].kind, x, axes, keep);
            bool log = strncmp(kinds[i].name, "ReduceLog", 9) == 0;
            put(call, 0, log ? ull__unary(g, ULL_UNARY_LOG, x) : x);
            return;
        }
    }
}

/* Up to set 12 it is over all dimensions from the axis on. */
void translate_softmax(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *from = input(call, 0);
    int x = tensor(call, 0);
    if (x == ULL_NONE) {
        return;
    }
    int rank = from->rank;
    int axis = attribute_axis(call, "axis", call->opset < 13 ? 1 : -1, rank);
    if (axis == ULL_NONE) {
        return;
    }
    bool flat = call->opset < 13 && axis < rank - 1;
    ull__dim dims[2];
    if (flat) {
        dims[0] = ull__dims_product(g, axis, from->dims);
        dims[1] = ull__dims_product(g, rank - axis, from->dims + axis);
        x = ull__reshape(g, x, 2, dims);
        axis = 1;
    }
    x = is(call, "Softmax") ? ull__softmax(g, x, axis) : ull__log_softmax(g, x, axis);
    put(call, 0, flat ? ull__reshape(g, x, rank, from->dims) : x);
}
