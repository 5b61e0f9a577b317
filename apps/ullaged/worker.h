/*
 * worker.h: processes of the daemon's that do what may take long: move a job's memory, and tidy up after the dead.
 *
 * Each is this program again, which acts as the job's owner and says over a pipe how far it is. It outlives the
 * daemon: what it began it ends. A lock on the ledger's file keeps two from moving the same job. One that moves a job of
 * a group moves all of it, and locks all of it; the others' find that it was done, or that it could not be.
 */
#ifndef ULLAGED_WORKER_H
#define ULLAGED_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ullage/status.h"

enum worker_task { WORKER_OUT, WORKER_BACK, WORKER_SETTLE, WORKER_SWEEP };

/* What it says: any number of times with last false, then once with last true. */
struct worker_report {
    int32_t last, status;
    uint64_t moved_bytes, to_move_bytes, nanoseconds;
    char text[400];
};

/* In the daemon: starts one. What it moves out will be away for about so long. Its reports come from *from, which is to be closed. ULL_E_SYSTEM. */
ull_status worker_start(enum worker_task task, const char *path, unsigned int expected_s,
                        pid_t *pid, int *from, struct ull_error *err);
/* In the worker: true if these arguments make this process one; *code is its exit code. */
bool worker_main(int argc, char **argv, int *code);

#endif
