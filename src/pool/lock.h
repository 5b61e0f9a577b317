/*
 * lock.h: the lock of a pool. It is held for some 40 ns, so who wants it looks for a while before he
 * sleeps, and giving it up is a plain store: an exchange there would cost every operation 5 ns. A store
 * may be seen after the look at `sleepers`, so a wake-up can be missed; that is why sleep is limited to
 * 50 us. Not recursive, not fair.
 */
#ifndef ULLAGE_POOL_LOCK_H
#define ULLAGE_POOL_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

/* So often since it was set to 0 that threads are taken to want it all the time. */
enum { ULL_CONTENDED = 16 };

struct ull__lock {
    _Atomic int taken;
    _Atomic int sleepers;           /* not 0: somebody may sleep */
    _Atomic unsigned int contended; /* how often somebody had to wait for it; written under the lock */
    bool patient; /* who waits lets the others do much, if they want it often; never changes */
};

void ull__lock_slowly(struct ull__lock *lock);
void ull__lock_wake(struct ull__lock *lock);

static inline void ull__lock(struct ull__lock *lock)
{
    int expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->taken, &expected, 1, memory_order_acquire,
                                                 memory_order_relaxed)) {
        ull__lock_slowly(lock);
        unsigned int contended = atomic_load_explicit(&lock->contended, memory_order_relaxed);
        atomic_store_explicit(&lock->contended, contended + 1, memory_order_relaxed);
    }
}

/* Without waiting; true: it is taken. */
static inline bool ull__lock_if_free(struct ull__lock *lock)
{
    int expected = 0;
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&lock->taken, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void ull__unlock(struct ull__lock *lock)
{
    atomic_store_explicit(&lock->taken, 0, memory_order_release);
    if (atomic_load_explicit(&lock->sleepers, memory_order_relaxed))
        ull__lock_wake(lock);
}

#endif
