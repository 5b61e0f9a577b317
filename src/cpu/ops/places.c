/*
 * places.c: operators that move elements without changing them: transpose, expand, concat, split, slice and its gradient,
 * pad, copy. Each operand may lie in rows or channels last.
 */
#include "places.h"

/* Output 0 from input 0, whose elements are `strides` apart by dimension of the output. */
static void from_strides(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                         const int64_t *strides, int64_t offset, int thread)
{
    const struct ull__cpu_operand *y = &kernel->outputs[0];
    struct copying of = {.to = run->out[0]};
    int64_t own[ULL_RANK] = {0};
    strides_of(y, own);
    copy_open(&of, y->type, y->rank, y->dims, own, strides, 0);
    of.from = (const char *)run->in[0] + offset * of.size;
    copy_places(&of, thread, run->threads);
}

static void run_transpose(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    int64_t own[ULL_RANK] = {0}, strides[ULL_RANK] = {0};
    strides_of(x, own);
    for (int i = 0; i < x->rank; ++i) {
        strides[i] = own[kernel->attrs.shape.order[i]];
    }
    from_strides(kernel, run, strides, 0, thread);
}

static void run_expand(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0], *y = &kernel->outputs[0];
    int64_t own[ULL_RANK] = {0}, strides[ULL_RANK] = {0};
    strides_of(x, own);
    for (int i = 0; i < x->rank; ++i) {
        strides[y->rank - x->rank + i] = x->dims[i] == 1 ? 0 : own[i];
    }
    from_strides(kernel, run, strides, 0, thread);
}

static void run_copy(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    int64_t own[ULL_RANK] = {0};
    strides_of(&kernel->inputs[0], own);
    from_strides(kernel, run, own, 0, thread);
}

/* Whether `part` lies in `whole`: a view, for which nothing is to be done. */
static bool lies_in(const void *part, const void *whole, size_t bytes)
{
    return (uintptr_t)part >= (uintptr_t)whole && (uintptr_t)part < (uintptr_t)whole + bytes;
}

static void run_slice(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0];
    const struct ull__axis_attrs *attrs = &kernel->attrs.axis;
    int64_t strides[ULL_RANK] = {0};
    if (lies_in(run->out[0], run->in[0], x->bytes)) {
        return;
    }
    strides_of(x, strides);
    int64_t offset = attrs->begin * strides[attrs->axis];
    strides[attrs->axis] *= attrs->step;
    from_strides(kernel, run, strides, offset, thread);
}

/* A part of a tensor along an axis, copied to or from a tensor of that size. */
static void copy_part(const struct ull__cpu_operand *part, void *part_at,
                      const struct ull__cpu_operand *whole, void *whole_at, int axis, int64_t begin,
                      bool into_part, int thread, int threads)
{
    int64_t a[ULL_RANK] = {0}, b[ULL_RANK] = {0};
    struct copying of;
    strides_of(part, a);
    strides_of(whole, b);
    copy_open(&of, part->type, part->rank, part->dims, a, b, into_part ? 0 : 1);
    char *place = (char *)whole_at + begin * b[axis] * of.size;
    of.to = into_part ? part_at : place;
    of.from = into_part ? place : part_at;
    copy_places(&of, thread, threads);
}

static void run_concat(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    int axis = kernel->attrs.axis.axis;
    int64_t begin = 0;
    for (int i = 0; i < kernel->input_count; ++i) {
        copy_part(&kernel->inputs[i], run->in[i], &kernel->outputs[0], run->out[0], axis, begin,
                  false, thread, run->threads);
        begin += kernel->inputs[i].dims[axis];
    }
}

static void run_split(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    int axis = kernel->attrs.axis.axis;
    int64_t begin = 0;
    for (int i = 0; i < kernel->output_count; ++i) {
        if (run->out[i] != NULL && !lies_in(run->out[i], run->in[0], kernel->inputs[0].bytes)) {
            copy_part(&kernel->outputs[i], run->out[i], &kernel->inputs[0], run->in[0], axis, begin,
                      true, thread, run->threads);
        }
        begin += kernel->outputs[i].dims[axis];
    }
}

/* Fills the thread's part of a tensor with one value. */
static void fill(const struct ull__cpu_operand *x, void *to, double value, int thread, int threads)
{
    int64_t begin, end, size = size_of(x->type), whole = (int64_t)value;
    ull__part(x->elements, UNIT, thread, threads, &begin, &end);
    if (value == 0) {
        memset((char *)to + begin * size, 0, (size_t)((end - begin) * size));
        return;
    }
    for (int64_t i = begin; i < end; ++i) {
        if (is_real(x->type)) {
            set_f32(x->type, to, i, (float)value);
        } else if (x->type == ULL_TYPE_F64) {
            ((double *)to)[i] = value;
        } else {
            store_any_i64(x->type, &whole, to, i, 1);
        }
    }
}

static void run_slice_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                           int thread)
{
    const struct ull__cpu_operand *dy = &kernel->inputs[0], *dx = &kernel->outputs[0];
    const struct ull__axis_attrs *attrs = &kernel->attrs.axis;
    int64_t own[ULL_RANK] = {0}, strides[ULL_RANK] = {0};
    struct copying of = {.from = run->in[0]};
    fill(dx, run->out[0], 0, thread, run->threads);
    ull__team_barrier(run->team);
    strides_of(dy, own);
    strides_of(dx, strides);
    int64_t offset = attrs->begin * strides[attrs->axis];
    strides[attrs->axis] *= attrs->step;
    copy_open(&of, dy->type, dy->rank, dy->dims, own, strides, 1);
    of.to = (char *)run->out[0] + offset * of.size;
    copy_places(&of, thread, run->threads);
}

/* Less than nothing around it cuts off. */
static void run_pad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__cpu_operand *x = &kernel->inputs[0], *y = &kernel->outputs[0];
    const struct ull__pad_attrs *attrs = &kernel->attrs.pad;
    int64_t own[ULL_RANK] = {0}, strides[ULL_RANK] = {0}, dims[ULL_RANK] = {0}, from = 0, to = 0;
    struct copying of;
    fill(y, run->out[0], attrs->value, thread, run->threads);
    ull__team_barrier(run->team);
    strides_of(x, own);
    strides_of(y, strides);
    for (int i = 0; i < x->rank; ++i) {
        int64_t before = attrs->before[i], cut = before < 0 ? -before : 0;
        dims[i] = most(0, least(x->dims[i] - cut, y->dims[i] - most(before, 0)));
        from += cut * own[i];
        to += most(before, 0) * strides[i];
    }
    copy_open(&of, x->type, x->rank, dims, own, strides, 1);
    of.from = (const char *)run->in[0] + from * of.size;
    of.to = (char *)run->out[0] + to * of.size;
    copy_places(&of, thread, run->threads);
}

#define PLACES(name)                                                                               \
    const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name) = {                                     \
        .op = &ull__op_##name,                                                                     \
        .layouts = ULL_CPU_ANY,                                                                    \
        .prepare = prepare_bytes,                                                                  \
        .run = run_##name,                                                                         \
    };

PLACES(transpose)
PLACES(expand)
PLACES(copy)
PLACES(slice)
PLACES(slice_grad)
PLACES(concat)
PLACES(split)
PLACES(pad)
