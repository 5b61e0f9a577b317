/*
 * rotary.c: turns pairs of a head's elements by angles that grow with the position. Angles are f64: f32 is off by a
 * thousandth of a turn after some thousand positions. A thread owns positions, and uses their angles for all samples.
 */
#include "tile.h"
#include "vmath.h"

enum { PAIRS = 512 }; /* at once */

struct turning {
    int64_t width, turned, first; /* first pair of the angles */
    bool interleaved;
};

/* A head's pairs [first, first + n): from x to y, which may be the same. */
static void turn(const struct turning *of, const float *x, float *y, const float *c, const float *s,
                 int64_t n)
{
    if (of->interleaved) {
        for (int64_t i = 0; i < n; ++i) {
            int64_t at = 2 * (of->first + i);
            float a = x[at], b = x[at + 1];
            y[at] = a * c[i] - b * s[i];
            y[at + 1] = b * c[i] + a * s[i];
        }
        return;
    }
    int64_t half = of->turned / 2;
    const float *low = x + of->first, *high = low + half;
    float *to_low = y + of->first, *to_high = to_low + half;
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        float a = low[i], b = high[i];
        to_low[i] = a * c[i] - b * s[i];
        to_high[i] = b * c[i] + a * s[i];
    }
}

static void angles(const struct ull__rotary_attrs *attrs, const struct turning *of,
                   int64_t position, float *c, float *s, int64_t n)
{
    double step = -2 * log(attrs->base) / (double)of->turned;
    double sign = attrs->inverse ? -1 : 1, place = (double)position, first = (double)of->first;
    double by[PAIRS];
    for (int64_t i = 0; i < n; ++i) {
        by[i] = place * exp(step * (first + (double)i));
    }
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        c[i] = (float)cos(by[i]);
        s[i] = (float)(sign * sin(by[i]));
    }
}

/* The heads of one row. 16 bits are turned through a tile, a head at a time. */
static void turn_row(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                     const struct turning *of, int64_t row, const float *c, const float *s, int64_t n)
{
    enum ull__type type = kernel->outputs[0].type;
    int64_t heads = kernel->attrs.rotary.heads;
    for (int64_t head = 0; head < heads; ++head) {
        int64_t at = (row * heads + head) * of->width;
        if (type == ULL_TYPE_F32) {
            turn(of, (const float *)run->in[0] + at, (float *)run->out[0] + at, c, s, n);
            continue;
        }
        int64_t half = of->turned / 2;
        for (int64_t i = 0; i < n; ++i) {
            int64_t a = at + (of->interleaved ? 2 * (of->first + i) : of->first + i);
            int64_t b = of->interleaved ? a + 1 : a + half;
            float low = f32_at(type, run->in[0], a), high = f32_at(type, run->in[0], b);
            set_f32(type, run->out[0], a, low * c[i] - high * s[i]);
            set_f32(type, run->out[0], b, high * c[i] + low * s[i]);
        }
    }
}

/* What is not turned is copied. */
static void copy_rest(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                      const struct turning *of, int64_t row)
{
    int64_t heads = kernel->attrs.rotary.heads, size = size_of(kernel->outputs[0].type);
    int64_t from = of->turned / 2 * 2;
    for (int64_t head = 0; head < heads && from < of->width && run->in[0] != run->out[0]; ++head) {
        int64_t at = ((row * heads + head) * of->width + from) * size;
        memcpy((char *)run->out[0] + at, (const char *)run->in[0] + at,
               (size_t)((of->width - from) * size));
    }
}

static void run_rotary(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__rotary_attrs *attrs = &kernel->attrs.rotary;
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    struct turning of = {.width = x->dims[2] / attrs->heads, .interleaved = attrs->interleaved};
    float c[PAIRS], s[PAIRS];
    int64_t begin, end, samples = x->dims[0], times = x->dims[1];
    of.turned = attrs->turned > 0 ? attrs->turned : of.width;
    ull__part(times, 1, thread, run->threads, &begin, &end);
    for (int64_t time = begin; time < end; ++time) {
        for (of.first = 0; of.first < of.turned / 2; of.first += PAIRS) {
            int64_t n = least(PAIRS, of.turned / 2 - of.first);
            angles(attrs, &of, time, c, s, n);
            for (int64_t sample = 0; sample < samples; ++sample) {
                turn_row(kernel, run, &of, sample * times + time, c, s, n);
            }
        }
        for (int64_t sample = 0; sample < samples; ++sample) {
            copy_rest(kernel, run, &of, sample * times + time);
        }
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_rotary) = {
    .op = &ull__op_rotary,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare_real,
    .run = run_rotary,
};
