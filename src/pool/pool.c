/*
 * pool.c: requests and frees.
 *
 * A request takes the best fit among what its stream has free and what nobody waits for. If there is
 * none, in this order: frees of other streams that have passed, free neighbours that wait for this
 * stream joined with those that wait for none, free pages put together with the missing new ones
 * (build.c; where the device cannot map pages, a new region: regions.c), and at last a wait for frees that
 * are pending.
 *
 * Small requests are kept apart: they have ranges of their own, though both kinds share the pages.
 * A program keeps many small things for long (parameters of biases, counters, states); one of
 * them in the middle of what was a large tensor would take that page out of use for large requests, and
 * a run of them would cut the memory into pieces (pytorch/pytorch#35901). Above small_bytes a chunk
 * holds about half a page at least, so that what it blocks is of its own size. What must not be lost that way is
 * what large requests leave over of their pages, for no large one fits there. It is for small ones before they
 * are refused, and for those above an eighth of a page at once, if it fits better: what these pin is small.
 *
 * One lock is over all but fronts, which streams get when threads wait for it (front.c). A request or free takes
 * some 40 ns in it; device calls are made with it held, since they change what the lock is over, waits for
 * streams are not.
 */
#include <stdlib.h>

#include "error.h"
#include "space.h"

enum { ALIGNED_LOOKS = 16 };

struct ask {
    uint64_t size, alignment; /* size: rounded to units */
    bool small;
    uint16_t lane;
    struct ull__front *front; /* of the stream, or NULL */
};

/* --- finding -------------------------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t address, uint64_t alignment)
{
    return (address + alignment - 1) & ~(alignment - 1);
}

/* Bytes from the start of a chunk to the first aligned place. Apart, since hardly a request asks. */
__attribute__((noinline)) static uint64_t lost_to(const struct ull_pool *pool,
                                                  const struct ull__chunk *c, uint64_t alignment)
{
    uint64_t place = ull__place(pool, c->address);
    return align_up(place, alignment) - place;
}

static bool fits(const struct ull_pool *pool, const struct ull__chunk *c, uint64_t size,
                 uint64_t alignment)
{
    uint64_t lost = lost_to(pool, c, alignment);
    return c->size >= lost && c->size - lost >= size;
}

/* The best fit at an alignment: a few are looked at in order, then one is taken that must do. */
static struct ull__chunk *find_aligned(const struct ull_pool *pool, const struct ull__bins *bins,
                                       const struct ask *ask)
{
    struct ull__chunk *c = ull__bins_find(bins, ask->size, 0);
    for (int i = 0; c && i < ALIGNED_LOOKS; i++) {
        if (fits(pool, c, ask->size, ask->alignment))
            return c;
        c = ull__bins_find(bins, c->size, c->address + 1);
    }
    return c ? ull__bins_find(bins, ask->size + ask->alignment - ULL_UNIT, 0) : NULL;
}

static inline struct ull__chunk *find_in(const struct ull_pool *pool, uint16_t lane,
                                         unsigned int tier, const struct ask *ask)
{
    const struct ull__bins *bins = pool->lanes[lane].bins[tier];
    if (!bins->words)
        return NULL;
    if (ask->alignment == ULL_UNIT)
        return ull__bins_find(bins, ask->size, 0);
    return find_aligned(pool, bins, ask);
}

static inline struct ull__chunk *find_tier(const struct ull_pool *pool, unsigned int tier,
                                           const struct ask *ask)
{
    struct ull__chunk *own = find_in(pool, ask->lane, tier, ask);
    struct ull__chunk *clean = find_in(pool, ULL_CLEAN, tier, ask);
    if (!own || !clean)
        return own ? own : clean;
    return ull__chunk_before(own->size, own->address, clean) ? own : clean;
}

/* The one that fits better; either may be NULL. */
static struct ull__chunk *better(struct ull__chunk *a, struct ull__chunk *b)
{
    return !a || (b && b->size < a->size) ? b : a;
}

static bool has_whole_page(const struct ull_pool *pool, const struct ull__chunk *c)
{
    return ull__slot_up(pool, c->address) < ull__slot_down(pool, c->address + c->size);
}

/* For a small request: what large ones left over of pages, but no page that one could have whole. */
__attribute__((noinline)) static struct ull__chunk *find_left_over(const struct ull_pool *pool,
                                                                   const struct ask *ask)
{
    struct ull__chunk *home = find_tier(pool, ULL_HOME, ask);
    struct ull__chunk *view = find_tier(pool, ULL_VIEW, ask);
    return better(home && !has_whole_page(pool, home) ? home : NULL,
                  view && !has_whole_page(pool, view) ? view : NULL);
}

/* Large ones at home first; then in what requests that were served through views left over. */
static struct ull__chunk *find(const struct ull_pool *pool, const struct ask *ask)
{
    struct ull__chunk *c = find_tier(pool, ask->small ? ULL_SMALL : ULL_HOME, ask);
    if (ask->small && ask->size > pool->page_bytes / ULL_MEDIUM)
        return better(c, find_left_over(pool, ask));
    return c || ask->small ? c : find_tier(pool, ULL_VIEW, ask);
}

/* Gives back what is above a limit that was lowered. */
static bool within_limit(struct ull_pool *pool)
{
    if (pool->held > pool->limit_pages) {
        ull__fronts_drain(pool, ULL_LOOSE_ALL);
        ull__lanes_want(pool, (uint16_t)-1);
        ull__pages_return(pool, pool->held - pool->limit_pages);
    }
    return pool->held <= pool->limit_pages;
}

/* With several streams, what needs nothing that others freed: they will want it again. */
static struct ull__chunk *find_alone(struct ull_pool *pool, const struct ask *ask,
                                     struct ull__shortage *shortage)
{
    struct ull__chunk *c = NULL;
    if (!pool->crowded || pool->plain)
        return NULL;
    if (!ask->small)
        return ull__use_view(pool, shortage->needed, ask->alignment, ask->lane);
    if (ull__pages_suffice(pool, ask->lane, 1))
        ull__build_small(pool, ask->lane, shortage, &c);
    return c;
}

/* What fronts have free and can do without easily, see front.c. */
static struct ull__chunk *find_in_fronts(struct ull_pool *pool, const struct ask *ask,
                                         enum ull__loose kind)
{
    struct ull__chunk *c = NULL;
    if (!ask->front)
        return NULL;
    if (ull__front_merge(pool, ask->front))
        c = ull__front_take(pool, ask->front, ask->lane, ask->size, ask->small);
    if (!c && ull__fronts_lend(pool, ask->size, ask->small)) {
        c = find(pool, ask);
        if (!c && ull__lanes_want(pool, ask->lane))
            c = find(pool, ask);
    }
    return c || !ull__front_drain(pool, ask->front, kind) ? c : find(pool, ask);
}

/* Everything that can be done without waiting. */
static struct ull__chunk *find_more(struct ull_pool *pool, const struct ask *ask,
                                    struct ull__shortage *shortage)
{
    struct ull__chunk *c = NULL;
    *shortage = (struct ull__shortage){.needed = ull__pages_for(pool, ask->size)};
    if (!within_limit(pool))
        return NULL;
    enum ull__loose kind = ask->small ? ULL_LOOSE_SMALL : ULL_LOOSE_LARGE;
    c = find_in_fronts(pool, ask, kind);
    if (c)
        return c;
    c = find_alone(pool, ask, shortage);
    if (c)
        return c;
    bool more = ull__fronts_drain(pool, kind) || pool->plain;
    /* A region can go only when the own stream has passed it too; and nothing but this finds what is free. */
    if (ull__lanes_want(pool, pool->plain ? (uint16_t)-1 : ask->lane) || more)
        c = find(pool, ask);
    /* What is loose of the other kind is left alone as long as no new page depends on it. */
    if (!c && pool->front_count > 0 && !ull__pages_suffice(pool, ask->lane, shortage->needed) &&
        ull__fronts_drain(pool, ULL_LOOSE_ALL)) {
        ull__lanes_want(pool, ask->lane);
        c = find(pool, ask);
    }
    if (c)
        return c;
    if (ask->small) {
        ull__build_small(pool, ask->lane, shortage, &c);
        return c ? c : find_left_over(pool, ask);
    }
    if (pool->retained != (uint32_t)ULL_NONE) {
        ull__retained_return(pool);
        c = find(pool, ask);
    }
    if (!c && (pool->crowded || pool->plain)) /* plain: for an aligned fit that was not looked at */
        c = ull__coalesce(pool, ask->size, ask->alignment, ask->lane);
    if (!c)
        ull__build(pool, ask->size, ask->alignment, ask->lane, shortage, &c);
    return c;
}

/* --- requests -------------------------------------------------------------------------------------------- */

/* Cuts the request out of the chunk that was found. Nothing fails from here on. */
static void *serve(struct ull_pool *pool, struct ull__chunk *c, const struct ask *ask,
                   uint64_t requested, const char *tag)
{
    /* What will be written. Stores that wait for memory would make the next operation wait at the lock. */
    ull__table_prefetch(&pool->live, c->address);
    __builtin_prefetch(c->next, 1);
    __builtin_prefetch(pool->spare, 1);
    bool tabled = c->state == ULL_TAKEN; /* by its front */
    struct ull__chunk *piece =
        !tabled && ask->front ? ull__front_adopt(pool, ask->front, ask->lane, c, ask->size) : NULL;
    if (piece) {
        c = piece;
        tabled = true;
    }
    if (!tabled) {
        uint64_t lost = ask->alignment > ULL_UNIT ? lost_to(pool, c, ask->alignment) : 0;
        c = ull__take(pool, c, c->address + lost, ask->size);
    }
    c->u.live.requested = requested;
    c->u.live.tag = tag;
    c->uses = 0;
    c->lane = ULL_CLEAN;
    if (pool->lanes[ask->lane].graph) {
        c->lane = ask->lane;
        pool->lanes[ask->lane].live++;
    }
    if (c->tier == ULL_VIEW)
        ull__range_used(pool, pool->range_of[ull__slot_down(pool, c->address)]);
    if (!tabled)
        ull__table_add(&pool->live, c);
    ull__count_allocation(pool, c->size, requested);
    return (void *)(uintptr_t)ull__place(pool, c->address);
}

static inline bool host_memory(struct ull_pool *pool)
{
    return ull__table_ensure(&pool->live, 1) && ull__host_memory(pool, 0);
}

/*
 * For other streams first. Then, with several streams, for the own one too: half a page that waits for it
 * and half a page that nobody waits for are a free page only after that. Above a limit that was lowered
 * also with one: only what has passed can be given back. So it is with regions.
 */
static bool wait_for_frees(struct ull_pool *pool, const struct ask *ask, uint64_t timeout_ns)
{
    if (ull__lanes_wait(pool, ask->lane, timeout_ns))
        return true;
    if (!pool->crowded && pool->held <= pool->limit_pages && !pool->plain)
        return false;
    return ull__lanes_want(pool, (uint16_t)-1) || ull__lanes_wait(pool, (uint16_t)-1, timeout_ns);
}

/* For a request that finds nothing free where it looks first. */
__attribute__((noinline)) static struct ull__chunk *
search(struct ull_pool *pool, const struct ask *ask, struct ull__shortage *shortage)
{
    if (ask->lane == 0 || ask->size > pool->total_pages << pool->page_shift ||
        ask->alignment > (uint64_t)pool->slot_count << pool->page_shift || !host_memory(pool))
        return NULL;
    struct ull__chunk *c = find_more(pool, ask, shortage);
    uint64_t waited = 0;
    while (!c && waited < pool->options.wait_ns) {
        uint64_t from = ull__now(pool);
        if (!wait_for_frees(pool, ask, pool->options.wait_ns - waited))
            break;
        waited += ull__now(pool) - from;
        if (!host_memory(pool))
            break;
        c = pool->held <= pool->limit_pages ? find(pool, ask) : NULL;
        c = c ? c : find_more(pool, ask, shortage);
    }
    return c;
}

/* The front of the stream, opened if need be; NULL for most, and for what a graph asks for. */
static struct ull__front *front_of(struct ull_pool *pool, const struct ask *ask, ull__stream stream)
{
    if (ask->alignment != ULL_UNIT || pool->lanes[ask->lane].graph)
        return NULL;
    if (ull__fronts_wanted(pool))
        ull__front_open(pool, ask->lane);
    return ull__front_of(pool, stream);
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
    const struct ull__bins *own = pool->lanes[lane].bins[tier];
    const struct ull__bins *clean = pool->lanes[ULL_CLEAN].bins[tier];
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
        !host_memory(pool))
        return NULL;
    struct ull__chunk *c = find_at_once(pool, pool->last_lane, small ? ULL_SMALL : ULL_HOME, size);
    if (small & (size > pool->page_bytes / ULL_MEDIUM))
        c = better(c, find_left_over(pool, &(struct ask){.size = size,
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
    struct ask ask = {.size = (request->bytes + ULL_UNIT - 1) & ~(uint64_t)(ULL_UNIT - 1),
                      .alignment = alignment,
                      .small = request->bytes <= pool->options.small_bytes &&
                               request->bytes <= pool->page_bytes && alignment <= pool->page_bytes};
    if (ask.size < request->bytes)
        ask.size = UINT64_MAX - ULL_UNIT + 1; /* more than there is */
    uint64_t began = ull__count_begin(pool);
    ask.lane = ull__lane_now(pool, request->stream, capturing);
    struct ull__chunk *c = NULL;
    bool slow = false;
    if (ask.lane != 0 && ask.size <= pool->total_pages << pool->page_shift &&
        (alignment == ULL_UNIT || alignment <= (uint64_t)pool->slot_count << pool->page_shift) &&
        pool->held <= pool->limit_pages && host_memory(pool)) {
        if (ull__fronts_wanted(pool) || ull__fronts_any(pool))
            ask.front = front_of(pool, &ask, request->stream);
        c = ask.front ? ull__front_take(pool, ask.front, ask.lane, ask.size, ask.small) : NULL;
        c = c ? c : find(pool, &ask);
    }
    if (!c) {
        struct ull__shortage shortage = {.needed = ull__pages_for(pool, request->bytes)};
        slow = true;
        began = began ? began : ull__now(pool);
        c = search(pool, &ask, &shortage);
        if (!c && refusal)
            ull__refusal_fill(pool, request, &shortage, refusal);
    }
    ull_status status = c ? ULL_OK : ULL_E_NO_MEMORY;
    if (c)
        *address = serve(pool, c, &ask, request->bytes, request->tag);
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
