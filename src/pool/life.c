/*
 * life.c: the life of a pool, and what can be changed while it runs.
 *
 * Without growth the limit is the reserve: all pages are taken at the start. With growth the reserve is
 * what is taken at the start and kept; both may be changed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "front.h"
#include "lane.h"
#include "pool_private.h"

void ull_pool_options_init(struct ull_pool_options *options)
{
    *options = (struct ull_pool_options){.growth = true,
                                         .small_bytes = (uint64_t)1 << 20,
                                         .watermark_percent = 70,
                                         .idle_ns = 10000000000u,
                                         .wait_ns = UINT64_MAX,
                                         .address_factor = 16,
                                         .mapping_factor = 6};
}

/* --- processes ------------------------------------------------------------------------------------------- */

unsigned int ull__forks;

static void in_the_child(void)
{
    ull__forks++;
}

static void notice_forks(void)
{
    pthread_atfork(NULL, NULL, in_the_child);
}

/* --- the start ------------------------------------------------------------------------------------------- */

static void update_limit(struct ull_pool *pool)
{
    uint64_t most = pool->options.limit >> pool->page_shift;
    uint64_t reserve = ull__pages_for(pool, pool->options.reserve);
    pool->reserve_pages = reserve < most ? reserve : most;
    pool->limit_pages = pool->options.growth ? most : pool->reserve_pages;
}

static ull_status check_options(const struct ull_pool_options *o, struct ull_error *err)
{
    if (o->watermark_percent > 100)
        return ull__fail(err, ULL_E_INVALID, "watermark_percent %u: expected at most 100",
                         o->watermark_percent);
    if (o->address_factor < 8 || o->address_factor > 1024 || o->mapping_factor < 1)
        return ull__fail(err, ULL_E_INVALID,
                         "address_factor %u, mapping_factor %u: expected 8 to 1024, and at least 1",
                         o->address_factor, o->mapping_factor);
    return ULL_OK;
}

/* The limit and the reserve against what the device has. */
static ull_status init_limits(struct ull_pool *pool, struct ull_error *err)
{
    struct ull_pool_options *o = &pool->options;
    uint64_t free_bytes, total;
    ull_status status = pool->device->ops->memory(pool->device, &free_bytes, &total);
    if (status != ULL_OK)
        return ull__fail(err, status, "the device does not say how much memory it has");
    pool->page_bytes = pool->device->page_bytes;
    pool->page_shift = (unsigned int)__builtin_ctzll(pool->page_bytes);
    pool->plain = pool->device->regions;
    if (pool->plain)
        o->small_bytes = 0; /* their pages would have to be mapped a second time */
    pool->total_pages = total >> pool->page_shift;
    uint64_t most = pool->total_pages << pool->page_shift;
    o->limit = o->limit == 0 || o->limit > most ? most : o->limit;
    if (!o->growth && o->reserve == 0)
        o->reserve = o->limit;
    if (o->reserve > o->limit)
        return ull__fail(err, ULL_E_INVALID, "a reserve of %llu bytes above the limit of %llu bytes",
                         (unsigned long long)o->reserve, (unsigned long long)o->limit);
    update_limit(pool);
    return ULL_OK;
}

static ull_status init(struct ull_pool *pool, struct ull_error *err)
{
    ull_status status = init_limits(pool, err);
    if (status != ULL_OK)
        return status;
    if (ull__lane_new(pool, NULL, 0) != 0 || pool->lane_count == 0 ||
        !ull__table_ensure(&pool->live, 1))
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a pool");
    status = ull__ranges_init(pool, err);
    if (status != ULL_OK)
        return status;
    if (ull__commit(pool, pool->reserve_pages) != ULL_OK)
        return ull__fail(err, ULL_E_NO_MEMORY,
                         "the device does not have the %llu bytes of the reserve",
                         (unsigned long long)pool->options.reserve);
    pool->idle_since = ull__now(pool);
    pool->idle_low = pool->free_pages;
    pool->idle_past = UINT64_MAX;
    pool->stats.peak_held = pool->held << pool->page_shift;
    return ULL_OK;
}

ull_status ull_pool_create(struct ull__device *device, const struct ull_pool_options *options,
                           struct ull_pool **out, struct ull_error *err)
{
    struct ull_pool_options defaults;
    ull_pool_options_init(&defaults);
    options = options ? options : &defaults;
    ull_status status = check_options(options, err);
    if (status != ULL_OK)
        return status;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, notice_forks);
    struct ull_pool *pool = aligned_alloc(_Alignof(struct ull_pool), sizeof *pool);
    if (!pool)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a pool");
    memset(pool, 0, sizeof *pool);
    pool->lock.patient = device->regions; /* there are no fronts then */
    pool->forks = ull__forks;
    pool->device = device;
    pool->options = *options;
    status = init(pool, err);
    if (status != ULL_OK) {
        ull_pool_destroy(pool);
        return status;
    }
    *out = pool;
    ull__pool_tell(pool, true);
    return ULL_OK;
}

void ull_pool_destroy(struct ull_pool *pool)
{
    if (!pool || ull__is_parents(pool))
        return;
    ull__pool_tell(pool, false);
    ull__lanes_finish(pool);
    ull__ranges_finish(pool);
    ull__chunks_finish(pool);
    ull__fronts_finish(pool);
    free(pool);
}

/* --- changes --------------------------------------------------------------------------------------------- */

/* After the limit was lowered. */
static void return_above_limit(struct ull_pool *pool)
{
    if (pool->held > pool->limit_pages) {
        ull__fronts_close(pool);
        ull__lanes_want(pool, (uint16_t)-1);
        ull__pages_return(pool, pool->held - pool->limit_pages);
    }
}

ull_status ull_pool_set_limit(struct ull_pool *pool, uint64_t limit)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__lock(&pool->lock);
    uint64_t most = pool->total_pages << pool->page_shift;
    struct ull_pool_options *o = &pool->options;
    o->limit = limit == 0 || limit > most ? most : limit;
    if (o->reserve > o->limit)
        o->reserve = o->limit;
    update_limit(pool);
    return_above_limit(pool);
    ull__unlock(&pool->lock);
    return ULL_OK;
}

static ull_status set_reserve(struct ull_pool *pool, uint64_t reserve)
{
    uint64_t most = pool->options.limit >> pool->page_shift;
    uint64_t pages = ull__pages_for(pool, reserve);
    if (reserve > pool->options.limit)
        return ULL_E_INVALID;
    pages = pages < most ? pages : most;
    if (pages > pool->held) {
        ull_status status = ull__commit(pool, pages - pool->held);
        if (status != ULL_OK)
            return status;
    }
    pool->options.reserve = reserve;
    update_limit(pool);
    return_above_limit(pool);
    return ULL_OK;
}

ull_status ull_pool_set_reserve(struct ull_pool *pool, uint64_t reserve)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__lock(&pool->lock);
    ull_status status = set_reserve(pool, reserve);
    ull__unlock(&pool->lock);
    return status;
}

ull_status ull_pool_trim(struct ull_pool *pool, uint64_t bytes, uint64_t *returned)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__lock(&pool->lock);
    ull__fronts_drain(pool, ULL_LOOSE_ALL);
    ull__lanes_want(pool, (uint16_t)-1);
    uint64_t pages = ull__pages_return(pool, ull__pages_for(pool, bytes));
    ull__unlock(&pool->lock);
    if (returned)
        *returned = pages << pool->page_shift;
    return ULL_OK;
}

ull_status ull_pool_prewarm(struct ull_pool *pool, uint64_t bytes)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    if (bytes == 0)
        return ULL_E_INVALID;
    ull__lock(&pool->lock);
    ull_status status = ULL_E_NO_MEMORY;
    struct ull__shortage shortage;
    struct ull__chunk *c = NULL;
    if (bytes <= pool->total_pages << pool->page_shift && pool->held <= pool->limit_pages) {
        uint64_t size = (bytes + ULL_UNIT - 1) & ~(uint64_t)(ULL_UNIT - 1);
        ull__fronts_drain(pool, ULL_LOOSE_ALL);
        ull__lanes_want(pool, (uint16_t)-1);
        ull__retained_return(pool);
        status = ULL_OK;
        struct ull__bins *home = pool->lanes[ULL_CLEAN].bins[ULL_HOME];
        ull__bins_sort_all(home, size);
        if (!ull__bins_find(home, size, 0))
            status = ull__build(pool, size, ULL_UNIT, ULL_CLEAN, &shortage, &c);
        if (c && c->state == ULL_SWEPT) /* a view: its pages go home and the mapping stays */
            ull__make_free(pool, c, c->lane, c->seq, 0, 0);
    }
    ull__unlock(&pool->lock);
    return status;
}

/* --- streams and graphs ------------------------------------------------------------------------------------ */

ull_status ull_pool_forget_stream(struct ull_pool *pool, void *stream)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__lock(&pool->lock);
    ull_status status = ULL_OK;
    ull__front_close(pool, stream);
    uint16_t lane = ull__lane_known(pool, stream);
    if (lane != 0) {
        pool->lanes[lane].seq++; /* for memory in use that the stream used too */
        status = ull__lane_record(pool, lane);
    }
    /* A stream that cannot be asked now (it is captured) cannot be asked later either: what it freed stays its own. */
    if (lane != 0 && (status == ULL_OK || status == ULL_E_DRIVER)) {
        pool->lanes[lane].over = true;
        ull__lanes_changed(pool);
        ull__lanes_poll(pool);
    }
    ull__unlock(&pool->lock);
    return status;
}

static ull_status graph_begin(struct ull_pool *pool, ull__stream stream, bool capturing,
                              uint64_t *graph)
{
    if (*graph > pool->last_graph)
        return ULL_E_NOT_FOUND;
    uint16_t lane = ull__lane_of(pool, stream);
    if (lane == 0)
        return ULL_E_NO_MEMORY;
    /* Else a capture without a begin has ended, which nobody has seen yet. */
    if (pool->lanes[lane].graph_lane && (capturing || !pool->lanes[lane].implicit))
        return ULL_E_INVALID;
    uint64_t name = *graph ? *graph : pool->last_graph + 1;
    uint16_t graph_lane = 0;
    bool known = *graph == 0;
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        const struct ull__lane *l = &pool->lanes[i];
        if (!l->exists || l->graph != name || l->over)
            continue;
        known = true;
        if (l->stream == stream)
            graph_lane = (uint16_t)i;
    }
    if (!known)
        return ULL_E_NOT_FOUND;
    if (graph_lane == 0 && (graph_lane = ull__lane_new(pool, stream, name)) == 0)
        return ULL_E_NO_MEMORY;
    pool->lanes[lane].graph_lane = graph_lane;
    pool->lanes[lane].implicit = false;
    ull__lanes_changed(pool);
    pool->lanes[lane].last_graph = name;
    pool->last_graph = name > pool->last_graph ? name : pool->last_graph;
    *graph = name;
    return ULL_OK;
}

ull_status ull_pool_graph_begin(struct ull_pool *pool, void *stream, uint64_t *graph)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    bool capturing = pool->device->ops->capturing(pool->device, stream);
    ull__lock(&pool->lock);
    ull__front_close(pool, stream);
    ull_status status = graph_begin(pool, stream, capturing, graph);
    ull__unlock(&pool->lock);
    return status;
}

ull_status ull_pool_graph_end(struct ull_pool *pool, void *stream)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__lock(&pool->lock);
    uint16_t lane = ull__lane_of(pool, stream);
    ull_status status = lane && pool->lanes[lane].graph_lane ? ULL_OK : ULL_E_INVALID;
    if (status == ULL_OK) {
        pool->lanes[lane].graph_lane = 0;
        pool->lanes[lane].implicit = false;
    }
    ull__unlock(&pool->lock);
    return status;
}

ull_status ull_pool_graph_release(struct ull_pool *pool, uint64_t graph, void *stream)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__lock(&pool->lock);
    ull_status status = ULL_E_NOT_FOUND;
    uint16_t lane = graph ? ull__lane_of(pool, stream) : 0;
    if (lane != 0)
        status = ull__graph_release(pool, graph, lane);
    ull__unlock(&pool->lock);
    return status;
}

uint64_t ull_pool_graph_of(struct ull_pool *pool, void *stream)
{
    if (ull__is_parents(pool))
        return 0;
    ull__lock(&pool->lock);
    uint16_t lane = ull__lane_of(pool, stream);
    uint64_t graph = lane ? pool->lanes[lane].last_graph : 0;
    ull__unlock(&pool->lock);
    return graph;
}
