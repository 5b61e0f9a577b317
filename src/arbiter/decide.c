/*
 * decide.c: a round of deciding. See arbiter.h for the rules.
 *
 * Units that wait are taken in order of rank. What a unit needs is set aside from the room before the next
 * one is looked at, also while that room is still being made, so that nobody of lower rank takes it. One
 * for which no room can be made sets nothing aside.
 */
#include <stdlib.h>
#include <string.h>

#include "arbiter_private.h"

#define START_NS (60 * SECOND) /* what was freed for a command is kept for it so long */

static void set_aside(struct round *r, const uint64_t bytes[DEVICES])
{
    for (int d = 0; d < DEVICES; d++) {
        r->room[d] -= (int64_t)bytes[d];
        r->soon[d] -= (int64_t)bytes[d];
    }
}

/* Not before a while after a failure, and a job that came back too often waits. */
static bool is_time(struct round *r, const struct unit *unit)
{
    struct ull__arbiter *a = r->a;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        if (ull__need_of(job) != unit->need)
            continue;
        uint64_t from = unit->need == NEED_RESUME && !unit->half
                            ? ull__most(job->resume_ns, job->retry_ns)
                            : job->retry_ns;
        if (unit->need != NEED_WANT && from > a->now_ns) {
            ull__wake_at(a, from);
            return false;
        }
    }
    return true;
}

/* By how many bytes the need would break promises to others; true if at all. */
static bool breaks_promises(struct round *r, const struct unit *unit, uint64_t over[DEVICES])
{
    struct ull__arbiter *a = r->a;
    bool any = false;
    memset(over, 0, DEVICES * sizeof *over);
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        if (ull__need_of(job) != unit->need)
            continue;
        for (int d = 0; d < DEVICES; d++) {
            uint64_t by = unit->need == NEED_START ? ull__promise_lacks(a, job, d) : 0;
            if (unit->need == NEED_WANT && !job->suspendable && job->want[d])
                by = ull__minus(ull__firm_sum(a, d, job) + job->held[d] + job->want[d],
                                a->capacity[d]);
            over[d] = ull__most(over[d], by);
            any |= by > 0;
        }
    }
    return any;
}

/* Others do not grow into what the unit waits for on a device. */
static void is_short(struct round *r, const struct unit *unit, int d)
{
    if (!r->short_of[d] || unit->effective > r->short_rank[d])
        r->short_rank[d] = unit->promised ? INT32_MAX : unit->effective;
    r->short_of[d] = true;
}

static void give(struct round *r, struct unit *unit)
{
    struct ull__arbiter *a = r->a;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        enum need need = ull__need_of(job);
        if (need != unit->need)
            continue;
        for (int d = 0; d < DEVICES; d++) {
            uint64_t wanted = job->wants ? job->want[d] : 0;
            job->floor[d] =
                need == NEED_START ? job->room[d] : job->held[d] + job->evicted[d] + wanted;
        }
        job->floor_until_ns = a->now_ns + (need == NEED_START ? START_NS : GRANT_NS);
        if (need == NEED_WANT) {
            job->granted = true;
            job->to_spill = false;
            job->turn_ns = a->now_ns;
            ull__do(a, ULL_DO_GRANT, job, 0, 0, 0);
        } else {
            ull__job_state(a, job, need == NEED_START ? ULL_JOB_RUNNING : ULL_JOB_RESUMING);
            ull__do(a, need == NEED_START ? ULL_DO_START : ULL_DO_RESUME, job, 0, 0, 0);
        }
        if (need == NEED_START)
            job->wait_ns = 0;
    }
    set_aside(r, unit->bytes);
    unit->served = true;
}

static void serve(struct round *r, struct unit *unit)
{
    uint64_t over[DEVICES];
    if (!is_time(r, unit))
        return;
    if (breaks_promises(r, unit, over)) {
        if (!ull__trim_promise(r, unit, over)) {
            ull__spill(r, unit);
            return;
        }
        for (int d = 0; d < DEVICES; d++)
            if (over[d] > 0)
                is_short(r, unit, d);
        return;
    }
    if (ull__fits(r->room, unit->bytes)) {
        give(r, unit);
        return;
    }
    for (int d = 0; d < DEVICES; d++) {
        if (unit->bytes[d] == 0 || (int64_t)unit->bytes[d] <= r->room[d])
            continue;
        is_short(r, unit, d);
    }
    if (!ull__fits(r->soon, unit->bytes))
        ull__trim_for(r, unit);
    if (!ull__fits(r->soon, unit->bytes) && ull__spill(r, unit))
        return;
    if (ull__fits(r->soon, unit->bytes) || ull__suspend_others(r, unit)) {
        set_aside(r, unit->bytes);
        unit->served = true;
        return;
    }
    ull__step_aside(r, unit);
}

/* --- a round --------------------------------------------------------------------------------------------- */

/* What was set aside or asked for does not stand for ever, and an allocation does not wait for ever. */
static void let_expire(struct ull__arbiter *a, struct job *job)
{
    if (job->state == ULL_JOB_RUNNING && job->floor_until_ns <= a->now_ns) {
        memset(job->floor, 0, sizeof job->floor);
        job->granted = false;
    }
    for (int d = 0; d < DEVICES && job->trim_until_ns <= a->now_ns; d++) {
        if (job->trim_asked[d] > 0)
            job->trim_retry_ns[d] = a->now_ns + AHEAD_NS; /* it does not answer */
        job->trim_asked[d] = 0;
    }
    ull__wake_at(a, job->floor_until_ns);
    ull__wake_at(a, job->trim_until_ns);
    if (!job->wants || job->state != ULL_JOB_RUNNING)
        return;
    job->want_left_ns = ull__minus(job->want_left_ns, a->now_ns - job->want_seen_ns);
    job->want_seen_ns = a->now_ns;
    if (job->want_left_ns > 0) {
        ull__wake_at(a, a->now_ns + job->want_left_ns);
        return;
    }
    ull__do(a, ULL_DO_DENY, job, 0, 0, 0);
    memset(job->want, 0, sizeof job->want);
    job->wants = job->granted = job->to_spill = job->cannot_spill = false;
    job->wait_ns = 0;
}

/* Its promise needed trims, which did not come or were not enough. */
static bool refused(struct ull__arbiter *a, struct job *job)
{
    if (job->refuse_ns == 0 || job->state != ULL_JOB_WAITING)
        return false;
    if (a->now_ns < job->refuse_ns) {
        ull__wake_at(a, job->refuse_ns);
        return false;
    }
    job->refuse_ns = 0;
    if (ull__promise_possible(a, job))
        return false;
    ull__do(a, ULL_DO_REFUSE, job, 0, 0, 0);
    ull__job_leave(a, job);
    return true;
}

void ull__decide(struct ull__arbiter *a)
{
    struct round r = {.a = a};
    if (a->missing_until_ns <= a->now_ns)
        memset(a->missing, 0, sizeof a->missing);
    else
        ull__wake_at(a, a->missing_until_ns);
    for (size_t i = 0; i < a->job_count; i++)
        while (i < a->job_count && refused(a, &a->jobs[i]))
            continue;
    for (size_t i = 0; i < a->job_count; i++)
        let_expire(a, &a->jobs[i]);
    for (int d = 0; d < a->options.device_count; d++)
        ull__follow_use(a, d);
    if (!ull__fill_round(&r)) {
        a->failed = true;
        return;
    }
    for (size_t u = 0; u < r.waiting; u++)
        if (!r.units[u].moving)
            serve(&r, &r.units[u]);
    ull__set_budgets(&r);
    for (int d = 0; d < a->options.device_count; d++)
        ull__trim_ahead(a, d);
    free(r.units);
}

bool ull__arbiter_job(const struct ull__arbiter *a, uint64_t id, struct ull__arbiter_view *view)
{
    for (size_t i = 0; i < a->job_count; i++) {
        const struct job *job = &a->jobs[i];
        if (job->id != id)
            continue;
        uint64_t waited = job->wait_ns ? a->now_ns - job->wait_ns : 0;
        *view = (struct ull__arbiter_view){.state = job->state,
                                           .by_user = job->by_user,
                                           .priority = job->priority,
                                           .effective = job->priority +
                                                        (int)(waited / a->options.patience_ns),
                                           .since_ns = job->since_ns};
        memcpy(view->held, job->held, sizeof view->held);
        memcpy(view->evicted, job->evicted, sizeof view->evicted);
        memcpy(view->want, job->want, sizeof view->want);
        memcpy(view->budget, job->budget, sizeof view->budget);
        memcpy(view->soft, job->soft, sizeof view->soft);
        return true;
    }
    return false;
}
