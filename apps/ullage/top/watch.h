/*
 * watch.h: collects in a thread of its own, so that a driver that answers slowly holds up no key.
 *
 * A slow one holds up an end neither: watch_stop does not wait for a round that is stuck in the driver.
 */
#ifndef ULLAGE_TOP_WATCH_H
#define ULLAGE_TOP_WATCH_H

#include "sample.h"

struct watch;

/* Begins at once. NULL: no memory, or no thread. Signals stay blocked in the thread as they are here. */
struct watch *watch_start(double seconds);
/* Readable when there is a sample to take. */
int watch_fd(const struct watch *watch);
/* The newest sample that was not taken yet, which the caller destroys; NULL: none. */
struct sample *watch_take(struct watch *watch);
/* Time between the beginnings of rounds; also begins one now. */
void watch_set_seconds(struct watch *watch, double seconds);
/* Ends it, within a quarter of a second even if the driver does not answer: the thread is then left behind. */
void watch_stop(struct watch *watch);

#endif
