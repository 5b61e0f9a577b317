/*
 * world.h: processes on one machine that work on one thing together: ranks 0 to n - 1 over shared memory.
 *
 *     ull__world_create(ranks)      in the process that is to be rank 0
 *     fork(), then in each          ull__world_join(world, rank)
 *     ull__world_meet               all have come here, and see what the others have written before
 *     ull__world_gather             all know what each has said
 *
 * The memory has no name, so whatever ends the processes, nothing of it is left. Each rank has a slot that it writes and the
 * others read between two meetings; `result` is written by all, each a part of its own.
 *
 * A rank that ends, however it does, is seen by those who wait for it within a second: it holds a lock that the kernel gives up
 * with the process. From then on every call fails, with the first failure as the message. One that is stopped (SIGSTOP) is
 * waited for. All ranks must make the same calls in the same order; one thread of a rank at a time.
 */
#ifndef ULLAGE_WORLD_H
#define ULLAGE_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "ullage/status.h"

enum { ULL_WORLD_RANKS = 64, ULL_WORLD_SLOT = 1 << 20 }; /* bytes of a slot, and of the result */

struct ull__world;

/* ranks: 2 to ULL_WORLD_RANKS. ULL_E_NO_MEMORY, ULL_E_INVALID, ULL_E_SYSTEM: no file can be opened. */
ull_status ull__world_create(int ranks, struct ull__world **world, struct ull_error *err);
/* Once in a process, whose end is the rank's. ULL_E_INVALID: another one has it, or this process is a rank already. */
ull_status ull__world_join(struct ull__world *world, int rank, struct ull_error *err);
/* This process is out of it; who still waits for it is told. NULL is fine. */
void ull__world_destroy(struct ull__world *world);

int ull__world_rank(const struct ull__world *world);
int ull__world_ranks(const struct ull__world *world);

/* ULL_E_SYSTEM: the world has failed. */
ull_status ull__world_meet(struct ull__world *world, struct ull_error *err);
/* For all ranks: this one cannot go on. The first of them counts. */
void ull__world_fail(struct ull__world *world, const char *message);
/* The rank that failed or ended first; -1: none. */
int ull__world_failed(const struct ull__world *world);

/* Whether a rank that has joined is not there any more. By any thread, whoever else asks. */
bool ull__world_gone(const struct ull__world *world, int rank);

char *ull__world_slot(struct ull__world *world, int rank);
char *ull__world_result(struct ull__world *world);

/* What each rank has, by rank; at most ULL_WORLD_SLOT bytes each. `all` has room for the ranks' times size. */
ull_status ull__world_gather(struct ull__world *world, const void *own, size_t size, void *all,
                             struct ull_error *err);
/* What rank 0 has, of any size. */
ull_status ull__world_tell(struct ull__world *world, void *data, size_t size, struct ull_error *err);

#endif
