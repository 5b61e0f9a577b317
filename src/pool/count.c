/*
 * count.c: what a pool tells about itself.
 *
 * Latencies go into buckets of an eighth of a power of two, so a percentile is right to 12 %. One operation
 * in 128 is timed and counts for 128; those that go beyond the bins are all timed, so that the slow ones are
 * never missed. The average of what is in use is over operations, not over time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "front.h"
#include "lane.h"
#include "pool_private.h"
#include "size.h"

uint64_t ull__now(const struct ull_pool *pool)
{
    if (pool->options.now_ns)
        return pool->options.now_ns(pool->options.now_context);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Chunks of fronts, which are no crumbs. */
static uint64_t chunks_of_fronts(struct ull_pool *pool)
{
    uint64_t count = 0;
    for (unsigned int i = 0; i < pool->front_count; i++) {
        struct ull__front *f = pool->fronts[i];
        ull__lock(&f->lock);
        count += f->live.count + f->free_count + f->stock_count;
        ull__unlock(&f->lock);
    }
    return count;
}

static void crumbs_below(struct ull_pool *pool, uint32_t lane, unsigned int bin)
{
    for (int tier = 0; tier < ULL_TIERS; tier++)
        ull__crumbs_below(pool->lanes[lane].bins[tier], bin);
}

/*
 * Statistics and requests that find nothing look at all crumbs, so there are no more than ULL_CRUMBS, and what came
 * since somebody looked. They are not counted: that would take 3 ns of each operation. What is not in use is as good. And
 * now and then what is asked for is taken to be large again, until a request shows that it is not: a program that
 * asked for little once has crumbs again.
 */
static void review_crumbs(struct ull_pool *pool)
{
    bool review = pool->clock % ULL_REVIEW == 0;
    if (pool->front_count > 0 && !review) /* they have locks */
        return;
    uint64_t most = pool->chunk_count - pool->live.count - chunks_of_fronts(pool);
    if (!pool->crumbless && most > ULL_CRUMBS) {
        for (uint32_t i = 0; i < pool->lane_count; i++)
            crumbs_below(pool, i, 1);
        pool->crumbless = true;
    }
    if (!review || (pool->crumbless && most > ULL_CRUMBS / 2))
        return;
    if (!pool->crumbless)
        return;
    pool->crumbless = false;
    crumbs_below(pool, ULL_CLEAN, ull__bin_of(pool->page_bytes));
    crumbs_below(pool, pool->last_lane, ull__bin_of(pool->page_bytes));
}

uint64_t ull__tick(struct ull_pool *pool)
{
    uint64_t now = ull__now(pool);
    if (pool->clock % ULL_REVIEW == 0)
        ull__fronts_review(pool);
    review_crumbs(pool);
    ull__lanes_poll(pool);
    ull__idle(pool, now);
    return now;
}

/* --- latency ------------------------------------------------------------------------------------------ */

static unsigned int bucket_of(uint64_t ns)
{
    if (ns < 8)
        return (unsigned int)ns;
    unsigned int log = 63 - (unsigned int)__builtin_clzll(ns);
    unsigned int bucket = (log - 2) * 8 + (unsigned int)((ns >> (log - 3)) & 7);
    return bucket < ULL_LATENCY_BUCKETS ? bucket : ULL_LATENCY_BUCKETS - 1;
}

/* The longest time that falls into the bucket. */
static uint64_t bucket_end(unsigned int bucket)
{
    if (bucket < 8)
        return bucket;
    unsigned int log = bucket / 8 + 2;
    return ((uint64_t)(bucket % 8 + 9) << (log - 3)) - 1;
}

void ull__latency_count(uint64_t *buckets, uint64_t *max, uint64_t ns, uint64_t weight)
{
    buckets[bucket_of(ns)] += weight;
    if (ns > *max)
        *max = ns;
}

static uint64_t percentile(const struct ull_pool *pool, uint64_t of_1000)
{
    uint64_t all = 0, sum = 0;
    for (int i = 0; i < ULL_LATENCY_BUCKETS; i++)
        all += pool->latency[i];
    for (unsigned int i = 0; i < ULL_LATENCY_BUCKETS && all; i++) {
        sum += pool->latency[i];
        if (sum >= (all * of_1000 + 999) / 1000) {
            uint64_t end = bucket_end(i);
            return end < pool->stats.latency_max_ns ? end : pool->stats.latency_max_ns;
        }
    }
    return 0;
}

/* --- statistics --------------------------------------------------------------------------------------- */

static uint64_t larger_crumb(const struct ull__chunk *c, uint64_t largest)
{
    for (; c; c = c->u.free.left)
        largest = c->size > largest ? c->size : largest;
    return largest;
}

static uint64_t largest_in(const struct ull__bins *bins)
{
    unsigned int last = ull__bins_before(bins, ULL_BINS);
    uint64_t largest = 0;
    if (last == ULL_BINS)
        return 0;
    if (last < bins->sorted && bins->bits[0] & 1)
        largest = larger_crumb(bins->unsorted, larger_crumb(bins->first[0], 0));
    const struct ull__chunk *c = bins->first[last];
    for (const struct ull__chunk *more = last ? c->u.free.left : NULL; more; more = more->u.free.right)
        c = more;
    return c && c->size > largest ? c->size : largest;
}

uint64_t ull__largest_free(const struct ull_pool *pool)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < pool->lane_count; i++) {
        for (int r = 0; r < ULL_TIERS; r++) {
            uint64_t size = largest_in(pool->lanes[i].bins[r]);
            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

/* Addresses of free chunks may show pages twice, so the largest can pass what is free; that is none. */
double ull__fragmentation(uint64_t free_bytes, uint64_t largest)
{
    if (free_bytes == 0 || largest >= free_bytes)
        return 0;
    return 1 - (double)largest / (double)free_bytes;
}

static void complete(struct ull_pool *pool, struct ull_stats *s)
{
    *s = pool->stats;
    uint64_t operations = s->allocations + s->frees;
    s->average_in_use = operations ? (uint64_t)(pool->in_use_sum / operations) : 0;
    s->peak_to_average = s->average_in_use ? (double)s->peak_in_use / (double)s->average_in_use : 0;
    s->waste = s->in_use - s->requested;
    s->limit = pool->options.limit;
    s->reserve = pool->options.reserve;
    s->held = pool->held << pool->page_shift;
    s->free = s->held - s->in_use;
    s->free_pages = pool->free_pages << pool->page_shift;
    s->pending = ull__lanes_pending(pool);
    s->largest_free = ull__largest_free(pool);
    s->fragmentation = ull__fragmentation(s->free, s->largest_free);
    s->mapped = pool->mapped << pool->page_shift;
    s->latency_p50_ns = percentile(pool, 500);
    s->latency_p99_ns = percentile(pool, 990);
    s->latency_p999_ns = percentile(pool, 999);
}

ull_status ull_pool_stats(struct ull_pool *pool, struct ull_stats *stats)
{
    uint32_t size = stats->size;
    if (size < 2 * sizeof(uint32_t))
        return ULL_E_INVALID;
    if (ull__is_parents(pool))
        return ULL_E_NO_DEVICE;
    struct ull_stats now = {0};
    ull__lock(&pool->lock);
    ull__fronts_hold(pool);
    complete(pool, &now);
    ull__fronts_release(pool);
    ull__unlock(&pool->lock);
    now.size = size < sizeof now ? size : (uint32_t)sizeof now;
    now.version = ULL_STATS_VERSION;
    memcpy(stats, &now, now.size);
    return ULL_OK;
}

void ull_pool_stats_reset(struct ull_pool *pool)
{
    if (ull__is_parents(pool))
        return;
    ull__lock(&pool->lock);
    ull__fronts_hold(pool);
    struct ull_stats *s = &pool->stats;
    *s = (struct ull_stats){.in_use = s->in_use,
                            .peak_in_use = s->in_use,
                            .requested = s->requested,
                            .peak_requested = s->requested,
                            .count = s->count,
                            .peak_held = pool->held << pool->page_shift};
    pool->in_use_sum = 0;
    memset(pool->latency, 0, sizeof pool->latency);
    ull__fronts_release(pool);
    ull__unlock(&pool->lock);
}

void ull_pool_policy(struct ull_pool *pool, struct ull_pool_options *options)
{
    if (ull__is_parents(pool)) {
        *options = pool->options; /* nobody changes it */
        return;
    }
    ull__lock(&pool->lock);
    *options = pool->options;
    ull__unlock(&pool->lock);
}

/* --- walking -------------------------------------------------------------------------------------------- */

static bool describe(const struct ull__chunk *c, struct ull_chunk_info *info)
{
    static const enum ull_chunk_state states[] = {
        [ULL_LIVE] = ULL_CHUNK_IN_USE,   [ULL_WAITING] = ULL_CHUNK_WAITING,
        [ULL_FREE] = ULL_CHUNK_FREE,     [ULL_SWEPT] = ULL_CHUNK_FREE,
        [ULL_SHADOW] = ULL_CHUNK_SHADOW, [ULL_LENT] = ULL_CHUNK_SHADOW,
        [ULL_REST] = ULL_CHUNK_SHADOW};
    if (c->state == ULL_HOLE)
        return false;
    *info =
        (struct ull_chunk_info){.address = c->address, .bytes = c->size, .state = states[c->state]};
    if (c->state == ULL_LIVE) {
        info->requested = c->u.live.requested;
        info->tag = c->u.live.tag;
    }
    if (c->state == ULL_FREE && c->lane != ULL_CLEAN)
        info->state = ULL_CHUNK_PENDING;
    return true;
}

/* From a chunk to the end of its range, or on a device with regions of its region. */
static bool walk_chunks(struct ull_pool *pool, const struct ull__chunk *c,
                        bool (*visit)(void *context, const struct ull_chunk_info *), void *context)
{
    for (; c && !(pool->plain && c->state == ULL_HOLE); c = c->next) {
        struct ull_chunk_info info;
        if (!describe(c, &info))
            continue;
        info.address = ull__place(pool, c->address);
        if (!visit(context, &info))
            return false;
    }
    return true;
}

static void walk(struct ull_pool *pool, bool (*visit)(void *context, const struct ull_chunk_info *),
                 void *context)
{
    uint64_t place = 0;
    const struct ull__chunk *c;
    while (pool->plain && (c = ull__regions_next(pool, &place))) {
        if (!walk_chunks(pool, c, visit, context))
            return;
    }
    for (uint32_t r = ULL_HOME; r != (uint32_t)ULL_NONE && !pool->plain; r = pool->ranges[r].next) {
        if (!walk_chunks(pool, pool->ranges[r].chunks, visit, context))
            return;
    }
}

void ull_pool_walk(struct ull_pool *pool,
                   bool (*visit)(void *context, const struct ull_chunk_info *), void *context)
{
    if (ull__is_parents(pool))
        return;
    ull__lock(&pool->lock);
    ull__fronts_hold(pool);
    walk(pool, visit, context);
    ull__fronts_release(pool);
    ull__unlock(&pool->lock);
}

/* --- refusals ------------------------------------------------------------------------------------------- */

static bool add_holder(void *context, const struct ull_chunk_info *info)
{
    struct ull_refusal *refusal = context;
    if (info->state != ULL_CHUNK_IN_USE)
        return true;
    unsigned int at = refusal->holder_count;
    while (at > 0 && refusal->holders[at - 1].bytes < info->requested)
        at--;
    if (at == ULL_REFUSAL_HOLDERS)
        return true;
    if (refusal->holder_count < ULL_REFUSAL_HOLDERS)
        refusal->holder_count++;
    memmove(&refusal->holders[at + 1], &refusal->holders[at],
            (refusal->holder_count - 1 - at) * sizeof *refusal->holders);
    struct ull_holder *holder = &refusal->holders[at];
    *holder = (struct ull_holder){.address = info->address, .bytes = info->requested};
    if (info->tag)
        snprintf(holder->tag, sizeof holder->tag, "%s", info->tag);
    return true;
}

void ull__refusal_fill(struct ull_pool *pool, const struct ull_request *request,
                       const struct ull__shortage *shortage, struct ull_refusal *refusal)
{
    struct ull_stats s;
    ull__fronts_hold(pool);
    complete(pool, &s);
    *refusal = (struct ull_refusal){.wanted = request->bytes,
                                    .wanted_pages = shortage->needed << pool->page_shift,
                                    .limit = s.limit,
                                    .held = s.held,
                                    .in_use = s.in_use,
                                    .free = s.free,
                                    .free_pages = shortage->available << pool->page_shift,
                                    .left = shortage->left << pool->page_shift,
                                    .pending = s.pending,
                                    .largest_free = s.largest_free,
                                    .fragmentation = s.fragmentation,
                                    .device_full = shortage->device_full,
                                    .growth = pool->options.growth,
                                    .regions = pool->plain};
    if (shortage->needed >= UINT64_MAX >> pool->page_shift)
        refusal->wanted_pages = UINT64_MAX;
    walk(pool, add_holder, refusal);
    ull__fronts_release(pool);
}

/* Appends to text, which always ends with a 0 byte. */
__attribute__((format(printf, 4, 5))) static void append(char *text, size_t size, size_t *at,
                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = *at < size ? vsnprintf(text + *at, size - *at, format, args) : 0;
    va_end(args);
    *at += count > 0 ? (size_t)count : 0;
}

void ull_refusal_text(const struct ull_refusal *r, char *text, size_t size)
{
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT], c[ULL_SIZE_TEXT], d[ULL_SIZE_TEXT];
    size_t at = 0;
    append(text, size, &at, "pool: refused %s (%llu bytes): ", ull__size_text(r->wanted, a),
           (unsigned long long)r->wanted);
    if (r->regions)
        append(text, size, &at,
               "the device cannot put free pages side by side; largest free run %s, "
               "left under the limit for a new region %s",
               ull__size_text(r->largest_free, b), ull__size_text(r->left, c));
    else
        append(text, size, &at, "free pages %s + left under the limit %s",
               ull__size_text(r->free_pages, b), ull__size_text(r->left, c));
    append(text, size, &at, ". Limit %s (this pool only%s), held %s, in use %s",
           ull__size_text(r->limit, a), r->growth ? "" : ", growth off", ull__size_text(r->held, b),
           ull__size_text(r->in_use, c));
    append(text, size, &at, ", free %s (fragmentation %.2f), waiting for streams %s",
           ull__size_text(r->free, a), r->fragmentation, ull__size_text(r->pending, b));
    if (r->device_full)
        append(text, size, &at, ". The device has no more memory: somebody else holds it");
    else if (r->held > r->limit)
        append(text, size, &at, ". The limit was lowered below what is in use: free something first");
    else if (r->wanted > r->limit)
        append(text, size, &at, ". The request is larger than the limit: raise it to %s or more",
               ull__size_text(r->wanted_pages, d));
    else
        append(text, size, &at, ". Raise the limit, or free some of the largest:");
    for (unsigned int i = 0; i < r->holder_count; i++)
        append(text, size, &at, "\n  %10s at 0x%llx%s%s", ull__size_text(r->holders[i].bytes, a),
               (unsigned long long)r->holders[i].address, r->holders[i].tag[0] ? " " : "",
               r->holders[i].tag);
}
