/*
 * supervise.h: runs a command as if ullage were not there, and does something every few milliseconds
 * meanwhile.
 *
 * The command stays in our process group, with the signal mask and dispositions that we were started
 * with. Signals that somebody sends to us are sent on to it; those that the terminal sends to the whole
 * group reach it anyway and are not. Orphans of the command come to us and are reaped.
 */
#ifndef ULLAGE_SUPERVISE_H
#define ULLAGE_SUPERVISE_H

#include <stdbool.h>
#include <sys/types.h>

#include "ullage/status.h"

struct supervise_result {
    int exit_code;  /* 128 + N for a signal */
    int signal;     /* or 0 */
    int exec_error; /* errno if the command could not be executed, else 0 */
};

/*
 * Blocks signals, becomes the reaper of orphans, and remembers which descriptors the user gave us. Call
 * first: threads that libraries start later inherit the mask.
 */
void supervise_prepare(void);

/* What is called meanwhile; `started` and `reaped` may be NULL. */
struct supervise_calls {
    void (*started)(void *data, pid_t command); /* it is executed; it may be over already */
    void (*tick)(void *data);                   /* about every 10 ms */
    void (*reaped)(void *data, pid_t pid, int exit_code); /* the command, or an orphan of its tree */
    void *data;
};

/*
 * Runs argv to its end. The command finds its own pid in the environment variable `own_pid` if that is
 * not NULL.
 */
ull_status supervise_command(char **argv, const char *own_pid, const struct supervise_calls *calls,
                             struct supervise_result *result, struct ull_error *err);

#endif
