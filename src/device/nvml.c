/*
 * nvml.c: see nvml.h.
 *
 * Old libraries lack the newer entry points, so each use falls back to what there is. The result of
 * process lists grows between two calls when programs start; such a list is asked for again.
 */
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "find.h"

/* What nvmlDeviceGetComputeRunningProcesses without a suffix fills. */
struct process_v1 {
    unsigned int pid;
    unsigned long long used;
};

static void *look_up(const struct ull__linker *linker, void *handle, const char *name)
{
    return linker->symbol(handle, name);
}

/* ISO C has no conversion from an object pointer to a function pointer; POSIX says this works. */
#define RESOLVE(target, name)                                                                      \
    do {                                                                                           \
        void *found_ = look_up(linker, nvml->handle, name);                                        \
        if (found_ && !(target))                                                                   \
            memcpy(&(target), &found_, sizeof found_);                                             \
    } while (0)

static void resolve_all(struct ull__nvml *nvml, const struct ull__linker *linker)
{
    struct ull__nvml_calls *call = &nvml->call;
#define NVML_HOOK(entry, params, args) RESOLVE(call->entry, #entry);
#define NVML_CALL(entry, params) RESOLVE(call->entry, #entry);
#define NVML_PASS(entry)
#include "nvml_api.def"
    /* Older names with the same meaning for us. */
    RESOLVE(call->nvmlInit_v2, "nvmlInit");
    RESOLVE(call->nvmlDeviceGetCount_v2, "nvmlDeviceGetCount");
    RESOLVE(call->nvmlDeviceGetHandleByIndex_v2, "nvmlDeviceGetHandleByIndex");
    if (!call->nvmlDeviceGetComputeRunningProcesses_v3) {
        RESOLVE(call->old_processes, "nvmlDeviceGetComputeRunningProcesses_v2");
        call->old_processes_v2 = call->old_processes != NULL;
        RESOLVE(call->old_processes, "nvmlDeviceGetComputeRunningProcesses");
    }
}

ull_status ull__nvml_init(struct ull__nvml *nvml, const struct ull__linker *linker,
                          const char *path, struct ull_error *err)
{
    char found[ULL_LIBRARY_PATH];
    memset(nvml, 0, sizeof *nvml);
    if (!path) {
        if (!ull__find_library("libnvidia-ml.so.1", "ULLAGE_LIBNVML", found))
            return ull__fail(
                err, ULL_E_NOT_FOUND,
                "libnvidia-ml.so.1 was not found in LD_LIBRARY_PATH or the usual folders: "
                "set ULLAGE_LIBNVML to its path");
        path = found;
    }
    /* Deep binding would be of use against a stand-in, but sanitizers refuse it. */
    nvml->handle = linker->open(path, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->handle)
        return ull__fail(err, ULL_E_NOT_FOUND, "cannot load '%.300s'", path);
    resolve_all(nvml, linker);
    if (!nvml->call.nvmlInit_v2)
        return ull__fail(err, ULL_E_DRIVER, "'%.300s' has no nvmlInit: expected NVIDIA's library",
                         path);
    nvmlReturn_t result = nvml->call.nvmlInit_v2();
    if (result != NVML_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "'%.300s' did not start (NVML error %d)%s", path, result,
                         result == NVML_ERROR_DRIVER_NOT_LOADED ? ": the driver is not loaded" : "");
    return ULL_OK;
}

void ull__nvml_finish(struct ull__nvml *nvml)
{
    if (nvml->handle && nvml->call.nvmlShutdown)
        nvml->call.nvmlShutdown();
    memset(nvml, 0, sizeof *nvml);
}

ull_status ull__nvml_memory(const struct ull__nvml *nvml, struct ull__nvml_device *device)
{
    device->total_bytes = device->reserved_bytes = ULL_NVML_UNKNOWN;
    device->used_bytes = device->free_bytes = ULL_NVML_UNKNOWN;
    nvmlMemory_v2_t second = {.version = NVML_MEMORY_V2};
    if (nvml->call.nvmlDeviceGetMemoryInfo_v2 &&
        nvml->call.nvmlDeviceGetMemoryInfo_v2(device->handle, &second) == NVML_SUCCESS &&
        second.total > second.reserved) {
        device->total_bytes = second.total - second.reserved;
        device->reserved_bytes = second.reserved;
        device->used_bytes = second.used;
        device->free_bytes = second.free;
        return ULL_OK;
    }
    nvmlMemory_t first = {0};
    if (nvml->call.nvmlDeviceGetMemoryInfo &&
        nvml->call.nvmlDeviceGetMemoryInfo(device->handle, &first) == NVML_SUCCESS &&
        first.total > 0) {
        device->total_bytes = first.total;
        device->used_bytes = first.used;
        device->free_bytes = first.free;
        return ULL_OK;
    }
    return ULL_E_DRIVER;
}

static bool describe(const struct ull__nvml *nvml, nvmlDevice_t handle,
                     struct ull__nvml_device *device)
{
    memset(device, 0, sizeof *device);
    device->handle = handle;
    device->index = device->instance = -1;
    if (!nvml->call.nvmlDeviceGetUUID ||
        nvml->call.nvmlDeviceGetUUID(handle, device->uuid, sizeof device->uuid) != NVML_SUCCESS)
        return false;
    if (!nvml->call.nvmlDeviceGetName ||
        nvml->call.nvmlDeviceGetName(handle, device->name, sizeof device->name) != NVML_SUCCESS)
        snprintf(device->name, sizeof device->name, "GPU of unknown name");
    nvmlPciInfo_t pci;
    memset(&pci, 0, sizeof pci);
    if (nvml->call.nvmlDeviceGetPciInfo_v3 &&
        nvml->call.nvmlDeviceGetPciInfo_v3(handle, &pci) == NVML_SUCCESS)
        snprintf(device->bus_id, sizeof device->bus_id, "%.31s", pci.busId);
    unsigned int index;
    if (nvml->call.nvmlDeviceGetIndex && nvml->call.nvmlDeviceGetIndex(handle, &index) == NVML_SUCCESS)
        device->index = (int)index;
    unsigned int current = 0, pending = 0;
    if (nvml->call.nvmlDeviceGetMigMode && nvml->call.nvmlDeviceGetMaxMigDeviceCount &&
        nvml->call.nvmlDeviceGetMigMode(handle, &current, &pending) == NVML_SUCCESS)
        device->divided = current == 1 && strncmp(device->uuid, "MIG-", 4) != 0;
    ull__nvml_memory(nvml, device);
    return true;
}

/* Appends the instances of a card in MIG mode; returns the new count. */
static int add_instances(const struct ull__nvml *nvml, const struct ull__nvml_device *card,
                         struct ull__nvml_device *devices, int capacity, int count)
{
    unsigned int slots = 0;
    if (!nvml->call.nvmlDeviceGetMigDeviceHandleByIndex ||
        nvml->call.nvmlDeviceGetMaxMigDeviceCount(card->handle, &slots) != NVML_SUCCESS)
        return count;
    for (unsigned int i = 0; i < slots; i++) {
        nvmlDevice_t handle;
        struct ull__nvml_device instance;
        /* Numbers have gaps where no instance was made. */
        if (nvml->call.nvmlDeviceGetMigDeviceHandleByIndex(card->handle, i, &handle) != NVML_SUCCESS ||
            !describe(nvml, handle, &instance))
            continue;
        instance.index = card->index;
        instance.instance = (int)i;
        memcpy(instance.bus_id, card->bus_id, sizeof instance.bus_id);
        if (count < capacity)
            devices[count] = instance;
        count++;
    }
    return count;
}

int ull__nvml_devices(const struct ull__nvml *nvml, struct ull__nvml_device *devices, int capacity)
{
    unsigned int cards = 0;
    int count = 0;
    if (!nvml->call.nvmlDeviceGetCount_v2 || !nvml->call.nvmlDeviceGetHandleByIndex_v2 ||
        nvml->call.nvmlDeviceGetCount_v2(&cards) != NVML_SUCCESS)
        return -1;
    for (unsigned int i = 0; i < cards; i++) {
        nvmlDevice_t handle;
        struct ull__nvml_device card;
        /* A card that fell off the bus answers nothing; the others still do. */
        if (nvml->call.nvmlDeviceGetHandleByIndex_v2(i, &handle) != NVML_SUCCESS ||
            !describe(nvml, handle, &card))
            continue;
        card.index = (int)i;
        if (count < capacity)
            devices[count] = card;
        count++;
        if (card.divided)
            count = add_instances(nvml, &card, devices, capacity, count);
    }
    return count;
}

ull_status ull__nvml_device(const struct ull__nvml *nvml, const char *uuid,
                            struct ull__nvml_device *device)
{
    nvmlDevice_t handle;
    struct ull__nvml_device found;
    if (!nvml->call.nvmlDeviceGetHandleByUUID ||
        nvml->call.nvmlDeviceGetHandleByUUID(uuid, &handle) != NVML_SUCCESS ||
        !describe(nvml, handle, &found))
        return ULL_E_NO_DEVICE;
    *device = found;
    return ULL_OK;
}

/* One call with room for *count; NVML writes the true count back. */
static nvmlReturn_t list_processes(const struct ull__nvml *nvml, nvmlDevice_t device,
                                   unsigned int *count, nvmlProcessInfo_t *infos)
{
    const struct ull__nvml_calls *call = &nvml->call;
    if (call->nvmlDeviceGetComputeRunningProcesses_v3)
        return call->nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
    if (!call->old_processes)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t result = call->old_processes(device, count, infos);
    if (result == NVML_SUCCESS && !call->old_processes_v2) {
        /* The old records are smaller: spread them from the last to the first. */
        const char *packed = (const char *)infos;
        for (unsigned int i = *count; i-- > 0;) {
            struct process_v1 old;
            memcpy(&old, packed + i * sizeof old, sizeof old);
            infos[i] = (nvmlProcessInfo_t){.pid = old.pid, .usedGpuMemory = old.used};
        }
    }
    return result;
}

int ull__nvml_processes(const struct ull__nvml *nvml, nvmlDevice_t device,
                        struct ull__nvml_process *processes, int capacity)
{
    unsigned int room = 64;
    for (int tries = 0; tries < 8; tries++) {
        nvmlProcessInfo_t *infos = calloc(room, sizeof *infos);
        if (!infos)
            return -1;
        unsigned int count = room;
        nvmlReturn_t result = list_processes(nvml, device, &count, infos);
        if (result == NVML_SUCCESS && count <= room) {
            for (unsigned int i = 0; i < count && (int)i < capacity; i++) {
                bool known = infos[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE;
                processes[i].pid = infos[i].pid;
                processes[i].used_bytes = known ? infos[i].usedGpuMemory : ULL_NVML_UNKNOWN;
            }
            free(infos);
            return (int)count;
        }
        free(infos);
        if (result != NVML_ERROR_INSUFFICIENT_SIZE)
            return -1;
        room = (count > room ? count : room) + 64;
    }
    return -1;
}

int ull__nvml_listed(void *data, const char *uuid, uint32_t pid, uint64_t *used_bytes)
{
    const struct ull__nvml *nvml = data;
    nvmlDevice_t device;
    int answer = -1;
    if (!nvml->call.nvmlDeviceGetHandleByUUID ||
        nvml->call.nvmlDeviceGetHandleByUUID(uuid, &device) != NVML_SUCCESS)
        return -1;
    for (int room = 64, tries = 0; tries < 8; tries++) {
        struct ull__nvml_process *processes = calloc((size_t)room, sizeof *processes);
        if (!processes)
            return -1;
        int count = ull__nvml_processes(nvml, device, processes, room);
        answer = count < 0 ? -1 : 0;
        for (int i = 0; i < count && i < room; i++) {
            if (processes[i].pid != pid)
                continue;
            answer = 1;
            if (used_bytes)
                *used_bytes = processes[i].used_bytes;
        }
        free(processes);
        if (count <= room)
            return answer;
        room = count + 64;
    }
    return answer;
}
