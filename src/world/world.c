/*
 * world.c: see world.h.
 *
 * A meeting: each rank counts its own arrivals, and goes on when the others have arrived as often. It looks a while, and then sleeps
 * on the counter of the one it waits for, for a tenth of a second at most before it asks whether those that it waits for still live.
 *
 * A rank lives as long as it has a byte of a file locked (fcntl): the kernel gives that up with the process, and F_GETLK asks about it
 * without taking it. Whoever asks by trying to take something is in the way of others who ask at the same moment.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "pause.h"

enum {
    LOOKS = 2000,
    PATIENCE_NS = 100000000,
    STARTING = 300, /* patiences until a rank must have joined */
    TELLER = 8,     /* bits */
    RANK_MASK = (1 << TELLER) - 1
};

struct member {
    _Atomic unsigned int arrived; /* a futex */
    _Atomic int joined;
} __attribute__((aligned(128)));

struct shared {
    _Atomic int failed; /* 0, or the rank and 1, and from bit 8 on the one that tells of it */
    _Atomic int told;   /* the message is whole */
    char message[400];
    struct member members[ULL_WORLD_RANKS];
};

struct ull__world {
    struct shared *shared;
    char *slots; /* one each, and the result */
    size_t bytes;
    int lives; /* a file without a name, and empty; byte i of it is locked by rank i while it lives */
    int rank, ranks;
    unsigned int meetings;
};

static size_t head_bytes(void)
{
    return (sizeof(struct shared) + 4095) / 4096 * 4096;
}

ull_status ull__world_create(int ranks, struct ull__world **world, struct ull_error *err)
{
    if (ranks < 2 || ranks > ULL_WORLD_RANKS) {
        return ull__fail(err, ULL_E_INVALID, "a world of %d: expected 2 to %d", ranks,
                         ULL_WORLD_RANKS);
    }
    struct ull__world *made = calloc(1, sizeof(*made));
    size_t bytes = head_bytes() + ((size_t)ranks + 1) * ULL_WORLD_SLOT;
    void *memory = made != NULL ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(made);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a world of %d", ranks);
    }
    int lives = ull__memory_file("ullage-world");
    if (lives < 0) {
        ull_status status = ull__fail(
            err, ULL_E_SYSTEM, "no file for the locks of a world of %d: %s", ranks, strerror(errno));
        munmap(memory, bytes);
        free(made);
        return status;
    }
    *made = (struct ull__world){.shared = memory,
                                .slots = (char *)memory + head_bytes(),
                                .bytes = bytes,
                                .lives = lives,
                                .rank = -1,
                                .ranks = ranks};
    *world = made;
    return ULL_OK;
}

static struct flock byte_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

ull_status ull__world_join(struct ull__world *world, int rank, struct ull_error *err)
{
    struct flock own = byte_of(rank);
    /* A lock of this process would be no obstacle to it, and one that has ended has none. */
    if (world->rank >= 0 || rank < 0 || rank >= world->ranks ||
        atomic_load(&world->shared->members[rank].joined) || fcntl(world->lives, F_SETLK, &own) != 0) {
        return ull__fail(err, ULL_E_INVALID, "rank %d of %d is taken", rank, world->ranks);
    }
    world->rank = rank;
    atomic_store(&world->shared->members[rank].joined, 1);
    return ULL_OK;
}

void ull__world_destroy(struct ull__world *world)
{
    if (world == NULL) {
        return;
    }
    close(world->lives); /* which gives up the lock */
    munmap(world->shared, world->bytes);
    free(world);
}

int ull__world_rank(const struct ull__world *world)
{
    return world->rank;
}

int ull__world_ranks(const struct ull__world *world)
{
    return world->ranks;
}

char *ull__world_slot(struct ull__world *world, int rank)
{
    return world->slots + (size_t)rank * ULL_WORLD_SLOT;
}

char *ull__world_result(struct ull__world *world)
{
    return ull__world_slot(world, world->ranks);
}

static void wake(_Atomic unsigned int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* The first failure is the world's. */
static void fail_for(struct ull__world *world, int rank, const char *message)
{
    struct shared *shared = world->shared;
    int none = 0;
    if (atomic_compare_exchange_strong(&shared->failed, &none,
                                       (rank + 1) | (world->rank + 1) << TELLER)) {
        snprintf(shared->message, sizeof(shared->message), "%s", message);
        atomic_store(&shared->told, 1);
    }
    for (int i = 0; i < world->ranks; ++i) {
        wake(&shared->members[i].arrived);
    }
}

void ull__world_fail(struct ull__world *world, const char *message)
{
    fail_for(world, world->rank, message);
}

int ull__world_failed(const struct ull__world *world)
{
    return (atomic_load(&world->shared->failed) & RANK_MASK) - 1;
}

bool ull__world_gone(const struct ull__world *world, int rank)
{
    struct flock held = byte_of(rank);
    /* What this process has locked itself looks free to it. */
    return rank != world->rank && atomic_load(&world->shared->members[rank].joined) &&
           fcntl(world->lives, F_GETLK, &held) == 0 && held.l_type == F_UNLCK;
}

static bool has_arrived(const struct ull__world *world, int rank)
{
    const struct member *member = &world->shared->members[rank];
    unsigned int seen = atomic_load_explicit(&member->arrived, memory_order_acquire);
    return (int)(seen - world->meetings) >= 0;
}

static ull_status failure(struct ull__world *world, struct ull_error *err)
{
    struct shared *shared = world->shared;
    int teller = (atomic_load(&shared->failed) >> TELLER) - 1;
    /* It may be in the middle of it, for as long as the machine lets it wait, or have died there. */
    while (!atomic_load(&shared->told) && !ull__world_gone(world, teller)) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return ull__fail(err, ULL_E_SYSTEM, "%s",
                     atomic_load(&shared->told) ? shared->message
                                                : "a rank has ended while it failed");
}

/* Whether a rank is there, or was at this meeting. */
static bool is_alive(struct ull__world *world, int rank, int patience)
{
    struct member *member = &world->shared->members[rank];
    char message[100];
    if (!atomic_load(&member->joined)) {
        snprintf(message, sizeof(message), "rank %d of %d did not start", rank, world->ranks);
        if (patience >= STARTING) {
            fail_for(world, rank, message);
        }
        return patience < STARTING;
    }
    /* It may have come, and gone since: asked in this order. */
    if (!ull__world_gone(world, rank) || has_arrived(world, rank)) {
        return true;
    }
    snprintf(message, sizeof(message), "rank %d of %d has ended", rank, world->ranks);
    fail_for(world, rank, message);
    return false;
}

/* All of them: one that is waited for may be stopped, while another one has ended. */
static bool all_alive(struct ull__world *world, int patience)
{
    for (int i = 0; i < world->ranks; ++i) {
        if (i != world->rank && !has_arrived(world, i) && !is_alive(world, i, patience)) {
            return false;
        }
    }
    return true;
}

/* Until a rank has arrived as often as this one. */
static bool wait_for(struct ull__world *world, int rank)
{
    struct member *member = &world->shared->members[rank];
    for (int looks = 0, patience = 0;; ++looks) {
        unsigned int seen = atomic_load_explicit(&member->arrived, memory_order_acquire);
        if ((int)(seen - world->meetings) >= 0) {
            return true;
        }
        if (atomic_load(&world->shared->failed) != 0) {
            return false;
        }
        if (looks < LOOKS) {
            ull__pause();
            continue;
        }
        struct timespec most = {0, PATIENCE_NS};
        long slept = syscall(SYS_futex, &member->arrived, FUTEX_WAIT, seen, &most, NULL, 0);
        if (slept != 0 && errno == ETIMEDOUT && !all_alive(world, patience++)) {
            return false;
        }
    }
}

ull_status ull__world_meet(struct ull__world *world, struct ull_error *err)
{
    world->meetings += 1;
    struct member *own = &world->shared->members[world->rank];
    atomic_store_explicit(&own->arrived, world->meetings, memory_order_release);
    wake(&own->arrived);
    for (int i = 0; i < world->ranks; ++i) {
        if (i != world->rank && !wait_for(world, i)) {
            return failure(world, err);
        }
    }
    return ULL_OK;
}

ull_status ull__world_gather(struct ull__world *world, const void *own, size_t size, void *all,
                             struct ull_error *err)
{
    memcpy(ull__world_slot(world, world->rank), own, size);
    ull_status status = ull__world_meet(world, err);
    for (int i = 0; i < world->ranks && status == ULL_OK; ++i) {
        memcpy((char *)all + (size_t)i * size, ull__world_slot(world, i), size);
    }
    /* A slot is written again only when all have read it. */
    return status == ULL_OK ? ull__world_meet(world, err) : status;
}

ull_status ull__world_tell(struct ull__world *world, void *data, size_t size, struct ull_error *err)
{
    ull_status status = ULL_OK;
    for (size_t at = 0; at < size && status == ULL_OK; at += ULL_WORLD_SLOT) {
        size_t here = size - at < ULL_WORLD_SLOT ? size - at : ULL_WORLD_SLOT;
        if (world->rank == 0) {
            memcpy(ull__world_slot(world, 0), (char *)data + at, here);
        }
        status = ull__world_meet(world, err);
        if (status == ULL_OK && world->rank != 0) {
            memcpy((char *)data + at, ull__world_slot(world, 0), here);
        }
        status = status == ULL_OK ? ull__world_meet(world, err) : status;
    }
    return status;
}
