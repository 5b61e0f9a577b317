/*
 * growth_job.c: one job of bench_growth: a process that opens the card, makes its pool as its policy says, and
 * plays a recorded trace evenly over some seconds. Like a training run it ends at the first request that
 * is refused. It computes nothing and touches none of its memory.
 */
#include "growth.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "trace.h"
#include "ullage/config.h"

enum { TELL_NS = 500000 };

static struct board *board;
static struct job *self;
static uint64_t began;

static ull_status open_card(void *context, int card, const struct ull_card *facts,
                            struct ull__device **device, struct ull_error *err)
{
    struct ull_opener opener = *(struct ull_opener *)context;
    ull_status status = opener.open(opener.context, card, facts, device, err);
    self->open_ns = bench_now_ns() - began;
    return status;
}

static void close_card(void *context, struct ull__device *device)
{
    struct ull_opener opener = *(struct ull_opener *)context;
    opener.close(opener.context, device);
}

static ull_status configure(struct ull_config *config, struct ull_error *err)
{
    static const int first[] = {0};
    ull_status status = ull_config_set_visible(config, first, 1, err);
    if (status != ULL_OK)
        return status;
    switch (self->policy) {
    case GROW:
        status = ull_config_set_growth(config, 0, true, err);
        return status == ULL_OK ? ull_config_set_share(config, 1, err) : status;
    case MIXED:
        return ull_config_set_mixed(config, 0, 0.3, 0.8, err);
    case WHOLE:
        return ull_config_set_share(config, 0.9, err);
    default:
        return ull_config_set_share(config, 0.9 / self->jobs, err);
    }
}

static void took(uint64_t bytes)
{
    uint64_t live = atomic_fetch_add(&board->live, bytes) + bytes, peak = board->peak_live;
    self->live += bytes;
    while (live > peak && !atomic_compare_exchange_weak(&board->peak_live, &peak, live))
        ;
}

static void gave(uint64_t bytes)
{
    self->live -= bytes;
    atomic_fetch_sub(&board->live, bytes);
}

static int end(enum outcome outcome, const char *why)
{
    snprintf(self->why, sizeof self->why, "%.*s", (int)strcspn(why, "\n"), why);
    self->end_ns = bench_now_ns() - began;
    gave(self->live);
    self->held = 0;
    self->outcome = (int)outcome;
    return 0;
}

static void tell(struct ull_alloc *alloc)
{
    struct ull_alloc_info info;
    ull_alloc_info(alloc, &info);
    self->held = info.held;
}

static void wait_until(uint64_t when)
{
    uint64_t now = bench_now_ns();
    if (now + 100000 < when) {
        struct timespec t = {.tv_sec = (time_t)((when - now) / 1000000000u),
                             .tv_nsec = (long)((when - now) % 1000000000u)};
        nanosleep(&t, NULL);
    }
}

/* Everything of the trace in its order. False: a request was refused, and report says why. */
static bool play(struct ull_alloc *alloc, const struct trace *trace, void **slots,
                 struct ull_report *report)
{
    uint64_t from = bench_now_ns(), told = 0;
    double pace = self->seconds * 1e9 / (double)trace->count;
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *e = &trace->events[i];
        uint64_t size = (uint64_t)((double)e->size * self->scale) + 1;
        wait_until(from + (uint64_t)((double)i * pace));
        if (e->allocates) {
            struct ull_request request = {.bytes = size};
            if (ull_alloc_request(alloc, &request, report, &slots[e->slot]) != ULL_OK)
                return false;
            took(size);
            if (!self->first_ns) {
                self->first_ns = bench_now_ns() - began;
                tell(alloc);
            }
        } else {
            ull_alloc_free(alloc, slots[e->slot], NULL);
            gave(size);
        }
        if (bench_now_ns() - told > TELL_NS) {
            told = bench_now_ns();
            tell(alloc);
        }
    }
    return true;
}

static int run(const struct trace *trace, void **slots)
{
    struct ull_config *config;
    struct ull_devices *devices;
    struct ull_error err = {.message = ""};
    static const struct ull_environment nothing;
    struct ull_opener cuda = ull_opener_cuda();
    struct ull_opener opener = {.context = &cuda, .open = open_card, .close = close_card};
    wait_until(bench_now_ns() + (uint64_t)(self->late * 1e9));
    began = bench_now_ns();
    ull_status status = ull_config_create_cuda(&config, &err);
    if (status == ULL_OK)
        status = configure(config, &err);
    if (status == ULL_OK)
        status = ull_config_start(config, &nothing, &opener, ULL_HERE, &devices, &err);
    if (status != ULL_OK)
        return end(status == ULL_E_NO_MEMORY ? NO_START : BROKEN, err.message);
    self->pool_ns = bench_now_ns() - began;
    struct ull_alloc *alloc = ull_devices_alloc(devices, 0);
    struct ull_report report;
    tell(alloc);
    bool done = play(alloc, trace, slots, &report);
    end(done ? FINISHED : REFUSED, done ? "" : report.text);
    ull_devices_stop(devices);
    ull_config_destroy(config);
    return 0;
}

int growth_job(struct board *all, struct job *job, const char *path, int gate)
{
    struct trace trace;
    struct ull_error err;
    char byte;
    board = all;
    self = job;
    if (trace_load(path, &trace, &err) != ULL_OK)
        return end(BROKEN, err.message);
    void **slots = calloc(trace.slots + 1, sizeof *slots);
    if (!slots)
        return end(BROKEN, "no memory of the host");
    while (read(gate, &byte, 1) > 0)
        ;
    int code = run(&trace, slots);
    free(slots);
    trace_free(&trace);
    return code;
}
