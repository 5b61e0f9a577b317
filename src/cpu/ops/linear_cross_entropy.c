/*
 * linear_cross_entropy.c: the loss of x w' without the logits as a whole: a block of rows by a block of classes at a time, with
 * the maximum and the sum of each row so far. A thread owns rows.
 *
 * Source: Cut Your Losses in Large-Vocabulary Language Models (Wijmans et al., 2024). Targets out of range as in
 * cross_entropy.c.
 */
#include "linear_loss.h"
#include "loss.h"

struct sums {
    float *most, *total, *all, *own; /* by row: maximum, exponentials, logits, the target's logit */
};

struct space {
    struct linear_space blocks;
    struct sums sums;
};

static int64_t space_of(const struct linear *l, float *at, struct space *space)
{
    const struct part parts[] = {
        {&space->blocks.logits, LINEAR_ROWS * LINEAR_CLASSES},
        {&space->blocks.x, linear_x_floats(l)},
        {&space->blocks.w, linear_w_floats(l)},
        {&space->sums.most, LINEAR_ROWS},
        {&space->sums.total, LINEAR_ROWS},
        {&space->sums.all, LINEAR_ROWS},
        {&space->sums.own, LINEAR_ROWS},
    };
    return lay_parts(at, parts, (int)(sizeof(parts) / sizeof(parts[0])));
}

/* Takes a block of logits of one row into its sums. */
static void take(const struct sums *sums, int64_t row, const float *logits, int64_t n,
                 int64_t target, bool smooths)
{
    float old = sums->most[row], top = row_max(logits, n, old);
    float total = top > -INFINITY ? row_sum(logits, n, top) : 0;
    float scale = old > -INFINITY ? exp_low(old - top) : 0;
    sums->most[row] = top;
    sums->total[row] = sums->total[row] * scale + total;
    sums->all[row] += smooths ? row_add(logits, n) : 0;
    if (target >= 0 && target < n) {
        sums->own[row] = logits[target];
    }
}

static double row_loss(const struct linear *l, const struct sums *sums, int64_t row, int64_t target,
                       float *logarithm)
{
    double log_sum = (double)sums->most[row] + log((double)sums->total[row]);
    double smoothing = l->attrs->smoothing, own = log_sum - (double)sums->own[row];
    *logarithm = (float)log_sum;
    if (target == l->attrs->ignored) {
        return 0;
    }
    if (target < 0 || target >= l->classes) {
        return (double)NAN;
    }
    return smoothing > 0 ? (1 - smoothing) * own +
                               smoothing * (log_sum - (double)sums->all[row] / (double)l->classes)
                         : own;
}

/* Rows [begin, begin + rows). */
static void block_loss(const struct linear *l, const struct space *space, int64_t begin,
                       int64_t rows, float *logarithms, struct loss_part *part)
{
    const float *x = linear_rows(l, begin, rows, space->blocks.x);
    for (int64_t i = 0; i < rows; ++i) {
        space->sums.most[i] = -INFINITY;
        space->sums.total[i] = space->sums.all[i] = space->sums.own[i] = 0;
    }
    for (int64_t first = 0; first < l->classes; first += LINEAR_CLASSES) {
        int64_t n = least(LINEAR_CLASSES, l->classes - first);
        const float *w = linear_weights(l, first, n, space->blocks.w);
        ull__gemm(l->library, false, true, rows, n, l->width, 1, x, l->width, w, l->width, 0,
                  space->blocks.logits, n);
        for (int64_t i = 0; i < rows; ++i) {
            int64_t target = index_at(l->index_type, l->targets, begin + i);
            take(&space->sums, i, space->blocks.logits + i * n, n,
                 target >= first && target < first + n ? target - first : -1,
                 l->attrs->smoothing > 0);
        }
    }
    for (int64_t i = 0; i < rows; ++i) {
        int64_t target = index_at(l->index_type, l->targets, begin + i);
        part->sum += row_loss(l, &space->sums, i, target, &logarithms[begin + i]);
        part->count += target != l->attrs->ignored;
    }
}

static void run_loss(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct linear l = linear_of(kernel, run);
    struct loss_part *parts = run->workspace;
    struct space space;
    float *first = (float *)(void *)(parts + LOSS_PARTS);
    int64_t own = space_of(&l, NULL, &space), begin, end;
    space_of(&l, first + thread * own, &space);
    ull__part(LOSS_PARTS, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        int64_t last = linear_share(&l, i + 1);
        parts[i] = (struct loss_part){0, 0};
        for (int64_t row = linear_share(&l, i); row < last; row += LINEAR_ROWS) {
            block_loss(&l, &space, row, least(LINEAR_ROWS, last - row), run->out[1], &parts[i]);
        }
    }
    ull__team_barrier(run->team);
    if (thread == 0) {
        *(float *)run->out[0] = loss_total(parts, loss_count(kernel, run, 3));
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    const struct ull__cpu_operand *in = kernel->inputs;
    if (!is_real(in[0].type) || !is_real(in[1].type) || !is_index(in[2].type)) {
        return no_types(kernel, err);
    }
    kernel->state = (void *)(uintptr_t)library; /* not ours: there is no `finish` */
    struct linear l = linear_of(kernel, NULL);
    struct space space;
    kernel->algorithm = "blocks";
    kernel->workspace = LOSS_PARTS * (int64_t)sizeof(struct loss_part) +
                        space_of(&l, NULL, &space) * kernel->threads * (int64_t)sizeof(float);
    return ULL_OK;
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_linear_cross_entropy) = {
    .op = &ull__op_linear_cross_entropy,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .run = run_loss,
};
