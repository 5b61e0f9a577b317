/*
 * ring.c: see ring.h. Places count up for ever; a place has its cell, in a round. Each cell has a turn: where its round
 * begins while it is empty, one more once it is filled, where the next round begins once it was taken. Who puts
 * claims a place by moving the head, and only there its cell. All turns begin at 0, so that a ring's memory is not touched
 * before it is used.
 */
#include "ring.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct cell {
    _Atomic uint64_t turn;
    struct ull__event event;
};

struct ull__ring {
    uint64_t mask;
    size_t bytes; /* of this, with its cells */
    _Alignas(128) _Atomic uint64_t head;
    _Atomic uint64_t dropped;
    _Alignas(128) _Atomic uint64_t tail; /* written by who takes, once for many events */
    _Atomic uint32_t asleep;
    _Alignas(128) struct cell cells[];
};

struct ull__ring *ull__ring_create(uint32_t capacity)
{
    size_t bytes = sizeof(struct ull__ring) + capacity * sizeof(struct cell);
    struct ull__ring *ring =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        return NULL;
    ring->mask = capacity - 1;
    ring->bytes = bytes;
    return ring;
}

void ull__ring_destroy(struct ull__ring *ring)
{
    if (ring)
        munmap(ring, ring->bytes);
}

static uint64_t round_of(const struct ull__ring *ring, uint64_t place)
{
    return place & ~ring->mask;
}

static bool half_full(const struct ull__ring *ring, uint64_t place)
{
    return place - atomic_load_explicit(&ring->tail, memory_order_relaxed) > ring->mask / 2;
}

bool ull__ring_put(struct ull__ring *ring, const struct ull__event *event)
{
    uint64_t place = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        struct cell *cell = &ring->cells[place & ring->mask];
        int64_t ahead = (int64_t)(atomic_load_explicit(&cell->turn, memory_order_acquire) -
                                  round_of(ring, place));
        if (ahead < 0) { /* of the last round still */
            atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
            return false;
        }
        if (ahead > 0) {
            place = atomic_load_explicit(&ring->head, memory_order_relaxed);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&ring->head, &place, place + 1,
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        cell->event = *event;
        atomic_store_explicit(&cell->turn, round_of(ring, place) + 1, memory_order_release);
        break;
    }
    if (__builtin_expect(half_full(ring, place), 0) &&
        atomic_load_explicit(&ring->asleep, memory_order_relaxed))
        ull__ring_wake(ring);
    return true;
}

uint64_t ull__ring_dropped(struct ull__ring *ring)
{
    return atomic_load_explicit(&ring->dropped, memory_order_relaxed);
}

uint32_t ull__ring_take(struct ull__ring *ring, struct ull__event *events, uint32_t most)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t count = 0;
    for (; count < most; count++, tail++) {
        struct cell *cell = &ring->cells[tail & ring->mask];
        if (atomic_load_explicit(&cell->turn, memory_order_acquire) != round_of(ring, tail) + 1)
            break;
        events[count] = cell->event;
        atomic_store_explicit(&cell->turn, round_of(ring, tail) + ring->mask + 1,
                              memory_order_release);
    }
    atomic_store_explicit(&ring->tail, tail, memory_order_relaxed);
    return count;
}

void ull__ring_wait(struct ull__ring *ring, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000ull),
                               .tv_nsec = (long)(timeout_ns % 1000000000ull)};
    atomic_store(&ring->asleep, 1);
    /* Who put before this saw nobody asleep. */
    if (!half_full(ring, atomic_load(&ring->head)))
        syscall(SYS_futex, &ring->asleep, FUTEX_WAIT_PRIVATE, 1, &timeout, NULL, 0);
    atomic_store(&ring->asleep, 0);
}

void ull__ring_wake(struct ull__ring *ring)
{
    if (atomic_exchange(&ring->asleep, 0))
        syscall(SYS_futex, &ring->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
