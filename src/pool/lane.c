/*
 * lane.c: in which order freed memory may be used again.
 *
 * A free chunk belongs to a lane: that of the stream it was freed on, or lane 0 when nobody needs to wait
 * for it. Each free on a lane has a number, and a chunk bears the newest of those that it is made of.
 * No event is recorded for a free. Only when another stream, a trim or a mapping wants what a lane has
 * free is one recorded, behind all its frees so far; when it has passed, the lane's bins are swept and
 * what the event covers moves to lane 0.
 *
 * With one stream, memory of lane 0 and of the stream is joined freely, since nobody else asks. From
 * the second stream on only like is joined with like, so that a small free does not make its large
 * neighbour wait; that stays so if it ends, since what lies side by side then is not joined by anybody. But a
 * page of which a part waits for a stream and the rest for nobody waits for the stream as a whole: it would be no page
 * for anyone (ull__pages_unite). A program that loads its batches on a second stream held 1.054 of its peak
 * before that, and 1.015 since (played once).
 *
 * Memory that a second stream used (ull_pool_use_on) waits outside all bins. There the event is recorded
 * at the free: otherwise a program that runs ahead of the card would stack up blocks
 * (pytorch/pytorch#147168).
 *
 * A captured graph has lanes of its own, which never pass: the graph touches its memory at each launch.
 * Lanes are searched one by one; programs have a handful.
 */
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "pool_private.h"

/* --- lanes ------------------------------------------------------------------------------------------- */

static uint16_t unused_lane(struct ull_pool *pool)
{
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        if (!pool->lanes[i].exists)
            return (uint16_t)i;
    }
    if (pool->lane_count == ULL_MAX_LANES)
        return 0;
    if (pool->lane_count == pool->lane_capacity) {
        uint32_t capacity = pool->lane_capacity ? pool->lane_capacity * 2 : 4;
        struct ull__lane *lanes = realloc(pool->lanes, capacity * sizeof *lanes);
        if (!lanes)
            return 0;
        memset(lanes + pool->lane_capacity, 0, (capacity - pool->lane_capacity) * sizeof *lanes);
        pool->lanes = lanes;
        pool->lane_capacity = capacity;
    }
    return (uint16_t)pool->lane_count;
}

uint16_t ull__lane_new(struct ull_pool *pool, ull__stream stream, uint64_t graph)
{
    uint16_t index = unused_lane(pool);
    if (index == 0 && (pool->lane_count != 0 || !pool->lanes))
        return 0;
    struct ull__lane *lane = &pool->lanes[index];
    for (int tier = 0; tier < ULL_TIERS; tier++) {
        if (!lane->bins[tier] && !(lane->bins[tier] = calloc(1, sizeof(struct ull__bins))))
            return 0;
        /* Chunks of whole pages are asked for in the order of sizes (build.c), which a heap and a list do not know. */
        unsigned int page = ull__bin_of(pool->page_bytes);
        lane->bins[tier]->heaps = page < ULL_STEPS ? page : ULL_STEPS;
        ull__crumbs_below(lane->bins[tier], pool->crumbless ? 1 : page);
    }
    /* Numbers go on where the last user of this place stopped: old chunks may still bear them. */
    lane->stream = stream;
    lane->graph = graph;
    lane->exists = true;
    lane->over = lane->implicit = false;
    lane->graph_lane = 0;
    lane->last_graph = 0;
    lane->live = 0;
    if (index == pool->lane_count)
        pool->lane_count++;
    if (index != ULL_CLEAN && graph == 0)
        pool->crowded |= ++pool->streams > 1;
    return index;
}

static bool is_stream(const struct ull__lane *lane)
{
    return lane->exists && lane->graph == 0;
}

uint16_t ull__lane_known(struct ull_pool *pool, ull__stream stream)
{
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        const struct ull__lane *lane = &pool->lanes[i];
        if (lane->stream == stream && is_stream(lane) && !lane->over)
            return (uint16_t)i;
    }
    return 0;
}

uint16_t ull__lane_of(struct ull_pool *pool, ull__stream stream)
{
    uint16_t known = ull__lane_known(pool, stream);
    return known ? known : ull__lane_new(pool, stream, 0);
}

uint16_t ull__lane_find(struct ull_pool *pool, ull__stream stream, bool capturing)
{
    uint16_t index = ull__lane_of(pool, stream);
    struct ull__lane *lane = &pool->lanes[index];
    if (index != 0 && !capturing && lane->graph_lane == 0) {
        pool->last_stream = stream;
        pool->last_lane = index;
    }
    if (index == 0 || (!capturing && lane->graph_lane == 0))
        return index;
    ull__lanes_changed(pool);
    if (lane->graph_lane && (capturing || !lane->implicit))
        return lane->graph_lane;
    if (lane->graph_lane) { /* a capture without a begin has ended */
        lane->graph_lane = 0;
        lane->implicit = false;
        return index;
    }
    uint16_t graph_lane = ull__lane_new(pool, stream, pool->last_graph + 1);
    if (graph_lane == 0)
        return 0;
    lane = &pool->lanes[index];
    lane->graph_lane = graph_lane;
    lane->implicit = true;
    lane->last_graph = ++pool->last_graph;
    return graph_lane;
}

/* Also of memory that is in use, where seq is not read. Marks that are unused do not mind. */
static void relabel_uses(struct ull_pool *pool, uint16_t from, uint16_t to, uint64_t seq)
{
    for (uint32_t use = 1; use < pool->use_count; use++) {
        if (pool->uses[use].lane == from) {
            pool->uses[use].lane = to;
            pool->uses[use].seq = seq;
        }
    }
}

/* A lane that is over and has nothing left is for others to use. */
static void reuse_if_empty(struct ull_pool *pool, uint16_t index)
{
    struct ull__lane *lane = &pool->lanes[index];
    if (!lane->exists || !lane->over || lane->live || lane->free_bytes || lane->event_count ||
        (lane->graph == 0 && lane->passed < lane->seq))
        return;
    for (const struct ull__chunk *c = pool->waiting; c; c = c->u.free.left) {
        if (c->lane == index)
            return;
        for (uint32_t use = c->uses; use; use = pool->uses[use].next) {
            if (pool->uses[use].lane == index)
                return;
        }
    }
    lane->passed = lane->seq;
    lane->exists = false;
    ull__lanes_changed(pool);
    if (lane->graph == 0)
        pool->streams--;
    relabel_uses(pool, index, ULL_CLEAN, 0); /* of memory in use; nothing is left to wait for */
}

bool ull__lane_passed(const struct ull_pool *pool, uint16_t lane, uint64_t seq)
{
    return lane == ULL_CLEAN || pool->lanes[lane].passed >= seq;
}

uint64_t ull__lanes_pending(const struct ull_pool *pool)
{
    uint64_t bytes = pool->waiting_bytes;
    for (uint32_t i = 1; i < pool->lane_count; i++)
        bytes += pool->lanes[i].free_bytes;
    return bytes;
}

/* --- freeing ------------------------------------------------------------------------------------------ */

static void free_behind(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane, uint64_t seq)
{
    if (ull__lane_passed(pool, lane, seq))
        ull__make_free(pool, c, ULL_CLEAN, 0, 0, 0);
    else
        ull__make_free(pool, c, lane, seq, 0, 0);
}

ull_status ull__lane_use(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane)
{
    for (uint32_t use = c->uses; use; use = pool->uses[use].next) {
        if (pool->uses[use].lane == lane)
            return ULL_OK;
    }
    uint32_t at = pool->unused_use;
    if (at) {
        pool->unused_use = pool->uses[at].next;
    } else {
        if (pool->use_count == pool->use_capacity) {
            uint32_t capacity = pool->use_capacity ? pool->use_capacity * 2 : 64;
            struct ull__use *uses = realloc(pool->uses, capacity * sizeof *uses);
            if (!uses)
                return ULL_E_NO_MEMORY;
            pool->uses = uses;
            pool->use_capacity = capacity;
            if (pool->use_count == 0)
                pool->use_count = 1; /* 0 means none */
        }
        at = pool->use_count++;
    }
    pool->uses[at] = (struct ull__use){.next = c->uses, .lane = lane};
    c->uses = at;
    return ULL_OK;
}

static void drop_uses(struct ull_pool *pool, struct ull__chunk *c)
{
    while (c->uses) {
        struct ull__use *use = &pool->uses[c->uses];
        uint32_t next = use->next;
        use->next = pool->unused_use;
        pool->unused_use = c->uses;
        c->uses = next;
    }
}

static bool uses_passed(const struct ull_pool *pool, const struct ull__chunk *c)
{
    for (uint32_t use = c->uses; use; use = pool->uses[use].next) {
        if (!ull__lane_passed(pool, pool->uses[use].lane, pool->uses[use].seq))
            return false;
    }
    return true;
}

/* Says what a free of the chunk has to wait for: all that the streams which used it have now. */
static void mark_uses(struct ull_pool *pool, const struct ull__chunk *c)
{
    for (uint32_t use = c->uses; use; use = pool->uses[use].next) {
        struct ull__use *u = &pool->uses[use];
        struct ull__lane *lane = &pool->lanes[u->lane];
        if (u->lane == ULL_CLEAN)
            continue;
        /* A stream that was forgotten has its last event behind all that it ever had. */
        u->seq = lane->over ? lane->seq : ++lane->seq;
        ull__lane_record(pool, u->lane); /* if it fails, a later want tries again */
    }
}

void ull__lane_free(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane)
{
    uint16_t owner = c->lane;
    if (owner && !pool->lanes[owner].over)
        lane = owner; /* the graph will touch it again, wherever it was freed */
    if (owner)
        pool->lanes[owner].live--;
    c->lane = lane;
    c->seq = ++pool->lanes[lane].seq;
    mark_uses(pool, c);
    if (uses_passed(pool, c)) {
        drop_uses(pool, c);
        ull__make_free(pool, c, lane, c->seq, 0, 0);
    } else {
        c->state = ULL_WAITING;
        c->u.free.left = pool->waiting;
        pool->waiting = c;
        pool->waiting_bytes += c->size;
    }
    if (owner && pool->lanes[owner].over)
        reuse_if_empty(pool, owner);
}

/* --- events ------------------------------------------------------------------------------------------- */

ull_status ull__lane_record(struct ull_pool *pool, uint16_t index)
{
    struct ull__lane *lane = &pool->lanes[index];
    uint64_t covered = lane->event_count ? lane->events[lane->event_count - 1].seq : lane->passed;
    if (!is_stream(lane) || lane->over || covered >= lane->seq)
        return ULL_OK;
    if (lane->event_count == lane->event_capacity) {
        size_t capacity = lane->event_capacity ? lane->event_capacity * 2 : 8;
        struct ull__recorded *events = realloc(lane->events, capacity * sizeof *events);
        if (!events)
            return ULL_E_NO_MEMORY;
        lane->events = events;
        lane->event_capacity = capacity;
    }
    ull__event event;
    ull_status status = pool->device->ops->record(pool->device, lane->stream, &event);
    if (status == ULL_OK)
        lane->events[lane->event_count++] = (struct ull__recorded){.seq = lane->seq, .event = event};
    return status;
}

/* What has passed leaves its bin and goes onto *ready, linked by u.free.right. */
static void sweep_bin(struct ull_pool *pool, struct ull__bins *bins, unsigned int bin,
                      uint64_t passed, struct ull__chunk **ready)
{
    struct ull__chunk *c, *rest = ull__bin_take_all(bins, bin);
    while (rest) {
        c = rest;
        rest = c->u.free.right;
        ull__bins_insert(bins, c);
        if (c->seq <= passed) {
            ull__free_remove(pool, c);
            c->state = ULL_SWEPT;
            c->u.free.right = *ready;
            *ready = c;
        }
    }
}

/* Gives what the lane has passed to everybody. */
static bool sweep(struct ull_pool *pool, uint16_t index, uint16_t to, uint64_t to_seq, uint64_t passed)
{
    struct ull__chunk *ready = NULL;
    ull__retained_return(pool); /* so that no slot is free as a whole while its chunk is on its way */
    for (int tier = 0; tier < ULL_TIERS; tier++) {
        struct ull__bins *bins = pool->lanes[index].bins[tier];
        for (unsigned int bin = ull__bins_next(bins, 0); bin < ULL_BINS;
             bin = ull__bins_next(bins, bin + 1))
            sweep_bin(pool, bins, bin, passed, &ready);
    }
    bool any = ready != NULL;
    while (ready) {
        struct ull__chunk *c = ready;
        ready = c->u.free.right;
        uint32_t known0 = ull__slot_up(pool, c->address);
        uint32_t known1 = ull__slot_down(pool, c->address + c->size);
        ull__make_free(pool, c, to, to_seq, known0, known1);
    }
    return any;
}

static bool poll_events(struct ull_pool *pool, struct ull__lane *lane)
{
    const struct ull__device_ops *ops = pool->device->ops;
    size_t passed = 0, gone = 0;
    while (passed < lane->event_count && ops->done(pool->device, lane->events[passed].event))
        lane->passed = lane->events[passed++].seq;
    while (gone < passed && lane->events[gone].waiters == 0)
        ops->forget(pool->device, lane->events[gone++].event);
    memmove(lane->events, lane->events + gone, (lane->event_count - gone) * sizeof *lane->events);
    lane->event_count -= gone;
    return passed > 0;
}

static bool poll_waiting(struct ull_pool *pool)
{
    bool any = false;
    for (struct ull__chunk **at = &pool->waiting; *at;) {
        struct ull__chunk *c = *at;
        if (!uses_passed(pool, c)) {
            at = &c->u.free.left;
            continue;
        }
        *at = c->u.free.left;
        pool->waiting_bytes -= c->size;
        drop_uses(pool, c);
        free_behind(pool, c, c->lane, c->seq);
        any = true;
    }
    return any;
}

bool ull__lanes_poll(struct ull_pool *pool)
{
    bool any = false, passed = false;
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        struct ull__lane *lane = &pool->lanes[i];
        if (lane->event_count == 0 || !poll_events(pool, lane))
            continue;
        passed = true;
        if (lane->free_bytes)
            any |= sweep(pool, (uint16_t)i, ULL_CLEAN, 0, lane->passed);
    }
    if (passed && pool->waiting)
        any |= poll_waiting(pool);
    for (uint32_t i = 1; i < pool->lane_count && passed; i++)
        reuse_if_empty(pool, (uint16_t)i);
    return any;
}

bool ull__lanes_want(struct ull_pool *pool, uint16_t lane)
{
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        if ((i != lane && pool->lanes[i].free_bytes) || pool->waiting)
            ull__lane_record(pool, (uint16_t)i);
    }
    return ull__lanes_poll(pool);
}

bool ull__lanes_wait(struct ull_pool *pool, uint16_t lane, uint64_t timeout_ns)
{
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        struct ull__lane *l = &pool->lanes[i];
        if (l->event_count == 0 || !((i != lane && l->free_bytes) || pool->waiting))
            continue;
        ull__event event = l->events[0].event;
        l->events[0].waiters++;
        pool->stats.waits++;
        ull__unlock(&pool->lock);
        bool reached = pool->device->ops->wait(pool->device, event, timeout_ns);
        ull__lock(&pool->lock);
        l = &pool->lanes[i];
        for (size_t k = 0; k < l->event_count; k++) {
            if (l->events[k].event == event)
                l->events[k].waiters--;
        }
        ull__lanes_poll(pool);
        return reached;
    }
    return false;
}

bool ull__lanes_follow(struct ull_pool *pool, uint16_t own,
                       bool (*wait)(void *context, ull__stream stream, ull__event event),
                       void *context)
{
    bool any = false;
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        const struct ull__lane *lane = &pool->lanes[i];
        if (i == own || !is_stream(lane) || lane->free_bytes == 0 || lane->event_count == 0)
            continue;
        struct ull__recorded last = lane->events[lane->event_count - 1];
        if (wait(context, pool->lanes[own].stream, last.event))
            any |= sweep(pool, (uint16_t)i, own, ++pool->lanes[own].seq, last.seq);
    }
    return any;
}

/* --- graphs and the end ------------------------------------------------------------------------------- */

/* Addresses in views that the graph may touch still, though their pages are used elsewhere. */
static void relabel_shadows(struct ull_pool *pool, uint16_t from, uint16_t to, uint64_t seq)
{
    for (uint32_t r = ULL_HOME; r != (uint32_t)ULL_NONE; r = pool->ranges[r].next) {
        for (struct ull__chunk *c = pool->ranges[r].chunks; c; c = c->next) {
            if (c->state == ULL_SHADOW && c->lane == from) {
                c->lane = to;
                c->seq = seq;
            }
        }
    }
}

ull_status ull__graph_release(struct ull_pool *pool, uint64_t graph, uint16_t stream_lane)
{
    bool found = false;
    ull__retained_return(pool); /* before shadows are looked at: it may leave one for the graph */
    for (uint32_t i = 1; i < pool->lane_count; i++) {
        struct ull__lane *lane = &pool->lanes[i];
        if (!lane->exists || lane->graph != graph || lane->over)
            continue;
        found = lane->over = true;
        ull__lanes_changed(pool);
        for (uint32_t s = 1; s < pool->lane_count; s++) {
            if (pool->lanes[s].graph_lane == i)
                pool->lanes[s].graph_lane = 0;
        }
        uint64_t seq = ++pool->lanes[stream_lane].seq;
        for (struct ull__chunk *c = pool->waiting; c; c = c->u.free.left) {
            if (c->lane == i) {
                c->lane = stream_lane;
                c->seq = seq;
            }
        }
        relabel_uses(pool, (uint16_t)i, stream_lane, seq);
        relabel_shadows(pool, (uint16_t)i, stream_lane, seq);
        sweep(pool, (uint16_t)i, stream_lane, seq, UINT64_MAX);
        reuse_if_empty(pool, (uint16_t)i);
    }
    return found ? ULL_OK : ULL_E_NOT_FOUND;
}

void ull__lanes_finish(struct ull_pool *pool)
{
    for (uint32_t i = 0; i < pool->lane_count; i++) {
        struct ull__lane *lane = &pool->lanes[i];
        for (size_t k = 0; k < lane->event_count; k++) {
            pool->device->ops->wait(pool->device, lane->events[k].event, UINT64_MAX);
            pool->device->ops->forget(pool->device, lane->events[k].event);
        }
        if (is_stream(lane) && i != ULL_CLEAN && !lane->over)
            pool->device->ops->synchronize(pool->device, lane->stream);
    }
    for (uint32_t i = 0; i < pool->lane_capacity; i++) {
        free(pool->lanes[i].events);
        for (int tier = 0; tier < ULL_TIERS; tier++)
            ull__bins_free(pool->lanes[i].bins[tier]);
    }
    free(pool->lanes);
    free(pool->uses);
}
