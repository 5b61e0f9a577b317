/*
 * batch_norm.c: batch normalization: twice over each group of samples, for its statistics and to apply them.
 *
 * Sums are of the distance from the group's first element of the channel, so that a variance that is small beside the mean
 * is not lost. Running statistics count the variance with n - 1, as PyTorch does; each group in turn, rounded each time, so
 * that groups in several micro-batches give the same.
 */
#include <math.h>

#include "batch_norm.h"

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    struct norm norm = norm_of(&kernel->inputs[0], kernel->attrs.norm.group, NULL);
    (void)library;
    kernel->workspace = kernel->attrs.norm.training ? norm_workspace(&norm)
                                                    : norm.channels * (int64_t)sizeof(float);
    return all_real(kernel) && kernel->inputs[3].type == ULL_TYPE_F32 &&
                   kernel->inputs[4].type == ULL_TYPE_F32
               ? ULL_OK
               : no_types(kernel, err);
}

/* Channels last: sums of distances and of their squares, of rows [begin, end) of a group that begins at `first`. */
static void sum_rows(const struct norm *norm, enum ull__type type, const void *x, int64_t first,
                     int64_t begin, int64_t end, double *sums, double *squares)
{
    float pivot[STRIP], s1[STRIP] = {0}, s2[STRIP] = {0}, tile[STRIP];
    for (int64_t left = 0; left < norm->channels; left += STRIP) {
        struct strip strip = norm_strip(norm, left);
        int64_t strips = 0;
        ull__load_f32(type, (const char *)x + (first * norm->channels + left) * size_of(type),
                      pivot, strip.width);
        norm_repeat(&strip, pivot);
        for (int64_t row = begin; row < end; row += strip.fold) {
            int64_t n = strip.width * least(strip.fold, end - row);
            const float *from = read_f32(type, x, row * norm->channels + left, n, tile);
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                float d = from[i] - pivot[i];
                s1[i] += d;
                s2[i] += d * d;
            }
            if (++strips % BLOCK == 0) {
                norm_flush(&strip, s1, sums);
                norm_flush(&strip, s2, squares);
            }
        }
        norm_flush(&strip, s1, sums);
        norm_flush(&strip, s2, squares);
    }
}

/* The same where a channel of a sample is a run. */
static void sum_runs(const struct norm *norm, enum ull__type type, const void *x, int64_t first,
                     int64_t begin, int64_t end, double *sums, double *squares)
{
    float tile[STRIP];
    for (int64_t row = begin; row < end; ++row) {
        for (int64_t c = 0; c < norm->channels; ++c) {
            int64_t at = (row * norm->channels + c) * norm->inner;
            float pivot = f32_at(type, x, (first * norm->channels + c) * norm->inner);
            for (int64_t left = 0; left < norm->inner; left += STRIP) {
                int64_t n = least(STRIP, norm->inner - left);
                const float *from = read_f32(type, x, at + left, n, tile);
                float s1 = 0, s2 = 0;
#pragma omp simd reduction(+ : s1, s2)
                for (int64_t i = 0; i < n; ++i) {
                    float d = from[i] - pivot;
                    s1 += d;
                    s2 += d * d;
                }
                sums[c] += (double)s1;
                squares[c] += (double)s2;
            }
        }
    }
}

/* Mean and 1/sqrt(var + epsilon) of channels [begin, end) of a group, and the running statistics. */
static void conclude(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                     const struct norm *norm, int64_t group, int64_t begin, int64_t end)
{
    const struct ull__norm_attrs *attrs = &kernel->attrs.norm;
    float *means = (float *)run->out[1] + group * norm->channels;
    float *rstds = (float *)run->out[2] + group * norm->channels;
    float *running_mean = run->out[3], *running_var = run->out[4];
    int64_t first = group * norm->rows * norm->channels * norm->inner;
    double n = norm_count(norm, group);
    for (int64_t c = begin; c < end; ++c) {
        double pivot = (double)f32_at(kernel->inputs[0].type, run->in[0], first + c * norm->inner);
        double shift = norm_total(norm, group, c, 0) / n;
        double var = norm_total(norm, group, c, 1) / n - shift * shift;
        double mean = pivot + shift;
        var = var < 0 ? 0 : var;
        means[c] = (float)mean;
        rstds[c] = (float)(1 / sqrt(var + attrs->epsilon));
        double unbiased = n > 1 ? var * n / (n - 1) : var;
        if (running_mean != NULL) {
            double old = (double)running_mean[c];
            running_mean[c] = (float)((1 - attrs->momentum) * old + attrs->momentum * mean);
        }
        if (running_var != NULL) {
            double old = (double)running_var[c];
            running_var[c] = (float)((1 - attrs->momentum) * old + attrs->momentum * unbiased);
        }
    }
}

/* y = (x - mean) * slope + shift for rows [begin, end); from the last, which was read last when sums were made. */
static void apply_rows(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                       const struct norm *norm, const float *means, const float *rstds,
                       int64_t begin, int64_t end)
{
    enum ull__type type = kernel->outputs[0].type;
    float mean[STRIP], slope[STRIP], shift[STRIP], from[STRIP], to[STRIP];
    for (int64_t left = 0; left < norm->channels; left += STRIP) {
        struct strip strip = norm_strip(norm, left);
        for (int64_t c = 0; c < strip.width; ++c) {
            mean[c] = means[left + c];
            slope[c] = rstds[left + c] * f32_at(kernel->inputs[1].type, run->in[1], left + c);
            shift[c] = f32_at(kernel->inputs[2].type, run->in[2], left + c);
        }
        norm_repeat(&strip, mean);
        norm_repeat(&strip, slope);
        norm_repeat(&strip, shift);
        int64_t strips = (end - begin + strip.fold - 1) / strip.fold;
        for (int64_t i = strips - 1; i >= 0; --i) {
            int64_t row = begin + i * strip.fold, at = row * norm->channels + left;
            int64_t n = strip.width * least(strip.fold, end - row);
            const float *x = read_f32(kernel->inputs[0].type, run->in[0], at, n, from);
            float *y = write_f32(type, run->out[0], at, to);
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = (x[j] - mean[j]) * slope[j] + shift[j];
            }
            wrote_f32(type, run->out[0], at, y, n);
        }
    }
}

static void apply_runs(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                       const struct norm *norm, const float *means, const float *rstds,
                       int64_t begin, int64_t end)
{
    enum ull__type type = kernel->outputs[0].type;
    float from[STRIP], to[STRIP];
    for (int64_t run_at = end * norm->channels - 1; run_at >= begin * norm->channels; --run_at) {
        int64_t c = run_at % norm->channels;
        float mean = means[c], slope = rstds[c] * f32_at(kernel->inputs[1].type, run->in[1], c);
        float shift = f32_at(kernel->inputs[2].type, run->in[2], c);
        for (int64_t left = 0; left < norm->inner; left += STRIP) {
            int64_t n = least(STRIP, norm->inner - left), at = run_at * norm->inner + left;
            const float *x = read_f32(kernel->inputs[0].type, run->in[0], at, n, from);
            float *y = write_f32(type, run->out[0], at, to);
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = (x[j] - mean) * slope + shift;
            }
            wrote_f32(type, run->out[0], at, y, n);
        }
    }
}

static void apply(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                  const struct norm *norm, const float *means, const float *rstds, int64_t begin,
                  int64_t end)
{
    if (norm->inner == 1) {
        apply_rows(kernel, run, norm, means, rstds, begin, end);
    } else {
        apply_runs(kernel, run, norm, means, rstds, begin, end);
    }
}

/* With the running statistics; the workspace takes 1/sqrt(var + epsilon). */
static void run_eval(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct norm norm = norm_of(&kernel->inputs[0], 0, NULL);
    const float *vars = run->in[4];
    float *rstds = run->workspace;
    int64_t begin, end;
    ull__part(norm.channels, 16, thread, run->threads, &begin, &end);
    for (int64_t c = begin; c < end; ++c) {
        rstds[c] = (float)(1 / sqrt((double)vars[c] + kernel->attrs.norm.epsilon));
    }
    ull__team_barrier(run->team);
    ull__part(norm.all_rows, 1, thread, run->threads, &begin, &end);
    apply(kernel, run, &norm, run->in[3], rstds, begin, end);
}

/* A group at a time, so that a small one is still in the cache when its statistics are applied. */
static void run_group(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                      const struct norm *norm, int64_t group, int thread)
{
    enum ull__type type = kernel->inputs[0].type;
    int64_t begin, end, from, to, first = group * norm->rows, at = group * norm->channels;
    ull__part(SLICES, 1, thread, run->threads, &begin, &end);
    for (int64_t slice = begin; slice < end; ++slice) {
        double *sums = norm_sums(norm, group, slice, 0);
        memset(sums, 0, (size_t)norm->channels * 2 * sizeof(*sums));
        norm_slice(norm, group, slice, &from, &to);
        (norm->inner == 1 ? sum_rows : sum_runs)(norm, type, run->in[0], first, from, to, sums,
                                                 norm_sums(norm, group, slice, 1));
    }
    ull__team_barrier(run->team);
    ull__part(norm->channels, 16, thread, run->threads, &from, &to);
    conclude(kernel, run, norm, group, from, to);
    ull__team_barrier(run->team);
    for (int64_t slice = end - 1; slice >= begin; --slice) {
        norm_slice(norm, group, slice, &from, &to);
        apply(kernel, run, norm, (const float *)run->out[1] + at, (const float *)run->out[2] + at,
              from, to);
    }
}

static void run_norm(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    if (kernel->inputs[0].elements == 0) {
        /* Statistics of no samples: those of zeros. */
        for (int64_t i = 0;
             thread == 0 && kernel->attrs.norm.training && i < kernel->outputs[1].elements; ++i) {
            ((float *)run->out[1])[i] = 0;
            ((float *)run->out[2])[i] = (float)(1 / sqrt(kernel->attrs.norm.epsilon));
        }
        return;
    }
    if (!kernel->attrs.norm.training) {
        run_eval(kernel, run, thread);
        return;
    }
    struct norm norm = norm_of(&kernel->inputs[0], kernel->attrs.norm.group, run->workspace);
    for (int64_t group = 0; group < norm.groups; ++group) {
        run_group(kernel, run, &norm, group, thread);
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_batch_norm) = {
    .op = &ull__op_batch_norm,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_norm,
};
