/*
 * pool.c: speed and space of the pool on recorded traces and on random sizes, as JSON.
 *
 *   bench_pool [--repeat N] [--memory BYTES] [--no-random] [--no-threads] TRACE.csv.gz...
 *
 * bench/pool.py runs it and says which commit and machine it was. The device is the host's, whose pages are never
 * touched, so the times are the pool's own. Each trace is played N times over one pool (20 by default); what
 * is still live at its end is freed (play.h).
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "play.h"
#include "ullage/pool.h"

enum { MOST_REPEATS = 1000 };

#define RESERVE ((uint64_t)80 << 30)

static bool threads = true;
static const uint64_t device_bytes = (uint64_t)96 << 30;

/* --- playing ------------------------------------------------------------------------------------------ */

static inline void *allocate(const struct bench_player *p, uint64_t bytes)
{
    void *address;
    return ull_pool_allocate(p->allocator, bytes, p->stream, &address) == ULL_OK ? address : NULL;
}

static inline void give(const struct bench_player *p, void *address)
{
    if (ull_pool_free(p->allocator, address, p->stream) != ULL_OK)
        bench_die("free", "refused");
}

__attribute__((noinline)) static void *no_allocate(const struct bench_player *p, uint64_t bytes)
{
    __asm__ volatile("" : : "r"(p), "r"(bytes) : "memory");
    return p->slots;
}

__attribute__((noinline)) static void no_give(const struct bench_player *p, void *address)
{
    __asm__ volatile("" : : "r"(p), "r"(address) : "memory");
}

/* Without an allocator: calls that do nothing instead. */
static void play(struct bench_player *p)
{
    if (!p->allocator)
        bench_play(p, false, no_allocate, no_give);
    else if (p->latencies)
        bench_play(p, true, allocate, give);
    else
        bench_play(p, false, allocate, give);
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

/* Plays it over and over; ns an operation, and which repetition mapped last. */
static double repeat(struct bench_player *p, unsigned int repeats, unsigned int *last_mapping)
{
    static uint64_t times[MOST_REPEATS];
    uint64_t operations = 0;
    *last_mapping = 0;
    for (unsigned int r = 0; r < repeats; r++) {
        struct ull_stats before = stats_of(p->allocator);
        uint64_t from = bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
        p->operations = 0;
        play(p);
        times[r] = bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - from;
        operations = p->operations;
        struct ull_stats after = stats_of(p->allocator);
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
static double own_ns(struct bench_player *p)
{
    struct ull_pool *pool = p->allocator;
    double least = 0;
    p->allocator = NULL;
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        uint64_t from = bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
        play(p);
        double ns = (double)(bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - from) / (double)p->trace->count;
        least = r == 0 || ns < least ? ns : least;
    }
    p->allocator = pool;
    return least;
}

/* One round: wall and processor time an operation, means of both threads. */
static void play_by_two(struct ull__device *device, const struct trace *trace, unsigned int repeats,
                        uint64_t reserve, double *ns, double *processor)
{
    struct ull_pool *pool = new_pool(device, 0, reserve);
    struct bench_player p[2];
    for (int i = 0; i < 2; i++) {
        p[i] = (struct bench_player){.allocator = pool};
        bench_pack(&p[i], trace);
        if (device->ops->stream_create(device, &p[i].stream) != ULL_OK)
            bench_die("threads", "no memory");
    }
    bench_two_threads(p, play, repeats, ns, processor);
    ull_pool_destroy(pool);
    for (int i = 0; i < 2; i++) {
        device->ops->stream_destroy(device, p[i].stream);
        bench_unpack(&p[i]);
    }
}

/* alone: ns an operation of one thread. */
static void two_threads(struct ull_json *json, const char *key, struct ull__device *device,
                        const struct trace *trace, unsigned int repeats, uint64_t reserve,
                        double alone)
{
    double ns[BENCH_ROUNDS], processor[BENCH_ROUNDS];
    for (int i = 0; i < BENCH_ROUNDS; i++)
        play_by_two(device, trace, repeats, reserve, &ns[i], &processor[i]);
    qsort(ns, BENCH_ROUNDS, sizeof *ns, bench_by_number);
    qsort(processor, BENCH_ROUNDS, sizeof *processor, bench_by_number);
    ull__json_key(json, key);
    ull__json_object(json);
    ull__json_key(json, "ns_per_operation");
    ull__json_number(json, ns[BENCH_ROUNDS / 2]);
    ull__json_key(json, "speed");
    ull__json_number(json, alone / ns[BENCH_ROUNDS / 2]);
    ull__json_key(json, "best_speed");
    ull__json_number(json, alone / ns[0]);
    ull__json_key(json, "processor_ns");
    ull__json_number(json, processor[BENCH_ROUNDS / 2]);
    ull__json_key(json, "processor_speed");
    ull__json_number(json, alone / processor[BENCH_ROUNDS / 2]);
    ull__json_object_end(json);
}

static void bench(struct ull_json *json, struct ull__device *device, const char *name,
                  const struct trace *trace, unsigned int repeats, uint64_t memory)
{
    struct bench_player p = {.allocator = new_pool(device, memory, 0)};
    bench_pack(&p, trace);
    unsigned int last_mapping;
    double ns = repeat(&p, repeats, &last_mapping);
    struct ull_stats s = stats_of(p.allocator);
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
    bench_latencies(json, &p, play);
    ull_pool_destroy(p.allocator);

    p.allocator = new_pool(device, trace->peak_bytes / 50 * 51, 0);
    p.failures = 0;
    repeat(&p, 5, &last_mapping);
    ull__json_key(json, "failures_at_1.02");
    ull__json_u64(json, p.failures);
    ull_pool_destroy(p.allocator);
    if (threads && 2 * trace->peak_bytes < RESERVE) {
        two_threads(json, "two_threads", device, trace, repeats, 0, ns);
        two_threads(json, "two_threads_reserved", device, trace, repeats, RESERVE, ns);
    }
    ull__json_object_end(json);
    bench_unpack(&p);
}

/* As other allocators were measured at random sizes: all memory taken at the start. */
static void bench_reserved(struct ull_json *json, struct ull__device *device, const char *name,
                           const struct trace *trace, unsigned int repeats)
{
    struct ull_pool_options options;
    struct bench_player p = {.allocator = NULL};
    unsigned int last_mapping;
    bench_pack(&p, trace);
    ull_pool_options_init(&options);
    options.growth = false;
    options.reserve = RESERVE;
    struct ull_pool *pool;
    if (ull_pool_create(device, &options, &pool, NULL) != ULL_OK)
        bench_die(name, "no memory");
    p.allocator = pool;
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
    bench_latencies(json, &p, play);
    ull__json_object_end(json);
    ull_pool_destroy(p.allocator);
    bench_unpack(&p);
}

/* ---------------------------------------------------------------------------------------------------------- */

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
        struct trace trace = bench_random_trace();
        bench(&json, device, "random", &trace, repeats < 5 ? repeats : 5, memory);
        bench_reserved(&json, device, "random, 80 GiB from the start", &trace, 5);
        free(trace.events);
    }
    ull__json_array_end(&json);
    ull__json_finish(&json);
    ull__device_destroy(device);
    return 0;
}
