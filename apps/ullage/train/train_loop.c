/* train_loop.c: steps, evaluations and saves, until the run is over. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "train_cmd.h"

volatile sig_atomic_t train_stop;

/* Steps at the floor of the loss scale that did not count, in a row, after which it will not recover. */
enum { HOPELESS = 20 };

/* --- Samples --- */

static uint64_t valid_train(void *context, int64_t first, int64_t count)
{
    const struct training *training = context;
    return ull__data_valid(training->readers[ULL_DATA_TRAIN], training->position + (uint64_t)first,
                           (size_t)count);
}

static int64_t length_train(void *context, int64_t first, int64_t count)
{
    const struct training *training = context;
    return ull__data_longest(training->readers[ULL_DATA_TRAIN],
                             training->position + (uint64_t)first, (size_t)count);
}

static ull_status read_train(void *context, int64_t first, int64_t count, void *x, int32_t *targets,
                             struct ull_error *err)
{
    struct training *training = context;
    return ull__data_batch(training->readers[ULL_DATA_TRAIN], training->position + (uint64_t)first,
                           (size_t)count, x, targets, err);
}

static uint64_t valid_eval(void *context, int64_t first, int64_t count)
{
    const struct training *training = context;
    return ull__data_valid(training->readers[ULL_DATA_EVAL], (uint64_t)first, (size_t)count);
}

static int64_t length_eval(void *context, int64_t first, int64_t count)
{
    const struct training *training = context;
    return ull__data_longest(training->readers[ULL_DATA_EVAL], (uint64_t)first, (size_t)count);
}

static ull_status read_eval(void *context, int64_t first, int64_t count, void *x, int32_t *targets,
                            struct ull_error *err)
{
    struct training *training = context;
    /* Who was told to stop may have seconds left to save; ranks would wait for each other. */
    if (train_stop != 0 && training->options->world == NULL) {
        return ull__fail(err, ULL_E_SYSTEM, "the evaluation was ended by a signal");
    }
    return ull__data_batch(training->readers[ULL_DATA_EVAL], (uint64_t)first, (size_t)count, x,
                           targets, err);
}

ull_status train_evaluate(struct training *training, struct ull__evaluation *evaluation,
                          struct ull_error *err)
{
    struct ull__source source = {training, valid_eval, length_eval, read_eval};
    int64_t count = (int64_t)train_eval_count(training);
    ull_status status =
        ull__session_evaluate(training->session, &source, count, NULL, evaluation, err);
    if (status == ULL_OK) {
        training->eval_loss = evaluation->loss;
        training->accuracy =
            evaluation->valid > 0 ? (double)evaluation->right / (double)evaluation->valid : NAN;
    }
    return status;
}

/* --- */

double train_rate(const struct training *training, uint64_t done)
{
    double base = training->learning_rate, total = (double)training->total_steps;
    double warm = training->options->warmup * total;
    double at = (double)done;
    if (at < warm) {
        return base * (at + 1) / (warm + 1);
    }
    double rest = total - warm;
    double share = rest > 0 ? (at - warm) / rest : 0;
    share = share < 1 ? share : 1;
    switch (training->options->schedule) {
    case TRAIN_COSINE:
        return base * 0.5 * (1 + cos(M_PI * share));
    case TRAIN_LINEAR:
        return base * (1 - share);
    default:
        return base;
    }
}

/* A line of /proc/self/status in bytes; 0: not there. */
static uint64_t status_bytes(const char *key)
{
    char line[256];
    uint64_t found = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            found = strtoull(line + strlen(key), NULL, 10) * 1024;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

uint64_t train_outside_bytes(const struct training *training)
{
    /* Regions are pages of a memory file, not anonymous ones. */
    uint64_t anonymous = status_bytes("RssAnon:");
    uint64_t data = ull__data_info(training->data)->resident_bytes;
    return anonymous > data ? anonymous - data : 0;
}

static ull_status check_loss(struct training *training, const struct ull__step_result *result,
                             struct ull_error *err)
{
    struct ull__session_info info;
    ull__session_info(training->session, &info);
    bool scaled = info.chosen->precision == ULL_PRECISION_F16;
    const char *kept = training->options->save != NULL ? "; what was saved before is whole" : "";
    if (!result->skipped && !isfinite(result->loss)) {
        return ull__fail(
            err, ULL_E_INVALID,
            "step %llu: the loss is %g, no number to go on from: lower --lr, or look at "
            "the data%s",
            (unsigned long long)info.steps, result->loss, kept);
    }
    training->low_steps =
        scaled && result->skipped && result->loss_scale <= 1 ? training->low_steps + 1 : 0;
    if (training->low_steps >= HOPELESS) {
        return ull__fail(err, ULL_E_INVALID,
                         "step %llu: the loss scale has fallen to %g and gradients still are not "
                         "finite, %d times in a row: try --precision bf16, or a lower --lr%s",
                         (unsigned long long)info.steps, result->loss_scale, HOPELESS, kept);
    }
    return ULL_OK;
}

/* Whether a multiple of `every` lies between two numbers. */
static bool crosses(double before, double after, double every)
{
    return every > 0 && floor(before / every) < floor(after / every);
}

static ull_status now_and_then(struct training *training, double before, double after, bool last,
                               struct ull_error *err)
{
    const struct train_options *options = training->options;
    ull_status status = ULL_OK;
    bool evaluates = training->readers[ULL_DATA_EVAL] != NULL;
    if (evaluates && !training->stops && (last || crosses(before, after, options->eval_every))) {
        struct ull__evaluation evaluation;
        status = train_evaluate(training, &evaluation, err);
        if (status == ULL_OK) {
            train_print_eval(training, &evaluation);
        } else if (train_stop != 0 && options->world == NULL) {
            status = ULL_OK;
            training->stops = last = true;
        }
    }
    bool saves = options->save_every > 0 ? training->seen % (uint64_t)options->save_every == 0
                                         : crosses(before, after, 1);
    saves = options->save != NULL && (saves || last);
    if (status == ULL_OK && (saves || last)) {
        status = train_ranks_compare(training, err);
    }
    if (status == ULL_OK && saves && train_speaks(options)) {
        status = train_save(training, err);
        if (status != ULL_OK && !last) {
            /* The run goes on: a disk may have room again, and what was saved is whole. */
            train_print_note(training, err->message);
            status = ULL_OK;
        }
    }
    return status;
}

ull_status train_loop(struct training *training, struct ull_error *err)
{
    struct ull__source source = {training, valid_train, length_train, read_train};
    while (training->seen < training->total_steps) {
        struct ull__session_info info;
        struct ull__step_result result;
        ull__session_info(training->session, &info);
        double rate = train_rate(training, info.steps);
        double before = (double)training->position / (double)training->samples;
        ull_status status = ull__session_step(training->session, &source, rate, &result, err);
        if (status == ULL_OK) {
            status = check_loss(training, &result, err);
        }
        if (status != ULL_OK) {
            return status;
        }
        training->position += training->batch;
        training->seen += 1;
        training->skipped += result.skipped;
        training->seconds += result.seconds;
        if (training->seen % 16 < 3) {
            uint64_t outside = train_outside_bytes(training);
            training->outside_bytes =
                outside > training->outside_bytes ? outside : training->outside_bytes;
        }
        train_print_step(training, &result);
        train_note_point(training, &result);
        status = train_job_follow(training, err);
        if (status != ULL_OK) {
            return status;
        }
        bool last = training->seen == training->total_steps || training->stops;
        status = now_and_then(training, before,
                              (double)training->position / (double)training->samples, last, err);
        if (status != ULL_OK || training->stops) {
            return status;
        }
    }
    return ULL_OK;
}
