/*
 * cross_entropy.c: the loss of rows of logits, and its gradient.
 *
 * A target outside of the classes that is not the ignored one makes the loss, and its row of the gradient, NaN: it is seen, and
 * nothing is read out of bounds. Losses are added in slices of rows that do not depend on the threads.
 */
#include "loss.h"
#include "row.h"

struct rows {
    enum ull__type type, index;
    const void *x, *targets;
    int64_t rows, classes;
    const struct ull__loss_attrs *attrs;
};

static struct rows rows_of(const struct ull__kernel *kernel, const struct ull__cpu_run *run)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    return (struct rows){
        .type = x->type,
        .index = kernel->inputs[1].type,
        .x = run->in[0],
        .targets = run->in[1],
        .rows = kernel->inputs[1].elements,
        .classes = x->dims[x->rank - 1],
        .attrs = &kernel->attrs.loss,
    };
}

/* The loss of a row; its logarithm of the sum into *logarithm. */
static double row_loss(const struct rows *of, int64_t row, float *logarithm)
{
    float tile[TILE];
    double sum, smoothing = of->attrs->smoothing, all = 0;
    int64_t at = row * of->classes, target = index_at(of->index, of->targets, row);
    float most = row_statistics(of->type, of->x, at, of->classes, tile, &sum);
    double log_sum = (double)most + log(sum);
    *logarithm = (float)log_sum;
    if (target == of->attrs->ignored) {
        return 0;
    }
    if (target < 0 || target >= of->classes) {
        return (double)NAN;
    }
    for (int64_t i = 0; smoothing > 0 && i < of->classes; i += TILE) {
        int64_t n = least(TILE, of->classes - i);
        all += (double)row_add(read_f32(of->type, of->x, at + i, n, tile), n);
    }
    double own = log_sum - (double)f32_at(of->type, of->x, at + target);
    return smoothing > 0 ? (1 - smoothing) * own + smoothing * (log_sum - all / (double)of->classes)
                         : own;
}

static void run_loss(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct rows of = rows_of(kernel, run);
    struct loss_part *parts = run->workspace;
    float *logarithms = run->out[1];
    int64_t begin, end;
    ull__part(LOSS_PARTS, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        struct loss_part part = {0, 0};
        for (int64_t row = of.rows * i / LOSS_PARTS; row < of.rows * (i + 1) / LOSS_PARTS; ++row) {
            part.sum += row_loss(&of, row, &logarithms[row]);
            part.count += index_at(of.index, of.targets, row) != of.attrs->ignored;
        }
        parts[i] = part;
    }
    ull__team_barrier(run->team);
    if (thread == 0) {
        *(float *)run->out[0] = loss_total(parts, loss_count(kernel, run, 2));
    }
}

/* dx = factor * (exp(x - logarithm) - smoothing / classes), less the target's share. */
static void row_slope(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                      const struct rows *of, int64_t row, float factor)
{
    enum ull__type type = kernel->outputs[0].type;
    int64_t at = row * of->classes, target = index_at(of->index, of->targets, row);
    float from[TILE], to[TILE], logarithm = ((const float *)run->in[2])[row];
    float even = (float)(of->attrs->smoothing / (double)of->classes);
    if (target == of->attrs->ignored) {
        memset((char *)run->out[0] + at * size_of(type), 0, (size_t)(of->classes * size_of(type)));
        return;
    }
    bool known = target >= 0 && target < of->classes;
    factor = known ? factor : NAN;
    /* The target's own, before its place may be written over. */
    float own = known ? f32_at(of->type, of->x, at + target) : 0;
    for (int64_t i = 0; i < of->classes; i += TILE) {
        int64_t n = least(TILE, of->classes - i);
        const float *x = read_f32(of->type, of->x, at + i, n, from);
        float *dx = write_f32(type, run->out[0], at + i, to);
        SIMD for (int64_t j = 0; j < n; ++j)
        {
            dx[j] = factor * (exp_low(x[j] - logarithm) - even);
        }
        wrote_f32(type, run->out[0], at + i, dx, n);
    }
    if (known) {
        float share = (float)(1 - of->attrs->smoothing) + even;
        set_f32(type, run->out[0], at + target, factor * (exp_low(own - logarithm) - share));
    }
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct rows of = rows_of(kernel, run);
    int64_t begin, end;
    float count = loss_count(kernel, run, 4);
    if (count < 0) {
        count = (float)loss_counted(&kernel->inputs[1], run->in[1], of.attrs->ignored);
    }
    float factor = count > 0 ? *(const float *)run->in[3] / count : 0;
    ull__part(of.rows, 1, thread, run->threads, &begin, &end);
    for (int64_t row = begin; row < end; ++row) {
        row_slope(kernel, run, &of, row, factor);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    bool grad = kernel->op == &ull__op_cross_entropy_grad;
    kernel->workspace = grad ? 0 : LOSS_PARTS * (int64_t)sizeof(struct loss_part);
    return is_real(kernel->inputs[0].type) && is_index(kernel->inputs[1].type) &&
                   is_real(kernel->outputs[0].type)
               ? ULL_OK
               : no_types(kernel, err);
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_cross_entropy) = {
    .op = &ull__op_cross_entropy,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .run = run_loss,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_cross_entropy_grad) = {
    .op = &ull__op_cross_entropy_grad,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .run = run_grad,
};
