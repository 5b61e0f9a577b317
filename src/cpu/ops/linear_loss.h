/* linear_loss.h: what the loss of a linear layer and its gradient share: the shapes, and blocks of operands as f32. */
#ifndef ULLAGE_CPU_OPS_LINEAR_LOSS_H
#define ULLAGE_CPU_OPS_LINEAR_LOSS_H

#include "../gemm.h"
#include "parts.h"
#include "row.h"

enum { LINEAR_ROWS = 128, LINEAR_CLASSES = 512, LINEAR_PARTS = 64 };

struct linear {
    const struct ull__cpu_library *library;
    const struct ull__loss_attrs *attrs;
    int64_t rows, classes, width;
    enum ull__type x_type, w_type, index_type;
    const char *x, *w;
    const void *targets;
};

struct linear_space {
    float *logits, *x, *w;
};

/* run NULL: shapes alone. */
ALWAYS struct linear linear_of(const struct ull__kernel *kernel, const struct ull__cpu_run *run)
{
    const struct ull__cpu_operand *in = kernel->inputs;
    struct linear l = {
        .library = kernel->state,
        .attrs = &kernel->attrs.loss,
        .rows = in[2].elements,
        .classes = in[1].dims[0],
        .width = in[1].dims[1],
        .x_type = in[0].type,
        .w_type = in[1].type,
        .index_type = in[2].type,
    };
    if (run != NULL) {
        l.x = run->in[0];
        l.w = run->in[1];
        l.targets = run->in[2];
    }
    return l;
}

ALWAYS int64_t linear_x_floats(const struct linear *l)
{
    return l->x_type == ULL_TYPE_F32 ? 0 : LINEAR_ROWS * l->width;
}

ALWAYS int64_t linear_w_floats(const struct linear *l)
{
    return l->w_type == ULL_TYPE_F32 ? 0 : LINEAR_CLASSES * l->width;
}

/* Rows of x, or of w, as f32: where they lie, or in the buffer. */
ALWAYS const float *linear_f32(enum ull__type type, const char *from, int64_t first, int64_t rows,
                               int64_t width, float *buffer)
{
    return read_f32(type, from, first * width, rows * width, buffer);
}

ALWAYS const float *linear_rows(const struct linear *l, int64_t first, int64_t rows, float *buffer)
{
    return linear_f32(l->x_type, l->x, first, rows, l->width, buffer);
}

ALWAYS const float *linear_weights(const struct linear *l, int64_t first, int64_t rows, float *buffer)
{
    return linear_f32(l->w_type, l->w, first, rows, l->width, buffer);
}

/* The first row of a part of the rows, of LINEAR_PARTS: whole blocks. */
ALWAYS int64_t linear_share(const struct linear *l, int64_t part)
{
    int64_t blocks = (l->rows + LINEAR_ROWS - 1) / LINEAR_ROWS;
    return least(l->rows, blocks * part / LINEAR_PARTS * LINEAR_ROWS);
}

#endif
