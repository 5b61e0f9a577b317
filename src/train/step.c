/* step.c: one optimizer step. See session.h. */
#include <string.h>
#include <time.h>

#include "error.h"
#include "half.h"
#include "random.h"
#include "session_private.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint64_t rounded(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

void ull__session_note_reached(struct ull__session *session, uint64_t *reached)
{
    const struct ull__backend_ops *ops = session->backend->ops;
    uint64_t alignment = ull__planner_profile(session->at->planner)->alignment;
    char *persistent = session->arena.persistent, *step = session->arena.step;
    uintptr_t end = ops->reached(session->backend, persistent, persistent + session->persistent_room);
    uint64_t offset = end != 0 ? rounded(end - (uintptr_t)persistent, alignment) : 0;
    session->reached_persistent =
        offset > session->reached_persistent ? offset : session->reached_persistent;
    end = ops->reached(session->backend, step, step + session->step_room);
    offset = end != 0 ? rounded(end - (uintptr_t)step, alignment) : 0;
    *reached = offset > *reached ? offset : *reached;
}

/* --- Lengths --- */

struct ull__bucket *ull__session_bucket_for(struct ull__session *session, int64_t length)
{
    struct ull__bucket *bucket = session->buckets;
    while (bucket < ull__session_longest(session) && bucket->sample_elements < length) {
        bucket += 1;
    }
    return bucket;
}

/* Weights and state lie where they are; what is steered by, and constants of a length, may lie elsewhere. */
static void enter(struct ull__session *session, struct ull__bucket *bucket)
{
    if (session->at != bucket) {
        session->at = bucket;
        ull__session_write_counters(session);
        ull__session_fill_constants(session);
    }
}

static void narrow(void *rows, int64_t count, int64_t from, int64_t to)
{
    for (int64_t i = 1; from != to && i < count; ++i) {
        memmove((char *)rows + i * to * 4, (char *)rows + i * from * 4, (size_t)to * 4);
    }
}

void ull__session_narrow(struct ull__session *session, const struct ull__bucket *bucket, int64_t count)
{
    narrow(session->x, count, session->sample_elements, bucket->sample_elements);
    narrow(session->targets, count, session->sample_targets, bucket->sample_targets);
}

/* --- */

/* A control's bytes, if this plan has it. */
static void *control(const struct ull__session *session, const char *name)
{
    int tensor = ull__graph_find(ull__session_graph(session), ULL_ROLE_CONTROL, name);
    return tensor != ULL_NONE && session->at->program->buffer_of[tensor] != ULL_NONE
               ? ull__executable_address(session->at->full, tensor)
               : NULL;
}

static void write_control(const struct ull__session *session, const char *name, const void *value,
                          size_t size)
{
    void *to = control(session, name);
    if (to != NULL) {
        session->backend->ops->copy(session->backend, ULL_QUEUE_COMPUTE, to, value, size);
    }
}

void ull__session_write_counters(struct ull__session *session)
{
    int64_t step = (int64_t)session->steps;
    float scale = (float)session->loss_scale;
    int32_t good = (int32_t)session->good_steps, left = (int32_t)session->hysteresis_left;
    write_control(session, "step", &step, sizeof(step));
    write_control(session, "loss_scale", &scale, sizeof(scale));
    write_control(session, "good_steps", &good, sizeof(good));
    write_control(session, "hysteresis_left", &left, sizeof(left));
    session->backend->ops->synchronize(session->backend, NULL);
}

static void read_counters(struct ull__session *session)
{
    const int64_t *step = control(session, "step");
    const float *scale = control(session, "loss_scale");
    const int32_t *good = control(session, "good_steps");
    const int32_t *left = control(session, "hysteresis_left");
    session->steps = step != NULL ? (uint64_t)*step : session->steps;
    session->loss_scale = scale != NULL ? (double)*scale : session->loss_scale;
    session->good_steps = good != NULL ? *good : session->good_steps;
    session->hysteresis_left = left != NULL ? *left : session->hysteresis_left;
}

/* Place of element i, in rows, of pictures that lie channels last. */
static int64_t channels_last(const int64_t *dims, int64_t i)
{
    int64_t w = i % dims[3], h = i / dims[3] % dims[2], c = i / (dims[3] * dims[2]) % dims[1];
    int64_t n = i / (dims[3] * dims[2] * dims[1]);
    return ((n * dims[2] + h) * dims[3] + w) * dims[1] + c;
}

static void put_integer(enum ull__type type, void *to, int64_t i, int32_t value)
{
    switch (type) {
    case ULL_TYPE_I64:
        ((int64_t *)to)[i] = value;
        break;
    case ULL_TYPE_I32:
        ((int32_t *)to)[i] = value;
        break;
    default:
        ull__put_float(type, to, i, (float)value);
    }
}

void ull__session_put_input(const struct ull__executable *executable, const struct ull__graph *graph,
                            int tensor, const int64_t *values, const void *from, bool tokens)
{
    const struct ull__tensor *of = &graph->tensors[tensor];
    void *to = ull__executable_address(executable, tensor);
    int64_t elements = ull__tensor_elements(graph, tensor, values), dims[ULL_RANK] = {0};
    bool last = ull__executable_layouts(executable)[tensor] == ULL_LAYOUT_CHANNELS_LAST;
    for (int i = 0; i < of->rank; ++i) {
        dims[i] = ull__dim_value(graph->symbols, of->dims[i], values);
    }
    if (!tokens && of->type == ULL_TYPE_F32 && (!last || dims[1] == 1)) {
        memcpy(to, from, (size_t)elements * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < elements; ++i) {
        int64_t at = last ? channels_last(dims, i) : i;
        if (tokens) {
            put_integer(of->type, to, at, ((const int32_t *)from)[i]);
        } else {
            ull__put_float(of->type, to, at, ((const float *)from)[i]);
        }
    }
}

static ull_status micro_step(struct ull__session *session, const struct ull__source *source,
                             int64_t first, int64_t count, bool adding, struct ull_error *err)
{
    const struct ull__bucket *bucket = session->at;
    struct ull__executable *executable =
        bucket->rest != NULL && count == bucket->rest_batch ? bucket->rest : bucket->full;
    const struct ull__graph *graph = ull__session_graph(session);
    int64_t values[ULL_SYMBOLS];
    int64_t generator[ULL_GENERATOR_SIZE] = {(int64_t)session->options.seed,
                                             (int64_t)session->steps, first};
    double begin = now();
    ull_status status =
        source->read(source->context, first, count, session->x, session->targets, err);
    if (status != ULL_OK) {
        return status;
    }
    ull__session_narrow(session, bucket, count);
    ull__graph_values(graph, count, values);
    ull__session_put_input(executable, graph, bucket->input, values, session->x, session->tokens);
    ull__session_put_input(executable, graph, bucket->target, values, session->targets, true);
    session->reading += now() - begin;
    write_control(session, "adding", &adding, sizeof(adding));
    write_control(session, "generator", generator, sizeof(generator));
    ull__executable_micro(executable);
    return session->backend->ops->synchronize(session->backend, err);
}

/* What the ranks of a world have, one after the other: the same sum on all of them. */
static ull_status add_up(struct ull__session *session, double *value, struct ull_error *err)
{
    double all[ULL_WORLD_RANKS], sum = 0;
    if (session->options.world == NULL) {
        return ULL_OK;
    }
    ull_status status = ull__world_gather(session->options.world, value, sizeof(*value), all, err);
    for (int i = 0; i < ull__world_ranks(session->options.world) && status == ULL_OK; ++i) {
        sum += all[i];
    }
    *value = status == ULL_OK ? sum : *value;
    return status;
}

static ull_status step(struct ull__session *session, const struct ull__source *source,
                       double learning_rate, struct ull__step_result *result, struct ull_error *err)
{
    /* Ranks that share a batch have one length, so this is not by the samples of this one alone. */
    int64_t length = source->length != NULL && session->bucket_count > 1
                         ? source->length(source->context, 0, session->options.plan.batch)
                         : session->sample_elements;
    enter(session, ull__session_bucket_for(session, length));
    struct ull__bucket *bucket = session->at;
    const struct ull__graph *graph = ull__session_graph(session);
    int count;
    int64_t micro = ull__planner_plans(bucket->planner, &count)[bucket->plan].micro_batch;
    struct ull__share own = ull__session_share(session, session->options.plan.batch);
    uint64_t valid = source->valid(source->context, own.first, own.count), before = session->steps;
    float rate = (float)learning_rate;
    float targets = valid > 0 || session->options.world != NULL ? (float)valid : 1;
    double predicted = ull__session_predicted(session, bucket);
    double begin = now(), loss = 0;
    int64_t micro_steps = 0;
    session->reading = 0;
    ull__session_step_begins(session);
    write_control(session, "learning_rate", &rate, sizeof(rate));
    write_control(session, "target_count", &targets, sizeof(targets));
    ull__executable_prologue(bucket->full);
    for (int64_t first = 0; first < own.count; first += micro, ++micro_steps) {
        int64_t here = own.count - first < micro ? own.count - first : micro;
        ull_status status = micro_step(session, source, own.first + first, here, first > 0, err);
        if (status != ULL_OK) {
            return status;
        }
        for (int i = 0; i < graph->loss_count; ++i) {
            loss += graph->loss_weights[i] * (double)session->losses[i];
        }
    }
    ull__executable_update(session->at->full);
    ull_status status = session->backend->ops->synchronize(session->backend, err);
    if (status == ULL_OK) {
        status = add_up(session, &loss, err);
    }
    if (status != ULL_OK) {
        return status;
    }
    read_counters(session);
    bucket->ran = true;
    ull__session_note_reached(session, &bucket->reached_step);
    bool scaled = control(session, "loss_scale") != NULL;
    *result = (struct ull__step_result){.loss = loss,
                                        .loss_scale = scaled ? session->loss_scale : 1,
                                        .skipped = session->steps == before,
                                        .micro_batch = micro,
                                        .micro_steps = micro_steps,
                                        .length = bucket->sample_elements,
                                        .targets = valid,
                                        .predicted_seconds = predicted,
                                        .seconds = now() - begin};
    ull__session_step_ends(session, result->seconds, session->reading);
    return ULL_OK;
}

ull_status ull__session_step(struct ull__session *session, const struct ull__source *source,
                             double learning_rate, struct ull__step_result *result,
                             struct ull_error *err)
{
    ull_status status = step(session, source, learning_rate, result, err);
    if (status != ULL_OK) {
        ull__session_step_failed(session);
    }
    return status;
}
