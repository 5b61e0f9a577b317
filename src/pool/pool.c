/*
 * pool.c: requests and frees.
 *
 * Where a request looks for memory, and in which order, is said in search.c. Most find it at once, and go the short way
 * here.
 *
 * One lock is over all but fronts, which streams get when threads wait for it (front.c). A request or free takes
 * some 40 ns in it; device calls are made with it held, since they change what the lock is over, waits for
 * streams are not.
 */
#include "front.h"
#include "lane.h"
#include "search.h"
#include "space.h"

/* --- requests -------------------------------------------------------------------------------------------- */

/* Cuts the request out of the chunk that was found. Nothing fails from here on. */
static void *serve(struct ull_pool *pool, struct ull__chunk *c, const struct ull__need *need,
                   uint64_t requested, const char *tag)
{
    /* What will be written. Stores that wait for memory would make the next operation wait at the lock. */
    ull__table_prefetch(&pool->live, c->address);
    __builtin_prefetch(c->next, 1);
    __builtin_prefetch(pool->spare, 1);
    bool tabled = c->state == ULL_TAKEN; /* by its front */
    struct ull__chunk *piece = !tabled && need->front
                                   ? ull__front_adopt(pool, need->front, need->lane, c, need->size)
                                   : NULL;
    if (piece) {
        c = piece;
        tabled = true;
    }
    if (!tabled) {
        uint64_t lost = need->alignment > ULL_UNIT ? ull__lost_to(pool, c, need->alignment) : 0;
        c = ull__take(pool, c, c->address + lost, need->size);
    }
    c->u.live.requested = requested;
    c->u.live.tag = tag;
    c->uses = 0;
    c->lane = ULL_CLEAN;
    if (pool->lanes[need->lane].graph) {
        c->lane = need->lane;
        pool->lanes[need->lane].live++;
    }
    if (c->tier == ULL_VIEW)
        ull__range_used(pool, pool->range_of[ull__slot_down(pool, c->address)]);
    if (!tabled)
        ull__table_add(&pool->live, c);
    ull__count_allocation(pool, c->size, requested);
    return (void *)(uintptr_t)ull__place(pool, c->address);
}

/* The front of the stream, opened if need be; NULL for most, and for what a graph asks for. */
static struct ull__front *front_of(struct ull_pool *pool, const struct ull__need *need,
                                   ull__stream stream)
{
    if (need->alignment != ULL_UNIT || pool->lanes[need->lane].graph)
        return NULL;
    if (ull__fronts_wanted(pool))
        ull__front_open(pool, need->lane);
    return ull__front_of(pool, stream);
}

/* What the front has, with its new blocks merged if need be; else what the pool has with room for some more. Or NULL. */
static struct ull__chunk *find_for_front(struct ull_pool *pool, const struct ull__need *need)
{
    struct ull__need more = *need;
    more.size *= ULL_FRONT_MORE;
    struct ull__chunk *c = ull__front_take(pool, need->front, need->lane, need->size, need->small);
    if (!c && !need->small && ull__front_merge(pool, need->front))
        c = ull__front_take(pool, need->front, need->lane, need->size, need->small);
    return c ? c : ull__need_find(pool, &more);
}

/*
 * Is there nothing to look after but the request itself? Asked with the lock held. If so the short way is taken, which
 * does what the long one does for the request and nothing else; one operation in 64 goes the long way, and looks.
 */
static inline bool is_plain_work(const struct ull_pool *pool, ull__stream stream, bool capturing)
{
    return (pool->clock + 1) % (ULL_SAMPLE / 2) != 0 && pool->last_stream == stream &&
           pool->last_lane != ULL_CLEAN && !capturing && !ull__fronts_any(pool) &&
           !ull__fronts_wanted(pool);
}

/* The best fit in the bins of a stream and in those that nobody waits for. */
static inline __attribute__((always_inline)) struct ull__chunk *
find_at_once(const struct ull_pool *pool, uint16_t lane, unsigned int tier, uint64_t size)
{
    struct ull__bins *own = pool->lanes[lane].bins[tier];
    struct ull__bins *clean = pool->lanes[ULL_CLEAN].bins[tier];
    struct ull__chunk *c = ull__bins_find(own, size, 0);
    if (!clean->words)
        return c;
    struct ull__chunk *other = ull__bins_find(clean, size, 0);
    return !c || (other && ull__chunk_before(other->size, other->address, c)) ? other : c;
}

/* NULL: the long way has to be gone, from its start. */
static inline __attribute__((always_inline)) void *allocate_at_once(struct ull_pool *pool,
                                                                    uint64_t bytes,
                                                                    ull__stream stream,
                                                                    const char *tag, bool capturing)
{
    uint64_t size = (bytes + ULL_UNIT - 1) & ~(uint64_t)(ULL_UNIT - 1);
    bool small = (bytes <= pool->options.small_bytes) & (bytes <= pool->page_bytes);
    if (size < bytes || !is_plain_work(pool, stream, capturing) || pool->held > pool->limit_pages ||
        !ull__host_ready(pool))
        return NULL;
    struct ull__chunk *c = find_at_once(pool, pool->last_lane, small ? ULL_SMALL : ULL_HOME, size);
    if (small & (size > pool->page_bytes / ULL_MEDIUM))
        c = ull__better(c, ull__need_left_over(pool, &(struct ull__need){.size = size,
                                                                         .alignment = ULL_UNIT,
                                                                         .small = true,
                                                                         .lane = pool->last_lane}));
    else if (!c && !small)
        c = find_at_once(pool, pool->last_lane, ULL_VIEW, size);
    if (!c)
        return NULL;
    pool->clock++;
    ull__table_prefetch(&pool->live, c->address);
    __builtin_prefetch(c->next, 1);
    __builtin_prefetch(pool->spare, 1);
    ull__take_here(pool, c, size);
    c->u.live.requested = bytes;
    c->u.live.tag = tag;
    c->lane = ULL_CLEAN;
    if (c->tier == ULL_VIEW)
        ull__range_used(pool, pool->range_of[ull__slot_down(pool, c->address)]);
    ull__table_add(&pool->live, c);
    ull__count_allocation(pool, size, bytes);
    return (void *)(uintptr_t)ull__place(pool, c->address);
}

/* With the lock held, which is given up. */
__attribute__((noinline)) static ull_status
allocate_slowly(struct ull_pool *pool, const struct ull_request *request, uint64_t alignment,
                bool capturing, struct ull_refusal *refusal, void **address)
{
    struct ull__need need = {.size = (request->bytes + ULL_UNIT - 1) & ~(uint64_t)(ULL_UNIT - 1),
                             .alignment = alignment,
                             .small = request->bytes <= pool->options.small_bytes &&
                                      request->bytes <= pool->page_bytes &&
                                      alignment <= pool->page_bytes};
    if (need.size < request->bytes)
        need.size = UINT64_MAX - ULL_UNIT + 1; /* more than there is */
    uint64_t began = ull__count_begin(pool);
    need.lane = ull__lane_now(pool, request->stream, capturing);
    struct ull__chunk *c = NULL;
    bool slow = false;
    if (need.lane != 0 && need.size <= pool->total_pages << pool->page_shift &&
        (alignment == ULL_UNIT || alignment <= (uint64_t)pool->slot_count << pool->page_shift) &&
        pool->held <= pool->limit_pages && ull__host_ready(pool)) {
        if (ull__fronts_wanted(pool) || ull__fronts_any(pool))
            need.front = front_of(pool, &need, request->stream);
        c = need.front ? find_for_front(pool, &need) : NULL;
        c = c ? c : ull__need_find(pool, &need);
    }
    if (!c) {
        struct ull__shortage shortage = {.needed = ull__pages_for(pool, request->bytes)};
        slow = true;
        began = began ? began : ull__now(pool);
        c = ull__need_search(pool, &need, &shortage);
        if (!c && refusal)
            ull__refusal_fill(pool, request, &shortage, refusal);
    }
    ull_status status = c ? ULL_OK : ULL_E_NO_MEMORY;
    if (c)
        *address = serve(pool, c, &need, request->bytes, request->tag);
    else
        pool->stats.refusals++;
    ull__count_end(pool, began, slow);
    ull__unlock(&pool->lock);
    return status;
}

static inline __attribute__((always_inline)) ull_status
allocate(struct ull_pool *pool, const struct ull_request *request, uint64_t alignment,
         struct ull_refusal *refusal, void **address)
{
    bool capturing = pool->device->ops->capturing(pool->device, request->stream);
    if (ull__fronts_any(pool) && alignment == ULL_UNIT && !capturing &&
        ull__front_allocate(pool, request, address))
        return ULL_OK;
    ull__lock(&pool->lock);
    void *at = alignment == ULL_UNIT
                   ? allocate_at_once(pool, request->bytes, request->stream, request->tag, capturing)
                   : NULL;
    if (!at)
        return allocate_slowly(pool, request, alignment, capturing, refusal, address);
    ull__unlock(&pool->lock);
    *address = at;
    return ULL_OK;
}

ull_status ull_pool_request(struct ull_pool *pool, const struct ull_request *request,
                            struct ull_refusal *refusal, void **address)
{
    uint64_t alignment = request->alignment ? request->alignment : ULL_UNIT;
    if (request->bytes == 0 || (alignment & (alignment - 1)) != 0)
        return ULL_E_INVALID;
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    return allocate(pool, request, alignment < ULL_UNIT ? ULL_UNIT : alignment, refusal, address);
}

ull_status ull_pool_allocate(struct ull_pool *pool, uint64_t bytes, void *stream, void **address)
{
    const struct ull_request request = {.bytes = bytes, .stream = stream};
    if (bytes == 0)
        return ULL_E_INVALID;
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    return allocate(pool, &request, ULL_UNIT, NULL, address);
}

/* --- frees ------------------------------------------------------------------------------------------------ */

/* Of a chunk that was in use, and is in no table any more. */
static inline __attribute__((always_inline)) void free_chunk(struct ull_pool *pool,
                                                             struct ull__chunk *c, uint16_t lane)
{
    __builtin_prefetch(c->next, 1);
    __builtin_prefetch(c->prev, 1);
    ull__count_free(pool, c->size, c->u.live.requested);
    if (c->lane == ULL_CLEAN && c->uses == 0)
        ull__make_free_here(pool, c, lane, ++pool->lanes[lane].seq, 0, 0);
    else
        ull__lane_free(pool, c, lane);
}

/* With the lock held, which is given up. */
__attribute__((noinline)) static ull_status free_slowly(struct ull_pool *pool, uint64_t address,
                                                        ull__stream stream, bool capturing)
{
    uint64_t began = ull__count_begin(pool);
    ull_status status = ULL_E_INVALID;
    uint16_t lane = ull__lane_now(pool, stream, capturing);
    uint64_t at = ull__at_place(pool, address);
    struct ull__chunk *c = lane ? ull__table_take(&pool->live, at) : NULL;
    struct ull__front *front = !c && lane ? ull__front_of(pool, stream) : NULL;
    uint64_t size, requested;
    if (lane == 0) {
        status = ULL_E_NO_MEMORY;
    } else if (front && ull__front_put(pool, front, lane, at, &size, &requested)) {
        ull__count_free(pool, size, requested);
        status = ULL_OK;
    } else if (c || (pool->front_count && (c = ull__fronts_take(pool, at)))) {
        free_chunk(pool, c, lane);
        status = ULL_OK;
    }
    ull__count_end(pool, began, false);
    ull__unlock(&pool->lock);
    return status;
}

ull_status ull_pool_free(struct ull_pool *pool, void *address, void *stream)
{
    if (!address)
        return ULL_OK;
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    ull__table_prefetch(&pool->live, (uintptr_t)address); /* comes while the lock is taken */
    bool capturing = pool->device->ops->capturing(pool->device, stream);
    if (ull__fronts_any(pool) && !capturing && ull__front_free(pool, (uintptr_t)address, stream))
        return ULL_OK;
    ull__lock(&pool->lock);
    struct ull__chunk *c = NULL;
    if (is_plain_work(pool, stream, capturing))
        c = ull__table_take(&pool->live, ull__at_place(pool, (uintptr_t)address));
    if (!c)
        return free_slowly(pool, (uintptr_t)address, stream, capturing);
    pool->clock++;
    free_chunk(pool, c, pool->last_lane);
    ull__unlock(&pool->lock);
    return ULL_OK;
}

/* A chunk in use that several streams use leaves the front that it is in, if the host has room for it elsewhere. */
static ull_status find_shared(struct ull_pool *pool, uint64_t address, struct ull__chunk **chunk)
{
    *chunk = ull__table_find(&pool->live, address);
    if (!*chunk && pool->front_count) {
        if (!ull__table_ensure(&pool->live, 1))
            return ULL_E_NO_MEMORY;
        *chunk = ull__fronts_take(pool, address);
        if (*chunk)
            ull__table_add(&pool->live, *chunk);
    }
    return *chunk ? ULL_OK : ULL_E_INVALID;
}

ull_status ull_pool_use_on(struct ull_pool *pool, void *address, void *stream)
{
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    bool capturing = pool->device->ops->capturing(pool->device, stream);
    ull__lock(&pool->lock);
    struct ull__chunk *c;
    ull_status status = find_shared(pool, ull__at_place(pool, (uintptr_t)address), &c);
    if (status == ULL_OK) {
        uint16_t lane = ull__lane_now(pool, stream, capturing);
        status = lane ? ull__lane_use(pool, c, lane) : ULL_E_NO_MEMORY;
    }
    ull__unlock(&pool->lock);
    return status;
}
