/*
 * gather.c: slices of a tensor by an index (rows of an embedding's table are those along axis 0), and their gradients.
 *
 * An index out of range gives NaN (0 in whole numbers), so that it is seen, and no gradient. Gradients are added without
 * atomics in the order of the index: a thread owns some columns of all slices, or some slices where these are narrow. Sums
 * are f32: in dx itself, or for 16 bits in the workspace.
 */
#include <math.h>

#include "tile.h"

struct slices {
    int64_t before, size, after; /* of x: size slices of `after` elements, before times */
    int64_t count;               /* of the index */
    enum ull__type index_type;
    const void *index;
};

/* x: the whole one; axis: the slices'. */
static struct slices slices(const struct ull__cpu_operand *x, int axis,
                            const struct ull__cpu_operand *index, const void *values)
{
    struct slices of = {1, 1, 1, index->elements, index->type, values};
    for (int i = 0; i < x->rank; ++i) {
        *(i < axis ? &of.before : i == axis ? &of.size : &of.after) *= x->dims[i];
    }
    return of;
}

static void fill_unknown(enum ull__type type, void *to, int64_t at, int64_t n)
{
    if (is_real(type)) {
        for (int64_t i = 0; i < n; ++i) {
            set_f32(type, to, at + i, NAN);
        }
    } else {
        memset((char *)to + at * size_of(type), 0, (size_t)(n * size_of(type)));
    }
}

static void copy_slices(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                        const struct slices *of, const void *x, int thread)
{
    enum ull__type type = kernel->outputs[0].type;
    int64_t width = size_of(type), begin, end;
    ull__part(of->before * of->count, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        int64_t slice = index_at(of->index_type, of->index, i % of->count);
        if (slice < 0 || slice >= of->size) {
            fill_unknown(type, run->out[0], i * of->after, of->after);
            continue;
        }
        int64_t from = (i / of->count * of->size + slice) * of->after;
        memcpy((char *)run->out[0] + i * of->after * width, (const char *)x + from * width,
               (size_t)(of->after * width));
    }
}

static void run_gather(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct slices of =
        slices(&kernel->inputs[0], kernel->attrs.axis.axis, &kernel->inputs[1], run->in[1]);
    copy_slices(kernel, run, &of, run->in[0], thread);
}

static void run_embedding(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct slices of = slices(&kernel->inputs[1], 0, &kernel->inputs[0], run->in[0]);
    copy_slices(kernel, run, &of, run->in[1], thread);
}

/* --- Gradients --- */

/* What a thread owns: columns of slices. */
struct area {
    int64_t first, last, left, right;
};

static struct area owned(const struct slices *of, int thread, int threads)
{
    struct area area = {0, of->size, 0, of->after};
    if (of->after >= 16 * threads) {
        ull__part(of->after, 16, thread, threads, &area.left, &area.right);
    } else {
        ull__part(of->size, 1, thread, threads, &area.first, &area.last);
    }
    return area;
}

static void add_slices(const struct slices *of, const struct area *area, enum ull__type type,
                       const void *dy, int64_t before, float *sums)
{
    float tile[TILE];
    for (int64_t slice = area->first; slice < area->last; ++slice) {
        memset(sums + slice * of->after + area->left, 0,
               (size_t)(area->right - area->left) * sizeof(*sums));
    }
    for (int64_t i = 0; i < of->count; ++i) {
        int64_t slice = index_at(of->index_type, of->index, i);
        if (slice < area->first || slice >= area->last) {
            continue;
        }
        int64_t from = (before * of->count + i) * of->after;
        for (int64_t left = area->left; left < area->right; left += TILE) {
            int64_t n = least(TILE, area->right - left);
            const float *d = read_f32(type, dy, from + left, n, tile);
            float *to = sums + slice * of->after + left;
            SIMD for (int64_t j = 0; j < n; ++j)
            {
                to[j] += d[j];
            }
        }
    }
}

static void add_all(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                    const struct slices *of, enum ull__type dy_type, const void *dy, int thread)
{
    enum ull__type type = kernel->outputs[0].type;
    struct area area = owned(of, thread, run->threads);
    for (int64_t before = 0; before < of->before; ++before) {
        int64_t at = before * of->size * of->after;
        float *sums = type == ULL_TYPE_F32 ? (float *)run->out[0] + at : run->workspace;
        add_slices(of, &area, dy_type, dy, before, sums);
        for (int64_t slice = area.first; type != ULL_TYPE_F32 && slice < area.last; ++slice) {
            int64_t place = slice * of->after + area.left;
            ull__store_f32(type, sums + place, (uint16_t *)run->out[0] + at + place,
                           area.right - area.left);
        }
    }
}

static void run_gather_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                            int thread)
{
    struct slices of =
        slices(&kernel->outputs[0], kernel->attrs.axis.axis, &kernel->inputs[1], run->in[1]);
    add_all(kernel, run, &of, kernel->inputs[0].type, run->in[0], thread);
}

static void run_embedding_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                               int thread)
{
    struct slices of = slices(&kernel->outputs[0], 0, &kernel->inputs[0], run->in[0]);
    add_all(kernel, run, &of, kernel->inputs[1].type, run->in[1], thread);
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    bool by_ids = kernel->op == &ull__op_embedding || kernel->op == &ull__op_embedding_grad;
    bool grad = (kernel->op->flags & ULL_OP_GRADIENT) != 0;
    enum ull__type type = kernel->outputs[0].type;
    (void)library;
    if (!is_index(kernel->inputs[by_ids ? 0 : 1].type) || type == ULL_TYPE_BIT ||
        (grad && (!is_real(type) || !is_real(kernel->inputs[by_ids ? 1 : 0].type)))) {
        return no_types(kernel, err);
    }
    if (grad && type != ULL_TYPE_F32) {
        int axis = by_ids ? 0 : kernel->attrs.axis.axis;
        struct slices of = slices(&kernel->outputs[0], axis, &kernel->inputs[by_ids ? 0 : 1], NULL);
        kernel->workspace = of.size * of.after * (int64_t)sizeof(float);
    }
    return ULL_OK;
}

#define GATHER(name)                                                                               \
    const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name) = {                                     \
        .op = &ull__op_##name,                                                                     \
        .layouts = ULL_CPU_ROWS,                                                                   \
        .prepare = prepare,                                                                        \
        .run = run_##name,                                                                         \
    };

GATHER(gather)
GATHER(gather_grad)
GATHER(embedding)
GATHER(embedding_grad)
