/* session_private.h: what the files of a session share. */
#ifndef ULLAGE_TRAIN_SESSION_PRIVATE_H
#define ULLAGE_TRAIN_SESSION_PRIVATE_H

#include "executable.h"
#include "meter.h"
#include "recent.h"
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
    char **persistent;           /* by buffer */
    char *own;                   /* constants and controls that the training does not have */
    int64_t micro_batch, wanted; /* samples at once, and how many that were to be */
    int logits, loss, target;    /* tensors; loss ULL_NONE: none */
    float loss_value;
    float *logits_copy; /* [micro_batch * sample_targets, classes] */
};

/* How the steps of the plan in force go. */
struct ull__pace {
    int steps;      /* since the plan was taken */
    double load;    /* of the machine then */
    double kernels; /* what the plan's kernels and copies take at a load of 1; 0: not known */
    /* Of the last steps but the first: all, and what does not depend on the plan: reading samples. */
    double seconds[ULL_RECENT], besides[ULL_RECENT];
    struct ull__meter_kernel *full, *rest; /* by item; of the executables */
    double *weights;                       /* by item: runs in a step */
};

/* The model for one length of samples: a plan of its own over the regions of all. */
struct ull__bucket {
    const struct ull__graph *model;
    struct ull__planner *planner;
    int plan;
    const struct ull__program *program;
    struct ull__plan_layout layout;
    struct ull__executable *full,
        *rest; /* for a micro-batch, and for the last one where that is smaller */
    int64_t rest_batch;
    int input, target; /* tensors of the graph */
    int64_t sample_elements, sample_targets;
    bool ran; /* since the plan was taken */
    struct ull__pace pace;
    double *planned_seconds; /* by plan: of a step, as it was predicted at first */
    uint64_t reached_step;   /* highest end, as an offset */
    struct ull__forward *forward;
};

struct ull__session {
    struct ull__session_options options;
    struct ull__backend *backend;
    struct ull__meter_of *meter;
    uint64_t budget;
    int given; /* number of the longest's planner; ULL_NONE: none */
    struct ull__bucket buckets[ULL_SESSION_BUCKETS]; /* ascending */
    int bucket_count;
    struct ull__bucket *at; /* whose counters and constants are in the persistent region */

    ull_device *device, *host_device;
    struct ull_pool *pool, *host_pool;
    struct ull__arena arena;
    uint64_t persistent_room, step_room, host_room;

    float losses[8];

    int64_t sample_elements, sample_targets; /* as the source gives them: of the longest */
    int64_t classes;
    bool tokens;
    void *x; /* a micro-batch as the source gives it */
    int32_t *targets;
    int64_t staged; /* samples that there is room for */

    struct ull__session_tensor *tensors;
    int tensor_count;

    uint64_t steps;
    double loss_scale;
    int64_t good_steps, hysteresis_left;
    uint64_t reached_persistent, reached_forward; /* highest ends, as offsets */

    /* learn.c. How many times longer than kernels said at first steps take now; seconds of a step that no plan changes. */
    double load, besides;
    double copied_per_second; /* at a load of 1; 0: not known */
    bool times;               /* this step */
    struct ull__copied copied;
    double reading; /* seconds that samples took, in this step */
};

/* Which plans are looked for. */
struct ull__wish {
    uint64_t budget;
    const struct ull__plan *like; /* precision and place of the optimizer's state; NULL: any */
    bool accepted;                /* those that the options accept alone */
    int64_t least, most;          /* of a micro-batch; 0: any */
    bool stays;                   /* what is in force, where no other is much faster */
};

/* session.c: input, target and their sizes. */
ull_status ull__bucket_find_ends(struct ull__session *session, struct ull__bucket *bucket,
                                 struct ull_error *err);

/* regions.c */
/* What the plans of all lengths need: the most of each region, bytes. */
struct ull__needs {
    uint64_t persistent, step, host;
};
struct ull__needs ull__session_needs(const struct ull__session *session);
/*
 * Regions for the layouts that all buckets have now. Weights and state stay where they are; the region of a step is a new one.
 * ULL_E_NO_MEMORY: nothing may run before a call that can.
 */
ull_status ull__session_take_regions(struct ull__session *session, struct ull_error *err);
/* All of them, with their pools and devices. */
void ull__session_give_regions(struct ull__session *session);

/* choose.c */
ull_status ull__session_make_planners(struct ull__session *session, struct ull_error *err);
/*
 * A plan for each bucket: for the longest as it is wished, for the others what lies on the same weights. False: there is
 * none for one of them.
 */
bool ull__session_choose(struct ull__session *session, const struct ull__wish *wish, int *plans);
/* Says so. running: of plans with the precision and the places of state that there are now. */
ull_status ull__session_nothing_fits(struct ull__session *session, uint64_t budget, bool running,
                                     struct ull_error *err);

/* values.c */
/* Fills weights and state of a new training. */
void ull__session_fill(struct ull__session *session);
/* The constants of the bucket at hand, where others had theirs. */
void ull__session_fill_constants(struct ull__session *session);
ull_status ull__session_list(struct ull__session *session, struct ull_error *err);
/* The tensor of a control, or ULL_NONE. */
int ull__graph_find(const struct ull__graph *graph, enum ull__role role, const char *name);

/* step.c */
/* Takes the highest ends of what was touched since the last call; that in the region of a step into *reached. */
void ull__session_note_reached(struct ull__session *session, uint64_t *reached);
/* Controls that the session counts, into the regions. */
void ull__session_write_counters(struct ull__session *session);
/* What the source gave, as the graph's input has it. */
void ull__session_put_input(const struct ull__executable *executable, const struct ull__graph *graph,
                            int tensor, const int64_t *values, const void *from, bool tokens);

/* learn.c */
/* A plan was taken, and is priced. ULL_E_NO_MEMORY. */
ull_status ull__session_pace_begin(struct ull__session *session, struct ull__bucket *bucket,
                                   struct ull_error *err);
void ull__session_pace_end(struct ull__bucket *bucket);
void ull__session_step_begins(struct ull__session *session);
/* seconds: of the whole step; besides: of these, of what does not depend on the plan. */
void ull__session_step_ends(struct ull__session *session, double seconds, double besides);
void ull__session_step_failed(struct ull__session *session);
/* Of a step of a bucket, as it is predicted now, and the median of the last; 0: none yet. */
double ull__session_predicted(const struct ull__session *session, const struct ull__bucket *bucket);
double ull__session_measured(const struct ull__bucket *bucket);
/* Prices of all plans anew. False without memory. */
bool ull__session_reprice(struct ull__session *session);

/* The shortest that holds samples of `length` elements. */
struct ull__bucket *ull__session_bucket_for(struct ull__session *session, int64_t length);
/* `count` samples as the source gave them become rows of the bucket's length. */
void ull__session_narrow(struct ull__session *session, const struct ull__bucket *bucket,
                         int64_t count);

/* ranks.c */
/* Rank 0's times become everybody's. */
ull_status ull__session_share_times(struct ull__session *session, struct ull_error *err);
/*
 * Whether all ranks could take their plans (status: whether this one could), and they are the same. What went wrong on one counts on all
 * of them, so that all take the next plans or none.
 */
ull_status ull__session_agree(struct ull__session *session, ull_status status, struct ull_error *err);

/* Samples of a batch that this rank has. */
static inline int64_t ull__session_own_batch(const struct ull__session *session)
{
    return ull__session_share(session, session->options.plan.batch).count;
}

/* evaluate.c */
void ull__forward_destroy(struct ull__session *session, struct ull__forward *forward);

static inline const struct ull__graph *ull__session_graph(const struct ull__session *session)
{
    return session->at->program->graph;
}

static inline uint64_t ull__larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of the region of a step. */
static inline uint64_t ull__bucket_step_bytes(const struct ull__bucket *bucket)
{
    return bucket->layout.step_bytes + bucket->layout.passing_bytes;
}

static inline const struct ull__plan *ull__bucket_plan(const struct ull__bucket *bucket)
{
    int count;
    return &ull__planner_plans(bucket->planner, &count)[bucket->plan];
}

static inline struct ull__bucket *ull__session_longest(struct ull__session *session)
{
    return &session->buckets[session->bucket_count - 1];
}

#endif
