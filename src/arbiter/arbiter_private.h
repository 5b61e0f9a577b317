/*
 * arbiter_private.h: an arbiter's state, and what its files call of each other.
 *
 *   arbiter.c   what events do to the state
 *   room.c      how much is taken, promised and coming
 *   units.c     who waits for what, and in which order
 *   means.c     how room is made
 *   budgets.c   what jobs may grow to
 *   decide.c    a round of deciding
 */
#ifndef ULLAGE_ARBITER_PRIVATE_H
#define ULLAGE_ARBITER_PRIVATE_H

#include "arbiter.h"

enum { DEVICES = ULL_ARBITER_DEVICES };

#define SECOND 1000000000ull
#define STUCK_NS (SECOND / 10)  /* a want unmet for so long: the job is not running */
#define TRIM_NS (2 * SECOND)    /* an answer to TRIM is waited for so long */
#define GRANT_NS (5 * SECOND)   /* what was granted is set aside for so long */
#define MISSING_NS (5 * SECOND) /* what a refusal showed to be missing is believed for so long */
#define AHEAD_NS (10 * SECOND)  /* between trims ahead of need of the same job */
#define LOWEST_MARK 0.60
#define HIGHEST_MARK 0.90
#define MARK_STEP 0.02
#define RETRY_NS SECOND          /* after a failure, at least */
#define REGROWN_NS (60 * SECOND) /* what grows back within this was trimmed for nothing */

struct job {
    uint64_t id, group;
    int priority;
    bool suspendable, automatic, may_queue, by_user;
    bool spilling;
    bool to_spill, cannot_spill; /* its want was granted in host memory; and was not met by that */
    uint64_t spill_bytes, spilled;
    enum ull__job_state state;
    uint64_t joined_ns, since_ns;
    uint64_t turn_ns; /* when it last came to run */
    uint64_t wait_ns; /* since when it waits: to start, to resume, for a want; 0: it does not */
    bool wants, granted;
    uint64_t want_left_ns,
        want_seen_ns;   /* of its patience with an allocation, counted while it runs */
    uint64_t retry_ns;  /* not to be moved before */
    uint64_t resume_ns; /* not to be brought back before */
    uint64_t swap_ns;   /* what moving it took, out or in, the slower */
    unsigned int backoff;
    uint64_t refuse_ns; /* waits for trims that its promise needs, and is refused then; 0: it does not */
    uint64_t floor_until_ns, trim_until_ns, ahead_ns;
    uint64_t budget[DEVICES], request[DEVICES], room[DEVICES];
    uint64_t soft[DEVICES], told[DEVICES]; /* in force; as last said */
    uint64_t held[DEVICES], trimmable[DEVICES], stays[DEVICES], evicted[DEVICES], want[DEVICES];
    uint64_t will_stay[DEVICES];                      /* once it has all its contexts: a guess */
    uint64_t floor[DEVICES];                          /* set aside for it, what it holds included */
    uint64_t trim_asked[DEVICES], trim_held[DEVICES]; /* trim_held: when it was asked */
    uint64_t trim_retry_ns[DEVICES]; /* gave less than it said: not to be asked before */
    uint64_t ahead_held[DEVICES];    /* before it was trimmed ahead of need */
};

struct ull__arbiter {
    struct ull__arbiter_options options;
    uint64_t now_ns;
    uint64_t capacity[DEVICES];
    uint64_t missing[DEVICES]; /* of it, as refusals of what was granted showed; until missing_until_ns */
    uint64_t missing_until_ns;
    double watermark[DEVICES];
    uint64_t host_bytes;
    struct job *jobs; /* by when they joined */
    size_t job_count, job_capacity;
    struct ull__arbiter_action *actions;
    size_t action_count, action_capacity;
    uint64_t deadline_ns;
    bool failed; /* no memory for an action: the step is told to have failed */
};

/* --- room.c ----------------------------------------------------------------------------------------- */

/* What a job takes on a device now, what is set aside for it included. */
uint64_t ull__job_occupies(const struct job *job, int device);
/* What it would give back by being moved out. */
uint64_t ull__job_movable(const struct job *job, int device);
/* Is all that it holds within what it was promised? */
bool ull__job_within_request(const struct job *job);
/* What of a card cannot be had back from a job: see arbiter.h, "The promise". */
uint64_t ull__job_firm(const struct job *job, int device);
uint64_t ull__firm_sum(const struct ull__arbiter *a, int device, const struct job *but);
/* What it could be told to trim, beyond what it was told already. */
uint64_t ull__job_idle(const struct ull__arbiter *a, const struct job *job, int device);
/* Of what is firm of others, what trims will take that are under way, and what further ones could. */
void ull__firm_idle(const struct ull__arbiter *a, int device, const struct job *but,
                    uint64_t *coming, uint64_t *further);
/* Free on a device, may be negative; and with what is on its way. */
int64_t ull__room(const struct ull__arbiter *a, int device);
int64_t ull__room_soon(const struct ull__arbiter *a, int device);
/* Host memory that is left for moving out. */
uint64_t ull__host_left(const struct ull__arbiter *a);

static inline uint64_t ull__least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t ull__most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t ull__minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* --- arbiter.c ------------------------------------------------------------------------------------- */

void ull__do(struct ull__arbiter *a, enum ull__arbiter_action_kind kind, const struct job *job,
             int device, uint64_t bytes, uint64_t for_job);
void ull__wake_at(struct ull__arbiter *a, uint64_t time_ns);
/* Within its bounds. */
void ull__move_watermark(struct ull__arbiter *a, int device, double by);
void ull__job_state(struct ull__arbiter *a, struct job *job, enum ull__job_state state);
void ull__job_leave(struct ull__arbiter *a, struct job *job);

/* --- units.c --------------------------------------------------------------------------------------- */

enum need { NEED_NONE, NEED_START, NEED_WANT, NEED_RESUME };

struct unit {
    struct job *first;
    enum need need;
    int priority, effective;
    bool promised; /* all that it needs was promised */
    bool half;     /* some of its jobs are moved out and some are not */
    bool moving;
    bool served; /* got what it needs, or room for it is on its way */
    uint64_t wait_ns;
    uint64_t bytes[DEVICES]; /* that it needs beyond what it occupies */
};

struct round {
    struct ull__arbiter *a;
    struct unit *units; /* those that wait first, by rank */
    size_t count, waiting;
    int64_t room[DEVICES], soon[DEVICES]; /* after what was set aside */
    bool short_of[DEVICES];               /* somebody's want is not met there */
    int short_rank[DEVICES];              /* the highest effective priority of those */
    bool set_aside[DEVICES];              /* some of what is occupied is not held yet */
    bool waited[DEVICES];                 /* the watermark came too late there */
    uint64_t running;
    uint64_t host_left;
};

/* The next job of a unit; begin with NULL. */
struct job *ull__member(const struct ull__arbiter *a, const struct unit *unit, struct job *after);
/* What the job waits for, when it is looked at by itself. */
enum need ull__need_of(const struct job *job);
/* Finds the units and ranks them. False without memory; r->units is to be freed. */
bool ull__fill_round(struct round *r);
bool ull__fits(const int64_t room[DEVICES], const uint64_t bytes[DEVICES]);

/* --- means.c --------------------------------------------------------------------------------------- */

/* Tells jobs to trim as much as the unit misses, as far as they have it. */
void ull__trim_for(struct round *r, const struct unit *unit);
/*
 * The same for promises: others' caches stand in its way by over[]. False, and nothing asked, if they have too few that
 * are idle.
 */
bool ull__trim_promise(struct round *r, const struct unit *unit, const uint64_t over[DEVICES]);
/* Serves the wants of a unit from the host, if it may be so and they were not promised. */
bool ull__spill(struct round *r, struct unit *unit);
/* Moves out enough others so that it fits, none in vain; false and nothing done if all are too few. */
bool ull__suspend_others(struct round *r, const struct unit *taker);
/* A job that is stuck with nobody to take from moves out itself before its allocation fails. */
void ull__step_aside(struct round *r, struct unit *unit);
/* Above the watermark idle caches are given back before somebody has to wait for it. */
void ull__trim_ahead(struct ull__arbiter *a, int device);

/* --- budgets.c ------------------------------------------------------------------------------------- */

/* By how many bytes the job's request does not fit beside what is firm of all others. */
uint64_t ull__promise_lacks(const struct ull__arbiter *a, const struct job *job, int device);
/* Can the job be promised its request, soft budgets shrunk; and once idle caches are trimmed? */
bool ull__promise_possible(const struct ull__arbiter *a, const struct job *job);
bool ull__promise_after_trims(const struct ull__arbiter *a, const struct job *job);
/* A budget that follows use: a quarter above it, and a share of what is free. */
void ull__follow_use(struct ull__arbiter *a, int device);
/* After a round: what every job may grow to now. */
void ull__set_budgets(struct round *r);

/* --- decide.c -------------------------------------------------------------------------------------- */

void ull__decide(struct ull__arbiter *a);

#endif
