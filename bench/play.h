/*
 * play.h: traces played over an allocator, and random sizes; for pool.c and beside/.
 *
 * A trace is packed into 8 bytes an event before, and those are fetched ahead: a program knows what it wants to have
 * without a list of 32 bytes an event, which took 15 ns of each operation at random sizes. What is live at the end of
 * a trace is freed.
 *
 * bench_play is compiled into its callers with what it calls, so that constants go in directly.
 */
#ifndef ULLAGE_BENCH_PLAY_H
#define ULLAGE_BENCH_PLAY_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "bench.h"
#include "json.h"
#include "trace.h"

enum {
    BENCH_ROUNDS = 9,
    BENCH_AHEAD_EVENTS = 64,
    BENCH_AHEAD_SLOTS = 8,
    BENCH_RANDOM_LIVE = 10000,
    BENCH_RANDOM_OPERATIONS = 1000000
};

struct bench_event {
    uint64_t size : 40, slot : 23, allocates : 1;
};

/* Apart from each other, since each counts in its own at every operation; processors fetch lines in pairs. */
struct bench_player {
    _Alignas(128) void *allocator;
    const struct trace *trace;
    struct bench_event *events; /* of the trace; then BENCH_AHEAD_EVENTS more that are not played */
    void **slots;
    void *stream;
    const void *user; /* the caller's */
    uint64_t failures, operations;
    uint64_t *latencies; /* NULL: not taken */
};

static inline uint64_t bench_cpu_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void bench_pack(struct bench_player *p, const struct trace *trace)
{
    p->trace = trace;
    p->slots = calloc(trace->slots ? trace->slots : 1, sizeof *p->slots);
    p->events = calloc(trace->count + BENCH_AHEAD_EVENTS, sizeof *p->events);
    if (!p->slots || !p->events)
        bench_die("trace", "no memory");
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *e = &trace->events[i];
        uint64_t size = e->size ? e->size : 1;
        p->events[i] = (struct bench_event){.size = size, .slot = e->slot, .allocates = e->allocates};
        if (p->events[i].size != size || p->events[i].slot != e->slot)
            bench_die("trace", "a size of 2^40 or more, or 2^23 live");
    }
}

static inline void bench_unpack(struct bench_player *p)
{
    free(p->slots);
    free(p->events);
}

/* --- playing ------------------------------------------------------------------------------------------ */

/* NULL: refused. */
typedef void *bench_allocate(const struct bench_player *p, uint64_t bytes);
/* NULL is fine. */
typedef void bench_free(const struct bench_player *p, void *address);

static inline __attribute__((always_inline)) void bench_play_one(struct bench_player *p,
                                                                 struct bench_event e,
                                                                 bench_allocate *allocate,
                                                                 bench_free *give)
{
    void **slot = &p->slots[e.slot];
    p->operations++;
    if (e.allocates) {
        if (!(*slot = allocate(p, e.size)))
            p->failures++;
    } else {
        give(p, *slot);
        *slot = NULL;
    }
}

static inline __attribute__((always_inline)) void
bench_play(struct bench_player *p, bool timed, bench_allocate *allocate, bench_free *give)
{
    for (size_t i = 0; i < p->trace->count; i++) {
        __builtin_prefetch(&p->events[i + BENCH_AHEAD_EVENTS]);
        __builtin_prefetch(&p->slots[p->events[i + BENCH_AHEAD_SLOTS].slot], 1);
        if (timed) {
            uint64_t before = bench_now_ns();
            bench_play_one(p, p->events[i], allocate, give);
            p->latencies[i] = bench_now_ns() - before;
        } else {
            bench_play_one(p, p->events[i], allocate, give);
        }
    }
    for (uint32_t i = 0; i < p->trace->slots; i++) {
        if (p->slots[i]) {
            p->operations++;
            give(p, p->slots[i]);
        }
        p->slots[i] = NULL;
    }
}

/* What plays a player's trace once, over its allocator. */
typedef void bench_player_fn(struct bench_player *p);

/* --- two threads -------------------------------------------------------------------------------------- */

struct bench_pair;

struct bench_thread {
    struct bench_pair *pair;
    struct bench_player *player;
    uint64_t from, to;       /* when */
    double ns, processor_ns; /* of all repeats, an operation */
};

struct bench_pair {
    struct bench_thread of[2];
    bench_player_fn *play;
    pthread_barrier_t barrier;
    unsigned int repeats;
};

enum { BENCH_ATTEMPTS = 20 };
#define BENCH_LEAST_OVERLAP 0.8

/* The share of the time in which both played. */
static inline double bench_overlap(const struct bench_pair *pair)
{
    const struct bench_thread *a = &pair->of[0], *b = &pair->of[1];
    uint64_t both_from = a->from > b->from ? a->from : b->from,
             both_to = a->to < b->to ? a->to : b->to;
    uint64_t from = a->from < b->from ? a->from : b->from, to = a->to > b->to ? a->to : b->to;
    return both_to > both_from && to > from ? (double)(both_to - both_from) / (double)(to - from) : 0;
}

/* On a processor of its own, where there are two: threads at real-time priority may else take turns on one. */
static inline void bench_settle(unsigned int number)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ == (int)number)
            CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static inline void *bench_play_often(void *context)
{
    struct bench_thread *t = context;
    struct bench_pair *pair = t->pair;
    bench_settle((unsigned int)(t - pair->of));
    pair->play(t->player);
    pair->play(t->player);
    for (int attempt = 0; attempt < BENCH_ATTEMPTS; attempt++) {
        pthread_barrier_wait(&pair->barrier);
        t->player->operations = 0;
        uint64_t cpu_from = bench_cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        t->from = bench_now_ns();
        for (unsigned int r = 0; r < pair->repeats; r++)
            pair->play(t->player);
        t->to = bench_now_ns();
        double operations = (double)t->player->operations;
        t->ns = (double)(t->to - t->from) / operations;
        t->processor_ns = (double)(bench_cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_from) / operations;
        pthread_barrier_wait(&pair->barrier);
        if (bench_overlap(pair) > BENCH_LEAST_OVERLAP)
            break;
    }
    return NULL;
}

/*
 * Two players at the same time, after two repetitions that are not counted: means of both, an operation. Who did not
 * play at the same time, since another program had one of the processors, plays again, 20 times at most; then it
 * says so.
 */
static inline void bench_two_threads(struct bench_player players[2], bench_player_fn *play,
                                     unsigned int repeats, double *ns, double *processor_ns)
{
    struct bench_pair pair = {.play = play, .repeats = repeats};
    pthread_t thread[2];
    pthread_barrier_init(&pair.barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        pair.of[i] = (struct bench_thread){.pair = &pair, .player = &players[i]};
        if (pthread_create(&thread[i], NULL, bench_play_often, &pair.of[i]) != 0)
            bench_die("threads", "cannot start one");
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&pair.barrier);
    if (bench_overlap(&pair) <= BENCH_LEAST_OVERLAP)
        fprintf(
            stderr,
            "bench: two threads did not play at the same time: another program has a processor\n");
    *ns = (pair.of[0].ns + pair.of[1].ns) / 2;
    *processor_ns = (pair.of[0].processor_ns + pair.of[1].processor_ns) / 2;
}

/* --- figures ------------------------------------------------------------------------------------------ */

static inline int bench_by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The time that reading the clock takes. */
static inline uint64_t bench_clock_cost(void)
{
    uint64_t cost[1001];
    for (int i = 0; i < 1001; i++) {
        uint64_t before = bench_now_ns();
        cost[i] = bench_now_ns() - before;
    }
    qsort(cost, 1001, sizeof *cost, bench_by_value);
    return cost[500];
}

static inline void bench_percentiles(struct ull_json *json, const char *key, uint64_t *ns,
                                     size_t count)
{
    qsort(ns, count, sizeof *ns, bench_by_value);
    ull__json_key(json, key);
    ull__json_object(json);
    ull__json_key(json, "p50");
    ull__json_u64(json, ns[count / 2]);
    ull__json_key(json, "p99");
    ull__json_u64(json, ns[count - 1 - count / 100]);
    ull__json_key(json, "p999");
    ull__json_u64(json, ns[count - 1 - count / 1000]);
    ull__json_key(json, "max");
    ull__json_u64(json, ns[count - 1]);
    ull__json_object_end(json);
}

/*
 * "latency_ns": those of each operation of the trace, its median over BENCH_ROUNDS repetitions, with the time of
 * reading the clock taken off; "latency_once_ns": of a single repetition. `play` takes latencies where asked to.
 */
static inline void bench_latencies(struct ull_json *json, struct bench_player *p,
                                   bench_player_fn *play)
{
    size_t count = p->trace->count;
    uint64_t cost = bench_clock_cost();
    uint64_t *all = malloc(BENCH_ROUNDS * count * sizeof *all),
             *typical = malloc(count * sizeof *typical);
    if (!all || !typical)
        bench_die("latencies", "no memory");
    for (size_t round = 0; round < BENCH_ROUNDS; round++) {
        p->latencies = all + round * count;
        play(p);
        for (size_t i = 0; i < count; i++)
            p->latencies[i] = p->latencies[i] > cost ? p->latencies[i] - cost : 0;
    }
    p->latencies = NULL;
    for (size_t i = 0; i < count; i++) {
        uint64_t of_one[BENCH_ROUNDS];
        for (size_t round = 0; round < BENCH_ROUNDS; round++)
            of_one[round] = all[round * count + i];
        qsort(of_one, BENCH_ROUNDS, sizeof *of_one, bench_by_value);
        typical[i] = of_one[BENCH_ROUNDS / 2];
    }
    bench_percentiles(json, "latency_ns", typical, count);
    bench_percentiles(json, "latency_once_ns", all, count);
    free(typical);
    free(all);
}

/* --- random sizes --------------------------------------------------------------------------------------- */

static inline uint64_t bench_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Sizes from 256 B to 64 MiB, as many between a power of two and the next as between any others. Free the events. */
static inline struct trace bench_random_trace(void)
{
    struct trace trace = {.slots = BENCH_RANDOM_LIVE};
    uint64_t *sizes = calloc(BENCH_RANDOM_LIVE, sizeof *sizes);
    uint64_t live = 0, state = 0x9e3779b97f4a7c15ull;
    trace.events = calloc(BENCH_RANDOM_OPERATIONS, sizeof *trace.events);
    if (!sizes || !trace.events)
        bench_die("random", "no memory");
    while (trace.count + 1 < BENCH_RANDOM_OPERATIONS) {
        uint32_t slot = (uint32_t)(bench_random(&state) % BENCH_RANDOM_LIVE);
        if (sizes[slot]) {
            trace.events[trace.count++] = (struct trace_event){.slot = slot};
            live -= sizes[slot];
        }
        uint64_t power = (uint64_t)256 << bench_random(&state) % 18;
        sizes[slot] = power + bench_random(&state) % power;
        live += sizes[slot];
        trace.events[trace.count++] =
            (struct trace_event){.size = sizes[slot], .slot = slot, .allocates = true};
        if (live > trace.peak_bytes)
            trace.peak_bytes = live;
    }
    free(sizes);
    return trace;
}

#endif
