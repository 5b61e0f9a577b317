/*
 * linear_cross_entropy_grad.c: the gradient of the loss of x w'. All rows (or attrs.loss.chunk of them, where the slopes would
 * take more than that many rows of logits) by a block of classes at a time:
 *
 *     slopes = factor * (exp(x w' - log) - share of the target), dx += slopes w      threads own rows
 *     dw = slopes' x                                                                 threads own classes
 *
 * 16-bit operands and results are f32 in the workspace.
 */
#include "linear_loss.h"
#include "loss.h"

struct grad {
    struct linear l;
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
    int thread;
    float factor;
    int64_t rows, classes; /* of a turn */
    bool turns;            /* there are several turns of rows */
    float *slopes, *x, *w, *dx, *dw;
};

static bool is_half(const struct ull__cpu_operand *of)
{
    return of->type != ULL_TYPE_F32;
}

/* How many rows and classes a turn has, so that its slopes take no more than what the graph's rule says. */
static void choose_turn(struct grad *g)
{
    const struct linear *l = &g->l;
    int64_t chunk = l->attrs->chunk > 0 ? least(l->attrs->chunk, l->rows) : l->rows;
    int64_t fit = l->rows > 0 ? chunk * l->classes / l->rows / 64 * 64 : l->classes;
    g->classes = least(l->classes, LINEAR_CLASSES);
    g->rows = l->rows;
    if (fit >= 64 || chunk == l->rows) {
        g->classes = chunk == l->rows ? g->classes : least(g->classes, fit);
    } else {
        g->rows = chunk;
    }
    g->turns = g->rows < l->rows;
}

static int64_t space_of(struct grad *g, float *at)
{
    const struct ull__kernel *kernel = g->kernel;
    int64_t width = g->l.width;
    bool half_w = is_half(&kernel->outputs[1]);
    const struct part parts[] = {
        {&g->slopes, g->rows * g->classes},
        {&g->x, is_half(&kernel->inputs[0]) ? g->rows * width : 0},
        {&g->dx, is_half(&kernel->outputs[0]) ? g->rows * width : 0},
        {&g->w, is_half(&kernel->inputs[1]) ? g->classes * width : 0},
        {&g->dw, half_w ? (g->turns ? g->l.classes : g->classes) * width : 0},
    };
    return lay_parts(at, parts, (int)(sizeof(parts) / sizeof(parts[0])));
}

/* From logits of classes [first, first + n) to slopes, for one row. */
static void row_slopes(const struct grad *g, int64_t row, int64_t first, float *slopes, int64_t n)
{
    const struct linear *l = &g->l;
    int64_t target = index_at(l->index_type, l->targets, row);
    float logarithm = ((const float *)g->run->in[3])[row];
    float even = (float)(l->attrs->smoothing / (double)l->classes), factor = g->factor;
    if (target == l->attrs->ignored) {
        memset(slopes, 0, (size_t)n * sizeof(*slopes));
        return;
    }
    factor = target < 0 || target >= l->classes ? NAN : factor;
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        slopes[i] = factor * (exp_low(slopes[i] - logarithm) - even);
    }
    if (target >= first && target < first + n) {
        slopes[target - first] -= factor * (float)(1 - l->attrs->smoothing);
    }
}

/* The thread's rows of a turn: slopes, and what they add to dx. */
static void by_rows(const struct grad *g, int64_t top, int64_t rows, int64_t first, int64_t n,
                    const float *w)
{
    const struct linear *l = &g->l;
    int64_t begin, end, width = l->width;
    ull__part(rows, 1, g->thread, g->run->threads, &begin, &end);
    if (begin >= end) {
        return;
    }
    const float *x = g->x != NULL && is_half(&g->kernel->inputs[0])
                         ? g->x + begin * width
                         : (const float *)(const void *)l->x + (top + begin) * width;
    bool half = is_half(&g->kernel->outputs[0]);
    float *dx = half ? g->dx + begin * width : (float *)g->run->out[0] + (top + begin) * width;
    float *slopes = g->slopes + begin * g->classes;
    ull__gemm(l->library, false, true, end - begin, n, width, 1, x, width, w, width, 0, slopes,
              g->classes);
    for (int64_t row = begin; row < end; ++row) {
        row_slopes(g, top + row, first, g->slopes + row * g->classes, n);
    }
    ull__gemm(l->library, false, false, end - begin, width, n, 1, slopes, g->classes, w, width,
              first == 0 ? 0 : 1, dx, width);
    if (half && first + n == l->classes) {
        int64_t at = (top + begin) * width;
        ull__store_f32(g->kernel->outputs[0].type, dx, (uint16_t *)g->run->out[0] + at,
                       (end - begin) * width);
    }
}

/* The thread's classes of a turn: dw. */
static void by_classes(const struct grad *g, int64_t top, int64_t rows, int64_t first, int64_t n)
{
    const struct linear *l = &g->l;
    int64_t begin, end, width = l->width;
    ull__part(n, 16, g->thread, g->run->threads, &begin, &end);
    if (begin >= end) {
        return;
    }
    bool half = is_half(&g->kernel->outputs[1]);
    const float *x =
        is_half(&g->kernel->inputs[0]) ? g->x : (const float *)(const void *)l->x + top * width;
    int64_t at = (first + begin) * width;
    float *dw = half ? g->dw + (g->turns ? at : begin * width) : (float *)g->run->out[1] + at;
    ull__gemm(l->library, true, false, end - begin, width, rows, 1, g->slopes + begin, g->classes,
              x, width, top == 0 ? 0 : 1, dw, width);
    if (half && top + rows == l->rows) {
        ull__store_f32(g->kernel->outputs[1].type, dw, (uint16_t *)g->run->out[1] + at,
                       (end - begin) * width);
    }
}

/* The thread's part of rows of 16 bits into the workspace. */
static void convert(const struct grad *g, enum ull__type type, const char *from, int64_t first,
                    int64_t rows, float *to)
{
    int64_t begin, end, width = g->l.width;
    ull__part(rows, 1, g->thread, g->run->threads, &begin, &end);
    ull__load_f32(type, from + (first + begin) * width * size_of(type), to + begin * width,
                  (end - begin) * width);
}

static void turn(const struct grad *g, int64_t top, int64_t rows)
{
    const struct linear *l = &g->l;
    bool half_x = is_half(&g->kernel->inputs[0]), half_w = is_half(&g->kernel->inputs[1]);
    if (half_x) {
        convert(g, l->x_type, l->x, top, rows, g->x);
    }
    for (int64_t first = 0; first < l->classes; first += g->classes) {
        int64_t n = least(g->classes, l->classes - first);
        if (half_w) {
            convert(g, l->w_type, l->w, first, n, g->w);
        }
        ull__team_barrier(g->run->team);
        by_rows(g, top, rows, first, n,
                half_w ? g->w : (const float *)(const void *)l->w + first * l->width);
        ull__team_barrier(g->run->team);
        by_classes(g, top, rows, first, n);
    }
    ull__team_barrier(g->run->team);
}

/* Without rows, or with rows of no width, there is nothing to multiply. */
static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct grad g = {.l = linear_of(kernel, run), .kernel = kernel, .run = run, .thread = thread};
    float count = loss_count(kernel, run, 5);
    if (g.l.rows == 0 || g.l.width == 0 || g.l.classes == 0) {
        for (int i = 0; thread == 0 && i < 2; ++i) {
            memset(run->out[i], 0, kernel->outputs[i].bytes);
        }
        return;
    }
    if (count < 0) {
        count = (float)loss_counted(&kernel->inputs[2], run->in[2], g.l.attrs->ignored);
    }
    g.factor = count > 0 ? *(const float *)run->in[4] / count : 0;
    choose_turn(&g);
    space_of(&g, run->workspace);
    for (int64_t top = 0; top < g.l.rows; top += g.rows) {
        turn(&g, top, least(g.rows, g.l.rows - top));
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
    struct grad g = {.l = linear_of(kernel, NULL), .kernel = kernel};
    choose_turn(&g);
    kernel->algorithm = "blocks";
    kernel->workspace = space_of(&g, NULL) * (int64_t)sizeof(float);
    return ULL_OK;
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_linear_cross_entropy_grad) = {
    .op = &ull__op_linear_cross_entropy_grad,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .run = run_grad,
};
