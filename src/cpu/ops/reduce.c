/*
 * reduce.c: sums, means, maxima ... over some dimensions: by columns where the innermost dimension in memory is kept (a
 * bias's gradient, a mean over pictures of channels last), else by runs.
 *
 * What is added is cut into slices if there are few results; how many follows from the shape alone. Within a slice f32 over
 * short blocks, f64 above.
 */
#include <math.h>

#include "reduce.h"

enum {
    STRIP = 512,   /* columns at once */
    BLOCK = 64,    /* strips that are added in f32 */
    UNITS = 16,    /* pieces of work that there should be */
    WORTH = 16384, /* elements that a piece should have */
};

struct reduction {
    enum ull__reduce kind;
    enum ull__type type;
    const void *x;
    struct places kept, gone;
    int64_t width; /* of the innermost dimension */
    bool columns;  /* it is kept */
    int64_t step;  /* from one of its results to the next */
    int64_t tiles; /* of the width, by columns */
    int64_t units, slices;
    double count;
};

static struct reduction reduction(const struct ull__kernel *kernel)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    struct nest nest;
    reduction_of(&nest, x, &kernel->outputs[0], &kernel->attrs.reduce);
    int last = nest.rank - 1;
    struct reduction of = {
        .kind = (enum ull__reduce)kernel->attrs.reduce.kind,
        .type = x->type,
        .kept = {.count = 1},
        .gone = {.count = 1},
        .width = nest.dims[last],
        .columns = nest.strides[1][last] != 0,
        .step = nest.strides[1][last],
        .tiles = 1,
    };
    for (int i = 0; i < last; ++i) {
        places_add(nest.strides[1][i] != 0 ? &of.kept : &of.gone, nest.dims[i], nest.strides[0][i],
                   nest.strides[1][i]);
    }
    of.tiles = of.columns ? (of.width + STRIP - 1) / STRIP : 1;
    of.units = of.kept.count * of.tiles;
    of.count = (double)of.gone.count * (double)(of.columns ? 1 : of.width);
    int64_t all = of.columns ? of.gone.count : of.gone.count * of.width;
    of.slices = of.units == 0 || of.units >= UNITS ? 1 : (UNITS + of.units - 1) / of.units;
    of.slices = most(1, least(of.slices, least(all, x->elements / WORTH)));
    return of;
}

static double nothing(enum ull__reduce kind)
{
    return kind == ULL_REDUCE_MAX    ? -INFINITY
           : kind == ULL_REDUCE_MIN  ? INFINITY
           : kind == ULL_REDUCE_PROD ? 1
                                     : 0;
}

static double join(enum ull__reduce kind, double a, double b)
{
    switch (kind) {
    case ULL_REDUCE_MAX:
        return b > a || b != b ? b : a;
    case ULL_REDUCE_MIN:
        return b < a || b != b ? b : a;
    case ULL_REDUCE_PROD:
        return a * b;
    default:
        return a + b;
    }
}

static float conclude(const struct reduction *of, double value)
{
    return (float)(of->kind == ULL_REDUCE_MEAN ? value / of->count
                   : of->kind == ULL_REDUCE_L2 ? sqrt(value)
                                               : value);
}

#define EACH(value)                                                                                \
    SIMD for (int64_t i = 0; i < n; ++i)                                                           \
    {                                                                                              \
        float v = x[i], a = to[i];                                                                 \
        to[i] = (value);                                                                           \
    }                                                                                              \
    break;

static void join_columns(enum ull__reduce kind, const float *x, float *to, int64_t n)
{
    switch (kind) {
    case ULL_REDUCE_SUM:
    case ULL_REDUCE_MEAN:
        EACH(a + v)
    case ULL_REDUCE_SUM_SQUARE:
    case ULL_REDUCE_L2:
        EACH(a + v * v)
    case ULL_REDUCE_L1:
        EACH(a + fabsf(v))
    case ULL_REDUCE_MAX:
        EACH(v > a || v != v ? v : a)
    case ULL_REDUCE_MIN:
        EACH(v < a || v != v ? v : a)
    default:
        EACH(a * v)
    }
}

static double join_run(enum ull__reduce kind, const float *x, int64_t n)
{
    float s = (float)nothing(kind);
    switch (kind) {
    case ULL_REDUCE_SUM:
    case ULL_REDUCE_MEAN:
#pragma omp simd reduction(+ : s)
        for (int64_t i = 0; i < n; ++i) {
            s += x[i];
        }
        break;
    case ULL_REDUCE_SUM_SQUARE:
    case ULL_REDUCE_L2:
#pragma omp simd reduction(+ : s)
        for (int64_t i = 0; i < n; ++i) {
            s += x[i] * x[i];
        }
        break;
    case ULL_REDUCE_L1:
#pragma omp simd reduction(+ : s)
        for (int64_t i = 0; i < n; ++i) {
            s += fabsf(x[i]);
        }
        break;
    case ULL_REDUCE_PROD:
        for (int64_t i = 0; i < n; ++i) {
            s *= x[i];
        }
        break;
    default: {
        float lanes[64]; /* vectors of candidates, for NaN has to come through */
        int64_t i = 0;
        for (int j = 0; j < 64; ++j) {
            lanes[j] = s;
        }
        for (; i + 64 <= n; i += 64) {
            join_columns(kind, x + i, lanes, 64);
        }
        join_columns(kind, x + i, lanes, n - i);
        double best = nothing(kind);
        for (int j = 0; j < 64; ++j) {
            best = join(kind, best, (double)lanes[j]);
        }
        return best;
    }
    }
    return (double)s;
}

static void flush(const struct reduction *of, int64_t fold, int64_t width, float *sums, double *to)
{
    for (int64_t i = 0; i < fold; ++i) {
        for (int64_t c = 0; c < width; ++c) {
            to[c] = join(of->kind, to[c], (double)sums[i * width + c]);
        }
    }
    for (int64_t i = 0; i < fold * width; ++i) {
        sums[i] = (float)nothing(of->kind);
    }
}

/* Columns [left, left + width) from `at` on, over what is gone from begin to end. */
static void reduce_columns(const struct reduction *of, int64_t at, int64_t left, int64_t width,
                           int64_t begin, int64_t end, double *to)
{
    float sums[STRIP], tile[STRIP];
    /* Rows that lie one behind the other are worked on several at a time if they are narrow. */
    bool dense = width == of->width && of->gone.rank == 1 && of->gone.x[0] == width;
    int64_t fold = dense ? STRIP / width : 1, strips = 0;
    for (int64_t i = 0; i < width; ++i) {
        to[i] = nothing(of->kind);
    }
    for (int64_t i = 0; i < fold * width; ++i) {
        sums[i] = (float)nothing(of->kind);
    }
    for (int64_t row = begin; row < end; row += fold) {
        int64_t x, y, n = width * least(fold, end - row);
        place_at(&of->gone, row, &x, &y);
        join_columns(of->kind, read_f32(of->type, of->x, at + x + left, n, tile), sums, n);
        if (++strips % BLOCK == 0) {
            flush(of, fold, width, sums, to);
        }
    }
    flush(of, fold, width, sums, to);
}

/* Elements [begin, end) of what is gone, its innermost dimension a run in memory. */
static double reduce_runs(const struct reduction *of, int64_t at, int64_t begin, int64_t end)
{
    float tile[STRIP];
    double total = nothing(of->kind);
    while (begin < end) {
        int64_t x, y, inner = begin % of->width;
        int64_t n = least(least(of->width - inner, STRIP), end - begin);
        place_at(&of->gone, begin / of->width, &x, &y);
        const float *from = read_f32(of->type, of->x, at + x + inner, n, tile);
        total = join(of->kind, total, join_run(of->kind, from, n));
        begin += n;
    }
    return total;
}

static void write_columns(const struct reduction *of, const struct ull__kernel *kernel, void *y,
                          int64_t at, const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        set_f32(kernel->outputs[0].type, y, at + i * of->step, conclude(of, values[i]));
    }
}

/* Where a unit's results are: begin in x and y, first column and number of columns. */
static void unit_at(const struct reduction *of, int64_t unit, int64_t *x, int64_t *y, int64_t *left,
                    int64_t *width)
{
    place_at(&of->kept, unit / of->tiles, x, y);
    *left = of->columns ? unit % of->tiles * STRIP : 0;
    *width = of->columns ? least(STRIP, of->width - *left) : 1;
}

static void run_reduce(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct reduction of = reduction(kernel);
    int64_t begin, end, x, y, left, width, stride = of.columns ? STRIP : 1;
    int64_t all = of.columns ? of.gone.count : of.gone.count * of.width;
    double *partial = run->workspace;
    of.x = run->in[0];
    ull__part(of.units * of.slices, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        int64_t slice = i % of.slices;
        int64_t from = all * slice / of.slices, to = all * (slice + 1) / of.slices;
        double values[STRIP];
        unit_at(&of, i / of.slices, &x, &y, &left, &width);
        if (of.columns) {
            reduce_columns(&of, x, left, width, from, to, values);
        } else {
            values[0] = reduce_runs(&of, x, from, to);
        }
        if (of.slices == 1) {
            write_columns(&of, kernel, run->out[0], y + left * of.step, values, width);
        } else {
            memcpy(partial + i * stride, values, (size_t)width * sizeof(*values));
        }
    }
    if (of.slices == 1) {
        return;
    }
    ull__team_barrier(run->team);
    ull__part(of.units, 1, thread, run->threads, &begin, &end);
    for (int64_t unit = begin; unit < end; ++unit) {
        double *total = partial + unit * of.slices * stride;
        unit_at(&of, unit, &x, &y, &left, &width);
        for (int64_t slice = 1; slice < of.slices; ++slice) {
            for (int64_t i = 0; i < width; ++i) {
                total[i] = join(of.kind, total[i], total[slice * stride + i]);
            }
        }
        write_columns(&of, kernel, run->out[0], y + left * of.step, total, width);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    if (!all_real(kernel)) {
        return no_types(kernel, err);
    }
    struct reduction of = reduction(kernel);
    kernel->workspace =
        of.slices == 1 ? 0
                       : of.units * of.slices * (of.columns ? STRIP : 1) * (int64_t)sizeof(double);
    return ULL_OK;
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_reduce) = {
    .op = &ull__op_reduce,
    .layouts = ULL_CPU_ANY,
    .prepare = prepare,
    .run = run_reduce,
};
