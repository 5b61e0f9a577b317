/*
 * backing.c: with `run --suspendable`, what cuMemAlloc gives out: blocks in memory that we map ourselves, so that
 * it can be taken away under its addresses and given back. With `run --spill`, what it gives out beyond the
 * limit: host memory near the device, mapped at addresses of the device. It stays where it is. Managed memory
 * would do the same and can hang a card that is oversubscribed, so it is never used.
 *
 * A large block is a piece of its own, of whole pages; small ones are cut from pieces of one page, as the driver
 * does it, so the books of hooks_linear.c (pages.c) are right without knowing of this. Pieces are in an array by
 * address. No lock is held across a driver call: a piece leaves the array before it is unmapped and enters it
 * after it is mapped.
 *
 * Limits: stream-ordered pools, managed memory, arrays and graph memory are the driver's, and stay on the device.
 */
#include <stdlib.h>
#include <string.h>

#include "async.h"

enum { SMALL_PARTS = 2 }; /* blocks of up to half a page share pages */

static _Atomic uint64_t last_serial;

static struct {
    pthread_mutex_t lock;
    struct ull__piece *pieces; /* by base */
    size_t count, capacity;
    bool peer[MAX_ORDINALS][MAX_ORDINALS]; /* [of][by]: the second may use memory of the first */
    CUdeviceptr *later;                    /* frees that wait for a capture to end */
    size_t later_count, later_capacity;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ull__backing_forget(void)
{
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
}

/* --- the array ------------------------------------------------------------------------------------------- */

/* The last piece at or before an address; count if there is none. Under the lock. */
static size_t place_of(CUdeviceptr at)
{
    size_t low = 0, high = books.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (books.pieces[middle].base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? books.count : low - 1;
}

static struct ull__piece *piece_at(CUdeviceptr at)
{
    size_t place = place_of(at);
    if (place == books.count || at - books.pieces[place].base >= books.pieces[place].bytes)
        return NULL;
    return &books.pieces[place];
}

static bool insert(const struct ull__piece *piece)
{
    if (books.count == books.capacity) {
        size_t capacity = books.capacity ? books.capacity * 2 : 64;
        struct ull__piece *grown = realloc(books.pieces, capacity * sizeof *grown);
        if (!grown)
            return false;
        books.pieces = grown;
        books.capacity = capacity;
    }
    size_t at = place_of(piece->base);
    at = at == books.count ? 0 : at + 1;
    memmove(books.pieces + at + 1, books.pieces + at, (books.count - at) * sizeof *piece);
    books.pieces[at] = *piece;
    books.count++;
    return true;
}

static struct ull__piece take_out(struct ull__piece *piece)
{
    struct ull__piece gone = *piece;
    size_t at = (size_t)(piece - books.pieces);
    memmove(piece, piece + 1, (books.count - at - 1) * sizeof *piece);
    books.count--;
    return gone;
}

struct ull__piece *ull__backing_pieces(size_t *count)
{
    *count = books.count;
    return books.pieces;
}

/* --- memory ------------------------------------------------------------------------------------------------ */

void ull__backing_properties(int ordinal, CUmemAllocationProp *properties)
{
    memset(properties, 0, sizeof *properties);
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = ordinal;
}

void ull__spilled_properties(int ordinal, CUmemAllocationProp *properties)
{
    const union ull__cuda *real = ull__driver;
    int node = -1;
    memset(properties, 0, sizeof *properties);
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (real->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal) == CUDA_SUCCESS &&
        node >= 0) /* a machine without such nodes says -1: there is one then */
        properties->location.id = node;
}

/* Its own device, and those that were given access; all, to host memory, since they could reach it anyway. */
static CUresult give_access(int ordinal, CUdeviceptr base, uint64_t bytes, bool spilled)
{
    CUmemAccessDesc access[MAX_ORDINALS];
    size_t count = 0;
    for (int by = 0; by < MAX_ORDINALS; by++)
        if (by == ordinal || books.peer[ordinal][by] ||
            (spilled && by < atomic_load(&ull__state.gpu_count)))
            access[count++] = (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, by},
                                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return ull__driver->cuMemSetAccess(base, bytes, access, count);
}

CUresult ull__backing_map(const struct ull__piece *piece)
{
    const union ull__cuda *real = ull__driver;
    CUresult result = real->cuMemMap(piece->base, piece->bytes, 0, piece->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = give_access(piece->ordinal, piece->base, piece->bytes, piece->spilled);
    if (result != CUDA_SUCCESS)
        real->cuMemUnmap(piece->base, piece->bytes);
    return result;
}

static void give_back(struct ull__piece *piece)
{
    const union ull__cuda *real = ull__driver;
    real->cuMemUnmap(piece->base, piece->bytes);
    real->cuMemRelease(piece->handle);
    real->cuMemAddressFree(piece->base, piece->bytes);
    ull__slab_destroy(piece->slab);
}

static CUresult make(const struct ull__gpu *gpu, uint64_t bytes, bool spilled,
                     struct ull__piece *piece)
{
    const union ull__cuda *real = ull__driver;
    CUmemAllocationProp properties;
    if (!real->cuMemCreate || !real->cuMemAddressReserve || !real->cuMemMap || !real->cuMemSetAccess)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *piece = (struct ull__piece){.serial = atomic_fetch_add(&last_serial, 1) + 1,
                                 .bytes = bytes,
                                 .ordinal = (int)(gpu - ull__state.gpus),
                                 .stays = spilled,
                                 .spilled = spilled};
    if (spilled)
        ull__spilled_properties(piece->ordinal, &properties);
    else
        ull__backing_properties(piece->ordinal, &properties);
    real->cuCtxGetCurrent(&piece->context);
    CUresult result = real->cuMemCreate(&piece->handle, bytes, &properties, 0);
    if (result != CUDA_SUCCESS && spilled)
        return CUDA_ERROR_OUT_OF_MEMORY; /* what the program knows how to hear */
    if (result != CUDA_SUCCESS) {
        /* A device whose memory cannot be exported: nobody can share it, that is all. */
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            result = real->cuMemCreate(&piece->handle, bytes, &properties, 0);
        if (result != CUDA_SUCCESS)
            return result;
    }
    result = real->cuMemAddressReserve(&piece->base, bytes, gpu->page, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = ull__backing_map(piece);
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        real->cuMemAddressFree(piece->base, bytes);
    }
    real->cuMemRelease(piece->handle);
    return result;
}

/* --- blocks ------------------------------------------------------------------------------------------------- */

static CUresult keep(struct ull__piece *piece)
{
    pthread_mutex_lock(&books.lock);
    bool kept = insert(piece);
    pthread_mutex_unlock(&books.lock);
    if (kept)
        return CUDA_SUCCESS;
    give_back(piece);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_large(const struct ull__gpu *gpu, CUdeviceptr *dptr, uint64_t bytes,
                            bool spilled)
{
    struct ull__piece piece;
    CUresult result = make(gpu, (bytes + gpu->page - 1) / gpu->page * gpu->page, spilled, &piece);
    if (result != CUDA_SUCCESS)
        return result;
    piece.asked = bytes;
    result = keep(&piece);
    if (result == CUDA_SUCCESS)
        *dptr = piece.base;
    return result;
}

/* From a slab that has room. 0: none has. */
static CUdeviceptr take_small(int ordinal, uint64_t bytes, bool spilled)
{
    CUdeviceptr found = 0;
    pthread_mutex_lock(&books.lock);
    for (size_t i = 0; i < books.count && !found; i++) {
        struct ull__piece *piece = &books.pieces[i];
        /* Nor one that others have open: all in it would have to stay. */
        if (piece->ordinal != ordinal || !piece->slab || piece->spilled != spilled ||
            (piece->stays && !spilled))
            continue;
        uint64_t offset = ull__slab_take(piece->slab, bytes);
        if (offset != UINT64_MAX)
            found = piece->base + offset;
    }
    pthread_mutex_unlock(&books.lock);
    return found;
}

static CUresult alloc_small(const struct ull__gpu *gpu, CUdeviceptr *dptr, uint64_t bytes,
                            bool spilled)
{
    struct ull__piece piece;
    CUdeviceptr found = take_small((int)(gpu - ull__state.gpus), bytes, spilled);
    if (!found) {
        CUresult result = make(gpu, gpu->page, spilled, &piece);
        if (result != CUDA_SUCCESS)
            return result;
        piece.slab = ull__slab_create(gpu->page);
        if (!piece.slab) {
            give_back(&piece);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        found = piece.base + ull__slab_take(piece.slab, bytes); /* before others see it */
        result = keep(&piece);
        if (result != CUDA_SUCCESS)
            return result;
    }
    *dptr = found;
    return CUDA_SUCCESS;
}

CUresult ull__backing_alloc(const struct ull__gpu *gpu, CUdeviceptr *dptr, uint64_t bytes,
                            bool spilled)
{
    return bytes <= gpu->page / SMALL_PARTS ? alloc_small(gpu, dptr, bytes, spilled)
                                            : alloc_large(gpu, dptr, bytes, spilled);
}

bool ull__backing_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, struct ull__piece *found)
{
    bool known = false;
    pthread_mutex_lock(&books.lock);
    struct ull__piece *piece = piece_at(at);
    if (piece && piece->slab) {
        uint64_t offset = 0, length = 0;
        known = ull__slab_find(piece->slab, at - piece->base, &offset, &length);
        *start = piece->base + offset;
        *bytes = length;
    } else if (piece && at - piece->base < piece->asked) {
        known = true;
        *start = piece->base;
        *bytes = piece->asked;
    }
    if (known && found)
        *found = *piece;
    pthread_mutex_unlock(&books.lock);
    return known;
}

void ull__backing_drop(CUdeviceptr dptr)
{
    struct ull__piece gone = {0};
    bool last = false;
    pthread_mutex_lock(&books.lock);
    struct ull__piece *piece = piece_at(dptr);
    if (piece) {
        last = !piece->slab || ull__slab_drop(piece->slab, dptr - piece->base);
        if (last)
            gone = take_out(piece);
    }
    pthread_mutex_unlock(&books.lock);
    if (last)
        give_back(&gone);
}

CUresult ull__backing_free(CUdeviceptr dptr)
{
    CUdeviceptr start;
    uint64_t bytes;
    struct ull__piece piece;
    if (!ull__backing_find(dptr, &start, &bytes, &piece) || start != dptr)
        return ull__driver->cuMemFree_v2(dptr);
    CUcontext context = NULL;
    if (ull__driver->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context) {
        CUresult result = ull__driver->cuCtxSynchronize();
        if (result != CUDA_SUCCESS)
            return result; /* an earlier failure of the program's work, as cuMemFree would say */
    }
    ull__backing_drop(dptr);
    return CUDA_SUCCESS;
}

bool ull__backing_share(CUdeviceptr at, struct ull__piece *found)
{
    pthread_mutex_lock(&books.lock);
    struct ull__piece *piece = piece_at(at);
    if (piece) {
        piece->stays = true;
        *found = *piece;
    }
    pthread_mutex_unlock(&books.lock);
    return piece != NULL;
}

CUresult ull__backing_peer(int ordinal, int peer, bool access)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books.lock);
    books.peer[ordinal][peer] = access;
    size_t count = books.count;
    struct ull__piece *copy = malloc((count + 1) * sizeof *copy);
    if (copy)
        memcpy(copy, books.pieces, count * sizeof *copy);
    pthread_mutex_unlock(&books.lock);
    CUmemAccessDesc description = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer},
                                   .flags = access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE};
    for (size_t i = 0; copy && i < count && result == CUDA_SUCCESS; i++)
        if (copy[i].ordinal == ordinal && !copy[i].spilled)
            result = ull__driver->cuMemSetAccess(copy[i].base, copy[i].bytes, &description, 1);
    free(copy);
    return copy ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- frees during a capture --------------------------------------------------------------------------------- */

bool ull__free_later(CUdeviceptr dptr)
{
    CUdeviceptr start;
    uint64_t bytes;
    if (!ull__capture_is_open() ||
        (!ull__backing_find(dptr, &start, &bytes, NULL) &&
         !ull__async_find(dptr, &start, &bytes, NULL)) ||
        start != dptr)
        return false;
    pthread_mutex_lock(&books.lock);
    if (books.later_count == books.later_capacity) {
        size_t capacity = books.later_capacity ? books.later_capacity * 2 : 64;
        CUdeviceptr *grown = realloc(books.later, capacity * sizeof *grown);
        if (grown) {
            books.later = grown;
            books.later_capacity = capacity;
        }
    }
    bool kept = books.later_count < books.later_capacity;
    if (kept)
        books.later[books.later_count++] = dptr;
    pthread_mutex_unlock(&books.lock);
    return kept;
}

bool ull__frees_due(CUdeviceptr *dptr)
{
    if (__atomic_load_n(&books.later_count, __ATOMIC_RELAXED) == 0 || ull__capture_is_open())
        return false;
    pthread_mutex_lock(&books.lock);
    bool due = books.later_count > 0;
    if (due)
        *dptr = books.later[--books.later_count];
    pthread_mutex_unlock(&books.lock);
    return due;
}
