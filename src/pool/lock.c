/* lock.c: see lock.h. Waiting for the lock: a while by looking, then asleep for a while, and again. */
#include "lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pause.h"

/*
 * LOOKS take some 15 us: searches with the lock held take 5, and up to 20 if they map pages. To sleep and be woken takes
 * both threads as long.
 */
enum { LOOKS = 600, SLEEP_NS = 50000, PATIENCE_LOOKS = 100, PATIENCE_NS = 60000 };

static bool try_lock(struct ull__lock *lock)
{
    int expected = 0;
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_weak_explicit(&lock->taken, &expected, 1, memory_order_acquire,
                                                 memory_order_relaxed);
}

/*
 * Where threads want the lock all the time, one that waits for it leaves it alone for some 5 us, and then for 60 us. The
 * others do many operations meanwhile, with all of the pool in their caches, instead of one each in turn; two
 * threads do up to a half more that way, and more the longer it is; but a request may take as long. Nobody wakes it, since that costs a call and makes them take turns again.
 */
static void lock_patiently(struct ull__lock *lock)
{
    const struct timespec limit = {.tv_nsec = PATIENCE_NS};
    while (!try_lock(lock)) {
        for (int i = 0; i < PATIENCE_LOOKS; i++)
            ull__pause();
        if (try_lock(lock))
            return;
        syscall(SYS_futex, &lock->taken, FUTEX_WAIT_PRIVATE, 1, &limit, NULL, 0);
    }
}

void ull__lock_slowly(struct ull__lock *lock)
{
    const struct timespec limit = {.tv_nsec = SLEEP_NS};
    if (lock->patient &&
        atomic_load_explicit(&lock->contended, memory_order_relaxed) >= ULL_CONTENDED) {
        lock_patiently(lock);
        return;
    }
    for (;;) {
        for (int i = 0; i < LOOKS; i++) {
            if (try_lock(lock))
                return;
            ull__pause();
        }
        atomic_store(&lock->sleepers, 1);
        syscall(SYS_futex, &lock->taken, FUTEX_WAIT_PRIVATE, 1, &limit, NULL, 0);
    }
}

/* One call for one sleep: the one who is woken takes a while to come. */
void ull__lock_wake(struct ull__lock *lock)
{
    atomic_store_explicit(&lock->sleepers, 0, memory_order_relaxed);
    syscall(SYS_futex, &lock->taken, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
