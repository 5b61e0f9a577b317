/*
 * meter.h: what a backend's kernels need and take, for the planner.
 *
 * Workspaces are those that the backend would choose. Times are measured: each kernel that a plan could have, by operator, shape
 * of a sample and types, is run a few times on memory of its own at two numbers of samples, and a line is laid through them.
 * Memory is walked through, so that operands are not in caches as they would not be in a training.
 */
#ifndef ULLAGE_TRAIN_METER_H
#define ULLAGE_TRAIN_METER_H

#include "backend.h"
#include "profile.h"

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
const struct ull__meter *ull__meter_for(struct ull__meter_of *meter);
/* The first operator that the backend does not have, as a message; "" if it has all. */
const char *ull__meter_missing(const struct ull__meter_of *meter);

#endif
