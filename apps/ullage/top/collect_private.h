/* collect_private.h: what the parts of the collector share. Each file of collect_*.c adds one kind of thing. */
#ifndef ULLAGE_TOP_COLLECT_PRIVATE_H
#define ULLAGE_TOP_COLLECT_PRIVATE_H

#include "collect.h"
#include "gpus.h"
#include "jobs.h"
#include "who.h"

/* The course of one row. Jobs have pid 0. */
struct track {
    char id[16];
    uint32_t account, pid;
    uint64_t start_ticks, round;
    struct trend trend;
};

struct collector {
    struct gpus gpus;
    bool has_gpus;
    int unknown; /* cards that did not tell their memory when they were found */
    uint64_t round, next_try;
    char no_cards[SAMPLE_REASON];
    struct who_table who;
    struct job_list jobs; /* ledgers stay open */
    struct track *tracks;
    int track_count, track_capacity, track_hint;
};

/* A process as the driver lists it on a device, which is in no ledger. */
struct listed {
    const struct gpu_process *process;
    struct who *who; /* NULL: not to be seen from here */
    int device;      /* place in the sample */
    int owner;       /* place in the list of jobs, or -1 */
};

/* A round under way. */
struct round {
    struct collector *collector;
    struct sample *sample;
    uint32_t *members; /* numbers of processes that are in ledgers */
    int member_count, member_capacity;
    struct listed *listed; /* by pid */
    int listed_count, listed_capacity;
    bool failed; /* for want of memory */
};

/* Writes text cut to size. */
void collect__put(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* collect_cards.c */
void collect__ask_driver(struct collector *collector);
void collect__cards(struct round *round);
/* The place of a job's device; one that NVML does not list is added. -1 without memory. */
int collect__device_of(struct round *round, const struct ull__device_spec *spec);
void collect__sum_up_devices(struct sample *sample);

/* collect_listed.c: what the driver lists besides members; to be called before jobs are added. */
void collect__listed(struct round *round);
/* Adds those that belong to a job (place in the list), or to none (-1). sample_job -1 then too. */
void collect__add_listed(struct round *round, int owner, int sample_job);

/* collect_jobs.c */
void collect__members(struct round *round);
void collect__jobs(struct round *round);
/* Our number for a process of a ledger, which has its own pid namespace's and perhaps the driver's. */
struct who *collect__identify(struct round *round, const struct ull__process_view *view);

/* collect.c: adds this round's figure to the course of a row, and copies the course. */
void collect__follow(struct round *round, const char *id, uint32_t account, uint32_t pid,
                     uint64_t ticks, uint64_t held, struct trend *trend);

#endif
