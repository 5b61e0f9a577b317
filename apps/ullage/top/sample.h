/*
 * sample.h: what `ullage top` knows of the machine at one moment.
 *
 * Plain data: it points to nothing outside itself, so that one thread can collect it and another one draw it.
 * Lists are in arrays of the sample; whoever has a part of one keeps a span of it. Bytes that nobody
 * tells are SAMPLE_UNKNOWN, never 0.
 */
#ifndef ULLAGE_TOP_SAMPLE_H
#define ULLAGE_TOP_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"
#include "procfs.h"
#include "recent.h"

#define SAMPLE_UNKNOWN UINT64_MAX
enum { SAMPLE_NAME = 96, SAMPLE_COMMAND = 256, SAMPLE_USER = 33, SAMPLE_REASON = 256 };

struct sample_span {
    int first, count;
};

/* A card, or a MIG instance of one; a card comes before its instances. */
struct sample_device {
    char uuid[SAMPLE_NAME];
    char name[SAMPLE_NAME];
    int physical;         /* as nvidia-smi counts cards; an instance has its card's; -1 unknown */
    int instance;         /* number on its card, or -1 */
    int card;             /* place of the card that an instance is part of, or -1 */
    bool divided;         /* its instances are used, not the card */
    uint64_t total_bytes; /* with what is reserved: used + reserved + free */
    uint64_t used_bytes;  /* by programs; includes reserved_bytes if that is unknown */
    uint64_t reserved_bytes;
    uint64_t free_bytes;
    uint64_t job_bytes;   /* held by jobs, each byte once */
    uint64_t other_bytes; /* used, but not by jobs */
    int busy_percent;     /* -1 unknown */
};

/* What a job or a process has on one device. */
struct sample_share {
    int device;                           /* place in the sample's devices */
    int logical;                          /* as the job counts it, or -1 */
    uint64_t budget_bytes, average_bytes; /* of a job; 0 for a process */
    uint64_t evicted_bytes;               /* of what a job holds: in host memory now */
    struct ull__usage usage;
};

enum sample_kind {
    SAMPLE_HELD,     /* in the ledger of its job */
    SAMPLE_DRAINING, /* dead, but what it held is not free yet */
    SAMPLE_OUTSIDE,  /* belongs to a job, uses a card, is not held by the job */
    SAMPLE_STRANGER, /* uses a card and belongs to no job */
};

struct sample_process {
    enum sample_kind kind;
    int job;    /* place in the sample's jobs, or -1 */
    int parent; /* place in the sample's processes of the nearest ancestor of the same job, or -1 */
    uint32_t pid; /* as shown: in this pid namespace where it can be told, else as its own counts */
    uint64_t start_ticks; /* 0 unknown */
    enum proc_place place; /* PROC_UNSEEN: it may be another pid namespace's number, not to be signalled */
    char user[SAMPLE_USER];
    char command[SAMPLE_COMMAND]; /* any bytes */
    uint64_t held_bytes,
        peak_bytes; /* over all devices; unknown of a process that only the driver knows */
    struct sample_span shares;
    struct trend trend;
};

/* A job, or with --each one of its accounts. */
struct sample_job {
    char id[16]; /* of the job: accounts of one job share it */
    uint32_t account;
    int parent; /* place of the job around this one, or -1; comes before it */
    char name[SAMPLE_NAME];
    char command[SAMPLE_COMMAND];
    char set_by[ULL_PATH_TEXT];
    char user[SAMPLE_USER];
    uint32_t pid;         /* its `ullage run`, or the child that the account belongs to */
    uint64_t start_ticks; /* of that process; 0: it is gone, or not to be seen from here */
    uint64_t start_unix_ns;
    uint64_t budget_bytes, held_bytes, peak_bytes; /* over the devices it has used; before that, all */
    double fill; /* held / budget on the device where it is highest */
    uint64_t refusals, refusals_survived;
    enum ull__job_state state;
    int priority;
    struct sample_span shares, processes, shown_refusals;
    struct trend trend;
};

struct sample {
    uint64_t number;  /* 1, 2, ... */
    uint64_t time_ns; /* CLOCK_MONOTONIC, at the end of the round */
    uint64_t unix_ns;
    uint64_t collect_ns;          /* what the round took */
    char no_cards[SAMPLE_REASON]; /* why the driver tells nothing; "" if it does */
    struct sample_device *devices;
    struct sample_job *jobs; /* by name, accounts of a job in a row */
    struct sample_process *processes;
    struct sample_share *shares;
    struct ull__refusal *refusals;
    int device_count, job_count, process_count, share_count, refusal_count;
    struct sample_span strangers; /* of processes */
};

/* A new sample with nothing in it; NULL without memory. */
struct sample *sample_create(void);
void sample_destroy(struct sample *sample);

/* Add an entry that is all zeros; NULL without memory. Pointers to earlier entries are no longer good. */
struct sample_device *sample_add_device(struct sample *sample);
struct sample_job *sample_add_job(struct sample *sample);
struct sample_process *sample_add_process(struct sample *sample);
struct sample_share *sample_add_share(struct sample *sample);
struct ull__refusal *sample_add_refusal(struct sample *sample);

/* The command without the folder that its program lies in. */
const char *sample_short_command(const struct sample_process *process);
/* "held", "draining", "outside", "other". */
const char *sample_kind_name(enum sample_kind kind);

#endif
