/* host_memory.c: see host_memory.h. */
#include "host_memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 8192 };

static bool read_file(const char *path, char text[FILE_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, FILE_BYTES - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The number of a line that begins with `name`; 0 without such a line. */
static uint64_t number_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    while (text && *text) {
        if (strncmp(text, name, length) == 0)
            return strtoull(text + length, NULL, 10);
        text = strchr(text, '\n');
        text += text != NULL;
    }
    return 0;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t ull__host_memory_lazy(const char *process)
{
    char path[64], text[FILE_BYTES];
    snprintf(path, sizeof path, "/proc/%.16s/smaps_rollup", process);
    return read_file(path, text) ? number_of(text, "LazyFree:") * 1024 : 0;
}

uint64_t ull__host_memory_of_machine(const char *meminfo, uint64_t lazily_free)
{
    if (!strstr(meminfo, "MemAvailable:"))
        return UINT64_MAX;
    uint64_t available = number_of(meminfo, "MemAvailable:") * 1024;
    uint64_t cache = less(number_of(meminfo, "Cached:") + number_of(meminfo, "Buffers:"),
                          number_of(meminfo, "Shmem:"));
    uint64_t listed = number_of(meminfo, "Active(file):") + number_of(meminfo, "Inactive(file):");
    uint64_t given_back = less(listed, cache) * 1024;
    return less(available, less(given_back, lazily_free));
}

uint64_t ull__host_memory_of_group(const char *max, const char *current, const char *stat,
                                   uint64_t lazily_free)
{
    if (max[0] < '0' || max[0] > '9' || current[0] < '0' || current[0] > '9')
        return UINT64_MAX;
    uint64_t most = number_of(max, ""), used = number_of(current, "");
    uint64_t cache = less(number_of(stat, "file "), number_of(stat, "shmem "));
    return less(most, less(used, cache + lazily_free));
}

uint64_t ull__host_memory_left(uint64_t lazily_free)
{
    char meminfo[FILE_BYTES], max[FILE_BYTES], current[FILE_BYTES], stat[FILE_BYTES];
    uint64_t machine = UINT64_MAX, group = UINT64_MAX;
    if (read_file("/proc/meminfo", meminfo))
        machine = ull__host_memory_of_machine(meminfo, lazily_free);
    if (read_file("/sys/fs/cgroup/memory.max", max) &&
        read_file("/sys/fs/cgroup/memory.current", current)) {
        read_file("/sys/fs/cgroup/memory.stat", stat);
        group = ull__host_memory_of_group(max, current, stat, lazily_free);
    }
    uint64_t least = machine < group ? machine : group;
    return least == UINT64_MAX ? 0 : least;
}
