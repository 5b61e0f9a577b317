/*
 * refusal.c: requests that did not fit, and what else a job's report needs to know of its programs.
 */
#include <string.h>

#include "layout.h"
#include "member_private.h"

enum {
    LINE_INTERVAL_NS = 1000000000, /* refusal lines: the first, then at most one a second */
    EARLY_GRANTS = 32,             /* requests that count as a program's start */
};

static bool line_is_due(struct ull__ledger_file *file, uint64_t number, uint64_t *suppressed)
{
    *suppressed = 0;
    uint64_t now = ull__monotonic_ns();
    uint64_t last = atomic_load(&file->last_line_ns);
    if (last != 0 && now < last + LINE_INTERVAL_NS) /* now may be before last: another was faster */
        return false;
    if (!atomic_compare_exchange_strong(&file->last_line_ns, &last, now))
        return false; /* another process prints at this very moment */
    uint64_t before = atomic_exchange(&file->last_line_refusal, number);
    *suppressed = before < number ? number - 1 - before : 0; /* a later one may have been faster */
    return true;
}

static void fill(struct ull__member *member, struct ull__refusal *refusal)
{
    const struct ull__link *link = &member->links[0];
    struct ull__ledger_file *file = link->ledger->file;
    struct ull__slot *slot = &file->slots[link->slot];
    refusal->time_ns = ull__monotonic_ns();
    refusal->pid = atomic_load(&slot->pid);
    refusal->account = atomic_load(&slot->account);
    memcpy(refusal->command, slot->command, sizeof refusal->command);
    ull__member_room(member, refusal->device, &refusal->budget_bytes, &refusal->held_bytes);
    memset(refusal->by_class, 0, sizeof refusal->by_class);
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++) {
        struct ull__slot *other = &file->slots[i];
        if (atomic_load(&other->state) == SLOT_FREE ||
            atomic_load(&other->account) != refusal->account)
            continue;
        for (int c = 0; c < ULL_CLASSES; c++)
            refusal->by_class[c] += atomic_load(&other->devices[refusal->device].held[c]);
    }
}

bool ull__member_refused(struct ull__member *member, struct ull__refusal *refusal,
                         uint64_t *suppressed)
{
    const struct ull__link *link = &member->links[0];
    struct ull__ledger_file *file = link->ledger->file;
    fill(member, refusal);
    refusal->number = atomic_fetch_add(&file->refusals, 1) + 1;
    struct ull__refusal_entry *entry = &file->refusal_ring[refusal->number % ULL_MAX_REFUSALS];
    atomic_store(&entry->written, 0);
    entry->refusal = *refusal;
    atomic_store(&entry->slot, (uint32_t)link->slot);
    atomic_store(&entry->generation, link->generation);
    atomic_store(&entry->written, refusal->number);
    atomic_fetch_add(&file->slots[link->slot].unsurvived, 1);
    return line_is_due(file, refusal->number, suppressed) && !file->spec.quiet;
}

static void mark_survived(const struct ull__link *link, uint32_t count)
{
    struct ull__ledger_file *file = link->ledger->file;
    atomic_fetch_add(&file->survived, count);
    for (int i = 0; i < ULL_MAX_REFUSALS; i++) {
        struct ull__refusal_entry *entry = &file->refusal_ring[i];
        if (atomic_load(&entry->written) && atomic_load(&entry->slot) == (uint32_t)link->slot &&
            atomic_load(&entry->generation) == link->generation)
            entry->refusal.survived = true;
    }
}

/* One early request for over half of what the program sees of the card: its peak will say nothing. */
static void note_early(struct ull__ledger_file *file, struct ull__slot *slot, int d, uint64_t bytes,
                       uint64_t visible)
{
    struct ull__account_device *account =
        &file->accounts[atomic_load_explicit(&slot->account, memory_order_relaxed)].devices[d];
    atomic_fetch_add(&slot->devices[d].grants, 1);
    uint64_t largest = atomic_load(&account->first_largest);
    while (largest < bytes && !atomic_compare_exchange_weak(&account->first_largest, &largest, bytes))
        ;
    if (bytes > visible / 2)
        atomic_fetch_or(&file->preallocated, 1u << d);
}

void ull__member_granted(struct ull__member *member, int device, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        const struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        struct ull__slot *slot = &file->slots[link->slot];
        int d = link->device_of[device];
        if (d < 0)
            continue;
        if (atomic_load_explicit(&slot->unsurvived, memory_order_relaxed)) {
            uint32_t count = atomic_exchange(&slot->unsurvived, 0);
            if (count)
                mark_survived(link, count);
        }
        if (atomic_load_explicit(&slot->devices[d].grants, memory_order_relaxed) < EARLY_GRANTS) {
            uint64_t visible, room;
            ull__member_card(member, device, &visible, &room);
            note_early(file, slot, d, bytes, visible);
        }
    }
}

bool ull__ledger_refusal(struct ull__ledger *ledger, uint64_t number, struct ull__refusal *refusal)
{
    struct ull__refusal_entry *entry = &ledger->file->refusal_ring[number % ULL_MAX_REFUSALS];
    if (number == 0 || atomic_load(&entry->written) != number)
        return false;
    *refusal = entry->refusal;
    refusal->command[sizeof refusal->command - 1] = '\0';
    refusal->call[sizeof refusal->call - 1] = '\0';
    return atomic_load(&entry->written) == number; /* not overwritten while it was copied */
}

void ull__member_unknown_variant(struct ull__member *member, const char *name)
{
    struct ull__ledger_file *file = member->links[0].ledger->file;
    uint32_t count = atomic_load(&file->variant_count);
    for (uint32_t i = 0; i < count && i < ULL_MAX_VARIANTS; i++)
        if (strncmp(file->variants[i], name, ULL_NAME_TEXT - 1) == 0)
            return;
    if (count >= ULL_MAX_VARIANTS)
        return; /* the counter must not go round */
    uint32_t at = atomic_fetch_add(&file->variant_count, 1);
    if (at < ULL_MAX_VARIANTS)
        strncpy(file->variants[at], name, ULL_NAME_TEXT - 1);
}
