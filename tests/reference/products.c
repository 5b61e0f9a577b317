/* products.c: products of matrices, convolutions and their gradients. */
#include "call.h"

void ref__matmul(struct call *call)
{
    const struct array *a = &call->in[0], *b = &call->in[1];
    struct array *out = call->out;
    bool ta = call->attrs->matmul.transpose_a, tb = call->attrs->matmul.transpose_b;
    int64_t inner = a->dims[a->rank - (ta ? 2 : 1)];
    int64_t index[ULL_RANK], of_a[ULL_RANK], of_b[ULL_RANK];
    for (int64_t i = 0; i < out->count; ++i) {
        ref__unravel(out, i, index);
        for (int j = 0; j < a->rank - 2; ++j) {
            of_a[j] = a->dims[j] == 1 ? 0 : index[out->rank - a->rank + j];
        }
        for (int j = 0; j < b->rank - 2; ++j) {
            of_b[j] = b->dims[j] == 1 ? 0 : index[out->rank - b->rank + j];
        }
        of_a[a->rank - (ta ? 1 : 2)] = index[out->rank - 2];
        of_b[b->rank - (tb ? 2 : 1)] = index[out->rank - 1];
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) {
            of_a[a->rank - (ta ? 2 : 1)] = k;
            of_b[b->rank - (tb ? 1 : 2)] = k;
            sum += a->data[ref__ravel(a, of_a)] * b->data[ref__ravel(b, of_b)];
        }
        out->data[i] = sum;
    }
}

/*
 * All of them are the same sum of products over (sample, channel of the large picture, channel of the small one,
 * place in the small one, place in the kernel); they differ in what is summed up.
 */
struct conv {
    const struct ull__window *window;
    int64_t samples, groups, large_each, small_each; /* channels of a group */
    int64_t size[2], small[2], kernel[2];
    const double *large, *little, *weights;
    double *to_large, *to_small, *to_weights; /* one of them */
};

static void visit_kernel(const struct conv *c, int64_t n, int64_t l, int64_t s, int64_t w,
                         const int64_t at[2])
{
    for (int64_t ky = 0; ky < c->kernel[0]; ++ky) {
        int64_t y = at[0] * c->window->stride[0] - c->window->before[0] + ky * c->window->dilation[0];
        for (int64_t kx = 0; kx < c->kernel[1]; ++kx) {
            int64_t x =
                at[1] * c->window->stride[1] - c->window->before[1] + kx * c->window->dilation[1];
            if (y < 0 || y >= c->size[0] || x < 0 || x >= c->size[1]) {
                continue;
            }
            int64_t in_large =
                ((n * c->groups * c->large_each + l) * c->size[0] + y) * c->size[1] + x;
            int64_t in_small =
                ((n * c->groups * c->small_each + s) * c->small[0] + at[0]) * c->small[1] + at[1];
            int64_t in_weights = (w * c->kernel[0] + ky) * c->kernel[1] + kx;
            if (c->to_large != NULL) {
                c->to_large[in_large] += c->little[in_small] * c->weights[in_weights];
            } else if (c->to_small != NULL) {
                c->to_small[in_small] += c->large[in_large] * c->weights[in_weights];
            } else {
                c->to_weights[in_weights] += c->large[in_large] * c->little[in_small];
            }
        }
    }
}

/* Weights are [channels of the small picture, channels of the large one in a group, kernel]. */
static void visit(const struct conv *c)
{
    for (int64_t n = 0; n < c->samples; ++n) {
        for (int64_t s = 0; s < c->groups * c->small_each; ++s) {
            for (int64_t i = 0; i < c->large_each; ++i) {
                int64_t l = s / c->small_each * c->large_each + i, w = s * c->large_each + i, at[2];
                for (at[0] = 0; at[0] < c->small[0]; ++at[0]) {
                    for (at[1] = 0; at[1] < c->small[1]; ++at[1]) {
                        visit_kernel(c, n, l, s, w, at);
                    }
                }
            }
        }
    }
}

static struct conv conv_of(const struct call *call, const struct array *large,
                           const struct array *small, const struct array *weights)
{
    int64_t groups = call->attrs->window.groups;
    return (struct conv){.window = &call->attrs->window,
                         .samples = large->dims[0],
                         .groups = groups,
                         .large_each = large->dims[1] / groups,
                         .small_each = small->dims[1] / groups,
                         .size = {large->dims[2], large->dims[3]},
                         .small = {small->dims[2], small->dims[3]},
                         .kernel = {weights->dims[2], weights->dims[3]}};
}

/* The sums begin at 0, or at the bias of the channel. */
static void begin(struct call *call)
{
    struct array *out = call->out;
    for (int64_t i = 0; i < out->count; ++i) {
        int64_t channel = i / (out->dims[2] * out->dims[3]) % out->dims[1];
        out->data[i] = ref__has(call, 2) ? call->in[2].data[channel] : 0;
    }
}

void ref__conv2d(struct call *call)
{
    struct conv c = conv_of(call, &call->in[0], call->out, &call->in[1]);
    c.large = call->in[0].data;
    c.weights = call->in[1].data;
    c.to_small = call->out->data;
    begin(call);
    visit(&c);
}

void ref__conv_transpose2d(struct call *call)
{
    struct conv c = conv_of(call, call->out, &call->in[0], &call->in[1]);
    c.little = call->in[0].data;
    c.weights = call->in[1].data;
    c.to_large = call->out->data;
    begin(call);
    visit(&c);
}

void ref__conv2d_grad_input(struct call *call)
{
    struct conv c = conv_of(call, call->out, &call->in[0], &call->in[1]);
    c.little = call->in[0].data;
    c.weights = call->in[1].data;
    c.to_large = call->out->data;
    begin(call);
    visit(&c);
}

void ref__conv2d_grad_weight(struct call *call)
{
    struct conv c = conv_of(call, &call->in[0], &call->in[1], call->out);
    c.large = call->in[0].data;
    c.little = call->in[1].data;
    c.to_weights = call->out->data;
    begin(call);
    visit(&c);
}
