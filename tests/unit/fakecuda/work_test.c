/*
 * work_test.c: do the fake's streams keep order, its copies carry bytes and its graphs run?
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#include "check.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 n){ret;}\n"
                          ".visible .entry wait(.param .u64 a){ret;}\n"
                          ".visible .entry fill(.param .u64 p,.param .u64 n,.param .u32 v){ret;}\n"
                          ".visible .entry add(.param .u64 p,.param .u64 n,.param .u32 v){ret;}\n"
                          ".visible .entry other(){ret;}\n";

static CUdevice dev;
static CUcontext ctx;
static CUfunction spin, wait, fill, add, other;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void launch_spin(CUstream s, unsigned long long ms)
{
    unsigned long long ns = ms * 1000000;
    void *args[] = {&ns};
    CHECK_IS(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, args, NULL), 0);
}

/* Holds a stream until it is opened: what is behind it cannot be through before, however slow this thread is. */
static unsigned *launch_gate(CUstream s)
{
    unsigned *gate = NULL;
    CHECK_IS(cuMemAllocHost((void **)&gate, sizeof *gate), 0);
    *gate = 0;
    void *args[] = {&gate};
    CHECK_IS(cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, s, args, NULL), 0);
    return gate;
}

static void open_gate(unsigned *gate)
{
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static void launch_words(CUfunction f, CUstream s, CUdeviceptr p, unsigned long long n, unsigned v)
{
    void *args[] = {&p, &n, &v};
    CHECK_IS(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, args, NULL), 0);
}

static unsigned word_at(CUdeviceptr p)
{
    unsigned v = 0;
    CHECK_IS(cuMemcpyDtoH(&v, p, sizeof v), 0);
    return v;
}

static void order(void)
{
    CUstream s, other_stream;
    CUevent before, after, across;
    CUdeviceptr p;
    unsigned seen = 0;
    float ms = 0;
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING);
    cuEventCreate(&before, 0);
    cuEventCreate(&after, 0);
    cuEventCreate(&across, CU_EVENT_DISABLE_TIMING);
    CHECK_IS(cuMemAlloc(&p, 4096), 0);
    CHECK_IS(cuEventQuery(before), 0);
    double start = now_ms();
    cuEventRecord(before, s);
    unsigned *gate = launch_gate(s);
    launch_spin(s, 60);
    launch_words(fill, s, p, 1024, 5);
    launch_words(add, s, p, 1024, 2);
    cuEventRecord(after, s);
    cuStreamWaitEvent(other_stream, after, 0);
    cuMemcpyDtoHAsync(&seen, p + 4092, 4, other_stream);
    cuEventRecord(across, other_stream);
    CHECK_IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    CHECK_IS(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    CHECK_IS(cuEventQuery(across), CUDA_ERROR_NOT_READY);
    CHECK_IS(cuEventElapsedTime(&ms, before, after), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    CHECK_IS(cuEventSynchronize(across), 0);
    CHECK_IS(seen, 7);
    CHECK_IS(cuEventElapsedTime(&ms, before, after), 0);
    CHECK(ms > 50 && ms <= now_ms() - start + 1);
    CHECK_IS(cuStreamQuery(s), 0);
    cuMemFree(p);
    cuStreamDestroy(s);
    cuStreamDestroy(other_stream);
}

static void legacy_stream(void)
{
    CUstream blocking, independent;
    cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
    cuStreamCreate(&independent, CU_STREAM_NON_BLOCKING);
    unsigned *gate = launch_gate(blocking), *independent_gate = launch_gate(independent);
    launch_spin(independent, 50);
    CUdeviceptr p;
    cuMemAlloc(&p, 64);
    cuMemsetD8(p, 1, 64); /* on the legacy stream: behind the blocking one only */
    CHECK_IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    CHECK_IS(cuStreamSynchronize(NULL), 0);
    CHECK_IS(cuStreamQuery(independent), CUDA_ERROR_NOT_READY);
    open_gate(independent_gate);
    CHECK_IS(cuMemFree(p), 0); /* waits for everything */
    CHECK_IS(cuStreamQuery(independent), 0);
    cuStreamDestroy(blocking);
    cuStreamDestroy(independent);
}

static void count_up(void *counter)
{
    ++*(int *)counter;
}

static void callback(CUstream s, CUresult status, void *counter)
{
    (void)s;
    CHECK_IS(status, 0);
    *(int *)counter += 10;
}

static void host_functions(void)
{
    CUstream s;
    int counter = 0;
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    CHECK_IS(cuLaunchHostFunc(s, count_up, &counter), 0);
    CHECK_IS(cuStreamAddCallback(s, callback, &counter, 0), 0);
    CHECK_IS(cuStreamSynchronize(s), 0);
    CHECK_IS(counter, 11);
    cuStreamDestroy(s);
}

static void copies(void)
{
    enum { N = 3 << 20 };
    unsigned char *host = malloc(N), *back = malloc(N);
    CUdeviceptr a, b;
    for (int i = 0; i < N; i++)
        host[i] = (unsigned char)(i * 7 + i / 256);
    cuMemAlloc(&a, N);
    CHECK_IS(cuMemAllocAsync(&b, N, NULL), 0);
    CHECK_IS(cuMemcpyHtoD(a, host, N), 0);
    CHECK_IS(cuMemcpyDtoD(b, a, N), 0);
    CHECK_IS(cuMemcpyDtoH(back, b, N), 0);
    CHECK(memcmp(host, back, N) == 0);
    CHECK_IS(cuMemcpy((CUdeviceptr)(uintptr_t)back, a + 5, 100), 0);
    CHECK(memcmp(host + 5, back, 100) == 0);
    CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = a,
                         .srcPitch = 1000,
                         .srcXInBytes = 10,
                         .srcY = 2,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = back,
                         .dstPitch = 100,
                         .WidthInBytes = 100,
                         .Height = 20};
    CHECK_IS(cuMemcpy2D(&two), 0);
    CHECK(memcmp(back + 100 * 19, host + 1000 * 21 + 10, 100) == 0);
    CHECK_IS(cuMemsetD16(a, 0x1234, 8), 0);
    CHECK_IS(cuMemsetD32(a + 16, 0xdeadbeef, 2), 0);
    CHECK_IS(word_at(a + 12), 0x12341234);
    CHECK_IS(word_at(a + 20), 0xdeadbeef);
    CHECK_IS(cuMemcpyHtoD(a, host, N + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuMemFree(a), 0);
    CHECK_IS(cuMemFreeAsync(b, NULL), 0);
    CHECK_IS(cuMemcpyHtoD(a, host, 1), CUDA_ERROR_INVALID_VALUE);
    free(host);
    free(back);
}

static void pointers(void)
{
    CUdeviceptr p, async;
    void *pinned;
    unsigned type = 0;
    int ordinal = -1;
    CUcontext owner = NULL;
    CUmemoryPool pool = NULL, device_pool = NULL;
    cuMemAlloc(&p, 100);
    cuMemAllocAsync(&async, 100, NULL);
    CHECK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 99), 0);
    CHECK_IS(type, CU_MEMORYTYPE_DEVICE);
    CHECK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 100), 1);
    CHECK_IS(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p), 0);
    CHECK_IS(ordinal, 0);
    CHECK_IS(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p), 0);
    CHECK(owner == ctx);
    CHECK_IS(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, async), 0);
    cuDeviceGetMemPool(&device_pool, dev);
    CHECK(pool == device_pool);
    CHECK_IS(cuMemAllocHost(&pinned, 1000), 0);
    memset(pinned, 3, 1000);
    CHECK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   (CUdeviceptr)(uintptr_t)pinned),
             0);
    CHECK_IS(type, CU_MEMORYTYPE_HOST);
    CHECK_IS(cuMemcpyHtoD(p, pinned, 100), 0);
    CHECK_IS(word_at(p + 96), 0x03030303);
    CHECK_IS(cuMemFreeHost(pinned), 0);
    static char own[8192];
    CHECK_IS(cuMemHostRegister(own, sizeof own, 0), 0);
    CHECK_IS(cuMemHostRegister(own, sizeof own, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_IS(cuMemHostUnregister(own), 0);
    CHECK_IS(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    cuMemFree(p);
    cuMemFreeAsync(async, NULL);
    cuCtxSynchronize();
}

static void graphs(void)
{
    CUstream s, side;
    CUevent fork, join;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p, scratch;
    CUgraphNode nodes[16];
    CUgraphNodeType type;
    size_t count = 16;
    int counter = 0, kinds[16] = {0};
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&side, CU_STREAM_NON_BLOCKING);
    cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING);
    cuEventCreate(&join, CU_EVENT_DISABLE_TIMING);
    cuMemAlloc(&p, 4096);
    cuMemsetD8(p, 0, 4096);
    cuCtxSynchronize();
    CHECK_IS(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    CHECK_IS(cuMemAllocAsync(&scratch, 4096, s), 0);
    cuMemsetD32Async(scratch, 4, 1024, s);
    cuMemcpyDtoDAsync(p, scratch, 4096, s);
    cuEventRecord(fork, s);
    CHECK_IS(cuStreamWaitEvent(side, fork, 0), 0);
    launch_words(add, side, p, 512, 1);
    cuEventRecord(join, side);
    CHECK_IS(cuStreamWaitEvent(s, join, 0), 0);
    launch_words(add, s, p, 1024, 10);
    CHECK_IS(cuMemFreeAsync(scratch, s), 0);
    cuLaunchHostFunc(s, count_up, &counter);
    CHECK_IS(cuStreamEndCapture(s, &graph), 0);
    CHECK_IS(word_at(p), 0);
    CHECK_IS(cuGraphGetNodes(graph, nodes, &count), 0);
    CHECK_IS(count, 7);
    for (size_t i = 0; i < count; i++)
        if (cuGraphNodeGetType(nodes[i], &type) == 0)
            kinds[type]++;
    CHECK_IS(kinds[CU_GRAPH_NODE_TYPE_KERNEL], 2);
    CHECK_IS(kinds[CU_GRAPH_NODE_TYPE_MEM_ALLOC], 1);
    CHECK_IS(kinds[CU_GRAPH_NODE_TYPE_MEM_FREE], 1);
    CHECK_IS(kinds[CU_GRAPH_NODE_TYPE_MEMSET], 1);
    CHECK_IS(kinds[CU_GRAPH_NODE_TYPE_MEMCPY], 1);
    CHECK_IS(kinds[CU_GRAPH_NODE_TYPE_HOST], 1);
    CHECK_IS(cuGraphInstantiate(&exec, graph, 0), 0);
    for (int i = 0; i < 3; i++)
        CHECK_IS(cuGraphLaunch(exec, s), 0);
    CHECK_IS(cuStreamSynchronize(s), 0);
    CHECK_IS(word_at(p), 15);
    CHECK_IS(word_at(p + 4092), 14);
    CHECK_IS(counter, 3);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuDeviceGraphMemTrim(dev);
    cuMemFree(p);
}

/* Memory that goes away under work in flight breaks the context, as on a card. */
static void unmapped_in_flight(void)
{
    enum { SIZE = 2 << 20 };
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h;
    CUdeviceptr v;
    CUstream s;
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuMemCreate(&h, SIZE, &prop, 0);
    cuMemAddressReserve(&v, SIZE, 0, 0, 0);
    cuMemMap(v, SIZE, 0, h, 0);
    cuMemSetAccess(v, SIZE, &access, 1);
    unsigned *gate = launch_gate(s);
    launch_words(fill, s, v, 16, 1);
    CHECK_IS(cuMemUnmap(v, SIZE), 0);
    open_gate(gate);
    CHECK_IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_IS(cuMemAlloc(&v, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
    CUmodule module;
    CHECK_IS(cuInit(0), 0);
    cuDeviceGet(&dev, 0);
    CHECK_IS(cuDevicePrimaryCtxRetain(&ctx, dev), 0);
    cuCtxSetCurrent(ctx);
    CHECK_IS(cuModuleLoadData(&module, ptx), 0);
    CHECK_IS(cuModuleGetFunction(&spin, module, "spin"), 0);
    CHECK_IS(cuModuleGetFunction(&wait, module, "wait"), 0);
    CHECK_IS(cuModuleGetFunction(&fill, module, "fill"), 0);
    CHECK_IS(cuModuleGetFunction(&add, module, "add"), 0);
    CHECK_IS(cuModuleGetFunction(&other, module, "other"), 0);
    CHECK_IS(cuModuleGetFunction(&other, module, "missing"), CUDA_ERROR_NOT_FOUND);
    CHECK_IS(cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    order();
    legacy_stream();
    host_functions();
    copies();
    pointers();
    graphs();
    unmapped_in_flight();
    return check_failures != 0;
}
