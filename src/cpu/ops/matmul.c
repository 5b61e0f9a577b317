/*
 * matmul.c: products of matrices. f32 operands go to the library as they lie, each thread with some rows or columns of the
 * result; 16-bit ones become f32 a block at a time, in the thread's workspace, and sums stay f32.
 */
#include <stdlib.h>
#include <string.h>

#include "../gemm.h"
#include "error.h"
#include "half.h"

enum { ROWS = 256, COLUMNS = 512, DEPTH = 512 };

struct state {
    const struct ull__cpu_library *library;
    int64_t batches, m, n, k;
    int64_t lda, ldb;
    bool ta, tb, converts;
    int rank; /* of the batches */
    int64_t dims[ULL_RANK], step_a[ULL_RANK],
        step_b[ULL_RANK]; /* elements from one batch to the next */
    int64_t part;         /* bytes of a thread's workspace */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Steps of an operand over the result's batches; 0 where it is broadcast. */
static void steps(const struct ull__cpu_operand *x, const struct state *state, int64_t *step)
{
    int64_t size = x->dims[x->rank - 2] * x->dims[x->rank - 1];
    for (int i = state->rank - 1; i >= 0; --i) {
        int at = i - (state->rank - (x->rank - 2));
        step[i] = at >= 0 && x->dims[at] > 1 ? size : 0;
        size *= at >= 0 ? x->dims[at] : 1;
    }
}

/* One matrix for all batches: their rows are one long matrix. */
static void fold(const struct ull__kernel *kernel, struct state *state)
{
    bool shared = !state->ta && state->batches > 1 &&
                  kernel->inputs[0].elements == state->batches * state->m * state->k &&
                  kernel->inputs[1].elements == state->k * state->n;
    if (shared) {
        state->m *= state->batches;
        state->batches = 1;
        state->rank = 0;
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    const struct ull__cpu_operand *a = &kernel->inputs[0], *b = &kernel->inputs[1];
    const struct ull__cpu_operand *c = &kernel->outputs[0];
    const struct ull__cpu_operand *all[] = {a, b, c};
    for (int i = 0; i < 3; ++i) {
        if (all[i]->type != ULL_TYPE_F32 && !ull__type_is_half(all[i]->type)) {
            return ull__fail(err, ULL_E_NOT_FOUND, "matmul of %s: expected f32, f16 or bf16",
                             ull__type_text(all[i]->type));
        }
    }
    struct state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a kernel of matmul");
    }
    state->library = library;
    state->ta = kernel->attrs.matmul.transpose_a;
    state->tb = kernel->attrs.matmul.transpose_b;
    state->m = c->dims[c->rank - 2];
    state->n = c->dims[c->rank - 1];
    state->k = a->dims[a->rank - (state->ta ? 2 : 1)];
    state->lda = a->dims[a->rank - 1];
    state->ldb = b->dims[b->rank - 1];
    state->rank = c->rank - 2;
    state->batches = 1;
    for (int i = 0; i < state->rank; ++i) {
        state->dims[i] = c->dims[i];
        state->batches *= c->dims[i];
    }
    steps(a, state, state->step_a);
    steps(b, state, state->step_b);
    fold(kernel, state);
    state->converts = a->type != ULL_TYPE_F32 || b->type != ULL_TYPE_F32 || c->type != ULL_TYPE_F32;
    if (state->converts) {
        int64_t m = least(state->m, ROWS), n = least(state->n, COLUMNS), k = least(state->k, DEPTH);
        state->part = (4 * (m * k + k * n + m * n) + 63) / 64 * 64;
        kernel->workspace = kernel->threads * state->part;
    }
    kernel->algorithm = state->converts ? "blocks in f32" : "gemm";
    kernel->state = state;
    return ULL_OK;
}

static void finish(struct ull__kernel *kernel)
{
    free(kernel->state);
}

static void offsets(const struct state *state, int64_t batch, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = state->rank - 1; i >= 0; --i) {
        int64_t index = batch % state->dims[i];
        batch /= state->dims[i];
        *a += index * state->step_a[i];
        *b += index * state->step_b[i];
    }
}

/* A part of the result: rows and columns of one batch. */
struct area {
    int64_t row, rows, column, columns;
};

static void direct(const struct state *state, const float *a, const float *b, float *c,
                   const struct area *area)
{
    ull__gemm(state->library, state->ta, state->tb, area->rows, area->columns, state->k, 1,
              a + area->row * (state->ta ? 1 : state->lda), state->lda,
              b + area->column * (state->tb ? state->ldb : 1), state->ldb, 0,
              c + area->row * state->n + area->column, state->n);
}

static size_t width(enum ull__type type)
{
    return (size_t)ull__type_bits(type) / 8;
}

/* Rows and columns of a matrix in memory, densely. */
static void load_block(enum ull__type type, const char *from, int64_t stride, int64_t row,
                       int64_t rows, int64_t column, int64_t columns, float *to)
{
    for (int64_t i = 0; i < rows; ++i) {
        ull__load_f32(type, from + (size_t)((row + i) * stride + column) * width(type),
                      to + i * columns, columns);
    }
}

static void one_block(const struct ull__kernel *kernel, const char *a, const char *b, char *c,
                      const struct area *area, float *buffer)
{
    const struct state *state = kernel->state;
    float *fa = buffer, *fb, *fc;
    fb = fa + least(state->m, ROWS) * least(state->k, DEPTH);
    fc = fb + least(state->k, DEPTH) * least(state->n, COLUMNS);
    if (state->k == 0) {
        memset(fc, 0, sizeof(*fc) * (size_t)(area->rows * area->columns));
    }
    for (int64_t p = 0; p < state->k; p += DEPTH) {
        int64_t deep = least(state->k - p, DEPTH);
        if (state->ta) {
            load_block(kernel->inputs[0].type, a, state->lda, p, deep, area->row, area->rows, fa);
        } else {
            load_block(kernel->inputs[0].type, a, state->lda, area->row, area->rows, p, deep, fa);
        }
        if (state->tb) {
            load_block(kernel->inputs[1].type, b, state->ldb, area->column, area->columns, p, deep,
                       fb);
        } else {
            load_block(kernel->inputs[1].type, b, state->ldb, p, deep, area->column, area->columns,
                       fb);
        }
        ull__gemm(state->library, state->ta, state->tb, area->rows, area->columns, deep, 1, fa,
                  state->ta ? area->rows : deep, fb, state->tb ? deep : area->columns,
                  p == 0 ? 0 : 1, fc, area->columns);
    }
    enum ull__type type = kernel->outputs[0].type;
    for (int64_t i = 0; i < area->rows; ++i) {
        ull__store_f32(type, fc + i * area->columns,
                       c + (size_t)((area->row + i) * state->n + area->column) * width(type),
                       area->columns);
    }
}

static void blocks(const struct ull__kernel *kernel, const char *a, const char *b, char *c,
                   const struct area *whole, float *buffer)
{
    for (int64_t i = 0; i < whole->rows; i += ROWS) {
        for (int64_t j = 0; j < whole->columns; j += COLUMNS) {
            struct area area = {whole->row + i, least(whole->rows - i, ROWS), whole->column + j,
                                least(whole->columns - j, COLUMNS)};
            one_block(kernel, a, b, c, &area, buffer);
        }
    }
}

static void run(const struct ull__kernel *kernel, const struct ull__cpu_run *call, int thread)
{
    const struct state *state = kernel->state;
    struct area area = {0, state->m, 0, state->n};
    int64_t first = 0, last = state->batches, begin, end;
    if (state->batches >= call->threads) {
        ull__part(state->batches, 1, thread, call->threads, &first, &last);
    } else if (state->m >= state->n) {
        ull__part(state->m, 16, thread, call->threads, &begin, &end);
        area.row = begin;
        area.rows = end - begin;
    } else {
        ull__part(state->n, 16, thread, call->threads, &begin, &end);
        area.column = begin;
        area.columns = end - begin;
    }
    float *buffer = (float *)((char *)call->workspace + thread * state->part);
    for (int64_t i = first; i < last; ++i) {
        int64_t a, b, c = i * state->m * state->n;
        offsets(state, i, &a, &b);
        if (state->converts) {
            blocks(kernel, (const char *)call->in[0] + (size_t)a * width(kernel->inputs[0].type),
                   (const char *)call->in[1] + (size_t)b * width(kernel->inputs[1].type),
                   (char *)call->out[0] + (size_t)c * width(kernel->outputs[0].type), &area, buffer);
        } else {
            direct(state, (const float *)call->in[0] + a, (const float *)call->in[1] + b,
                   (float *)call->out[0] + c, &area);
        }
    }
}

extern const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_matmul);
const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_matmul) = {
    .op = &ull__op_matmul,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .finish = finish,
    .run = run,
};
