/* replay.h: plays a trace on a device. The options and the output of `ullage replay` are in cmd_replay.c. */
#ifndef ULLAGE_REPLAY_H
#define ULLAGE_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "trace.h"

struct replay_request {
    bool preallocate;
    int device; /* CUDA ordinal */
    long repeat;
    unsigned int hold_seconds;
};

struct replay_result {
    uint64_t limit_bytes; /* what the driver says the card has */
    bool held_known;
    uint64_t held_bytes; /* by this process when most was live; with its context if NVML says */
    uint64_t live_peak_bytes; /* of the trace, as asked for */
    uint64_t operations;      /* lines played */
    double seconds;           /* spent on them */
    bool completed;
    uint64_t line; /* of the trace where it ended, 0 if completed or before the first */
    char outcome[160];
};

/*
 * Running out of memory is a result, not an error. ULL_E_NOT_FOUND (no driver), ULL_E_NO_DEVICE,
 * ULL_E_DRIVER (any other refusal of the driver), ULL_E_SYSTEM.
 */
ull_status replay_play(const struct replay_request *request, const struct trace *trace,
                       struct replay_result *result, struct ull_error *err);

#endif
