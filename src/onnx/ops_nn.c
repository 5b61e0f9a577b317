/* ops_nn.c: products, convolutions, pooling, norms and losses. */
#include <string.h>

#include "onnx_private.h"

static bool is(const struct call *call, const char *name)
{
    return strcmp(call->node->op_type, name) == 0;
}

/* Vectors are matrices of one row or column, whose dimension is dropped afterwards. */
void translate_matmul(struct call *call)
{
    struct ull__graph *g = call->graph;
    int a = tensor(call, 0), b = tensor(call, 1);
    if (a == ULL_NONE || b == ULL_NONE) {
        return;
    }
    struct ull__tensor one = g->tensors[a], other = g->tensors[b];
    if (one.rank == 0 || other.rank == 0) {
        call_fail(call, "a number is no matrix");
        return;
    }
    ull__dim inner = one.dims[one.rank - 1];
    if (!same_size(call->reader, inner, other.dims[other.rank > 1 ? other.rank - 2 : 0])) {
        call_fail(call, "the matrices do not fit for every batch");
        return;
    }
    a = one.rank == 1 ? ull__reshape(g, a, 2, (ull__dim[]){1, inner}) : a;
    b = other.rank == 1 ? ull__reshape(g, b, 2, (ull__dim[]){inner, 1}) : b;
    int y = ull__matmul(g, a, b, false, false);
    if (y != ULL_NONE && (one.rank == 1 || other.rank == 1)) {
        struct ull__tensor of = g->tensors[y];
        ull__dim dims[ULL_RANK];
        int rank = 0;
        for (int i = 0; i < of.rank; ++i) {
            bool gone = (one.rank == 1 && i == of.rank - 2) || (other.rank == 1 && i == of.rank - 1);
            if (!gone) {
                dims[rank++] = of.dims[i];
            }
        }
        y = ull__reshape(g, y, rank, dims);
    }
    put(call, 0, y);
}

void translate_gemm(struct call *call)
{
    struct ull__graph *g = call->graph;
    double alpha = attribute_float(call, "alpha", 1), beta = attribute_float(call, "beta", 1);
    bool turned[2] = {attribute_int(call, "transA", 0) != 0, attribute_int(call, "transB", 0) != 0};
    int a = tensor(call, 0), b = tensor(call, 1);
    if (a == ULL_NONE || b == ULL_NONE) {
        return;
    }
    const struct ull__tensor *one = &g->tensors[a], *other = &g->tensors[b];
    if (one->rank != 2 || other->rank != 2 ||
        !same_size(call->reader, one->dims[turned[0] ? 0 : 1], other->dims[turned[1] ? 1 : 0])) {
        call_fail(call, "the matrices do not fit for every batch");
        return;
    }
    int y = ull__matmul(g, a, b, turned[0], turned[1]);
    y = alpha != 1 ? ull__unary_with(g, ULL_UNARY_SCALE, y, alpha, 0) : y;
    if (has_input(call, 2) && beta != 0 && y != ULL_NONE) {
        int c = tensor(call, 2);
        c = beta != 1 ? ull__unary_with(g, ULL_UNARY_SCALE, c, beta, 0) : c;
        y = ull__binary(g, ULL_BINARY_ADD, y, c);
    }
    put(call, 0, y);
}

/* Pictures of one dimension are those of two with a height of 1. */
struct pictures {
    int x, rank;
    struct ull__window window;
};

static int to_pictures(struct ull__graph *g, int x, int rank)
{
    if (x == ULL_NONE || rank != 3) {
        return x;
    }
    const struct ull__tensor of = g->tensors[x];
    return ull__reshape(g, x, 4, (ull__dim[]){of.dims[0], of.dims[1], 1, of.dims[2]});
}

static int from_pictures(struct ull__graph *g, int y, int rank)
{
    if (y == ULL_NONE || rank != 3) {
        return y;
    }
    const struct ull__tensor of = g->tensors[y];
    return ull__reshape(g, y, 3, (ull__dim[]){of.dims[0], of.dims[1], of.dims[3]});
}

static bool list_of(struct call *call, const char *name, int most, int64_t least, int64_t *list,
                    int *count)
{
    *count = 0;
    if (!attribute_ints(call, name, most, list, count)) {
        return reader_ok(call->reader);
    }
    for (int i = 0; i < *count; ++i) {
        if (list[i] < least || list[i] > INT32_MAX / 4) {
            call_fail(call, "%s is %lld", name, (long long)list[i]);
            return false;
        }
    }
    if (*count != most && *count != 0) {
        call_fail(call, "%s has %d numbers: expected %d", name, *count, most);
        return false;
    }
    return true;
}

/* Padding of auto_pad SAME: so that the result is the input's size over the stride, rounded up. */
static bool same_padding(struct call *call, struct ull__window *window, const struct ull__tensor *x,
                         const int *kernel, bool lower)
{
    for (int i = 0; i < 2; ++i) {
        ull__dim size = x->dims[2 + i];
        if (!ull__dim_is_const(size)) {
            call_fail(call, "auto_pad needs a size that is known");
            return false;
        }
        int64_t out = (size + window->stride[i] - 1) / window->stride[i];
        int64_t all = (out - 1) * window->stride[i] +
                      (int64_t)window->dilation[i] * (kernel[i] - 1) + 1 - size;
        all = all < 0 ? 0 : all;
        window->before[i] = (int)(lower ? all - all / 2 : all / 2);
        window->after[i] = (int)(all - window->before[i]);
    }
    return true;
}

/* Reads strides, dilations and padding. kernel: height and width. */
static bool read_window(struct call *call, struct pictures *p, const int *kernel)
{
    struct ull__window *window = &p->window;
    int spatial = p->rank - 2, from = 4 - p->rank;
    int64_t strides[2], dilations[2], pads[4];
    int stride_count, dilation_count, pad_count;
    *window = ull__window(1, 1, 0);
    if (!list_of(call, "strides", spatial, 1, strides, &stride_count) ||
        !list_of(call, "dilations", spatial, 1, dilations, &dilation_count) ||
        !list_of(call, "pads", 2 * spatial, 0, pads, &pad_count)) {
        return false;
    }
    for (int i = 0; i < spatial; ++i) {
        window->stride[from + i] = stride_count > 0 ? (int)strides[i] : 1;
        window->dilation[from + i] = dilation_count > 0 ? (int)dilations[i] : 1;
        window->before[from + i] = pad_count > 0 ? (int)pads[i] : 0;
        window->after[from + i] = pad_count > 0 ? (int)pads[spatial + i] : 0;
    }
    for (int i = 0; i < 2; ++i) {
        window->kernel[i] = kernel[i];
    }
    if (attribute_is(call, "auto_pad", "NOTSET", true) ||
        attribute_is(call, "auto_pad", "VALID", true)) {
        return true;
    }
    return same_padding(call, window, &call->graph->tensors[p->x], kernel,
                        attribute_is(call, "auto_pad", "SAME_LOWER", false));
}

static bool read_pictures(struct call *call, struct pictures *p)
{
    struct value *x = input(call, 0);
    if (x == NULL || (x->rank != 3 && x->rank != 4)) {
        call_fail(call, "only pictures of one or two dimensions are supported, not of %d",
                  x != NULL ? x->rank - 2 : 0);
        return false;
    }
    p->rank = x->rank;
    p->x = to_pictures(call->graph, tensor(call, 0), x->rank);
    return p->x != ULL_NONE;
}

/* The kernel of the weights. */
static bool read_kernel(struct call *call, const struct pictures *p, int *w, int kernel[2])
{
    struct value *weights = input(call, 1);
    if (weights == NULL || weights->rank != p->rank) {
        call_fail(call, "the weights do not have %d dimensions", p->rank);
        return false;
    }
    *w = to_pictures(call->graph, tensor(call, 1), p->rank);
    if (*w == ULL_NONE) {
        return false;
    }
    for (int i = 0; i < 2; ++i) {
        ull__dim size = call->graph->tensors[*w].dims[2 + i];
        if (!ull__dim_is_const(size) || size < 1 || size > 1 << 20) {
            call_fail(call, "the weights have a kernel that cannot be");
            return false;
        }
        kernel[i] = (int)size;
    }
    return true;
}

static bool read_groups(struct call *call, struct pictures *p)
{
    int64_t groups = attribute_int(call, "group", 1);
    if (groups < 1 || groups > 1 << 20) {
        call_fail(call, "%lld groups", (long long)groups);
        return false;
    }
    p->window.groups = (int)groups;
    return true;
}

void translate_conv(struct call *call)
{
    struct pictures p;
    int w, kernel[2];
    if (read_pictures(call, &p) && read_kernel(call, &p, &w, kernel) &&
        read_window(call, &p, kernel) && read_groups(call, &p)) {
        int b = has_input(call, 2) ? tensor(call, 2) : ULL_NONE;
        put(call, 0,
            from_pictures(call->graph, ull__conv2d(call->graph, p.x, w, b, p.window), p.rank));
    }
}

/* Rows and columns that are added behind or cut off so that the result has the size that is asked for. */
static bool read_output_shape(struct call *call, struct pictures *p, const int *kernel)
{
    int64_t shape[2], extra[2] = {0, 0};
    int spatial = p->rank - 2, from = 4 - p->rank, count = 0, extra_count = 0;
    if (!list_of(call, "output_padding", spatial, 0, extra, &extra_count) ||
        !list_of(call, "output_shape", spatial, 1, shape, &count)) {
        return false;
    }
    for (int i = 0; i < spatial; ++i) {
        struct ull__window *window = &p->window;
        ull__dim size = call->graph->tensors[p->x].dims[2 + from + i];
        int added = extra_count > 0 ? (int)extra[i] : 0;
        if (count > 0) {
            if (!ull__dim_is_const(size)) {
                call_fail(call, "output_shape needs a size that is known");
                return false;
            }
            int64_t all = window->stride[from + i] * (size - 1) + added +
                          (int64_t)(kernel[from + i] - 1) * window->dilation[from + i] + 1 - shape[i];
            bool upper = attribute_is(call, "auto_pad", "SAME_UPPER", false);
            int64_t half = all / 2;
            window->before[from + i] = (int)(upper ? half : all - half);
            window->after[from + i] = (int)(all - window->before[from + i]);
        }
        window->after[from + i] -= added;
    }
    return true;
}

/* Padding that is below zero is put around afterwards. */
static int with_more(const struct call *call, int y, const int less[2])
{
    ull__dim before[4] = {0}, after[4] = {0};
    if (less[0] == 0 && less[1] == 0) {
        return y;
    }
    after[2] = less[0];
    after[3] = less[1];
    return ull__pad(call->graph, y, before, after, 0);
}

void translate_conv_transpose(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct pictures p;
    int w, kernel[2], less[2] = {0, 0};
    if (!read_pictures(call, &p) || !read_kernel(call, &p, &w, kernel)) {
        return;
    }
    if (!read_window(call, &p, kernel) || !read_groups(call, &p)) {
        return;
    }
    bool same = !attribute_is(call, "auto_pad", "NOTSET", true) &&
                !attribute_is(call, "auto_pad", "VALID", true);
    for (int i = 0; same && i < 2; ++i) { /* the result is the input's size times the stride */
        int64_t all = (int64_t)(kernel[i] - 1) * p.window.dilation[i] + 1 - p.window.stride[i];
        all = all < 0 ? 0 : all;
        p.window.before[i] =
            (int)(attribute_is(call, "auto_pad", "SAME_LOWER", false) ? all - all / 2 : all / 2);
        p.window.after[i] = (int)all - p.window.before[i];
    }
    if (!read_output_shape(call, &p, kernel)) {
        return;
    }
    for (int i = 0; i < 2; ++i) {
        less[i] = p.window.after[i] < 0 ? -p.window.after[i] : 0;
        p.window.after[i] += less[i];
        if (p.window.before[i] < 0) {
            call_fail(call, "its output_shape is larger than the pictures can become");
            return;
        }
    }
    bool grown = less[0] > 0 || less[1] > 0;
    int b = has_input(call, 2) ? tensor(call, 2) : ULL_NONE;
    int y = ull__conv_transpose2d(g, p.x, w, grown ? ULL_NONE : b, p.window);
    y = y != ULL_NONE ? with_more(call, y, less) : y;
    y = y != ULL_NONE && grown && b != ULL_NONE ? ull__bias(g, y, b, 1) : y;
    put(call, 0, from_pictures(g, y, p.rank));
}

void translate_pool(struct call *call)
{
    struct pictures p;
    int64_t size[2];
    int count, kernel[2] = {1, 1};
    if (!read_pictures(call, &p) || !list_of(call, "kernel_shape", p.rank - 2, 1, size, &count)) {
        return;
    }
    if (count == 0) {
        call_fail(call, "it has no kernel_shape");
        return;
    }
    for (int i = 0; i < count; ++i) {
        kernel[4 - p.rank + i] = (int)size[i];
    }
    if (!read_window(call, &p, kernel)) {
        return;
    }
    p.window.ceil_mode = attribute_int(call, "ceil_mode", 0) != 0;
    p.window.count_padding = attribute_int(call, "count_include_pad", 0) != 0;
    int y = is(call, "MaxPool") ? ull__max_pool(call->graph, p.x, p.window)
                                : ull__avg_pool(call->graph, p.x, p.window);
    put(call, 0, from_pictures(call->graph, y, p.rank));
}

void translate_global_pool(struct call *call)
{
    struct value *x = input(call, 0);
    if (x == NULL || x->rank < 3) {
        call_fail(call, "expected pictures");
        return;
    }
    uint32_t axes = ((1u << x->rank) - 1) & ~3u;
    put(call, 0,
        ull__reduce(call->graph, is(call, "GlobalMaxPool") ? ULL_REDUCE_MAX : ULL_REDUCE_MEAN,
                    tensor(call, 0), axes, true));
}

/* Statistics are kept, whatever else they look like. */
static int state(const struct call *call, int i)
{
    struct value *value = input(call, i);
    if (value != NULL && value->tensor == ULL_NONE && value->initializer != NULL) {
        value->state = true;
        value->weight = false;
    }
    return tensor(call, i);
}

void translate_batch_norm(struct call *call)
{
    struct ull__graph *g = call->graph;
    bool stated = call->opset >= 14 ? attribute_int(call, "training_mode", 0) != 0
                                    : wants_output(call, 1) || wants_output(call, 3);
    struct ull__norm_attrs attrs = {.axis = 1,
                                    .epsilon = attribute_float(call, "epsilon", 1e-5),
                                    .momentum = 1 - attribute_float(call, "momentum", 0.9),
                                    .training = stated || !call->reader->options->as_is};
    if (attribute_int(call, "spatial", 1) == 0) {
        call_fail(call, "statistics for each point (spatial=0) are not supported");
        return;
    }
    int x = tensor(call, 0), scale = tensor(call, 1), shift = tensor(call, 2);
    int y = ull__batch_norm(g, x, scale, shift, state(call, 3), state(call, 4), attrs);
    put(call, 0, y);
    for (int i = 1; i < 3 && attrs.training; ++i) {
        put(call, i, ull__graph_output(g, y, 2 + i));
    }
    for (int i = 3; i < 5 && attrs.training; ++i) { /* the batch's own, which nobody reads */
        put(call, i, ull__graph_output(g, y, 2 + i - 2));
    }
}

void translate_layer_norm(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *x = input(call, 0);
    int axis = x != NULL ? attribute_axis(call, "axis", -1, x->rank) : ULL_NONE;
    if (axis == ULL_NONE) {
        return;
    }
    int from = tensor(call, 0), scale = tensor(call, 1);
    int shift = has_input(call, 2) ? tensor(call, 2) : ULL_NONE;
    int y = ull__layer_norm(g, from, scale, shift, axis, attribute_float(call, "epsilon", 1e-5));
    put(call, 0, y);
    for (int i = 1; i < 3; ++i) {
        ull__dim dims[ULL_RANK];
        for (int j = 0; j < x->rank; ++j) {
            dims[j] = j < axis ? x->dims[j] : 1;
        }
        if (wants_output(call, i)) {
            put(call, i, ull__reshape(g, ull__graph_output(g, y, i), x->rank, dims));
        }
    }
}

/* Whether an input is known to be the same number everywhere. */
static bool is_all(const struct call *call, int i, double number)
{
    struct value *value = input(call, i);
    bool all = value != NULL && !value->weight && ull__type_is_float(value->type) &&
               value_cells(call->reader, value);
    for (int64_t j = 0; all && j < value->count; ++j) {
        all = value->cells[j].real == number;
    }
    return all;
}

/* A constant of ones; ULL_NONE: there would be too many. */
static int ones(const struct call *call, enum ull__type type, ull__dim count)
{
    union cell *cells = ull__dim_is_const(count) ? cells_new(call->reader, count) : NULL;
    char *bytes = cells != NULL ? reader_alloc(call->reader, (size_t)count + 1, 8) : NULL;
    if (bytes == NULL) {
        return ULL_NONE;
    }
    for (int64_t i = 0; i < count; ++i) {
        cells[i].real = 1;
    }
    cells_to_bytes(type, cells, count, bytes);
    return ull__graph_constant(call->graph, "", type, 1, &count, bytes,
                               (size_t)(count * (ull__type_bits(type) / 8)));
}

/* With a dimension of channels and ones behind it. */
static int by_channel(struct ull__graph *g, int vector, int rank, ull__dim channels)
{
    ull__dim dims[ULL_RANK] = {channels, 1, 1, 1, 1, 1, 1, 1};
    return ull__reshape(g, vector, rank - 1, dims);
}

/* Each sample's channel for itself: a layer norm of its points. Exporters write group norm so, with ones and zeros. */
void translate_instance_norm(struct call *call)
{
    struct ull__graph *g = call->graph;
    struct value *from = input(call, 0);
    if (from == NULL || from->rank < 3) {
        call_fail(call, "expected pictures");
        return;
    }
    ull__dim points = ull__dims_product(g, from->rank - 2, from->dims + 2);
    double epsilon = attribute_float(call, "epsilon", 1e-5);
    int scale = ones(call, from->type, points), x = tensor(call, 0);
    if (scale == ULL_NONE || x == ULL_NONE) {
        call_fail(call, "a channel has more points than are supported, or no known number of them");
        return;
    }
    int y = ull__reshape(g, x, 3, (ull__dim[]){from->dims[0], from->dims[1], points});
    y = ull__layer_norm(g, y, scale, ULL_NONE, 2, epsilon);
    y = ull__reshape(g, y, from->rank, from->dims);
    if (!is_all(call, 1, 1)) {
        int by = by_channel(g, tensor(call, 1), from->rank, from->dims[1]);
        y = ull__binary(g, ULL_BINARY_MUL, y, by);
    }
    if (!is_all(call, 2, 0)) {
        int by = by_channel(g, tensor(call, 2), from->rank, from->dims[1]);
        y = ull__binary(g, ULL_BINARY_ADD, y, by);
    }
    put(call, 0, y);
}

/* Classes become the last dimension. */
static int classes_last(struct ull__graph *g, int x)
{
    int rank = g->tensors[x].rank, order[ULL_RANK] = {0};
    for (int i = 1; i < rank - 1; ++i) {
        order[i] = i + 1;
    }
    order[rank - 1] = 1;
    return rank > 2 ? ull__transpose(g, x, order) : x;
}

/* The mean of the targets that count. */
void translate_loss(struct call *call)
{
    struct ull__graph *g = call->graph;
    int x = tensor(call, 0), target = tensor(call, 1);
    if (x == ULL_NONE || target == ULL_NONE) {
        return;
    }
    if (is(call, "NegativeLogLikelihoodLoss")) {
        const struct ull__tensor *of = &g->tensors[x];
        if (of->node == ULL_NONE || g->nodes[of->node].op != &ull__op_log_softmax ||
            g->nodes[of->node].attrs.axis.axis != 1) {
            call_fail(call, "it is supported behind LogSoftmax over dimension 1 alone");
            return;
        }
        x = g->nodes[of->node].inputs[0];
    }
    if (has_input(call, 2) || !attribute_is(call, "reduction", "mean", true)) {
        call_fail(call, "only the mean without weights of classes is supported");
        return;
    }
    if (g->tensors[x].rank < 2) {
        call_fail(call, "expected samples and classes");
        return;
    }
    /* -100 is what no target can be. */
    struct ull__loss_attrs attrs = {.ignored = attribute_int(call, "ignore_index", -100)};
    int y = ull__cross_entropy(g, classes_last(g, x), target, ULL_NONE, attrs);
    put(call, 0, y);
    if (wants_output(call, 1)) {
        put(call, 1, ull__log_softmax(g, x, 1));
    }
}
