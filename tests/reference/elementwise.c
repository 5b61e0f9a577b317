/* elementwise.c: functions of one, two and three elements; casts, dropout. */
#include "call.h"

static double erf_slope(double x)
{
    return 2 / sqrt(M_PI) * exp(-x * x);
}

static double gelu_tanh_inner(double x)
{
    return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double unary(double x, const struct ull__unary_attrs *attrs)
{
    double a = attrs->alpha, b = attrs->beta;
    switch ((enum ull__unary)attrs->kind) {
    case ULL_UNARY_RELU:
        return x > 0 ? x : isnan(x) ? x : 0;
    case ULL_UNARY_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ULL_UNARY_GELU_TANH:
        return 0.5 * x * (1 + tanh(gelu_tanh_inner(x)));
    case ULL_UNARY_SILU:
        return x * sigmoid(x);
    case ULL_UNARY_SIGMOID:
        return sigmoid(x);
    case ULL_UNARY_TANH:
        return tanh(x);
    case ULL_UNARY_EXP:
        return exp(x);
    case ULL_UNARY_LOG:
        return log(x);
    case ULL_UNARY_SQRT:
        return sqrt(x);
    case ULL_UNARY_RSQRT:
        return 1 / sqrt(x);
    case ULL_UNARY_RECIPROCAL:
        return 1 / x;
    case ULL_UNARY_ERF:
        return erf(x);
    case ULL_UNARY_NEG:
        return -x;
    case ULL_UNARY_ABS:
        return fabs(x);
    case ULL_UNARY_SQUARE:
        return x * x;
    case ULL_UNARY_SIN:
        return sin(x);
    case ULL_UNARY_COS:
        return cos(x);
    case ULL_UNARY_FLOOR:
        return floor(x);
    case ULL_UNARY_CEIL:
        return ceil(x);
    case ULL_UNARY_ROUND:
        return nearbyint(x);
    case ULL_UNARY_SIGN:
        return (x > 0) - (x < 0);
    case ULL_UNARY_NOT:
        return x == 0;
    case ULL_UNARY_IDENTITY:
        return x;
    case ULL_UNARY_LEAKY_RELU:
        return x > 0 ? x : a * x;
    case ULL_UNARY_ELU:
        return x > 0 ? x : a * expm1(x);
    case ULL_UNARY_SOFTPLUS:
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case ULL_UNARY_HARD_SIGMOID:
        return a * x + b < 0 ? 0 : a * x + b > 1 ? 1 : a * x + b;
    case ULL_UNARY_CLIP:
        return x < a ? a : x > b ? b : x;
    case ULL_UNARY_SCALE:
        return a * x + b;
    case ULL_UNARY_POW:
        return pow(x, a);
    case ULL_UNARIES:
        break;
    }
    ref__die("no function %d", attrs->kind);
}

void ref__unary(struct call *call)
{
    for (int64_t i = 0; i < call->out->count; ++i) {
        call->out->data[i] = unary(call->in[0].data[i], &call->attrs->unary);
    }
}

/* The slope, from x or y as ULL_UNARY_MAP says. */
static double slope(double s, const struct ull__unary_attrs *attrs)
{
    double a = attrs->alpha, b = attrs->beta, inner;
    switch ((enum ull__unary)attrs->kind) {
    case ULL_UNARY_RELU:
        return s > 0;
    case ULL_UNARY_GELU:
        return 0.5 * (1 + erf(s / sqrt(2))) + 0.5 * s * erf_slope(s / sqrt(2)) / sqrt(2);
    case ULL_UNARY_GELU_TANH:
        inner = tanh(gelu_tanh_inner(s));
        return 0.5 * (1 + inner) +
               0.5 * s * (1 - inner * inner) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * s * s);
    case ULL_UNARY_SILU:
        return sigmoid(s) * (1 + s * (1 - sigmoid(s)));
    case ULL_UNARY_SIGMOID:
        return s * (1 - s);
    case ULL_UNARY_TANH:
        return 1 - s * s;
    case ULL_UNARY_EXP:
        return s;
    case ULL_UNARY_LOG:
        return 1 / s;
    case ULL_UNARY_SQRT:
        return 0.5 / s;
    case ULL_UNARY_RSQRT:
        return -0.5 * s * s * s;
    case ULL_UNARY_RECIPROCAL:
        return -s * s;
    case ULL_UNARY_ERF:
        return erf_slope(s);
    case ULL_UNARY_ABS:
        return (s > 0) - (s < 0);
    case ULL_UNARY_SQUARE:
        return 2 * s;
    case ULL_UNARY_SIN:
        return cos(s);
    case ULL_UNARY_COS:
        return -sin(s);
    case ULL_UNARY_LEAKY_RELU:
        return s > 0 ? 1 : a;
    case ULL_UNARY_ELU:
        return s > 0 ? 1 : a * exp(s);
    case ULL_UNARY_SOFTPLUS:
        return sigmoid(s);
    case ULL_UNARY_HARD_SIGMOID:
        return a * s + b > 0 && a * s + b < 1 ? a : 0;
    case ULL_UNARY_CLIP:
        return s >= a && s <= b;
    case ULL_UNARY_POW:
        return a == 0 ? 0 : a * pow(s, a - 1);
    default:
        ref__die("function %d has no slope", attrs->kind);
    }
}

void ref__unary_grad(struct call *call)
{
    for (int64_t i = 0; i < call->out->count; ++i) {
        call->out->data[i] = call->in[0].data[i] * slope(call->in[1].data[i], &call->attrs->unary);
    }
}

static double binary(double a, double b, int kind)
{
    switch ((enum ull__binary)kind) {
    case ULL_BINARY_ADD:
        return a + b;
    case ULL_BINARY_SUB:
        return a - b;
    case ULL_BINARY_MUL:
        return a * b;
    case ULL_BINARY_DIV:
        return a / b;
    case ULL_BINARY_POW:
        return pow(a, b);
    case ULL_BINARY_MIN:
        return isnan(a) || a < b ? a : b;
    case ULL_BINARY_MAX:
        return isnan(a) || a > b ? a : b;
    case ULL_BINARY_EQUAL:
        return a == b;
    case ULL_BINARY_LESS:
        return a < b;
    case ULL_BINARY_LESS_EQUAL:
        return a <= b;
    case ULL_BINARY_GREATER:
        return a > b;
    case ULL_BINARY_GREATER_EQUAL:
        return a >= b;
    case ULL_BINARY_AND:
        return a != 0 && b != 0;
    case ULL_BINARY_OR:
        return a != 0 || b != 0;
    case ULL_BINARY_XOR:
        return (a != 0) != (b != 0);
    case ULL_BINARIES:
        break;
    }
    ref__die("no function %d of two", kind);
}

void ref__binary(struct call *call)
{
    int64_t index[ULL_RANK];
    struct array *out = call->out;
    bool whole = !ull__type_is_float(out->type);
    for (int64_t i = 0; i < out->count; ++i) {
        ref__unravel(out, i, index);
        double a = call->in[0].data[ref__broadcast(&call->in[0], out, index)];
        double b = call->in[1].data[ref__broadcast(&call->in[1], out, index)];
        double y = binary(a, b, call->attrs->binary.kind);
        out->data[i] = whole ? trunc(y) : y;
    }
}

void ref__binary_grad(struct call *call)
{
    int64_t index[ULL_RANK];
    struct array *out = call->out;
    for (int64_t i = 0; i < out->count; ++i) {
        ref__unravel(out, i, index);
        double a = call->in[0].data[ref__broadcast(&call->in[0], out, index)];
        double b = call->in[1].data[ref__broadcast(&call->in[1], out, index)];
        double da, db;
        switch (call->attrs->binary.kind) {
        case ULL_BINARY_DIV:
            da = 1 / b;
            db = -a / (b * b);
            break;
        case ULL_BINARY_POW:
            da = b == 0 ? 0 : b * pow(a, b - 1);
            db = a == 0 && b > 0 ? 0 : pow(a, b) * log(a);
            break;
        case ULL_BINARY_MIN:
            da = a < b ? 1 : a == b ? 0.5 : 0;
            db = 1 - da;
            break;
        case ULL_BINARY_MAX:
            da = a > b ? 1 : a == b ? 0.5 : 0;
            db = 1 - da;
            break;
        default:
            ref__die("binary function %d has no gradient operator", call->attrs->binary.kind);
        }
        call->out[0].data[i] = call->in[2].data[i] * da;
        call->out[1].data[i] = call->in[2].data[i] * db;
    }
}

void ref__where(struct call *call)
{
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        ref__unravel(call->out, i, index);
        bool first = call->in[0].data[ref__broadcast(&call->in[0], call->out, index)] != 0;
        const struct array *of = &call->in[first ? 1 : 2];
        call->out->data[i] = of->data[ref__broadcast(of, call->out, index)];
    }
}

/* Between floating types nothing happens: all are f64 here, unless results are rounded (ref_round). */
void ref__cast(struct call *call)
{
    enum ull__type to = call->attrs->cast.to;
    for (int64_t i = 0; i < call->out->count; ++i) {
        double x = call->in[0].data[i];
        call->out->data[i] = ull__type_is_float(to) ? x : ref_rounded(x, to);
    }
}

void ref__bias(struct call *call)
{
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        ref__unravel(call->out, i, index);
        call->out->data[i] = call->in[0].data[i] + call->in[1].data[index[call->attrs->axis.axis]];
    }
}

void ref__dropout(struct call *call)
{
    const struct ull__dropout_attrs *attrs = &call->attrs->dropout;
    const struct array *x = &call->in[0];
    int64_t samples = x->rank > 0 ? x->dims[0] : 1;
    for (int64_t i = 0; i < x->count; ++i) {
        int64_t each = x->count / samples;
        bool stays = ref__keeps(&call->in[1], attrs->key, attrs->rate, i / each, i % each);
        call->out->data[i] = stays ? x->data[i] / (1 - attrs->rate) : 0;
    }
}
