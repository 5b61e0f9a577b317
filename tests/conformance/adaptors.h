/*
 * adaptors.h: stacks of the adaptors in src/policy over a pool, each of which has to do what a pool does.
 */
#ifndef ULLAGE_ADAPTORS_H
#define ULLAGE_ADAPTORS_H

#include <stdbool.h>

#include "ullage/policy.h"

enum { ADAPTOR_STACKS = 9, ADAPTOR_MOST = 6 };

struct adaptors {
    struct ull_alloc *list[ADAPTOR_MOST]; /* the outermost one last */
    int count;
    struct ull_guard *guard; /* open all the time, or NULL */
    uint64_t set_aside;
};

/* Stack 0 is the pool alone. `bytes`: what the pool can hold; nothing in the stack is to stand in its way. */
bool adaptors_create(struct adaptors *adaptors, struct ull_pool *pool, int stack, uint64_t bytes);
struct ull_alloc *adaptors_top(const struct adaptors *adaptors);
/* What an open guard holds when nothing is in use. */
uint64_t adaptors_set_aside(const struct adaptors *adaptors);
/* Before streams are destroyed that were used. False if the guard could not end. */
bool adaptors_end_guard(struct adaptors *adaptors);
bool adaptors_destroy(struct adaptors *adaptors);

#endif
