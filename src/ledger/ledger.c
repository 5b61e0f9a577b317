/*
 * ledger.c: the ledger's file: where it is, how it is made, found and removed.
 *
 * Ledgers lie in /dev/shm/ullage-UID, mode 0711, under names that cannot be guessed. A job started by
 * root gets a file that anybody may write who knows the name, since its children may drop their
 * privileges and must still be held; everybody else's children stay the same user, so their files are
 * theirs alone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "layout.h"

static const char *shm_folder(void)
{
    const char *folder = getenv("ULLAGE_SHM_DIR");
    return folder && folder[0] ? folder : "/dev/shm";
}

/*
 * 0 when path is a folder of this user's own that nobody else may write, else an errno. The system
 * call is made directly: the C library's fstat() is newer than what the preload library may need.
 */
static int own_folder(const char *path, bool create)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = syscall(SYS_fstat, fd, &st) == 0 ? 0 : errno;
    if (error == 0 && (st.st_uid != geteuid() || (st.st_mode & 022)))
        error = EPERM;
    /* Passable whatever the umask was, for children that drop their privileges. */
    if (error == 0 && create && (st.st_mode & 0711) != 0711 && fchmod(fd, 0711) != 0)
        error = errno;
    close(fd);
    return error;
}

ull_status ull__ledger_folder(bool create, char path[ULL_PATH_TEXT], struct ull_error *err)
{
    const char *shm = shm_folder();
    if (snprintf(path, ULL_PATH_TEXT, "%s/ullage-%u", shm, (unsigned)geteuid()) >= ULL_PATH_TEXT)
        return ull__fail(err, ULL_E_INVALID, "the path of the shared-memory folder is too long: %s",
                         shm);
    if (create && mkdir(path, 0711) != 0 && errno != EEXIST)
        return ull__fail(err, ULL_E_SYSTEM,
                         "cannot create %s in the shared-memory folder: %s; it must exist, be "
                         "writable and have room (ULLAGE_SHM_DIR names another)",
                         path, strerror(errno));
    int error = own_folder(path, create);
    if (error == EPERM || error == EACCES || error == ELOOP || error == ENOTDIR)
        return ull__fail(err, ULL_E_PERMISSION,
                         "%s is not a folder of this user alone; remove it, or name another place "
                         "by ULLAGE_SHM_DIR",
                         path);
    if (error != 0 && (create || ull__no_descriptor(error)))
        return ull__fail(err, ULL_E_SYSTEM, "cannot use %s: %s", path, strerror(error));
    if (error != 0)
        return ull__fail(err, ULL_E_NOT_FOUND, "there is no folder %s: %s", path, strerror(error));
    return ULL_OK;
}

static ull_status open_status(int error)
{
    if (error == EACCES || error == EPERM)
        return ULL_E_PERMISSION;
    return error == EROFS || ull__no_descriptor(error) ? ULL_E_SYSTEM : ULL_E_NOT_FOUND;
}

ull_status ull__ledger_open(const char *path, struct ull__ledger **out, struct ull_error *err)
{
    if (strlen(path) >= ULL_PATH_TEXT)
        return ull__fail(err, ULL_E_INVALID, "the path of the job's ledger is too long: %s", path);
    int fd = ull__ledger_file(path, O_RDWR);
    if (fd < 0)
        return ull__fail(err, open_status(errno), "cannot open the job's ledger %s: %s", path,
                         strerror(errno));
    if (!ull__ledger_is_ours(fd)) {
        close(fd);
        return ull__fail(err, ULL_E_PERMISSION,
                         "the file %s is another user's, and no ledger of a job", path);
    }
    struct ull__ledger *ledger = NULL;
    struct ull__ledger_file *file = MAP_FAILED;
    if (lseek(fd, 0, SEEK_END) == (off_t)sizeof *file)
        file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (file != MAP_FAILED && atomic_load(&file->magic) == LEDGER_MAGIC && file->size == sizeof *file)
        ledger = calloc(1, sizeof *ledger);
    if (!ledger) {
        if (file != MAP_FAILED)
            munmap(file, sizeof *file);
        return ull__fail(err, ULL_E_FORMAT, "%s is not a ledger of this version of ullage", path);
    }
    snprintf(ledger->path, sizeof ledger->path, "%s", path);
    ledger->file = file;
    ledger->fd = -1;
    *out = ledger;
    return ULL_OK;
}

void ull__ledger_close(struct ull__ledger *ledger)
{
    if (!ledger)
        return;
    if (ledger->supervisor && pthread_mutex_unlock(&ledger->file->supervisor) == 0) {
        atomic_store(&ledger->file->supervisor_gone, 1);
        ledger->pinned = false;
    }
    /* A mutex that some thread holds is on that thread's list: its memory must not go away. */
    if (ledger->pinned)
        return;
    if (ledger->fd >= 0)
        close(ledger->fd);
    munmap(ledger->file, sizeof *ledger->file);
    free(ledger);
}

static bool supervisor_alive(struct ull__ledger *ledger)
{
    struct ull__ledger_file *file = ledger->file;
    if (ledger->copy)
        return file->supervisor_pid > 1 &&
               (kill((pid_t)file->supervisor_pid, 0) == 0 || errno == EPERM);
    if (ledger->supervisor)
        return true;
    bool died;
    if (atomic_load(&file->supervisor_gone))
        return false;
    if (!ull__robust_trylock(&file->supervisor, &died))
        return true;
    /* Said before the mutex is free again: two who look at once must not take each other for it. */
    atomic_store(&file->supervisor_gone, 1);
    pthread_mutex_unlock(&file->supervisor);
    return false;
}

bool ull__ledger_remove_if_dead(struct ull__ledger *ledger)
{
    if (ledger->copy || (!ledger->supervisor && supervisor_alive(ledger)))
        return false;
    for (int i = 0; i < ULL_MAX_SLOTS; i++)
        if (atomic_load(&ledger->file->slots[i].state) != SLOT_FREE)
            return false;
    return unlink(ledger->path) == 0;
}

/*
 * Another user's ledger as root sees it. That user may write there whatever he likes, at any moment,
 * and a mutex in it holds pointers that the C library follows. So root works on a copy, whose numbers
 * are brought into their ranges first, and takes no lock.
 */
static struct ull__ledger *open_copy(const char *path, int fd)
{
    struct ull__ledger *ledger = calloc(1, sizeof *ledger);
    struct ull__ledger_file *file =
        mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!ledger || file == MAP_FAILED || pread(fd, file, sizeof *file, 0) != (ssize_t)sizeof *file ||
        atomic_load(&file->magic) != LEDGER_MAGIC || file->size != sizeof *file) {
        if (file != MAP_FAILED)
            munmap(file, sizeof *file);
        free(ledger);
        return NULL;
    }
    ull__sanitize(file);
    snprintf(ledger->path, sizeof ledger->path, "%s", path);
    ledger->file = file;
    ledger->fd = -1;
    ledger->copy = true;
    return ledger;
}

/* What a look needs: all that lies before the places, and those that were ever used. */
bool ull__ledger_refresh(struct ull__ledger *ledger)
{
    struct ull__ledger_file *file = ledger->file;
    size_t head = offsetof(struct ull__ledger_file, slots);
    if (!ledger->copy)
        return true;
    int fd = ull__ledger_file(ledger->path, O_RDONLY);
    if (fd < 0 && ull__no_descriptor(errno))
        return true;
    bool good = fd >= 0 && pread(fd, file, head, 0) == (ssize_t)head &&
                atomic_load(&file->magic) == LEDGER_MAGIC &&
                pread(fd, &file->slots_used, sizeof file->slots_used,
                      offsetof(struct ull__ledger_file, slots_used)) == sizeof file->slots_used;
    size_t used = good ? atomic_load(&file->slots_used) : 0;
    size_t size = (used < ULL_MAX_SLOTS ? used : ULL_MAX_SLOTS) * sizeof file->slots[0];
    good = good && pread(fd, file->slots, size, (off_t)head) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    ull__sanitize(file);
    return good;
}

void ull__ledger_notice(struct ull__ledger *ledger)
{
    ull__ledger_sweep(ledger, ull__assume_listed, NULL);
}

uint32_t ull__ledger_owner(const struct ull__ledger *ledger)
{
    return ledger->uid;
}

static struct ull__ledger *open_to_look(const char *path)
{
    struct stat st;
    struct ull__ledger *ledger = NULL;
    int fd = ull__ledger_file(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    bool known = syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode);
    if (known && st.st_uid != geteuid())
        ledger = open_copy(path, fd);
    close(fd);
    if (known && st.st_uid == geteuid() && ull__ledger_open(path, &ledger, NULL) != ULL_OK)
        return NULL;
    if (ledger)
        ledger->uid = st.st_uid;
    return ledger;
}

/* What was left by somebody who was killed at once is nobody's, and goes. */
static struct ull__ledger *look_at(const char *path)
{
    struct ull__ledger *ledger = strlen(path) < ULL_PATH_TEXT ? open_to_look(path) : NULL;
    if (ledger)
        return ledger;
    ull__ledger_remove_half_made(path);
    ull__ledger_remove_dead_link(path);
    return NULL;
}

ull_status ull__ledger_look(const char *path, struct ull__ledger **out, struct ull_error *err)
{
    struct ull__ledger *ledger = look_at(path);
    if (!ledger)
        return ull__fail(err, ULL_E_NOT_FOUND, "%.200s is not a ledger of this version of ullage",
                         path);
    *out = ledger;
    return ULL_OK;
}

/* Who looks, and at what. */
struct looking {
    bool (*wanted)(const char *path, void *data); /* NULL: everything */
    void (*visit)(struct ull__ledger *ledger, void *data);
    void *data;
    bool hand_over; /* visit is to close it */
};

static void each_in(const char *folder, const struct looking *looking)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[ULL_PATH_TEXT];
        if (strlen(entry->d_name) != 32 ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        if (looking->wanted && !looking->wanted(path, looking->data))
            continue;
        struct ull__ledger *ledger = look_at(path);
        if (!ledger)
            continue;
        /* Who lists jobs cannot tell when the driver has freed what a dead process held. */
        ull__ledger_sweep(ledger, ull__assume_listed, NULL);
        looking->visit(ledger, looking->data);
        if (!looking->hand_over)
            ull__ledger_close(ledger);
    }
    if (dir)
        closedir(dir);
}

static void look_in_folder(const char *folder, void *data)
{
    each_in(folder, data);
}

static void look_everywhere(const struct looking *looking)
{
    ull__ledger_each_folder(look_in_folder, (void *)looking);
}

bool ull__ledger_each_folder(void (*visit)(const char *folder, void *data), void *data)
{
    char folder[ULL_PATH_TEXT];
    if (geteuid() != 0) {
        ull_status status = ull__ledger_folder(false, folder, NULL);
        if (status == ULL_OK)
            visit(folder, data);
        return status != ULL_E_SYSTEM;
    }
    DIR *dir = opendir(shm_folder());
    if (!dir)
        return !ull__no_descriptor(errno);
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (strncmp(entry->d_name, "ullage-", 7) == 0 &&
            snprintf(folder, sizeof folder, "%s/%s", shm_folder(), entry->d_name) < (int)sizeof folder)
            visit(folder, data);
    closedir(dir);
    return true;
}

void ull__ledger_each(void (*visit)(struct ull__ledger *ledger, void *data), void *data)
{
    look_everywhere(&(struct looking){.visit = visit, .data = data});
}

void ull__ledger_take(bool (*wanted)(const char *path, void *data),
                      void (*take)(struct ull__ledger *ledger, void *data), void *data)
{
    look_everywhere(
        &(struct looking){.wanted = wanted, .visit = take, .data = data, .hand_over = true});
}

bool ull__ledger_is_copy(const struct ull__ledger *ledger)
{
    return ledger->copy;
}

const char *ull__ledger_path(const struct ull__ledger *ledger)
{
    return ledger->path;
}

const struct ull__job_spec *ull__ledger_spec(const struct ull__ledger *ledger)
{
    return &ledger->file->spec;
}

uint64_t ull__ledger_context_bytes(struct ull__ledger *ledger, int device)
{
    return atomic_load(&ledger->file->context_bytes[device]);
}

bool ull__ledger_supervised(struct ull__ledger *ledger)
{
    return supervisor_alive(ledger);
}

uint64_t ull__ledger_hidden_bytes(struct ull__ledger *ledger, int device)
{
    return atomic_load(&ledger->file->hidden_bytes[device]);
}

uint64_t ull__ledger_hidden_measured(struct ull__ledger *ledger, int device)
{
    return atomic_load(&ledger->file->hidden_seen[device]);
}
