/* pump.c: see pump.h. */
#include "pump.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

enum {
    RING_EVENTS = 1 << 15,
    BATCH = 1024,
    TICK_NS = 50000000,
    STACK_BYTES = 256 * 1024,
};

enum wish { NOTHING, SAY_END, STOP };

struct ull__pump {
    struct ull__pump_options options;
    struct ull__ring *ring;
    struct ull__writer *writer;
    struct ull__stacks *stacks; /* NULL: not asked for */
    pthread_t thread;
    bool started;
    _Atomic int wish, fulfilled;
    struct ull__event batch[BATCH];
};

/* --- putting ---------------------------------------------------------------------------------------------- */

static _Atomic uint32_t pumps; /* that were ever made, so that a forked child's first is another one */

/* The kernel's id of this thread, which is another one after a fork. */
static uint32_t thread_id(void)
{
    static __thread uint32_t known, known_in __attribute__((tls_model("initial-exec")));
    uint32_t now = atomic_load_explicit(&pumps, memory_order_relaxed);
    if (__builtin_expect(known == 0 || known_in != now, 0)) {
        known = (uint32_t)syscall(SYS_gettid);
        known_in = now;
    }
    return known;
}

void ull__pump_put(struct ull__pump *pump, struct ull__event *event, uint64_t began_ns)
{
    event->time_ns = ull__record_now();
    uint64_t took = began_ns ? event->time_ns - began_ns : 0;
    if (began_ns && (event->kind == ULL_EVENT_FREE || event->kind == ULL_EVENT_CHUNK_FREE))
        event->time_ns = began_ns; /* the address may be another's by now */
    event->latency_ns = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    event->thread = thread_id();
    if (pump->stacks && began_ns) /* what no call of the program's asked for has no stack */
        event->stack = ull__stacks_take(pump->stacks);
    ull__ring_put(pump->ring, event);
}

/* --- the thread ------------------------------------------------------------------------------------------- */

/* Threads take the time a moment before they claim their place, so this is nearly in order. */
static void sort(struct ull__event *events, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct ull__event event = events[i];
        uint32_t at = i;
        for (; at > 0 && events[at - 1].time_ns > event.time_ns; at--)
            events[at] = events[at - 1];
        if (at != i)
            events[at] = event;
    }
}

static bool drain(struct ull__pump *pump)
{
    const struct ull__pump_options *options = &pump->options;
    uint32_t count;
    do {
        count = ull__ring_take(pump->ring, pump->batch, BATCH);
        sort(pump->batch, count);
        for (uint32_t i = 0; i < count; i++) {
            struct ull__event *event = &pump->batch[i];
            if (event->stack)
                event->stack = ull__stacks_write(pump->stacks, event->stack, pump->writer);
            if (options->event)
                options->event(options->data, pump->writer, event);
            ull__writer_event(pump->writer, event);
        }
    } while (count == BATCH);
    if (options->tick)
        options->tick(options->data, pump->writer);
    return ull__writer_flush(pump->writer, ull__ring_dropped(pump->ring));
}

static void write_end(struct ull__pump *pump)
{
    struct ull__event end = {.time_ns = ull__record_now(),
                             .result = -1, /* only the parent will know */
                             .kind = ULL_EVENT_END,
                             .device = ULL_EVENT_NO_DEVICE};
    if (pump->stacks && ull__stacks_dropped(pump->stacks) > 0) {
        struct ull__event mark = {.time_ns = end.time_ns,
                                  .size = ull__stacks_dropped(pump->stacks),
                                  .tag = ull__writer_text(pump->writer, "stacks dropped"),
                                  .kind = ULL_EVENT_MARK,
                                  .device = ULL_EVENT_NO_DEVICE};
        ull__writer_event(pump->writer, &mark);
    }
    if (!pump->options.second)
        ull__writer_event(pump->writer, &end);
    if (pump->options.alone)
        ull__writer_over(pump->writer, end.time_ns, 0);
    ull__writer_flush(pump->writer, ull__ring_dropped(pump->ring));
}

static void *run(void *data)
{
    struct ull__pump *pump = data;
    prctl(PR_SET_NAME, pump->options.thread_name, 0, 0, 0);
    for (;;) {
        int wish = atomic_load(&pump->wish);
        if (!drain(pump))
            break;
        if (wish == SAY_END && atomic_load(&pump->fulfilled) == NOTHING)
            write_end(pump);
        atomic_store(&pump->fulfilled, wish);
        if (wish == STOP)
            return NULL;
        ull__ring_wait(pump->ring, TICK_NS);
    }
    int error = ull__writer_error(pump->writer);
    if (pump->options.failed)
        pump->options.failed(pump->options.data,
                             error == ESTALE ? "another file is there now" : strerror(error));
    atomic_store(&pump->fulfilled, STOP);
    return NULL;
}

/* --- beginning and end -------------------------------------------------------------------------------------- */

ull_status ull__pump_create(const struct ull__pump_options *options, struct ull__pump **out,
                            struct ull_error *err)
{
    struct ull__pump *pump =
        mmap(NULL, sizeof *pump, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pump == MAP_FAILED)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to record into");
    atomic_fetch_add(&pumps, 1);
    pump->options = *options;
    ull_status status = ull__writer_open(options->path, options->id, &pump->writer, err);
    if (status == ULL_OK) {
        pump->ring = ull__ring_create(RING_EVENTS);
        pump->stacks = options->stacks ? ull__stacks_create() : NULL;
        if (!pump->ring || (options->stacks && !pump->stacks))
            status = ull__fail(err, ULL_E_SYSTEM, "no memory to record into");
    }
    if (status != ULL_OK)
        ull__pump_forget(pump);
    else
        *out = pump;
    return status;
}

struct ull__writer *ull__pump_writer(struct ull__pump *pump)
{
    return pump->writer;
}

bool ull__pump_start(struct ull__pump *pump)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* this thread's mask; the new thread inherits it */
    pump->started = pthread_create(&pump->thread, &attributes, run, pump) == 0;
    sigprocmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return pump->started;
}

bool ull__pump_finish(struct ull__pump *pump, unsigned int wait_ms)
{
    const struct timespec moment = {.tv_nsec = 500000};
    int nothing = NOTHING;
    atomic_compare_exchange_strong(&pump->wish, &nothing, SAY_END);
    ull__ring_wake(pump->ring);
    for (unsigned int i = 0; i < 2 * wait_ms && atomic_load(&pump->fulfilled) == NOTHING; i++)
        nanosleep(&moment, NULL);
    return atomic_load(&pump->fulfilled) != NOTHING;
}

void ull__pump_destroy(struct ull__pump *pump)
{
    if (!pump)
        return;
    if (pump->started) {
        atomic_store(&pump->wish, STOP);
        ull__ring_wake(pump->ring);
        pthread_join(pump->thread, NULL);
    }
    ull__pump_forget(pump);
}

void ull__pump_forget(struct ull__pump *pump)
{
    if (!pump)
        return;
    ull__writer_forget(pump->writer);
    ull__ring_destroy(pump->ring);
    ull__stacks_destroy(pump->stacks);
    munmap(pump, sizeof *pump);
}
