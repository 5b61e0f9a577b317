/*
 * calibrate.h: a device profile of the processor and memory of this machine, measured in some seconds: `ullage plan --calibrate`.
 *
 * What is measured: copies in memory, products of matrices (OpenBLAS, or another library with its functions; an own loop without
 * any), products whose operands are turned from 16 bits, arithmetic that stays in the caches, and handing work to threads. All
 * processors that this process may run on work at a time. The best of some tries counts: others on the machine only slow it down.
 *
 * What it cannot do: measure a GPU.
 */
#ifndef ULLAGE_PLAN_CALIBRATE_H
#define ULLAGE_PLAN_CALIBRATE_H

#include "profile.h"
#include "ullage/status.h"

struct calibration {
    struct ull__profile profile; /* named "cpu" */
    int threads;
    char library[64]; /* that multiplied; "": an own loop */
};

/* ULL_E_NO_MEMORY, ULL_E_SYSTEM (no threads). */
ull_status plan_calibrate(struct calibration *calibration, struct ull_error *err);

/* The profile as devices/NAME.json has it, with its sources; written whole or not at all, "-" is standard output. */
ull_status plan_calibration_write(const struct calibration *calibration, const char *path,
                                  struct ull_error *err);

#endif
