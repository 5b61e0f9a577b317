/*
 * replay_pool.h: plays a trace on a pool of ours (`ullage replay --pool`). The options are read in
 * cmd_replay.c, the result is printed in replay_pool_print.c.
 */
#ifndef ULLAGE_REPLAY_POOL_H
#define ULLAGE_REPLAY_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "cli.h"
#include "size.h"
#include "trace.h"

enum { REPLAY_DEVICE_ANY = -2, REPLAY_DEVICE_HOST = -1 }; /* else a CUDA ordinal */

struct replay_pool_request {
    int device;
    struct ull_size memory; /* limit, in bytes or as a share of the device; all 0: what it has */
    bool preallocate;       /* take the limit at the start, and no more */
    long repeat;
    unsigned int hold_seconds;
    const char *record; /* path of a record to make, or NULL */
};

/* How many operations took up to 2^i nanoseconds, and longer than the bucket before. */
enum { REPLAY_BUCKETS = 40 };

struct replay_latency {
    uint64_t p50, p99, p999, max;
};

/* Figures are of the last repetition, but for the latencies, which are of some more. */
struct replay_pool_result {
    char device[24]; /* "host", "cuda:0" */
    uint64_t limit_bytes;
    bool growth; /* not on a device that cannot grow, whatever was asked for */
    uint64_t peak_requested_bytes;
    uint64_t peak_held_bytes;
    uint64_t failures, operations;
    double ns_per_operation; /* of the processor: what else runs on the machine does not count */
    double wall_ns_per_operation;
    struct replay_latency latency_ns; /* of each operation's median over the repetitions that are timed */
    struct replay_latency latency_once_ns; /* of all that were timed, with what interrupts and other programs add */
    uint64_t latency_buckets[REPLAY_BUCKETS]; /* of the medians */
    uint64_t maps, unmaps;
    uint64_t line;      /* of the trace, of the first failure; 0 if there was none */
    char refusal[1024]; /* why that one was refused */
};

/* What the recorded program's own allocator did with the trace. */
struct replay_recorded {
    uint64_t peak_requested_bytes, peak_allocated_bytes, peak_held_bytes;
};

/* A refused request is a result, not an error. ULL_E_NO_DEVICE, ULL_E_NO_MEMORY for the reserve, ... */
ull_status replay_pool_play(const struct replay_pool_request *request, const struct trace *trace,
                            struct replay_pool_result *result, struct ull_error *err);

/* Reads recorded.jsonl beside the trace. ULL_E_NOT_FOUND if it, or the trace in it, is not there. */
ull_status replay_recorded_load(const char *trace_path, struct replay_recorded *recorded,
                                struct ull_error *err);

/* recorded may be NULL. */
void replay_pool_print(const char *trace_path, const struct replay_pool_request *request,
                       const struct replay_pool_result *result,
                       const struct replay_recorded *recorded, enum output_format format);

#endif
