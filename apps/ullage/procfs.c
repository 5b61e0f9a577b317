/* procfs.c: see procfs.h. */
#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"

enum { ENVIRON_LIMIT = 8 << 20, MAX_DEPTH = 256 };

/* Up to size - 1 bytes of /proc/PID/name; -1 if it cannot be read. */
static ssize_t read_proc(uint32_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = read(fd, text, size - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    return got;
}

uint32_t proc_parent(uint32_t pid)
{
    char text[512];
    unsigned int parent;
    if (read_proc(pid, "stat", text, sizeof text) <= 0)
        return 0;
    /* The name in parentheses may hold anything, so look behind the last one. */
    const char *end = strrchr(text, ')');
    return end && sscanf(end + 1, " %*c %u", &parent) == 1 ? parent : 0;
}

bool proc_descends(uint32_t pid, uint32_t ancestor)
{
    for (int depth = 0; pid > 1 && depth < MAX_DEPTH; depth++) {
        pid = proc_parent(pid);
        if (pid == ancestor)
            return ancestor != 0;
    }
    return false;
}

bool proc_has_variable(uint32_t pid, const char *assignment)
{
    char path[64], *text;
    size_t size;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%u/environ", pid);
    if (ull__file_read(path, ENVIRON_LIMIT, &text, &size, NULL) != ULL_OK)
        return false;
    for (size_t at = 0; at < size && !found; at += strlen(text + at) + 1)
        found = strcmp(text + at, assignment) == 0;
    free(text);
    return found;
}

bool proc_anyone_has_variable(const char *assignment)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    bool found = false;
    while (proc && !found && (entry = readdir(proc))) {
        uint32_t pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        found = pid != 0 && proc_has_variable(pid, assignment);
    }
    if (proc)
        closedir(proc);
    return found;
}

enum proc_place proc_place(uint32_t pid)
{
    char text[4096];
    if (read_proc(pid, "status", text, sizeof text) <= 0)
        return PROC_UNSEEN;
    /* One number for each namespace from this one down. Kernels before 4.1 have no such line. */
    const char *line = strstr(text, "\nNSpid:");
    unsigned int here, inside;
    bool two = line && sscanf(line, " NSpid: %u %u", &here, &inside) == 2;
    return two ? PROC_INSIDE : PROC_HERE;
}

bool proc_command(uint32_t pid, char *text, size_t size)
{
    ssize_t got = read_proc(pid, "cmdline", text, size);
    if (got < 0)
        return false;
    if (got == 0) { /* a kernel thread or a zombie: its short name must do */
        got = read_proc(pid, "comm", text, size);
        text[strcspn(text, "\n")] = 0;
        return got > 0;
    }
    for (ssize_t i = 0; i + 1 < got; i++) {
        if (text[i] == 0)
            text[i] = ' ';
    }
    return true;
}

bool proc_is(uint32_t pid, uint64_t start_ticks)
{
    char text[1024];
    if (read_proc(pid, "stat", text, sizeof text) <= 0)
        return false;
    char *at = strrchr(text, ')'); /* field 2 may hold anything */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && (start_ticks == 0 || strtoull(at + 1, NULL, 10) == start_ticks);
}

/* A number in a file of the control group that this process sees as its own; UINT64_MAX: no limit. */
static uint64_t group_number(const char *name)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0 || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    text[got] = 0;
    return strtoull(text, NULL, 10);
}

uint64_t proc_memory_available(void)
{
    char text[4096];
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *line = strstr(text, "MemAvailable:");
    uint64_t available = line ? strtoull(line + 13, NULL, 10) * 1024 : 0;
    uint64_t most = group_number("memory.max"), used = group_number("memory.current");
    if (most != UINT64_MAX && used != UINT64_MAX) {
        uint64_t left = most > used ? most - used : 0;
        available = left < available ? left : available;
    }
    return available;
}
