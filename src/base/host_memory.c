/* host_memory.c: see host_memory.h. */
#include "host_memory.h"

#include "control_group.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 8192 };
/* Version 1 says the largest number of whole pages where there is no limit. */
#define NO_LIMIT (UINT64_C(1) << 60)

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
    /* Of version 2, and of version 1 with those below; there a large number is no limit. */
    uint64_t cache = less(number_of(stat, "file "), number_of(stat, "shmem ")) +
                     less(number_of(stat, "total_cache "), number_of(stat, "total_shmem "));
    if (most >= NO_LIMIT)
        return UINT64_MAX;
    return less(most, less(used, cache + lazily_free));
}

struct scopes {
    struct ull__host_scope *scopes;
    int count;
    uint64_t lazily_free;
};

/* The lower of two limits of a group counts. */
static void add_group(void *context, const char *folder, bool version1)
{
    static const char *const limits[2][2] = {{"memory.max", "memory.high"},
                                             {"memory.limit_in_bytes", "memory.limit_in_bytes"}};
    struct scopes *all = context;
    struct ull__host_scope scope = {UINT64_MAX, UINT64_MAX};
    char path[ULL_GROUP_PATH + 32], limit[FILE_BYTES], current[FILE_BYTES], stat[FILE_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder,
             version1 ? "memory.usage_in_bytes" : "memory.current");
    if (!read_file(path, current))
        return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_file(path, stat);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, limits[version1][i]);
        if (!read_file(path, limit))
            continue;
        uint64_t left = ull__host_memory_of_group(limit, current, stat, all->lazily_free);
        if (left != UINT64_MAX && number_of(limit, "") < scope.total)
            scope = (struct ull__host_scope){number_of(limit, ""), left};
    }
    if (scope.total != UINT64_MAX && all->count < ULL_HOST_SCOPES)
        all->scopes[all->count++] = scope;
}

int ull__host_scopes(const char *root, uint64_t lazily_free,
                     struct ull__host_scope scopes[ULL_HOST_SCOPES])
{
    struct scopes all = {scopes, 0, lazily_free};
    char meminfo[FILE_BYTES], path[ULL_GROUP_PATH];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_file(path, meminfo)) {
        uint64_t left = ull__host_memory_of_machine(meminfo, lazily_free);
        uint64_t total = number_of(meminfo, "MemTotal:") * 1024;
        if (left != UINT64_MAX && total > 0)
            scopes[all.count++] = (struct ull__host_scope){total, left < total ? left : total};
    }
    ull__control_groups(root, add_group, &all);
    return all.count;
}

uint64_t ull__host_memory_left(uint64_t lazily_free)
{
    struct ull__host_scope scopes[ULL_HOST_SCOPES];
    int count = ull__host_scopes("", lazily_free, scopes);
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < count; i++)
        least = scopes[i].left < least ? scopes[i].left : least;
    return count > 0 ? least : 0;
}

uint64_t ull__host_memory_total(void)
{
    struct ull__host_scope scopes[ULL_HOST_SCOPES];
    int count = ull__host_scopes("", 0, scopes);
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < count; i++)
        least = scopes[i].total < least ? scopes[i].total : least;
    if (count > 0)
        return least;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}
