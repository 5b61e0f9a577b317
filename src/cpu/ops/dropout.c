/*
 * dropout.c: zeros in random places (random.h), which count in rows of a sample, so where channels are last in memory
 * a block of the generator gives one draw of four.
 */
#include "drop.h"
#include "nest.h"

static void apply(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int64_t at,
                  int64_t n, const float *factors)
{
    enum ull__type type = kernel->outputs[0].type;
    float from[TILE], to[TILE];
    const float *x = read_f32(kernel->inputs[0].type, run->in[0], at, n, from);
    float *y = write_f32(type, run->out[0], at, to);
    /* Not a product: what is dropped is 0 also where it is infinite. */
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        float v = x[i] * factors[i];
        y[i] = factors[i] == 0 ? 0.0f : v;
    }
    wrote_f32(type, run->out[0], at, y, n);
}

static void channels_last(const struct ull__cpu_operand *x, const struct drop *drop, int64_t sample,
                          int64_t first, int64_t n, float *factors)
{
    int64_t channels = x->dims[1], places = x->dims[2] * x->dims[3];
    for (int64_t part, i = 0; i < n; i += part) {
        int64_t c = (first + i) % channels;
        part = least(n - i, channels - c);
        drop_apart(drop, sample, c * places + (first + i) / channels, places, part, factors + i);
    }
}

static void run_dropout(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    const struct ull__dropout_attrs *attrs = &kernel->attrs.dropout;
    struct drop drop = drop_of(run->in[1], attrs->rate, attrs->key);
    bool last = x->layout == ULL_LAYOUT_CHANNELS_LAST && x->rank == 4;
    int64_t samples = x->rank > 0 ? x->dims[0] : 1, begin, end;
    float factors[TILE];
    if (x->elements == 0) {
        return;
    }
    int64_t size = x->elements / samples;
    ull__part(x->elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        int64_t sample = begin / size, first = begin % size;
        n = least(least(TILE, size - first), end - begin);
        if (last) {
            channels_last(x, &drop, sample, first, n, factors);
        } else {
            drop_factors(&drop, sample, first, n, factors);
        }
        apply(kernel, run, begin, n, factors);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    return is_real(kernel->inputs[0].type) && is_real(kernel->outputs[0].type)
               ? ULL_OK
               : no_types(kernel, err);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_dropout) = {
    .op = &ull__op_dropout,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_dropout,
};
