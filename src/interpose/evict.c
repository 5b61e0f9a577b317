/*
 * evict.c: the bytes of our pieces, and of what the program mapped itself, out to host memory and back to the same addresses.
 *
 * The device copies into a ring of pinned buffers, and threads of ours copy between these and ordinary memory at
 * the same time: pinning all of it would take as long as a second for every 2 GB. A piece that was copied out is
 * unmapped and its memory released at once, so that the card gets free while the rest moves; where that fails or
 * is cancelled, what is out comes back. To come back, memory for all pieces is made before any is mapped.
 *
 * Called with the gate closed and the devices at rest, by one thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "size.h"
#include "suspend.h"

enum {
    BUFFER_BYTES = 8 << 20,
    MOST_WORKERS = 8,
    BUFFERS_PER_WORKER = 2,
    MOST_BUFFERS = MOST_WORKERS * BUFFERS_PER_WORKER,
};

enum buffer_state { BUFFER_FREE, BUFFER_DEVICE, BUFFER_HOST, BUFFER_READY };

/* One chunk on its way. Out: the device fills it, a worker empties it. Back: the other way round. */
struct buffer {
    enum buffer_state state;
    unsigned char *pinned;
    CUevent event;
    unsigned char *host;
    CUdeviceptr device;
    size_t bytes;
};

struct ring {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buffer buffers[MOST_BUFFERS];
    int count, workers, running;
    uint64_t next; /* chunk number: buffers are used in turn */
    uint64_t done; /* chunks whose buffer is free again */
    bool out, stop;
    unsigned char *pinned;
    CUstream stream;
    CUcontext context;
};

static struct ring ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static unsigned char *host_memory; /* for all that is out */
static size_t host_bytes;
static struct ull__piece **items; /* all that can be moved, as of the last look with all of it in */
static size_t item_count;

void ull__evict_forget(void)
{
    memset(&ring, 0, sizeof ring);
    pthread_mutex_init(&ring.lock, NULL);
    pthread_cond_init(&ring.changed, NULL);
    host_memory = NULL; /* the parent's; a child of it has no device memory */
    host_bytes = 0;
    items = NULL;
    item_count = 0;
}

/* --- the ring --------------------------------------------------------------------------------------------- */

/* Copies what is in buffers' hands to or from ordinary memory. */
static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&ring.lock);
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
            memcpy(mine->host, mine->pinned, mine->bytes);
        else
            memcpy(mine->pinned, mine->host, mine->bytes);
        pthread_mutex_lock(&ring.lock);
        mine->state = out ? BUFFER_FREE : BUFFER_READY;
        pthread_cond_broadcast(&ring.changed);
    }
    ring.running--;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

static int worker_count(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int workers = processors < 2 ? 1 : (int)(processors / 2);
    return workers > MOST_WORKERS ? MOST_WORKERS : workers;
}

static void ring_close(void)
{
    pthread_mutex_lock(&ring.lock);
    ring.stop = true;
    pthread_cond_broadcast(&ring.changed);
    while (ring.running > 0)
        pthread_cond_wait(&ring.changed, &ring.lock);
    pthread_mutex_unlock(&ring.lock);
    for (int i = 0; i < ring.count; i++)
        if (ring.buffers[i].event)
            ull__driver->cuEventDestroy_v2(ring.buffers[i].event);
    if (ring.stream)
        ull__driver->cuStreamDestroy_v2(ring.stream);
    if (ring.pinned)
        ull__driver->cuMemFreeHost(ring.pinned);
    ring.pinned = NULL;
    ring.stream = NULL;
    ring.count = 0;
    memset(ring.buffers, 0, sizeof ring.buffers);
}

/* In the context that is current. */
static bool ring_open(bool out)
{
    const union ull__cuda *real = ull__driver;
    enum { NON_BLOCKING = 1 };
    void *pinned = NULL;
    int workers = worker_count(), count = workers * BUFFERS_PER_WORKER;
    ring.out = out;
    ring.stop = false;
    ring.next = ring.done = 0;
    if (real->cuMemHostAlloc(&pinned, (size_t)count * BUFFER_BYTES, 0) != CUDA_SUCCESS)
        return false;
    ring.pinned = pinned;
    bool good = real->cuStreamCreate(&ring.stream, NON_BLOCKING) == CUDA_SUCCESS;
    for (int i = 0; i < count && good; i++) {
        ring.buffers[i] = (struct buffer){.pinned = ring.pinned + (size_t)i * BUFFER_BYTES};
        good = real->cuEventCreate(&ring.buffers[i].event,
                                   CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) == CUDA_SUCCESS;
        ring.count = i + 1;
    }
    for (int i = 0; i < workers && good; i++) {
        ring.running++;
        if (ull__own_thread(work, NULL) != 0)
            ring.running--;
    }
    good = good && ring.running > 0;
    if (!good)
        ring_close();
    return good;
}

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

/*
 * The oldest chunk goes a step on: out, its copy from the device is over and a worker gets it; back, a worker
 * has filled it and the device gets it.
 */
static bool step(void)
{
    struct buffer *oldest = &ring.buffers[ring.done++ % (uint64_t)ring.count];
    const union ull__cuda *real = ull__driver;
    if (ring.out) {
        if (real->cuEventSynchronize(oldest->event) != CUDA_SUCCESS)
            return false;
        set_state(oldest, BUFFER_HOST);
        return true;
    }
    wait_state(oldest, BUFFER_READY);
    bool good = real->cuMemcpyHtoDAsync_v2(oldest->device, oldest->pinned, oldest->bytes,
                                           ring.stream) == CUDA_SUCCESS &&
                real->cuEventRecord(oldest->event, ring.stream) == CUDA_SUCCESS;
    set_state(oldest, BUFFER_DEVICE);
    return good;
}

/* A buffer that the ring is through with: the next in turn. */
static struct buffer *next_buffer(void)
{
    struct buffer *buffer = &ring.buffers[ring.next % (uint64_t)ring.count];
    if (ring.next >= (uint64_t)ring.count) {
        if (ring.next - ring.done >= (uint64_t)ring.count && !step())
            return NULL;
        if (ring.out)
            wait_state(buffer, BUFFER_FREE);
        else if (ull__driver->cuEventSynchronize(buffer->event) != CUDA_SUCCESS)
            return NULL;
    }
    ring.next++;
    return buffer;
}

static bool copy_chunk(unsigned char *host, CUdeviceptr device, size_t bytes)
{
    struct buffer *buffer = next_buffer();
    if (!buffer)
        return false;
    buffer->host = host;
    buffer->device = device;
    buffer->bytes = bytes;
    if (!ring.out) {
        set_state(buffer, BUFFER_HOST);
        return true;
    }
    set_state(buffer, BUFFER_DEVICE);
    return ull__driver->cuMemcpyDtoHAsync_v2(buffer->pinned, device, bytes, ring.stream) ==
               CUDA_SUCCESS &&
           ull__driver->cuEventRecord(buffer->event, ring.stream) == CUDA_SUCCESS;
}

/* Everything that was begun is where it shall be. */
static bool drain(void)
{
    bool good = true;
    while (ring.done < ring.next)
        good = step() && good;
    for (int i = 0; i < ring.count && ring.out; i++)
        wait_state(&ring.buffers[i], BUFFER_FREE);
    return (ring.out || ull__driver->cuStreamSynchronize(ring.stream) == CUDA_SUCCESS) && good;
}

/* Begins all chunks of a piece; they are where they shall be after the next drain. */
static bool send_piece(const struct ull__piece *piece)
{
    for (uint64_t at = 0; at < piece->bytes; at += BUFFER_BYTES) {
        uint64_t left = piece->bytes - at;
        if (!copy_chunk(piece->host + at, piece->base + at,
                        left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES))
            return false;
    }
    return true;
}

static bool copy_piece(const struct ull__piece *piece)
{
    return send_piece(piece) && drain();
}

/* --- devices ----------------------------------------------------------------------------------------------- */

/* Makes a living context of the device current. */
static bool use_device(int ordinal)
{
    CUcontext contexts[64];
    int count = ull__block_contexts(contexts, 64);
    for (int i = 0; i < count; i++) {
        CUdevice device = -1;
        if (ull__driver->cuCtxSetCurrent(contexts[i]) == CUDA_SUCCESS &&
            ull__driver->cuCtxGetDevice(&device) == CUDA_SUCCESS && device == ordinal)
            return true;
    }
    return false;
}

/* What can be moved: pieces of ours, and what the program mapped itself. */
static void collect(void)
{
    size_t count;
    struct ull__piece *pieces = ull__backing_pieces(&count);
    size_t max = count + ull__handles_count();
    free(items);
    items = malloc((max + 1) * sizeof *items);
    item_count = 0;
    for (size_t i = 0; i < count && items; i++)
        if (!pieces[i].stays)
            items[item_count++] = &pieces[i];
    if (items)
        item_count += ull__handles_movable(items + item_count, max - item_count);
}

uint64_t ull__evictable(void)
{
    uint64_t sum = 0;
    if (!host_memory) /* else the pieces that are out must not be lost sight of */
        collect();
    for (size_t i = 0; i < item_count; i++)
        sum += items[i]->bytes;
    return sum;
}

/* --- out ----------------------------------------------------------------------------------------------------- */

static bool fail(char why[ULL_TROUBLE_TEXT], const char *text)
{
    snprintf(why, ULL_TROUBLE_TEXT, "%s", text);
    return false;
}

static void release(struct ull__piece *piece)
{
    if (piece->object)
        ull__object_unmap(piece);
    else
        ull__driver->cuMemUnmap(piece->base, piece->bytes);
    ull__driver->cuMemRelease(piece->handle);
    piece->handle = 0;
}

/*
 * Pieces whose chunks are on their way out, so that the device goes on with the next while threads still copy the
 * last. Each has at least one chunk, so no more are on their way than there are buffers.
 */
enum { LEAVING = MOST_BUFFERS + 2 };
struct leaving {
    struct ull__piece *piece[LEAVING];
    uint64_t end[LEAVING]; /* chunks begun when the piece was */
    size_t first, last;
};

/* Lets go of pieces whose last chunk is on the host: its buffer was used again since, or all was drained. */
static void let_go(struct ull__eviction *eviction, struct leaving *leaving, bool drained)
{
    for (; leaving->first < leaving->last; leaving->first++) {
        size_t at = leaving->first % LEAVING;
        struct ull__piece *piece = leaving->piece[at];
        if (!drained && ring.next < leaving->end[at] + (uint64_t)ring.count)
            return;
        release(piece);
        eviction->moved += piece->bytes;
        eviction->by_ordinal[piece->ordinal] += piece->bytes;
        eviction->progress(eviction);
    }
}

static bool send_out(struct ull__eviction *eviction, struct leaving *leaving,
                     struct ull__piece *piece, unsigned char *host)
{
    if (leaving->last - leaving->first == LEAVING) {
        if (!drain())
            return false;
        let_go(eviction, leaving, true);
    }
    piece->host = host;
    leaving->piece[leaving->last % LEAVING] = piece;
    leaving->end[leaving->last++ % LEAVING] = UINT64_MAX - MOST_BUFFERS; /* not yet */
    if (!send_piece(piece))
        return false;
    leaving->end[(leaving->last - 1) % LEAVING] = ring.next;
    let_go(eviction, leaving, false);
    return true;
}

static bool evict_device(struct ull__eviction *eviction, int ordinal, char why[ULL_TROUBLE_TEXT])
{
    struct leaving leaving = {.first = 0};
    bool opened = false, good = true, copied = true;
    unsigned char *place = host_memory; /* each piece has its own, also one that went out before */
    for (size_t i = 0; i < item_count && good; place += items[i++]->bytes) {
        struct ull__piece *piece = items[i];
        if (piece->ordinal != ordinal || piece->host)
            continue;
        if (!opened && !(use_device(ordinal) && (opened = ring_open(true))))
            return fail(why, "no pinned host memory for the copies could be had");
        if (eviction->cancelled(eviction)) {
            good = fail(why, "it was cancelled");
            break;
        }
        copied = send_out(eviction, &leaving, piece, place);
        if (!copied)
            good = fail(why, "the device could not copy");
    }
    if (opened && !drain() && copied) {
        copied = false;
        good = fail(why, "the device could not copy");
    }
    if (copied)
        let_go(eviction, &leaving, true);
    for (; leaving.first < leaving.last; leaving.first++) /* these never left */
        leaving.piece[leaving.first % LEAVING]->host = NULL;
    if (opened)
        ring_close();
    return good;
}

/* For all that can be moved. It is there already where a part of that never came back. */
static bool host_open(uint64_t bytes)
{
    if (host_memory)
        return true;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    host_memory = memory;
    host_bytes = bytes;
    madvise(host_memory, host_bytes, MADV_HUGEPAGE);
    madvise(host_memory, host_bytes, MADV_DONTFORK);
    return true;
}

bool ull__evict(struct ull__eviction *eviction, char why[ULL_TROUBLE_TEXT])
{
    eviction->total = ull__evictable();
    if (eviction->total == 0)
        return true;
    if (!host_open(eviction->total))
        return fail(why, "the host has no memory for it");
    for (int ordinal = 0; ordinal < MAX_ORDINALS; ordinal++)
        if (!evict_device(eviction, ordinal, why))
            return false;
    return true;
}

/* --- back ---------------------------------------------------------------------------------------------------- */

static bool make_memory(struct ull__piece *piece)
{
    CUmemAllocationProp properties;
    if (piece->object)
        ull__object_properties(piece, &properties);
    else
        ull__backing_properties(piece->ordinal, &properties);
    if (ull__driver->cuMemCreate(&piece->handle, piece->bytes, &properties, 0) == CUDA_SUCCESS)
        return true;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    if (!piece->object &&
        ull__driver->cuMemCreate(&piece->handle, piece->bytes, &properties, 0) == CUDA_SUCCESS)
        return true;
    piece->handle = 0;
    return false;
}

/* What was made for pieces that are still out. */
static void unmake_memory(void)
{
    for (size_t i = 0; i < item_count; i++)
        if (items[i]->host && items[i]->handle) {
            ull__driver->cuMemRelease(items[i]->handle);
            items[i]->handle = 0;
        }
}

/* Memory for all of them, or for none. */
static bool make_all(char why[ULL_TROUBLE_TEXT])
{
    uint64_t out = 0;
    bool good = true;
    char size[ULL_SIZE_TEXT];
    for (size_t i = 0; i < item_count; i++) {
        if (!items[i]->host)
            continue;
        out += items[i]->bytes;
        good = good && make_memory(items[i]);
    }
    if (good)
        return true;
    unmake_memory();
    snprintf(why, ULL_TROUBLE_TEXT, "the card has no room for the %s that are out",
             ull__size_text(out, size));
    return false;
}

static bool restore_device(struct ull__eviction *eviction, int ordinal, char why[ULL_TROUBLE_TEXT])
{
    bool opened = false, good = true;
    for (size_t i = 0; i < item_count && good; i++) {
        struct ull__piece *piece = items[i];
        if (piece->ordinal != ordinal || !piece->host)
            continue;
        if (!opened && !(use_device(ordinal) && (opened = ring_open(false))))
            return fail(why, "no pinned host memory for the copies could be had");
        if ((piece->object ? ull__object_map(piece) : ull__backing_map(piece)) != CUDA_SUCCESS) {
            good = fail(why, "the device could not map its memory");
            break;
        }
        if (!copy_piece(piece)) {
            good = fail(why, "the device could not copy");
            release(piece);
            break;
        }
        if (piece->object && ull__object_back(piece) != CUDA_SUCCESS) {
            good = fail(why, "the device could not give its memory the rights that it had");
            release(piece);
            break;
        }
        piece->host = NULL;
        eviction->moved -= piece->bytes < eviction->moved ? piece->bytes : eviction->moved;
        eviction->by_ordinal[ordinal] -= piece->bytes;
        eviction->progress(eviction);
    }
    if (opened)
        ring_close();
    return good;
}

bool ull__restore(struct ull__eviction *eviction, char why[ULL_TROUBLE_TEXT])
{
    if (!host_memory)
        return true;
    if (!make_all(why))
        return false;
    for (int ordinal = 0; ordinal < MAX_ORDINALS; ordinal++)
        if (!restore_device(eviction, ordinal, why)) {
            unmake_memory(); /* what is back stays back; the rest can be tried again */
            return false;
        }
    munmap(host_memory, host_bytes);
    host_memory = NULL;
    host_bytes = 0;
    return true;
}
