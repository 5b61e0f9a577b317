/*
 * recorder.c: what hooks tell, where `ullage run --record` asks for it (src/record/pump.h writes it down).
 *
 * After a kill the last 50 ms are missing, at an exec and an _exit likewise.
 *
 * What is recorded is what the books say: the sum of all `charged` of a class is what the ledger holds of it for
 * this process, reservations for the worst case of calls that are under way left out.
 *
 * A failed write is said once and ends the recording; the program does not notice. A forked child begins anew at its own
 * cuInit. If it never calls that, it keeps its copy of the parent's descriptor, which closes at exec.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose.h"
#include "pump.h"

enum { LAST_WAIT_MS = 2000 /* for the last write at the program's end */ };

static struct ull__pump *pump;
static char record_path[ULL_RECORD_PATH];

/* What this process is charged with for memory that others made. */
static struct {
    pthread_mutex_t lock;
    uint64_t told[MAX_ORDINALS][ULL_CLASSES];
} heir = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- what hooks call ------------------------------------------------------------------------------------- */

uint64_t ull__tell_clock(void)
{
    return ull__record_now();
}

void ull__tell_call(const struct ull__charge *charge, uint64_t charged, CUresult result)
{
    struct ull__event event = {.address = result == CUDA_SUCCESS ? charge->address : 0,
                               .size = charge->asked,
                               .charged = (int64_t)charged,
                               .stream = (uint64_t)(uintptr_t)charge->stream,
                               .result = (int16_t)result,
                               .kind = ULL_EVENT_ALLOC,
                               .class = (uint8_t)charge->class,
                               .device = (uint8_t)charge->gpu->device,
                               .wait = charge->wait};
    if (charge->gpu->device < 0)
        return;
    if (result == CUDA_SUCCESS && charge->address == 0) /* it has no block of its own */
        event.kind = ULL_EVENT_CHARGE, event.size = 0;
    ull__pump_put(pump, &event, charge->began_ns);
}

void ull__tell_freed(const struct ull__gpu *gpu, enum ull__class class, uint64_t address,
                     uint64_t bytes, uint64_t charged, const struct ull__moment *moment)
{
    struct ull__event event = {.address = address,
                               .size = bytes,
                               .charged = (int64_t)charged,
                               .stream = moment ? (uint64_t)(uintptr_t)moment->stream : 0,
                               .kind = ULL_EVENT_FREE,
                               .class = (uint8_t) class,
                               .device = (uint8_t)gpu->device};
    if (gpu->device >= 0)
        ull__pump_put(pump, &event, moment ? moment->began_ns : 0);
}

void ull__tell_change(const struct ull__gpu *gpu, enum ull__class class, int64_t change)
{
    struct ull__event event = {.charged = change,
                               .kind = ULL_EVENT_CHARGE,
                               .class = (uint8_t) class,
                               .device = (uint8_t)gpu->device};
    if (gpu->device >= 0 && change != 0)
        ull__pump_put(pump, &event, 0);
}

/* It passes to this process without a call of its own, so the parked thread looks, too. */
void ull__tell_inherited(void)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    pthread_mutex_lock(&heir.lock);
    for (int i = 0; i < ull__state.gpu_count; i++)
        for (int c = 0; ull__state.gpus[i].device >= 0 && c < ULL_CLASSES; c++) {
            uint64_t now =
                ull__member_inherited(member, ull__state.gpus[i].device, (enum ull__class)c);
            ull__tell_change(&ull__state.gpus[i], (enum ull__class)c,
                             (int64_t)(now - heir.told[i][c]));
            heir.told[i][c] = now;
        }
    pthread_mutex_unlock(&heir.lock);
}

/* --- beginning and end ------------------------------------------------------------------------------------- */

static void failed(void *data, const char *why)
{
    (void)data;
    atomic_store(&ull__state.recording, false);
    ull__say("process %d is not recorded any more: cannot write to '%.300s': %s", (int)getpid(),
             record_path, why);
}

static void describe(struct ull__writer *writer, const struct ull__identity *identity)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    const struct ull__job_spec *spec = ull__ledger_spec(ull__member_ledger(member));
    for (int d = 0; d < spec->device_count; d++) { /* numbered as in the ledger */
        const struct ull__device_spec *device = &spec->devices[d];
        ull__writer_device(writer,
                           &(struct ull__record_device){.uuid = device->uuid,
                                                        .name = device->name,
                                                        .logical = device->logical,
                                                        .physical = device->physical,
                                                        .total_bytes = device->total_bytes,
                                                        .budget_bytes = device->budget_bytes});
    }
    ull__writer_process(writer, 0,
                        &(struct ull__record_process){.pid = identity->pid,
                                                      .parent = (uint32_t)getppid(),
                                                      .start_ticks = identity->start_ticks,
                                                      .begin_ns = ull__record_now(),
                                                      .name = identity->command});
}

void ull__recorder_start(const struct ull__identity *identity)
{
    const char *path = getenv("ULLAGE_RECORD"), *stacks = getenv("ULLAGE_STACKS");
    struct ull_error err = {""};
    if (!path || !path[0] || strlen(path) >= sizeof record_path)
        return;
    memcpy(record_path, path, strlen(path) + 1);
    const struct ull__pump_options options = {.path = path,
                                              .id = getenv("ULLAGE_RECORD_ID"),
                                              .stacks = stacks && strcmp(stacks, "1") == 0,
                                              .thread_name = "ullage-rec",
                                              .failed = failed};
    if (ull__pump_create(&options, &pump, &err) != ULL_OK) {
        ull__say("process %d is not recorded: %s", (int)getpid(), err.message);
        return;
    }
    describe(ull__pump_writer(pump), identity);
    if (ull__pump_start(pump)) {
        atomic_store(&ull__state.recording, true);
        return;
    }
    ull__say("process %d is not recorded: no thread for it", (int)getpid());
    ull__recorder_forget();
}

void ull__recorder_forget(void)
{
    atomic_store(&ull__state.recording, false);
    ull__pump_forget(pump);
    pump = NULL;
    memset(heir.told, 0, sizeof heir.told);
    pthread_mutex_init(&heir.lock, NULL);
}

/* exit() runs this in a thread of the program's, after its own last functions. */
__attribute__((destructor)) static void write_the_rest(void)
{
    _Atomic int *alive = atomic_load(&ull__alive);
    if (!atomic_load(&ull__state.recording) || atomic_load(alive) == 0)
        return; /* in a forked child the thread is not there */
    ull__pump_finish(pump, LAST_WAIT_MS);
}
