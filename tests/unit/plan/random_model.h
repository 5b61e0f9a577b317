/* random_model.h: small models that nobody would draw: chains with branches, joins and readers far away. */
#ifndef ULLAGE_TEST_RANDOM_MODEL_H
#define ULLAGE_TEST_RANDOM_MODEL_H

#include "ops.h"
#include "step.h"

static inline uint64_t random_below(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

/* A node of [batch, width]: element-wise, a product with weights that may change the width, or a join. */
static inline int random_node(struct ull__graph *g, uint64_t *seed, const int *before, int count)
{
    int x =
        before[random_below(seed, 3) == 0 ? random_below(seed, (uint64_t)count) : (uint64_t)count - 1];
    ull__dim width = g->tensors[x].dims[1];
    switch (random_below(seed, 5)) {
    case 0:
        return ull__unary(g, ULL_UNARY_GELU, x);
    case 1:
        return ull__unary(g, ULL_UNARY_TANH, x);
    case 2:
        for (int i = count - 1; i >= 0; --i) {
            if (before[i] != x && g->tensors[before[i]].dims[1] == width) {
                return ull__binary(g, random_below(seed, 2) ? ULL_BINARY_ADD : ULL_BINARY_MUL, x,
                                   before[i]);
            }
        }
        return ull__unary(g, ULL_UNARY_RELU, x);
    default: {
        ull__dim out = 16 * (1 + (int64_t)random_below(seed, 12));
        int w = ull__graph_parameter(g, "w", 2, (ull__dim[]){out, width}, ULL_INIT_UNIFORM, 0);
        return ull__linear(g, x, w, ULL_NONE);
    }
    }
}

/* The forward pass of a model with that many nodes before its loss. */
static inline struct ull__graph *random_model(uint64_t seed, int nodes)
{
    struct ull__graph *g = ull__graph_create();
    int made[64], count = 1;
    made[0] = ull__graph_input(g, "x", ULL_TYPE_F32, 2, (ull__dim[]){g->batch, 64});
    while (count <= nodes) {
        made[count] = random_node(g, &seed, made, count);
        count += 1;
    }
    int last = made[count - 1];
    int target = ull__graph_input(g, "target", ULL_TYPE_F32, 2, g->tensors[last].dims);
    ull__graph_loss(g, ull__mse(g, last, target, ULL_NONE), 1);
    return g;
}

#endif
