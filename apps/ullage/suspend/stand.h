/*
 * stand.h: brings all processes of a group to rest at one point of their work, before any of them is moved.
 *
 * Kernels of several processes may wait for each other, as those of a collective do: a process that is stopped before
 * it launched its part leaves the others with a device that is never at rest. So all are told to stand by
 * (src/interpose/stand.c): their gates close, and each says whether its devices are at rest. As long as some are and others
 * are not, those that are make one call at a time. So everybody gets as far as the one that was furthest, and no further;
 * then all are at rest, with nobody inside a collective.
 *
 * What a device waits for may be behind its own gate: a helper thread of a library copies for a collective. Threads that never
 * launched anything are let in wherever a device is not at rest, since that takes nobody further. Where
 * none is at rest and nothing changes, or those that are have nobody who wants in, each makes a call.
 *
 * Limits: processes that the driver moves do not stand by. A kernel that waits for something else than the group's
 * processes keeps all of them, and in the end they are refused.
 */
#ifndef ULLAGE_STAND_H
#define ULLAGE_STAND_H

#include "control.h"

struct stand_options {
    unsigned int timeout_s;
    bool (*stopped)(void *data); /* asked all the time; true: give up */
    void *data;
};

/*
 * ULL_OK: all are at rest and stay so until they are commanded something
 * else, which must be soon: in ULL_STAND_MS they go on by themselves. Otherwise they have been commanded to go on.
 * ULL_E_SYSTEM: they did not come to rest in time, or it was stopped; ULL_E_DRIVER: one cannot be moved.
 */
ull_status stand_by(struct ull__ledger *const *ledgers, int count,
                    const struct stand_options *options, struct ull_error *err);

/* How many processes could stand by: below two there is nothing to wait for. */
int stand_count(struct ull__ledger *const *ledgers, int count);

#endif
