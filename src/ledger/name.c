/*
 * name.c: the name of a ledger's file, and how it is opened by it.
 *
 * A job's file can lose its name while the job runs: systemd-logind removes all that is a user's in /dev/shm when they
 * have no session any more (RemoveIPC), also where a batch job of theirs runs on, and anybody may clean up by hand. Who is
 * in the job has the file mapped and goes on; who comes later could not find it. A file without a name cannot get one again
 * (linkat needs O_TMPFILE, and once), so the supervisor, who keeps it open, puts a symbolic link to its /proc/PID/fd/N
 * there, through which the same file is opened. It lasts as long as the supervisor does.
 *
 * Meanwhile somebody else may have made the folder, and what lies there. So a ledger is taken only from this user or
 * root, and a link only if it is of this kind, its owner's own, and leads to a ledger of the same owner and of this name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "error.h"
#include "layout.h"

enum { LINK_TEXT = 64 };

/* What is at the path, by system calls that are older than the C library's functions for it. An errno if that fails. */
static int look_at(const char *path, int how, struct stat *st)
{
    int fd = open(path, O_PATH | O_CLOEXEC | how);
    if (fd < 0)
        return errno;
    int error = syscall(SYS_fstat, fd, st) == 0 ? 0 : errno;
    close(fd);
    return error;
}

/* Where the link leads, if it is one of ours. */
static bool read_link(const char *path, char target[LINK_TEXT], struct stat *st)
{
    unsigned int pid, number;
    char again[LINK_TEXT];
    ssize_t length = readlink(path, target, LINK_TEXT - 1);
    if (length <= 0 || look_at(path, O_NOFOLLOW, st) != 0 || !S_ISLNK(st->st_mode))
        return false;
    target[length] = '\0';
    if (sscanf(target, "/proc/%u/fd/%u", &pid, &number) != 2)
        return false;
    snprintf(again, sizeof again, "/proc/%u/fd/%u", pid, number);
    return strcmp(target, again) == 0;
}

/*
 * Is the file the ledger of this name? The link may have lasted longer than its supervisor, whose number is another process's by
 * now; and in another pid namespace, as that of a container that shares the folder, it was another's all the time.
 */
static bool has_name(int fd, const char *path)
{
    char id[sizeof((struct ull__ledger_file *)0)->id];
    const char *name = strrchr(path, '/');
    if (!name || pread(fd, id, sizeof id, offsetof(struct ull__ledger_file, id)) != sizeof id)
        return false;
    size_t length = strnlen(id, sizeof id);
    return length > 0 && strncmp(id, name + 1, length) == 0;
}

/* By the way that leads to one file only, of which it is known that it may be opened. */
static int open_named(const char *way, const char *path, int flags)
{
    int reads = open(way, O_RDONLY | O_CLOEXEC | O_NONBLOCK), fd = -1;
    if (reads < 0)
        return -1;
    bool named = has_name(reads, path);
    if (named)
        fd = open(way, flags | O_CLOEXEC | O_NONBLOCK);
    int error = named ? errno : ENOENT;
    close(reads);
    errno = error;
    return fd;
}

/* To open some files has effects: it is looked at first what it is. */
static int open_by_link(const char *path, int flags)
{
    char target[LINK_TEXT], own[LINK_TEXT];
    struct stat link, st;
    if (!read_link(path, target, &link) ||
        (geteuid() != 0 && link.st_uid != 0 && link.st_uid != geteuid())) {
        errno = ELOOP;
        return -1;
    }
    int at = open(target, O_PATH | O_CLOEXEC);
    if (at < 0)
        return -1;
    int fd = -1, error = ENOENT;
    snprintf(own, sizeof own, "/proc/self/fd/%d", at);
    if (syscall(SYS_fstat, at, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == link.st_uid &&
        st.st_size == (off_t)sizeof(struct ull__ledger_file)) {
        fd = open_named(own, path, flags);
        error = errno;
    }
    close(at);
    errno = error;
    return fd;
}

int ull__ledger_file(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd < 0 && errno == ELOOP ? open_by_link(path, flags) : fd;
}

bool ull__ledger_is_ours(int fd)
{
    struct stat st;
    return syscall(SYS_fstat, fd, &st) == 0 &&
           (geteuid() == 0 || st.st_uid == 0 || st.st_uid == geteuid());
}

/* This process as /proc counts, which may be that of a namespace around this one. */
static int put_link(const char *path, int fd)
{
    char self[16], target[LINK_TEXT];
    ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    if (length <= 0)
        return ENOENT;
    self[length] = '\0';
    snprintf(target, sizeof target, "/proc/%s/fd/%d", self, fd);
    unlink(path); /* a link of before, or what is no ledger */
    return symlink(target, path) == 0 ? 0 : errno;
}

ull_status ull__ledger_keep_name(struct ull__ledger *ledger, struct ull_error *err)
{
    char folder[ULL_PATH_TEXT];
    struct stat there, here;
    if (ledger->fd < 0 || syscall(SYS_fstat, ledger->fd, &here) != 0)
        return ULL_OK;
    int error = look_at(ledger->path, 0, &there);
    bool known = error == 0 || error == ENOENT || error == ENOTDIR; /* else it is tried again */
    if (!known || (error == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino))
        return ULL_OK;
    ull_status status = ull__ledger_folder(true, folder, err);
    if (status != ULL_OK)
        return status;
    error = put_link(ledger->path, ledger->fd);
    return error == 0 ? ULL_OK
                      : ull__fail(err, ULL_E_SYSTEM, "cannot make %s again: %s", ledger->path,
                                  strerror(error));
}

void ull__ledger_remove_dead_link(const char *path)
{
    char target[LINK_TEXT];
    struct stat link, there;
    if (read_link(path, target, &link) && link.st_uid == geteuid() &&
        look_at(target, 0, &there) == ENOENT)
        unlink(path);
}
