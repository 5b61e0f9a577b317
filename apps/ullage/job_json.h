/*
 * job_json.h: a job told in JSON (the report of `run`, and `ps -o json`) and in one line (the summary).
 */
#ifndef ULLAGE_JOB_JSON_H
#define ULLAGE_JOB_JSON_H

#include "json.h"
#include "ledger.h"
#include "seen.h"

enum { JOB_JSON_VERSION = 1, SUMMARY_TEXT = 4096 };

/* A process on a card that belongs to a job but is not held by it. */
struct outside_process {
    uint32_t pid;
    char command[ULL_COMMAND_TEXT];
    char uuid[ULL_UUID_TEXT];
    uint64_t used_bytes; /* UINT64_MAX unknown */
};

struct shown_job {
    struct ull__ledger *ledger;
    const struct seen *history;
    bool ended;
    int exit_code;
    int signal;                            /* that ended the command, or 0 */
    const struct outside_process *outside; /* NULL where they were not looked for */
    int outside_count;
};

/* Opens the document with version and an array of jobs; the caller adds jobs and calls job_json_end. */
void job_json_begin(struct ull_json *json);
bool job_json_end(struct ull_json *json);
/* One object for the job, and with --each one more for each account. */
void job_json_add(struct ull_json *json, const struct shown_job *job);

/*
 * The most that is known to be needed on a device by an account: its peak, or what it held and wanted
 * when it was refused and did not go on.
 */
uint64_t job_needed(const struct shown_job *job, const struct ull__account_view *account, int device);

/* Devices to show: those the job sees, and others that it used all the same. */
bool job_shows_device(struct ull__ledger *ledger, int device);

/* The line at the end, without "ullage: ". report_path is named if there were refusals; may be NULL. */
void job_summary(const struct shown_job *job, const char *report_path, bool growth,
                 char text[SUMMARY_TEXT]);

#endif
