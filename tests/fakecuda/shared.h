/*
 * shared.h: the cards, as all processes of one world see them.
 *
 * One file, mapped by everybody. The truth is what each process holds (struct fake_process) and
 * what an exported allocation holds after its owner let go (struct fake_export); every other figure
 * is a sum of these, kept under one robust lock and computed anew when a holder of the lock died.
 */
#ifndef ULLAGE_FAKE_SHARED_H
#define ULLAGE_FAKE_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "config.h"

enum {
    FAKE_MAX_PROCESSES = 512,
    FAKE_MAX_EXPORTS = 4096,
    FAKE_MAX_TAGS = 16,
    FAKE_TAG_LENGTH = 32,
    FAKE_DEATH_MS = 100, /* a dead process's memory comes back this long after its death */
    FAKE_BEAT_MS = 50,   /* how often a process says that it lives */
};

struct fake_sum {
    uint64_t used;
    uint64_t peak;
};

struct fake_process {
    pthread_mutex_t life; /* held by a parked thread; owner dead: so is the process */
    uint32_t state;       /* 0 free, 1 live, 2 dead but not yet freed */
    uint32_t generation;  /* of the slot, so that data files and handles are never mistaken */
    int32_t pid;
    int32_t tag;          /* index, or -1 */
    uint64_t freed_at_ns; /* state 2: when the memory comes back */
    _Atomic uint64_t beat_ns;
    uint64_t used[FAKE_MAX_CARDS];   /* what NVML says of the process */
    uint64_t hidden[FAKE_MAX_CARDS]; /* in use on the card, but not in the process's figure */
    _Atomic uint64_t touched[FAKE_MAX_CARDS]; /* of hidden: managed memory; the rest is of contexts */
    _Atomic uint64_t live[FAKE_MAX_CARDS];    /* allocations */
    _Atomic uint32_t frozen;                  /* CUprocessState: calls wait while it is not 0 */
    _Atomic uint32_t inside;                  /* calls that are going on */
    _Atomic uint32_t queued;                  /* work that has not run yet, or is at it */
    _Atomic uint32_t managed;                 /* allocations of managed memory */
    uint32_t doomed;                          /* what was moved out will not come back */
    uint64_t frozen_used[FAKE_MAX_CARDS], frozen_hidden[FAKE_MAX_CARDS];
};

/* Memory that other processes may open. */
struct fake_export {
    uint32_t state; /* 0 free, 1 in use */
    uint32_t generation;
    int32_t owner; /* process slot while the owner holds it, or -1 */
    int32_t card;
    int32_t tag;
    uint32_t file_slot, file_generation; /* names the data file */
    uint64_t offset, size;               /* in the data file */
    uint64_t orphaned;                   /* bytes charged to the card since the owner let go */
    uint64_t importers[FAKE_MAX_PROCESSES / 64];
};

struct fake_shared {
    uint64_t magic;
    uint32_t bytes; /* of this structure: another build must not map it */
    uint32_t count, physical;
    struct fake_card_config config[FAKE_MAX_CARDS];
    pthread_mutex_t lock;
    struct fake_sum card[FAKE_MAX_CARDS];
    char tag_name[FAKE_MAX_TAGS][FAKE_TAG_LENGTH];
    struct fake_sum tag[FAKE_MAX_TAGS][FAKE_MAX_CARDS];
    struct fake_process process[FAKE_MAX_PROCESSES];
    struct fake_export export[FAKE_MAX_EXPORTS];
};

/*
 * Maps the state, and makes it if `create`; from then on fake_config() names its cards. NULL, with a
 * word on stderr, when that is impossible.
 */
struct fake_shared *fake_shared_open(bool create);

/* Every access to sums and slots is between these two. Unlocking frees nothing by itself. */
void fake_shared_lock(struct fake_shared *shared);
void fake_shared_unlock(struct fake_shared *shared);

/* With the lock held: notices deaths, and gives back what has been dead for long enough. */
void fake_shared_reap(struct fake_shared *shared);

/* With the lock held: adds to what a process holds and to all sums; no check. */
void fake_shared_add(struct fake_shared *shared, int slot, int card, int64_t used, int64_t hidden);
void fake_shared_add_orphan(struct fake_shared *shared, struct fake_export *export, int64_t bytes);

/* With the lock held: an export that nobody holds any more gives its bytes back. */
void fake_shared_settle_export(struct fake_shared *shared, struct fake_export *export);

void fake_data_path(char *path, size_t size, uint32_t slot, uint32_t generation);
uint64_t fake_now_ns(void);

#endif
