/*
 * recorder.c: writes down what the hooks tell, where `ullage run --record` asks for it.
 *
 * A hook puts an event of 64 bytes into a ring and goes on; a thread of ours takes them out every 50 ms, or when
 * the ring is half full, brings them into the order of their times, and appends them to the record. It has all signals
 * blocked, also the one of a limit on file sizes. At the program's end it is asked to write what is left;
 * after a kill the last 50 ms are missing, at an exec and an _exit likewise.
 *
 * What is recorded is what the books say: the sum of all `charged` of a class is what the ledger holds of it for
 * this process, reservations for the worst case of calls that are under way left out.
 *
 * A failed write is said once and ends the recording; the program does not notice. A forked child begins anew at its own
 * cuInit. If it never calls that, it keeps its copy of the parent's descriptor, which closes at exec.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose.h"
#include "ring.h"
#include "stacks.h"

enum {
    RING_EVENTS = 1 << 15,
    BATCH = 1024,
    TICK_NS = 50000000,
    STACK_BYTES = 256 * 1024,
    LAST_WAIT_MS = 2000, /* for the last write at the program's end */
};

static struct {
    struct ull__ring *ring;
    struct ull__writer *writer;
    struct ull__stacks *stacks; /* NULL: not asked for */
    char path[ULL_RECORD_PATH];
    _Atomic int last_asked, last_done;
    struct ull__event batch[BATCH];
} books;

/* What this process is charged with for memory that others made. */
static struct {
    pthread_mutex_t lock;
    uint64_t told[MAX_ORDINALS][ULL_CLASSES];
} heir = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint32_t life; /* of this process: 1, and one more after each fork */

/* --- what hooks call ------------------------------------------------------------------------------------- */

/* The kernel's id of this thread, asked once in each thread and each life. */
static uint32_t thread_id(void)
{
    static __thread uint32_t known, known_in __attribute__((tls_model("initial-exec")));
    uint32_t now = atomic_load_explicit(&life, memory_order_relaxed);
    if (unlikely(known == 0 || known_in != now)) {
        known = (uint32_t)syscall(SYS_gettid);
        known_in = now;
    }
    return known;
}

uint64_t ull__tell_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void ull__tell(struct ull__event *event, uint64_t began_ns)
{
    event->time_ns = ull__tell_clock();
    uint64_t took = began_ns ? event->time_ns - began_ns : 0;
    event->latency_ns = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    event->thread = thread_id();
    if (books.stacks && began_ns) /* what no call of the program's asked for has no stack */
        event->stack = ull__stacks_take(books.stacks);
    ull__ring_put(books.ring, event);
}

void ull__tell_call(const struct ull__charge *charge, uint64_t charged, CUresult result)
{
    struct ull__event event = {.address = result == CUDA_SUCCESS ? charge->address : 0,
                               .size = charge->asked,
                               .charged = (int64_t)charged,
                               .stream = (uint64_t)(uintptr_t)charge->stream,
                               .result = (int16_t)result,
                               .kind = ULL_EVENT_ALLOC,
                               .class = (uint8_t)charge->class,
                               .device = (uint8_t)charge->gpu->device,
                               .wait = charge->wait};
    if (charge->gpu->device < 0)
        return;
    if (result == CUDA_SUCCESS && charge->address == 0) /* it has no block of its own */
        event.kind = ULL_EVENT_CHARGE, event.size = 0;
    ull__tell(&event, charge->began_ns);
}

void ull__tell_freed(const struct ull__gpu *gpu, enum ull__class class, uint64_t address,
                     uint64_t bytes, uint64_t charged, const struct ull__moment *moment)
{
    struct ull__event event = {.address = address,
                               .size = bytes,
                               .charged = (int64_t)charged,
                               .stream = moment ? (uint64_t)(uintptr_t)moment->stream : 0,
                               .kind = ULL_EVENT_FREE,
                               .class = (uint8_t) class,
                               .device = (uint8_t)gpu->device};
    if (gpu->device >= 0)
        ull__tell(&event, moment ? moment->began_ns : 0);
}

void ull__tell_change(const struct ull__gpu *gpu, enum ull__class class, int64_t change)
{
    struct ull__event event = {.charged = change,
                               .kind = ULL_EVENT_CHARGE,
                               .class = (uint8_t) class,
                               .device = (uint8_t)gpu->device};
    if (gpu->device >= 0 && change != 0)
        ull__tell(&event, 0);
}

/* --- memory of others that this process was left with ---------------------------------------------------- */

/* It passes to this process without a call of its own, so the parked thread looks, too. */
void ull__tell_inherited(void)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    pthread_mutex_lock(&heir.lock);
    for (int i = 0; i < ull__state.gpu_count; i++)
        for (int c = 0; ull__state.gpus[i].device >= 0 && c < ULL_CLASSES; c++) {
            uint64_t now =
                ull__member_inherited(member, ull__state.gpus[i].device, (enum ull__class)c);
            ull__tell_change(&ull__state.gpus[i], (enum ull__class)c,
                             (int64_t)(now - heir.told[i][c]));
            heir.told[i][c] = now;
        }
    pthread_mutex_unlock(&heir.lock);
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

static bool drain(void)
{
    uint32_t count;
    do {
        count = ull__ring_take(books.ring, books.batch, BATCH);
        sort(books.batch, count);
        for (uint32_t i = 0; i < count; i++) {
            if (books.batch[i].stack)
                books.batch[i].stack =
                    ull__stacks_write(books.stacks, books.batch[i].stack, books.writer);
            ull__writer_event(books.writer, &books.batch[i]);
        }
    } while (count == BATCH);
    return ull__writer_flush(books.writer, ull__ring_dropped(books.ring));
}

static void write_end(void)
{
    struct ull__event end = {.time_ns = ull__tell_clock(),
                             .result = -1, /* only the parent will know */
                             .kind = ULL_EVENT_END,
                             .device = ULL_EVENT_NO_DEVICE};
    if (books.stacks && ull__stacks_dropped(books.stacks) > 0) {
        struct ull__event mark = {.time_ns = end.time_ns,
                                  .size = ull__stacks_dropped(books.stacks),
                                  .tag = ull__writer_text(books.writer, "stacks dropped"),
                                  .kind = ULL_EVENT_MARK,
                                  .device = ULL_EVENT_NO_DEVICE};
        ull__writer_event(books.writer, &mark);
    }
    ull__writer_event(books.writer, &end);
    ull__writer_flush(books.writer, ull__ring_dropped(books.ring));
}

static const char *why(int error)
{
    return error == ESTALE ? "another file is there now" : strerror(error);
}

static void *record(void *data)
{
    (void)data;
    prctl(PR_SET_NAME, "ullage-rec", 0, 0, 0);
    for (;;) {
        bool last = atomic_load(&books.last_asked) && !atomic_load(&books.last_done);
        if (!drain())
            break;
        if (last) {
            write_end();
            atomic_store(&books.last_done, 1);
        }
        ull__ring_wait(books.ring, TICK_NS);
    }
    atomic_store(&ull__state.recording, false);
    atomic_store(&books.last_done, 1);
    ull__say("process %d is not recorded any more: cannot write to '%.300s': %s", (int)getpid(),
             books.path, why(ull__writer_error(books.writer)));
    return NULL;
}

static bool start_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* this thread's mask; the new thread inherits it */
    int failed = pthread_create(&thread, &attributes, record, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    if (failed == 0)
        pthread_detach(thread);
    return failed == 0;
}

/* --- beginning and end ------------------------------------------------------------------------------------- */

static void describe(const struct ull__identity *identity, struct ull__member *member)
{
    const struct ull__job_spec *spec = ull__ledger_spec(ull__member_ledger(member));
    for (int d = 0; d < spec->device_count; d++) /* numbered as in the ledger */
        ull__writer_device(books.writer, &(struct ull__record_device){
                                             .uuid = spec->devices[d].uuid,
                                             .name = spec->devices[d].name,
                                             .logical = spec->devices[d].logical,
                                             .physical = spec->devices[d].physical,
                                             .total_bytes = spec->devices[d].total_bytes,
                                             .budget_bytes = spec->devices[d].budget_bytes});
    ull__writer_process(books.writer, 0,
                        &(struct ull__record_process){.pid = identity->pid,
                                                      .parent = (uint32_t)getppid(),
                                                      .start_ticks = identity->start_ticks,
                                                      .begin_ns = ull__tell_clock(),
                                                      .name = identity->command});
}

static void let_go(void)
{
    ull__writer_forget(books.writer);
    ull__ring_destroy(books.ring);
    ull__stacks_destroy(books.stacks);
    memset(&books, 0, sizeof books);
}

void ull__recorder_start(const struct ull__identity *identity)
{
    const char *path = getenv("ULLAGE_RECORD"), *stacks = getenv("ULLAGE_STACKS");
    struct ull_error err = {""};
    if (!path || !path[0] || strlen(path) >= sizeof books.path)
        return;
    atomic_fetch_add(&life, 1);
    if (ull__writer_open(path, getenv("ULLAGE_RECORD_ID"), &books.writer, &err) != ULL_OK) {
        ull__say("process %d is not recorded: %s", (int)getpid(), err.message);
        return;
    }
    memcpy(books.path, path, strlen(path) + 1);
    books.ring = ull__ring_create(RING_EVENTS);
    if (stacks && strcmp(stacks, "1") == 0)
        books.stacks = ull__stacks_create();
    if (books.ring)
        describe(identity, atomic_load(&ull__state.member));
    if (books.ring && start_thread()) {
        atomic_store(&ull__state.recording, true);
        return;
    }
    ull__say("process %d is not recorded: no memory or thread for it", (int)getpid());
    let_go();
}

void ull__recorder_forget(void)
{
    atomic_store(&ull__state.recording, false);
    let_go();
    memset(heir.told, 0, sizeof heir.told);
    pthread_mutex_init(&heir.lock, NULL);
}

/* exit() runs this in a thread of the program's, after its own last functions. */
__attribute__((destructor)) static void write_the_rest(void)
{
    const struct timespec moment = {.tv_nsec = 500000};
    _Atomic int *alive = atomic_load(&ull__alive);
    if (!atomic_load(&ull__state.recording) || atomic_load(alive) == 0)
        return; /* in a forked child the thread is not there */
    atomic_store(&books.last_asked, 1);
    ull__ring_wake(books.ring);
    for (int i = 0; i < 2 * LAST_WAIT_MS && !atomic_load(&books.last_done); i++)
        nanosleep(&moment, NULL);
}
