/*
 * lane.h: orders in which freed memory may be used again (lane.c). With pool->lock held.
 */
#ifndef ULLAGE_POOL_LANE_H
#define ULLAGE_POOL_LANE_H

#include "pool_private.h"

struct ull__recorded {
    uint64_t seq;
    ull__event event;
    uint32_t waiters;
};

struct ull__lane {
    ull__stream stream;
    uint64_t graph; /* 0: a stream's lane */
    bool exists;
    bool over;     /* a graph's lane: it was released; a stream's: it was forgotten */
    bool implicit; /* graph_lane was made because the device said that the stream is captured */
    uint16_t graph_lane; /* of a stream's lane: where its requests go now, 0: to itself */
    uint64_t last_graph;
    uint64_t seq, passed; /* frees so far; of them, known to be over */
    uint64_t free_bytes;
    uint64_t live;                /* of a graph's lane: chunks in use */
    struct ull__recorded *events; /* oldest first */
    size_t event_count, event_capacity;
    struct ull__bins *bins[ULL_TIERS];
};

/* A stream that used a chunk besides the one it is freed on. */
struct ull__use {
    uint32_t next;
    uint16_t lane;
    uint64_t seq; /* while WAITING */
};

/* A lane for a stream, or for a graph's part on a stream; 0 if the host has no memory. */
uint16_t ull__lane_new(struct ull_pool *pool, ull__stream stream, uint64_t graph);
/* The lane of the stream itself if there is one, else 0. */
uint16_t ull__lane_known(struct ull_pool *pool, ull__stream stream);
/* The same, made if need be; 0 if the host has no memory. */
uint16_t ull__lane_of(struct ull_pool *pool, ull__stream stream);
/* The lane that requests on the stream belong to now: a graph's while it is captured. 0 as above. */
uint16_t ull__lane_find(struct ull_pool *pool, ull__stream stream, bool capturing);
static inline uint16_t ull__lane_now(struct ull_pool *pool, ull__stream stream, bool capturing)
{
    if (!capturing && pool->last_lane != ULL_CLEAN && pool->last_stream == stream)
        return pool->last_lane;
    return ull__lane_find(pool, stream, capturing);
}
/* A lane is another's, is over, or goes to a graph: what was found last does not count any more. */
static inline void ull__lanes_changed(struct ull_pool *pool)
{
    pool->last_lane = ULL_CLEAN;
}
/* May the two be one chunk? With one stream ever, what nothing waits for may wait for it. */
static inline bool ull__lanes_join(const struct ull_pool *pool, uint16_t a, uint16_t b)
{
    return a == b ||
           (!pool->crowded && (a == ULL_CLEAN || b == ULL_CLEAN) && pool->lanes[a | b].graph == 0);
}
/* Frees a chunk in use, which was taken out of the table, on the lane. */
void ull__lane_free(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane);
/* A free of this chunk will wait for the lane too. */
ull_status ull__lane_use(struct ull_pool *pool, struct ull__chunk *c, uint16_t lane);
/* Puts an event behind all frees of a stream's lane, unless there is one. */
ull_status ull__lane_record(struct ull_pool *pool, uint16_t lane);
/* Looks which events have passed; true if memory became free for more lanes. */
bool ull__lanes_poll(struct ull_pool *pool);
/* Puts events behind the frees of all lanes but this one that none covers yet, then looks. */
bool ull__lanes_want(struct ull_pool *pool, uint16_t lane);
/*
 * Lets the lane's stream wait for the events of all other lanes, by `wait`, and gives it what they cover. True if
 * that was anything.
 */
bool ull__lanes_follow(struct ull_pool *pool, uint16_t own,
                       bool (*wait)(void *context, ull__stream stream, ull__event event),
                       void *context);
/*
 * Waits, with the lock released meanwhile, for one pending event that would give memory to the lane.
 * False: there is none, or not in that time.
 */
bool ull__lanes_wait(struct ull_pool *pool, uint16_t lane, uint64_t timeout_ns);
/* Is all that was freed on the lane up to seq over? */
bool ull__lane_passed(const struct ull_pool *pool, uint16_t lane, uint64_t seq);
/* Lets go of a graph: what its lanes have free waits for `stream_lane` instead. */
ull_status ull__graph_release(struct ull_pool *pool, uint64_t graph, uint16_t stream_lane);
/* Waits for everything and frees the lanes. */
void ull__lanes_finish(struct ull_pool *pool);
/* Bytes that are free but not for every lane. */
uint64_t ull__lanes_pending(const struct ull_pool *pool);

#endif
