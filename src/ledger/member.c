/* member.c: what a process does in the ledgers that it joined (join.c): changes, and settling. */
#include "member_private.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- what it joined ----------------------------------------------------------------------------- */

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

bool ull__link_owns(const struct ull__link *link)
{
    const struct ull__slot *slot = &link->ledger->file->slots[link->slot];
    return atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_LIVE &&
           atomic_load_explicit(&slot->generation, memory_order_relaxed) == link->generation;
}

bool ull__link_lock(const struct ull__link *link)
{
    struct ull__ledger_file *file = link->ledger->file;
    struct ull__slot *slot = &file->slots[link->slot];
    if (pthread_mutex_lock(&slot->changing) == EOWNERDEAD) {
        /* A thread of this process died alone, inside a change. */
        pthread_mutex_consistent(&slot->changing);
        for (int d = 0; d < file->spec.device_count && ull__link_owns(link); d++)
            ull__change_recover(file, link->slot, d);
    }
    if (ull__link_owns(link))
        return true;
    pthread_mutex_unlock(&slot->changing);
    return false;
}

void ull__link_unlock(const struct ull__link *link)
{
    pthread_mutex_unlock(&link->ledger->file->slots[link->slot].changing);
}

ull_status ull__link_change(const struct ull__link *link, const struct ull__change *change)
{
    struct ull__ledger_file *file = link->ledger->file;
    struct ull__change bounded = *change;
    uint64_t held = atomic_load_explicit(
        &file->slots[link->slot].devices[change->device].held[change->class], memory_order_relaxed);
    if (change->held_delta < 0 && (uint64_t)-change->held_delta > held) {
        int64_t excess = -change->held_delta - (int64_t)held;
        bounded.held_delta += excess;
        if (change->total_delta < 0)
            bounded.total_delta += excess;
    }
    if (bounded.held_delta == 0 && bounded.total_delta == 0 && bounded.share == 0)
        return ULL_OK;
    return ull__change_apply(file, &bounded);
}

ull_status ull__member_change(const struct ull__link *link, const struct ull__change *change)
{
    if (!ull__link_lock(link))
        return ULL_E_NO_MEMORY;
    ull_status status = ull__link_change(link, change);
    ull__link_unlock(link);
    return status;
}

static ull_status change_link(struct ull__member *member, int k, int device, enum ull__class class,
                              int64_t delta, bool check)
{
    struct ull__link *link = &member->links[k];
    if (link->device_of[device] < 0)
        return check ? ULL_E_NO_MEMORY : ULL_OK; /* the job around has no such device: none to give */
    struct ull__change change = {
        .slot = link->slot,
        .device = link->device_of[device],
        .account = atomic_load_explicit(&link->ledger->file->slots[link->slot].account,
                                        memory_order_relaxed),
        .class = class,
        .total_delta = delta,
        .held_delta = delta,
        .check = check};
    return ull__member_change(link, &change);
}

bool ull__budgets_allow(struct ull__member *member, int first, int device, uint64_t bytes)
{
    for (int k = first; k < member->link_count; k++) {
        const struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        int d = link->device_of[device];
        if (d < 0)
            return false;
        uint32_t account = atomic_load(&file->slots[link->slot].account);
        uint64_t held = atomic_load(&file->accounts[account].devices[d].cell.total);
        uint64_t budget = atomic_load(&file->budget_bytes[d]);
        if (held > budget || bytes > budget - held)
            return false;
    }
    return true;
}

ull_status ull__member_reserve(struct ull__member *member, int device, enum ull__class class,
                               uint64_t bytes)
{
    /* A look at the jobs around first, so that their refusals leave no peak behind in the inner ones. */
    if (bytes > INT64_MAX || (bytes && !ull__budgets_allow(member, 1, device, bytes)))
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

void ull__member_charge(struct ull__member *member, int device, enum ull__class class, uint64_t bytes)
{
    for (int k = 0; bytes && k < member->link_count; k++)
        change_link(member, k, device, class, (int64_t)bytes, false);
}

void ull__member_release(struct ull__member *member, int device, enum ull__class class, uint64_t bytes)
{
    for (int k = 0; bytes && k < member->link_count; k++)
        change_link(member, k, device, class, -(int64_t)bytes, false);
}

void ull__member_settled_to(struct ull__member *member, int device, enum ull__class class)
{
    for (int k = 0; k < member->link_count; k++) {
        const struct ull__link *link = &member->links[k];
        if (link->device_of[device] >= 0)
            ull__change_peaks(link->ledger->file, link->slot, link->device_of[device], class);
    }
}

uint64_t ull__member_held(struct ull__member *member, int device, enum ull__class class)
{
    const struct ull__link *link = &member->links[0];
    return atomic_load(&link->ledger->file->slots[link->slot].devices[device].held[class]);
}

/* Budget and holdings of one ledger around the process, as they bind it, and the room under it. */
static uint64_t read_link(const struct ull__link *link, int device, uint64_t *budget, uint64_t *held)
{
    struct ull__ledger_file *file = link->ledger->file;
    int d = link->device_of[device];
    uint32_t account = atomic_load(&file->slots[link->slot].account);
    *budget = d < 0 ? 0 : atomic_load(&file->budget_bytes[d]);
    *held = d < 0 ? 0 : atomic_load(&file->accounts[account].devices[d].cell.total);
    uint64_t soft = d < 0 ? 0 : atomic_load(&file->soft_bytes[d]);
    uint64_t force = soft < *budget && ull__file_is_served(file) ? soft : *budget;
    return *held < force ? force - *held : 0;
}

void ull__member_room(struct ull__member *member, int device, uint64_t *budget_bytes,
                      uint64_t *held_bytes)
{
    uint64_t tightest = UINT64_MAX;
    for (int k = 0; k < member->link_count; k++) {
        uint64_t budget, held;
        read_link(&member->links[k], device, &budget, &held);
        uint64_t room = held < budget ? budget - held : 0; /* what waiting gets is room too */
        if (room < tightest || k == 0) {
            tightest = room;
            *budget_bytes = budget;
            *held_bytes = held;
        }
    }
}

void ull__member_card(struct ull__member *member, int device, uint64_t *budget_bytes,
                      uint64_t *free_bytes)
{
    *budget_bytes = *free_bytes = UINT64_MAX;
    for (int k = 0; k < member->link_count; k++) {
        uint64_t budget, held;
        uint64_t room = read_link(&member->links[k], device, &budget, &held);
        *budget_bytes = budget < *budget_bytes ? budget : *budget_bytes;
        *free_bytes = room < *free_bytes ? room : *free_bytes;
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

void ull__member_context_measured(struct ull__member *member, int device, uint64_t bytes,
                                  enum ull__context_source source)
{
    for (int k = 0; k < member->link_count; k++) {
        int d = member->links[k].device_of[device];
        if (d < 0)
            continue;
        atomic_store(&member->links[k].ledger->file->context_bytes[d], bytes);
        atomic_fetch_or(&own_slot(member, k)->measured,
                        1u << (source == ULL_CONTEXT_BY_PROCESS ? d : d + 16));
    }
}

/* Sets it if it is unknown, or lower. */
static void lower_to(_Atomic uint64_t *known, uint64_t bytes, bool if_known)
{
    uint64_t seen = atomic_load(known);
    while ((seen == 0 || (if_known && bytes < seen)) &&
           !atomic_compare_exchange_weak(known, &seen, bytes))
        ;
}

void ull__member_hidden_measured(struct ull__member *member, int device, uint64_t bytes, bool sure)
{
    for (int k = 0; k < member->link_count; k++) {
        struct ull__ledger_file *file = member->links[k].ledger->file;
        int d = member->links[k].device_of[device];
        if (d < 0)
            continue;
        if (bytes == 0) {
            atomic_store(&file->hidden_bytes[d], 0);
            atomic_store(&file->hidden_seen[d], 0);
            continue;
        }
        lower_to(&file->hidden_bytes[d], bytes, sure);
        if (sure)
            lower_to(&file->hidden_seen[d], bytes, true);
    }
}

void ull__member_hidden_add(struct ull__member *member, int device, int64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        int d = member->links[k].device_of[device];
        if (d >= 0)
            atomic_fetch_add(&own_slot(member, k)->devices[d].hidden, (uint64_t)bytes);
    }
}

/* --- settling on request ------------------------------------------------------------------------ */

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void ull__slot_ring(struct ull__slot *slot)
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

enum { LATE_TIMES = 25 };

/* Living, of another process, and with pools that may have shrunk. */
static bool is_worth_asking(const struct ull__link *link, int i)
{
    const struct ull__ledger_file *file = link->ledger->file;
    const struct ull__slot *slot = &file->slots[i];
    return i != link->slot && atomic_load(&slot->state) == SLOT_LIVE &&
           holds_pools(slot, file->spec.device_count);
}

/*
 * Waits until it has answered what it has been asked up to now, however often others ask it meanwhile. A process on a busy
 * machine may not run for a while, and what its pools gave back must not be refused to another for that. One that is stopped
 * answers no sooner for it: it is waited for once by the whole job, and from then on no longer than `timeout_ns`, until it has
 * answered.
 */
static void wait_for_answer(struct ull__link *link, int i, uint64_t start, uint64_t timeout_ns)
{
    struct ull__slot *slot = &link->ledger->file->slots[i];
    uint32_t question = atomic_load(&slot->settle_asked), served;
    while (is_worth_asking(link, i) &&
           (int32_t)((served = atomic_load(&slot->settle_served)) - question) < 0) {
        bool is_silent = atomic_load(&slot->settle_missed) == served + 1;
        if (ull__monotonic_ns() - start >= (is_silent ? timeout_ns : LATE_TIMES * timeout_ns)) {
            if (timeout_ns > 0)
                atomic_store(&slot->settle_missed, served + 1);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static void ask(struct ull__link *link, int i)
{
    struct ull__slot *slot = &link->ledger->file->slots[i];
    atomic_fetch_add(&slot->settle_asked, 1);
    ull__slot_ring(slot);
}

void ull__member_ask_settle(struct ull__member *member, uint64_t timeout_ns)
{
    uint64_t start = ull__monotonic_ns();
    for (int n = 0; n < 2 * member->link_count; n++) { /* all are asked before one is waited for */
        struct ull__link *link = &member->links[n % member->link_count];
        int used = (int)atomic_load(&link->ledger->file->slots_used);
        for (int i = 0; i < used; i++)
            if (!is_worth_asking(link, i))
                continue;
            else if (n < member->link_count)
                ask(link, i);
            else
                wait_for_answer(link, i, start, timeout_ns);
    }
}

/*
 * Where the parked thread sleeps: in the outermost job. Whoever asks in any of the jobs around this
 * process belongs to that one too, and rings in all of its own.
 */
static struct ull__slot *bedside(struct ull__member *member)
{
    return own_slot(member, member->link_count - 1);
}

void ull__member_wait(struct ull__member *member, uint64_t timeout_ns)
{
    struct ull__slot *slot = bedside(member);
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
    ull__slot_ring(bedside(member));
}

void ull__member_sweep(struct ull__member *member, ull__listed_fn *listed, void *data)
{
    for (int k = 0; k < member->link_count; k++)
        ull__sweep_file(member->links[k].ledger->file, listed, data);
}
