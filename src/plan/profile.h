/*
 * profile.h: what a planner knows of a device: sizes and rates. Sources of each figure are in the device's file
 * (devices/NAME.json).
 */
#ifndef ULLAGE_PLAN_PROFILE_H
#define ULLAGE_PLAN_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithms.h"

/* A backend that says what a node takes, in the place of rules, tables and rates. */
struct ull__meter {
    void *context;
    /* Bytes of workspace; below 0: it cannot run the node. */
    int64_t (*workspace)(void *context, const struct ull__graph *graph, int node,
                         const int64_t *values);
    /* What it would run the node with, static text; NULL: not known. */
    const char *(*algorithm)(void *context, const struct ull__graph *graph, int node,
                             const int64_t *values);
    /* By tensor: enum ull__tensor_layout; good until it is asked about other sizes. NULL without memory. */
    const uint8_t *(*layouts)(void *context, const struct ull__graph *graph, const int64_t *values);
    /* Seconds; below 0: not known, the profile's rates count. */
    double (*seconds)(void *context, const struct ull__graph *graph, int node, const int64_t *values);
    /* For ull__planner_reprice, as a training has seen it: */
    double load;         /* a step's kernels and copies take so many times as long; 0: 1 */
    double step_seconds; /* a step takes besides, whatever the plan */
    double copied_per_second; /* bytes to or from the host, in the place of the profile's; 0: not known */
};

struct ull__profile {
    char name[32];
    uint64_t memory_bytes;
    uint64_t host_bytes; /* of the machine it is in, for what is sent there */

    /* Rates that programs reach, not those of a data sheet. */
    double bytes_per_second;       /* memory of the device, read or written */
    double matrix_per_second;      /* operations of f32 products, with TF32 where there is that */
    double matrix_half_per_second; /* of 16-bit products */
    double flops_per_second;       /* of all other arithmetic, f32 */
    double link_per_second;        /* bytes to or from the host, each way */
    double host_bytes_per_second;  /* memory of the host */
    double launch_seconds;         /* of one node */
    bool bf16, f16;                /* has matrix units for them */

    struct ull__algorithms algorithms; /* may be empty */
    int64_t most_workspace; /* bytes of one operator, where it has an algorithm within it; 0: no bound */
    /* Convolutions that no class of `algorithms` has, without a workspace, take this much longer; 1: there is no other way. */
    double lean_convolution;

    /* Beside the planned regions: the context, handles of libraries, captured graphs. */
    uint64_t outside_bytes;
    uint64_t alignment; /* of buffers */

    const struct ull__meter *meter; /* NULL: none */
};

#endif
