/*
 * stacks.h: the native call stacks at which a program allocates, each kept once.
 *
 * Taking one needs no lock and no memory beyond a table of fixed size that is made at the start; when it is full, new
 * stacks are dropped and counted. Names are looked up later, by the thread that writes.
 *
 * A stack is told from others by a hash of 64 bits. Where code has no unwind tables (most code that is made at
 * run time), a stack ends early.
 */
#ifndef ULLAGE_STACKS_H
#define ULLAGE_STACKS_H

#include "writer.h"

struct ull__stacks;

/* Also calls backtrace() once, whose first call loads a library. NULL without memory. */
struct ull__stacks *ull__stacks_create(void);
void ull__stacks_destroy(struct ull__stacks *stacks);

/* The caller's stack, without frames of this library. 0: there was no room. */
uint32_t ull__stacks_take(struct ull__stacks *stacks);
uint64_t ull__stacks_dropped(struct ull__stacks *stacks);

/* For the one who writes: the number of a taken stack in the writer's file, defined there at its first use. */
uint32_t ull__stacks_write(struct ull__stacks *stacks, uint32_t taken, struct ull__writer *writer);

#endif
