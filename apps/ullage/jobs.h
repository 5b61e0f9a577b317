/* jobs.h: all jobs of this machine that may be seen, gathered for `ullage ps`, `top` and `query`. */
#ifndef ULLAGE_JOBS_H
#define ULLAGE_JOBS_H

#include "job_json.h"
#include "nvml.h"

struct live_job {
    struct shown_job report; /* points into the two below */
    struct seen history;
    struct outside_process *outside;
    bool listed; /* of jobs_open alone: still there */
};

struct job_list {
    struct live_job *jobs; /* by name, then id */
    int count;
};

/*
 * Removes the ledger of a job that is over: nobody supervises it or is in it, and no process that was
 * started into it is left which could still join.
 */
void job_remove_if_over(struct ull__ledger *ledger);
/* Has everybody left it, and can nobody come any more? Then its ledger is removed as well. */
bool job_is_over(struct ull__ledger *ledger);
/*
 * Until its command is executed, the process that will do that cannot be seen to belong to the job. As long as it has
 * this descriptor, which closes by itself when it does, the ledger stays. -1: none could be had.
 */
int job_hold(struct ull__ledger *ledger);

/*
 * Opens the ledgers of all jobs, swept, and removes those that nobody is left in. list is empty (all zeros),
 * or of the last call, whose ledgers then stay open. Histories and processes outside are left empty. nvml
 * tells what the driver still lists; NULL if it cannot be asked. False for want of memory; the list is good,
 * but not whole.
 */
bool jobs_open(struct job_list *list, struct ull__nvml *nvml);
/*
 * The place of the job that a process belongs to which is in no ledger: the innermost, whose supervisor is
 * closest; or -1. Reads environments and parents in /proc for every job.
 */
int jobs_owner(const struct job_list *list, uint32_t pid);

/* All of it for one look: ledgers, histories and processes outside, with an NVML opened and closed again. */
bool jobs_gather(struct job_list *list);
void jobs_free(struct job_list *list);

/*
 * The job with this id or name. ULL_E_NOT_FOUND names what there is; ULL_E_INVALID: several have the name, and
 * their ids are named.
 */
ull_status jobs_find(const struct job_list *list, const char *text, struct live_job **job,
                     struct ull_error *err);

#endif
