/*
 * cudart.c: as much of CUDA's runtime over the driver as PyTorch's allocator calls, so that it can be played over the
 * fake driver, on which NVIDIA's own runtime does not start. Device 0 only; its numbers for errors are the driver's.
 */
#include <pthread.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

static CUcontext context;
static CUdevice device;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static __thread CUresult last_error;

static cudaError_t said(CUresult result)
{
    if (result != CUDA_SUCCESS)
        last_error = result;
    return (cudaError_t)result;
}

static void start(void)
{
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        context = NULL;
}

/* The context of this thread, before a call that needs one. */
static void enter(void)
{
    static __thread int entered;
    if (entered)
        return;
    pthread_once(&started, start);
    entered = context && cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

#define ENTERED(call) (enter(), said(call))
#define UNSUPPORTED said(CUDA_ERROR_NOT_SUPPORTED)

/* --- devices ------------------------------------------------------------------------------------------ */

cudaError_t cudaDriverGetVersion(int *version)
{
    return said(cuDriverGetVersion(version));
}

cudaError_t cudaGetDeviceCount(int *count)
{
    enter();
    *count = context ? 1 : 0;
    return context ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *number)
{
    *number = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int number)
{
    enter();
    return number == 0 && context ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number)
{
    size_t total = 0;
    memset(properties, 0, sizeof *properties);
    if (number != 0)
        return cudaErrorInvalidDevice;
    enter();
    cuDeviceGetName(properties->name, sizeof properties->name, device);
    cuDeviceTotalMem(&total, device);
    properties->totalGlobalMem = total;
    const struct {
        int *to;
        CUdevice_attribute attribute;
    } list[] = {{&properties->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                {&properties->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
                {&properties->multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                {&properties->pciBusID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
                {&properties->pciDeviceID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
                {&properties->pciDomainID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CUresult result = cuDeviceGetAttribute(list[i].to, list[i].attribute, device);
        if (result != CUDA_SUCCESS)
            return said(result);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return ENTERED(cuCtxSynchronize());
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return ENTERED(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = cuGetProcAddress(symbol, function, (int)version, flags, &found);
    if (status)
        *status = found == CU_GET_PROC_ADDRESS_SUCCESS ? cudaDriverEntryPointSuccess
                                                       : cudaDriverEntryPointSymbolNotFound;
    return said(result);
}

/* --- errors ------------------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void)
{
    CUresult error = last_error;
    last_error = CUDA_SUCCESS;
    return (cudaError_t)error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const char *text = NULL;
    cuGetErrorName((CUresult)error, &text);
    return text ? text : "unknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    cuGetErrorString((CUresult)error, &text);
    return text ? text : "unknown";
}

/* --- memory ------------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **address, size_t bytes)
{
    return ENTERED(cuMemAlloc((CUdeviceptr *)address, bytes));
}

cudaError_t cudaFree(void *address)
{
    return address ? ENTERED(cuMemFree((CUdeviceptr)address)) : (enter(), cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    return ENTERED(cuMemGetInfo(free_bytes, total));
}

/* --- streams and events --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    return ENTERED(cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return ENTERED(cuStreamQuery(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return ENTERED(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    return ENTERED(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    CUstreamCaptureStatus of = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = (enter(), cuStreamIsCapturing(stream, &of));
    *status = (enum cudaStreamCaptureStatus)of;
    return said(result);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    CUstreamCaptureMode of = (CUstreamCaptureMode)*mode;
    CUresult result = cuThreadExchangeStreamCaptureMode(&of);
    *mode = (enum cudaStreamCaptureMode)of;
    return said(result);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return ENTERED(cuEventCreate(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return ENTERED(cuEventDestroy(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return ENTERED(cuEventQuery(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return ENTERED(cuEventRecord(event, stream));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return ENTERED(cuEventSynchronize(event));
}

/* --- what is linked but not called by this benchmark ------------------------------------------------------ */

#define REFUSED(name, ...)                                                                         \
    cudaError_t name(__VA_ARGS__)                                                                  \
    {                                                                                              \
        return UNSUPPORTED;                                                                        \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
REFUSED(cudaDeviceCanAccessPeer, int *can, int from, int to)
REFUSED(cudaDeviceEnablePeerAccess, int peer, unsigned int flags)
REFUSED(cudaDeviceGetDefaultMemPool, cudaMemPool_t *pool, int number)
REFUSED(cudaEventElapsedTime, float *ms, cudaEvent_t from, cudaEvent_t to)
REFUSED(cudaFreeAsync, void *address, cudaStream_t stream)
REFUSED(cudaGraphNodeGetDependencies, cudaGraphNode_t node, cudaGraphNode_t *dependencies,
        cudaGraphEdgeData *edges, size_t *count)
REFUSED(cudaIpcCloseMemHandle, void *address)
REFUSED(cudaIpcGetMemHandle, cudaIpcMemHandle_t *handle, void *address)
REFUSED(cudaIpcOpenMemHandle, void **address, cudaIpcMemHandle_t handle, unsigned int flags)
REFUSED(cudaMallocAsync, void **address, size_t bytes, cudaStream_t stream)
REFUSED(cudaMemPoolGetAttribute, cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
REFUSED(cudaMemPoolSetAccess, cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count)
REFUSED(cudaMemPoolSetAttribute, cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
REFUSED(cudaMemPoolTrimTo, cudaMemPool_t pool, size_t bytes)
REFUSED(cudaMemcpy, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
REFUSED(cudaMemcpyAsync, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
        cudaStream_t stream)
REFUSED(cudaMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device,
        size_t bytes, cudaStream_t stream)
REFUSED(cudaStreamGetCaptureInfo, cudaStream_t stream, enum cudaStreamCaptureStatus *status,
        unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
        const cudaGraphEdgeData **edges, size_t *count)
