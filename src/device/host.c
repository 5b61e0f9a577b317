/*
 * host.c: memory of this machine as a device. Pages are pieces of one memory file; mapping one in a
 * second place maps the same piece of the file again, so that aliases see the same bytes as on a card.
 *
 * It takes memory only for pages that are written to, and keeps count of what is held. A broken
 * precondition (a page destroyed while it is mapped, addresses unmapped under unfinished work) is
 * counted as a misuse instead of done, which is what the tests of the pool look for. Each run of
 * mapped pages that do not follow each other in the file takes one mapping of the kernel's
 * (vm.max_map_count, 65530 by default); beyond that, map answers ULL_E_NO_MEMORY.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "host_private.h"

#define DEFAULT_PAGE ((uint64_t)2 << 20)
#define MIN_PAGE 4096u

static struct ull__host *host_of(struct ull__device *device)
{
    return (struct ull__host *)device;
}

bool ull__host_fails(struct ull__host *host)
{
    return host->fail_at && --host->fail_at == 0;
}

static ull_status memory(struct ull__device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    bool fails = ull__host_fails(host);
    if (!fails) {
        *total_bytes = host->total_pages * device->page_bytes;
        *free_bytes = *total_bytes - host->held.pages * device->page_bytes;
    }
    pthread_mutex_unlock(&host->lock);
    return fails ? ULL_E_DRIVER : ULL_OK;
}

/* --- addresses ----------------------------------------------------------------------------------- */

static struct ull__host_reservation *find_reservation(struct ull__host *host, uint64_t address,
                                                      uint64_t bytes)
{
    struct ull__host_reservation *r = host->reservations;
    while (r && (address < r->address || address - r->address >= r->bytes ||
                 bytes > r->bytes - (address - r->address)))
        r = r->next;
    return r;
}

static ull_status reserve_locked(struct ull__host *host, uint64_t bytes, uint64_t *address)
{
    uint64_t page = host->device.page_bytes;
    if (ull__host_fails(host))
        return ULL_E_NO_MEMORY;
    if (bytes == 0 || bytes % page != 0)
        return ULL_E_INVALID;
    if (bytes > SIZE_MAX / 2)
        return ULL_E_NO_MEMORY;
    struct ull__host_reservation *r = calloc(1, sizeof *r);
    uint32_t *pages = calloc(bytes / page, sizeof *pages);
    size_t whole = bytes + page;
    void *base = MAP_FAILED;
    if (r && pages)
        base = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(pages);
        free(r);
        return ULL_E_NO_MEMORY;
    }
    *r = (struct ull__host_reservation){.next = host->reservations,
                                        .address = ((uintptr_t)base + page - 1) & ~(page - 1),
                                        .bytes = bytes,
                                        .base = base,
                                        .base_bytes = whole,
                                        .pages = pages};
    host->reservations = r;
    host->held.reserved_bytes += bytes;
    *address = r->address;
    return ULL_OK;
}

static ull_status reserve(struct ull__device *device, uint64_t bytes, uint64_t *address)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    ull_status status = reserve_locked(host, bytes, address);
    pthread_mutex_unlock(&host->lock);
    return status;
}

static void release(struct ull__device *device, uint64_t address, uint64_t bytes)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__host_reservation **at = &host->reservations;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    struct ull__host_reservation *r = *at;
    bool clean = r && r->bytes == bytes;
    for (uint64_t i = 0; clean && i < bytes / device->page_bytes; i++)
        clean = r->pages[i] == 0;
    if (clean) {
        *at = r->next;
        munmap(r->base, r->base_bytes);
        host->held.reserved_bytes -= bytes;
        free(r->pages);
        free(r);
    } else {
        host->held.misuses++;
    }
    pthread_mutex_unlock(&host->lock);
}

/* --- pages ---------------------------------------------------------------------------------------- */

/* Page names are positions in the file, from 1; the lowest free ones are taken. */
static ull_status create(struct ull__device *device, size_t count, ull__page *pages)
{
    struct ull__host *host = host_of(device);
    ull_status status = ULL_OK;
    pthread_mutex_lock(&host->lock);
    host->calls.creates++;
    if (ull__host_fails(host) || count > host->total_pages - host->held.pages)
        status = ULL_E_NO_MEMORY;
    uint64_t at = host->lowest_free;
    for (size_t i = 0; i < count && status == ULL_OK; i++, at++) {
        while (host->created[at])
            at++;
        host->created[at] = true;
        pages[i] = at + 1;
    }
    if (status == ULL_OK) {
        host->lowest_free = at;
        host->held.pages += count;
    }
    pthread_mutex_unlock(&host->lock);
    return status;
}

static void destroy_pages(struct ull__device *device, size_t count, const ull__page *pages)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    host->calls.destroys++;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = pages[i] - 1;
        if (pages[i] == 0 || at >= host->total_pages || !host->created[at] || host->mappings[at]) {
            host->held.misuses++;
            continue;
        }
        fallocate(host->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(at * device->page_bytes), (off_t)device->page_bytes);
        host->created[at] = false;
        host->held.pages--;
        if (at < host->lowest_free)
            host->lowest_free = at;
    }
    pthread_mutex_unlock(&host->lock);
}

/* --- mapping -------------------------------------------------------------------------------------- */

static void make_inaccessible(uint64_t address, uint64_t bytes)
{
    /* Replacing a mapping by an inaccessible one needs no memory that could be missing. */
    void *at = (void *)(uintptr_t)address;
    if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        mprotect(at, bytes, PROT_NONE);
}

/* Maps runs of neighbours in the file with one call each; pages done so far in *done. */
static bool map_runs(struct ull__host *host, uint64_t address, size_t count, const ull__page *pages,
                     size_t *done)
{
    uint64_t page = host->device.page_bytes;
    for (*done = 0; *done < count;) {
        size_t first = *done, run = 1;
        while (first + run < count && pages[first + run] == pages[first] + run)
            run++;
        void *at = (void *)(uintptr_t)(address + first * page);
        if (mmap(at, run * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, host->fd,
                 (off_t)((pages[first] - 1) * page)) == MAP_FAILED)
            return false;
        *done += run;
    }
    return true;
}

static ull_status map_locked(struct ull__host *host, uint64_t address, size_t count,
                             const ull__page *pages)
{
    uint64_t page = host->device.page_bytes;
    host->calls.maps++;
    if (ull__host_fails(host))
        return ULL_E_NO_MEMORY;
    struct ull__host_reservation *r = NULL;
    if (count > 0 && count <= host->total_pages * 1024 && address % page == 0)
        r = find_reservation(host, address, count * page);
    uint64_t first = r ? (address - r->address) / page : 0;
    bool valid = r != NULL;
    for (size_t i = 0; i < count && valid; i++)
        valid = r->pages[first + i] == 0 && pages[i] != 0 && pages[i] <= host->total_pages &&
                host->created[pages[i] - 1];
    if (!valid) {
        host->held.misuses++;
        return ULL_E_INVALID;
    }
    size_t done;
    if (!map_runs(host, address, count, pages, &done)) {
        if (done > 0)
            make_inaccessible(address, done * page);
        return ULL_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        r->pages[first + i] = (uint32_t)pages[i];
        host->mappings[pages[i] - 1]++;
    }
    host->held.mappings += count;
    return ULL_OK;
}

static ull_status map(struct ull__device *device, uint64_t address, size_t count,
                      const ull__page *pages)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    ull_status status = map_locked(host, address, count, pages);
    pthread_mutex_unlock(&host->lock);
    return status;
}

static void unmap(struct ull__device *device, uint64_t address, size_t count)
{
    struct ull__host *host = host_of(device);
    uint64_t page = device->page_bytes;
    pthread_mutex_lock(&host->lock);
    host->calls.unmaps++;
    struct ull__host_reservation *r = find_reservation(host, address, count * page);
    uint64_t first = r ? (address - r->address) / page : 0;
    bool valid = r != NULL && address % page == 0 && !ull__host_busy(host, address, count * page);
    for (size_t i = 0; i < count && valid; i++)
        valid = r->pages[first + i] != 0;
    if (valid) {
        make_inaccessible(address, count * page);
        for (size_t i = 0; i < count; i++) {
            host->mappings[r->pages[first + i] - 1]--;
            r->pages[first + i] = 0;
        }
        host->held.mappings -= count;
    } else {
        host->held.misuses++;
    }
    pthread_mutex_unlock(&host->lock);
}

/* --- life ----------------------------------------------------------------------------------------- */

static void destroy(struct ull__device *device)
{
    struct ull__host *host = host_of(device);
    ull__host_streams_finish(host);
    while (host->reservations) {
        struct ull__host_reservation *r = host->reservations;
        host->reservations = r->next;
        munmap(r->base, r->base_bytes);
        free(r->pages);
        free(r);
    }
    if (host->fd >= 0)
        close(host->fd);
    free(host->events);
    free(host->mappings);
    free(host->created);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

static const struct ull__device_ops host_ops = {
    .name = "host",
    .destroy = destroy,
    .memory = memory,
    .reserve = reserve,
    .release = release,
    .create = create,
    .destroy_pages = destroy_pages,
    .map = map,
    .unmap = unmap,
    .record = ull__host_record,
    .done = ull__host_done,
    .wait = ull__host_wait,
    .forget = ull__host_forget,
    .capturing = ull__host_capturing,
    .copy_in = ull__host_copy_in,
    .copy_out = ull__host_copy_out,
    .fill = ull__host_fill,
    .stream_create = ull__host_stream_create,
    .stream_destroy = ull__host_stream_destroy,
    .synchronize = ull__host_synchronize,
};

ull_status ull__device_host_create(uint64_t total_bytes, uint64_t page_bytes,
                                   struct ull__device **out, struct ull_error *err)
{
    if (page_bytes == 0)
        page_bytes = DEFAULT_PAGE;
    if ((page_bytes & (page_bytes - 1)) != 0 || page_bytes < MIN_PAGE)
        return ull__fail(err, ULL_E_INVALID,
                         "page size %llu: expected a power of two of at least %u bytes",
                         (unsigned long long)page_bytes, MIN_PAGE);
    uint64_t pages = total_bytes / page_bytes;
    if (pages == 0 || pages >= UINT32_MAX || total_bytes > INT64_MAX)
        return ull__fail(err, ULL_E_INVALID,
                         "a host device of %llu bytes: expected 1 to 2^32 - 2 pages of %llu bytes",
                         (unsigned long long)total_bytes, (unsigned long long)page_bytes);
    struct ull__host *host = calloc(1, sizeof *host);
    if (!host)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a host device");
    host->device = (struct ull__device){.ops = &host_ops, .page_bytes = page_bytes};
    host->total_pages = pages;
    pthread_mutex_init(&host->lock, NULL);
    host->mappings = calloc(pages, sizeof *host->mappings);
    host->created = calloc(pages + 1, sizeof *host->created);
    host->fd = ull__memory_file("ullage-host-device");
    if (!host->mappings || !host->created || host->fd < 0 ||
        ftruncate(host->fd, (off_t)(pages * page_bytes)) != 0) {
        int error = errno;
        destroy(&host->device);
        return ull__fail(err, ULL_E_SYSTEM, "a memory file of %llu bytes: %s",
                         (unsigned long long)(pages * page_bytes), strerror(error));
    }
    *out = &host->device;
    return ULL_OK;
}

void ull__device_host_fail_at(struct ull__device *device, uint64_t n)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    host->fail_at = n;
    pthread_mutex_unlock(&host->lock);
}

uint64_t ull__device_host_fail_at_left(struct ull__device *device)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    uint64_t left = host->fail_at;
    pthread_mutex_unlock(&host->lock);
    return left;
}

struct ull__device_calls ull__device_host_calls(struct ull__device *device)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__device_calls calls = host->calls;
    pthread_mutex_unlock(&host->lock);
    return calls;
}

struct ull__device_held ull__device_host_held(struct ull__device *device)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__device_held held = host->held;
    pthread_mutex_unlock(&host->lock);
    return held;
}

void ull__device_destroy(struct ull__device *device)
{
    if (device)
        device->ops->destroy(device);
}
