/*
 * watch.h: for one who follows the pools of this process and what they only keep. The pool does not know who that is.
 */
#ifndef ULLAGE_POOL_WATCH_H
#define ULLAGE_POOL_WATCH_H

#include "device.h"
#include "ullage/pool.h"

/*
 * Called for each pool once it is made, and before it ends; by the thread that does so, without a lock. Not in a
 * forked child for what its parent made.
 */
typedef void ull__pool_watcher(struct ull_pool *pool, bool made);
/* There is one at most; NULL: none. Pools that are there already are not told of. */
void ull__pool_watch(ull__pool_watcher *watcher);

const struct ull__device *ull__pool_device(const struct ull_pool *pool);
/*
 * The bytes of pages that were free all the time since the last call, and that a trim would give back as soon as
 * the device is done with them: not the reserve, not those of graphs. False: somebody is in the pool just now.
 * Never waits, so that nobody waits for it.
 */
bool ull__pool_idle(struct ull_pool *pool, uint64_t *bytes);
/*
 * As ull_pool_trim, for somebody else who waits for the memory: where the device is still to pass what was freed, that is
 * waited for, with the pool locked. For a stream that is never at rest frees again meanwhile, and what lies beside such a
 * piece, and is one with it, would never be past all work. Returns bytes.
 */
uint64_t ull__pool_give(struct ull_pool *pool, uint64_t bytes, uint64_t patience_ns);

#endif
