/*
 * plan.h: how to train a model within a budget.
 *
 *     ull__planner_create(request) -> a frontier of plans, from the most memory to the least
 *     ull__planner_choose(budget)  -> the fastest one that fits
 *     ull__planner_layout(plan)    -> its order, and an address for everything
 *
 * The frontier does not depend on the budget, and on it less memory is slower. From that follow the promises: a plan's
 * peak is within its budget, a larger budget is never slower, the same request gives the same plan, and the
 * smallest feasible budget is the last plan's: one byte less fails.
 *
 * A plan is a choice of: precision; micro-batch and accumulation, which keep the batch; what is kept, dropped and sent to
 * the host; workspaces; whether the logits are made whole; where the optimizer's state is; and over several devices the
 * stage of ZeRO. The statistics group of batch norm is the user's and the same in all of them.
 *
 * Pure: no device, files or clock. One thread each; searches run in threads of their own until they are found.
 */
#ifndef ULLAGE_PLAN_PLAN_H
#define ULLAGE_PLAN_PLAN_H

#include "offsets.h"
#include "progress.h"
#include "schedule.h"
#include "step.h"

enum ull__precision {
    ULL_PRECISION_AUTO,
    ULL_PRECISION_F32,
    ULL_PRECISION_BF16,
    ULL_PRECISION_F16
};
const char *ull__precision_text(enum ull__precision precision); /* "auto", "fp32", "bf16", "fp16" */
bool ull__precision_parse(const char *text, enum ull__precision *precision);

struct ull__plan_request {
    const struct ull__graph *model;     /* forward pass and losses, f32; must outlive the planner */
    const struct ull__profile *profile; /* copied */
    int64_t batch;                      /* samples a step */
    int64_t bn_group; /* samples that share batch norm's statistics; 0: ull__default_bn_group */
    enum ull__precision precision;
    enum ull__optimizer optimizer;
    struct ull__optimizer_attrs attrs; /* limit 0: no clipping */
    struct ull__scale_attrs scale;     /* of the loss in fp16; step.h has what zeros mean */
    int64_t max_accumulation; /* micro-steps of a step at most; 0: as many as the batch and bn_group allow */
    int64_t recompute_min; /* bytes; smaller tensors are kept */
    int64_t max_workspace; /* of one operator; 0: no bound */
    int64_t host_bytes;    /* budget of the host for what is sent there; ULL_NONE: the profile's */
    int devices;           /* that share the batch; 0: 1 */
    unsigned zero_stages; /* of ZeRO that may be taken over several devices: bit i is stage i; 0: all */
    struct ull__progress *progress; /* NULL: nobody looks on */
    bool each_variant; /* the frontier of each variant by itself, one after the other: for parallel.c, not to be chosen from */
    bool keep_variants; /* plans of a variant stay though those of another beat them: by memory, and so not by time */
    bool plain; /* one plan: no technique at all, in the precision that is asked for (auto: fp32) */
};

/* One plan. Bytes are of one device. */
struct ull__plan {
    enum ull__precision precision;
    int64_t micro_batch, accumulation; /* the last micro-batch may be smaller */
    bool chunked_loss;                 /* logits some rows at a time */
    bool offload_optimizer; /* state and master weights in the host's memory, brought in for the update */
    int zero_stage;         /* 0 to 3 */
    int64_t bound_bytes; /* no placement needs less */
    int64_t peak_bytes; /* all regions, placed: what a device must give; 0 before ull__planner_place */
    int64_t persistent_bytes;
    int64_t host_bytes;
    double step_seconds;
    struct ull__cost_of cost; /* of a micro-step */
    int variant;              /* which program; see ull__planner_program */
    struct ull__decision decision;
};

struct ull__planner;

/*
 * ULL_E_INVALID: a batch below 1, a bn_group that does not divide it, sizes that overflow, a model without a loss, a
 * precision that the device does not have.  ULL_E_NO_MEMORY.
 */
ull_status ull__planner_create(const struct ull__plan_request *request,
                               struct ull__planner **planner, struct ull_error *err);
void ull__planner_destroy(struct ull__planner *planner);

/* The frontier, from the most memory to the least by bound_bytes, and so from fast to slow. At least one. */
const struct ull__plan *ull__planner_plans(const struct ull__planner *planner, int *count);
/* Places a plan's buffers: fills in its peak_bytes, and returns them. -1 without memory. */
int64_t ull__planner_place(struct ull__planner *planner, int plan);
/* The fastest whose peak and what is outside fit into budget bytes; ULL_NONE: none, or no memory. */
int ull__planner_choose(struct ull__planner *planner, int64_t budget);
/* The plan with the smallest peak; with what is outside that is the smallest feasible budget. */
int ull__planner_smallest(struct ull__planner *planner);

/* The program and graph of a plan; the planner's. */
const struct ull__program *ull__planner_program(const struct ull__planner *planner, int plan);
const struct ull__profile *ull__planner_profile(const struct ull__planner *planner);

/* The largest divisor of the batch up to 32: what the statistics of a GPU's share usually are made of. */
int64_t ull__default_bn_group(int64_t batch);

/* --- One plan in full --- */

#define ULL_NOT_THERE UINT64_MAX

struct ull__plan_layout {
    const struct ull__placed *order;
    int count;
    int prologue_count; /* of `order`: these are done once, before the first micro-step */
    int micro_count; /* of `order`: the rest of those before are the micro-step's, those after the update's */
    const struct ull__stay *stays;
    int stay_count;
    uint64_t *offsets; /* by stay, in the step region */
    /* By buffer: in the regions of what is persistent or lives over micro-steps, and in the host's memory (the
     * optimizer's state, what is sent there). ULL_NOT_THERE: it has no place there. */
    uint64_t *persistent_offsets, *host_offsets;
    uint64_t host_bytes;
    uint64_t host_state_bytes; /* of these, at the beginning: the optimizer's state */
    /* Where the optimizer's state is in the host's memory: two places in the persistent region that updates take in turns. */
    uint64_t staging_offsets[2];
    uint64_t persistent_bytes, step_bytes,
        passing_bytes;          /* of the regions; their sum is the plan's peak */
    double *starts;             /* by place: seconds from the beginning of the micro-step */
    int64_t at_peak[ULL_ROLES]; /* bytes by role where the most is needed; the rest of peak_bytes is gaps */
    int peak_at;
    struct ull__scheduler *scheduler;
};

/* ULL_E_NO_MEMORY, or ULL_E_INVALID if the addresses do not pass the check (a bug). */
ull_status ull__planner_layout(const struct ull__planner *planner, int plan,
                               struct ull__plan_layout *layout, struct ull_error *err);
/* The same for any program and decision, e.g. a forward pass. offload: the optimizer's state is in the host's memory. */
ull_status ull__program_layout(const struct ull__program *program, const struct ull__profile *profile,
                               const struct ull__decision *decision, bool offload,
                               struct ull__plan_layout *layout, struct ull_error *err);
void ull__plan_layout_finish(struct ull__plan_layout *layout);
/* Bytes by role at a place of the order. */
void ull__plan_layout_bytes(const struct ull__planner *planner, int plan,
                            const struct ull__plan_layout *layout, int place,
                            int64_t bytes[ULL_ROLES]);

#endif
