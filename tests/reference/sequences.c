/* sequences.c: attention, rotary positions. */
#include "call.h"

struct heads {
    const struct ull__attention_attrs *attrs;
    const struct array *mask, *generator; /* NULL: none */
    bool packed, heads_first;
    int64_t samples, queries, keys, width, row; /* row: of the packed array */
    double scale;
};

static struct heads heads_of(const struct call *call, int generator)
{
    const struct ull__attention_attrs *attrs = &call->attrs->attention;
    const struct array *q = &call->in[0];
    struct heads h = {.attrs = attrs, .packed = !ref__has(call, 1), .heads_first = q->rank == 4};
    h.mask = ref__has(call, 3) ? &call->in[3] : NULL;
    h.generator = attrs->dropout > 0 ? &call->in[generator] : NULL;
    h.samples = q->dims[0];
    h.queries = q->dims[h.heads_first ? 2 : 1];
    h.keys = h.packed ? h.queries : call->in[1].dims[h.heads_first ? 2 : 1];
    int all = h.packed ? attrs->heads + 2 * attrs->kv_heads : attrs->heads;
    h.row = q->dims[q->rank - 1];
    h.width = h.heads_first ? h.row : h.row / all;
    h.scale = attrs->scale != 0 ? attrs->scale : 1 / sqrt((double)h.width);
    return h;
}

/* Where vector (sample, head, time) begins: part 0 is q, 1 k, 2 v. A result is a q that is not packed. */
static int64_t at(const struct heads *h, int part, bool packed, int64_t n, int64_t head, int64_t time)
{
    int64_t heads = part == 0 ? h->attrs->heads : h->attrs->kv_heads;
    int64_t times = part == 0 ? h->queries : h->keys;
    if (h->heads_first) {
        return ((n * heads + head) * times + time) * h->width;
    }
    if (packed) {
        int64_t first = part == 0   ? 0
                        : part == 1 ? h->attrs->heads
                                    : h->attrs->heads + h->attrs->kv_heads;
        return (n * times + time) * h->row + (first + head) * h->width;
    }
    return ((n * times + time) * heads + head) * h->width;
}

static bool is_seen(const struct heads *h, int64_t query, int64_t key)
{
    int64_t window = h->attrs->window;
    if (h->attrs->causal && key > query) {
        return false;
    }
    return window == 0 || (key > query - window && key < query + window);
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        sum += a[i] * b[i];
    }
    return sum;
}

static const double *part_of(const struct call *call, const struct heads *h, int part)
{
    return call->in[h->packed ? 0 : part].data;
}

/* The product of a query and a key, scaled and masked; minus infinity where the key is not seen. */
static double score(const struct call *call, const struct heads *h, int64_t n, int64_t head,
                    int64_t query, int64_t key)
{
    int64_t kv = head / (h->attrs->heads / h->attrs->kv_heads);
    if (!is_seen(h, query, key)) {
        return -INFINITY;
    }
    double product = h->scale * dot(part_of(call, h, 0) + at(h, 0, h->packed, n, head, query),
                                    part_of(call, h, 1) + at(h, 1, h->packed, n, kv, key), h->width);
    if (h->mask != NULL) {
        struct array whole = {.rank = 4, .dims = {h->samples, h->attrs->heads, h->queries, h->keys}};
        int64_t index[4] = {n, head, query, key};
        product += h->mask->data[ref__broadcast(h->mask, &whole, index)];
    }
    return product;
}

/* What a probability is multiplied with by dropout. */
static double kept(const struct heads *h, int64_t n, int64_t head, int64_t query, int64_t key)
{
    if (h->generator == NULL) {
        return 1;
    }
    int64_t i = (head * h->queries + query) * h->keys + key;
    return ref__keeps(h->generator, h->attrs->key, h->attrs->dropout, n, i)
               ? 1 / (1 - h->attrs->dropout)
               : 0;
}

static void attend(struct call *call, const struct heads *h, int64_t n, int64_t head, int64_t query)
{
    int64_t kv = head / (h->attrs->heads / h->attrs->kv_heads);
    double *out = call->out[0].data + at(h, 0, false, n, head, query), most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < h->keys; ++j) {
        double of = score(call, h, n, head, query, j);
        most = isnan(most) || of < most ? most : of;
    }
    for (int64_t j = 0; j < h->keys && most != -INFINITY; ++j) {
        sum += exp(score(call, h, n, head, query, j) - most);
    }
    double logarithm = most != -INFINITY ? most + log(sum) : -INFINITY;
    call->out[1].data[(n * h->attrs->heads + head) * h->queries + query] = logarithm;
    memset(out, 0, sizeof(*out) * (size_t)h->width);
    for (int64_t j = 0; j < h->keys && most != -INFINITY; ++j) {
        double p = exp(score(call, h, n, head, query, j) - logarithm) * kept(h, n, head, query, j);
        const double *v = part_of(call, h, 2) + at(h, 2, h->packed, n, kv, j);
        for (int64_t i = 0; i < h->width && p != 0; ++i) {
            out[i] += p * v[i];
        }
    }
}

void ref__attention(struct call *call)
{
    struct heads h = heads_of(call, 4);
    for (int64_t n = 0; n < h.samples; ++n) {
        for (int64_t head = 0; head < h.attrs->heads; ++head) {
            for (int64_t query = 0; query < h.queries; ++query) {
                attend(call, &h, n, head, query);
            }
        }
    }
}

static void attend_back(struct call *call, const struct heads *h, int64_t n, int64_t head,
                        int64_t query)
{
    int64_t kv = head / (h->attrs->heads / h->attrs->kv_heads);
    const double *o = call->in[4].data + at(h, 0, false, n, head, query);
    const double *d = call->in[6].data + at(h, 0, false, n, head, query);
    double logarithm = call->in[5].data[(n * h->attrs->heads + head) * h->queries + query];
    const double *q = part_of(call, h, 0) + at(h, 0, h->packed, n, head, query);
    double *dq = call->out[0].data + at(h, 0, h->packed, n, head, query);
    for (int64_t j = 0; j < h->keys && logarithm != -INFINITY; ++j) {
        int64_t of_k = at(h, 1, h->packed, n, kv, j), of_v = at(h, 2, h->packed, n, kv, j);
        const double *k = part_of(call, h, 1) + of_k, *v = part_of(call, h, 2) + of_v;
        double *dk = call->out[h->packed ? 0 : 1].data + of_k;
        double *dv = call->out[h->packed ? 0 : 2].data + of_v;
        double p = exp(score(call, h, n, head, query, j) - logarithm);
        double keep = kept(h, n, head, query, j);
        double ds = p * (keep * dot(d, v, h->width) - dot(d, o, h->width)) * h->scale;
        for (int64_t i = 0; i < h->width && p != 0; ++i) {
            dv[i] += p * keep * d[i];
            dq[i] += ds * k[i];
            dk[i] += ds * q[i];
        }
    }
}

void ref__attention_grad(struct call *call)
{
    struct heads h = heads_of(call, 7);
    for (int i = 0; i < call->outs; ++i) {
        memset(call->out[i].data, 0, sizeof(double) * (size_t)call->out[i].count);
    }
    for (int64_t n = 0; n < h.samples; ++n) {
        for (int64_t head = 0; head < h.attrs->heads; ++head) {
            for (int64_t query = 0; query < h.queries; ++query) {
                attend_back(call, &h, n, head, query);
            }
        }
    }
}

/* Pair i of a head is turned by position * base^(-2 i / turned). */
void ref__rotary(struct call *call)
{
    const struct ull__rotary_attrs *attrs = &call->attrs->rotary;
    const struct array *x = &call->in[0];
    int64_t width = x->dims[2] / attrs->heads, turned = attrs->turned > 0 ? attrs->turned : width;
    memcpy(call->out->data, x->data, sizeof(double) * (size_t)x->count);
    for (int64_t row = 0; row < x->dims[0] * x->dims[1]; ++row) {
        for (int64_t head = 0; head < attrs->heads; ++head) {
            for (int64_t i = 0; i < turned / 2; ++i) {
                int64_t first = row * x->dims[2] + head * width;
                int64_t a = first + (attrs->interleaved ? 2 * i : i);
                int64_t b = attrs->interleaved ? a + 1 : a + turned / 2;
                double angle =
                    (double)(row % x->dims[1]) * pow(attrs->base, -2 * (double)i / (double)turned);
                double c = cos(angle), s = attrs->inverse ? -sin(angle) : sin(angle);
                call->out->data[a] = x->data[a] * c - x->data[b] * s;
                call->out->data[b] = x->data[b] * c + x->data[a] * s;
            }
        }
    }
}
