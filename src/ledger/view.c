/*
 * view.c: a ledger read for people, and the supervisor's running average.
 *
 * Readers take no lock. Totals are single words and exact; sums over processes may lag behind by the
 * change that is being made.
 */
#include <string.h>

#include "layout.h"

static void read_books(struct ull__ledger_file *file, int slot, int device, struct ull__usage *usage)
{
    const struct ull__slot_device *books = &file->slots[slot].devices[device];
    memset(usage, 0, sizeof *usage);
    usage->peak_bytes = atomic_load(&books->peak);
    for (int c = 0; c < ULL_CLASSES; c++) {
        /* What has passed to an heir is shown there, though still in these books. */
        uint64_t held = atomic_load(&books->held[c]);
        uint64_t passed = ull__share_passed(file, slot, device, (enum ull__class)c);
        usage->by_class[c] = (held > passed ? held - passed : 0) +
                             ull__share_inherited(file, slot, device, (enum ull__class)c);
        usage->peak_by_class[c] = atomic_load(&books->peak_by_class[c]);
        usage->held_bytes += usage->by_class[c];
    }
    if (usage->peak_bytes < usage->held_bytes)
        usage->peak_bytes = usage->held_bytes;
}

bool ull__ledger_process(struct ull__ledger *ledger, int number, struct ull__process_view *view)
{
    struct ull__ledger_file *file = ledger->file;
    if (number < 0 || number >= ULL_MAX_SLOTS)
        return false;
    struct ull__slot *slot = &file->slots[number];
    uint32_t state = atomic_load(&slot->state);
    if (state == SLOT_FREE)
        return false;
    memset(view, 0, sizeof *view);
    view->pid = atomic_load(&slot->pid);
    view->driver_pid = atomic_load(&slot->driver_pid);
    view->start_ticks = atomic_load(&slot->start_ticks);
    view->account = atomic_load(&slot->account);
    view->draining = state == SLOT_DRAINING;
    uint32_t measured = atomic_load(&slot->measured);
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        view->context_source[d] = measured >> d & 1          ? ULL_CONTEXT_BY_PROCESS
                                  : measured >> (d + 16) & 1 ? ULL_CONTEXT_BY_CARD
                                                             : ULL_CONTEXT_ESTIMATED;
    memcpy(view->command, slot->command, sizeof view->command);
    view->command[sizeof view->command - 1] = '\0';
    for (int d = 0; d < file->spec.device_count; d++) {
        read_books(file, number, d, &view->usage[d]);
        uint64_t hidden = atomic_load(&slot->devices[d].hidden);
        uint64_t contexts = view->usage[d].by_class[ULL_CLASS_CONTEXT];
        view->hidden_bytes[d] = hidden < contexts ? hidden : contexts;
    }
    ull__slot_read_residency(slot, view);
    ull__slot_read_idle(slot, view);
    return true;
}

bool ull__ledger_account(struct ull__ledger *ledger, int number, struct ull__account_view *view)
{
    struct ull__ledger_file *file = ledger->file;
    if (number < 0 || number >= ULL_MAX_ACCOUNTS)
        return false;
    struct ull__account *account = &file->accounts[number];
    if (number > 0 && atomic_load(&account->root_pid) == 0)
        return false;
    memset(view, 0, sizeof *view);
    view->number = (uint32_t)number;
    view->root_pid = atomic_load(&account->root_pid);
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++) {
        struct ull__process_view process;
        if (!ull__ledger_process(ledger, i, &process) || process.account != (uint32_t)number)
            continue;
        view->live |= !process.draining;
        view->pinned_bytes += process.pinned_bytes;
        for (int d = 0; d < file->spec.device_count; d++) {
            view->evicted_bytes[d] += process.evicted_bytes[d];
            view->spilled_bytes[d] += process.spilled_bytes[d];
            view->hidden_bytes[d] += process.hidden_bytes[d];
            for (int c = 0; c < ULL_CLASSES; c++)
                view->usage[d].by_class[c] += process.usage[d].by_class[c];
        }
    }
    for (int d = 0; d < file->spec.device_count; d++) {
        struct ull__account_device *device = &account->devices[d];
        view->usage[d].held_bytes = atomic_load(&device->cell.total);
        view->usage[d].peak_bytes = atomic_load(&device->peak);
        for (int c = 0; c < ULL_CLASSES; c++)
            view->usage[d].peak_by_class[c] = atomic_load(&device->peak_by_class[c]);
        uint64_t ms = atomic_load(&device->sampled_ns) / 1000000;
        if (ms)
            view->average_bytes[d] = atomic_load(&device->sampled_kib_ms) / ms * 1024;
    }
    return true;
}

/* Two may have written the same name at once, and one may have died before it wrote anything. */
static int copy_variants(const struct ull__ledger_file *file, int count,
                         char variants[ULL_MAX_VARIANTS][ULL_NAME_TEXT])
{
    int copied = 0;
    for (int i = 0; i < count; i++) {
        char *name = variants[copied];
        memcpy(name, file->variants[i], ULL_NAME_TEXT);
        name[ULL_NAME_TEXT - 1] = '\0';
        bool known = name[0] == '\0';
        for (int j = 0; j < copied && !known; j++)
            known = strcmp(variants[j], name) == 0;
        copied += !known;
    }
    if (copied < ULL_MAX_VARIANTS)
        variants[copied][0] = '\0';
    return copied;
}

void ull__ledger_job(struct ull__ledger *ledger, struct ull__job_view *view)
{
    struct ull__ledger_file *file = ledger->file;
    memset(view, 0, sizeof *view);
    memcpy(view->id, file->id, sizeof view->id);
    view->supervisor_pid = file->supervisor_pid;
    view->supervisor_alive = ull__ledger_supervised(ledger);
    view->start_unix_ns = file->start_unix_ns;
    view->refusals = atomic_load(&file->refusals);
    view->refusals_survived = atomic_load(&file->survived);
    for (int d = 0; d < file->spec.device_count; d++) {
        view->budget_bytes[d] = atomic_load(&file->budget_bytes[d]);
        view->preallocated[d] = atomic_load(&file->preallocated) >> d & 1;
        for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
            uint64_t first = atomic_load(&file->accounts[a].devices[d].first_largest);
            if (first > view->first_allocation_bytes[d])
                view->first_allocation_bytes[d] = first;
        }
    }
    view->state = ull__file_state(file);
    view->priority = atomic_load(&file->priority);
    view->spilled_peak_bytes = atomic_load(&file->spilled_peak);
    view->flags = atomic_load(&file->flags);
    int used = (int)atomic_load(&file->slots_used);
    view->slots_used = used;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        view->soft_bytes[d] = atomic_load(&file->soft_bytes[d]);
    for (int i = 0; i < used; i++) {
        struct ull__slot *slot = &file->slots[i];
        if (atomic_load(&slot->state) == SLOT_FREE)
            continue;
        view->process_count++;
        for (int d = 0; d < ULL_MAX_DEVICES; d++) {
            view->evicted_bytes[d] += atomic_load(&slot->devices[d].evicted);
            view->spilled_bytes[d] += atomic_load(&slot->devices[d].spilled);
        }
    }
    uint32_t variants = atomic_load(&file->variant_count);
    view->variant_count = variants < ULL_MAX_VARIANTS ? (int)variants : ULL_MAX_VARIANTS;
    view->variant_count = copy_variants(file, view->variant_count, view->variants);
}

static void raise_to(_Atomic uint64_t *what, uint64_t value)
{
    uint64_t seen = atomic_load(what);
    while (seen < value && !atomic_compare_exchange_weak(what, &seen, value))
        ;
}

static void sample_device(struct ull__ledger_file *file, uint32_t account, int d, uint64_t elapsed)
{
    struct ull__account_device *device = &file->accounts[account].devices[d];
    uint64_t by_class[ULL_CLASSES] = {0};
    uint64_t total = atomic_load(&device->cell.total);
    if (total == 0)
        return;
    /* Nanoseconds keep a short job's average exact; KiB x ms fit for 100 days x 1 TiB. */
    atomic_fetch_add(&device->sampled_ns, elapsed);
    atomic_fetch_add(&device->sampled_kib_ms,
                     (uint64_t)((double)(total / 1024) * ((double)elapsed / 1e6)));
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++)
        if (atomic_load(&file->slots[i].state) != SLOT_FREE &&
            atomic_load(&file->slots[i].account) == account)
            for (int c = 0; c < ULL_CLASSES; c++)
                by_class[c] += atomic_load(&file->slots[i].devices[d].held[c]);
    for (int c = 0; c < ULL_CLASSES; c++)
        raise_to(&device->peak_by_class[c], by_class[c] < total ? by_class[c] : total);
}

void ull__ledger_sample(struct ull__ledger *ledger)
{
    struct ull__ledger_file *file = ledger->file;
    uint64_t now = ull__monotonic_ns();
    uint64_t before = atomic_exchange(&file->last_sample_ns, now);
    uint64_t elapsed = before && now > before ? now - before : 0;
    for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
        if (a > 0 && atomic_load(&file->accounts[a].root_pid) == 0)
            break; /* accounts are handed out in order */
        for (int d = 0; d < file->spec.device_count; d++)
            sample_device(file, (uint32_t)a, d, elapsed);
    }
}

/* --- another user's ledger ---------------------------------------------------------------------- */

#define TERMINATE(text) ((text)[sizeof(text) - 1] = '\0')

/* Any byte is a bool in a file, but not in C. */
static void make_bool(bool *flag)
{
    unsigned char byte;
    memcpy(&byte, flag, 1);
    *flag = byte != 0;
}

static void sanitize_spec(struct ull__job_spec *spec)
{
    make_bool(&spec->quiet);
    make_bool(&spec->each);
    make_bool(&spec->suspendable);
    make_bool(&spec->waits);
    make_bool(&spec->may_queue);
    TERMINATE(spec->name);
    TERMINATE(spec->command);
    TERMINATE(spec->report);
    TERMINATE(spec->set_by);
    TERMINATE(spec->parent);
    TERMINATE(spec->group);
    if (spec->device_count < 0 || spec->device_count > ULL_MAX_DEVICES)
        spec->device_count = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        TERMINATE(spec->devices[d].uuid);
        TERMINATE(spec->devices[d].name);
    }
}

static void sanitize_refusal(struct ull__refusal *refusal)
{
    if (refusal->device < 0 || refusal->device >= ULL_MAX_DEVICES)
        refusal->device = 0;
    if ((unsigned)refusal->class >= ULL_CLASSES)
        refusal->class = 0;
    if (refusal->holder_count < 0 || refusal->holder_count > ULL_MAX_HOLDERS)
        refusal->holder_count = 0;
    for (int h = 0; h < ULL_MAX_HOLDERS; h++)
        if ((unsigned)refusal->holders[h].class >= ULL_CLASSES)
            refusal->holders[h].class = 0;
    make_bool(&refusal->survived);
    make_bool(&refusal->by_max_request);
}

void ull__sanitize(struct ull__ledger_file *file)
{
    TERMINATE(file->id);
    sanitize_spec(&file->spec);
    if (atomic_load(&file->slots_used) > ULL_MAX_SLOTS)
        atomic_store(&file->slots_used, ULL_MAX_SLOTS);
    if (atomic_load(&file->shares_used) > ULL_MAX_SHARES)
        atomic_store(&file->shares_used, ULL_MAX_SHARES);
    for (int i = 0; i < ULL_MAX_SLOTS; i++)
        if (atomic_load(&file->slots[i].account) >= ULL_MAX_ACCOUNTS)
            atomic_store(&file->slots[i].account, 0);
    for (int i = 0; i < ULL_MAX_REFUSALS; i++)
        sanitize_refusal(&file->refusal_ring[i].refusal);
}
