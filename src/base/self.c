/* self.c: see self.h. */
#include "self.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Up to size - 1 bytes, and a 0. */
static void read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
}

uint64_t ull__own_start_ticks(void)
{
    char text[1024];
    read_file("/proc/self/stat", text, sizeof text);
    char *at = strrchr(text, ')'); /* the command's name may hold anything, also ')' */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

void ull__own_command(char command[ULL_OWN_COMMAND])
{
    read_file("/proc/self/comm", command, ULL_OWN_COMMAND);
    command[strcspn(command, "\n")] = '\0';
}

void ull__hold_standard_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) /* the lowest number that is unused is the next one's */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0)
            return;
}
