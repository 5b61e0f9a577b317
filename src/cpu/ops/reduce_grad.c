/*
 * reduce_grad.c: the gradients of reductions: dy to all elements that were reduced, times what the kind asks for.
 *
 * A maximum's gradient is shared by the elements that are equal to it; a product's is that of the other elements, also where
 * one is zero. For both the elements of each result are counted first, into the workspace.
 */
#include <math.h>

#include "reduce.h"

struct grad {
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
    float share; /* of a mean */
    int tallied; /* the operand of the nest that the tallies lie like */
};

/* Of a result: elements equal to the maximum, or zeros; and the product of those that are not zero. */
struct tally {
    float count, product;
};

static bool tallies(int kind)
{
    return kind == ULL_REDUCE_MAX || kind == ULL_REDUCE_MIN || kind == ULL_REDUCE_PROD;
}

static void count_results(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *in = kernel->inputs;
    struct tally *tally = run->workspace;
    struct places kept = {.count = 1}, gone = {.count = 1};
    struct nest nest;
    int64_t begin, end, x, y, at, unused;
    reduction_of(&nest, &in[1], &in[2], &kernel->attrs.reduce);
    for (int i = 0; i < nest.rank; ++i) {
        places_add(nest.strides[1][i] != 0 ? &kept : &gone, nest.dims[i], nest.strides[0][i],
                   nest.strides[1][i]);
    }
    ull__part(kept.count, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        place_at(&kept, i, &x, &y);
        float result = f32_at(in[2].type, run->in[2], y), count = 0;
        double product = 1;
        for (int64_t j = 0; j < gone.count; ++j) {
            place_at(&gone, j, &at, &unused);
            float v = f32_at(in[1].type, run->in[1], x + at);
            bool counts = kernel->attrs.reduce.kind == ULL_REDUCE_PROD ? v == 0 : v == result;
            count += counts ? 1.0f : 0.0f;
            product *= v == 0 ? 1 : (double)v;
        }
        tally[y] = (struct tally){count, (float)product};
    }
}

#define EACH(value)                                                                                \
    SIMD for (int64_t i = 0; i < n; ++i)                                                           \
    {                                                                                              \
        float d = dy[i];                                                                           \
        dx[i] = (value);                                                                           \
    }                                                                                              \
    break;

static void body(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct grad *of = context;
    const struct ull__kernel *kernel = of->kernel;
    const struct ull__cpu_operand *in = kernel->inputs;
    enum ull__type type = kernel->outputs[0].type;
    const struct tally *tally = of->run->workspace;
    float tile_d[TILE], tile_x[TILE], tile_y[TILE], to[TILE], share = of->share;
    const float *dy = nest_read(in[0].type, of->run->in[0], at[1], stride[1], n, tile_d);
    const float *x = kernel->input_count > 1
                         ? nest_read(in[1].type, of->run->in[1], at[2], stride[2], n, tile_x)
                         : dy;
    const float *y = kernel->input_count > 2
                         ? nest_read(in[2].type, of->run->in[2], at[3], stride[3], n, tile_y)
                         : dy;
    float *dx = write_f32(type, of->run->out[0], at[0], to);
    switch (kernel->attrs.reduce.kind) {
    case ULL_REDUCE_SUM:
        EACH(d)
    case ULL_REDUCE_MEAN:
        EACH(d * share)
    case ULL_REDUCE_SUM_SQUARE:
        EACH(2 * x[i] * d)
    case ULL_REDUCE_L1:
        EACH(x[i] > 0 ? d : x[i] < 0 ? -d : 0.0f * d)
    case ULL_REDUCE_L2:
        EACH(y[i] == 0 ? 0.0f : d * x[i] / y[i])
    case ULL_REDUCE_PROD:
        for (int64_t i = 0; i < n; ++i) {
            struct tally t = tally[at[3] + i * stride[3]];
            dx[i] = t.count == 0                ? dy[i] * y[i] / x[i]
                    : t.count == 1 && x[i] == 0 ? dy[i] * t.product
                                                : 0;
        }
        break;
    default:
        for (int64_t i = 0; i < n; ++i) {
            dx[i] = x[i] == y[i] ? dy[i] / tally[at[3] + i * stride[3]].count : 0;
        }
        break;
    }
    wrote_f32(type, of->run->out[0], at[0], dx, n);
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *in = kernel->inputs, *dx = &kernel->outputs[0];
    const struct ull__reduce_attrs *attrs = &kernel->attrs.reduce;
    struct grad of = {.kernel = kernel, .run = run};
    struct nest nest;
    int64_t strides[ULL_RANK] = {0}, count = 1;
    if (tallies(attrs->kind)) {
        count_results(kernel, run, thread);
        ull__team_barrier(run->team);
    }
    nest_open(&nest, dx->rank, dx->dims);
    strides_of(dx, strides);
    nest_strides(&nest, strides);
    for (int i = 0; i < kernel->input_count; ++i) {
        if (i == 1) {
            strides_of(&in[1], strides);
        } else {
            reduced_strides(&in[i], dx->rank, attrs->axes, attrs->keep, strides);
        }
        nest_strides(&nest, strides);
    }
    for (int i = 0; i < dx->rank; ++i) {
        count *= (attrs->axes >> i & 1) != 0 ? dx->dims[i] : 1;
    }
    of.share = 1 / (float)count;
    nest_close(&nest);
    nest_run(&nest, TILE, thread, run->threads, body, &of);
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    kernel->workspace = tallies(kernel->attrs.reduce.kind)
                            ? kernel->inputs[0].elements * (int64_t)sizeof(struct tally)
                            : 0;
    return all_real(kernel) ? ULL_OK : no_types(kernel, err);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_reduce_grad) = {
    .op = &ull__op_reduce_grad,
    .layouts = ULL_CPU_ANY,
    .prepare = prepare,
    .run = run_grad,
};
