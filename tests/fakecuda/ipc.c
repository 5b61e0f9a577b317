/*
 * ipc.c: memory that another process opens.
 *
 * An exported block has an entry in the shared state that names its place in the owner's data file.
 * An importer maps that place, so the bytes are there even after the owner died. When the owner lets
 * go while importers are left, the bytes stay charged to the card, in nobody's name, and the owner
 * does not use that place again before the last importer left.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ipc_handle { /* inside CUipcMemHandle */
    uint64_t magic;
    uint32_t index, generation;
    uint64_t offset, size; /* of the allocation in the exported block */
    int32_t pid;
};
static const uint64_t ipc_magic = 0x6370692e75ull;

struct import {
    struct import *next;
    uint32_t index, generation;
    CUdeviceptr ptr; /* addresses reserved for the whole block */
    uint64_t size;
    unsigned char *host;
    uint64_t offset, asked;
    int card;
    unsigned int references;
};
static struct import *imports;

struct lingering { /* let go by us, still open elsewhere */
    struct lingering *next;
    struct fake_block block;
    uint32_t index, generation;
};
static struct lingering *lingering;

int fake_export_block(const struct fake_block *block, int card)
{
    struct fake_shared *shared = fake_shared_state();
    int found = -1;
    fake_shared_lock(shared);
    for (int i = 0; i < FAKE_MAX_EXPORTS && found < 0; i++)
        if (shared->export[i].state == 0)
            found = i;
    if (found >= 0) {
        struct fake_export *export = &shared->export[found];
        struct fake_process *process = &shared->process[fake_slot()];
        uint32_t generation = export->generation + 1;
        memset(export, 0, sizeof *export);
        export->generation = generation;
        export->owner = fake_slot();
        export->card = card;
        export->tag = process->tag;
        export->file_slot = (uint32_t)fake_slot();
        export->file_generation = process->generation;
        export->offset = block->offset;
        export->size = block->size;
        export->state = 1;
    }
    fake_shared_unlock(shared);
    return found;
}

bool fake_export_release(int index, const struct fake_block *block)
{
    struct fake_shared *shared = fake_shared_state();
    struct fake_export *export = &shared->export[index];
    uint32_t generation = export->generation;
    bool wanted = false;
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    for (int i = 0; i < FAKE_MAX_PROCESSES / 64; i++)
        wanted |= export->importers[i] != 0;
    export->owner = -1;
    if (wanted) {
        fake_shared_add(shared, fake_slot(), export->card, -(int64_t) export->size, 0);
        fake_shared_add_orphan(shared, export, (int64_t) export->size);
    }
    fake_shared_settle_export(shared, export);
    fake_shared_unlock(shared);
    if (!wanted)
        return false;
    struct lingering *l = malloc(sizeof *l);
    if (l) {
        *l = (struct lingering){lingering, *block, (uint32_t)index, generation};
        lingering = l;
    }
    return true;
}

void fake_export_collect(void)
{
    if (!lingering)
        return;
    struct fake_shared *shared = fake_shared_state();
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    for (struct lingering **at = &lingering; *at;) {
        struct lingering *l = *at;
        if (shared->export[l->index].generation == l->generation) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        fake_block_drop(&l->block);
        free(l);
    }
    fake_shared_unlock(shared);
}

unsigned char *fake_export_map(uint32_t index, uint32_t generation, uint64_t *size, int *card)
{
    struct fake_shared *shared = fake_shared_state();
    if (index >= FAKE_MAX_EXPORTS)
        return NULL;
    struct fake_export *export = &shared->export[index];
    unsigned char *host = MAP_FAILED;
    char path[320];
    fake_shared_lock(shared);
    if (export->state == 1 && export->generation == generation && export->owner >= 0) {
        fake_data_path(path, sizeof path, export->file_slot, export->file_generation);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            host = mmap(NULL, export->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                        (off_t) export->offset);
            close(fd);
        }
    }
    if (host != MAP_FAILED) {
        madvise(host, export->size, MADV_DONTFORK);
        export->importers[fake_slot() / 64] |= 1ull << fake_slot() % 64;
        *size = export->size;
        *card = export->card;
    }
    fake_shared_unlock(shared);
    return host == MAP_FAILED ? NULL : host;
}

void fake_export_unmap(uint32_t index, uint32_t generation, unsigned char *host, uint64_t size)
{
    struct fake_shared *shared = fake_shared_state();
    struct fake_export *export = &shared->export[index];
    munmap(host, size);
    fake_shared_lock(shared);
    if (export->generation == generation) {
        export->importers[fake_slot() / 64] &= ~(1ull << fake_slot() % 64);
        fake_shared_settle_export(shared, export);
    }
    fake_shared_unlock(shared);
}

/* --- the driver's calls --- */

static bool resolve(const struct fake_span *span, CUdeviceptr at, struct fake_range *range)
{
    const struct import *import = span->object;
    range->host = import->host + (at - import->ptr);
    range->length = import->ptr + import->size - at;
    range->base = import->ptr + import->offset;
    range->size = import->asked;
    range->card = import->card;
    return true;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr)
{
    FAKE_ENTER(cuIpcGetMemHandle, FAKE_CONTEXT);
    struct fake_range range;
    if (!out || !fake_resolve(ptr, &range) || range.kind != FAKE_LINEAR)
        return CUDA_ERROR_INVALID_VALUE;
    const struct fake_block *block = fake_linear_block(range.object);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t index = (uint32_t)fake_linear_export(range.object);
    struct ipc_handle handle;
    memset(&handle, 0, sizeof handle); /* padding too: the same memory has the same name each time */
    handle.magic = ipc_magic;
    handle.index = index;
    handle.generation = fake_shared_state()->export[index].generation;
    handle.offset = range.base - block->dev;
    handle.size = range.size;
    handle.pid = getpid();
    _Static_assert(sizeof handle <= sizeof *out, "fits");
    memset(out, 0, sizeof *out);
    memcpy(out, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *out, const CUipcMemHandle *opaque)
{
    struct ipc_handle handle;
    memcpy(&handle, opaque, sizeof handle);
    if (!out || handle.magic != ipc_magic)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    for (struct import *i = imports; i; i = i->next)
        if (i->index == handle.index && i->generation == handle.generation &&
            i->offset == handle.offset) {
            i->references++;
            *out = i->ptr + i->offset;
            return CUDA_SUCCESS;
        }
    struct import *import = calloc(1, sizeof *import);
    if (!import)
        return CUDA_ERROR_OUT_OF_MEMORY;
    import->host = fake_export_map(handle.index, handle.generation, &import->size, &import->card);
    import->ptr = import->host ? fake_addresses_reserve(import->size, FAKE_PAGE) : 0;
    if (!import->ptr) {
        free(import);
        return CUDA_ERROR_INVALID_VALUE;
    }
    import->index = handle.index;
    import->generation = handle.generation;
    import->offset = handle.offset;
    import->asked = handle.size;
    import->references = 1;
    fake_span_add((struct fake_span){import->ptr, import->size, FAKE_IMPORT, import, resolve});
    import->next = imports;
    imports = import;
    *out = import->ptr + import->offset;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    FAKE_ENTER(cuIpcOpenMemHandle, FAKE_TAKES);
    return flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? open_handle(ptr, &handle)
                                                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    FAKE_ENTER(cuIpcOpenMemHandle_v2, FAKE_TAKES);
    return flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? open_handle(ptr, &handle)
                                                       : CUDA_ERROR_INVALID_VALUE;
}

/* Several allocations of one slab may be open at once; the process lets go with the last. */
static bool last_of_export(const struct import *gone)
{
    for (const struct import *i = imports; i; i = i->next)
        if (i != gone && i->index == gone->index && i->generation == gone->generation)
            return false;
    return true;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    FAKE_ENTER(cuIpcCloseMemHandle, FAKE_CONTEXT | FAKE_UNSAFE);
    for (struct import **at = &imports; *at; at = &(*at)->next) {
        struct import *import = *at;
        if (ptr != import->ptr + import->offset)
            continue;
        if (--import->references > 0)
            return CUDA_SUCCESS;
        fake_wait_context(fake_current());
        fake_span_remove(import->ptr);
        fake_addresses_free(import->ptr, import->size);
        if (last_of_export(import))
            fake_export_unmap(import->index, import->generation, import->host, import->size);
        else
            munmap(import->host, import->size);
        *at = import->next;
        free(import);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
