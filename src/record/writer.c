/* writer.c: see writer.h. No call of stat(), whose symbol is newer than the oldest libc of a guest. */
#include "writer.h"

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
#include "file.h"

enum {
    BLOCK_BYTES = 128 * 1024, /* a payload that is filled up to here is written */
    TEXT_NAMES = 8192,        /* texts that are known again */
    HIGH_DESCRIPTOR = 800,    /* out of the way of programs that count on low numbers */
};

struct name {
    uint64_t hash; /* 0: empty */
    uint32_t number;
};

struct ull__writer {
    char path[ULL_RECORD_PATH];
    uint64_t device, inode; /* of the file */
    int fd;
    int error;
    uint32_t pid;
    uint64_t started, sequence, dropped;
    uint32_t events;
    uint32_t text_count, stack_count, device_count;
    struct ull__deltas last;
    uint64_t base;
    uint8_t *at;
    struct name names[TEXT_NAMES];
    uint8_t block[ULL_BLOCK_HEAD + BLOCK_BYTES];
};
_Static_assert((int)BLOCK_BYTES <= (int)ULL_BLOCK_MOST, "readers take it");

uint64_t ull__record_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* --- the file -------------------------------------------------------------------------------------------- */

static bool look_at(int fd, uint64_t *device, uint64_t *inode, unsigned int *type)
{
    struct stat info;
    if (syscall(SYS_fstat, fd, &info) != 0)
        return false;
    *device = (uint64_t)info.st_dev;
    *inode = (uint64_t)info.st_ino;
    *type = info.st_mode & S_IFMT;
    return true;
}

static ull_status fail_errno(struct ull_error *err, int error, const char *what, const char *path)
{
    ull_status status = error == ENOENT || error == ENOTDIR                   ? ULL_E_NOT_FOUND
                        : error == EACCES || error == EPERM || error == EROFS ? ULL_E_PERMISSION
                                                                              : ULL_E_SYSTEM;
    return ull__fail(err, status, "cannot %s the record '%.300s': %s", what, path, strerror(error));
}

/* Is it the beginning of a record? 1: yes, 0: the file is empty, -1: no, or it cannot be read. */
static int looks_like_a_record(int fd)
{
    char magic[8];
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    if (got == 0)
        return 0;
    return got == (ssize_t)sizeof magic && memcmp(magic, ULL_RECORD_MAGIC, sizeof magic) == 0 ? 1
                                                                                              : -1;
}

/* What is at the path may be replaced by a record. */
static ull_status may_replace(const char *path, struct ull_error *err)
{
    uint64_t device, inode;
    unsigned int type = 0;
    if (ull__own_descriptor(path) >= 0)
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.300s' is a descriptor of this program: a record must be an ordinary file "
            "with a name",
            path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? ULL_OK : fail_errno(err, errno, "look at", path);
    bool known = look_at(fd, &device, &inode, &type);
    int record = known && type == S_IFREG ? looks_like_a_record(fd) : -1;
    bool claimed = record > 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    if (!known || type != S_IFREG)
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.300s' is %s: a record must be an ordinary file, which several processes "
            "append to",
            path, type == S_IFDIR ? "a folder" : "no ordinary file");
    if (record < 0)
        return ull__fail(err, ULL_E_INVALID,
                         "'%.300s' is there already and is no record; give another name, or remove "
                         "it first",
                         path);
    if (claimed)
        return ull__fail(err, ULL_E_INVALID,
                         "'%.300s' is the record of a run that is not over; give another name", path);
    return ULL_OK;
}

/* Where a link leads, so that the file is replaced and not the link. */
static void follow_link(const char *path, char target[ULL_RECORD_PATH])
{
    char resolved[ULL_RECORD_PATH];
    snprintf(target, ULL_RECORD_PATH, "%s", realpath(path, resolved) ? resolved : path);
}

ull_status ull__record_create(const char *path, char id[ULL_RECORD_ID], struct ull_error *err)
{
    char target[ULL_RECORD_PATH], temporary[ULL_RECORD_PATH + 32];
    uint64_t device, inode;
    unsigned int type;
    if (path[0] == '\0' || strlen(path) >= ULL_RECORD_PATH - 32)
        return ull__fail(err, ULL_E_INVALID, "the path of the record is %s",
                         path[0] ? "too long" : "empty");
    ull_status status = may_replace(path, err);
    if (status != ULL_OK)
        return status;
    follow_link(path, target);
    snprintf(temporary, sizeof temporary, "%s.%ld.new", target, (long)getpid());
    unlink(temporary); /* of a process of this pid that was killed here */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_errno(err, errno, "create", path);
    bool good = look_at(fd, &device, &inode, &type);
    int error = errno;
    close(fd);
    if (good && rename(temporary, target) != 0) {
        good = false;
        error = errno;
    }
    if (!good) {
        unlink(temporary);
        return fail_errno(err, error, "create", path);
    }
    snprintf(id, ULL_RECORD_ID, "%llx:%llx", (unsigned long long)device, (unsigned long long)inode);
    return ULL_OK;
}

static int open_high(const char *path)
{
    int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static bool same_file(const struct ull__writer *writer, int fd)
{
    uint64_t device, inode;
    unsigned int type;
    return look_at(fd, &device, &inode, &type) && device == writer->device && inode == writer->inode;
}

static ull_status open_file(struct ull__writer *writer, const char *id, struct ull_error *err)
{
    unsigned long long device, inode;
    unsigned int type = 0;
    writer->fd = open_high(writer->path);
    if (writer->fd < 0)
        return fail_errno(err, errno, "open", writer->path);
    if (!look_at(writer->fd, &writer->device, &writer->inode, &type) || type != S_IFREG ||
        looks_like_a_record(writer->fd) < 0)
        return ull__fail(err, ULL_E_INVALID, "'%.300s' is no record", writer->path);
    if (id && (sscanf(id, "%llx:%llx", &device, &inode) != 2 || device != writer->device ||
               inode != writer->inode))
        return ull__fail(err, ULL_E_INVALID, "'%.300s' is not the record of this job any more",
                         writer->path);
    return ULL_OK;
}

ull_status ull__writer_open(const char *path, const char *id, struct ull__writer **out,
                            struct ull_error *err)
{
    size_t length = strlen(path);
    if (length >= ULL_RECORD_PATH)
        return ull__fail(err, ULL_E_INVALID, "the path of the record is too long");
    struct ull__writer *writer =
        mmap(NULL, sizeof *writer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (writer == MAP_FAILED)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to record into");
    memcpy(writer->path, path, length + 1);
    ull_status status = open_file(writer, id, err);
    if (status != ULL_OK) {
        if (writer->fd >= 0)
            close(writer->fd);
        munmap(writer, sizeof *writer);
        return status;
    }
    writer->pid = (uint32_t)getpid();
    writer->started = ull__record_now();
    writer->at = writer->block + ULL_BLOCK_HEAD;
    *out = writer;
    return ULL_OK;
}

void ull__writer_forget(struct ull__writer *writer)
{
    if (!writer)
        return;
    if (same_file(writer, writer->fd))
        close(writer->fd);
    munmap(writer, sizeof *writer);
}

void ull__writer_claim(struct ull__writer *writer)
{
    flock(writer->fd,
          LOCK_SH | LOCK_NB); /* where files have no locks, the last one to come wins, as ever */
}

void ull__writer_close(struct ull__writer *writer)
{
    if (writer)
        ull__writer_flush(writer, writer->dropped);
    ull__writer_forget(writer);
}

int ull__writer_error(const struct ull__writer *writer)
{
    return writer->error;
}

/* The program may have closed our descriptor, and its number may be another file's by now. */
static bool have_descriptor(struct ull__writer *writer)
{
    if (same_file(writer, writer->fd))
        return true;
    writer->fd = open_high(writer->path);
    if (writer->fd < 0) {
        writer->error = errno;
        return false;
    }
    if (same_file(writer, writer->fd))
        return true;
    close(writer->fd);
    writer->fd = -1;
    writer->error = ESTALE;
    return false;
}

/* What is written short cannot be taken back: others may have appended. It stays as a torn block. */
static void write_block(struct ull__writer *writer, size_t size)
{
    ssize_t done;
    do
        done = write(writer->fd, writer->block, size);
    while (done < 0 && errno == EINTR);
    if (done != (ssize_t)size)
        writer->error = done < 0 ? errno : ENOSPC;
}

bool ull__writer_flush(struct ull__writer *writer, uint64_t dropped)
{
    uint8_t *payload = writer->block + ULL_BLOCK_HEAD;
    size_t size = (size_t)(writer->at - payload);
    if (size == 0 && dropped == writer->dropped)
        return writer->error == 0;
    writer->dropped = dropped;
    struct ull__block_head head = {.version = ULL_RECORD_VERSION,
                                   .type = ULL_BLOCK_ITEMS,
                                   .payload = (uint32_t)size,
                                   .check = ull__crc(0, payload, size),
                                   .pid = writer->pid,
                                   .started = writer->started,
                                   .sequence = ++writer->sequence,
                                   .base = writer->base,
                                   .dropped = dropped,
                                   .events = writer->events};
    ull__head_put(writer->block, &head);
    if (!writer->error && have_descriptor(writer))
        write_block(writer, ULL_BLOCK_HEAD + size);
    writer->at = payload;
    writer->events = 0;
    return writer->error == 0;
}

/* --- items ----------------------------------------------------------------------------------------------- */

/* Room for so many bytes in the block. */
static void need(struct ull__writer *writer, size_t bytes)
{
    if ((size_t)(writer->block + sizeof writer->block - writer->at) < bytes)
        ull__writer_flush(writer, writer->dropped);
}

void ull__writer_event(struct ull__writer *writer, const struct ull__event *event)
{
    if (writer->error)
        return;
    need(writer, ULL_EVENT_MOST);
    if (writer->events == 0) {
        writer->base = event->time_ns;
        writer->last = (struct ull__deltas){.time_ns = event->time_ns};
    }
    writer->at = ull__put_event(writer->at, event, &writer->last);
    writer->events++;
}

/* Opens an item whose body has at most `most` bytes; its length takes three bytes, whatever it is. */
static uint8_t *begin_item(struct ull__writer *writer, enum ull__item_kind kind, size_t most)
{
    need(writer, most + 4);
    *writer->at = (uint8_t)kind;
    return writer->at + 4;
}

static void end_item(struct ull__writer *writer, uint8_t *end)
{
    size_t size = (size_t)(end - writer->at) - 4;
    writer->at[1] = (uint8_t)(size | 0x80);
    writer->at[2] = (uint8_t)(size >> 7 | 0x80);
    writer->at[3] = (uint8_t)(size >> 14);
    writer->at = end;
}

static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
    hash ^= hash >> 32;
    return hash ? hash : 1;
}

/* By its hash alone: that two of 8,000 texts have the same of 64 bits happens once in 5 * 10^11 records. */
static struct name *find_name(struct ull__writer *writer, uint64_t hash)
{
    for (uint32_t i = 0; i < 64; i++) {
        struct name *name = &writer->names[(hash + i) % TEXT_NAMES];
        if (name->hash == hash || name->hash == 0)
            return name;
    }
    return NULL;
}

uint32_t ull__writer_text(struct ull__writer *writer, const char *text)
{
    size_t length = text ? strnlen(text, ULL_TEXT_MOST) : 0;
    if (length == 0 || writer->error)
        return 0;
    uint64_t hash = hash_text(text, length);
    struct name *name = find_name(writer, hash);
    if (name && name->hash == hash)
        return name->number;
    uint8_t *at = begin_item(writer, ULL_ITEM_TEXT, length + 10);
    at = ull__put_number(at, ++writer->text_count);
    memcpy(at, text, length);
    end_item(writer, at + length);
    if (name)
        *name = (struct name){hash, writer->text_count};
    return writer->text_count;
}

uint32_t ull__writer_stack(struct ull__writer *writer, const struct ull__record_frame *frames,
                           uint32_t count)
{
    if (count == 0 || writer->error)
        return 0;
    count = count < ULL_STACK_MOST ? count : ULL_STACK_MOST;
    uint8_t *at = begin_item(writer, ULL_ITEM_STACK, 20 + count * 15);
    at = ull__put_number(at, ++writer->stack_count);
    at = ull__put_number(at, count);
    for (uint32_t i = 0; i < count; i++) {
        at = ull__put_number(at, frames[i].function);
        at = ull__put_number(at, frames[i].file);
        at = ull__put_number(at, frames[i].line);
    }
    end_item(writer, at);
    return writer->stack_count;
}

void ull__writer_device(struct ull__writer *writer, const struct ull__record_device *device)
{
    uint32_t uuid = ull__writer_text(writer, device->uuid);
    uint32_t name = ull__writer_text(writer, device->name);
    uint8_t *at = begin_item(writer, ULL_ITEM_DEVICE, 80);
    at = ull__put_number(at, writer->device_count++);
    at = ull__put_number(at, uuid);
    at = ull__put_number(at, name);
    at = ull__put_signed(at, device->logical);
    at = ull__put_signed(at, device->physical);
    at = ull__put_number(at, device->total_bytes);
    at = ull__put_number(at, device->budget_bytes);
    end_item(writer, at);
}

void ull__writer_process(struct ull__writer *writer, uint32_t number,
                         const struct ull__record_process *process)
{
    uint32_t name = ull__writer_text(writer, process->name);
    uint8_t *at = begin_item(writer, ULL_ITEM_PROCESS, 60);
    at = ull__put_number(at, number);
    at = ull__put_number(at, process->pid);
    at = ull__put_number(at, process->parent);
    at = ull__put_number(at, process->start_ticks);
    at = ull__put_number(at, process->begin_ns);
    at = ull__put_number(at, name);
    end_item(writer, at);
}

void ull__writer_job(struct ull__writer *writer, const char *name, const char *command,
                     const char *version)
{
    struct timespec wall;
    uint32_t texts[3] = {ull__writer_text(writer, name), ull__writer_text(writer, command),
                         ull__writer_text(writer, version)};
    clock_gettime(CLOCK_REALTIME, &wall);
    uint8_t *at = begin_item(writer, ULL_ITEM_JOB, 60);
    for (int i = 0; i < 3; i++)
        at = ull__put_number(at, texts[i]);
    at = ull__put_number(at, (uint64_t)wall.tv_sec * 1000000000ull + (uint64_t)wall.tv_nsec);
    at = ull__put_number(at, ull__record_now());
    end_item(writer, at);
}

void ull__writer_over(struct ull__writer *writer, uint64_t time_ns, int exit_code)
{
    uint8_t *at = begin_item(writer, ULL_ITEM_OVER, 20);
    at = ull__put_number(at, time_ns);
    at = ull__put_signed(at, exit_code);
    end_item(writer, at);
}
