/*
 * units.c: who waits for what, and in which order: half moved groups, what was promised, then by priority, and
 * among equals by how long they wait.
 */
#include <stdlib.h>

#include "arbiter_private.h"

static bool same_unit(const struct job *a, const struct job *b)
{
    return a == b || (a->group != 0 && a->group == b->group);
}

struct job *ull__member(const struct ull__arbiter *a, const struct unit *unit, struct job *after)
{
    for (struct job *job = after ? after + 1 : unit->first; job < a->jobs + a->job_count; job++)
        if (same_unit(job, unit->first))
            return job;
    return NULL;
}

static int effective(struct ull__arbiter *a, const struct job *job)
{
    uint64_t waited = job->wait_ns && a->now_ns > job->wait_ns ? a->now_ns - job->wait_ns : 0;
    uint64_t more = waited / a->options.patience_ns;
    if (job->wait_ns)
        ull__wake_at(a, job->wait_ns + (more + 1) * a->options.patience_ns);
    return job->priority + (int)ull__least(more, 1000000);
}

enum need ull__need_of(const struct job *job)
{
    if (job->by_user)
        return NEED_NONE;
    switch (job->state) {
    case ULL_JOB_WAITING:
        return NEED_START;
    case ULL_JOB_SUSPENDED:
        return NEED_RESUME;
    case ULL_JOB_RUNNING:
        return job->wants && !job->granted ? NEED_WANT : NEED_NONE;
    case ULL_JOB_SUSPENDING:
    case ULL_JOB_RESUMING:
        break;
    }
    return NEED_NONE;
}

/* What a job needs beyond what it occupies, if it needs that kind of thing. */
static uint64_t needs(const struct job *job, enum need need, int d)
{
    if (ull__need_of(job) != need)
        return 0;
    if (need == NEED_START)
        return job->room[d];
    if (need == NEED_RESUME)
        return job->evicted[d] + (job->wants ? job->want[d] : 0);
    return ull__minus(job->held[d] + job->want[d], ull__job_occupies(job, d));
}

static bool need_is_promised(const struct job *job, enum need need)
{
    if (ull__need_of(job) != need || need == NEED_START)
        return ull__need_of(job) != need;
    for (int d = 0; d < DEVICES; d++)
        if (job->held[d] + job->evicted[d] + job->want[d] > job->request[d])
            return false;
    return true;
}

static void fill_unit(struct ull__arbiter *a, struct unit *unit, struct job *first)
{
    bool out = false, in = false;
    *unit = (struct unit){.first = first, .priority = first->priority, .effective = INT32_MIN};
    unit->wait_ns = UINT64_MAX;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        unit->moving |= job->state == ULL_JOB_SUSPENDING || job->state == ULL_JOB_RESUMING;
        out |= job->state == ULL_JOB_SUSPENDED;
        in |= job->state == ULL_JOB_RUNNING;
        if (ull__need_of(job) > unit->need)
            unit->need = ull__need_of(job);
        if (job->priority > unit->priority)
            unit->priority = job->priority;
    }
    unit->half = out && in;
    unit->promised = unit->need != NEED_NONE;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        if (ull__need_of(job) != unit->need || unit->need == NEED_NONE)
            continue;
        unit->promised &= need_is_promised(job, unit->need);
        unit->wait_ns = ull__least(unit->wait_ns, job->wait_ns);
        int rank = effective(a, job);
        unit->effective = rank > unit->effective ? rank : unit->effective;
        for (int d = 0; d < DEVICES; d++)
            unit->bytes[d] += needs(job, unit->need, d);
    }
    if (unit->moving || unit->effective < unit->priority)
        unit->effective = unit->priority;
    if (unit->moving)
        unit->need = NEED_NONE;
    if (unit->need == NEED_START)
        unit->promised = false;
}

/* Those that wait first; half moved, then promised, then by priority, then by how long. */
static int by_rank(const void *left, const void *right)
{
    const struct unit *a = left, *b = right;
    if ((a->need != NEED_NONE) != (b->need != NEED_NONE))
        return a->need != NEED_NONE ? -1 : 1;
    if (a->half != b->half)
        return a->half ? -1 : 1;
    if (a->promised != b->promised)
        return a->promised ? -1 : 1;
    if (a->effective != b->effective)
        return a->effective > b->effective ? -1 : 1;
    if (a->wait_ns != b->wait_ns)
        return a->wait_ns < b->wait_ns ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

bool ull__fill_round(struct round *r)
{
    struct ull__arbiter *a = r->a;
    r->units = calloc(a->job_count + 1, sizeof *r->units);
    if (!r->units)
        return false;
    for (size_t i = 0; i < a->job_count; i++) {
        bool first = true;
        for (size_t before = 0; before < i && first && a->jobs[i].group; before++)
            first = !same_unit(&a->jobs[before], &a->jobs[i]);
        if (first)
            fill_unit(a, &r->units[r->count++], &a->jobs[i]);
    }
    qsort(r->units, r->count, sizeof *r->units, by_rank);
    while (r->waiting < r->count && r->units[r->waiting].need != NEED_NONE)
        r->waiting++;
    for (int d = 0; d < DEVICES; d++) {
        r->room[d] = ull__room(a, d);
        r->soon[d] = ull__room_soon(a, d);
    }
    r->host_left = ull__host_left(a);
    return true;
}

bool ull__fits(const int64_t room[DEVICES], const uint64_t bytes[DEVICES])
{
    for (int d = 0; d < DEVICES; d++)
        if (bytes[d] > 0 && (int64_t)bytes[d] > room[d])
            return false;
    return true;
}
