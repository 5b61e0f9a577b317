/* gpus.c: see gpus.h. */
#include "gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

enum { MOST_GPUS = 256, FIRST_PROCESSES = 64 };

static const struct ull__linker libc_linker = {.open = dlopen, .symbol = dlsym};

/* Places of an instance: its card, and the first one with the same GPU instance. */
static void place_instance(struct gpus *gpus, int i)
{
    struct gpu *gpu = &gpus->gpu[i];
    for (int k = i - 1; k >= 0 && gpu->card < 0; k--) {
        const struct ull__nvml_device *other = &gpus->gpu[k].device;
        if (other->instance < 0 && other->index == gpu->device.index)
            gpu->card = k;
    }
    for (int k = i - 1; k >= 0; k--) {
        const struct ull__nvml_device *other = &gpus->gpu[k].device;
        if (gpu->device.gpu_instance >= 0 && other->instance >= 0 &&
            other->index == gpu->device.index && other->gpu_instance == gpu->device.gpu_instance)
            gpu->memory_of = k;
    }
}

ull_status gpus_open(struct gpus *gpus, struct ull_error *err)
{
    memset(gpus, 0, sizeof *gpus);
    ull_status status = ull__nvml_init(&gpus->nvml, &libc_linker, NULL, err);
    if (status != ULL_OK) {
        ull__nvml_finish(&gpus->nvml);
        return status;
    }
    struct ull__nvml_device *found = calloc(MOST_GPUS, sizeof *found);
    gpus->gpu = calloc(MOST_GPUS, sizeof *gpus->gpu);
    if (!found || !gpus->gpu) {
        free(found);
        gpus_close(gpus);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the list of GPUs");
    }
    int count = ull__nvml_devices(&gpus->nvml, found, MOST_GPUS);
    gpus->count = count < 0 ? 0 : count > MOST_GPUS ? MOST_GPUS : count;
    for (int i = 0; i < gpus->count; i++) {
        gpus->gpu[i] = (struct gpu){.device = found[i],
                                    .card = -1,
                                    .memory_of = i,
                                    .busy_percent = -1,
                                    .memory_busy_percent = -1};
        if (found[i].instance < 0)
            gpus->cards++;
        else
            place_instance(gpus, i);
    }
    free(found);
    return ULL_OK;
}

void gpus_close(struct gpus *gpus)
{
    for (int i = 0; gpus->gpu && i < gpus->count; i++)
        free(gpus->gpu[i].processes);
    free(gpus->gpu);
    ull__nvml_finish(&gpus->nvml);
    memset(gpus, 0, sizeof *gpus);
}

void gpus_update_memory(struct gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++)
        ull__nvml_memory(&gpus->nvml, &gpus->gpu[i].device);
}

void gpus_update_busy(struct gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        nvmlUtilization_t rates;
        bool known = gpus->nvml.call.nvmlDeviceGetUtilizationRates &&
                     gpus->nvml.call.nvmlDeviceGetUtilizationRates(gpu->device.handle, &rates) ==
                         NVML_SUCCESS;
        gpu->busy_percent = known && rates.gpu <= 100 ? (int)rates.gpu : -1;
        gpu->memory_busy_percent = known && rates.memory <= 100 ? (int)rates.memory : -1;
    }
}

/* The driver's list; NULL where it cannot say. *count may be 0 then too. */
static struct ull__nvml_process *listed(const struct gpus *gpus, const struct gpu *gpu, int *count)
{
    for (int room = FIRST_PROCESSES;; room *= 2) {
        struct ull__nvml_process *processes = calloc((size_t)room, sizeof *processes);
        if (!processes)
            return NULL;
        *count = ull__nvml_processes(&gpus->nvml, gpu->device.handle, processes, room);
        if (*count >= 0 && *count <= room)
            return processes;
        free(processes);
        if (*count < 0)
            return NULL;
    }
}

static void describe(const struct gpu *gpu, const struct ull__nvml_process *from,
                     struct gpu_process *to)
{
    const struct ull__nvml_device *device = &gpu->device;
    uint64_t most = device->total_bytes;
    if (most != ULL_NVML_UNKNOWN && device->reserved_bytes != ULL_NVML_UNKNOWN)
        most += device->reserved_bytes;
    *to = (struct gpu_process){.pid = from->pid,
                               .used_bytes =
                                   from->used_bytes > most ? ULL_NVML_UNKNOWN : from->used_bytes,
                               .gpu_instance = from->gpu_instance,
                               .compute_instance = from->compute_instance,
                               .place = proc_place(from->pid)};
    if (to->place == PROC_UNSEEN || !proc_command(from->pid, to->command, sizeof to->command))
        to->command[0] = 0;
}

void gpus_update_processes(struct gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        int count = 0;
        struct ull__nvml_process *found = listed(gpus, gpu, &count);
        struct gpu_process *processes = calloc((size_t)(found ? count : 0) + 1, sizeof *processes);
        free(gpu->processes);
        gpu->processes = processes;
        gpu->processes_known = found && processes;
        gpu->process_count = gpu->processes_known ? count : 0;
        for (int p = 0; p < gpu->process_count; p++)
            describe(gpu, &found[p], &processes[p]);
        free(found);
    }
}
