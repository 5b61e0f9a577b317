/*
 * binary.c: element-wise functions of two tensors that are broadcast to each other, and their gradients: in f32, or in whole
 * numbers where neither is floating.
 */
#include "nest.h"
#include "vmath.h"

struct binary {
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
};

#define EACH(kind, value)                                                                          \
    case ULL_BINARY_##kind:                                                                        \
        SIMD for (int64_t i = 0; i < n; ++i)                                                       \
        {                                                                                          \
            float a = x[i], b = y[i];                                                              \
            to[i] = (value);                                                                       \
        }                                                                                          \
        break;

static void real(int kind, const float *x, const float *y, float *to, int64_t n)
{
    switch (kind) {
        EACH(ADD, a + b)
        EACH(SUB, a - b)
        EACH(MUL, a * b)
        EACH(DIV, a / b)
        EACH(POW, powf(a, b))
        EACH(MIN, a < b || a != a ? a : b)
        EACH(MAX, a > b || a != a ? a : b)
    default:
        break;
    }
}

#undef EACH
/* X(kind, value) of those that give a bool. */
#define COMPARISONS(X)                                                                             \
    X(EQUAL, a == b)                                                                               \
    X(LESS, a < b)                                                                                 \
    X(LESS_EQUAL, a <= b)                                                                          \
    X(GREATER, a > b)                                                                              \
    X(GREATER_EQUAL, a >= b)                                                                       \
    X(AND, a != 0 && b != 0)                                                                       \
    X(OR, a != 0 || b != 0)                                                                        \
    X(XOR, (a != 0) != (b != 0))

static void compare_real(int kind, const float *x, const float *y, uint8_t *to, int64_t n)
{
    switch (kind) {
#define X(name, value)                                                                             \
    case ULL_BINARY_##name:                                                                        \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            float a = x[i], b = y[i];                                                              \
            to[i] = (value);                                                                       \
        }                                                                                          \
        break;
        COMPARISONS(X)
#undef X
    default:
        break;
    }
}

static int64_t power(int64_t a, int64_t b)
{
    uint64_t result = 1, base = (uint64_t)a;
    if (b < 0) {
        return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
    }
    for (; b > 0; b >>= 1) {
        result *= (b & 1) != 0 ? base : 1;
        base *= base;
    }
    return (int64_t)result;
}

/* A division by zero gives 0: there is nobody to tell. */
static int64_t whole(int kind, int64_t a, int64_t b)
{
    switch (kind) {
    case ULL_BINARY_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case ULL_BINARY_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case ULL_BINARY_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case ULL_BINARY_DIV:
        return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    case ULL_BINARY_POW:
        return power(a, b);
    case ULL_BINARY_MIN:
        return a < b ? a : b;
    case ULL_BINARY_MAX:
        return a > b ? a : b;
#define X(name, value)                                                                             \
    case ULL_BINARY_##name:                                                                        \
        return (value);
        COMPARISONS(X)
#undef X
    default:
        return 0;
    }
}

static bool is_whole(enum ull__type type)
{
    return !ull__type_is_float(type) && type != ULL_TYPE_BIT;
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    enum ull__type a = kernel->inputs[0].type, b = kernel->inputs[1].type,
                   to = kernel->outputs[0].type;
    (void)library;
    bool known = (is_real(a) || is_whole(a)) && (is_real(b) || is_whole(b));
    bool reals = is_real(a) || is_real(b);
    return known && (kernel->attrs.binary.kind >= ULL_BINARY_EQUAL
                         ? to == ULL_TYPE_BOOL
                         : (reals ? is_real(to) || is_whole(to) : is_whole(to)))
               ? ULL_OK
               : no_types(kernel, err);
}

static void body_whole(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct binary *of = context;
    const struct ull__cpu_operand *in = of->kernel->inputs;
    int64_t a[TILE / 4], b[TILE / 4];
    load_any_i64(in[0].type, of->run->in[0], at[1], stride[1], n, a);
    load_any_i64(in[1].type, of->run->in[1], at[2], stride[2], n, b);
    for (int64_t i = 0; i < n; ++i) {
        a[i] = whole(of->kernel->attrs.binary.kind, a[i], b[i]);
    }
    store_any_i64(of->kernel->outputs[0].type, a, of->run->out[0], at[0], n);
}

static void body_real(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct binary *of = context;
    const struct ull__cpu_operand *in = of->kernel->inputs;
    enum ull__type type = of->kernel->outputs[0].type;
    int kind = of->kernel->attrs.binary.kind;
    float x[TILE], y[TILE], to[TILE];
    const float *a = nest_read(in[0].type, of->run->in[0], at[1], stride[1], n, x);
    const float *b = nest_read(in[1].type, of->run->in[1], at[2], stride[2], n, y);
    if (kind >= ULL_BINARY_EQUAL) {
        compare_real(kind, a, b, (uint8_t *)of->run->out[0] + at[0], n);
    } else if (is_real(type)) {
        float *result = write_f32(type, of->run->out[0], at[0], to);
        real(kind, a, b, result, n);
        wrote_f32(type, of->run->out[0], at[0], result, n);
    } else {
        /* A whole tensor with a real scalar: the scalar takes the tensor's type. */
        int64_t result[TILE];
        real(kind, a, b, to, n);
        for (int64_t i = 0; i < n; ++i) {
            result[i] = (int64_t)to[i];
        }
        store_any_i64(type, result, of->run->out[0], at[0], n);
    }
}

static void run_binary(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct nest nest;
    struct binary of = {kernel, run};
    nest_of(&nest, kernel, 2);
    if (is_real(kernel->inputs[0].type) || is_real(kernel->inputs[1].type)) {
        nest_run(&nest, TILE, thread, run->threads, body_real, &of);
    } else {
        nest_run(&nest, TILE / 4, thread, run->threads, body_whole, &of);
    }
}

/* a and b broadcast, d the gradient: of a into da, of b into db. */
static void slopes(int kind, const float *a, const float *b, const float *d, float *da, float *db,
                   int64_t n)
{
    switch (kind) {
    case ULL_BINARY_ADD:
    case ULL_BINARY_SUB:
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            da[i] = d[i];
            db[i] = kind == ULL_BINARY_ADD ? d[i] : -d[i];
        }
        break;
    case ULL_BINARY_MUL:
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float va = a[i], vb = b[i];
            da[i] = d[i] * vb;
            db[i] = d[i] * va;
        }
        break;
    case ULL_BINARY_DIV:
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float va = a[i], vb = b[i], vd = d[i];
            da[i] = vd / vb;
            db[i] = -vd * va / (vb * vb);
        }
        break;
    case ULL_BINARY_POW:
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float va = a[i], vb = b[i], vd = d[i], power = powf(va, vb);
            float slope = vb * powf(va, vb - 1);
            float growth = power * logf(va);
            da[i] = vb == 0 ? 0 : vd * slope;
            db[i] = va == 0 && vb >= 0 ? 0 : vd * growth;
        }
        break;
    default:
        /* Where both are equal, half to each, as PyTorch has it. */
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float va = a[i], vb = b[i], vd = d[i];
            float share = va == vb                                       ? 0.5f
                          : (kind == ULL_BINARY_MIN ? va < vb : va > vb) ? 1.0f
                                                                         : 0.0f;
            da[i] = share * vd;
            db[i] = (1 - share) * vd;
        }
        break;
    }
}

static void body_grad(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct binary *of = context;
    const struct ull__cpu_operand *in = of->kernel->inputs;
    const struct ull__cpu_operand *out = of->kernel->outputs;
    float x[TILE], y[TILE], d[TILE], to_a[TILE], to_b[TILE];
    const float *a = nest_read(in[0].type, of->run->in[0], at[1], stride[1], n, x);
    const float *b = nest_read(in[1].type, of->run->in[1], at[2], stride[2], n, y);
    const float *dy = nest_read(in[2].type, of->run->in[2], at[3], stride[3], n, d);
    float *da = write_f32(out[0].type, of->run->out[0], at[0], to_a);
    float *db = write_f32(out[1].type, of->run->out[1], at[0], to_b);
    slopes(of->kernel->attrs.binary.kind, a, b, dy, da, db, n);
    wrote_f32(out[0].type, of->run->out[0], at[0], da, n);
    wrote_f32(out[1].type, of->run->out[1], at[0], db, n);
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct nest nest;
    struct binary of = {kernel, run};
    nest_of(&nest, kernel, 3);
    nest_run(&nest, TILE, thread, run->threads, body_grad, &of);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_binary) = {
    .op = &ull__op_binary,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_binary,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_binary_grad) = {
    .op = &ull__op_binary_grad,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare_real,
    .run = run_grad,
};
