/*
 * attention_grad.c: the gradient of attention. Probabilities are made again of the products and the logarithms of the sums, in
 * blocks; a thread owns heads of keys, with all the queries that share them, so nothing is added by two.
 *
 *     p = exp(q k' * scale + mask - log), dp = do v', ds = p * (keep * dp - sum(do * o))
 *     dv = (keep * p)' do, dq = ds k * scale, dk = ds' q * scale
 *
 * f32 gradients are added where they lie, those of 16 bits in the workspace.
 */
#include "attention.h"

struct space {
    float *products, *slopes;        /* QUERIES x KEYS */
    float *q, *o, *d, *k, *v;        /* for 16 bits */
    float *turned;                   /* by query: sum of do * o */
    float *grad_q, *grad_k, *grad_v; /* for 16 bits: QUERIES, all keys, all keys x width */
};

static bool is_half(const struct ull__kernel *kernel)
{
    bool half = false;
    for (int i = 0; i < kernel->output_count; ++i) {
        half = half || kernel->outputs[i].type != ULL_TYPE_F32;
    }
    return half;
}

static int64_t space_of(const struct heads *h, float *at, struct space *space)
{
    int64_t queries = QUERIES * h->width, keys = KEYS * h->width;
    int64_t all = is_half(h->kernel) ? h->keys * h->width : 0;
    const struct part parts[] = {
        {&space->products, QUERIES * KEYS},
        {&space->slopes, QUERIES * KEYS},
        {&space->q, queries},
        {&space->o, queries},
        {&space->d, queries},
        {&space->grad_q, queries},
        {&space->k, keys},
        {&space->v, keys},
        {&space->turned, QUERIES},
        {&space->grad_k, all},
        {&space->grad_v, all},
    };
    return lay_parts(at, parts, (int)(sizeof(parts) / sizeof(parts[0])));
}

/* Where a gradient is added: rows of f32. */
struct target {
    struct matrix to;
    float *at;
    int64_t stride;
};

static struct target target(const struct heads *h, int part, int64_t sample, int64_t head,
                            float *buffer)
{
    int i = h->packed ? 0 : part;
    struct target t = {.to = matrix_of(h, h->kernel->outputs[i].type, h->run->out[i], h->packed,
                                       part, sample, head)};
    bool own = t.to.type != ULL_TYPE_F32;
    t.at = own ? buffer : (float *)(void *)t.to.at;
    t.stride = own ? h->width : t.to.stride;
    return t;
}

static void zero(const struct heads *h, const struct target *t, int64_t begin, int64_t rows)
{
    for (int64_t i = 0; i < rows; ++i) {
        memset(t->at + (begin + i) * t->stride, 0, (size_t)h->width * sizeof(float));
    }
}

/* Brings rows of a buffer to rows from `begin` on. */
static void bring(const struct heads *h, const struct target *t, int64_t begin, int64_t rows)
{
    for (int64_t i = 0; t->to.type != ULL_TYPE_F32 && i < rows; ++i) {
        ull__store_f32(t->to.type, t->at + i * h->width,
                       t->to.at + (begin + i) * t->to.stride * size_of(t->to.type), h->width);
    }
}

/* From products and dp of one query to keep * p and ds. */
static void slopes(const struct heads *h, const struct space *space, const struct block *b,
                   int64_t row, float logarithm)
{
    float *p = space->products + row * KEYS, *ds = space->slopes + row * KEYS, factors[KEYS];
    float turned = space->turned[row];
    int64_t begin, end;
    seen_part(h, b, row, &begin, &end);
    if (logarithm == -INFINITY) {
        begin = end = 0;
    }
    if (h->mask != NULL) {
        add_mask(h, b->sample, b->head, b->query + row, b->key + begin, p + begin, end - begin);
    }
    memset(p, 0, (size_t)begin * sizeof(*p));
    memset(ds, 0, (size_t)begin * sizeof(*ds));
    memset(p + end, 0, (size_t)(b->keys - end) * sizeof(*p));
    memset(ds + end, 0, (size_t)(b->keys - end) * sizeof(*ds));
    if (!h->drops) {
        SIMD for (int64_t i = begin; i < end; ++i)
        {
            float e = exp_low(p[i] - logarithm);
            p[i] = e;
            ds[i] = e * (ds[i] - turned);
        }
        return;
    }
    int64_t first = (b->head * h->queries + b->query + row) * h->keys + b->key;
    drop_factors(&h->drop, b->sample, first, b->keys, factors);
    SIMD for (int64_t i = begin; i < end; ++i)
    {
        float e = exp_low(p[i] - logarithm), keep = factors[i];
        p[i] = e * keep;
        ds[i] = e * (keep * ds[i] - turned);
    }
}

/* Gradients of one block of queries of a head, from all its keys. */
static void attend_back(const struct heads *h, const struct space *space, struct block *b,
                        const struct target *dq, const struct target *dk, const struct target *dv)
{
    const struct ull__kernel *kernel = h->kernel;
    const struct ull__cpu_library *library = kernel->state;
    const float *logarithms =
        (const float *)h->run->in[5] + (b->sample * h->heads + b->head) * h->queries + b->query;
    int64_t kv = b->head / (h->heads / h->kv_heads), n = h->width, first, last;
    int64_t ldq, ldk, ldv, ldo, ldd;
    struct matrix q = input_part(h, 0, b->sample, b->head), k = input_part(h, 1, b->sample, kv),
                  v = input_part(h, 2, b->sample, kv);
    struct matrix o =
        matrix_of(h, kernel->inputs[4].type, h->run->in[4], false, 0, b->sample, b->head);
    struct matrix d =
        matrix_of(h, kernel->inputs[6].type, h->run->in[6], false, 0, b->sample, b->head);
    const float *fq = rows_f32(h, &q, b->query, b->queries, space->q, &ldq);
    const float *fo = rows_f32(h, &o, b->query, b->queries, space->o, &ldo);
    const float *fd = rows_f32(h, &d, b->query, b->queries, space->d, &ldd);
    float *to_q = dq->at + (dq->to.type == ULL_TYPE_F32 ? b->query * dq->stride : 0);
    for (int64_t row = 0; row < b->queries; ++row) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; ++i) {
            sum += fd[row * ldd + i] * fo[row * ldo + i];
        }
        space->turned[row] = sum;
    }
    seen_keys(h, b->query, b->query + b->queries, &first, &last);
    for (b->key = first; b->key < last; b->key += KEYS) {
        int64_t m = b->queries, keys = b->keys = least(KEYS, last - b->key);
        const float *fk = rows_f32(h, &k, b->key, keys, space->k, &ldk);
        const float *fv = rows_f32(h, &v, b->key, keys, space->v, &ldv);
        ull__gemm(library, false, true, m, keys, n, h->scale, fq, ldq, fk, ldk, 0, space->products,
                  KEYS);
        ull__gemm(library, false, true, m, keys, n, 1, fd, ldd, fv, ldv, 0, space->slopes, KEYS);
        for (int64_t row = 0; row < m; ++row) {
            slopes(h, space, b, row, logarithms[row]);
        }
        ull__gemm(library, true, false, keys, n, m, 1, space->products, KEYS, fd, ldd, 1,
                  dv->at + b->key * dv->stride, dv->stride);
        ull__gemm(library, true, false, keys, n, m, h->scale, space->slopes, KEYS, fq, ldq, 1,
                  dk->at + b->key * dk->stride, dk->stride);
        ull__gemm(library, false, false, m, n, keys, h->scale, space->slopes, KEYS, fk, ldk, 1,
                  to_q, dq->stride);
    }
}

static void run_grad(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct heads h = heads_of(kernel, run, 7);
    struct space space;
    int64_t own = space_of(&h, NULL, &space), begin, end, share = h.heads / h.kv_heads;
    space_of(&h, (float *)run->workspace + thread * own, &space);
    ull__part(h.samples * h.kv_heads, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        int64_t sample = i / h.kv_heads, kv = i % h.kv_heads;
        struct target dk = target(&h, 1, sample, kv, space.grad_k);
        struct target dv = target(&h, 2, sample, kv, space.grad_v);
        zero(&h, &dk, 0, h.keys);
        zero(&h, &dv, 0, h.keys);
        for (int64_t j = 0; j < share; ++j) {
            struct block b = {.sample = sample, .head = kv * share + j};
            struct target dq = target(&h, 0, sample, b.head, space.grad_q);
            for (b.query = 0; b.query < h.queries; b.query += QUERIES) {
                b.queries = least(QUERIES, h.queries - b.query);
                zero(&h, &dq, dq.to.type == ULL_TYPE_F32 ? b.query : 0, b.queries);
                attend_back(&h, &space, &b, &dq, &dk, &dv);
                bring(&h, &dq, b.query, b.queries);
            }
        }
        bring(&h, &dk, 0, h.keys);
        bring(&h, &dv, 0, h.keys);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    bool real = is_real(kernel->outputs[0].type);
    for (int i = 0; i < kernel->input_count && i < 7; ++i) {
        real = real && (!kernel->inputs[i].there || is_real(kernel->inputs[i].type));
    }
    if (!real) {
        return no_types(kernel, err);
    }
    struct heads h = heads_of(kernel, NULL, 7);
    struct space space;
    kernel->workspace = space_of(&h, NULL, &space) * kernel->threads * (int64_t)sizeof(float);
    kernel->state = (void *)(uintptr_t)library; /* not ours: there is no `finish` */
    kernel->algorithm = "blocks";
    return ULL_OK;
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_attention_grad) = {
    .op = &ull__op_attention_grad,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .run = run_grad,
};
