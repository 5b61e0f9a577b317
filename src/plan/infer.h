/*
 * infer.h: what a model needs where it is used: weights, the cache of keys and values, and a forward pass.
 *
 *     ull__infer_create(request) -> plans from the most memory to the least, the fastest first
 *     ull__infer_choose(budget)  -> the fastest one that fits
 *
 * A plan is a choice of how many samples go through at once, and of algorithms; which bits the weights have is the user's.
 * Weights in 8 bits are those of products and convolutions, with an f32 scale for each row of them, and products turn them
 * into 16 bits as they read; everything else has 16 bits.
 *
 * The cache has a place for each token of a context, of every request, at every causal attention: as many heads as keys and
 * values have, in the type that is computed in. A prompt goes through in pieces of at most the sequence that the model was
 * made with.
 *
 * What it cannot do: share a cache's pages among requests, or say what sampling needs beside the model.
 */
#ifndef ULLAGE_PLAN_INFER_H
#define ULLAGE_PLAN_INFER_H

#include "graph.h"
#include "profile.h"

#define ULL_WEIGHTS_MAP(X)                                                                         \
    X(FP32, "fp32", ULL_TYPE_F32)                                                                  \
    X(FP16, "fp16", ULL_TYPE_F16)                                                                  \
    X(BF16, "bf16", ULL_TYPE_BF16)                                                                 \
    X(FP8, "fp8", ULL_TYPE_F8)                                                                     \
    X(INT8, "int8", ULL_TYPE_I8)

enum ull__weights {
#define X(name, text, type) ULL_WEIGHTS_##name,
    ULL_WEIGHTS_MAP(X)
#undef X
        ULL_WEIGHTS
};
const char *ull__weights_text(enum ull__weights weights);
bool ull__weights_parse(const char *text, enum ull__weights *weights);

struct ull__infer_request {
    const struct ull__graph *model;
    const struct ull__profile *profile;
    int64_t batch; /* samples of a forward pass */
    enum ull__weights weights;
    int64_t context;  /* tokens of a request in the cache; 0: as many as the model's sequence has */
    int64_t requests; /* at once; 0: batch */
    int64_t max_workspace; /* of one operator; 0: no bound */
};

struct ull__infer_plan {
    int64_t micro_batch;      /* samples that go through at once */
    int64_t peak_bytes;       /* all regions, placed */
    int64_t passing_bytes;    /* of it: what a forward pass makes, workspace and gaps too */
    int64_t bytes[ULL_ROLES]; /* at the peak, by role; beside them the cache, and gaps */
    double seconds;           /* of the batch */
    double token_seconds;     /* for a token of each request, contexts full; 0: there is no cache */
};

struct ull__inference;

/*
 * ULL_E_INVALID: a batch below 1, sizes that overflow, a context or requests for a model without causal attention, a device without
 * 16-bit products where they are asked for. ULL_E_NO_MEMORY.
 */
ull_status ull__infer_create(const struct ull__infer_request *request,
                             struct ull__inference **inference, struct ull_error *err);
void ull__infer_destroy(struct ull__inference *inference);

/* From the most memory to the least, and so from fast to slow. At least one. */
const struct ull__infer_plan *ull__infer_plans(const struct ull__inference *inference, int *count);
/* The fastest whose peak and what is outside fit into budget bytes; ULL_NONE: none. */
int ull__infer_choose(const struct ull__inference *inference, int64_t budget);

/* Bytes of the cache, 0 where the model has none; what it is for. */
int64_t ull__infer_cache_bytes(const struct ull__inference *inference);
int64_t ull__infer_context(const struct ull__inference *inference);
int64_t ull__infer_requests(const struct ull__inference *inference);
/* How many requests the plan has room for in budget bytes. */
int64_t ull__infer_requests_most(const struct ull__inference *inference, int plan, int64_t budget);

#endif
