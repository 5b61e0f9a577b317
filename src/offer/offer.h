/*
 * offer.h: what pools of a process in a job only keep is offered to the job's daemon.
 *
 * Where ULLAGE_JOB names a job's ledger that this process has joined (by the preload library of `ullage run`), the pools
 * of its devices are looked at ten times a second by a thread of this library. What they did not need for a second is said in
 * the ledger (src/ledger/idle.h), and given back when it is asked for there. Neither the program nor its
 * pools notice, but that pages have to be taken again that were asked for.
 *
 * It begins with a first pool and ends with the last. Without a job there is no thread and nothing is opened. A
 * forked child begins anew. The library must not be unloaded while there are pools.
 */
#ifndef ULLAGE_OFFER_H
#define ULLAGE_OFFER_H

/* Follows the pools of this process from now on. The library calls it as it is loaded. */
void ull__offer_begin(void);

#endif
