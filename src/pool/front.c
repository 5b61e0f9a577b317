/*
 * front.c: what streams keep for themselves while several threads share a pool.
 *
 * One lock over a pool lets two threads do less together than one alone: what each of them changed has to go to
 * the other's cache first. So once threads are seen to wait for the pool's lock, each stream gets a front
 * with a lock of its own, which has blocks of memory and cuts and joins in them as the pool does (block.c). What it has
 * nothing for goes to the pool, which gives it the whole free chunk that fits best.
 *
 * What is free in a front is free for everybody. A large request first has the new blocks of its own front merged. One that
 * finds nothing in the pool either takes a few new pages, as long as little more is held than was requested at the peak
 * (search.c); then one free piece of another front, one with room for some more like it if there is any, which goes
 * from front to front if nobody has to wait for it; then all that its own front has free; then, of its kind, small or
 * large, all that is free in all fronts; and before other new pages are taken or a request is refused, everything. So
 * it is before the pool tells about itself, with all fronts locked: what it tells is of one moment. A single piece
 * leaves the rest of its block where it is, since a front whose blocks were all taken back goes to the pool for many
 * requests until it has some again.
 *
 * Peaks are exact. A front may add to what is in use only as much as is sure to stay below the peak that was
 * seen already (its room); beyond that the request goes to the pool, which adds everything up.
 * The average in use is less exact: a front adds what it knew of the others when everything was added up last.
 *
 * A program whose threads do not meet never gets here. Fronts are closed again when fewer than two were used
 * for a while. Memory with an alignment, of graphs, and used on several streams passes by the fronts, and a device
 * with regions has none: where its memory is takes the pool's lock to find out.
 *
 * Requests that are served through views pass by too: as soon as they are free, their pages are to be at home again.
 *
 * What it cannot do: where hardly a page is to spare, threads take each other's pages all the time, under the pool's
 * lock.
 *
 * Locks: pool->lock before those of fronts, those in the order of the list. A front is never freed before the pool.
 */
#include <stdlib.h>
#include <string.h>

#include "front.h"
#include "lane.h"
#include "pool_private.h"

/* --- back to the pool ---------------------------------------------------------------------------------------- */

/* The pool's lock is held, those of fronts need not be. */
static void give_all(struct ull_pool *pool, struct ull__chunk *ready, uint16_t lane, uint64_t seq)
{
    while (ready) {
        struct ull__chunk *c = ready;
        ready = c->u.free.left;
        ull__make_free(pool, c, lane, seq, 0, 0);
    }
}

/* Behind all that the stream did so far. */
static void give_behind(struct ull_pool *pool, struct ull__chunk *ready, uint16_t lane)
{
    if (ready)
        give_all(pool, ready, lane, ++pool->lanes[lane].seq);
}

bool ull__front_drain(struct ull_pool *pool, struct ull__front *f, enum ull__loose which)
{
    struct ull__chunk *ready = NULL;
    ull__lock(&f->lock);
    bool any = ull__blocks_dissolve(pool, f, which, &ready);
    ull__unlock(&f->lock);
    give_behind(pool, ready, f->lane);
    return any;
}

bool ull__front_merge(struct ull_pool *pool, struct ull__front *f)
{
    ull__lock(&f->lock);
    bool any = ull__blocks_merge(pool, f);
    ull__unlock(&f->lock);
    return any;
}

/* All of *ready but `keep`, which stays SWEPT, for everybody. */
static struct ull__chunk *hand_over(struct ull_pool *pool, struct ull__chunk *ready,
                                    struct ull__chunk *keep)
{
    struct ull__chunk **at = &ready;
    while (*at != keep)
        at = &(*at)->u.free.left;
    *at = keep->u.free.left;
    give_all(pool, ready, ULL_CLEAN, 0);
    keep->lane = ULL_CLEAN;
    keep->seq = 0;
    return keep;
}

/* Its stream's event is looked at here: what has passed need not go through any bins first. */
bool ull__fronts_lend(struct ull_pool *pool, uint64_t size, bool small, struct ull__chunk **chunk)
{
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        struct ull__chunk *ready = NULL;
        ull__lock(&f->lock);
        struct ull__chunk *c = ull__bins_find(f->free[small], size * ULL_FRONT_MORE, 0);
        c = c ? c : ull__bins_find(f->free[small], size, 0);
        if (c)
            ull__piece_give(pool, f, c, &ready);
        ull__unlock(&f->lock);
        if (!c)
            continue;
        uint64_t seq = ++pool->lanes[f->lane].seq;
        ull__lane_record(pool, f->lane);
        ull__lanes_poll(pool);
        if (ull__lane_passed(pool, f->lane, seq))
            *chunk = hand_over(pool, ready, c);
        else
            give_all(pool, ready, f->lane, seq);
        return true;
    }
    return false;
}

bool ull__fronts_drain(struct ull_pool *pool, enum ull__loose which)
{
    bool any = false;
    for (unsigned int i = 0; i < pool->front_count; i++)
        any |= ull__front_drain(pool, pool->fronts[i], which);
    return any;
}

uint64_t ull__fronts_idle(struct ull_pool *pool)
{
    uint64_t pages = 0;
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        ull__lock(&f->lock);
        pages += f->idle_low;
        f->idle_low = f->free_pages;
        ull__unlock(&f->lock);
    }
    return pages;
}

static ull__stream stream_of(const struct ull_pool *pool, const struct ull__front *f)
{
    return atomic_load_explicit(&pool->front_streams[f->index], memory_order_relaxed);
}

/* --- the short way ------------------------------------------------------------------------------------------- */

/* The pool looks after events and idle pages now and then; if it is busy, the next time. */
__attribute__((noinline)) static void look_after(struct ull_pool *pool)
{
    if (!ull__lock_if_free(&pool->lock))
        return;
    pool->clock += ULL_SAMPLE - pool->clock % ULL_SAMPLE;
    ull__tick(pool);
    ull__unlock(&pool->lock);
}

/* The front of the stream, locked, and in *began the time if the operation is timed; or NULL. */
static inline __attribute__((always_inline)) struct ull__front *
enter_front(struct ull_pool *pool, ull__stream stream, uint64_t *began)
{
    struct ull__front *f = ull__front_of(pool, stream);
    if (!f)
        return NULL;
    ull__lock(&f->lock);
    uint64_t phase = ++f->operations % ULL_SAMPLE;
    if (__builtin_expect(phase == 0, 0)) {
        ull__unlock(&f->lock);
        look_after(pool);
        ull__lock(&f->lock);
    }
    if (!f->open || stream_of(pool, f) != stream) {
        ull__unlock(&f->lock);
        return NULL;
    }
    *began = phase == ULL_SAMPLE / 2 ? ull__now(pool) : 0;
    return f;
}

static inline __attribute__((always_inline)) void leave_front(const struct ull_pool *pool,
                                                              struct ull__front *f, uint64_t began)
{
    f->in_use_sum += f->others + (uint64_t)f->in_use;
    if (began)
        ull__latency_count(f->latency, &f->latency_max_ns, ull__now(pool) - began, ULL_SAMPLE);
    ull__unlock(&f->lock);
}

/* In use from now on, or NULL. */
static inline __attribute__((always_inline)) struct ull__chunk *
take(const struct ull_pool *pool, struct ull__front *f, uint64_t size, bool small)
{
    struct ull__chunk *c =
        ull__table_ensure(&f->live, 1) ? ull__piece_take(pool, f, size, small) : NULL;
    if (c)
        ull__table_add(&f->live, c);
    return c;
}

bool ull__front_allocate(struct ull_pool *pool, const struct ull_request *request, void **address)
{
    uint64_t began, size = (request->bytes + ULL_UNIT - 1) & ~(uint64_t)(ULL_UNIT - 1);
    struct ull__front *f = size >= request->bytes ? enter_front(pool, request->stream, &began) : NULL;
    if (!f)
        return false;
    bool room = f->in_use + (int64_t)size <= f->room &&
                f->requested + (int64_t)request->bytes <= f->room_requested;
    bool small = request->bytes <= pool->options.small_bytes && request->bytes <= pool->page_bytes;
    struct ull__chunk *c = room ? take(pool, f, size, small) : NULL;
    if (!c) {
        ull__unlock(&f->lock);
        return false;
    }
    c->u.live.requested = request->bytes;
    c->u.live.tag = request->tag;
    f->in_use += (int64_t)size;
    f->requested += (int64_t)request->bytes;
    f->count++;
    f->allocations++;
    f->largest = request->bytes > f->largest ? request->bytes : f->largest;
    *address = (void *)(uintptr_t)c->address;
    leave_front(pool, f, began);
    return true;
}

bool ull__front_free(struct ull_pool *pool, uint64_t address, ull__stream stream)
{
    uint64_t began;
    struct ull__front *f = enter_front(pool, stream, &began);
    if (!f)
        return false;
    struct ull__chunk *c = f->stock ? ull__table_take(&f->live, address) : NULL;
    if (!c) {
        ull__unlock(&f->lock);
        return false;
    }
    f->in_use -= (int64_t)c->size;
    f->requested -= (int64_t)c->u.live.requested;
    f->count--;
    f->frees++;
    ull__piece_free(pool, f, c);
    leave_front(pool, f, began);
    return true;
}

/* --- what the pool does with fronts -------------------------------------------------------------------------- */

struct ull__chunk *ull__front_take(const struct ull_pool *pool, struct ull__front *f, uint16_t lane,
                                   uint64_t size, bool small)
{
    ull__lock(&f->lock);
    struct ull__chunk *c = f->open && f->lane == lane ? take(pool, f, size, small) : NULL;
    ull__unlock(&f->lock);
    return c;
}

bool ull__front_put(struct ull_pool *pool, struct ull__front *f, uint16_t lane, uint64_t address,
                    uint64_t *size, uint64_t *requested)
{
    ull__lock(&f->lock);
    struct ull__chunk *c = f->open && f->lane == lane && ull__stock_fill(pool, f)
                               ? ull__table_take(&f->live, address)
                               : NULL;
    if (c) {
        *size = c->size;
        *requested = c->u.live.requested;
        ull__piece_free(pool, f, c);
    }
    ull__unlock(&f->lock);
    return c != NULL;
}

struct ull__chunk *ull__front_adopt(struct ull_pool *pool, struct ull__front *f, uint16_t lane,
                                    struct ull__chunk *c, uint64_t size)
{
    ull__lock(&f->lock);
    bool adopt = f->open && f->lane == lane && c->tier != ULL_VIEW &&
                 ull__table_ensure(&f->live, 1) && ull__stock_fill(pool, f);
    if (adopt) {
        c = ull__block_adopt(pool, f, c, size);
        ull__table_add(&f->live, c);
    }
    ull__unlock(&f->lock);
    return adopt ? c : NULL;
}

struct ull__chunk *ull__fronts_take(struct ull_pool *pool, uint64_t address)
{
    struct ull__chunk *c = NULL;
    for (unsigned int i = 0; i < pool->front_count && !c; i++) {
        struct ull__front *f = pool->fronts[i];
        ull__lock(&f->lock);
        struct ull__chunk *ready = NULL;
        c = ull__table_take(&f->live, address);
        if (c && c->state == ULL_TAKEN)
            ull__block_dissolve(pool, f, c->block, &ready);
        if (c)
            c->uses = 0;
        ull__unlock(&f->lock);
        give_behind(pool, ready, f->lane);
    }
    return c;
}

/* --- adding up ------------------------------------------------------------------------------------------------ */

static void fold(struct ull_pool *pool, struct ull__front *f)
{
    struct ull_stats *s = &pool->stats;
    s->in_use += (uint64_t)f->in_use;
    s->requested += (uint64_t)f->requested;
    s->count += (uint64_t)f->count;
    s->allocations += f->allocations;
    s->frees += f->frees;
    s->largest = f->largest > s->largest ? f->largest : s->largest;
    pool->in_use_sum += f->in_use_sum;
    f->in_use = f->requested = f->count = 0;
    f->allocations = f->frees = f->largest = 0;
    f->in_use_sum = 0;
}

static void fold_latency(struct ull_pool *pool, struct ull__front *f)
{
    for (int i = 0; i < ULL_LATENCY_BUCKETS; i++)
        pool->latency[i] += f->latency[i];
    memset(f->latency, 0, sizeof f->latency);
    if (f->latency_max_ns > pool->stats.latency_max_ns)
        pool->stats.latency_max_ns = f->latency_max_ns;
    f->latency_max_ns = 0;
}

static void lock_and_fold(struct ull_pool *pool)
{
    for (unsigned int i = 0; i < pool->front_count; i++)
        ull__lock(&pool->fronts[i]->lock);
    for (unsigned int i = 0; i < pool->front_count; i++)
        fold(pool, pool->fronts[i]);
}

void ull__fronts_hold(struct ull_pool *pool)
{
    lock_and_fold(pool);
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        struct ull__chunk *ready = NULL;
        fold_latency(pool, f);
        while (f->blocks || f->fresh) /* also those of which all is in use */
            ull__block_dissolve(pool, f, f->fresh ? f->fresh : f->blocks, &ready);
        ull__stock_return(pool, f);
        give_behind(pool, ready, f->lane);
    }
}

/* Of what is missing to the peak; the pool keeps a quarter for what passes by the fronts. */
static int64_t share_of(const struct ull_pool *pool, uint64_t missing)
{
    return (int64_t)(missing / 4 * 3 / pool->front_count);
}

void ull__fronts_release(struct ull_pool *pool)
{
    const struct ull_stats *s = &pool->stats;
    pool->room = pool->room_requested = 0;
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        f->others = s->in_use;
        f->room = share_of(pool, s->peak_in_use - s->in_use);
        f->room_requested = share_of(pool, s->peak_requested - s->requested);
        pool->room += f->room;
        pool->room_requested += f->room_requested;
        ull__unlock(&f->lock);
    }
}

void ull__count_peak(struct ull_pool *pool)
{
    struct ull_stats *s = &pool->stats;
    lock_and_fold(pool);
    if (s->in_use > s->peak_in_use)
        s->peak_in_use = s->in_use;
    if (s->requested > s->peak_requested)
        s->peak_requested = s->requested;
    ull__fronts_release(pool);
}

/* --- opening and closing --------------------------------------------------------------------------------------- */

static void free_front(struct ull__front *f)
{
    free(f->live.buckets);
    for (int kind = 0; kind < 2; kind++)
        ull__bins_free(f->free[kind]);
    free(f);
}

static struct ull__front *new_front(struct ull_pool *pool)
{
    if (pool->front_count == ULL_FRONTS)
        return NULL;
    struct ull__front *f = aligned_alloc(_Alignof(struct ull__front), sizeof *f);
    if (!f)
        return NULL;
    *f = (struct ull__front){0};
    for (int kind = 0; kind < 2; kind++) {
        f->free[kind] = calloc(1, sizeof *f->free[kind]);
        if (!f->free[kind]) {
            free_front(f);
            return NULL;
        }
        f->free[kind]->heaps = ULL_STEPS;
    }
    f->index = pool->front_count;
    pool->fronts[pool->front_count++] = f;
    return f;
}

/* The front that the stream had before, else one that is closed and empty, else a new one. */
static struct ull__front *front_for(struct ull_pool *pool, ull__stream stream)
{
    struct ull__front *closed = NULL;
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        if (stream_of(pool, f) == stream)
            return f;
        if (!f->open)
            closed = f;
    }
    struct ull__front *f = new_front(pool);
    return f ? f : closed;
}

/*
 * `open` changes with both locks held, so either is enough to read it. What was in use through the front before
 * stays in its table.
 */
void ull__front_open(struct ull_pool *pool, uint16_t lane)
{
    ull__stream stream = pool->lanes[lane].stream;
    struct ull__front *f = front_for(pool, stream);
    if (!f || f->open)
        return;
    ull__lock(&f->lock);
    f->lane = lane;
    f->open = true;
    f->seen = f->operations;
    atomic_store_explicit(&pool->front_streams[f->index], stream, memory_order_relaxed);
    ull__unlock(&f->lock);
    /* Whoever sees more of them sees what they are. */
    if (f->index >= atomic_load_explicit(&pool->fronts_seen, memory_order_relaxed))
        atomic_store_explicit(&pool->fronts_seen, f->index + 1, memory_order_release);
}

void ull__front_close(struct ull_pool *pool, ull__stream stream)
{
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        if (!f->open || stream_of(pool, f) != stream)
            continue;
        ull__lock(&f->lock);
        f->open = false;
        ull__unlock(&f->lock);
        ull__front_drain(pool, f, ULL_LOOSE_ALL);
    }
}

void ull__fronts_close(struct ull_pool *pool)
{
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        ull__front_close(pool, stream_of(pool, f));
    }
    atomic_store_explicit(&pool->fronts_seen, 0, memory_order_release);
}

void ull__fronts_review(struct ull_pool *pool)
{
    unsigned int used = 0;
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        ull__lock(&f->lock);
        used += f->open && f->operations != f->seen;
        f->seen = f->operations;
        ull__unlock(&f->lock);
    }
    pool->lock.contended = 0;
    if (used < 2 && !pool->fronts_forced)
        ull__fronts_close(pool);
}

void ull__fronts_finish(struct ull_pool *pool)
{
    for (unsigned int i = 0; i < pool->front_count; i++)
        free_front(pool->fronts[i]);
}
