/*
 * vmm_move.c: with `run --suspendable`, memory that the program maps itself: taken from under its addresses and
 * put back there. PyTorch's expandable segments and vLLM's pools are made of it.
 *
 * Movable is what this process made on a device, has mapped, and gave to nobody: not exported, imported, bound to
 * a multicast object or a sparse array. The program has handles of ours for it (hooks_vmm.c), so a new one of the
 * driver's can take the old one's place. The rights of its mappings are asked of the driver before they go.
 *
 * Limits: a handle without a mapping stays, since its bytes have no address; so does what its own device may not
 * write, and what has other rights at its end than at its beginning. A descriptor by
 * cuMemGetHandleForAddressRange is not seen: it is for devices like those that forbid suspension (mover.c).
 *
 * All of it is called while the gate is closed, so nobody else is in these books.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm_books.h"

static CUmemLocation device_at(int ordinal)
{
    return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
}

static unsigned long long rights(int ordinal, CUdeviceptr at)
{
    unsigned long long flags = 0;
    CUmemLocation location = device_at(ordinal);
    return ull__driver->cuMemGetAccess(&flags, &location, at) == CUDA_SUCCESS ? flags : 0;
}

/* False: its rights are not the same everywhere. */
static bool note_rights(struct mapping *mapping)
{
    bool even = true;
    for (int i = 0; i < atomic_load(&ull__state.gpu_count); i++) {
        mapping->access[i] = (unsigned char)rights(i, mapping->address);
        even = even && rights(i, mapping->address + mapping->size - 1) == mapping->access[i];
    }
    return even;
}

static bool is_movable(struct object *object)
{
    uint32_t mapped = 0;
    bool movable = ull__is_virtual(object) && object->gpu && object->gpu->device >= 0 &&
                   !object->imported && !object->exported && !object->spilled && !object->stays &&
                   object->prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && object->mappings;
    for (struct mapping *m = object->mappings; m && movable; m = m->next) {
        movable = m->size == object->size && note_rights(m);
        mapped++;
    }
    return movable && mapped == object->maps &&
           object->mappings->access[object->prop.location.id] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

size_t ull__handles_movable(struct ull__piece **pieces, size_t max)
{
    struct ull__vmm_books *books = &ull__vmm_books;
    size_t count = 0;
    for (size_t i = 0; i < books->objects.capacity && count < max; i++) {
        struct object *object = (struct object *)(uintptr_t)books->objects.entries[i].value;
        if (books->objects.entries[i].key == 0 || !is_movable(object))
            continue;
        object->piece = (struct ull__piece){.base = object->mappings->address,
                                            .bytes = object->size,
                                            .handle = object->real,
                                            .ordinal = object->prop.location.id,
                                            .object = object};
        pieces[count++] = &object->piece;
    }
    return count;
}

size_t ull__handles_count(void)
{
    return ull__vmm_books.objects.count;
}

void ull__object_properties(const struct ull__piece *piece, CUmemAllocationProp *properties)
{
    *properties = piece->object->prop;
}

void ull__object_unmap(const struct ull__piece *piece)
{
    for (struct mapping *m = piece->object->mappings; m; m = m->next)
        ull__driver->cuMemUnmap(m->address, m->size);
}

CUresult ull__object_map(const struct ull__piece *piece)
{
    const union ull__cuda *real = ull__driver;
    const CUmemAccessDesc own = {.location = device_at(piece->ordinal),
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = CUDA_SUCCESS;
    struct mapping *m = piece->object->mappings;
    for (; m && result == CUDA_SUCCESS; m = result == CUDA_SUCCESS ? m->next : m)
        result = real->cuMemMap(m->address, m->size, 0, piece->handle, 0);
    if (result == CUDA_SUCCESS)
        result = real->cuMemSetAccess(piece->base, piece->bytes, &own, 1);
    if (result == CUDA_SUCCESS)
        return result;
    for (struct mapping *mapped = piece->object->mappings; mapped != m; mapped = mapped->next)
        real->cuMemUnmap(mapped->address, mapped->size);
    return result;
}

CUresult ull__object_back(const struct ull__piece *piece)
{
    CUresult result = CUDA_SUCCESS;
    CUmemAccessDesc access[MAX_ORDINALS];
    for (struct mapping *m = piece->object->mappings; m && result == CUDA_SUCCESS; m = m->next) {
        size_t count = 0;
        for (int i = 0; i < atomic_load(&ull__state.gpu_count); i++)
            if (m->access[i])
                access[count++] = (CUmemAccessDesc){.location = device_at(i), .flags = m->access[i]};
        if (count > 0)
            result = ull__driver->cuMemSetAccess(m->address, m->size, access, count);
    }
    piece->object->real = piece->handle;
    return result;
}
