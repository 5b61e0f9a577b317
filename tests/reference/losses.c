/* losses.c: cross-entropy, with and without the product before it, and squares. */
#include "call.h"

/*
 * What a sum is divided by: the count that is given, or what counts here. Where nothing counts, the loss and its
 * gradient are 0.
 */
static double per(double count)
{
    return count > 0 ? 1 / count : 0;
}

static bool counts(const struct call *call, double target)
{
    return (int64_t)target != call->attrs->loss.ignored;
}

static double valid(const struct call *call, const struct array *targets)
{
    double count = 0;
    for (int64_t i = 0; i < targets->count; ++i) {
        count += counts(call, targets->data[i]);
    }
    return count;
}

static double log_sum(const double *x, int64_t count)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        most = fmax(most, x[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
        sum += exp(x[i] - most);
    }
    return most + log(sum);
}

static int64_t target_of(double target, int64_t classes)
{
    if (!(target >= 0 && target < (double)classes)) {
        ref__die("target %g of %lld classes", target, (long long)classes);
    }
    return (int64_t)target;
}

/* Labels are smoothed: each class gets smoothing / classes, and the target what is left. */
static double row_loss(const struct call *call, const double *x, int64_t classes, double target,
                       double logarithm)
{
    double smoothing = call->attrs->loss.smoothing;
    double loss = (1 - smoothing) * (logarithm - x[target_of(target, classes)]);
    for (int64_t c = 0; c < classes && smoothing > 0; ++c) {
        loss += smoothing / (double)classes * (logarithm - x[c]);
    }
    return loss;
}

static double row_slope(const struct call *call, const double *x, int64_t c, int64_t classes,
                        double target, double logarithm)
{
    double smoothing = call->attrs->loss.smoothing;
    return exp(x[c] - logarithm) - (c == target_of(target, classes) ? 1 - smoothing : 0) -
           smoothing / (double)classes;
}

void ref__cross_entropy(struct call *call)
{
    const struct array *x = &call->in[0], *targets = &call->in[1];
    int64_t classes = x->dims[x->rank - 1];
    double sum = 0;
    for (int64_t r = 0; r < targets->count; ++r) {
        const double *row = x->data + r * classes;
        double logarithm = log_sum(row, classes);
        call->out[1].data[r] = logarithm;
        if (counts(call, targets->data[r])) {
            sum += row_loss(call, row, classes, targets->data[r], logarithm);
        }
    }
    call->out[0].data[0] = sum * per(ref__has(call, 2) ? call->in[2].data[0] : valid(call, targets));
}

void ref__cross_entropy_grad(struct call *call)
{
    const struct array *x = &call->in[0], *targets = &call->in[1];
    int64_t classes = x->dims[x->rank - 1];
    double factor =
        call->in[3].data[0] * per(ref__has(call, 4) ? call->in[4].data[0] : valid(call, targets));
    for (int64_t i = 0; i < x->count; ++i) {
        int64_t r = i / classes;
        call->out->data[i] = counts(call, targets->data[r])
                                 ? factor * row_slope(call, x->data + r * classes, i % classes,
                                                      classes, targets->data[r], call->in[2].data[r])
                                 : 0;
    }
}

/* The logits of one row. */
static void logits_of(const struct call *call, int64_t r, double *logits)
{
    int64_t classes = call->in[1].dims[0], width = call->in[1].dims[1];
    for (int64_t c = 0; c < classes; ++c) {
        logits[c] = 0;
        for (int64_t i = 0; i < width; ++i) {
            logits[c] += call->in[0].data[r * width + i] * call->in[1].data[c * width + i];
        }
    }
}

void ref__linear_cross_entropy(struct call *call)
{
    const struct array *targets = &call->in[2];
    int64_t classes = call->in[1].dims[0];
    double *logits = ref__alloc((size_t)classes, sizeof(*logits)), sum = 0;
    for (int64_t r = 0; r < targets->count; ++r) {
        logits_of(call, r, logits);
        double logarithm = log_sum(logits, classes);
        call->out[1].data[r] = logarithm;
        if (counts(call, targets->data[r])) {
            sum += row_loss(call, logits, classes, targets->data[r], logarithm);
        }
    }
    call->out[0].data[0] = sum * per(ref__has(call, 3) ? call->in[3].data[0] : valid(call, targets));
    free(logits);
}

void ref__linear_cross_entropy_grad(struct call *call)
{
    const struct array *x = &call->in[0], *w = &call->in[1], *targets = &call->in[2];
    int64_t classes = w->dims[0], width = w->dims[1];
    double *logits = ref__alloc((size_t)classes, sizeof(*logits));
    double factor =
        call->in[4].data[0] * per(ref__has(call, 5) ? call->in[5].data[0] : valid(call, targets));
    memset(call->out[0].data, 0, sizeof(double) * (size_t)x->count);
    memset(call->out[1].data, 0, sizeof(double) * (size_t)w->count);
    for (int64_t r = 0; r < targets->count; ++r) {
        logits_of(call, r, logits);
        for (int64_t c = 0; c < classes && counts(call, targets->data[r]); ++c) {
            double d =
                factor * row_slope(call, logits, c, classes, targets->data[r], call->in[3].data[r]);
            for (int64_t i = 0; i < width; ++i) {
                call->out[0].data[r * width + i] += d * w->data[c * width + i];
                call->out[1].data[c * width + i] += d * x->data[r * width + i];
            }
        }
    }
    free(logits);
}

void ref__mse(struct call *call)
{
    const struct array *x = &call->in[0], *y = &call->in[1];
    double sum = 0;
    for (int64_t i = 0; i < x->count; ++i) {
        sum += (x->data[i] - y->data[i]) * (x->data[i] - y->data[i]);
    }
    call->out[0].data[0] = sum * per(ref__has(call, 2) ? call->in[2].data[0] : (double)x->count);
}

void ref__mse_grad(struct call *call)
{
    const struct array *x = &call->in[0], *y = &call->in[1];
    double factor =
        call->in[2].data[0] * per(ref__has(call, 3) ? call->in[3].data[0] : (double)x->count);
    for (int64_t i = 0; i < x->count; ++i) {
        call->out->data[i] = 2 * factor * (x->data[i] - y->data[i]);
    }
}
