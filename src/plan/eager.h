/*
 * eager.h: what PyTorch would need for a model: its allocations in the order in which eager execution makes them.
 *
 * One simulation over the model's graph, with rules for operators and none for models: what an operator allocates, what
 * autograd saves of it, what its gradient allocates; casts of autocast and its cache of weights; checkpoints at the
 * model's blocks; gradients that live on while micro-batches are accumulated. Sizes are rounded as PyTorch's
 * allocator rounds them (512 bytes). The result is the peak of live bytes over a step after the first, which PyTorch
 * calls max_memory_allocated, with the workspaces of cuBLAS, and of cuDNN for pictures that lie by rows.
 *
 * Rules after PyTorch 2.11 (derivatives.yaml, autocast_mode.h), checked against measured peaks in tests/unit/plan/test_eager.c.
 */
#ifndef ULLAGE_PLAN_EAGER_H
#define ULLAGE_PLAN_EAGER_H

#include "graph.h"
#include "step.h"

struct ull__eager_mode {
    bool amp;             /* autocast to 16 bits */
    bool checkpoint;      /* each block of the model made again in the backward pass */
    int64_t accumulation; /* micro-batches of a step; 1: none */
    enum ull__optimizer optimizer;
    bool momentum; /* of SGD */
};

/*
 * The peak in bytes; `values` are those of a micro-batch. ULL_E_INVALID for sizes that overflow, or an operator that
 * has no rule; ULL_E_NO_MEMORY.
 */
ull_status ull__eager_peak(const struct ull__graph *model, const int64_t *values,
                           const struct ull__eager_mode *mode, int64_t *peak, struct ull_error *err);

#endif
