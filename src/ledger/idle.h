/*
 * idle.h: what a process of a job could give back at once, and being asked for it.
 *
 * A pool keeps what its program freed. Who has one (src/offer) says here how much of it nobody needs, in the place
 * that its process has in the outermost ledger around it, the one that a daemon serves; the daemon asks for
 * bytes there, by number, and is answered with that number. Nothing is promised: what is idle may be used again at any
 * moment, and the answer says only that it was tried. What went shows in the books.
 *
 * Not for the owner of the place alone: several libraries of one process may each say their part, which are added up.
 * All of them are asked for the same bytes then, and together may give more.
 *
 * Nothing here takes a lock or calls a driver. One thread may use an idle at a time.
 */
#ifndef ULLAGE_IDLE_H
#define ULLAGE_IDLE_H

#include "ledger.h"

struct ull__idle;

/*
 * Finds the place of this process, which has joined the ledger at `path`. ULL_E_NOT_FOUND: it has not;
 * otherwise as ull__ledger_open.
 */
ull_status ull__idle_open(const char *path, uint32_t pid, uint64_t start_ticks,
                          struct ull__idle **out, struct ull_error *err);
/* What was said is taken back. NULL is fine. */
void ull__idle_close(struct ull__idle *idle);

/* The outermost ledger's device with this UUID, or -1. */
int ull__idle_device(const struct ull__idle *idle, const char *uuid);
/* Does anybody listen? */
bool ull__idle_served(const struct ull__idle *idle);
/* So much of this caller's could be given back now. False: the place is not this process's any more. */
bool ull__idle_say(struct ull__idle *idle, int device, uint64_t bytes);
/* What is asked for and was not answered yet; 0: nothing. */
uint64_t ull__idle_asked(struct ull__idle *idle, int device);
/* The last that was seen there has been carried out, as far as it could be. */
void ull__idle_answer(struct ull__idle *idle, int device);
/*
 * Sleeps until something has been asked for, or ull__idle_ring was called, since the bell was read as `bell`, or the time
 * is over. Who asks in another user's ledger cannot ring.
 */
uint32_t ull__idle_bell(const struct ull__idle *idle);
void ull__idle_wait(struct ull__idle *idle, uint32_t bell, uint64_t timeout_ns);
/* By any thread. */
void ull__idle_ring(struct ull__idle *idle);

#endif
