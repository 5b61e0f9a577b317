/*
 * host_store.c: the host memory that a job's bytes move to.
 *
 * One range of ordinary memory in huge pages. New pages are slow to get by one thread (8 GB/s beside an H200, 60 by
 * 16), and pinning pages that are there is fast (42 GB/s; cuMemHostAlloc, which makes them too, does 3). So while
 * bytes go out, threads touch the range ahead of the copies and another pins it part by part, and the device
 * writes to it at the speed of the bus. Where pinning is refused (or forbidden, `run --pinned none`),
 * the bytes go through a ring of buffers instead (ring.c).
 *
 * Once all is out the memory is unpinned, so that it can be paged out like any other; on the way back it is read
 * through the ring. When all is back it stays mapped, but by MADV_FREE: the kernel takes it once it needs it, and
 * until then the next suspension finds pages that are there. On virtual machines whose host takes free pages
 * back these are an order of magnitude faster than new ones.
 *
 * `run --pinned SIZE`: so much of the range is touched and pinned ahead, while the program runs, as the program's
 * own memory grows, and stays so.
 *
 * Limits: pages that were given back that way and are used again are counted as available by the kernel until it
 * looks at them (MemAvailable), so what is free is told without them (ull__host_has), and nothing is kept
 * where the host does not have twice as much besides.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "evict.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define UNIT ((size_t)16 << 20)      /* what a thread touches at a time */
#define PART ((size_t)256 << 20)     /* what is pinned at a time */
#define AHEAD ((size_t)2 << 30)      /* at most so much is touched before it is needed */
#define LEAST_ROOM ((size_t)1 << 30) /* that pinning ahead leaves to others */
enum { SMALL_PAGE = 4096, REGISTER_PORTABLE = 1, PAUSE_S = 5 };

struct part {
    size_t start, size;
    size_t touched; /* bytes, in this preparation */
    size_t pinned;  /* bytes from its start */
    bool keeps;     /* the account has it: it stays pinned */
    bool settled;   /* nobody will pin it any more in this preparation */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned char *memory, *base; /* mapped, and its first whole huge page */
    size_t mapped, size;
    size_t used;   /* by what is out, or goes out */
    size_t pinned; /* from the start on: that may stay pinned, `run --pinned` */
    struct part *parts;
    size_t part_count;
    /* While bytes go out: */
    CUcontext context;
    size_t next;    /* to touch */
    size_t reached; /* by the copies */
    int running;
    bool preparing, stop, refused;
    _Atomic uint64_t kept; /* pinned to stay so */
    _Atomic bool cannot;   /* pin anything ahead */
    _Atomic time_t again;  /* when there may be room to pin more ahead; CLOCK_MONOTONIC */
} store = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void ull__store_forget(void)
{
    memset(&store, 0, sizeof store); /* the parent's memory is not in a child of it (MADV_DONTFORK) */
    pthread_mutex_init(&store.lock, NULL);
    pthread_cond_init(&store.changed, NULL);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t rounded(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

unsigned char *ull__store_base(void)
{
    return store.base;
}

/* --- the range -------------------------------------------------------------------------------------------- */

/* [from, to) in parts; none lies across. */
static void divide(size_t from, size_t to)
{
    for (size_t at = from; at < to; at += PART)
        store.parts[store.part_count++] = (struct part){.start = at, .size = smaller(PART, to - at)};
}

static struct part *part_at(size_t offset)
{
    size_t first = (store.pinned + PART - 1) / PART;
    size_t at = offset < store.pinned ? offset / PART : first + (offset - store.pinned) / PART;
    return &store.parts[at];
}

static struct ull__member *member(void)
{
    return atomic_load(&ull__state.member);
}

static const struct ull__job_spec *spec(void)
{
    return ull__ledger_spec(ull__member_ledger(member()));
}

static void keep(struct part *part, bool keeps)
{
    part->keeps = keeps;
    if (keeps)
        atomic_fetch_add(&store.kept, part->size);
    else
        atomic_fetch_sub(&store.kept, part->size);
}

/* It is not pinned any more, or shall not stay so. */
static void let_go(struct part *part)
{
    if (!part->keeps)
        return;
    ull__member_unpin(member(), part->size);
    keep(part, false);
}

static void drop_range(void)
{
    if (store.base)
        ull__use_context(-1);
    for (size_t i = 0; i < store.part_count; i++) {
        if (store.parts[i].pinned)
            ull__driver->cuMemHostUnregister(store.base + store.parts[i].start);
        let_go(&store.parts[i]);
    }
    free(store.parts);
    if (store.memory)
        munmap(store.memory, store.mapped);
    store.parts = NULL;
    store.part_count = 0;
    store.memory = store.base = NULL;
    store.mapped = store.size = store.used = 0;
}

static bool map_range(size_t size)
{
    size_t count = size / PART + 2;
    store.parts = calloc(count, sizeof *store.parts);
    void *memory = store.parts ? mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                               : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(store.parts);
        store.parts = NULL;
        return false;
    }
    store.memory = memory;
    store.mapped = size + HUGE_PAGE;
    store.base = (unsigned char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    store.size = size;
    madvise(store.memory, store.mapped, MADV_HUGEPAGE);
    madvise(store.memory, store.mapped, MADV_DONTFORK);
    madvise(store.memory, store.mapped, MADV_DONTDUMP);
    divide(0, store.pinned);
    divide(store.pinned, size);
    return true;
}

/* Addresses cost nothing: at first for all that the job's devices have, so that it need not be made anew. */
static uint64_t most_ever(void)
{
    uint64_t sum = 0;
    for (int d = 0; d < spec()->device_count; d++)
        sum += spec()->devices[d].total_bytes;
    return sum;
}

static bool has_range(uint64_t bytes)
{
    if (store.base && bytes <= store.size)
        return true;
    drop_range();
    store.pinned = rounded(spec()->pinned_bytes);
    size_t needed = rounded(bytes > store.pinned ? bytes : store.pinned);
    size_t most = rounded(most_ever());
    return (most > needed && map_range(most)) || map_range(needed);
}

/* --- ahead of the copies ------------------------------------------------------------------------------------ */

/*
 * MADV_FREE is undone by a write only, and a part may hold bytes of a move that was not finished: so each page gets a write
 * that changes nothing. Not a read first, which would map the zero page only to replace it, at the price of a
 * second fault and of telling all cores. A locked compare-and-exchange writes in any case.
 */
static void touch(size_t from, size_t to)
{
    for (size_t at = from; at < to; at += SMALL_PAGE) {
        unsigned char zero = 0;
        __atomic_compare_exchange_n(store.base + at, &zero, 0, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    }
}

/* What is pinned of a part: all of it where it stays so, else what is used. */
static size_t to_pin(const struct part *part)
{
    return part->keeps ? part->size : smaller(part->size, store.used - part->start);
}

/* The next bytes to touch; false: there are none any more. Called and left with the lock held. */
static bool next_unit(size_t *from, size_t *to)
{
    for (;;) {
        while (!store.stop && !store.refused && store.next < store.used &&
               store.next >= store.reached + AHEAD)
            pthread_cond_wait(&store.changed, &store.lock);
        if (store.stop || store.refused || store.next >= store.used)
            return false;
        const struct part *part = part_at(store.next);
        *from = store.next;
        *to = part->pinned ? part->start + part->size
                           : smaller(store.next + UNIT, part->start + to_pin(part));
        store.next = *to == part->start + to_pin(part) ? part->start + part->size : *to;
        if (!part->pinned)
            return true;
    }
}

static void leave(void)
{
    store.running--;
    pthread_cond_broadcast(&store.changed);
    pthread_mutex_unlock(&store.lock);
}

static void *touch_ahead(void *unused)
{
    size_t from, to;
    (void)unused;
    pthread_mutex_lock(&store.lock);
    while (next_unit(&from, &to)) {
        struct part *part = part_at(from);
        pthread_mutex_unlock(&store.lock);
        touch(from, to);
        pthread_mutex_lock(&store.lock);
        part->touched += to - from;
        if (part->touched == to_pin(part))
            pthread_cond_broadcast(&store.changed);
    }
    leave();
    return NULL;
}

static bool pin(const struct part *part, size_t bytes)
{
    CUresult result =
        ull__driver->cuMemHostRegister_v2(store.base + part->start, bytes, REGISTER_PORTABLE);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

static void *pin_ahead(void *unused)
{
    (void)unused;
    ull__driver->cuCtxSetCurrent(store.context);
    pthread_mutex_lock(&store.lock);
    for (size_t i = 0; i < store.part_count && store.parts[i].start < store.used; i++) {
        struct part *part = &store.parts[i];
        while (!part->pinned && part->touched < to_pin(part) && !store.stop && !store.refused)
            pthread_cond_wait(&store.changed, &store.lock);
        if (!part->pinned && !store.stop && !store.refused) {
            size_t bytes = to_pin(part);
            pthread_mutex_unlock(&store.lock);
            bool good = pin(part, bytes);
            pthread_mutex_lock(&store.lock);
            part->pinned = good ? bytes : 0;
            store.refused = !good;
        }
        part->settled = true;
        pthread_cond_broadcast(&store.changed);
    }
    leave();
    return NULL;
}

static bool start(void *(*run)(void *))
{
    pthread_mutex_lock(&store.lock);
    store.running++;
    pthread_mutex_unlock(&store.lock);
    bool good = ull__own_thread(run, NULL) == 0;
    if (!good) {
        pthread_mutex_lock(&store.lock);
        store.running--;
        pthread_mutex_unlock(&store.lock);
    }
    return good;
}

/* Who resets a device takes the pins with it. */
static void look_at_pins(void)
{
    unsigned int flags;
    for (size_t i = 0; i < store.part_count; i++)
        if (store.parts[i].pinned && ull__driver->cuMemHostGetFlags &&
            ull__driver->cuMemHostGetFlags(&flags, store.base + store.parts[i].start) !=
                CUDA_SUCCESS) {
            store.parts[i].pinned = 0;
            let_go(&store.parts[i]);
        }
}

static bool may_pin(void)
{
    return !spec()->never_pins && ull__driver->cuMemHostRegister_v2;
}

void ull__store_prepare(void)
{
    if (store.preparing)
        return;
    look_at_pins();
    for (size_t i = 0; i < store.part_count; i++) {
        store.parts[i].touched = 0;
        store.parts[i].settled = false;
    }
    store.next = store.reached = 0;
    store.stop = false;
    store.refused = !may_pin() || ull__driver->cuCtxGetCurrent(&store.context) != CUDA_SUCCESS;
    store.preparing = true;
    if (store.refused)
        return;
    int threads = ull__mover_threads() - 1, started = 0;
    for (int i = 0; i < (threads > 0 ? threads : 1); i++)
        started += start(touch_ahead);
    if (started == 0 || !start(pin_ahead)) {
        pthread_mutex_lock(&store.lock);
        store.refused = true; /* those who touch end */
        pthread_cond_broadcast(&store.changed);
        pthread_mutex_unlock(&store.lock);
    }
}

size_t ull__store_ready(const unsigned char *host, bool *direct)
{
    size_t offset = (size_t)(host - store.base);
    struct part *part = part_at(offset);
    pthread_mutex_lock(&store.lock);
    if (offset > store.reached) {
        store.reached = offset;
        pthread_cond_broadcast(&store.changed);
    }
    while (store.preparing && !store.refused && !part->settled)
        pthread_cond_wait(&store.changed, &store.lock);
    size_t pinned = part->pinned;
    pthread_mutex_unlock(&store.lock);
    size_t within = offset - part->start;
    *direct = within < pinned;
    return (*direct ? pinned : part->size) - within;
}

void ull__store_settle(void)
{
    pthread_mutex_lock(&store.lock);
    store.stop = true;
    pthread_cond_broadcast(&store.changed);
    while (store.running > 0)
        pthread_cond_wait(&store.changed, &store.lock);
    store.preparing = false;
    pthread_mutex_unlock(&store.lock);
}

void ull__store_unpin(bool (*stop)(void *data), void *data)
{
    for (size_t i = 0; i < store.part_count && !(stop && stop(data)); i++) {
        struct part *part = &store.parts[i];
        if (part->pinned && !part->keeps) {
            ull__driver->cuMemHostUnregister(store.base + part->start);
            part->pinned = 0;
        }
    }
}

/* --- from one suspension to the next ------------------------------------------------------------------------- */

uint64_t ull__store_kept(void)
{
    return atomic_load(&store.kept);
}

bool ull__store_open(uint64_t bytes)
{
    if (!has_range(bytes))
        return false;
    store.used = rounded(bytes);
    return true;
}

void ull__store_give_back(void)
{
    bool plenty = ull__host_has(2 * store.used, NULL);
    for (size_t i = 0; i < store.part_count && store.parts[i].start < store.used; i++) {
        const struct part *part = &store.parts[i];
        unsigned char *at = store.base + part->start;
        size_t bytes = smaller(part->size, store.used - part->start);
        if (part->pinned == 0 && !(plenty && madvise(at, bytes, MADV_FREE) == 0))
            madvise(at, bytes, MADV_DONTNEED);
    }
    store.used = 0;
}

/* --- run --pinned: while the program runs ---------------------------------------------------------------------- */

/* What may move, as the books have it. */
static uint64_t may_move(void)
{
    uint64_t sum = 0;
    for (int o = 0; o < atomic_load(&ull__state.gpu_count); o++)
        if (ull__state.gpus[o].device >= 0)
            sum += ull__member_held(member(), ull__state.gpus[o].device, ULL_CLASS_DATA);
    return sum;
}

static time_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

bool ull__store_ahead_due(void)
{
    uint64_t most = rounded(spec()->pinned_bytes), kept = atomic_load(&store.kept);
    CUcontext context;
    return most > 0 && !atomic_load(&store.cannot) && kept < most && kept < may_move() &&
           now_s() >= atomic_load(&store.again) && ull__block_contexts(&context, 1) > 0 &&
           ull__member_may_pin(member(), smaller(PART, most - kept));
}

/* Touches a part; false: it was stopped, and what is touched goes back. */
static bool touch_part(const struct part *part, bool (*stop)(void *data), void *data)
{
    for (size_t at = 0; at < part->size; at += UNIT) {
        if (stop(data)) {
            madvise(store.base + part->start, part->size, MADV_DONTNEED);
            return false;
        }
        touch(part->start + at, part->start + smaller(at + UNIT, part->size));
    }
    return true;
}

/* One part, for good. */
static bool pin_for_good(struct part *part, bool (*stop)(void *data), void *data)
{
    bool good = false;
    if (!ull__host_has(LEAST_ROOM + part->size, NULL) || !ull__member_pin(member(), part->size)) {
        atomic_store(&store.again, now_s() + PAUSE_S);
        return false;
    }
    if (touch_part(part, stop, data)) {
        ULL_RELAXED(ull__driver, good = pin(part, part->size));
        if (!good) {
            madvise(store.base + part->start, part->size, MADV_DONTNEED);
            atomic_store(&store.cannot, true);
            if (!spec()->quiet)
                ull__say("process %d: the driver pins no host memory (--pinned): the job is moved "
                         "through ordinary memory",
                         (int)getpid());
        }
    }
    if (!good) {
        ull__member_unpin(member(), part->size);
        return false;
    }
    part->pinned = part->size;
    keep(part, true);
    return true;
}

void ull__store_ahead(bool (*stop)(void *data), void *data)
{
    if (!may_pin() || !ull__use_context(-1) || !has_range(0)) {
        atomic_store(&store.cannot, true);
        return;
    }
    for (size_t i = 0; i < store.part_count && store.parts[i].start < store.pinned; i++) {
        struct part *part = &store.parts[i];
        if (part->pinned == 0 && (stop(data) || atomic_load(&store.kept) >= may_move() ||
                                  !pin_for_good(part, stop, data)))
            return;
    }
}
