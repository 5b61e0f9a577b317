/*
 * attention.c: softmax(q k' * scale + mask) v, a block of queries at a time over blocks of keys, with the maximum and the
 * sum of each query so far; the products are never whole. A thread owns blocks of queries.
 *
 * Source: FlashAttention-2 (Dao, 2023). A query that sees no key gets zeros and minus infinity.
 */
#include "attention.h"

/* A thread's workspace, in floats. */
struct space {
    float *products, *sums; /* QUERIES x KEYS, QUERIES x width */
    float *q, *k, *v;       /* for 16 bits */
    float *most, *total;    /* by query */
};

static int64_t space_of(const struct heads *h, float *at, struct space *space)
{
    const struct part parts[] = {
        {&space->products, QUERIES * KEYS}, {&space->sums, QUERIES * h->width},
        {&space->q, QUERIES * h->width},    {&space->k, KEYS * h->width},
        {&space->v, KEYS * h->width},       {&space->most, QUERIES},
        {&space->total, QUERIES},
    };
    return lay_parts(at, parts, (int)(sizeof(parts) / sizeof(parts[0])));
}

/* From products to exponentials of one query; its sums so far are scaled to the new maximum. */
static void exponentials(const struct heads *h, const struct space *space, const struct block *b,
                         int64_t row)
{
    float *p = space->products + row * KEYS, *sums = space->sums + row * h->width;
    float old = space->most[row], factors[KEYS], total = 0;
    int64_t begin, end;
    seen_part(h, b, row, &begin, &end);
    if (h->mask != NULL) {
        add_mask(h, b->sample, b->head, b->query + row, b->key + begin, p + begin, end - begin);
    }
    float top = row_max(p + begin, end - begin, old);
    for (int64_t i = 0; i < b->keys; ++i) {
        p[i] = i >= begin && i < end && top != -INFINITY ? p[i] : -INFINITY;
    }
    if (top == -INFINITY) {
        memset(p, 0, (size_t)b->keys * sizeof(*p));
        return;
    }
    int64_t n = b->keys;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) {
        float e = exp_low(p[i] - top);
        p[i] = e;
        total += e;
    }
    float scale = exp_low(old - top);
    space->most[row] = top;
    space->total[row] = space->total[row] * scale + total;
    if (scale != 1) {
        SIMD for (int64_t i = 0; i < h->width; ++i)
        {
            sums[i] *= scale;
        }
    }
    if (h->drops) {
        int64_t first = (b->head * h->queries + b->query + row) * h->keys + b->key;
        drop_factors(&h->drop, b->sample, first, n, factors);
        SIMD for (int64_t i = 0; i < n; ++i)
        {
            p[i] *= factors[i];
        }
    }
}

static void attend(const struct heads *h, const struct space *space, struct block *b,
                   const struct matrix *out, float *logarithms)
{
    const struct ull__cpu_library *library = h->kernel->state;
    int64_t kv = b->head / (h->heads / h->kv_heads), first, last, ldq, ldk, ldv;
    struct matrix q = input_part(h, 0, b->sample, b->head), k = input_part(h, 1, b->sample, kv),
                  v = input_part(h, 2, b->sample, kv);
    const float *queries = rows_f32(h, &q, b->query, b->queries, space->q, &ldq);
    memset(space->sums, 0, (size_t)(b->queries * h->width) * sizeof(float));
    for (int64_t i = 0; i < b->queries; ++i) {
        space->most[i] = -INFINITY;
        space->total[i] = 0;
    }
    seen_keys(h, b->query, b->query + b->queries, &first, &last);
    for (b->key = first; b->key < last; b->key += KEYS) {
        b->keys = least(KEYS, last - b->key);
        const float *keys = rows_f32(h, &k, b->key, b->keys, space->k, &ldk);
        ull__gemm(library, false, true, b->queries, b->keys, h->width, h->scale, queries, ldq, keys,
                  ldk, 0, space->products, KEYS);
        for (int64_t row = 0; row < b->queries; ++row) {
            exponentials(h, space, b, row);
        }
        const float *values = rows_f32(h, &v, b->key, b->keys, space->v, &ldv);
        ull__gemm(library, false, false, b->queries, h->width, b->keys, 1, space->products, KEYS,
                  values, ldv, 1, space->sums, h->width);
    }
    for (int64_t row = 0; row < b->queries; ++row) {
        float *sums = space->sums + row * h->width, total = space->total[row];
        float factor = total == 0 ? 0 : 1 / total;
        for (int64_t i = 0; i < h->width; ++i) {
            sums[i] *= factor;
        }
        ull__store_f32(out->type, sums,
                       out->at + (b->query + row) * out->stride * size_of(out->type), h->width);
        logarithms[row] = total == 0 ? -INFINITY : space->most[row] + logf(total);
    }
}

static void run_attention(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread)
{
    struct heads h = heads_of(kernel, run, 4);
    struct space space;
    int64_t blocks = (h.queries + QUERIES - 1) / QUERIES, begin, end;
    int64_t own = space_of(&h, NULL, &space);
    space_of(&h, (float *)run->workspace + thread * own, &space);
    ull__part(h.samples * h.heads * blocks, 1, thread, run->threads, &begin, &end);
    for (int64_t i = begin; i < end; ++i) {
        struct block b = {.sample = i / blocks / h.heads, .head = i / blocks % h.heads};
        b.query = i % blocks * QUERIES;
        b.queries = least(QUERIES, h.queries - b.query);
        struct matrix out =
            matrix_of(&h, kernel->outputs[0].type, run->out[0], false, 0, b.sample, b.head);
        attend(&h, &space, &b, &out, (float *)run->out[1] + i / blocks * h.queries + b.query);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    bool real = is_real(kernel->outputs[0].type);
    for (int i = 0; i < kernel->input_count && i < 4; ++i) {
        real = real && (!kernel->inputs[i].there || is_real(kernel->inputs[i].type));
    }
    if (!real) {
        return no_types(kernel, err);
    }
    struct heads h = heads_of(kernel, NULL, 4);
    struct space space;
    kernel->workspace = space_of(&h, NULL, &space) * kernel->threads * (int64_t)sizeof(float);
    kernel->state = (void *)(uintptr_t)library; /* not ours: there is no `finish` */
    kernel->algorithm = "blocks";
    return ULL_OK;
}

const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_attention) = {
    .op = &ull__op_attention,
    .layouts = ULL_CPU_ROWS,
    .prepare = prepare,
    .run = run_attention,
};
