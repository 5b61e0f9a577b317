/*
 * spill.c: the job's second account, for host memory that stands in for memory of its devices (`run --spill`).
 *
 * Each place has its own count, and what the job has spilled is the sum over all places that are in use. So
 * there is no total that could be wrong after a kill: a dead process's part ends with its place. Who adds does
 * so under a lock, held for as long as the sum takes; taking away needs none. In the same way: what its processes
 * pin of the host's memory (`run --pinned`). That is a limit of the job's own, which jobs around it only see.
 */
#include "layout.h"
#include "member_private.h"

static uint64_t sum_of(struct ull__ledger_file *file)
{
    uint64_t sum = 0;
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++)
        for (int d = 0;
             d < file->spec.device_count && atomic_load(&file->slots[i].state) != SLOT_FREE; d++)
            sum += atomic_load(&file->slots[i].devices[d].spilled);
    return sum;
}

static bool add(const struct ull__link *link, int device, uint64_t bytes)
{
    struct ull__ledger_file *file = link->ledger->file;
    uint64_t most = file->spec.spill_bytes;
    int d = link->device_of[device];
    if (d < 0 || bytes > most || !ull__robust_lock_soon(&file->spill_lock))
        return false;
    uint64_t sum = sum_of(file);
    bool fits = sum <= most - bytes && ull__link_owns(link);
    if (fits)
        atomic_fetch_add(&file->slots[link->slot].devices[d].spilled, bytes);
    if (fits && sum + bytes > atomic_load(&file->spilled_peak))
        atomic_store(&file->spilled_peak, sum + bytes);
    pthread_mutex_unlock(&file->spill_lock);
    return fits;
}

static void take_away(const struct ull__link *link, int device, uint64_t bytes)
{
    int d = link->device_of[device];
    if (d < 0 || !ull__link_owns(link))
        return;
    _Atomic uint64_t *spilled = &link->ledger->file->slots[link->slot].devices[d].spilled;
    uint64_t seen = atomic_load(spilled);
    while (!atomic_compare_exchange_weak(spilled, &seen, seen > bytes ? seen - bytes : 0))
        ;
}

bool ull__member_spill(struct ull__member *member, int device, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        if (add(&member->links[k], device, bytes))
            continue;
        while (--k >= 0)
            take_away(&member->links[k], device, bytes);
        return false;
    }
    return true;
}

void ull__member_unspill(struct ull__member *member, int device, uint64_t bytes)
{
    for (int k = 0; bytes && k < member->link_count; k++)
        take_away(&member->links[k], device, bytes);
}

/* --- pinned ahead ----------------------------------------------------------------------------------------------- */

static uint64_t pinned_of(struct ull__ledger_file *file)
{
    uint64_t sum = 0;
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++)
        if (atomic_load(&file->slots[i].state) == SLOT_LIVE)
            sum += atomic_load(&file->slots[i].pinned);
    return sum;
}

bool ull__member_may_pin(struct ull__member *member, uint64_t bytes)
{
    struct ull__ledger_file *file = member->links[0].ledger->file;
    uint64_t most = file->spec.pinned_bytes, sum = pinned_of(file);
    return bytes <= most && sum <= most - bytes;
}

bool ull__member_pin(struct ull__member *member, uint64_t bytes)
{
    struct ull__ledger_file *file = member->links[0].ledger->file;
    if (!ull__robust_lock_soon(&file->spill_lock))
        return false;
    bool fits = ull__link_owns(&member->links[0]) && ull__member_may_pin(member, bytes);
    if (fits)
        atomic_fetch_add(&file->slots[member->links[0].slot].pinned, bytes);
    pthread_mutex_unlock(&file->spill_lock);
    for (int k = 1; fits && k < member->link_count; k++)
        if (ull__link_owns(&member->links[k]))
            atomic_fetch_add(&member->links[k].ledger->file->slots[member->links[k].slot].pinned,
                             bytes);
    return fits;
}

void ull__member_unpin(struct ull__member *member, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        const struct ull__link *link = &member->links[k];
        _Atomic uint64_t *pinned = &link->ledger->file->slots[link->slot].pinned;
        uint64_t seen = atomic_load(pinned);
        while (ull__link_owns(link) &&
               !atomic_compare_exchange_weak(pinned, &seen, seen > bytes ? seen - bytes : 0))
            ;
    }
}
