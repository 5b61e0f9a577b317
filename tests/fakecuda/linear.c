/*
 * linear.c: cuMemAlloc and its relatives.
 *
 * Up to 1 MiB an allocation is cut, 512 bytes aligned, out of a 2 MiB slab; above that it is rounded
 * up to 2 MiB. So a page of addresses is charged exactly while a live allocation touches it. Slabs
 * belong to one context. Arrays use slabs of their own (array.c).
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512, CHUNKS = 4096 };

/* What an address of a window leads to: a slab, or one large allocation. */
struct owner {
    bool is_slab;
    bool hidden; /* of arrays: has no device pointer */
    int export_index;
    CUcontext ctx;
    struct fake_block block;
};

struct fake_slab {
    struct owner owner;
    struct fake_slab *next, *previous;
    struct fake_slabs *list;
    unsigned int free_chunks;
    unsigned int longest; /* no run of free chunks is longer */
    unsigned int hint;    /* no free chunk below */
    uint64_t used[CHUNKS / 64];
    uint32_t size[CHUNKS]; /* bytes asked for, at the first chunk of an allocation */
};

struct fake_large {
    struct owner owner;
    struct fake_large *next, *previous;
    size_t size;
};

static bool bit(const uint64_t *bits, unsigned int i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static void fill(uint64_t *bits, unsigned int first, unsigned int count, bool value)
{
    for (unsigned int i = first; i < first + count; i++) {
        if (value)
            bits[i / 64] |= 1ull << i % 64;
        else
            bits[i / 64] &= ~(1ull << i % 64);
    }
}

/* First fit; remembers the longest run seen when there is none long enough. */
static bool slab_find(struct fake_slab *slab, unsigned int count, unsigned int *first)
{
    if (count > slab->free_chunks || count > slab->longest)
        return false;
    unsigned int longest = 0, i = slab->hint;
    bool low = true;
    while (i < CHUNKS) {
        if (i % 64 == 0 && slab->used[i / 64] == UINT64_MAX) {
            i += 64;
            continue;
        }
        if (bit(slab->used, i)) {
            i++;
            continue;
        }
        if (low)
            slab->hint = i;
        low = false;
        unsigned int run = 1;
        while (run < count && i + run < CHUNKS && !bit(slab->used, i + run))
            run++;
        if (run == count) {
            *first = i;
            return true;
        }
        if (run > longest)
            longest = run;
        i += run;
    }
    slab->longest = longest;
    return false;
}

static CUresult take_block(int card, uint64_t size, struct fake_block *block)
{
    CUresult r = fake_charge(card, size, 0);
    if (r == CUDA_SUCCESS && !fake_block_take(size, block)) {
        fake_uncharge(card, size, 0);
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return r;
}

static void drop_block(struct owner *owner)
{
    int card = owner->ctx->card;
    uint64_t size = owner->block.size;
    if (owner->export_index >= 0 && fake_export_release(owner->export_index, &owner->block)) {
        fake_block_forget(&owner->block);
        return;
    }
    fake_block_drop(&owner->block);
    fake_uncharge(card, size, 0);
}

static CUresult slab_new(CUcontext ctx, struct fake_slabs *list, struct fake_slab **out)
{
    struct fake_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = take_block(ctx->card, FAKE_PAGE, &slab->owner.block);
    if (r != CUDA_SUCCESS) {
        free(slab);
        return r;
    }
    slab->owner.is_slab = true;
    slab->owner.hidden = list != &ctx->linear;
    slab->owner.export_index = -1;
    slab->owner.ctx = ctx;
    slab->list = list;
    slab->free_chunks = slab->longest = CHUNKS;
    slab->next = list->first;
    if (slab->next)
        slab->next->previous = slab;
    list->first = slab;
    fake_block_own(&slab->owner.block, slab);
    *out = slab;
    return CUDA_SUCCESS;
}

static void slab_free(struct fake_slab *slab)
{
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        slab->list->first = slab->next;
    if (slab->next)
        slab->next->previous = slab->previous;
    drop_block(&slab->owner);
    free(slab);
}

bool fake_linear_take(CUcontext ctx, struct fake_slabs *slabs, size_t bytes, CUdeviceptr *out,
                      CUresult *result)
{
    *result = CUDA_SUCCESS;
    bool loose = slabs == &ctx->linear && fake_lenient("linear.packing");
    if (bytes > FAKE_MIB || loose) {
        struct fake_large *large = calloc(1, sizeof *large);
        if (!large || bytes > (1ull << 46)) {
            free(large);
            *result = CUDA_ERROR_OUT_OF_MEMORY;
            return false;
        }
        uint64_t size = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
        *result = take_block(ctx->card, size, &large->owner.block);
        if (*result != CUDA_SUCCESS) {
            free(large);
            return false;
        }
        large->owner.export_index = -1;
        large->owner.ctx = ctx;
        large->owner.hidden = slabs != &ctx->linear;
        large->size = bytes;
        large->next = ctx->large;
        if (large->next)
            large->next->previous = large;
        ctx->large = large;
        fake_block_own(&large->owner.block, large);
        *out = large->owner.block.dev;
        fake_count(ctx->card, 1);
        return true;
    }
    unsigned int count = (unsigned int)((bytes + CHUNK - 1) / CHUNK), first = 0;
    struct fake_slab *slab = slabs->first;
    while (slab && !slab_find(slab, count, &first))
        slab = slab->next;
    if (!slab) {
        *result = slab_new(ctx, slabs, &slab);
        if (*result != CUDA_SUCCESS)
            return false;
    }
    fill(slab->used, first, count, true);
    slab->size[first] = (uint32_t)bytes;
    slab->free_chunks -= count;
    *out = slab->owner.block.dev + (uint64_t)first * CHUNK;
    fake_count(ctx->card, 1);
    return true;
}

/* The allocation that holds an address: its first chunk, or CHUNKS when there is none. */
static unsigned int chunk_of(const struct fake_slab *slab, CUdeviceptr at)
{
    unsigned int i = (unsigned int)((at - slab->owner.block.dev) / CHUNK);
    if (!bit(slab->used, i))
        return CHUNKS;
    while (slab->size[i] == 0)
        i--;
    return i;
}

bool fake_linear_resolve(void *pointer, CUdeviceptr at, struct fake_range *range)
{
    struct owner *owner = pointer;
    if (owner->hidden)
        return false;
    range->ctx = owner->ctx;
    range->card = owner->ctx->card;
    range->object = owner;
    if (owner->is_slab) {
        struct fake_slab *slab = pointer;
        unsigned int first = chunk_of(slab, at);
        if (first == CHUNKS)
            return false;
        range->base = owner->block.dev + (uint64_t)first * CHUNK;
        range->size = slab->size[first];
    } else {
        range->base = owner->block.dev;
        range->size = ((struct fake_large *)pointer)->size;
    }
    if (at >= range->base + range->size)
        return false;
    range->length = range->base + range->size - at;
    return true;
}

/* The block of an allocation, to be exported; remembers under which index that was done. */
struct fake_block *fake_linear_block(void *pointer)
{
    struct owner *owner = pointer;
    if (owner->export_index < 0)
        owner->export_index = fake_export_block(&owner->block, owner->ctx->card);
    return owner->export_index >= 0 ? &owner->block : NULL;
}

int fake_linear_export(void *pointer)
{
    return ((struct owner *)pointer)->export_index;
}

static CUresult drop(struct owner *owner, CUdeviceptr ptr)
{
    int card = owner->ctx->card;
    if (!owner->is_slab) {
        struct fake_large *large = (struct fake_large *)owner;
        if (ptr != owner->block.dev)
            return CUDA_ERROR_INVALID_VALUE;
        if (large->previous)
            large->previous->next = large->next;
        else
            owner->ctx->large = large->next;
        if (large->next)
            large->next->previous = large->previous;
        drop_block(owner);
        free(large);
        fake_count(card, -1);
        return CUDA_SUCCESS;
    }
    struct fake_slab *slab = (struct fake_slab *)owner;
    unsigned int first = (unsigned int)((ptr - owner->block.dev) / CHUNK);
    if (ptr % CHUNK != 0 || slab->size[first] == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned int count = (slab->size[first] + CHUNK - 1) / CHUNK;
    fill(slab->used, first, count, false);
    slab->size[first] = 0;
    slab->free_chunks += count;
    slab->longest = CHUNKS;
    if (first < slab->hint)
        slab->hint = first;
    fake_count(card, -1);
    if (slab->free_chunks == CHUNKS)
        slab_free(slab);
    return CUDA_SUCCESS;
}

CUresult fake_linear_drop(CUdeviceptr ptr)
{
    struct owner *owner = fake_window_owner(ptr);
    return owner ? drop(owner, ptr) : CUDA_ERROR_INVALID_VALUE;
}

static void release_slabs(struct fake_slabs *slabs)
{
    while (slabs->first) {
        int left = 0;
        for (int i = 0; i < CHUNKS; i++)
            left += slabs->first->size[i] != 0;
        fake_count(slabs->first->owner.ctx->card, -left);
        slab_free(slabs->first);
    }
}

void fake_linear_release_all(CUcontext ctx)
{
    release_slabs(&ctx->linear);
    release_slabs(&ctx->arrays);
    while (ctx->large)
        drop(&ctx->large->owner, ctx->large->owner.block.dev);
}

/* --- the driver's calls --- */

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
    FAKE_ENTER(cuMemAlloc_v2, FAKE_TAKES);
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr p = 0;
    if (!dptr || bytes == 0)
        return r;
    if (fake_linear_take(fake_current(), &fake_current()->linear, bytes, &p, &r))
        *dptr = p;
    return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    FAKE_ENTER(cuMemAllocPitch_v2, FAKE_TAKES);
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr p = 0;
    size_t row = (width + CHUNK - 1) / CHUNK * CHUNK;
    if (!dptr || !pitch || width == 0 || height == 0 || row < width || row > SIZE_MAX / height ||
        (element != 4 && element != 8 && element != 16))
        return r;
    if (fake_linear_take(fake_current(), &fake_current()->linear, row * height, &p, &r)) {
        *dptr = p;
        *pitch = row;
    }
    return r;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    FAKE_ENTER(cuMemFree_v2, FAKE_CONTEXT | FAKE_UNSAFE);
    struct fake_range range;
    if (dptr == 0)
        return CUDA_SUCCESS;
    fake_wait_context(fake_current());
    if (!fake_resolve(dptr, &range))
        return fake_lenient("linear.double_free") ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    switch (range.kind) {
    case FAKE_LINEAR:
        if (range.ctx != fake_current())
            fake_wait_context(range.ctx);
        return fake_linear_drop(dptr);
    case FAKE_POOL:
        return fake_pool_free_now(dptr);
    case FAKE_MANAGED:
        return fake_managed_free(dptr);
    case FAKE_GRAPH:
        return fake_graph_free(dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
    FAKE_ENTER(cuMemGetAddressRange_v2, FAKE_CONTEXT);
    struct fake_range range;
    if (!fake_resolve(dptr, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range.base;
    if (size)
        *size = range.size;
    return CUDA_SUCCESS;
}
