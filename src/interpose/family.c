/*
 * family.c: with `run --each`, which direct child of the command a process descends from.
 *
 * `run` puts the command's pid into ULLAGE_EACH. The way up through parents is looked for when the
 * library is loaded, since the parents are still there then; later they may be gone and the process
 * somebody else's child. A process forked without exec has the answer from its parent, or is itself
 * the direct child; a handler for fork tells it so while its parent is there.
 *
 * Where the way up is broken before the library is loaded (a shell's background job whose subshell is
 * gone), the leader of the session or process group tells it if it is a direct child. Else the
 * process shares the command's own budget.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose.h"

enum { MAX_GENERATIONS = 64, FIELD_PARENT = 4, FIELD_START = 22 };

static uint32_t command;   /* pid, as ULLAGE_EACH said when the library was loaded; 0: no --each */
static uint32_t known_pid; /* the process that root is of */
static uint32_t root;
static uint64_t root_ticks; /* its start, so that a process with the same pid later is not it */

/* A number of /proc/PID/stat, counted as proc(5) does; 0 if the process is gone. */
static uint64_t stat_field(uint32_t pid, int wanted)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *at = strrchr(text, ')'); /* the command's name may hold anything, also ')' */
    for (int field = 2; at && field < wanted; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static uint32_t parent_of(uint32_t pid)
{
    return (uint32_t)stat_field(pid, FIELD_PARENT);
}

static uint32_t find_root(void)
{
    uint32_t self = (uint32_t)getpid(), pid = self;
    for (int i = 0; pid > 1 && pid != command && i < MAX_GENERATIONS; i++) {
        uint32_t parent = parent_of(pid);
        if (parent == command)
            return pid;
        pid = parent;
    }
    if (self == command || pid == command)
        return 0;
    uint32_t leaders[] = {(uint32_t)getsid(0), (uint32_t)getpgrp()};
    for (int i = 0; i < 2; i++)
        if (leaders[i] > 1 && parent_of(leaders[i]) == command)
            return leaders[i];
    return 0;
}

static void set_root(uint32_t pid)
{
    known_pid = (uint32_t)getpid();
    root = pid;
    root_ticks = pid ? stat_field(pid, FIELD_START) : 0;
}

static void after_fork(void)
{
    if (root == 0 && (uint32_t)getppid() == command)
        set_root((uint32_t)getpid());
    known_pid = (uint32_t)getpid();
}

__attribute__((constructor)) static void look_up(void)
{
    const char *text = getenv("ULLAGE_EACH");
    command = text && text[0] ? (uint32_t)strtoul(text, NULL, 10) : 0;
    if (command == 0)
        return;
    set_root(find_root());
    pthread_atfork(NULL, NULL, after_fork);
}

uint32_t ull__family_root(uint64_t *ticks)
{
    /* A child made by the bare system call, which no handler told. */
    if (command != 0 && known_pid != (uint32_t)getpid() && root == 0)
        set_root(find_root());
    *ticks = root_ticks;
    return root;
}
