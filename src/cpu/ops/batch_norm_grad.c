/*
 * batch_norm_grad.c: the gradient of batch normalization in training: twice over x and dy of each group of samples:
 *
 *     dx = scale * rstd * (dy - mean(dy) - (x - mean) * rstd^2 * mean(dy * (x - mean)))       by group and channel
 *
 * Sums as in batch_norm.c. dx may be in the memory of dy.
 */
#include "batch_norm.h"

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    struct norm norm = norm_of(&kernel->inputs[0], kernel->attrs.norm.group, NULL);
    (void)library;
    kernel->workspace = norm_workspace(&norm);
    return all_real(kernel) && kernel->inputs[3].type == ULL_TYPE_F32 &&
                   kernel->inputs[4].type == ULL_TYPE_F32
               ? ULL_OK
               : no_types(kernel, err);
}

static void sum_rows(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                     const struct norm *norm, const float *means, int64_t begin, int64_t end,
                     double *sums, double *products)
{
    float mean[STRIP], s1[STRIP] = {0}, s2[STRIP] = {0}, tile_d[STRIP], tile_x[STRIP];
    for (int64_t left = 0; left < norm->channels; left += STRIP) {
        struct strip strip = norm_strip(norm, left);
        int64_t strips = 0;
        memcpy(mean, means + left, (size_t)strip.width * sizeof(*mean));
        norm_repeat(&strip, mean);
        for (int64_t row = begin; row < end; row += strip.fold) {
            int64_t n = strip.width * least(strip.fold, end - row), at = row * norm->channels + left;
            const float *d = read_f32(kernel->inputs[0].type, run->in[0], at, n, tile_d);
            const float *x = read_f32(kernel->inputs[1].type, run->in[1], at, n, tile_x);
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                s1[i] += d[i];
                s2[i] += d[i] * (x[i] - mean[i]);
            }
            if (++strips % BLOCK == 0) {
                norm_flush(&strip, s1, sums);
                norm_flush(&strip, s2, products);
            }
        }
        norm_flush(&strip, s1, sums);
        norm_flush(&strip, s2, products);
    }
}

static void sum_runs(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                     const struct norm *norm, const float *means, int64_t begin, int64_t end,
                     double *sums, double *products)
{
    float tile_d[STRIP], tile_x[STRIP];
    for (int64_t run_at = begin * norm->channels; run_at < end * norm->channels; ++run_at) {
        int64_t c = run_at % norm->channels;
        float mean = means[c];
        for (int64_t left = 0; left < norm->inner; left += STRIP) {
            int64_t n = least(STRIP, norm->inner - left), at = run_at * norm->inner + left;
            const float *d = read_f32(kernel->inputs[0].type, run->in[0], at, n, tile_d);
            const float *x = read_f32(kernel->inputs[1].type, run->in[1], at, n, tile_x);
            float s1 = 0, s2 = 0;
#pragma omp simd reduction(+ : s1, s2)
            for (int64_t i = 0; i < n; ++i) {
                s1 += d[i];
                s2 += d[i] * (x[i] - mean);
            }
            sums[c] += (double)s1;
            products[c] += (double)s2;
        }
    }
}

/*
 * mean(dy) and rstd^2 * mean(dy * (x - mean)) of channels [begin, end) of a group, into the sums of slice 0; what the group
 * adds to the gradients of scale and shift, into slice 1, which goes from group to group.
 */
static void conclude(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                     const struct norm *norm, int64_t group, int64_t begin, int64_t end)
{
    const float *rstds = (const float *)run->in[4] + group * norm->channels;
    double n = norm_count(norm, group);
    for (int64_t c = begin; c < end; ++c) {
        double rstd = (double)rstds[c];
        double sum = norm_total(norm, group, c, 0), product = norm_total(norm, group, c, 1);
        double shift = group > 0 ? norm_sums(norm, group - 1, 1, 0)[c] : 0;
        double scale = group > 0 ? norm_sums(norm, group - 1, 1, 1)[c] : 0;
        norm_sums(norm, group, 0, 0)[c] = sum / n;
        norm_sums(norm, group, 0, 1)[c] = product * rstd * rstd / n;
        norm_sums(norm, group, 1, 0)[c] = shift += sum;
        norm_sums(norm, group, 1, 1)[c] = scale += product * rstd;
        if (group == norm->groups - 1) {
            set_f32(kernel->outputs[1].type, run->out[1], c, (float)scale);
            set_f32(kernel->outputs[2].type, run->out[2], c, (float)shift);
        }
    }
}

/* What dx is made of, for a strip of channels of a group. */
struct factors {
    float mean[STRIP], slope[STRIP], k1[STRIP], k2[STRIP];
};

static void read_factors(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                         const struct norm *norm, int64_t group, int64_t left, int64_t width,
                         struct factors *to)
{
    const float *means = run->in[3], *rstds = run->in[4];
    for (int64_t c = 0; c < width; ++c) {
        int64_t at = group * norm->channels + left + c;
        to->mean[c] = means[at];
        to->slope[c] = rstds[at] * f32_at(kernel->inputs[2].type, run->in[2], left + c);
        to->k1[c] = (float)norm_sums(norm, group, 0, 0)[left + c];
        to->k2[c] = (float)norm_sums(norm, group, 0, 1)[left + c];
    }
}

static void apply_rows(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                       const struct norm *norm, int64_t group, int64_t begin, int64_t end)
{
    enum ull__type type = kernel->outputs[0].type;
    struct factors f;
    float tile_d[STRIP], tile_x[STRIP], to[STRIP];
    for (int64_t left = 0; left < norm->channels; left += STRIP) {
        struct strip strip = norm_strip(norm, left);
        read_factors(kernel, run, norm, group, left, strip.width, &f);
        norm_repeat(&strip, f.mean);
        norm_repeat(&strip, f.slope);
        norm_repeat(&strip, f.k1);
        norm_repeat(&strip, f.k2);
        int64_t strips = (end - begin + strip.fold - 1) / strip.fold;
        for (int64_t i = strips - 1; i >= 0; --i) {
            int64_t row = begin + i * strip.fold, at = row * norm->channels + left;
            int64_t n = strip.width * least(strip.fold, end - row);
            const float *d = read_f32(kernel->inputs[0].type, run->in[0], at, n, tile_d);
            const float *x = read_f32(kernel->inputs[1].type, run->in[1], at, n, tile_x);
            float *dx = write_f32(type, run->out[0], at, to);
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                dx[j] = f.slope[j] * (d[j] - f.k1[j] - (x[j] - f.mean[j]) * f.k2[j]);
            }
            wrote_f32(type, run->out[0], at, dx, n);
        }
    }
}

static void apply_runs(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                       const struct norm *norm, int64_t group, int64_t begin, int64_t end)
{
    enum ull__type type = kernel->outputs[0].type;
    struct factors f;
    float tile_d[STRIP], tile_x[STRIP], to[STRIP];
    for (int64_t first = 0; first < norm->channels; first += STRIP) {
        int64_t width = least(STRIP, norm->channels - first);
        read_factors(kernel, run, norm, group, first, width, &f);
        for (int64_t i = 0; i < (end - begin) * width; ++i) {
            int64_t c = i % width, row = begin + i / width;
            for (int64_t left = 0; left < norm->inner; left += STRIP) {
                int64_t n = least(STRIP, norm->inner - left);
                int64_t at = (row * norm->channels + first + c) * norm->inner + left;
                const float *d = read_f32(kernel->inputs[0].type, run->in[0], at, n, tile_d);
                const float *x = read_f32(kernel->inputs[1].type, run->in[1], at, n, tile_x);
                float *dx = write_f32(type, run->out[0], at, to);
                float mean = f.mean[c], slope = f.slope[c], k1 = f.k1[c], k2 = f.k2[c];
                SIMD for (int64_t j = 0; j < n; ++j)
                {
                    dx[j] = slope * (d[j] - k1 - (x[j] - mean) * k2);
                }
                wrote_f32(type, run->out[0], at, dx, n);
            }
        }
    }
}

/* A group at a time, so that a small one is still in the cache when its sums are there. */
static void run_group(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                      const struct norm *norm, int64_t group, int thread)
{
    const float *means = (const float *)run->in[3] + group * norm->channels;
    int64_t begin, end, from, to;
    ull__part(SLICES, 1, thread, run->threads, &begin, &end);
    for (int64_t slice = begin; slice < end; ++slice) {
        double *sums = norm_sums(norm, group, slice, 0);
        memset(sums, 0, (size_t)norm->channels * 2 * sizeof(*sums));
        norm_slice(norm, group, slice, &from, &to);
        (norm->inner == 1 ? sum_rows : sum_runs)(kernel, run, norm, means, from, to, sums,
                                                 norm_sums(norm, group, slice, 1));
    }
    ull__team_barrier(run->team);
    ull__part(norm->channels, 16, thread, run->threads, &from, &to);
    conclude(kernel, run, norm, group, from, to);
    ull__team_barrier(run->team);
    for (int64_t slice = end - 1; slice >= begin; --slice) {
        norm_slice(norm, group, slice, &from, &to);
        (norm->inner == 1 ? apply_rows : apply_runs)(kernel, run, norm, group, from, to);
    }
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct norm norm = norm_of(&kernel->inputs[0], kernel->attrs.norm.group, run->workspace);
    for (int64_t group = 0; group < norm.groups; ++group) {
        run_group(kernel, run, &norm, group, thread);
    }
    /* Without samples the gradients of scale and shift are zero. */
    for (int i = 1; norm.groups == 0 && thread == 0 && i < 3; ++i) {
        memset(run->out[i], 0, kernel->outputs[i].bytes);
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_batch_norm_grad) = {
    .op = &ull__op_batch_norm_grad,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_grad,
};
