/* ties.c: see ties.h. */
#include "ties.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_WITH_SHARING = 610 };

bool ties_can_move(const char *driver_version)
{
    return strtoul(driver_version, NULL, 10) >= DRIVER_WITH_SHARING;
}

/* Ranks on one machine have files in common, mapped still after they were unlinked. */
static bool maps_nccl(uint32_t pid)
{
    char path[64], *line = NULL;
    size_t size = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    FILE *file = fopen(path, "re");
    while (file && !found && getline(&line, &size, file) > 0)
        found = strstr(line, "/dev/shm/nccl-") != NULL;
    free(line);
    if (file)
        fclose(file);
    return found;
}

const char *ties_of(const struct ull__process_view *process)
{
    if (process->gated)
        return NULL; /* it moves itself */
    if (process->ties & ULL_TIE_MULTICAST)
        return "memory by multicast objects";
    if (maps_nccl(process->pid))
        return "memory with other ranks (NCCL)";
    if (process->ties & ULL_TIE_IPC)
        return "memory or events with other processes (CUDA IPC)";
    if (process->ties & ULL_TIE_HANDLE)
        return "memory that was passed as a handle between processes";
    return NULL;
}
