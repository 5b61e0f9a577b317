/*
 * join.c: how a process gets its place in the ledgers of its job and of those around it.
 *
 * The slot's mutex is taken by the thread that joins and never released by it: the kernel does that
 * when the thread dies with its process, or when the process executes another program. A process that
 * was forked without exec has the mutex's memory but not the thread, so it does not own the slot; it
 * joins anew (the interposer sees to that).
 */
#include "member_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "error.h"

enum { NAME_TRIES = 50, NAME_TRY_NS = 10000000 }; /* the supervisor looks ten times a second */

static void note_slot_used(struct ull__ledger_file *file, uint32_t count)
{
    uint32_t used = atomic_load(&file->slots_used);
    while (used < count && !atomic_compare_exchange_weak(&file->slots_used, &used, count))
        ;
}

static void fill_slot(struct ull__slot *slot, const struct ull__identity *identity, uint32_t account)
{
    memcpy(slot->command, identity->command, sizeof slot->command);
    slot->command[sizeof slot->command - 1] = '\0';
    atomic_store(&slot->pid, identity->pid);
    atomic_store(&slot->start_ticks, identity->start_ticks);
    atomic_store(&slot->driver_pid, 0);
    atomic_store(&slot->account, account);
    atomic_store(&slot->settle_served, atomic_load(&slot->settle_asked));
    atomic_store(&slot->settle_missed, 0);
    ull__slot_forget_residency(slot);
    atomic_fetch_add(&slot->generation, 1);
    atomic_store(&slot->state, SLOT_LIVE); /* last: until then a death leaves a free slot */
}

static bool claim_slot(struct ull__ledger_file *file, const struct ull__identity *identity,
                       uint32_t account, struct ull__link *link)
{
    for (int i = 0; i < ULL_MAX_SLOTS; i++) {
        struct ull__slot *slot = &file->slots[i];
        bool died;
        if (atomic_load(&slot->state) != SLOT_FREE || !ull__robust_trylock(&slot->owner, &died))
            continue;
        if (atomic_load(&slot->state) != SLOT_FREE) {
            pthread_mutex_unlock(&slot->owner);
            continue;
        }
        note_slot_used(file, (uint32_t)i + 1);
        fill_slot(slot, identity, account);
        link->slot = i;
        link->generation = atomic_load(&slot->generation);
        return true;
    }
    return false;
}

/* Nobody is in it and nothing is held in it. Under accounts_lock, so that nobody comes in. */
static bool account_is_empty(struct ull__ledger_file *file, uint32_t number)
{
    for (int d = 0; d < file->spec.device_count; d++)
        if (atomic_load(&file->accounts[number].devices[d].cell.total) != 0)
            return false;
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++)
        if (atomic_load(&file->slots[i].state) != SLOT_FREE &&
            atomic_load(&file->slots[i].account) == number)
            return false;
    return true;
}

/* Gives the account to a root. What it saw under the last one goes; its cells' tags stay valid. */
static void give_account(struct ull__account *account, const struct ull__identity *identity)
{
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        struct ull__account_device *device = &account->devices[d];
        atomic_store(&device->peak, 0);
        for (int c = 0; c < ULL_CLASSES; c++)
            atomic_store(&device->peak_by_class[c], 0);
        atomic_store(&device->first_largest, 0);
        atomic_store(&device->sampled_ns, 0);
        atomic_store(&device->sampled_kib_ms, 0);
    }
    atomic_store(&account->root_ticks, identity->account_root_ticks);
    atomic_store(&account->root_pid, identity->account_root);
}

static bool is_root_of(struct ull__account *account, const struct ull__identity *identity)
{
    uint64_t ticks = atomic_load(&account->root_ticks);
    return atomic_load(&account->root_pid) == identity->account_root &&
           (ticks == identity->account_root_ticks || ticks == 0 || identity->account_root_ticks == 0);
}

/*
 * The account of the direct child that this process descends from. An account is kept for its root as
 * long as there are unused ones, so that its peak can be reported; then one that nobody is in and
 * that holds nothing changes hands. Whether its root still lives does not matter: it finds another.
 * Under accounts_lock.
 */
static uint32_t find_account(struct ull__ledger_file *file, const struct ull__identity *identity)
{
    uint32_t unused = 0;
    for (uint32_t a = 1; a < ULL_MAX_ACCOUNTS; a++) {
        if (is_root_of(&file->accounts[a], identity))
            return a;
        if (unused == 0 && atomic_load(&file->accounts[a].root_pid) == 0)
            unused = a;
    }
    for (uint32_t a = 1; unused == 0 && a < ULL_MAX_ACCOUNTS; a++)
        if (account_is_empty(file, a))
            unused = a;
    if (unused)
        give_account(&file->accounts[unused], identity);
    return unused; /* 0, all in use: it shares the command's own budget, which is safe */
}

/* One try. With --each the account stays found until the slot says that somebody is in it. */
static bool take_place(struct ull__ledger_file *file, const struct ull__identity *identity,
                       struct ull__link *link)
{
    if (!file->spec.each || identity->account_root == 0 ||
        !ull__robust_lock_soon(&file->accounts_lock))
        return claim_slot(file, identity, 0, link);
    bool claimed = claim_slot(file, identity, find_account(file, identity), link);
    pthread_mutex_unlock(&file->accounts_lock);
    return claimed;
}

static ull_status join_one(const char *path, const struct ull__identity *identity,
                           struct ull__link *link, struct ull_error *err)
{
    ull_status status = ull__ledger_open(path, &link->ledger, err);
    for (int i = 0; i < NAME_TRIES && status == ULL_E_NOT_FOUND; i++) { /* its name may come back */
        nanosleep(&(struct timespec){.tv_nsec = NAME_TRY_NS}, NULL);
        status = ull__ledger_open(path, &link->ledger, err);
    }
    if (status != ULL_OK)
        return status;
    struct ull__ledger_file *file = link->ledger->file;
    /* More than one try: somebody may hold a free place's mutex for the moment in which he looks. */
    for (int attempt = 0; attempt < 4; attempt++) {
        if (take_place(file, identity, link)) {
            link->ledger->pinned = true;
            return ULL_OK;
        }
        ull__sweep_file(file, ull__assume_listed, NULL);
        if (attempt > 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    ull__ledger_close(link->ledger);
    return ull__fail(err, ULL_E_FULL,
                     "the job's ledger %s has places for %d processes, and all are taken", path,
                     ULL_MAX_SLOTS);
}

/* Gives up places that were taken a moment ago, by the thread that took them. */
static void leave(struct ull__member *member)
{
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__slot *slot = &link->ledger->file->slots[link->slot];
        atomic_store(&slot->state, SLOT_FREE);
        pthread_mutex_unlock(&slot->owner);
        link->ledger->pinned = false;
        ull__ledger_close(link->ledger);
    }
}

static void map_devices(const struct ull__link *inner, struct ull__link *link)
{
    const struct ull__job_spec *from = &inner->ledger->file->spec;
    const struct ull__job_spec *to = &link->ledger->file->spec;
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        link->device_of[d] = -1;
        for (int e = 0; d < from->device_count && e < to->device_count; e++)
            if (strcmp(from->devices[d].uuid, to->devices[e].uuid) == 0)
                link->device_of[d] = e;
    }
}

ull_status ull__member_join(const char *path, const struct ull__identity *identity,
                            struct ull__member **out, struct ull_error *err)
{
    if (!path[0])
        return ull__fail(err, ULL_E_NOT_FOUND, "the path of the job's ledger is empty");
    struct ull__member *member = calloc(1, sizeof *member);
    if (!member)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to join the ledger %s", path);
    ull_status status = ULL_OK;
    struct ull__identity relative = *identity;
    while (path[0] && status == ULL_OK) {
        struct ull__link *link = &member->links[member->link_count];
        if (member->link_count == ULL_MAX_CHAIN) {
            /* A job around that is not joined would be a budget that does not hold. */
            status = ull__fail(err, ULL_E_FULL, "jobs are nested more than %d deep, at %s",
                               ULL_MAX_CHAIN, path);
            break;
        }
        status = join_one(path, &relative, link, err);
        if (status != ULL_OK)
            break;
        member->link_count++;
        map_devices(&member->links[0], link);
        if (link->ledger->file->spec.each) {
            /* To a job around it, all that this job's children hold is one child's: its `run`. */
            relative.account_root = link->ledger->file->supervisor_pid;
            relative.account_root_ticks = 0;
        }
        path = link->ledger->file->spec.parent;
    }
    if (status != ULL_OK) {
        leave(member);
        free(member);
        return status;
    }
    *out = member;
    return ULL_OK;
}
