/* norms.c: normalizations and their gradients, sums over dimensions, softmax. */
#include "call.h"

/* --- Batch norm: groups of samples --- */

struct group {
    int64_t first, count; /* samples */
    int64_t channels, below;
};

static int64_t groups_of(const struct call *call, const struct array *x)
{
    int64_t group = call->attrs->norm.group;
    return group == 0 ? 1 : (x->dims[0] + group - 1) / group;
}

static struct group group_of(const struct call *call, const struct array *x, int64_t g)
{
    int64_t size = call->attrs->norm.group == 0 ? x->dims[0] : call->attrs->norm.group;
    int64_t left = x->dims[0] - g * size;
    return (struct group){.first = g * size,
                          .count = left < size ? left : size,
                          .channels = x->dims[1],
                          .below = ref__span(x, 2, x->rank)};
}

/* Element i of channel c in a group. */
static int64_t in_group(const struct group *group, int64_t c, int64_t i)
{
    int64_t sample = group->first + i / group->below;
    return (sample * group->channels + c) * group->below + i % group->below;
}

/* The running variance is made of the unbiased one; that of a single element is 0. */
static void statistics(struct call *call, int64_t g, int64_t c)
{
    const struct array *x = &call->in[0];
    const struct ull__norm_attrs *attrs = &call->attrs->norm;
    struct group group = group_of(call, x, g);
    int64_t n = group.count * group.below;
    double mean = 0, var = 0;
    for (int64_t i = 0; i < n; ++i) {
        mean += x->data[in_group(&group, c, i)] / (double)n;
    }
    for (int64_t i = 0; i < n; ++i) {
        double off = x->data[in_group(&group, c, i)] - mean;
        var += off * off / (double)n;
    }
    call->out[1].data[g * group.channels + c] = mean;
    call->out[2].data[g * group.channels + c] = 1 / sqrt(var + attrs->epsilon);
    if (n > 0) {
        double unbiased = n > 1 ? var * (double)n / (double)(n - 1) : var;
        double *old_mean = &call->out[3].data[c], *old_var = &call->out[4].data[c];
        *old_mean = (1 - attrs->momentum) * *old_mean + attrs->momentum * mean;
        *old_var = (1 - attrs->momentum) * *old_var + attrs->momentum * unbiased;
    }
}

void ref__batch_norm(struct call *call)
{
    const struct array *x = &call->in[0];
    bool training = call->attrs->norm.training;
    for (int64_t g = 0; g < groups_of(call, x); ++g) {
        struct group group = group_of(call, x, g);
        for (int64_t c = 0; c < group.channels; ++c) {
            if (training) {
                statistics(call, g, c);
            }
            int64_t at = g * group.channels + c;
            double mean = training ? call->out[1].data[at] : call->in[3].data[c];
            double rstd = training ? call->out[2].data[at]
                                   : 1 / sqrt(call->in[4].data[c] + call->attrs->norm.epsilon);
            for (int64_t i = 0; i < group.count * group.below; ++i) {
                int64_t e = in_group(&group, c, i);
                call->out[0].data[e] =
                    (x->data[e] - mean) * rstd * call->in[1].data[c] + call->in[2].data[c];
            }
        }
    }
}

static void clear(struct array *out)
{
    for (int64_t i = 0; i < out->count; ++i) {
        out->data[i] = 0;
    }
}

void ref__batch_norm_grad(struct call *call)
{
    const struct array *dy = &call->in[0], *x = &call->in[1];
    clear(&call->out[1]);
    clear(&call->out[2]);
    for (int64_t g = 0; g < groups_of(call, x); ++g) {
        struct group group = group_of(call, x, g);
        double n = (double)(group.count * group.below);
        for (int64_t c = 0; c < group.channels; ++c) {
            double mean = call->in[3].data[g * group.channels + c];
            double rstd = call->in[4].data[g * group.channels + c], sum = 0, turned = 0;
            for (int64_t i = 0; i < group.count * group.below; ++i) {
                int64_t e = in_group(&group, c, i);
                sum += dy->data[e];
                turned += dy->data[e] * (x->data[e] - mean) * rstd;
            }
            for (int64_t i = 0; i < group.count * group.below; ++i) {
                int64_t e = in_group(&group, c, i);
                double unit = (x->data[e] - mean) * rstd;
                call->out[0].data[e] =
                    call->in[2].data[c] * rstd * (dy->data[e] - sum / n - unit * turned / n);
            }
            call->out[1].data[c] += turned;
            call->out[2].data[c] += sum;
        }
    }
}

/* --- Layer and RMS norm: rows --- */

void ref__layer_norm(struct call *call)
{
    const struct array *x = &call->in[0];
    int axis = call->attrs->norm.axis;
    int64_t rows = ref__span(x, 0, axis), width = ref__span(x, axis, x->rank);
    for (int64_t r = 0; r < rows; ++r) {
        const double *row = x->data + r * width;
        double mean = 0, var = 0;
        for (int64_t i = 0; i < width; ++i) {
            mean += row[i] / (double)width;
        }
        for (int64_t i = 0; i < width; ++i) {
            var += (row[i] - mean) * (row[i] - mean) / (double)width;
        }
        double rstd = 1 / sqrt(var + call->attrs->norm.epsilon);
        for (int64_t i = 0; i < width; ++i) {
            call->out[0].data[r * width + i] = (row[i] - mean) * rstd * call->in[1].data[i] +
                                               (ref__has(call, 2) ? call->in[2].data[i] : 0);
        }
        call->out[1].data[r] = mean;
        call->out[2].data[r] = rstd;
    }
}

void ref__layer_norm_grad(struct call *call)
{
    const struct array *dy = &call->in[0], *x = &call->in[1], *scale = &call->in[2];
    int axis = call->attrs->norm.axis;
    int64_t rows = ref__span(x, 0, axis), width = ref__span(x, axis, x->rank);
    clear(&call->out[1]);
    clear(&call->out[2]);
    for (int64_t r = 0; r < rows; ++r) {
        double mean = call->in[3].data[r], rstd = call->in[4].data[r], sum = 0, turned = 0;
        for (int64_t i = 0; i < width; ++i) {
            double d = dy->data[r * width + i], unit = (x->data[r * width + i] - mean) * rstd;
            sum += d * scale->data[i] / (double)width;
            turned += d * scale->data[i] * unit / (double)width;
            call->out[1].data[i] += d * unit;
            call->out[2].data[i] += d;
        }
        for (int64_t i = 0; i < width; ++i) {
            double d = dy->data[r * width + i], unit = (x->data[r * width + i] - mean) * rstd;
            call->out[0].data[r * width + i] = rstd * (d * scale->data[i] - sum - unit * turned);
        }
    }
}

void ref__rms_norm(struct call *call)
{
    const struct array *x = &call->in[0];
    int64_t rows = ref__span(x, 0, x->rank - 1), width = x->dims[x->rank - 1];
    for (int64_t r = 0; r < rows; ++r) {
        double square = 0;
        for (int64_t i = 0; i < width; ++i) {
            square += x->data[r * width + i] * x->data[r * width + i] / (double)width;
        }
        double factor = 1 / sqrt(square + call->attrs->norm.epsilon);
        for (int64_t i = 0; i < width; ++i) {
            call->out[0].data[r * width + i] = x->data[r * width + i] * factor * call->in[1].data[i];
        }
        call->out[1].data[r] = factor;
    }
}

void ref__rms_norm_grad(struct call *call)
{
    const struct array *dy = &call->in[0], *x = &call->in[1], *scale = &call->in[2];
    int64_t rows = ref__span(x, 0, x->rank - 1), width = x->dims[x->rank - 1];
    clear(&call->out[1]);
    for (int64_t r = 0; r < rows; ++r) {
        double factor = call->in[3].data[r], turned = 0;
        for (int64_t i = 0; i < width; ++i) {
            double d = dy->data[r * width + i], unit = x->data[r * width + i] * factor;
            turned += d * scale->data[i] * unit / (double)width;
            call->out[1].data[i] += d * unit;
        }
        for (int64_t i = 0; i < width; ++i) {
            double d = dy->data[r * width + i], unit = x->data[r * width + i] * factor;
            call->out[0].data[r * width + i] = factor * (d * scale->data[i] - unit * turned);
        }
    }
}

/* --- Over some dimensions --- */

/* The element of what is reduced that element `index` belongs to; `small` with or without the dimensions of 1. */
static int64_t reduced(const struct call *call, const int64_t *index, const struct array *x)
{
    int64_t at = 0;
    for (int i = 0; i < x->rank; ++i) {
        if ((call->attrs->reduce.axes >> i & 1) == 0) {
            at = at * x->dims[i] + index[i];
        }
    }
    return at;
}

static double first_value(int kind)
{
    return kind == ULL_REDUCE_MAX    ? -INFINITY
           : kind == ULL_REDUCE_MIN  ? INFINITY
           : kind == ULL_REDUCE_PROD ? 1
                                     : 0;
}

static double joined(int kind, double sum, double x)
{
    switch ((enum ull__reduce)kind) {
    case ULL_REDUCE_SUM:
    case ULL_REDUCE_MEAN:
        return sum + x;
    case ULL_REDUCE_MAX:
        return isnan(sum) || sum > x ? sum : x;
    case ULL_REDUCE_MIN:
        return isnan(sum) || sum < x ? sum : x;
    case ULL_REDUCE_PROD:
        return sum * x;
    case ULL_REDUCE_SUM_SQUARE:
    case ULL_REDUCE_L2:
        return sum + x * x;
    case ULL_REDUCE_L1:
        return sum + fabs(x);
    case ULL_REDUCES:
        break;
    }
    ref__die("no reduction %d", kind);
}

/* How many elements one result is made of. */
static double each(const struct call *call, const struct array *x)
{
    double count = 1;
    for (int i = 0; i < x->rank; ++i) {
        count *= (call->attrs->reduce.axes >> i & 1) != 0 ? (double)x->dims[i] : 1;
    }
    return count;
}

void ref__reduce(struct call *call)
{
    const struct array *x = &call->in[0];
    int kind = call->attrs->reduce.kind;
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        call->out->data[i] = first_value(kind);
    }
    for (int64_t i = 0; i < x->count; ++i) {
        ref__unravel(x, i, index);
        double *to = &call->out->data[reduced(call, index, x)];
        *to = joined(kind, *to, x->data[i]);
    }
    for (int64_t i = 0; i < call->out->count; ++i) {
        double *y = &call->out->data[i];
        *y = kind == ULL_REDUCE_MEAN ? *y / each(call, x) : kind == ULL_REDUCE_L2 ? sqrt(*y) : *y;
    }
}

/* The product of all that go into the same result but element `but`; or how many of them are equal to y. */
static double others(const struct call *call, int64_t but, bool product)
{
    const struct array *x = &call->in[1];
    int64_t index[ULL_RANK];
    ref__unravel(x, but, index);
    int64_t result = reduced(call, index, x);
    double of = product ? 1 : 0;
    for (int64_t i = 0; i < x->count; ++i) {
        ref__unravel(x, i, index);
        if (reduced(call, index, x) == result) {
            if (product) {
                of *= i != but ? x->data[i] : 1;
            } else {
                of += x->data[i] == call->in[2].data[result];
            }
        }
    }
    return of;
}

static double reduce_slope(const struct call *call, int64_t i, int64_t result)
{
    double x = ref__has(call, 1) ? call->in[1].data[i] : 0;
    double y = ref__has(call, 2) ? call->in[2].data[result] : 0;
    switch (call->attrs->reduce.kind) {
    case ULL_REDUCE_SUM:
        return 1;
    case ULL_REDUCE_MEAN:
        return 1 / each(call, call->out);
    case ULL_REDUCE_MAX:
    case ULL_REDUCE_MIN:
        return x == y ? 1 / others(call, i, false) : 0; /* those that are equal share it */
    case ULL_REDUCE_PROD:
        return others(call, i, true);
    case ULL_REDUCE_SUM_SQUARE:
        return 2 * x;
    case ULL_REDUCE_L1:
        return (x > 0) - (x < 0);
    case ULL_REDUCE_L2:
        return y == 0 ? 0 : x / y;
    default:
        ref__die("no reduction %d", call->attrs->reduce.kind);
    }
}

void ref__reduce_grad(struct call *call)
{
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        ref__unravel(call->out, i, index);
        int64_t result = reduced(call, index, call->out);
        call->out->data[i] = call->in[0].data[result] * reduce_slope(call, i, result);
    }
}

/* --- Softmax: lines along an axis --- */

struct lines {
    int64_t above, size, below;
};

static struct lines lines_of(const struct call *call, const struct array *x)
{
    int axis = call->attrs->axis.axis;
    return (struct lines){ref__span(x, 0, axis), x->dims[axis], ref__span(x, axis + 1, x->rank)};
}

static void softmax(struct call *call, bool logarithm)
{
    struct lines lines = lines_of(call, &call->in[0]);
    for (int64_t l = 0; l < lines.above * lines.below; ++l) {
        int64_t first = l / lines.below * lines.size * lines.below + l % lines.below;
        const double *x = call->in[0].data + first;
        double *y = call->out->data + first, most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < lines.size; ++i) {
            most = fmax(most, x[i * lines.below]);
        }
        for (int64_t i = 0; i < lines.size; ++i) {
            sum += exp(x[i * lines.below] - most);
        }
        for (int64_t i = 0; i < lines.size; ++i) {
            double off = x[i * lines.below] - most;
            y[i * lines.below] = logarithm ? off - log(sum) : exp(off) / sum;
        }
    }
}

void ref__softmax(struct call *call)
{
    softmax(call, false);
}

void ref__log_softmax(struct call *call)
{
    softmax(call, true);
}

static void softmax_grad(struct call *call, bool logarithm)
{
    struct lines lines = lines_of(call, &call->in[0]);
    for (int64_t l = 0; l < lines.above * lines.below; ++l) {
        int64_t first = l / lines.below * lines.size * lines.below + l % lines.below;
        const double *dy = call->in[0].data + first, *y = call->in[1].data + first;
        double *dx = call->out->data + first, sum = 0;
        for (int64_t i = 0; i < lines.size; ++i) {
            sum += dy[i * lines.below] * (logarithm ? 1 : y[i * lines.below]);
        }
        for (int64_t i = 0; i < lines.size; ++i) {
            double d = dy[i * lines.below], p = y[i * lines.below];
            dx[i * lines.below] = logarithm ? d - exp(p) * sum : p * (d - sum);
        }
    }
}

void ref__softmax_grad(struct call *call)
{
    softmax_grad(call, false);
}

void ref__log_softmax_grad(struct call *call)
{
    softmax_grad(call, true);
}
