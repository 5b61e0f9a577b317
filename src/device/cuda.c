/*
 * cuda.c: a card of the CUDA driver as a device: its life and its memory.
 *
 * The driver is loaded at run time, by the name that a program would use, so that under `ullage run`
 * the stand-in answers and a pool is held to the budget like any program. Addresses are one
 * cuMemAddressReserve, a page is one handle of cuMemCreate, mapping is one cuMemMap a page and one
 * cuMemSetAccess for the whole run (it is the slowest of them: 17 ms for 512 pages on an H200, so
 * map in runs), unmapping one cuMemUnmap for the run.
 *
 * Work is in the primary context, which is what the runtime and every framework use. It is made
 * current around calls where it is not, so any thread may call. All calls but the cheapest are made in
 * relaxed capture mode: they name no captured stream, and in another mode some of them would break a
 * capture that is going on in this or another thread.
 *
 * It cannot see what other users of the card do between memory() and create(): the latter then fails.
 * A device or driver without virtual memory management is served by cuda_plain.c and named "cuda-plain".
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_private.h"
#include "error.h"

ull_status ull__cuda_status(CUresult code)
{
    if (code == CUDA_SUCCESS)
        return ULL_OK;
    if (code == CUDA_ERROR_INVALID_VALUE)
        return ULL_E_INVALID;
    return code == CUDA_ERROR_OUT_OF_MEMORY ? ULL_E_NO_MEMORY : ULL_E_DRIVER;
}

/* --- contexts and capture modes ------------------------------------------------------------------ */

CUresult ull__cuda_enter_context(struct ull__cuda_device *cuda, struct ull__cuda_scope *scope)
{
    CUcontext current = NULL;
    *scope = (struct ull__cuda_scope){0};
    if (cuda->driver->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == cuda->context)
        return CUDA_SUCCESS;
    CUresult code = cuda->driver->cuCtxPushCurrent_v2(cuda->context);
    scope->pushed = code == CUDA_SUCCESS;
    return code;
}

CUresult ull__cuda_enter(struct ull__cuda_device *cuda, struct ull__cuda_scope *scope)
{
    CUresult code = ull__cuda_enter_context(cuda, scope);
    if (code != CUDA_SUCCESS || !cuda->driver->cuThreadExchangeStreamCaptureMode)
        return code;
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    scope->relaxed = cuda->driver->cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

void ull__cuda_leave(struct ull__cuda_device *cuda, const struct ull__cuda_scope *scope)
{
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped;
    if (scope->relaxed)
        cuda->driver->cuThreadExchangeStreamCaptureMode(&mode);
    if (scope->pushed)
        cuda->driver->cuCtxPopCurrent_v2(&popped);
}

/* --- memory -------------------------------------------------------------------------------------- */

static ull_status memory(struct ull__device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    size_t free_now, total;
    CUresult code = ull__cuda_enter(cuda, &scope);
    if (code != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    code = cuda->driver->cuMemGetInfo_v2(&free_now, &total);
    ull__cuda_leave(cuda, &scope);
    if (code != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    *free_bytes = free_now;
    *total_bytes = total;
    return ULL_OK;
}

static ull_status reserve(struct ull__device *device, uint64_t bytes, uint64_t *address)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    CUdeviceptr at = 0;
    if (bytes == 0 || bytes % device->page_bytes != 0)
        return ULL_E_INVALID;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuMemAddressReserve(&at, bytes, device->page_bytes, 0, 0);
    ull__cuda_leave(cuda, &scope);
    if (code == CUDA_SUCCESS)
        *address = at;
    /* The size is a sound one, so a driver that calls it invalid has no room for so much. */
    return code == CUDA_ERROR_INVALID_VALUE ? ULL_E_NO_MEMORY : ull__cuda_status(code);
}

static void release(struct ull__device *device, uint64_t address, uint64_t bytes)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return;
    cuda->driver->cuMemAddressFree(address, bytes);
    ull__cuda_leave(cuda, &scope);
}

static void release_handles(struct ull__cuda_device *cuda, size_t count, const ull__page *pages)
{
    for (size_t i = 0; i < count; i++)
        cuda->driver->cuMemRelease(pages[i]);
}

static CUmemAllocationProp page_properties(const struct ull__cuda_device *cuda)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, cuda->number}};
}

static ull_status create(struct ull__device *device, size_t count, ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    CUmemAllocationProp properties = page_properties(cuda);
    CUresult code = ull__cuda_enter(cuda, &scope);
    if (code != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    for (size_t i = 0; i < count && code == CUDA_SUCCESS; i++) {
        CUmemGenericAllocationHandle handle = 0;
        code = cuda->driver->cuMemCreate(&handle, device->page_bytes, &properties, 0);
        if (code == CUDA_SUCCESS)
            pages[i] = handle;
        else
            release_handles(cuda, i, pages);
    }
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}

static void destroy_pages(struct ull__device *device, size_t count, const ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return;
    release_handles(cuda, count, pages);
    ull__cuda_leave(cuda, &scope);
}

/* With the context current: all of them or none. */
static CUresult map_pages(struct ull__cuda_device *cuda, uint64_t address, size_t count,
                          const ull__page *pages)
{
    uint64_t page = cuda->device.page_bytes;
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, cuda->number},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult code = CUDA_SUCCESS;
    size_t done = 0;
    while (done < count && code == CUDA_SUCCESS) {
        code = cuda->driver->cuMemMap(address + done * page, page, 0, pages[done], 0);
        done += code == CUDA_SUCCESS;
    }
    if (code == CUDA_SUCCESS)
        code = cuda->driver->cuMemSetAccess(address, count * page, &access, 1);
    if (code != CUDA_SUCCESS && done > 0)
        cuda->driver->cuMemUnmap(address, done * page);
    return code;
}

static ull_status map(struct ull__device *device, uint64_t address, size_t count,
                      const ull__page *pages)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (count == 0 || address % device->page_bytes != 0)
        return ULL_E_INVALID;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = map_pages(cuda, address, count, pages);
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}

static void unmap(struct ull__device *device, uint64_t address, size_t count)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return;
    cuda->driver->cuMemUnmap(address, count * device->page_bytes);
    ull__cuda_leave(cuda, &scope);
}

/* --- life ---------------------------------------------------------------------------------------- */

static void destroy(struct ull__device *device)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    const union ull__cuda *driver = cuda->driver;
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) == CUDA_SUCCESS) {
        for (size_t i = 0; i < cuda->idle_count; i++)
            driver->cuEventDestroy_v2(cuda->idle[i]);
        ull__cuda_leave(cuda, &scope);
    }
    if (driver->cuDevicePrimaryCtxRelease_v2)
        driver->cuDevicePrimaryCtxRelease_v2(cuda->number);
    else if (driver->cuDevicePrimaryCtxRelease)
        driver->cuDevicePrimaryCtxRelease(cuda->number);
    pthread_mutex_destroy(&cuda->lock);
    free(cuda);
}

#define ORDER_OPS                                                                                  \
    .record = ull__cuda_record, .done = ull__cuda_done, .wait = ull__cuda_wait,                    \
    .forget = ull__cuda_forget, .capturing = ull__cuda_capturing, .copy_in = ull__cuda_copy_in,    \
    .copy_out = ull__cuda_copy_out, .fill = ull__cuda_fill,                                        \
    .stream_create = ull__cuda_stream_create, .stream_destroy = ull__cuda_stream_destroy,          \
    .synchronize = ull__cuda_synchronize

const struct ull__device_ops ull__cuda_mapped_ops = {.name = "cuda",
                                                     .destroy = destroy,
                                                     .memory = memory,
                                                     .reserve = reserve,
                                                     .release = release,
                                                     .create = create,
                                                     .destroy_pages = destroy_pages,
                                                     .map = map,
                                                     .unmap = unmap,
                                                     ORDER_OPS};

static const struct ull__device_ops plain_ops = {.name = "cuda-plain",
                                                 .destroy = destroy,
                                                 .memory = memory,
                                                 .create = ull__cuda_plain_create,
                                                 .destroy_pages = ull__cuda_plain_destroy_pages,
                                                 ORDER_OPS};

static const int needed_calls[] = {
    ULL_CU_cuInit,
    ULL_CU_cuDeviceGet,
    ULL_CU_cuDeviceGetCount,
    ULL_CU_cuDeviceGetAttribute,
    ULL_CU_cuDevicePrimaryCtxRetain,
    ULL_CU_cuCtxGetCurrent,
    ULL_CU_cuCtxPushCurrent_v2,
    ULL_CU_cuCtxPopCurrent_v2,
    ULL_CU_cuMemGetInfo_v2,
    ULL_CU_cuMemAlloc_v2,
    ULL_CU_cuMemFree_v2,
    ULL_CU_cuMemcpyHtoDAsync_v2,
    ULL_CU_cuMemcpyDtoHAsync_v2,
    ULL_CU_cuMemsetD8Async,
    ULL_CU_cuStreamCreate,
    ULL_CU_cuStreamDestroy_v2,
    ULL_CU_cuStreamSynchronize,
    ULL_CU_cuEventCreate,
    ULL_CU_cuEventDestroy_v2,
    ULL_CU_cuEventRecord,
    ULL_CU_cuEventQuery,
    ULL_CU_cuEventSynchronize,
};

static const int mapping_calls[] = {
    ULL_CU_cuMemAddressReserve,
    ULL_CU_cuMemAddressFree,
    ULL_CU_cuMemCreate,
    ULL_CU_cuMemRelease,
    ULL_CU_cuMemMap,
    ULL_CU_cuMemUnmap,
    ULL_CU_cuMemSetAccess,
    ULL_CU_cuMemGetAllocationGranularity,
};

/* The first of some calls that this driver does not have, or NULL. */
static const char *missing_call(const union ull__cuda *driver, const int *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!driver->all[calls[i]])
            return ull__cuda_entries[calls[i]].symbol;
    }
    return NULL;
}

#define MISSING(driver, calls) missing_call(driver, calls, sizeof(calls) / sizeof *(calls))

/* Can it map pages, and in what granularity? */
static bool maps_pages(struct ull__cuda_device *cuda)
{
    const union ull__cuda *driver = cuda->driver;
    CUmemAllocationProp properties = page_properties(cuda);
    size_t page = 0;
    int supported = 0;
    if (MISSING(driver, mapping_calls))
        return false;
    if (driver->cuDeviceGetAttribute(&supported,
                                     CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                     cuda->number) != CUDA_SUCCESS ||
        !supported)
        return false;
    if (driver->cuMemGetAllocationGranularity(&page, &properties,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        page == 0 || (page & (page - 1)) != 0)
        return false;
    cuda->device.page_bytes = page;
    return true;
}

void ull__cuda_init(struct ull__cuda_device *cuda, const union ull__cuda *driver, CUdevice number,
                    CUcontext context)
{
    cuda->driver = driver;
    cuda->number = number;
    cuda->context = context;
    pthread_mutex_init(&cuda->lock, NULL);
    cuda->device.page_bytes = (uint64_t)2 << 20;
    cuda->device.regions = !maps_pages(cuda);
    cuda->device.ops = cuda->device.regions ? &plain_ops : &ull__cuda_mapped_ops;
}

static ull_status find_device(const union ull__cuda *driver, int ordinal, CUdevice *number,
                              struct ull_error *err)
{
    int count = 0;
    CUresult code = driver->cuInit(0);
    if (code == CUDA_ERROR_NO_DEVICE)
        return ull__fail(err, ULL_E_NO_DEVICE, "the CUDA driver sees no GPU");
    if (code != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "cuInit failed with CUDA error %d", code);
    driver->cuDeviceGetCount(&count);
    if (ordinal < 0 || ordinal >= count || driver->cuDeviceGet(number, ordinal) != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_NO_DEVICE,
                         "no device cuda:%d: the driver sees %d, counted from 0", ordinal, count);
    return ULL_OK;
}

static void ask_uuid(struct ull__cuda_device *cuda)
{
    const union ull__cuda *driver = cuda->driver;
    CUuuid uuid;
    CUresult code = CUDA_ERROR_NOT_FOUND;
    if (driver->cuDeviceGetUuid_v2)
        code = driver->cuDeviceGetUuid_v2(&uuid, cuda->number);
    else if (driver->cuDeviceGetUuid)
        code = driver->cuDeviceGetUuid(&uuid, cuda->number);
    cuda->device.has_uuid = code == CUDA_SUCCESS;
    if (cuda->device.has_uuid)
        memcpy(cuda->device.uuid, uuid.bytes, sizeof cuda->device.uuid);
}

ull_status ull__device_cuda_create(int ordinal, struct ull__device **out, struct ull_error *err)
{
    const union ull__cuda *driver = ull__cuda_load(dlopen, "libcuda.so.1");
    CUdevice number = 0;
    if (!driver)
        return ull__fail(err, ULL_E_NO_DEVICE,
                         "no CUDA driver: libcuda.so.1 was not found; ULLAGE_LIBCUDA may name it");
    const char *missing = MISSING(driver, needed_calls);
    if (missing)
        return ull__fail(err, ULL_E_DRIVER,
                         "this CUDA driver has no %s: expected one of CUDA 9 "
                         "or later",
                         missing);
    ull_status status = find_device(driver, ordinal, &number, err);
    if (status != ULL_OK)
        return status;
    struct ull__cuda_device *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a device");
    CUresult code = driver->cuDevicePrimaryCtxRetain(&cuda->context, number);
    if (code != CUDA_SUCCESS) {
        free(cuda);
        return ull__fail(err, ull__cuda_status(code), "no context on cuda:%d: CUDA error %d%s",
                         ordinal, code,
                         code == CUDA_ERROR_OUT_OF_MEMORY ? ", there is no room for one" : "");
    }
    ull__cuda_init(cuda, driver, number, cuda->context);
    ask_uuid(cuda);
    *out = &cuda->device;
    return ULL_OK;
}
