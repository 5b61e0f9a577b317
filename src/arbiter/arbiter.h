/*
 * arbiter.h: who may have what. Decides only: it has no clock, socket, thread or device.
 *
 * The caller (the daemon, or a simulation) tells what happened, one event at a time and with the time, and
 * does what the actions say. Before any other event it tells by USE what jobs hold by now, if that changed; USE alone
 * decides nothing. What became of an action comes back as an event: until then the arbiter counts
 * with the worse of both. The same events at the same times give the same actions.
 *
 * Words. A job's *budget* is what it may hold at most. Its *request* is what it was promised: whatever it
 * needs up to that is made free for it. Its *soft budget*, between the two, is in force for the moment.
 * A *want* is an allocation within the budget that found no room and waits. A *unit* is a job, or all jobs
 * of one group: they are suspended and resumed together or not at all.
 *
 * The promise. The sum of what is firm never passes a card: the request of a job that can be suspended, and what
 * stays of it; of one that cannot, also what it holds beyond that. A job is taken only if that holds, and soft
 * budgets keep it so. So a want up to the request can always be met by
 * trimming, shrinking, and suspending others, as long as they do as they are told and the host has room. A job that holds more
 * than its request lives on what is left over, and may be suspended whole.
 *
 * Idle caches are what a job could give back at once. Whoever has them may use them again without asking, so they
 * are as firm as anything: room, and room for a promise, is what was trimmed, not what could be.
 *
 * Order of means: trim idle caches; shrink soft budgets; spill, where the job that wants may; suspend, the lowest
 * priority first, among equals those that are themselves stuck, then the largest, then the one that ran longest.
 *
 * The watermark. Caches above it are trimmed before anybody has to wait for it, at most once in 10 s a job. It rises
 * by 2 % of the card where a job grew back within a minute, so that it was for nothing, and falls by 2 % where
 * somebody had to wait for a trim; it stays between 60 and 90 %.
 *
 * Who may take from whom. A higher priority from a lower one at once. Among equals, one whose turn has
 * lasted a slice gives way to one that waits: a slice is 30 s, but at least 20 times what swapping the two
 * took. A job that waits for an allocation uses no turn. Bounds: between equals a job is moved out at most
 * once a slice, so swapping takes at most a tenth of the time; a job that is moved out again soon after it
 * came back waits twice as long each time, up to 8 slices; and one that waited longer than `patience` counts
 * as one priority higher for each further patience, but never takes from a job what is within its request.
 * So a job waits for ever only if promises to others leave no room for it.
 */
#ifndef ULLAGE_ARBITER_H
#define ULLAGE_ARBITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job_state.h"
#include "ullage/status.h"

enum { ULL_ARBITER_DEVICES = 16, ULL_ARBITER_JOBS = 1024 };

struct ull__arbiter_options {
    int device_count;
    uint64_t slice_ns;    /* 0: 30 s */
    uint64_t patience_ns; /* 0: 10 min */
    uint64_t want_ns;     /* how long an allocation may wait; 0: 60 s */
    double watermark;     /* of a card, above which idle caches are trimmed ahead; 0: 0.70 */
    uint64_t host_bytes;  /* host memory for what is moved out */
};

enum ull__arbiter_event_kind {
    ULL_ARB_TICK,
    ULL_ARB_DEVICE, /* bytes[d]: what card d can give to jobs, others' use taken off */
    ULL_ARB_HOST, /* amount: host memory that may be used for what is moved out, used part included */
    ULL_ARB_JOIN,  /* job, spec, bytes[]: held already, by one that was not known before */
    ULL_ARB_LEAVE, /* job: it ended, in whatever state */
    ULL_ARB_USE, /* job, bytes[]: held; trimmable[]; stays[]: what suspending it would not free; spilled */
    ULL_ARB_WANT,      /* job, bytes[]: an allocation found no room */
    ULL_ARB_WANT_OVER, /* job: it was granted, or given up */
    ULL_ARB_TRIMMED, /* job, amount: the device on which it did what TRIM said, as far as it could */
    ULL_ARB_SUSPENDED, /* job, bytes[]: moved out; stays[]; amount: nanoseconds it took */
    ULL_ARB_RESUMED,   /* job, amount: nanoseconds */
    ULL_ARB_FAILED, /* job: could not be suspended or resumed; is as it was; amount: not again before that many ns */
    ULL_ARB_BUDGET,       /* job, bytes[]: new budgets; amount 1: follows use by itself */
    ULL_ARB_USER_SUSPEND, /* job: by a person, who alone may resume it */
    ULL_ARB_USER_RESUME,
};

struct ull__arbiter_spec {
    int priority;   /* higher goes first */
    uint64_t group; /* 0: none */
    bool suspendable;
    uint64_t spill_bytes; /* that may lie in host memory in place of its devices'; 0: none */
    bool started;         /* false: its command waits for START */
    bool may_queue; /* where it cannot be given its promise now: wait, rather than be refused */
    bool automatic; /* the budget follows use */
    uint64_t budget[ULL_ARBITER_DEVICES];
    uint64_t request[ULL_ARBITER_DEVICES];
    uint64_t room[ULL_ARBITER_DEVICES]; /* to be free before its command starts */
    uint64_t stays[ULL_ARBITER_DEVICES]; /* what suspending it will not free: its contexts, as a guess */
};

struct ull__arbiter_event {
    enum ull__arbiter_event_kind kind;
    uint64_t job;
    uint64_t amount;
    uint64_t bytes[ULL_ARBITER_DEVICES];
    uint64_t trimmable[ULL_ARBITER_DEVICES];
    uint64_t stays[ULL_ARBITER_DEVICES];
    uint64_t spilled; /* in host memory in place of its devices', by now */
    const struct ull__arbiter_spec *spec;
};

enum ull__arbiter_action_kind {
    ULL_DO_START,  /* let its command start */
    ULL_DO_REFUSE, /* the promise cannot be given: the job is not taken */
    ULL_DO_TRIM, /* device, bytes: give back idle caches; with what an earlier one asked that was not answered */
    ULL_DO_BUDGET, /* device, bytes: the budget in force */
    ULL_DO_SPILL,  /* bytes 1: new allocations go to the host; 0: to the card again */
    ULL_DO_SUSPEND,
    ULL_DO_RESUME,
    ULL_DO_GRANT, /* its want has room now */
    ULL_DO_DENY,  /* its want has waited long enough: out of memory */
};

struct ull__arbiter_action {
    enum ull__arbiter_action_kind kind;
    uint64_t job;
    int device;
    uint64_t bytes;
    uint64_t for_job; /* whom it is done for, 0: nobody in particular */
};

struct ull__arbiter;

/* ULL_E_INVALID: a watermark outside 0.6 to 0.9, more devices than there may be. */
ull_status ull__arbiter_create(const struct ull__arbiter_options *options,
                               struct ull__arbiter **arbiter, struct ull_error *err);
void ull__arbiter_destroy(struct ull__arbiter *arbiter);
/*
 * Other options from the next step on, but for the devices: jobs stay as they are. A watermark that is as it was
 * before keeps what it learned. As create; on failure nothing changed.
 */
ull_status ull__arbiter_configure(struct ull__arbiter *arbiter,
                                  const struct ull__arbiter_options *options, struct ull_error *err);

/*
 * One event at a time that never goes back; *actions is the arbiter's own and holds until the next step.
 * ULL_E_NOT_FOUND: no such job. ULL_E_INVALID: it makes no sense in its state (suspend twice, resume what
 * runs, join twice, request above budget), and nothing changed. ULL_E_FULL: too many jobs.
 */
ull_status ull__arbiter_step(struct ull__arbiter *arbiter, const struct ull__arbiter_event *event,
                             uint64_t now_ns, const struct ull__arbiter_action **actions,
                             size_t *count, struct ull_error *err);

/* When the next TICK is due at the latest; UINT64_MAX: no need. */
uint64_t ull__arbiter_deadline(const struct ull__arbiter *arbiter);

/* What it thinks of a job; for people and tests. */
struct ull__arbiter_view {
    enum ull__job_state state;
    bool by_user; /* suspended by a person */
    int priority;
    int effective;     /* with what waiting added */
    uint64_t since_ns; /* in this state */
    uint64_t held[ULL_ARBITER_DEVICES], evicted[ULL_ARBITER_DEVICES], want[ULL_ARBITER_DEVICES];
    uint64_t budget[ULL_ARBITER_DEVICES], soft[ULL_ARBITER_DEVICES];
};
bool ull__arbiter_job(const struct ull__arbiter *arbiter, uint64_t job,
                      struct ull__arbiter_view *view);
double ull__arbiter_watermark(const struct ull__arbiter *arbiter, int device);
/* What is given out on a device and not yet held included. */
uint64_t ull__arbiter_occupied(const struct ull__arbiter *arbiter, int device);

#endif
