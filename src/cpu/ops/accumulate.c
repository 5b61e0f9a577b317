/* accumulate.c: adds a gradient to the f32 sum of the micro-steps before, or begins the sum. */
#include "tile.h"

static void run_accumulate(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                           int thread)
{
    bool adds = *(const uint8_t *)run->in[2] != 0;
    float *sum = run->out[0], tile[TILE];
    int64_t begin, end;
    if (sum == NULL) {
        return;
    }
    ull__part(kernel->inputs[0].elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        n = least(TILE, end - begin);
        const float *x = read_f32(kernel->inputs[1].type, run->in[1], begin, n, tile);
        float *to = sum + begin;
        if (adds) {
            SIMD for (int64_t i = 0; i < n; ++i)
            {
                to[i] += x[i];
            }
        } else if (to != x) {
            memcpy(to, x, (size_t)n * sizeof(*to));
        }
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    bool fits = kernel->inputs[0].type == ULL_TYPE_F32 && is_real(kernel->inputs[1].type) &&
                kernel->inputs[2].type == ULL_TYPE_BOOL;
    return fits ? ULL_OK : no_types(kernel, err);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_accumulate) = {
    .op = &ull__op_accumulate,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_accumulate,
};
