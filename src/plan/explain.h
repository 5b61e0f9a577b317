/*
 * explain.h: what a plan is made of, in steps that a person can follow, and what a tutorial would have done.
 */
#ifndef ULLAGE_PLAN_EXPLAIN_H
#define ULLAGE_PLAN_EXPLAIN_H

#include "plan.h"

/* In the order in which a plan is told. */
#define ULL_TECHNIQUE_MAP(X)                                                                       \
    X(PLAIN, "plain", "everything kept, one micro-batch")                                          \
    X(PRECISION, "mixed precision", "16-bit weights and activations, 32-bit masters")              \
    X(CHUNKS, "loss in turns", "the logits are never whole")                                       \
    X(ACCUMULATION, "accumulation", "smaller micro-batches, their gradients added in 32 bits")     \
    X(RECOMPUTATION, "recomputation", "activations made again in the backward pass")               \
    X(WORKSPACE, "less workspace", "slower algorithms that need less scratch memory")              \
    X(SENDING, "activation offload", "activations in the host's memory in between")                \
    X(OPTIMIZER, "optimizer offload", "optimizer state in the host's memory")                      \
    X(ZERO, "sharding", "optimizer state, gradients, weights cut over the devices (ZeRO)")

enum ull__technique {
#define X(name, text, what) ULL_TECHNIQUE_##name,
    ULL_TECHNIQUE_MAP(X)
#undef X
        ULL_TECHNIQUES
};

const char *ull__technique_text(enum ull__technique technique);
const char *ull__technique_what(enum ull__technique technique);

/* What the step is like once this technique has come to those before it. */
struct ull__plan_step {
    enum ull__technique technique;
    int64_t bound_bytes;
    double step_seconds;
};

/* The techniques of a plan one after the other; the first is PLAIN. *count at most ULL_TECHNIQUES. */
ull_status ull__plan_steps(const struct ull__planner *planner, int plan,
                           struct ull__plan_step steps[ULL_TECHNIQUES], int *count,
                           struct ull_error *err);

/*
 * The plan that tutorials give: 16 bits, accumulation over 1, 2, 4 or 8 micro-batches until it fits, and layers of over 100 MB of
 * activations or 10 million weights recomputed. False in *fits: even that needs more than `budget`.
 */
struct ull__thumb_plan {
    enum ull__precision precision;
    int64_t accumulation;
    int64_t bound_bytes;
    double step_seconds;
    bool fits;
};
ull_status ull__plan_by_thumb(const struct ull__planner *planner, int64_t budget,
                              struct ull__thumb_plan *thumb, struct ull_error *err);

#endif
