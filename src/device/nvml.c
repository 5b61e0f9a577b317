/*
 * nvml.c: see nvml.h.
 *
 * Old libraries lack the newer entry points, and a library may have one that its driver does not
 * answer, so each use asks the newest first and falls back by what the call returns. Processes are in
 * nvml_processes.c.
 */
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "find.h"

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
    RESOLVE(call->processes[0], "nvmlDeviceGetComputeRunningProcesses_v3");
    RESOLVE(call->processes[1], "nvmlDeviceGetComputeRunningProcesses_v2");
    RESOLVE(call->processes[2], "nvmlDeviceGetComputeRunningProcesses");
    RESOLVE(call->error_text, "nvmlErrorString");
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

/* Some systems answer ~0 for what they do not know, and call that a success. */
static uint64_t plausible(unsigned long long bytes)
{
    return bytes < 1ull << 46 ? bytes : ULL_NVML_UNKNOWN;
}

ull_status ull__nvml_memory(const struct ull__nvml *nvml, struct ull__nvml_device *device)
{
    device->total_bytes = device->reserved_bytes = ULL_NVML_UNKNOWN;
    device->used_bytes = device->free_bytes = ULL_NVML_UNKNOWN;
    nvmlMemory_v2_t second = {.version = NVML_MEMORY_V2};
    if (nvml->call.nvmlDeviceGetMemoryInfo_v2 &&
        nvml->call.nvmlDeviceGetMemoryInfo_v2(device->handle, &second) == NVML_SUCCESS &&
        second.total > second.reserved && plausible(second.total) != ULL_NVML_UNKNOWN) {
        device->total_bytes = second.total - second.reserved;
        device->reserved_bytes = second.reserved;
        device->used_bytes = plausible(second.used);
        device->free_bytes = plausible(second.free);
        return ULL_OK;
    }
    nvmlMemory_t first = {0};
    if (nvml->call.nvmlDeviceGetMemoryInfo &&
        nvml->call.nvmlDeviceGetMemoryInfo(device->handle, &first) == NVML_SUCCESS &&
        first.total > 0 && plausible(first.total) != ULL_NVML_UNKNOWN) {
        device->total_bytes = first.total;
        device->used_bytes = plausible(first.used);
        device->free_bytes = plausible(first.free);
        return ULL_OK;
    }
    return ULL_E_DRIVER;
}

static bool describe(const struct ull__nvml *nvml, nvmlDevice_t handle,
                     struct ull__nvml_device *device)
{
    memset(device, 0, sizeof *device);
    device->handle = handle;
    device->index = device->instance = device->gpu_instance = device->compute_instance = -1;
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

/* Only where it is an instance: of a card the library says that the argument is wrong. */
static int instance_id(ull_fn_nvmlDeviceGetGpuInstanceId *call, nvmlDevice_t handle)
{
    unsigned int id;
    return call && call(handle, &id) == NVML_SUCCESS ? (int)id : -1;
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
        instance.gpu_instance = instance_id(nvml->call.nvmlDeviceGetGpuInstanceId, handle);
        instance.compute_instance = instance_id(nvml->call.nvmlDeviceGetComputeInstanceId, handle);
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

const char *ull__nvml_error_text(const struct ull__nvml *nvml, nvmlReturn_t result)
{
    const char *text = nvml->call.error_text ? nvml->call.error_text(result) : NULL;
    return text ? text : "Unknown Error";
}
