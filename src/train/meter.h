/*
 * meter.h: what a backend's kernels need and take, for the planner: measured alone at first, learned from a training later.
 *
 * Workspaces are those that the backend would choose. Times are measured: each kernel that a plan could have, by operator, shape
 * of a sample and types, is run a few times on memory of its own at two numbers of samples, and a line is laid through them.
 * Memory is walked through, so that operands are not in caches as they would not be in a training.
 */
#ifndef ULLAGE_TRAIN_METER_H
#define ULLAGE_TRAIN_METER_H

#include "backend.h"
#include "profile.h"
#include "program.h"

struct ull__meter_of;

/*
 * room: bytes that measuring may take while it lasts. 0: nothing is measured, the profile's rates count. ULL_E_NO_MEMORY.
 */
ull_status ull__meter_create(struct ull__backend *backend, uint64_t room,
                             struct ull__meter_of **meter, struct ull_error *err);
void ull__meter_destroy(struct ull__meter_of *meter);
/* Gives back the memory that measuring took; what is not known yet stays so. */
void ull__meter_rest(struct ull__meter_of *meter);
/*
 * What was measured, for the meters of other processes that are to plan the same: `size` bytes, the meter's until it measures again;
 * and taken over there.
 */
const void *ull__meter_times(const struct ull__meter_of *meter, size_t *size);
bool ull__meter_take_times(struct ull__meter_of *meter, const void *times, size_t size);

/* A node at sizes of its own, as the meter knows it. */
struct ull__meter_kernel {
    const struct ull__op *op;
    uint64_t sized, timed;
    int64_t batch;
};
/* Of each item of a program; room for as many. False without memory. */
bool ull__meter_kernels(struct ull__meter_of *meter, const struct ull__program *program,
                        const int64_t *values, struct ull__meter_kernel *kernels);
/*
 * What kernels took in one step, which is set to zeros: these times count from now on in the place of what was measured alone, medians
 * of the last few, and of others as far as they are like them. load: how many times slower than at first the machine is now, by
 * which they are divided; 0: as slow as those that are known have become here. Allocates nothing.
 */
void ull__meter_learn(struct ull__meter_of *meter, const struct ull__meter_kernel *kernels,
                      struct ull__took *took, int count, double load);
/* What one is thought to take on a machine as it was at first; below 0: not known. */
double ull__meter_price(const struct ull__meter_of *meter, const struct ull__meter_kernel *kernel);
/* What prices are besides kernels (profile.h). */
void ull__meter_set(struct ull__meter_of *meter, double load, double step_seconds,
                    double copied_per_second);

const struct ull__meter *ull__meter_for(struct ull__meter_of *meter);
/* The first operator that the backend does not have, as a message; "" if it has all. */
const char *ull__meter_missing(const struct ull__meter_of *meter);

#endif
