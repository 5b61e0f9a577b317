/*
 * ledger.h: the shared account of a job.
 *
 * A job is a process and everything it starts. Its ledger is one file in shared memory that holds,
 * per device, how many bytes the job may hold and does hold, and per process and class how they are
 * made up. `ullage run` creates it; every process of the job that uses CUDA joins it; `ullage ps`
 * reads it. No daemon is needed and no process may leave it wrong, however it dies:
 *
 *  - The total of an account on a device changes by one 16-byte compare-and-swap of {total, tag}.
 *    The tag names the slot and sequence number of the change. Whoever overwrites a tag first records
 *    it in the slot it names, so that for a change that was cut off half-way it can always be decided
 *    whether it took place (change.c).
 *  - A process owns a slot by a robust, process-shared mutex that a parked thread of it holds until
 *    it dies (join.c). The kernel frees that lock at death; nothing else does.
 *  - What a dead process held stays charged until the driver has really freed it: the slot is
 *    "draining" until the driver no longer lists the process (recover.c).
 *
 * A job may be inside another one: then what it holds counts in both, and a request must fit in both.
 * With accounts (`run --each`) one ledger keeps several budgets: account 0 is the command's own, the
 * others belong to one direct child each.
 *
 * This module knows nothing of CUDA. It names devices by UUID, and is told from outside which
 * processes the driver still lists.
 *
 * Bytes are charged bytes: what the driver takes, not what was asked for. All functions are safe to
 * call from several threads unless they say otherwise.
 */
#ifndef ULLAGE_LEDGER_H
#define ULLAGE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "class.h"
#include "job_state.h"
#include "ullage/status.h"

enum {
    ULL_MAX_DEVICES = 16,
    ULL_MAX_SLOTS = 512,   /* processes of a job at the same time */
    ULL_MAX_ACCOUNTS = 64, /* with --each: the command and 63 live children */
    ULL_MAX_CHAIN = 8,     /* jobs inside jobs */
    ULL_MAX_REFUSALS = 64, /* kept in full; more are counted */
    ULL_MAX_HOLDERS = 8,   /* largest live allocations kept with a refusal */
    ULL_MAX_VARIANTS = 16,
    ULL_TROUBLE_TEXT = 160, /* why a process cannot be suspended */
    ULL_MAX_SHARES = 1024,  /* allocations named for other processes */
    ULL_UUID_TEXT = 64,
    ULL_NAME_TEXT = 64,
    ULL_COMMAND_TEXT = 64,
    ULL_PATH_TEXT = 256,
};

/* --- creating, opening, finding ------------------------------------------------------------- */

struct ull__device_spec {
    char uuid[ULL_UUID_TEXT]; /* "GPU-..." or "MIG-..." */
    char name[ULL_NAME_TEXT];
    int physical;          /* index as NVML and nvidia-smi count, -1 if unknown */
    int logical;           /* index in the job at its start, -1 if not visible to it */
    bool integrated;       /* shares the host's memory */
    uint64_t total_bytes;  /* what the driver offers to programs */
    uint64_t budget_bytes; /* never above total_bytes */
    uint64_t context_bytes; /* measured size of a context; with hidden_bytes the charge before one is made */
    uint64_t hidden_bytes;  /* what a context takes beyond the figure for its process; 0: unknown */
    uint64_t request_bytes; /* promised; at most the budget */
    uint64_t room_bytes;    /* to be free before its command starts */
};

struct ull__job_spec {
    char name[ULL_NAME_TEXT];
    char command[ULL_PATH_TEXT]; /* for people */
    char report[ULL_PATH_TEXT];  /* where the report will be */
    char set_by[ULL_PATH_TEXT];  /* the configuration in force and who set it, for the report */
    char parent[ULL_PATH_TEXT];  /* ledger of the job around this one, "" for none */
    bool quiet;                  /* no refusal lines */
    bool each;                   /* a budget for every direct child */
    uint64_t max_request;        /* larger single requests are refused; 0: no such limit */
    bool suspendable;            /* its processes are gated: they can be moved out at link speed */
    int priority;                /* higher goes first where jobs share a card; 0 by default */
    char group[ULL_NAME_TEXT];   /* jobs that are suspended together or not at all; "": none */
    uint32_t collective_timeout_s; /* of a group: how long its collectives wait; 0: for ever */
    bool waits;                    /* its command starts when the daemon says so */
    bool may_queue;                /* and until then it waits, rather than be refused */
    uint64_t spill_bytes;          /* that may lie in host memory instead of failing; 0: none */
    uint64_t pinned_bytes;         /* of host memory, pinned ahead for what is moved out */
    bool never_pins;               /* what is moved out goes through ordinary memory only */
    int device_count;
    struct ull__device_spec devices[ULL_MAX_DEVICES];
};

/* Where a process's memory is. */
enum ull__residency { ULL_RESIDENT, ULL_MOVING_OUT, ULL_MOVED_OUT, ULL_MOVING_IN };
/* By whose wish it is out. A process is out as long as any of the jobs around it wants that. */
enum ull__moved_by { ULL_BY_JOB, ULL_BY_INNER, ULL_BY_OUTER };

struct ull__ledger;

/*
 * The folder that holds this user's ledgers: $ULLAGE_SHM_DIR or /dev/shm, then ullage-UID. Creates it
 * if `create`. ULL_E_SYSTEM (missing, read-only, full), ULL_E_PERMISSION (belongs to somebody else).
 */
ull_status ull__ledger_folder(bool create, char path[ULL_PATH_TEXT], struct ull_error *err);

/*
 * Creates the ledger of a new job, its memory allocated in full so that a later write cannot fail.
 * The caller becomes its supervisor: it owns a slot until it dies or closes the ledger, and must call
 * from a thread that lives that long. ULL_E_SYSTEM (shared memory full or read-only),
 * ULL_E_PERMISSION.
 */
ull_status ull__ledger_create(const struct ull__job_spec *spec, struct ull__ledger **out,
                              struct ull_error *err);

/*
 * For its supervisor, once in a while: if its file has lost its name, the path leads to it again (name.c). Errors: what
 * is in the way, as of ull__ledger_folder; to be tried again.
 */
ull_status ull__ledger_keep_name(struct ull__ledger *ledger, struct ull_error *err);
/* Opens what is at a ledger's path, as open(2): to lock it, or to see whose it is. -1 and errno. */
int ull__ledger_file(const char *path, int flags);

/*
 * Maps an existing ledger. ULL_E_NOT_FOUND, ULL_E_PERMISSION (also one of neither this user nor root), ULL_E_FORMAT (not a
 * ledger).
 */
ull_status ull__ledger_open(const char *path, struct ull__ledger **out, struct ull_error *err);

/*
 * Unmaps; NULL is fine. The supervisor's slot is given up, if this is the thread that created the
 * ledger. Nothing is unmapped while a thread of this process holds a place in it (a member's ledger).
 */
void ull__ledger_close(struct ull__ledger *ledger);

/*
 * Removes the file if neither the supervisor nor any process of the job is left. True if removed. Processes that were
 * started into the job and have not joined yet are not seen here: who does not know that there are none looks for them first.
 */
bool ull__ledger_remove_if_dead(struct ull__ledger *ledger);

/*
 * Calls `visit` for every readable ledger (all users' for root). Opened and swept, but what the dead
 * held stays for those who can ask the driver. Root gets a copy of another user's: that is not swept
 * nor removed, since its owner may have written anything there.
 */
void ull__ledger_each(void (*visit)(struct ull__ledger *ledger, void *data), void *data);
/*
 * The same, but `take` gets the ledgers for good and has to close them, and paths that `wanted` turns down
 * are passed over unopened: for those who look again and again. A copy stays as it was when it was made.
 */
void ull__ledger_take(bool (*wanted)(const char *path, void *data),
                      void (*take)(struct ull__ledger *ledger, void *data), void *data);
bool ull__ledger_is_copy(const struct ull__ledger *ledger);

const char *ull__ledger_path(const struct ull__ledger *ledger);
/* Is the `ullage run` that made it still there? */
bool ull__ledger_supervised(struct ull__ledger *ledger);

/* --- reading ---------------------------------------------------------------------------------- */

/* A consistent enough picture for people: totals are exact, the split may lag by one change. */
struct ull__usage {
    uint64_t held_bytes;
    uint64_t peak_bytes;
    uint64_t by_class[ULL_CLASSES];
    uint64_t peak_by_class[ULL_CLASSES]; /* each at its own moment; an account's as sampled */
};

/* Where the size of a process's contexts on a device comes from; a later one is better. */
enum ull__context_source {
    ULL_CONTEXT_ESTIMATED,  /* what the last one took */
    ULL_CONTEXT_BY_CARD,    /* by how much the card's use rose, with nobody else seen on it */
    ULL_CONTEXT_BY_PROCESS, /* the driver's figure for the process */
};

/* What a process shares with others through the driver, or ever did; a set of them. */
enum ull__tie {
    ULL_TIE_IPC = 1,       /* names of memory or events that others open (cuIpc*) */
    ULL_TIE_HANDLE = 2,    /* memory or pools passed as descriptors or fabric handles */
    ULL_TIE_MULTICAST = 4, /* multicast objects */
};

struct ull__process_view {
    uint32_t pid;         /* as its own pid namespace counts */
    uint32_t driver_pid;  /* as the driver lists it, 0 if unknown */
    uint64_t start_ticks; /* field 22 of /proc/PID/stat */
    uint32_t account;
    bool draining; /* dead; its bytes are not freed yet */
    enum ull__context_source context_source[ULL_MAX_DEVICES];
    char command[ULL_COMMAND_TEXT];
    struct ull__usage usage[ULL_MAX_DEVICES];
    bool gated;
    uint32_t ties; /* enum ull__tie */
    enum ull__residency residency;
    enum ull__moved_by moved_by;
    uint64_t done; /* number of the last command carried out or refused */
    uint64_t moved_bytes, to_move_bytes;
    uint64_t moving_ns;                      /* that the bytes took so far; 0: not known */
    uint64_t evicted_bytes[ULL_MAX_DEVICES]; /* of what is held: in host memory now */
    uint64_t spilled_bytes[ULL_MAX_DEVICES]; /* in host memory from the start, not in held */
    uint64_t want_bytes[ULL_MAX_DEVICES];    /* allocations that wait for room */
    uint64_t pinned_bytes;                   /* of host memory, kept for what is moved out */
    uint64_t hidden_bytes[ULL_MAX_DEVICES]; /* of what is held: in no process's figure of the driver */
    uint64_t idle_bytes[ULL_MAX_DEVICES]; /* of what is held: it could give back at once */
    bool trimming[ULL_MAX_DEVICES];       /* was asked to, and has not answered */
    char trouble[ULL_TROUBLE_TEXT];       /* why it was refused, or what is in its way; or "" */
};

struct ull__account_view {
    uint32_t number;   /* 0 is the command itself */
    uint32_t root_pid; /* the child that the account belongs to */
    bool live;
    struct ull__usage usage[ULL_MAX_DEVICES];
    uint64_t average_bytes[ULL_MAX_DEVICES]; /* over the time when anything was held */
    uint64_t evicted_bytes[ULL_MAX_DEVICES], spilled_bytes[ULL_MAX_DEVICES];
    uint64_t pinned_bytes;                  /* of host memory */
    uint64_t hidden_bytes[ULL_MAX_DEVICES]; /* as of a process */
};

struct ull__holder {
    uint64_t bytes;
    uint64_t age_ns;
    enum ull__class class;
};

struct ull__refusal {
    uint64_t number;       /* 1, 2, ... in the job */
    uint64_t time_ns;      /* CLOCK_MONOTONIC */
    uint64_t wanted_bytes; /* as charged */
    uint64_t held_bytes;   /* by the account on that device at that moment */
    uint64_t own_bytes;    /* by the process that asked */
    uint64_t budget_bytes;
    uint32_t pid;
    uint32_t account;
    int device;
    enum ull__class class;
    bool by_max_request;
    bool survived; /* the process was given memory later on */
    char command[ULL_COMMAND_TEXT];
    char call[48]; /* driver entry point */
    uint64_t by_class[ULL_CLASSES];
    int holder_count;
    struct ull__holder holders[ULL_MAX_HOLDERS]; /* of the process that asked, largest first */
};

struct ull__job_view {
    char id[16];
    uint32_t supervisor_pid;
    bool supervisor_alive;
    uint64_t start_unix_ns;
    uint64_t refusals;          /* all */
    uint64_t refusals_survived; /* by processes that were given memory later */
    uint64_t first_allocation_bytes[ULL_MAX_DEVICES]; /* largest among the job's first requests */
    bool preallocated[ULL_MAX_DEVICES]; /* one early request took over half of the visible card */
    uint64_t budget_bytes[ULL_MAX_DEVICES];
    enum ull__job_state state;
    int priority;
    uint64_t evicted_bytes[ULL_MAX_DEVICES], spilled_bytes[ULL_MAX_DEVICES];
    uint64_t spilled_peak_bytes;          /* on all devices together */
    uint64_t soft_bytes[ULL_MAX_DEVICES]; /* in force if lower than the budget; UINT64_MAX: none */
    uint32_t flags;                       /* enum ull__ledger_flag */
    int process_count;                    /* entries that ull__ledger_process gives, */
    int slots_used;                       /* all of them below this number */
    int variant_count;
    char variants[ULL_MAX_VARIANTS][ULL_NAME_TEXT]; /* entry points met that ullage does not know */
};

const struct ull__job_spec *ull__ledger_spec(const struct ull__ledger *ledger);
void ull__ledger_job(struct ull__ledger *ledger, struct ull__job_view *view);
/* False when the number is not in use. Slots are 0 .. ULL_MAX_SLOTS - 1, accounts likewise. */
bool ull__ledger_process(struct ull__ledger *ledger, int slot, struct ull__process_view *view);
bool ull__ledger_account(struct ull__ledger *ledger, int account, struct ull__account_view *view);
/* Refusal `number` (1-based) if it is still kept. */
bool ull__ledger_refusal(struct ull__ledger *ledger, uint64_t number, struct ull__refusal *refusal);

/* --- the supervisor's part ---------------------------------------------------------------------- */

/*
 * What the driver says of a process on a device: returns 1 if it lists driver_pid, 0 if not, -1 if it
 * cannot say. used_bytes (may be NULL) gets the driver's figure.
 */
typedef int ull__listed_fn(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used_bytes);

/*
 * Finds dead processes, decides their unfinished change, and gives back what the driver has freed.
 * Any process may call it at any time; several at once are fine. `listed` may be NULL: then a dead
 * process's bytes are given back ULL_DRAIN_GRACE_NS after its death was seen.
 */
#define ULL_DRAIN_GRACE_NS 1000000000ull
void ull__ledger_sweep(struct ull__ledger *ledger, ull__listed_fn *listed, void *data);

/* Adds the present totals to the time average and the class peaks; the supervisor calls it every few milliseconds. */
void ull__ledger_sample(struct ull__ledger *ledger);

/* --- for who looks at it again and again ------------------------------------------------------- */

/*
 * Opens a ledger to look at it: an own one as ull__ledger_open does, root gets a copy of another user's.
 * ULL_E_NOT_FOUND: none is there, or it is not one of this version. A file of this user's whose maker was killed before it was
 * whole is removed, as is a name that leads nowhere (name.c).
 */
ull_status ull__ledger_look(const char *path, struct ull__ledger **out, struct ull_error *err);
/* Notices who has died since; what they held is still theirs until the driver has freed it. */
void ull__ledger_notice(struct ull__ledger *ledger);
/*
 * Brings a copy up to date; true at once for what is no copy. False: it is gone, or none any more. Where no descriptor is
 * left to look, it stays as it is.
 */
bool ull__ledger_refresh(struct ull__ledger *ledger);
/* The user that a looked-at ledger belongs to. */
uint32_t ull__ledger_owner(const struct ull__ledger *ledger);
/* Calls `visit` with every folder that may be read and has a user's ledgers. False: no descriptor is left to look for them. */
bool ull__ledger_each_folder(void (*visit)(const char *folder, void *data), void *data);

/* The measured size of a context on a device, for the next one. */
uint64_t ull__ledger_context_bytes(struct ull__ledger *ledger, int device);
/* What one takes beyond the driver's figure for its process; 0: not known. */
uint64_t ull__ledger_hidden_bytes(struct ull__ledger *ledger, int device);
/* The same as this job itself measured it, for the next one; 0: it did not, or was not sure. */
uint64_t ull__ledger_hidden_measured(struct ull__ledger *ledger, int device);

#endif
