/* train_open.c: data, model, backend and session, from what was asked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../plan/model.h"
#include "error.h"
#include "train_plan.h"
#include "zoo.h"

/* --- A model whose sizes are those of the data --- */

const char *train_argument(const char *list, const char *key, const char *separators)
{
    size_t length = strlen(key);
    while (list != NULL && *list != '\0') {
        if (strncmp(list, key, length) == 0 && list[length] == '=') {
            return list + length + 1;
        }
        list = strpbrk(list, separators);
        list = list != NULL ? list + 1 : NULL;
    }
    return NULL;
}

/* NULL: not of the zoo. */
static const struct ull__zoo_model *zoo_model(const char *text)
{
    size_t length = strcspn(text, ":");
    for (const struct ull__zoo_model *model = ull__zoo; model->name != NULL; ++model) {
        if (strlen(model->name) == length && strncmp(model->name, text, length) == 0) {
            return model;
        }
    }
    return NULL;
}

static bool is_free(const struct ull__zoo_model *model, const char *given, const char *key)
{
    return train_argument(model->arguments, key, " ") != NULL &&
           train_argument(given, key, ",") == NULL;
}

bool train_model_leaves_free(const char *model, const char *key)
{
    const struct ull__zoo_model *zoo = zoo_model(model);
    const char *given = strchr(model, ':');
    return zoo != NULL && is_free(zoo, given != NULL ? given + 1 : NULL, key);
}

static void append(char text[512], const char *key, long long a, long long b)
{
    size_t at = strlen(text);
    const char *mark = strchr(text, ':') != NULL ? "," : ":";
    if (b > 0 && b != a) {
        snprintf(text + at, 512 - at, "%s%s=%lldx%lld", mark, key, a, b);
    } else {
        snprintf(text + at, 512 - at, "%s%s=%lld", mark, key, a);
    }
}

static void fill_sizes(const struct ull__zoo_model *model, const char *given,
                       const struct ull__data_info *info, char text[512])
{
    if (info->tokens) {
        if (is_free(model, given, "vocab")) {
            append(text, "vocab", (long long)info->classes, 0);
        }
        return;
    }
    if (is_free(model, given, "image")) {
        append(text, "image", (long long)info->shape[1], (long long)info->shape[2]);
    }
    if (is_free(model, given, "channels")) {
        append(text, "channels", (long long)info->shape[0], 0);
    }
    if (is_free(model, given, "inputs")) {
        append(text, "inputs", (long long)(info->shape[0] * info->shape[1] * info->shape[2]), 0);
    }
    if (is_free(model, given, "classes")) {
        append(text, "classes", (long long)info->classes, 0);
    }
}

static int64_t number_of(const struct ull__zoo_model *model, const char *given, const char *key)
{
    const char *text = train_argument(given, key, ",");
    text = text != NULL ? text : train_argument(model->arguments, key, " ");
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

/* What pictures are made into where the user or the model says so; else as they are. */
static void wanted_shape(const struct ull__zoo_model *model, const char *given, bool defaults,
                         int64_t shape[3])
{
    const char *image = train_argument(given, "image", ",");
    image = image == NULL && defaults ? train_argument(model->arguments, "image", " ") : image;
    const char *channels = train_argument(given, "channels", ",");
    channels =
        channels == NULL && defaults ? train_argument(model->arguments, "channels", " ") : channels;
    if (image != NULL) {
        char *end;
        shape[1] = shape[2] = strtoll(image, &end, 10);
        shape[2] = *end == 'x' ? strtoll(end + 1, NULL, 10) : shape[2];
    }
    shape[0] = channels != NULL ? strtoll(channels, NULL, 10) : shape[0];
}

/* A file of ONNX says itself what it takes; made-up data has as many classes as that tells apart. */
static ull_status want_of_file(const char *model, bool made_up, struct ull__data_want *want,
                               struct ull_error *err)
{
    struct ull__graph *graph;
    ull_status status = model_build(model, false, &graph, err);
    if (status != ULL_OK) {
        return status;
    }
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 1, values);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role != ULL_ROLE_INPUT || strncmp(tensor->name, "target", 6) == 0) {
            continue;
        }
        if (!ull__type_is_float(tensor->type)) {
            want->window = ull__tensor_elements(graph, i, values);
        } else if (tensor->rank == 4) {
            for (int j = 0; j < 3; ++j) {
                want->shape[j] = ull__dim_value(graph->symbols, tensor->dims[1 + j], values);
            }
        }
    }
    if (made_up && graph->output_count > 0) {
        const struct ull__tensor *logits = &graph->tensors[graph->outputs[0]];
        want->classes = ull__dim_value(graph->symbols, logits->dims[logits->rank - 1], values);
    }
    ull__graph_destroy(graph);
    return ULL_OK;
}

/* Tokens of a sample: the context, or the shorter length that was given. */
static int64_t window_of(const struct ull__zoo_model *model, const char *given)
{
    int64_t length = number_of(model, given, "length");
    return length > 0 ? length : number_of(model, given, "context");
}

ull_status train_open_data(const char *model, const char *data, const char *like, uint64_t seed,
                           int64_t longest, char model_text[512], struct ull__data **opened,
                           struct ull_error *err)
{
    struct ull__data_spec spec;
    struct ull__data_want want = {.seed = seed, .like = like, .warn = train_warn};
    const struct ull__zoo_model *zoo = zoo_model(model);
    const char *given = strchr(model, ':');
    given = given != NULL ? given + 1 : NULL;
    snprintf(model_text, 512, "%s", model);
    ull_status status = ull__data_spec_parse(data, &spec, err);
    if (status == ULL_OK && zoo == NULL) {
        status = want_of_file(model, spec.format == ULL_DATA_SYNTHETIC, &want, err);
    } else if (status == ULL_OK) {
        bool tokens = train_argument(zoo->arguments, "vocab", " ") != NULL;
        want.window = tokens ? window_of(zoo, given) : 0;
        wanted_shape(zoo, given, spec.format == ULL_DATA_SYNTHETIC, want.shape);
        const char *classes = train_argument(given, tokens ? "vocab" : "classes", ",");
        want.classes = classes != NULL ? strtoll(classes, NULL, 10)
                       : spec.format == ULL_DATA_SYNTHETIC
                           ? number_of(zoo, given, tokens ? "vocab" : "classes")
                           : 0;
    }
    if (status == ULL_OK && longest > 0 && want.window > 0 && longest > want.window) {
        status = ull__fail(err, ULL_E_INVALID,
                           "--buckets: %lld is above the %lld tokens that '%s' takes",
                           (long long)longest, (long long)want.window, model);
    }
    want.window = longest > 0 && want.window > 0 ? longest : want.window;
    if (status == ULL_OK) {
        status = ull__data_open(&spec, &want, opened, err);
    }
    if (status == ULL_OK && zoo != NULL) {
        const struct ull__data_info *info = ull__data_info(*opened);
        int64_t shape[3] = {0, 0, 0};
        wanted_shape(zoo, given, true, shape);
        /* Pictures of many sizes have none of their own: the model's counts. */
        if (info->format == ULL_DATA_IMAGES && want.shape[1] == 0 && shape[1] > 0 && like == NULL) {
            memcpy(want.shape, shape, sizeof(shape));
            ull__data_close(*opened);
            *opened = NULL;
            status = ull__data_open(&spec, &want, opened, err);
        }
        if (status == ULL_OK) {
            fill_sizes(zoo, given, ull__data_info(*opened), model_text);
        }
    }
    return status;
}

/* --- Everything else --- */

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
            .warn = train_warn};
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

/* Where no plan as it was wanted fits any more, the training goes on with another, and says so. */
static ull_status open_session(struct training *training, struct ull_error *err)
{
    const struct train_options *options = training->options;
    const struct train_models *models = &training->models;
    bool wants = training->resumes || options->plan != NULL;
    training->wanted.longest = models->lengths[models->count - 1];
    struct ull__session_options session = {.model = models->graphs[models->count - 1],
                                           .shorter = (const struct ull__graph *const *)models->graphs,
                                           .shorter_count = models->count - 1,
                                           .backend = training->backend,
                                           .plan = options->request,
                                           .budget_bytes = (uint64_t)options->memory,
                                           .seed = options->seed,
                                           .initial_loss_scale = options->loss_scale,
                                           .world = options->world};
    fill_defaults(options, ull__data_info(training->data), &session.plan);
    session.plan.profile = &options->profile;
    /* Ranks of a shared batch have a plan of their own share. */
    session.given = options->file != NULL && !training->resumes && options->request.devices <= 1
                        ? &options->file->given
                        : NULL;
    session.plan.batch = training->wanted.batch > 0 ? training->wanted.batch : session.plan.batch;
    session.plan.precision = training->wanted.precision != ULL_PRECISION_AUTO
                                 ? training->wanted.precision
                                 : session.plan.precision;
    session.accepts = wants ? train_plan_accepts : NULL;
    session.context = &training->wanted;
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
    } else if (status == ULL_OK && options->file != NULL && !training->resumes) {
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
    *training = (struct training){0};
}
