/*
 * async_own.c: what the program is told of the default pool of a device while ours is in its place. The driver's own
 * may hold memory too (async.c says of what), so figures are of both together.
 *
 * Attributes are set in the driver's, which checks them, and then hold for ours: the threshold, whether streams may
 * be made to wait for others, peaks, and the rights of other devices. Whether memory is used again by chance or
 * after the program's events changes nothing of what a program computes, so the other two have no meaning here.
 */
#include "async.h"
#include "move.h"
#include "ullage/stats.h"

enum { INTERNAL_DEPENDENCIES = 3 };

static struct ull__async *in_place_of(CUmemoryPool pool)
{
    for (int i = 0; i < atomic_load(&ull__state.gpu_count); i++) {
        struct ull__async *async = ull__async_of(i);
        if (async && pool && async->default_pool == pool)
            return async;
    }
    return NULL;
}

static struct ull_stats stats_of(struct ull__async *async)
{
    struct ull_stats stats = {.size = sizeof stats};
    ull_pool_stats(ull__async_pool(async), &stats);
    return stats;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What ours adds to an attribute of the driver's. */
static uint64_t ours(struct ull__async *async, CUmemPool_attribute attribute)
{
    struct ull_stats stats = stats_of(async);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return stats.held;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return larger(stats.peak_held, atomic_load(&async->held_floor));
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return stats.in_use;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return larger(stats.peak_in_use, atomic_load(&async->used_floor));
    default:
        return 0;
    }
}

CUresult ull__own_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult result = ull__driver->cuMemPoolGetAttribute(pool, attribute, value);
    struct ull__async *async = result == CUDA_SUCCESS ? in_place_of(pool) : NULL;
    if (!async || attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        return result;
    ull__async_free_due();
    if (attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        *(cuuint64_t *)value += ours(async, attribute);
    return result;
}

/* The pool's peaks begin anew together, so what the other one was is kept. */
static void begin_anew(struct ull__async *async, CUmemPool_attribute attribute)
{
    bool used = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    uint64_t held_peak = ours(async, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    uint64_t used_peak = ours(async, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    ull_pool_stats_reset(ull__async_pool(async));
    atomic_store(&async->used_floor, used ? 0 : used_peak);
    atomic_store(&async->held_floor, used ? held_peak : 0);
}

CUresult ull__own_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult result = ull__driver->cuMemPoolSetAttribute(pool, attribute, value);
    struct ull__async *async = result == CUDA_SUCCESS ? in_place_of(pool) : NULL;
    if (!async)
        return result;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        atomic_store(&async->threshold, *(cuuint64_t *)value);
    else if (attribute == INTERNAL_DEPENDENCIES)
        atomic_store(&async->no_dependencies, *(int *)value == 0);
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
             attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        begin_anew(async, attribute);
    return result;
}

/* --- rights of other devices ------------------------------------------------------------------------------------ */

struct granting {
    const CUmemAccessDesc *access;
    CUresult result;
};

static void grant(void *data, uint64_t address, uint64_t bytes)
{
    struct granting *granting = data;
    if (granting->result == CUDA_SUCCESS)
        granting->result = ull__driver->cuMemSetAccess(address, bytes, granting->access, 1);
}

CUresult ull__own_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult result = ull__driver->cuMemPoolSetAccess(pool, map, count);
    struct ull__async *async = result == CUDA_SUCCESS ? in_place_of(pool) : NULL;
    for (size_t i = 0; async && i < count && result == CUDA_SUCCESS; i++) {
        int peer = map[i].location.id;
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || peer < 0 ||
            peer >= MAX_ORDINALS || async == ull__async_of(peer))
            continue;
        struct granting granting = {.access = &map[i], .result = CUDA_SUCCESS};
        ull__async_device_access(async->device, peer, map[i].flags);
        ull__pool_mapped(ull__async_pool(async), grant, &granting);
        result = granting.result;
    }
    return result;
}

/* --- trims and addresses ------------------------------------------------------------------------------------------- */

void ull__async_trim_pool(CUmemoryPool pool, size_t keep)
{
    struct ull__async *async = in_place_of(pool);
    ull__async_free_due();
    if (async)
        ull__pool_trim_to(ull__async_pool(async), keep);
}

/* To the byte, as the program asked for it; the pool has whole units. */
bool ull__async_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, struct ull__async **async)
{
    struct ull__block block;
    for (int i = 0; ull__gates_wanted() && i < atomic_load(&ull__state.gpu_count); i++) {
        struct ull__async *candidate = ull__async_of(i);
        uint64_t first = 0, length = 0;
        if (!candidate || !ull__pool_find(ull__async_pool(candidate), at, &first, &length) ||
            !ull__block_find(first, &block) || at - first >= block.bytes)
            continue;
        *start = first;
        *bytes = block.bytes;
        if (async)
            *async = candidate;
        return true;
    }
    return false;
}
