/*
 * shared.c: state of the cards that several processes share, safe against a kill at any moment.
 *
 * A process that dies keeps its memory for 100 ms, as a real one does while the driver cleans up.
 * The moment of death is not recorded by anybody; it is taken as the dead process's last sign of
 * life plus one beat, or the moment somebody looks, whichever is earlier.
 *
 * Limits: 512 processes, 4096 exported allocations and 16 tags at a time.
 */
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t magic = 0x3165676c6c75ull;

uint64_t fake_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void fake_data_path(char *path, size_t size, uint32_t slot, uint32_t generation)
{
    snprintf(path, size, "%s/data.%u.%u", fake_config()->directory, slot, generation);
}

static void init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void initialise(struct fake_shared *shared)
{
    const struct fake_config *config = fake_config();
    shared->bytes = sizeof *shared;
    shared->count = (uint32_t)config->count;
    shared->physical = (uint32_t)config->physical;
    memcpy(shared->config, config->card, sizeof shared->config);
    init_mutex(&shared->lock);
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
        init_mutex(&shared->process[i].life);
    atomic_thread_fence(memory_order_release);
    shared->magic = magic;
}

/*
 * The file is made under an advisory lock on the directory, so that nobody maps half of it. It is
 * opened without O_CREAT first: a sticky directory refuses O_CREAT on another user's file.
 */
static int open_state(bool create)
{
    const char *directory = fake_config()->directory;
    char path[320];
    snprintf(path, sizeof path, "%s/state", directory);
    if (create && mkdir(directory, 0777) == 0)
        chmod(directory, 01777); /* past the umask: other users' jobs share the cards */
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && create) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            fchmod(fd, 0666);
        else if (errno == EEXIST)
            fd = open(path, O_RDWR | O_CLOEXEC);
    }
    return fd;
}

struct fake_shared *fake_shared_open(bool create)
{
    int fd = open_state(create);
    if (fd < 0) {
        if (create)
            fprintf(stderr, "fakecuda: no state in %s: %s\n", fake_config()->directory,
                    strerror(errno));
        return NULL;
    }
    flock(fd, LOCK_EX);
    struct stat st;
    struct fake_shared *shared = MAP_FAILED;
    if (fstat(fd, &st) == 0 && (st.st_size != 0 || ftruncate(fd, sizeof *shared) == 0))
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED && (st.st_size == 0 || shared->magic == 0))
        initialise(shared);
    flock(fd, LOCK_UN);
    close(fd);
    if (shared == MAP_FAILED)
        return NULL;
    if (shared->magic != magic || shared->bytes != sizeof *shared) {
        fprintf(stderr, "fakecuda: %s belongs to another build; remove it\n",
                fake_config()->directory);
        munmap(shared, sizeof *shared);
        return NULL;
    }
    fake_config_adopt(shared->config, (int)shared->count, (int)shared->physical);
    return shared;
}

static void raise_peak(struct fake_sum *sum)
{
    if (sum->used > sum->peak)
        sum->peak = sum->used;
}

static void add_sums(struct fake_shared *shared, int card, int tag, int64_t bytes)
{
    shared->card[card].used += (uint64_t)bytes;
    raise_peak(&shared->card[card]);
    if (tag >= 0) {
        shared->tag[tag][card].used += (uint64_t)bytes;
        raise_peak(&shared->tag[tag][card]);
    }
}

void fake_shared_add(struct fake_shared *shared, int slot, int card, int64_t used, int64_t hidden)
{
    struct fake_process *process = &shared->process[slot];
    process->used[card] += (uint64_t)used;
    process->hidden[card] += (uint64_t)hidden;
    add_sums(shared, card, process->tag, used + hidden);
}

void fake_shared_add_orphan(struct fake_shared *shared, struct fake_export *export, int64_t bytes)
{
    export->orphaned += (uint64_t)bytes;
    add_sums(shared, export->card, export->tag, bytes);
}

void fake_shared_settle_export(struct fake_shared *shared, struct fake_export *export)
{
    if (export->state == 0 || export->owner >= 0)
        return;
    for (int i = 0; i < FAKE_MAX_PROCESSES / 64; i++)
        if (export->importers[i])
            return;
    fake_shared_add_orphan(shared, export, -(int64_t) export->orphaned);
    export->generation++;
    export->state = 0;
}

/* A holder of the lock died: the sums may be half done, what each process holds is not. */
static void recompute(struct fake_shared *shared)
{
    for (int c = 0; c < FAKE_MAX_CARDS; c++) {
        shared->card[c].used = 0;
        for (int t = 0; t < FAKE_MAX_TAGS; t++)
            shared->tag[t][c].used = 0;
    }
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        struct fake_process *process = &shared->process[i];
        for (int c = 0; process->state && c < (int)shared->count; c++)
            add_sums(shared, c, process->tag, (int64_t)(process->used[c] + process->hidden[c]));
    }
    for (int i = 0; i < FAKE_MAX_EXPORTS; i++)
        if (shared->export[i].state)
            add_sums(shared, shared->export[i].card, shared->export[i].tag,
                     (int64_t)shared->export[i].orphaned);
}

void fake_shared_lock(struct fake_shared *shared)
{
    if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) {
        recompute(shared);
        pthread_mutex_consistent(&shared->lock);
    }
}

void fake_shared_unlock(struct fake_shared *shared)
{
    pthread_mutex_unlock(&shared->lock);
}

/*
 * Importers have the data file mapped and keep the bytes. In a sticky directory another user's file
 * cannot be removed; then at least what it holds goes, unless somebody still reads it.
 */
static void remove_data(const struct fake_shared *shared, uint32_t slot, uint32_t generation)
{
    char path[320];
    fake_data_path(path, sizeof path, slot, generation);
    if (unlink(path) == 0 || errno == ENOENT)
        return;
    for (int i = 0; i < FAKE_MAX_EXPORTS; i++)
        if (shared->export[i].state && shared->export[i].file_slot == slot &&
            shared->export[i].file_generation == generation)
            return;
    if (truncate(path, 0) != 0)
        return; /* it stays until fakectl destroy */
}

/* The process is gone for good: its bytes return, except those that an importer keeps. */
static void bury(struct fake_shared *shared, int slot)
{
    struct fake_process *process = &shared->process[slot];
    for (int i = 0; i < FAKE_MAX_EXPORTS; i++) {
        struct fake_export *export = &shared->export[i];
        if (export->state == 0)
            continue;
        export->importers[slot / 64] &= ~(1ull << slot % 64);
        if (export->owner == slot) {
            bool wanted = false;
            for (int k = 0; k < FAKE_MAX_PROCESSES / 64; k++)
                wanted |= export->importers[k] != 0;
            export->owner = -1;
            if (wanted) {
                fake_shared_add(shared, slot, export->card, -(int64_t) export->size, 0);
                fake_shared_add_orphan(shared, export, (int64_t) export->size);
            }
        }
        fake_shared_settle_export(shared, export);
    }
    for (int c = 0; c < (int)shared->count; c++) {
        fake_shared_add(shared, slot, c, -(int64_t)process->used[c], -(int64_t)process->hidden[c]);
        atomic_store(&process->live[c], 0);
        atomic_store(&process->touched[c], 0);
        process->frozen_used[c] = process->frozen_hidden[c] = 0;
    }
    atomic_store(&process->frozen, 0);
    atomic_store(&process->inside, 0);
    atomic_store(&process->queued, 0);
    atomic_store(&process->managed, 0);
    remove_data(shared, (uint32_t)slot, process->generation);
    process->state = 0;
}

void fake_shared_reap(struct fake_shared *shared)
{
    static const uint64_t ms = 1000000;
    uint64_t now = fake_now_ns();
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        struct fake_process *process = &shared->process[i];
        if (process->state == 1) {
            int r = pthread_mutex_trylock(&process->life);
            if (r != EOWNERDEAD && r != 0) { /* it lives, though its own thread may not get to say so */
                if (atomic_load(&process->beat_ns) + FAKE_BEAT_MS * ms < now)
                    atomic_store(&process->beat_ns, now - FAKE_BEAT_MS * ms);
                continue;
            }
            if (r == EOWNERDEAD)
                pthread_mutex_consistent(&process->life);
            pthread_mutex_unlock(&process->life);
            uint64_t died = atomic_load(&process->beat_ns) + FAKE_BEAT_MS * ms;
            process->freed_at_ns = (died < now ? died : now) + FAKE_DEATH_MS * ms;
            if (fake_lenient("death.delay"))
                process->freed_at_ns = now;
            process->state = 2;
        }
        if (process->state == 2 && process->freed_at_ns <= now)
            bury(shared, i);
    }
}
