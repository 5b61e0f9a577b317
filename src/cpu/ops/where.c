/* where.c: an element of one of two tensors, as a condition says; all three are broadcast. Values are copied, of any type. */
#include "nest.h"

struct where {
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
};

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    const struct ull__cpu_operand *in = kernel->inputs;
    enum ull__type to = kernel->outputs[0].type;
    (void)library;
    bool same = in[1].type == to && in[2].type == to && to != ULL_TYPE_BIT;
    bool real = is_real(to) && is_real(in[1].type) && is_real(in[2].type);
    return (same || real) && in[0].type == ULL_TYPE_BOOL ? ULL_OK : no_types(kernel, err);
}

/* Types differ: a scalar of f32 beside 16 bits. */
static void body_mixed(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct where *of = context;
    const struct ull__cpu_operand *in = of->kernel->inputs;
    enum ull__type type = of->kernel->outputs[0].type;
    float x[TILE], y[TILE], to[TILE];
    const uint8_t *c = (const uint8_t *)of->run->in[0] + at[1];
    const float *a = nest_read(in[1].type, of->run->in[1], at[2], stride[2], n, x);
    const float *b = nest_read(in[2].type, of->run->in[2], at[3], stride[3], n, y);
    float *result = write_f32(type, of->run->out[0], at[0], to);
    for (int64_t i = 0; i < n; ++i) {
        result[i] = c[i * stride[1]] != 0 ? a[i] : b[i];
    }
    wrote_f32(type, of->run->out[0], at[0], result, n);
}

#define BODY(name, c_type)                                                                         \
    static void name(const void *context, const int64_t *at, const int64_t *stride, int64_t n)     \
    {                                                                                              \
        const struct where *of = context;                                                          \
        const uint8_t *c = (const uint8_t *)of->run->in[0] + at[1];                                \
        const c_type *a = (const c_type *)of->run->in[1] + at[2];                                  \
        const c_type *b = (const c_type *)of->run->in[2] + at[3];                                  \
        c_type *to = (c_type *)of->run->out[0] + at[0];                                            \
        if (stride[1] == 1 && stride[2] == 1 && stride[3] == 1) {                                  \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                c_type va = a[i], vb = b[i];                                                       \
                to[i] = c[i] != 0 ? va : vb;                                                       \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            c_type va = a[i * stride[2]], vb = b[i * stride[3]];                                   \
            to[i] = c[i * stride[1]] != 0 ? va : vb;                                               \
        }                                                                                          \
    }

BODY(body_1, uint8_t)
BODY(body_2, uint16_t)
BODY(body_4, uint32_t)
BODY(body_8, uint64_t)

static void run_where(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct nest nest;
    struct where of = {kernel, run};
    enum ull__type type = kernel->outputs[0].type;
    nest_of(&nest, kernel, 3);
    if (kernel->inputs[1].type != type || kernel->inputs[2].type != type) {
        nest_run(&nest, TILE, thread, run->threads, body_mixed, &of);
    } else if (size_of(type) == 1) {
        nest_run(&nest, TILE, thread, run->threads, body_1, &of);
    } else if (size_of(type) == 2) {
        nest_run(&nest, TILE, thread, run->threads, body_2, &of);
    } else if (size_of(type) == 4) {
        nest_run(&nest, TILE, thread, run->threads, body_4, &of);
    } else {
        nest_run(&nest, TILE, thread, run->threads, body_8, &of);
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_where) = {
    .op = &ull__op_where,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_where,
};
