/*
 * beside.c: other allocators beside ours, on recorded traces and on random sizes, as JSON.
 *
 *   bench_beside [--library FILE.so]... [--card] [--rounds N] [--seconds N] [--repeat N] [--no-random] [--no-threads]
 *                [--no-limits] [--no-reserved] TRACE.csv.gz...
 *
 * beside.py builds and runs it. All are played by one loop (play.h), through a table of functions (allocator.h), in
 * turns: in each of N rounds (9 by default) each allocator begins anew, plays the trace N times (20; 5 at random
 * sizes), and ends. --seconds: no further round of a trace begins after so many. --card: ours also plays over
 * the CUDA driver's first card, not only over the host's memory.
 *
 * "cold_ms" is the processor's time from before an allocator is made to the end of its first repetition, and
 * "cold_wall_ms" the clock's. "warm_ns" is processor time an operation, the median of the repetitions from the third
 * on; all of them are given as median and quartiles over the rounds. "less_ours" is the difference of warm_ns to the
 * first allocator, ours over the host's memory, in the same round. "own_ns" is what this program itself takes: the
 * same with functions that do nothing. Latencies, two threads and the limit of 1.02 are as in pool.c; for
 * two threads "ratio" is what is held over twice the peak of one. "reserved": 80 GiB are taken at the start.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "play.h"

enum { MOST_ALLOCATORS = 12, MOST_ROUNDS = 100, MOST_REPEATS = 1000 };

#define RESERVE ((uint64_t)80 << 30)

/* One who plays, and what came out, a round each. */
struct contender {
    const struct beside_allocator *of;
    double cold[MOST_ROUNDS], cold_wall[MOST_ROUNDS], warm[MOST_ROUNDS], less_ours[MOST_ROUNDS];
    double two[MOST_ROUNDS], two_processor[MOST_ROUNDS];
    uint64_t peak_held, two_peak_held, failures, two_failures;
};

static struct contender contenders[MOST_ALLOCATORS];
static int contender_count;
static unsigned int rounds = BENCH_ROUNDS, repeats = 20, seconds;
static unsigned int played; /* rounds of the trace at hand */
static bool threads = true, limits = true, reserved = true;

/* --- playing ------------------------------------------------------------------------------------------ */

static inline void *allocate(const struct bench_player *p, uint64_t bytes)
{
    return ((const struct beside_allocator *)p->user)->allocate(p->allocator, bytes, p->stream);
}

static inline void give(const struct bench_player *p, void *address)
{
    ((const struct beside_allocator *)p->user)->give(p->allocator, address, p->stream);
}

static void play(struct bench_player *p)
{
    if (p->latencies)
        bench_play(p, true, allocate, give);
    else
        bench_play(p, false, allocate, give);
}

static void *no_allocate(void *allocator, uint64_t bytes, void *stream)
{
    __asm__ volatile("" : : "r"(allocator), "r"(bytes), "r"(stream) : "memory");
    return allocator;
}

static void no_give(void *allocator, void *address, void *stream)
{
    __asm__ volatile("" : : "r"(allocator), "r"(address), "r"(stream) : "memory");
}

static const struct beside_allocator nothing = {.allocate = no_allocate, .give = no_give};

/* False: that cannot be had. */
static bool begin(struct bench_player *p, const struct beside_allocator *of, uint64_t limit,
                  uint64_t reserve)
{
    p->user = of;
    p->allocator = of->create(limit, reserve);
    p->stream = p->allocator && of->stream ? of->stream(p->allocator, 0) : NULL;
    p->failures = 0;
    return p->allocator != NULL;
}

/* An operation's processor time. */
static double once(struct bench_player *p)
{
    uint64_t from = bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    p->operations = 0;
    play(p);
    return (double)(bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - from) / (double)p->operations;
}

static void one_round(struct contender *c, struct bench_player *p, unsigned int round,
                      unsigned int count, uint64_t reserve)
{
    static double ns[MOST_REPEATS];
    uint64_t from = bench_now_ns(), cpu_from = bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (!begin(p, c->of, 0, reserve))
        bench_die(c->of->name, "cannot be made");
    ns[0] = once(p);
    c->cold[round] = (double)(bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_from) / 1e6;
    c->cold_wall[round] = (double)(bench_now_ns() - from) / 1e6;
    for (unsigned int r = 1; r < count; r++)
        ns[r] = once(p);
    unsigned int first = count > 3 ? 2 : count > 1 ? 1 : 0;
    qsort(ns + first, count - first, sizeof *ns, bench_by_number);
    c->warm[round] = ns[first + (count - first) / 2];
    c->less_ours[round] = c->warm[round] - contenders[0].warm[round];
    c->failures += p->failures;
    if (c->of->counts) {
        uint64_t held = c->of->peak_held(p->allocator);
        c->peak_held = held > c->peak_held ? held : c->peak_held;
    }
    c->of->destroy(p->allocator);
}

static void one_round_by_two(struct contender *c, const struct trace *trace, unsigned int round,
                             unsigned int count, uint64_t reserve)
{
    struct bench_player p[2];
    memset(p, 0, sizeof p);
    if (!begin(&p[0], c->of, 0, reserve))
        bench_die(c->of->name, "cannot be made");
    p[1] = p[0];
    p[1].stream = c->of->stream ? c->of->stream(p[1].allocator, 1) : NULL;
    for (int i = 0; i < 2; i++)
        bench_pack(&p[i], trace);
    bench_two_threads(p, play, count, &c->two[round], &c->two_processor[round]);
    if (c->of->counts) {
        uint64_t held = c->of->peak_held(p[0].allocator);
        c->two_peak_held = held > c->two_peak_held ? held : c->two_peak_held;
    }
    c->two_failures += p[0].failures + p[1].failures;
    c->of->destroy(p[0].allocator);
    for (int i = 0; i < 2; i++)
        bench_unpack(&p[i]);
}

/* --- figures ------------------------------------------------------------------------------------------ */

static double quantile(const double *values, double share)
{
    static double sorted[MOST_ROUNDS];
    memcpy(sorted, values, played * sizeof *sorted);
    qsort(sorted, played, sizeof *sorted, bench_by_number);
    return sorted[(unsigned int)(share * (played - 1) + 0.5)];
}

static void spread(struct ull_json *json, const char *key, const double *values)
{
    ull__json_key(json, key);
    ull__json_object(json);
    ull__json_key(json, "median");
    ull__json_number(json, quantile(values, 0.5));
    ull__json_key(json, "low");
    ull__json_number(json, quantile(values, 0.25));
    ull__json_key(json, "high");
    ull__json_number(json, quantile(values, 0.75));
    ull__json_object_end(json);
}

static void number(struct ull_json *json, const char *key, double value)
{
    ull__json_key(json, key);
    ull__json_number(json, value);
}

static double own_ns(struct bench_player *p)
{
    double least = 0;
    *p = (struct bench_player){
        .trace = p->trace, .events = p->events, .slots = p->slots, .user = &nothing, .allocator = p};
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        double ns = once(p);
        least = r == 0 || ns < least ? ns : least;
    }
    return least;
}

/* What a player that has room meets, and one at a limit. */
static void alone(struct ull_json *json, const struct contender *c, struct bench_player *p,
                  uint64_t reserve)
{
    uint64_t limit = p->trace->peak_bytes / 50 * 51;
    if (!begin(p, c->of, 0, reserve))
        bench_die(c->of->name, "cannot be made");
    play(p);
    play(p);
    bench_latencies(json, p, play);
    c->of->destroy(p->allocator);
    if (!limits || !c->of->limits || reserve || !begin(p, c->of, limit, 0))
        return;
    for (int r = 0; r < 5; r++)
        play(p);
    number(json, "failures_at_1.02", (double)p->failures);
    c->of->destroy(p->allocator);
}

static void print(struct ull_json *json, const struct contender *c, struct bench_player *p,
                  const char *name, uint64_t reserve, bool by_two)
{
    double peak = (double)p->trace->peak_bytes;
    ull__json_object(json);
    ull__json_key(json, "trace");
    ull__json_string(json, name);
    ull__json_key(json, "memory");
    ull__json_string(json, reserve ? "reserved" : "growing");
    ull__json_key(json, "allocator");
    ull__json_string(json, c->of->name);
    number(json, "rounds", played);
    spread(json, "cold_ms", c->cold);
    spread(json, "cold_wall_ms", c->cold_wall);
    spread(json, "warm_ns", c->warm);
    spread(json, "less_ours", c->less_ours);
    number(json, "failures", (double)c->failures);
    if (c->of->counts)
        number(json, "ratio", (double)c->peak_held / peak);
    if (by_two) {
        double ns = quantile(c->warm, 0.5);
        ull__json_key(json, "two_threads");
        ull__json_object(json);
        spread(json, "ns", c->two);
        spread(json, "processor_ns", c->two_processor);
        number(json, "speed", ns / quantile(c->two, 0.5));
        number(json, "processor_speed", ns / quantile(c->two_processor, 0.5));
        number(json, "failures", (double)c->two_failures);
        if (c->of->counts)
            number(json, "ratio", (double)c->two_peak_held / 2 / peak);
        ull__json_object_end(json);
    }
    alone(json, c, p, reserve);
    number(json, "own_ns", own_ns(p));
    ull__json_object_end(json);
}

/* All of them on one trace. */
static void bench(struct ull_json *json, const char *name, const struct trace *trace,
                  unsigned int count, uint64_t reserve)
{
    struct bench_player p = {.allocator = NULL};
    bool by_two = threads && 2 * trace->peak_bytes < RESERVE;
    bench_pack(&p, trace);
    for (int i = 0; i < contender_count; i++)
        contenders[i] = (struct contender){.of = contenders[i].of};
    uint64_t end = bench_now_ns() + (uint64_t)seconds * 1000000000u;
    for (played = 0; played < rounds; played++) {
        if (played && seconds && bench_now_ns() >= end)
            break;
        for (int i = 0; i < contender_count; i++) {
            struct contender *c = &contenders[i];
            if (reserve && !c->of->reserves)
                continue;
            one_round(c, &p, played, count, reserve);
            if (by_two)
                one_round_by_two(c, trace, played, count, reserve);
        }
    }
    for (int i = 0; i < contender_count; i++)
        if (!reserve || contenders[i].of->reserves)
            print(json, &contenders[i], &p, name, reserve, by_two);
    bench_unpack(&p);
}

/* --- who plays -------------------------------------------------------------------------------------------- */

static void add_all(const struct beside_allocator *list)
{
    for (; list->name; list++) {
        if (contender_count == MOST_ALLOCATORS)
            bench_die("--library", "more than 12 allocators");
        contenders[contender_count++].of = list;
    }
}

static void add_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    beside_allocators_fn *list = NULL;
    if (library)
        *(void **)&list = dlsym(library, "beside_allocators");
    if (!list)
        bench_die(path, dlerror());
    add_all(list());
}

static unsigned int count_of(const char *option, const char *text, unsigned int most)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);
    if (*end || end == text || count < 1 || count > most) {
        fprintf(stderr, "bench: %s: '%s': expected 1 to %u\n", option, text, most);
        exit(2);
    }
    return (unsigned int)count;
}

int main(int argc, char **argv)
{
    bool random_sizes = true;
    struct ull_json json;
    int i = 1;
    add_all(beside_ours());
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--library") == 0 && i + 1 < argc)
            add_library(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = count_of("--rounds", argv[++i], MOST_ROUNDS);
        else if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc)
            repeats = count_of("--repeat", argv[++i], MOST_REPEATS);
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = count_of("--seconds", argv[++i], 3600);
        else if (strcmp(argv[i], "--card") == 0)
            add_all(beside_ours_over_card());
        else if (strcmp(argv[i], "--no-random") == 0)
            random_sizes = false;
        else if (strcmp(argv[i], "--no-threads") == 0)
            threads = false;
        else if (strcmp(argv[i], "--no-limits") == 0)
            limits = false;
        else if (strcmp(argv[i], "--no-reserved") == 0)
            reserved = false;
        else
            bench_die(argv[i], "unknown option, or without its value");
    }
    ull__json_init(&json, stdout);
    ull__json_array(&json);
    for (; i < argc; i++) {
        struct trace trace;
        struct ull_error error;
        if (trace_load(argv[i], &trace, &error) != ULL_OK)
            bench_die(argv[i], error.message);
        bench(&json, argv[i], &trace, repeats, 0);
        if (reserved)
            bench(&json, argv[i], &trace, repeats, RESERVE);
        trace_free(&trace);
    }
    if (random_sizes) {
        struct trace trace = bench_random_trace();
        bench(&json, "random", &trace, repeats < 5 ? repeats : 5, 0);
        if (reserved)
            bench(&json, "random", &trace, repeats < 5 ? repeats : 5, RESERVE);
        free(trace.events);
    }
    ull__json_array_end(&json);
    ull__json_finish(&json);
    return 0;
}
