/*
 * recover.c: what becomes of a process that died.
 *
 * The kernel frees the slot's mutex when the parked thread dies, by whatever death. Whoever takes it
 * next decides the change that was under way, passes named memory to those who have it open, and
 * marks the slot as draining. Its bytes stay charged until the driver has freed them: on an H200 that
 * was 70 to 105 ms after a SIGKILL, and the driver stopped listing the process at the same moment.
 *
 * A recovery may itself be cut off at any instruction. Every step can be done again: the mutex is
 * then found dead once more, and the next one starts over.
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

bool ull__robust_trylock(pthread_mutex_t *mutex, bool *died)
{
    int result = pthread_mutex_trylock(mutex);
    *died = result == EOWNERDEAD;
    if (*died)
        pthread_mutex_consistent(mutex);
    return result == 0 || *died;
}

static bool another_lives_with(struct ull__ledger_file *file, int except, uint32_t driver_pid)
{
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++)
        if (i != except && atomic_load(&file->slots[i].state) == SLOT_LIVE &&
            atomic_load(&file->slots[i].driver_pid) == driver_pid)
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

static uint64_t held_on(struct ull__ledger_file *file, int number, int device)
{
    uint64_t held = 0;
    for (int c = 0; c < ULL_CLASSES; c++)
        held += atomic_load(&file->slots[number].devices[device].held[c]) +
                ull__share_inherited(file, number, device, (enum ull__class)c);
    return held;
}

/* The mutex of the slot is held. */
static void begin_draining(struct ull__ledger_file *file, int number)
{
    struct ull__slot *slot = &file->slots[number];
    for (int d = 0; d < file->spec.device_count; d++)
        ull__change_recover(file, number, d);
    ull__share_owner_died(file, number);
    if (atomic_load(&slot->state) == SLOT_LIVE) {
        atomic_store(&slot->death_ns, ull__monotonic_ns());
        atomic_store(&slot->state, SLOT_DRAINING);
    }
}

static void give_back(struct ull__ledger_file *file, int number, int device)
{
    for (int c = 0; c < ULL_CLASSES; c++) {
        uint64_t held = atomic_load(&file->slots[number].devices[device].held[c]);
        uint64_t passed = ull__share_passed(file, number, device, (enum ull__class)c);
        if (held > passed) {
            struct ull__change change = {.slot = number,
                                         .device = device,
                                         .class = (enum ull__class)c,
                                         .total_delta = -(int64_t)(held - passed),
                                         .held_delta = -(int64_t)(held - passed)};
            ull__change_apply(file, &change);
        }
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
    }
    ull__share_slot_ends(file, number);
    atomic_store(&slot->driver_pid, 0);
    atomic_store(&slot->measured, 0);
    atomic_store(&slot->unsurvived, 0);
    atomic_store(&slot->state, SLOT_FREE);
}

void ull__sweep_file(struct ull__ledger_file *file, ull__listed_fn *listed, void *data)
{
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++) {
        struct ull__slot *slot = &file->slots[i];
        bool died;
        if (atomic_load(&slot->state) == SLOT_FREE || !ull__robust_trylock(&slot->owner, &died))
            continue;
        if (died || atomic_load(&slot->state) == SLOT_LIVE)
            begin_draining(file, i);
        if (atomic_load(&slot->state) == SLOT_DRAINING) {
            bool empty = true;
            for (int d = 0; d < file->spec.device_count; d++) {
                if (held_on(file, i, d) == 0)
                    continue;
                if (freed_by_driver(file, i, d, listed, data))
                    give_back(file, i, d);
                else
                    empty = false;
            }
            if (empty)
                end_slot(file, i);
        }
        pthread_mutex_unlock(&slot->owner);
    }
}

void ull__ledger_sweep(struct ull__ledger *ledger, ull__listed_fn *listed, void *data)
{
    ull__sweep_file(ledger->file, listed, data);
}
