/* progress.h: how far a planner is, for who looks on from another thread. */
#ifndef ULLAGE_PLAN_PROGRESS_H
#define ULLAGE_PLAN_PROGRESS_H

#include <stdatomic.h>

/* Schedules that were looked at, and about how many there will be. Zeros to begin with. */
struct ull__progress {
    atomic_long done, all;
};

#endif
