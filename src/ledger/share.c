/*
 * share.c: memory that one process named for others.
 *
 * Such memory is charged once, to its owner. On an H200 it lives on while an importer has it open,
 * although the owner freed it or died, so the charge must pass to the importer then, and from that
 * one to the next. Nothing is added to or taken from the total by that; only the books say who gives
 * the bytes back, and to which account.
 *
 * An entry of the table is one 64-bit word {kind, slot, link} with a few fields behind it. Memory
 * passes in three steps: the heir's import is linked to the entry that it comes from; that entry
 * becomes SHARE_PASSED (an export) or SHARE_LEFT (an import), which is the moment at which it passes;
 * the link is marked settled, so that the entry can be used again. Before the second step a link
 * means nothing, after it the link and a settled one mean the same. So a death in between is harmless
 * whoever comes next. The bytes of a passed export stay in its owner's books until the owner takes
 * them out, or its slot ends.
 *
 * The table is guarded by a robust lock: these calls are rare, and never made while a driver call is
 * under way. Nobody waits for it for ever, since its holder may be stopped: what cannot be written
 * down then stays charged where it is until that process ends.
 *
 * Limits: exports by descriptor say nothing that an importer could be matched by, so they match by
 * size. When the table is full, bytes stay with the owner.
 */
#include <errno.h>

#include "layout.h"
#include "member_private.h"

#define WORD(kind, slot, link) ((uint64_t)(kind) << 56 | (uint64_t)(slot) << 40 | (uint64_t)(link))
#define WORD_KIND(word) ((enum ull__share_kind)((word) >> 56))
#define WORD_SLOT(word) ((int)((word) >> 40 & 0xffff))
#define WORD_LINK(word) ((uint32_t)((word)&0xffffffff))

static uint64_t word_of(struct ull__ledger_file *file, uint32_t entry)
{
    return atomic_load(&file->shares[entry].word);
}

static uint32_t entries_used(struct ull__ledger_file *file)
{
    return atomic_load(&file->shares_used);
}

static void unlock_shares(struct ull__ledger_file *file)
{
    pthread_mutex_unlock(&file->shares_lock);
}

/*
 * A recovery may come here twice for one change, and the entry may be somebody else's by then. The
 * slot's owner is in this call or dead, so an entry that is the slot's is the one that is meant.
 */
void ull__share_free(struct ull__ledger_file *file, int slot, uint32_t entry)
{
    uint64_t word = word_of(file, entry);
    if (WORD_KIND(word) != SHARE_FREE && WORD_SLOT(word) == slot)
        atomic_compare_exchange_strong(&file->shares[entry].word, &word, WORD(SHARE_FREE, 0, 0));
}

static ull_status add(struct ull__ledger_file *file, enum ull__share_kind kind, int slot,
                      const struct ull__share *what)
{
    for (uint32_t i = 0; i < ULL_MAX_SHARES; i++) {
        struct ull__share *share = &file->shares[i];
        uint64_t empty = WORD(SHARE_FREE, 0, 0);
        if (!atomic_compare_exchange_strong(&share->word, &empty, WORD(SHARE_FILLING, slot, 0)))
            continue;
        uint32_t used = entries_used(file);
        while (used < i + 1 && !atomic_compare_exchange_weak(&file->shares_used, &used, i + 1))
            ;
        share->key = what->key;
        share->bytes = what->bytes;
        share->device = what->device;
        share->class = what->class;
        share->account = what->account;
        atomic_store(&share->word, WORD(kind, slot, 0));
        return ULL_OK;
    }
    return ULL_E_FULL;
}

static bool same_memory(const struct ull__share *a, const struct ull__share *b)
{
    return a->device == b->device && a->key == b->key && (a->key != 0 || a->bytes == b->bytes);
}

/* --- heirs ------------------------------------------------------------------------------------ */

static bool has_passed(uint64_t word)
{
    return WORD_KIND(word) == SHARE_PASSED || WORD_KIND(word) == SHARE_LEFT;
}

static bool inherits(struct ull__ledger_file *file, uint64_t word)
{
    uint32_t link = WORD_LINK(word);
    return WORD_KIND(word) == SHARE_IMPORT &&
           (link == SHARE_LINK_SETTLED ||
            (link > 0 && link <= ULL_MAX_SHARES && has_passed(word_of(file, link - 1))));
}

/*
 * The import that memory can pass to: one that is linked already, else one of a living process, else
 * of any (a dead importer has it open until the driver has cleaned up). The owner's own imports do
 * not count for an export. -1: none.
 */
static int find_heir(struct ull__ledger_file *file, uint32_t from)
{
    int best = -1;
    bool best_lives = false;
    uint64_t source = word_of(file, from);
    uint32_t used = entries_used(file);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) != SHARE_IMPORT || i == from)
            continue;
        if (WORD_LINK(word) == from + 1)
            return (int)i;
        if (WORD_LINK(word) != 0 || best_lives ||
            (WORD_KIND(source) == SHARE_EXPORT && WORD_SLOT(word) == WORD_SLOT(source)) ||
            !same_memory(&file->shares[i], &file->shares[from]))
            continue;
        best_lives = atomic_load(&file->slots[WORD_SLOT(word)].state) == SLOT_LIVE;
        if (best < 0 || best_lives)
            best = (int)i;
    }
    return best;
}

/* By compare-and-swap: the heir's recovery may end the entry without the table's lock. */
static void settle(struct ull__ledger_file *file, uint32_t heir, uint32_t from)
{
    uint64_t word = word_of(file, heir);
    if (WORD_KIND(word) == SHARE_IMPORT && WORD_LINK(word) == from + 1)
        atomic_compare_exchange_strong(&file->shares[heir].word, &word,
                                       WORD(SHARE_IMPORT, WORD_SLOT(word), SHARE_LINK_SETTLED));
}

static void settle_all(struct ull__ledger_file *file, uint32_t from)
{
    uint32_t used = entries_used(file);
    for (uint32_t i = 0; i < used; i++)
        settle(file, i, from);
}

static void pass_on(struct ull__ledger_file *file, uint32_t from, uint32_t heir)
{
    struct ull__share *source = &file->shares[from], *target = &file->shares[heir];
    uint64_t word = word_of(file, from);
    int slot = WORD_SLOT(word);
    target->bytes = source->bytes;
    target->class = source->class;
    target->account = source->account;
    atomic_store(&target->word, WORD(SHARE_IMPORT, WORD_SLOT(word_of(file, heir)), from + 1));
    atomic_store(&source->word,
                 WORD(WORD_KIND(word) == SHARE_EXPORT ? SHARE_PASSED : SHARE_LEFT, slot, 0));
    settle(file, heir, from);
}

/* An import that inherited ends while others have the memory open: true if one of them has it now. */
static bool leave_to_another(struct ull__ledger_file *file, uint32_t entry)
{
    uint64_t word = word_of(file, entry);
    if (WORD_LINK(word) != SHARE_LINK_SETTLED)
        settle(file, entry, WORD_LINK(word) - 1);
    int heir = find_heir(file, entry);
    if (heir < 0)
        return false;
    pass_on(file, entry, (uint32_t)heir);
    ull__share_free(file, WORD_SLOT(word), entry);
    return true;
}

uint64_t ull__member_inherited(struct ull__member *member, int device, enum ull__class class)
{
    const struct ull__link *link = &member->links[0];
    return ull__share_inherited(link->ledger->file, link->slot, device, class);
}

/* --- deaths ----------------------------------------------------------------------------------- */

static uint64_t sum(struct ull__ledger_file *file, enum ull__share_kind kind, int slot, int device,
                    enum ull__class class)
{
    uint64_t bytes = 0;
    uint32_t used = entries_used(file);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        const struct ull__share *share = &file->shares[i];
        if (WORD_KIND(word) == kind && WORD_SLOT(word) == slot &&
            (kind == SHARE_PASSED || inherits(file, word)) && share->device == (uint32_t)device &&
            share->class == (uint32_t) class)
            bytes += share->bytes;
    }
    return bytes;
}

uint64_t ull__share_passed(struct ull__ledger_file *file, int slot, int device, enum ull__class class)
{
    return sum(file, SHARE_PASSED, slot, device, class);
}

uint64_t ull__share_inherited(struct ull__ledger_file *file, int slot, int device,
                              enum ull__class class)
{
    return sum(file, SHARE_IMPORT, slot, device, class);
}

/* Can the owner's books spare these bytes? Never pass what is not, or no longer, in the total. */
static bool is_held(struct ull__ledger_file *file, int slot, const struct ull__share *share)
{
    uint64_t held = atomic_load(&file->slots[slot].devices[share->device].held[share->class]);
    uint64_t passed =
        ull__share_passed(file, slot, (int)share->device, (enum ull__class)share->class);
    return held >= passed && held - passed >= share->bytes;
}

bool ull__share_owner_died(struct ull__ledger_file *file, int slot, uint32_t freed)
{
    if (!ull__robust_lock_soon(&file->shares_lock))
        return false;
    uint32_t used = entries_used(file);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_SLOT(word) != slot)
            continue;
        bool may_pass = freed >> file->shares[i].device & 1;
        if (may_pass && WORD_KIND(word) == SHARE_EXPORT && is_held(file, slot, &file->shares[i])) {
            int heir = find_heir(file, i);
            if (heir >= 0)
                pass_on(file, i, (uint32_t)heir);
        } else if (may_pass && inherits(file, word)) {
            leave_to_another(file, i);
        } else if (has_passed(word)) {
            settle_all(file, i);
            if (WORD_KIND(word) == SHARE_LEFT)
                ull__share_free(file, slot, i);
        }
    }
    unlock_shares(file);
    return true;
}

/* Gives back inherited bytes and ends the entry, in one change. */
static struct ull__change end_of_inherited(struct ull__ledger_file *file, int slot, uint32_t entry)
{
    const struct ull__share *share = &file->shares[entry];
    return (struct ull__change){.slot = slot,
                                .device = (int)share->device,
                                .account = share->account,
                                .class = (enum ull__class)share->class,
                                .total_delta = -(int64_t)share->bytes,
                                .share = entry + 1};
}

bool ull__share_slot_ends(struct ull__ledger_file *file, int slot)
{
    if (!ull__robust_lock_soon(&file->shares_lock))
        return false;
    uint32_t used = entries_used(file);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) == SHARE_FREE || WORD_SLOT(word) != slot)
            continue;
        if (has_passed(word))
            settle_all(file, i);
        if (!inherits(file, word)) {
            ull__share_free(file, slot, i);
        } else if (!leave_to_another(file, i)) {
            struct ull__change change = end_of_inherited(file, slot, i);
            ull__change_apply(file, &change);
        }
    }
    unlock_shares(file);
    return true;
}

/* --- the living --------------------------------------------------------------------------------- */

/*
 * A thread of a dying process may come here after its slot was given up: then it may write nothing.
 * Devices that this ledger does not have are of no concern to it.
 */
static bool lock_own(const struct ull__link *link, int device)
{
    struct ull__ledger_file *file = link->ledger->file;
    if (link->device_of[device] < 0 || !ull__robust_lock_soon(&file->shares_lock))
        return false;
    if (ull__link_owns(link))
        return true;
    unlock_shares(file);
    return false;
}

/* Of several, rather one that has not inherited: that one ends without a change. */
static int find_own(struct ull__ledger_file *file, enum ull__share_kind kind, int slot,
                    const struct ull__share *what)
{
    int found = -1;
    uint32_t used = entries_used(file);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) != kind || WORD_SLOT(word) != slot ||
            !same_memory(&file->shares[i], what))
            continue;
        if (!inherits(file, word))
            return (int)i;
        found = (int)i;
    }
    return found;
}

static ull_status add_everywhere(struct ull__member *member, enum ull__share_kind kind,
                                 struct ull__share what, int device)
{
    ull_status status = ULL_OK;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        if (link->device_of[device] < 0)
            continue;
        what.device = (uint32_t)link->device_of[device];
        what.account = atomic_load(&file->slots[link->slot].account);
        if (!lock_own(link, device)) {
            status = ULL_E_FULL;
            continue;
        }
        bool named =
            kind == SHARE_EXPORT && what.key != 0 && find_own(file, kind, link->slot, &what) >= 0;
        if (!named && add(file, kind, link->slot, &what) != ULL_OK)
            status = ULL_E_FULL;
        unlock_shares(file);
    }
    return status;
}

ull_status ull__member_export(struct ull__member *member, int device, enum ull__class class,
                              uint64_t key, uint64_t bytes)
{
    struct ull__share what = {.key = key, .bytes = bytes, .class = (uint32_t) class};
    return add_everywhere(member, SHARE_EXPORT, what, device);
}

ull_status ull__member_import(struct ull__member *member, int device, uint64_t key, uint64_t bytes)
{
    struct ull__share what = {.key = key, .bytes = bytes};
    return add_everywhere(member, SHARE_IMPORT, what, device);
}

/*
 * One ledger's part: the charge passes to an heir inside that job, or ends. Where the table cannot be
 * had the bytes stay charged until this process ends, since nobody knows whether they live on.
 */
static void release_exported_link(struct ull__link *link, int device, enum ull__class class,
                                  uint64_t key, uint64_t bytes)
{
    struct ull__ledger_file *file = link->ledger->file;
    struct ull__share what = {.key = key, .bytes = bytes, .device = (uint32_t)link->device_of[device]};
    struct ull__change change = {.slot = link->slot,
                                 .device = (int)what.device,
                                 .account = atomic_load(&file->slots[link->slot].account),
                                 .class = class,
                                 .held_delta = -(int64_t)bytes,
                                 .total_delta = -(int64_t)bytes};
    if (!lock_own(link, device))
        return;
    int exported = find_own(file, SHARE_EXPORT, link->slot, &what);
    if (ull__link_lock(link)) {
        if (exported >= 0) {
            struct ull__share *share = &file->shares[exported];
            share->bytes = bytes;
            share->class = (uint32_t) class;
            int heir = is_held(file, link->slot, share) ? find_heir(file, (uint32_t)exported) : -1;
            if (heir >= 0) {
                pass_on(file, (uint32_t)exported, (uint32_t)heir);
                change.total_delta = 0;
            }
            change.share = (uint32_t)exported + 1;
        }
        ull__link_change(link, &change);
        ull__link_unlock(link);
    }
    unlock_shares(file);
}

void ull__member_release_exported(struct ull__member *member, int device, enum ull__class class,
                                  uint64_t key, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++)
        release_exported_link(&member->links[k], device, class, key, bytes);
}

bool ull__member_is_open(struct ull__member *member, int device, uint64_t key)
{
    bool found = false;
    for (int k = 0; k < member->link_count && !found; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        if (!lock_own(link, device))
            continue;
        uint32_t used = entries_used(file);
        for (uint32_t i = 0; i < used && !found; i++)
            found = WORD_KIND(word_of(file, i)) == SHARE_IMPORT &&
                    WORD_SLOT(word_of(file, i)) != link->slot && file->shares[i].key == key &&
                    file->shares[i].device == (uint32_t)link->device_of[device];
        unlock_shares(file);
    }
    return found;
}

void ull__member_import_closed(struct ull__member *member, int device, uint64_t key, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        struct ull__share what = {
            .key = key, .bytes = bytes, .device = (uint32_t)link->device_of[device]};
        if (!lock_own(link, device))
            continue;
        int entry = find_own(file, SHARE_IMPORT, link->slot, &what);
        if (entry >= 0 && !inherits(file, word_of(file, (uint32_t)entry))) {
            ull__share_free(file, link->slot, (uint32_t)entry);
        } else if (entry >= 0 && !leave_to_another(file, (uint32_t)entry)) {
            struct ull__change change = end_of_inherited(file, link->slot, (uint32_t)entry);
            ull__member_change(link, &change);
        }
        unlock_shares(file);
    }
}
