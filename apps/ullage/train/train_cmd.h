/* train_cmd.h: what the files of `ullage train` and `ullage eval` share. */
#ifndef ULLAGE_TRAIN_CMD_H
#define ULLAGE_TRAIN_CMD_H

#include <signal.h>

#include "../cli.h"
#include "cpu.h"
#include "data.h"
#include "save.h"
#include "session.h"

enum train_output { TRAIN_TEXT, TRAIN_JSON, TRAIN_NDJSON, TRAIN_QUIET };
enum train_schedule { TRAIN_COSINE, TRAIN_LINEAR, TRAIN_CONSTANT };

struct train_options {
    const char *model, *data;
    enum train_output output;
    const char *html, *save, *plan, *save_plan, *trace; /* paths; NULL: none */
    struct train_plan *file;                            /* that of `plan`; train_plan.h */
    bool resume, ablation, augment;
    int64_t memory; /* bytes; 0: half of the machine's */
    bool automatic; /* --memory auto: follows what the machine has free */
    double epochs;
    int64_t max_steps;    /* 0: by epochs */
    double learning_rate; /* below 0: by the optimizer */
    enum train_schedule schedule;
    double warmup;                        /* share of the steps */
    int64_t save_every;                   /* steps; 0: each epoch */
    double eval_every;                    /* epochs; 0: at the end only */
    int64_t eval_samples;                 /* of the evaluation part; 0: all */
    int64_t min_batch, max_batch;         /* micro-batches; 0: any */
    int64_t lengths[ULL_SESSION_BUCKETS]; /* --buckets, ascending */
    int length_count;                     /* 0: by the documents */
    int threads;
    uint64_t seed;
    bool optimizer_given, decay_given, clip_given, memory_given, host_given;
    struct ull__plan_request request;
    struct ull__profile profile;
    double loss_scale;        /* 0: the default */
    struct ull__world *world; /* of request.devices ranks, of which this process is one; NULL: alone */
};

struct train_job;
struct train_plan;

/* Which plans may be taken. */
struct train_wanted {
    enum ull__precision precision; /* AUTO: any */
    int64_t micro_batch, batch;    /* 0: any */
    int chunked, offload, drops;   /* below 0: any */
    /* Of a save of documents: by length. Else micro_batch, chunked and drops are of the longest alone. */
    struct train_length {
        int64_t length, micro_batch;
        int chunked;
    } lengths[ULL_SESSION_BUCKETS];
    int length_count;
    int64_t longest;
};

/* The model as it is for each length of samples, ascending; one, the whole model, where samples are no documents. */
struct train_models {
    struct ull__graph *graphs[ULL_SESSION_BUCKETS];
    int64_t lengths[ULL_SESSION_BUCKETS];
    int count;
};

struct train_point {
    uint64_t step;
    double loss, rate;
};

/* What a rank said of itself last. */
struct train_rank {
    uint64_t digest; /* of weights and state */
    uint64_t predicted_peak_bytes, measured_peak_bytes, outside_bytes;
    uint64_t untold; /* pictures that cannot be read */
};

/* A picture that cannot be read. */
struct train_broken {
    int64_t part; /* enum ull__data_part */
    char text[512];
};

/* Everything that is open. */
struct training {
    const struct train_options *options;
    char model_text[512]; /* with the sizes that the data have */
    struct ull__data *data;
    struct ull__reader *readers[ULL_DATA_PARTS];
    uint64_t position; /* of the next training sample */
    struct ull__backend *backend;
    struct train_models models;
    struct ull__session *session;
    struct ull__save *save;
    struct ull__saved saved; /* what is gone on from */
    bool resumes;
    bool stops; /* after this step: it was told to, and all ranks know */
    struct train_wanted wanted;
    struct ull__plan_request request; /* what was planned for */
    uint64_t total_steps, samples;    /* of the run, of an epoch */
    uint64_t batch;                   /* samples of a step */
    double learning_rate;             /* the highest */
    uint64_t seen;                    /* steps tried, skipped ones too */
    uint64_t skipped, low_steps;
    double seconds;             /* of training, earlier runs too */
    double accuracy, eval_loss; /* the last ones; NaN: none yet */
    uint64_t outside_bytes;     /* the most so far */
    struct train_job *job;      /* NULL: none */
    struct ull__save_switch *switches;
    size_t switch_count;
    struct train_rank ranks[ULL_WORLD_RANKS]; /* where there is a world, after a comparison */
    struct train_point *points;               /* for the page */
    size_t point_count, point_room;
    struct train_broken *untold; /* that rank 0 does not know of yet */
    size_t untold_count, untold_room;
    uint64_t *told; /* pictures that rank 0 has told of, hashed */
    size_t told_count, told_room;
    uint64_t broken; /* of these, those to train on */
};

/* Set by SIGTERM and SIGINT: the step at hand ends, and what was trained is saved. */
extern volatile sig_atomic_t train_stop;

/* train_options.c. -1: go on, else the exit code. */
int train_read_options(int argc, char **argv, struct train_options *options);

/* train_open.c */
ull_status train_open(const struct train_options *options, struct training *training,
                      struct ull_error *err);
void train_close(struct training *training);
/* Samples of an evaluation. */
uint64_t train_eval_count(const struct training *training);

/* train_data.c */
/*
 * Opens data for a model; model_text: that model with the sizes that the data have. like: in an evaluation, the description of the
 * data of the training. longest: tokens of a sample at most; 0: as many as the model takes.
 */
ull_status train_open_data(const char *model, const char *data, const char *like, uint64_t seed,
                           int64_t longest, char model_text[512], struct ull__data **opened,
                           struct ull_error *err);
/* Whether it is a model of the zoo that has this argument, and it is not given. */
bool train_model_leaves_free(const char *model, const char *key);

/* train_models.c: the model for each length of documents. */
/* count 0: lengths by the documents of the part. Rows of the data become as long as the longest. */
ull_status train_models_build(const char *model, struct ull__data *data, enum ull__data_part part,
                              const int64_t *lengths, int count, struct train_models *models,
                              struct ull_error *err);
static inline const struct ull__graph *train_longest(const struct training *training)
{
    return training->models.graphs[training->models.count - 1];
}
/* Ranks that share a batch run each step at one length. */
void train_models_keep_longest(struct train_models *models);
void train_models_finish(struct train_models *models);
/* ULL_E_INVALID: what the model says of a token depends on those behind it, so it cannot be filled up. */
ull_status train_models_check(const char *model, const struct ull__data *data,
                              struct ull__session *session, struct ull_error *err);

/* train_loop.c: what remains of the run. ULL_E_INVALID: the loss is no number any more. */
ull_status train_loop(struct training *training, struct ull_error *err);
/* The learning rate of the step after `done`. */
double train_rate(const struct training *training, uint64_t done);
ull_status train_evaluate(struct training *training, struct ull__evaluation *evaluation,
                          struct ull_error *err);
/* Memory of the process beside its regions and data, resident, bytes. */
uint64_t train_outside_bytes(const struct training *training);

/* train_world.c */
/* Starts the other ranks; from here on each of them is where this call returns. -1: go on, else the exit code. */
int train_ranks_begin(struct train_options *options);
/* Waits for the others. Returns the exit code of all. */
int train_ranks_end(const struct train_options *options, int code);
/* Whether this process shows what happens: rank 0, or the only one. */
bool train_speaks(const struct train_options *options);
/* A warning from below, once. */
void train_warn(void *context, const char *message);
/* Of a reader of a training, which is the context: a picture that cannot be read is told once, whichever ranks meet it. */
void train_warn_train(void *context, const char *message);
void train_warn_eval(void *context, const char *message);
/* This rank cannot go on: the others end, too, and one of them says why. */
void train_ranks_fail(const struct train_options *options, const struct ull_error *err);
/* ULL_E_INVALID: ranks have different weights. Fills in training->ranks. */
ull_status train_ranks_compare(struct training *training, struct ull_error *err);
/* After a step: whether one was told to stop; rank 0's budget becomes everybody's. */
ull_status train_ranks_agree(struct training *training, uint64_t *budget, struct ull_error *err);

/* train_plan.c */
bool train_plan_accepts(void *context, int64_t length, const struct ull__plan *plan);
/* What a save says of its plan. ULL_E_FORMAT: nothing. */
ull_status train_plan_text(const char *text, const char *from, struct train_wanted *wanted,
                           struct ull_error *err);

/* train_save.c */
ull_status train_save(struct training *training, struct ull_error *err);
/*
 * Opens the folder of saves and finds the newest, before the session is made; resumes stays false if there is
 * none. A folder that has one is only gone on in if that was asked for.
 */
ull_status train_find_save(struct training *training, struct ull_error *err);
/* What it holds into the session. */
ull_status train_load(struct training *training, struct ull_error *err);
/* Only what a model needs to be used. */
ull_status train_load_model(struct ull__session *session, const struct ull__saved *saved,
                            struct ull_error *err);
uint64_t train_model_identity(struct ull__session *session);

/* train_job.c: all do nothing where there is no job. */
void train_job_open(struct training *training);
void train_job_close(struct training *training);
void train_job_charge(struct training *training);
/*
 * Between steps: another plan where the budget or the machine asks for it; whether any rank was told to stop. ULL_E_SYSTEM: another
 * rank has failed.
 */
ull_status train_job_follow(struct training *training, struct ull_error *err);

/* ablation.c. Returns an exit code. */
int train_ablation(const struct train_options *options);

/* train_html.c */
/* Remembers a step for the page, if there will be one. False without memory. */
bool train_note_point(struct training *training, const struct ull__step_result *result);
ull_status train_write_html(const struct training *training, struct ull_error *err);

/* train_trace.c: an observer of the backend, from any thread; and what it saw. */
void train_trace_note(void *context, enum ull__queue queue, const char *what, double begin,
                      double end);
ull_status train_trace_write(const char *path, struct ull_error *err);

/* train_print.c */
void train_print_begin(const struct training *training);
void train_print_step(const struct training *training, const struct ull__step_result *result);
void train_print_eval(const struct training *training, const struct ull__evaluation *evaluation);
void train_print_note(const struct training *training, const char *text);
/* The summary. False: standard output could not be written. */
bool train_print_end(const struct training *training, const char *stopped);
/* A plan in a few words: "bf16, 4 x 32, 120 MiB recomputed". */
const char *train_plan_words(const struct ull__plan *plan, char *text, size_t size);

#endif
