/*
 * optimizers.c: SGD and Adam: one pass over weight, gradient and state, all f32 but the gradient, which may be 16 bits, and the
 * copy of the weight in 16 bits that is made beside.
 */
#include <math.h>

#include "tile.h"

/* The number in a scalar input, or what stands for none. */
static float number(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int i,
                    float otherwise)
{
    return i < kernel->input_count && run->in[i] != NULL ? *(const float *)run->in[i] : otherwise;
}

static bool there(const struct ull__kernel *kernel, int i)
{
    return i < kernel->input_count && kernel->inputs[i].there;
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    bool sgd = kernel->op == &ull__op_sgd;
    (void)library;
    bool fits = is_real(kernel->inputs[1].type);
    for (int i = 0; i < kernel->input_count; ++i) {
        bool any = i == 1 || i == (sgd ? 5 : 7) || (!sgd && i == 4);
        fits = fits && (any || !there(kernel, i) || kernel->inputs[i].type == ULL_TYPE_F32);
    }
    fits = fits && (!there(kernel, sgd ? 5 : 7) || is_real(kernel->inputs[sgd ? 5 : 7].type));
    fits = fits && (sgd || kernel->inputs[4].type == ULL_TYPE_I64);
    return fits ? ULL_OK : no_types(kernel, err);
}

struct sgd {
    float rate, factor, decay, momentum;
    bool nesterov;
};

static void sgd_run(const struct sgd *of, float *w, const float *g, float *m, int64_t n)
{
    const float rate = of->rate, factor = of->factor, decay = of->decay, momentum = of->momentum;
    if (m == NULL) {
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            w[i] -= rate * (g[i] * factor + decay * w[i]);
        }
    } else if (of->nesterov) {
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float d = g[i] * factor + decay * w[i];
            float v = momentum * m[i] + d;
            m[i] = v;
            w[i] -= rate * (d + momentum * v);
        }
    } else {
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            float v = momentum * m[i] + (g[i] * factor + decay * w[i]);
            m[i] = v;
            w[i] -= rate * v;
        }
    }
}

/* Outputs are versions of inputs in their memory: weight, then momentum and 16-bit weight if they are there. */
static void run_sgd(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__optimizer_attrs *attrs = &kernel->attrs.optimizer;
    struct sgd of = {
        .rate = number(kernel, run, 2, 0),
        .factor = number(kernel, run, 3, 1),
        .decay = (float)attrs->weight_decay,
        .momentum = (float)attrs->momentum,
        .nesterov = attrs->nesterov,
    };
    bool moves = there(kernel, 4);
    void *half = there(kernel, 5) ? run->out[moves ? 2 : 1] : NULL;
    float *w = run->out[0], tile[TILE];
    int64_t begin, end;
    if (w == NULL) {
        return;
    }
    ull__part(kernel->inputs[0].elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        n = least(TILE, end - begin);
        const float *g = read_f32(kernel->inputs[1].type, run->in[1], begin, n, tile);
        sgd_run(&of, w + begin, g, moves ? (float *)run->out[1] + begin : NULL, n);
        if (half != NULL) {
            ull__store_f32(kernel->inputs[5].type, w + begin,
                           (char *)half + begin * size_of(kernel->inputs[5].type), n);
        }
    }
}

struct adam {
    float factor, decay,
        shrink; /* decay: added to the gradient; shrink: what weights are multiplied with */
    float beta1, beta2, rest1, rest2;
    float step, root, epsilon; /* rate / correction of the first, 1 / root of that of the second */
};

static void adam_run(const struct adam *of, float *w, const float *g, float *m, float *v, int64_t n)
{
    const struct adam a = *of;
    SIMD for (int64_t i = 0; i < n; ++i)
    {
        float d = g[i] * a.factor + a.decay * w[i];
        float first = a.beta1 * m[i] + a.rest1 * d;
        float second = a.beta2 * v[i] + a.rest2 * d * d;
        m[i] = first;
        v[i] = second;
        w[i] = w[i] * a.shrink - a.step * first / (sqrtf(second) * a.root + a.epsilon);
    }
}

static void run_adam(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    const struct ull__optimizer_attrs *attrs = &kernel->attrs.optimizer;
    float rate = number(kernel, run, 2, 0);
    double step = (double)*(const int64_t *)run->in[4];
    struct adam of = {
        .factor = number(kernel, run, 3, 1),
        .decay = attrs->decoupled ? 0 : (float)attrs->weight_decay,
        .shrink = attrs->decoupled ? (float)(1 - (double)rate * attrs->weight_decay) : 1,
        .beta1 = (float)attrs->beta1,
        .beta2 = (float)attrs->beta2,
        .rest1 = (float)(1 - attrs->beta1),
        .rest2 = (float)(1 - attrs->beta2),
        .step = (float)((double)rate / (1 - pow(attrs->beta1, step))),
        .root = (float)(1 / sqrt(1 - pow(attrs->beta2, step))),
        .epsilon = (float)attrs->epsilon,
    };
    float *w = run->out[0], *m = run->out[1], *v = run->out[2], tile[TILE];
    void *half = there(kernel, 7) ? run->out[3] : NULL;
    int64_t begin, end;
    if (w == NULL) {
        return;
    }
    ull__part(kernel->inputs[0].elements, UNIT, thread, run->threads, &begin, &end);
    for (int64_t n; begin < end; begin += n) {
        n = least(TILE, end - begin);
        const float *g = read_f32(kernel->inputs[1].type, run->in[1], begin, n, tile);
        adam_run(&of, w + begin, g, m + begin, v + begin, n);
        if (half != NULL) {
            ull__store_f32(kernel->inputs[7].type, w + begin,
                           (char *)half + begin * size_of(kernel->inputs[7].type), n);
        }
    }
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_sgd) = {
    .op = &ull__op_sgd,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_sgd,
};

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_adam) = {
    .op = &ull__op_adam,
    .layouts = ULL_CPU_SAME,
    .prepare = prepare,
    .run = run_adam,
};
