/*
 * conv.c: two-dimensional convolution, its gradients, and its transpose. Groups, strides, dilation and padding that
 * differs from side to side. Pictures are [samples, channels, height, width].
 *
 * The gradient of a convolution by its input is the transposed one, which is an operator of its own for
 * models that use it (the way up of a U-Net).
 */
#include "../ops.h"

struct ull__window ull__window(int kernel, int stride, int padding)
{
    return (struct ull__window){.kernel = {kernel, kernel},
                                .stride = {stride, stride},
                                .dilation = {1, 1},
                                .before = {padding, padding},
                                .after = {padding, padding},
                                .groups = 1};
}

static bool window_fits(struct ull__graph *g, int node, const struct ull__window *window)
{
    for (int i = 0; i < 2; ++i) {
        if (window->stride[i] < 1 || window->dilation[i] < 1 || window->before[i] < 0 ||
            window->after[i] < 0) {
            ull__op_fail(g, node, "stride %d, dilation %d, padding %d and %d are not all in range",
                         window->stride[i], window->dilation[i], window->before[i], window->after[i]);
            return false;
        }
    }
    if (window->groups < 1) {
        ull__op_fail(g, node, "%d groups: expected at least 1", window->groups);
        return false;
    }
    return true;
}

/* (size + padding - dilation * (kernel - 1) - 1) / stride + 1 */
static ull__dim size_after(struct ull__graph *g, const struct ull__window *window, int i,
                           ull__dim size, ull__dim kernel)
{
    struct ull__dims *dims = g->symbols;
    ull__dim reach =
        ull__dim_add(dims, ull__dim_mul(dims, ull__dim_sub(dims, kernel, 1), window->dilation[i]), 1);
    ull__dim room =
        ull__dim_sub(dims, ull__dim_add(dims, size, window->before[i] + window->after[i]), reach);
    return ull__dim_add(dims, ull__dim_div(dims, room, window->stride[i]), 1);
}

/* The inverse: the least size that gives `size`. */
static ull__dim size_before(struct ull__graph *g, const struct ull__window *window, int i,
                            ull__dim size, ull__dim kernel)
{
    struct ull__dims *dims = g->symbols;
    ull__dim reach =
        ull__dim_add(dims, ull__dim_mul(dims, ull__dim_sub(dims, kernel, 1), window->dilation[i]), 1);
    ull__dim span =
        ull__dim_add(dims, ull__dim_mul(dims, ull__dim_sub(dims, size, 1), window->stride[i]), reach);
    return ull__dim_sub(dims, span, window->before[i] + window->after[i]);
}

static bool ranks_fit(struct ull__graph *g, int node)
{
    if (ull__in(g, node, 0)->rank != 4 || ull__in(g, node, 1)->rank != 4) {
        ull__op_fail(g, node, "expected pictures and weights of four dimensions");
        return false;
    }
    return window_fits(g, node, &g->nodes[node].attrs.window);
}

static void infer_conv2d(struct ull__graph *g, int node)
{
    if (!ranks_fit(g, node)) {
        return;
    }
    const struct ull__window *window = &g->nodes[node].attrs.window;
    struct ull__tensor x = *ull__in(g, node, 0), w = *ull__in(g, node, 1);
    if (!ull__dim_may_equal(g->symbols, x.dims[1],
                            ull__dim_mul(g->symbols, w.dims[1], window->groups))) {
        ull__op_fail(g, node, "weights for %d groups do not fit the channels", window->groups);
        return;
    }
    if (ull__dim_is_const(w.dims[0]) && w.dims[0] % window->groups != 0) {
        ull__op_fail(g, node, "%lld channels are not %d equal groups", (long long)w.dims[0],
                     window->groups);
        return;
    }
    ull__dim dims[4] = {x.dims[0], w.dims[0]};
    for (int i = 0; i < 2; ++i) {
        dims[2 + i] = size_after(g, window, i, x.dims[2 + i], w.dims[2 + i]);
        if (ull__dim_is_const(dims[2 + i]) && dims[2 + i] < 1) {
            ull__op_fail(g, node, "the picture is smaller than the kernel");
            return;
        }
    }
    ull__op_output(g, node, x.type, 4, dims);
}

/* dy, w: of the input, whose height and width are attrs.window.size. */
static void infer_grad_input(struct ull__graph *g, int node)
{
    const struct ull__window *window = &g->nodes[node].attrs.window;
    struct ull__tensor dy = *ull__in(g, node, 0), w = *ull__in(g, node, 1);
    ull__dim dims[4] = {dy.dims[0], ull__dim_mul(g->symbols, w.dims[1], window->groups),
                        window->size[0], window->size[1]};
    ull__op_output(g, node, dy.type, 4, dims);
}

/* x, dy: of the weights, whose kernel is attrs.window.kernel. */
static void infer_grad_weight(struct ull__graph *g, int node)
{
    const struct ull__window *window = &g->nodes[node].attrs.window;
    struct ull__tensor x = *ull__in(g, node, 0), dy = *ull__in(g, node, 1);
    ull__dim dims[4] = {dy.dims[1], ull__dim_div(g->symbols, x.dims[1], window->groups),
                        window->kernel[0], window->kernel[1]};
    ull__op_output(g, node, x.type, 4, dims);
}

/* w is [c, out / groups, kh, kw]. */
static void infer_transpose(struct ull__graph *g, int node)
{
    if (!ranks_fit(g, node)) {
        return;
    }
    const struct ull__window *window = &g->nodes[node].attrs.window;
    struct ull__tensor x = *ull__in(g, node, 0), w = *ull__in(g, node, 1);
    if (!ull__dim_may_equal(g->symbols, x.dims[1], w.dims[0])) {
        ull__op_fail(g, node, "the weights do not fit the channels");
        return;
    }
    ull__dim dims[4] = {x.dims[0], ull__dim_mul(g->symbols, w.dims[1], window->groups)};
    for (int i = 0; i < 2; ++i) {
        dims[2 + i] = size_before(g, window, i, x.dims[2 + i], w.dims[2 + i]);
    }
    ull__op_output(g, node, x.type, 4, dims);
}

/* Each element of the small picture meets every weight of its group once: pictures at 0 or 1, weights at 1. */
static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    const struct ull__node *of = &g->nodes[node];
    double small, weights, channels;
    if (of->op == &ull__op_conv2d) {
        small = ull__out_elements(g, node, 0, values);
        weights = ull__in_elements(g, node, 1, values);
        channels = (double)ull__dim_value(g->symbols, ull__in(g, node, 1)->dims[0], values);
    } else if (of->op == &ull__op_conv2d_grad_weight) {
        small = ull__in_elements(g, node, 1, values);
        weights = ull__out_elements(g, node, 0, values);
        channels = (double)ull__dim_value(g->symbols, ull__in(g, node, 1)->dims[1], values);
    } else {
        small = ull__in_elements(g, node, 0, values);
        weights = ull__in_elements(g, node, 1, values);
        channels = (double)ull__dim_value(g->symbols, ull__in(g, node, 1)->dims[0], values);
    }
    cost->matrix_flops = channels > 0 ? 2 * small * (weights / channels) : 0;
}

/* The columns of one sample, as the lowering to a matrix product needs them; a 1x1 kernel needs none. */
static int64_t workspace(const struct ull__graph *g, int node, const int64_t *values)
{
    const struct ull__node *of = &g->nodes[node];
    const struct ull__window *window = &of->attrs.window;
    bool weight = of->op == &ull__op_conv2d_grad_weight;
    const struct ull__tensor *w = weight ? &g->tensors[of->outputs[0]] : ull__in(g, node, 1);
    const struct ull__tensor *y = weight                      ? ull__in(g, node, 1)
                                  : of->op == &ull__op_conv2d ? &g->tensors[of->outputs[0]]
                                                              : ull__in(g, node, 0);
    int64_t kh = ull__dim_value(g->symbols, w->dims[2], values);
    int64_t kw = ull__dim_value(g->symbols, w->dims[3], values);
    if (kh == 1 && kw == 1 && window->stride[0] == 1 && window->stride[1] == 1) {
        return 0;
    }
    int64_t product = ull__type_bits(y->type) / 8;
    int64_t factors[] = {kh,
                         kw,
                         window->groups,
                         ull__dim_value(g->symbols, w->dims[1], values),
                         ull__dim_value(g->symbols, y->dims[2], values),
                         ull__dim_value(g->symbols, y->dims[3], values)};
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); ++i) {
        if (factors[i] < 0 || __builtin_mul_overflow(product, factors[i], &product)) {
            return ULL_DIM_BAD;
        }
    }
    return product;
}

static int bias_gradient(struct ull__graph *g, int dy)
{
    return ull__reduce(g, ULL_REDUCE_SUM, dy, 1u << 0 | 1u << 2 | 1u << 3, false);
}

static void gradient_conv2d(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    union ull__attrs attrs = of.attrs;
    for (int i = 0; i < 2; ++i) {
        attrs.window.size[i] = g->tensors[of.inputs[0]].dims[2 + i];
        attrs.window.kernel[i] = (int)g->tensors[of.inputs[1]].dims[2 + i];
    }
    if (wanted[0]) {
        dx[0] =
            ull__graph_apply(g, &ull__op_conv2d_grad_input, &attrs, (int[]){dy[0], of.inputs[1]}, 2);
    }
    if (wanted[1]) {
        dx[1] = ull__graph_apply(g, &ull__op_conv2d_grad_weight, &attrs,
                                 (int[]){of.inputs[0], dy[0]}, 2);
    }
    if (of.input_count > 2 && wanted[2]) {
        dx[2] = bias_gradient(g, dy[0]);
    }
}

static void gradient_transpose(struct ull__graph *g, int node, const int *dy, const bool *wanted,
                               int *dx)
{
    const struct ull__node of = g->nodes[node];
    union ull__attrs attrs = of.attrs;
    for (int i = 0; i < 2; ++i) {
        attrs.window.kernel[i] = (int)g->tensors[of.inputs[1]].dims[2 + i];
    }
    if (wanted[0]) {
        dx[0] = ull__graph_apply(g, &ull__op_conv2d, &attrs, (int[]){dy[0], of.inputs[1]}, 2);
    }
    if (wanted[1]) {
        dx[1] = ull__graph_apply(g, &ull__op_conv2d_grad_weight, &attrs,
                                 (int[]){dy[0], of.inputs[0]}, 2);
    }
    if (of.input_count > 2 && wanted[2]) {
        dx[2] = bias_gradient(g, dy[0]);
    }
}

const struct ull__op ull__op_conv2d = {
    .name = "conv2d",
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 2,
    .inputs_most = 3,
    .infer = infer_conv2d,
    .cost = cost,
    .gradient = gradient_conv2d,
    .workspace = workspace,
};

const struct ull__op ull__op_conv2d_grad_input = {
    .name = "conv2d_grad_input",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer_grad_input,
    .cost = cost,
    .workspace = workspace,
};

const struct ull__op ull__op_conv2d_grad_weight = {
    .name = "conv2d_grad_weight",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer_grad_weight,
    .cost = cost,
    .workspace = workspace,
};

const struct ull__op ull__op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 2,
    .inputs_most = 3,
    .infer = infer_transpose,
    .cost = cost,
    .gradient = gradient_transpose,
    .workspace = workspace,
};

static int add(struct ull__graph *g, const struct ull__op *op, int x, int w, int b,
               struct ull__window window)
{
    return ull__graph_apply(g, op, &(union ull__attrs){.window = window}, (int[]){x, w, b},
                            b == ULL_NONE ? 2 : 3);
}

int ull__conv2d(struct ull__graph *g, int x, int w, int b, struct ull__window window)
{
    return add(g, &ull__op_conv2d, x, w, b, window);
}

int ull__conv_transpose2d(struct ull__graph *g, int x, int w, int b, struct ull__window window)
{
    return add(g, &ull__op_conv_transpose2d, x, w, b, window);
}
