/*
 * account_scene.c: short scenes, each a sequence of calls with the results that it must have.
 *
 * Usage: account_scene SCENE [ARGUMENT...]. Ends with 0, or prints what was wrong and ends with 1. The
 * budget and the context's size that a scene needs are given by the script that runs it.
 */
#include "account.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char **arguments;
static CUcontext context;

static CUmemAllocationProp memory_of(CUmemLocationType type, int id)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    prop.location.id = id;
    return prop;
}

static CUmemoryPool own_pool(uint64_t threshold)
{
    CUmemPoolProps props;
    CUmemoryPool pool;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    return pool;
}

static CUgraphExec graph_of(uint64_t bytes, CUgraph *graph)
{
    CUgraphExec exec;
    CUgraphNode alloc, release;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    OK(cuGraphCreate(graph, 0));
    OK(cuGraphAddMemAllocNode(&alloc, *graph, NULL, 0, &params));
    OK(cuGraphAddMemFreeNode(&release, *graph, &alloc, 1, params.dptr));
    OK(cuGraphInstantiate(&exec, *graph, 0));
    return exec;
}

/* The rest of the budget in one handle, so that exactly nothing is left. */
static CUmemGenericAllocationHandle fill_up(uint64_t leave)
{
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle;
    size_t free_bytes, total;
    OK(cuMemGetInfo(&free_bytes, &total));
    OK(cuMemCreate(&handle, (free_bytes - leave) / PAGE * PAGE, &prop, 0));
    return handle;
}

/* What a context takes here. */
static const uint64_t context_size = 100 * MIB;

/* --- the error contract -------------------------------------------------------------------------------- */

/* Every call that takes memory, for `bytes`, gives `code`. */
static void every_call(uint64_t bytes, CUresult code, bool by_size)
{
    CUdeviceptr p;
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle;
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 65536, .Height = bytes / 65536 / 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUarray array;
    CUmipmappedArray mipmap;
    CUmemoryPool pool = own_pool(0);
    CUgraph graph;
    size_t pitch;
    memset(&desc, 0, sizeof desc);
    desc.Width = flat.Width;
    desc.Height = flat.Height;
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 4;
    GIVES(code, cuMemAlloc(&p, bytes));
    GIVES(code, cuMemAllocPitch(&p, &pitch, 65536, bytes / 65536, 16));
    GIVES(code, cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    GIVES(code, cuMemAllocAsync(&p, bytes, NULL));
    GIVES(code, cuMemAllocAsync_ptsz(&p, bytes, NULL));
    GIVES(code, cuMemAllocFromPoolAsync(&p, bytes, pool, NULL));
    GIVES(code, cuMemAllocFromPoolAsync_ptsz(&p, bytes, pool, NULL));
    GIVES(code, cuMemCreate(&handle, bytes, &prop, 0));
    GIVES(code, cuArrayCreate(&array, &flat));
    GIVES(code, cuArray3DCreate(&array, &desc));
    GIVES(code, cuMipmappedArrayCreate(&mipmap, &desc, 2));
    OK(cuMemPoolDestroy(pool));
    if (!by_size)
        return;
    CUgraphExec exec = graph_of(bytes, &graph);
    GIVES(code, cuGraphUpload(exec, NULL));
    GIVES(code, cuGraphLaunch(exec, NULL));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* A clock, in seconds, that stands still while this thread runs or waits for a processor: how busy the machine is does not count. */
static double asleep(void)
{
    struct timespec now;
    unsigned long long ran_ns = 0, queued_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file && fscanf(file, "%llu %llu", &ran_ns, &queued_ns) != 2)
        fail("schedstat does not begin with two numbers");
    if (file)
        fclose(file);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * ((double)now.tv_nsec - (double)ran_ns - (double)queued_ns);
}

/* Budget 512 MiB of 6 GiB: all over the line at once, and all is as before. */
static void scene_over(void)
{
    size_t limit;
    CUcontext own;
    start();
    double began = asleep();
    every_call(1024 * MIB, CUDA_ERROR_OUT_OF_MEMORY, true);
    OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512 << 10));
    CUmemGenericAllocationHandle all = fill_up(0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate(&own, NULL, 0, 0));
    double seconds = asleep() - began;
    if (seconds > 2)
        fail("17 refusals waited for %.1f s", seconds);
    OK(cuMemRelease(all));
    SAME(held(), card_own(0));
}

/* --max-request 64MiB: what is larger is refused, what is not is given. */
static void scene_max_request(void)
{
    CUdeviceptr p;
    start();
    every_call(128 * MIB, CUDA_ERROR_OUT_OF_MEMORY, false);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 64 * MIB + 1));
    OK(cuMemAlloc(&p, 64 * MIB));
    OK(cuMemFree(p));
    SAME(held(), card_own(0));
}

/* Arguments: the budget, and what is really free apart from this process. */
static void scene_info(void)
{
    size_t free_bytes, total, of_device;
    uint64_t budget = strtoull(arguments[0], NULL, 10);
    start();
    OK(cuMemGetInfo(&free_bytes, &total));
    SAME(total, budget);
    SAME(free_bytes, budget - card_own(0));
    OK(cuMemGetInfo(NULL, &total));
    SAME(total, budget);
    OK(cuMemGetInfo(&free_bytes, NULL));
    OK(cuMemGetInfo(NULL, NULL));
    OK(cuDeviceTotalMem(&of_device, 0));
    SAME(of_device, budget);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuDeviceTotalMem(NULL, 0));
    SAME(held_by_nvml(0), held());
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 100 * MIB));
    SAME(held(), card_own(0));
    SAME(held_by_nvml(0), held());
}

/* The budget is more than the card has: the card is what the program sees. */
static void scene_total(void)
{
    size_t free_bytes, total, of_device;
    start();
    OK(cuMemGetInfo(&free_bytes, &total));
    OK(cuDeviceTotalMem(&of_device, 0));
    SAME(total, strtoull(arguments[0], NULL, 10));
    SAME(total, of_device);
    if (free_bytes > total - card_own(0))
        fail("%zu are free", free_bytes);
}

/* Others have taken most of the card: what is really free is told. Argument: free at most. */
static void scene_crowded(void)
{
    size_t free_bytes, total;
    start();
    OK(cuMemGetInfo(&free_bytes, &total));
    if (free_bytes > strtoull(arguments[0], NULL, 10))
        fail("%zu are free?", free_bytes);
}

/* Streams are charged when NVML shows them: a debt that blocks all else until it is paid. */
static void scene_debt(void)
{
    CUstream streams[40];
    CUdeviceptr p;
    CUmodule module;
    int made = 0;
    size_t free_bytes = 1, total;
    start();
    CUmemGenericAllocationHandle all = fill_up(0);
    while (made < 40 && cuStreamCreate(&streams[made], 0) == CUDA_SUCCESS) {
        made++;
        usleep(20000); /* NVML is looked at every tenth of a second */
    }
    if (made == 0 || made == 40)
        fail("%d streams were made at a full budget", made);
    OK(cuMemGetInfo(&free_bytes, &total)); /* more is held than the budget */
    SAME(free_bytes, 0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 1));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadData(&module, "\n.version 8.0\n"));
    OK(cuMemRelease(all));
    OK(cuMemAlloc(&p, 1));
    OK(cuModuleLoadData(&module, "\n.version 8.0\n"));
    OK(cuStreamCreate(&streams[0], 0));
}

/* The budget is smaller than a context. */
static void scene_small(void)
{
    CUcontext made;
    OK(cuInit(0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&made, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate(&made, NULL, 0, 0));
    SAME(held_by_nvml(0), 0);
    SAME(card_own(0), 0);
}

/* Without a context the driver answers; handles need none. */
static void scene_no_context(void)
{
    CUdeviceptr p;
    size_t free_bytes, total, pitch;
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle;
    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 1));
    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&p, 1));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocPitch(&p, &pitch, 100, 100, 4));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocManaged(&p, 1, CU_MEM_ATTACH_GLOBAL));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&p, 1, NULL));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo(&free_bytes, &total));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemFree(0x1000000));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    OK(cuMemCreate(&handle, 4 * PAGE, &prop, 0));
    SAME(held_by_nvml(0), 4 * PAGE);
    prop.location.id = 7;
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, PAGE, &prop, 0));
    SAME(held_by_nvml(0), 4 * PAGE);
}

/* Handles on the host are no memory of the device, however large, with or without a context. */
static void scene_host(void)
{
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    CUmemGenericAllocationHandle handle;
    void *pinned;
    OK(cuInit(0));
    OK(cuMemCreate(&handle, 4096 * MIB, &prop, 0));
    OK(cuMemRelease(handle));
    start();
    uint64_t before = held();
    OK(cuMemCreate(&handle, 4096 * MIB, &prop, 0));
    OK(cuMemAllocHost(&pinned, 64 * MIB));
    SAME(held(), before);
    OK(cuMemRelease(handle));
    SAME(held(), before);
}

/* On an integrated device pinned memory is the device's. */
static void scene_integrated(void)
{
    void *a, *b, *own = aligned_alloc(4096, 8 * MIB);
    start();
    uint64_t before = held();
    OK(cuMemAllocHost(&a, 64 * MIB));
    OK(cuMemHostAlloc(&b, 32 * MIB, 0));
    OK(cuMemHostRegister(own, 8 * MIB, 0));
    SAME(held(), before + 104 * MIB);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&b, 4096 * MIB, 0));
    OK(cuMemFreeHost(a));
    OK(cuMemHostUnregister(own));
    SAME(held(), before + 32 * MIB);
    OK(cuMemFreeHost(b));
    SAME(held(), before);
}

/* What the driver says of bad frees is what the program hears, and the account stays right. */
static void scene_bad_frees(void)
{
    CUdeviceptr p, q;
    CUmemGenericAllocationHandle handle = 0x999990;
    start();
    OK(cuMemAlloc(&p, 5 * MIB));
    OK(cuMemAllocAsync(&q, 5 * MIB, NULL));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(p + 512));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(0xdead0000));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(0xdead0000, NULL));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(&p));
    OK(cuMemFree(0));
    SAME(held(), card_own(0));
    OK(cuMemFree(p));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
    OK(cuMemFree(q)); /* of a pool */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(q));
    OK(cuMemAlloc(&p, 5 * MIB));
    OK(cuMemFreeAsync(p, NULL)); /* in a stream's order, though of no pool */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
    OK(cuCtxSynchronize());
    SAME(held(), card_own(0));
}

/* --- nobody is refused what fits (budget 400 MiB, context 100 MiB) ----------------------------------------- */

/* A pool keeps 192 MiB that nobody uses; they are needed elsewhere. */
static void scene_unused_reserve(void)
{
    CUdeviceptr p;
    start();
    CUmemoryPool pool = own_pool(UINT64_MAX);
    OK(cuMemAllocFromPoolAsync(&p, 192 * MIB, pool, NULL));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    SAME(card_own(0), context_size + 192 * MIB);
    OK(cuMemAlloc(&p, 200 * MIB));
    SAME(held(), card_own(0));
}

/* In the order of a stream, memory is free before the program has waited for it. */
static void scene_stream_order(void)
{
    CUdeviceptr p;
    CUstream stream, streams[3];
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    streams[0] = stream;
    streams[1] = NULL;
    streams[2] = CU_STREAM_PER_THREAD;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 10; k++) {
            OK(cuMemAllocAsync(&p, 192 * MIB, streams[i]));
            OK(cuMemFreeAsync(p, streams[i]));
        }
        OK(cuCtxSynchronize());
    }
    if (!agrees_soon(held, card_own, 0))
        fail("streams");
}

/* A pool is destroyed; what was in it is taken until the program synchronizes, and free then. */
static void scene_destroyed_pool(void)
{
    CUdeviceptr p, q;
    start();
    for (int i = 0; i < 3; i++) {
        CUmemoryPool pool = own_pool(UINT64_MAX);
        OK(cuMemAllocFromPoolAsync(&p, 192 * MIB, pool, NULL));
        OK(cuMemPoolDestroy(pool));
        SAME(held(), context_size + 192 * MIB);
        OK(cuMemFreeAsync(p, NULL));
        SAME(card_own(0), context_size + 192 * MIB);
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&q, 200 * MIB));
        OK(cuCtxSynchronize());
        OK(cuMemAlloc(&q, 200 * MIB)); /* at once */
        OK(cuMemFree(q));
        SAME(held(), context_size);
    }
}

/* Another process's pool shrinks when it synchronizes, which no hook sees. */
static void scene_other_pool(void)
{
    int to_child[2], to_parent[2];
    char byte = 0;
    CUdeviceptr p;
    if (pipe(to_child) != 0 || pipe(to_parent) != 0)
        fail("no pipes");
    if (fork() == 0) {
        start();
        for (int i = 0; i < 10; i++) {
            OK(cuMemAllocAsync(&p, 192 * MIB, NULL));
            say(to_parent[1], &byte, 1);
            hear(to_child[0], &byte, 1);
            OK(cuMemFreeAsync(p, NULL));
            OK(cuCtxSynchronize());
            say(to_parent[1], &byte, 1);
            hear(to_child[0], &byte, 1);
        }
        _exit(0);
    }
    start();
    for (int i = 0; i < 10; i++) {
        hear(to_parent[0], &byte, 1);
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 100 * MIB));
        say(to_child[1], &byte, 1);
        hear(to_parent[0], &byte, 1);
        OK(cuMemAlloc(&p, 200 * MIB)); /* at once */
        OK(cuMemFree(p));
        say(to_child[1], &byte, 1);
    }
}

/* Memory of streams that are gone is seen before a refusal, not only at the next look. */
static void scene_module_gone(void)
{
    CUstream streams[60];
    CUdeviceptr p;
    start();
    for (int i = 0; i < 60; i++)
        OK(cuStreamCreate(&streams[i], 0));
    if (!agrees_soon(held, card_own, 0))
        fail("streams are not charged");
    CUmemGenericAllocationHandle all = fill_up(0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 20 * MIB));
    for (int i = 0; i < 60; i++)
        OK(cuStreamDestroy(streams[i]));
    OK(cuMemAlloc(&p, 20 * MIB));
    OK(cuMemRelease(all));
}

/* What lives in a context ends with it, and nothing else does. */
static void scene_own_context(void)
{
    CUcontext own, primary;
    CUdeviceptr p, pool, handle_at;
    CUarray array;
    CUmipmappedArray mipmap;
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1000, .Height = 1000, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 100, .Height = 100, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle;
    primary = start();
    for (int i = 0; i < 3; i++) {
        OK(cuCtxCreate(&own, NULL, 0, 0));
        SAME(held(), 2 * context_size);
        OK(cuMemAlloc(&p, 30 * MIB));
        OK(cuMemAlloc(&p, 1));
        OK(cuArrayCreate(&array, &flat));
        OK(cuMipmappedArrayCreate(&mipmap, &desc, 3));
        OK(cuMemAllocAsync(&pool, 20 * MIB, NULL));
        OK(cuMemCreate(&handle, PAGE, &prop, 0));
        OK(cuMemAddressReserve(&handle_at, PAGE, 0, 0, 0));
        OK(cuMemMap(handle_at, PAGE, 0, handle, 0));
        OK(cuCtxDestroy(own));
        OK(cuCtxSetCurrent(primary));
        if (!agrees_soon(held, card_own, 0))
            fail("a context's end");
        SAME(held(), context_size + 32 * MIB + PAGE); /* pools and handles live on */
        GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
        OK(cuMemFree(pool));
        OK(cuMemRelease(handle));
        OK(cuMemUnmap(handle_at, PAGE));
        OK(cuCtxSynchronize());
        SAME(held(), context_size);
        SAME(held(), card_own(0));
    }
}

/* Where small arrays lie is not told: they are charged for the worst until it is measured. */
static void scene_small_arrays(void)
{
    enum { ARRAYS = 60 };
    CUarray arrays[ARRAYS] = {NULL};
    start();
    seed_with(7);
    for (int i = 0; i < 600; i++) {
        CUarray *array = &arrays[any(ARRAYS)];
        CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1 + any(450),
                                      .Height = 1 + any(450),
                                      .Format = CU_AD_FORMAT_FLOAT,
                                      .NumChannels = 1};
        if (*array) {
            OK(cuArrayDestroy(*array));
            *array = NULL;
        } else {
            OK(cuArrayCreate(array, &flat));
        }
        if (held() < card_own(0))
            fail("step %d: %llu are charged, the card has %llu", i, (unsigned long long)held(),
                 (unsigned long long)card_own(0));
    }
    if (!agrees_soon(held, card_own, 0))
        fail("small arrays");
    for (int i = 0; i < ARRAYS; i++)
        if (arrays[i])
            OK(cuArrayDestroy(arrays[i]));
    if (!agrees_soon(held, card_own, 0))
        fail("no arrays");
    SAME(held(), context_size);
}

static void *retain_primary(void *result)
{
    CUcontext made;
    *(CUresult *)result = cuDevicePrimaryCtxRetain(&made, 0);
    return NULL;
}

/* Several threads want the primary context at once, and there is room for one. */
static void scene_primary_race(void)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    CUresult results[THREADS];
    OK(cuInit(0));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, retain_primary, &results[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        OK(results[i]);
    SAME(held_by_nvml(0), card_own(0));
    for (int i = 0; i < THREADS; i++) {
        SAME(card_own(0), context_size);
        OK(cuDevicePrimaryCtxRelease(0));
    }
    SAME(held_by_nvml(0), 0);
    SAME(card_own(0), 0);
}

static void *raise_stacks(void *result)
{
    *(CUresult *)result = cuCtxSetCurrent(context);
    if (*(CUresult *)result == CUDA_SUCCESS)
        *(CUresult *)result = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096);
    return NULL;
}

/* NVML has no figure that would correct what both are charged. */
static void scene_stacks_race(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    CUresult results[THREADS];
    context = start();
    uint64_t ours = held(), cards = card_own(0);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, raise_stacks, &results[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        OK(results[i]);
    SAME(held() - ours, card_own(0) - cards);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    SAME(held() - ours, card_own(0) - cards);
}

/* --- capture and graphs ----------------------------------------------------------------------------------------- */

static void *disturb(void *data)
{
    CUdeviceptr p;
    size_t free_bytes, total;
    CUmemAllocationProp prop = memory_of(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle;
    (void)data;
    OK(cuCtxSetCurrent(context));
    CUmemoryPool pool = own_pool(0);
    for (int i = 0; i < 20; i++) { /* calls that break no capture by themselves */
        OK(cuMemGetInfo(&free_bytes, &total));
        OK(cuMemAllocAsync(&p, 40 * MIB, NULL));
        OK(cuMemFreeAsync(p, NULL));
        OK(cuMemAllocFromPoolAsync(&p, 3 * MIB, pool, NULL));
        OK(cuMemFreeAsync(p, NULL));
        OK(cuMemCreate(&handle, PAGE, &prop, 0));
        OK(cuMemRelease(handle));
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&p, 4096 * MIB, NULL));
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 4096 * MIB, &prop, 0));
        usleep(10000);
    }
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

/* For longer than the parked thread sleeps, in each mode: no call of ullage's breaks the capture. */
static void scene_capture(void)
{
    pthread_t thread;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p, pools;
    context = start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&pools, MIB, NULL)); /* a pool that is looked at */
    for (int mode = 0; mode < 3; mode++) {
        OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
        pthread_create(&thread, NULL, disturb, NULL);
        OK(cuMemAllocAsync(&p, 5 * MIB, stream));
        OK(cuMemsetD8Async(p, 1, 5 * MIB, stream));
        OK(cuMemFreeAsync(p, stream));
        size_t free_bytes, total;
        OK(cuMemGetInfo(&free_bytes, &total));
        OK(cuMemAllocAsync(&p, 5 * MIB, NULL)); /* by the capturing thread, elsewhere */
        OK(cuMemFreeAsync(p, NULL));
        pthread_join(thread, NULL);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    OK(cuCtxSynchronize());
    if (!agrees_soon(held, card_own, 0))
        fail("after the captures");
}

/* Captured memory is charged when the graph is launched, refused then, and replay takes no more. */
static void scene_replay(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p, q;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemGenericAllocationHandle all = fill_up(4 * MIB);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&p, 100 * MIB, stream)); /* takes nothing yet */
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemRelease(all));
    OK(cuGraphInstantiate(&exec, graph, 0));
    if (!agrees_soon(held, card_own, 0))
        fail("a stream");
    SAME(card_own(0), context_size + 2 * MIB);
    OK(cuMemAlloc(&q, 200 * MIB));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, stream));
    SAME(held(), card_own(0));
    OK(cuMemFree(q));
    for (int i = 0; i < 100; i++) {
        OK(cuGraphLaunch(exec, stream));
        SAME(held(), context_size + 130 * MIB);
        SAME(held(), card_own(0));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemAlloc(&q, 250 * MIB)); /* the graph is not running: its memory is given back for this */
    SAME(held(), card_own(0));
    OK(cuMemFree(q));
    OK(cuGraphExecDestroy(exec));
    OK(cuDeviceGraphMemTrim(0));
    SAME(held(), context_size + 2 * MIB);
}

static void nap(void *data)
{
    (void)data;
    usleep(100000);
}

/* Two graphs of 160 MiB at once do not fit into 298; one after another they do. */
static void scene_two_graphs(void)
{
    CUstream a, b;
    CUgraph graph[2];
    start();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CUgraphExec one = graph_of(160 * MIB, &graph[0]), two = graph_of(160 * MIB, &graph[1]);
    for (int i = 0; i < 3; i++) {
        OK(cuLaunchHostFunc(a, nap, NULL));
        OK(cuGraphLaunch(one, a));
        CUresult result = cuGraphLaunch(two, b);
        if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_SUCCESS)
            fail("the second graph gave %d", result);
        if (card_own(0) > 400 * MIB)
            fail("two graphs at once took %llu", (unsigned long long)card_own(0));
        OK(cuCtxSynchronize());
        OK(cuGraphLaunch(two, a));
        OK(cuGraphLaunch(one, a));
        OK(cuCtxSynchronize());
    }
    if (!agrees_soon(held, card_own, 0))
        fail("after two graphs");
}

/* --- NVML is of no or little help ------------------------------------------------------------------------------- */

/* Changes are the card's, whatever the context is charged. */
static void scene_estimated(void)
{
    CUdeviceptr p, q;
    CUcontext own;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 100, .Height = 100, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    start();
    uint64_t ours = held(), cards = card_own(0);
    OK(cuMemAlloc(&p, 50 * MIB));
    OK(cuMemAllocAsync(&q, 20 * MIB, NULL));
    SAME(held() - ours, card_own(0) - cards);
    OK(cuMemFree(p));
    OK(cuMemFreeAsync(q, NULL));
    OK(cuCtxSynchronize());
    OK(cuArrayCreate(&array, &flat));
    OK(cuArrayDestroy(array));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
    SAME(held() - ours, card_own(0) - cards);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    SAME(held() - ours, card_own(0) - cards);
    OK(cuCtxCreate(&own, NULL, 0, 0));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
    OK(cuMemAlloc(&p, 50 * MIB));
    OK(cuCtxDestroy(own));
    OK(cuDevicePrimaryCtxRetain(&own, 0));
    OK(cuCtxSetCurrent(own));
    SAME(held(), ours);
    SAME(card_own(0), cards);
}

/* --- the last bytes: "last GO DONE": takes one page when GO exists, keeps it until DONE does ------------------------- */

static void scene_last(void)
{
    CUdeviceptr p;
    start();
    printf("ready\n");
    fflush(stdout);
    while (access(arguments[0], F_OK) != 0)
        usleep(1000);
    CUresult result = cuMemAlloc(&p, PAGE);
    printf("result %d\n", result);
    fflush(stdout);
    while (access(arguments[1], F_OK) != 0)
        usleep(5000);
}

/* "hold MIB": until it is ended. */
static void scene_hold(void)
{
    CUdeviceptr p;
    start();
    OK(cuMemAlloc(&p, strtoull(arguments[0], NULL, 10) * MIB));
    printf("holding\n");
    fflush(stdout);
    pause();
}

/* "until MIB": tries until it is given, and tells how often it was refused. */
static void scene_until(void)
{
    CUdeviceptr p;
    long refused = 0;
    uint64_t bytes = strtoull(arguments[0], NULL, 10) * MIB;
    start();
    while (cuMemAlloc(&p, bytes) == CUDA_ERROR_OUT_OF_MEMORY && refused < 1000) {
        refused++;
        usleep(2000);
    }
    printf("refused %ld\n", refused);
}

/* --- what reports say ------------------------------------------------------------------------------------------------ */

/* Allocations of 100, 50 and 20 MiB, then 1 GiB refused three times in a row; "survive" goes on. */
static void scene_refused(void)
{
    CUdeviceptr p;
    start();
    OK(cuMemAlloc(&p, 20 * MIB));
    OK(cuMemAlloc(&p, 100 * MIB));
    OK(cuMemAllocAsync(&p, 50 * MIB, NULL));
    for (int i = 0; i < 3; i++)
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 1024 * MIB));
    if (arguments[0] && strcmp(arguments[0], "survive") == 0)
        OK(cuMemAlloc(&p, 10 * MIB));
    if (arguments[0] && strcmp(arguments[0], "slowly") == 0)
        for (int i = 0; i < 3; i++) {
            usleep(600000);
            GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 1024 * MIB));
        }
}

static const struct {
    const char *name;
    void (*play)(void);
} scenes[] = {
#define SCENE(name) {#name, scene_##name},
    SCENE(over) SCENE(max_request) SCENE(info) SCENE(total) SCENE(crowded) SCENE(debt) SCENE(small)
        SCENE(no_context) SCENE(host) SCENE(integrated) SCENE(bad_frees) SCENE(unused_reserve)
            SCENE(stream_order) SCENE(other_pool) SCENE(destroyed_pool) SCENE(module_gone)
                SCENE(primary_race) SCENE(stacks_race) SCENE(own_context) SCENE(small_arrays)
                    SCENE(capture) SCENE(replay) SCENE(two_graphs) SCENE(estimated) SCENE(last)
                        SCENE(hold) SCENE(until) SCENE(refused)
#undef SCENE
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(scenes[i].name, argv[1]) == 0) {
            arguments = argv + 2;
            scenes[i].play();
            return 0;
        }
    fail("no scene '%s'", argc > 1 ? argv[1] : "");
}
