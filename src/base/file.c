/*
 * file.c: see file.h. stat() and its kin are not used: their symbols are newer than the oldest libc
 * that guest programs may have, and this module is linked into what they load.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "error.h"

enum { TRIES = 100 };

int mkdir(const char *path, mode_t mode); /* <sys/stat.h> would clash with <linux/stat.h> */

static ull_status fail_errno(struct ull_error *err, int error, const char *what, const char *path)
{
    ull_status status = error == ENOENT || error == ENOTDIR ? ULL_E_NOT_FOUND
                        : error == EACCES || error == EPERM ? ULL_E_PERMISSION
                                                            : ULL_E_SYSTEM;
    return ull__fail(err, status, "cannot %s '%.300s': %s", what, path, strerror(error));
}

/* The type bits of a file's mode, or 0 if there is none. Links are followed. */
static unsigned int file_type(const char *path)
{
    struct statx info;
    if (syscall(SYS_statx, AT_FDCWD, path, 0, STATX_TYPE, &info) != 0)
        return 0;
    return info.stx_mode & 0170000u;
}

static bool is_regular_or_absent(unsigned int type)
{
    return type == 0 || type == 0100000u;
}

/*
 * Where a link points to, so that a rename replaces the file and not the link; the path itself
 * otherwise.
 */
static void follow_link(const char *path, char target[ULL_FILE_PATH])
{
    char resolved[ULL_FILE_PATH];
    if (!realpath(path, resolved))
        snprintf(resolved, sizeof resolved, "%s", path);
    memcpy(target, resolved, ULL_FILE_PATH);
}

static int create_beside(const char *path, char temporary[ULL_FILE_PATH])
{
    int length = snprintf(temporary, ULL_FILE_PATH, "%s.XXXXXX", path);
    if (length >= ULL_FILE_PATH) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd >= 0) {
        /* mkostemp makes 0600; a report is as readable as any file that the user writes. */
        mode_t mask = 077;
        FILE *status = fopen("/proc/self/status", "re"); /* umask() itself would change it */
        char line[256];
        while (status && fgets(line, sizeof line, status)) {
            unsigned int octal;
            if (sscanf(line, "Umask: %o", &octal) == 1)
                mask = octal;
        }
        if (status)
            fclose(status);
        syscall(SYS_fchmod, fd, 0666 & ~mask);
    }
    return fd;
}

/* Beside a file, under the name that it has until it gets its place. False: that is too long. */
static bool second_name(const char *path, char second[ULL_FILE_PATH])
{
    if (snprintf(second, ULL_FILE_PATH, "%s" ULL_FILE_SECOND, path) >= ULL_FILE_PATH)
        return false;
    return access(second, F_OK) == 0 || errno != ENAMETOOLONG;
}

/* Whether nothing can get a name in it any more: it was removed, but some process is in it. */
static bool is_gone(const char *folder)
{
    struct statx info;
    return syscall(SYS_statx, AT_FDCWD, folder, 0, STATX_NLINK, &info) == 0 && info.stx_nlink == 0;
}

/*
 * In the folder of the path, without a name, so that a kill leaves nothing. -1: not everywhere are such files, nor would
 * it get a name everywhere.
 */
static int create_nameless(const char *path)
{
    char folder[ULL_FILE_PATH], second[ULL_FILE_PATH];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1,
             slash ? path : ".");
    if (!second_name(path, second) || is_gone(folder))
        return -1;
    return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/*
 * Where another file has the name that takes a second one, for an instant. Who is killed in it leaves that to the next one who
 * writes: what has it is whole, so it gets its place before the new one does. Two who write at once help each other so.
 */
static bool give_name(int fd, const char *target)
{
    char own[32], second[ULL_FILE_PATH];
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    if (!second_name(target, second))
        return false;
    for (int tries = 0; tries < TRIES; tries++) {
        if (linkat(AT_FDCWD, own, AT_FDCWD, second, AT_SYMLINK_FOLLOW) == 0) {
            if (rename(second, target) == 0 || errno == ENOENT)
                return true;
            unlink(second);
            return false;
        }
        if (errno != EEXIST || (rename(second, target) != 0 && errno != ENOENT))
            return false;
    }
    return false;
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        data += done;
        size -= (size_t)done;
    }
    return true;
}

int ull__own_descriptor(const char *path)
{
    static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int i = 0; i < 3; i++)
        if (strcmp(path, names[i]) == 0)
            return i;
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) != 0 || path[length] < '0' || path[length] > '9')
            continue;
        char *end;
        long number = strtol(path + length, &end, 10);
        return *end == 0 && number <= 1 << 20 ? (int)number : -1;
    }
    return -1;
}

static ull_status write_directly(const char *path, const char *data, size_t size,
                                 struct ull_error *err)
{
    int own = ull__own_descriptor(path);
    int fd = own >= 0 ? own : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail_errno(err, errno, "write", path);
    bool good = write_all(fd, data, size);
    int error = errno;
    if (own < 0)
        close(fd);
    return good ? ULL_OK : fail_errno(err, error, "write", path);
}

static bool write_nameless(const char *target, const char *data, size_t size)
{
    int fd = create_nameless(target);
    if (fd < 0)
        return false;
    bool good = write_all(fd, data, size) && fsync(fd) == 0 && give_name(fd, target);
    close(fd);
    return good;
}

ull_status ull__file_write(const char *path, const char *data, size_t size, struct ull_error *err)
{
    if (ull__own_descriptor(path) >= 0 || !is_regular_or_absent(file_type(path)))
        return write_directly(path, data, size, err);
    char target[ULL_FILE_PATH], temporary[ULL_FILE_PATH];
    follow_link(path, target);
    if (write_nameless(target, data, size))
        return ULL_OK;
    int fd = create_beside(target, temporary); /* it also finds out what is wrong */
    if (fd < 0)
        return fail_errno(err, errno, "create a file beside", path);
    bool good = write_all(fd, data, size) && fsync(fd) == 0;
    int error = errno;
    if (close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && rename(temporary, target) != 0) {
        good = false;
        error = errno;
    }
    if (good)
        return ULL_OK;
    unlink(temporary);
    return fail_errno(err, error, "write", path);
}

static ull_status check_descriptor(int own, const char *path, struct ull_error *err)
{
    int mode = fcntl(own, F_GETFL);
    if (mode >= 0 && (mode & O_ACCMODE) != O_RDONLY)
        return ULL_OK;
    return fail_errno(err, mode < 0 ? errno : EBADF, "write", path);
}

ull_status ull__file_check(const char *path, struct ull_error *err)
{
    if (path[0] == 0)
        return ull__fail(err, ULL_E_INVALID, "the path of a file is empty");
    int own = ull__own_descriptor(path);
    if (own >= 0)
        return check_descriptor(own, path, err);
    unsigned int type = file_type(path);
    if (type == 0040000u)
        return ull__fail(err, ULL_E_INVALID, "'%.300s' is a folder: expected the path of a file",
                         path);
    if (!is_regular_or_absent(type)) {
        if (access(path, W_OK) != 0)
            return fail_errno(err, errno, "write", path);
        return ULL_OK;
    }
    char target[ULL_FILE_PATH], temporary[ULL_FILE_PATH];
    follow_link(path, target);
    int fd = create_nameless(target);
    if (fd >= 0) {
        close(fd);
        return ULL_OK;
    }
    fd = create_beside(target, temporary);
    if (fd < 0)
        return fail_errno(err, errno, "create a file beside", path);
    close(fd);
    unlink(temporary);
    return ULL_OK;
}

/* Systems before Linux 6.3 do not know the flag, and have no such rule. */
int ull__memory_file(const char *name)
{
    enum { NOEXEC_SEAL = 8 }; /* MFD_NOEXEC_SEAL, newer than the C library's headers */
    int fd = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC | NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC) : fd;
}

bool ull__no_descriptor(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

ull_status ull__file_read(const char *path, size_t limit, char **data, size_t *size,
                          struct ull_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail_errno(err, errno, "read", path);
    size_t capacity = 4096, used = 0;
    char *text = malloc(capacity + 1);
    int error = text ? 0 : ENOMEM;
    while (!error) {
        if (used == capacity) {
            char *grown = realloc(text, capacity * 2 + 1);
            if (!grown) {
                error = ENOMEM;
                break;
            }
            text = grown;
            capacity *= 2;
        }
        ssize_t got = read(fd, text + used, capacity - used);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            error = errno;
        if (got > 0)
            used += (size_t)got;
        if (used > limit)
            error = EFBIG;
    }
    close(fd);
    if (error) {
        free(text);
        if (error == EFBIG || error == EISDIR)
            return ull__fail(err, ULL_E_FORMAT,
                             "'%.300s' is %s: expected a file of at most %zu bytes", path,
                             error == EISDIR ? "a folder" : "too large", limit);
        return fail_errno(err, error, "read", path);
    }
    text[used] = 0;
    *data = text;
    *size = used;
    return ULL_OK;
}

ull_status ull__folder_create(const char *path, struct ull_error *err)
{
    char part[ULL_FILE_PATH];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return ull__fail(err, ULL_E_INVALID, "the path of a folder is empty or too long");
    for (size_t end = 1; end <= length; end++) {
        if (path[end] != '/' && path[end] != 0)
            continue;
        memcpy(part, path, end);
        part[end] = 0;
        if (mkdir(part, 0700) == 0)
            continue;
        int error = errno;
        if (error != EEXIST && file_type(part) != 0040000u)
            return fail_errno(err, error, "create the folder", part);
    }
    if (file_type(path) != 0040000u)
        return fail_errno(err, ENOTDIR, "create the folder", path);
    return ULL_OK;
}

static bool xdg_folder(const char *variable, const char *below_home, char path[ULL_FILE_PATH])
{
    const char *base = getenv(variable), *home = getenv("HOME");
    int length = ULL_FILE_PATH;
    if (base && base[0] == '/')
        length = snprintf(path, ULL_FILE_PATH, "%s/ullage", base);
    else if (home && home[0] == '/')
        length = snprintf(path, ULL_FILE_PATH, "%s/%s/ullage", home, below_home);
    return length < ULL_FILE_PATH;
}

bool ull__config_folder(char path[ULL_FILE_PATH])
{
    return xdg_folder("XDG_CONFIG_HOME", ".config", path);
}

bool ull__state_folder(char path[ULL_FILE_PATH])
{
    return xdg_folder("XDG_STATE_HOME", ".local/state", path);
}
