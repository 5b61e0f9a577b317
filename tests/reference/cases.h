/*
 * cases.h: random cases of an operator: a graph with a node of it, of random shapes and attributes, and values.
 *
 *     struct cases c;
 *     if (cases_create(&c, op, seed, ULL_TYPE_F32)) { cases_lose(&c); ref = ref_create(c.graph, c.values);
 *         cases_fill(&c, ref); ... }
 *     cases_finish(&c);
 *
 * The same seed gives the same case. Cases are of some dozen elements, `large` ones of up to some ten thousand: for kernels that
 * work in blocks. Values keep away from where a function has no slope, and are what a type can hold.
 */
#ifndef ULLAGE_TEST_REFERENCE_CASES_H
#define ULLAGE_TEST_REFERENCE_CASES_H

#include "reference.h"

/* What the elements of a tensor are. */
enum fill {
    FILL_GRID,     /* -2 to 2, over multiples of 0.1 by 0.03 */
    FILL_OTHER,    /* the same, by 0.07 */
    FILL_DISTINCT, /* -2 to 2, all different */
    FILL_POSITIVE, /* 0.3 to 2.3 */
    FILL_AWAY,     /* the same, of either sign */
    FILL_INDEX,    /* whole numbers below `limit` */
    FILL_TARGET,   /* the same, some of them -100 */
    FILL_BOOL,
    FILL_MASK,  /* 0, some minus infinity */
    FILL_VALUE, /* `limit` */
};

struct cases {
    struct ull__graph *graph;
    int64_t values[ULL_SYMBOLS];
    uint64_t seed;
    enum ull__type type; /* of what is floating and may be of 16 bits */
    bool large;
    struct {
        int tensor;
        enum fill fill;
        double limit;
    } fills[64];
    int fill_count;
    int results[17]; /* floating outputs that a loss is made of */
    int result_count;
    bool has_gradient;
    int forward;   /* nodes up to the loss */
    int *gradient; /* by tensor of the forward pass, after cases_lose */
};

/* False: there are no cases of that operator by itself: it is the gradient of another. */
bool cases_create(struct cases *c, const struct ull__op *op, uint64_t seed, enum ull__type type,
                  bool large);
void cases_finish(struct cases *c);
/* A loss, the weighted sum of the results, and its gradients. */
void cases_lose(struct cases *c);
/* Values of all tensors that no node makes; of the same seed the same ones. */
void cases_fill(struct cases *c, struct ref *ref);
/* Prints the nodes, shapes and attributes to stderr. */
void cases_print(const struct cases *c);

/* --- For builders --- */

int64_t cases_below(struct cases *c, int64_t below);
/* 1 to `small`, or to `large` in a large case. */
int64_t cases_size(struct cases *c, int64_t small, int64_t large);
static inline bool cases_coin(struct cases *c)
{
    return cases_below(c, 2) != 0;
}
int cases_real(struct cases *c, int rank, const ull__dim *dims, enum fill fill);
/* f32 whatever the type of the case is. */
int cases_single(struct cases *c, int rank, const ull__dim *dims, enum fill fill);
int cases_input(struct cases *c, enum ull__type type, int rank, const ull__dim *dims,
                enum fill fill, double limit);
void cases_result(struct cases *c, int tensor);
/* Random dimensions of 1 to 4, now and then `batch` and 0. Returns the rank, least to most. */
int cases_dims(struct cases *c, int least, int most, ull__dim *dims);

extern const struct cases_builder {
    const struct ull__op *op;
    void (*build)(struct cases *c);
} cases_pictures[], cases_sequences[], cases_elements[], cases_updates[];

#endif
