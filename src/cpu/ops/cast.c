/* cast.c: the same values in another type: among floating types by f32, among whole ones exactly, else by f64. */
#include "tile.h"

enum { CAST_TILE = 512 };

static void load_f64(enum ull__type type, const void *from, int64_t at, int64_t n, double *to)
{
    switch (type) {
#define X(name, c)                                                                                 \
    case ULL_TYPE_##name:                                                                          \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            to[i] = (double)((const c *)from)[at + i];                                             \
        }                                                                                          \
        break;
        PLAIN_TYPES(X)
#undef X
    default:
        for (int64_t i = 0; i < n; ++i) {
            to[i] = (double)f32_at(type, from, at + i);
        }
        break;
    }
}

/* Towards zero; what is not a number, or has no place in the type, becomes 0. */
static int64_t whole(double value)
{
    return value > -0x1p63 && value < 0x1p63 ? (int64_t)value : 0;
}

static void store_f64(enum ull__type type, const double *from, void *to, int64_t at, int64_t n)
{
    if (type == ULL_TYPE_F64) {
        memcpy((double *)to + at, from, (size_t)n * sizeof(*from));
    } else if (type == ULL_TYPE_BOOL) {
        for (int64_t i = 0; i < n; ++i) {
            ((uint8_t *)to)[at + i] = from[i] != 0;
        }
    } else if (is_real(type)) {
        for (int64_t i = 0; i < n; ++i) {
            set_f32(type, to, at + i, (float)from[i]);
        }
    } else {
        int64_t values[CAST_TILE];
        for (int64_t i = 0; i < n; ++i) {
            values[i] = whole(from[i]);
        }
        store_any_i64(type, values, to, at, n);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    enum ull__type from = kernel->inputs[0].type, to = kernel->outputs[0].type;
    (void)library;
    bool known =
        from != ULL_TYPE_BIT && from != ULL_TYPE_F8 && to != ULL_TYPE_BIT && to != ULL_TYPE_F8;
    return known ? ULL_OK : no_types(kernel, err);
}

static void run_cast(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    enum ull__type from = kernel->inputs[0].type, to = kernel->outputs[0].type;
    bool whole_numbers = !ull__type_is_float(from) && !ull__type_is_float(to);
    float tile[CAST_TILE];
    double wide[CAST_TILE];
    int64_t begin, end, values[CAST_TILE];
    ull__part(kernel->outputs[0].elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        n = least(CAST_TILE, end - begin);
        if (is_real(from) && is_real(to)) {
            const float *x = read_f32(from, run->in[0], begin, n, tile);
            ull__store_f32(to, x, (char *)run->out[0] + begin * size_of(to), n);
        } else if (whole_numbers) {
            load_any_i64(from, run->in[0], begin, 1, n, values);
            store_any_i64(to, values, run->out[0], begin, n);
        } else {
            load_f64(from, run->in[0], begin, n, wide);
            store_f64(to, wide, run->out[0], begin, n);
        }
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_cast) = {
    .op = &ull__op_cast,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_cast,
};
