/* say.c: see say.h. */
#include "say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void say(enum say_rank rank, const char *format, ...)
{
    char line[1024];
    va_list args;
    int used = getenv("JOURNAL_STREAM") ? snprintf(line, sizeof line, "<%d>", (int)rank)
                                        : snprintf(line, sizeof line, "ullaged: ");
    va_start(args, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (used > (int)sizeof line - 2)
        used = (int)sizeof line - 2;
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)used) < 0)
        return; /* there is nobody to tell */
}

void notify(const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || strlen(path) < 2 || strlen(path) >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, strlen(path));
    if (path[0] == '@') /* not in the file system */
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
               (const struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) < 0)
        say(LOG_WARN, "cannot tell systemd '%.40s'", state);
    close(fd);
}

uint64_t watchdog_ns(void)
{
    const char *time = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    bool ours = time && (!pid || atol(pid) == (long)getpid());
    uint64_t ns = ours ? strtoull(time, NULL, 10) * 1000 : 0;
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return ns;
}

int listen_descriptors(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int number = pid && count && atol(pid) == (long)getpid() ? atoi(count) : 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return number > 0 && number < 16 ? number : 0;
}
