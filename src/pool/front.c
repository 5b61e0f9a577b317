/*
 * front.c: what streams keep for themselves while several threads share a pool.
 *
 * One lock over a pool lets two threads do less together than one alone: what each of them changed has to go to
 * the other's cache first. So once threads are seen to wait for the pool's lock, each stream gets a front
 * with a lock of its own. What is freed on the stream is loose there: still a chunk in use for the pool,
 * joined with nothing. A request of exactly its size takes it, which is a best fit. All else goes to the pool.
 *
 * What is loose is free for everybody. A request that finds nothing in the pool lets the pool take back from its
 * own front, one chunk after the other, until it fits; then what is loose of its kind, small or
 * large, in all fronts; and before a new page is taken or a request is refused, everything. So it is
 * before the pool tells about itself, with all fronts locked: what it tells is of one moment.
 *
 * Peaks are exact. A front may add to what is in use only as much as is sure to stay below the peak that was
 * seen already (its room); beyond that the request goes to the pool, which adds everything up.
 * The average in use is less exact: a front adds what it knew of the others when everything was added up last.
 *
 * A program whose threads do not meet never gets here. Fronts are closed again when fewer than two were used
 * for a while. Memory with an alignment, of graphs, and used on several streams passes by the fronts, and a device
 * with regions has none: where its memory is takes the pool's lock to find out.
 *
 * What it cannot do: where hardly a page is to spare, threads take each other's pages all the time, and views are made
 * of them; that is under the pool's lock, and such a pool does not come to rest.
 *
 * Locks: pool->lock before those of fronts, those in the order of the list. A front is never freed before the pool.
 */
#include <stdlib.h>
#include <string.h>

#include "pool_private.h"

/*
 * Loose chunks of an age at most. When there are so many, the pool takes back the old ones, which takes it some
 * 20 us, and the young ones are old: so sizes that nobody asks for any more go. LOOKS: for one of a size in its bin.
 */
enum { MOST_LOOSE = 1024, LOOKS = 8, YOUNG = 0, OLD = 1 };

struct bins_range {
    unsigned int first, end;
};

/* --- loose chunks ------------------------------------------------------------------------------------------ */

/* A loose chunk of the size, among those freed last, to be in use again; or NULL. */
static struct ull__chunk *pop(struct ull__front *f, int age, unsigned int bin, uint64_t size)
{
    struct ull__bins *bins = f->loose[age];
    struct ull__chunk **at = &bins->root[bin];
    for (int i = 0; *at && (*at)->size != size; at = &(*at)->u.free.left) {
        if (++i == LOOKS)
            return NULL;
    }
    struct ull__chunk *c = *at;
    if (!c)
        return NULL;
    *at = c->u.free.left;
    if (!bins->root[bin])
        ull__bins_clear(bins, bin);
    f->loose_count[age]--;
    return c;
}

static struct ull__chunk *look(struct ull__front *f, uint64_t size)
{
    unsigned int bin = ull__bin_of(size);
    struct ull__chunk *c = pop(f, YOUNG, bin, size);
    return c ? c : pop(f, OLD, bin, size);
}

static void push(struct ull__front *f, struct ull__chunk *c)
{
    unsigned int bin = ull__bin_of(c->size);
    struct ull__bins *bins = f->loose[YOUNG];
    if (!bins->root[bin])
        ull__bins_set(bins, bin);
    c->u.free.left = bins->root[bin];
    bins->root[bin] = c;
    f->loose_count[YOUNG]++;
}

/* Frees on their lane what was loose, and counts it; the pool's lock is held, the front's need not be. */
static uint64_t give_back_loose(struct ull_pool *pool, struct ull__bins *bins, uint16_t lane)
{
    uint64_t count = 0;
    for (unsigned int bin = ull__bins_next(bins, 0); bin < ULL_BINS;
         bin = ull__bins_next(bins, bin + 1)) {
        struct ull__chunk *c = bins->root[bin];
        bins->root[bin] = NULL;
        ull__bins_clear(bins, bin);
        while (c) {
            struct ull__chunk *next = c->u.free.left;
            ull__make_free(pool, c, lane, ++pool->lanes[lane].seq, 0, 0);
            c = next;
            count++;
        }
    }
    return count;
}

static struct bins_range range_of(const struct ull_pool *pool, enum ull__loose which)
{
    unsigned int middle = ull__bin_of(pool->options.small_bytes) + 1;
    return (struct bins_range){.first = which == ULL_LOOSE_LARGE ? middle : 0,
                               .end = which == ULL_LOOSE_SMALL ? middle : ULL_BINS};
}

/* Moves lists of the front that are in the range to its spare ones. */
static bool detach(struct ull__front *f, int age, struct bins_range range)
{
    bool any = false;
    for (unsigned int bin = ull__bins_next(f->loose[age], range.first); bin < range.end;
         bin = ull__bins_next(f->loose[age], bin + 1)) {
        f->spare->root[bin] = f->loose[age]->root[bin];
        ull__bins_set(f->spare, bin);
        f->loose[age]->root[bin] = NULL;
        ull__bins_clear(f->loose[age], bin);
        any = true;
    }
    return any;
}

bool ull__front_drain(struct ull_pool *pool, struct ull__front *f, enum ull__loose which)
{
    struct bins_range range = range_of(pool, which);
    bool any = false;
    for (int age = YOUNG; age <= OLD; age++) {
        ull__lock(&f->lock);
        bool some = detach(f, age, range);
        ull__unlock(&f->lock);
        if (!some)
            continue;
        uint64_t count = give_back_loose(pool, f->spare, f->lane);
        ull__lock(&f->lock);
        f->loose_count[age] -= count;
        ull__unlock(&f->lock);
        any = true;
    }
    return any;
}

bool ull__front_drain_one(struct ull_pool *pool, struct ull__front *f, uint64_t size, bool small)
{
    struct bins_range range = range_of(pool, small ? ULL_LOOSE_SMALL : ULL_LOOSE_LARGE);
    struct ull__chunk *c = NULL;
    ull__lock(&f->lock);
    unsigned int bin[2];
    for (int age = YOUNG; age <= OLD; age++)
        bin[age] = ull__bins_next(f->loose[age], ull__bin_of(size));
    int age = bin[OLD] < bin[YOUNG] ? OLD : YOUNG;
    if (bin[age] >= range.end) {
        for (age = YOUNG; age <= OLD; age++) {
            bin[age] = ull__bins_before(f->loose[age], range.end);
            bin[age] = bin[age] < range.end ? bin[age] : 0; /* no chunk is in bin 0 */
        }
        age = bin[OLD] > bin[YOUNG] ? OLD : YOUNG;
    }
    if (bin[age] > 0 && bin[age] >= range.first)
        c = pop(f, age, bin[age], f->loose[age]->root[bin[age]]->size);
    ull__unlock(&f->lock);
    if (c)
        ull__make_free(pool, c, f->lane, ++pool->lanes[f->lane].seq, 0, 0);
    return c != NULL;
}

void ull__front_age(struct ull_pool *pool, struct ull__front *f)
{
    ull__lock(&f->lock);
    bool full = f->loose_count[YOUNG] >= MOST_LOOSE;
    if (full) {
        struct ull__bins *old = f->loose[OLD];
        f->loose[OLD] = f->loose[YOUNG];
        f->loose_count[OLD] = f->loose_count[YOUNG];
        f->loose[YOUNG] = f->spare;
        f->loose_count[YOUNG] = 0;
        f->spare = old;
    }
    ull__unlock(&f->lock);
    if (full)
        give_back_loose(pool, f->spare, f->lane);
}

bool ull__fronts_drain(struct ull_pool *pool, enum ull__loose which)
{
    bool any = false;
    for (unsigned int i = 0; i < pool->front_count; i++)
        any |= ull__front_drain(pool, pool->fronts[i], which);
    return any;
}

static ull__stream stream_of(const struct ull_pool *pool, const struct ull__front *f)
{
    return atomic_load_explicit(&pool->front_streams[f->index], memory_order_relaxed);
}

/* --- the short way ------------------------------------------------------------------------------------------- */

/* The front of the stream, locked, and in *began the time if the operation is timed; or NULL. */
static struct ull__front *enter_front(struct ull_pool *pool, ull__stream stream, uint64_t *began)
{
    struct ull__front *f = ull__front_of(pool, stream);
    if (!f)
        return NULL;
    ull__lock(&f->lock);
    uint64_t phase = ++f->operations % ULL_SAMPLE;
    /* One in ULL_SAMPLE goes to the pool, which looks after events and idle pages then. */
    if (!f->open || phase == 0 || stream_of(pool, f) != stream) {
        ull__unlock(&f->lock);
        return NULL;
    }
    *began = phase == ULL_SAMPLE / 2 ? ull__now(pool) : 0;
    return f;
}

static void leave_front(const struct ull_pool *pool, struct ull__front *f, uint64_t began)
{
    f->in_use_sum += f->others + (uint64_t)f->in_use;
    if (began)
        ull__latency_count(f->latency, &f->latency_max_ns, ull__now(pool) - began, ULL_SAMPLE);
    ull__unlock(&f->lock);
}

bool ull__front_allocate(struct ull_pool *pool, const struct ull_request *request, void **address)
{
    uint64_t began, size = (request->bytes + ULL_UNIT - 1) & ~(uint64_t)(ULL_UNIT - 1);
    struct ull__front *f = enter_front(pool, request->stream, &began);
    if (!f)
        return false;
    bool room = f->in_use + (int64_t)size <= f->room &&
                f->requested + (int64_t)request->bytes <= f->room_requested;
    struct ull__chunk *c = room ? look(f, size) : NULL;
    if (!c) {
        ull__unlock(&f->lock);
        return false;
    }
    c->u.live.requested = request->bytes;
    c->u.live.tag = request->tag;
    ull__table_add(&f->live, c);
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
    struct ull__chunk *c =
        f->loose_count[YOUNG] < MOST_LOOSE ? ull__table_take(&f->live, address) : NULL;
    if (!c) {
        ull__unlock(&f->lock);
        return false;
    }
    f->in_use -= (int64_t)c->size;
    f->requested -= (int64_t)c->u.live.requested;
    f->count--;
    f->frees++;
    push(f, c);
    leave_front(pool, f, began);
    return true;
}

/* --- what the pool does with fronts -------------------------------------------------------------------------- */

struct ull__chunk *ull__front_take(struct ull__front *f, uint16_t lane, uint64_t size)
{
    ull__lock(&f->lock);
    struct ull__chunk *c = f->open && f->lane == lane ? look(f, size) : NULL;
    ull__unlock(&f->lock);
    return c;
}

bool ull__front_adopt(struct ull__front *f, uint16_t lane, struct ull__chunk *c)
{
    ull__lock(&f->lock);
    /* Room for what is loose too, so that a request in the front never has to make some. */
    bool adopt = f->open && f->lane == lane &&
                 ull__table_ensure(&f->live, f->loose_count[YOUNG] + f->loose_count[OLD] + 1);
    if (adopt)
        ull__table_add(&f->live, c);
    ull__unlock(&f->lock);
    return adopt;
}

struct ull__chunk *ull__fronts_take(struct ull_pool *pool, uint64_t address)
{
    struct ull__chunk *c = NULL;
    for (unsigned int i = 0; i < pool->front_count && !c; i++) {
        struct ull__front *f = pool->fronts[i];
        ull__lock(&f->lock);
        c = ull__table_take(&f->live, address);
        ull__unlock(&f->lock);
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
        fold_latency(pool, f);
        for (int age = YOUNG; age <= OLD; age++) {
            if (detach(f, age, range_of(pool, ULL_LOOSE_ALL)))
                f->loose_count[age] -= give_back_loose(pool, f->spare, f->lane);
        }
    }
}

/* Gives each a share of what is missing to the peak; the pool keeps as much for itself. */
void ull__fronts_release(struct ull_pool *pool)
{
    const struct ull_stats *s = &pool->stats;
    uint64_t shares = 2 * (uint64_t)pool->front_count;
    pool->room = pool->room_requested = 0;
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        f->others = s->in_use;
        f->room = (int64_t)((s->peak_in_use - s->in_use) / shares);
        f->room_requested = (int64_t)((s->peak_requested - s->requested) / shares);
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
    free(f->loose[YOUNG]);
    free(f->loose[OLD]);
    free(f->spare);
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
    f->loose[YOUNG] = calloc(1, sizeof *f->spare);
    f->loose[OLD] = calloc(1, sizeof *f->spare);
    f->spare = calloc(1, sizeof *f->spare);
    if (!f->loose[YOUNG] || !f->loose[OLD] || !f->spare) {
        free_front(f);
        return NULL;
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
