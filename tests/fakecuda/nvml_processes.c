/*
 * nvml_processes.c: which processes the fake management library lists on a card.
 *
 *   ULLAGE_FAKE_NVML=nopids       the lists are empty, as in a container
 *   ULLAGE_FAKE_NVML=otherpids    pids are those of another namespace: 100000 more
 *   ULLAGE_FAKE_NVML=old          only the oldest of the three calls is answered
 *   ULLAGE_FAKE_NVML=longrows     the rows of drivers 535.43 to 535.86, longer than the caller thinks
 *   ULLAGE_FAKE_NVML=badrows      one row of nonsense in front
 *   ULLAGE_FAKE_NVML=unknownuse   no figure for any process, as on Windows
 *   ULLAGE_FAKE_NVML=noname       names of processes are not told
 *
 * The list does not name all that is in use: 5.5625 MiB of each context, and memory that outlived
 * its owner, show only in the card's figure.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nvml_state.h"
#include "shared.h"

static nvmlProcessInfo_t row_of(const struct fake_process *process, int card)
{
    const struct fake_card_config *config = &fake_config()->card[card];
    unsigned int offset = fake_nvml_mode("otherpids") ? 100000 : 0;
    return (nvmlProcessInfo_t){
        .pid = (unsigned int)process->pid + offset,
        .usedGpuMemory =
            fake_nvml_mode("unknownuse") ? NVML_VALUE_NOT_AVAILABLE : process->used[card],
        .gpuInstanceId = config->parent >= 0 ? fake_nvml_gpu_instance(config) : 0xffffffffu,
        .computeInstanceId = config->parent < 0        ? 0xffffffffu
                             : fake_nvml_mode("onegi") ? (unsigned int)config->instance
                                                       : 0,
    };
}

static unsigned int list(int index, nvmlProcessInfo_t *out, unsigned int room)
{
    struct fake_shared *shared = fake_nvml_shared();
    unsigned int count = 0;
    if (fake_nvml_mode("nopids"))
        return 0;
    if (fake_nvml_mode("badrows")) {
        if (count < room)
            out[count] = (nvmlProcessInfo_t){.pid = 0xfffffff0u, .usedGpuMemory = 1ull << 60};
        count++;
    }
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    for (int p = 0; p < FAKE_MAX_PROCESSES; p++) {
        const struct fake_process *process = &shared->process[p];
        for (int c = 0; process->state != 0 && c < fake_config()->count; c++) {
            if ((c != index && fake_config()->card[c].parent != index) ||
                process->used[c] + process->hidden[c] == 0)
                continue;
            if (count < room)
                out[count] = row_of(process, c);
            count++;
        }
    }
    fake_shared_unlock(shared);
    return count;
}

static nvmlReturn_t processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    CARD_OR_RETURN(card, device, count);
    (void)card;
    if (fake_config()->integrated)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int room = infos ? *count : 0;
    *count = list(device->card, infos, room);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Spreads rows that are packed at the front of the buffer, the last one first. */
static void lengthen(char *rows, unsigned int count)
{
    for (unsigned int i = count; i-- > 0;) {
        nvmlProcessInfo_long_t row = {.usedGpuCcProtectedMemory = 0};
        memcpy(&row.info, rows + i * sizeof row.info, sizeof row.info);
        memcpy(rows + i * sizeof row, &row, sizeof row);
    }
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    if (fake_nvml_mode("old"))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t r = processes(device, count, infos);
    if (r == NVML_SUCCESS && fake_nvml_mode("longrows"))
        lengthen((char *)infos, *count);
    return r;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return fake_nvml_mode("old") ? NVML_ERROR_FUNCTION_NOT_FOUND : processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    static nvmlProcessInfo_t full[FAKE_MAX_PROCESSES];
    static pthread_mutex_t full_mutex = PTHREAD_MUTEX_INITIALIZER;
    unsigned int found = FAKE_MAX_PROCESSES, room = count && infos ? *count : 0;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&full_mutex);
    nvmlReturn_t r = processes(device, &found, full);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < found && i < room; i++)
        infos[i] = (nvmlProcessInfo_v1_t){full[i].pid, full[i].usedGpuMemory};
    pthread_mutex_unlock(&full_mutex);
    if (r == NVML_SUCCESS)
        *count = found;
    return r == NVML_SUCCESS && found > room ? NVML_ERROR_INSUFFICIENT_SIZE : r;
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned int *count)
{
    CARD_OR_RETURN(card, device, count);
    (void)card;
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    (void)infos;
    return none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_t *infos)
{
    (void)infos;
    return none(device, count);
}

/* The first word of the command line, cut to the room that there is. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[64], text[16384];
    if (fake_nvml_mode("noname"))
        return NVML_ERROR_NO_PERMISSION;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    if (length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
