/*
 * cuda_plain.c: memory of a CUDA device that cannot map pages (no virtual memory management in the
 * device or the driver).
 *
 * Where the driver gives addresses and memory only together, reserving takes both. A reservation is
 * one cuMemAlloc: as much of it as the device has, less what a framework leaves for the system, has
 * memory from its start on; the addresses behind are promised and never have any, so mapping there is
 * refused for want of memory. The device never gives out more pages than its regions have.
 * A page has no bytes of its own: it is a right to one page of a region, and which one is said by map.
 * A caller that wants to grow reserves regions of doubling size, one after the other.
 *
 * What a pool cannot do on it: it takes its memory at the start, whatever its limit, and gives it back
 * at the end; a page is mapped in one place at a time, so free pages that lie apart cannot be put side
 * by side, and the pool refuses when no free run is long enough, as allocators without pages do. Its
 * small requests live in a second mapping of pages, which there is none of: set small_bytes to 0.
 */
#include <stdlib.h>

#include "cuda_private.h"

ull_status ull__cuda_plain_memory(struct ull__device *device, uint64_t *free_bytes,
                                  uint64_t *total_bytes)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    size_t free_now, total;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuMemGetInfo_v2(&free_now, &total);
    ull__cuda_leave(cuda, &scope);
    if (code != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    pthread_mutex_lock(&cuda->lock);
    *free_bytes = free_now + (cuda->region_pages - cuda->created) * device->page_bytes;
    pthread_mutex_unlock(&cuda->lock);
    *total_bytes = total;
    return ULL_OK;
}

/* --- regions ------------------------------------------------------------------------------------- */

/* The largest share of `wanted` that can be had, with the context current. 0: none. */
static uint64_t take_most(struct ull__cuda_device *cuda, uint64_t wanted, CUdeviceptr *address)
{
    uint64_t page = cuda->device.page_bytes, system = (uint64_t)300 << 20;
    size_t available = 0, total;
    if (cuda->driver->cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS)
        return 0;
    system = system > available / 20 ? system : available / 20;
    if (wanted + system > available)
        wanted = available > system ? available - system : 0;
    for (int tries = 0; tries < 8 && wanted >= page; tries++, wanted = wanted / 10 * 9) {
        wanted = wanted / page * page;
        CUresult code = cuda->driver->cuMemAlloc_v2(address, wanted);
        if (code == CUDA_SUCCESS)
            return wanted;
        if (code != CUDA_ERROR_OUT_OF_MEMORY)
            return 0;
    }
    return 0;
}

/* With the lock: names for so many pages in all. */
static bool ensure_names(struct ull__cuda_names *names, uint64_t count)
{
    if (count <= names->capacity)
        return true;
    ull__page *idle = realloc(names->idle, count * sizeof *idle);
    names->idle = idle ? idle : names->idle;
    bool *mapped = realloc(names->mapped, (count + 1) * sizeof *mapped);
    names->mapped = mapped ? mapped : names->mapped;
    if (!idle || !mapped)
        return false;
    for (uint64_t name = count; name > names->capacity; name--) {
        idle[names->idle_count++] = name;
        mapped[name] = false;
    }
    names->capacity = count;
    return true;
}

static bool add_region(struct ull__cuda_device *cuda, CUdeviceptr address, uint64_t bytes,
                       uint64_t promised)
{
    uint64_t pages = bytes / cuda->device.page_bytes;
    struct ull__cuda_region *r = calloc(1, sizeof *r + pages * sizeof *r->mapped);
    pthread_mutex_lock(&cuda->lock);
    bool added = r && ensure_names(&cuda->names, cuda->region_pages + pages);
    if (added) {
        r->next = cuda->regions;
        r->address = address;
        r->promised = promised;
        r->pages = pages;
        cuda->regions = r;
        cuda->region_pages += pages;
    }
    pthread_mutex_unlock(&cuda->lock);
    if (!added)
        free(r);
    return added;
}

ull_status ull__cuda_plain_reserve(struct ull__device *device, uint64_t bytes, uint64_t *address)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    CUdeviceptr at = 0;
    if (bytes == 0 || bytes % device->page_bytes != 0)
        return ULL_E_INVALID;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    uint64_t taken = take_most(cuda, bytes, &at);
    bool added = taken > 0 && at % device->page_bytes == 0 && add_region(cuda, at, taken, bytes);
    if (taken > 0 && !added)
        cuda->driver->cuMemFree_v2(at);
    ull__cuda_leave(cuda, &scope);
    if (!added)
        return ULL_E_NO_MEMORY;
    *address = at;
    return ULL_OK;
}

void ull__cuda_plain_release(struct ull__device *device, uint64_t address, uint64_t bytes)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    pthread_mutex_lock(&cuda->lock);
    struct ull__cuda_region **link = &cuda->regions;
    while (*link && ((*link)->address != address || (*link)->promised != bytes))
        link = &(*link)->next;
    struct ull__cuda_region *r = *link;
    if (r) {
        *link = r->next;
        cuda->region_pages -= r->pages;
    }
    pthread_mutex_unlock(&cuda->lock);
    if (r && ull__cuda_enter(cuda, &scope) == CUDA_SUCCESS) {
        cuda->driver->cuMemFree_v2(address);
        ull__cuda_leave(cuda, &scope);
    }
    free(r);
}

/* --- pages --------------------------------------------------------------------------------------- */

ull_status ull__cuda_plain_create(struct ull__device *device, size_t count, ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    pthread_mutex_lock(&cuda->lock);
    bool room = cuda->created <= cuda->region_pages && count <= cuda->region_pages - cuda->created;
    for (size_t i = 0; i < count && room; i++)
        pages[i] = cuda->names.idle[--cuda->names.idle_count];
    if (room)
        cuda->created += count;
    pthread_mutex_unlock(&cuda->lock);
    return room ? ULL_OK : ULL_E_NO_MEMORY;
}

void ull__cuda_plain_destroy_pages(struct ull__device *device, size_t count, const ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    pthread_mutex_lock(&cuda->lock);
    for (size_t i = 0; i < count; i++)
        cuda->names.idle[cuda->names.idle_count++] = pages[i];
    cuda->created -= count;
    pthread_mutex_unlock(&cuda->lock);
}

static struct ull__cuda_region *region_at(struct ull__cuda_device *cuda, uint64_t address)
{
    struct ull__cuda_region *r = cuda->regions;
    while (r && (address < r->address || address - r->address >= r->promised))
        r = r->next;
    return r;
}

/* With the lock. */
static ull_status map_in(struct ull__cuda_device *cuda, struct ull__cuda_region *region,
                         uint64_t first, size_t count, const ull__page *pages)
{
    bool *mapped = cuda->names.mapped;
    if (first >= region->pages || count > region->pages - first)
        return ULL_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (pages[i] == 0 || pages[i] > cuda->names.capacity || region->mapped[first + i])
            return ULL_E_INVALID;
        if (mapped[pages[i]])
            return ULL_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        region->mapped[first + i] = pages[i];
        mapped[pages[i]] = true;
    }
    return ULL_OK;
}

ull_status ull__cuda_plain_map(struct ull__device *device, uint64_t address, size_t count,
                               const ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    ull_status status = ULL_E_INVALID;
    pthread_mutex_lock(&cuda->lock);
    struct ull__cuda_region *r = region_at(cuda, address);
    if (r && count > 0 && address % device->page_bytes == 0)
        status = map_in(cuda, r, (address - r->address) / device->page_bytes, count, pages);
    pthread_mutex_unlock(&cuda->lock);
    return status;
}

void ull__cuda_plain_unmap(struct ull__device *device, uint64_t address, size_t count)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    pthread_mutex_lock(&cuda->lock);
    struct ull__cuda_region *r = region_at(cuda, address);
    uint64_t first = r ? (address - r->address) / device->page_bytes : 0;
    for (size_t i = 0; r && i < count && first + i < r->pages; i++) {
        cuda->names.mapped[r->mapped[first + i]] = false; /* 0 is no name, but has a place */
        r->mapped[first + i] = 0;
    }
    pthread_mutex_unlock(&cuda->lock);
}
