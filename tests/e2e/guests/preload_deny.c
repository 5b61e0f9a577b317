/*
 * preload_deny.c: in children of the process that it was loaded into first, files in ULLAGE_SHM_DIR cannot be opened, as if the
 * job's ledger were full for them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t first;

__attribute__((constructor)) static void begin(void)
{
    first = getpid();
}

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...);
    const char *folder = getenv("ULLAGE_SHM_DIR");
    size_t length = folder ? strlen(folder) : 0;
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (getpid() != first && length > 0 && strncmp(path, folder, length) == 0 && path[length] == '/') {
        errno = EACCES;
        return -1;
    }
    *(void **)&next = dlsym(RTLD_NEXT, "open");
    return next(path, flags, mode);
}
