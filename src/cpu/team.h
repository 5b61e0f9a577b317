/*
 * team.h: threads that run one function together.
 *
 * The caller is thread 0 of its team. Waiting spins for some microseconds and then sleeps, so that a team whose processors are
 * shared with others does not burn their time.
 */
#ifndef ULLAGE_CPU_TEAM_H
#define ULLAGE_CPU_TEAM_H

#include "ullage/status.h"

struct ull__team;

/* threads: 1 to 64. */
ull_status ull__team_create(int threads, struct ull__team **team, struct ull_error *err);
/* NULL is fine. */
void ull__team_destroy(struct ull__team *team);
int ull__team_threads(const struct ull__team *team);

/* Calls run(context, thread) once in each thread and returns when all have. Not nested; one caller at a time. */
void ull__team_run(struct ull__team *team, void (*run)(void *context, int thread), void *context);
/* Within run: all threads of the team meet. What was written before is seen after. */
void ull__team_barrier(struct ull__team *team);

#endif
