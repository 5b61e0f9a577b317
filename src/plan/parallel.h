/*
 * parallel.h: a training whose layers are cut over several devices, one behind the other.
 *
 *     ull__parallel_create(request, kind, devices) -> plans, the fastest first
 *     ull__parallel_choose(budget)                 -> the fastest one whose devices all fit
 *
 * Model: one micro-batch goes through all devices, forward and back, before the next one begins; one device works at a
 * time. Pipeline: 1F1B (PipeDream-Flush; Narayanan et al., 2021): device i of N holds the activations of N - i micro-batches,
 * and a step takes the time of one micro-batch through all of them, and for each further one that of the slowest.
 *
 * Layers are cut between blocks of the model (between nodes, where it has none). What one device passes to another lies on both
 * of them, and is never recomputed. Weights that two devices read (a tied embedding) lie on both, with all that belongs to them.
 * Of a device with several micro-batches in flight each has a place of its own for what its backward pass reads; what passes
 * within forward or backward is shared by all of them.
 *
 * What it cannot do: cut within a layer (tensor parallelism), send activations or the optimizer's state to the host, or copy
 * while it computes: a passage's time is that of the link to the host, one after the other.
 */
#ifndef ULLAGE_PLAN_PARALLEL_H
#define ULLAGE_PLAN_PARALLEL_H

#include "plan.h"

enum ull__parallel_kind { ULL_PARALLEL_DATA, ULL_PARALLEL_MODEL, ULL_PARALLEL_PIPELINE };
const char *ull__parallel_text(enum ull__parallel_kind kind); /* "data", "model", "pipeline" */
bool ull__parallel_parse(const char *text, enum ull__parallel_kind *kind);

enum { ULL_STAGES_MOST = 64 };

/* One device's part. */
struct ull__stage {
    int first, last;          /* units: see ull__parallel_unit */
    int64_t parameters;       /* elements */
    int64_t persistent_bytes; /* weights, state, gradients that are added up */
    int in_flight;            /* micro-batches whose activations it holds */
    int64_t kept_bytes;       /* of each of those, where there are several */
    int64_t passing_bytes;    /* the rest */
    int64_t peak_bytes;       /* the sum */
    int64_t sent_bytes;       /* to other devices, a micro-batch, forward and back */
    double seconds;           /* of a micro-batch, forward and back */
    double update_seconds;
};

struct ull__parallel_plan {
    int source; /* the plan of one device that it is made of; see ull__parallel_source */
    struct ull__stage stages[ULL_STAGES_MOST];
    int64_t peak_bytes; /* of the device that needs most */
    double step_seconds;
    bool placed; /* else passing_bytes are what lives at once, and no more than a placement needs */
};

struct ull__parallel;

/*
 * Takes what a planner takes; request->devices, host_bytes and plain are not looked at, devices from 2 to ULL_STAGES_MOST.
 * ULL_E_INVALID as ull__planner_create, and for fewer blocks than devices. ULL_E_NO_MEMORY.
 */
ull_status ull__parallel_create(const struct ull__plan_request *request, enum ull__parallel_kind kind,
                                int devices, struct ull__parallel **parallel, struct ull_error *err);
void ull__parallel_destroy(struct ull__parallel *parallel);

const struct ull__parallel_plan *ull__parallel_plans(const struct ull__parallel *parallel,
                                                     int *count);
const struct ull__plan *ull__parallel_source(const struct ull__parallel *parallel, int plan);
/* The fastest where every device's peak and what is outside fit into budget bytes; ULL_NONE: none, or no memory. */
int ull__parallel_choose(struct ull__parallel *parallel, int64_t budget);
/* The one whose largest device is smallest; ULL_NONE without memory. */
int ull__parallel_smallest(struct ull__parallel *parallel);

/* What a part is called: a block's name, or that of the first weights in it. */
const char *ull__parallel_unit(const struct ull__parallel *parallel, int unit);

#endif
