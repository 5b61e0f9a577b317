/* queue.c: see queue.h. */
#include "queue.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collective.h"
#include "error.h"
#include "kernel.h"

enum { RING = 1024, RANGES = 8, QUEUES = ULL_QUEUE_COMM + 1 };

/* A queue with a thread: commands from `done` on are to be run. */
struct worker {
    struct ull__queues *queues;
    pthread_t thread;
    bool started;
    struct ull__command ring[RING];
    unsigned long put, done; /* under the mutex */
};

/* Addresses that somebody asked about, and the highest one that was touched. */
struct range {
    uintptr_t begin, end;
    _Atomic uintptr_t reached;
    unsigned long asked; /* when, in questions */
};

struct ull__queues {
    struct ull__team *team;
    struct ull__cpu_options options;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* events passed, commands put and done */
    bool ending;
    struct worker workers[QUEUES];    /* compute has none */
    unsigned long *recorded, *passed; /* by event: recordings enqueued, and passed */
    int events;
    struct range ranges[RANGES];
    int range_count;
    unsigned long questions;
    struct ull__copied *copied; /* NULL: nothing is timed. What it points to is under the mutex */
    bool failed, told;          /* a collective; no other one is run. Under the mutex */
    struct ull_error failure;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Notes what is handed to whoever works on it. */
static void touch(struct ull__queues *queues, const void *address, size_t bytes)
{
    uintptr_t begin = (uintptr_t)address, end = begin + bytes;
    for (int i = 0; i < queues->range_count; ++i) {
        struct range *range = &queues->ranges[i];
        if (begin < range->begin || begin >= range->end) {
            continue;
        }
        uintptr_t seen = atomic_load_explicit(&range->reached, memory_order_relaxed);
        while (seen < end && !atomic_compare_exchange_weak(&range->reached, &seen, end)) {
        }
    }
}

uintptr_t ull__queues_reached(struct ull__queues *queues, const void *begin, const void *end)
{
    for (int i = 0; i < queues->range_count; ++i) {
        struct range *range = &queues->ranges[i];
        if (range->begin == (uintptr_t)begin && range->end == (uintptr_t)end) {
            range->asked = ++queues->questions;
            return atomic_exchange(&range->reached, 0);
        }
    }
    /* The one that nobody has asked about for longest makes room: regions come and go with plans. */
    int at = queues->range_count < RANGES ? queues->range_count++ : 0;
    for (int i = 0; i < queues->range_count; ++i) {
        at = queues->ranges[i].asked < queues->ranges[at].asked ? i : at;
    }
    queues->ranges[at].asked = ++queues->questions;
    queues->ranges[at].begin = (uintptr_t)begin;
    queues->ranges[at].end = (uintptr_t)end;
    atomic_store(&queues->ranges[at].reached, 0);
    return 0;
}

struct running {
    const struct ull__kernel *kernel;
    struct ull__cpu_run run;
};

void ull__queues_time(struct ull__queues *queues, struct ull__copied *copied)
{
    pthread_mutex_lock(&queues->mutex);
    queues->copied = copied;
    pthread_mutex_unlock(&queues->mutex);
}

static void note_copy(struct ull__queues *queues, const struct ull__command *command, double seconds)
{
    pthread_mutex_lock(&queues->mutex);
    if (queues->copied != NULL) {
        queues->copied->bytes += (double)command->bytes;
        queues->copied->seconds += seconds;
    }
    pthread_mutex_unlock(&queues->mutex);
}

static void run_copy(struct ull__queues *queues, const struct ull__command *command)
{
    touch(queues, command->to, command->bytes);
    touch(queues, command->from, command->bytes);
    double begin = now();
    memcpy(command->to, command->from, command->bytes);
    if (command->queue != ULL_QUEUE_COMPUTE) {
        note_copy(queues, command, now() - begin);
    }
}

static void run_part(void *context, int thread)
{
    const struct running *running = context;
    running->kernel->run_by->run(running->kernel, &running->run, thread);
}

static void run_kernel(struct ull__queues *queues, const struct ull__command *command)
{
    const struct ull__kernel *kernel = command->kernel;
    if (command->skip != NULL && *command->skip) {
        return;
    }
    for (int i = 0; i < kernel->input_count; ++i) {
        touch(queues, command->operands[i], kernel->inputs[i].bytes);
    }
    void *const *outputs = command->operands + kernel->input_count;
    for (int i = 0; i < kernel->output_count; ++i) {
        touch(queues, outputs[i], kernel->outputs[i].bytes);
    }
    touch(queues, command->workspace, (size_t)kernel->workspace);
    struct running running = {kernel,
                              {.in = command->operands,
                               .out = outputs,
                               .workspace = command->workspace,
                               .team = queues->team,
                               .threads = kernel->threads}};
    bool timed = queues->copied != NULL && command->took != NULL;
    double begin = timed ? now() : 0;
    ull__team_run(queues->team, run_part, &running);
    if (timed) {
        command->took->seconds += now() - begin;
        command->took->runs += 1;
    }
}

static void run_collective(struct ull__queues *queues, const struct ull__collective_run *run)
{
    struct ull_error error;
    touch(queues, run->from, ull__collective_from_bytes(run));
    touch(queues, run->to, ull__collective_to_bytes(run));
    if (!queues->failed && ull__collective(queues->options.world, run, &error) != ULL_OK) {
        pthread_mutex_lock(&queues->mutex);
        queues->failed = true;
        queues->failure = error;
        pthread_mutex_unlock(&queues->mutex);
    }
}

ull_status ull__queues_failure(struct ull__queues *queues, struct ull_error *err)
{
    pthread_mutex_lock(&queues->mutex);
    bool tells = queues->failed && !queues->told;
    queues->told = queues->failed;
    pthread_mutex_unlock(&queues->mutex);
    return tells ? ull__fail(err, ULL_E_SYSTEM, "%s", queues->failure.message) : ULL_OK;
}

static void run_command(struct ull__queues *queues, const struct ull__command *command)
{
    double begin = queues->options.observe != NULL ? now() : 0;
    const char *what = "copy";
    switch (command->kind) {
    case ULL_COMMAND_KERNEL:
        run_kernel(queues, command);
        what = command->kernel->op->name;
        break;
    case ULL_COMMAND_COPY:
        run_copy(queues, command);
        break;
    case ULL_COMMAND_COLLECTIVE:
        run_collective(queues, &command->collective);
        what = "collective";
        break;
    case ULL_COMMAND_RECORD:
        pthread_mutex_lock(&queues->mutex);
        queues->passed[command->event] = command->turn;
        pthread_cond_broadcast(&queues->changed);
        pthread_mutex_unlock(&queues->mutex);
        return;
    case ULL_COMMAND_WAIT:
        pthread_mutex_lock(&queues->mutex);
        while (queues->passed[command->event] < command->turn) {
            pthread_cond_wait(&queues->changed, &queues->mutex);
        }
        pthread_mutex_unlock(&queues->mutex);
        what = "wait";
        break;
    }
    if (queues->options.observe != NULL) {
        queues->options.observe(queues->options.context, command->queue, what, begin, now());
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct ull__queues *queues = worker->queues;
    pthread_mutex_lock(&queues->mutex);
    for (;;) {
        while (worker->done == worker->put && !queues->ending) {
            pthread_cond_wait(&queues->changed, &queues->mutex);
        }
        if (worker->done == worker->put) {
            break;
        }
        struct ull__command command = worker->ring[worker->done % RING];
        pthread_mutex_unlock(&queues->mutex);
        run_command(queues, &command);
        pthread_mutex_lock(&queues->mutex);
        worker->done += 1;
        pthread_cond_broadcast(&queues->changed);
    }
    pthread_mutex_unlock(&queues->mutex);
    return NULL;
}

static ull_status start_workers(struct ull__queues *queues, struct ull_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    for (int i = ULL_QUEUE_TO_HOST; i < QUEUES && failed == 0; ++i) {
        struct worker *worker = &queues->workers[i];
        worker->queues = queues;
        failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        worker->started = failed == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? ULL_OK : ull__fail(err, ULL_E_SYSTEM, "cannot start threads for copies");
}

ull_status ull__queues_create(struct ull__team *team, const struct ull__cpu_options *options,
                              struct ull__queues **queues, struct ull_error *err)
{
    struct ull__queues *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for queues");
    }
    made->team = team;
    made->options = *options;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    ull_status status = start_workers(made, err);
    if (status != ULL_OK) {
        ull__queues_destroy(made);
        return status;
    }
    *queues = made;
    return ULL_OK;
}

void ull__queues_destroy(struct ull__queues *queues)
{
    if (queues == NULL) {
        return;
    }
    pthread_mutex_lock(&queues->mutex);
    queues->ending = true;
    pthread_cond_broadcast(&queues->changed);
    pthread_mutex_unlock(&queues->mutex);
    for (int i = 0; i < QUEUES; ++i) {
        if (queues->workers[i].started) {
            pthread_join(queues->workers[i].thread, NULL);
        }
    }
    pthread_mutex_destroy(&queues->mutex);
    pthread_cond_destroy(&queues->changed);
    free(queues->recorded);
    free(queues->passed);
    free(queues);
}

ull_status ull__queues_events(struct ull__queues *queues, int events, struct ull_error *err)
{
    if (events <= queues->events) {
        return ULL_OK;
    }
    ull__queues_drain(queues);
    unsigned long *recorded = calloc((size_t)events + 1, sizeof(*recorded));
    unsigned long *passed = calloc((size_t)events + 1, sizeof(*passed));
    if (recorded == NULL || passed == NULL) {
        free(recorded);
        free(passed);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for %d events", events);
    }
    free(queues->recorded);
    free(queues->passed);
    queues->recorded = recorded;
    queues->passed = passed;
    queues->events = events;
    return ULL_OK;
}

void ull__queues_put(struct ull__queues *queues, const struct ull__command *command)
{
    struct ull__command put = *command;
    if (put.kind == ULL_COMMAND_RECORD) {
        put.turn = ++queues->recorded[put.event];
    } else if (put.kind == ULL_COMMAND_WAIT) {
        put.turn = queues->recorded[put.event];
    }
    if (put.queue == ULL_QUEUE_COMPUTE) {
        run_command(queues, &put);
        return;
    }
    struct worker *worker = &queues->workers[put.queue];
    pthread_mutex_lock(&queues->mutex);
    while (worker->put - worker->done == RING) {
        pthread_cond_wait(&queues->changed, &queues->mutex);
    }
    worker->ring[worker->put++ % RING] = put;
    pthread_cond_broadcast(&queues->changed);
    pthread_mutex_unlock(&queues->mutex);
}

void ull__queues_drain(struct ull__queues *queues)
{
    pthread_mutex_lock(&queues->mutex);
    for (int i = 0; i < QUEUES; ++i) {
        while (queues->workers[i].done != queues->workers[i].put) {
            pthread_cond_wait(&queues->changed, &queues->mutex);
        }
    }
    pthread_mutex_unlock(&queues->mutex);
}
