/* loss.h: sums of losses in parts that do not depend on the number of threads, and what they are divided by. */
#ifndef ULLAGE_CPU_OPS_LOSS_H
#define ULLAGE_CPU_OPS_LOSS_H

#include "tile.h"

enum { LOSS_PARTS = 64 };

struct loss_part {
    double sum;
    int64_t count;
};

/* The count that input i gives; -1 without one. */
ALWAYS float loss_count(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int i)
{
    return i < kernel->input_count && run->in[i] != NULL ? *(const float *)run->in[i] : -1;
}

/* How many targets count. Each thread looks itself: they are few beside the logits. */
ALWAYS int64_t loss_counted(const struct ull__cpu_operand *targets, const void *at, int64_t ignored)
{
    int64_t count = 0;
    for (int64_t i = 0; i < targets->elements; ++i) {
        count += index_at(targets->type, at, i) != ignored;
    }
    return count;
}

/* The loss; count below 0: what the parts counted. Nothing that counts: 0. */
ALWAYS float loss_total(const struct loss_part *parts, float count)
{
    struct loss_part all = {0, 0};
    for (int i = 0; i < LOSS_PARTS; ++i) {
        all.sum += parts[i].sum;
        all.count += parts[i].count;
    }
    double by = count < 0 ? (double)all.count : (double)count;
    return by > 0 ? (float)(all.sum / by) : 0;
}

#endif
