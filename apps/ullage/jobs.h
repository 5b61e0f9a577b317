/* jobs.h: all jobs of this machine that may be seen, gathered for `ullage ps`. */
#ifndef ULLAGE_JOBS_H
#define ULLAGE_JOBS_H

#include "job_json.h"

struct live_job {
    struct shown_job report; /* points into the two below */
    struct seen history;
    struct outside_process *outside;
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

/* Removes ledgers that nobody is left in on the way. False for want of memory. */
bool jobs_gather(struct job_list *list);
void jobs_free(struct job_list *list);

/*
 * The job with this id or name. ULL_E_NOT_FOUND names what there is; ULL_E_INVALID: several have the name, and
 * their ids are named.
 */
ull_status jobs_find(const struct job_list *list, const char *text, struct live_job **job,
                     struct ull_error *err);

#endif
