/*
 * gradients.c: what is asked of all gradients together: whether they are finite, the square of their norm; and the scalars
 * that steer a step: the factor of gradients, the loss scale, the counter of steps.
 *
 * The gradients are one long row that is cut into parts, as many whatever the threads are.
 */
#include <math.h>

#include "tile.h"

enum { PARTS = 64 };

/* The sum of squares, or 1 if one is not finite, of a run. */
typedef double run_body(const float *x, int64_t n);

static double squares(const float *x, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
        sum += x[i] * x[i];
    }
    return (double)sum;
}

/* An exponent of ones. */
static double infinite(const float *x, int64_t n)
{
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < n; ++i) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        found |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return (double)found;
}

static int64_t elements_of(const struct ull__kernel *kernel)
{
    int64_t all = 0;
    for (int i = 0; i < kernel->input_count; ++i) {
        all += kernel->inputs[i].elements;
    }
    return all;
}

ALWAYS double over_part(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                        int64_t begin, int64_t end, run_body *body)
{
    float tile[TILE];
    double total = 0;
    int64_t first = 0;
    for (int i = 0; i < kernel->input_count; ++i) {
        const struct ull__cpu_operand *x = &kernel->inputs[i];
        int64_t at = most(0, begin - first), last = least(x->elements, end - first);
        for (int64_t n; at < last; at += n) {
            n = least(TILE, last - at);
            total += body(read_f32(x->type, run->in[i], at, n, tile), n);
        }
        first += x->elements;
    }
    return total;
}

ALWAYS bool over_all(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread,
                     run_body *body, double *total)
{
    double *parts = run->workspace;
    int64_t all = elements_of(kernel), begin, end;
    ull__part(PARTS, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        parts[i] = over_part(kernel, run, (int64_t)((double)all * (double)i / PARTS),
                             (int64_t)((double)all * (double)(i + 1) / PARTS), body);
    }
    ull__team_barrier(run->team);
    for (int i = 0; thread == 0 && i < PARTS; ++i) {
        *total += parts[i];
    }
    return thread == 0;
}

static void run_finite(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    double found = 0;
    if (over_all(kernel, run, thread, infinite, &found)) {
        *(uint8_t *)run->out[0] = found > 0;
    }
}

static void run_norm_square(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                            int thread)
{
    double sum = 0;
    if (over_all(kernel, run, thread, squares, &sum)) {
        *(float *)run->out[0] = (float)sum;
    }
}

static ull_status prepare_all(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                              struct ull_error *err)
{
    (void)library;
    bool real = true;
    for (int i = 0; i < kernel->input_count; ++i) {
        real = real && is_real(kernel->inputs[i].type);
    }
    kernel->workspace = PARTS * (int64_t)sizeof(double);
    return real ? ULL_OK : no_types(kernel, err);
}

/* The norm may be infinite, as f32 has it: then the factor is 0, or NaN with gradients that are not finite. */
static void run_clip(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    bool scaled = kernel->input_count > 0 && run->in[0] != NULL;
    bool normed = kernel->input_count > 1 && run->in[1] != NULL;
    double factor = scaled ? 1 / (double)*(const float *)run->in[0] : 1;
    double norm = normed ? sqrt((double)*(const float *)run->in[1]) * factor : 0;
    double limit = kernel->attrs.optimizer.limit;
    if (thread == 0) {
        *(float *)run->out[0] = (float)(norm > limit ? factor * limit / norm : factor);
    }
}

/* Outputs, where they are, lie where the inputs do; nothing is read otherwise. */
static void run_loss_scale(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                           int thread)
{
    const struct ull__scale_attrs *attrs = &kernel->attrs.scale;
    float *scale = run->out[0];
    int32_t *good = run->out[1], *left = run->out[2];
    if (thread != 0 || scale == NULL || good == NULL || left == NULL) {
        return;
    }
    if (*(const uint8_t *)run->in[3] != 0) {
        *good = 0;
        *left = *left > 0 ? *left - 1 : 0;
        if (*left == 0) {
            *scale = (float)fmax((double)*scale * attrs->backoff, attrs->floor);
        }
        return;
    }
    *good += 1;
    if (*good >= attrs->interval) {
        *good = 0;
        *left = (int32_t)attrs->hysteresis;
        *scale = (float)fmin((double)*scale * attrs->growth, attrs->ceiling);
    }
}

static void run_count_step(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                           int thread)
{
    (void)kernel;
    if (thread == 0 && run->out[0] != NULL) {
        *(int64_t *)run->out[0] += 1;
    }
}

static ull_status prepare_scalars(struct ull__kernel *kernel,
                                  const struct ull__cpu_library *library, struct ull_error *err)
{
    static const enum ull__type types[] = {ULL_TYPE_F32, ULL_TYPE_I32, ULL_TYPE_I32, ULL_TYPE_BOOL};
    (void)library;
    bool fits = true;
    for (int i = 0; i < kernel->input_count && i < 4; ++i) {
        enum ull__type type = kernel->op == &ull__op_count_step ? ULL_TYPE_I64
                              : kernel->op == &ull__op_clip     ? ULL_TYPE_F32
                                                                : types[i];
        fits = fits && (!kernel->inputs[i].there || kernel->inputs[i].type == type);
    }
    return fits ? ULL_OK : no_types(kernel, err);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_finite) = {
    .op = &ull__op_finite,
    .layouts = ULL_CPU_ANY,
    .prepare = prepare_all,
    .run = run_finite,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_norm_square) = {
    .op = &ull__op_norm_square,
    .layouts = ULL_CPU_ANY,
    .prepare = prepare_all,
    .run = run_norm_square,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_clip) = {
    .op = &ull__op_clip,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare_scalars,
    .run = run_clip,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_loss_scale) = {
    .op = &ull__op_loss_scale,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare_scalars,
    .run = run_loss_scale,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_count_step) = {
    .op = &ull__op_count_step,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare_scalars,
    .run = run_count_step,
};
