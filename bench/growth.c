/*
 * growth.c: jobs side by side on one card, whose pools grow, or take their memory at the start. As JSON.
 *
 *   bench_growth [--jobs 1,2,4,8] [--rounds N] [--seconds S] [--stagger S] [--load L]
 *                TRACE.csv.gz...
 *
 * Each job is a process of its own (growth_job.c); job i plays trace i modulo their number. All sizes are
 * scaled by one factor, so that as many jobs as the largest of --jobs have a sum of peaks of L times the card
 * (0.8). Job i starts i times --stagger seconds (0.1) after the first one, so that they do not race for what they
 * take at the start, and runs for --seconds (2). Policies:
 *
 *   grow    pages when they are needed, up to all of the card
 *   mixed   0.3 of the card at the start, then growth up to 0.8
 *   whole   0.9 of the card at the start, as TensorFlow does by default
 *   share   0.9 of the card divided by the number of jobs, at the start
 *
 * It uses the first card that the driver shows, whatever driver that is, and takes at most all of that card:
 * on a card that others use run it under `ullage run -m`, as bench/growth.sh does.
 *
 * What it cannot do: held bytes are sampled once a millisecond, so a peak that is shorter is missed; contexts
 * are not in them.
 */
#include "growth.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "json.h"
#include "trace.h"
#include "ullage/config.h"

enum { MOST_COUNTS = 8, MOST_ROUNDS = 100, SAMPLE_NS = 1000000, TOO_LONG_S = 120 };

static const char *const policy_names[POLICIES] = {"grow", "mixed", "whole", "share"};
static const char *const outcome_names[] = {"died", "finished", "no memory at the start",
                                            "out of memory", "broken"};

struct plan {
    unsigned int counts[MOST_COUNTS], count_of_counts, rounds;
    double seconds, stagger, load, scale;
    const char *trace[MOST_TRACES];
    unsigned int traces;
    uint64_t total; /* of the card */
};

/* What the jobs of a cell did, over all rounds. */
struct cell {
    unsigned int finished, out_of_memory, other;
    uint64_t wall[MOST_ROUNDS];
    uint64_t driver[MOST_ROUNDS * MOST_JOBS], pool[MOST_ROUNDS * MOST_JOBS],
        first[MOST_ROUNDS * MOST_JOBS];
    size_t drivers, pools, firsts;
    uint64_t peak_live, peak_held;
    double live_ns, held_ns; /* sums over time */
    char why[sizeof((struct job *)0)->why];
};

static struct board *board; /* shared with all children */

/* --- one round ---------------------------------------------------------------------------------------------- */

static pid_t start_job(struct job *job, const char *trace, const int gate[2])
{
    pid_t pid = fork();
    if (pid < 0)
        bench_die("fork", "cannot start a job");
    if (pid > 0)
        return pid;
    close(gate[1]);
    alarm(TOO_LONG_S); /* whatever happens to the parent */
    _exit(growth_job(board, job, trace, gate[0]));
}

static void sample(struct cell *cell, unsigned int jobs, uint64_t ns)
{
    uint64_t live = 0, held = 0;
    for (unsigned int i = 0; i < jobs; i++) {
        live += board->job[i].live;
        held += board->job[i].held;
    }
    cell->peak_held = held > cell->peak_held ? held : cell->peak_held;
    cell->live_ns += (double)live * (double)ns;
    cell->held_ns += (double)held * (double)ns;
}

/* Samples until all have ended. A job that died holds nothing. */
static void watch(struct cell *cell, unsigned int jobs, pid_t *pids)
{
    unsigned int left = jobs;
    uint64_t before = bench_now_ns();
    while (left > 0) {
        struct timespec rest = {.tv_nsec = SAMPLE_NS};
        nanosleep(&rest, NULL);
        uint64_t now = bench_now_ns();
        sample(cell, jobs, now - before);
        before = now;
        for (unsigned int i = 0; i < jobs; i++) {
            if (pids[i] > 0 && waitpid(pids[i], NULL, WNOHANG) == pids[i]) {
                pids[i] = 0;
                board->live -= board->job[i].live;
                board->job[i].live = board->job[i].held = 0;
                left--;
            }
        }
    }
}

static void count(struct cell *cell, const struct job *job)
{
    int outcome = job->outcome;
    cell->finished += outcome == FINISHED;
    cell->out_of_memory += outcome == NO_START || outcome == REFUSED;
    cell->other += outcome == UNFINISHED || outcome == BROKEN;
    if (outcome != FINISHED && !cell->why[0])
        snprintf(cell->why, sizeof cell->why, "%s: %.500s", outcome_names[outcome], job->why);
    if (job->open_ns)
        cell->driver[cell->drivers++] = job->open_ns;
    if (job->pool_ns)
        cell->pool[cell->pools++] = job->pool_ns - job->open_ns;
    if (job->first_ns)
        cell->first[cell->firsts++] = job->first_ns - job->open_ns;
}

static void play_round(const struct plan *plan, enum policy policy, unsigned int jobs,
                       struct cell *cell, unsigned int round)
{
    pid_t pids[MOST_JOBS];
    board->live = board->peak_live = 0;
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) != 0)
        bench_die("pipe", "cannot make one");
    for (unsigned int i = 0; i < jobs; i++) {
        memset(&board->job[i], 0, sizeof board->job[i]);
        board->job[i].policy = policy;
        board->job[i].jobs = jobs;
        board->job[i].scale = plan->scale;
        board->job[i].seconds = plan->seconds;
        board->job[i].late = plan->stagger * i;
        pids[i] = start_job(&board->job[i], plan->trace[i % plan->traces], gate);
    }
    close(gate[0]);
    usleep(200000); /* they read their traces meanwhile; who is late starts late */
    uint64_t from = bench_now_ns();
    close(gate[1]);
    watch(cell, jobs, pids);
    cell->wall[round] = bench_now_ns() - from;
    cell->peak_live = board->peak_live > cell->peak_live ? board->peak_live : cell->peak_live;
    for (unsigned int i = 0; i < jobs; i++)
        count(cell, &board->job[i]);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */

static void put_ms(struct ull_json *json, const char *key, uint64_t *ns, size_t count)
{
    ull__json_key(json, key);
    if (count == 0) {
        ull__json_null(json);
        return;
    }
    qsort(ns, count, sizeof *ns, bench_by_value);
    const struct {
        const char *key;
        uint64_t ns;
    } rows[] = {{"median", ns[count / 2]}, {"min", ns[0]}, {"max", ns[count - 1]}};
    ull__json_object(json);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ull__json_key(json, rows[i].key);
        ull__json_number(json, (double)(rows[i].ns / 1000) / 1000);
    }
    ull__json_object_end(json);
}

static void put_number(struct ull_json *json, const char *key, double value)
{
    ull__json_key(json, key);
    ull__json_number(json, value);
}

static void put_cell(struct ull_json *json, const struct plan *plan, enum policy policy,
                     unsigned int jobs, struct cell *cell)
{
    double total = (double)plan->total;
    ull__json_object(json);
    ull__json_key(json, "policy");
    ull__json_string(json, policy_names[policy]);
    put_number(json, "jobs", jobs);
    put_number(json, "started", jobs * plan->rounds);
    put_number(json, "finished", cell->finished);
    put_number(json, "out_of_memory", cell->out_of_memory);
    put_number(json, "other_failures", cell->other);
    put_number(json, "out_of_memory_rate", (double)cell->out_of_memory / (jobs * plan->rounds));
    put_ms(json, "driver_ms", cell->driver, cell->drivers);
    put_ms(json, "pool_ready_ms", cell->pool, cell->pools);
    put_ms(json, "first_allocation_ms", cell->first, cell->firsts);
    put_number(json, "peak_live_share", (double)cell->peak_live / total);
    put_number(json, "peak_held_share", (double)cell->peak_held / total);
    put_number(json, "live_to_held", cell->live_ns / cell->held_ns); /* NaN if nothing was held */
    put_ms(json, "wall_ms", cell->wall, plan->rounds);
    ull__json_key(json, "first_failure");
    ull__json_string(json, cell->why[0] ? cell->why : NULL);
    ull__json_object_end(json);
}

/* --- the plan --------------------------------------------------------------------------------------------------- */

static double number(const char *option, const char *text, double least, double most)
{
    char *rest;
    double value = strtod(text, &rest);
    if (rest == text || *rest || !(value >= least && value <= most)) {
        fprintf(stderr, "bench: %s %s: expected a number from %g to %g\n", option, text, least, most);
        exit(2);
    }
    return value;
}

static void read_counts(struct plan *plan, char *text)
{
    plan->count_of_counts = 0;
    for (char *one; (one = strsep(&text, ",")) != NULL && plan->count_of_counts < MOST_COUNTS;)
        plan->counts[plan->count_of_counts++] = (unsigned int)number("--jobs", one, 1, MOST_JOBS);
}

static void read_arguments(struct plan *plan, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *value = i + 1 < argc ? argv[i + 1] : "";
        bool option = true;
        if (strcmp(argv[i], "--jobs") == 0)
            read_counts(plan, value);
        else if (strcmp(argv[i], "--rounds") == 0)
            plan->rounds = (unsigned int)number(argv[i], value, 1, MOST_ROUNDS);
        else if (strcmp(argv[i], "--seconds") == 0)
            plan->seconds = number(argv[i], value, 0.01, 60);
        else if (strcmp(argv[i], "--stagger") == 0)
            plan->stagger = number(argv[i], value, 0, 60);
        else if (strcmp(argv[i], "--load") == 0)
            plan->load = number(argv[i], value, 0.01, 10);
        else
            option = false;
        if (option)
            i++;
        else if (argv[i][0] == '-')
            bench_die(argv[i], "no such option: see bench/growth.c");
        else if (plan->traces < MOST_TRACES)
            plan->trace[plan->traces++] = argv[i];
    }
    if (plan->traces == 0)
        bench_die("usage", "see bench/growth.c");
}

/* Asks in a child: a process that has started CUDA must not fork jobs that use it. */
static uint64_t size_of_card(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct ull_config *config;
        struct ull_error err;
        const struct ull_card *cards;
        if (ull_config_create_cuda(&config, &err) != ULL_OK)
            bench_die("card", err.message);
        if (ull_config_cards(config, &cards) > 0)
            board->card_bytes = cards[0].total_bytes;
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid || board->card_bytes == 0)
        bench_die("card", "the driver shows none");
    return board->card_bytes;
}

static double scale_for(const struct plan *plan)
{
    unsigned int most = 0;
    double sum = 0;
    for (unsigned int i = 0; i < plan->count_of_counts; i++)
        most = plan->counts[i] > most ? plan->counts[i] : most;
    for (unsigned int i = 0; i < plan->traces && i < most; i++) {
        struct trace trace;
        struct ull_error err;
        if (trace_load(plan->trace[i], &trace, &err) != ULL_OK)
            bench_die(plan->trace[i], err.message);
        sum += (double)trace.peak_bytes * ((most - i + plan->traces - 1) / plan->traces);
        trace_free(&trace);
    }
    return plan->load * (double)plan->total / sum;
}

int main(int argc, char **argv)
{
    static struct plan plan = {.counts = {1, 2, 4, 8},
                               .count_of_counts = 4,
                               .rounds = 3,
                               .seconds = 2,
                               .stagger = 0.1,
                               .load = 0.8};
    static struct cell cell;
    struct ull_json json;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        bench_die("jobs", "no memory");
    read_arguments(&plan, argc, argv);
    plan.total = size_of_card();
    plan.scale = scale_for(&plan);
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    ull__json_key(&json, "card_bytes");
    ull__json_u64(&json, plan.total);
    put_number(&json, "scale", plan.scale);
    put_number(&json, "load", plan.load);
    put_number(&json, "seconds", plan.seconds);
    put_number(&json, "stagger", plan.stagger);
    put_number(&json, "rounds", plan.rounds);
    ull__json_key(&json, "cells");
    ull__json_array(&json);
    for (unsigned int n = 0; n < plan.count_of_counts; n++) {
        for (int policy = 0; policy < POLICIES; policy++) {
            memset(&cell, 0, sizeof cell);
            for (unsigned int round = 0; round < plan.rounds; round++)
                play_round(&plan, (enum policy)policy, plan.counts[n], &cell, round);
            put_cell(&json, &plan, (enum policy)policy, plan.counts[n], &cell);
        }
    }
    ull__json_array_end(&json);
    ull__json_object_end(&json);
    return ull__json_finish(&json) ? 0 : 1;
}
