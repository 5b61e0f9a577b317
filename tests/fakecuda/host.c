/*
 * host.c: pinned and managed memory, and what is known of any pointer.
 *
 * Pinned memory costs the card nothing, unless the card is integrated: then both are one. Managed
 * memory is charged whole, in steps of 2 MiB, when a device first touches it; it never moves back to
 * the host, and when the card is full the touch succeeds without a charge, where a real card would
 * evict something.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct host_memory {
    unsigned char *p;
    size_t size;
    uint64_t mapped;
    CUcontext ctx;
    unsigned int flags;
    int card;
    bool registered; /* the program's own */
    bool managed, touched;
    uint64_t charged;
    struct fake_block block; /* of managed memory */
};

static bool resolve(const struct fake_span *span, CUdeviceptr at, struct fake_range *range)
{
    const struct host_memory *memory = span->object;
    if (at >= (CUdeviceptr)(uintptr_t)memory->p + memory->size)
        return false;
    range->host = (unsigned char *)(uintptr_t)at;
    range->base = (CUdeviceptr)(uintptr_t)memory->p;
    range->size = memory->size;
    range->length = range->base + range->size - at;
    range->card = memory->card;
    range->ctx = memory->ctx;
    return true;
}

static CUresult add(struct host_memory *memory)
{
    enum fake_kind kind = memory->managed ? FAKE_MANAGED : FAKE_HOST;
    if (fake_config()->integrated && !memory->managed) {
        uint64_t bytes = (memory->size + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
        CUresult r = fake_charge(memory->card, bytes, 0);
        if (r != CUDA_SUCCESS)
            return r;
        memory->charged = bytes;
    }
    return fake_span_add((struct fake_span){(CUdeviceptr)(uintptr_t)memory->p, memory->mapped, kind,
                                            memory, resolve})
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_host(void **out, size_t bytes, unsigned int flags)
{
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct host_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->size = bytes;
    memory->mapped = (bytes + 4095) / 4096 * 4096;
    memory->flags = flags;
    memory->ctx = fake_current();
    memory->card = memory->ctx->card;
    memory->p =
        mmap(NULL, memory->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUresult r = memory->p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : add(memory);
    if (r == CUDA_SUCCESS) {
        *out = memory->p;
        return r;
    }
    if (memory->p != MAP_FAILED)
        munmap(memory->p, memory->mapped);
    free(memory);
    return r;
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    FAKE_ENTER(cuMemAllocHost_v2, FAKE_TAKES);
    return alloc_host(out, bytes, 0);
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    FAKE_ENTER(cuMemHostAlloc, FAKE_TAKES);
    return alloc_host(out, bytes, flags);
}

static CUresult register_host(void *p, size_t bytes, unsigned int flags)
{
    if (!p || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_span_at((CUdeviceptr)(uintptr_t)p))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct host_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct host_memory){.p = p,
                                   .size = bytes,
                                   .mapped = bytes,
                                   .ctx = fake_current(),
                                   .flags = flags,
                                   .card = fake_current()->card,
                                   .registered = true};
    CUresult r = add(memory);
    if (r != CUDA_SUCCESS)
        free(memory);
    return r;
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
    FAKE_ENTER(cuMemHostRegister, FAKE_TAKES);
    return register_host(p, bytes, flags);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    FAKE_ENTER(cuMemHostRegister_v2, FAKE_TAKES);
    return register_host(p, bytes, flags);
}

static struct host_memory *find(const void *p, enum fake_kind kind)
{
    const struct fake_span *span = fake_span_at((CUdeviceptr)(uintptr_t)p);
    return span && span->kind == kind ? span->object : NULL;
}

static void end(struct host_memory *memory)
{
    fake_wait_context(fake_current());
    fake_span_remove((CUdeviceptr)(uintptr_t)memory->p);
    if (memory->managed) {
        fake_touched(memory->card, -(int64_t)memory->charged);
        fake_uncharge(memory->card, 0, memory->charged);
    } else if (memory->charged)
        fake_uncharge(memory->card, memory->charged, 0);
    if (!memory->registered)
        munmap(memory->p, memory->mapped);
    if (memory->managed)
        fake_block_drop(&memory->block);
    free(memory);
}

CUresult cuMemFreeHost(void *p)
{
    FAKE_ENTER(cuMemFreeHost, FAKE_CONTEXT | FAKE_UNSAFE);
    struct host_memory *memory = find(p, FAKE_HOST);
    if (!memory || memory->registered || memory->p != p)
        return CUDA_ERROR_INVALID_VALUE;
    end(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p)
{
    FAKE_ENTER(cuMemHostUnregister, FAKE_CONTEXT | FAKE_UNSAFE);
    struct host_memory *memory = find(p, FAKE_HOST);
    if (!memory || !memory->registered || memory->p != p)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    end(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *p, unsigned int flags)
{
    FAKE_ENTER(cuMemHostGetDevicePointer_v2, FAKE_CONTEXT);
    if (!dptr || flags || !find(p, FAKE_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    *dptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
    FAKE_ENTER(cuMemHostGetFlags, FAKE_CONTEXT);
    const struct host_memory *memory = find(p, FAKE_HOST);
    if (!flags || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = memory->flags;
    return CUDA_SUCCESS;
}

/* --- managed memory: one range of addresses for host and device --- */

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
    FAKE_ENTER(cuMemAllocManaged, FAKE_TAKES);
    if (!dptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    struct host_memory *memory = calloc(1, sizeof *memory);
    if (!memory || bytes > 1ull << 46) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->size = bytes;
    memory->mapped = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    memory->managed = true;
    memory->ctx = fake_current();
    memory->card = memory->ctx->card;
    CUdeviceptr at = fake_addresses_reserve(memory->mapped, FAKE_PAGE);
    if (!at || !fake_block_take(memory->mapped, &memory->block)) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->p = mmap((void *)at, memory->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     fake_data_file(), (off_t)memory->block.offset);
    CUresult r = memory->p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : add(memory);
    if (r == CUDA_SUCCESS) {
        fake_count(memory->card, 1);
        atomic_fetch_add(&fake_shared_state()->process[fake_slot()].managed, 1);
        *dptr = at;
    }
    return r;
}

CUresult fake_managed_free(CUdeviceptr ptr)
{
    struct host_memory *memory = find((void *)(uintptr_t)ptr, FAKE_MANAGED);
    if (!memory || (CUdeviceptr)(uintptr_t)memory->p != ptr)
        return CUDA_ERROR_INVALID_VALUE;
    fake_count(memory->card, -1);
    atomic_fetch_sub(&fake_shared_state()->process[fake_slot()].managed, 1);
    end(memory);
    return CUDA_SUCCESS;
}

void fake_touch_managed(CUdeviceptr at, size_t size)
{
    struct host_memory *memory = find((void *)(uintptr_t)at, FAKE_MANAGED);
    (void)size;
    if (!memory || memory->touched)
        return;
    /* On an H200 the card's figure shows it, the process's does not. */
    if (fake_charge(memory->card, 0, memory->mapped) == CUDA_SUCCESS) {
        memory->charged = memory->mapped;
        memory->touched = true;
        fake_touched(memory->card, (int64_t)memory->charged);
    }
}

static CUresult prefetch(CUdeviceptr ptr, size_t size, bool to_device)
{
    if (!find((void *)(uintptr_t)ptr, FAKE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    if (to_device)
        fake_touch_managed(ptr, size);
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr ptr, size_t size, CUdevice dev, CUstream stream)
{
    FAKE_ENTER(cuMemPrefetchAsync, FAKE_CONTEXT);
    (void)stream;
    return prefetch(ptr, size, dev >= 0);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr ptr, size_t size, CUdevice dev, CUstream stream)
{
    FAKE_ENTER(cuMemPrefetchAsync_ptsz, FAKE_CONTEXT);
    (void)stream;
    return prefetch(ptr, size, dev >= 0);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t size, CUmemLocation location,
                               unsigned int flags, CUstream stream)
{
    FAKE_ENTER(cuMemPrefetchAsync_v2, FAKE_CONTEXT);
    (void)stream, (void)flags;
    return prefetch(ptr, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr ptr, size_t size, CUmemLocation location,
                                    unsigned int flags, CUstream stream)
{
    FAKE_ENTER(cuMemPrefetchAsync_v2_ptsz, FAKE_CONTEXT);
    (void)stream, (void)flags;
    return prefetch(ptr, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE);
}

CUresult cuMemAdvise(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUdevice dev)
{
    FAKE_ENTER(cuMemAdvise, FAKE_CONTEXT);
    (void)advice, (void)dev;
    return prefetch(ptr, size, false);
}

CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUmemLocation location)
{
    FAKE_ENTER(cuMemAdvise_v2, FAKE_CONTEXT);
    (void)advice, (void)location;
    return prefetch(ptr, size, false);
}

/* --- pointers --- */

static CUresult attribute(void *data, CUpointer_attribute what, CUdeviceptr ptr)
{
    struct fake_range range;
    bool found = fake_resolve(ptr, &range);
    bool host = found && range.kind == FAKE_HOST;
    const struct fake_span *whole = NULL; /* of mapped memory: the reservation around it */
    if (found && range.kind == FAKE_VIRTUAL)
        whole = fake_span_at(ptr);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    switch (what) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = range.ctx;
        return range.ctx || range.kind == FAKE_POOL || range.kind == FAKE_VIRTUAL
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = host || range.card < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = (void *)(uintptr_t)ptr;
        return host || range.kind == FAKE_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = range.base / 512; /* no two live ones share it */
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = range.kind == FAKE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = range.card < 0 ? -2 : fake_device_of(range.card);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = range.kind == FAKE_LINEAR;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = whole ? whole->start : range.base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = whole ? whole->size : range.size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = whole ? (unsigned int)fake_virtual_handle_types(ptr) : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = range.pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute what, CUdeviceptr ptr)
{
    FAKE_ENTER(cuPointerGetAttribute, FAKE_INIT);
    return data ? attribute(data, what, ptr) : CUDA_ERROR_INVALID_VALUE;
}

/* Unlike the single question, this one succeeds for unknown pointers and answers zero. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *what, void **data,
                                CUdeviceptr ptr)
{
    FAKE_ENTER(cuPointerGetAttributes, FAKE_INIT);
    if (!what || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count; i++) {
        uint64_t answer = 0;
        bool small = what[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                     what[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                     what[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                     what[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
                     what[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
                     what[i] == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS ||
                     what[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        if (attribute(&answer, what[i], ptr) != CUDA_SUCCESS)
            answer = what[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)-2 : 0;
        memcpy(data[i], &answer, small ? 4 : 8);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr ptr)
{
    FAKE_ENTER(cuPointerSetAttribute, FAKE_INIT);
    struct fake_range range;
    (void)what;
    if (!value || !fake_resolve(ptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    return range.kind == FAKE_VIRTUAL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}
