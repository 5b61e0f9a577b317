/*
 * pool.c: maximum and average over windows, nearest-neighbour upsampling, and their gradients.
 *
 * All channels of a place at once, which is a run in memory where channels are last; in rows the same with strides. Gradients
 * are gathered: a place of dx adds what the windows over it give, in the order of the windows, so each is written once.
 */
#include <math.h>

#include "nest.h"

/* The strides of a tensor of pictures. */
struct picture {
    enum ull__type type;
    int64_t height, width;
    int64_t n, c, y, x; /* strides */
};

struct pool {
    const struct ull__window *window;
    struct picture from, to, index; /* index: of a maximum's elements */
    int64_t channels;
    const void *in, *places;
    void *out, *chosen;
};

static struct picture picture(const struct ull__cpu_operand *x)
{
    int64_t strides[ULL_RANK] = {0};
    strides_of(x, strides);
    return (struct picture){x->type,    x->dims[2], x->dims[3], strides[0],
                            strides[1], strides[2], strides[3]};
}

static int64_t place(const struct picture *of, int64_t n, int64_t y, int64_t x)
{
    return n * of->n + y * of->y + x * of->x;
}

/* Where window `at` begins; may be outside. */
static int64_t origin(const struct ull__window *window, int axis, int64_t at)
{
    return at * window->stride[axis] - window->before[axis];
}

/* The windows over a place along an axis, and which of their elements it is; at most LISTED of a long kernel at a time. */
enum { LISTED = 32 };

struct over {
    int count, next; /* next: the element to go on with; the kernel's size: none is left */
    int32_t window[LISTED], element[LISTED];
};

static void list_over(const struct ull__window *window, int axis, int64_t at, int64_t windows,
                      int first, struct over *over)
{
    int32_t stride = window->stride[axis], dilation = window->dilation[axis], count = 0;
    int64_t begin = at + window->before[axis];
    int k = first;
    for (; k < window->kernel[axis] && count < LISTED; ++k) {
        int64_t place = begin - (int64_t)k * dilation;
        if (place >= 0 && place < INT32_MAX && (int32_t)place % stride == 0 &&
            (int32_t)place / stride < windows) {
            over->window[count] = (int32_t)place / stride;
            over->element[count++] = k;
        }
    }
    over->count = count;
    over->next = k;
}

/* What an average is divided by: elements of the window that are inside, or inside with the padding. */
static int64_t divisor(const struct ull__window *window, int axis, int64_t at, int64_t size)
{
    int64_t begin = origin(window, axis, at), count = 0;
    int64_t low = window->count_padding ? -window->before[axis] : 0;
    int64_t high = size + (window->count_padding ? window->after[axis] : 0);
    int64_t dilation = window->dilation[axis], kernel = window->kernel[axis];
    if (begin >= low && begin + (kernel - 1) * dilation < high) {
        return kernel;
    }
    for (int64_t k = 0; k < kernel; ++k) {
        int64_t place = begin + k * dilation;
        count += place >= low && place < high;
    }
    return count;
}

/* Body of a place of the output: channels [c, c + n). */
typedef void pool_body(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c,
                       int64_t n);

ALWAYS void for_places(const struct pool *of, int64_t samples, int thread, int threads,
                       pool_body *body)
{
    int64_t begin, end;
    ull__part(samples * of->to.height, 1, thread, threads, &begin, &end);
    for (int64_t row = begin; row < end; ++row) {
        int64_t sample = row / of->to.height, y = row % of->to.height;
        for (int64_t x = 0; x < of->to.width; ++x) {
            for (int64_t c = 0; c < of->channels; c += TILE) {
                body(of, sample, y, x, c, least(TILE, of->channels - c));
            }
        }
    }
}

static const float *read_place(const struct picture *of, const void *from, int64_t at, int64_t c,
                               int64_t n, float *tile)
{
    return nest_read(of->type, from, at + c * of->c, of->c, n, tile);
}

static void max_body(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c, int64_t n)
{
    const struct ull__window *window = of->window;
    int64_t top = origin(window, 0, y), left = origin(window, 1, x);
    int64_t at = place(&of->to, sample, y, x) + c * of->to.c;
    float from[TILE], to[TILE];
    int32_t chosen[TILE];
    float *best = nest_write(of->to.type, of->out, at, of->to.c, to);
    bool first = true;
    for (int k = 0; k < window->kernel[0] * window->kernel[1]; ++k) {
        int64_t in_y = top + (int64_t)(k / window->kernel[1]) * window->dilation[0];
        int64_t in_x = left + (int64_t)(k % window->kernel[1]) * window->dilation[1];
        if (in_y < 0 || in_y >= of->from.height || in_x < 0 || in_x >= of->from.width) {
            continue;
        }
        const float *v =
            read_place(&of->from, of->in, place(&of->from, sample, in_y, in_x), c, n, from);
        if (first) {
            memcpy(best, v, (size_t)n * sizeof(*best));
            for (int64_t i = 0; i < n; ++i) {
                chosen[i] = k;
            }
            first = false;
            continue;
        }
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float a = v[i], b = best[i];
            int32_t old = chosen[i];
            bool takes = a > b || a != a;
            best[i] = takes ? a : b;
            chosen[i] = takes ? k : old;
        }
    }
    for (int64_t i = 0; first && i < n; ++i) {
        best[i] = -INFINITY;
        chosen[i] = 0;
    }
    nest_wrote(of->to.type, of->out, at, of->to.c, best, n);
    at = place(&of->index, sample, y, x) + c * of->index.c;
    for (int64_t i = 0; of->index.type == ULL_TYPE_U8 && i < n; ++i) {
        ((uint8_t *)of->chosen)[at + i * of->index.c] = (uint8_t)chosen[i];
    }
    for (int64_t i = 0; of->index.type != ULL_TYPE_U8 && i < n; ++i) {
        ((int32_t *)of->chosen)[at + i * of->index.c] = chosen[i];
    }
}

/* Adds dy of window (y, x) where element k was the largest. */
static void add_chosen(const struct pool *of, const float *dy, int64_t at, int k, float *to, int64_t n)
{
    int64_t stride = of->index.c;
    if (of->index.type == ULL_TYPE_U8 && stride == 1) {
        const uint8_t *index = (const uint8_t *)of->places + at;
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            to[i] += index[i] == k ? dy[i] : 0.0f;
        }
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        int64_t index = of->index.type == ULL_TYPE_U8
                            ? ((const uint8_t *)of->places)[at + i * stride]
                            : ((const int32_t *)of->places)[at + i * stride];
        to[i] += index == k ? dy[i] : 0.0f;
    }
}

static void add_scaled(const float *dy, float factor, float *to, int64_t n)
{
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        to[i] += dy[i] * factor;
    }
}

/* Adds what one window over a place of dx gives. */
ALWAYS void add_from(const struct pool *of, bool maximum, int64_t sample, int64_t y, int64_t x,
                     int k, int64_t c, int64_t n, float *sum)
{
    const struct ull__window *window = of->window;
    float from[TILE];
    const float *dy = read_place(&of->from, of->in, place(&of->from, sample, y, x), c, n, from);
    if (maximum) {
        add_chosen(of, dy, place(&of->index, sample, y, x) + c * of->index.c, k, sum, n);
    } else {
        int64_t count = divisor(window, 0, y, of->to.height) * divisor(window, 1, x, of->to.width);
        add_scaled(dy, 1 / (float)count, sum, n);
    }
}

/* A place of dx: over the windows that it is in. */
ALWAYS void gather(const struct pool *of, bool maximum, int64_t sample, int64_t y, int64_t x,
                   int64_t c, int64_t n)
{
    const struct ull__window *window = of->window;
    int64_t at = place(&of->to, sample, y, x) + c * of->to.c;
    float sum[TILE];
    struct over rows = {.next = 0}, columns;
    memset(sum, 0, (size_t)n * sizeof(*sum));
    while (rows.next < window->kernel[0]) {
        list_over(window, 0, y, of->from.height, rows.next, &rows);
        for (int i = 0; i < rows.count; ++i) {
            for (columns.next = 0; columns.next < window->kernel[1];) {
                list_over(window, 1, x, of->from.width, columns.next, &columns);
                for (int j = 0; j < columns.count; ++j) {
                    int k = rows.element[i] * window->kernel[1] + columns.element[j];
                    add_from(of, maximum, sample, rows.window[i], columns.window[j], k, c, n, sum);
                }
            }
        }
    }
    float *to = nest_write(of->to.type, of->out, at, of->to.c, sum);
    if (to != sum) {
        memcpy(to, sum, (size_t)n * sizeof(*to));
    }
    nest_wrote(of->to.type, of->out, at, of->to.c, to, n);
}

static void max_grad_body(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c,
                          int64_t n)
{
    gather(of, true, sample, y, x, c, n);
}

static void avg_grad_body(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c,
                          int64_t n)
{
    gather(of, false, sample, y, x, c, n);
}

/* The elements of a window of kernel h x w at (top, left), added, times a factor. */
static void add_window(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c,
                       int64_t n, const int kernel[2], int64_t top, int64_t left, float factor)
{
    const int *dilation = of->window->dilation;
    int64_t at = place(&of->to, sample, y, x) + c * of->to.c;
    float from[TILE], sum[TILE];
    memset(sum, 0, (size_t)n * sizeof(*sum));
    for (int k = 0; k < kernel[0] * kernel[1]; ++k) {
        int64_t in_y = top + (int64_t)(k / kernel[1]) * dilation[0];
        int64_t in_x = left + (int64_t)(k % kernel[1]) * dilation[1];
        if (in_y >= 0 && in_y < of->from.height && in_x >= 0 && in_x < of->from.width) {
            int64_t in = place(&of->from, sample, in_y, in_x);
            add_scaled(read_place(&of->from, of->in, in, c, n, from), 1, sum, n);
        }
    }
    float *to = nest_write(of->to.type, of->out, at, of->to.c, from);
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        to[i] = sum[i] * factor;
    }
    nest_wrote(of->to.type, of->out, at, of->to.c, to, n);
}

static void avg_body(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c, int64_t n)
{
    const struct ull__window *window = of->window;
    int64_t count = divisor(window, 0, y, of->from.height) * divisor(window, 1, x, of->from.width);
    add_window(of, sample, y, x, c, n, window->kernel, origin(window, 0, y), origin(window, 1, x),
               1 / (float)count);
}

static void upsample_body(const struct pool *of, int64_t sample, int64_t y, int64_t x, int64_t c,
                          int64_t n)
{
    const int *factor = of->window->stride;
    float tile[TILE];
    int64_t at = place(&of->to, sample, y, x) + c * of->to.c;
    int64_t in = place(&of->from, sample, y / factor[0], x / factor[1]);
    const float *from = read_place(&of->from, of->in, in, c, n, tile);
    float *to = nest_write(of->to.type, of->out, at, of->to.c, tile);
    if (to != from) {
        memcpy(to, from, (size_t)n * sizeof(*to));
    }
    nest_wrote(of->to.type, of->out, at, of->to.c, to, n);
}

static void upsample_grad_body(const struct pool *of, int64_t sample, int64_t y, int64_t x,
                               int64_t c, int64_t n)
{
    const int *factor = of->window->stride;
    add_window(of, sample, y, x, c, n, factor, y * factor[0], x * factor[1], 1);
}

static struct pool pool(const struct ull__kernel *kernel, const struct ull__cpu_run *run)
{
    struct pool of = {
        .window = &kernel->attrs.window,
        .from = picture(&kernel->inputs[0]),
        .to = picture(&kernel->outputs[0]),
        .channels = kernel->outputs[0].dims[1],
        .in = run->in[0],
        .out = run->out[0],
    };
    if (kernel->output_count > 1) {
        of.index = picture(&kernel->outputs[1]);
        of.chosen = run->out[1];
    } else if (kernel->input_count > 1) {
        of.index = picture(&kernel->inputs[1]);
        of.places = run->in[1];
    }
    return of;
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    (void)library;
    return is_real(kernel->inputs[0].type) && is_real(kernel->outputs[0].type)
               ? ULL_OK
               : no_types(kernel, err);
}

#define POOL(name, body_of)                                                                        \
    static void run_##name(const struct ull__kernel *kernel, const struct ull__cpu_run *run,       \
                           int thread)                                                             \
    {                                                                                              \
        struct pool of = pool(kernel, run);                                                        \
        for_places(&of, kernel->outputs[0].dims[0], thread, run->threads, body_of);                \
    }                                                                                              \
    const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name) = {                                     \
        .op = &ull__op_##name,                                                                     \
        .layouts = ULL_CPU_ANY,                                                                    \
        .prepare = prepare,                                                                        \
        .run = run_##name,                                                                         \
    };

POOL(max_pool, max_body)
POOL(max_pool_grad, max_grad_body)
POOL(avg_pool, avg_body)
POOL(avg_pool_grad, avg_grad_body)
POOL(upsample_nearest, upsample_body)
POOL(upsample_nearest_grad, upsample_grad_body)
