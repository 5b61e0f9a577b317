/*
 * share.c: memory that one process named for others.
 *
 * Such memory is charged once, to its owner. On an H200 it lives on while an importer has it open,
 * although the owner freed it or died, so the charge must pass to the importer then. Nothing is
 * added to or taken from the total by that; only the books say who gives the bytes back.
 *
 * An entry of the table is one 64-bit word {kind, slot, link} with a few fields behind it. An import
 * that inherits an export is linked to it by the export's index, and the link is settled when the
 * export is gone from its owner's books. A death in between leaves the link pending; whoever recovers
 * the owner finds it and goes on from there. The table is guarded by a robust lock: these calls are
 * rare, and never made while a driver call is under way.
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

static void lock_shares(struct ull__ledger_file *file)
{
    /* A dead holder leaves only states that recovery can go on from. */
    if (pthread_mutex_lock(&file->shares_lock) == EOWNERDEAD)
        pthread_mutex_consistent(&file->shares_lock);
}

static void unlock_shares(struct ull__ledger_file *file)
{
    pthread_mutex_unlock(&file->shares_lock);
}

void ull__share_free(struct ull__ledger_file *file, uint32_t entry)
{
    atomic_store(&file->shares[entry].word, WORD(SHARE_FREE, 0, 0));
}

static ull_status add(struct ull__ledger_file *file, enum ull__share_kind kind, int slot,
                      const struct ull__share *what)
{
    for (uint32_t i = 0; i < ULL_MAX_SHARES; i++) {
        struct ull__share *share = &file->shares[i];
        uint64_t empty = WORD(SHARE_FREE, 0, 0);
        if (!atomic_compare_exchange_strong(&share->word, &empty, WORD(SHARE_FILLING, slot, 0)))
            continue;
        uint32_t used = atomic_load(&file->shares_used);
        while (used < i + 1 && !atomic_compare_exchange_weak(&file->shares_used, &used, i + 1))
            ;
        share->key = what->key;
        share->bytes = what->bytes;
        share->device = what->device;
        share->class = what->class;
        atomic_store(&share->word, WORD(kind, slot, 0));
        return ULL_OK;
    }
    return ULL_E_FULL;
}

static bool same_memory(const struct ull__share *a, const struct ull__share *b)
{
    return a->device == b->device && a->key == b->key && (a->key != 0 || a->bytes == b->bytes);
}

/* The import that is linked to an export, or can be: of another, living process. -1: none. */
static int find_heir(struct ull__ledger_file *file, uint32_t export, bool linked_only)
{
    int candidate = -1;
    uint32_t used = atomic_load(&file->shares_used);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) != SHARE_IMPORT)
            continue;
        if (WORD_LINK(word) == export + 1)
            return (int)i;
        if (candidate < 0 && WORD_LINK(word) == 0 && WORD_SLOT(word) != WORD_SLOT(word_of(file, export)) &&
            atomic_load(&file->slots[WORD_SLOT(word)].state) == SLOT_LIVE &&
            same_memory(&file->shares[i], &file->shares[export]))
            candidate = (int)i;
    }
    return linked_only ? -1 : candidate;
}

static void link_heir(struct ull__ledger_file *file, int heir, uint32_t export)
{
    uint64_t word = word_of(file, (uint32_t)heir);
    file->shares[heir].bytes = file->shares[export].bytes;
    file->shares[heir].class = file->shares[export].class;
    atomic_store(&file->shares[heir].word, WORD(SHARE_IMPORT, WORD_SLOT(word), export + 1));
}

static void settle_link(struct ull__ledger_file *file, int heir)
{
    uint64_t word = word_of(file, (uint32_t)heir);
    atomic_store(&file->shares[heir].word,
                 WORD(SHARE_IMPORT, WORD_SLOT(word), SHARE_LINK_SETTLED));
}

/* --- deaths ----------------------------------------------------------------------------------- */

void ull__share_owner_died(struct ull__ledger_file *file, int slot)
{
    lock_shares(file);
    uint32_t used = atomic_load(&file->shares_used);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) != SHARE_EXPORT || WORD_SLOT(word) != slot)
            continue;
        int heir = find_heir(file, i, false);
        if (heir < 0)
            continue;
        link_heir(file, heir, i);
        atomic_store(&file->shares[i].word, WORD(SHARE_PASSED, slot, 0));
        settle_link(file, heir);
    }
    unlock_shares(file);
}

static uint64_t sum(struct ull__ledger_file *file, enum ull__share_kind kind, int slot, int device,
                    enum ull__class class)
{
    uint64_t bytes = 0;
    uint32_t used = atomic_load(&file->shares_used);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        const struct ull__share *share = &file->shares[i];
        if (WORD_KIND(word) == kind && WORD_SLOT(word) == slot && share->device == (uint32_t)device &&
            share->class == (uint32_t)class && (kind == SHARE_PASSED || WORD_LINK(word) != 0))
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

/* Gives back inherited bytes and ends the entry, in one change. */
static void give_back_inherited(struct ull__ledger_file *file, int slot, uint32_t entry)
{
    const struct ull__share *share = &file->shares[entry];
    struct ull__change change = {.slot = slot,
                                 .device = (int)share->device,
                                 .class = (enum ull__class)share->class,
                                 .total_delta = -(int64_t)share->bytes,
                                 .share = entry + 1};
    ull__change_apply(file, &change);
}

void ull__share_slot_ends(struct ull__ledger_file *file, int slot)
{
    lock_shares(file);
    uint32_t used = atomic_load(&file->shares_used);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) == SHARE_FREE || WORD_SLOT(word) != slot)
            continue;
        if (WORD_KIND(word) == SHARE_PASSED) {
            int heir = find_heir(file, i, true);
            if (heir >= 0)
                settle_link(file, heir);
        }
        if (WORD_KIND(word) == SHARE_IMPORT && WORD_LINK(word) != 0)
            give_back_inherited(file, slot, i);
        else
            ull__share_free(file, i);
    }
    unlock_shares(file);
}

/* --- the living --------------------------------------------------------------------------------- */

static int find_own(struct ull__ledger_file *file, enum ull__share_kind kind, int slot,
                    const struct ull__share *what)
{
    uint32_t used = atomic_load(&file->shares_used);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t word = word_of(file, i);
        if (WORD_KIND(word) == kind && WORD_SLOT(word) == slot && same_memory(&file->shares[i], what))
            return (int)i;
    }
    return -1;
}

ull_status ull__member_export(struct ull__member *member, int device, enum ull__class class,
                              uint64_t key, uint64_t bytes)
{
    ull_status status = ULL_OK;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__share what = {.key = key,
                                  .bytes = bytes,
                                  .device = (uint32_t)link->device_of[device],
                                  .class = (uint32_t)class};
        lock_shares(link->ledger->file);
        if (key == 0 || find_own(link->ledger->file, SHARE_EXPORT, link->slot, &what) < 0)
            status = add(link->ledger->file, SHARE_EXPORT, link->slot, &what);
        unlock_shares(link->ledger->file);
    }
    return status;
}

/* One ledger's part: the charge passes to an heir inside that job, or ends. */
static void release_exported_link(struct ull__member *member, int k, int device,
                                  enum ull__class class, uint64_t key, uint64_t bytes)
{
    struct ull__link *link = &member->links[k];
    struct ull__ledger_file *file = link->ledger->file;
    struct ull__share what = {.key = key, .bytes = bytes, .device = (uint32_t)link->device_of[device]};
    struct ull__change change = {.slot = link->slot,
                                 .device = (int)what.device,
                                 .class = class,
                                 .held_delta = -(int64_t)bytes,
                                 .total_delta = -(int64_t)bytes};
    lock_shares(file);
    int exported = find_own(file, SHARE_EXPORT, link->slot, &what);
    int heir = exported < 0 ? -1 : find_heir(file, (uint32_t)exported, false);
    if (heir >= 0) {
        file->shares[exported].bytes = bytes;
        link_heir(file, heir, (uint32_t)exported);
        change.total_delta = 0;
    }
    if (exported >= 0)
        change.share = (uint32_t)exported + 1;
    ull__member_change(member, k, &change);
    if (heir >= 0)
        settle_link(file, heir);
    unlock_shares(file);
}

void ull__member_release_exported(struct ull__member *member, int device, enum ull__class class,
                                  uint64_t key, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++)
        release_exported_link(member, k, device, class, key, bytes);
}

ull_status ull__member_import(struct ull__member *member, int device, uint64_t key, uint64_t bytes)
{
    ull_status status = ULL_OK;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__share what = {
            .key = key, .bytes = bytes, .device = (uint32_t)link->device_of[device]};
        lock_shares(link->ledger->file);
        status = add(link->ledger->file, SHARE_IMPORT, link->slot, &what);
        unlock_shares(link->ledger->file);
    }
    return status;
}

void ull__member_import_closed(struct ull__member *member, int device, uint64_t key, uint64_t bytes)
{
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        struct ull__ledger_file *file = link->ledger->file;
        struct ull__share what = {
            .key = key, .bytes = bytes, .device = (uint32_t)link->device_of[device]};
        lock_shares(file);
        int entry = find_own(file, SHARE_IMPORT, link->slot, &what);
        if (entry >= 0) {
            uint32_t state = WORD_LINK(word_of(file, (uint32_t)entry));
            if (state == 0) {
                ull__share_free(file, (uint32_t)entry);
            } else {
                struct ull__change change = {.slot = link->slot,
                                             .device = (int)what.device,
                                             .class = (enum ull__class)file->shares[entry].class,
                                             .total_delta = -(int64_t)file->shares[entry].bytes,
                                             .share = (uint32_t)entry + 1};
                ull__member_change(member, k, &change);
            }
        }
        unlock_shares(file);
    }
}
