/*
 * vmm.c: memory and addresses apart: handles, reservations and mappings.
 *
 * As on the real card only whole handles can be mapped and unmapped; one handle may be mapped at
 * several places, which then show the same bytes; memory goes back when the last reference and the
 * last mapping are gone, whichever comes last, and a released handle can still be mapped while it is
 * mapped somewhere.
 *
 * Multicast and mapped arrays are not supported.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct handle {
    CUmemGenericAllocationHandle id;
    CUmemAllocationProp prop;
    uint64_t size;
    unsigned int references, mappings;
    int card; /* -1: memory of the host */
    struct fake_block block;
    unsigned char *host;
    int export_index;
    bool imported;
    uint32_t import_index, import_generation;
};

struct mapping {
    struct handle *handle;
    CUdeviceptr start;
    uint64_t size, offset;
    int access;
    bool on_host; /* host programs may read the addresses */
};

struct reservation {
    CUdeviceptr start;
    uint64_t size;
    struct mapping *page[]; /* of each 2 MiB */
};

/* What travels as a file descriptor: which export it is. */
struct ticket {
    uint64_t magic;
    uint32_t index, generation;
    uint64_t size;
};
static const uint64_t ticket_magic = 0x74656b6369742e75ull;

static struct handle **handles;
static size_t handle_count, handle_room;
enum { FIRST_ID = 0x10000, ID_STEP = 16 };

static struct handle *find_handle(CUmemGenericAllocationHandle id)
{
    uint64_t i = (id - FIRST_ID) / ID_STEP;
    return id >= FIRST_ID && id % ID_STEP == 0 && i < handle_count ? handles[i] : NULL;
}

static bool handle_register(struct handle *handle)
{
    if (handle_count == handle_room) {
        size_t room = handle_room ? 2 * handle_room : 256;
        struct handle **more = realloc(handles, room * sizeof *more);
        if (!more)
            return false;
        handles = more;
        handle_room = room;
    }
    handle->id = FIRST_ID + handle_count * ID_STEP;
    handles[handle_count++] = handle;
    return true;
}

static void handle_settle(struct handle *handle)
{
    if (handle->references > 0 || handle->mappings > 0)
        return;
    if (handle->imported) {
        fake_export_unmap(handle->import_index, handle->import_generation, handle->host,
                          handle->size);
    } else if (handle->export_index >= 0 &&
               fake_export_release(handle->export_index, &handle->block)) {
        fake_block_forget(&handle->block);
    } else {
        fake_block_drop(&handle->block);
        if (handle->card >= 0)
            fake_uncharge(handle->card, handle->size, 0);
    }
    if (handle->card >= 0 && !handle->imported)
        fake_count(handle->card, -1);
    handles[(handle->id - FIRST_ID) / ID_STEP] = NULL;
    free(handle);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    FAKE_ENTER(cuMemCreate, FAKE_INIT | FAKE_ALLOC);
    if (fake_config()->no_vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!out || !prop || flags || size == 0 || size % FAKE_PAGE != 0 ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    int card = -1;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        card = fake_card_of(prop->location.id);
        if (card < 0)
            return CUDA_ERROR_INVALID_DEVICE;
    } else if (prop->location.type < CU_MEM_LOCATION_TYPE_HOST ||
               prop->location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = card >= 0 ? fake_charge(card, size, 0) : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS && !fake_block_take(size, &handle->block)) {
        if (card >= 0)
            fake_uncharge(card, size, 0);
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r != CUDA_SUCCESS || !handle_register(handle)) {
        free(handle);
        return r ? r : CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->prop = *prop;
    handle->size = size;
    handle->references = 1;
    handle->card = card;
    handle->host = handle->block.host;
    handle->export_index = -1;
    if (card >= 0)
        fake_count(card, 1);
    *out = handle->id;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle id)
{
    FAKE_ENTER(cuMemRelease, FAKE_INIT);
    struct handle *handle = find_handle(id);
    if (!handle || handle->references == 0)
        return CUDA_ERROR_INVALID_VALUE;
    handle->references--;
    handle_settle(handle);
    return CUDA_SUCCESS;
}

/* --- addresses --- */

static bool resolve(const struct fake_span *span, CUdeviceptr at, struct fake_range *range)
{
    struct reservation *r = span->object;
    struct mapping *m = r->page[(at - r->start) / FAKE_PAGE];
    if (!m || m->access == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return false;
    range->host = m->handle->host + m->offset + (at - m->start);
    range->length = m->start + m->size - at;
    range->base = m->start;
    range->size = m->size;
    range->card = m->handle->card;
    return true;
}

int fake_virtual_handle_types(CUdeviceptr at)
{
    const struct fake_span *span = fake_span_at(at);
    const struct reservation *r = span && span->kind == FAKE_VIRTUAL ? span->object : NULL;
    const struct mapping *m = r ? r->page[(at - r->start) / FAKE_PAGE] : NULL;
    return m ? m->handle->prop.requestedHandleTypes : 0;
}

static struct reservation *reservation_of(CUdeviceptr ptr, uint64_t size)
{
    const struct fake_span *span = fake_span_at(ptr);
    if (!span || span->kind != FAKE_VIRTUAL || ptr % FAKE_PAGE != 0 || size % FAKE_PAGE != 0 ||
        size == 0 || ptr + size > span->start + span->size || ptr + size < ptr)
        return NULL;
    return span->object;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    FAKE_ENTER(cuMemAddressReserve, FAKE_INIT);
    if (fake_config()->no_vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!ptr || size == 0 || size % FAKE_PAGE != 0 || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < FAKE_PAGE)
        alignment = FAKE_PAGE;
    if (size >> 47) /* more addresses than a process has */
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *r = calloc(1, sizeof *r + size / FAKE_PAGE * sizeof *r->page);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *at = MAP_FAILED;
    if (hint && hint % alignment == 0)
        at = mmap((void *)hint, size, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    r->start = at == MAP_FAILED ? fake_addresses_reserve(size, alignment) : (CUdeviceptr)at;
    r->size = size;
    if (!r->start || !fake_span_add((struct fake_span){r->start, size, FAKE_VIRTUAL, r, resolve})) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = r->start;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    FAKE_ENTER(cuMemAddressFree, FAKE_INIT);
    struct reservation *r = reservation_of(ptr, size);
    if (!r || r->start != ptr || r->size != size)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t i = 0; i < size / FAKE_PAGE; i++)
        if (r->page[i])
            return CUDA_ERROR_INVALID_VALUE;
    fake_span_remove(ptr);
    fake_addresses_free(ptr, size);
    free(r);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle id,
                  unsigned long long flags)
{
    FAKE_ENTER(cuMemMap, FAKE_INIT | FAKE_ALLOC);
    struct handle *handle = find_handle(id);
    struct reservation *r = reservation_of(ptr, size);
    if (!handle || !r || flags || offset % FAKE_PAGE != 0 || offset + size > handle->size)
        return CUDA_ERROR_INVALID_VALUE;
    if ((offset != 0 || size != handle->size) && !fake_lenient("vmm.map_part"))
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t first = (ptr - r->start) / FAKE_PAGE;
    for (uint64_t i = 0; i < size / FAKE_PAGE; i++)
        if (r->page[first + i])
            return CUDA_ERROR_INVALID_VALUE;
    struct mapping *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *m = (struct mapping){.handle = handle, .start = ptr, .size = size, .offset = offset};
    for (uint64_t i = 0; i < size / FAKE_PAGE; i++)
        r->page[first + i] = m;
    handle->mappings++;
    return CUDA_SUCCESS;
}

static void unmap(struct reservation *r, struct mapping *m)
{
    uint64_t first = (m->start - r->start) / FAKE_PAGE;
    for (uint64_t i = 0; i < m->size / FAKE_PAGE; i++)
        r->page[first + i] = NULL;
    if (m->on_host)
        mmap((void *)m->start, m->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    m->handle->mappings--;
    handle_settle(m->handle);
    free(m);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    FAKE_ENTER(cuMemUnmap, FAKE_INIT);
    struct reservation *r = reservation_of(ptr, size);
    if (!r)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t first = (ptr - r->start) / FAKE_PAGE, end = first + size / FAKE_PAGE;
    for (uint64_t i = first; i < end; i++) {
        const struct mapping *m = r->page[i];
        if (m && (m->start < ptr || m->start + m->size > ptr + size))
            return fake_lenient("vmm.unmap_half") ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    for (uint64_t i = first; i < end; i++)
        if (r->page[i])
            unmap(r, r->page[i]);
    return CUDA_SUCCESS;
}

/* Lets host programs see the bytes too. Only for memory of this process. */
static void show_to_host(struct mapping *m)
{
    if (m->on_host || m->handle->imported)
        return;
    m->on_host = mmap((void *)m->start, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      fake_data_file(), (off_t)(m->handle->block.offset + m->offset)) != MAP_FAILED;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    FAKE_ENTER(cuMemSetAccess, FAKE_INIT);
    struct reservation *r = reservation_of(ptr, size);
    if (!r || (!desc && count))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t first = (ptr - r->start) / FAKE_PAGE, end = first + size / FAKE_PAGE;
    for (uint64_t i = first; i < end; i++)
        if (!r->page[i])
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 0; k < count; k++) {
        bool device = desc[k].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        if (device && fake_card_of(desc[k].location.id) < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        for (uint64_t i = first; i < end; i++) {
            if (device)
                r->page[i]->access = desc[k].flags;
            else
                show_to_host(r->page[i]);
        }
    }
    return CUDA_SUCCESS;
}

static struct mapping *mapping_at(CUdeviceptr at)
{
    const struct fake_span *span = fake_span_at(at);
    if (!span || span->kind != FAKE_VIRTUAL)
        return NULL;
    struct reservation *r = span->object;
    return r->page[(at - r->start) / FAKE_PAGE];
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    FAKE_ENTER(cuMemGetAccess, FAKE_INIT);
    const struct mapping *m = mapping_at(ptr);
    if (!flags || !location || !m)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? (unsigned long long)m->access
             : m->on_host                                  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
    FAKE_ENTER(cuMemRetainAllocationHandle, FAKE_INIT);
    struct mapping *m = mapping_at((CUdeviceptr)(uintptr_t)addr);
    if (!out || !m)
        return CUDA_ERROR_INVALID_VALUE;
    m->handle->references++;
    *out = m->handle->id;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    FAKE_ENTER(cuMemGetAllocationGranularity, FAKE_INIT);
    (void)option;
    if (!granularity || !prop)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = FAKE_PAGE;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle id)
{
    FAKE_ENTER(cuMemGetAllocationPropertiesFromHandle, FAKE_INIT);
    const struct handle *handle = find_handle(id);
    if (!prop || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = handle->prop;
    return CUDA_SUCCESS;
}

/* --- file descriptors --- */

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle id,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    FAKE_ENTER(cuMemExportToShareableHandle, FAKE_INIT);
    struct handle *handle = find_handle(id);
    if (!out || !handle || flags || handle->references == 0 || handle->imported ||
        !(type & handle->prop.requestedHandleTypes))
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || handle->card < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (handle->export_index < 0)
        handle->export_index = fake_export_block(&handle->block, handle->card);
    if (handle->export_index < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct fake_export *export = &fake_shared_state()->export[handle->export_index];
    struct ticket ticket = {ticket_magic, (uint32_t)handle->export_index, export->generation,
                            handle->size};
    int fd = memfd_create("ullage-fake", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &ticket, sizeof ticket) != sizeof ticket)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    FAKE_ENTER(cuMemImportFromShareableHandle, FAKE_INIT | FAKE_ALLOC);
    struct ticket ticket;
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (pread((int)(intptr_t)os_handle, &ticket, sizeof ticket, 0) != sizeof ticket ||
        ticket.magic != ticket_magic)
        return CUDA_ERROR_INVALID_VALUE;
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle->host = fake_export_map(ticket.index, ticket.generation, &handle->size, &handle->card);
    if (!handle->host || !handle_register(handle)) {
        free(handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle->imported = true;
    handle->import_index = ticket.index;
    handle->import_generation = ticket.generation;
    handle->references = 1;
    handle->export_index = -1;
    handle->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    handle->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    handle->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    handle->prop.location.id = fake_device_of(handle->card);
    *out = handle->id;
    return CUDA_SUCCESS;
}
