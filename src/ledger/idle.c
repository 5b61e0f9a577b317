/*
 * idle.c: see idle.h.
 *
 * What is asked for is one word, a number and bytes, so that root can write it into a file of which it has a copy only.
 */
#include "idle.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "error.h"
#include "layout.h"

/* Bytes are counted up to whole KiB, which is enough for 2^58 of them. */
enum { KIB_BITS = 48, KIB_SHIFT = 10 };

struct ull__idle {
    struct ull__ledger *ledger;
    int slot;
    uint32_t generation;
    uint64_t said[ULL_MAX_DEVICES];  /* this caller's part of what the place says */
    uint64_t asked[ULL_MAX_DEVICES]; /* the word that was seen last */
};

/* --- by the process --------------------------------------------------------------------------------------- */

static ull_status open_outermost(const char *path, struct ull__ledger **out, struct ull_error *err)
{
    struct ull__ledger *ledger = NULL;
    ull_status status = ull__ledger_open(path, &ledger, err);
    for (int depth = 1; status == ULL_OK && ledger->file->spec.parent[0]; depth++) {
        struct ull__ledger *around = NULL;
        status = depth == ULL_MAX_CHAIN
                     ? ull__fail(err, ULL_E_FULL, "jobs are nested more than %d deep", ULL_MAX_CHAIN)
                     : ull__ledger_open(ledger->file->spec.parent, &around, err);
        ull__ledger_close(ledger);
        ledger = around;
    }
    if (status == ULL_OK)
        *out = ledger;
    return status;
}

static int find_place(struct ull__ledger *ledger, uint32_t pid, uint64_t start_ticks)
{
    struct ull__ledger_file *file = ledger->file;
    ull__ledger_notice(ledger); /* before an exec this very process had another one */
    int used = (int)atomic_load(&file->slots_used);
    for (int i = 0; i < used; i++) {
        struct ull__slot *slot = &file->slots[i];
        if (atomic_load(&slot->state) == SLOT_LIVE && atomic_load(&slot->pid) == pid &&
            atomic_load(&slot->start_ticks) == start_ticks)
            return i;
    }
    return -1;
}

ull_status ull__idle_open(const char *path, uint32_t pid, uint64_t start_ticks,
                          struct ull__idle **out, struct ull_error *err)
{
    struct ull__idle *idle = calloc(1, sizeof *idle);
    if (!idle)
        return ull__fail(err, ULL_E_SYSTEM, "no memory");
    ull_status status = open_outermost(path, &idle->ledger, err);
    if (status == ULL_OK && (idle->slot = find_place(idle->ledger, pid, start_ticks)) < 0) {
        ull__ledger_close(idle->ledger);
        status = ull__fail(err, ULL_E_NOT_FOUND, "process %u has no place in the job's ledger", pid);
    }
    if (status != ULL_OK) {
        free(idle);
        return status;
    }
    struct ull__slot *slot = &idle->ledger->file->slots[idle->slot];
    idle->generation = atomic_load(&slot->generation);
    for (int d = 0; d < ULL_MAX_DEVICES; d++) /* nothing that was asked before is ours to answer */
        idle->asked[d] = atomic_load(&slot->devices[d].trim_asked);
    *out = idle;
    return ULL_OK;
}

static struct ull__slot *own_place(const struct ull__idle *idle)
{
    struct ull__slot *slot = &idle->ledger->file->slots[idle->slot];
    return atomic_load(&slot->state) == SLOT_LIVE && atomic_load(&slot->generation) == idle->generation
               ? slot
               : NULL;
}

void ull__idle_close(struct ull__idle *idle)
{
    if (!idle)
        return;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        ull__idle_say(idle, d, 0);
    ull__ledger_close(idle->ledger);
    free(idle);
}

int ull__idle_device(const struct ull__idle *idle, const char *uuid)
{
    const struct ull__job_spec *spec = &idle->ledger->file->spec;
    for (int d = 0; d < spec->device_count; d++)
        if (strcmp(spec->devices[d].uuid, uuid) == 0)
            return d;
    return -1;
}

bool ull__idle_served(const struct ull__idle *idle)
{
    return ull__file_is_served(idle->ledger->file);
}

bool ull__idle_say(struct ull__idle *idle, int device, uint64_t bytes)
{
    struct ull__slot *slot = own_place(idle);
    if (!slot)
        return false;
    if (bytes != idle->said[device])
        atomic_fetch_add(&slot->devices[device].idle, bytes - idle->said[device]);
    idle->said[device] = bytes;
    return true;
}

uint64_t ull__idle_asked(struct ull__idle *idle, int device)
{
    struct ull__slot *slot = own_place(idle);
    uint64_t word = slot ? atomic_load(&slot->devices[device].trim_asked) : idle->asked[device];
    if (word == idle->asked[device])
        return 0;
    idle->asked[device] = word;
    return (word & ((UINT64_C(1) << KIB_BITS) - 1)) << KIB_SHIFT;
}

void ull__idle_answer(struct ull__idle *idle, int device)
{
    struct ull__slot *slot = own_place(idle);
    if (slot)
        atomic_store(&slot->devices[device].trim_done, idle->asked[device] >> KIB_BITS);
}

static void ring(struct ull__slot *slot)
{
    atomic_fetch_add(&slot->trim_bell, 1);
    syscall(SYS_futex, &slot->trim_bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t ull__idle_bell(const struct ull__idle *idle)
{
    return atomic_load(&idle->ledger->file->slots[idle->slot].trim_bell);
}

void ull__idle_ring(struct ull__idle *idle)
{
    ring(&idle->ledger->file->slots[idle->slot]);
}

void ull__idle_wait(struct ull__idle *idle, uint32_t bell, uint64_t timeout_ns)
{
    struct ull__slot *slot = &idle->ledger->file->slots[idle->slot];
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, &slot->trim_bell, FUTEX_WAIT, bell, &timeout, NULL, 0);
}

/* --- by the daemon ---------------------------------------------------------------------------------------- */

bool ull__ledger_trim(struct ull__ledger *ledger, int number, int device, uint64_t bytes)
{
    if (number < 0 || number >= ULL_MAX_SLOTS || device < 0 || device >= ULL_MAX_DEVICES)
        return false;
    struct ull__slot *slot = &ledger->file->slots[number];
    _Atomic uint64_t *asked = &slot->devices[device].trim_asked;
    uint64_t kib = (bytes >> KIB_SHIFT) + (bytes % (1u << KIB_SHIFT) != 0);
    uint64_t most = (UINT64_C(1) << KIB_BITS) - 1;
    uint64_t word = ((atomic_load(asked) >> KIB_BITS) + 1) << KIB_BITS | (kib < most ? kib : most);
    atomic_store(asked, word);
    if (ledger->copy)
        return ull__write_word(
            ledger,
            offsetof(struct ull__ledger_file, slots) + (size_t)number * sizeof *slot +
                offsetof(struct ull__slot, devices) + (size_t)device * sizeof slot->devices[0] +
                offsetof(struct ull__slot_device, trim_asked),
            &word, sizeof word);
    ring(slot);
    return true;
}

void ull__slot_read_idle(struct ull__slot *slot, struct ull__process_view *view)
{
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        struct ull__slot_device *device = &slot->devices[d];
        uint64_t held = view->usage[d].held_bytes, idle = atomic_load(&device->idle);
        view->trimming[d] =
            atomic_load(&device->trim_done) != atomic_load(&device->trim_asked) >> KIB_BITS;
        view->idle_bytes[d] = view->draining ? 0 : idle < held ? idle : held;
    }
}

void ull__slot_forget_idle(struct ull__slot *slot)
{
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        atomic_store(&slot->devices[d].idle, 0);
        atomic_store(&slot->devices[d].trim_done,
                     atomic_load(&slot->devices[d].trim_asked) >> KIB_BITS);
    }
}
