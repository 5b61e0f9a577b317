/*
 * policy_private.h: what the adaptors share: report texts, and how many bytes an address stands for.
 */
#ifndef ULLAGE_POLICY_PRIVATE_H
#define ULLAGE_POLICY_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>

#include "ullage/policy.h"

/* The pool's unit: what a request of any size is rounded to. */
enum { ULL_ROUND = 256 };

/* False if it does not fit into 64 bits: then no device has it either. */
static inline bool ull__round(uint64_t bytes, uint64_t *rounded)
{
    *rounded = (bytes + ULL_ROUND - 1) & ~(uint64_t)(ULL_ROUND - 1);
    return *rounded >= bytes;
}

/* Begins a report: who refuses. Clears what an earlier attempt wrote. */
void ull__report_begin(struct ull_report *report, const char *by);
/* Adds to the text, cutting it where it is full. */
void ull__report_add(struct ull_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Addresses and what is known of each. A place is promised before upstream is asked, so that what
 * upstream gave can always be written down. Not thread safe: the owner has a lock.
 */
struct ull__sizes {
    struct ull__size_entry {
        uint64_t address; /* 0: empty */
        uint64_t bytes;
        void *owner;
    } * entries;
    size_t capacity; /* 0 or a power of two */
    size_t count;    /* taken and promised */
};
bool ull__sizes_promise(struct ull__sizes *sizes);
void ull__sizes_unpromise(struct ull__sizes *sizes);
/* Pre: promised. */
void ull__sizes_add(struct ull__sizes *sizes, const struct ull__size_entry *entry);
bool ull__sizes_take(struct ull__sizes *sizes, void *address, struct ull__size_entry *entry);
void ull__sizes_finish(struct ull__sizes *sizes);

/*
 * Things of the program's that can give memory back, in the order of their registration (reliefs.c).
 * Thread safe; none of them runs with a lock held.
 */
struct ull__reliefs {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    uint64_t last_id;
    unsigned int count;
    struct ull__relief {
        uint64_t id;
        const char *name;
        ull_relief_fn call;
        void *context;
        unsigned int running;
    } list[ULL_RELIEFS];
};
void ull__reliefs_init(struct ull__reliefs *reliefs);
void ull__reliefs_finish(struct ull__reliefs *reliefs);
ull_status ull__reliefs_add(struct ull__reliefs *reliefs, const char *name, ull_relief_fn call,
                            void *context);
ull_status ull__reliefs_remove(struct ull__reliefs *reliefs, ull_relief_fn call, void *context);
/* Runs the first one after *id (0: from the start) and sets *id, *name and *returned; false at the end. */
bool ull__reliefs_next(struct ull__reliefs *reliefs, uint64_t wanted, uint64_t *id,
                       const char **name, uint64_t *returned);
/* Is this thread within a relief? Then another shortage must not start all over. */
bool ull__in_relief(void);

/*
 * The threads that call the members of a group, and which of them wait (threads.c). A thread's end is
 * noticed.
 */
struct ull__threads;
struct ull__threads *ull__threads_create(void);
void ull__threads_destroy(struct ull__threads *threads);
/* Counts the calling thread. Cheap when it is counted already. */
void ull__threads_note(struct ull__threads *threads);
/* How often something was freed: take it before the attempt that fails. */
uint64_t ull__threads_frees(struct ull__threads *threads);
void ull__threads_freed(struct ull__threads *threads);
/*
 * Waits until another attempt may do better: something was freed since `seen`, or some time passed.
 * False once the deadline (ull__policy_now) has passed, or if no other thread could free; *alone says
 * which.
 */
bool ull__threads_wait(struct ull__threads *threads, uint64_t seen, uint64_t deadline_ns,
                       bool *alone);

uint64_t ull__policy_now(void);
/* A condition variable on the clock of ull__policy_now. */
void ull__condition_init(pthread_cond_t *condition);
/* Waits for the condition at most until the time. */
void ull__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

#endif
