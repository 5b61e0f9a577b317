/*
 * worker_mapped.c: memory that the program maps itself, as PyTorch's expandable segments and vLLM do: handles that
 * are kept, released while they are mapped, mapped twice, unmapped and mapped elsewhere, and exported.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker.h"

enum { MAPPED_PAGE = 2 << 20, MOST_MAPPED = 512 };

static struct mapped {
    CUmemGenericAllocationHandle handle; /* 0: released */
    CUdeviceptr at, again;               /* the second address or 0 */
    size_t bytes;
} mapped[MOST_MAPPED];
static int mapped_count;

static void give_access(CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, worker.device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuMemSetAccess(at, bytes, &access, 1));
}

static CUmemGenericAllocationHandle create(size_t bytes, bool shared)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = worker.device;
    if (shared)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr map_anywhere(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr at;
    CU(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CU(cuMemMap(at, bytes, 0, handle, 0));
    give_access(at, bytes);
    return at;
}

/* Side by side in one reservation. */
static void map(size_t bytes, int count)
{
    CUdeviceptr start;
    bytes = (bytes + MAPPED_PAGE - 1) / MAPPED_PAGE * MAPPED_PAGE;
    CU(cuMemAddressReserve(&start, bytes * (size_t)count, 0, 0, 0));
    for (int i = 0; i < count; i++) {
        struct mapped *m = &mapped[mapped_count++];
        *m = (struct mapped){
            .handle = create(bytes, false), .at = start + (CUdeviceptr)i * bytes, .bytes = bytes};
        CU(cuMemMap(m->at, bytes, 0, m->handle, 0));
        if (i % 3 == 2)
            m->again = map_anywhere(m->handle, bytes);
        if (i % 2 == 1) {
            CU(cuMemRelease(m->handle));
            m->handle = 0;
        }
    }
    give_access(start, bytes * (size_t)count);
    for (int i = mapped_count - count; i < mapped_count; i++)
        launch_words(worker.fill, worker.stream[0], mapped[i].at, bytes / 4, (uint32_t)any(1u << 31));
}

/* What the driver says of its handle. */
static void check_handle(const struct mapped *m)
{
    CUmemGenericAllocationHandle found;
    CUmemAllocationProp prop;
    unsigned long long flags = 0;
    CU(cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)(m->at + m->bytes / 2)));
    if (m->handle && found != m->handle)
        fail("another handle than at first", (long)found);
    CU(cuMemGetAllocationPropertiesFromHandle(&prop, found));
    if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != worker.device)
        fail("its location", prop.location.id);
    CU(cuMemRelease(found));
    CU(cuMemGetAccess(&flags, &prop.location, m->at));
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        fail("its rights", (long)flags);
}

/* To another address, or away and a new one in its place. */
static void move(struct mapped *m)
{
    CU(cuCtxSynchronize());
    if (m->handle && !m->again && any(2)) {
        CU(cuMemUnmap(m->at, m->bytes));
        m->at = map_anywhere(m->handle, m->bytes);
    } else if (!m->again) {
        sum_bytes(m->at, m->bytes);
        CU(cuMemUnmap(m->at, m->bytes));
        if (m->handle)
            CU(cuMemRelease(m->handle));
        m->handle = create(m->bytes, false);
        CU(cuMemMap(m->at, m->bytes, 0, m->handle, 0));
        give_access(m->at, m->bytes);
        launch_words(worker.fill, worker.stream[0], m->at, m->bytes / 4, (uint32_t)any(1u << 31));
    }
}

static void remap(long count, long ms)
{
    for (long i = 0; i < count; i++) {
        struct mapped *m = &mapped[any((uint64_t)mapped_count)];
        launch_words(worker.add, worker.stream[0], any(2) && m->again ? m->again : m->at,
                     m->bytes / 4, (uint32_t)i + 1);
        check_handle(m);
        if (any(4) == 0)
            move(m);
        if (ms > 0)
            pause_ms(ms);
    }
}

/* Exported, imported back and mapped again: the same bytes, by a descriptor. */
static void export_mapped(size_t bytes)
{
    CUmemGenericAllocationHandle back;
    int fd = -1;
    bytes = (bytes + MAPPED_PAGE - 1) / MAPPED_PAGE * MAPPED_PAGE;
    struct mapped *m = &mapped[mapped_count++];
    *m = (struct mapped){.handle = create(bytes, true), .bytes = bytes};
    m->at = map_anywhere(m->handle, bytes);
    CU(cuMemExportToShareableHandle(&fd, m->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CU(cuMemImportFromShareableHandle(&back, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    m->again = map_anywhere(back, bytes);
    CU(cuMemRelease(back));
    launch_words(worker.fill, worker.stream[0], m->at, bytes / 4, (uint32_t)any(1u << 31));
}

static void sum_mapped(void)
{
    CU(cuCtxSynchronize());
    for (int i = 0; i < mapped_count; i++) {
        sum_bytes(mapped[i].at, mapped[i].bytes);
        if (mapped[i].again)
            sum_bytes(mapped[i].again, mapped[i].bytes);
    }
    tell("mapped %016llx", (unsigned long long)worker.sum);
}

static void unmap_all(void)
{
    CU(cuCtxSynchronize());
    for (; mapped_count > 0; mapped_count--) {
        struct mapped *m = &mapped[mapped_count - 1];
        CU(cuMemUnmap(m->at, m->bytes));
        if (m->again)
            CU(cuMemUnmap(m->again, m->bytes));
        if (m->handle)
            CU(cuMemRelease(m->handle));
    }
}

bool mapped_word(const char *word, char ***at)
{
    char **words = *at;
    if (strcmp(word, "map") == 0) {
        map(size_of(words[0]), atoi(words[1]));
        *at += 2;
    } else if (strcmp(word, "remap") == 0) {
        remap(atol(words[0]), atol(words[1]));
        *at += 2;
    } else if (strcmp(word, "mapexport") == 0) {
        export_mapped(size_of(words[0]));
        *at += 1;
    } else if (strcmp(word, "mapsum") == 0) {
        sum_mapped();
    } else if (strcmp(word, "unmap") == 0) {
        unmap_all();
    } else {
        return false;
    }
    return true;
}
