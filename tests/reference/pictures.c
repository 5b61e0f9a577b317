/* pictures.c: pooling, upsampling and their gradients. */
#include "call.h"

/* The place in the picture of element k of the window at `at` along dimension i. */
static int64_t place(const struct ull__window *window, int i, int64_t at, int64_t k)
{
    return at * window->stride[i] - window->before[i] + k * window->dilation[i];
}

static bool is_inside(const struct array *x, int64_t y, int64_t z)
{
    return y >= 0 && y < x->dims[2] && z >= 0 && z < x->dims[3];
}

/* The first of the largest elements in the picture; without any, minus infinity and element 0. */
void ref__max_pool(struct call *call)
{
    const struct ull__window *window = &call->attrs->window;
    const struct array *x = &call->in[0];
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out[0].count; ++i) {
        ref__unravel(&call->out[0], i, index);
        double most = -INFINITY;
        int64_t which = -1;
        for (int k = 0; k < window->kernel[0] * window->kernel[1]; ++k) {
            int64_t y = place(window, 0, index[2], k / window->kernel[1]);
            int64_t z = place(window, 1, index[3], k % window->kernel[1]);
            if (is_inside(x, y, z)) {
                double value = x->data[ref__ravel(x, (int64_t[]){index[0], index[1], y, z})];
                if (which < 0 || value > most || (isnan(value) && !isnan(most))) {
                    most = value;
                    which = k;
                }
            }
        }
        call->out[0].data[i] = most;
        call->out[1].data[i] = which < 0 ? 0 : (double)which;
    }
}

static void clear(struct array *out)
{
    for (int64_t i = 0; i < out->count; ++i) {
        out->data[i] = 0;
    }
}

void ref__max_pool_grad(struct call *call)
{
    const struct ull__window *window = &call->attrs->window;
    int64_t index[ULL_RANK];
    clear(call->out);
    for (int64_t i = 0; i < call->in[0].count; ++i) {
        ref__unravel(&call->in[0], i, index);
        int64_t k = (int64_t)call->in[1].data[i];
        int64_t y = place(window, 0, index[2], k / window->kernel[1]);
        int64_t z = place(window, 1, index[3], k % window->kernel[1]);
        if (is_inside(call->out, y, z)) {
            int64_t to = ref__ravel(call->out, (int64_t[]){index[0], index[1], y, z});
            call->out->data[to] += call->in[0].data[i];
        }
    }
}

/* What an average is divided by: elements in the picture, or in it and its padding. */
static double divisor(const struct ull__window *window, const struct array *x, const int64_t *index)
{
    double count = 0;
    for (int k = 0; k < window->kernel[0] * window->kernel[1]; ++k) {
        int64_t y = place(window, 0, index[2], k / window->kernel[1]);
        int64_t z = place(window, 1, index[3], k % window->kernel[1]);
        if (window->count_padding) {
            count += y < x->dims[2] + window->after[0] && z < x->dims[3] + window->after[1];
        } else {
            count += is_inside(x, y, z);
        }
    }
    return count;
}

static void average(struct call *call, const struct array *large, const struct array *small, bool back)
{
    const struct ull__window *window = &call->attrs->window;
    int64_t index[ULL_RANK];
    clear(call->out);
    for (int64_t i = 0; i < small->count; ++i) {
        ref__unravel(small, i, index);
        double count = divisor(window, large, index);
        for (int k = 0; k < window->kernel[0] * window->kernel[1]; ++k) {
            int64_t y = place(window, 0, index[2], k / window->kernel[1]);
            int64_t z = place(window, 1, index[3], k % window->kernel[1]);
            if (is_inside(large, y, z)) {
                int64_t at = ref__ravel(large, (int64_t[]){index[0], index[1], y, z});
                if (back) {
                    large->data[at] += small->data[i] / count;
                } else {
                    small->data[i] += large->data[at] / count;
                }
            }
        }
    }
}

void ref__avg_pool(struct call *call)
{
    average(call, &call->in[0], call->out, false);
}

void ref__avg_pool_grad(struct call *call)
{
    average(call, call->out, &call->in[0], true);
}

static int64_t source(const struct call *call, const struct array *large, const struct array *small,
                      int64_t i)
{
    int64_t index[ULL_RANK];
    ref__unravel(large, i, index);
    index[2] /= call->attrs->window.stride[0];
    index[3] /= call->attrs->window.stride[1];
    return ref__ravel(small, index);
}

void ref__upsample_nearest(struct call *call)
{
    for (int64_t i = 0; i < call->out->count; ++i) {
        call->out->data[i] = call->in[0].data[source(call, call->out, &call->in[0], i)];
    }
}

void ref__upsample_nearest_grad(struct call *call)
{
    clear(call->out);
    for (int64_t i = 0; i < call->in[0].count; ++i) {
        call->out->data[source(call, &call->in[0], call->out, i)] += call->in[0].data[i];
    }
}
