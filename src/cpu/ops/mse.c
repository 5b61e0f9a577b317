/* mse.c: the mean of squared differences, and its gradient. Both tensors are read in the order of the first one's memory. */
#include "loss.h"
#include "nest.h"

struct mse {
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
    double *sum;
    float factor;
};

static void body_loss(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct mse *of = context;
    const struct ull__cpu_operand *in = of->kernel->inputs;
    float tile_x[TILE], tile_y[TILE], sum = 0;
    const float *x = nest_read(in[0].type, of->run->in[0], at[0], stride[0], n, tile_x);
    const float *y = nest_read(in[1].type, of->run->in[1], at[1], stride[1], n, tile_y);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    }
    *of->sum += (double)sum;
}

static void run_mse(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct loss_part *parts = run->workspace;
    struct nest nest;
    double sum = 0;
    struct mse of = {.kernel = kernel, .run = run, .sum = &sum};
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    int64_t begin, end;
    nest_open(&nest, x->rank, x->dims);
    nest_broadcast(&nest, x);
    nest_broadcast(&nest, &kernel->inputs[1]);
    nest_close(&nest);
    ull__part(LOSS_PARTS, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        sum = 0;
        nest_run(&nest, TILE, (int)i, LOSS_PARTS, body_loss, &of);
        parts[i] = (struct loss_part){sum, i == 0 ? x->elements : 0};
    }
    ull__team_barrier(run->team);
    if (thread == 0) {
        *(float *)run->out[0] = loss_total(parts, loss_count(kernel, run, 2));
    }
}

static void body_grad(const void *context, const int64_t *at, const int64_t *stride, int64_t n)
{
    const struct mse *of = context;
    const struct ull__cpu_operand *in = of->kernel->inputs;
    enum ull__type type = of->kernel->outputs[0].type;
    float tile_x[TILE], tile_y[TILE], to[TILE], factor = of->factor;
    const float *x = nest_read(in[0].type, of->run->in[0], at[1], stride[1], n, tile_x);
    const float *y = nest_read(in[1].type, of->run->in[1], at[2], stride[2], n, tile_y);
    float *dx = write_f32(type, of->run->out[0], at[0], to);
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        dx[i] = factor * (x[i] - y[i]);
    }
    wrote_f32(type, of->run->out[0], at[0], dx, n);
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct nest nest;
    struct mse of = {.kernel = kernel, .run = run};
    float count = loss_count(kernel, run, 3);
    count = count < 0 ? (float)kernel->inputs[0].elements : count;
    of.factor = count > 0 ? 2 * *(const float *)run->in[2] / count : 0;
    nest_of(&nest, kernel, 2);
    nest_run(&nest, TILE, thread, run->threads, body_grad, &of);
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    kernel->workspace =
        kernel->op == &ull__op_mse ? LOSS_PARTS * (int64_t)sizeof(struct loss_part) : 0;
    return all_real(kernel) ? ULL_OK : no_types(kernel, err);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_mse) = {
    .op = &ull__op_mse,
    .layouts = ULL_CPU_ANY,
    .prepare = prepare,
    .run = run_mse,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_mse_grad) = {
    .op = &ull__op_mse_grad,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_grad,
};
