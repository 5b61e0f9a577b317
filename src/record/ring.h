/*
 * ring.h: events on their way from the threads of a program to the one that writes them down.
 *
 * Any thread puts, one takes. Nobody waits for anybody: there is no lock, no allocation after the start, and what
 * finds the ring full is dropped and counted. Putting may happen in a signal handler. A thread that is stopped
 * in the middle of putting keeps what comes after it from being taken until it goes on.
 */
#ifndef ULLAGE_RING_H
#define ULLAGE_RING_H

#include <stdbool.h>

#include "event.h"

struct ull__ring;

/* For `capacity` events, a power of two and at least 2. NULL without memory. */
struct ull__ring *ull__ring_create(uint32_t capacity);
/* When nobody puts any more, or in a forked child. NULL is fine. */
void ull__ring_destroy(struct ull__ring *ring);

/* False: full, and counted. Wakes the one who takes when the ring becomes half full. */
bool ull__ring_put(struct ull__ring *ring, const struct ull__event *event);
uint64_t ull__ring_dropped(struct ull__ring *ring);

/* For the one who takes: at most `most` events in the order of their places; how many there were. */
uint32_t ull__ring_take(struct ull__ring *ring, struct ull__event *events, uint32_t most);
/* Sleeps until the ring is half full, somebody wakes it, or the time is over. */
void ull__ring_wait(struct ull__ring *ring, uint64_t timeout_ns);
void ull__ring_wake(struct ull__ring *ring);

#endif
