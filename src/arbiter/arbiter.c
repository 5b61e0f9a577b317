/* arbiter.c: see arbiter.h. What events do to the state; the deciding is in decide.c. */
#include <stdlib.h>
#include <string.h>

#include "arbiter_private.h"
#include "error.h"

static ull_status check_options(const struct ull__arbiter_options *options,
                                struct ull__arbiter_options *full, struct ull_error *err)
{
    *full = *options;
    if (options->device_count < 0 || options->device_count > DEVICES)
        return ull__fail(err, ULL_E_INVALID, "%d devices: expected 0 to %d", options->device_count,
                         DEVICES);
    if (full->watermark == 0)
        full->watermark = 0.70;
    if (!(full->watermark >= LOWEST_MARK && full->watermark <= HIGHEST_MARK))
        return ull__fail(err, ULL_E_INVALID, "the watermark is %g: expected 0.60 to 0.90",
                         options->watermark);
    if (full->slice_ns == 0)
        full->slice_ns = 30 * SECOND;
    if (full->patience_ns == 0)
        full->patience_ns = 600 * SECOND;
    if (full->want_ns == 0)
        full->want_ns = 60 * SECOND;
    return ULL_OK;
}

/* The watermark begins anew only where it is another one. */
static void set_options(struct ull__arbiter *a, const struct ull__arbiter_options *options)
{
    for (int d = 0; d < DEVICES && options->watermark != a->options.watermark; d++)
        a->watermark[d] = options->watermark;
    a->options = *options;
    a->host_bytes = options->host_bytes;
}

ull_status ull__arbiter_create(const struct ull__arbiter_options *options,
                               struct ull__arbiter **arbiter, struct ull_error *err)
{
    struct ull__arbiter_options full;
    ull_status status = check_options(options, &full, err);
    if (status != ULL_OK)
        return status;
    struct ull__arbiter *a = calloc(1, sizeof *a);
    if (!a)
        return ull__fail(err, ULL_E_SYSTEM, "no memory");
    set_options(a, &full);
    a->deadline_ns = UINT64_MAX;
    *arbiter = a;
    return ULL_OK;
}

ull_status ull__arbiter_configure(struct ull__arbiter *a,
                                  const struct ull__arbiter_options *options, struct ull_error *err)
{
    struct ull__arbiter_options full;
    ull_status status = check_options(options, &full, err);
    if (status != ULL_OK)
        return status;
    full.device_count = a->options.device_count;
    set_options(a, &full);
    a->deadline_ns = a->now_ns; /* what is due by now may be something else */
    return ULL_OK;
}

void ull__arbiter_destroy(struct ull__arbiter *a)
{
    if (!a)
        return;
    free(a->jobs);
    free(a->actions);
    free(a);
}

void ull__do(struct ull__arbiter *a, enum ull__arbiter_action_kind kind, const struct job *job,
             int device, uint64_t bytes, uint64_t for_job)
{
    if (a->action_count == a->action_capacity) {
        size_t capacity = a->action_capacity ? a->action_capacity * 2 : 64;
        struct ull__arbiter_action *grown = realloc(a->actions, capacity * sizeof *grown);
        if (!grown) {
            a->failed = true;
            return;
        }
        a->actions = grown;
        a->action_capacity = capacity;
    }
    a->actions[a->action_count++] = (struct ull__arbiter_action){
        .kind = kind, .job = job->id, .device = device, .bytes = bytes, .for_job = for_job};
}

void ull__wake_at(struct ull__arbiter *a, uint64_t time_ns)
{
    if (time_ns > a->now_ns && time_ns < a->deadline_ns)
        a->deadline_ns = time_ns;
}

void ull__move_watermark(struct ull__arbiter *a, int device, double by)
{
    double mark = a->watermark[device] + by;
    a->watermark[device] = mark < LOWEST_MARK    ? LOWEST_MARK
                           : mark > HIGHEST_MARK ? HIGHEST_MARK
                                                 : mark;
}

void ull__job_state(struct ull__arbiter *a, struct job *job, enum ull__job_state state)
{
    job->state = state;
    job->since_ns = a->now_ns;
    if (state == ULL_JOB_RUNNING)
        job->turn_ns = a->now_ns;
}

static struct job *find(const struct ull__arbiter *a, uint64_t id)
{
    for (size_t i = 0; i < a->job_count; i++)
        if (a->jobs[i].id == id)
            return &a->jobs[i];
    return NULL;
}

static void copy(uint64_t to[DEVICES], const uint64_t from[DEVICES])
{
    memcpy(to, from, DEVICES * sizeof *to);
}

/* --- joining -------------------------------------------------------------------------------------------- */

static ull_status check_spec(const struct ull__arbiter *a, const struct ull__arbiter_event *event,
                             struct ull_error *err)
{
    const struct ull__arbiter_spec *spec = event->spec;
    if (find(a, event->job))
        return ull__fail(err, ULL_E_INVALID, "the job has joined before");
    if (a->job_count >= ULL_ARBITER_JOBS)
        return ull__fail(err, ULL_E_FULL, "%d jobs are there already, the most that are taken",
                         ULL_ARBITER_JOBS);
    for (int d = 0; d < DEVICES; d++) {
        if (spec->request[d] > spec->budget[d])
            return ull__fail(err, ULL_E_INVALID,
                             "the request of %llu bytes on device %d is above the budget of %llu",
                             (unsigned long long)spec->request[d], d,
                             (unsigned long long)spec->budget[d]);
        if (spec->room[d] > a->capacity[d] || (!spec->started && spec->request[d] > a->capacity[d]))
            return ull__fail(err, ULL_E_INVALID,
                             "%llu bytes are to be free on device %d, which has %llu for jobs",
                             (unsigned long long)ull__most(spec->room[d], spec->request[d]), d,
                             (unsigned long long)a->capacity[d]);
    }
    return ULL_OK;
}

static ull_status join(struct ull__arbiter *a, const struct ull__arbiter_event *event,
                       struct ull_error *err)
{
    const struct ull__arbiter_spec *spec = event->spec;
    ull_status status = check_spec(a, event, err);
    if (status != ULL_OK)
        return status;
    if (a->job_count == a->job_capacity) {
        size_t capacity = a->job_capacity ? a->job_capacity * 2 : 16;
        struct job *grown = realloc(a->jobs, capacity * sizeof *grown);
        if (!grown)
            return ull__fail(err, ULL_E_SYSTEM, "no memory for a job");
        a->jobs = grown;
        a->job_capacity = capacity;
    }
    struct job *job = &a->jobs[a->job_count];
    *job = (struct job){.id = event->job,
                        .group = spec->group,
                        .priority = spec->priority,
                        .suspendable = spec->suspendable,
                        .spill_bytes = spec->spill_bytes,
                        .automatic = spec->automatic,
                        .may_queue = spec->may_queue,
                        .joined_ns = a->now_ns};
    copy(job->budget, spec->budget);
    copy(job->request, spec->request);
    copy(job->room, spec->room);
    copy(job->stays, spec->stays);
    copy(job->will_stay, spec->stays);
    copy(job->held, event->bytes);
    copy(job->soft, spec->request);
    copy(job->told, spec->budget);
    if ((spec->started || !spec->may_queue) && !ull__promise_possible(a, job)) {
        if (spec->started || !ull__promise_after_trims(a, job)) {
            ull__do(a, ULL_DO_REFUSE, job, 0, 0, 0);
            return ULL_OK;
        }
        job->refuse_ns = a->now_ns + 2 * TRIM_NS; /* only idle caches are in its way */
    }
    a->job_count++;
    ull__job_state(a, job, spec->started ? ULL_JOB_RUNNING : ULL_JOB_WAITING);
    if (!spec->started)
        job->wait_ns = a->now_ns;
    return ULL_OK;
}

/* --- the other events ------------------------------------------------------------------------------------- */

static void use(struct ull__arbiter *a, struct job *job, const struct ull__arbiter_event *event)
{
    copy(job->held, event->bytes);
    copy(job->trimmable, event->trimmable);
    copy(job->stays, event->stays);
    job->spilled = event->spilled;
    for (int d = 0; d < DEVICES; d++) {
        bool soon = a->now_ns < job->ahead_ns + REGROWN_NS;
        /* It grew again what was trimmed ahead of need: that was for nothing. */
        if (job->ahead_held[d] && soon && job->held[d] >= job->ahead_held[d])
            ull__move_watermark(a, d, MARK_STEP);
        if (!soon || job->held[d] >= job->ahead_held[d])
            job->ahead_held[d] = 0;
    }
}

/*
 * It asks again for what it was granted: the card refused, so there is less on it than was thought, for somebody who is
 * no job took some. What is missing is believed for a moment, so that room is made instead of granted once more.
 */
static void was_refused(struct ull__arbiter *a, struct job *job)
{
    for (int d = 0; d < DEVICES; d++)
        if (job->want[d] && job->floor[d] > job->held[d]) {
            int64_t room = ull__room(a, d); /* with what it wants taken off */
            a->missing[d] += room >= 0 ? (uint64_t)room + 1 : 0;
            a->missing_until_ns = a->now_ns + MISSING_NS;
            job->floor[d] = 0;
        }
    job->cannot_spill |= job->to_spill; /* as a context, which lies on the card */
}

/* One that gave far less than it said is left alone for a while. */
static void trimmed(struct ull__arbiter *a, struct job *job, uint64_t device)
{
    if (device >= DEVICES)
        return;
    uint64_t given = ull__minus(job->trim_held[device], job->held[device]);
    if (given < job->trim_asked[device] / 2)
        job->trim_retry_ns[device] = a->now_ns + RETRY_NS;
    job->trim_asked[device] = 0;
}

static ull_status want(struct ull__arbiter *a, struct job *job,
                       const struct ull__arbiter_event *event, struct ull_error *err)
{
    if (job->state != ULL_JOB_RUNNING && job->state != ULL_JOB_SUSPENDING)
        return ull__fail(err, ULL_E_INVALID, "the job is %s: it cannot ask for memory",
                         ull__job_state_name(job->state));
    for (int d = 0; d < DEVICES; d++)
        if (event->bytes[d] && job->held[d] + event->bytes[d] > job->budget[d])
            return ull__fail(err, ULL_E_INVALID, "%llu bytes more on device %d pass the budget",
                             (unsigned long long)event->bytes[d], d);
    if (job->wants && job->granted)
        was_refused(a, job);
    copy(job->want, event->bytes);
    job->granted = false;
    if (job->wants) /* the same one, with another size: it keeps its place */
        return ULL_OK;
    job->wants = true;
    job->wait_ns = a->now_ns;
    job->want_left_ns = a->options.want_ns;
    job->want_seen_ns = a->now_ns;
    return ULL_OK;
}

static void want_over(struct job *job)
{
    memset(job->want, 0, sizeof job->want);
    job->wants = job->granted = job->to_spill = job->cannot_spill = false;
    if (job->state == ULL_JOB_RUNNING)
        job->wait_ns = 0;
}

static ull_status moved_out(struct ull__arbiter *a, struct job *job,
                            const struct ull__arbiter_event *event, struct ull_error *err)
{
    if (job->state != ULL_JOB_SUSPENDING)
        return ull__fail(err, ULL_E_INVALID, "the job is %s, not being suspended",
                         ull__job_state_name(job->state));
    uint64_t turn = a->now_ns - job->turn_ns;
    job->backoff = turn >= a->options.slice_ns ? 0 : job->backoff < 4 ? job->backoff + 1 : 4;
    if (job->by_user)
        job->backoff = 0;
    job->resume_ns = a->now_ns + (job->backoff > 1 ? a->options.slice_ns << (job->backoff - 2) : 0);
    copy(job->evicted, event->bytes);
    copy(job->stays, event->stays);
    copy(job->held, event->stays);
    memset(job->trimmable, 0, sizeof job->trimmable);
    memset(job->floor, 0, sizeof job->floor);
    job->swap_ns = ull__most(job->swap_ns, event->amount);
    job->granted = false;
    ull__job_state(a, job, ULL_JOB_SUSPENDED);
    job->wait_ns = a->now_ns;
    return ULL_OK;
}

static ull_status moved_in(struct ull__arbiter *a, struct job *job,
                           const struct ull__arbiter_event *event, struct ull_error *err)
{
    if (job->state != ULL_JOB_RESUMING)
        return ull__fail(err, ULL_E_INVALID, "the job is %s, not being resumed",
                         ull__job_state_name(job->state));
    for (int d = 0; d < DEVICES; d++) {
        job->held[d] = job->stays[d] + job->evicted[d];
        job->evicted[d] = 0;
    }
    job->swap_ns = ull__most(job->swap_ns, event->amount);
    ull__job_state(a, job, ULL_JOB_RUNNING);
    job->wait_ns = job->wants ? a->now_ns : 0;
    job->want_seen_ns = a->now_ns;
    job->floor_until_ns = a->now_ns + GRANT_NS;
    return ULL_OK;
}

static ull_status could_not(struct ull__arbiter *a, struct job *job,
                            const struct ull__arbiter_event *event, struct ull_error *err)
{
    if (job->state != ULL_JOB_SUSPENDING && job->state != ULL_JOB_RESUMING)
        return ull__fail(err, ULL_E_INVALID, "the job is %s: nothing was asked of it",
                         ull__job_state_name(job->state));
    job->retry_ns = a->now_ns + ull__most(event->amount, RETRY_NS);
    bool runs = job->state == ULL_JOB_SUSPENDING;
    uint64_t turn = job->turn_ns;
    if (!runs)
        memset(job->floor, 0, sizeof job->floor);
    ull__job_state(a, job, runs ? ULL_JOB_RUNNING : ULL_JOB_SUSPENDED);
    job->turn_ns = turn;
    job->want_seen_ns = a->now_ns;
    job->by_user = job->by_user && !runs;
    return ULL_OK;
}

static ull_status by_person(struct ull__arbiter *a, struct job *job, bool suspend,
                            struct ull_error *err)
{
    const char *state = ull__job_state_name(job->state);
    if (!suspend) {
        if (job->state != ULL_JOB_SUSPENDED)
            return ull__fail(err, ULL_E_INVALID, "the job is %s, not suspended", state);
        job->by_user = false;
        job->wait_ns = a->now_ns;
        job->resume_ns = job->retry_ns = 0;
        return ULL_OK;
    }
    if (job->by_user)
        return ull__fail(err, ULL_E_INVALID, "the job is suspended already");
    if (job->state == ULL_JOB_WAITING || job->state == ULL_JOB_RESUMING)
        return ull__fail(err, ULL_E_INVALID, "the job is %s: suspend it once it runs", state);
    if (!job->suspendable)
        return ull__fail(err, ULL_E_INVALID,
                         "the job cannot be suspended: start it with --suspendable");
    if (job->state == ULL_JOB_RUNNING) {
        ull__job_state(a, job, ULL_JOB_SUSPENDING);
        ull__do(a, ULL_DO_SUSPEND, job, 0, 0, 0);
    }
    job->by_user = true;
    return ULL_OK;
}

static ull_status budgets(const struct ull__arbiter *a, struct job *job,
                          const struct ull__arbiter_event *event, struct ull_error *err)
{
    for (int d = 0; d < DEVICES; d++)
        if (event->bytes[d] > a->capacity[d])
            return ull__fail(
                err, ULL_E_INVALID, "a budget of %llu bytes on device %d, which has %llu for jobs",
                (unsigned long long)event->bytes[d], d, (unsigned long long)a->capacity[d]);
    job->automatic = event->amount == 1;
    for (int d = 0; d < DEVICES; d++) {
        if (!job->automatic)
            job->budget[d] = event->bytes[d];
        job->request[d] = ull__least(job->request[d], job->budget[d]);
    }
    return ULL_OK;
}

void ull__job_leave(struct ull__arbiter *a, struct job *job)
{
    size_t at = (size_t)(job - a->jobs);
    memmove(job, job + 1, (a->job_count - at - 1) * sizeof *job);
    a->job_count--;
}

static ull_status apply(struct ull__arbiter *a, const struct ull__arbiter_event *event,
                        struct ull_error *err)
{
    struct job *job = event->kind > ULL_ARB_JOIN ? find(a, event->job) : NULL;
    if (event->kind > ULL_ARB_JOIN && !job)
        return ull__fail(err, ULL_E_NOT_FOUND, "no such job");
    switch (event->kind) {
    case ULL_ARB_TICK:
        return ULL_OK;
    case ULL_ARB_DEVICE:
        copy(a->capacity, event->bytes);
        return ULL_OK;
    case ULL_ARB_HOST:
        a->host_bytes = event->amount;
        return ULL_OK;
    case ULL_ARB_JOIN:
        return join(a, event, err);
    case ULL_ARB_LEAVE:
        ull__job_leave(a, job);
        return ULL_OK;
    case ULL_ARB_USE:
        use(a, job, event);
        return ULL_OK;
    case ULL_ARB_WANT:
        return want(a, job, event, err);
    case ULL_ARB_WANT_OVER:
        want_over(job);
        return ULL_OK;
    case ULL_ARB_TRIMMED:
        trimmed(a, job, event->amount);
        return ULL_OK;
    case ULL_ARB_SUSPENDED:
        return moved_out(a, job, event, err);
    case ULL_ARB_RESUMED:
        return moved_in(a, job, event, err);
    case ULL_ARB_FAILED:
        return could_not(a, job, event, err);
    case ULL_ARB_BUDGET:
        return budgets(a, job, event, err);
    case ULL_ARB_USER_SUSPEND:
        return by_person(a, job, true, err);
    case ULL_ARB_USER_RESUME:
        return by_person(a, job, false, err);
    }
    return ull__fail(err, ULL_E_INVALID, "no such event");
}

ull_status ull__arbiter_step(struct ull__arbiter *a, const struct ull__arbiter_event *event,
                             uint64_t now_ns, const struct ull__arbiter_action **actions,
                             size_t *count, struct ull_error *err)
{
    a->action_count = 0;
    a->failed = false;
    a->now_ns = ull__most(a->now_ns, now_ns);
    if (event->kind != ULL_ARB_USE)
        a->deadline_ns = UINT64_MAX;
    ull_status status = apply(a, event, err);
    if (event->kind != ULL_ARB_USE)
        ull__decide(a);
    if (status == ULL_OK && a->failed)
        status = ull__fail(err, ULL_E_SYSTEM, "no memory for actions");
    *actions = a->actions;
    *count = a->action_count;
    return status;
}

uint64_t ull__arbiter_deadline(const struct ull__arbiter *a)
{
    return a->deadline_ns;
}

double ull__arbiter_watermark(const struct ull__arbiter *a, int device)
{
    return a->watermark[device];
}

uint64_t ull__arbiter_occupied(const struct ull__arbiter *a, int device)
{
    return (uint64_t)((int64_t)a->capacity[device] - ull__room(a, device));
}
