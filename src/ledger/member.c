/*
 * member.c: a process's place in its ledgers.
 *
 * The slot's mutex is taken by the thread that joins and never released by it: the kernel does that
 * when the thread dies with its process, or when the process executes another program. A process that
 * was forked without exec has the mutex's memory but not the thread, so it does not own the slot; it
 * joins anew (the interposer sees to that).
 */
#include "member_private.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- joining ---------------------------------------------------------------------------------- */

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
    atomic_store(&slot->state, SLOT_LIVE);
}

static int claim_slot(struct ull__ledger_file *file, const struct ull__identity *identity,
                      uint32_t account)
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
        return i;
    }
    return -1;
}

/* With --each: the account of the direct child that this process descends from. */
static uint32_t find_account(struct ull__ledger_file *file, uint32_t root)
{
    if (!file->spec.each || root == 0)
        return 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t a = 1; a < ULL_MAX_ACCOUNTS; a++) {
            uint32_t owner = atomic_load(&file->accounts[a].root_pid);
            if (owner == root)
                return a;
            if (pass == 1 && owner == 0 &&
                atomic_compare_exchange_strong(&file->accounts[a].root_pid, &owner, root))
                return a;
        }
    }
    return 0; /* all in use: it shares the command's own budget, which is safe */
}

static ull_status join_one(const char *path, const struct ull__identity *identity,
                           struct ull__link *link, struct ull_error *err)
{
    ull_status status = ull__ledger_open(path, &link->ledger, err);
    if (status != ULL_OK)
        return status;
    struct ull__ledger_file *file = link->ledger->file;
    uint32_t account = find_account(file, identity->account_root);
    link->slot = claim_slot(file, identity, account);
    if (link->slot < 0) {
        ull__sweep_file(file, NULL, NULL);
        link->slot = claim_slot(file, identity, account);
    }
    if (link->slot >= 0)
        return ULL_OK;
    ull__ledger_close(link->ledger);
    if (err)
        memcpy(err->message, "the job's ledger has no free place", 35);
    return ULL_E_FULL;
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
    struct ull__member *member = calloc(1, sizeof *member);
    if (!member)
        return ULL_E_SYSTEM;
    pthread_mutex_init(&member->lock, NULL);
    ull_status status = ULL_OK;
    while (path[0] && member->link_count < ULL_MAX_CHAIN) {
        struct ull__link *link = &member->links[member->link_count];
        status = join_one(path, identity, link, err);
        if (status != ULL_OK)
            break;
        member->link_count++;
        map_devices(&member->links[0], link);
        path = link->ledger->file->spec.parent;
    }
    if (status != ULL_OK) {
        /* Slots already taken stay with this thread: a process that may not join gets no memory. */
        free(member);
        return status;
    }
    *out = member;
    return ULL_OK;
}

struct ull__ledger *ull__member_ledger(struct ull__member *member)
{
    return member->links[0].ledger;
}

int ull__member_device(struct ull__member *member, const char *uuid)
{
    const struct ull__job_spec *spec = &member->links[0].ledger->file->spec;
    for (int d = 0; d < spec->device_count; d++)
        if (strcmp(spec->devices[d].uuid, uuid) == 0)
            return d;
    return -1;
}

/* --- changes ------------------------------------------------------------------------------------ */

ull_status ull__member_change(struct ull__member *member, int link, const struct ull__change *change)
{
    pthread_mutex_lock(&member->lock);
    ull_status status = ull__change_apply(member->links[link].ledger->file, change);
    pthread_mutex_unlock(&member->lock);
    return status;
}

static ull_status change_link(struct ull__member *member, int k, int device, enum ull__class class,
                              int64_t delta, bool check)
{
    struct ull__link *link = &member->links[k];
    if (link->device_of[device] < 0)
        return check ? ULL_E_NO_MEMORY : ULL_OK; /* the job around has no such device: none to give */
    struct ull__change change = {.slot = link->slot,
                                 .device = link->device_of[device],
                                 .class = class,
                                 .total_delta = delta,
                                 .held_delta = delta,
                                 .check = check};
    return ull__member_change(member, k, &change);
}

ull_status ull__member_reserve(struct ull__member *member, int device, enum ull__class class,
                               uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return ULL_E_NO_MEMORY;
    for (int k = 0; k < member->link_count; k++) {
        ull_status status = change_link(member, k, device, class, (int64_t)bytes, true);
        if (status != ULL_OK) {
            while (--k >= 0)
                change_link(member, k, device, class, -(int64_t)bytes, false);
            return status;
        }
    }
    return ULL_OK;
}

void ull__member_charge(struct ull__member *member, int device, enum ull__class class,
                        uint64_t bytes)
{
    for (int k = 0; bytes && k < member->link_count; k++)
        change_link(member, k, device, class, (int64_t)bytes, false);
}

void ull__member_release(struct ull__member *member, int device, enum ull__class class,
                         uint64_t bytes)
{
    for (int k = 0; bytes && k < member->link_count; k++)
        change_link(member, k, device, class, -(int64_t)bytes, false);
}

uint64_t ull__member_held(struct ull__member *member, int device, enum ull__class class)
{
    const struct ull__link *link = &member->links[0];
    return atomic_load(&link->ledger->file->slots[link->slot].devices[device].held[class]);
}

void ull__member_room(struct ull__member *member, int device, uint64_t *budget_bytes,
                      uint64_t *held_bytes)
{
    uint64_t tightest = UINT64_MAX;
    for (int k = 0; k < member->link_count; k++) {
        const struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        int d = link->device_of[device];
        uint64_t budget = d < 0 ? 0 : atomic_load(&file->budget_bytes[d]);
        uint32_t account = atomic_load(&file->slots[link->slot].account);
        uint64_t held = d < 0 ? 0 : atomic_load(&file->accounts[account].devices[d].cell.total);
        uint64_t room = held < budget ? budget - held : 0;
        if (room < tightest || k == 0) {
            tightest = room;
            *budget_bytes = budget;
            *held_bytes = held;
        }
    }
}

/* --- facts about this process ------------------------------------------------------------------- */

static struct ull__slot *own_slot(struct ull__member *member, int k)
{
    return &member->links[k].ledger->file->slots[member->links[k].slot];
}

void ull__member_set_driver_pid(struct ull__member *member, uint32_t pid)
{
    for (int k = 0; k < member->link_count; k++)
        atomic_store(&own_slot(member, k)->driver_pid, pid);
}

void ull__member_context_measured(struct ull__member *member, int device, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        int d = member->links[k].device_of[device];
        if (d < 0)
            continue;
        atomic_store(&member->links[k].ledger->file->context_bytes[d], bytes);
        atomic_fetch_or(&own_slot(member, k)->measured, 1u << d);
    }
}

/* --- settling on request ------------------------------------------------------------------------ */

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

static void ring(struct ull__slot *slot)
{
    atomic_fetch_add(&slot->bell, 1);
    futex(&slot->bell, FUTEX_WAKE, INT_MAX, NULL);
}

static bool holds_pools(const struct ull__slot *slot, int devices)
{
    for (int d = 0; d < devices; d++)
        if (atomic_load(&slot->devices[d].held[ULL_CLASS_POOL]) ||
            atomic_load(&slot->devices[d].held[ULL_CLASS_GRAPH]))
            return true;
    return false;
}

/* Rings everybody once (`ask`), then says whether all living ones have served. */
static bool all_settled(struct ull__member *member, bool ask)
{
    bool all = true;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__ledger_file *file = member->links[k].ledger->file;
        int used = (int)atomic_load(&file->slots_used);
        for (int i = 0; i < used; i++) {
            struct ull__slot *slot = &file->slots[i];
            if (i == member->links[k].slot || atomic_load(&slot->state) != SLOT_LIVE ||
                !holds_pools(slot, file->spec.device_count))
                continue;
            if (ask) {
                atomic_fetch_add(&slot->settle_asked, 1);
                ring(slot);
            }
            if (atomic_load(&slot->settle_served) != atomic_load(&slot->settle_asked))
                all = false;
        }
    }
    return all;
}

void ull__member_ask_settle(struct ull__member *member, uint64_t timeout_ns)
{
    uint64_t start = ull__monotonic_ns();
    bool done = all_settled(member, true);
    while (!done && ull__monotonic_ns() - start < timeout_ns) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        done = all_settled(member, false);
    }
}

void ull__member_wait(struct ull__member *member, uint64_t timeout_ns)
{
    struct ull__slot *slot = own_slot(member, 0);
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000ull),
                               .tv_nsec = (long)(timeout_ns % 1000000000ull)};
    /* The bell is read first: a ring after that ends the sleep at once. */
    uint32_t bell = atomic_load(&slot->bell);
    bool asked = false;
    for (int k = 0; k < member->link_count; k++)
        asked |= atomic_load(&own_slot(member, k)->settle_asked) !=
                 atomic_load(&own_slot(member, k)->settle_served);
    if (!asked)
        futex(&slot->bell, FUTEX_WAIT, bell, &timeout);
    for (int k = 0; k < member->link_count; k++)
        member->links[k].asked = atomic_load(&own_slot(member, k)->settle_asked);
}

void ull__member_settled(struct ull__member *member)
{
    for (int k = 0; k < member->link_count; k++)
        atomic_store(&own_slot(member, k)->settle_served, member->links[k].asked);
}

void ull__member_wake(struct ull__member *member)
{
    ring(own_slot(member, 0));
}

void ull__member_sweep(struct ull__member *member, ull__listed_fn *listed, void *data)
{
    for (int k = 0; k < member->link_count; k++)
        ull__sweep_file(member->links[k].ledger->file, listed, data);
}
