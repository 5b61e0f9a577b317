/* session_private.h: what the files of a session share. */
#ifndef ULLAGE_TRAIN_SESSION_PRIVATE_H
#define ULLAGE_TRAIN_SESSION_PRIVATE_H

#include "executable.h"
#include "meter.h"
#include "session.h"
#include "ullage/device.h"
#include "ullage/pool.h"

/* A forward pass in the memory of the training. */
struct ull__forward {
    struct ull__graph *graph;
    struct ull__program *program;
    struct ull__decision decision;
    struct ull__plan_layout layout;
    struct ull__executable *executable;
    char **persistent; /* by buffer */
    char *own;         /* constants and controls that the training does not have */
    int64_t micro_batch;
    int logits, loss, target; /* tensors; loss ULL_NONE: none */
    float loss_value;
    float *logits_copy; /* [micro_batch * sample_targets, classes] */
};

struct ull__session {
    struct ull__session_options options;
    struct ull__backend *backend;
    struct ull__meter_of *meter;
    struct ull__planner *planner;
    int plan, given; /* numbers of the planner; given ULL_NONE: none */
    uint64_t budget;

    ull_device *device, *host_device;
    struct ull_pool *pool, *host_pool;
    struct ull__arena arena;
    uint64_t persistent_room, step_room, host_room;

    const struct ull__program *program;
    struct ull__plan_layout layout;
    struct ull__executable *full,
        *rest; /* for a micro-batch, and for the last one where that is smaller */
    int64_t rest_batch;
    float losses[8];

    int input, target; /* tensors of the graph */
    int64_t sample_elements, sample_targets, classes;
    bool tokens;
    void *x; /* a micro-batch as the source gives it */
    int32_t *targets;
    int64_t staged; /* samples that there is room for */

    struct ull__session_tensor *tensors;
    int tensor_count;

    uint64_t steps;
    double loss_scale;
    int64_t good_steps, hysteresis_left;
    uint64_t reached_persistent, reached_step; /* highest ends, as offsets */

    struct ull__forward *forward;
};

/* values.c */
/* Fills weights and state of a new training. */
void ull__session_fill(struct ull__session *session);
ull_status ull__session_list(struct ull__session *session, struct ull_error *err);
/* The tensor of a control, or ULL_NONE. */
int ull__graph_find(const struct ull__graph *graph, enum ull__role role, const char *name);

/* step.c */
/* Takes the highest ends of what was touched since the last call. */
void ull__session_note_reached(struct ull__session *session);
/* Controls that the session counts, into the regions. */
void ull__session_write_counters(struct ull__session *session);
/* What the source gave, as the graph's input has it. */
void ull__session_put_input(const struct ull__executable *executable, const struct ull__graph *graph,
                            int tensor, const int64_t *values, const void *from, bool tokens);

/* ranks.c */
/* Rank 0's times become everybody's. */
ull_status ull__session_share_times(struct ull__session *session, struct ull_error *err);
/*
 * Whether all ranks could take a plan (status: whether this one could), and it is the same one. What went wrong on one counts on all of
 * them, so that all take the next plan or none.
 */
ull_status ull__session_agree(struct ull__session *session, ull_status status, struct ull_error *err);

/* Samples of a batch that this rank has; all, without a world. */
static inline int64_t ull__session_own_batch(const struct ull__session *session)
{
    return session->options.plan.batch /
           (session->options.plan.devices > 1 ? session->options.plan.devices : 1);
}

/* evaluate.c */
void ull__forward_destroy(struct ull__session *session, struct ull__forward *forward);

static inline const struct ull__graph *ull__session_graph(const struct ull__session *session)
{
    return session->program->graph;
}

#endif
