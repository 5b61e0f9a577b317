/*
 * offer.c: see offer.h.
 *
 * One lock is over the list of pools. It is held while a pool is trimmed, so that none ends meanwhile; who makes or
 * ends a pool waits that long.
 */
#include "offer.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "idle.h"
#include "self.h"
#include "ullage/pool.h"
#include "watch.h"

enum {
    LOOKS = 10,           /* of which the least counts: a second */
    TICK_NS = 100000000,  /* between looks, */
    SLOW_NS = 1000000000, /* and where nobody listens */
    PATIENCE_NS =
        1500000000, /* for the device to be done with it; who asked waits for an answer for 2 s */
    STACK_BYTES = 512 * 1024 /* of the thread: trimming goes through the driver */
};

struct entry {
    struct ull_pool *pool;
    int device; /* as the ledger counts */
    uint64_t look[LOOKS], looks;
    struct entry *next;
};

/* One thread with its pools. */
struct offer {
    struct ull__idle *idle;
    struct entry *entries;
    pthread_t thread;
    bool stop;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offer *current; /* with pools; NULL: none */

/* --- the thread ------------------------------------------------------------------------------------------- */

static uint64_t idle_of(struct entry *entry)
{
    uint64_t idle = 0, least = UINT64_MAX;
    if (ull__pool_idle(entry->pool, &idle))
        entry->look[entry->looks++ % LOOKS] = idle;
    if (entry->looks < LOOKS)
        return 0; /* not known for long enough */
    for (int i = 0; i < LOOKS; i++)
        least = entry->look[i] < least ? entry->look[i] : least;
    return least;
}

static void say_all(const struct offer *offer)
{
    uint64_t idle[ULL_MAX_DEVICES] = {0};
    for (struct entry *e = offer->entries; e; e = e->next)
        idle[e->device] += idle_of(e);
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        ull__idle_say(offer->idle, d, idle[d]);
}

static void trim(const struct offer *offer, int device, uint64_t bytes)
{
    for (struct entry *e = offer->entries; e && bytes > 0; e = e->next) {
        if (e->device != device)
            continue;
        uint64_t returned = ull__pool_give(e->pool, bytes, PATIENCE_NS);
        for (int i = 0; i < LOOKS; i++)
            e->look[i] = e->look[i] > returned ? e->look[i] - returned : 0;
        bytes = bytes > returned ? bytes - returned : 0;
    }
}

/* What is said is brought up to date before the answer, which is what the daemon waits for. */
static void look(const struct offer *offer)
{
    bool asked[ULL_MAX_DEVICES];
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        uint64_t bytes = ull__idle_asked(offer->idle, d);
        asked[d] = bytes > 0;
        trim(offer, d, bytes);
    }
    say_all(offer);
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        if (asked[d])
            ull__idle_answer(offer->idle, d);
}

static void *run(void *data)
{
    struct offer *offer = data;
    prctl(PR_SET_NAME, "ullage-idle", 0, 0, 0);
    for (;;) {
        uint32_t bell =
            ull__idle_bell(offer->idle); /* before the look: what comes after it ends the sleep */
        pthread_mutex_lock(&lock);
        bool stop = offer->stop;
        if (!stop)
            look(offer);
        pthread_mutex_unlock(&lock);
        if (stop)
            return NULL;
        ull__idle_wait(offer->idle, bell, ull__idle_served(offer->idle) ? TICK_NS : SLOW_NS);
    }
}

/* Signals are the program's. */
static bool start_thread(struct offer *offer)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* this thread's mask; the new one inherits it */
    int failed = pthread_create(&offer->thread, &attributes, run, offer);
    sigprocmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return failed == 0;
}

/* --- pools come and go ------------------------------------------------------------------------------------ */

static int ledger_device(const struct ull__idle *idle, const uint8_t b[16])
{
    static const char *const prefixes[] = {"GPU-", "MIG-"};
    for (int p = 0; p < 2; p++) {
        char uuid[ULL_UUID_TEXT];
        snprintf(uuid, sizeof uuid,
                 "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 prefixes[p], b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
                 b[11], b[12], b[13], b[14], b[15]);
        int device = ull__idle_device(idle, uuid);
        if (device >= 0)
            return device;
    }
    return -1;
}

static struct offer *open_offer(void)
{
    const char *job = getenv("ULLAGE_JOB");
    struct offer *offer = job && job[0] ? calloc(1, sizeof *offer) : NULL;
    if (offer && ull__idle_open(job, (uint32_t)getpid(), ull__own_start_ticks(), &offer->idle,
                                NULL) != ULL_OK) {
        free(offer);
        return NULL;
    }
    return offer;
}

static void close_offer(struct offer *offer)
{
    ull__idle_close(offer->idle);
    free(offer);
}

/* Under the lock. Where anything fails, the pool is not offered, and that is all. */
static void add(struct ull_pool *pool, const struct ull__device *device)
{
    struct offer *offer = current ? current : open_offer();
    int number = offer ? ledger_device(offer->idle, device->uuid) : -1;
    struct entry *entry = number >= 0 ? calloc(1, sizeof *entry) : NULL;
    if (entry) {
        entry->pool = pool;
        entry->device = number;
        entry->next = offer->entries;
        offer->entries = entry;
        if (current || start_thread(offer)) {
            current = offer;
            return;
        }
        free(entry);
    }
    if (offer && offer != current)
        close_offer(offer);
}

/* Under the lock. Returns the offer whose last pool that was. */
static struct offer *take_out(const struct ull_pool *pool)
{
    struct offer *offer = current;
    for (struct entry **at = offer ? &offer->entries : NULL; at && *at; at = &(*at)->next) {
        struct entry *entry = *at;
        if (entry->pool != pool)
            continue;
        *at = entry->next;
        free(entry);
        if (offer->entries)
            return NULL;
        offer->stop = true;
        current = NULL;
        return offer;
    }
    return NULL;
}

static void told(struct ull_pool *pool, bool made)
{
    const struct ull__device *device = ull__pool_device(pool);
    struct offer *ended = NULL;
    if (!device || !device->has_uuid) /* memory of the host, or nothing to tell a card by */
        return;
    pthread_mutex_lock(&lock);
    if (made)
        add(pool, device);
    else
        ended = take_out(pool);
    pthread_mutex_unlock(&lock);
    if (!ended)
        return;
    ull__idle_ring(ended->idle);
    pthread_join(ended->thread, NULL);
    close_offer(ended);
}

/* The child has neither the thread nor, perhaps, who held the lock. What was the parent's is left alone. */
static void in_the_child(void)
{
    pthread_mutex_init(&lock, NULL);
    current = NULL;
}

void ull__offer_begin(void)
{
    static _Atomic bool begun;
    if (!atomic_exchange(&begun, true))
        pthread_atfork(NULL, NULL, in_the_child);
    ull__pool_watch(told);
}
