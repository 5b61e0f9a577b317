/*
 * hooks_vmm.c: virtual-memory handles.
 *
 * A handle's memory lives until it has been released as often as it was created, retained or imported,
 * and no mapping (or multicast binding) of it is left. The driver may give its number to a new handle
 * before that, so an object is counted here for each, and mappings point to objects, not numbers.
 *
 * With --suspendable the program gets handles of ours for what it makes here, since the driver's change when the
 * memory is moved (vmm_move.c). The driver's is released when the object ends, be it by the last release or by
 * the last unmapping.
 *
 * Not followed: a descriptor that this process exported and imports back itself, since nothing tells
 * that it is the same memory (its number may be another file's by then). Such bytes then show as class
 * module, from NVML's figure. hooks_multicast.c has what else holds a handle's memory.
 */
#include <string.h>

#include "async.h"
#include "hash.h"
#include "vmm_books.h"

/* Handles of ours: no driver of today gives out such numbers. */
#define VIRTUAL_HANDLE 0x756c6c0000000000ull
#define VIRTUAL_MASK 0xffffff0000000000ull

struct ull__vmm_books ull__vmm_books = {.lock = PTHREAD_MUTEX_INITIALIZER};
#define books ull__vmm_books

struct object *ull__vmm_find(uint64_t handle)
{
    struct ull__table_entry *entry = handle ? ull__table_find(&books.objects, handle) : NULL;
    return entry ? (struct object *)(uintptr_t)entry->value : NULL;
}

static void forget_object(struct object *object)
{
    struct ull__table_entry *entry = ull__table_find(&books.objects, object->handle);
    if (entry && (struct object *)(uintptr_t)entry->value == object)
        ull__table_remove(&books.objects, entry);
    entry = ull__table_find(&books.exported, object->real);
    if (entry && (struct object *)(uintptr_t)entry->value == object)
        ull__table_remove(&books.exported, entry);
}

CUmemGenericAllocationHandle ull__vmm_real(CUmemGenericAllocationHandle handle)
{
    if (!ull__gates_wanted() || (handle & VIRTUAL_MASK) != VIRTUAL_HANDLE)
        return handle;
    pthread_mutex_lock(&books.lock);
    struct object *object = ull__vmm_find(handle);
    uint64_t real = object ? object->real : 0;
    pthread_mutex_unlock(&books.lock);
    return real;
}

/* Numbers are used again while what they named before is still mapped, so a record goes by the object. */
static uint64_t name_of(const struct object *object)
{
    return (uint64_t)(uintptr_t)object;
}

/* Without the lock: the object is out of all tables. */
static void end_object(struct object *object, const struct ull__moment *moment)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    int device = object->gpu ? object->gpu->device : -1;
    if (ull__is_virtual(object))
        ull__driver->cuMemRelease(object->real);
    if (!object->imported && device >= 0 && ull__recording())
        ull__tell_freed(object->gpu, ULL_CLASS_DATA, name_of(object), object->size,
                        object->spilled ? 0 : object->size, moment);
    if (device >= 0 && object->imported && object->size)
        ull__member_import_closed(member, device, object->key, object->size);
    else if (device >= 0 && object->spilled)
        ull__member_unspill(member, device, object->size);
    else if (device >= 0 && object->exported)
        ull__member_release_exported(member, device, ULL_CLASS_DATA, object->key, object->size);
    else if (!object->imported)
        ull__give_back(object->gpu, ULL_CLASS_DATA, object->size);
    if (object->imported && ull__recording())
        ull__tell_inherited();
    free(object);
}

/* With the lock: the object if nothing holds it any more, taken out of its table. */
static struct object *if_ended(struct object *object)
{
    if (object->refs > 0 || object->maps > 0 || object->leaving > 0)
        return NULL;
    forget_object(object);
    return object;
}

/* The object, or NULL without host memory: then it stays charged until the process ends. */
static struct object *add_object(const struct object *model)
{
    struct object *object = malloc(sizeof *object);
    if (!object)
        return NULL;
    *object = *model;
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *old = ull__table_find(&books.objects, object->handle);
    if (old) /* a number used again: what is left of the old object is held by its mappings */
        old->value = (uint64_t)(uintptr_t)object;
    else
        ull__table_add(&books.objects, object->handle, (uint64_t)(uintptr_t)object);
    pthread_mutex_unlock(&books.lock);
    return object;
}

/* --- handles ------------------------------------------------------------------------------------------------ */

static const struct ull__gpu *integrated_gpu(void)
{
    for (int i = 0; i < ull__state.gpu_count; i++)
        if (ull__state.gpus[i].integrated)
            return &ull__state.gpus[i];
    return NULL;
}

/* Host memory counts only where the device shares it. */
static const struct ull__gpu *gpu_of_location(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? ull__gpu_of(location->id)
                                                         : integrated_gpu();
}

/* The same, from the host where it was spilled; what is asked of device memory has no meaning there. */
static CUresult create(const struct ull__charge *charge, CUmemGenericAllocationHandle *handle,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUmemAllocationProp of_host;
    if (!charge->spilled)
        return ull__driver->cuMemCreate(handle, charge->bytes, prop, flags);
    ull__spilled_properties((int)(charge->gpu - ull__state.gpus), &of_host);
    of_host.requestedHandleTypes = prop->requestedHandleTypes;
    CUresult result = ull__driver->cuMemCreate(handle, charge->bytes, &of_host, flags);
    return result == CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* From now on the program knows it by *handle. */
static struct object *add_made(const struct ull__charge *charge, const CUmemAllocationProp *prop,
                               CUmemGenericAllocationHandle *handle)
{
    static _Atomic uint64_t last;
    struct object model = {.handle = *handle,
                           .real = *handle,
                           .size = charge->bytes,
                           .gpu = charge->gpu,
                           .refs = 1,
                           .spilled = charge->spilled,
                           .prop = *prop};
    if (ull__gates_wanted())
        model.handle = VIRTUAL_HANDLE | (atomic_fetch_add(&last, 1) + 1);
    struct object *object = add_object(&model);
    if (object)
        *handle = model.handle;
    return object;
}

CUresult ull__do_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    uint64_t began_ns = ull__moment_now();
    const struct ull__gpu *gpu = prop ? gpu_of_location(&prop->location) : NULL;
    if (!gpu || size == 0 || !handle)
        return ull__driver->cuMemCreate(handle, size, prop, flags);
    struct ull__charge charge = {.gpu = gpu,
                                 .class = ULL_CLASS_DATA,
                                 .bytes = size,
                                 .call = "cuMemCreate",
                                 .began_ns = began_ns};
    charge.may_spill = ull__backing_wanted() && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (!ull__reserve(&charge, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = create(&charge, handle, prop, flags);
    while (ull__spill_instead(&charge, result) || ull__again(&charge, result));
    if (result != CUDA_SUCCESS) {
        ull__cancel(&charge, result);
        return result;
    }
    charge.address = name_of(add_made(&charge, prop, handle));
    ull__settle(&charge, size);
    return result;
}

/* The driver's reference is given back when the object ends. */
static CUresult release_virtual(CUmemGenericAllocationHandle handle)
{
    struct ull__moment moment = {.began_ns = ull__moment_now()};
    pthread_mutex_lock(&books.lock);
    struct object *object = ull__vmm_find(handle);
    bool held = object && object->refs > 0, ended = false;
    if (held) {
        object->refs--;
        ended = if_ended(object) != NULL;
    }
    pthread_mutex_unlock(&books.lock);
    ull__turn(ULL_TURN_BEGIN);
    if (ended)
        end_object(object, &moment);
    ull__turn(ULL_TURN_END);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult ull__do_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct ull__moment moment = {.began_ns = ull__moment_now()};
    if (ull__gates_wanted() && (handle & VIRTUAL_MASK) == VIRTUAL_HANDLE)
        return release_virtual(handle);
    /* Counted down first: once the driver has released it, its number may be another object's. */
    pthread_mutex_lock(&books.lock);
    struct object *object = ull__vmm_find(handle);
    if (object && object->refs > 0) {
        object->refs--;
        object->leaving++; /* it lives until the last of those who release it at once has done so */
    } else {
        object = NULL;
    }
    pthread_mutex_unlock(&books.lock);
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = ull__driver->cuMemRelease(handle);
    struct object *ended = NULL;
    if (object) {
        pthread_mutex_lock(&books.lock);
        object->leaving--;
        if (result != CUDA_SUCCESS)
            object->refs++;
        ended = if_ended(object);
        pthread_mutex_unlock(&books.lock);
    }
    if (ended)
        end_object(ended, &moment);
    ull__turn(ULL_TURN_END);
    return result;
}

/* The mapping that an address lies in. Under the lock. */
static struct mapping *mapping_around(uint64_t address)
{
    uint64_t step = ull__state.gpu_count ? ull__state.gpus[0].page : 2 << 20;
    uint64_t base = address / step * step;
    for (uint64_t back = 0; back <= books.largest && back <= base; back += step) {
        struct ull__table_entry *entry =
            base - back ? ull__table_find(&books.mappings, base - back) : NULL;
        struct mapping *mapping = entry ? (struct mapping *)(uintptr_t)entry->value : NULL;
        if (mapping)
            return address - mapping->address < mapping->size ? mapping : NULL;
    }
    return NULL;
}

static bool retain_virtual(CUmemGenericAllocationHandle *handle, const void *addr)
{
    pthread_mutex_lock(&books.lock);
    struct mapping *mapping = mapping_around((uint64_t)(uintptr_t)addr);
    bool ours = mapping && ull__is_virtual(mapping->object);
    if (ours) {
        mapping->object->refs++;
        *handle = mapping->object->handle;
    }
    pthread_mutex_unlock(&books.lock);
    return ours;
}

CUresult ull__do_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    CUdeviceptr start;
    uint64_t bytes;
    if (ull__gates_wanted() && handle && retain_virtual(handle, addr))
        return CUDA_SUCCESS;
    /* What cuMemAlloc gives out has no handle, and the program shall not see that ours has. */
    if (unlikely(ull__backing_wanted()) &&
        (ull__backing_find((CUdeviceptr)(uintptr_t)addr, &start, &bytes, NULL) ||
         ull__async_find((CUdeviceptr)(uintptr_t)addr, &start, &bytes, NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = ull__driver->cuMemRetainAllocationHandle(handle, addr);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&books.lock);
        struct object *object = ull__vmm_find(*handle);
        if (object)
            object->refs++;
        pthread_mutex_unlock(&books.lock);
    }
    return result;
}

/* --- other processes ------------------------------------------------------------------------------------------ */

CUresult ull__do_cuMemExportToShareableHandle(void *shareable_handle,
                                              CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handle_type,
                                              unsigned long long flags)
{
    ull__member_tie(atomic_load(&ull__state.member), ULL_TIE_HANDLE);
    CUresult result = ull__driver->cuMemExportToShareableHandle(
        shareable_handle, ull__vmm_real(handle), handle_type, flags);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t key = handle_type == CU_MEM_HANDLE_TYPE_FABRIC ? ull__hash(shareable_handle, 64) : 0;
    uint64_t size = 0;
    int device = -1;
    pthread_mutex_lock(&books.lock);
    struct object *object = ull__vmm_find(handle);
    if (object && ull__is_virtual(object)) { /* to know it when it is imported back */
        object->stays = true;
        if (!ull__table_find(&books.exported, object->real))
            ull__table_add(&books.exported, object->real, (uint64_t)(uintptr_t)object);
    }
    if (object && !object->imported && !object->exported && !object->spilled && object->gpu) {
        object->exported = true;
        object->key = key;
        size = object->size;
        device = object->gpu->device;
    }
    pthread_mutex_unlock(&books.lock);
    if (device >= 0)
        ull__member_export(atomic_load(&ull__state.member), device, ULL_CLASS_DATA, key, size);
    return result;
}

CUresult ull__do_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                                CUmemAllocationHandleType handle_type)
{
    ull__member_tie(atomic_load(&ull__state.member), ULL_TIE_HANDLE);
    CUresult result = ull__driver->cuMemImportFromShareableHandle(handle, os_handle, handle_type);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t real = *handle;
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = ull__table_find(&books.exported, real);
    struct object *object = entry ? (struct object *)(uintptr_t)entry->value : ull__vmm_find(*handle);
    if (object && (object->refs > 0 || object->maps > 0)) {
        object->refs++; /* this process's own, imported back */
        *handle = object->handle;
    } else {
        object = NULL;
    }
    pthread_mutex_unlock(&books.lock);
    if (object && *handle != real)
        ull__driver->cuMemRelease(real); /* one reference is kept, whatever the program has */
    if (object)
        return result;
    CUmemAllocationProp prop;
    const struct ull__gpu *gpu = NULL;
    memset(&prop, 0, sizeof prop);
    if (ull__driver->cuMemGetAllocationPropertiesFromHandle &&
        ull__driver->cuMemGetAllocationPropertiesFromHandle(&prop, *handle) == CUDA_SUCCESS)
        gpu = gpu_of_location(&prop.location);
    add_object(&(struct object){
        .handle = *handle,
        .real = *handle,
        .key = handle_type == CU_MEM_HANDLE_TYPE_FABRIC ? ull__hash(os_handle, 64) : 0,
        .gpu = gpu,
        .refs = 1,
        .imported = true});
    return result;
}

/* --- mappings --------------------------------------------------------------------------------------------------- */

void ull__vmm_add_mapping(uint64_t name, uint64_t size, uint64_t handle, bool at_address)
{
    uint64_t imported_size = 0, key = 0;
    int device = -1;
    struct mapping *mapping = malloc(sizeof *mapping);
    pthread_mutex_lock(&books.lock);
    struct object *object = ull__vmm_find(handle);
    if (mapping && object && ull__table_add(&books.mappings, name, (uint64_t)(uintptr_t)mapping)) {
        *mapping = (struct mapping){.address = name, .size = size, .object = object};
        if (at_address) {
            mapping->next = object->mappings;
            object->mappings = mapping;
            books.largest = size > books.largest ? size : books.largest;
        } else {
            object->stays = true; /* a binding */
        }
        mapping = NULL;
        object->maps++;
        if (object->imported && object->size == 0) { /* handles are mapped whole: now it is known */
            object->size = imported_size = size;
            key = object->key;
            device = object->gpu ? object->gpu->device : -1;
        }
    }
    pthread_mutex_unlock(&books.lock);
    free(mapping);
    if (device >= 0)
        ull__member_import(atomic_load(&ull__state.member), device, key, imported_size);
}

struct mapping *ull__vmm_take_mapping(uint64_t name)
{
    struct ull__table_entry *entry = ull__table_find(&books.mappings, name);
    struct mapping *mapping = entry ? (struct mapping *)(uintptr_t)entry->value : NULL;
    if (entry)
        ull__table_remove(&books.mappings, entry);
    return mapping;
}

void ull__vmm_end_mapping(struct mapping *mapping, const struct ull__moment *moment)
{
    pthread_mutex_lock(&books.lock);
    mapping->object->maps--;
    for (struct mapping **at = &mapping->object->mappings; *at; at = &(*at)->next)
        if (*at == mapping) {
            *at = mapping->next;
            break;
        }
    struct object *ended = if_ended(mapping->object);
    pthread_mutex_unlock(&books.lock);
    free(mapping);
    if (ended)
        end_object(ended, moment);
}

CUresult ull__do_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = ull__driver->cuMemMap(ptr, size, offset, ull__vmm_real(handle), flags);
    if (result == CUDA_SUCCESS)
        ull__vmm_add_mapping(ptr, size, handle, true);
    return result;
}

/* The mappings in a range, taken out of the table: a chain through `address` order. */
static size_t take_range(uint64_t from, uint64_t size, struct mapping **taken, size_t max)
{
    uint64_t step = ull__state.gpu_count ? ull__state.gpus[0].page : 2 << 20;
    size_t count = 0;
    pthread_mutex_lock(&books.lock);
    for (uint64_t at = from; at - from < size && count < max;) {
        struct mapping *mapping = ull__vmm_take_mapping(at);
        if (mapping)
            taken[count++] = mapping;
        at += mapping && mapping->size ? mapping->size : step;
    }
    pthread_mutex_unlock(&books.lock);
    return count;
}

CUresult ull__do_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    /* Taken out before the call: the addresses may be mapped again by another thread right after. */
    struct mapping *small[16];
    struct ull__moment moment = {.began_ns = ull__moment_now()};
    pthread_mutex_lock(&books.lock);
    size_t max = books.mappings.count + 1;
    pthread_mutex_unlock(&books.lock);
    struct mapping **taken = max <= 16 ? small : malloc(max * sizeof *taken);
    size_t count = taken ? take_range(ptr, size, taken, max) : 0;
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = ull__driver->cuMemUnmap(ptr, size);
    for (size_t i = 0; i < count; i++) {
        if (result == CUDA_SUCCESS) {
            ull__vmm_end_mapping(taken[i], &moment);
            continue;
        }
        pthread_mutex_lock(&books.lock);
        ull__table_add(&books.mappings, taken[i]->address, (uint64_t)(uintptr_t)taken[i]);
        pthread_mutex_unlock(&books.lock);
    }
    ull__turn(ULL_TURN_END);
    if (taken != small)
        free(taken);
    return result;
}

/* --- answers about handles of ours ------------------------------------------------------------------------------- */

CUresult ull__own_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                         CUmemGenericAllocationHandle handle)
{
    return ull__driver->cuMemGetAllocationPropertiesFromHandle(prop, ull__vmm_real(handle));
}

void ull__handles_forget(void)
{
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
}
