/*
 * others.c: see others.h.
 *
 * The file is ullaged-UID and belongs to that user, else it is nobody's word. Who lives holds its lock, which ends with
 * the process; what is written in it is the process's number, for people.
 */
#include "others.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger.h"
#include "say.h"

enum { OTHERS = 32, TWICE = 2 };
#define LOOK_NS 2000000000ull
#define PREFIX "ullaged-"

static struct {
    int fd; /* the own file, locked; 0: not yet */
    char path[ULL_PATH_TEXT], folder[ULL_PATH_TEXT];
    int failures; /* to get the own lock, one after the other */
    uint64_t next_ns;
    struct other {
        uint32_t uid;
        long pid;
        bool present;
    } other[OTHERS];
    int count;
} all;

/* --- this one's ------------------------------------------------------------------------------------------- */

/* Above the folder of this user's ledgers. */
static bool find_folder(void)
{
    if (ull__ledger_folder(true, all.folder, NULL) != ULL_OK)
        return false;
    char *slash = strrchr(all.folder, '/');
    if (!slash)
        return false;
    *slash = 0;
    return snprintf(all.path, sizeof all.path, "%.200s/" PREFIX "%u", all.folder,
                    (unsigned int)geteuid()) < (int)sizeof all.path;
}

/* Not one that the last daemon took away between the two calls. */
static bool is_at_path(int fd)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && stat(all.path, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

static void show_oneself(void)
{
    char text[32];
    int fd = open(all.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_at_path(fd)) {
        ssize_t got = pread(fd, text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = 0;
        if (++all.failures == TWICE) /* once may be a look of another one's */
            say(LOG_WARN,
                "another ullaged of this user (process %ld) runs beside this one, at another "
                "socket: "
                "each job is served by the one that finds it first, and neither knows what the "
                "other "
                "promises; stop one of them",
                atol(text));
        close(fd);
        return;
    }
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (fchmod(fd, 0644) != 0 || ftruncate(fd, 0) != 0 ||
        pwrite(fd, text, (size_t)length, 0) != length)
        say(LOG_WARN, "cannot write %s: other daemons will not know this one's number", all.path);
    all.fd = fd;
    all.failures = 0;
}

/* --- the others' ------------------------------------------------------------------------------------------ */

static bool lives(int folder, const char *name, uint32_t uid, long *pid)
{
    char text[32];
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool there = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == uid &&
                 flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ssize_t got = there ? pread(fd, text, sizeof text - 1, 0) : 0;
    close(fd);
    text[got > 0 ? got : 0] = 0;
    *pid = atol(text);
    return there && *pid > 0;
}

static void describe(const struct other *other, char *text, size_t size)
{
    if (other->uid == 0)
        snprintf(text, size, "the machine's ullaged (root's, process %ld)", other->pid);
    else
        snprintf(text, size, "an ullaged of user %u (process %ld)", other->uid, other->pid);
}

static void came(uint32_t uid, long pid)
{
    char who[80];
    struct other *other = NULL;
    for (int i = 0; i < all.count; i++)
        if (all.other[i].uid == uid && all.other[i].pid == pid)
            other = &all.other[i];
    if (other) {
        other->present = true;
        return;
    }
    if (all.count == OTHERS)
        return;
    other = &all.other[all.count++];
    *other = (struct other){.uid = uid, .pid = pid, .present = true};
    describe(other, who, sizeof who);
    say(LOG_WARN,
        "%s runs beside this one. A job is served by the one that finds it first. What the other's "
        "jobs hold counts here as used by others: it is not moved, not trimmed and not promised to "
        "anybody, and promises of this one do not bind the other. Let one of them serve all",
        who);
}

static void look_at_others(void)
{
    DIR *dir = opendir(all.folder);
    struct dirent *entry;
    for (int i = 0; i < all.count; i++)
        all.other[i].present = false;
    while (dir && (entry = readdir(dir))) {
        const char *digits = entry->d_name + strlen(PREFIX);
        long pid;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 || *digits < '0' || *digits > '9')
            continue;
        char *end;
        unsigned long uid = strtoul(digits, &end, 10);
        if (*end == 0 && uid != geteuid() && lives(dirfd(dir), entry->d_name, (uint32_t)uid, &pid))
            came((uint32_t)uid, pid);
    }
    if (dir)
        closedir(dir);
    for (int i = all.count; i-- > 0;) {
        char who[80];
        if (all.other[i].present)
            continue;
        describe(&all.other[i], who, sizeof who);
        say(LOG_TELL, "%s has ended", who);
        all.other[i] = all.other[--all.count];
    }
}

void others_look(uint64_t now)
{
    if (now < all.next_ns)
        return;
    all.next_ns = now + LOOK_NS;
    if (!all.path[0] && !find_folder())
        return;
    if (all.fd != 0 && !is_at_path(all.fd)) { /* somebody tidied up there */
        close(all.fd);
        all.fd = 0;
    }
    if (all.fd == 0)
        show_oneself();
    look_at_others();
}

int others_count(void)
{
    return all.count;
}

void others_close(void)
{
    if (all.fd == 0)
        return;
    unlink(all.path); /* before the lock goes: who waits for it looks whether it is there still */
    close(all.fd);
    all.fd = 0;
}
