/*
 * ring.c: copies between devices and host memory, many at a time.
 *
 * Memory that the device reaches goes straight. For the rest the device copies into a ring of pinned buffers, and
 * threads of ours copy between these and that memory at the same time: into new pages as fast as these can be
 * touched, into pages that are there about as fast as the bus (55 GB/s with 16 threads beside an H200).
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

enum { MOST_WORKERS = RING_MOST / 2, HUGE_PAGE = 2 << 20, SMALL_PAGE = 4096 };

enum buffer_state { BUFFER_FREE, BUFFER_DEVICE, BUFFER_HOST, BUFFER_READY };

/* One chunk on its way. Out: the device fills it, a worker empties it. Back: the other way round. */
struct buffer {
    enum buffer_state state;
    bool direct;
    CUevent event;
    unsigned char *host;
    CUdeviceptr device;
    size_t bytes;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buffer buffers[RING_MOST];
    int count, running, touched;
    uint64_t next; /* chunk number: buffers are used in turn */
    uint64_t done; /* chunks whose buffer is free again */
    bool out, stop, registered;
    void *memory;          /* mapped, where `pinned` is in it */
    unsigned char *pinned; /* count buffers; NULL: not needed so far */
    CUstream stream;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void ull__ring_forget(void)
{
    memset(&ring, 0, sizeof ring);
    pthread_mutex_init(&ring.lock, NULL);
    pthread_cond_init(&ring.changed, NULL);
}

static unsigned char *pinned_of(const struct buffer *buffer)
{
    return buffer->direct ? buffer->host
                          : ring.pinned + (size_t)(buffer - ring.buffers) * RING_BUFFER;
}

/* --- workers ---------------------------------------------------------------------------------------------- */

static void touch(unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += SMALL_PAGE)
        *(volatile unsigned char *)(at + i) = 0;
}

/* Copies what is in buffers' hands to or from ordinary memory. */
static void *work(void *data)
{
    touch(data, 2 * (size_t)RING_BUFFER);
    pthread_mutex_lock(&ring.lock);
    ring.touched++;
    pthread_cond_broadcast(&ring.changed);
    for (;;) {
        struct buffer *mine = NULL;
        for (int i = 0; i < ring.count && !mine; i++)
            if (ring.buffers[i].state == BUFFER_HOST)
                mine = &ring.buffers[i];
        if (!mine) {
            if (ring.stop)
                break;
            pthread_cond_wait(&ring.changed, &ring.lock);
            continue;
        }
        mine->state = BUFFER_DEVICE; /* nobody else's */
        bool out = ring.out;
        pthread_mutex_unlock(&ring.lock);
        if (out)
            memcpy(mine->host, pinned_of(mine), mine->bytes);
        else
            memcpy(pinned_of(mine), mine->host, mine->bytes);
        pthread_mutex_lock(&ring.lock);
        mine->state = out ? BUFFER_FREE : BUFFER_READY;
        pthread_cond_broadcast(&ring.changed);
    }
    ring.running--;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

static void end_workers(void)
{
    pthread_mutex_lock(&ring.lock);
    ring.stop = true;
    pthread_cond_broadcast(&ring.changed);
    while (ring.running > 0)
        pthread_cond_wait(&ring.changed, &ring.lock);
    pthread_mutex_unlock(&ring.lock);
}

/* Each touches its two buffers first. False: there are none. */
static bool start_workers(void)
{
    int started = 0;
    ring.stop = false;
    ring.touched = 0;
    for (int i = 0; i < ring.count / 2; i++) {
        pthread_mutex_lock(&ring.lock);
        ring.running++;
        pthread_mutex_unlock(&ring.lock);
        bool good = ull__own_thread(work, ring.pinned + (size_t)i * 2 * RING_BUFFER) == 0;
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

static size_t buffers_bytes(void)
{
    return (size_t)ring.count * RING_BUFFER;
}

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
    for (int i = 0; i < ring.count; i++)
        if (ring.buffers[i].event)
            ull__driver->cuEventDestroy_v2(ring.buffers[i].event);
    if (ring.stream)
        ull__driver->cuStreamDestroy_v2(ring.stream);
    drop_buffers();
    ring.stream = NULL;
    ring.count = 0;
    memset(ring.buffers, 0, sizeof ring.buffers);
}

bool ull__ring_open(bool out)
{
    const union ull__cuda *real = ull__driver;
    enum { NON_BLOCKING = 1 };
    int workers = ull__mover_threads();
    ring.out = out;
    ring.stop = false;
    ring.next = ring.done = 0;
    ring.count = 2 * (workers > MOST_WORKERS ? MOST_WORKERS : workers);
    /* A card that is full has no memory for a stream. Nothing else runs, so the default one does as well. */
    if (real->cuStreamCreate(&ring.stream, NON_BLOCKING) != CUDA_SUCCESS)
        ring.stream = NULL;
    bool good = true;
    for (int i = 0; good && i < ring.count; i++)
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
    pthread_cond_broadcast(&ring.changed);
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
    set_state(buffer, BUFFER_DEVICE);
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
    struct buffer *oldest = &ring.buffers[ring.done++ % (uint64_t)ring.count];
    if (!ring.out) {
        wait_state(oldest, BUFFER_READY);
        return begin_in(oldest);
    }
    bool good = ull__driver->cuEventSynchronize(oldest->event) == CUDA_SUCCESS;
    set_state(oldest, good && !oldest->direct ? BUFFER_HOST : BUFFER_FREE);
    return good;
}

/*
 * How many chunks may be with the device. Out, a chunk is given to the workers by the mover, so not all buffers may wait
 * for the device: the workers would get one at a time. A quarter keeps the bus busy, the rest keeps the workers so.
 */
static uint64_t most_on_device(void)
{
    return ring.out ? (uint64_t)ring.count / 4 + 1 : (uint64_t)ring.count;
}

/* A buffer that the ring is through with: the next in turn. */
static struct buffer *next_buffer(void)
{
    struct buffer *buffer = &ring.buffers[ring.next % (uint64_t)ring.count];
    while (ring.next - ring.done >= most_on_device())
        if (!step())
            return NULL;
    if (ring.next >= (uint64_t)ring.count) {
        if (ring.out)
            wait_state(buffer, BUFFER_FREE);
        else if (ull__driver->cuEventSynchronize(buffer->event) != CUDA_SUCCESS)
            return NULL;
    }
    ring.next++;
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
    while (good && ring.done < ring.next && is_ready(&ring.buffers[ring.done % (uint64_t)ring.count]))
        good = step();
    return good;
}

bool ull__ring_copy(unsigned char *host, CUdeviceptr device, size_t bytes, bool direct)
{
    struct buffer *buffer = direct || make_buffers() ? next_buffer() : NULL;
    if (!buffer)
        return false;
    buffer->host = host;
    buffer->device = device;
    buffer->bytes = bytes;
    buffer->direct = direct;
    if (ring.out)
        return begin_out(buffer);
    set_state(buffer, direct ? BUFFER_READY : BUFFER_HOST);
    return begin_ready();
}

uint64_t ull__ring_begun(void)
{
    return ring.next;
}

uint64_t ull__ring_depth(void)
{
    return (uint64_t)ring.count;
}

bool ull__ring_drain(void)
{
    bool good = true;
    while (ring.done < ring.next)
        good = step() && good;
    for (int i = 0; i < ring.count && ring.out; i++)
        wait_state(&ring.buffers[i], BUFFER_FREE);
    return ull__driver->cuStreamSynchronize(ring.stream) == CUDA_SUCCESS && good;
}
