/*
 * async_device.c: what a pool of ours takes its pages from: the CUDA device of src/device over the real driver, but
 * that every page is charged to the job before it is made, and given back after it is gone.
 *
 * It is called under the pool's lock, so nothing waits here: where the account has no room, there is none. Whoever
 * asked the pool reserves in the way of all other calls then (async.c), with the pool's lock free, and what it
 * got is its thread's credit for the pages that the pool makes next.
 *
 * While a job is moved, pages go and come without a change of the books. When the context has ended, all work is
 * over and its events are gone; pages and addresses do not belong to it and are given back without it.
 */
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "cuda_private.h"

struct async_device {
    struct ull__cuda_device cuda; /* first: its operations are this device's too */
    const struct ull__gpu *gpu;
    uint64_t total;
    _Atomic bool dead, moving;
    _Atomic int access[MAX_ORDINALS]; /* of other devices */
};

static __thread uint64_t credit __attribute__((tls_model("initial-exec")));
static __thread bool card_full __attribute__((tls_model("initial-exec")));

uint64_t ull__async_credit(uint64_t bytes)
{
    uint64_t left = credit;
    credit = bytes;
    if (bytes > 0)
        card_full = false;
    return left;
}

bool ull__async_card_full(void)
{
    return card_full;
}

static struct async_device *async_of(struct ull__device *device)
{
    return (struct async_device *)device;
}

/* --- the books ---------------------------------------------------------------------------------------------- */

/* *paid: of that, what was reserved before. */
static bool charge(const struct ull__gpu *gpu, uint64_t bytes, uint64_t *paid)
{
    *paid = credit < bytes ? credit : bytes;
    if (*paid < bytes && ull__member_reserve(atomic_load(&ull__state.member), gpu->device,
                                             ULL_CLASS_POOL, bytes - *paid) != ULL_OK)
        return false;
    credit -= *paid;
    return true;
}

/* What was charged is held, or goes back where it came from. */
static void made(const struct ull__gpu *gpu, uint64_t bytes, uint64_t paid, bool good)
{
    if (!good) {
        credit += paid;
        ull__give_back(gpu, ULL_CLASS_POOL, bytes - paid);
        return;
    }
    ull__member_settled_to(atomic_load(&ull__state.member), gpu->device, ULL_CLASS_POOL);
    if (ull__recording())
        ull__tell_change(gpu, ULL_CLASS_POOL, (int64_t)bytes);
}

/* --- memory -------------------------------------------------------------------------------------------------- */

static ull_status memory(struct ull__device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    *free_bytes = *total_bytes = async_of(device)->total;
    return ULL_OK;
}

static ull_status create(struct ull__device *device, size_t count, ull__page *pages)
{
    struct async_device *async = async_of(device);
    uint64_t bytes = count * device->page_bytes, paid = 0;
    if (atomic_load(&async->moving))
        return ull__cuda_mapped_ops.create(device, count, pages);
    ull__turn(ULL_TURN_BEGIN);
    ull_status status = charge(async->gpu, bytes, &paid) ? ULL_OK : ULL_E_NO_MEMORY;
    if (status == ULL_OK) {
        status = ull__cuda_mapped_ops.create(device, count, pages);
        card_full = status != ULL_OK;
        made(async->gpu, bytes, paid, status == ULL_OK);
    }
    ull__turn(ULL_TURN_END);
    return status;
}

static void release_pages(struct ull__device *device, size_t count, const ull__page *pages)
{
    for (size_t i = 0; i < count && atomic_load(&async_of(device)->dead); i++)
        ull__driver->cuMemRelease(pages[i]);
    if (!atomic_load(&async_of(device)->dead))
        ull__cuda_mapped_ops.destroy_pages(device, count, pages);
}

static void destroy_pages(struct ull__device *device, size_t count, const ull__page *pages)
{
    struct async_device *async = async_of(device);
    if (atomic_load(&async->moving)) {
        release_pages(device, count, pages);
        return;
    }
    ull__turn(ULL_TURN_BEGIN);
    release_pages(device, count, pages);
    ull__lower(async->gpu, ULL_CLASS_POOL, count * device->page_bytes);
    ull__turn(ULL_TURN_END);
}

CUresult ull__async_device_grant(struct ull__device *device, uint64_t address, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < atomic_load(&ull__state.gpu_count) && result == CUDA_SUCCESS; i++) {
        CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, i},
                                  .flags = atomic_load(&async_of(device)->access[i])};
        if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            result = ull__driver->cuMemSetAccess(address, bytes, &access, 1);
    }
    return result;
}

void ull__async_device_access(struct ull__device *device, int peer, int flags)
{
    atomic_store(&async_of(device)->access[peer], flags);
}

static ull_status map(struct ull__device *device, uint64_t address, size_t count,
                      const ull__page *pages)
{
    ull_status status = ull__cuda_mapped_ops.map(device, address, count, pages);
    if (status == ULL_OK &&
        ull__async_device_grant(device, address, count * device->page_bytes) != CUDA_SUCCESS) {
        ull__cuda_mapped_ops.unmap(device, address, count);
        status = ULL_E_DRIVER;
    }
    return status;
}

static void unmap(struct ull__device *device, uint64_t address, size_t count)
{
    if (atomic_load(&async_of(device)->dead))
        ull__driver->cuMemUnmap(address, count * device->page_bytes);
    else
        ull__cuda_mapped_ops.unmap(device, address, count);
}

static ull_status reserve(struct ull__device *device, uint64_t bytes, uint64_t *address)
{
    return ull__cuda_mapped_ops.reserve(device, bytes, address);
}

static void release(struct ull__device *device, uint64_t address, uint64_t bytes)
{
    (void)device;
    ull__driver->cuMemAddressFree(address, bytes);
}

/* --- order --------------------------------------------------------------------------------------------------- */

/* What is captured never gets here: async.c leaves it to the driver. */
static bool capturing(struct ull__device *device, ull__stream stream)
{
    (void)device;
    (void)stream;
    return false;
}

static bool wait(struct ull__device *device, ull__event event, uint64_t timeout_ns)
{
    return atomic_load(&async_of(device)->dead) || ull__cuda_wait(device, event, timeout_ns);
}

static void forget(struct ull__device *device, ull__event event)
{
    if (!atomic_load(&async_of(device)->dead))
        ull__cuda_forget(device, event);
}

static ull_status synchronize(struct ull__device *device, ull__stream stream)
{
    return atomic_load(&async_of(device)->dead) ? ULL_OK : ull__cuda_synchronize(device, stream);
}

bool ull__async_device_follow(void *device, void *stream, uint64_t event)
{
    struct ull__cuda_device *cuda = device;
    struct ull__cuda_scope scope;
    if (!ull__driver->cuStreamWaitEvent || ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return false;
    CUresult result = ull__driver->cuStreamWaitEvent(stream, (CUevent)(uintptr_t)event, 0);
    ull__cuda_leave(cuda, &scope);
    return result == CUDA_SUCCESS;
}

/* --- life ---------------------------------------------------------------------------------------------------- */

static const struct ull__device_ops ops = {.name = "cuda, charged",
                                           .destroy = ull__async_device_destroy,
                                           .memory = memory,
                                           .reserve = reserve,
                                           .release = release,
                                           .create = create,
                                           .destroy_pages = destroy_pages,
                                           .map = map,
                                           .unmap = unmap,
                                           .record = ull__cuda_record,
                                           .done = ull__cuda_done,
                                           .wait = wait,
                                           .forget = forget,
                                           .capturing = capturing,
                                           .copy_in = ull__cuda_copy_in,
                                           .copy_out = ull__cuda_copy_out,
                                           .fill = ull__cuda_fill,
                                           .stream_create = ull__cuda_stream_create,
                                           .stream_destroy = ull__cuda_stream_destroy,
                                           .synchronize = synchronize};

struct ull__device *ull__async_device_create(const struct ull__gpu *gpu, CUcontext context)
{
    struct async_device *async = calloc(1, sizeof *async);
    size_t total = 0;
    if (!async)
        return NULL;
    ull__cuda_init(&async->cuda, ull__driver, (CUdevice)(gpu - ull__state.gpus), context);
    async->gpu = gpu;
    if (async->cuda.device.regions ||
        ull__driver->cuDeviceTotalMem_v2(&total, async->cuda.number) != CUDA_SUCCESS) {
        pthread_mutex_destroy(&async->cuda.lock);
        free(async);
        return NULL;
    }
    async->total = total;
    async->cuda.device.ops = &ops;
    return &async->cuda.device;
}

void ull__async_device_destroy(struct ull__device *device)
{
    struct async_device *async = async_of(device);
    for (size_t i = 0; i < async->cuda.idle_count && !atomic_load(&async->dead); i++)
        ull__driver->cuEventDestroy_v2(async->cuda.idle[i]);
    pthread_mutex_destroy(&async->cuda.lock);
    free(async);
}

void ull__async_device_dead(struct ull__device *device)
{
    atomic_store(&async_of(device)->dead, true);
}

void ull__async_device_moving(struct ull__device *device, bool moving)
{
    atomic_store(&async_of(device)->moving, moving);
}
