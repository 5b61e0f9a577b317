/*
 * recover.c: what becomes of a process that died.
 *
 * The kernel frees the slot's mutex when the parked thread dies, by whatever death. Whoever takes it
 * next marks the slot as draining, decides the change that was under way once no thread of the dead
 * process can be making it any more (`changing`). The bytes stay charged until the driver has freed
 * them: on an H200 that was 70 to 105 ms after a SIGKILL, and the driver stopped listing the process
 * at the same moment. Named memory passes then to those who still have it open.
 *
 * A recovery may itself be cut off at any instruction. Every step can be done again, and every sweep
 * does all of them again for a slot that it finds draining: the one before may have been cut off.
 */
#include "layout.h"

#include <errno.h>
#include <string.h>
#include <time.h>

uint64_t ull__monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void ull__robust_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

static bool taken(pthread_mutex_t *mutex, int result, bool *died)
{
    *died = result == EOWNERDEAD;
    if (*died)
        pthread_mutex_consistent(mutex);
    return result == 0 || *died;
}

bool ull__robust_trylock(pthread_mutex_t *mutex, bool *died)
{
    return taken(mutex, pthread_mutex_trylock(mutex), died);
}

bool ull__robust_lock_soon(pthread_mutex_t *mutex)
{
    bool died;
    if (ull__robust_trylock(mutex, &died))
        return true;
    struct timespec until; /* the C library's floor has no lock that takes CLOCK_MONOTONIC */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    return taken(mutex, pthread_mutex_timedlock(mutex, &until), &died);
}

int ull__assume_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used_bytes)
{
    (void)data, (void)uuid, (void)driver_pid, (void)used_bytes;
    return 1;
}

/* Under the driver's pid, or our own: after an exec the driver's is known only with the first context. */
static bool another_lives_with(struct ull__ledger_file *file, int except, uint32_t driver_pid)
{
    uint32_t pid = atomic_load(&file->slots[except].pid);
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++)
        if (i != except && atomic_load(&file->slots[i].state) == SLOT_LIVE &&
            (atomic_load(&file->slots[i].driver_pid) == driver_pid ||
             atomic_load(&file->slots[i].pid) == pid))
            return true;
    return false;
}

/*
 * Has the driver freed what the process had on this device? A pid that is listed although another
 * process of the job lives under it was reused, or has executed another program: then, and where
 * nobody can say, time decides.
 */
static bool freed_by_driver(struct ull__ledger_file *file, int number, int device,
                            ull__listed_fn *listed, void *data)
{
    struct ull__slot *slot = &file->slots[number];
    uint64_t since = ull__monotonic_ns() - atomic_load(&slot->death_ns);
    uint32_t pid = atomic_load(&slot->driver_pid);
    if (pid == 0 || !listed)
        return since >= ULL_DRAIN_GRACE_NS;
    int answer = listed(data, file->spec.devices[device].uuid, pid, NULL);
    if (answer == 0)
        return true;
    if (answer < 0 || another_lives_with(file, number, pid))
        return since >= ULL_DRAIN_GRACE_NS;
    /* Still listed with nobody of ours behind it: freed late, or the pid went to a stranger. */
    return since >= 30 * ULL_DRAIN_GRACE_NS;
}

/* What the slot must still give back: not what has passed to heirs, but what it is an heir to. */
static uint64_t own_of_class(struct ull__ledger_file *file, int number, int device, int class)
{
    uint64_t held = atomic_load(&file->slots[number].devices[device].held[class]);
    uint64_t passed = ull__share_passed(file, number, device, (enum ull__class) class);
    return held > passed ? held - passed : 0;
}

static uint64_t held_on(struct ull__ledger_file *file, int number, int device)
{
    uint64_t held = 0;
    for (int c = 0; c < ULL_CLASSES; c++)
        held += own_of_class(file, number, device, c) +
                ull__share_inherited(file, number, device, (enum ull__class)c);
    return held;
}

static void give_back(struct ull__ledger_file *file, int number, int device)
{
    for (int c = 0; c < ULL_CLASSES; c++) {
        uint64_t own = own_of_class(file, number, device, c);
        struct ull__change change = {.slot = number,
                                     .device = device,
                                     .account = atomic_load(&file->slots[number].account),
                                     .class = (enum ull__class)c,
                                     .total_delta = -(int64_t)own,
                                     .held_delta = -(int64_t)own};
        if (own)
            ull__change_apply(file, &change);
    }
}

static void end_slot(struct ull__ledger_file *file, int number)
{
    struct ull__slot *slot = &file->slots[number];
    /* Books first: what is left in them now has passed to others, as the entries still say. */
    for (int d = 0; d < file->spec.device_count; d++) {
        struct ull__slot_device *books = &slot->devices[d];
        for (int c = 0; c < ULL_CLASSES; c++) {
            atomic_store(&books->held[c], 0);
            atomic_store(&books->peak_by_class[c], 0);
        }
        atomic_store(&books->peak, 0);
        atomic_store(&books->grants, 0);
        atomic_store(&books->hidden, 0);
    }
    if (!ull__share_slot_ends(file, number))
        return; /* still draining; the next sweep goes on */
    atomic_store(&slot->driver_pid, 0);
    atomic_store(&slot->measured, 0);
    atomic_store(&slot->unsurvived, 0);
    atomic_store(&slot->state, SLOT_FREE);
}

/*
 * The slot's mutex is held, so its process is dying or dead. Takes `changing` too, which a thread of
 * that process may still hold for the moment that it has left to live. One that the kernel does not
 * know to hold it (a raw-forked process without a robust list) would hold it for ever: time decides.
 */
static bool lock_changing(struct ull__slot *slot)
{
    bool died;
    if (ull__robust_trylock(&slot->changing, &died))
        return true;
    if (ull__monotonic_ns() - atomic_load(&slot->death_ns) < ULL_DRAIN_GRACE_NS)
        return false;
    ull__robust_init(&slot->changing);
    return ull__robust_trylock(&slot->changing, &died);
}

/* Both mutexes of the slot are held. */
static void drain(struct ull__ledger_file *file, int number, ull__listed_fn *listed, void *data)
{
    for (int d = 0; d < file->spec.device_count; d++)
        ull__change_recover(file, number, d);
    uint32_t freed = 0;
    for (int d = 0; d < file->spec.device_count; d++)
        if (held_on(file, number, d) == 0 || freed_by_driver(file, number, d, listed, data))
            freed |= 1u << d;
    /* Until then the dead process has its memory open too, whatever its heirs do. */
    if (!ull__share_owner_died(file, number, freed))
        return;
    for (int d = 0; d < file->spec.device_count; d++)
        if (freed >> d & 1)
            give_back(file, number, d);
    if (freed == (1u << file->spec.device_count) - 1)
        end_slot(file, number);
}

void ull__sweep_file(struct ull__ledger_file *file, ull__listed_fn *listed, void *data)
{
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++) {
        struct ull__slot *slot = &file->slots[i];
        bool died;
        if (atomic_load(&slot->state) == SLOT_FREE || !ull__robust_trylock(&slot->owner, &died))
            continue;
        if (atomic_load(&slot->state) == SLOT_LIVE) {
            atomic_store(&slot->death_ns, ull__monotonic_ns());
            atomic_store(&slot->state, SLOT_DRAINING);
        }
        if (atomic_load(&slot->state) == SLOT_DRAINING && lock_changing(slot)) {
            drain(file, i, listed, data);
            pthread_mutex_unlock(&slot->changing);
        }
        pthread_mutex_unlock(&slot->owner);
    }
}

void ull__ledger_sweep(struct ull__ledger *ledger, ull__listed_fn *listed, void *data)
{
    if (!ledger->copy)
        ull__sweep_file(ledger->file, listed, data);
}
