/*
 * seen.h: what the supervisor remembers of processes, accounts and refusals.
 *
 * The ledger keeps a slot only as long as its process lives, and the last 64 refusals. The report at
 * the end tells of all, so the supervisor looks at the ledger now and then and keeps what it saw.
 */
#ifndef ULLAGE_SEEN_H
#define ULLAGE_SEEN_H

#include "ledger.h"

enum { SEEN_PROCESSES = 4096, SEEN_REFUSALS = 256 };

struct seen_process {
    struct ull__process_view view; /* peaks are the highest seen; held is 0 once it is gone */
    bool present;
};

struct seen {
    struct seen_process *processes; /* in order of appearance */
    int process_count;
    int process_capacity;
    uint64_t processes_dropped;    /* not kept for want of room */
    struct ull__refusal *refusals; /* the first ones, by number */
    int refusal_count;
};

/* Looks at the ledger. Cheap enough for every 10 ms while the job is small. */
void seen_update(struct seen *history, struct ull__ledger *ledger);
void seen_free(struct seen *history);

#endif
