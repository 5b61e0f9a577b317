/*
 * preload_pictures.c: counts pictures that are opened. For each file that ends in .jpg a process adds a byte to the file of its
 * number in the folder PICTURES.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...);
    const char *folder = getenv("PICTURES");
    size_t length = strlen(path);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    *(void **)&next = dlsym(RTLD_NEXT, "open");
    if (folder && length > 4 && strcmp(path + length - 4, ".jpg") == 0) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%d", folder, (int)getpid());
        int fd = next(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, "x", 1) != 1) {
            abort();
        }
        close(fd);
    }
    return next(path, flags, mode);
}
