/* train_save.c: between a session and the files of a save. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "json.h"
#include "train_cmd.h"

static enum ull__save_type saved_type(enum ull__type type)
{
    switch (type) {
    case ULL_TYPE_F16:
        return ULL_SAVE_F16;
    case ULL_TYPE_BF16:
        return ULL_SAVE_BF16;
    case ULL_TYPE_I64:
        return ULL_SAVE_I64;
    case ULL_TYPE_I32:
        return ULL_SAVE_I32;
    default:
        return ULL_SAVE_F32;
    }
}

/* Weights and statistics are the model, the optimizer's state is the rest. */
static size_t list(struct ull__session *session, bool model, struct ull__save_tensor *to)
{
    int count;
    size_t made = 0;
    const struct ull__session_tensor *tensors = ull__session_tensors(session, &count);
    for (int i = 0; i < count; ++i) {
        if ((tensors[i].role != ULL_ROLE_OPTIMIZER) != model) {
            continue;
        }
        struct ull__save_tensor *tensor = &to[made++];
        *tensor = (struct ull__save_tensor){.name = tensors[i].name,
                                            .type = saved_type(tensors[i].type),
                                            .rank = tensors[i].rank,
                                            .data = tensors[i].data};
        memcpy(tensor->shape, tensors[i].dims, sizeof(*tensor->shape) * (size_t)tensor->rank);
    }
    return made;
}

uint64_t train_model_identity(struct ull__session *session)
{
    int count;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const struct ull__session_tensor *tensors = ull__session_tensors(session, &count);
    for (int i = 0; i < count; ++i) {
        if (tensors[i].role == ULL_ROLE_OPTIMIZER) {
            continue;
        }
        for (const char *c = tensors[i].name; *c != '\0'; ++c) {
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
        }
        for (int j = 0; j < tensors[i].rank; ++j) {
            hash = (hash ^ (uint64_t)tensors[i].dims[j]) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

static void put_text(struct ull_json *json, const char *key, const char *value)
{
    ull__json_key(json, key);
    ull__json_string(json, value);
}

static void put_i64(struct ull_json *json, const char *key, int64_t value)
{
    ull__json_key(json, key);
    ull__json_i64(json, value);
}

/* What decides the bits of what follows. A run that goes on takes its plan from here, and may have other devices and threads. */
static char *describe_options(struct training *training)
{
    struct ull__session_info info;
    struct ull_json json;
    ull__session_info(training->session, &info);
    ull__json_init(&json, NULL);
    json.compact = true;
    ull__json_object(&json);
    put_i64(&json, "batch", (int64_t)training->batch);
    put_text(&json, "precision", ull__precision_text(info.chosen->precision));
    put_i64(&json, "micro_batch", info.chosen->micro_batch);
    ull__json_key(&json, "chunked_loss");
    ull__json_bool(&json, info.chosen->chunked_loss);
    ull__json_key(&json, "offload_optimizer");
    ull__json_bool(&json, info.chosen->offload_optimizer);
    ull__json_key(&json, "buckets");
    ull__json_array(&json);
    for (int i = 0; ull__data_info(training->data)->documents && i < info.bucket_count; ++i) {
        ull__json_object(&json);
        put_i64(&json, "length", info.buckets[i].length);
        put_i64(&json, "micro_batch", info.buckets[i].chosen->micro_batch);
        ull__json_key(&json, "chunked_loss");
        ull__json_bool(&json, info.buckets[i].chosen->chunked_loss);
        ull__json_object_end(&json);
    }
    ull__json_array_end(&json);
    put_i64(&json, "devices",
            training->options->request.devices > 1 ? training->options->request.devices : 1);
    put_i64(&json, "threads", ull__cpu_threads(training->backend));
    put_text(&json, "backend", ull__cpu_describe(training->backend));
    ull__json_object_end(&json);
    char *text = ull__json_finish(&json) ? strdup(json.text) : NULL;
    ull__json_free(&json);
    return text;
}

static void fill_state(struct training *training, struct ull__save_state *state)
{
    struct ull__session_info info;
    ull__session_info(training->session, &info);
    *state = (struct ull__save_state){.step = training->seen,
                                      .epoch = training->position / training->samples,
                                      .position = training->position,
                                      .seed = training->options->seed,
                                      .schedule_step = info.steps,
                                      .learning_rate = train_rate(training, info.steps),
                                      .loss_scale = info.loss_scale,
                                      .scale_good_steps = (uint64_t)info.good_steps,
                                      .scale_hysteresis = (uint64_t)info.hysteresis_left,
                                      .scale_low_steps = training->low_steps,
                                      .skipped = training->skipped,
                                      .loss = training->eval_loss,
                                      .accuracy = training->accuracy,
                                      .seconds = training->seconds,
                                      .model_identity = train_model_identity(training->session),
                                      .data_identity =
                                          ull__data_info(training->data)->identity[ULL_DATA_TRAIN],
                                      .model = training->model_text,
                                      .switches = training->switches,
                                      .switch_count = training->switch_count};
}

ull_status train_save(struct training *training, struct ull_error *err)
{
    int count;
    struct ull__save_state state;
    char *data = NULL, *options = describe_options(training);
    ull__session_tensors(training->session, &count);
    struct ull__save_tensor *model = calloc((size_t)count + 1, sizeof(*model));
    struct ull__save_tensor *rest = calloc((size_t)count + 1, sizeof(*rest));
    ull_status status = ULL_E_NO_MEMORY;
    fill_state(training, &state);
    if (model == NULL || rest == NULL || options == NULL) {
        ull__fail(err, status, "no memory to save");
    } else {
        status = ULL_OK;
    }
    if (status == ULL_OK) {
        status = ull__data_describe(training->data, &data, err);
    }
    if (status == ULL_OK) {
        state.data = data;
        state.options = options;
        size_t models = list(training->session, true, model);
        size_t rests = list(training->session, false, rest);
        status = ull__save_write(training->save, &state, model, models, rest, rests, err);
    }
    free(model);
    free(rest);
    free(data);
    free(options);
    return status;
}

ull_status train_load_model(struct ull__session *session, const struct ull__saved *saved,
                            struct ull_error *err)
{
    int count;
    ull__session_tensors(session, &count);
    struct ull__save_tensor *model = calloc((size_t)count + 1, sizeof(*model));
    if (model == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to read a save");
    }
    size_t models = list(session, true, model);
    ull_status status = ull__safetensors_read_all(saved->model, model, models, true, err);
    free(model);
    return status;
}

static ull_status load_rest(struct training *training, const struct ull__saved *saved,
                            struct ull_error *err)
{
    int count;
    ull__session_tensors(training->session, &count);
    struct ull__save_tensor *rest = calloc((size_t)count + 1, sizeof(*rest));
    if (rest == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to read a save");
    }
    size_t rests = list(training->session, false, rest);
    ull_status status = ull__safetensors_read_all(saved->rest, rest, rests, true, err);
    free(rest);
    return status;
}

static ull_status fits(struct training *training, const struct ull__saved *saved,
                       struct ull_error *err)
{
    const struct ull__save_state *state = &saved->state;
    if (state->model_identity != train_model_identity(training->session)) {
        return ull__fail(err, ULL_E_INVALID, "'%s' is a save of model '%s', this is '%s'",
                         saved->folder, state->model, training->model_text);
    }
    if (state->data_identity != ull__data_info(training->data)->identity[ULL_DATA_TRAIN]) {
        return ull__fail(err, ULL_E_INVALID,
                         "'%s' was trained on other data than '%s': expected the same, so that the "
                         "run goes on where it was",
                         saved->folder, training->options->data);
    }
    if (state->seed != training->options->seed) {
        return ull__fail(err, ULL_E_INVALID, "'%s' was trained with --seed %llu: give it again",
                         saved->folder, (unsigned long long)state->seed);
    }
    return ULL_OK;
}

static void take_state(struct training *training, const struct ull__save_state *state)
{
    training->seen = state->step;
    training->position = state->position;
    training->skipped = state->skipped;
    training->low_steps = state->scale_low_steps;
    training->seconds = state->seconds;
    training->eval_loss = state->loss;
    training->accuracy = state->accuracy;
    ull__session_restore(training->session, state->schedule_step, state->loss_scale,
                         (int64_t)state->scale_good_steps, (int64_t)state->scale_hysteresis);
}

/* Padding to other lengths changes the order of sums, and so bits. */
static ull_status same_lengths(const struct training *training, struct ull_error *err)
{
    const struct train_wanted *wanted = &training->wanted;
    const struct train_models *models = &training->models;
    bool same = wanted->length_count == 0 || wanted->length_count == models->count;
    char text[24 * ULL_SESSION_BUCKETS] = "";
    for (int i = 0; i < wanted->length_count; ++i) {
        same = same && wanted->lengths[i].length == models->lengths[i];
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%lld", i > 0 ? "," : "",
                 (long long)wanted->lengths[i].length);
    }
    return same ? ULL_OK
                : ull__fail(err, ULL_E_INVALID, "'%s' was trained with --buckets %s: give it again",
                            training->saved.folder, text);
}

/* What was said and is another than in the save would change what follows, and be passed over. */
static ull_status same_options(const struct training *training, struct ull_error *err)
{
    const struct train_wanted *wanted = &training->wanted;
    const struct ull__plan_request *request = &training->options->request;
    if (request->batch > 0 && request->batch != wanted->batch) {
        return ull__fail(err, ULL_E_INVALID,
                         "'%s' was trained with --batch %lld, not %lld: give that again, or none",
                         training->saved.folder, (long long)wanted->batch, (long long)request->batch);
    }
    if (request->precision != ULL_PRECISION_AUTO && request->precision != wanted->precision) {
        return ull__fail(err, ULL_E_INVALID,
                         "'%s' was trained with --precision %s, not %s: give that again, or none",
                         training->saved.folder, ull__precision_text(wanted->precision),
                         ull__precision_text(request->precision));
    }
    return same_lengths(training, err);
}

/* Rank 0 found `step`, or UINT64_MAX: none. The others read the same one. */
static ull_status follow_save(struct training *training, ull_status status, struct ull_error *err)
{
    uint64_t step = training->resumes ? training->saved.state.step : UINT64_MAX;
    struct ull__world *world = training->options->world;
    if (status != ULL_OK || world == NULL) {
        return status;
    }
    status = ull__world_tell(world, &step, sizeof(step), err);
    if (status != ULL_OK || step == UINT64_MAX || training->resumes) {
        return status;
    }
    status = ull__save_load(training->options->save, NULL, NULL, &training->saved, err);
    if (status != ULL_OK) {
        return status;
    }
    training->resumes = true;
    if (training->saved.state.step != step) {
        return ull__fail(err, ULL_E_INVALID, "'%s' changes while it is read", training->saved.folder);
    }
    const char *options = training->saved.state.options;
    return train_plan_text(options != NULL ? options : "", training->saved.folder,
                           &training->wanted, err);
}

static ull_status find_save(struct training *training, struct ull_error *err);

ull_status train_find_save(struct training *training, struct ull_error *err)
{
    bool finds = train_speaks(training->options);
    return follow_save(training, finds ? find_save(training, err) : ULL_OK, err);
}

static ull_status find_save(struct training *training, struct ull_error *err)
{
    const char *folder = training->options->save;
    uint64_t newest;
    ull_status status = ull__save_open(folder, train_warn, NULL, &training->save, &newest, err);
    if (status != ULL_OK || newest == UINT64_MAX) {
        return status; /* nothing saved yet: from the beginning */
    }
    if (!training->options->resume) {
        return ull__fail(
            err, ULL_E_INVALID,
            "'%s' has a save of step %llu: say --resume to go on from it, or take another "
            "folder",
            folder, (unsigned long long)newest);
    }
    status = ull__save_load(folder, train_warn, NULL, &training->saved, err);
    if (status != ULL_OK) {
        return status;
    }
    training->resumes = true;
    const char *options = training->saved.state.options;
    status = train_plan_text(options != NULL ? options : "", training->saved.folder,
                             &training->wanted, err);
    return status == ULL_OK ? same_options(training, err) : status;
}

ull_status train_load(struct training *training, struct ull_error *err)
{
    ull_status status = fits(training, &training->saved, err);
    if (status == ULL_OK) {
        status = train_load_model(training->session, &training->saved, err);
    }
    if (status == ULL_OK) {
        status = load_rest(training, &training->saved, err);
    }
    if (status == ULL_OK) {
        take_state(training, &training->saved.state);
    }
    return status;
}
