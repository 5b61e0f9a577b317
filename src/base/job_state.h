/*
 * job_state.h: what a job is doing, as people, the ledger and the arbiter call it.
 */
#ifndef ULLAGE_JOB_STATE_H
#define ULLAGE_JOB_STATE_H

#define ULL_JOB_STATE_MAP(X)                                                                       \
    X(WAITING, "waiting") /* its command has not started */                                        \
    X(RUNNING, "running")                                                                          \
    X(SUSPENDING, "suspending") /* was told to, still holds some of its bytes */                   \
    X(SUSPENDED, "suspended")   /* its bytes are in host memory */                                 \
    X(RESUMING, "resuming")     /* was told to; its bytes are set aside */

enum ull__job_state {
#define X(name, text) ULL_JOB_##name,
    ULL_JOB_STATE_MAP(X)
#undef X
};
/* "waiting" and so on; never NULL. */
const char *ull__job_state_name(enum ull__job_state state);

#endif
