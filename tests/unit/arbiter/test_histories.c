/*
 * test_histories.c: random histories of jobs that share cards, with what must hold in each of them.
 *
 * The world here is honest and slow: memory is held by whoever took it, moving takes time and fails now and
 * then, trims take time and free what is idle by then: jobs use their caches again without asking. Jobs follow a
 * program of their own: take memory, work, give some back, end; some may spill. What must hold:
 *
 *   - what is promised and what cannot be had back fit the card together, at every moment;
 *   - nobody spills or is moved out for somebody while idle caches would do;
 *   - nobody spills more than it may;
 *   - the card never holds more than it has, also counting what comes back while it comes back;
 *   - no allocation within a request is refused, and nobody within its request is moved out;
 *   - where all jobs can be moved out and the host has room, no allocation fails, and every job ends;
 *   - every job ends in any case, or its command was never promised a place;
 *   - between jobs of one priority, moving takes a bounded part of the time.
 *
 * ULLAGE_HISTORIES sets how many histories, ULLAGE_SEED the first one's number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arbiter.h"

enum { JOBS = 8, PHASES = 6, DEVICES = ULL_ARBITER_DEVICES, EVENTS = 200000, QUEUE = 256 };
#define MS 1000000ull
#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)

struct phase {
    uint64_t level[2]; /* what is held during it, on each device */
    uint64_t work_ns;
};

struct sim_job {
    uint64_t id;
    struct ull__arbiter_spec spec;
    struct phase phases[PHASES];
    int phase_count, phase;
    uint64_t stays[2], idle[2]; /* idle: of held, what a trim would free */
    uint64_t held[2], evicted[2], budget[2];
    enum { ABSENT, QUEUED, WORKING, WANTING, MOVING_OUT, OUT, MOVING_IN, GONE } state;
    bool refused, failed; /* never taken in; ended by an allocation that failed */
    uint64_t arrives_ns, work_left_ns, moved_ns, swaps, turn_ns;
    uint64_t began_ns;
    uint64_t waits_ns;            /* since when it wants, or is out */
    bool wants_after;             /* was moved out while it wanted */
    bool changed;                 /* what it holds, since the arbiter was told */
    uint64_t trim[2], trim_ns[2]; /* asked for, and when it will have done it; 0: nothing is asked */
    uint64_t told_idle[2];        /* that the arbiter knows of */
    uint64_t poor_ns[2];          /* when a trim gave far less than was asked for */
    uint64_t spilled, may_spill;
    bool spills; /* told to */
};

struct world {
    uint64_t seed, now_ns;
    int devices;
    uint64_t capacity[2], host_bytes;
    bool all_movable, plenty_of_host, faults, groups;
    struct sim_job jobs[JOBS];
    int job_count;
    struct ull__arbiter *arbiter;
    struct ull__arbiter_event queue[QUEUE]; /* what the arbiter was not told yet */
    int queue_head, queued;
    bool stepping;
    uint64_t denied, resume_failures, trims, empty_trims, spills;
    char why[256];
};

static uint64_t next(struct world *w)
{
    w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t x = w->seed;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    return x ^ x >> 33;
}

static uint64_t between(struct world *w, uint64_t low, uint64_t high)
{
    return low + next(w) % (high - low + 1);
}

static void broken(struct world *w, const char *what, const struct sim_job *job)
{
    if (!w->why[0])
        snprintf(w->why, sizeof w->why, "%s (job %llu at %.3f s)", what,
                 job ? (unsigned long long)job->id : 0, (double)w->now_ns / 1e9);
}

static void step(struct world *w, struct ull__arbiter_event event);
static void check_moves(struct world *w, const struct sim_job *job);

/* What a job holds is in shared memory: it is looked at before anything is decided. */
static void changed(struct world *w, struct sim_job *job)
{
    job->changed = true;
    step(w, (struct ull__arbiter_event){.kind = ULL_ARB_TICK});
}

static bool is_on_card(const struct sim_job *job)
{
    return job->state == WORKING || job->state == WANTING || job->state == MOVING_OUT;
}

static bool is_there(const struct sim_job *job)
{
    return job->state != ABSENT && job->state != GONE;
}

static bool is_out(const struct sim_job *job)
{
    return job->state == OUT || job->state == MOVING_OUT;
}

static uint64_t card_holds(const struct world *w, int d)
{
    uint64_t sum = 0;
    for (int i = 0; i < w->job_count; i++) {
        const struct sim_job *job = &w->jobs[i];
        if (is_on_card(job) || job->state == MOVING_IN || job->state == OUT)
            sum += job->held[d]; /* while it is out: what stayed */
    }
    return sum;
}

static struct ull__arbiter_event use_of(const struct world *w, const struct sim_job *job)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_USE, .job = job->id};
    for (int d = 0; d < w->devices; d++) {
        event.bytes[d] = job->held[d];
        event.trimmable[d] = job->idle[d];
        event.stays[d] = job->stays[d];
    }
    event.spilled = job->spilled;
    return event;
}

/* --- what jobs do ---------------------------------------------------------------------------------------- */

static void end_job(struct world *w, struct sim_job *job)
{
    check_moves(w, job);
    job->state = GONE;
    memset(job->held, 0, sizeof job->held);
    memset(job->evicted, 0, sizeof job->evicted);
    memset(job->trim_ns, 0, sizeof job->trim_ns);
    job->spilled = 0;
    step(w, (struct ull__arbiter_event){.kind = ULL_ARB_LEAVE, .job = job->id});
}

/* Puts into host memory what the phase needs more than is held, if the job was told to and may. */
static bool spill(struct world *w, struct sim_job *job, const struct ull__arbiter_event *want)
{
    uint64_t all = 0;
    for (int d = 0; d < w->devices; d++)
        all += want->bytes[d];
    if (!job->spills || all > job->may_spill - job->spilled)
        return false;
    job->spilled += all;
    w->spills++;
    return true;
}

/* Takes what the phase needs, or waits. Idle caches are used before new memory. */
static void enter_phase(struct world *w, struct sim_job *job)
{
    const struct phase *phase = &job->phases[job->phase];
    struct ull__arbiter_event want = {.kind = ULL_ARB_WANT, .job = job->id};
    bool all = true;
    for (int d = 0; d < w->devices; d++) {
        uint64_t grow = phase->level[d] > job->held[d] ? phase->level[d] - job->held[d] : 0;
        want.bytes[d] = grow;
        if (grow && (card_holds(w, d) + grow > w->capacity[d] || job->held[d] + grow > job->budget[d]))
            all = false;
    }
    bool wanted = job->state == WANTING, spilled = !all && spill(w, job, &want);
    if (!all && !spilled) {
        if (job->state != WANTING)
            job->waits_ns = w->now_ns;
        /* Again with what it is now: its idle caches may have been trimmed meanwhile. */
        job->state = WANTING;
        step(w, want);
        return;
    }
    for (int d = 0; d < w->devices; d++) {
        uint64_t level = phase->level[d];
        if (level > job->held[d] && !spilled)
            job->held[d] = level;
        /* What is not used any more stays as cache for a while. */
        job->idle[d] = job->held[d] > level ? job->held[d] - level : 0;
        if (job->idle[d] > job->held[d] - job->stays[d])
            job->idle[d] = job->held[d] - job->stays[d];
    }
    job->state = WORKING;
    job->work_left_ns = phase->work_ns;
    job->began_ns = w->now_ns;
    if (wanted)
        step(w, (struct ull__arbiter_event){.kind = ULL_ARB_WANT_OVER, .job = job->id});
    changed(w, job);
}

/* Is all that the job has and waits for within its request? */
static bool within_request(const struct world *w, const struct sim_job *job)
{
    bool within = true;
    bool waits = job->state == WANTING || (job->wants_after && is_out(job));
    for (int d = 0; d < w->devices; d++) {
        uint64_t wanted = waits ? job->phases[job->phase].level[d] : 0;
        within &= job->held[d] + job->evicted[d] <= job->spec.request[d] &&
                  wanted <= job->spec.request[d];
    }
    return within;
}

/* A turn among equals lasts a slice, unless whoever has it cannot go on. */
static void check_turn(struct world *w, const struct sim_job *job, const struct sim_job *taker)
{
    const uint64_t slice = 30 * SECOND, patience = 600 * SECOND;
    if (taker && taker->spec.priority == job->spec.priority && taker->spec.request[0] == 0 &&
        taker->spec.request[1] == 0 && !w->groups && !w->faults && job->state == WORKING &&
        w->now_ns < job->turn_ns + slice && w->now_ns < taker->waits_ns + patience)
        broken(w, "moved out by an equal before its turn was over", job);
}

/*
 * Does what others said that is idle suffice for what the job wants, with what is free? Where nothing else is set
 * aside for anybody, that is the first means.
 */
static bool caches_suffice(struct world *w, const struct sim_job *job)
{
    bool any = false;
    if (job->state != WANTING || !job->spec.suspendable || job->spec.group || w->faults)
        return false;
    for (int i = 0; i < w->job_count; i++) {
        const struct sim_job *other = &w->jobs[i];
        if (other == job || !is_there(other))
            continue;
        /* What a job was granted is set aside for a while, for one that starts for a minute. */
        if (other->state != WORKING || w->now_ns < other->turn_ns + 60 * SECOND)
            return false;
    }
    for (int d = 0; d < w->devices; d++) {
        uint64_t level = job->phases[job->phase].level[d], idle = 0;
        uint64_t grow = level > job->held[d] ? level - job->held[d] : 0;
        if (card_holds(w, d) < ull__arbiter_occupied(w->arbiter, d))
            return false;
        for (int i = 0; i < w->job_count; i++)
            if (&w->jobs[i] != job && w->jobs[i].state == WORKING &&
                w->now_ns >= w->jobs[i].poor_ns[d] + SECOND)
                idle += w->jobs[i].told_idle[d];
        any |= grow > 0;
        if (grow > w->capacity[d] - card_holds(w, d) + idle)
            return false;
    }
    return any;
}

static void on_suspend(struct world *w, struct sim_job *job, const struct sim_job *taker)
{
    if (taker && caches_suffice(w, taker))
        broken(w, "moved out though idle caches would do", job);
    check_turn(w, job, taker);
    bool within = within_request(w, job);
    for (int i = 0; i < w->job_count; i++) /* a group goes as one */
        if (job->spec.group && w->jobs[i].spec.group == job->spec.group && is_there(&w->jobs[i]))
            within &= within_request(w, &w->jobs[i]);
    if (within)
        broken(w, "moved out though within its request", job);
    if (job->state != WORKING && job->state != WANTING) {
        broken(w, "suspended while not running", job);
        return;
    }
    if (job->state == WORKING) {
        uint64_t done = w->now_ns - job->began_ns;
        job->work_left_ns = job->work_left_ns > done ? job->work_left_ns - done : 0;
    }
    job->wants_after = job->state == WANTING;
    job->state = MOVING_OUT;
    job->moved_ns = w->now_ns + between(w, 100, 2000) * MS;
}

static void on_resume(struct world *w, struct sim_job *job)
{
    if (job->state != OUT) {
        broken(w, "resumed while not out", job);
        return;
    }
    for (int d = 0; d < w->devices; d++) {
        if (card_holds(w, d) + job->evicted[d] > w->capacity[d])
            w->resume_failures++;
    }
    for (int d = 0; d < w->devices; d++)
        job->held[d] += job->evicted[d];
    job->state = MOVING_IN;
    for (int d = 0; d < w->devices; d++)
        if (card_holds(w, d) > w->capacity[d])
            broken(w, "brought back though the card has no room", job);
    job->moved_ns = w->now_ns + between(w, 100, 2000) * MS;
}

static void moved(struct world *w, struct sim_job *job)
{
    bool out = job->state == MOVING_OUT;
    struct ull__arbiter_event event = {.job = job->id, .amount = between(w, 100, 2000) * MS};
    if (w->faults && next(w) % 8 == 0) {
        event.kind = ULL_ARB_FAILED;
        job->state = out ? (job->wants_after ? WANTING : WORKING) : OUT;
        job->began_ns = w->now_ns;
        for (int d = 0; d < w->devices && !out; d++)
            job->held[d] -= job->evicted[d];
        step(w, event);
        return;
    }
    job->swaps++;
    if (out) {
        event.kind = ULL_ARB_SUSPENDED;
        for (int d = 0; d < w->devices; d++) {
            uint64_t stays = job->stays[d] < job->held[d] ? job->stays[d] : job->held[d];
            job->evicted[d] = job->held[d] - stays;
            event.bytes[d] = job->evicted[d];
            event.stays[d] = stays;
            job->held[d] = stays;
            job->idle[d] = 0;
        }
        job->state = OUT;
        job->waits_ns = w->now_ns;
    } else {
        event.kind = ULL_ARB_RESUMED;
        memset(job->evicted, 0, sizeof job->evicted);
        job->state = job->wants_after ? WANTING : WORKING;
        job->began_ns = job->turn_ns = w->now_ns;
    }
    step(w, event);
    if (!out)
        changed(w, job);
}

/* --- what the arbiter says --------------------------------------------------------------------------- */

static struct sim_job *job_of(struct world *w, uint64_t id)
{
    for (int i = 0; i < w->job_count; i++)
        if (w->jobs[i].id == id)
            return &w->jobs[i];
    return NULL;
}

static void deny(struct world *w, struct sim_job *job)
{
    const struct phase *phase = &job->phases[job->phase];
    bool promised = true;
    for (int d = 0; d < w->devices; d++) {
        uint64_t level = phase->level[d] > job->held[d] ? phase->level[d] : job->held[d];
        promised &= level <= job->spec.request[d];
    }
    w->denied++;
    if (promised && w->plenty_of_host && !w->faults)
        broken(w, "an allocation within the request failed", job);
    if (w->all_movable && w->plenty_of_host && !w->faults)
        broken(w, "an allocation failed though everybody could move out", job);
    job->failed = true;
    end_job(w, job);
}

static void obey(struct world *w, const struct ull__arbiter_action *action)
{
    struct sim_job *job = job_of(w, action->job);
    if (!job || job->state == GONE)
        return;
    if (getenv("ULLAGE_TRACE"))
        print_message("%9.3f   job %llu state %d: action %d device %d bytes %llu for %llu\n",
                      (double)w->now_ns / 1e9, (unsigned long long)job->id, (int)job->state,
                      (int)action->kind, action->device, (unsigned long long)action->bytes,
                      (unsigned long long)action->for_job);
    switch (action->kind) {
    case ULL_DO_START:
        job->state = WORKING;
        job->turn_ns = w->now_ns;
        enter_phase(w, job);
        break;
    case ULL_DO_REFUSE:
        job->refused = true;
        job->state = GONE;
        break;
    case ULL_DO_TRIM:
        if (action->bytes > job->told_idle[action->device])
            broken(w, "told to trim more than is idle", job);
        w->trims++;
        job->trim[action->device] = action->bytes;
        job->trim_ns[action->device] = w->now_ns + between(w, 1, w->faults ? 4000 : 300) * MS;
        break;
    case ULL_DO_BUDGET:
        job->budget[action->device] = action->bytes;
        break;
    case ULL_DO_SPILL:
        job->spills = action->bytes != 0;
        if (job->spills && caches_suffice(w, job))
            broken(w, "spills though idle caches would do", job);
        break;
    case ULL_DO_SUSPEND:
        on_suspend(w, job, job_of(w, action->for_job));
        break;
    case ULL_DO_RESUME:
        on_resume(w, job);
        break;
    case ULL_DO_GRANT:
        if (job->state == WANTING) {
            job->turn_ns = job->spills ? job->turn_ns : w->now_ns; /* a spill takes from nobody */
            enter_phase(w, job);
        }
        break;
    case ULL_DO_DENY:
        deny(w, job);
        break;
    }
}

static void tell_one(struct world *w, const struct ull__arbiter_event *event)
{
    const struct ull__arbiter_action *actions;
    struct ull_error err = {""};
    size_t count;
    if (getenv("ULLAGE_TRACE") && event->kind != ULL_ARB_TICK)
        print_message("%9.3f event %d job %llu: %llu %llu\n", (double)w->now_ns / 1e9,
                      (int)event->kind, (unsigned long long)event->job,
                      (unsigned long long)event->bytes[0], (unsigned long long)event->bytes[1]);
    ull_status status = ull__arbiter_step(w->arbiter, event, w->now_ns, &actions, &count, &err);
    if (status != ULL_OK)
        snprintf(w->why, sizeof w->why, "event %d of job %llu refused: %.150s", (int)event->kind,
                 (unsigned long long)event->job, err.message);
    /* Budgets are in shared memory: they hold at once. */
    for (size_t i = 0; i < count; i++)
        if (actions[i].kind == ULL_DO_BUDGET)
            obey(w, &actions[i]);
    for (size_t i = 0; i < count && !w->why[0]; i++)
        if (actions[i].kind != ULL_DO_BUDGET)
            obey(w, &actions[i]);
}

static void tell(struct world *w, const struct ull__arbiter_event *event)
{
    struct sim_job *job = job_of(w, event->job);
    for (int i = 0; i < w->job_count && !w->why[0]; i++) {
        struct sim_job *other = &w->jobs[i];
        if (!other->changed || !is_on_card(other))
            continue;
        struct ull__arbiter_event use = use_of(w, other);
        other->changed = false;
        memcpy(other->told_idle, other->idle, sizeof other->told_idle);
        tell_one(w, &use);
    }
    if (event->kind <= ULL_ARB_JOIN || (job && !job->refused))
        tell_one(w, event);
}

/* Events that follow from actions are told after it, in order. */
static void step(struct world *w, struct ull__arbiter_event event)
{
    if (w->queued == QUEUE) {
        broken(w, "too many events at once", NULL);
        return;
    }
    w->queue[(w->queue_head + w->queued++) % QUEUE] = event;
    if (w->stepping)
        return;
    w->stepping = true;
    for (int told = 0; w->queued > 0 && !w->why[0]; told++) {
        if (told == 10000)
            broken(w, "one thing follows the other without end", NULL);
        struct ull__arbiter_event first = w->queue[w->queue_head];
        w->queue_head = (w->queue_head + 1) % QUEUE;
        w->queued--;
        tell(w, &first);
    }
    w->stepping = false;
}

/* --- a history ------------------------------------------------------------------------------------------ */

static void make_job(struct world *w, struct sim_job *job, uint64_t id, uint64_t requests_left[2])
{
    memset(job, 0, sizeof *job);
    job->id = id;
    job->arrives_ns = between(w, 0, 120) * SECOND;
    job->spec.priority = (int)between(w, 0, 2);
    job->spec.suspendable = w->all_movable || next(w) % 3 != 0;
    job->spec.may_queue = next(w) % 2;
    job->spec.started = !job->spec.may_queue;
    if (next(w) % 4 == 0)
        job->may_spill = job->spec.spill_bytes = between(w, 0, w->capacity[0]);
    for (int d = 0; d < w->devices; d++) {
        job->stays[d] = job->spec.stays[d] = next(w) % 2 ? w->capacity[d] / 64 : 0;
        job->spec.budget[d] = between(w, w->capacity[d] / 8, w->capacity[d] * 13 / 16);
        if (next(w) % 3 == 0) {
            uint64_t most =
                job->spec.budget[d] < requests_left[d] ? job->spec.budget[d] : requests_left[d];
            job->spec.request[d] = between(w, most / 2, most);
            requests_left[d] -= job->spec.request[d];
        }
        job->spec.room[d] = job->spec.may_queue ? job->spec.request[d] : 0;
        job->budget[d] = job->spec.budget[d];
    }
    job->phase_count = (int)between(w, 1, PHASES);
    for (int p = 0; p < job->phase_count; p++) {
        for (int d = 0; d < w->devices; d++) {
            uint64_t top = next(w) % 2 && job->spec.request[d] > job->stays[d] ? job->spec.request[d]
                                                                               : job->spec.budget[d];
            job->phases[p].level[d] =
                between(w, job->stays[d], top > job->stays[d] ? top : job->stays[d]);
        }
        job->phases[p].work_ns = between(w, 1, 200) * SECOND / 2;
    }
}

/* Two ranks of one training: they start together, and half as large so that both can be there at once. */
static void make_group(struct sim_job *a, struct sim_job *b)
{
    struct sim_job *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        both[i]->spec.group = a->id;
        both[i]->spec.priority = a->spec.priority;
        both[i]->spec.started = true;
        both[i]->spec.may_queue = false;
        both[i]->arrives_ns = a->arrives_ns;
        for (int d = 0; d < 2; d++) {
            both[i]->spec.request[d] = both[i]->spec.room[d] = 0;
            both[i]->spec.budget[d] = both[i]->budget[d] /= 2;
            for (int p = 0; p < both[i]->phase_count; p++)
                if (both[i]->phases[p].level[d] > both[i]->budget[d])
                    both[i]->phases[p].level[d] = both[i]->budget[d];
        }
    }
}

/* Between events all ranks that are there are in, or all are out or on their way. */
static void check_groups(struct world *w)
{
    for (int i = 1; i < w->job_count && w->groups && !w->faults; i += 2) {
        const struct sim_job *a = &w->jobs[i - 1], *b = &w->jobs[i];
        if (a->state != GONE && b->state != GONE && a->state != ABSENT && b->state != ABSENT &&
            a->state != MOVING_IN && b->state != MOVING_IN && is_out(a) != is_out(b))
            broken(w, "half of a group is out", a);
    }
}

static void check_host(struct world *w)
{
    uint64_t out = 0;
    for (int i = 0; i < w->job_count; i++)
        for (int d = 0; d < w->devices; d++)
            out += w->jobs[i].evicted[d];
    if (out > w->host_bytes)
        broken(w, "more was moved out than the host has room for", NULL);
}

/* What is promised, and what nobody can be made to give back, is there for all of them at once. */
static void check_promises(struct world *w)
{
    for (int d = 0; d < w->devices; d++) {
        uint64_t firm = 0;
        for (int i = 0; i < w->job_count; i++) {
            const struct sim_job *job = &w->jobs[i];
            uint64_t request = job->spec.request[d];
            uint64_t kept = job->spec.suspendable ? job->stays[d] : job->held[d];
            if (job->state != ABSENT && job->state != QUEUED && job->state != GONE)
                firm += request > kept ? request : kept;
        }
        if (firm > w->capacity[d])
            broken(w, "more is promised than there is", NULL);
    }
}

static void check_spills(struct world *w)
{
    for (int i = 0; i < w->job_count; i++)
        if (w->jobs[i].spilled > w->jobs[i].may_spill)
            broken(w, "spilled more than it may", &w->jobs[i]);
}

/*
 * A job is moved out by equals once a slice at most; by higher ones as often as those come, but each time
 * that is soon again it stays out longer. There and back is two moves.
 */
static void check_moves(struct world *w, const struct sim_job *job)
{
    uint64_t life = w->now_ns - job->arrives_ns;
    if (job->swaps > 2 * (4 + life / (20 * SECOND)))
        broken(w, "moved too often", job);
}

static void make_world(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->seed = seed * 0x9e3779b97f4a7c15ull + 1;
    w->devices = (int)between(w, 1, 2);
    w->all_movable = next(w) % 2;
    w->plenty_of_host = next(w) % 4 != 0;
    w->faults = next(w) % 4 == 0;
    w->job_count = (int)between(w, 1, JOBS);
    uint64_t requests_left[2];
    for (int d = 0; d < w->devices; d++) {
        w->capacity[d] = between(w, 1000, 100000) * 64;
        /* Room for what stays of everybody, so that every request can be given. */
        requests_left[d] = w->capacity[d] - w->capacity[d] / 64 * JOBS;
    }
    struct ull__arbiter_options options = {.device_count = w->devices};
    w->host_bytes = w->plenty_of_host ? UINT64_MAX / 2 : w->capacity[0] / 2;
    options.host_bytes = w->host_bytes;
    assert_int_equal(ull__arbiter_create(&options, &w->arbiter, NULL), ULL_OK);
    w->groups = w->all_movable && next(w) % 3 == 0;
    for (int i = 0; i < w->job_count; i++)
        make_job(w, &w->jobs[i], (uint64_t)i + 1, requests_left);
    for (int i = 1; i < w->job_count && w->groups; i += 2)
        make_group(&w->jobs[i - 1], &w->jobs[i]);
    struct ull__arbiter_event device = {.kind = ULL_ARB_DEVICE};
    memcpy(device.bytes, w->capacity, sizeof w->capacity);
    step(w, device);
}

static void arrive(struct world *w, struct sim_job *job)
{
    job->state = QUEUED;
    bool starts = job->spec.started;
    step(w, (struct ull__arbiter_event){.kind = ULL_ARB_JOIN, .job = job->id, .spec = &job->spec});
    if (starts && job->state == QUEUED) {
        job->state = WORKING;
        job->turn_ns = w->now_ns;
        enter_phase(w, job);
    }
}

static uint64_t state_due(const struct sim_job *job)
{
    switch (job->state) {
    case ABSENT:
        return job->arrives_ns;
    case WORKING:
        return job->began_ns + job->work_left_ns;
    case MOVING_OUT:
    case MOVING_IN:
        return job->moved_ns;
    default:
        return UINT64_MAX;
    }
}

static uint64_t due(const struct sim_job *job)
{
    uint64_t when = state_due(job);
    for (int d = 0; d < 2; d++)
        if (job->trim_ns[d] && job->trim_ns[d] < when)
            when = job->trim_ns[d];
    return when;
}

static void trim(struct world *w, struct sim_job *job, int d)
{
    uint64_t bytes = job->trim[d] < job->idle[d] ? job->trim[d] : job->idle[d];
    struct ull__arbiter_event event = {.kind = ULL_ARB_TRIMMED, .job = job->id};
    if (w->faults && next(w) % 4 == 0)
        bytes /= 4;
    w->empty_trims += bytes == 0;
    if (bytes < job->trim[d] / 2)
        job->poor_ns[d] = w->now_ns;
    job->trim_ns[d] = 0;
    job->idle[d] -= bytes;
    job->held[d] -= bytes;
    job->changed = true;
    event.amount = (uint64_t)d;
    step(w, event);
    changed(w, job);
}

static void go_on(struct world *w, struct sim_job *job)
{
    for (int d = 0; d < 2; d++) {
        if (job->trim_ns[d] && job->trim_ns[d] <= w->now_ns && is_on_card(job)) {
            trim(w, job, d);
            return;
        }
        if (job->trim_ns[d] && job->trim_ns[d] <= w->now_ns) { /* it is being moved, or was */
            job->trim_ns[d] = 0;
            return;
        }
    }
    if (job->state == ABSENT) {
        arrive(w, job);
    } else if (job->state == WORKING) {
        job->spilled = 0; /* freed with what else the phase had */
        job->changed = true;
        if (++job->phase == job->phase_count)
            end_job(w, job);
        else
            enter_phase(w, job);
    } else {
        moved(w, job);
    }
}

static bool all_gone(const struct world *w)
{
    for (int i = 0; i < w->job_count; i++)
        if (w->jobs[i].state != GONE)
            return false;
    return true;
}

static void play(struct world *w)
{
    for (int events = 0; !all_gone(w) && !w->why[0]; events++) {
        uint64_t when = ull__arbiter_deadline(w->arbiter);
        struct sim_job *first = NULL;
        for (int i = 0; i < w->job_count; i++) {
            if (due(&w->jobs[i]) <= when) {
                first = &w->jobs[i];
                when = due(first);
            }
        }
        if (when == UINT64_MAX || when > 100 * HOUR || events > EVENTS) {
            for (int i = 0; i < w->job_count; i++)
                if (w->jobs[i].state != GONE)
                    broken(w,
                           when == UINT64_MAX ? "nothing will ever happen again"
                                              : "it does not come to an end",
                           &w->jobs[i]);
            return;
        }
        w->now_ns = when > w->now_ns ? when : w->now_ns;
        if (first)
            go_on(w, first);
        else
            step(w, (struct ull__arbiter_event){.kind = ULL_ARB_TICK});
        for (int d = 0; d < w->devices; d++)
            if (card_holds(w, d) > w->capacity[d])
                broken(w, "the card holds more than it has", NULL);
        check_groups(w);
        check_host(w);
        check_promises(w);
        check_spills(w);
    }
}

static void describe(const struct world *w)
{
    for (int i = 0; i < w->job_count; i++) {
        const struct sim_job *job = &w->jobs[i];
        struct ull__arbiter_view view = {0};
        ull__arbiter_job(w->arbiter, job->id, &view);
        print_message(
            "  job %llu: state %d, priority %d (%d), suspendable %d, queues %d, request %llu "
            "%llu, budget %llu %llu, in force %llu %llu, held %llu %llu, idle %llu %llu, out %llu "
            "%llu\n",
            (unsigned long long)job->id, (int)job->state, job->spec.priority, view.effective,
            job->spec.suspendable, job->spec.may_queue, (unsigned long long)job->spec.request[0],
            (unsigned long long)job->spec.request[1], (unsigned long long)job->spec.budget[0],
            (unsigned long long)job->spec.budget[1], (unsigned long long)view.soft[0],
            (unsigned long long)view.soft[1], (unsigned long long)job->held[0],
            (unsigned long long)job->held[1], (unsigned long long)job->told_idle[0],
            (unsigned long long)job->told_idle[1], (unsigned long long)job->evicted[0],
            (unsigned long long)job->evicted[1]);
    }
}

static void histories(void **state)
{
    (void)state;
    const char *text = getenv("ULLAGE_HISTORIES"), *from = getenv("ULLAGE_SEED");
    uint64_t count = text ? strtoull(text, NULL, 10) : 100000;
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
    uint64_t denied = 0, swaps = 0, refused = 0, failures = 0, trims = 0, empty = 0, spills = 0;
    for (uint64_t i = 0; i < count; i++) {
        static struct world w;
        make_world(&w, seed + i);
        play(&w);
        if (w.why[0])
            describe(&w);
        ull__arbiter_destroy(w.arbiter);
        denied += w.denied;
        trims += w.trims;
        empty += w.empty_trims;
        spills += w.spills;
        failures += w.resume_failures;
        for (int j = 0; j < w.job_count; j++) {
            swaps += w.jobs[j].swaps;
            refused += w.jobs[j].refused;
        }
        if (w.why[0])
            fail_msg("history %llu: %s; devices %d, jobs %d, all movable %d, host %d, faults %d",
                     (unsigned long long)(seed + i), w.why, w.devices, w.job_count, w.all_movable,
                     w.plenty_of_host, w.faults);
    }
    print_message(
        "%llu histories from %llu: %llu moves, %llu allocations failed, %llu jobs refused, "
        "%llu came back without room, %llu trims, %llu of them for nothing, %llu spills\n",
        (unsigned long long)count, (unsigned long long)seed, (unsigned long long)swaps,
        (unsigned long long)denied, (unsigned long long)refused, (unsigned long long)failures,
        (unsigned long long)trims, (unsigned long long)empty, (unsigned long long)spills);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(histories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
