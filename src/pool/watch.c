/*
 * watch.c: see watch.h.
 *
 * `idle_low` is kept where pages become free and used, as the fewest free ones since somebody looked. What it was
 * before a look goes into `idle_past`, so that the pool's own watermark sees its whole time.
 */
#include "watch.h"

#include "front.h"
#include "lane.h"
#include "pool_private.h"

/* Looks, of which one makes streams' fronts give back what is loose: they would keep it for ever if nobody asks. */
enum { LOOKS_PER_DRAIN = 10 };

static _Atomic(ull__pool_watcher *) the_watcher;

void ull__pool_watch(ull__pool_watcher *watcher)
{
    atomic_store(&the_watcher, watcher);
}

void ull__pool_tell(struct ull_pool *pool, bool made)
{
    ull__pool_watcher *watcher = atomic_load(&the_watcher);
    if (watcher)
        watcher(pool, made);
}

const struct ull__device *ull__pool_device(const struct ull_pool *pool)
{
    return pool->device;
}

/* What is free for a captured graph only stays until that is released. */
static uint64_t pages_of_graphs(const struct ull_pool *pool)
{
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < pool->lane_count; i++)
        if (pool->lanes[i].exists && pool->lanes[i].graph != 0 && !pool->lanes[i].over)
            bytes += pool->lanes[i].free_bytes;
    return ull__pages_for(pool, bytes);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t idle_pages(struct ull_pool *pool)
{
    uint64_t loose = ull__fronts_idle(pool);
    uint64_t low = least(pool->idle_low, pool->free_pages) + loose, graphs = pages_of_graphs(pool);
    uint64_t keep = pool->reserve_pages;
    pool->idle_past = least(pool->idle_past, pool->idle_low + loose);
    pool->idle_low = pool->free_pages;
    low = low > graphs ? low - graphs : 0;
    if (pool->plain)
        low = least(low, ull__regions_idle(pool));
    if (++pool->idle_looks % LOOKS_PER_DRAIN == 0 && ull__fronts_any(pool))
        ull__fronts_drain(pool, ULL_LOOSE_ALL);
    return least(low, pool->held > keep ? pool->held - keep : 0);
}

bool ull__pool_idle(struct ull_pool *pool, uint64_t *bytes)
{
    int expected = 0;
    if (ull__is_parents(pool) ||
        !atomic_compare_exchange_strong_explicit(&pool->lock.taken, &expected, 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    uint64_t pages = idle_pages(pool);
    ull__unlock(&pool->lock);
    *bytes = pages << pool->page_shift;
    return true;
}

/* Until the device has passed all that is free now, for as long as the patience lasts. */
static void pass_all(struct ull_pool *pool, uint64_t patience_ns)
{
    uint64_t until = ull__now(pool) + patience_ns;
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        const struct ull__lane *lane = &pool->lanes[i];
        uint64_t now = ull__now(pool);
        if (lane->free_bytes > 0 && lane->event_count > 0)
            pool->device->ops->wait(pool->device, lane->events[lane->event_count - 1].event,
                                    now < until ? until - now : 0);
    }
    ull__lanes_poll(pool);
}

uint64_t ull__pool_give(struct ull_pool *pool, uint64_t bytes, uint64_t patience_ns)
{
    if (ull__is_parents(pool))
        return 0;
    ull__lock(&pool->lock);
    ull__fronts_drain(pool, ULL_LOOSE_ALL);
    ull__lanes_want(pool, (uint16_t)-1);
    uint64_t wanted = ull__pages_for(pool, bytes), done = ull__pages_return(pool, wanted);
    if (done < wanted) {
        pass_all(pool, patience_ns);
        done += ull__pages_return(pool, wanted - done);
    }
    ull__unlock(&pool->lock);
    return done << pool->page_shift;
}
