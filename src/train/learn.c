/*
 * learn.c: what steps take, for predictions. See session.h.
 *
 * In some steps each kernel is timed: the second to the sixth of a plan, then every eighth. That is what the meter learns from. How
 * long the steps of a plan take is looked at in all of them: the median of the last few, over what the kernels say, is the machine's load,
 * by which all other plans are priced as well. So a price is that of the machine as it is now, and two plans are compared by kernels alone.
 *
 * The first step of a plan is left out: it touches memory for the first time.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "session_private.h"

enum { CALIBRATION = 5, EVERY = 8 };

static int counted(const struct ull__pace *pace)
{
    return pace->steps - 1 < ULL_RECENT ? pace->steps - 1 : ULL_RECENT;
}

double ull__session_measured(const struct ull__bucket *bucket)
{
    return counted(&bucket->pace) > 0
               ? ull__recent_median(bucket->pace.seconds, counted(&bucket->pace))
               : 0;
}

double ull__session_predicted(const struct ull__session *session, const struct ull__bucket *bucket)
{
    const struct ull__pace *pace = &bucket->pace;
    return pace->kernels > 0 ? pace->kernels * session->load + session->besides
                             : ull__bucket_plan(bucket)->step_seconds;
}

static bool learns(const struct ull__session *session)
{
    return !session->options.rates && session->backend->ops->timing != NULL;
}

/* --- The plan in force --- */

/* How often a step runs each item. */
static void weigh(const struct ull__bucket *bucket, double micro_steps, double *weights)
{
    const struct ull__plan_layout *layout = &bucket->layout;
    memset(weights, 0, sizeof(*weights) * (size_t)bucket->program->item_count);
    for (int i = 0; i < layout->count; ++i) {
        bool micro = i >= layout->prologue_count && i < layout->micro_count;
        weights[layout->order[i].item] += micro ? micro_steps : 1;
    }
}

static bool follow(struct ull__session *session, const struct ull__bucket *bucket,
                   const struct ull__executable *executable, struct ull__meter_kernel **kernels)
{
    size_t items = (size_t)bucket->program->item_count + 1;
    *kernels = executable != NULL ? calloc(items, sizeof(**kernels)) : NULL;
    return executable == NULL ||
           (*kernels != NULL && ull__meter_kernels(session->meter, bucket->program,
                                                   ull__executable_values(executable), *kernels));
}

ull_status ull__session_pace_begin(struct ull__session *session, struct ull__bucket *bucket,
                                   struct ull_error *err)
{
    const struct ull__plan *plan = ull__bucket_plan(bucket);
    struct ull__pace *pace = &bucket->pace;
    ull__session_pace_end(bucket);
    *pace = (struct ull__pace){.load = session->load};
    if (!learns(session)) {
        return ULL_OK;
    }
    pace->kernels = (plan->step_seconds - session->besides) / session->load;
    pace->weights = calloc((size_t)bucket->program->item_count + 1, sizeof(*pace->weights));
    if (pace->weights == NULL || !follow(session, bucket, bucket->full, &pace->full) ||
        !follow(session, bucket, bucket->rest, &pace->rest)) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for what steps take");
    }
    weigh(bucket, (double)ull__session_own_batch(session) / (double)plan->micro_batch, pace->weights);
    return ULL_OK;
}

void ull__session_pace_end(struct ull__bucket *bucket)
{
    free(bucket->pace.full);
    free(bucket->pace.rest);
    free(bucket->pace.weights);
    bucket->pace = (struct ull__pace){0};
}

/* --- Steps --- */

static bool is_timed(const struct ull__pace *pace)
{
    return (pace->steps >= 1 && pace->steps <= CALIBRATION) || pace->steps % EVERY == 0;
}

void ull__session_step_begins(struct ull__session *session)
{
    if (learns(session) && session->at->pace.steps > 0 && is_timed(&session->at->pace)) {
        session->copied = (struct ull__copied){0, 0};
        session->times = true;
        session->backend->ops->timing(session->backend, &session->copied);
    }
}

static void stop_timing(struct ull__session *session)
{
    if (session->times) {
        session->backend->ops->timing(session->backend, NULL);
        session->times = false;
    }
}

static double priced(const struct ull__session *session, const struct ull__bucket *bucket)
{
    const struct ull__pace *pace = &bucket->pace;
    const uint8_t *algorithms = ull__bucket_plan(bucket)->decision.algorithm;
    double sum = 0;
    for (int i = 0; i < bucket->program->item_count; ++i) {
        double seconds = ull__meter_price(session->meter, &pace->full[i]);
        double planned = ull__item_choice(bucket->program, i, algorithms[i])->seconds;
        sum += pace->weights[i] * (seconds >= 0 ? seconds : planned);
    }
    return sum;
}

static void learn_from(struct ull__session *session, struct ull__bucket *bucket)
{
    struct ull__pace *pace = &bucket->pace;
    int items = bucket->program->item_count;
    /* While all of a plan may be new, the machine's load is believed to be what it was before. */
    double load = pace->steps <= CALIBRATION ? pace->load : 0, before = priced(session, bucket);
    ull__meter_learn(session->meter, pace->full, ull__executable_took(bucket->full), items, load);
    if (bucket->rest != NULL) {
        ull__meter_learn(session->meter, pace->rest, ull__executable_took(bucket->rest), items, load);
    }
    pace->kernels += priced(session, bucket) - before;
    if (session->copied.seconds > 0) {
        session->copied_per_second = session->copied.bytes / session->copied.seconds * session->load;
    }
}

void ull__session_step_failed(struct ull__session *session)
{
    stop_timing(session);
}

void ull__session_step_ends(struct ull__session *session, double seconds, double besides)
{
    struct ull__bucket *bucket = session->at;
    struct ull__pace *pace = &bucket->pace;
    bool timed = session->times;
    stop_timing(session);
    if (pace->steps > 0) {
        pace->seconds[(pace->steps - 1) % ULL_RECENT] = seconds;
        pace->besides[(pace->steps - 1) % ULL_RECENT] = besides;
    }
    if (timed) {
        learn_from(session, bucket);
    }
    pace->steps += 1;
    if (learns(session) && counted(pace) > 0 && pace->kernels > 0) {
        session->besides = ull__recent_median(pace->besides, counted(pace));
        double rest = ull__recent_median(pace->seconds, counted(pace)) - session->besides;
        session->load = rest > 0 ? rest / pace->kernels : session->load;
    }
}

bool ull__session_reprice(struct ull__session *session)
{
    bool fine = true;
    if (!learns(session)) {
        return true;
    }
    ull__meter_set(session->meter, session->load, session->besides, session->copied_per_second);
    for (int i = 0; i < session->bucket_count && fine; ++i) {
        fine = ull__planner_reprice(session->buckets[i].planner);
    }
    return fine;
}
