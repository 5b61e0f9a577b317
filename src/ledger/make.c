/*
 * make.c: a new ledger; see ledger.h.
 *
 * Its file is found by others as soon as it has a name, and is theirs to use once its magic is there, which is written
 * last. Who is killed before that leaves a file that is nobody's: whoever finds it removes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "layout.h"

enum { TRIES = 100 };

/* 128 bits that nobody can guess, in hexadecimal. */
static bool random_name(char text[33])
{
    unsigned char bytes[16];
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    if (fd >= 0)
        close(fd);
    for (int i = 0; i < 16 && got == (ssize_t)sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return got == (ssize_t)sizeof bytes;
}

static void fill_file(struct ull__ledger_file *file, const struct ull__job_spec *spec, const char *id)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    file->size = sizeof *file;
    snprintf(file->id, sizeof file->id, "%.8s", id);
    file->start_unix_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    file->supervisor_pid = (uint32_t)getpid();
    file->spec = *spec;
    atomic_store(&file->priority, spec->priority);
    atomic_store(&file->waiting, spec->waits);
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        atomic_store(&file->soft_bytes[d], UINT64_MAX);
    for (int d = 0; d < spec->device_count; d++) {
        atomic_store(&file->budget_bytes[d], spec->devices[d].budget_bytes);
        atomic_store(&file->context_bytes[d], spec->devices[d].context_bytes);
        atomic_store(&file->hidden_bytes[d], spec->devices[d].hidden_bytes);
    }
    for (int i = 0; i < ULL_MAX_SLOTS; i++) {
        ull__robust_init(&file->slots[i].owner);
        ull__robust_init(&file->slots[i].changing);
    }
    ull__robust_init(&file->accounts_lock);
    ull__robust_init(&file->shares_lock);
    ull__robust_init(&file->spill_lock);
    ull__robust_init(&file->supervisor);
    pthread_mutex_lock(&file->supervisor);
    atomic_store(&file->magic, LEDGER_MAGIC);
}

/*
 * A new file, locked as long as it is not whole, so that it can be told from one whose maker was killed. Somebody may have found
 * it before the lock, and taken it for such a one: then it has no name any more, and another is made.
 */
static int make_locked(const char *path)
{
    mode_t mode = geteuid() == 0 ? 0666 : 0600;
    for (int tries = 0; tries < TRIES; tries++) {
        struct stat st;
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) == 0 && fchmod(fd, mode) == 0 && /* whatever the umask says */
            syscall(SYS_fstat, fd, &st) == 0) {
            if (st.st_nlink > 0)
                return fd;
            close(fd);
            continue;
        }
        int error = errno;
        unlink(path);
        close(fd);
        errno = error;
        return -1;
    }
    errno = EAGAIN;
    return -1;
}

ull_status ull__ledger_create(const struct ull__job_spec *spec, struct ull__ledger **out,
                              struct ull_error *err)
{
    char folder[ULL_PATH_TEXT], name[33];
    if (spec->device_count < 0 || spec->device_count > ULL_MAX_DEVICES)
        return ull__fail(err, ULL_E_INVALID, "a job can have at most %d devices, not %d",
                         ULL_MAX_DEVICES, spec->device_count);
    ull_status status = ull__ledger_folder(true, folder, err);
    if (status != ULL_OK)
        return status;
    struct ull__ledger *ledger = calloc(1, sizeof *ledger);
    if (!ledger || !random_name(name)) {
        free(ledger);
        return ull__fail(err, ULL_E_SYSTEM, "no memory, or no random numbers, for a new ledger");
    }
    if (snprintf(ledger->path, sizeof ledger->path, "%s/%s", folder, name) >=
        (int)sizeof ledger->path) {
        free(ledger);
        return ull__fail(err, ULL_E_INVALID, "the path of the shared-memory folder is too long: %s",
                         folder);
    }
    int fd = make_locked(ledger->path);
    int error = fd < 0 ? errno : 0;
    if (error == 0) /* a full folder is found out now, not as a SIGBUS in somebody's program */
        do
            error = posix_fallocate(fd, 0, sizeof *ledger->file);
        while (error == EINTR);
    void *map = MAP_FAILED;
    if (error == 0) {
        map = mmap(NULL, sizeof *ledger->file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = map == MAP_FAILED ? errno : 0;
    }
    if (error != 0) {
        if (fd >= 0)
            unlink(ledger->path);
        if (fd >= 0)
            close(fd);
        status = ull__fail(err, error == EACCES ? ULL_E_PERMISSION : ULL_E_SYSTEM,
                           "cannot create the job's ledger %s (%zu KiB of shared memory): %s; free "
                           "some room there, or name another folder by ULLAGE_SHM_DIR",
                           ledger->path, sizeof *ledger->file / 1024, strerror(error));
        free(ledger);
        return status;
    }
    ledger->file = map;
    ledger->supervisor = true;
    ledger->pinned = true;
    fill_file(ledger->file, spec, name);
    flock(fd, LOCK_UN); /* it is whole */
    ledger->fd = fd;
    *out = ledger;
    return ULL_OK;
}

/* Has anybody written there, of this version or another? */
static bool has_magic(int fd)
{
    uint64_t magic = 0;
    ssize_t got = pread(fd, &magic, sizeof magic, 0);
    return got < 0 || (got == (ssize_t)sizeof magic && magic != 0);
}

void ull__ledger_remove_half_made(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        !has_magic(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 && !has_magic(fd))
        unlink(path);
    close(fd);
}
