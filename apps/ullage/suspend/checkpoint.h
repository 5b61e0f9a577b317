/*
 * checkpoint.h: another process's GPU memory, moved to the host and back by the driver (cuCheckpointProcess*,
 * drivers from 570 on).
 *
 * It covers all that the process has, its contexts and arrays too, at about 2 GB/s out. Every call is made in
 * a child process with a limit of time, since it can hang. Drivers before 610 do not bring back processes that share
 * memory with others (ties.h).
 */
#ifndef ULLAGE_CHECKPOINT_H
#define ULLAGE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "ullage/status.h"

enum checkpoint_state { CHECKPOINT_RUNNING, CHECKPOINT_LOCKED, CHECKPOINT_OUT, CHECKPOINT_FAILED };

enum { CHECKPOINT_DRIVER_TEXT = 96 };

/*
 * Moves the process's memory out, or back, whatever is left to do for that. Should moving out fail, the process
 * runs on. ULL_E_DRIVER with the reason in *err; ULL_E_NO_MEMORY: its card has no room for it to come back, and
 * it stays out; ULL_E_SYSTEM: not in that time, and the driver may still be at it.
 *
 * On the way out `tied` (or NULL) is asked once more, in the child, when the process is locked: true lets it run on.
 */
ull_status checkpoint_move(uint32_t pid, bool out, unsigned int timeout_s, bool (*tied)(void *data),
                           void *data, struct ull_error *err);

/* The driver's version, as "580.159.04"; "" if it cannot be told. */
void checkpoint_driver(char version[CHECKPOINT_DRIVER_TEXT]);

#endif
