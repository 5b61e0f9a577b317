/*
 * suspend_facts: asks a CUDA driver what matters to a job that is moved out of its card and back, one
 * "name = value" a line, as driver_facts.c does.
 *
 * What pointers say of themselves when they come from cuMemAlloc and from mapped memory; what calls of another
 * thread do to an open capture; whether graphs still run when other memory was mapped at their addresses; what
 * can be asked while a kernel waits for the host; what the driver's own checkpoint refuses; what host memory
 * costs. Lines that start with "info." depend on the machine (times, rates). Status values are CUresult.
 *
 * It cannot say how a framework's process is checkpointed: run_suspend.sh asks that of a real one.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static CUdevice dev;
static CUcontext ctx;
static CUfunction spin_function, wait_function, fill_function;

/* spin(ns); wait(address of a word of the host): until it is not 0; fill(pointer, count, value). */
static const char *ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 n){.reg .u64 %r<5>;.reg .pred %p;"
    "ld.param.u64 %r1,[n];mov.u64 %r2,%globaltimer;"
    "L: mov.u64 %r3,%globaltimer;sub.u64 %r3,%r3,%r2;setp.lt.u64 %p,%r3,%r1;@%p bra L;ret;}\n"
    ".visible .entry wait(.param .u64 a){.reg .u64 %r<2>;.reg .u32 %v;.reg .pred %p;"
    "ld.param.u64 %r1,[a];L: ld.volatile.global.u32 %v,[%r1];setp.eq.u32 %p,%v,0;@%p bra L;ret;}\n"
    ".visible .entry fill(.param .u64 a,.param .u64 n,.param .u32 v){.reg .u64 %r<6>;.reg .u32 "
    "%v;.reg .pred %p;"
    "ld.param.u64 %r1,[a];ld.param.u64 %r2,[n];ld.param.u32 %v,[v];mov.u64 %r3,0;"
    "L: setp.ge.u64 %p,%r3,%r2;@%p bra E;shl.b64 %r4,%r3,2;add.u64 %r4,%r1,%r4;st.global.u32 "
    "[%r4],%v;"
    "add.u64 %r3,%r3,1;bra L;E: ret;}\n";

static void fact(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fact(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s = ", name);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static CUresult launch(CUfunction function, CUstream stream, void **args)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

static CUresult spin(CUstream stream, unsigned long long ms)
{
    unsigned long long ns = ms * 1000000;
    return launch(spin_function, stream, (void *[]){&ns});
}

/* --- mapped memory ----------------------------------------------------------------------------------------- */

static CUmemAllocationProp device_memory(int handle_types)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = handle_types;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = dev;
    return prop;
}

static CUresult map_at(CUdeviceptr at, size_t bytes, int handle_types)
{
    CUmemAllocationProp prop = device_memory(handle_types);
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult r = cuMemCreate(&handle, bytes, &prop, 0);
    if (r == CUDA_SUCCESS)
        r = cuMemMap(at, bytes, 0, handle, 0);
    if (r == CUDA_SUCCESS)
        r = cuMemSetAccess(at, bytes, &access, 1);
    cuMemRelease(handle); /* the mapping keeps it */
    return r;
}

/* --- what pointers say ------------------------------------------------------------------------------------- */

static void attributes(const char *what, CUdeviceptr base, CUdeviceptr at)
{
    static const struct {
        int attribute;
        const char *name;
        char kind; /* a: an address, printed from the base; n: number; s: only the status */
    } asked[] = {
        {1, "context", 's'},       {2, "memory_type", 'n'},   {3, "device_pointer", 'a'},
        {4, "host_pointer", 'a'},  {5, "p2p_tokens", 's'},    {6, "sync_memops", 'n'},
        {7, "buffer_id", 's'},     {8, "is_managed", 'n'},    {9, "device_ordinal", 'n'},
        {10, "ipc_capable", 'n'},  {11, "range_start", 'a'},  {12, "range_size", 'n'},
        {13, "mapped", 'n'},       {14, "handle_types", 'n'}, {15, "rdma_capable", 's'},
        {16, "access_flags", 'n'}, {17, "mempool", 'n'},      {18, "mapping_size", 'n'},
        {19, "mapping_base", 'a'}, {20, "block_id", 's'},
    };
    char name[96];
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        unsigned long long value[4] = {0};
        CUresult r = cuPointerGetAttribute(value, asked[i].attribute, at);
        snprintf(name, sizeof name, "%spointer.%s.%s",
                 asked[i].attribute == 5 || asked[i].attribute == 15 || asked[i].attribute > 17
                     ? "info."
                     : "",
                 what, asked[i].name);
        if (r != CUDA_SUCCESS || asked[i].kind == 's')
            fact(name, "%d", r);
        else if (asked[i].kind == 'a')
            fact(name, "%d base%+lld", r, (long long)(value[0] - base));
        else
            fact(name, "%d %lld", r, (long long)(int)value[0]);
    }
    CUdeviceptr start = 0;
    size_t size = 0;
    CUresult r = cuMemGetAddressRange(&start, &size, at);
    snprintf(name, sizeof name, "pointer.%s.address_range", what);
    if (r == CUDA_SUCCESS)
        fact(name, "%d base%+lld size %zu", r, (long long)(start - base), size);
    else
        fact(name, "%d", r);
    int on = 1;
    snprintf(name, sizeof name, "pointer.%s.set_sync_memops", what);
    fact(name, "%d", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    CUipcMemHandle ipc;
    snprintf(name, sizeof name, "pointer.%s.ipc_handle", what);
    fact(name, "%d", cuIpcGetMemHandle(&ipc, at));
    CUmemGenericAllocationHandle handle;
    r = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at);
    snprintf(name, sizeof name, "pointer.%s.retain_handle", what);
    fact(name, "%d", r);
    if (r == CUDA_SUCCESS)
        cuMemRelease(handle);
}

static void pointers(void)
{
    CUdeviceptr small = 0, large = 0, odd = 0, v = 0;
    cuMemAlloc(&small, 5000);
    cuMemAlloc(&odd, 3 * MIB + 1);
    cuMemAlloc(&large, 8 * MIB);
    attributes("small", small, small + 100);
    attributes("odd", odd, odd + 3 * MIB);
    attributes("large", large, large);
    cuMemAddressReserve(&v, 64 * MIB, 0, 0, 0);
    map_at(v + 4 * MIB, 8 * MIB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    map_at(v + 12 * MIB, 2 * MIB, CU_MEM_HANDLE_TYPE_NONE);
    attributes("mapped", v + 4 * MIB, v + 9 * MIB);
    attributes("mapped_plain", v + 12 * MIB, v + 12 * MIB);
    fact("mapped.free", "%d", cuMemFree(v + 4 * MIB));
    cuMemUnmap(v + 4 * MIB, 8 * MIB);
    attributes("reserved", v + 4 * MIB, v + 9 * MIB);
    cuMemUnmap(v + 12 * MIB, 2 * MIB);
    cuMemAddressFree(v, 64 * MIB);
    attributes("unknown", v + 4 * MIB, v + 9 * MIB);
    cuMemFree(small);
    cuMemFree(odd);
    cuMemFree(large);
    /* Copies that cross from one mapping to the next, which is one block to the guest. */
    cuMemAddressReserve(&v, 8 * MIB, 0, 0, 0);
    map_at(v, 4 * MIB, 0);
    map_at(v + 4 * MIB, 4 * MIB, 0);
    char *host = malloc(8 * MIB);
    fact("mapped.two.memset", "%d", cuMemsetD8(v + 2 * MIB, 7, 4 * MIB));
    fact("mapped.two.to_host", "%d", cuMemcpyDtoH(host, v, 8 * MIB));
    fact("mapped.two.to_device", "%d", cuMemcpyHtoD(v, host, 8 * MIB));
    fact("mapped.two.device", "%d", cuMemcpyDtoD(v, v + 2 * MIB, 2 * MIB));
    CUdeviceptr start = 0;
    size_t size = 0;
    CUresult r = cuMemGetAddressRange(&start, &size, v + 5 * MIB);
    fact("mapped.two.address_range", "%d base%+lld size %zu", r, (long long)(start - v), size);
    free(host);
    cuMemUnmap(v, 8 * MIB);
    cuMemAddressFree(v, 8 * MIB);
}

/* --- an open capture, and calls of another thread ----------------------------------------------------------- */

static struct {
    CUstream captured, other;
    CUevent event;
    CUdeviceptr p, reserved;
    void *pinned;
} on;

static CUresult call_query_other(void)
{
    return cuStreamQuery(on.other);
}
static CUresult call_query_captured(void)
{
    return cuStreamQuery(on.captured);
}
static CUresult call_query_null(void)
{
    return cuStreamQuery(NULL);
}
static CUresult call_sync_other(void)
{
    return cuStreamSynchronize(on.other);
}
static CUresult call_sync_null(void)
{
    return cuStreamSynchronize(NULL);
}
static CUresult call_sync_context(void)
{
    return cuCtxSynchronize();
}
static CUresult call_event_query(void)
{
    return cuEventQuery(on.event);
}
static CUresult call_record_other(void)
{
    return cuEventRecord(on.event, on.other);
}
static CUresult call_launch_other(void)
{
    return spin(on.other, 0);
}
static CUresult call_launch_null(void)
{
    return spin(NULL, 0);
}
static CUresult call_memset_other(void)
{
    return cuMemsetD8Async(on.p, 1, 64, on.other);
}
static CUresult call_memset_sync(void)
{
    return cuMemsetD8(on.p, 1, 64);
}
static CUresult call_copy_async(void)
{
    return cuMemcpyDtoHAsync(on.pinned, on.p, 64, on.other);
}
static CUresult call_copy_sync(void)
{
    return cuMemcpyDtoH(on.pinned, on.p, 64);
}
static CUresult call_free(void)
{
    CUdeviceptr p;
    CUresult r = cuMemAlloc(&p, 4096);
    return r == CUDA_SUCCESS ? cuMemFree(p) : r;
}
static CUresult call_map(void)
{
    CUresult r = map_at(on.reserved, 2 * MIB, 0);
    return r == CUDA_SUCCESS ? cuMemUnmap(on.reserved, 2 * MIB) : r;
}
static CUresult call_status(void)
{
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(on.captured, &status);
}
static CUresult call_stream(void)
{
    CUstream s;
    CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    return r == CUDA_SUCCESS ? cuStreamDestroy(s) : r;
}

struct elsewhere {
    CUresult (*call)(void);
    bool relaxed;
    CUresult result;
};

static void *in_thread(void *data)
{
    struct elsewhere *e = data;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuCtxSetCurrent(ctx);
    if (e->relaxed)
        cuThreadExchangeStreamCaptureMode(&mode);
    e->result = e->call();
    return NULL;
}

static void during_capture(const char *what, CUresult (*call)(void))
{
    static const char *const modes[] = {"global", "thread_local", "relaxed"};
    for (int mode = 0; mode < 3; mode++)
        for (int relaxed = 0; relaxed < 2; relaxed++) {
            char name[96];
            CUgraph graph = NULL;
            struct elsewhere e = {.call = call, .relaxed = relaxed};
            pthread_t thread;
            cuStreamBeginCapture(on.captured, mode);
            spin(on.captured, 0);
            pthread_create(&thread, NULL, in_thread, &e);
            pthread_join(thread, NULL);
            CUresult more = spin(on.captured, 0);
            CUresult end = cuStreamEndCapture(on.captured, &graph);
            if (end == CUDA_SUCCESS)
                cuGraphDestroy(graph);
            snprintf(name, sizeof name, "capture.%s.%s%s", what, modes[mode],
                     relaxed ? ".by_relaxed" : "");
            fact(name, "%d then %d end %d", e.result, more, end);
        }
}

static void captures(void)
{
    cuStreamCreate(&on.captured, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&on.other, CU_STREAM_NON_BLOCKING);
    cuEventCreate(&on.event, CU_EVENT_DISABLE_TIMING);
    cuEventRecord(on.event, on.other);
    cuMemAlloc(&on.p, 4096);
    cuMemHostAlloc(&on.pinned, 4096, 0);
    cuMemAddressReserve(&on.reserved, 2 * MIB, 0, 0, 0);
    spin(NULL, 0);
    cuCtxSynchronize();
    during_capture("query_other", call_query_other);
    during_capture("query_captured", call_query_captured);
    during_capture("query_null", call_query_null);
    during_capture("sync_other", call_sync_other);
    during_capture("sync_null", call_sync_null);
    during_capture("sync_context", call_sync_context);
    during_capture("event_query", call_event_query);
    during_capture("event_record", call_record_other);
    during_capture("launch_other", call_launch_other);
    during_capture("launch_null", call_launch_null);
    during_capture("memset_other", call_memset_other);
    during_capture("memset_sync", call_memset_sync);
    during_capture("copy_async", call_copy_async);
    during_capture("copy_sync", call_copy_sync);
    during_capture("alloc_free", call_free);
    during_capture("map_unmap", call_map);
    during_capture("is_capturing", call_status);
    during_capture("stream_create", call_stream);
    cuMemAddressFree(on.reserved, 2 * MIB);
    cuMemFree(on.p);
}

/* --- graphs and other memory at their addresses -------------------------------------------------------------- */

static unsigned int word_at(CUdeviceptr at)
{
    unsigned int word = 0;
    cuMemcpyDtoH(&word, at, sizeof word);
    return word;
}

/* A kernel, a memset, and copies each way in one graph over v; is it still right after v has other memory? */
static void graph_after_remap(void)
{
    CUdeviceptr v = 0;
    CUgraph graph;
    CUgraphExec exec;
    unsigned int *pinned, value = 11;
    unsigned long long count = 16;
    CUdeviceptr at;
    cuMemHostAlloc((void **)&pinned, 4096, 0);
    cuMemAddressReserve(&v, 8 * MIB, 0, 0, 0);
    fact("remap.map", "%d", map_at(v, 8 * MIB, 0));
    at = v;
    pinned[0] = 33;
    cuStreamBeginCapture(on.captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(fill_function, on.captured, (void *[]){&at, &count, &value});
    cuMemsetD32Async(v + 2 * MIB, 22, 16, on.captured);
    cuMemcpyHtoDAsync(v + 3 * MIB, pinned, 4, on.captured);
    cuMemcpyDtoDAsync(v + 4 * MIB, v, 64, on.captured);
    cuMemcpyDtoHAsync(pinned + 1, v + 2 * MIB, 4, on.captured);
    fact("remap.captured", "%d", cuStreamEndCapture(on.captured, &graph));
    fact("remap.instantiated", "%d", cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        char name[64];
        pinned[1] = 0;
        CUresult r = cuGraphLaunch(exec, on.captured);
        CUresult s = cuStreamSynchronize(on.captured);
        snprintf(name, sizeof name, "remap.round%d", round);
        fact(name, "%d %d: %u %u %u %u host %u", r, s, word_at(v), word_at(v + 2 * MIB),
             word_at(v + 3 * MIB), word_at(v + 4 * MIB), pinned[1]);
        double t0 = now_ms();
        CUresult u = cuMemUnmap(v, 8 * MIB);
        double t1 = now_ms();
        r = map_at(v, 8 * MIB, 0);
        snprintf(name, sizeof name, "remap.again%d", round);
        fact(name, "%d %d", u, r);
        snprintf(name, sizeof name, "info.remap.again%d_ms", round);
        fact(name, "unmap %.3f map %.3f", t1 - t0, now_ms() - t1);
        cuMemsetD8(v, 0, 8 * MIB);
    }
    fact("remap.exec_destroy", "%d", cuGraphExecDestroy(exec));
    cuGraphDestroy(graph);
    cuMemUnmap(v, 8 * MIB);
    cuMemAddressFree(v, 8 * MIB);
    cuMemFreeHost(pinned);
}

/* --- work that does not end ------------------------------------------------------------------------------------ */

/* So that a surprise costs seconds and not the run. */
static void *let_go(void *flag)
{
    sleep(5);
    __atomic_store_n((volatile unsigned int *)flag, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void endless(void)
{
    volatile unsigned int *flag;
    pthread_t guard;
    CUdeviceptr on_device = 0, v = 0;
    char name[64];
    cuMemHostAlloc((void **)&flag, 4096, 2 /* DEVICEMAP */);
    cuMemHostGetDevicePointer(&on_device, (void *)flag, 0);
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    pthread_create(&guard, NULL, let_go, (void *)flag);
    cuMemAddressReserve(&v, 4 * MIB, 0, 0, 0);
    map_at(v, 2 * MIB, 0);
    spin(on.other, 0);
    cuCtxSynchronize();
    fact("endless.launch", "%d", launch(wait_function, on.captured, (void *[]){&on_device}));
    usleep(1000);
    fact("endless.query", "%d", cuStreamQuery(on.captured));
    fact("endless.query_other", "%d", cuStreamQuery(on.other));
    fact("endless.query_null", "%d", cuStreamQuery(NULL));
    fact("endless.sync_other", "%d", cuStreamSynchronize(on.other));
    double t0 = now_ms();
    CUresult r = map_at(v + 2 * MIB, 2 * MIB, 0);
    fact("endless.map", "%d", r);
    fact("info.endless.map_ms", "%.3f", now_ms() - t0);
    t0 = now_ms();
    r = cuMemcpyDtoHAsync((char *)flag + 64, v, 4, on.other);
    CUresult s = cuStreamSynchronize(on.other);
    fact("endless.copy_other", "%d %d", r, s);
    snprintf(name, sizeof name, "info.endless.copy_ms");
    fact(name, "%.3f", now_ms() - t0);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE); /* the device reads it */
    fact("endless.ends", "%d", cuStreamSynchronize(on.captured));
    cuMemUnmap(v, 4 * MIB);
    cuMemAddressFree(v, 4 * MIB);

    /* Does unmapping wait for work that uses the memory, or only for that? */
    cuMemAddressReserve(&v, 2 * MIB, 0, 0, 0);
    map_at(v, 2 * MIB, 0);
    spin(on.captured, 100);
    t0 = now_ms();
    r = cuMemUnmap(v, 2 * MIB);
    fact("endless.unmap_behind_work", "%d", r);
    fact("info.endless.unmap_behind_100_ms", "%.1f", now_ms() - t0);
    cuStreamSynchronize(on.captured);
    cuMemAddressFree(v, 2 * MIB);
    pthread_join(guard, NULL);
    cuMemFreeHost((void *)flag);
}

/* --- the driver's checkpoint -------------------------------------------------------------------------------------- */

/* A child holds something of a kind; what the driver says when it is moved. Each in a process of its own. */
static void hold(const char *kind)
{
    CUdeviceptr p = 0, v = 0;
    CUstream s;
    void *host;
    unsigned long long forever = 3000;
    cuInit(0);
    cuDeviceGet(&dev, 0);
    cuDevicePrimaryCtxRetain(&ctx, dev);
    cuCtxSetCurrent(ctx);
    CUmodule module;
    cuModuleLoadData(&module, ptx);
    cuModuleGetFunction(&spin_function, module, "spin");
    cuMemAlloc(&p, 64 * MIB);
    cuMemsetD8(p, 5, 64 * MIB);
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuCtxSynchronize();
    if (strcmp(kind, "mapped") == 0 || strcmp(kind, "mapped_exported") == 0) {
        CUmemAllocationProp prop = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle handle;
        int fd;
        cuMemAddressReserve(&v, 64 * MIB, 0, 0, 0);
        cuMemCreate(&handle, 64 * MIB, &prop, 0);
        cuMemMap(v, 64 * MIB, 0, handle, 0);
        cuMemSetAccess(v, 64 * MIB, &access, 1);
        if (kind[6])
            cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    } else if (strcmp(kind, "ipc_exported") == 0) {
        CUipcMemHandle ipc;
        cuIpcGetMemHandle(&ipc, p);
    } else if (strcmp(kind, "pool") == 0) {
        cuMemAllocAsync(&v, 64 * MIB, s);
        cuStreamSynchronize(s);
    } else if (strcmp(kind, "pinned") == 0) {
        cuMemHostAlloc(&host, 64 * MIB, 0);
    } else if (strcmp(kind, "managed") == 0) {
        cuMemAllocManaged(&v, 64 * MIB, CU_MEM_ATTACH_GLOBAL);
        cuMemsetD8(v, 1, 64 * MIB);
        cuCtxSynchronize();
    } else if (strcmp(kind, "kernel_of_3s") == 0) {
        spin(s, forever);
    } else if (strcmp(kind, "capture") == 0) {
        cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
        spin(s, 0);
    }
}

static void checkpoint(const char *kind, const char *self)
{
    int up[2], down[2];
    char name[96], text[32], byte = 0;
    if (pipe(up) != 0 || pipe(down) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        dup2(up[1], 3 + 60);
        dup2(down[0], 3 + 61);
        snprintf(text, sizeof text, "%s", kind);
        execl(self, self, "hold", text, (char *)NULL);
        _exit(1);
    }
    close(up[1]);
    if (read(up[0], &byte, 1) == 1) {
        CUcheckpointLockArgs lock;
        memset(&lock, 0, sizeof lock);
        lock.timeoutMs = 1000;
        double t0 = now_ms();
        CUresult l = cuCheckpointProcessLock(child, &lock);
        double t1 = now_ms();
        CUresult c = l == CUDA_SUCCESS ? cuCheckpointProcessCheckpoint(child, NULL) : -1;
        double t2 = now_ms();
        CUprocessState state = 0;
        cuCheckpointProcessGetState(child, &state);
        CUresult r = c == CUDA_SUCCESS ? cuCheckpointProcessRestore(child, NULL) : -1;
        double t3 = now_ms();
        CUresult u = l == CUDA_SUCCESS ? cuCheckpointProcessUnlock(child, NULL) : -1;
        snprintf(name, sizeof name, "checkpoint.%s", kind);
        fact(name, "lock %d out %d state %d back %d unlock %d", l, c, (int)state, r, u);
        snprintf(name, sizeof name, "info.checkpoint.%s_ms", kind);
        fact(name, "lock %.0f out %.0f back %.0f", t1 - t0, t2 - t1, t3 - t2);
        if (write(down[1], "x", 1) != 1 || read(up[0], &byte, 1) != 1)
            byte = '?';
        snprintf(name, sizeof name, "checkpoint.%s.after", kind);
        fact(name, "%c", byte);
    } else {
        snprintf(name, sizeof name, "checkpoint.%s", kind);
        fact(name, "the child did not start");
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(up[0]);
    close(down[0]);
    close(down[1]);
}

static int be_child(const char *kind)
{
    char byte = 'r';
    alarm(120);
    hold(kind);
    if (write(63, &byte, 1) != 1 || read(64, &byte, 1) != 1)
        return 1;
    CUdeviceptr p;
    CUresult r = cuMemAlloc(&p, 4096);
    byte = r == CUDA_SUCCESS ? 'y' : 'n';
    return write(63, &byte, 1) == 1 ? 0 : 1;
}

/* --- host memory ----------------------------------------------------------------------------------------------------- */

static double rate(double ms, size_t bytes)
{
    return (double)bytes / 1e6 / ms;
}

/* Both ways between the card and memory of the host, through one stream. */
static void rates(const char *name, CUdeviceptr card, void *host, CUdeviceptr mapped, size_t bytes)
{
    CUstream s = on.other;
    double out = 1e30, in = 1e30;
    for (int i = 0; i < 2; i++) {
        double t0 = now_ms();
        CUresult r = mapped ? cuMemcpyDtoDAsync(mapped, card, bytes, s)
                            : cuMemcpyDtoHAsync(host, card, bytes, s);
        r |= cuStreamSynchronize(s);
        double t1 = now_ms();
        r |= mapped ? cuMemcpyDtoDAsync(card, mapped, bytes, s)
                    : cuMemcpyHtoDAsync(card, host, bytes, s);
        r |= cuStreamSynchronize(s);
        double t2 = now_ms();
        out = r ? -1 : t1 - t0 < out ? t1 - t0 : out;
        in = r ? -1 : t2 - t1 < in ? t2 - t1 : in;
    }
    fact(name, "out %.1f GB/s in %.1f GB/s", rate(out, bytes), rate(in, bytes));
}

static void host_numa(CUdeviceptr card, size_t bytes)
{
    CUmemAllocationProp prop = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle = 0, imported = 0;
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    prop.location.id = 0;
    CUmemAccessDesc access[2] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, dev}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUdeviceptr v = 0;
    double t0 = now_ms();
    CUresult c = cuMemCreate(&handle, bytes, &prop, 0);
    double t1 = now_ms();
    CUresult a = cuMemAddressReserve(&v, bytes, 0, 0, 0);
    CUresult m = cuMemMap(v, bytes, 0, handle, 0);
    CUresult x = cuMemSetAccess(v, bytes, access, 2);
    double t2 = now_ms();
    fact("info.numa", "create %d reserve %d map %d access %d", c, a, m, x);
    if (c || m || x)
        return;
    fact("info.numa.ms_per_gib", "create %.1f map and access %.1f",
         (t1 - t0) / (double)(bytes / GIB), (t2 - t1) / (double)(bytes / GIB));
    rates("info.numa.rate", card, NULL, v, bytes);
    int fd = -1;
    CUresult e =
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    t0 = now_ms();
    CUresult i = cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUdeviceptr w = 0;
    cuMemAddressReserve(&w, bytes, 0, 0, 0);
    m = i ? -1 : cuMemMap(w, bytes, 0, imported, 0);
    x = m ? -1 : cuMemSetAccess(w, bytes, access, 2);
    fact("info.numa.by_descriptor", "export %d import %d map %d access %d, %.1f ms for %zu GiB", e,
         i, m, x, now_ms() - t0, bytes / GIB);
    if (!x)
        rates("info.numa.by_descriptor.rate", card, NULL, w, bytes);
    t0 = now_ms();
    cuMemUnmap(v, bytes);
    cuMemUnmap(w, bytes);
    cuMemRelease(handle);
    cuMemRelease(imported);
    fact("info.numa.release_ms_per_gib", "%.1f", (now_ms() - t0) / (double)(bytes / GIB));
    close(fd);
}

static void host_memory(size_t bytes)
{
    CUdeviceptr card = 0;
    void *pinned = NULL;
    if (cuMemAlloc(&card, bytes) != CUDA_SUCCESS)
        return;
    cuMemsetD8(card, 3, bytes);
    host_numa(card, bytes);
    double t0 = now_ms();
    CUresult r = cuMemHostAlloc(&pinned, bytes, 0);
    fact("info.pinned.ms_per_gib", "%d %.1f", r, (now_ms() - t0) / (double)(bytes / GIB));
    rates("info.pinned.rate", card, pinned, 0, bytes);
    t0 = now_ms();
    cuMemFreeHost(pinned);
    fact("info.pinned.free_ms_per_gib", "%.1f", (now_ms() - t0) / (double)(bytes / GIB));
    for (int huge = 0; huge < 2; huge++) {
        char name[64];
        char *plain = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (huge)
            madvise(plain, bytes, 14 /* MADV_HUGEPAGE */);
        t0 = now_ms();
        for (size_t i = 0; i < bytes; i += 4096)
            plain[i] = 1;
        double t1 = now_ms();
        r = cuMemHostRegister(plain, bytes, 0);
        double t2 = now_ms();
        snprintf(name, sizeof name, "info.%s.ms_per_gib", huge ? "huge" : "plain");
        fact(name, "touch %.1f register %d %.1f", (t1 - t0) / (double)(bytes / GIB), r,
             (t2 - t1) / (double)(bytes / GIB));
        cuMemHostUnregister(plain);
        snprintf(name, sizeof name, "info.%s.rate", huge ? "huge" : "plain");
        rates(name, card, plain, 0, bytes);
        munmap(plain, bytes);
    }
    cuMemFree(card);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "hold") == 0)
        return be_child(argv[2]);
    size_t gib = argc == 2 ? strtoull(argv[1], NULL, 10) : 0; /* to measure host memory with */
    CUmodule module;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&dev, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&ctx, dev) != CUDA_SUCCESS || cuCtxSetCurrent(ctx) != CUDA_SUCCESS) {
        fprintf(stderr, "suspend_facts: no device\n");
        return 3;
    }
    CUresult r = cuModuleLoadData(&module, ptx);
    fact("module", "%d %d %d %d", r, cuModuleGetFunction(&spin_function, module, "spin"),
         cuModuleGetFunction(&wait_function, module, "wait"),
         cuModuleGetFunction(&fill_function, module, "fill"));
    pointers();
    captures();
    graph_after_remap();
    endless();
    static const char *const kinds[] = {"plain",        "pool",    "pinned",
                                        "managed",      "mapped",  "mapped_exported",
                                        "ipc_exported", "capture", "kernel_of_3s"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        checkpoint(kinds[i], argv[0]);
    if (gib)
        host_memory(gib * GIB);
    return 0;
}
