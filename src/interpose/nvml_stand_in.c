/*
 * nvml_stand_in.c: NVIDIA's management library as a held process sees it.
 *
 * A second small library with the SONAME libnvidia-ml.so.1. All entry points are jumps to the real one
 * (jump.S) but for a device's memory: there the budget is the card, as with cuMemGetInfo. It reads the
 * job's ledgers and joins none, so that nvidia-smi and other monitors take no place in them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "find.h"
#include "ledger.h"
#include "nvml_api.h"

enum {
#define NVML_HOOK(symbol, params, args) INDEX_##symbol,
#define NVML_CALL(symbol, params) INDEX_##symbol,
#define NVML_PASS(symbol) INDEX_##symbol,
#include "nvml_api.def"
    COUNT
};

static const char *const names[COUNT] = {
#define NVML_HOOK(symbol, params, args) #symbol,
#define NVML_CALL(symbol, params) #symbol,
#define NVML_PASS(symbol) #symbol,
#include "nvml_api.def"
};

/* What the hooks of nvml_api.def are called from jump.S. */
ull_fn_nvmlDeviceGetMemoryInfo ull__hook_nvmlDeviceGetMemoryInfo;
ull_fn_nvmlDeviceGetMemoryInfo_v2 ull__hook_nvmlDeviceGetMemoryInfo_v2;
void *ull__jump_resolve(long index);
extern void *ull__jump_table[COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static bool looked_for;

static void *real(int index)
{
    char path[ULL_LIBRARY_PATH];
    pthread_mutex_lock(&lock);
    if (!looked_for && ull__find_library("libnvidia-ml.so.1", "ULLAGE_LIBNVML", path))
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    looked_for = true;
    pthread_mutex_unlock(&lock);
    return library ? dlsym(library, names[index]) : NULL;
}

static nvmlReturn_t no_library(void)
{
    return NVML_ERROR_LIBRARY_NOT_FOUND;
}

static nvmlReturn_t no_function(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static const char *no_text(void)
{
    return "the NVIDIA management library was not found";
}

void *ull__jump_resolve(long index)
{
    void *target = real((int)index);
    if (!target && index == INDEX_nvmlErrorString)
        return (void *)no_text;
    if (!target)
        return library ? (void *)no_function : (void *)no_library;
    __atomic_store_n(&ull__jump_table[index], target, __ATOMIC_RELEASE);
    return target;
}

/* --- the budget -------------------------------------------------------------------------------------------------------- */

/* The account that this process belongs to, if it has joined; the command's own otherwise. */
static uint32_t own_account(struct ull__ledger *ledger)
{
    struct ull__process_view process;
    for (int i = 0; i < ULL_MAX_SLOTS && ull__ledger_spec(ledger)->each; i++)
        if (ull__ledger_process(ledger, i, &process) && !process.draining &&
            process.pid == (uint32_t)getpid())
            return process.account;
    return 0;
}

static void narrow(struct ull__ledger *ledger, const char *uuid, unsigned long long *total,
                   unsigned long long *free_bytes)
{
    static struct ull__job_view job; /* large; the lock is held */
    struct ull__account_view account;
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    ull__ledger_job(ledger, &job);
    for (int d = 0; d < spec->device_count; d++) {
        if (strcmp(spec->devices[d].uuid, uuid) != 0 ||
            job.budget_bytes[d] >= spec->devices[d].total_bytes ||
            !ull__ledger_account(ledger, (int)own_account(ledger), &account))
            continue;
        uint64_t budget = job.budget_bytes[d], held = account.usage[d].held_bytes;
        uint64_t room = held < budget ? budget - held : 0;
        *total = budget < *total ? budget : *total;
        *free_bytes = room < *free_bytes ? room : *free_bytes;
    }
}

/* True if a job's budget is smaller than the card: then total and free are what it leaves. */
static bool pretend(nvmlDevice_t device, unsigned long long *total, unsigned long long *free_bytes)
{
    char uuid[96] = "", path[ULL_PATH_TEXT];
    const char *job = getenv("ULLAGE_JOB");
    ull_fn_nvmlDeviceGetUUID *get_uuid = (ull_fn_nvmlDeviceGetUUID *)real(INDEX_nvmlDeviceGetUUID);
    unsigned long long before = *total;
    if (!job || strlen(job) >= sizeof path || !get_uuid ||
        get_uuid(device, uuid, sizeof uuid) != NVML_SUCCESS)
        return false;
    strcpy(path, job);
    pthread_mutex_lock(&lock);
    for (int depth = 0; path[0] && depth < ULL_MAX_CHAIN; depth++) {
        struct ull__ledger *ledger;
        if (ull__ledger_open(path, &ledger, NULL) != ULL_OK)
            break;
        narrow(ledger, uuid, total, free_bytes);
        strcpy(path, ull__ledger_spec(ledger)->parent);
        ull__ledger_close(ledger);
    }
    pthread_mutex_unlock(&lock);
    if (*free_bytes > *total)
        *free_bytes = *total;
    return *total < before;
}

nvmlReturn_t ull__hook_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ull_fn_nvmlDeviceGetMemoryInfo *call =
        (ull_fn_nvmlDeviceGetMemoryInfo *)real(INDEX_nvmlDeviceGetMemoryInfo);
    if (!call)
        return library ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
    nvmlReturn_t result = call(device, memory);
    if (result == NVML_SUCCESS && pretend(device, &memory->total, &memory->free))
        memory->used = memory->total - memory->free;
    return result;
}

nvmlReturn_t ull__hook_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    ull_fn_nvmlDeviceGetMemoryInfo_v2 *call =
        (ull_fn_nvmlDeviceGetMemoryInfo_v2 *)real(INDEX_nvmlDeviceGetMemoryInfo_v2);
    if (!call)
        return library ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
    nvmlReturn_t result = call(device, memory);
    if (result == NVML_SUCCESS && pretend(device, &memory->total, &memory->free)) {
        memory->reserved = 0; /* the budget has no share of the driver's own reserve */
        memory->used = memory->total - memory->free;
    }
    return result;
}
