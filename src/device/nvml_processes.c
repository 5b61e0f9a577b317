/*
 * nvml_processes.c: which compute processes the management library lists on a device.
 *
 * There are three calls for it, and what a library exports says little about what its driver answers:
 * the newest comes first, and the result of the call decides whether the next one is asked. Their rows
 * differ in length, and one row of the newest call was longer in some drivers than in all before and
 * after, with nothing to tell it by. So the buffer has room for the longest rows, and the rows are read
 * in the first layout in which all of them can be true. The list grows between two calls when programs
 * start; it is asked for again then.
 */
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

enum { FIRST_ROOM = 64, MORE_ROOM = 64, TRIES = 8, LONGEST_ROW = 40 };

/* Bounds of what can be true: Linux has no larger pid, and no card has so much memory or instances. */
#define MOST_PID (4u << 20)
#define MOST_BYTES (1ull << 46)
#define MOST_INSTANCE 64u
#define NO_INSTANCE 0xffffffffu

static nvmlProcessInfo_t row_at(const char *rows, size_t stride, unsigned int i)
{
    nvmlProcessInfo_t row = {.gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE};
    if (stride == sizeof(nvmlProcessInfo_v1_t)) {
        nvmlProcessInfo_v1_t old;
        memcpy(&old, rows + i * stride, sizeof old);
        row.pid = old.pid;
        row.usedGpuMemory = old.usedGpuMemory;
    } else {
        memcpy(&row, rows + i * stride, sizeof row);
    }
    return row;
}

static bool can_be(const nvmlProcessInfo_t *row)
{
    return row->pid != 0 && row->pid <= MOST_PID &&
           (row->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE || row->usedGpuMemory < MOST_BYTES) &&
           (row->gpuInstanceId == NO_INSTANCE || row->gpuInstanceId < MOST_INSTANCE) &&
           (row->computeInstanceId == NO_INSTANCE || row->computeInstanceId < MOST_INSTANCE);
}

static unsigned int count_good(const char *rows, size_t stride, unsigned int count)
{
    unsigned int good = 0;
    for (unsigned int i = 0; i < count; i++) {
        nvmlProcessInfo_t row = row_at(rows, stride, i);
        good += can_be(&row);
    }
    return good;
}

static size_t stride_of(const char *rows, int version, unsigned int count)
{
    size_t usual = sizeof(nvmlProcessInfo_t), longer = sizeof(nvmlProcessInfo_long_t);
    if (version == 2)
        return sizeof(nvmlProcessInfo_v1_t);
    return count_good(rows, usual, count) < count && count_good(rows, longer, count) == count
               ? longer
               : usual;
}

static int copy_rows(const char *rows, int version, unsigned int count,
                     struct ull__nvml_process *processes, int capacity)
{
    size_t stride = stride_of(rows, version, count);
    int good = 0;
    for (unsigned int i = 0; i < count; i++) {
        nvmlProcessInfo_t row = row_at(rows, stride, i);
        if (!can_be(&row))
            continue;
        if (good < capacity) {
            struct ull__nvml_process *to = &processes[good];
            to->pid = row.pid;
            to->used_bytes = row.usedGpuMemory == NVML_VALUE_NOT_AVAILABLE ? ULL_NVML_UNKNOWN
                                                                           : row.usedGpuMemory;
            to->gpu_instance = row.gpuInstanceId == NO_INSTANCE ? -1 : (int)row.gpuInstanceId;
            to->compute_instance =
                row.computeInstanceId == NO_INSTANCE ? -1 : (int)row.computeInstanceId;
        }
        good++;
    }
    return good;
}

/* Asks one of the calls. -1: it failed, and *answered says whether another may know more. */
static int ask(const struct ull__nvml *nvml, nvmlDevice_t device, int version,
               struct ull__nvml_process *processes, int capacity, bool *answered)
{
    unsigned int room = FIRST_ROOM;
    *answered = false;
    for (int tries = 0; nvml->call.processes[version] && tries < TRIES; tries++) {
        char *rows = calloc(room, LONGEST_ROW);
        unsigned int count = room;
        if (!rows)
            return -1;
        nvmlReturn_t result = nvml->call.processes[version](device, &count, rows);
        if (result == NVML_SUCCESS && count <= room) {
            int found = copy_rows(rows, version, count, processes, capacity);
            free(rows);
            *answered = true;
            return found;
        }
        free(rows);
        if (result != NVML_ERROR_INSUFFICIENT_SIZE)
            return -1;
        room = (count > room ? count : room) + MORE_ROOM;
    }
    return -1;
}

int ull__nvml_processes(const struct ull__nvml *nvml, nvmlDevice_t device,
                        struct ull__nvml_process *processes, int capacity)
{
    for (int version = 0; version < 3; version++) {
        bool answered;
        int count = ask(nvml, device, version, processes, capacity, &answered);
        if (answered)
            return count;
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
    for (int room = FIRST_ROOM, tries = 0; tries < TRIES; tries++) {
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
        room = count + MORE_ROOM;
    }
    return answer;
}
