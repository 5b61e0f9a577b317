/* control.c: see control.h. */
#include "control.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "layout.h"
#include "member_private.h"

enum { WANTED_BITS = 8, BY_SHIFT = 2, TWO_BITS = 3 };

/*
 * Writes one word of a ledger that this process has only a copy of. The file may be its owner's to change at
 * any moment, which does no harm: nothing in it is followed.
 */
bool ull__write_word(struct ull__ledger *ledger, size_t offset, const void *word, size_t size)
{
    int fd = ull__ledger_file(ledger->path, O_WRONLY);
    bool good = fd >= 0 && lseek(fd, 0, SEEK_END) == (off_t)sizeof *ledger->file &&
                pwrite(fd, word, size, (off_t)offset) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return good;
}

uint64_t ull__ledger_command(struct ull__ledger *ledger, enum ull__wanted wanted)
{
    struct ull__ledger_file *file = ledger->file;
    uint64_t seen = atomic_load(&file->command), next;
    do
        next = ((seen >> WANTED_BITS) + 1) << WANTED_BITS | (uint64_t)wanted;
    while (!atomic_compare_exchange_weak(&file->command, &seen, next));
    if (ledger->copy &&
        !ull__write_word(ledger, offsetof(struct ull__ledger_file, command), &next, sizeof next))
        return 0;
    if (!ledger->copy)
        for (uint32_t i = 0; i < atomic_load(&file->slots_used); i++)
            ull__slot_ring(&file->slots[i]);
    return next >> WANTED_BITS;
}

uint64_t ull__file_commanded(struct ull__ledger_file *file, enum ull__wanted *wanted)
{
    uint64_t word = atomic_load(&file->command);
    uint32_t says = word & 0xff;
    bool stands = says == ULL_WANT_STAND_BY &&
                  atomic_load(&file->stand_until_ms) > ull__monotonic_ns() / 1000000;
    *wanted = says == ULL_WANT_MOVED_OUT ? ULL_WANT_MOVED_OUT
              : stands                   ? ULL_WANT_STAND_BY
                                         : ULL_WANT_RESIDENT;
    return word >> WANTED_BITS;
}

uint64_t ull__ledger_commanded(struct ull__ledger *ledger, enum ull__wanted *wanted)
{
    return ull__file_commanded(ledger->file, wanted);
}

bool ull__ledger_set_budget(struct ull__ledger *ledger, int device, uint64_t bytes)
{
    if (device < 0 || device >= ledger->file->spec.device_count)
        return false;
    atomic_store(&ledger->file->budget_bytes[device], bytes);
    return !ledger->copy || ull__write_word(ledger,
                                            offsetof(struct ull__ledger_file, budget_bytes) +
                                                (size_t)device * sizeof bytes,
                                            &bytes, sizeof bytes);
}

bool ull__ledger_set_priority(struct ull__ledger *ledger, int priority)
{
    int32_t word = priority;
    atomic_store(&ledger->file->priority, word);
    return !ledger->copy ||
           ull__write_word(ledger, offsetof(struct ull__ledger_file, priority), &word, sizeof word);
}

void ull__ledger_set_waiting(struct ull__ledger *ledger, bool waiting)
{
    atomic_store(&ledger->file->waiting, waiting);
}

/* --- a process's part ------------------------------------------------------------------------------------- */

static void write_trouble(struct ull__slot *slot, const char *trouble)
{
    atomic_fetch_add(&slot->trouble_version, 1);
    strncpy(slot->trouble, trouble ? trouble : "", sizeof slot->trouble - 1);
    atomic_fetch_add(&slot->trouble_version, 1);
}

static void write_report(struct ull__slot *slot, const struct ull__residency_report *report,
                         const int device_of[ULL_MAX_DEVICES])
{
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        int to = device_of ? device_of[d] : d;
        if (to >= 0)
            atomic_store(&slot->devices[to].evicted, report->evicted_bytes[d]);
    }
    atomic_store(&slot->to_move_bytes, report->to_move_bytes);
    atomic_store(&slot->moved_bytes, report->moved_bytes);
    atomic_store(&slot->moving_ns, report->moving_ns);
    write_trouble(slot, report->trouble);
    atomic_store(&slot->residency,
                 (uint32_t)report->residency | (uint32_t)report->moved_by << BY_SHIFT);
    if (report->done) /* last: whoever waits for it finds the rest */
        atomic_store(&slot->done, report->done);
}

bool ull__ledger_report(struct ull__ledger *ledger, int number, uint32_t pid,
                        const struct ull__residency_report *report)
{
    struct ull__slot *slot = &ledger->file->slots[number];
    if (number < 0 || number >= ULL_MAX_SLOTS || ledger->copy ||
        atomic_load(&slot->state) != SLOT_LIVE || atomic_load(&slot->pid) != pid)
        return false;
    write_report(slot, report, NULL);
    return true;
}

void ull__member_gated(struct ull__member *member)
{
    for (int k = 0; k < member->link_count; k++)
        atomic_store(&member->links[k].ledger->file->slots[member->links[k].slot].gated, 1);
}

void ull__member_tie(struct ull__member *member, enum ull__tie tie)
{
    for (int k = 0; k < member->link_count; k++)
        atomic_fetch_or(&member->links[k].ledger->file->slots[member->links[k].slot].ties,
                        (uint32_t)tie);
}

/* One of the jobs around it that wants it out has its way. */
static enum ull__wanted stronger(enum ull__wanted a, enum ull__wanted b)
{
    if (a == ULL_WANT_MOVED_OUT || b == ULL_WANT_MOVED_OUT)
        return ULL_WANT_MOVED_OUT;
    return a == ULL_WANT_STAND_BY ? a : b;
}

enum ull__wanted ull__member_wanted(struct ull__member *member)
{
    enum ull__wanted all = ULL_WANT_RESIDENT;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        enum ull__wanted wanted;
        link->commanded = ull__file_commanded(link->ledger->file, &wanted);
        all = stronger(all, wanted);
    }
    return all;
}

enum ull__wanted ull__member_asked(struct ull__member *member)
{
    enum ull__wanted all = ULL_WANT_RESIDENT, wanted;
    for (int k = 0; k < member->link_count; k++) {
        ull__file_commanded(member->links[k].ledger->file, &wanted);
        all = stronger(all, wanted);
    }
    return all;
}

bool ull__member_commanded(struct ull__member *member)
{
    bool any = false;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__ledger_file *file = member->links[k].ledger->file;
        enum ull__wanted wanted;
        any |= ull__file_commanded(file, &wanted) !=
               atomic_load(&file->slots[member->links[k].slot].done);
    }
    return any;
}

/* Who keeps it out, as the job of link k sees it: itself, one inside it, or one around it. The innermost is first. */
static enum ull__moved_by moved_by(const struct ull__member *member, int k)
{
    enum ull__moved_by by = ULL_BY_JOB;
    for (int i = 0; i < member->link_count; i++) {
        enum ull__wanted wanted;
        ull__file_commanded(member->links[i].ledger->file, &wanted);
        if (wanted != ULL_WANT_MOVED_OUT)
            continue;
        if (i == k)
            return ULL_BY_JOB;
        if (by == ULL_BY_JOB)
            by = i < k ? ULL_BY_INNER : ULL_BY_OUTER;
    }
    return by;
}

void ull__member_report(struct ull__member *member, const struct ull__residency_report *report)
{
    for (int k = 0; k < member->link_count; k++) {
        const struct ull__link *link = &member->links[k];
        struct ull__residency_report own = *report;
        own.moved_by = report->residency == ULL_MOVED_OUT ? moved_by(member, k) : ULL_BY_JOB;
        own.done = report->done ? link->commanded : 0;
        if (ull__link_owns(link))
            write_report(&link->ledger->file->slots[link->slot], &own, link->device_of);
    }
}

enum ull__residency ull__member_residency(struct ull__member *member)
{
    const struct ull__link *link = &member->links[0];
    return (enum ull__residency)(atomic_load(&link->ledger->file->slots[link->slot].residency) &
                                 TWO_BITS);
}

void ull__slot_forget_residency(struct ull__slot *slot)
{
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        atomic_store(&slot->devices[d].evicted, 0);
        atomic_store(&slot->devices[d].spilled, 0);
        atomic_store(&slot->devices[d].want, 0);
    }
    atomic_store(&slot->gated, 0);
    atomic_store(&slot->ties, 0);
    atomic_store(&slot->residency, ULL_RESIDENT);
    atomic_store(&slot->done, 0);
    atomic_store(&slot->stand_said, 0);
    atomic_store(&slot->moved_bytes, 0);
    atomic_store(&slot->to_move_bytes, 0);
    atomic_store(&slot->moving_ns, 0);
    atomic_store(&slot->pinned, 0);
    write_trouble(slot, NULL);
    ull__slot_forget_idle(slot);
}

void ull__slot_read_residency(struct ull__slot *slot, struct ull__process_view *view)
{
    view->gated = atomic_load(&slot->gated) != 0;
    view->ties = atomic_load(&slot->ties);
    uint32_t residency = atomic_load(&slot->residency);
    view->residency = (enum ull__residency)(residency & TWO_BITS);
    view->moved_by = (enum ull__moved_by)(residency >> BY_SHIFT & TWO_BITS);
    view->done = atomic_load(&slot->done);
    view->moved_bytes = atomic_load(&slot->moved_bytes);
    view->to_move_bytes = atomic_load(&slot->to_move_bytes);
    view->moving_ns = atomic_load(&slot->moving_ns);
    view->pinned_bytes = atomic_load(&slot->pinned);
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        view->evicted_bytes[d] = atomic_load(&slot->devices[d].evicted);
        view->spilled_bytes[d] = atomic_load(&slot->devices[d].spilled);
        view->want_bytes[d] = atomic_load(&slot->devices[d].want);
    }
    uint32_t version = atomic_load(&slot->trouble_version);
    memcpy(view->trouble, slot->trouble, sizeof view->trouble);
    view->trouble[sizeof view->trouble - 1] = '\0';
    if ((version & 1) || version != atomic_load(&slot->trouble_version))
        view->trouble[0] = '\0';
}

/* One that the driver would have to move, and of which there is nothing to move. It waits at its first request. */
static bool has_nothing(struct ull__slot *slot)
{
    uint64_t held = atomic_load(&slot->gated);
    for (int d = 0; d < ULL_MAX_DEVICES && !held; d++)
        for (int c = 0; c < ULL_CLASSES; c++)
            held |= atomic_load(&slot->devices[d].held[c]);
    return held == 0;
}

/* A job of which a part is suspended, as a job of its own, runs; one that is part of a suspended one is suspended. */
enum ull__job_state ull__file_state(struct ull__ledger_file *file)
{
    enum ull__wanted wanted;
    int count[4] = {0}, with_outer = 0;
    uint32_t used = atomic_load(&file->slots_used);
    bool out = ull__file_commanded(file, &wanted) > 0 && wanted == ULL_WANT_MOVED_OUT;
    for (uint32_t i = 0; i < used; i++) {
        struct ull__slot *slot = &file->slots[i];
        if (atomic_load(&slot->state) != SLOT_LIVE)
            continue;
        uint32_t residency = atomic_load(&slot->residency), by = residency >> BY_SHIFT & TWO_BITS;
        residency &= TWO_BITS;
        if (residency == ULL_MOVED_OUT && by == ULL_BY_INNER && !out)
            residency = ULL_RESIDENT;
        count[residency] += residency != ULL_RESIDENT || !has_nothing(slot);
        with_outer += residency == ULL_MOVED_OUT && by == ULL_BY_OUTER;
    }
    if (atomic_load(&file->waiting))
        return ULL_JOB_WAITING;
    if (count[ULL_MOVING_IN] > 0 || (!out && count[ULL_MOVED_OUT] > with_outer))
        return ULL_JOB_RESUMING;
    if (out)
        return count[ULL_MOVING_OUT] + count[ULL_RESIDENT] > 0 ? ULL_JOB_SUSPENDING
                                                               : ULL_JOB_SUSPENDED;
    if (count[ULL_MOVING_OUT] > 0 || (count[ULL_MOVED_OUT] > 0 && count[ULL_RESIDENT] > 0))
        return ULL_JOB_SUSPENDING;
    return count[ULL_MOVED_OUT] > 0 ? ULL_JOB_SUSPENDED : ULL_JOB_RUNNING;
}
