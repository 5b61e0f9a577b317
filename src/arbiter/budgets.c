/*
 * budgets.c: what jobs were promised and what they may grow to: budgets that follow use, soft budgets, and when
 * a job that spilled takes memory of the card again.
 */
#include "arbiter_private.h"

uint64_t ull__promise_lacks(const struct ull__arbiter *a, const struct job *job, int d)
{
    uint64_t need = ull__most(job->request[d], job->stays[d]);
    return need > 0 ? ull__minus(ull__firm_sum(a, d, job) + need, a->capacity[d]) : 0;
}

bool ull__promise_possible(const struct ull__arbiter *a, const struct job *job)
{
    for (int d = 0; d < DEVICES; d++)
        if (ull__promise_lacks(a, job, d) > 0)
            return false;
    return true;
}

bool ull__promise_after_trims(const struct ull__arbiter *a, const struct job *job)
{
    for (int d = 0; d < DEVICES; d++) {
        uint64_t coming, further;
        ull__firm_idle(a, d, job, &coming, &further);
        if (ull__promise_lacks(a, job, d) > coming + further)
            return false;
    }
    return true;
}

/* Is anything promised on the device that is not taken yet? */
static bool promise_open(const struct ull__arbiter *a, int d)
{
    for (size_t i = 0; i < a->job_count; i++)
        if (a->jobs[i].state != ULL_JOB_WAITING && a->jobs[i].request[d] > a->jobs[i].held[d])
            return true;
    return false;
}

/*
 * What a job that cannot be moved out may grow to: whatever is not firm. While a promise is open such jobs
 * share it, so that all of them together cannot take what was promised.
 */
static uint64_t soft_of_fixed(const struct ull__arbiter *a, const struct job *job, int d)
{
    uint64_t left = ull__minus(a->capacity[d], ull__firm_sum(a, d, NULL)), sharers = 0;
    for (size_t i = 0; i < a->job_count; i++)
        sharers += !a->jobs[i].suspendable && a->jobs[i].state != ULL_JOB_WAITING &&
                   a->jobs[i].budget[d] > ull__job_firm(&a->jobs[i], d);
    if (sharers > 1 && promise_open(a, d))
        left /= sharers;
    return ull__least(job->budget[d], ull__job_firm(job, d) + left);
}

/*
 * While something is set aside that is not held yet (for a job that comes back, or a grant), those that run
 * may grow only into what is left then, each by its share: else one would take it before its owner does.
 */
static uint64_t without_what_is_set_aside(const struct round *r, const struct job *job, int d)
{
    uint64_t room = r->room[d] > 0 ? (uint64_t)r->room[d] : 0;
    return ull__job_occupies(job, d) + room / (r->running ? r->running : 1);
}

static void set_soft(const struct round *r, struct job *job, int d)
{
    struct ull__arbiter *a = r->a;
    uint64_t soft = job->budget[d];
    if (!job->suspendable && job->state != ULL_JOB_WAITING)
        soft = soft_of_fixed(a, job, d);
    /* While somebody waits for room here, nobody of the same or lower rank grows beyond the promise. */
    if (job->state == ULL_JOB_RUNNING && r->short_of[d] && job->priority <= r->short_rank[d])
        soft = ull__least(soft, ull__most(ull__most(job->request[d], job->floor[d]),
                                          ull__minus(job->held[d], job->trimmable[d])));
    soft = ull__most(soft, ull__least(job->request[d], job->budget[d]));
    if (job->state == ULL_JOB_RUNNING && r->set_aside[d])
        soft = ull__least(soft, without_what_is_set_aside(r, job, d));
    job->soft[d] = soft;
    if (job->soft[d] != job->told[d])
        ull__do(a, ULL_DO_BUDGET, job, d, job->soft[d], 0);
    job->told[d] = job->soft[d];
}

/* A budget that follows use: a quarter above it, and a share of what is free. */
void ull__follow_use(struct ull__arbiter *a, int d)
{
    uint64_t followers = 0, capacity = a->capacity[d];
    for (size_t i = 0; i < a->job_count; i++)
        followers += a->jobs[i].automatic && a->jobs[i].state == ULL_JOB_RUNNING;
    int64_t room = followers ? ull__room(a, d) : 0;
    for (size_t i = 0; i < a->job_count && followers; i++) {
        struct job *job = &a->jobs[i];
        if (!job->automatic || job->state != ULL_JOB_RUNNING)
            continue;
        uint64_t share = room > 0 ? (uint64_t)room / (followers + 1) : 0;
        uint64_t wish = job->held[d] + job->held[d] / 4 + share;
        wish = ull__least(ull__most(wish, ull__most(job->request[d], capacity / 10)), capacity);
        uint64_t change = wish > job->budget[d] ? wish - job->budget[d] : job->budget[d] - wish;
        if (change > capacity / 50 || job->budget[d] > capacity)
            job->budget[d] = wish;
    }
}

/* A job goes on taking memory of the card once there is some to spare. */
static void end_spilling(struct round *r, struct job *job)
{
    if (!job->spilling || job->wants)
        return;
    for (int d = 0; d < r->a->options.device_count; d++)
        if (r->short_of[d] || r->room[d] < (int64_t)(r->a->capacity[d] / 20))
            return;
    job->spilling = false;
    ull__do(r->a, ULL_DO_SPILL, job, 0, 0, 0);
}

static void look_what_is_set_aside(struct round *r)
{
    for (size_t i = 0; i < r->a->job_count; i++) {
        const struct job *job = &r->a->jobs[i];
        r->running += job->state == ULL_JOB_RUNNING;
        for (int d = 0; d < r->a->options.device_count; d++)
            r->set_aside[d] |=
                job->state != ULL_JOB_SUSPENDED && ull__job_occupies(job, d) > job->held[d];
    }
}

void ull__set_budgets(struct round *r)
{
    look_what_is_set_aside(r);
    for (size_t i = 0; i < r->a->job_count; i++) {
        for (int d = 0; d < r->a->options.device_count; d++)
            set_soft(r, &r->a->jobs[i], d);
        end_spilling(r, &r->a->jobs[i]);
    }
}
