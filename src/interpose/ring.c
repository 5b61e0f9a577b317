/*
 * ring.c: copies between devices and host memory, many at a time.
 *
 * Memory that the device reaches goes straight. For the rest the device copies into a ring of pinned buffers, and
 * threads of ours copy between these and that memory at the same time: into new pages as fast as these can be
 * touched, into pages that are there about as fast as the bus (55 GB/s with 16 threads beside an H200).
 *
 * What the threads do is bound by the processor's caches: the device's copies are large, for the sake of the bus, but a thread
 * takes a part of one, a huge page, which the kernel has just filled with zeros there; and there are no more buffers than
 * are needed, so that a thread finds what the device wrote in a cache still. Who waits is woken only if there is
 * something for it.
 *
 * The buffers are made with the first copy that needs them: of huge pages that the threads touch, which are then
 * pinned at 40 GB/s, where cuMemHostAlloc does 3.
 *
 * Used by one thread, the mover's.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "evict.h"

enum { MOST_WORKERS = 16, HUGE_PAGE = 2 << 20, SMALL_PAGE = 4096, PART = HUGE_PAGE };
enum { PARTS = RING_BUFFER / PART, ON_DEVICE = 3 };

enum buffer_state { BUFFER_FREE, BUFFER_DEVICE, BUFFER_HOST, BUFFER_READY };

/* One chunk on its way. Out: the device fills its buffer, workers empty it. Back: the other way round. */
struct buffer {
    enum buffer_state state;
    bool direct;
    CUevent event;
    unsigned char *host;
    CUdeviceptr device;
    size_t bytes;
    size_t page,
        pages; /* of the pinned memory: its first, and how many it takes up, with what was left out before it */
    size_t taken, left; /* by the workers, and not copied by them yet */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed, filled; /* for the mover; for the workers: there is something to copy */
    struct buffer buffers[RING_MOST];
    int workers, running, touched;
    uint64_t next;     /* chunk number: they take buffers, and pages, in turn */
    uint64_t done;     /* chunks that went their first step */
    uint64_t over;     /* chunks whose buffer is free again */
    size_t pages;      /* that there are */
    size_t page, used; /* the next one, and how many are in use */
    size_t on_device;  /* bytes; on the way out */
    bool out, stop, registered;
    void *memory;          /* mapped, where `pinned` is in it */
    unsigned char *pinned; /* NULL: not needed so far */
    CUstream stream;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .changed = PTHREAD_COND_INITIALIZER,
          .filled = PTHREAD_COND_INITIALIZER};

void ull__ring_forget(void)
{
    memset(&ring, 0, sizeof ring);
    pthread_mutex_init(&ring.lock, NULL);
    pthread_cond_init(&ring.changed, NULL);
    pthread_cond_init(&ring.filled, NULL);
}

static struct buffer *buffer_of(uint64_t number)
{
    return &ring.buffers[number % RING_MOST];
}

static unsigned char *pinned_of(const struct buffer *buffer)
{
    return buffer->direct ? buffer->host : ring.pinned + buffer->page * HUGE_PAGE;
}

static size_t buffers_bytes(void)
{
    return ring.pages * HUGE_PAGE;
}

/* --- workers ---------------------------------------------------------------------------------------------- */

/* Every so many huge pages of the buffers. */
static void touch(size_t from)
{
    for (size_t at = from * HUGE_PAGE; at < buffers_bytes(); at += (size_t)ring.workers * HUGE_PAGE)
        for (size_t i = 0; i < HUGE_PAGE; i += SMALL_PAGE)
            *(volatile unsigned char *)(ring.pinned + at + i) = 0;
}

/* The next part that somebody has to copy, the oldest chunk's first. */
static struct buffer *take_part(size_t *at, size_t *bytes)
{
    for (uint64_t number = ring.over; number < ring.next; number++) {
        struct buffer *buffer = buffer_of(number);
        if (buffer->state != BUFFER_HOST || buffer->taken == buffer->bytes)
            continue;
        *at = buffer->taken;
        *bytes = buffer->bytes - *at < PART ? buffer->bytes - *at : PART;
        buffer->taken += *bytes;
        return buffer;
    }
    return NULL;
}

/* Copies what is in buffers' hands to or from ordinary memory. */
static void *work(void *data)
{
    touch((size_t)(uintptr_t)data);
    pthread_mutex_lock(&ring.lock);
    ring.touched++;
    pthread_cond_signal(&ring.changed);
    for (;;) {
        size_t at, bytes;
        struct buffer *buffer = take_part(&at, &bytes);
        if (!buffer) {
            if (ring.stop)
                break;
            pthread_cond_wait(&ring.filled, &ring.lock);
            continue;
        }
        bool out = ring.out;
        pthread_mutex_unlock(&ring.lock);
        if (out)
            memcpy(buffer->host + at, pinned_of(buffer) + at, bytes);
        else
            memcpy(pinned_of(buffer) + at, buffer->host + at, bytes);
        pthread_mutex_lock(&ring.lock);
        buffer->left -= bytes;
        if (buffer->left > 0)
            continue;
        buffer->state = out ? BUFFER_FREE : BUFFER_READY;
        pthread_cond_signal(&ring.changed);
    }
    ring.running--;
    pthread_cond_signal(&ring.changed);
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

static void end_workers(void)
{
    pthread_mutex_lock(&ring.lock);
    ring.stop = true;
    pthread_cond_broadcast(&ring.filled);
    while (ring.running > 0)
        pthread_cond_wait(&ring.changed, &ring.lock);
    pthread_mutex_unlock(&ring.lock);
}

/* Together they touch the buffers first. False: there are none. */
static bool start_workers(void)
{
    int started = 0;
    ring.stop = false;
    ring.touched = 0;
    for (int i = 0; i < ring.workers; i++) {
        pthread_mutex_lock(&ring.lock);
        ring.running++;
        pthread_mutex_unlock(&ring.lock);
        bool good = ull__own_thread(work, (void *)(uintptr_t)i) == 0;
        pthread_mutex_lock(&ring.lock);
        if (!good)
            ring.running--;
        started += good;
        pthread_mutex_unlock(&ring.lock);
    }
    pthread_mutex_lock(&ring.lock);
    while (ring.touched < started)
        pthread_cond_wait(&ring.changed, &ring.lock);
    pthread_mutex_unlock(&ring.lock);
    return started > 0;
}

/* --- buffers ---------------------------------------------------------------------------------------------- */

static void drop_buffers(void)
{
    if (ring.registered)
        ull__driver->cuMemHostUnregister(ring.pinned);
    else if (ring.pinned && !ring.memory)
        ull__driver->cuMemFreeHost(ring.pinned);
    if (ring.memory)
        munmap(ring.memory, buffers_bytes() + HUGE_PAGE);
    ring.registered = false;
    ring.memory = NULL;
    ring.pinned = NULL;
}

static bool make_registered(void)
{
    void *memory = mmap(NULL, buffers_bytes() + HUGE_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    ring.memory = memory;
    ring.pinned =
        (unsigned char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    madvise(ring.memory, buffers_bytes() + HUGE_PAGE, MADV_HUGEPAGE);
    madvise(ring.memory, buffers_bytes() + HUGE_PAGE, MADV_DONTFORK);
    ring.registered =
        start_workers() && ull__driver->cuMemHostRegister_v2 &&
        ull__driver->cuMemHostRegister_v2(ring.pinned, buffers_bytes(), 0) == CUDA_SUCCESS;
    if (ring.registered)
        return true;
    end_workers();
    drop_buffers();
    return false;
}

/* Buffers, and those who empty or fill them. */
static bool make_buffers(void)
{
    void *pinned = NULL;
    if (ring.pinned || make_registered())
        return true;
    if (ull__driver->cuMemHostAlloc(&pinned, buffers_bytes(), 0) != CUDA_SUCCESS)
        return false;
    ring.pinned = pinned;
    if (start_workers())
        return true;
    drop_buffers();
    return false;
}

void ull__ring_close(void)
{
    end_workers();
    for (int i = 0; i < RING_MOST; i++)
        if (ring.buffers[i].event)
            ull__driver->cuEventDestroy_v2(ring.buffers[i].event);
    if (ring.stream)
        ull__driver->cuStreamDestroy_v2(ring.stream);
    drop_buffers();
    ring.stream = NULL;
    memset(ring.buffers, 0, sizeof ring.buffers);
}

bool ull__ring_open(bool out)
{
    const union ull__cuda *real = ull__driver;
    enum { NON_BLOCKING = 1 };
    int workers = ull__mover_threads();
    ring.out = out;
    ring.stop = false;
    ring.next = ring.done = ring.over = 0;
    ring.page = ring.used = ring.on_device = 0;
    ring.workers = workers > MOST_WORKERS ? MOST_WORKERS : workers;
    /* As many as are copied at a time, as many again to go on with, and those that are with the device. */
    ring.pages = ((size_t)ring.workers + PARTS - 1) / PARTS * PARTS * 2 + ON_DEVICE * PARTS;
    /* A card that is full has no memory for a stream. Nothing else runs, so the default one does as well. */
    if (real->cuStreamCreate(&ring.stream, NON_BLOCKING) != CUDA_SUCCESS)
        ring.stream = NULL;
    bool good = true;
    for (int i = 0; good && i < RING_MOST; i++)
        good = real->cuEventCreate(&ring.buffers[i].event,
                                   CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) == CUDA_SUCCESS;
    if (!good)
        ull__ring_close();
    return good;
}

/* --- copies ----------------------------------------------------------------------------------------------- */

static void set_state(struct buffer *buffer, enum buffer_state state)
{
    pthread_mutex_lock(&ring.lock);
    buffer->state = state;
    pthread_mutex_unlock(&ring.lock);
}

/* To the workers. */
static void hand_over(struct buffer *buffer)
{
    pthread_mutex_lock(&ring.lock);
    buffer->taken = 0;
    buffer->left = buffer->bytes;
    buffer->state = BUFFER_HOST;
    for (size_t at = 0; at < buffer->bytes; at += PART)
        pthread_cond_signal(&ring.filled);
    pthread_mutex_unlock(&ring.lock);
}

static void wait_state(struct buffer *buffer, enum buffer_state state)
{
    pthread_mutex_lock(&ring.lock);
    while (buffer->state != state)
        pthread_cond_wait(&ring.changed, &ring.lock);
    pthread_mutex_unlock(&ring.lock);
}

static bool begin_in(struct buffer *buffer)
{
    const union ull__cuda *real = ull__driver;
    bool good = real->cuMemcpyHtoDAsync_v2(buffer->device, pinned_of(buffer), buffer->bytes,
                                           ring.stream) == CUDA_SUCCESS &&
                real->cuEventRecord(buffer->event, ring.stream) == CUDA_SUCCESS;
    set_state(buffer, BUFFER_DEVICE);
    return good;
}

static bool begin_out(struct buffer *buffer)
{
    const union ull__cuda *real = ull__driver;
    return real->cuMemcpyDtoHAsync_v2(pinned_of(buffer), buffer->device, buffer->bytes,
                                      ring.stream) == CUDA_SUCCESS &&
           real->cuEventRecord(buffer->event, ring.stream) == CUDA_SUCCESS;
}

/*
 * The oldest chunk goes a step on: out, its copy from the device is over and a worker gets it; back, a worker
 * has filled it and the device gets it.
 */
static bool step(void)
{
    struct buffer *oldest = buffer_of(ring.done++);
    if (!ring.out) {
        wait_state(oldest, BUFFER_READY);
        return begin_in(oldest);
    }
    bool good = ull__driver->cuEventSynchronize(oldest->event) == CUDA_SUCCESS;
    ring.on_device -= oldest->bytes;
    if (good && !oldest->direct)
        hand_over(oldest);
    else
        set_state(oldest, BUFFER_FREE);
    return good;
}

/*
 * Out, a chunk is given to the workers by the mover, so not all buffers may wait for the device: the workers would get one
 * at a time. A few large ones keep the bus busy, the rest keeps the workers so.
 */
static bool device_has_enough(void)
{
    return ring.out && ring.next - ring.done >= ON_DEVICE &&
           ring.on_device >= ON_DEVICE * (size_t)RING_BUFFER;
}

/* The oldest chunk is where it shall be. */
static bool retire(void)
{
    struct buffer *oldest = buffer_of(ring.over);
    while (ring.done <= ring.over)
        if (!step())
            return false;
    if (ring.out)
        wait_state(oldest, BUFFER_FREE);
    else if (ull__driver->cuEventSynchronize(oldest->event) != CUDA_SUCCESS)
        return false;
    pthread_mutex_lock(&ring.lock);
    ring.over++;
    pthread_mutex_unlock(&ring.lock);
    ring.used -= oldest->pages;
    return true;
}

/* The next buffer, with so many pages side by side, once these are free. */
static struct buffer *next_buffer(size_t pages)
{
    struct buffer *buffer = buffer_of(ring.next);
    size_t skipped = pages > ring.pages - ring.page ? ring.pages - ring.page : 0;
    while (device_has_enough())
        if (!step())
            return NULL;
    while (ring.next - ring.over == RING_MOST || ring.used + skipped + pages > ring.pages)
        if (!retire())
            return NULL;
    buffer->page = skipped ? 0 : ring.page;
    buffer->pages = skipped + pages;
    ring.page = (buffer->page + pages) % ring.pages;
    ring.used += buffer->pages;
    return buffer;
}

static bool is_ready(struct buffer *buffer)
{
    pthread_mutex_lock(&ring.lock);
    bool ready = buffer->state == BUFFER_READY;
    pthread_mutex_unlock(&ring.lock);
    return ready;
}

/* Back: the device gets what is there for it already, in turn. */
static bool begin_ready(void)
{
    bool good = true;
    while (good && ring.done < ring.next && is_ready(buffer_of(ring.done)))
        good = step();
    return good;
}

bool ull__ring_copy(unsigned char *host, CUdeviceptr device, size_t bytes, bool direct)
{
    size_t pages = direct ? 0 : (bytes + HUGE_PAGE - 1) / HUGE_PAGE;
    struct buffer *buffer = direct || make_buffers() ? next_buffer(pages) : NULL;
    if (!buffer)
        return false;
    buffer->host = host;
    buffer->device = device;
    buffer->bytes = bytes;
    buffer->direct = direct;
    pthread_mutex_lock(&ring.lock);
    buffer->state = direct && !ring.out ? BUFFER_READY : BUFFER_DEVICE;
    ring.next++;
    pthread_mutex_unlock(&ring.lock);
    if (ring.out) {
        ring.on_device += bytes;
        return begin_out(buffer);
    }
    if (!direct)
        hand_over(buffer);
    return begin_ready();
}

uint64_t ull__ring_begun(void)
{
    return ring.next;
}

uint64_t ull__ring_over(void)
{
    return ring.over;
}

bool ull__ring_drain(void)
{
    bool good = true;
    while (ring.done < ring.next)
        good = step() && good;
    for (uint64_t number = ring.over; number < ring.next && ring.out; number++)
        wait_state(buffer_of(number), BUFFER_FREE);
    return ull__driver->cuStreamSynchronize(ring.stream) == CUDA_SUCCESS && good;
}
