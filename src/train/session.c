/* session.c: a training from its beginning to its end, and the plans that it takes. See session.h. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "session_private.h"

enum { MOST_MEASURING = 1 << 28 };

/* --- What the model takes and gives --- */

ull_status ull__bucket_find_ends(struct ull__session *session, struct ull__bucket *bucket,
                                 struct ull_error *err)
{
    const struct ull__graph *graph = bucket->program->graph;
    int inputs = 0;
    bucket->input = bucket->target = ULL_NONE;
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role != ULL_ROLE_INPUT || tensor->node != ULL_NONE ||
            bucket->program->buffer_of[i] == ULL_NONE) {
            continue;
        }
        bool target = strcmp(tensor->name, "target") == 0 || strcmp(tensor->name, "targets") == 0;
        *(target ? &bucket->target : &bucket->input) = i;
        inputs += 1;
    }
    if (inputs != 2 || bucket->input == ULL_NONE || bucket->target == ULL_NONE) {
        return ull__fail(err, ULL_E_INVALID,
                         "model '%s' has %d inputs; training needs one for samples, and one named "
                         "'target' with a class for each of them",
                         graph->name, inputs);
    }
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 1, values);
    const struct ull__tensor *input = &graph->tensors[bucket->input];
    session->tokens = !ull__type_is_float(input->type);
    bucket->sample_elements = ull__tensor_elements(graph, bucket->input, values);
    bucket->sample_targets = ull__tensor_elements(graph, bucket->target, values);
    if (bucket > session->buckets && bucket->sample_elements <= bucket[-1].sample_elements) {
        return ull__fail(err, ULL_E_INVALID,
                         "samples of %lld elements and then of %lld: expected "
                         "ascending lengths",
                         (long long)bucket[-1].sample_elements, (long long)bucket->sample_elements);
    }
    return ULL_OK;
}

/* All lengths work on the same weights and state, where they are. */
static ull_status check_places(struct ull__session *session, const struct ull__bucket *bucket,
                               struct ull_error *err)
{
    const struct ull__bucket *longest = ull__session_longest(session);
    const struct ull__graph *graph = bucket->program->graph, *other = longest->program->graph;
    for (int i = 0; i < bucket->program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &bucket->program->buffers[i];
        if (buffer->life != ULL_LIFE_PERSISTENT || buffer->role == ULL_ROLE_CONTROL ||
            buffer->role == ULL_ROLE_CONSTANT) {
            continue;
        }
        const char *name = graph->tensors[buffer->tensor].name;
        int same = ull__graph_find(other, buffer->role, name);
        int there = same != ULL_NONE ? longest->program->buffer_of[same] : ULL_NONE;
        if (there == ULL_NONE || longest->program->buffers[there].bytes != buffer->bytes ||
            longest->layout.persistent_offsets[there] != bucket->layout.persistent_offsets[i] ||
            longest->layout.host_offsets[there] != bucket->layout.host_offsets[i]) {
            return ull__fail(err, ULL_E_INVALID,
                             "'%s' of model '%s' is not the same for samples of %lld elements and "
                             "of %lld: it cannot be trained on several lengths",
                             name, other->name, (long long)bucket->sample_elements,
                             (long long)longest->sample_elements);
        }
    }
    return ULL_OK;
}

static void find_classes(struct ull__session *session)
{
    const struct ull__graph *model = session->options.model;
    if (model->output_count > 0) {
        const struct ull__tensor *logits = &model->tensors[model->outputs[0]];
        session->classes = ull__dim_value(model->symbols, logits->dims[logits->rank - 1], NULL);
    }
}

/* --- Plans --- */

static void drop_executables(struct ull__session *session)
{
    for (int i = 0; i < session->bucket_count; ++i) {
        struct ull__bucket *bucket = &session->buckets[i];
        ull__executable_destroy(bucket->full);
        ull__executable_destroy(bucket->rest);
        bucket->full = bucket->rest = NULL;
        ull__session_pace_end(bucket);
        ull__forward_destroy(session, bucket->forward);
        bucket->forward = NULL;
        ull__plan_layout_finish(&bucket->layout);
    }
}

static ull_status make_executable(struct ull__session *session, struct ull__bucket *bucket,
                                  int64_t batch, struct ull__executable **executable,
                                  struct ull_error *err)
{
    const struct ull__graph *graph = bucket->program->graph;
    struct ull__result results[8];
    int64_t values[ULL_SYMBOLS];
    for (int i = 0; i < graph->loss_count; ++i) {
        results[i] = (struct ull__result){graph->losses[i], &session->losses[i]};
    }
    ull__graph_values(graph, batch, values);
    struct ull__executable_request what = {.backend = session->backend,
                                           .program = bucket->program,
                                           .layout = &bucket->layout,
                                           .decision = &ull__bucket_plan(bucket)->decision,
                                           .values = values,
                                           .arena = session->arena,
                                           .results = results,
                                           .result_count = graph->loss_count};
    return ull__executable_create(&what, executable, err);
}

static ull_status stage_samples(struct ull__session *session, int64_t samples, struct ull_error *err)
{
    if (samples <= session->staged) {
        return ULL_OK;
    }
    void *x = realloc(session->x, (size_t)(samples * session->sample_elements) * 4 + 4);
    session->x = x != NULL ? x : session->x;
    void *targets = realloc(session->targets, (size_t)(samples * session->sample_targets) * 4 + 4);
    session->targets = targets != NULL ? targets : session->targets;
    if (x == NULL || targets == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for %lld samples", (long long)samples);
    }
    session->staged = samples;
    return ULL_OK;
}

/* Kernels of a bucket, in regions that are there. */
static ull_status make_bucket(struct ull__session *session, struct ull__bucket *bucket,
                              struct ull_error *err)
{
    int64_t micro = ull__bucket_plan(bucket)->micro_batch;
    ull_status status = stage_samples(session, micro, err);
    if (status == ULL_OK) {
        status = make_executable(session, bucket, micro, &bucket->full, err);
    }
    bucket->rest_batch = ull__session_own_batch(session) % micro;
    if (status == ULL_OK && bucket->rest_batch > 0) {
        status = make_executable(session, bucket, bucket->rest_batch, &bucket->rest, err);
    }
    return status;
}

/* Regions, kernels and addresses for a plan of each bucket. */
static ull_status take_plans(struct ull__session *session, const int *plans, struct ull_error *err)
{
    ull_status status = ULL_OK;
    drop_executables(session);
    for (int i = 0; i < session->bucket_count && status == ULL_OK; ++i) {
        struct ull__bucket *bucket = &session->buckets[i];
        bucket->plan = plans[i];
        bucket->program = ull__planner_program(bucket->planner, plans[i]);
        status = ull__planner_layout(bucket->planner, plans[i], &bucket->layout, err);
        if (status == ULL_OK) {
            status = ull__bucket_find_ends(session, bucket, err);
        }
    }
    for (int i = 0; i + 1 < session->bucket_count && status == ULL_OK; ++i) {
        status = check_places(session, &session->buckets[i], err);
    }
    if (status == ULL_OK) {
        session->sample_elements = ull__session_longest(session)->sample_elements;
        session->sample_targets = ull__session_longest(session)->sample_targets;
        status = ull__session_take_regions(session, err);
    }
    for (int i = 0; i < session->bucket_count && status == ULL_OK; ++i) {
        status = make_bucket(session, &session->buckets[i], err);
    }
    if (status == ULL_OK) {
        uint64_t forgotten = 0;
        ull__session_note_reached(session, &forgotten);
        status = ull__session_list(session, err);
    }
    session->reached_persistent = session->reached_forward = 0;
    for (int i = 0; i < session->bucket_count; ++i) {
        session->buckets[i].ran = false;
        session->buckets[i].reached_step = 0;
        if (status == ULL_OK) {
            status = ull__session_pace_begin(session, &session->buckets[i], err);
        }
    }
    return status;
}

/* The machine may have less than the budget allows: then the next plans down. */
static ull_status take_first_plans(struct ull__session *session, struct ull_error *err)
{
    struct ull__wish wish = {.budget = session->budget, .accepted = true};
    int plans[ULL_SESSION_BUCKETS];
    if (!ull__session_choose(session, &wish, plans)) {
        return ull__session_nothing_fits(session, session->budget, false, err);
    }
    ull_status status = ull__session_agree(session, take_plans(session, plans, err), err);
    while (status == ULL_E_NO_MEMORY) {
        int64_t peak = 0;
        for (int i = 0; i < session->bucket_count; ++i) {
            int64_t here = ull__planner_place(session->buckets[i].planner, plans[i]);
            peak = here > peak ? here : peak;
        }
        wish.budget = session->budget =
            (uint64_t)peak + ull__planner_profile(session->at->planner)->outside_bytes - 1;
        if (!ull__session_choose(session, &wish, plans)) {
            return status;
        }
        status = ull__session_agree(session, take_plans(session, plans, err), err);
    }
    return status;
}

ull_status ull__session_create(const struct ull__session_options *options,
                               struct ull__session **session, struct ull_error *err)
{
    struct ull__session *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a training");
    }
    made->options = *options;
    made->backend = options->backend;
    made->budget = options->budget_bytes;
    made->given = ULL_NONE;
    made->load = 1;
    made->loss_scale = options->initial_loss_scale > 0 ? options->initial_loss_scale : 65536;
    uint64_t room =
        options->budget_bytes / 2 < MOST_MEASURING ? options->budget_bytes / 2 : MOST_MEASURING;
    ull_status status = ull__meter_create(
        made->backend, options->rates || made->backend->rank > 0 ? 0 : room, &made->meter, err);
    if (status == ULL_OK) {
        status = ull__session_make_planners(made, err);
    }
    if (status == ULL_OK) {
        ull__meter_rest(made->meter);
        status = take_first_plans(made, err);
    }
    if (status != ULL_OK) {
        ull__session_destroy(made);
        return status;
    }
    find_classes(made);
    made->hysteresis_left =
        made->options.plan.scale.hysteresis > 0 ? made->options.plan.scale.hysteresis : 2;
    ull__session_fill(made);
    ull__session_restore(made, 0, made->loss_scale, 0, made->hysteresis_left);
    *session = made;
    return ULL_OK;
}

void ull__session_destroy(struct ull__session *session)
{
    if (session == NULL) {
        return;
    }
    drop_executables(session);
    ull__session_give_regions(session);
    for (int i = 0; i < session->bucket_count; ++i) {
        ull__planner_destroy(session->buckets[i].planner);
        free(session->buckets[i].planned_seconds);
    }
    ull__meter_destroy(session->meter);
    free(session->x);
    free(session->targets);
    free(session->tensors);
    free(session);
}

/* By the times of now. Ranks have seen different ones, so the first chooses for all. */
static ull_status choose_again(struct ull__session *session, const struct ull__wish *wish,
                               int *found, struct ull_error *err)
{
    bool chooses = session->backend->rank == 0;
    found[0] = ULL_NONE;
    if (chooses && (!ull__session_reprice(session) || !ull__session_choose(session, wish, found))) {
        found[0] = ULL_NONE;
    }
    ull_status status = ULL_OK;
    if (session->options.world != NULL) {
        status = ull__world_tell(session->options.world, found,
                                 sizeof(*found) * ULL_SESSION_BUCKETS, err);
    }
    return status == ULL_OK && found[0] == ULL_NONE
               ? ull__session_nothing_fits(session, wish->budget, true, err)
               : status;
}

ull_status ull__session_replan(struct ull__session *session, uint64_t budget_bytes, int64_t least,
                               int64_t most, bool *changed, struct ull_error *err)
{
    struct ull__wish wish = {.budget = budget_bytes,
                             .like = ull__bucket_plan(ull__session_longest(session)),
                             .least = least,
                             .most = most,
                             .stays = true};
    int found[ULL_SESSION_BUCKETS] = {0}, before[ULL_SESSION_BUCKETS];
    bool other = false;
    ull_status chose = choose_again(session, &wish, found, err);
    if (chose != ULL_OK) {
        return chose;
    }
    for (int i = 0; i < session->bucket_count; ++i) {
        before[i] = session->buckets[i].plan;
        other = other || before[i] != found[i];
    }
    ull_status status =
        other ? ull__session_agree(session, take_plans(session, found, err), err) : ULL_OK;
    if (status == ULL_OK) {
        session->budget = budget_bytes;
        *changed = other;
    } else if (take_plans(session, before, NULL) != ULL_OK) {
        return status; /* not even what was there: the session can only be saved and ended */
    }
    if (other) {
        ull__session_write_counters(session);
    }
    return status;
}

/* What was reached, and what was to be by the lengths that ran. */
static void info_of_peaks(struct ull__session *session, struct ull__session_info *info)
{
    uint64_t expected = session->reached_forward, reached = session->reached_forward, persistent = 0;
    for (int i = 0; i < session->bucket_count; ++i) {
        const struct ull__bucket *bucket = &session->buckets[i];
        info->buckets[i] =
            (struct ull__session_bucket){.length = bucket->sample_elements,
                                         .chosen = ull__bucket_plan(bucket),
                                         .step_bytes = ull__bucket_step_bytes(bucket),
                                         .planned_seconds = bucket->planned_seconds[bucket->plan],
                                         .predicted_seconds = ull__session_predicted(session, bucket),
                                         .measured_seconds = ull__session_measured(bucket)};
        expected = bucket->ran ? ull__larger(expected, ull__bucket_step_bytes(bucket)) : expected;
        persistent =
            bucket->ran ? ull__larger(persistent, bucket->layout.persistent_bytes) : persistent;
        reached = ull__larger(reached, bucket->reached_step);
    }
    info->bucket_count = session->bucket_count;
    info->expected_peak_bytes = persistent + expected;
    info->measured_peak_bytes = session->reached_persistent + reached;
}

void ull__session_info(struct ull__session *session, struct ull__session_info *info)
{
    const struct ull__bucket *longest = ull__session_longest(session);
    const struct ull__needs needs = ull__session_needs(session);
    *info = (struct ull__session_info){.planner = longest->planner,
                                       .plan = longest->plan,
                                       .chosen = ull__bucket_plan(longest),
                                       .given = longest->plan == session->given,
                                       .predicted_peak_bytes = needs.persistent + needs.step,
                                       .host_bytes = needs.host,
                                       .persistent_bytes = needs.persistent,
                                       .classes = session->classes,
                                       .sample_elements = session->sample_elements,
                                       .sample_targets = session->sample_targets,
                                       .tokens = session->tokens,
                                       .steps = session->steps,
                                       .loss_scale = session->loss_scale,
                                       .good_steps = session->good_steps,
                                       .hysteresis_left = session->hysteresis_left};
    info_of_peaks(session, info);
}
