/*
 * host_room.c: how much memory the host has left for what moves there.
 *
 * MemAvailable counts caches that the kernel would give up. It also counts pages that were given back by MADV_FREE, and goes
 * on to when they are used again, until the kernel looks at them (seen on Linux 6.18): they are on the list of
 * files' pages, which is longer than the page cache by them. So they are taken off again, but for those of this
 * process that are really free. The same within the limit of a control group.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evict.h"

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

static uint64_t free_of_our_own(void)
{
    char text[FILE_BYTES];
    return read_file("/proc/self/smaps_rollup", text) ? number_of(text, "LazyFree:") * 1024 : 0;
}

static uint64_t room_of_machine(uint64_t own)
{
    char text[FILE_BYTES];
    if (!read_file("/proc/meminfo", text) || !strstr(text, "MemAvailable:"))
        return UINT64_MAX;
    uint64_t cache =
        less(number_of(text, "Cached:") + number_of(text, "Buffers:"), number_of(text, "Shmem:"));
    uint64_t listed = number_of(text, "Active(file):") + number_of(text, "Inactive(file):");
    return less(number_of(text, "MemAvailable:"), less(listed, cache)) * 1024 + own;
}

static uint64_t room_of_group(uint64_t own)
{
    char text[FILE_BYTES];
    if (!read_file("/sys/fs/cgroup/memory.max", text) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    uint64_t most = number_of(text, ""), used, cache = 0;
    if (!read_file("/sys/fs/cgroup/memory.current", text))
        return UINT64_MAX;
    used = number_of(text, "");
    if (read_file("/sys/fs/cgroup/memory.stat", text))
        cache = less(number_of(text, "file "), number_of(text, "shmem "));
    return less(most + cache + own, used);
}

uint64_t ull__host_room(void)
{
    uint64_t own = free_of_our_own(), machine = room_of_machine(own), group = room_of_group(own);
    return machine < group ? machine : group;
}
