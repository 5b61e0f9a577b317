/*
 * rest.c: bringing a process's devices to rest, without breaking what it is doing; see suspend.h.
 *
 * The order: wait until no capture is open; close the gate; wait until no call is inside; look again, since a
 * capture may have begun meanwhile; ask every stream that is known, so that the one in the way can be named;
 * then synchronize every context, for the streams that are not known (the default streams of threads). That
 * call may never return, so a thread of its own makes it; if it is late, the gate is opened and the thread left
 * alone until it is back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "suspend.h"
#include "table.h"

#define MS 1000000ull
enum {
    CALLS_MS = 300,    /* for calls that are inside to return */
    STREAMS_MS = 2000, /* for streams to run dry while the gate is closed */
    SYNC_MS = 2000,
    FIRST_PAUSE_MS = 50, /* before the next try; doubles */
    LAST_PAUSE_MS = 2000,
};

static struct {
    pthread_mutex_t lock;
    struct ull__table streams;  /* handle -> context */
    struct ull__table captures; /* handle -> 1 */
} books = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void pause_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000ull),
                                 .tv_nsec = (long)(ns % 1000000000ull)},
              NULL);
}

/* --- streams and captures ------------------------------------------------------------------------------ */

/* The default streams have the handles 0 to 2; keys must not be 0. */
static uint64_t key_of(CUstream stream)
{
    return (uint64_t)(uintptr_t)stream + 1;
}

void ull__stream_made(CUstream stream)
{
    CUcontext context = NULL;
    ull__driver->cuCtxGetCurrent(&context);
    pthread_mutex_lock(&books.lock);
    if (!ull__table_find(&books.streams, key_of(stream)))
        ull__table_add(&books.streams, key_of(stream), (uint64_t)(uintptr_t)context);
    pthread_mutex_unlock(&books.lock);
}

static void forget(struct ull__table *table, CUstream stream)
{
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = ull__table_find(table, key_of(stream));
    if (entry)
        ull__table_remove(table, entry);
    pthread_mutex_unlock(&books.lock);
}

void ull__stream_gone(CUstream stream)
{
    forget(&books.streams, stream);
}

void ull__capture_began(CUstream stream)
{
    pthread_mutex_lock(&books.lock);
    if (!ull__table_find(&books.captures, key_of(stream)))
        ull__table_add(&books.captures, key_of(stream), 1);
    pthread_mutex_unlock(&books.lock);
}

void ull__capture_ended(CUstream stream)
{
    forget(&books.captures, stream);
}

void ull__rest_forget(void)
{
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
    ull__gates_forget();
}

/* Any entry of a table; false if it is empty. */
static bool any(const struct ull__table *table, uint64_t *key)
{
    bool found = false;
    pthread_mutex_lock(&books.lock);
    for (size_t i = 0; i < table->capacity && !found; i++) {
        found = table->entries[i].key != 0;
        *key = table->entries[i].key;
    }
    pthread_mutex_unlock(&books.lock);
    return found;
}

bool ull__capture_is_open(void)
{
    uint64_t key;
    return any(&books.captures, &key);
}

/* --- coming to rest ------------------------------------------------------------------------------------ */

static bool calls_inside(void)
{
    for (int i = 0; i < GATE_LANES; i++)
        if (atomic_load(&ull__gate.lanes[i].inside) != 0)
            return true;
    return false;
}

static bool calls_return(void)
{
    uint64_t until = now_ns() + CALLS_MS * MS;
    while (calls_inside()) {
        if (now_ns() > until)
            return false;
        pause_ns(MS / 10);
    }
    return true;
}

/* A copy of the table, so that no lock is held across a driver call. */
static size_t copy_streams(struct ull__table_entry **copy)
{
    size_t count = 0;
    pthread_mutex_lock(&books.lock);
    *copy = malloc((books.streams.count + 1) * sizeof **copy);
    for (size_t i = 0; *copy && i < books.streams.capacity; i++)
        if (books.streams.entries[i].key)
            (*copy)[count++] = books.streams.entries[i];
    pthread_mutex_unlock(&books.lock);
    return count;
}

static bool stream_is_dry(const struct ull__table_entry *entry, uint64_t until)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    if (ull__driver->cuCtxSetCurrent((CUcontext)(uintptr_t)entry->value) != CUDA_SUCCESS)
        return true; /* its context is gone, and with it the stream */
    for (;;) {
        result = ull__driver->cuStreamQuery((CUstream)(uintptr_t)(entry->key - 1));
        if (result != CUDA_ERROR_NOT_READY || now_ns() > until)
            return result != CUDA_ERROR_NOT_READY;
        pause_ns(MS / 10);
    }
}

/* Within so many milliseconds. */
static bool streams_run_dry(uint64_t ms, char why[ULL_TROUBLE_TEXT])
{
    struct ull__table_entry *streams;
    size_t count = copy_streams(&streams);
    uint64_t until = now_ns() + ms * MS;
    bool dry = true;
    for (size_t i = 0; i < count && dry; i++) {
        dry = stream_is_dry(&streams[i], until);
        if (!dry)
            snprintf(why, ULL_TROUBLE_TEXT, "the work on stream %#llx does not end",
                     (unsigned long long)(streams[i].key - 1));
    }
    free(streams);
    return dry;
}

/* --- synchronizing with a limit of time ----------------------------------------------------------------- */

struct sync {
    pthread_mutex_t lock;
    pthread_cond_t done;
    CUcontext contexts[64];
    int count;
    bool finished;
    _Atomic int users; /* the last one frees it */
};

static void leave(struct sync *sync)
{
    if (atomic_fetch_sub(&sync->users, 1) == 1)
        free(sync);
}

static void *synchronize(void *data)
{
    struct sync *sync = data;
    for (int i = 0; i < sync->count; i++)
        if (ull__driver->cuCtxSetCurrent(sync->contexts[i]) == CUDA_SUCCESS)
            ull__driver->cuCtxSynchronize();
    pthread_mutex_lock(&sync->lock);
    sync->finished = true;
    pthread_cond_signal(&sync->done);
    pthread_mutex_unlock(&sync->lock);
    leave(sync);
    return NULL;
}

static bool wait_finished(struct sync *sync)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SYNC_MS / 1000;
    pthread_mutex_lock(&sync->lock);
    int error = 0;
    while (!sync->finished && error == 0)
        error = pthread_cond_timedwait(&sync->done, &sync->lock, &until);
    bool finished = sync->finished;
    pthread_mutex_unlock(&sync->lock);
    return finished;
}

static bool contexts_are_idle(char why[ULL_TROUBLE_TEXT])
{
    struct sync *sync = calloc(1, sizeof *sync);
    if (!sync) {
        snprintf(why, ULL_TROUBLE_TEXT, "the host has no memory");
        return false;
    }
    pthread_mutex_init(&sync->lock, NULL);
    pthread_cond_init(&sync->done, NULL);
    atomic_store(&sync->users, 2);
    sync->count = ull__block_contexts(sync->contexts, 64);
    if (ull__own_thread(synchronize, sync) != 0) {
        free(sync);
        snprintf(why, ULL_TROUBLE_TEXT, "no thread could be started");
        return false;
    }
    bool idle = wait_finished(sync);
    leave(sync);
    if (!idle)
        snprintf(why, ULL_TROUBLE_TEXT, "the work on the default stream of a thread does not end");
    return idle;
}

static bool says_capture(char why[ULL_TROUBLE_TEXT])
{
    uint64_t key;
    if (!any(&books.captures, &key))
        return false;
    snprintf(why, ULL_TROUBLE_TEXT, "a capture is open on stream %#llx",
             (unsigned long long)(key - 1));
    return true;
}

/* One try: the gate is closed and all is still, or it is open again. */
static bool rest(char why[ULL_TROUBLE_TEXT])
{
    if (says_capture(why))
        return false;
    atomic_store(&ull__gate.closed, 1);
    bool still = calls_return();
    if (!still)
        snprintf(why, ULL_TROUBLE_TEXT, "a call into the driver does not return");
    still = still && !says_capture(why) && streams_run_dry(STREAMS_MS, why) && contexts_are_idle(why);
    if (!still)
        ull__go_on();
    return still;
}

void ull__go_on(void)
{
    ull__gate_open();
}

/* The default streams, which wait for all others that are not told not to. */
static bool defaults_are_dry(char why[ULL_TROUBLE_TEXT])
{
    CUcontext contexts[64];
    int count = ull__block_contexts(contexts, 64);
    for (int i = 0; i < count; i++) {
        if (ull__driver->cuCtxSetCurrent(contexts[i]) != CUDA_SUCCESS ||
            ull__driver->cuStreamQuery(NULL) != CUDA_ERROR_NOT_READY)
            continue;
        snprintf(why, ULL_TROUBLE_TEXT, "the work on the default stream does not end");
        return false;
    }
    return true;
}

bool ull__is_at_rest(char why[ULL_TROUBLE_TEXT])
{
    if (says_capture(why))
        return false;
    if (calls_inside()) {
        snprintf(why, ULL_TROUBLE_TEXT, "a call into the driver does not return");
        return false;
    }
    return streams_run_dry(0, why) && defaults_are_dry(why) && contexts_are_idle(why);
}

bool ull__come_to_rest(uint64_t deadline_ns, bool (*cancelled)(void *data), void *data,
                       char why[ULL_TROUBLE_TEXT])
{
    uint64_t pause = FIRST_PAUSE_MS * MS;
    for (;;) {
        if (rest(why))
            return true;
        for (uint64_t until = now_ns() + pause; now_ns() < until;) {
            if (now_ns() > deadline_ns || cancelled(data))
                return false;
            pause_ns(5 * MS);
        }
        pause = pause * 2 < LAST_PAUSE_MS * MS ? pause * 2 : LAST_PAUSE_MS * MS;
    }
}
