/*
 * move.h: a pool whose pages are taken away under their addresses and given back, and what else one needs that
 * stands in for the driver's own pool (src/interpose/async.c). Not for programs: see include/ullage/pool.h.
 *
 * Moving. The caller sees to it that nobody is in a call of the pool and that all work on its streams is over,
 * from views_out until views_in has succeeded. It copies the bytes itself, run by run:
 *
 *   out   views_out; then for each run: copy, unmap
 *   back  for each run: make, map, copy; when all are back: views_in
 *
 * The pool counts pages as held all the while. None of these calls changes what is in use, free or pending.
 */
#ifndef ULLAGE_POOL_MOVE_H
#define ULLAGE_POOL_MOVE_H

#include "device.h"
#include "ullage/pool.h"

/* Pages that lie side by side at home. */
struct ull__run {
    uint64_t address, bytes;
    uint32_t slot, count; /* the pool's own names */
};

/* All pages held, in runs of at most `most` pages. Writes at most `max` runs; returns how many there are. */
size_t ull__move_runs(struct ull_pool *pool, uint32_t most, struct ull__run *runs, size_t max);
/* Views map pages a second time; what they see is at home too, so this loses nothing. */
void ull__move_views_out(struct ull_pool *pool);
/* Unmaps a run and gives its pages to the device. */
void ull__move_unmap(struct ull_pool *pool, const struct ull__run *run);
/* New pages for a run, all or none; unmake gives them back unless they were mapped. */
ull_status ull__move_make(struct ull_pool *pool, const struct ull__run *run);
void ull__move_unmake(struct ull_pool *pool, const struct ull__run *run);
ull_status ull__move_map(struct ull_pool *pool, const struct ull__run *run);
/* Maps all views where they were, or none. */
ull_status ull__move_views_in(struct ull_pool *pool);

/* --- standing in for the driver's ------------------------------------------------------------------------- */

/* Calls visit for all addresses that have pages, home and views, in pieces. */
void ull__pool_mapped(struct ull_pool *pool,
                      void (*visit)(void *context, uint64_t address, uint64_t bytes), void *context);
/* The piece of memory in use that an address lies in, as it was asked for; false if it is in none. */
bool ull__pool_find(struct ull_pool *pool, uint64_t address, uint64_t *start, uint64_t *requested);
/*
 * Lets a stream wait for what other streams freed, by `wait`, which puts the stream behind an event: so that
 * memory is this stream's to use at once, and the host waits for nothing. True if it became more.
 */
bool ull__pool_follow(struct ull_pool *pool, ull__stream stream,
                      bool (*wait)(void *context, ull__stream stream, ull__event event),
                      void *context);
/*
 * Gives back the free pages above `keep` bytes held that nothing needed since the last call of this.
 * Returns bytes.
 */
uint64_t ull__pool_rest(struct ull_pool *pool, uint64_t keep);
/* The same at once, whatever was needed. */
uint64_t ull__pool_trim_to(struct ull_pool *pool, uint64_t keep);

#endif
