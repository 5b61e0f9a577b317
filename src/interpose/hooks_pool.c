/*
 * hooks_pool.c: stream-ordered allocations.
 *
 * They are charged by the reserve of their pool (reserve.c). In a stream that is being captured an
 * allocation only becomes a node of a graph; the graph is charged when it is launched. With `run --suspendable`
 * most are served from a pool of ours instead (async.c).
 */
#include "async.h"

/* The most by which an allocation makes a pool grow. Measured: whole steps, from nothing or not. */
enum { POOL_STEP = 32 << 20 };

static uint64_t worst_growth(uint64_t bytes)
{
    return bytes > INT64_MAX - POOL_STEP ? INT64_MAX
                                         : (bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
}

bool ull__capturing(CUstream stream, bool per_thread, bool unsure)
{
    const union ull__cuda *real = ull__driver;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_SUCCESS;
    if (per_thread && real->cuStreamIsCapturing_ptsz)
        result = real->cuStreamIsCapturing_ptsz(stream, &status);
    else if (real->cuStreamIsCapturing)
        result = real->cuStreamIsCapturing(stream, &status);
    return result != CUDA_SUCCESS ? unsure : status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A stream may belong to a context that is not current. */
static const struct ull__gpu *gpu_of_stream(CUstream stream)
{
    const union ull__cuda *real = ull__driver;
    CUcontext context = ull__context_of_stream(stream), current = NULL;
    const struct ull__gpu *known = ull__async_gpu(context);
    if (known)
        return known;
    real->cuCtxGetCurrent(&current);
    if (!context || context == current || real->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return ull__current_gpu();
    const struct ull__gpu *gpu = ull__current_gpu();
    real->cuCtxPopCurrent_v2(&context);
    return gpu;
}

typedef CUresult allocate_fn(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream);

static CUresult allocate_once(const struct ull__gpu *gpu, CUmemoryPool pool, CUdeviceptr *dptr,
                              size_t bytes, CUstream stream, bool per_thread, allocate_fn *call,
                              const char *name, uint64_t began_ns, bool *refused)
{
    struct ull__reserve *reserve = ull__reserve_of(gpu, pool);
    uint64_t worst = worst_growth(bytes);
    CUstream order = per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
    struct ull__charge charge = {.began_ns = began_ns};
    *refused = !reserve || !ull__reserve_begin(reserve, worst, bytes, name, order, &charge);
    if (*refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = call(dptr, bytes, pool, stream);
    if (result == CUDA_SUCCESS && *dptr) {
        struct ull__block block = {.address = *dptr,
                                   .bytes = bytes,
                                   .owner = reserve,
                                   .ordinal = (int)(gpu - ull__state.gpus),
                                   .class = ULL_CLASS_POOL,
                                   .kind = BLOCK_POOL};
        if (ull__block_add(&block))
            ull__reserve_block_added(reserve);
    }
    ull__reserve_end(reserve, worst);
    if (result == CUDA_SUCCESS && gpu->device >= 0)
        ull__member_granted(atomic_load(&ull__state.member), gpu->device, bytes);
    if (ull__recording()) {
        charge.address = result == CUDA_SUCCESS ? *dptr : 0;
        ull__tell_call(&charge, 0, result); /* the books rise with its pool */
    }
    return result;
}

/* While the card is full and a daemon makes room, it waits: but not for ever (src/ledger/served.c). */
static CUresult allocate(const struct ull__gpu *gpu, CUmemoryPool pool, CUdeviceptr *dptr,
                         size_t bytes, CUstream stream, bool per_thread, allocate_fn *call,
                         const char *name, uint64_t began_ns)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    struct ull__want want = {0};
    CUresult result;
    bool refused;
    if (unlikely(ull__gates_wanted()) &&
        ull__async_alloc(gpu, pool, dptr, bytes, stream, per_thread, name, began_ns, &result))
        return result;
    do
        result = allocate_once(gpu, pool, dptr, bytes, stream, per_thread, call, name, began_ns,
                               &refused);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && !refused && gpu->device >= 0 &&
           ull__wait_for_room(gpu, worst_growth(bytes), &want));
    ull__member_want_over(member, &want);
    return result;
}

/* The device's current pool, which cuDeviceSetMemPool may have changed. */
static CUresult allocate_current(CUdeviceptr *dptr, size_t bytes, CUstream stream, bool per_thread,
                                 allocate_fn *call)
{
    uint64_t began_ns = ull__moment_now();
    const struct ull__gpu *gpu = gpu_of_stream(stream);
    CUmemoryPool pool = NULL;
    if (!gpu || !dptr || bytes == 0 || ull__capturing(stream, per_thread, false) ||
        !ull__driver->cuDeviceGetMemPool ||
        ull__driver->cuDeviceGetMemPool(&pool, (CUdevice)(gpu - ull__state.gpus)) != CUDA_SUCCESS)
        return call(dptr, bytes, NULL, stream);
    return allocate(gpu, pool, dptr, bytes, stream, per_thread, call, "cuMemAllocAsync", began_ns);
}

static CUresult call_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)pool;
    return ull__driver->cuMemAllocAsync(dptr, bytes, stream);
}

static CUresult call_async_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)pool;
    return ull__driver->cuMemAllocAsync_ptsz(dptr, bytes, stream);
}

static CUresult call_from_pool(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return ull__driver->cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
}

static CUresult call_from_pool_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                    CUstream stream)
{
    return ull__driver->cuMemAllocFromPoolAsync_ptsz(dptr, bytes, pool, stream);
}

CUresult ull__do_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    return allocate_current(dptr, bytes, stream, false, call_async);
}

CUresult ull__do_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    return allocate_current(dptr, bytes, stream, true, call_async_ptsz);
}

/* --- pools of the program's own -------------------------------------------------------------------------- */

/* Pools that hold no device memory of this process: on the host, or another process's. */
static const struct ull__gpu uncounted = {.device = -1};

static CUresult allocate_from(CUmemoryPool pool, CUdeviceptr *dptr, size_t bytes, CUstream stream,
                              bool per_thread, allocate_fn *call)
{
    uint64_t began_ns = ull__moment_now();
    const struct ull__gpu *gpu = ull__reserve_gpu(pool);
    if (!gpu) /* a default pool, or one made before this library could see it */
        gpu = gpu_of_stream(stream);
    if (!gpu || gpu == &uncounted || !dptr || bytes == 0 || ull__capturing(stream, per_thread, false))
        return call(dptr, bytes, pool, stream);
    return allocate(gpu, pool, dptr, bytes, stream, per_thread, call, "cuMemAllocFromPoolAsync",
                    began_ns);
}

CUresult ull__do_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                         CUstream stream)
{
    return allocate_from(pool, dptr, bytes, stream, false, call_from_pool);
}

CUresult ull__do_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                              CUstream stream)
{
    return allocate_from(pool, dptr, bytes, stream, true, call_from_pool_ptsz);
}

CUresult ull__do_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props)
{
    CUresult result = ull__driver->cuMemPoolCreate(pool, pool_props);
    if (result == CUDA_SUCCESS) {
        bool on_device = pool_props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        const struct ull__gpu *gpu = on_device ? ull__gpu_of(pool_props->location.id) : &uncounted;
        ull__reserve_of(gpu ? gpu : &uncounted, *pool);
    }
    return result;
}

CUresult ull__do_cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                                  CUmemAllocationHandleType handle_type,
                                                  unsigned long long flags)
{
    ull__member_tie(atomic_load(&ull__state.member), ULL_TIE_HANDLE);
    return ull__driver->cuMemPoolExportToShareableHandle(handle, pool, handle_type, flags);
}

CUresult ull__do_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                    CUmemAllocationHandleType handle_type,
                                                    unsigned long long flags)
{
    ull__member_tie(atomic_load(&ull__state.member), ULL_TIE_HANDLE);
    CUresult result =
        ull__driver->cuMemPoolImportFromShareableHandle(pool_out, handle, handle_type, flags);
    if (result == CUDA_SUCCESS)
        ull__reserve_of(&uncounted, *pool_out); /* charged to the process that made it */
    return result;
}

CUresult ull__do_cuMemPoolDestroy(CUmemoryPool pool)
{
    ull__turn(ULL_TURN_BEGIN);
    ull__reserve_pool_destroyed(pool, true);
    CUresult result = ull__driver->cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS)
        ull__reserve_pool_destroyed(pool, false);
    ull__turn(ULL_TURN_END);
    return result;
}

CUresult ull__do_cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep)
{
    CUresult result = ull__driver->cuMemPoolTrimTo(pool, min_bytes_to_keep);
    if (result == CUDA_SUCCESS && ull__reserve_gpu(pool))
        ull__reserve_refresh(ull__reserve_of(NULL, pool));
    if (result == CUDA_SUCCESS && ull__gates_wanted())
        ull__async_trim_pool(pool, min_bytes_to_keep);
    return result;
}
