/*
 * hooks_multicast.c: what holds the memory of a handle without a mapping at an address: bindings to multicast
 * objects, and tiles of sparse arrays.
 *
 * A binding counts as a mapping under a name of its own (hooks_vmm.c). Tiles are passed on with the driver's handles
 * and not followed: they keep a handle's memory after its release, which then shows as class module.
 */
#include <string.h>

#include "hash.h"
#include "vmm_books.h"

#define books ull__vmm_books

/* --- multicast: a binding holds its memory like a mapping ----------------------------------------------------------- */

static uint64_t binding_name(CUmemGenericAllocationHandle mc_handle, size_t offset)
{
    uint64_t parts[2] = {mc_handle, offset};
    return ull__hash(parts, sizeof parts) | 1; /* never a page's address */
}

CUresult ull__do_cuMulticastCreate(CUmemGenericAllocationHandle *mc_handle, const void *prop)
{
    ull__member_tie(atomic_load(&ull__state.member), ULL_TIE_MULTICAST);
    return ull__driver->cuMulticastCreate(mc_handle, prop);
}

CUresult ull__do_cuMulticastBindMem(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                                    CUmemGenericAllocationHandle mem_handle, size_t mem_offset,
                                    size_t size, unsigned long long flags)
{
    CUresult result = ull__driver->cuMulticastBindMem(
        mc_handle, mc_offset, ull__vmm_real(mem_handle), mem_offset, size, flags);
    if (result == CUDA_SUCCESS)
        ull__vmm_add_mapping(binding_name(mc_handle, mc_offset), size, mem_handle, false);
    return result;
}

CUresult ull__do_cuMulticastBindAddr(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                                     CUdeviceptr ptr, size_t size, unsigned long long flags)
{
    CUresult result = ull__driver->cuMulticastBindAddr(mc_handle, mc_offset, ptr, size, flags);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&books.lock);
        struct ull__table_entry *entry = ull__table_find(&books.mappings, ptr);
        uint64_t handle = entry ? ((struct mapping *)(uintptr_t)entry->value)->object->handle : 0;
        pthread_mutex_unlock(&books.lock);
        ull__vmm_add_mapping(binding_name(mc_handle, mc_offset), size, handle, false);
    }
    return result;
}

CUresult ull__do_cuMulticastUnbind(CUmemGenericAllocationHandle mc_handle, CUdevice dev,
                                   size_t mc_offset, size_t size)
{
    struct ull__moment moment = {.began_ns = ull__moment_now()};
    CUresult result = ull__driver->cuMulticastUnbind(mc_handle, dev, mc_offset, size);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&books.lock);
        struct mapping *mapping = ull__vmm_take_mapping(binding_name(mc_handle, mc_offset));
        pthread_mutex_unlock(&books.lock);
        if (mapping)
            ull__vmm_end_mapping(mapping, &moment);
    }
    return result;
}

/* --- sparse arrays ------------------------------------------------------------------------------------------------ */

/* What cuMemMapArrayAsync is given; only this much of it matters here. */
struct tile {
    unsigned char what[56];
    uint32_t operation; /* 1: map */
    uint32_t handle_type;
    uint64_t handle;
    unsigned char where[24];
};
_Static_assert(sizeof(struct tile) == 96, "CUarrayMapInfo");

/* With the driver's handles; what tiles hold can be mapped nowhere else, so it stays. */
static struct tile *real_tiles(const void *list, unsigned int count)
{
    struct tile *tiles = malloc((count + 1ul) * sizeof *tiles);
    for (unsigned int i = 0; tiles && i < count; i++) {
        memcpy(&tiles[i], (const struct tile *)list + i, sizeof *tiles);
        if (tiles[i].operation != 1)
            continue;
        pthread_mutex_lock(&books.lock);
        struct object *object = ull__vmm_find(tiles[i].handle);
        if (object && ull__is_virtual(object)) {
            object->stays = true;
            tiles[i].handle = object->real;
        }
        pthread_mutex_unlock(&books.lock);
    }
    return tiles;
}

CUresult ull__own_cuMemMapArrayAsync(void *list, unsigned int count, CUstream stream)
{
    struct tile *tiles = list && ull__gates_wanted() ? real_tiles(list, count) : NULL;
    CUresult result = ull__driver->cuMemMapArrayAsync(tiles ? tiles : list, count, stream);
    free(tiles);
    return result;
}

CUresult ull__own_cuMemMapArrayAsync_ptsz(void *list, unsigned int count, CUstream stream)
{
    struct tile *tiles = list && ull__gates_wanted() ? real_tiles(list, count) : NULL;
    CUresult result = ull__driver->cuMemMapArrayAsync_ptsz(tiles ? tiles : list, count, stream);
    free(tiles);
    return result;
}
