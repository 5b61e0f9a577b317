/*
 * means.c: how room is made for a unit that waits: trimming, spilling, moving others out, stepping aside. Each
 * counts what it asked for into r->soon, so that the next one asks only for what is still missing.
 */
#include <stdlib.h>
#include <string.h>

#include "arbiter_private.h"

void ull__trim_for(struct round *r, const struct unit *unit)
{
    struct ull__arbiter *a = r->a;
    for (size_t u = r->count; u-- > 0;) { /* by rank, the lowest first */
        for (struct job *job = NULL; (job = ull__member(a, &r->units[u], job));) {
            for (int d = 0; d < DEVICES && job->state == ULL_JOB_RUNNING; d++) {
                int64_t missing = (int64_t)unit->bytes[d] - r->soon[d];
                uint64_t idle = ull__minus(job->trimmable[d], job->trim_asked[d]);
                idle = ull__least(idle, ull__minus(job->held[d], job->floor[d]));
                if (unit->bytes[d] == 0 || missing <= 0 || idle == 0)
                    continue;
                uint64_t bytes = ull__least(idle, (uint64_t)missing);
                job->trim_asked[d] += bytes;
                job->trim_until_ns = a->now_ns + TRIM_NS;
                r->soon[d] += (int64_t)bytes;
                a->watermark[d] = a->watermark[d] - 0.02 < 0.60 ? 0.60 : a->watermark[d] - 0.02;
                ull__do(a, ULL_DO_TRIM, job, d, bytes, unit->first->id);
            }
        }
    }
}

static bool stuck(struct ull__arbiter *a, const struct unit *unit)
{
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        if (job->state != ULL_JOB_RUNNING || !job->wants || job->granted)
            continue;
        if (a->now_ns >= job->wait_ns + STUCK_NS)
            return true;
        ull__wake_at(a, job->wait_ns + STUCK_NS);
    }
    return false;
}

/* Can all jobs of the unit be moved out now? */
static bool movable(struct ull__arbiter *a, const struct unit *unit)
{
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        if (job->state != ULL_JOB_RUNNING || !job->suspendable)
            return false;
        if (job->retry_ns > a->now_ns) {
            ull__wake_at(a, job->retry_ns);
            return false;
        }
    }
    return true;
}

/* Does any of it hold more than it was promised? */
static bool beyond_promise(const struct ull__arbiter *a, const struct unit *unit)
{
    for (struct job *job = NULL; (job = ull__member(a, unit, job));)
        if (!ull__job_within_request(job))
            return true;
    return false;
}

static uint64_t slice_between(const struct ull__arbiter *a, const struct unit *one,
                              const struct unit *other)
{
    uint64_t swap = 0;
    for (struct job *job = NULL; (job = ull__member(a, one, job));)
        swap = ull__most(swap, job->swap_ns);
    for (struct job *job = NULL; (job = ull__member(a, other, job));)
        swap = ull__most(swap, job->swap_ns);
    return ull__most(a->options.slice_ns, swap * 20);
}

static bool may_take(struct round *r, const struct unit *taker, const struct unit *from)
{
    struct ull__arbiter *a = r->a;
    if (from == taker || from->served || from->moving || !beyond_promise(a, from) ||
        !movable(a, from))
        return false;
    if (taker->half || taker->promised || taker->effective > from->priority)
        return true;
    if (taker->effective < from->priority || taker->need == NEED_START)
        return false;
    uint64_t turn_ends = from->first->turn_ns + slice_between(a, taker, from);
    if (stuck(a, from) || turn_ends <= a->now_ns)
        return true;
    ull__wake_at(a, turn_ends);
    return false;
}

struct victim {
    struct unit *unit;
    bool stuck;
    uint64_t freed;
};

/* The order in which they are taken. */
static int by_cost(const void *left, const void *right)
{
    const struct victim *a = left, *b = right;
    if (a->unit->priority != b->unit->priority)
        return a->unit->priority < b->unit->priority ? -1 : 1;
    if (a->stuck != b->stuck)
        return a->stuck ? -1 : 1;
    if (a->freed != b->freed)
        return a->freed > b->freed ? -1 : 1;
    uint64_t x = a->unit->first->turn_ns, y = b->unit->first->turn_ns;
    if (x != y)
        return x < y ? -1 : 1;
    return a->unit->first < b->unit->first ? -1 : 1;
}

static uint64_t frees(const struct ull__arbiter *a, const struct unit *unit, int d)
{
    uint64_t sum = 0;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));)
        sum += ull__minus(ull__minus(ull__job_occupies(job, d), job->stays[d]), job->trim_asked[d]);
    return sum;
}

static uint64_t moves(const struct ull__arbiter *a, const struct unit *unit)
{
    uint64_t sum = 0;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));)
        for (int d = 0; d < DEVICES; d++)
            sum += ull__job_movable(job, d);
    return sum;
}

static size_t find_victims(struct round *r, const struct unit *taker, struct victim *victims)
{
    size_t count = 0;
    for (size_t u = 0; u < r->count; u++) {
        struct unit *unit = &r->units[u];
        if (!may_take(r, taker, unit))
            continue;
        struct victim victim = {.unit = unit, .stuck = stuck(r->a, unit)};
        for (int d = 0; d < DEVICES; d++)
            if ((int64_t)taker->bytes[d] > r->soon[d])
                victim.freed += frees(r->a, unit, d);
        if (victim.freed > 0)
            victims[count++] = victim;
    }
    qsort(victims, count, sizeof *victims, by_cost);
    return count;
}

static void move_out(struct round *r, struct unit *unit, uint64_t for_job)
{
    for (int d = 0; d < DEVICES; d++)
        r->soon[d] += (int64_t)frees(r->a, unit, d);
    r->host_left -= ull__least(r->host_left, moves(r->a, unit));
    for (struct job *job = NULL; (job = ull__member(r->a, unit, job));) {
        ull__job_state(r->a, job, ULL_JOB_SUSPENDING);
        ull__do(r->a, ULL_DO_SUSPEND, job, 0, 0, for_job);
    }
    unit->moving = true;
}

/* Enough of them so that it fits, none in vain; false and nothing done if all of them are too few. */
bool ull__suspend_others(struct round *r, const struct unit *taker)
{
    struct ull__arbiter *a = r->a;
    struct victim *victims = calloc(r->count + 1, sizeof *victims);
    size_t count = victims ? find_victims(r, taker, victims) : 0;
    int64_t soon[DEVICES];
    uint64_t host = r->host_left;
    memcpy(soon, r->soon, sizeof soon);
    for (size_t v = 0; v < count; v++) {
        if (ull__fits(soon, taker->bytes) || moves(a, victims[v].unit) > host) {
            victims[v].unit = NULL; /* not needed, or the host has no place for it */
            continue;
        }
        host -= moves(a, victims[v].unit);
        for (int d = 0; d < DEVICES; d++)
            soon[d] += (int64_t)frees(a, victims[v].unit, d);
    }
    bool enough = ull__fits(soon, taker->bytes);
    for (size_t v = 0; v < count && enough; v++) { /* does it fit without this one too? */
        int64_t without[DEVICES];
        if (!victims[v].unit)
            continue;
        for (int d = 0; d < DEVICES; d++)
            without[d] = soon[d] - (int64_t)frees(a, victims[v].unit, d);
        if (ull__fits(without, taker->bytes)) {
            memcpy(soon, without, sizeof soon);
            victims[v].unit = NULL;
        }
    }
    for (size_t v = 0; v < count && enough; v++)
        if (victims[v].unit)
            move_out(r, victims[v].unit, taker->first->id);
    free(victims);
    return enough;
}

/* Serves the wants of a unit from the host, if it may be so and they were not promised. */
bool ull__spill(struct round *r, struct unit *unit)
{
    if (unit->need != NEED_WANT || unit->promised)
        return false;
    for (struct job *job = NULL; (job = ull__member(r->a, unit, job));)
        if (ull__need_of(job) == NEED_WANT && !job->spills)
            return false;
    for (struct job *job = NULL; (job = ull__member(r->a, unit, job));) {
        if (ull__need_of(job) != NEED_WANT)
            continue;
        if (!job->spilling)
            ull__do(r->a, ULL_DO_SPILL, job, 0, 1, 0);
        job->spilling = job->granted = true;
        job->floor_until_ns = r->a->now_ns + GRANT_NS;
        ull__do(r->a, ULL_DO_GRANT, job, 0, 0, 0);
    }
    unit->served = true;
    return true;
}

/*
 * A job that is stuck with nobody to take from moves out itself before its allocation fails, if there could
 * ever be room for what it wants.
 */
void ull__step_aside(struct round *r, struct unit *unit)
{
    struct ull__arbiter *a = r->a;
    bool late = false;
    if (unit->need != NEED_WANT || unit->promised || !movable(a, unit) ||
        moves(a, unit) > r->host_left)
        return;
    for (struct job *job = NULL; (job = ull__member(a, unit, job));) {
        for (int d = 0; d < DEVICES; d++)
            if (job->held[d] + job->want[d] > a->capacity[d])
                return;
        if (!job->wants)
            continue;
        late |= job->want_left_ns <= a->options.want_ns / 2;
        ull__wake_at(a, a->now_ns + ull__minus(job->want_left_ns, a->options.want_ns / 2));
    }
    if (late)
        move_out(r, unit, 0);
}

/* Above the watermark idle caches are given back before somebody has to wait for it. */
void ull__trim_ahead(struct ull__arbiter *a, int d)
{
    int64_t above =
        (int64_t)ull__arbiter_occupied(a, d) - (int64_t)(a->watermark[d] * (double)a->capacity[d]);
    for (size_t i = 0; i < a->job_count && above > 0; i++) {
        struct job *job = &a->jobs[i];
        if (job->state != ULL_JOB_RUNNING || job->trim_asked[d] ||
            job->trimmable[d] < a->capacity[d] / 100 || job->trimmable[d] == 0)
            continue;
        if (job->ahead_ns && job->ahead_ns + AHEAD_NS > a->now_ns) {
            ull__wake_at(a, job->ahead_ns + AHEAD_NS);
            continue;
        }
        uint64_t bytes = ull__least(job->trimmable[d], (uint64_t)above);
        job->ahead_ns = a->now_ns;
        job->ahead_held[d] = job->held[d];
        job->trim_asked[d] = bytes;
        job->trim_until_ns = a->now_ns + TRIM_NS;
        ull__wake_at(a, job->trim_until_ns);
        above -= (int64_t)bytes;
        ull__do(a, ULL_DO_TRIM, job, d, bytes, 0);
    }
}
