/* choose.c: planners for each length of samples, and which of their plans are taken. See session.h. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "session_private.h"

/* A switch makes kernels anew and may change the order of sums. */
#define WORTH_IT 1.05

static ull_status make_planner(struct ull__session *session, struct ull__bucket *bucket,
                               struct ull_error *err)
{
    struct ull__plan_request plan = session->options.plan;
    struct ull__profile profile = *plan.profile;
    profile.meter = ull__meter_for(session->meter);
    plan.model = bucket->model;
    plan.profile = &profile;
    /* By the times of today another micro-batch may be better in all, and the one that is wanted or learned not be in the frontier. */
    plan.keep_variants = session->options.accepts != NULL || !session->options.rates;
    plan.zero_stages =
        1u << 0; /* each rank has whole weights and state: saves and evaluations look for them */
    bool follows = session->options.world != NULL && session->backend->rank != 0;
    ull_status status = follows ? ull__session_share_times(session, err) : ULL_OK;
    if (status == ULL_OK) {
        status = ull__planner_create(&plan, &bucket->planner, err);
    }
    const char *missing = ull__meter_missing(session->meter);
    if (missing[0] != '\0') {
        return ull__fail(err, ULL_E_NOT_FOUND, "model '%s' cannot be trained here: %s",
                         plan.model->name, missing);
    }
    if (status == ULL_OK && session->options.world != NULL && !follows) {
        status = ull__session_share_times(session, err);
    }
    return status;
}

ull_status ull__session_nothing_fits(struct ull__session *session, uint64_t budget, bool running,
                                     struct ull_error *err)
{
    int count;
    int64_t least = INT64_MAX;
    const struct ull__bucket *longest = ull__session_longest(session);
    const struct ull__plan *plans = ull__planner_plans(longest->planner, &count);
    const struct ull__plan *now = &plans[longest->plan];
    for (int i = 0; i < count; ++i) {
        bool able = !running || (plans[i].precision == now->precision &&
                                 plans[i].offload_optimizer == now->offload_optimizer);
        int64_t peak =
            able && plans[i].bound_bytes < least ? ull__planner_place(longest->planner, i) : -1;
        least = peak >= 0 && peak < least ? peak : least;
    }
    uint64_t needed = (uint64_t)least + ull__planner_profile(longest->planner)->outside_bytes;
    return ull__fail(err, ULL_E_NO_MEMORY,
                     "no plan for '%s' with batches of %lld%s fits %llu bytes; the smallest needs "
                     "%llu",
                     session->options.model->name, (long long)session->options.plan.batch,
                     running ? ", while it runs," : "", (unsigned long long)budget,
                     (unsigned long long)needed);
}

static uint64_t profile_outside(struct ull__session *session)
{
    return ull__planner_profile(ull__session_longest(session)->planner)->outside_bytes;
}

/* Whether a plan may be taken; its peak is not looked at. */
static bool may_be(struct ull__session *session, const struct ull__bucket *bucket,
                   const struct ull__wish *wish, const struct ull__plan *plan)
{
    bool fine = (wish->least == 0 || plan->micro_batch >= wish->least) &&
                (wish->most == 0 || plan->micro_batch <= wish->most);
    if (session->bucket_count > 1) {
        fine = fine && (session->options.plan.precision == ULL_PRECISION_AUTO ||
                        plan->precision == session->options.plan.precision);
    }
    if (wish->like != NULL) {
        fine = fine && plan->zero_stage == wish->like->zero_stage &&
               plan->precision == wish->like->precision &&
               plan->offload_optimizer == wish->like->offload_optimizer;
    }
    if (fine && session->options.accepts != NULL && wish->accepted) {
        fine = session->options.accepts(session->options.context, bucket->sample_elements, plan);
    }
    return fine;
}

/* What is in force has no switch to pay for, and no bits that change. */
static bool stays(struct ull__session *session, const struct ull__bucket *bucket,
                  const struct ull__wish *wish, double fastest)
{
    const struct ull__plan *plan = ull__bucket_plan(bucket);
    int64_t room = (int64_t)wish->budget - (int64_t)profile_outside(session);
    return wish->stays && may_be(session, bucket, wish, plan) && plan->peak_bytes > 0 &&
           plan->peak_bytes <= room && plan->step_seconds <= WORTH_IT * fastest;
}

/* The fastest plan that fits and may be taken. Those of a variant are from fast to slow, those of several need not be. */
static int choose(struct ull__session *session, const struct ull__bucket *bucket,
                  const struct ull__wish *wish)
{
    int count, found = ULL_NONE;
    const struct ull__plan *plans = ull__planner_plans(bucket->planner, &count);
    int64_t room = (int64_t)wish->budget - (int64_t)profile_outside(session);
    if (wish->like == NULL && bucket == ull__session_longest(session) &&
        session->given != ULL_NONE && plans[session->given].peak_bytes <= room &&
        plans[session->given].host_bytes <= session->options.plan.host_bytes) {
        return session->given;
    }
    for (int i = 0; i < count; ++i) {
        const struct ull__plan *plan = &plans[i];
        bool fine = plan->bound_bytes <= room && may_be(session, bucket, wish, plan);
        fine = fine && (found == ULL_NONE || plan->step_seconds < plans[found].step_seconds);
        int64_t peak = fine ? ull__planner_place(bucket->planner, i) : -1;
        found = peak >= 0 && peak <= room ? i : found;
    }
    return found != ULL_NONE && stays(session, bucket, wish, plans[found].step_seconds) ? bucket->plan
                                                                                        : found;
}

static ull_status plan_bucket(struct ull__session *session, int i, struct ull_error *err)
{
    struct ull__bucket *bucket = &session->buckets[i];
    const struct ull__session_options *options = &session->options;
    bucket->model = i < options->shorter_count ? options->shorter[i] : options->model;
    ull_status status = make_planner(session, bucket, err);
    if (status == ULL_OK) {
        bucket->program = ull__planner_program(bucket->planner, 0);
        status = ull__bucket_find_ends(session, bucket, err);
    }
    return status;
}

/* Its copies are placed by the times that it was planned with; what it takes is told by those of here. */
static ull_status take_given(struct ull__session *session, struct ull_error *err)
{
    struct ull__planner *planner = session->at->planner;
    ull_status status = session->options.given != NULL
                            ? ull__planner_give(planner, session->options.given, &session->given, err)
                            : ULL_OK;
    if (status == ULL_OK && session->given != ULL_NONE && !ull__planner_reprice(planner)) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans");
    }
    return status;
}

/*
 * The longest decides the precision, since all lengths share the weights: the others' frontiers are of that alone, or they might
 * have none of it.
 */
static ull_status make_planners(struct ull__session *session, struct ull_error *err)
{
    const struct ull__session_options *options = &session->options;
    if (options->shorter_count < 0 || options->shorter_count >= ULL_SESSION_BUCKETS) {
        return ull__fail(err, ULL_E_INVALID, "%d lengths of samples: expected up to %d",
                         options->shorter_count + 1, ULL_SESSION_BUCKETS);
    }
    session->bucket_count = options->shorter_count + 1;
    session->at = ull__session_longest(session);
    ull_status status = plan_bucket(session, options->shorter_count, err);
    if (status == ULL_OK) {
        status = take_given(session, err);
    }
    if (status != ULL_OK || session->bucket_count == 1) {
        return status;
    }
    struct ull__wish wish = {.budget = session->budget, .accepted = true};
    int count, plan = choose(session, session->at, &wish);
    if (plan == ULL_NONE) {
        return ull__session_nothing_fits(session, session->budget, false, err);
    }
    session->options.plan.precision =
        ull__planner_plans(session->at->planner, &count)[plan].precision;
    for (int i = 0; i < options->shorter_count && status == ULL_OK; ++i) {
        status = plan_bucket(session, i, err);
    }
    return status;
}

static ull_status note_planned(struct ull__bucket *bucket, int plan_count, struct ull_error *err)
{
    bucket->planned_seconds = calloc((size_t)plan_count + 1, sizeof(*bucket->planned_seconds));
    if (bucket->planned_seconds == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans");
    }
    int count;
    const struct ull__plan *plans = ull__planner_plans(bucket->planner, &count);
    for (int i = 0; i < plan_count; ++i) {
        bucket->planned_seconds[i] = plans[i].step_seconds;
    }
    return ULL_OK;
}

ull_status ull__session_make_planners(struct ull__session *session, struct ull_error *err)
{
    ull_status status = make_planners(session, err);
    for (int i = 0; i < session->bucket_count && status == ULL_OK; ++i) {
        struct ull__bucket *bucket = &session->buckets[i];
        int count;
        ull__planner_plans(bucket->planner, &count);
        /* A given plan is behind the others. */
        bool given = bucket == ull__session_longest(session) && session->given != ULL_NONE;
        status = note_planned(bucket, given ? count + 1 : count, err);
    }
    return status;
}

bool ull__session_choose(struct ull__session *session, const struct ull__wish *wish, int *plans)
{
    int last = session->bucket_count - 1, count;
    struct ull__bucket *longest = &session->buckets[last];
    plans[last] = choose(session, longest, wish);
    if (plans[last] == ULL_NONE) {
        return false;
    }
    struct ull__wish other = *wish;
    other.like = &ull__planner_plans(longest->planner, &count)[plans[last]];
    other.least = 0;
    for (int i = 0; i < last; ++i) {
        struct ull__bucket *bucket = &session->buckets[i];
        other.most = wish->most * longest->sample_elements / bucket->sample_elements;
        plans[i] = choose(session, bucket, &other);
        if (plans[i] == ULL_NONE) {
            return false;
        }
    }
    return true;
}
