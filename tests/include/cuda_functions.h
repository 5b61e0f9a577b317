/*
 * cuda_functions.h: the driver's entry points under the names that the driver exports.
 *
 * tests/include/cuda.h puts the usual macros on top of this (cuMemAlloc for cuMemAlloc_v2 and so
 * on). The fake driver includes only this file, because it defines the old names as well.
 * Signatures that ullage itself needs come from src/device/cuda_api.def; this file adds those that
 * only test programs call. Layouts are those of the driver's 64-bit ABI.
 *
 * It cannot replace NVIDIA's header for programs that use textures, graphics or green contexts.
 */
#ifndef ULLAGE_TESTS_CUDA_FUNCTIONS_H
#define ULLAGE_TESTS_CUDA_FUNCTIONS_H

#include "cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDAAPI
#define CUDA_CB

enum { /* results that only tests look for */
       CUDA_ERROR_ILLEGAL_STATE = 401,
       CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
       CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
       CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
       CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
       CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
       CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
       CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
       CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

enum { /* CUdevice_attribute */
       CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
       CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
       CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
       CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
       CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
       CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
};

enum { /* CUpointer_attribute */
       CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
       CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
       CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
       CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
};

enum {
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,
    CU_STREAM_DEFAULT = 0,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_INTERPROCESS = 4,
    CU_CTX_SCHED_AUTO = 0,
    CU_CTX_MAP_HOST = 8,
    CU_MEM_ATTACH_HOST = 2,
    CU_MEM_ATTACH_SINGLE = 4,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
    CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
};

#define CU_LAUNCH_PARAM_END ((void *)0x00)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x01)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x02)

typedef int CUfunction_attribute;
typedef int CUmemorytype;
typedef int CUmem_advise;
typedef struct CUlaunchAttribute_st CUlaunchAttribute;
typedef void (*CUhostFn)(void *user_data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *user_data);

typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

typedef struct {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

typedef struct {
    CUfunction func;
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value;
    unsigned int elementSize;
    size_t width; /* in elements */
    size_t height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct {
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS;

typedef struct {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes;
    size_t Height;
} CUDA_MEMCPY2D;

typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

_Static_assert(sizeof(CUlaunchConfig) == 56, "CUlaunchConfig");
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v1) == 56, "CUDA_KERNEL_NODE_PARAMS_v1");
_Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == 72, "CUDA_KERNEL_NODE_PARAMS");
_Static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40, "CUDA_MEMSET_NODE_PARAMS");
_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "CUDA_MEMCPY2D");
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "CUDA_MEMCPY3D");

#define CU_HOOK(symbol, base, since, since_pt, params, args) CUresult symbol params;
#define CU_CALL(symbol, base, since, since_pt, exempt, params) CUresult symbol params;
#define CU_PASS(symbol, base, since, since_pt, exempt)
#define CU_GATE(symbol, base, since, since_pt, exempt, params, args) /* below, with their structures */
#define CU_OWN(symbol, base, since, since_pt, exempt, params, args) CUresult symbol params;
#include "cuda_api.def"

/* A function that takes a stream last, and its twin for the per-thread default stream. */
#define ULL_TWO(symbol, twin, ...)                                                                 \
    CUresult symbol(__VA_ARGS__);                                                                  \
    CUresult symbol##twin(__VA_ARGS__)

/* Devices and contexts */
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev);
CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *bus_id);
CUresult cuDeviceGetPCIBusId(char *bus_id, int length, CUdevice dev);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer);
CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice src, CUdevice dst);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags);
CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool);
CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags);
CUresult cuCtxDisablePeerAccess(CUcontext peer);
CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version);
CUresult cuCtxGetDevice_v2(CUdevice *dev, CUcontext ctx);
CUresult cuCtxGetFlags(unsigned int *flags);
CUresult cuCtxSetFlags(unsigned int flags);
CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult cuCtxGetCacheConfig(int *config);
CUresult cuCtxSetCacheConfig(int config);
CUresult cuCtxSynchronize_v2(CUcontext ctx);
CUresult cuGetErrorName(CUresult error, const char **text);
CUresult cuGetErrorString(CUresult error, const char **text);
CUresult cuGetExportTable(const void **table, const CUuuid *id);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

/* Memory */
CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size);
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);
CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *p, unsigned int flags);
CUresult cuMemHostGetFlags(unsigned int *flags, void *p);
CUresult cuMemAdvise(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUdevice dev);
CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUmemLocation where);
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr);
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array);
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array);
CUresult cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray array, unsigned int level);
ULL_TWO(cuMemPrefetchAsync, _ptsz, CUdeviceptr ptr, size_t count, CUdevice dev, CUstream stream);
ULL_TWO(cuMemPrefetchAsync_v2, _ptsz, CUdeviceptr ptr, size_t count, CUmemLocation location,
        unsigned int flags, CUstream stream);

/* Copies */
ULL_TWO(cuMemcpy, _ptds, CUdeviceptr dst, CUdeviceptr src, size_t bytes);
ULL_TWO(cuMemcpyAsync, _ptsz, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
ULL_TWO(cuMemcpyPeer, _ptds, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
        size_t bytes);
ULL_TWO(cuMemcpyPeerAsync, _ptsz, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
        CUcontext src_ctx, size_t bytes, CUstream stream);
ULL_TWO(cuMemcpyHtoD_v2, _ptds, CUdeviceptr dst, const void *src, size_t bytes);
ULL_TWO(cuMemcpyDtoH_v2, _ptds, void *dst, CUdeviceptr src, size_t bytes);
ULL_TWO(cuMemcpyDtoD_v2, _ptds, CUdeviceptr dst, CUdeviceptr src, size_t bytes);
ULL_TWO(cuMemcpyHtoDAsync_v2, _ptsz, CUdeviceptr dst, const void *src, size_t n, CUstream stream);
ULL_TWO(cuMemcpyDtoHAsync_v2, _ptsz, void *dst, CUdeviceptr src, size_t bytes, CUstream stream);
ULL_TWO(cuMemcpyDtoDAsync_v2, _ptsz, CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream);
ULL_TWO(cuMemcpy2D_v2, _ptds, const CUDA_MEMCPY2D *copy);
ULL_TWO(cuMemcpy2DUnaligned_v2, _ptds, const CUDA_MEMCPY2D *copy);
ULL_TWO(cuMemcpy2DAsync_v2, _ptsz, const CUDA_MEMCPY2D *copy, CUstream stream);
ULL_TWO(cuMemsetD8_v2, _ptds, CUdeviceptr dst, unsigned char value, size_t count);
ULL_TWO(cuMemsetD16_v2, _ptds, CUdeviceptr dst, unsigned short value, size_t count);
ULL_TWO(cuMemsetD32_v2, _ptds, CUdeviceptr dst, unsigned int value, size_t count);
ULL_TWO(cuMemsetD8Async, _ptsz, CUdeviceptr dst, unsigned char value, size_t n, CUstream stream);
ULL_TWO(cuMemsetD16Async, _ptsz, CUdeviceptr dst, unsigned short value, size_t n, CUstream stream);
ULL_TWO(cuMemsetD32Async, _ptsz, CUdeviceptr dst, unsigned int value, size_t n, CUstream stream);
ULL_TWO(cuMemsetD2D8_v2, _ptds, CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
        size_t height);
ULL_TWO(cuMemsetD2D8Async, _ptsz, CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
        size_t height, CUstream stream);

/* Streams and events */
ULL_TWO(cuStreamQuery, _ptsz, CUstream stream);
ULL_TWO(cuStreamSynchronize, _ptsz, CUstream stream);
ULL_TWO(cuStreamWaitEvent, _ptsz, CUstream stream, CUevent event, unsigned int flags);
ULL_TWO(cuStreamAddCallback, _ptsz, CUstream stream, CUstreamCallback callback, void *data,
        unsigned int flags);
ULL_TWO(cuStreamGetFlags, _ptsz, CUstream stream, unsigned int *flags);
ULL_TWO(cuStreamGetId, _ptsz, CUstream stream, unsigned long long *id);
ULL_TWO(cuStreamGetPriority, _ptsz, CUstream stream, int *priority);
ULL_TWO(cuStreamGetDevice, _ptsz, CUstream stream, CUdevice *device);
ULL_TWO(cuStreamBeginCapture, _ptsz, CUstream stream);
ULL_TWO(cuStreamBeginCapture_v2, _ptsz, CUstream stream, CUstreamCaptureMode mode);
ULL_TWO(cuStreamEndCapture, _ptsz, CUstream stream, CUgraph *graph);
ULL_TWO(cuStreamGetCaptureInfo, _ptsz, CUstream stream, CUstreamCaptureStatus *status,
        cuuint64_t *id);
ULL_TWO(cuStreamGetCaptureInfo_v2, _ptsz, CUstream stream, CUstreamCaptureStatus *status,
        cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *count);
ULL_TWO(cuStreamGetCaptureInfo_v3, _ptsz, CUstream stream, CUstreamCaptureStatus *status,
        cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
        const CUgraphEdgeData **edges, size_t *count);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventDestroy(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end);
ULL_TWO(cuEventRecord, _ptsz, CUevent event, CUstream stream);
ULL_TWO(cuEventRecordWithFlags, _ptsz, CUevent event, CUstream stream, unsigned int flags);

/* Code */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module, const char *name);
CUresult cuModuleGetLoadingMode(int *mode);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function);
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value);
CUresult cuFuncSetCacheConfig(CUfunction function, int config);
CUresult cuFuncGetModule(CUmodule *module, CUfunction function);
CUresult cuFuncGetName(const char **name, CUfunction function);
ULL_TWO(cuLaunchKernel, _ptsz, CUfunction function, unsigned int grid_x, unsigned int grid_y,
        unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
        unsigned int shared_bytes, CUstream stream, void **params, void **extra);
ULL_TWO(cuLaunchCooperativeKernel, _ptsz, CUfunction function, unsigned int grid_x,
        unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,
        unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params);
ULL_TWO(cuLaunchKernelEx, _ptsz, const CUlaunchConfig *config, CUfunction function, void **params,
        void **extra);
ULL_TWO(cuLaunchHostFunc, _ptsz, CUstream stream, CUhostFn function, void *user_data);

/* Graphs */
CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphDestroyNode(CUgraphNode node);
CUresult cuGraphClone(CUgraph *clone, CUgraph original);
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count);
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx);
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMCPY3D *params, CUcontext ctx);
CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child);
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr dptr);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *dptr);
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count);
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count);
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
