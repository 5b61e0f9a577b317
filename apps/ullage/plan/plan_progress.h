/*
 * plan_progress.h: how far a plan is, as a line on a terminal, when it takes longer than a second.
 *
 * A thread of its own writes it to standard error, if that is a terminal, and takes it away in the end.
 */
#ifndef ULLAGE_PLAN_SHOWN_H
#define ULLAGE_PLAN_SHOWN_H

#include <pthread.h>
#include <stdbool.h>

#include "progress.h"

struct plan_progress {
    struct ull__progress count; /* for a request */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running, ended;
};

void plan_progress_begin(struct plan_progress *progress);
void plan_progress_end(struct plan_progress *progress);

#endif
