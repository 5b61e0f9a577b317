/* memory_file.h: an input as a file that has a path, for what reads by path. One at a time. */
#ifndef ULLAGE_FUZZ_MEMORY_FILE_H
#define ULLAGE_FUZZ_MEMORY_FILE_H

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

static inline const char *memory_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0)
        fd = memfd_create("input", MFD_CLOEXEC);
    FUZZ_EXPECT(fd >= 0 && ftruncate(fd, 0) == 0);
    FUZZ_EXPECT(pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

#endif
