/* bias.c: adds a vector along an axis: rows of the vector where the axis is last in memory, else one number for each run. */
#include "nest.h"

/* Rows [begin, end); several narrow ones at a time. */
static void add_vector(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                       int64_t width, int64_t begin, int64_t end)
{
    enum ull__type type = kernel->outputs[0].type;
    float from[TILE], to[TILE], vector[TILE];
    for (int64_t left = 0; left < width; left += TILE) {
        int64_t part = least(TILE, width - left), fold = part == width ? TILE / width : 1;
        ull__load_f32(kernel->inputs[1].type,
                      (const char *)run->in[1] + left * size_of(kernel->inputs[1].type), vector,
                      part);
        for (int64_t i = 1; i < fold; ++i) {
            memcpy(vector + i * part, vector, (size_t)part * sizeof(*vector));
        }
        for (int64_t row = begin; row < end; row += fold) {
            int64_t at = row * width + left, n = part * least(fold, end - row);
            const float *x = read_f32(kernel->inputs[0].type, run->in[0], at, n, from);
            float *y = write_f32(type, run->out[0], at, to);
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                y[i] = x[i] + vector[i];
            }
            wrote_f32(type, run->out[0], at, y, n);
        }
    }
}

static void add_number(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                       int64_t channels, int64_t width, int64_t begin, int64_t end)
{
    enum ull__type type = kernel->outputs[0].type;
    float from[TILE], to[TILE];
    for (int64_t row = begin; row < end; ++row) {
        float b = f32_at(kernel->inputs[1].type, run->in[1], row % channels);
        for (int64_t left = 0; left < width; left += TILE) {
            int64_t n = least(TILE, width - left), at = row * width + left;
            const float *x = read_f32(kernel->inputs[0].type, run->in[0], at, n, from);
            float *y = write_f32(type, run->out[0], at, to);
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                y[i] = x[i] + b;
            }
            wrote_f32(type, run->out[0], at, y, n);
        }
    }
}

static void run_bias(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *x = &kernel->outputs[0];
    int axis = kernel->attrs.axis.axis;
    int order[ULL_RANK], rank = memory_order(x, order);
    int64_t width = 1, begin, end;
    for (int i = rank - 1; i >= 0 && order[i] != axis; --i) {
        width *= x->dims[order[i]];
    }
    if (x->elements == 0) {
        return;
    }
    bool last = width == 1;
    int64_t rows = last ? x->elements / x->dims[axis] : x->elements / width;
    ull__part(rows, 1, thread, run->threads, &begin, &end);
    if (last) {
        add_vector(kernel, run, x->dims[axis], begin, end);
    } else {
        add_number(kernel, run, x->dims[axis], width, begin, end);
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_bias) = {
    .op = &ull__op_bias,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare_real,
    .run = run_bias,
};
