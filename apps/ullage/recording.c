/*
 * recording.c: see recording.h.
 *
 * The tree is everything below this process, also what has no use for a GPU: pipelines that load data leak host memory.
 * It is walked once a second. A process that is too short for that is known only if it uses CUDA, or if its end
 * comes to us. Numbers of processes in the file are used again after their end.
 *
 * An end is seen at once where the process was ours to wait for, within 10 ms where it was a member of the job, and at
 * the next walk of any other. In other pid namespaces a process is watched under the pid that it has here, and
 * records itself under the one that it has there: it shows up twice.
 */
#include "recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "file.h"
#include "procfs.h"
#include "writer.h"

enum {
    MOST_WATCHED = 16384, /* processes at one time */
    MOST_LISTED = 512,    /* of a device */
    SECOND_NS = 1000000000,
};

struct watched {
    uint32_t pid;
    uint64_t start_ticks;
    uint64_t round; /* walk in which it was last seen */
    bool live;
    char name[64];
};

enum member { NOT_SEEN, PRESENT, GONE };

struct recording {
    struct ull__writer *writer;
    struct ull__ledger *ledger;
    struct machine *machine;
    char path[ULL_FILE_PATH];
    struct watched *watched; /* process i + 1 in the file */
    uint32_t count, capacity;
    uint8_t members[SEEN_PROCESSES]; /* enum member, of those seen in the ledger */
    uint64_t round, next_ns;
    uint64_t budget_bytes[ULL_MAX_DEVICES];
    bool failed;
};

/* --- beginning -------------------------------------------------------------------------------------------- */

static void describe(struct recording *recording)
{
    const struct ull__job_spec *spec = ull__ledger_spec(recording->ledger);
    ull__writer_job(recording->writer, spec->name, spec->command, ULLAGE_VERSION);
    for (int d = 0; d < spec->device_count; d++) {
        const struct ull__device_spec *device = &spec->devices[d];
        ull__writer_device(recording->writer,
                           &(struct ull__record_device){.uuid = device->uuid,
                                                        .name = device->name,
                                                        .logical = device->logical,
                                                        .physical = device->physical,
                                                        .total_bytes = device->total_bytes,
                                                        .budget_bytes = device->budget_bytes});
        recording->budget_bytes[d] = device->budget_bytes;
    }
}

static void flush(struct recording *recording)
{
    if (recording->failed || ull__writer_flush(recording->writer, 0))
        return;
    int error = ull__writer_error(recording->writer);
    recording->failed = true;
    cli_say("the record ends here: cannot write to '%.300s': %s", recording->path,
            error == ESTALE ? "another file is there now" : strerror(error));
}

static ull_status set_variables(const char *path, const char *id, bool stacks, struct ull_error *err)
{
    int failed = setenv("ULLAGE_RECORD", path, 1) | setenv("ULLAGE_RECORD_ID", id, 1);
    failed |= stacks ? setenv("ULLAGE_STACKS", "1", 1) : unsetenv("ULLAGE_STACKS");
    return failed ? ull__fail(err, ULL_E_SYSTEM, "no memory for the environment") : ULL_OK;
}

ull_status recording_create(const char *path, bool stacks, struct ull__ledger *ledger,
                            struct machine *machine, struct recording **out, struct ull_error *err)
{
    char id[ULL_RECORD_ID];
    struct recording *recording = calloc(1, sizeof *recording);
    if (!recording)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to record");
    recording->ledger = ledger;
    recording->machine = machine;
    memcpy(recording->path, path, strlen(path) + 1);
    ull_status status = ull__record_create(path, id, err);
    if (status == ULL_OK)
        status = ull__writer_open(path, id, &recording->writer, err);
    if (status == ULL_OK)
        status = set_variables(path, id, stacks, err);
    if (status == ULL_OK) {
        ull__writer_claim(recording->writer);
        describe(recording);
        if (!ull__writer_flush(recording->writer, 0))
            status = ull__fail(err, ULL_E_SYSTEM, "cannot write to the record '%.300s': %s", path,
                               strerror(ull__writer_error(recording->writer)));
    }
    if (status == ULL_OK) {
        *out = recording;
        return ULL_OK;
    }
    ull__writer_close(recording->writer);
    free(recording);
    return status;
}

/* --- processes ---------------------------------------------------------------------------------------------- */

static void write_process(struct recording *recording, const struct watched *watched,
                          const struct proc_stat *stat)
{
    ull__writer_process(recording->writer, (uint32_t)(watched - recording->watched) + 1,
                        &(struct ull__record_process){.pid = watched->pid,
                                                      .parent = stat->parent,
                                                      .start_ticks = stat->start_ticks,
                                                      .begin_ns = stat->begin_ns,
                                                      .name = stat->name});
}

static void write_end(struct recording *recording, struct watched *watched, int exit_code)
{
    watched->live = false;
    ull__writer_event(recording->writer,
                      &(struct ull__event){.time_ns = ull__record_now(),
                                           .result = (int16_t)exit_code,
                                           .process = (uint16_t)(watched - recording->watched + 1),
                                           .kind = ULL_EVENT_END,
                                           .device = ULL_EVENT_NO_DEVICE});
}

static struct watched *find(struct recording *recording, uint32_t pid)
{
    for (uint32_t i = 0; i < recording->count; i++)
        if (recording->watched[i].live && recording->watched[i].pid == pid)
            return &recording->watched[i];
    return NULL;
}

static struct watched *free_place(struct recording *recording)
{
    for (uint32_t i = 0; i < recording->count; i++)
        if (!recording->watched[i].live)
            return &recording->watched[i];
    if (recording->count == recording->capacity) {
        uint32_t wanted = recording->capacity ? recording->capacity * 2 : 64;
        struct watched *grown =
            wanted > MOST_WATCHED ? NULL : realloc(recording->watched, wanted * sizeof *grown);
        if (!grown)
            return NULL;
        recording->watched = grown;
        recording->capacity = wanted;
    }
    return &recording->watched[recording->count++];
}

static bool is_over(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X';
}

/* NULL where it is not to be seen, or is dead. One that is ours is there until it is reaped: then its exit code is known. */
static struct watched *look_at(struct recording *recording, uint32_t pid, struct proc_stat *stat)
{
    struct watched *watched = find(recording, pid);
    bool there = proc_stat(pid, stat);
    there = there && (!is_over(stat) || stat->parent == (uint32_t)getpid());
    if (watched && (!there || watched->start_ticks != stat->start_ticks)) {
        write_end(recording, watched, -1);
        watched = NULL;
    }
    if (!there)
        return NULL;
    if (!watched) {
        watched = free_place(recording);
        if (!watched)
            return NULL;
        *watched = (struct watched){.pid = pid, .start_ticks = stat->start_ticks, .live = true};
    }
    if (strcmp(watched->name, stat->name) != 0) { /* new, or it executes something else now */
        memcpy(watched->name, stat->name, sizeof watched->name);
        write_process(recording, watched, stat);
    }
    watched->round = recording->round;
    return watched;
}

void recording_started(struct recording *recording, pid_t command)
{
    struct proc_stat stat;
    if (!recording)
        return;
    look_at(recording, (uint32_t)command, &stat);
    flush(recording);
}

void recording_reaped(struct recording *recording, pid_t pid, int exit_code)
{
    struct watched *watched = recording ? find(recording, (uint32_t)pid) : NULL;
    if (watched)
        write_end(recording, watched, exit_code);
}

static void look_at_tree(struct recording *recording, uint32_t pid)
{
    uint32_t *children;
    int count = proc_children(pid, &children);
    for (int i = 0; i < count; i++) {
        struct proc_stat stat;
        struct watched *watched = look_at(recording, children[i], &stat);
        if (!watched || is_over(&stat))
            continue;
        ull__writer_event(recording->writer,
                          &(struct ull__event){.time_ns = ull__record_now(),
                                               .size = stat.resident_bytes,
                                               .process = (uint16_t)(watched - recording->watched + 1),
                                               .kind = ULL_EVENT_HOST,
                                               .device = ULL_EVENT_NO_DEVICE});
        look_at_tree(recording, children[i]);
    }
    free(children);
}

/* A member joined or left: whether that is its end, only /proc knows. */
static void look_at_members(struct recording *recording, const struct seen *seen)
{
    for (int i = 0; i < seen->process_count; i++) {
        const struct seen_process *process = &seen->processes[i];
        enum member now = process->present && !process->view.draining ? PRESENT : GONE;
        struct proc_stat stat;
        if (recording->members[i] != now && (now == PRESENT || find(recording, process->view.pid)))
            look_at(recording, process->view.pid, &stat);
        recording->members[i] = (uint8_t)now;
    }
}

/* --- cards -------------------------------------------------------------------------------------------------- */

static uint64_t held_by_job(struct recording *recording, int device)
{
    uint64_t held = 0;
    for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
        struct ull__account_view view;
        if (ull__ledger_account(recording->ledger, a, &view))
            held += view.usage[device].held_bytes;
    }
    return held;
}

static bool is_member(struct recording *recording, uint32_t pid)
{
    for (int slot = 0; slot < ULL_MAX_SLOTS; slot++) {
        struct ull__process_view view;
        if (ull__ledger_process(recording->ledger, slot, &view) &&
            (view.driver_pid ? view.driver_pid : view.pid) == pid)
            return true;
    }
    return false;
}

static uint64_t foreign_processes(struct recording *recording, const struct ull__nvml_device *device)
{
    static struct ull__nvml_process listed[MOST_LISTED];
    uint64_t foreign = 0;
    int count = ull__nvml_processes(&recording->machine->nvml, device->handle, listed, MOST_LISTED);
    for (int i = 0; i < count && i < MOST_LISTED; i++)
        foreign += !is_member(recording, listed[i].pid);
    return foreign;
}

static void look_at_card(struct recording *recording, int d)
{
    const struct ull__device_spec *spec = &ull__ledger_spec(recording->ledger)->devices[d];
    struct ull__nvml_device device;
    if (spec->logical < 0 || !recording->machine->has_nvml ||
        ull__nvml_device(&recording->machine->nvml, spec->uuid, &device) != ULL_OK ||
        ull__nvml_memory(&recording->machine->nvml, &device) != ULL_OK ||
        device.used_bytes == ULL_NVML_UNKNOWN)
        return;
    ull__writer_event(recording->writer,
                      &(struct ull__event){.address = foreign_processes(recording, &device),
                                           .size = device.used_bytes,
                                           .charged = (int64_t)held_by_job(recording, d),
                                           .time_ns = ull__record_now(),
                                           .process = 1,
                                           .kind = ULL_EVENT_CARD,
                                           .device = (uint8_t)d});
}

static void look_at_budgets(struct recording *recording)
{
    const struct ull__job_spec *spec = ull__ledger_spec(recording->ledger);
    struct ull__job_view view;
    ull__ledger_job(recording->ledger, &view);
    for (int d = 0; d < spec->device_count; d++) {
        if (view.budget_bytes[d] == recording->budget_bytes[d])
            continue;
        recording->budget_bytes[d] = view.budget_bytes[d];
        ull__writer_event(recording->writer, &(struct ull__event){.time_ns = ull__record_now(),
                                                                  .size = view.budget_bytes[d],
                                                                  .process = 1,
                                                                  .kind = ULL_EVENT_BUDGET,
                                                                  .device = (uint8_t)d});
    }
}

/* --- the clock ------------------------------------------------------------------------------------------------ */

static void look_at_all(struct recording *recording)
{
    recording->round++;
    look_at_tree(recording, (uint32_t)getpid());
    for (uint32_t i = 0; i < recording->count; i++) {
        struct watched *watched = &recording->watched[i];
        struct proc_stat stat;
        if (watched->live && watched->round != recording->round)
            look_at(recording, watched->pid, &stat);
    }
    if (recording->count == 0) /* what is of a device is told as of the command, which is not there */
        return;
    look_at_budgets(recording);
    for (int d = 0; d < ull__ledger_spec(recording->ledger)->device_count; d++)
        look_at_card(recording, d);
}

void recording_tick(struct recording *recording, const struct seen *seen)
{
    if (!recording || recording->failed)
        return;
    look_at_members(recording, seen);
    uint64_t now = ull__record_now();
    if (now >= recording->next_ns) {
        look_at_all(recording);
        recording->next_ns = now + SECOND_NS;
    }
    flush(recording);
}

void recording_finish(struct recording *recording, int exit_code)
{
    if (!recording)
        return;
    if (!recording->failed)
        look_at_all(recording); /* who is left goes on without us */
    ull__writer_over(recording->writer, ull__record_now(), exit_code);
    flush(recording);
    ull__writer_close(recording->writer);
    free(recording->watched);
    free(recording);
}
