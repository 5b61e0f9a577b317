/*
 * nvml.h: what the management library says of devices and of the processes on them.
 *
 * Everything here asks only; no context is ever made. What the library does not support is
 * ULL_NVML_UNKNOWN, never 0. Used by the command line and inside guest programs, so nothing is printed
 * and the dynamic linker is reached through functions that the caller gives: a guest's interposer must
 * not meet its own dlopen. After ull__nvml_init an object may be used from several threads.
 */
#ifndef ULLAGE_NVML_H
#define ULLAGE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "nvml_api.h"
#include "ullage/status.h"

#define ULL_NVML_UNKNOWN UINT64_MAX

/* The dynamic linker: dlopen and dlsym, or what stands for them. */
struct ull__linker {
    void *(*open)(const char *path, int flags);
    void *(*symbol)(void *handle, const char *name);
};

/* Entry points; NULL where this version of the library has none. */
struct ull__nvml_calls {
#define NVML_HOOK(symbol, params, args) ull_fn_##symbol *symbol;
#define NVML_CALL(symbol, params) ull_fn_##symbol *symbol;
#define NVML_PASS(symbol)
#include "nvml_api.def"
    /* nvmlDeviceGetComputeRunningProcesses_v3, _v2 and without a suffix: rows differ in length. */
    nvmlReturn_t (*processes[3])(nvmlDevice_t device, unsigned int *count, void *rows);
    const char *(*error_text)(nvmlReturn_t result);
};

struct ull__nvml {
    void *handle; /* never closed: the library does not survive that in every version */
    struct ull__nvml_calls call;
};

struct ull__nvml_device {
    nvmlDevice_t handle;
    char uuid[96]; /* "GPU-..." or "MIG-..." */
    char name[96];
    char bus_id[32]; /* of the card, also for an instance; "" if unknown */
    int index;       /* as nvidia-smi counts cards; an instance has its card's */
    int instance;    /* number of a MIG instance on its card, -1 for a whole card */
    bool divided;    /* a card in MIG mode: programs get its instances, not the card */
    /*
     * Of a MIG instance, else -1. Memory belongs to the GPU instance: compute instances of the same one
     * show the same figures, which must not be added up.
     */
    int gpu_instance, compute_instance;
    uint64_t total_bytes; /* what cuDeviceTotalMem says: without reserved_bytes */
    uint64_t reserved_bytes;
    uint64_t used_bytes; /* by programs; includes reserved_bytes if that is unknown */
    uint64_t free_bytes;
};

struct ull__nvml_process {
    uint32_t pid; /* in this pid namespace; of old drivers, in that of the host */
    uint64_t used_bytes;
    int gpu_instance, compute_instance; /* -1 outside MIG mode */
};

/*
 * Loads the library at `path`, or finds it (variable ULLAGE_LIBNVML, then as find.h says) when path is
 * NULL, and initializes it. ULL_E_NOT_FOUND (no library), ULL_E_DRIVER (it refused; no driver loaded).
 */
ull_status ull__nvml_init(struct ull__nvml *nvml, const struct ull__linker *linker,
                          const char *path, struct ull_error *err);
void ull__nvml_finish(struct ull__nvml *nvml);

/*
 * All cards in the order of nvidia-smi, each followed by its MIG instances. Writes at most `capacity`
 * and returns how many there are; -1 if the library cannot say.
 */
int ull__nvml_devices(const struct ull__nvml *nvml, struct ull__nvml_device *devices, int capacity);

/* One device by its UUID. ULL_E_NO_DEVICE. */
ull_status ull__nvml_device(const struct ull__nvml *nvml, const char *uuid,
                            struct ull__nvml_device *device);

/* Reads the four byte counts again. ULL_E_DRIVER if the library cannot say: they are unknown then. */
ull_status ull__nvml_memory(const struct ull__nvml *nvml, struct ull__nvml_device *device);

/*
 * Compute processes on a device. Writes at most `capacity` and returns how many there are; -1 if the
 * library cannot say. Of a card in MIG mode these are the processes of all its instances, if this user
 * may see them. Rows that cannot be are left out, and figures that cannot be are unknown.
 */
int ull__nvml_processes(const struct ull__nvml *nvml, nvmlDevice_t device,
                        struct ull__nvml_process *processes, int capacity);

/*
 * Does the driver list the process on the device? 1, 0, or -1 if it cannot say. used_bytes (may be NULL)
 * gets its figure. Fits ull__listed_fn with a struct ull__nvml as data.
 */
int ull__nvml_listed(void *nvml, const char *uuid, uint32_t pid, uint64_t *used_bytes);
/* The library's own words for a result ("Not Found"). */
const char *ull__nvml_error_text(const struct ull__nvml *nvml, nvmlReturn_t result);

#endif
