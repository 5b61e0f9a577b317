/* room.c: how much of a card and of the host is taken, promised and on its way back. */
#include "arbiter_private.h"

uint64_t ull__job_occupies(const struct job *job, int device)
{
    switch (job->state) {
    case ULL_JOB_WAITING:
        return 0;
    case ULL_JOB_SUSPENDED:
        return job->stays[device];
    case ULL_JOB_RESUMING:
        return ull__most(ull__most(job->held[device], job->floor[device]),
                         job->stays[device] + job->evicted[device]);
    case ULL_JOB_RUNNING:
    case ULL_JOB_SUSPENDING:
        break;
    }
    return ull__most(job->held[device], job->floor[device]);
}

uint64_t ull__job_movable(const struct job *job, int device)
{
    return ull__minus(job->held[device], job->stays[device]);
}

bool ull__job_within_request(const struct job *job)
{
    for (int d = 0; d < DEVICES; d++)
        if (ull__minus(job->held[d], job->trim_asked[d]) > job->request[d])
            return false;
    return true;
}

uint64_t ull__job_firm(const struct job *job, int device)
{
    if (job->state == ULL_JOB_WAITING)
        return 0;
    if (job->suspendable)
        return ull__most(job->request[device], ull__most(job->stays[device], job->will_stay[device]));
    return ull__most(ull__most(job->request[device], job->held[device]), job->floor[device]);
}

uint64_t ull__job_idle(const struct ull__arbiter *a, const struct job *job, int d)
{
    if (job->state != ULL_JOB_RUNNING || job->trim_retry_ns[d] > a->now_ns)
        return 0;
    return ull__least(ull__minus(job->trimmable[d], job->trim_asked[d]),
                      ull__minus(ull__minus(job->held[d], job->trim_asked[d]), job->floor[d]));
}

void ull__firm_idle(const struct ull__arbiter *a, int d, const struct job *but, uint64_t *coming,
                    uint64_t *further)
{
    *coming = *further = 0;
    for (size_t i = 0; i < a->job_count; i++) {
        const struct job *job = &a->jobs[i];
        if (job == but || job->suspendable || job->state != ULL_JOB_RUNNING)
            continue;
        /* Beyond what it was promised, or has set aside: that is firm in any case. */
        uint64_t beyond = ull__minus(job->held[d], ull__most(job->request[d], job->floor[d]));
        uint64_t asked = ull__least(job->trim_asked[d], beyond);
        *coming += asked;
        *further += ull__least(ull__job_idle(a, job, d), beyond - asked);
    }
}

uint64_t ull__firm_sum(const struct ull__arbiter *a, int device, const struct job *but)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < a->job_count; i++)
        if (&a->jobs[i] != but)
            sum += ull__job_firm(&a->jobs[i], device);
    return sum;
}

int64_t ull__room(const struct ull__arbiter *a, int device)
{
    int64_t room = (int64_t)a->capacity[device] - (int64_t)a->missing[device];
    for (size_t i = 0; i < a->job_count; i++)
        room -= (int64_t)ull__job_occupies(&a->jobs[i], device);
    return room;
}

int64_t ull__room_soon(const struct ull__arbiter *a, int device)
{
    int64_t room = ull__room(a, device);
    for (size_t i = 0; i < a->job_count; i++) {
        const struct job *job = &a->jobs[i];
        if (job->state == ULL_JOB_SUSPENDING)
            room += (int64_t)ull__minus(ull__job_occupies(job, device), job->stays[device]);
        else if (job->state == ULL_JOB_RUNNING)
            room += (int64_t)ull__least(job->trim_asked[device],
                                        ull__minus(job->held[device], job->floor[device]));
    }
    return room;
}

uint64_t ull__host_left(const struct ull__arbiter *a)
{
    uint64_t used = 0;
    for (size_t i = 0; i < a->job_count; i++) {
        const struct job *job = &a->jobs[i];
        for (int d = 0; d < DEVICES; d++)
            used += job->state == ULL_JOB_SUSPENDING ? ull__job_movable(job, d) : job->evicted[d];
        used += job->spilled;
    }
    return ull__minus(a->host_bytes, used);
}
