/* procfs.c: see procfs.h. */
#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "host_memory.h"

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

/* Start times count from boot, which CLOCK_MONOTONIC does too, but for the time that the machine slept. */
static uint64_t monotonic_of(uint64_t start_ticks)
{
    struct timespec boot, now;
    uint64_t since_boot = start_ticks * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK));
    clock_gettime(CLOCK_BOOTTIME, &boot);
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t boot_ns = (uint64_t)boot.tv_sec * 1000000000ull + (uint64_t)boot.tv_nsec;
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    uint64_t ago = boot_ns > since_boot ? boot_ns - since_boot : 0;
    return now_ns > ago ? now_ns - ago : 0;
}

bool proc_stat(uint32_t pid, struct proc_stat *stat)
{
    char text[1024];
    unsigned long long start, pages;
    unsigned int parent;
    if (read_proc(pid, "stat", text, sizeof text) <= 0)
        return false;
    /* The name in parentheses may hold anything, so look for the last one. */
    char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (!name || !end ||
        sscanf(
            end + 1,
            " %c %u %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %*s "
            "%llu",
            &stat->state, &parent, &start, &pages) != 4)
        return false;
    *end = 0;
    snprintf(stat->name, sizeof stat->name, "%s", name + 1);
    stat->parent = parent;
    stat->start_ticks = start;
    stat->begin_ns = monotonic_of(start);
    stat->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

static bool add_child(uint32_t **children, int *count, uint32_t child)
{
    if ((*count & (*count - 1)) == 0) { /* room for twice as many at 1, 2, 4, ... */
        uint32_t *grown = realloc(*children, (*count ? (size_t)*count * 2 : 1) * sizeof **children);
        if (!grown)
            return false;
        *children = grown;
    }
    (*children)[(*count)++] = child;
    return true;
}

/* Each thread has a list of the children that it made. */
static bool add_children_of(const char *path, uint32_t **children, int *count)
{
    char *text, *next;
    size_t size;
    if (ull__file_read(path, ENVIRON_LIMIT, &text, &size, NULL) != ULL_OK)
        return false;
    char *at = text;
    for (unsigned long pid; (pid = strtoul(at, &next, 10)) != 0 && next != at; at = next)
        if (!add_child(children, count, (uint32_t)pid))
            break;
    free(text);
    return true;
}

int proc_children(uint32_t pid, uint32_t **children)
{
    char path[320];
    int count = 0;
    bool told = false;
    *children = NULL;
    snprintf(path, sizeof path, "/proc/%u/task", pid);
    DIR *tasks = opendir(path);
    struct dirent *entry;
    while (tasks && (entry = readdir(tasks))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%u/task/%s/children", pid, entry->d_name);
        told |= add_children_of(path, children, &count);
    }
    if (tasks)
        closedir(tasks);
    return told ? count : -1;
}

bool proc_user(uint32_t pid, uint32_t *uid)
{
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%u", pid);
    if (stat(path, &status) != 0)
        return false;
    *uid = status.st_uid;
    return true;
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

uint64_t proc_memory_available(void)
{
    return ull__host_memory_left(0);
}

uint64_t proc_memory_given_back(uint32_t pid)
{
    char number[16];
    snprintf(number, sizeof number, "%u", pid);
    return ull__host_memory_lazy(number);
}
