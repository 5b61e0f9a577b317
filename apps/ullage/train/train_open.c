/* train_open.c: everything of a training, from what was asked: opened in turn, and closed. */
#include <math.h>
#include <stdlib.h>

#include "error.h"
#include "train_plan.h"

static void fill_defaults(const struct train_options *options, const struct ull__data_info *info,
                          struct ull__plan_request *request)
{
    bool tokens = info->tokens;
    if (request->batch == 0) {
        request->batch = tokens ? 32 : 128;
    }
    if (!options->optimizer_given) {
        request->optimizer = tokens ? ULL_OPTIMIZER_ADAMW : ULL_OPTIMIZER_SGD;
    }
    if (!options->decay_given) {
        request->attrs.weight_decay = request->optimizer == ULL_OPTIMIZER_ADAMW ? 0.1
                                      : request->optimizer == ULL_OPTIMIZER_SGD ? 5e-4
                                                                                : 0;
    }
    if (!options->clip_given && tokens) {
        request->attrs.limit = 1;
    }
    request->attrs.beta1 = 0.9;
    request->attrs.beta2 = tokens ? 0.95 : 0.999;
    request->attrs.epsilon = 1e-8;
}

uint64_t train_eval_count(const struct training *training)
{
    uint64_t count = ull__data_info(training->data)->samples[ULL_DATA_EVAL];
    uint64_t most = (uint64_t)training->options->eval_samples;
    return most > 0 && most < count ? most : count;
}

static ull_status open_readers(struct training *training, struct ull_error *err)
{
    const struct ull__data_info *info = ull__data_info(training->data);
    for (int part = 0; part < ULL_DATA_PARTS; ++part) {
        bool train = part == ULL_DATA_TRAIN;
        if (info->samples[part] == 0) {
            continue;
        }
        uint64_t whole = train ? training->batch : train_eval_count(training);
        struct ull__share share = ull__session_share(training->session, (int64_t)whole);
        struct ull__reader_options options = {
            .part = (enum ull__data_part)part,
            .seed = training->options->seed,
            .shuffle = train,
            .augment = train && training->options->augment,
            .batch = training->batch,
            .most = train ? 0 : (uint64_t)training->options->eval_samples,
            .share = {(uint64_t)share.first, (uint64_t)share.count, whole},
            .until = train ? training->total_steps * training->batch : 0,
            .threads = 1,
            .buffer_bytes = 8 << 20,
            .warn = train ? train_warn_train : train_warn_eval,
            .context = training};
        ull_status status =
            ull__reader_create(training->data, &options, &training->readers[part], err);
        if (status != ULL_OK) {
            return status;
        }
    }
    return training->readers[ULL_DATA_TRAIN] != NULL
               ? ULL_OK
               : ull__fail(err, ULL_E_INVALID, "'%s' has no samples to train on",
                           training->options->data);
}

static ull_status fits(const struct training *training, struct ull_error *err)
{
    struct ull__session_info info;
    const struct ull__data_info *data = ull__data_info(training->data);
    ull__session_info(training->session, &info);
    if (info.tokens != data->tokens || info.sample_targets != data->sample_targets ||
        (uint64_t)info.sample_elements * 4 != data->sample_bytes) {
        return ull__fail(err, ULL_E_INVALID,
                         "model '%s' takes samples of %lld %s with %lld targets, '%s' has %zu with "
                         "%lld",
                         training->model_text, (long long)info.sample_elements,
                         info.tokens ? "tokens" : "values", (long long)info.sample_targets,
                         training->options->data, data->sample_bytes / 4,
                         (long long)data->sample_targets);
    }
    if (info.classes > 0 && info.classes < data->classes) {
        return ull__fail(err, ULL_E_INVALID, "model '%s' tells %lld classes apart, '%s' has %lld",
                         training->model_text, (long long)info.classes, training->options->data,
                         (long long)data->classes);
    }
    return ULL_OK;
}

/* What is asked of a session: by the options, and by a save or a file of a plan where that says otherwise. */
static struct ull__session_options session_options(struct training *training, bool wants)
{
    const struct train_options *options = training->options;
    const struct train_models *models = &training->models;
    const struct train_wanted *wanted = &training->wanted;
    /* Ranks of a shared batch have a plan of their own share. */
    bool given = options->file != NULL && !training->resumes && options->request.devices <= 1;
    struct ull__session_options session = {.model = models->graphs[models->count - 1],
                                           .shorter = (const struct ull__graph *const *)models->graphs,
                                           .shorter_count = models->count - 1,
                                           .backend = training->backend,
                                           .plan = options->request,
                                           .budget_bytes = (uint64_t)options->memory,
                                           .seed = options->seed,
                                           .initial_loss_scale = options->loss_scale,
                                           .given = given ? &options->file->given : NULL,
                                           .accepts = wants ? train_plan_accepts : NULL,
                                           .context = &training->wanted,
                                           .world = options->world};
    fill_defaults(options, ull__data_info(training->data), &session.plan);
    session.plan.profile = &options->profile;
    session.plan.batch = wanted->batch > 0 ? wanted->batch : session.plan.batch;
    session.plan.precision =
        wanted->precision != ULL_PRECISION_AUTO ? wanted->precision : session.plan.precision;
    return session;
}

/* Where no plan as it was wanted fits any more, the training goes on with another, and says so. */
static ull_status open_session(struct training *training, struct ull_error *err)
{
    bool from_file = training->options->file != NULL && !training->resumes;
    bool wants = training->resumes || training->options->plan != NULL;
    training->wanted.longest = training->models.lengths[training->models.count - 1];
    struct ull__session_options session = session_options(training, wants);
    training->request = session.plan;
    ull_status status = ull__session_create(&session, &training->session, err);
    if (status == ULL_E_NO_MEMORY && wants) {
        session.accepts = NULL;
        session.given = NULL;
        status = ull__session_create(&session, &training->session, err);
        if (status == ULL_OK) {
            train_print_note(training,
                             "the plan that was asked for does not fit: another one is taken");
        }
    } else if (status == ULL_OK && session.given != NULL) {
        train_plan_compare(training);
    } else if (status == ULL_OK && from_file) {
        train_print_note(training,
                         "of the plan, ranks take the batch, micro-batch, precision and where the "
                         "optimizer's state is: what is recomputed and sent is chosen anew");
    }
    if (status == ULL_OK) {
        status = fits(training, err);
    }
    return status == ULL_OK
               ? train_models_check(training->model_text, training->data, training->session, err)
               : status;
}

static uint64_t steps_of(const struct training *training, int64_t batch)
{
    double wanted = ceil(training->options->epochs * (double)training->samples / (double)batch);
    uint64_t steps = wanted < 1 ? 1 : (uint64_t)wanted;
    uint64_t most = (uint64_t)training->options->max_steps;
    return most > 0 && most < steps ? most : steps;
}

/* What follows from the data and the batch. */
static void set_run(struct training *training)
{
    const struct train_options *options = training->options;
    const struct ull__plan_request request = training->request;
    training->samples = ull__data_info(training->data)->samples[ULL_DATA_TRAIN];
    training->batch = (uint64_t)request.batch;
    training->learning_rate = options->learning_rate >= 0 ? options->learning_rate
                              : request.optimizer == ULL_OPTIMIZER_SGD
                                  ? 0.1 * (double)request.batch / 128
                                  : 1e-3;
    training->total_steps = steps_of(training, request.batch);
    if (training->batch > training->samples) {
        char text[160];
        snprintf(
            text, sizeof(text),
            "a batch of %llu is more than the %llu samples that there are: each step takes some of "
            "them several times",
            (unsigned long long)training->batch, (unsigned long long)training->samples);
        train_print_note(training, text);
    }
}

ull_status train_open(const struct train_options *options, struct training *training,
                      struct ull_error *err)
{
    *training = (struct training){.options = options,
                                  .wanted = {.chunked = -1, .offload = -1, .drops = -1},
                                  .accuracy = NAN,
                                  .eval_loss = NAN};
    int64_t longest = options->length_count > 0 ? options->lengths[options->length_count - 1] : 0;
    ull_status status = train_open_data(options->model, options->data, NULL, options->seed, longest,
                                        training->model_text, &training->data, err);
    if (status == ULL_OK) {
        status = train_models_build(training->model_text, training->data, ULL_DATA_TRAIN,
                                    options->lengths, options->length_count, &training->models, err);
    }
    if (status == ULL_OK && options->request.devices > 1) {
        train_models_keep_longest(&training->models);
    }
    if (status == ULL_OK) {
        struct ull__cpu_options cpu = {.threads = options->threads,
                                       .world = options->world,
                                       .observe = options->trace != NULL ? train_trace_note : NULL};
        status = ull__cpu_create(&cpu, &training->backend, err);
    }
    if (status == ULL_OK && options->save != NULL) {
        status = train_find_save(training, err);
    }
    if (status == ULL_OK && options->plan != NULL && !training->resumes) {
        training->wanted = options->file->wanted;
        status = train_plan_fits(training, err);
    }
    if (status == ULL_OK) {
        status = open_session(training, err);
    }
    if (status == ULL_OK) {
        set_run(training);
        status = open_readers(training, err);
    }
    return status;
}

void train_close(struct training *training)
{
    ull__session_destroy(training->session);
    if (training->resumes) {
        ull__saved_close(&training->saved);
    }
    ull__save_close(training->save);
    for (int part = 0; part < ULL_DATA_PARTS; ++part) {
        ull__reader_destroy(training->readers[part]);
    }
    ull__data_close(training->data);
    train_models_finish(&training->models);
    if (training->backend != NULL) {
        training->backend->ops->destroy(training->backend);
    }
    free(training->switches);
    free(training->points);
    free(training->untold);
    free(training->told);
    *training = (struct training){0};
}
