/*
 * evaluate.c: a forward pass in the regions of a training: weights and statistics where they are, everything else in the memory of a
 * step, as many samples at once as go in there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "half.h"
#include "session_private.h"
#include "step.h"

void ull__forward_destroy(struct ull__session *session, struct ull__forward *forward)
{
    if (forward == NULL) {
        return;
    }
    (void)session;
    ull__executable_destroy(forward->executable);
    ull__plan_layout_finish(&forward->layout);
    ull__decision_finish(&forward->decision);
    ull__program_destroy(forward->program);
    ull__graph_destroy(forward->graph);
    free(forward->persistent);
    free(forward->own);
    free(forward->logits_copy);
    free(forward);
}

/* The model with its losses among its results, as it is used. */
static ull_status make_graph(struct ull__session *session, const struct ull__bucket *bucket,
                             struct ull__forward *forward, struct ull_error *err)
{
    struct ull__graph *model = ull__graph_copy(bucket->model);
    enum ull__type type = ULL_TYPE_F32;
    int count, results = model != NULL ? model->output_count : 0;
    switch (ull__planner_plans(bucket->planner, &count)[bucket->plan].precision) {
    case ULL_PRECISION_BF16:
        type = ULL_TYPE_BF16;
        break;
    case ULL_PRECISION_F16:
        type = ULL_TYPE_F16;
        break;
    default:
        break;
    }
    bool has_loss = model != NULL && model->loss_count > 0;
    if (has_loss) {
        ull__graph_result(model, model->losses[0]);
    }
    forward->graph = model != NULL ? ull__inference_graph(model, type, ULL_TYPE_F32) : NULL;
    ull__graph_destroy(model);
    if (forward->graph == NULL || !ull__graph_ok(forward->graph)) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to evaluate: %s",
                         forward->graph != NULL ? forward->graph->error.message : "");
    }
    forward->logits = results > 0 ? forward->graph->outputs[0] : ULL_NONE;
    forward->loss = has_loss ? forward->graph->outputs[results] : ULL_NONE;
    forward->target = ull__graph_find(forward->graph, ULL_ROLE_INPUT, "target");
    return forward->logits != ULL_NONE
               ? ULL_OK
               : ull__fail(err, ULL_E_INVALID, "model '%s' names no result to evaluate",
                           session->options.model->name);
}

static ull_status place(struct ull__session *session, struct ull__forward *forward, int64_t batch,
                        struct ull_error *err)
{
    int64_t values[ULL_SYMBOLS];
    struct ull__profile profile = *ull__planner_profile(session->at->planner);
    ull__plan_layout_finish(&forward->layout);
    ull__decision_finish(&forward->decision);
    ull__program_destroy(forward->program);
    forward->program = NULL;
    ull__graph_values(forward->graph, batch, values);
    ull_status status = ull__program_create(forward->graph, values, &profile, &forward->program, err);
    if (status == ULL_OK && !ull__decision_create(forward->program, &forward->decision)) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory to evaluate");
    }
    for (int i = 0; status == ULL_OK && i < forward->program->buffer_count; ++i) {
        struct ull__program_buffer *buffer = &forward->program->buffers[i];
        for (int j = 0; j < forward->graph->output_count; ++j) {
            /* Copied as soon as they are made, so they need not stay. */
            buffer->result |= forward->program->buffer_of[forward->graph->outputs[j]] == i;
        }
    }
    return status != ULL_OK ? status
                            : ull__program_layout(forward->program, &profile, &forward->decision,
                                                  false, &forward->layout, err);
}

/* Weights and statistics of the training; what it does not have gets memory of its own, some bytes. */
static ull_status find_persistent(struct ull__session *session, struct ull__forward *forward,
                                  struct ull_error *err)
{
    const struct ull__program *program = forward->program;
    int64_t values[ULL_SYMBOLS];
    size_t own = 0;
    ull__graph_values(forward->graph, 1, values);
    forward->persistent = calloc((size_t)program->buffer_count + 1, sizeof(char *));
    forward->own = calloc(1, forward->layout.persistent_bytes + forward->layout.step_bytes + 64);
    if (forward->persistent == NULL || forward->own == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to evaluate");
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        const struct ull__tensor *of = &forward->graph->tensors[buffer->tensor];
        if (buffer->life == ULL_LIFE_PASSING) {
            continue;
        }
        int same = ull__graph_find(ull__session_graph(session), of->role, of->name);
        const struct ull__tensor *there =
            same != ULL_NONE ? &ull__session_graph(session)->tensors[same] : NULL;
        bool usable = there != NULL && of->name[0] != '\0' && there->type == of->type &&
                      session->at->program->buffer_of[same] != ULL_NONE &&
                      of->role != ULL_ROLE_CONTROL && of->role != ULL_ROLE_CONSTANT;
        if (usable) {
            forward->persistent[i] = ull__executable_address(session->at->full, same);
            continue;
        }
        forward->persistent[i] = forward->own + own;
        own += (size_t)buffer->bytes;
        if (of->role == ULL_ROLE_CONSTANT && of->data != NULL) {
            memcpy(forward->persistent[i], of->data, of->data_bytes);
        } else if (of->role == ULL_ROLE_CONTROL && strcmp(of->name, "target_count") == 0) {
            float one = 1;
            memcpy(forward->persistent[i], &one, sizeof(one));
        } else if (of->role != ULL_ROLE_CONTROL) {
            return ull__fail(err, ULL_E_INVALID, "'%s' of the model is not in its training",
                             of->name);
        }
    }
    return ULL_OK;
}

static ull_status finish(struct ull__session *session, struct ull__forward *forward,
                         struct ull_error *err)
{
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(forward->graph, forward->micro_batch, values);
    forward->logits_copy = calloc(
        (size_t)ull__tensor_elements(forward->graph, forward->logits, values) + 1, sizeof(float));
    if (forward->logits_copy == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to evaluate");
    }
    struct ull__result results[] = {{forward->logits, forward->logits_copy},
                                    {forward->loss, &forward->loss_value}};
    struct ull__executable_request what = {.backend = session->backend,
                                           .program = forward->program,
                                           .layout = &forward->layout,
                                           .decision = &forward->decision,
                                           .values = values,
                                           .arena = {.step = session->arena.step},
                                           .persistent = forward->persistent,
                                           .results = results,
                                           .result_count = forward->loss != ULL_NONE ? 2 : 1};
    return ull__executable_create(&what, &forward->executable, err);
}

/* A forward pass of as many samples as fit, at most `wanted`; kept for the next time. */
static ull_status prepare(struct ull__session *session, struct ull__bucket *bucket, int64_t wanted,
                          struct ull_error *err)
{
    if (bucket->forward != NULL && bucket->forward->wanted == wanted) {
        return ULL_OK;
    }
    ull__forward_destroy(session, bucket->forward);
    bucket->forward = NULL;
    struct ull__forward *made = calloc(1, sizeof(*made));
    ull_status status = made != NULL ? make_graph(session, bucket, made, err)
                                     : ull__fail(err, ULL_E_NO_MEMORY, "no memory to evaluate");
    int64_t batch = wanted < session->staged ? wanted : session->staged;
    for (; status == ULL_OK; batch = (batch + 1) / 2) {
        status = place(session, made, batch, err);
        if (status != ULL_OK ||
            made->layout.passing_bytes <= session->step_room - made->layout.step_bytes) {
            break;
        }
        if (batch == 1) {
            status = ull__fail(err, ULL_E_NO_MEMORY,
                               "a forward pass of one sample needs %llu bytes, a step has %llu",
                               (unsigned long long)made->layout.passing_bytes,
                               (unsigned long long)session->step_room);
        }
    }
    if (status == ULL_OK) {
        made->micro_batch = batch;
        made->wanted = wanted;
        status = find_persistent(session, made, err);
    }
    if (status == ULL_OK) {
        status = finish(session, made, err);
    }
    if (status != ULL_OK) {
        ull__forward_destroy(session, made);
        return status;
    }
    bucket->forward = made;
    return ULL_OK;
}

static void run_forward(struct ull__session *session, const struct ull__bucket *bucket)
{
    struct ull__forward *forward = bucket->forward;
    int64_t values[ULL_SYMBOLS];
    int input = ull__graph_find(forward->graph, ULL_ROLE_INPUT,
                                bucket->program->graph->tensors[bucket->input].name);
    ull__graph_values(forward->graph, forward->micro_batch, values);
    ull__session_put_input(forward->executable, forward->graph, input, values, session->x,
                           session->tokens);
    if (forward->target != ULL_NONE) {
        ull__session_put_input(forward->executable, forward->graph, forward->target, values,
                               session->targets, true);
    }
    ull__executable_micro(forward->executable);
    session->backend->ops->synchronize(session->backend, NULL);
    ull__session_note_reached(session, &session->reached_forward);
    /* 16-bit logits become f32 where they are, from the last one on. */
    enum ull__type type = forward->graph->tensors[forward->logits].type;
    int64_t elements = ull__tensor_elements(forward->graph, forward->logits, values);
    for (int64_t i = elements - 1; i >= 0 && ull__type_is_half(type); --i) {
        uint16_t half;
        memcpy(&half, (const char *)forward->logits_copy + sizeof(half) * (size_t)i, sizeof(half));
        float value = type == ULL_TYPE_BF16 ? ull__bf16_load(half) : ull__f16_load(half);
        memcpy(&forward->logits_copy[i], &value, sizeof(value));
    }
}

static int64_t best(const float *row, int64_t classes)
{
    int64_t found = 0;
    for (int64_t i = 1; i < classes; ++i) {
        found = row[i] > row[found] ? i : found;
    }
    return found;
}

/* Fewer samples than a forward pass has: the others count for nothing. */
static void pad(struct ull__session *session, const struct ull__bucket *bucket, int64_t count)
{
    int64_t all = bucket->forward->micro_batch;
    size_t sample = (size_t)bucket->sample_elements * 4;
    for (int64_t i = count; i < all; ++i) {
        memcpy((char *)session->x + (size_t)i * sample, session->x, sample);
    }
    for (int64_t i = count * bucket->sample_targets; i < all * bucket->sample_targets; ++i) {
        session->targets[i] = -100;
    }
}

/* predictions: of the first of these samples; NULL: they are not wanted. */
static void judge(const struct ull__session *session, const struct ull__bucket *bucket,
                  int64_t count, int32_t *predictions, struct ull__evaluation *evaluation)
{
    const struct ull__forward *forward = bucket->forward;
    int64_t row = bucket->sample_targets;
    for (int64_t i = 0; i < count * row; ++i) {
        int64_t said = best(forward->logits_copy + i * session->classes, session->classes);
        if (predictions != NULL) {
            predictions[i / row * session->sample_targets + i % row] = (int32_t)said;
        }
        evaluation->valid += session->targets[i] != -100;
        evaluation->right += session->targets[i] == said;
    }
}

/* The shortest bucket that holds the next samples, as many as it takes at once. */
static ull_status next_bucket(struct ull__session *session, const struct ull__source *source,
                              int64_t first, int64_t left, struct ull__bucket **found,
                              struct ull_error *err)
{
    struct ull__bucket *bucket =
        source->length != NULL ? session->buckets : ull__session_longest(session);
    for (;; ++bucket) {
        ull_status status = prepare(session, bucket, session->staged, err);
        if (status != ULL_OK || bucket == ull__session_longest(session)) {
            *found = bucket;
            return status;
        }
        int64_t most = bucket->forward->micro_batch;
        int64_t length = source->length(source->context, first, left < most ? left : most);
        if (length <= bucket->sample_elements) {
            *found = bucket;
            return ULL_OK;
        }
    }
}

/* What the ranks of a world have found, put together. */
static ull_status put_together(struct ull__session *session, double *sum,
                               struct ull__evaluation *evaluation, struct ull_error *err)
{
    struct {
        double sum;
        uint64_t valid, right;
    } own = {*sum, evaluation->valid, evaluation->right}, all[ULL_WORLD_RANKS];
    if (session->options.world == NULL) {
        return ULL_OK;
    }
    ull_status status = ull__world_gather(session->options.world, &own, sizeof(own), all, err);
    *sum = 0;
    *evaluation = (struct ull__evaluation){0, 0, 0};
    for (int i = 0; i < ull__world_ranks(session->options.world) && status == ULL_OK; ++i) {
        *sum += all[i].sum;
        evaluation->valid += all[i].valid;
        evaluation->right += all[i].right;
    }
    return status;
}

ull_status ull__session_evaluate(struct ull__session *session, const struct ull__source *source,
                                 int64_t count, int32_t *predictions,
                                 struct ull__evaluation *evaluation, struct ull_error *err)
{
    struct ull__evaluation made = {0, 0, 0};
    ull_status status = count > 0 ? ULL_OK : ull__fail(err, ULL_E_INVALID, "no samples to evaluate");
    double sum = 0;
    struct ull__share own = ull__session_share(session, count);
    int64_t end = own.first + own.count;
    for (int64_t first = own.first, here; first < end && status == ULL_OK; first += here) {
        struct ull__bucket *bucket = NULL;
        here = 0;
        status = next_bucket(session, source, first, end - first, &bucket, err);
        if (status != ULL_OK) {
            break;
        }
        here =
            end - first < bucket->forward->micro_batch ? end - first : bucket->forward->micro_batch;
        status = source->read(source->context, first, here, session->x, session->targets, err);
        if (status == ULL_OK) {
            ull__session_narrow(session, bucket, here);
            pad(session, bucket, here);
            run_forward(session, bucket);
            sum += (double)bucket->forward->loss_value;
            judge(session, bucket, here,
                  predictions != NULL ? predictions + first * session->sample_targets : NULL, &made);
        }
    }
    if (status == ULL_OK) {
        status = put_together(session, &sum, &made, err);
    }
    if (status == ULL_OK) {
        made.loss = made.valid > 0 ? sum / (double)made.valid : NAN;
        *evaluation = made;
    }
    return status;
}

ull_status ull__session_logits(struct ull__session *session, const void *x, int64_t position,
                               float *logits, struct ull_error *err)
{
    struct ull__bucket *bucket = ull__session_bucket_for(session, position + 1);
    ull_status status = prepare(session, bucket, 1, err);
    if (status == ULL_OK) {
        memcpy(session->x, x, (size_t)bucket->sample_elements * 4);
        pad(session, bucket, 1);
        for (int64_t i = 0; i < bucket->sample_targets; ++i) {
            session->targets[i] = -100;
        }
        run_forward(session, bucket);
        memcpy(logits, bucket->forward->logits_copy + position * session->classes,
               (size_t)session->classes * sizeof(float));
    }
    return status;
}
