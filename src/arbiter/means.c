/*
 * means.c: how room is made for a unit that waits: trimming, spilling, moving others out, stepping aside. Each
 * counts what it asked for into r->soon, so that the next one asks only for what is still missing.
 */
#include <stdlib.h>
#include <string.h>

#include "arbiter_private.h"

static void ask(struct ull__arbiter *a, struct job *job, int d, uint64_t bytes, uint64_t for_job)
{
    if (job->trim_asked[d] == 0)
        job->trim_held[d] = job->held[d];
    job->trim_asked[d] += bytes;
    job->trim_until_ns = a->now_ns + TRIM_NS;
    ull__wake_at(a, job->trim_until_ns);
    ull__do(a, ULL_DO_TRIM, job, d, job->trim_asked[d], for_job);
}

/* Somebody waits for it: the watermark was too high. */
static void ask_for(struct round *r, struct job *job, int d, uint64_t bytes, uint64_t for_job)
{
    ask(r->a, job, d, bytes, for_job);
    r->soon[d] += (int64_t)bytes;
    if (!r->waited[d])
        ull__move_watermark(r->a, d, -MARK_STEP);
    r->waited[d] = true;
}

void ull__trim_for(struct round *r, const struct unit *unit)
{
    struct ull__arbiter *a = r->a;
    for (size_t u = r->count; u-- > 0;) { /* by rank, the lowest first */
        for (struct job *job = NULL; (job = ull__member(a, &r->units[u], job));) {
            for (int d = 0; d < DEVICES; d++) {
                int64_t missing = (int64_t)unit->bytes[d] - r->soon[d];
                uint64_t idle = ull__job_idle(a, job, d);
                if (unit->bytes[d] > 0 && missing > 0 && idle > 0)
                    ask_for(r, job, d, ull__least(idle, (uint64_t)missing), unit->first->id);
            }
        }
    }
}

/* Of one job, as far as it is firm. Returns what is still missing. */
static uint64_t trim_firm(struct round *r, const struct unit *unit, struct job *job, int d,
                          uint64_t missing)
{
    uint64_t beyond = ull__minus(ull__minus(job->held[d], job->trim_asked[d]),
                                 ull__most(job->request[d], job->floor[d]));
    uint64_t bytes = ull__least(ull__least(ull__job_idle(r->a, job, d), beyond), missing);
    if (job->suspendable || bytes == 0)
        return missing;
    ask_for(r, job, d, bytes, unit->first->id);
    return missing - bytes;
}

bool ull__trim_promise(struct round *r, const struct unit *unit, const uint64_t over[DEVICES])
{
    uint64_t coming[DEVICES], further;
    for (int d = 0; d < DEVICES; d++) {
        ull__firm_idle(r->a, d, NULL, &coming[d], &further);
        if (over[d] > coming[d] + further)
            return false;
    }
    for (int d = 0; d < DEVICES; d++) {
        uint64_t missing = ull__minus(over[d], coming[d]);
        for (size_t u = r->count; u-- > 0 && missing > 0;)
            for (struct job *job = NULL; (job = ull__member(r->a, &r->units[u], job));)
                missing = trim_firm(r, unit, job, d, missing);
    }
    return true;
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
    uint64_t host = r->host_left;
    if (unit->need != NEED_WANT || unit->promised)
        return false;
    for (struct job *job = NULL; (job = ull__member(r->a, unit, job));) {
        uint64_t wanted = 0;
        if (ull__need_of(job) != NEED_WANT)
            continue;
        for (int d = 0; d < DEVICES; d++)
            wanted += job->want[d];
        if (job->cannot_spill || wanted > ull__minus(job->spill_bytes, job->spilled) || wanted > host)
            return false;
        host -= wanted;
    }
    r->host_left = host;
    for (struct job *job = NULL; (job = ull__member(r->a, unit, job));) {
        if (ull__need_of(job) != NEED_WANT)
            continue;
        if (!job->spilling)
            ull__do(r->a, ULL_DO_SPILL, job, 0, 1, 0);
        job->spilling = job->granted = job->to_spill = true;
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

/* Whose caches go first: of the lowest priority, the largest; none that are hardly worth it. */
static struct job *idle_one(struct ull__arbiter *a, int d)
{
    struct job *best = NULL;
    for (size_t i = 0; i < a->job_count; i++) {
        struct job *job = &a->jobs[i];
        uint64_t idle = job->trim_asked[d] ? 0 : ull__job_idle(a, job, d);
        if (idle == 0 || idle < a->capacity[d] / 100)
            continue;
        if (job->ahead_ns && job->ahead_ns + AHEAD_NS > a->now_ns) {
            ull__wake_at(a, job->ahead_ns + AHEAD_NS);
            continue;
        }
        if (!best || job->priority < best->priority ||
            (job->priority == best->priority && idle > ull__job_idle(a, best, d)))
            best = job;
    }
    return best;
}

/* Above the watermark idle caches are given back before somebody has to wait for it. */
void ull__trim_ahead(struct ull__arbiter *a, int d)
{
    int64_t above =
        (int64_t)ull__arbiter_occupied(a, d) - (int64_t)(a->watermark[d] * (double)a->capacity[d]);
    struct job *job;
    while (above > 0 && (job = idle_one(a, d))) {
        uint64_t bytes = ull__least(ull__job_idle(a, job, d), (uint64_t)above);
        job->ahead_ns = a->now_ns;
        job->ahead_held[d] = job->held[d];
        above -= (int64_t)bytes;
        ask(a, job, d, bytes, 0);
    }
}
