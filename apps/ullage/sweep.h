/* sweep.h: a command run once for each of several limits: what each run told, and how it is shown. */
#ifndef ULLAGE_SWEEP_H
#define ULLAGE_SWEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ullage/status.h"
#include "verdict.h"

enum sweep_outcome {
    SWEEP_OK,
    SWEEP_OUT_OF_MEMORY, /* it failed, and a request had been refused that it did not survive */
    SWEEP_FAILED,
    SWEEP_NOT_STARTED,
    SWEEP_INTERRUPTED,
};

struct sweep_run {
    const char *limit;      /* as given */
    bool known;             /* the report could be read: the figures below are right */
    uint64_t budget;        /* of the device that held most */
    uint64_t peak, average; /* average 0: too short to have one */
    uint64_t refusals, survived;
    double seconds;
    int exit_code; /* as of `ullage run` */
    enum sweep_outcome outcome;
    bool judged; /* it could be recorded: the verdicts say something */
    struct ull__verdict verdict, host_verdict;
};

struct sweep {
    char *const *command;
    struct sweep_run *runs; /* those that were begun */
    int count;
};

/* "ok", "out_of_memory", "failed", "not_started", "interrupted". */
const char *sweep_outcome_name(enum sweep_outcome outcome);

/* Reads what `ullage run --report` wrote into the figures of a run. ULL_E_FORMAT and as ull__file_read. */
ull_status sweep_read_report(const char *path, struct sweep_run *run, struct ull_error *err);

/* Judges the record of a run. As report_open; ULL_E_SYSTEM without memory. */
ull_status sweep_read_record(const char *path, struct sweep_run *run, struct ull_error *err);
/* "steady" and so on, of the device; "host leak" where that is what is worth knowing; "-": not known. */
const char *sweep_verdict_name(const struct sweep_run *run);
/* What makes it a leak, by whichever memory leaks; NULL: nothing does. */
const char *sweep_leak_evidence(const struct sweep_run *run);

/* The smallest limit that ran, and the fastest run; -1: none. */
int sweep_smallest(const struct sweep *sweep);
int sweep_fastest(const struct sweep *sweep);

void sweep_table(const struct sweep *sweep, FILE *out);
bool sweep_json(const struct sweep *sweep, FILE *out);
void sweep_page(const struct sweep *sweep, FILE *out); /* HTML, complete in itself */

#endif
