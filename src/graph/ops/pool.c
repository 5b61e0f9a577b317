/*
 * pool.c: maximum and average over windows, their gradients, and nearest-neighbour upsampling.
 *
 * The maximum's gradient reads which element of its window each output was, not the input: a byte each for
 * windows of up to 256 elements.
 */
#include <stdlib.h>

#include "../ops.h"

static ull__dim size_after(struct ull__graph *g, const struct ull__window *window, int i,
                           ull__dim size)
{
    struct ull__dims *dims = g->symbols;
    ull__dim room = ull__dim_sub(dims, ull__dim_add(dims, size, window->before[i] + window->after[i]),
                                 window->dilation[i] * (window->kernel[i] - 1) + 1);
    if (!window->ceil_mode) {
        return ull__dim_add(dims, ull__dim_div(dims, room, window->stride[i]), 1);
    }
    ull__dim count = ull__dim_add(dims, ull__dim_div_up(dims, room, window->stride[i]), 1);
    /* As in PyTorch, the last window must begin inside the picture or its padding before. */
    if (ull__dim_is_const(count) && ull__dim_is_const(size) &&
        (count - 1) * window->stride[i] >= size + window->before[i]) {
        count -= 1;
    }
    return count;
}

static bool pooled(struct ull__graph *g, int node, ull__dim dims[4])
{
    const struct ull__window *window = &g->nodes[node].attrs.window;
    const struct ull__tensor *x = ull__in(g, node, 0);
    if (x->rank != 4) {
        ull__op_fail(g, node, "expected pictures of four dimensions");
        return false;
    }
    struct ull__tensor of = *x;
    dims[0] = of.dims[0];
    dims[1] = of.dims[1];
    for (int i = 0; i < 2; ++i) {
        if (window->kernel[i] < 1 || window->stride[i] < 1 || window->dilation[i] < 1 ||
            window->before[i] < 0 || window->after[i] < 0) {
            ull__op_fail(g, node, "window %d, stride %d, dilation %d are not all at least 1",
                         window->kernel[i], window->stride[i], window->dilation[i]);
            return false;
        }
        dims[2 + i] = size_after(g, window, i, of.dims[2 + i]);
        if (ull__dim_is_const(dims[2 + i]) && dims[2 + i] < 1) {
            ull__op_fail(g, node, "the picture is smaller than the window");
            return false;
        }
    }
    return true;
}

static void infer_max(struct ull__graph *g, int node)
{
    ull__dim dims[4];
    if (pooled(g, node, dims)) {
        const struct ull__window *window = &g->nodes[node].attrs.window;
        bool small = (int64_t)window->kernel[0] * window->kernel[1] <= 256;
        ull__op_output(g, node, ull__in(g, node, 0)->type, 4, dims);
        ull__op_output(g, node, small ? ULL_TYPE_U8 : ULL_TYPE_I32, 4, dims);
    }
}

static void infer_avg(struct ull__graph *g, int node)
{
    ull__dim dims[4];
    if (pooled(g, node, dims)) {
        ull__op_output(g, node, ull__in(g, node, 0)->type, 4, dims);
    }
}

/* dy is input 0; height and width of x are attrs.window.size. */
static void infer_grad(struct ull__graph *g, int node)
{
    const struct ull__tensor dy = *ull__in(g, node, 0);
    const struct ull__window *window = &g->nodes[node].attrs.window;
    ull__dim dims[4] = {dy.dims[0], dy.dims[1], window->size[0], window->size[1]};
    ull__op_output(g, node, dy.type, 4, dims);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    const struct ull__node *of = &g->nodes[node];
    bool grad = (of->op->flags & ULL_OP_GRADIENT) != 0;
    double small =
        grad ? ull__in_elements(g, node, 0, values) : ull__out_elements(g, node, 0, values);
    cost->flops = small * of->attrs.window.kernel[0] * of->attrs.window.kernel[1];
}

static union ull__attrs with_size(const struct ull__graph *g, int node)
{
    union ull__attrs attrs = g->nodes[node].attrs;
    for (int i = 0; i < 2; ++i) {
        attrs.window.size[i] = ull__in(g, node, 0)->dims[2 + i];
    }
    return attrs;
}

static void gradient_max(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    union ull__attrs attrs = with_size(g, node);
    dx[0] = ull__graph_apply(g, &ull__op_max_pool_grad, &attrs,
                             (int[]){dy[0], g->nodes[node].outputs[1]}, 2);
}

static void gradient_avg(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    union ull__attrs attrs = with_size(g, node);
    dx[0] = ull__graph_apply(g, &ull__op_avg_pool_grad, &attrs, dy, 1);
}

/* attrs.window.stride is the factor. */
static void infer_upsample(struct ull__graph *g, int node)
{
    struct ull__tensor x = *ull__in(g, node, 0);
    const struct ull__window *window = &g->nodes[node].attrs.window;
    if (x.rank != 4 || window->stride[0] < 1 || window->stride[1] < 1) {
        ull__op_fail(g, node, "expected pictures of four dimensions and factors of at least 1");
        return;
    }
    ull__dim dims[4] = {x.dims[0], x.dims[1], ull__dim_mul(g->symbols, x.dims[2], window->stride[0]),
                        ull__dim_mul(g->symbols, x.dims[3], window->stride[1])};
    ull__op_output(g, node, x.type, 4, dims);
}

static void gradient_upsample(struct ull__graph *g, int node, const int *dy, const bool *wanted,
                              int *dx)
{
    (void)wanted;
    union ull__attrs attrs = with_size(g, node);
    dx[0] = ull__graph_apply(g, &ull__op_upsample_nearest_grad, &attrs, dy, 1);
}

static void cost_upsample(const struct ull__graph *g, int node, const int64_t *values,
                          struct ull__cost *cost)
{
    double in = ull__in_elements(g, node, 0, values), out = ull__out_elements(g, node, 0, values);
    cost->flops = in > out ? in : out;
}

const struct ull__op ull__op_max_pool = {
    .name = "max_pool",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer_max,
    .cost = cost,
    .gradient = gradient_max,
};

const struct ull__op ull__op_max_pool_grad = {
    .name = "max_pool_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer_grad,
    .cost = cost,
};

const struct ull__op ull__op_avg_pool = {
    .name = "avg_pool",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer_avg,
    .cost = cost,
    .gradient = gradient_avg,
};

const struct ull__op ull__op_avg_pool_grad = {
    .name = "avg_pool_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer_grad,
    .cost = cost,
};

const struct ull__op ull__op_upsample_nearest = {
    .name = "upsample_nearest",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer_upsample,
    .cost = cost_upsample,
    .gradient = gradient_upsample,
};

const struct ull__op ull__op_upsample_nearest_grad = {
    .name = "upsample_nearest_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer_grad,
    .cost = cost_upsample,
};

static int add(struct ull__graph *g, const struct ull__op *op, int x, struct ull__window window)
{
    return ull__graph_apply(g, op, &(union ull__attrs){.window = window}, &x, 1);
}

int ull__max_pool(struct ull__graph *g, int x, struct ull__window window)
{
    return add(g, &ull__op_max_pool, x, window);
}

int ull__avg_pool(struct ull__graph *g, int x, struct ull__window window)
{
    return add(g, &ull__op_avg_pool, x, window);
}

int ull__global_avg_pool(struct ull__graph *g, int x)
{
    return ull__reduce(g, ULL_REDUCE_MEAN, x, 1u << 2 | 1u << 3, true);
}

int ull__upsample_nearest(struct ull__graph *g, int x, int factor)
{
    return add(g, &ull__op_upsample_nearest, x, ull__window(1, factor, 0));
}
