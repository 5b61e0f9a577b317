/*
 * unary.c: element-wise functions of one tensor and their gradients: in f32 on tiles, or for whole numbers those that make sense.
 */
#include "nest.h"
#include "vmath.h"

struct unary {
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
};

#define EACH(kind, value)                                                                          \
    case ULL_UNARY_##kind:                                                                         \
        SIMD for (int64_t i = 0; i < n; ++i)                                                       \
        {                                                                                          \
            float v = x[i];                                                                        \
            y[i] = (value);                                                                        \
        }                                                                                          \
        break;

#define ROOT_HALF 0.70710678118654752f
/* 1 / sqrt(2 pi) */
#define GAUSS 0.39894228040143268f
#define TANH_A 0.79788456080286536f
#define TANH_B 0.044715f

static float above(float v, float bound)
{
    return v > bound || v != v ? v : bound;
}

static float below(float v, float bound)
{
    return v < bound || v != v ? v : bound;
}

static void forward(const struct ull__unary_attrs *attrs, const float *x, float *y, int64_t n)
{
    const float alpha = (float)attrs->alpha, beta = (float)attrs->beta;
    switch (attrs->kind) {
        EACH(RELU, v > 0 || v != v ? v : 0.0f)
        EACH(GELU, 0.5f * v * (1 + erff(v * ROOT_HALF)))
        EACH(GELU_TANH, 0.5f * v * (1 + tanhf(TANH_A * (v + TANH_B * v * v * v))))
        EACH(SILU, v / (1 + expf(-v)))
        EACH(SIGMOID, 1 / (1 + expf(-v)))
        EACH(TANH, tanhf(v))
        EACH(EXP, expf(v))
        EACH(LOG, logf(v))
        EACH(SQRT, sqrtf(v))
        EACH(RSQRT, 1 / sqrtf(v))
        EACH(RECIPROCAL, 1 / v)
        EACH(ERF, erff(v))
        EACH(NEG, -v)
        EACH(ABS, fabsf(v))
        EACH(SQUARE, v * v)
        EACH(SIN, sinf(v))
        EACH(COS, cosf(v))
        EACH(FLOOR, floorf(v))
        EACH(CEIL, ceilf(v))
        EACH(ROUND, rintf(v))
        EACH(SIGN, v > 0 ? 1.0f : v < 0 ? -1.0f : v == 0 ? 0.0f : v)
        EACH(NOT, v == 0 ? 1.0f : 0.0f)
        EACH(LEAKY_RELU, v >= 0 ? v : alpha * v)
        EACH(ELU, v > 0 ? v : alpha * expm1f(v))
        EACH(SOFTPLUS, above(v, 0) + log1pf(expf(-fabsf(v))))
        EACH(HARD_SIGMOID, below(above(alpha * v + beta, 0), 1))
        EACH(CLIP, below(above(v, alpha), beta))
        EACH(SCALE, alpha * v + beta)
    case ULL_UNARY_POW:
        /* Squares and roots are most of what is asked for. */
        if (attrs->alpha == 2) {
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                y[i] = x[i] * x[i];
            }
        } else {
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                y[i] = powf(x[i], alpha);
            }
        }
        break;
    default:
        memmove(y, x, (size_t)n * sizeof(*y));
        break;
    }
}

#undef EACH
/* d: the gradient of what came out; s: the input or output that was kept. */
#define EACH(kind, value)                                                                          \
    case ULL_UNARY_##kind:                                                                         \
        SIMD for (int64_t i = 0; i < n; ++i)                                                       \
        {                                                                                          \
            float d = dy[i], s = saved[i];                                                         \
            dx[i] = (value);                                                                       \
        }                                                                                          \
        break;

/* Of 0.5 s (1 + tanh(a (s + b s^3))). */
#pragma omp declare simd notinbranch
static inline float gelu_tanh_slope(float s)
{
    float t = tanhf(TANH_A * (s + TANH_B * s * s * s));
    return 0.5f * (1 + t) + 0.5f * s * (1 - t * t) * TANH_A * (1 + 3 * TANH_B * s * s);
}

static void backward(const struct ull__unary_attrs *attrs, const float *dy, const float *saved,
                     float *dx, int64_t n)
{
    const float alpha = (float)attrs->alpha, beta = (float)attrs->beta;
    switch (attrs->kind) {
        EACH(RELU, s > 0 ? d : 0.0f)
        EACH(GELU, d * (0.5f * (1 + erff(s * ROOT_HALF)) + s * GAUSS * expf(-0.5f * s * s)))
        EACH(GELU_TANH, d * gelu_tanh_slope(s))
        EACH(SIGMOID, d * s * (1 - s))
        EACH(TANH, d * (1 - s * s))
        EACH(EXP, d * s)
        EACH(LOG, d / s)
        EACH(SQRT, 0.5f * d / s)
        EACH(RSQRT, -0.5f * d * s * s * s)
        EACH(RECIPROCAL, -d * s * s)
        EACH(ERF, d * 2 * GAUSS * 1.41421356237309505f * expf(-s * s))
        EACH(ABS, s > 0 ? d : s < 0 ? -d : 0.0f * d)
        EACH(SQUARE, 2 * s * d)
        EACH(SIN, d * cosf(s))
        EACH(COS, -d * sinf(s))
        EACH(LEAKY_RELU, s >= 0 ? d : alpha * d)
        EACH(ELU, s > 0 ? d : alpha * d * expf(s))
        EACH(SOFTPLUS, d / (1 + expf(-s)))
        EACH(HARD_SIGMOID, alpha * s + beta > 0 && alpha * s + beta < 1 ? alpha * d : 0.0f)
        EACH(CLIP, s >= alpha && s <= beta ? d : 0.0f)
    case ULL_UNARY_SILU:
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float s = saved[i], p = 1 / (1 + expf(-s));
            dx[i] = dy[i] * p * (1 + s * (1 - p));
        }
        break;
    default:
        if (attrs->alpha == 2) {
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                dx[i] = 2 * saved[i] * dy[i];
            }
        } else if (alpha == 0) {
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                dx[i] = 0;
            }
        } else {
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                dx[i] = dy[i] * alpha * powf(saved[i], alpha - 1);
            }
        }
        break;
    }
}

static int64_t whole(const struct ull__unary_attrs *attrs, int64_t v)
{
    switch (attrs->kind) {
    case ULL_UNARY_RELU:
        return v > 0 ? v : 0;
    case ULL_UNARY_NEG:
        return (int64_t)(0 - (uint64_t)v);
    case ULL_UNARY_ABS:
        return v < 0 ? (int64_t)(0 - (uint64_t)v) : v;
    case ULL_UNARY_SQUARE:
        return (int64_t)((uint64_t)v * (uint64_t)v);
    case ULL_UNARY_SIGN:
        return v > 0 ? 1 : v < 0 ? -1 : 0;
    case ULL_UNARY_NOT:
        return v == 0;
    case ULL_UNARY_CLIP:
        return (double)v < attrs->alpha  ? (int64_t)attrs->alpha
               : (double)v > attrs->beta ? (int64_t)attrs->beta
                                         : v;
    case ULL_UNARY_SCALE:
        return (int64_t)(attrs->alpha * (double)v + attrs->beta);
    default: /* floor, ceil, round, identity */
        return v;
    }
}

static bool is_whole(int kind)
{
    return kind == ULL_UNARY_RELU || kind == ULL_UNARY_NEG || kind == ULL_UNARY_ABS ||
           kind == ULL_UNARY_SQUARE || kind == ULL_UNARY_SIGN || kind == ULL_UNARY_NOT ||
           kind == ULL_UNARY_CLIP || kind == ULL_UNARY_SCALE || kind == ULL_UNARY_FLOOR ||
           kind == ULL_UNARY_CEIL || kind == ULL_UNARY_ROUND || kind == ULL_UNARY_IDENTITY;
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    enum ull__type type = kernel->inputs[0].type;
    (void)library;
    if (all_real(kernel)) {
        return ULL_OK;
    }
    bool fine = kernel->op == &ull__op_unary && is_whole(kernel->attrs.unary.kind) &&
                !ull__type_is_float(type) && type != ULL_TYPE_BIT && type != ULL_TYPE_F8;
    return fine ? ULL_OK : no_types(kernel, err);
}

static void run_unary(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__unary_attrs *attrs = &kernel->attrs.unary;
    enum ull__type type = kernel->inputs[0].type;
    const void *x = run->in[0];
    void *y = run->out[0];
    int64_t begin, end, values[TILE / 2];
    float from[TILE], to[TILE];
    ull__part(kernel->outputs[0].elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        if (is_real(type)) {
            n = least(TILE, end - begin);
            float *result = write_f32(type, y, begin, to);
            forward(attrs, read_f32(type, x, begin, n, from), result, n);
            wrote_f32(type, y, begin, result, n);
        } else {
            n = least(TILE / 2, end - begin);
            load_any_i64(type, x, begin, 1, n, values);
            for (int64_t i = 0; i < n; ++i) {
                values[i] = whole(attrs, values[i]);
            }
            store_any_i64(type, values, y, begin, n);
        }
    }
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    enum ull__type type = kernel->outputs[0].type;
    const struct ull__cpu_operand *in = kernel->inputs;
    int64_t begin, end;
    float dy[TILE], saved[TILE], to[TILE];
    ull__part(kernel->outputs[0].elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        n = least(TILE, end - begin);
        float *dx = write_f32(type, run->out[0], begin, to);
        backward(&kernel->attrs.unary, read_f32(in[0].type, run->in[0], begin, n, dy),
                 read_f32(in[1].type, run->in[1], begin, n, saved), dx, n);
        wrote_f32(type, run->out[0], begin, dx, n);
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_unary) = {
    .op = &ull__op_unary,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_unary,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_unary_grad) = {
    .op = &ull__op_unary_grad,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_grad,
};
