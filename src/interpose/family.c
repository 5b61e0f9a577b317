/*
 * family.c: with `run --each`, which direct child of the command a process descends from.
 *
 * `run` puts the command's pid into ULLAGE_EACH. The way up through parents is looked for when the
 * library is loaded, since the parent is still there then; later it may be gone and the process
 * somebody else's child. A process forked without exec inherits the answer, unless it is a direct
 * child of the command itself.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose.h"

enum { MAX_GENERATIONS = 64 };

static uint32_t loaded_pid;  /* of the process in which the library was loaded */
static uint32_t loaded_root; /* what was found then */

static uint32_t parent_of(uint32_t pid)
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
    char *at = strrchr(text, ')');
    return at && strlen(at) > 4 ? (uint32_t)strtoul(at + 4, NULL, 10) : 0;
}

static uint32_t find_root(uint32_t command)
{
    uint32_t pid = (uint32_t)getpid();
    for (int i = 0; pid > 1 && pid != command && i < MAX_GENERATIONS; i++) {
        uint32_t parent = parent_of(pid);
        if (parent == command)
            return pid;
        pid = parent;
    }
    return 0;
}

static uint32_t command_pid(void)
{
    const char *text = getenv("ULLAGE_EACH");
    return text && text[0] ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void look_up(void)
{
    uint32_t command = command_pid();
    if (command == 0)
        return;
    loaded_pid = (uint32_t)getpid();
    loaded_root = find_root(command);
}

uint32_t ull__family_root(void)
{
    uint32_t command = command_pid();
    if (command == 0 || (uint32_t)getpid() == loaded_pid)
        return loaded_root;
    if ((uint32_t)getppid() == command)
        return (uint32_t)getpid();
    return loaded_root ? loaded_root : find_root(command);
}
