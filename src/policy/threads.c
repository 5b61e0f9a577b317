/*
 * threads.c: could another thread free? A thread whose request is short waits only while one could:
 * one that has called the group, has not ended, and does not wait itself. If all the others wait, the
 * last one to come does not, so that somebody always goes on; when a thread ends, the waiting ones look
 * again.
 *
 * Ends are seen by the destructor of a thread-specific value. A thread that will free what others give
 * it and has never called yet is not known: ull_retry_announce_thread is for that. In a forked child the
 * parent's threads are forgotten.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "policy_private.h"

enum { CACHE = 8, SLICE_NS = 50000000 };

struct ull__threads {
    struct ull__threads *next; /* in all.list */
    uint64_t id;               /* never used again, so that a thread's cache cannot be mistaken */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t process;
    pid_t *list; /* those that are counted */
    size_t count, capacity;
    _Atomic size_t waiting;
    _Atomic uint64_t frees;
};

static struct {
    pthread_mutex_t lock; /* taken before the lock of one of the list */
    struct ull__threads *list;
    uint64_t last_id;
    pthread_once_t once;
    pthread_key_t at_end;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* The groups in which this thread is counted, as far as they fit. */
static _Thread_local uint64_t noted[CACHE];

static void forget_thread(struct ull__threads *threads, pid_t thread)
{
    pthread_mutex_lock(&threads->lock);
    for (size_t i = 0; i < threads->count; i++) {
        if (threads->list[i] == thread) {
            threads->list[i] = threads->list[--threads->count];
            pthread_cond_broadcast(&threads->changed);
            break;
        }
    }
    pthread_mutex_unlock(&threads->lock);
}

static void thread_ends(void *value)
{
    (void)value;
    for (int i = 0; i < CACHE; i++)
        noted[i] = 0;
    pthread_mutex_lock(&all.lock);
    for (struct ull__threads *t = all.list; t; t = t->next)
        forget_thread(t, (pid_t)syscall(SYS_gettid));
    pthread_mutex_unlock(&all.lock);
}

static void make_key(void)
{
    pthread_key_create(&all.at_end, thread_ends);
}

struct ull__threads *ull__threads_create(void)
{
    struct ull__threads *threads = calloc(1, sizeof *threads);
    if (!threads)
        return NULL;
    pthread_once(&all.once, make_key);
    pthread_mutex_init(&threads->lock, NULL);
    ull__condition_init(&threads->changed);
    threads->process = getpid();
    pthread_mutex_lock(&all.lock);
    threads->id = ++all.last_id;
    threads->next = all.list;
    all.list = threads;
    pthread_mutex_unlock(&all.lock);
    return threads;
}

void ull__threads_destroy(struct ull__threads *threads)
{
    if (!threads)
        return;
    pthread_mutex_lock(&all.lock);
    struct ull__threads **at = &all.list;
    while (*at != threads)
        at = &(*at)->next;
    *at = threads->next;
    pthread_mutex_unlock(&all.lock);
    pthread_mutex_destroy(&threads->lock);
    pthread_cond_destroy(&threads->changed);
    free(threads->list);
    free(threads);
}

/* Pre: the lock is held. Without host memory the thread stays uncounted: others wait less, that is all. */
static void count_self(struct ull__threads *threads)
{
    pid_t self = (pid_t)syscall(SYS_gettid);
    if (threads->process != getpid()) {
        threads->process = getpid();
        threads->count = 0;
    }
    for (size_t i = 0; i < threads->count; i++) {
        if (threads->list[i] == self)
            return;
    }
    if (threads->count == threads->capacity) {
        size_t capacity = threads->capacity ? threads->capacity * 2 : 16;
        pid_t *list = realloc(threads->list, capacity * sizeof *list);
        if (!list)
            return;
        threads->list = list;
        threads->capacity = capacity;
    }
    threads->list[threads->count++] = self;
    pthread_setspecific(all.at_end, &all);
}

void ull__threads_note(struct ull__threads *threads)
{
    if (noted[threads->id % CACHE] == threads->id)
        return;
    pthread_mutex_lock(&threads->lock);
    count_self(threads);
    pthread_mutex_unlock(&threads->lock);
    noted[threads->id % CACHE] = threads->id;
}

uint64_t ull__threads_frees(struct ull__threads *threads)
{
    return atomic_load(&threads->frees);
}

void ull__threads_freed(struct ull__threads *threads)
{
    atomic_fetch_add(&threads->frees, 1);
    /* A thread counts itself as waiting before it looks at frees: one of the two sees the other. */
    if (atomic_load(&threads->waiting) == 0)
        return;
    pthread_mutex_lock(&threads->lock);
    pthread_cond_broadcast(&threads->changed);
    pthread_mutex_unlock(&threads->lock);
}

bool ull__threads_wait(struct ull__threads *threads, uint64_t seen, uint64_t deadline_ns, bool *alone)
{
    bool again = false;
    *alone = false;
    pthread_mutex_lock(&threads->lock);
    count_self(threads);
    atomic_fetch_add(&threads->waiting, 1);
    uint64_t now = ull__policy_now(), slice = now + SLICE_NS;
    for (;; now = ull__policy_now()) {
        again = atomic_load(&threads->frees) != seen;
        *alone = !again && threads->count <= atomic_load(&threads->waiting);
        if (again || *alone || now >= deadline_ns)
            break;
        /* Memory can come free below the group too, where nobody tells: try again now and then. */
        if (now >= slice) {
            again = true;
            break;
        }
        ull__condition_wait(&threads->changed, &threads->lock,
                            slice < deadline_ns ? slice : deadline_ns);
    }
    atomic_fetch_sub(&threads->waiting, 1);
    pthread_mutex_unlock(&threads->lock);
    return again;
}
