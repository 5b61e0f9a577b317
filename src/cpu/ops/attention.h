/*
 * attention.h: what attention and its gradient share: where the heads lie, which keys a query sees, and blocks of
 * products in a thread's workspace.
 */
#ifndef ULLAGE_CPU_OPS_ATTENTION_H
#define ULLAGE_CPU_OPS_ATTENTION_H

#include <math.h>

#include "../gemm.h"
#include "drop.h"
#include "parts.h"
#include "row.h"

/* Queries and keys of a block. */
enum { QUERIES = 64, KEYS = 128 };

/* A matrix in memory: time by width of a head. */
struct matrix {
    enum ull__type type;
    char *at;
    int64_t stride; /* elements from row to row */
};

struct heads {
    const struct ull__attention_attrs *attrs;
    const struct ull__kernel *kernel;
    const struct ull__cpu_run *run;
    int64_t samples, queries, keys, width;
    int64_t heads, kv_heads;
    bool packed, heads_first;
    float scale;
    bool drops;
    struct drop drop;
    const struct ull__cpu_operand *mask; /* NULL: none */
    const void *mask_at;
};

ALWAYS bool has_in(const struct ull__kernel *kernel, int i)
{
    return i < kernel->input_count && kernel->inputs[i].there;
}

/* run NULL: shapes alone. */
ALWAYS struct heads heads_of(const struct ull__kernel *kernel, const struct ull__cpu_run *run,
                             int generator)
{
    const struct ull__attention_attrs *attrs = &kernel->attrs.attention;
    const struct ull__cpu_operand *q = &kernel->inputs[0];
    struct heads h = {.attrs = attrs, .kernel = kernel, .run = run};
    h.packed = !has_in(kernel, 1);
    h.heads_first = q->rank == 4;
    h.heads = attrs->heads;
    h.kv_heads = attrs->kv_heads;
    int64_t all = h.packed ? h.heads + 2 * h.kv_heads : h.heads;
    int time = h.heads_first ? 2 : 1;
    h.samples = q->dims[0];
    h.queries = q->dims[time];
    h.keys = h.packed ? h.queries : kernel->inputs[1].dims[time];
    h.width = h.heads_first ? q->dims[3] : q->dims[2] / all;
    h.scale = (float)(attrs->scale != 0 ? attrs->scale : 1 / sqrt((double)h.width));
    h.drops = attrs->dropout > 0;
    if (has_in(kernel, 3)) {
        h.mask = &kernel->inputs[3];
        h.mask_at = run != NULL ? run->in[3] : NULL;
    }
    if (h.drops && run != NULL) {
        h.drop = drop_of(run->in[generator], attrs->dropout, attrs->key);
    }
    return h;
}

/* Part 0: queries, 1: keys, 2: values, of an operand that may be packed. */
ALWAYS struct matrix matrix_of(const struct heads *h, enum ull__type type, const void *base,
                               bool packed, int part, int64_t sample, int64_t head)
{
    int64_t times = part == 0 ? h->queries : h->keys;
    int64_t heads = part == 0 ? h->heads : h->kv_heads, at;
    struct matrix m = {.type = type, .stride = h->width};
    if (h->heads_first) {
        at = (sample * heads + head) * times * h->width;
    } else {
        int64_t first = !packed || part == 0 ? 0 : part == 1 ? h->heads : h->heads + h->kv_heads;
        m.stride = (packed ? h->heads + 2 * h->kv_heads : heads) * h->width;
        at = sample * times * m.stride + (first + head) * h->width;
    }
    m.at = (char *)(uintptr_t)base + at * size_of(type);
    return m;
}

/* Input i of the kernel as part i, or the part of the packed input. */
ALWAYS struct matrix input_part(const struct heads *h, int part, int64_t sample, int64_t head)
{
    int i = h->packed ? 0 : part;
    return matrix_of(h, h->kernel->inputs[i].type, h->run->in[i], h->packed, part, sample, head);
}

/* Rows [begin, begin + n) as f32, *stride apart: where they lie, or in the buffer. */
ALWAYS const float *rows_f32(const struct heads *h, const struct matrix *m, int64_t begin,
                             int64_t n, float *buffer, int64_t *stride)
{
    const char *at = m->at + begin * m->stride * size_of(m->type);
    if (m->type == ULL_TYPE_F32) {
        *stride = m->stride;
        return (const float *)(const void *)at;
    }
    for (int64_t i = 0; i < n; ++i) {
        ull__load_f32(m->type, at + i * m->stride * size_of(m->type), buffer + i * h->width,
                      h->width);
    }
    *stride = h->width;
    return buffer;
}

/* The keys that any of the queries [begin, end) sees. */
ALWAYS void seen_keys(const struct heads *h, int64_t begin, int64_t end, int64_t *first, int64_t *last)
{
    int64_t window = least(h->attrs->window, h->queries + h->keys); /* no sum overflows */
    *first = window > 0 ? most(0, begin - window + 1) : 0;
    *last = window > 0 ? least(h->keys, end - 1 + window) : h->keys;
    *last = h->attrs->causal ? least(*last, end) : *last;
}

/* Where the elements of the mask for a query begin, and how far they are apart. */
ALWAYS int64_t mask_row(const struct heads *h, int64_t sample, int64_t head, int64_t query,
                        int64_t *stride)
{
    const int64_t index[4] = {sample, head, query, 0};
    int64_t at = 0, below = 1;
    *stride = 0;
    for (int i = h->mask->rank - 1; i >= 0; --i) {
        int dim = 4 - h->mask->rank + i;
        int64_t step = h->mask->dims[i] == 1 ? 0 : below;
        if (dim == 3) {
            *stride = step;
        } else {
            at += index[dim] * step;
        }
        below *= h->mask->dims[i];
    }
    return at;
}

/* Adds the mask to the products of a query with keys [first, first + n). */
ALWAYS void add_mask(const struct heads *h, int64_t sample, int64_t head, int64_t query,
                     int64_t first, float *row, int64_t n)
{
    int64_t stride, at = mask_row(h, sample, head, query, &stride);
    for (int64_t i = 0; i < n; ++i) {
        row[i] += f32_at(h->mask->type, h->mask_at, at + (first + i) * stride);
    }
}

/* A block of products of one head. */
struct block {
    int64_t sample, head;
    int64_t query, queries, key, keys; /* first and number */
};

/* The part of a block's row that its query sees. */
ALWAYS void seen_part(const struct heads *h, const struct block *b, int64_t row, int64_t *begin,
                      int64_t *end)
{
    int64_t first, last;
    seen_keys(h, b->query + row, b->query + row + 1, &first, &last);
    *begin = least(b->keys, most(0, first - b->key));
    *end = most(*begin, least(b->keys, last - b->key));
}

#endif
