/*
 * mover.h: suspends and resumes a job, without a daemon, through its ledger.
 *
 * A command goes to all its processes. Gated ones (`run --suspendable`) carry it out themselves; the others
 * are moved by the driver (checkpoint.h). All of them or none: where one cannot, the rest are brought back.
 *
 * With a job go all jobs of its group (group.h). Where several processes move themselves, they come to rest together
 * first (stand.h), so that nobody is stopped inside a collective.
 */
#ifndef ULLAGE_MOVER_H
#define ULLAGE_MOVER_H

#include "ledger.h"

struct move_progress {
    uint64_t moved_bytes, to_move_bytes;
    uint64_t moving_ns; /* of those that move themselves: what the bytes alone took, at most; 0: not known */
    int processes, there; /* of the job, and those that are where they shall be */
    bool waits_for_outer; /* it comes back with the job around it, which is suspended */
};

struct move_options {
    unsigned int timeout_s;  /* for each process that the driver moves, and for all gated ones */
    unsigned int expected_s; /* how long they will be away, as far as that is known */
    bool by_user; /* a person wishes it: who is out because of that is noted in the ledgers */
    /* Called a few times a second; true asks to stop, and what was moved comes back. May be NULL. */
    bool (*step)(const struct move_progress *progress, void *data);
    void *data;
};

/*
 * ULL_E_INVALID: it is (being) suspended already, has not started, or its device shares the host's memory.
 * ULL_E_NOT_FOUND: none of its processes uses a GPU. ULL_E_NO_MEMORY: the host has no room for it.
 * ULL_E_INVALID, too: the group's collectives would not wait for so long.
 * ULL_E_DRIVER, ULL_E_SYSTEM: a process could not be moved. In each case nothing is left half done: what was
 * moved is back, or *err says what is not. On success *moved tells how much.
 */
ull_status job_move_out(struct ull__ledger *ledger, const struct move_options *options,
                        struct move_progress *moved, struct ull_error *err);

/* Likewise. ULL_E_NO_MEMORY: the card has no room for it, and it stays suspended. */
ull_status job_move_back(struct ull__ledger *ledger, const struct move_options *options,
                         struct move_progress *moved, struct ull_error *err);

#endif
