/*
 * pool_private.h: the parts of a pool, and what its files call of each other.
 *
 *   slot    one page of addresses. The pool sets a large piece of addresses aside once; slot i lies at
 *           base + i * page size.
 *   home    the first slots. Each page that the pool holds is mapped at exactly one home slot, and is
 *           named by it. Large requests are served from home as long as they fit there.
 *   view    further slots at which pages are mapped a second time, to lie side by side though
 *           they are apart at home. View 1 is that of all small requests; the others were made for one
 *           large request each and are used again when the same pages are free. One of these may
 *           begin in the free end of a page that is in use elsewhere (share.c).
 *   range   home or a view: slots that follow each other with different pages in them. Chunks do not
 *           cross ranges, so no chunk has a page twice.
 *   chunk   a piece of a range, in a list by address (boundary tags).
 *   region  on a device that cannot map pages: slots of home whose pages came together (regions.c).
 *   lane    an order in which memory is reused: a stream, a captured graph's part on a stream, or
 *           lane 0 for memory that nothing waits for.
 *
 * A page is free when its home slot lies within a free chunk. To use it through a view, it is lent: a
 * shadow at home, no shadow in the view. As soon as no chunk in the view touches it, it is given
 * back. So what is done at home costs nothing for the views, and a page is free at one place only. The end of a page
 * that is used elsewhere is lent in the same way, and given back to there.
 *
 * Why this comes to rest. A program that repeats the same requests finds home as it was, so each request
 * that fits at home gets the same place. One that did not fit made a view, of pages that are
 * free again now, and the oldest view of fitting size whose pages are free is exactly that one. So once a
 * repetition took no new pages from the device, the next ones map nothing.
 *
 *   front   what a stream has for itself while several threads share the pool (front.c, block.c).
 *
 * Locking: everything is under pool->lock, device calls too, except waits, and except fronts, each of which
 * has a lock of its own. A function that says nothing else is called with pool->lock held.
 */
#ifndef ULLAGE_POOL_PRIVATE_H
#define ULLAGE_POOL_PRIVATE_H

#include "bins.h"
#include "device.h"
#include "lock.h"
#include "table.h"
#include "ullage/pool.h"

/* Where a chunk lies; each has its bins. */
enum { ULL_HOME, ULL_SMALL, ULL_VIEW, ULL_TIERS };
enum { ULL_NONE = -1 }; /* as a uint32_t: no slot, no range */
enum { ULL_CLEAN = 0, ULL_MAX_LANES = 65535 };
enum {
    ULL_MEDIUM = 8
}; /* small requests above this part of a page also fill what large ones left over */

/* A slot: what is mapped there. */
struct ull__slot {
    uint32_t home;            /* the home slot of the page that is mapped here, or ULL_NONE */
    uint32_t next;            /* the next slot of the same page, in a ring */
    struct ull__chunk *cover; /* of the first whole slot of a chunk that is not in use: that chunk */
};

/* Ranges are in a list by address; 0 is home, 1 is the view of small requests. */
struct ull__range {
    uint32_t first, count; /* slots, holes among them */
    uint32_t prev, next;
    uint32_t newer, older; /* views for large requests, by when they last served one */
    struct ull__chunk *chunks;
};

/* The views for large requests by size, the older first. */
struct ull__view {
    uint32_t count, first; /* slots */
    uint32_t range;
    uint32_t busy; /* the place of a page that was in use when somebody looked last */
};

struct ull__region {
    uint32_t first, count; /* slots of home */
};

/* A bit a slot, with summaries, to find the last set one before a place in constant time. */
struct ull__slotset {
    uint64_t *level[4];
    unsigned int levels;
};

enum {
    ULL_LATENCY_BUCKETS = 40 * 8,
    ULL_SAMPLE = 128,
    ULL_REVIEW = 64 * ULL_SAMPLE,
    ULL_CRUMBS = 8192, /* free chunks; where there are more, no chunk becomes a crumb (count.c) */
    ULL_FRONTS = 16
};
enum { ULL_LINE = 64 };

/* How often this process is a forked child of one that had a pool (life.c). */
extern unsigned int ull__forks;

struct ull_pool {
    struct ull__lock lock;

    /* Read without the lock, so apart from what is written all the time. */
    _Alignas(ULL_LINE) unsigned int forks; /* ull__forks where it was made */
    struct ull__device *device;
    _Atomic unsigned int fronts_seen;               /* so many of `fronts` may be open */
    _Atomic(ull__stream) front_streams[ULL_FRONTS]; /* of each; changes under both locks */
    struct ull__front *fronts[ULL_FRONTS];

    _Alignas(ULL_LINE) unsigned int front_count;
    bool fronts_forced;           /* for tests: open them without contention */
    int64_t room, room_requested; /* of all fronts */
    struct ull_pool_options options;
    uint64_t total_pages;   /* of the device, as it said at the start */
    uint64_t limit_pages;   /* whole ones under the limit */
    uint64_t reserve_pages; /* whole ones over the reserve, but not above the limit */

    /* Addresses. */
    uint64_t base, page_bytes;
    unsigned int page_shift;
    bool plain; /* the device has regions: addresses are the pool's own, see ull__place */
    uint32_t slot_count;
    struct ull__slot *slots;
    uint32_t *range_of; /* by slot */
    struct ull__slotset covers;
    struct ull__range *ranges;
    uint32_t range_count, range_capacity, unused_range;
    uint32_t newest, oldest, cursor; /* cursor: the range behind which addresses were found last */
    struct ull__view *views;         /* room for range_capacity */
    uint32_t view_count;
    struct ull__chunk *holes; /* of home, linked by u.free */
    uint64_t mapped;          /* slots with a page */
    uint64_t lent;            /* chunks that are LENT */

    /* Pages. */
    uint32_t home_count;
    ull__page *names;    /* by home slot; of a device with regions, where the page is */
    uint64_t *free_bits; /* by home slot: the page is free */
    uint32_t *scratch;   /* home_count numbers */
    ull__page *name_scratch;
    uint64_t held, free_pages;
    uint32_t retained;  /* a free slot that the view of small requests has not given back */
    uint32_t small_end; /* behind the last slot of that view that ever had a page */
    uint64_t idle_low;  /* fewest free pages since somebody looked last, */
    uint64_t idle_past; /* and before that since idle_since */
    uint64_t idle_since;
    unsigned int idle_looks;
    bool spare_refused; /* the device had none to spare (search.c), and gave none that was needed since */

    /* Of a device with regions. */
    struct ull__region *regions;
    uint32_t region_count, region_capacity;
    uint64_t region_alignment; /* which all of them had so far, at most a page */

    /* Chunks. */
    struct ull__chunk *spare; /* linked by next */
    uint64_t chunk_count, chunk_capacity;
    struct ull__slab *slabs;
    struct ull__table live; /* but for those in the tables of fronts */

    /* Order. */
    struct ull__lane *lanes;
    ull__stream last_stream; /* whose requests go to */
    uint16_t last_lane;      /* that lane, its own, unless it is 0: see ull__lane_find */
    uint32_t lane_count, lane_capacity, streams;
    bool crowded; /* there was a second stream some time; from then on only like is joined with like */
    bool joining;   /* neighbours for a request (build.c): no pages are united with them */
    bool crumbless; /* so many chunks are free that all are sorted as they come */
    uint64_t last_graph;
    struct ull__use *uses;
    uint32_t use_count, use_capacity, unused_use;
    struct ull__chunk *waiting; /* linked by u.free.left */
    uint64_t waiting_bytes;

    /* Counting. */
    uint64_t clock; /* operations so far */
    struct ull_stats stats;
    unsigned __int128 in_use_sum; /* after each operation */
    uint64_t latency[ULL_LATENCY_BUCKETS];
};

/*
 * Is this a forked child of the pool's process? It has neither the pool's device nor, perhaps, the thread that
 * held the lock. Asked before the lock is taken.
 */
static inline bool ull__is_parents(const struct ull_pool *pool)
{
    return pool->forks != ull__forks;
}

/* --- arithmetic ---------------------------------------------------------------------------------- */

static inline uint32_t ull__slot_down(const struct ull_pool *pool, uint64_t address)
{
    return (uint32_t)((address - pool->base) >> pool->page_shift);
}

static inline uint32_t ull__slot_up(const struct ull_pool *pool, uint64_t address)
{
    return (uint32_t)((address - pool->base + pool->page_bytes - 1) >> pool->page_shift);
}

static inline uint64_t ull__slot_address(const struct ull_pool *pool, uint64_t slot)
{
    return pool->base + (slot << pool->page_shift);
}

/* Pages that `bytes` take; right for every number. */
static inline uint64_t ull__pages_for(const struct ull_pool *pool, uint64_t bytes)
{
    return (bytes >> pool->page_shift) + ((bytes & (pool->page_bytes - 1)) != 0);
}

/* Where the device has what the pool has at an address that has a page; and the reverse, 0 for none. */
uint64_t ull__regions_place(const struct ull_pool *pool, uint64_t address);
uint64_t ull__regions_at_place(const struct ull_pool *pool, uint64_t place);
static inline uint64_t ull__place(const struct ull_pool *pool, uint64_t address)
{
    return __builtin_expect(pool->plain, 0) ? ull__regions_place(pool, address) : address;
}
static inline uint64_t ull__at_place(const struct ull_pool *pool, uint64_t place)
{
    return __builtin_expect(pool->plain, 0) ? ull__regions_at_place(pool, place) : place;
}

/* --- slotset.c ------------------------------------------------------------------------------------ */

bool ull__slotset_init(struct ull__slotset *set, uint32_t count);
void ull__slotset_finish(struct ull__slotset *set);
void ull__slotset_add(struct ull__slotset *set, uint32_t slot);
void ull__slotset_remove(struct ull__slotset *set, uint32_t slot);
/* The last member at or before `slot`, or UINT32_MAX. */
uint32_t ull__slotset_last(const struct ull__slotset *set, uint32_t slot);
/* The first member in [slot, end), or end. */
uint32_t ull__slotset_next(const struct ull__slotset *set, uint32_t slot, uint32_t end);

/* --- table.c: chunks' memory; chunks in use by address are in table.h ---------------------------- */

/* Makes sure that `count` further chunks can be had without asking the host. */
bool ull__chunks_ensure(struct ull_pool *pool, uint64_t count);
static inline struct ull__chunk *ull__chunk_new(struct ull_pool *pool)
{
    struct ull__chunk *c = pool->spare;
    pool->spare = c->next;
    pool->chunk_count++;
    return c;
}
static inline void ull__chunk_drop(struct ull_pool *pool, struct ull__chunk *c)
{
    c->next = pool->spare;
    pool->spare = c;
    pool->chunk_count--;
}
void ull__chunks_finish(struct ull_pool *pool);

/* --- space.c: chunks among their neighbours, pages between home and views ------------------------ */

/* Puts a chunk into, and takes it out of, its lane's bins. */
void ull__free_insert(struct ull_pool *pool, struct ull__chunk *c);
void ull__free_remove(struct ull_pool *pool, struct ull__chunk *c);
/* The chunk, not in use, that covers a whole slot, or NULL. */
struct ull__chunk *ull__cover(const struct ull_pool *pool, uint32_t slot);
/* A shadow or hole can be found by its slots, or no longer. */
void ull__cover_add(struct ull_pool *pool, struct ull__chunk *c);
void ull__cover_remove(struct ull_pool *pool, const struct ull__chunk *c);
/* Cuts a chunk that is in no bins; the new, upper part is returned with the same state and lane. */
struct ull__chunk *ull__chunk_split(struct ull_pool *pool, struct ull__chunk *c, uint64_t address);
/* Makes two neighbours, in no bins, one; `c` stays, its next goes. */
void ull__chunk_join(struct ull_pool *pool, struct ull__chunk *c);
/* Cuts slots out of what covers them: one chunk, in no bins, covering nothing, SWEPT. */
struct ull__chunk *ull__isolate(struct ull_pool *pool, uint32_t slot, uint32_t count);
/*
 * Makes c, which is in no bins, free for lane behind seq, and joins it with its neighbours. Its slots
 * [known0, known1) were free before. Whole slots of a view that become free are given back home.
 */
void ull__make_free(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq,
                    uint32_t known0, uint32_t known1);
/* Cuts [address, address + size) out of a free chunk and makes it LIVE. */
struct ull__chunk *ull__take(struct ull_pool *pool, struct ull__chunk *c, uint64_t address,
                             uint64_t size);
/* Lends the pages of view slots, all free at home: a chunk in no bins, SWEPT. */
struct ull__chunk *ull__lend(struct ull_pool *pool, uint32_t slot, uint32_t count);
/* The view of small requests gives back the slot that it kept. */
void ull__retained_return(struct ull_pool *pool);
static inline bool ull__page_free(const struct ull_pool *pool, uint32_t home)
{
    return pool->free_bits[home / 64] >> (home % 64) & 1;
}

/* --- build.c: getting pages side by side --------------------------------------------------------- */

/* What a request needed and could have had, in pages. */
struct ull__shortage {
    uint64_t needed, available, left;
    bool device_full;
};

/*
 * A chunk, SWEPT and in no bins or FREE, that holds `size` bytes at the alignment for requests of the
 * lane: of a view whose pages are free, or of free pages and the missing new ones put side by side. All or
 * nothing. ULL_E_NO_MEMORY with the reason in *shortage.
 */
ull_status ull__build(struct ull_pool *pool, uint64_t size, uint64_t alignment, uint16_t lane,
                      struct ull__shortage *shortage, struct ull__chunk **chunk);
/* A page for small requests of the lane. */
ull_status ull__build_small(struct ull_pool *pool, uint16_t lane, struct ull__shortage *shortage,
                            struct ull__chunk **chunk);
/* Joins free chunks at home of the lane with neighbours that nobody waits for, if that suffices. */
struct ull__chunk *ull__coalesce(struct ull_pool *pool, uint64_t size, uint64_t alignment,
                                 uint16_t lane);
/* Of that only the first: a view whose pages are free for the lane, or NULL. */
struct ull__chunk *ull__use_view(struct ull_pool *pool, uint64_t pages, uint64_t alignment,
                                 uint16_t lane);
/*
 * Extends home for the request with at most that many new pages: a chunk, FREE; or NULL, and *refused is set if that was
 * the device.
 */
struct ull__chunk *ull__grow(struct ull_pool *pool, uint64_t size, uint16_t lane, uint64_t most,
                             bool *refused);
/* Are so many pages free for the lane? */
bool ull__pages_suffice(struct ull_pool *pool, uint16_t lane, uint64_t count);
/* Adds `count` new pages to home. */
ull_status ull__commit(struct ull_pool *pool, uint64_t count);
/* Host memory for cutting at every mapping. */
static inline bool ull__host_memory(struct ull_pool *pool, uint64_t further_mappings)
{
    /* A view may be cut at each of its slots and within the first, home at each of those; then some for the request. */
    uint64_t views = pool->mapped + further_mappings - pool->held;
    return pool->chunk_capacity - pool->chunk_count >= 4 * views + 16 ||
           ull__chunks_ensure(pool, 4 * views + 16);
}

/* Are the pages of so many slots of a view free, and for this lane? If not, *busy is the first that is not. */
bool ull__pages_usable(const struct ull_pool *pool, uint32_t first, uint32_t count, uint16_t lane,
                       uint32_t *busy);

/* --- share.c: requests that begin in a page that another one ends in ----------------------------- */

/* Of what a view is to be: perhaps the free end of a page, then whole pages. */
struct ull__plan {
    struct ull__chunk *end; /* a free chunk that begins with it, or NULL */
    uint64_t bytes, whole;
    uint32_t first; /* of a view that is there, or ULL_NONE */
};

/* A plan with an end, for a page less; false, and the plan is as it was: there is none. */
bool ull__share_find(struct ull_pool *pool, uint64_t size, uint16_t lane, struct ull__plan *plan);
/* Sets the end aside, so that nothing is joined with it; and the reverse. */
void ull__share_lend(struct ull_pool *pool, const struct ull__plan *plan);
void ull__share_undo(struct ull_pool *pool, const struct ull__plan *plan);
/* Lends the whole pages too. What is to be used, in a view that is a shadow: a chunk in no bins, SWEPT. */
struct ull__chunk *ull__share_use(struct ull_pool *pool, uint32_t first,
                                  const struct ull__plan *plan);
/* Gives back the end that a chunk of a view, about to be free, may begin with. What is left of the chunk. */
struct ull__chunk *ull__share_return(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane,
                                     uint64_t seq);

/* --- pages.c: pages, and where they are mapped --------------------------------------------------- */

/* Takes new pages from the device and maps them at home slots, which are a hole; all or none. */
ull_status ull__pages_create(struct ull_pool *pool, uint32_t slot, uint64_t count);
/* Maps pages, named by home slots, at slots of a view that have none. */
ull_status ull__view_map(struct ull_pool *pool, uint32_t slot, uint64_t count, const uint32_t *homes);
/* The reverse; a run without holes. */
void ull__view_unmap(struct ull_pool *pool, uint32_t slot, uint32_t count);
/* Gives back a run of home slots, whose pages are free, may go and are in no views. */
void ull__pages_release(struct ull_pool *pool, uint32_t first, uint32_t count);
/*
 * Gives back at most `count` free pages, never the reserve; returns how many. Of a device with regions
 * those that are free as a whole, and more than `count` rather than stay above the limit.
 */
uint64_t ull__pages_return(struct ull_pool *pool, uint64_t count);
/* Gives back what the watermark or a lowered limit asks for. Called now and then. */
void ull__idle(struct ull_pool *pool, uint64_t now);

/* --- regions.c: a device that cannot map pages -------------------------------------------------------- */

/* As ull__build, and for requests of any size: a chunk, FREE. */
ull_status ull__regions_build(struct ull_pool *pool, uint64_t size, uint64_t alignment,
                              struct ull__shortage *shortage, struct ull__chunk **chunk);
/* As ull__commit. */
ull_status ull__regions_commit(struct ull_pool *pool, uint64_t count);
/*
 * Gives back regions that are free as a whole, of at most `most` pages together, until no more than
 * `target` are held, and never so that fewer than `keep` are; returns how many pages.
 */
uint64_t ull__regions_return(struct ull_pool *pool, uint64_t most, uint64_t target, uint64_t keep);
/* The same until the limit is kept, and then has the reserve again. */
uint64_t ull__regions_within_limit(struct ull_pool *pool);
/* The first chunk of the region that lies next behind a place, which moves on to it; NULL: none. */
const struct ull__chunk *ull__regions_next(const struct ull_pool *pool, uint64_t *place);
void ull__regions_finish(struct ull_pool *pool);

/* Pages of regions that could go now. */
uint64_t ull__regions_idle(const struct ull_pool *pool);

/* --- watch.c ------------------------------------------------------------------------------------------ */

/* A pool is there, or ends. Without the lock. */
void ull__pool_tell(struct ull_pool *pool, bool made);

/* --- ranges.c --------------------------------------------------------------------------------------- */

/* Sets up addresses, slots, home and the view of small requests. */
ull_status ull__ranges_init(struct ull_pool *pool, struct ull_error *err);
void ull__ranges_finish(struct ull_pool *pool);
/* A view served a request. */
void ull__range_used(struct ull_pool *pool, uint32_t range);
/* First slot of unused addresses for `count` slots at the alignment, or ULL_NONE. */
uint32_t ull__addresses_find(struct ull_pool *pool, uint64_t count, uint64_t alignment);
/* The first of pool->views with at least so many slots, or view_count. */
uint32_t ull__views_from(const struct ull_pool *pool, uint64_t count);
/* A range, one hole, at addresses just found. ULL_NONE if the host has no memory. */
uint32_t ull__range_add(struct ull_pool *pool, uint32_t first, uint32_t count);
void ull__range_drop(struct ull_pool *pool, uint32_t range);
/* A chunk in no bins becomes a hole, joined with holes beside it. */
void ull__hole_make(struct ull_pool *pool, struct ull__chunk *c);
/* Slots of a hole, to be filled: a chunk, SWEPT. */
struct ull__chunk *ull__hole_fill(struct ull_pool *pool, uint32_t slot, uint32_t count);
/* Unmaps views that were not used for longest until `count` further mappings are within bounds. */
void ull__ranges_bound(struct ull_pool *pool, uint64_t count);
/* Unmaps the view that was not used for longest and can be; false if there is none. */
bool ull__range_evict(struct ull_pool *pool);
/* Lets go of unused slots at the ends of views that are in use; false if there are none. */
bool ull__ranges_shrink(struct ull_pool *pool);

/* --- count.c ---------------------------------------------------------------------------------------- */

uint64_t ull__now(const struct ull_pool *pool);
void ull__latency_count(uint64_t *buckets, uint64_t *max, uint64_t ns, uint64_t weight);
/* Adds up what all have in use, for a peak. */
void ull__count_peak(struct ull_pool *pool);
uint64_t ull__largest_free(const struct ull_pool *pool);
double ull__fragmentation(uint64_t free_bytes, uint64_t largest);
void ull__refusal_fill(struct ull_pool *pool, const struct ull_request *request,
                       const struct ull__shortage *shortage, struct ull_refusal *refusal);
/* What is done once in ULL_SAMPLE operations: events, idle pages. Returns the time. */
uint64_t ull__tick(struct ull_pool *pool);

/*
 * Begins an operation. Returns the time if it is one that is timed: one in ULL_SAMPLE, which stands for
 * as many, and those that do more than usual, which stand for themselves.
 */
static inline uint64_t ull__count_begin(struct ull_pool *pool)
{
    uint64_t phase = ++pool->clock % ULL_SAMPLE;
    if (phase == 0)
        return ull__tick(pool);
    return phase == ULL_SAMPLE / 2 ? ull__now(pool) : 0;
}

static inline void ull__count_end(struct ull_pool *pool, uint64_t began, bool slow)
{
    if (began)
        ull__latency_count(pool->latency, &pool->stats.latency_max_ns, ull__now(pool) - began,
                           slow || pool->clock % ULL_SAMPLE == 0 ? 1 : ULL_SAMPLE);
}

static inline void ull__count_allocation(struct ull_pool *pool, uint64_t bytes, uint64_t requested)
{
    struct ull_stats *s = &pool->stats;
    s->in_use += bytes;
    s->requested += requested;
    s->count++;
    s->allocations++;
    if (requested > s->largest)
        s->largest = requested;
    if ((int64_t)s->in_use + pool->room > (int64_t)s->peak_in_use ||
        (int64_t)s->requested + pool->room_requested > (int64_t)s->peak_requested)
        ull__count_peak(pool);
    pool->in_use_sum += (unsigned __int128)(int64_t)s->in_use;
}

static inline void ull__count_free(struct ull_pool *pool, uint64_t bytes, uint64_t requested)
{
    struct ull_stats *s = &pool->stats;
    s->in_use -= bytes;
    s->requested -= requested;
    s->count--;
    s->frees++;
    pool->in_use_sum += (unsigned __int128)(int64_t)s->in_use;
}

/* --- check.c: for tests ------------------------------------------------------------------------------ */

/* Is everything as it has to be? Else a line that says what is not. Takes the lock. */
bool ull__pool_check(struct ull_pool *pool, char *what, size_t size);

#endif
