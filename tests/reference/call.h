/* call.h: what the loops of an operator get: arrays with their shapes. Inside of tests/reference. */
#ifndef ULLAGE_TEST_REFERENCE_CALL_H
#define ULLAGE_TEST_REFERENCE_CALL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

struct array {
    double *data;
    enum ull__type type;
    int rank;
    int64_t dims[ULL_RANK], count;
};

struct call {
    const struct ull__node *node;
    const union ull__attrs *attrs;
    struct array *in, *out; /* data NULL: not there */
    int ins, outs;
    const struct ull__dims *symbols;
    const int64_t *values;
};

#define X(name) void ref__##name(struct call *call);
#include "ops.def"
#undef X

/* A node's operands, and their end. */
struct call ref__call(const struct ref *ref, int node);
void ref__call_finish(const struct ref *ref, struct call *call);
const struct ull__graph *ref__graph(const struct ref *ref);

_Noreturn void ref__die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *ref__alloc(size_t count, size_t size);

static inline bool ref__has(const struct call *call, int i)
{
    return i < call->ins && call->in[i].data != NULL;
}

static inline int64_t ref__value(const struct call *call, ull__dim dim)
{
    return ull__dim_value(call->symbols, dim, call->values);
}

/* Product of dims from `from` on and before `to`. */
static inline int64_t ref__span(const struct array *a, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; ++i) {
        product *= a->dims[i];
    }
    return product;
}

/* Where in rows an element is, and back. */
static inline void ref__unravel(const struct array *a, int64_t at, int64_t *index)
{
    for (int i = a->rank - 1; i >= 0; --i) {
        index[i] = at % a->dims[i];
        at /= a->dims[i];
    }
}

static inline int64_t ref__ravel(const struct array *a, const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < a->rank; ++i) {
        at = at * a->dims[i] + index[i];
    }
    return at;
}

/* The place in `a`, broadcast to `whole`, that element `index` of it reads. */
static inline int64_t ref__broadcast(const struct array *a, const struct array *whole,
                                     const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < a->rank; ++i) {
        int64_t of = index[i + whole->rank - a->rank];
        at = at * a->dims[i] + (a->dims[i] == 1 ? 0 : of);
    }
    return at;
}

/* Whether element i of sample s (of this micro-batch) stays. */
bool ref__keeps(const struct array *generator, uint32_t key, double rate, int64_t sample, int64_t i);

#endif
