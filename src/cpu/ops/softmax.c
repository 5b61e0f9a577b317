/*
 * softmax.c: softmax and its logarithm along an axis, and their gradients: rows where the axis is last in memory, else some
 * columns at a time.
 */
#include "nest.h"
#include "row.h"

enum { COLUMNS = 256 };

struct along {
    int64_t outer, size, inner;
};

static struct along along(const struct ull__kernel *kernel)
{
    const struct ull__cpu_operand *x = &kernel->outputs[0];
    int order[ULL_RANK], rank = memory_order(x, order);
    struct along of = {1, 1, 1};
    bool after = false;
    for (int i = 0; i < rank; ++i) {
        if (order[i] == kernel->attrs.axis.axis) {
            of.size = x->dims[order[i]];
            after = true;
        } else {
            *(after ? &of.inner : &of.outer) *= x->dims[order[i]];
        }
    }
    return of;
}

static void softmax_row(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                        bool logarithm, int64_t at, int64_t width)
{
    enum ull__type type = kernel->outputs[0].type;
    float from[TILE], to[TILE];
    double sum;
    float most = row_statistics(kernel->inputs[0].type, run->in[0], at, width, from, &sum);
    float factor = (float)(1 / sum), log_sum = (float)log(sum);
    for (int64_t i = 0; i < width; i += TILE) {
        int64_t n = least(TILE, width - i);
        const float *x = read_f32(kernel->inputs[0].type, run->in[0], at + i, n, from);
        float *y = write_f32(type, run->out[0], at + i, to);
        if (logarithm) {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = x[j] - most - log_sum;
            }
        } else {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = exp_low(x[j] - most) * factor;
            }
        }
        wrote_f32(type, run->out[0], at + i, y, n);
    }
}

/* n columns from `at` on, rows `inner` apart. */
static void softmax_columns(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                            bool logarithm, int64_t at, const struct along *of, int64_t n)
{
    enum ull__type type = kernel->outputs[0].type, in = kernel->inputs[0].type;
    float from[COLUMNS], to[COLUMNS], most[COLUMNS], sum[COLUMNS];
    for (int64_t j = 0; j < n; ++j) {
        most[j] = -INFINITY;
        sum[j] = 0;
    }
    for (int64_t i = 0; i < of->size; ++i) {
        const float *x = read_f32(in, run->in[0], at + i * of->inner, n, from);
        SIMD for (int64_t j = 0; j < n; ++j)
        {
            float v = x[j], a = most[j];
            most[j] = v > a || v != v ? v : a;
        }
    }
    for (int64_t i = 0; i < of->size; ++i) {
        const float *x = read_f32(in, run->in[0], at + i * of->inner, n, from);
        SIMD for (int64_t j = 0; j < n; ++j)
        {
            sum[j] += exp_low(x[j] - most[j]);
        }
    }
    SIMD for (int64_t j = 0; j < n; ++j)
    {
        sum[j] = logarithm ? logf(sum[j]) : 1 / sum[j];
    }
    for (int64_t i = 0; i < of->size; ++i) {
        int64_t place = at + i * of->inner;
        const float *x = read_f32(in, run->in[0], place, n, from);
        float *y = write_f32(type, run->out[0], place, to);
        if (logarithm) {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = x[j] - most[j] - sum[j];
            }
        } else {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = exp_low(x[j] - most[j]) * sum[j];
            }
        }
        wrote_f32(type, run->out[0], place, y, n);
    }
}

/* dx = y * (dy - sum(dy * y)), or dy - exp(y) * sum(dy). */
static void grad_row(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                     bool logarithm, int64_t at, int64_t width)
{
    enum ull__type type = kernel->outputs[0].type;
    float tile_d[TILE], tile_y[TILE], to[TILE];
    double total = 0;
    for (int64_t i = 0; i < width; i += TILE) {
        int64_t n = least(TILE, width - i);
        const float *d = read_f32(kernel->inputs[0].type, run->in[0], at + i, n, tile_d);
        const float *y = read_f32(kernel->inputs[1].type, run->in[1], at + i, n, tile_y);
        float sum = 0;
        if (logarithm) {
            sum = row_add(d, n);
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < n; ++j) {
                sum += d[j] * y[j];
            }
        }
        total += (double)sum;
    }
    float sum = (float)total;
    for (int64_t i = 0; i < width; i += TILE) {
        int64_t n = least(TILE, width - i);
        const float *d = read_f32(kernel->inputs[0].type, run->in[0], at + i, n, tile_d);
        const float *y = read_f32(kernel->inputs[1].type, run->in[1], at + i, n, tile_y);
        float *dx = write_f32(type, run->out[0], at + i, to);
        if (logarithm) {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                dx[j] = d[j] - exp_low(y[j]) * sum;
            }
        } else {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                dx[j] = y[j] * (d[j] - sum);
            }
        }
        wrote_f32(type, run->out[0], at + i, dx, n);
    }
}

static void grad_columns(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                         bool logarithm, int64_t at, const struct along *of, int64_t n)
{
    enum ull__type type = kernel->outputs[0].type;
    float tile_d[COLUMNS], tile_y[COLUMNS], to[COLUMNS], sum[COLUMNS] = {0};
    for (int64_t i = 0; i < of->size; ++i) {
        int64_t place = at + i * of->inner;
        const float *d = read_f32(kernel->inputs[0].type, run->in[0], place, n, tile_d);
        const float *y = read_f32(kernel->inputs[1].type, run->in[1], place, n, tile_y);
        SIMD for (int64_t j = 0; j < n; ++j)
        {
            sum[j] += logarithm ? d[j] : d[j] * y[j];
        }
    }
    for (int64_t i = 0; i < of->size; ++i) {
        int64_t place = at + i * of->inner;
        const float *d = read_f32(kernel->inputs[0].type, run->in[0], place, n, tile_d);
        const float *y = read_f32(kernel->inputs[1].type, run->in[1], place, n, tile_y);
        float *dx = write_f32(type, run->out[0], place, to);
        if (logarithm) {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                dx[j] = d[j] - exp_low(y[j]) * sum[j];
            }
        } else {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                dx[j] = y[j] * (d[j] - sum[j]);
            }
        }
        wrote_f32(type, run->out[0], place, dx, n);
    }
}

static void run_any(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct along of = along(kernel);
    bool grad = kernel->op == &ull__op_softmax_grad || kernel->op == &ull__op_log_softmax_grad;
    bool logarithm = kernel->op == &ull__op_log_softmax || kernel->op == &ull__op_log_softmax_grad;
    int64_t parts = of.inner == 1 ? 1 : (of.inner + COLUMNS - 1) / COLUMNS, begin, end;
    if (kernel->outputs[0].elements == 0) {
        return;
    }
    ull__part(of.outer * parts, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        int64_t left = i % parts * COLUMNS, at = i / parts * of.size * of.inner + left;
        if (of.inner == 1) {
            (grad ? grad_row : softmax_row)(kernel, run, logarithm, at, of.size);
        } else {
            (grad ? grad_columns : softmax_columns)(kernel, run, logarithm, at, &of,
                                                    least(COLUMNS, of.inner - left));
        }
    }
}

#define SOFTMAX(name)                                                                              \
    const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name) = {                                     \
        .op = &ull__op_##name,                                                                     \
        .layouts = ULL_CPU_SAME,                                                                   \
        .prepare = prepare_real,                                                                   \
        .run = run_any,                                                                            \
    };

SOFTMAX(softmax)
SOFTMAX(softmax_grad)
SOFTMAX(log_softmax)
SOFTMAX(log_softmax_grad)
