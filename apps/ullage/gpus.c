/* gpus.c: see gpus.h. */
#include "gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "machine.h"

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

static ull_status open_library(struct gpus *gpus, const char *path, struct ull_error *err)
{
    memset(gpus, 0, sizeof *gpus);
    ull_status status = ull__nvml_init(&gpus->nvml, &libc_linker, path, err);
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
                                    .offered_bytes = found[i].total_bytes,
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

ull_status gpus_open(struct gpus *gpus, struct ull_error *err)
{
    return open_library(gpus, NULL, err);
}

ull_status gpus_open_as_program(struct gpus *gpus, struct ull_error *err)
{
    /* By its bare name the stand-in is found, which is preloaded there. */
    if (getenv("ULLAGE_JOB") && open_library(gpus, "libnvidia-ml.so.1", NULL) == ULL_OK)
        return ULL_OK;
    return gpus_open(gpus, err);
}

void gpus_close(struct gpus *gpus)
{
    for (int i = 0; gpus->gpu && i < gpus->count; i++)
        free(gpus->gpu[i].processes);
    free(gpus->gpu);
    ull__nvml_finish(&gpus->nvml);
    memset(gpus, 0, sizeof *gpus);
}

bool gpus_open_driver(struct gpus *gpus)
{
    struct probe_device *found = calloc(MACHINE_DEVICES, sizeof *found);
    int count = found ? probe_cuda(found, MACHINE_DEVICES) : 0;
    memset(gpus, 0, sizeof *gpus);
    gpus->gpu = count > 0 ? calloc((size_t)count, sizeof *gpus->gpu) : NULL;
    for (int i = 0; gpus->gpu && i < count; i++) {
        struct gpu *gpu = &gpus->gpu[gpus->count++];
        *gpu =
            (struct gpu){.card = -1, .memory_of = i, .busy_percent = -1, .memory_busy_percent = -1};
        gpu->offered_bytes = found[i].total_bytes;
        gpu->device = (struct ull__nvml_device){.index = i,
                                                .instance = -1,
                                                .gpu_instance = -1,
                                                .compute_instance = -1,
                                                .total_bytes = ULL_NVML_UNKNOWN,
                                                .reserved_bytes = ULL_NVML_UNKNOWN,
                                                .used_bytes = ULL_NVML_UNKNOWN,
                                                .free_bytes = ULL_NVML_UNKNOWN};
        snprintf(gpu->device.uuid, sizeof gpu->device.uuid, "%s", found[i].uuid);
        snprintf(gpu->device.name, sizeof gpu->device.name, "%s", found[i].name);
    }
    gpus->cards = gpus->count;
    free(found);
    return gpus->count > 0;
}

void gpus_complete(struct gpus *gpus)
{
    bool complete = true;
    for (int i = 0; i < gpus->count; i++)
        complete &= gpus->gpu[i].offered_bytes != ULL_NVML_UNKNOWN;
    struct probe_device *found = complete ? NULL : calloc(MACHINE_DEVICES, sizeof *found);
    int count = found ? probe_cuda(found, MACHINE_DEVICES) : 0;
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        for (int k = 0; k < count; k++) {
            /* The driver gives an instance's UUID without saying that it is one. */
            if (gpu->offered_bytes == ULL_NVML_UNKNOWN && strlen(gpu->device.uuid) > 4 &&
                strcmp(found[k].uuid + 4, gpu->device.uuid + 4) == 0)
                gpu->offered_bytes = found[k].total_bytes;
        }
    }
    free(found);
}

void gpus_update_memory(struct gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpu[i].device.handle)
            ull__nvml_memory(&gpus->nvml, &gpus->gpu[i].device);
    }
}

void gpus_update_busy(struct gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        nvmlUtilization_t rates;
        bool known = gpu->device.handle && gpus->nvml.call.nvmlDeviceGetUtilizationRates &&
                     gpus->nvml.call.nvmlDeviceGetUtilizationRates(gpu->device.handle, &rates) ==
                         NVML_SUCCESS;
        gpu->busy_percent = known && rates.gpu <= 100 ? (int)rates.gpu : -1;
        gpu->memory_busy_percent = known && rates.memory <= 100 ? (int)rates.memory : -1;
    }
}

/* The driver's list; NULL where it cannot say. *count may be 0 then too. */
static struct ull__nvml_process *listed(const struct gpus *gpus, const struct gpu *gpu, int *count)
{
    for (int room = FIRST_PROCESSES; gpu->device.handle; room *= 2) {
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
    return NULL;
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
                               .place = PROC_UNSEEN};
}

void gpus_describe(struct gpu_process *process)
{
    process->place = proc_place(process->pid);
    if (process->place == PROC_UNSEEN ||
        !proc_command(process->pid, process->command, sizeof process->command))
        process->command[0] = 0;
}

void gpus_list_processes(struct gpus *gpus)
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

void gpus_update_processes(struct gpus *gpus)
{
    gpus_list_processes(gpus);
    for (int i = 0; i < gpus->count; i++)
        for (int p = 0; p < gpus->gpu[i].process_count; p++)
            gpus_describe(&gpus->gpu[i].processes[p]);
}
