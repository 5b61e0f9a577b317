/*
 * layer_norm.c: normalization of rows, with their mean (layer norm) or without (RMS norm), and the gradients.
 *
 * A row is read again from the cache, so memory is passed once. Gradients of scale and shift are sums over rows: in
 * slices of rows, as many whatever the threads are; f32 over a few rows, f64 above.
 */
#include <math.h>

#include "tile.h"

enum { SLICES = 16, BLOCK = 32 };

struct rows {
    bool centred; /* layer norm */
    int64_t rows, width;
};

static struct rows rows_of(const struct ull__kernel *kernel)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    bool centred = kernel->op == &ull__op_layer_norm || kernel->op == &ull__op_layer_norm_grad;
    struct rows of = {.centred = centred, .rows = 1, .width = 1};
    int axis = centred ? kernel->attrs.norm.axis : x->rank - 1;
    for (int i = 0; i < x->rank; ++i) {
        *(i < axis ? &of.rows : &of.width) *= x->dims[i];
    }
    return of;
}

/* The sum of x - mean to a power of 1 or 2. */
static double moment(enum ull__type type, const void *x, int64_t at, int64_t n, float mean,
                     bool square)
{
    float tile[TILE];
    double total = 0;
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t part = least(TILE, n - i);
        const float *from = read_f32(type, x, at + i, part, tile);
        float sum = 0;
        if (square) {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < part; ++j) {
                sum += (from[j] - mean) * (from[j] - mean);
            }
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < part; ++j) {
                sum += from[j];
            }
        }
        total += (double)sum;
    }
    return total;
}

/* y = (x - mean) * rstd * scale + shift */
static void apply(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int64_t at,
                  int64_t width, float mean, float rstd)
{
    enum ull__type type = kernel->outputs[0].type;
    bool shifts = kernel->input_count > 2 && run->in[2] != NULL;
    float from[TILE], to[TILE], tile_scale[TILE], tile_shift[TILE];
    for (int64_t i = 0; i < width; i += TILE) {
        int64_t n = least(TILE, width - i);
        const float *x = read_f32(kernel->inputs[0].type, run->in[0], at + i, n, from);
        const float *scale = read_f32(kernel->inputs[1].type, run->in[1], i, n, tile_scale);
        float *y = write_f32(type, run->out[0], at + i, to);
        if (shifts) {
            const float *shift = read_f32(kernel->inputs[2].type, run->in[2], i, n, tile_shift);
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = (x[j] - mean) * rstd * scale[j] + shift[j];
            }
        } else {
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                y[j] = (x[j] - mean) * rstd * scale[j];
            }
        }
        wrote_f32(type, run->out[0], at + i, y, n);
    }
}

static void run_norm(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct rows of = rows_of(kernel);
    float *means = of.centred ? run->out[1] : NULL, *rstds = run->out[of.centred ? 2 : 1];
    enum ull__type type = kernel->inputs[0].type;
    int64_t begin, end;
    ull__part(of.rows, 1, thread, run->threads, &begin, &end);
    for (int64_t row = begin; row < end; ++row) {
        int64_t at = row * of.width;
        double n = of.width > 0 ? (double)of.width : 1, mean = 0;
        if (of.centred) {
            mean = moment(type, run->in[0], at, of.width, 0, false) / n;
            means[row] = (float)mean;
        }
        /* The mean as f32 is off by a little, which the square of the difference takes back. */
        double off = of.centred ? mean - (double)(float)mean : 0;
        double var = moment(type, run->in[0], at, of.width, (float)mean, true) / n - off * off;
        rstds[row] =
            (float)(1 / sqrt((var > 0 || var != var ? var : 0) + kernel->attrs.norm.epsilon));
        apply(kernel, run, at, of.width, (float)mean, rstds[row]);
    }
}

/* --- Gradient --- */

/* What a thread adds in f32 before it goes to the slice's sums in f64. */
struct sums {
    float *scale, *shift;
    double *slice; /* of the scale, then of the shift */
    int64_t width;
};

static void flush(struct sums *sums)
{
    for (int64_t i = 0; i < sums->width; ++i) {
        sums->slice[i] += (double)sums->scale[i];
        sums->slice[sums->width + i] += (double)sums->shift[i];
        sums->scale[i] = sums->shift[i] = 0;
    }
}

struct row {
    const void *dy, *x, *scale;
    enum ull__type dy_type, x_type, scale_type;
    int64_t at, width;
    float mean, rstd;
    float tile_d[TILE], tile_x[TILE], tile_s[TILE];
};

static void read_row(struct row *row, int64_t i, int64_t n, const float **d, const float **x,
                     const float **s)
{
    *d = read_f32(row->dy_type, row->dy, row->at + i, n, row->tile_d);
    *x = read_f32(row->x_type, row->x, row->at + i, n, row->tile_x);
    *s = read_f32(row->scale_type, row->scale, i, n, row->tile_s);
}

/* The means of dy * scale and of dy * scale * (x - mean) * rstd. */
static void row_means(struct row *row, float *mean, float *turned)
{
    double a = 0, b = 0;
    const float *d, *x, *s;
    for (int64_t i = 0; i < row->width; i += TILE) {
        int64_t n = least(TILE, row->width - i);
        float first = 0, second = 0, middle = row->mean;
        read_row(row, i, n, &d, &x, &s);
#pragma omp simd reduction(+ : first, second)
        for (int64_t j = 0; j < n; ++j) {
            first += d[j] * s[j];
            second += d[j] * s[j] * (x[j] - middle);
        }
        a += (double)first;
        b += (double)second;
    }
    *mean = (float)(a / (double)row->width);
    *turned = (float)(b * (double)row->rstd / (double)row->width);
}

static void row_grad(struct row *row, enum ull__type type, void *out, bool centred, struct sums *sums)
{
    float to[TILE], mean, turned, middle = row->mean, rstd = row->rstd;
    const float *d, *x, *s;
    row_means(row, &mean, &turned);
    mean = centred ? mean : 0;
    for (int64_t i = 0; i < row->width; i += TILE) {
        int64_t n = least(TILE, row->width - i);
        float *dx = write_f32(type, out, row->at + i, to);
        float *scale = sums->scale + i, *shift = sums->shift + i;
        read_row(row, i, n, &d, &x, &s);
        SIMD for (int64_t j = 0; j < n; ++j)
        {
            float v = d[j], unit = (x[j] - middle) * rstd;
            scale[j] += v * unit;
            shift[j] += v;
            dx[j] = rstd * (v * s[j] - mean - unit * turned);
        }
        wrote_f32(type, out, row->at + i, dx, n);
    }
}

static void run_slice(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                      const struct rows *of, int64_t slice, struct sums *sums)
{
    const float *means = of->centred ? run->in[3] : NULL, *rstds = run->in[of->centred ? 4 : 3];
    struct row row = {.dy = run->in[0],
                      .x = run->in[1],
                      .scale = run->in[2],
                      .dy_type = kernel->inputs[0].type,
                      .x_type = kernel->inputs[1].type,
                      .scale_type = kernel->inputs[2].type,
                      .width = of->width};
    int64_t begin = of->rows * slice / SLICES, end = of->rows * (slice + 1) / SLICES;
    memset(sums->slice, 0, (size_t)(2 * of->width) * sizeof(*sums->slice));
    for (int64_t i = begin; i < end; ++i) {
        row.at = i * of->width;
        row.mean = of->centred ? means[i] : 0;
        row.rstd = rstds[i];
        row_grad(&row, kernel->outputs[0].type, run->out[0], of->centred, sums);
        if ((i - begin) % BLOCK == BLOCK - 1) {
            flush(sums);
        }
    }
    flush(sums);
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct rows of = rows_of(kernel);
    double *slices = run->workspace;
    int64_t begin, end, width = of.width;
    float *own = (float *)(slices + SLICES * 2 * width) + (int64_t)thread * 2 * width;
    memset(own, 0, (size_t)(2 * width) * sizeof(*own));
    ull__part(SLICES, 1, thread, run->threads, &begin, &end);
    for (int64_t slice = begin; slice < end; ++slice) {
        struct sums sums = {own, own + width, slices + slice * 2 * width, width};
        run_slice(kernel, run, &of, slice, &sums);
    }
    ull__team_barrier(run->team);
    ull__part(width, 16, thread, run->threads, &begin, &end);
    for (int which = 0; which < 2 && which + 1 < kernel->output_count; ++which) {
        for (int64_t i = begin; i < end && run->out[which + 1] != NULL; ++i) {
            double sum = 0;
            for (int64_t slice = 0; slice < SLICES; ++slice) {
                sum += slices[(slice * 2 + which) * width + i];
            }
            set_f32(kernel->outputs[which + 1].type, run->out[which + 1], i, (float)sum);
        }
    }
}

static ull_status prepare_grad(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                               struct ull_error *err)
{
    (void)library;
    int64_t width = rows_of(kernel).width;
    kernel->workspace =
        2 * width * (SLICES * (int64_t)sizeof(double) + kernel->threads * (int64_t)sizeof(float));
    return all_real(kernel) ? ULL_OK : no_types(kernel, err);
}

#define NORM(name, prepare_by, run_by)                                                             \
    const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name) = {                                     \
        .op = &ull__op_##name,                                                                     \
        .layouts = ULL_CPU_ROWS,                                                                   \
        .prepare = prepare_by,                                                                     \
        .run = run_by,                                                                             \
    };

NORM(layer_norm, prepare_real, run_norm)
NORM(layer_norm_grad, prepare_grad, run_grad)
NORM(rms_norm, prepare_real, run_norm)
NORM(rms_norm_grad, prepare_grad, run_grad)
