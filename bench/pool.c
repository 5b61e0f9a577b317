/*
 * pool.c: speed and space of the pool on recorded traces and on random sizes, as JSON.
 *
 *   bench_pool [--repeat N] [--memory BYTES] [--no-random] [--no-threads] TRACE.csv.gz...
 *
 * bench/pool.py runs it and says which commit and machine it was. The device is the host's, whose pages are never
 * touched, so the times are the pool's own. Each trace is played N times over one pool (20 by default); what
 * is still live at its end is freed. It is packed into 8 bytes an event before, and those are fetched ahead: a program
 * knows what it wants to have without a list of 32 bytes an event, which took 15 ns of each operation at random sizes.
 *
 * "ns_per_operation" is processor time, the median over the repetitions from the third on, and "own_ns" what
 * of it this program itself takes: the same loop around two calls that do nothing. Latencies are those of each
 * operation of the trace, its median over 9 further repetitions, with the time of reading the clock taken off:
 * what the pool does comes again each time, an interrupt or another program's turn does not.
 * "latency_once_ns" is from a single repetition, with all that. "failures_at_1.02" plays it with a limit of
 * 1.02 times the peak requested. "two_threads" has two threads play the trace at the same time over one pool, each on
 * a stream of its own, in 9 rounds: wall time an operation of a thread, and the speed against one thread
 * alone. It needs two processors that are idle; the best round says what the pool can do, and
 * "processor_ns" what an operation cost, waiting in the lock included (but not asleep), whoever else was running. The pool
 * grows; in "two_threads_reserved" it has 80 GiB from the start, so neither ever lacks pages.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "device.h"
#include "json.h"
#include "trace.h"
#include "ullage/pool.h"

enum { MOST_REPEATS = 1000, RANDOM_LIVE = 10000, RANDOM_OPERATIONS = 1000000, ROUNDS = 9 };

#define RESERVE ((uint64_t)80 << 30)

static bool threads = true;
static const uint64_t device_bytes = (uint64_t)96 << 30;

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- playing ------------------------------------------------------------------------------------------ */

struct event {
    uint64_t size : 40, slot : 23, allocates : 1;
};

enum { AHEAD_EVENTS = 64, AHEAD_SLOTS = 8 };

/* Apart from each other, since each counts in its own at every operation; processors fetch lines in pairs. */
struct player {
    _Alignas(128) struct ull_pool *pool; /* NULL: calls that do nothing instead */
    const struct trace *trace;
    struct event *events; /* of the trace; then AHEAD_EVENTS more that are not played */
    void **slots;
    void *stream;
    uint64_t failures, operations;
    uint64_t *latencies; /* NULL: not taken */
    unsigned int repeats;
    double ns, cpu_ns; /* of all repeats, an operation */
    pthread_barrier_t *start;
};

static void pack(struct player *p, const struct trace *trace)
{
    p->trace = trace;
    p->slots = calloc(trace->slots ? trace->slots : 1, sizeof *p->slots);
    p->events = calloc(trace->count + AHEAD_EVENTS, sizeof *p->events);
    if (!p->slots || !p->events)
        bench_die("trace", "no memory");
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *e = &trace->events[i];
        uint64_t size = e->size ? e->size : 1;
        p->events[i] = (struct event){.size = size, .slot = e->slot, .allocates = e->allocates};
        if (p->events[i].size != size || p->events[i].slot != e->slot)
            bench_die("trace", "a size of 2^40 or more, or 2^23 live");
    }
}

static void unpack(struct player *p)
{
    free(p->slots);
    free(p->events);
}

__attribute__((noinline)) static ull_status nothing(const struct ull_pool *pool, uint64_t bytes,
                                                    const void *stream, void **address)
{
    __asm__ volatile("" : : "r"(pool), "r"(bytes), "r"(stream), "r"(address) : "memory");
    return ULL_OK;
}

static inline __attribute__((always_inline)) void one(struct player *p, struct event e, bool idle)
{
    void **slot = &p->slots[e.slot];
    p->operations++;
    if (e.allocates) {
        if ((idle ? nothing(p->pool, e.size, p->stream, slot)
                  : ull_pool_allocate(p->pool, e.size, p->stream, slot)) != ULL_OK) {
            *slot = NULL;
            p->failures++;
        }
    } else {
        if ((idle ? nothing(p->pool, 0, p->stream, slot)
                  : ull_pool_free(p->pool, *slot, p->stream)) != ULL_OK)
            bench_die("free", "refused");
        *slot = NULL;
    }
}

static inline __attribute__((always_inline)) void play_as(struct player *p, bool timed, bool idle)
{
    for (size_t i = 0; i < p->trace->count; i++) {
        __builtin_prefetch(&p->events[i + AHEAD_EVENTS]);
        __builtin_prefetch(&p->slots[p->events[i + AHEAD_SLOTS].slot], 1);
        if (timed) {
            uint64_t before = bench_now_ns();
            one(p, p->events[i], idle);
            p->latencies[i] = bench_now_ns() - before;
        } else {
            one(p, p->events[i], idle);
        }
    }
    for (uint32_t i = 0; i < p->trace->slots; i++) {
        if (p->slots[i]) {
            p->operations++;
            ull_pool_free(p->pool, p->slots[i], p->stream);
        }
        p->slots[i] = NULL;
    }
}

static void play(struct player *p)
{
    if (!p->pool)
        play_as(p, false, true);
    else if (p->latencies)
        play_as(p, true, false);
    else
        play_as(p, false, false);
}

static struct ull_stats stats_of(struct ull_pool *pool)
{
    struct ull_stats s = {.size = sizeof s};
    ull_pool_stats(pool, &s);
    return s;
}

/* With a reserve all of it is taken at the start, and the pool does not grow. */
static struct ull_pool *new_pool(struct ull__device *device, uint64_t limit, uint64_t reserve)
{
    struct ull_pool_options options;
    struct ull_pool *pool;
    struct ull_error error;
    ull_pool_options_init(&options);
    options.limit = limit;
    options.reserve = reserve;
    options.growth = reserve == 0;
    if (ull_pool_create(device, &options, &pool, &error) != ULL_OK)
        bench_die("pool", error.message);
    return pool;
}

/* --- one trace ------------------------------------------------------------------------------------------ */

/* The time that reading the clock takes. */
static uint64_t clock_cost(void)
{
    uint64_t cost[1001];
    for (int i = 0; i < 1001; i++) {
        uint64_t before = bench_now_ns();
        cost[i] = bench_now_ns() - before;
    }
    qsort(cost, 1001, sizeof *cost, bench_by_value);
    return cost[500];
}

static void percentiles(struct ull_json *json, const char *key, uint64_t *ns, size_t count)
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

static void latencies(struct ull_json *json, struct player *p)
{
    size_t count = p->trace->count;
    uint64_t cost = clock_cost();
    uint64_t *all = malloc(ROUNDS * count * sizeof *all), *typical = malloc(count * sizeof *typical);
    if (!all || !typical)
        bench_die("latencies", "no memory");
    for (size_t round = 0; round < ROUNDS; round++) {
        p->latencies = all + round * count;
        play(p);
        for (size_t i = 0; i < count; i++)
            p->latencies[i] = p->latencies[i] > cost ? p->latencies[i] - cost : 0;
    }
    p->latencies = NULL;
    for (size_t i = 0; i < count; i++) {
        uint64_t of_one[ROUNDS];
        for (size_t round = 0; round < ROUNDS; round++)
            of_one[round] = all[round * count + i];
        qsort(of_one, ROUNDS, sizeof *of_one, bench_by_value);
        typical[i] = of_one[ROUNDS / 2];
    }
    percentiles(json, "latency_ns", typical, count);
    percentiles(json, "latency_once_ns", all, count);
    free(typical);
    free(all);
}

/* Plays it over and over; ns an operation, and which repetition mapped last. */
static double repeat(struct player *p, unsigned int repeats, unsigned int *last_mapping)
{
    static uint64_t times[MOST_REPEATS];
    uint64_t operations = 0;
    *last_mapping = 0;
    for (unsigned int r = 0; r < repeats; r++) {
        struct ull_stats before = stats_of(p->pool);
        uint64_t from = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
        p->operations = 0;
        play(p);
        times[r] = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - from;
        operations = p->operations;
        struct ull_stats after = stats_of(p->pool);
        if (after.maps != before.maps || after.unmaps != before.unmaps)
            *last_mapping = r + 1;
        if (getenv("BENCH_POOL_VERBOSE"))
            fprintf(stderr, "  %u: %.1f ns, maps %llu unmaps %llu held %.3f mapped %.3f\n", r + 1,
                    (double)times[r] / (double)operations,
                    (unsigned long long)(after.maps - before.maps),
                    (unsigned long long)(after.unmaps - before.unmaps), (double)after.held / 1e9,
                    (double)after.mapped / 1e9);
    }
    unsigned int from = repeats > 3 ? 2 : 0;
    qsort(times + from, repeats - from, sizeof *times, bench_by_value);
    return (double)times[from + (repeats - from) / 2] / (double)operations;
}

/* The same with calls that do nothing, the fastest of some. */
static double own_ns(struct player *p)
{
    struct ull_pool *pool = p->pool;
    double least = 0;
    p->pool = NULL;
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t from = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
        play(p);
        double ns = (double)(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - from) / (double)p->trace->count;
        least = r == 0 || ns < least ? ns : least;
    }
    p->pool = pool;
    return least;
}

static void *play_often(void *context)
{
    struct player *p = context;
    play(p);
    play(p);
    pthread_barrier_wait(p->start);
    p->operations = 0;
    uint64_t from = bench_now_ns(), cpu_from = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned int r = 0; r < p->repeats; r++)
        play(p);
    p->ns = (double)(bench_now_ns() - from) / (double)p->operations;
    p->cpu_ns = (double)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_from) / (double)p->operations;
    return NULL;
}

/* One round: wall and processor time an operation, means of both threads. */
static void play_by_two(struct ull__device *device, const struct trace *trace, unsigned int repeats,
                        uint64_t reserve, double *ns, double *processor)
{
    struct ull_pool *pool = new_pool(device, 0, reserve);
    struct player p[2];
    pthread_t thread[2];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 2);
    for (int i = 0; i < 2; i++) {
        p[i] = (struct player){.pool = pool, .repeats = repeats, .start = &start};
        pack(&p[i], trace);
        if (device->ops->stream_create(device, &p[i].stream) != ULL_OK)
            bench_die("threads", "no memory");
        if (pthread_create(&thread[i], NULL, play_often, &p[i]) != 0)
            bench_die("threads", "cannot start one");
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        unpack(&p[i]);
    }
    pthread_barrier_destroy(&start);
    ull_pool_destroy(pool);
    for (int i = 0; i < 2; i++)
        device->ops->stream_destroy(device, p[i].stream);
    *ns = (p[0].ns + p[1].ns) / 2;
    *processor = (p[0].cpu_ns + p[1].cpu_ns) / 2;
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* alone: ns an operation of one thread. */
static void two_threads(struct ull_json *json, const char *key, struct ull__device *device,
                        const struct trace *trace, unsigned int repeats, uint64_t reserve,
                        double alone)
{
    double ns[ROUNDS], processor[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        play_by_two(device, trace, repeats, reserve, &ns[i], &processor[i]);
    qsort(ns, ROUNDS, sizeof *ns, by_number);
    qsort(processor, ROUNDS, sizeof *processor, by_number);
    ull__json_key(json, key);
    ull__json_object(json);
    ull__json_key(json, "ns_per_operation");
    ull__json_number(json, ns[ROUNDS / 2]);
    ull__json_key(json, "speed");
    ull__json_number(json, alone / ns[ROUNDS / 2]);
    ull__json_key(json, "best_speed");
    ull__json_number(json, alone / ns[0]);
    ull__json_key(json, "processor_ns");
    ull__json_number(json, processor[ROUNDS / 2]);
    ull__json_key(json, "processor_speed");
    ull__json_number(json, alone / processor[ROUNDS / 2]);
    ull__json_object_end(json);
}

static void bench(struct ull_json *json, struct ull__device *device, const char *name,
                  const struct trace *trace, unsigned int repeats, uint64_t memory)
{
    struct player p = {.pool = new_pool(device, memory, 0)};
    pack(&p, trace);
    unsigned int last_mapping;
    double ns = repeat(&p, repeats, &last_mapping);
    struct ull_stats s = stats_of(p.pool);
    ull__json_object(json);
    ull__json_key(json, "trace");
    ull__json_string(json, name);
    ull__json_key(json, "operations");
    ull__json_u64(json, p.operations);
    ull__json_key(json, "peak_requested_bytes");
    ull__json_u64(json, trace->peak_bytes);
    ull__json_key(json, "peak_held_bytes");
    ull__json_u64(json, s.peak_held);
    ull__json_key(json, "ratio");
    ull__json_number(json, (double)s.peak_held / (double)trace->peak_bytes);
    ull__json_key(json, "failures");
    ull__json_u64(json, p.failures);
    ull__json_key(json, "maps");
    ull__json_u64(json, s.maps);
    ull__json_key(json, "unmaps");
    ull__json_u64(json, s.unmaps);
    ull__json_key(json, "last_repetition_that_mapped");
    ull__json_u64(json, last_mapping);
    ull__json_key(json, "mapped_to_held");
    ull__json_number(json, (double)s.mapped / (double)s.held);
    ull__json_key(json, "ns_per_operation");
    ull__json_number(json, ns);
    ull__json_key(json, "own_ns");
    ull__json_number(json, own_ns(&p));
    latencies(json, &p);
    ull_pool_destroy(p.pool);

    p.pool = new_pool(device, trace->peak_bytes / 50 * 51, 0);
    p.failures = 0;
    repeat(&p, 5, &last_mapping);
    ull__json_key(json, "failures_at_1.02");
    ull__json_u64(json, p.failures);
    ull_pool_destroy(p.pool);
    if (threads && 2 * trace->peak_bytes < RESERVE) {
        two_threads(json, "two_threads", device, trace, repeats, 0, ns);
        two_threads(json, "two_threads_reserved", device, trace, repeats, RESERVE, ns);
    }
    ull__json_object_end(json);
    unpack(&p);
}

/* As other allocators were measured at random sizes: all memory taken at the start. */
static void bench_reserved(struct ull_json *json, struct ull__device *device, const char *name,
                           const struct trace *trace, unsigned int repeats)
{
    struct ull_pool_options options;
    struct player p = {.pool = NULL};
    unsigned int last_mapping;
    pack(&p, trace);
    ull_pool_options_init(&options);
    options.growth = false;
    options.reserve = RESERVE;
    if (ull_pool_create(device, &options, &p.pool, NULL) != ULL_OK)
        bench_die(name, "no memory");
    double ns = repeat(&p, repeats, &last_mapping);
    ull__json_object(json);
    ull__json_key(json, "trace");
    ull__json_string(json, name);
    ull__json_key(json, "reserve_bytes");
    ull__json_u64(json, RESERVE);
    ull__json_key(json, "failures");
    ull__json_u64(json, p.failures);
    ull__json_key(json, "last_repetition_that_mapped");
    ull__json_u64(json, last_mapping);
    ull__json_key(json, "ns_per_operation");
    ull__json_number(json, ns);
    ull__json_key(json, "own_ns");
    ull__json_number(json, own_ns(&p));
    latencies(json, &p);
    ull__json_object_end(json);
    ull_pool_destroy(p.pool);
    unpack(&p);
}

/* --- random sizes ----------------------------------------------------------------------------------------- */

static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Sizes from 256 B to 64 MiB, as many between a power of two and the next as between any others. */
static struct trace random_trace(void)
{
    struct trace trace = {.slots = RANDOM_LIVE};
    uint64_t *sizes = calloc(RANDOM_LIVE, sizeof *sizes), live = 0;
    trace.events = calloc(RANDOM_OPERATIONS, sizeof *trace.events);
    if (!sizes || !trace.events)
        bench_die("random", "no memory");
    while (trace.count + 1 < RANDOM_OPERATIONS) {
        uint32_t slot = (uint32_t)(random_next() % RANDOM_LIVE);
        if (sizes[slot]) {
            trace.events[trace.count++] = (struct trace_event){.slot = slot};
            live -= sizes[slot];
        }
        uint64_t power = (uint64_t)256 << random_next() % 18;
        sizes[slot] = power + random_next() % power;
        live += sizes[slot];
        trace.events[trace.count++] =
            (struct trace_event){.size = sizes[slot], .slot = slot, .allocates = true};
        if (live > trace.peak_bytes)
            trace.peak_bytes = live;
    }
    free(sizes);
    return trace;
}

int main(int argc, char **argv)
{
    unsigned int repeats = 20;
    uint64_t memory = 0;
    bool random_sizes = true;
    struct ull__device *device;
    struct ull_error error;
    struct ull_json json;
    if (ull__device_host_create(device_bytes, 0, &device, &error) != ULL_OK)
        bench_die("device", error.message);
    ull__json_init(&json, stdout);
    ull__json_array(&json);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
            repeats = (unsigned int)strtoul(argv[++i], NULL, 10);
            if (repeats < 1 || repeats > MOST_REPEATS)
                bench_die("--repeat", "expected 1 to 1000");
        } else if (strcmp(argv[i], "--memory") == 0 && i + 1 < argc) {
            memory = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--no-random") == 0) {
            random_sizes = false;
        } else if (strcmp(argv[i], "--no-threads") == 0) {
            threads = false;
        } else {
            struct trace trace;
            if (trace_load(argv[i], &trace, &error) != ULL_OK)
                bench_die(argv[i], error.message);
            bench(&json, device, argv[i], &trace, repeats, memory);
            trace_free(&trace);
        }
    }
    if (random_sizes) {
        struct trace trace = random_trace();
        bench(&json, device, "random", &trace, repeats < 5 ? repeats : 5, memory);
        bench_reserved(&json, device, "random, 80 GiB from the start", &trace, 5);
        free(trace.events);
    }
    ull__json_array_end(&json);
    ull__json_finish(&json);
    ull__device_destroy(device);
    return 0;
}
