/*
 * session.h: a training in memory: a plan that fits its budget, the regions it runs in, and its steps.
 *
 *     ull__session_create(options)    plans, takes regions from the pool, fills weights
 *     ull__session_step(source, rate) one optimizer step over a whole batch, in as many micro-steps as the plan has
 *     ull__session_replan(budget)     another plan of the same training, between steps
 *     ull__session_evaluate           loss and right answers over samples, in the same memory
 *     ull__session_tensors            what a save must hold
 *
 * Times are predicted from kernels that were measured alone, until steps have shown better (learn.c). That changes no plan: only
 * where one is looked for anyway, by ull__session_replan, the new times decide.
 *
 * What the batch is, how its loss is divided and what is drawn at random do not depend on the plan. No files, no clock but for
 * figures, no terminal. One thread.
 */
#ifndef ULLAGE_TRAIN_SESSION_H
#define ULLAGE_TRAIN_SESSION_H

#include "backend.h"
#include "given.h"
#include "plan.h"
#include "world.h"

/* Samples, as the loop has them. Both are called by the session's thread, in the order of the samples. */
struct ull__source {
    void *context;
    /* Valid targets of `count` samples from `first` of the batch on. */
    uint64_t (*valid)(void *context, int64_t first, int64_t count);
    /* Tokens of the longest of `count` samples from `first` on; NULL: all are as long as the model's. */
    int64_t (*length)(void *context, int64_t first, int64_t count);
    /* x: f32 pictures in rows, or i32 tokens; targets: i32. Shorter samples are filled up to the model's length. */
    ull_status (*read)(void *context, int64_t first, int64_t count, void *x, int32_t *targets,
                       struct ull_error *err);
};

enum { ULL_SESSION_BUCKETS = 16 };

struct ull__session_options {
    const struct ull__graph *model; /* must outlive the session */
    /*
     * The same model with fewer tokens, in ascending order; likewise. A batch runs as the shortest that holds its
     * longest sample. That must change nothing but time: attention is causal, and what fills a sample up is behind it.
     */
    const struct ull__graph *const *shorter;
    int shorter_count;             /* below ULL_SESSION_BUCKETS */
    struct ull__backend *backend;  /* likewise */
    struct ull__plan_request plan; /* model, and the profile's meter, are set by the session */
    uint64_t budget_bytes;         /* of the device, with what is outside */
    uint64_t seed;
    double initial_loss_scale; /* f16; 0: 65,536 */
    /* A plan that is taken before all others, of the longest samples, if it fits; NULL: none. Must outlive the call only. */
    const struct ull__given *given;
    /* Which plans may be taken, for samples of `length` elements; NULL: all. */
    bool (*accepts)(void *context, int64_t length, const struct ull__plan *plan);
    void *context;
    struct ull__world *world; /* whose ranks share the batch, that of the backend; NULL: alone */
    bool rates; /* times are the profile's, nothing is measured: the same plan each time */
};

struct ull__session;

/*
 * Ranks of a world: each makes a session of its own, with the same options and the budget of one device, and then the same calls in the
 * same order. Ranks share each batch and each evaluation (ull__session_share). Rank 0 measures for all. Where one rank fails all do, with
 * ULL_E_SYSTEM.
 *
 * ULL_E_NO_MEMORY: nothing fits the budget (the message has the smallest that does), or the machine has less. ULL_E_INVALID: a model
 * without a loss or with inputs that data cannot fill, or a given plan that cannot be one of it. ULL_E_NOT_FOUND: an operator that the backend does not have.
 */
ull_status ull__session_create(const struct ull__session_options *options,
                               struct ull__session **session, struct ull_error *err);
void ull__session_destroy(struct ull__session *session);

struct ull__step_result {
    double loss;       /* of the batch, that of all ranks, without the loss scale */
    double loss_scale; /* after the step; 1 without one */
    bool skipped;      /* gradients were not finite: nothing was updated */
    int64_t micro_batch, micro_steps;
    int64_t length;   /* elements of a sample, as it ran */
    uint64_t targets; /* that count */
    double seconds;
    double predicted_seconds; /* before it ran, by what was learned until then */
};

/* ULL_E_...: from the source, nothing was updated. */
ull_status ull__session_step(struct ull__session *session, const struct ull__source *source,
                             double learning_rate, struct ull__step_result *result,
                             struct ull_error *err);

struct ull__evaluation {
    double loss; /* mean over valid targets */
    uint64_t valid, right;
};
/*
 * Over `count` samples of the source, of which ranks of a world take a part each. predictions (not in a world): NULL, or an i32
 * for each target: the class it would have said. ULL_E_NO_MEMORY:
 * not even one sample goes through what the training leaves.
 */
ull_status ull__session_evaluate(struct ull__session *session, const struct ull__source *source,
                                 int64_t count, int32_t *predictions,
                                 struct ull__evaluation *evaluation, struct ull_error *err);
/* The logits of the last position, f32, for one sample; room for `classes`. For writing text. */
ull_status ull__session_logits(struct ull__session *session, const void *x, int64_t position,
                               float *logits, struct ull_error *err);

/* Of `whole` samples in a row, a batch's or an evaluation's, those that this rank takes: all, without a world. */
struct ull__share {
    int64_t first, count;
};
struct ull__share ull__session_share(const struct ull__session *session, int64_t whole);

/* --- The plan --- */

/*
 * Takes the fastest plan that fits budget bytes and whose micro-batch is within [least, most] (0: any), in the precision and with
 * the optimizer's state where it is, by times as they are now; what is there stays where no other is 5 % faster. ULL_E_NO_MEMORY: none; nothing has changed. *changed: whether it is another plan.
 * Where there are shorter models, each gets a plan; the bounds are of the longest, and `most` is of as many tokens for the others.
 */
ull_status ull__session_replan(struct ull__session *session, uint64_t budget_bytes, int64_t least,
                               int64_t most, bool *changed, struct ull_error *err);

/* One length of samples. */
struct ull__session_bucket {
    int64_t length; /* elements of a sample */
    const struct ull__plan *chosen;
    uint64_t step_bytes; /* what it needs of the region of a step */
    /* Seconds of a step: predicted from kernels alone, before the first; predicted now; the median of the last few, 0: none yet. */
    double planned_seconds, predicted_seconds, measured_seconds;
};

struct ull__session_info {
    const struct ull__planner *planner; /* of the longest, like what follows */
    int plan;                           /* its number there */
    const struct ull__plan *chosen;
    bool given;                    /* it is that of the options */
    uint64_t predicted_peak_bytes; /* of the regions of the device, which hold the plan of each length */
    uint64_t expected_peak_bytes; /* the same of the lengths that ran since the plans were taken */
    uint64_t measured_peak_bytes; /* highest ends of what kernels were handed, since the plan was taken */
    uint64_t host_bytes;          /* of the second region */
    uint64_t persistent_bytes;
    int64_t classes; /* the last dimension of the logits */
    int64_t sample_elements, sample_targets;
    bool tokens;    /* the input is i32 tokens, else f32 */
    uint64_t steps; /* updates done */
    double loss_scale;
    int64_t good_steps, hysteresis_left;
    struct ull__session_bucket buckets[ULL_SESSION_BUCKETS]; /* ascending */
    int bucket_count;
};
void ull__session_info(struct ull__session *session, struct ull__session_info *info);

/* --- Weights and state --- */

struct ull__session_tensor {
    const char *name;
    enum ull__role role; /* PARAMETER (f32: the master, where there is one), STATE, OPTIMIZER */
    enum ull__type type;
    int rank;
    int64_t dims[ULL_RANK];
    size_t bytes;
    void *data; /* in the regions, on this backend readable between steps */
};

/* The session's, until the next plan. */
const struct ull__session_tensor *ull__session_tensors(struct ull__session *session, int *count);
/* After tensors were written and with these counters: what follows is what would have followed the step they are of. */
void ull__session_restore(struct ull__session *session, uint64_t steps, double loss_scale,
                          int64_t good_steps, int64_t hysteresis_left);

#endif
