/* updates.c: accumulation, what is asked of all gradients, and optimizers. */
#include "call.h"

/* Outputs lie in the arrays of the inputs whose new versions they are. Weights of 16 bits are rounded by who stores them. */
void ref__accumulate(struct call *call)
{
    bool adds = call->in[2].data[0] != 0;
    for (int64_t i = 0; i < call->out->count; ++i) {
        call->out->data[i] = (adds ? call->in[0].data[i] : 0) + call->in[1].data[i];
    }
}

void ref__finite(struct call *call)
{
    call->out->data[0] = 0;
    for (int i = 0; i < call->ins; ++i) {
        for (int64_t j = 0; j < call->in[i].count; ++j) {
            call->out->data[0] = call->out->data[0] != 0 || !isfinite(call->in[i].data[j]);
        }
    }
}

void ref__norm_square(struct call *call)
{
    call->out->data[0] = 0;
    for (int i = 0; i < call->ins; ++i) {
        for (int64_t j = 0; j < call->in[i].count; ++j) {
            call->out->data[0] += call->in[i].data[j] * call->in[i].data[j];
        }
    }
}

void ref__clip(struct call *call)
{
    double factor = ref__has(call, 0) ? 1 / call->in[0].data[0] : 1;
    double norm = ref__has(call, 1) ? sqrt(call->in[1].data[0]) * factor : 0;
    double limit = call->attrs->optimizer.limit;
    call->out->data[0] = norm > limit ? factor * limit / norm : factor;
}

void ref__loss_scale(struct call *call)
{
    const struct ull__scale_attrs *attrs = &call->attrs->scale;
    double *scale = call->out[0].data, *good = call->out[1].data, *left = call->out[2].data;
    if (call->in[3].data[0] != 0) {
        *good = 0;
        *left = fmax(*left - 1, 0);
        if (*left == 0) {
            *scale = fmax(*scale * attrs->backoff, attrs->floor);
        }
        return;
    }
    *good += 1;
    if (*good >= (double)attrs->interval) {
        *good = 0;
        *left = (double)attrs->hysteresis;
        *scale = fmin(*scale * attrs->growth, attrs->ceiling);
    }
}

void ref__count_step(struct call *call)
{
    call->out->data[0] += 1;
}

static double factor_of(const struct call *call)
{
    return ref__has(call, 3) ? call->in[3].data[0] : 1;
}

void ref__sgd(struct call *call)
{
    const struct ull__optimizer_attrs *attrs = &call->attrs->optimizer;
    double *w = call->out[0].data, rate = call->in[2].data[0];
    double *momentum = ref__has(call, 4) ? call->out[1].data : NULL;
    for (int64_t i = 0; i < call->out[0].count; ++i) {
        double d = call->in[1].data[i] * factor_of(call) + attrs->weight_decay * w[i];
        if (momentum != NULL) {
            momentum[i] = attrs->momentum * momentum[i] + d;
            d = attrs->nesterov ? d + attrs->momentum * momentum[i] : momentum[i];
        }
        w[i] -= rate * d;
        if (ref__has(call, 5)) {
            call->out[momentum != NULL ? 2 : 1].data[i] = w[i];
        }
    }
}

void ref__adam(struct call *call)
{
    const struct ull__optimizer_attrs *attrs = &call->attrs->optimizer;
    double *w = call->out[0].data, *m = call->out[1].data, *v = call->out[2].data;
    double rate = call->in[2].data[0], step = call->in[4].data[0];
    for (int64_t i = 0; i < call->out[0].count; ++i) {
        double d = call->in[1].data[i] * factor_of(call);
        if (attrs->decoupled) {
            w[i] -= rate * attrs->weight_decay * w[i];
        } else {
            d += attrs->weight_decay * w[i];
        }
        m[i] = attrs->beta1 * m[i] + (1 - attrs->beta1) * d;
        v[i] = attrs->beta2 * v[i] + (1 - attrs->beta2) * d * d;
        double first = m[i] / (1 - pow(attrs->beta1, step));
        double second = v[i] / (1 - pow(attrs->beta2, step));
        w[i] -= rate * first / (sqrt(second) + attrs->epsilon);
        if (ref__has(call, 7)) {
            call->out[3].data[i] = w[i];
        }
    }
}
