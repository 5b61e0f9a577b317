/*
 * cards.h: the cards of this machine, and how much of each is there for jobs.
 *
 * What others use is the card's figure less what jobs hold. A thread asks NVML, since a sick driver may take seconds to
 * answer and the daemon must not wait for it.
 */
#ifndef ULLAGED_CARDS_H
#define ULLAGED_CARDS_H

#include <pthread.h>
#include <stdatomic.h>

#include "arbiter.h"
#include "machine.h"

enum { CARDS = ULL_ARBITER_DEVICES, SAMPLES = 10 };

struct card {
    char uuid[ULL_UUID_TEXT];
    char name[ULL_NAME_TEXT];
    int physical;
    bool integrated;
    uint64_t total_bytes;
    struct ull__nvml_device nvml; /* the thread's */
    uint64_t held_bytes;          /* by jobs, in its memory */
    uint64_t others[SAMPLES];     /* what others seemed to use lately */
    unsigned int sampled;
    uint64_t capacity; /* for jobs */
};

struct cards {
    int count;
    struct card card[CARDS];
    struct machine machine;
    bool can_checkpoint; /* the driver moves processes to the host */
    bool moves_shared;   /* those too that share memory with others */
    pthread_t thread;
    bool threaded;
    _Atomic bool stop;
    _Atomic uint64_t used[CARDS], reserved[CARDS], asked; /* by the thread; asked: how often */
    uint64_t seen;                                        /* of asked */
};

/* Finds them; none is no error. */
void cards_open(struct cards *cards);
void cards_close(struct cards *cards);
int cards_find(const struct cards *cards, const char *uuid);
/*
 * With held_bytes brought up to date: true if there is more or less for jobs than before. While `moving`,
 * figures do not add up and are left alone.
 */
bool cards_update(struct cards *cards, bool moving);

#endif
