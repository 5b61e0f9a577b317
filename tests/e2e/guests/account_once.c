/*
 * account_once.c: every kind of call once, each allowed to fail. Usage: account_once
 *
 * The fake driver is told to fail some call with 999. Prints the name of each call that gave 999; any
 * other code but 0 ends it with 1, and so does an account that is not the card's after any call. What
 * fails to be freed is freed again. At the end nothing may be held.
 */
#include "account.h"

#include <stdio.h>
#include <string.h>

enum { INJECTED = 999 };

static uint64_t managed;

static bool gave(const char *name, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return true;
    if (result != INJECTED)
        fail("%s gave %d", name, result);
    printf("%s\n", name);
    return false;
}
#define DID(call) gave(#call, call)
/* A failed free leaves all as it was: the second must succeed. */
#define FREED(call)                                                                                \
    do {                                                                                           \
        if (!DID(call)) {                                                                          \
            settle(#call);                                                                         \
            OK(call);                                                                              \
        }                                                                                          \
        settle(#call);                                                                             \
    } while (0)

static void settle(const char *after)
{
    if (!agrees_soon(held, card_own, managed))
        fail("after %s", after);
}

static void linear(void)
{
    CUdeviceptr p, q, m;
    size_t pitch;
    bool a = DID(cuMemAlloc(&p, 3 * MIB)), b = DID(cuMemAllocPitch(&q, &pitch, 5000, 100, 4));
    bool c = DID(cuMemAllocManaged(&m, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    managed = c ? 4 * MIB : 0;
    settle("linear");
    if (a)
        FREED(cuMemFree(p));
    if (b)
        FREED(cuMemFree(q));
    if (c && !DID(cuMemFree(m)))
        OK(cuMemFree(m));
    managed = 0;
    settle("managed");
}

static void pools(void)
{
    CUmemPoolProps props;
    CUmemoryPool pool = NULL;
    CUdeviceptr p, q;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    bool a = DID(cuMemAllocAsync(&p, 3 * MIB, NULL));
    settle("cuMemAllocAsync");
    if (DID(cuMemPoolCreate(&pool, &props))) {
        if (DID(cuMemAllocFromPoolAsync(&q, 40 * MIB, pool, NULL))) {
            settle("cuMemAllocFromPoolAsync");
            FREED(cuMemFreeAsync(q, NULL));
        }
        OK(cuCtxSynchronize());
        FREED(cuMemPoolDestroy(pool));
    }
    if (a)
        FREED(cuMemFree(p));
}

static void virtual_memory(void)
{
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    if (DID(cuMemCreate(&handle, PAGE, &prop, 0))) {
        bool mapped = DID(cuMemMap(at, PAGE, 0, handle, 0));
        settle("cuMemMap");
        FREED(cuMemRelease(handle));
        if (mapped)
            FREED(cuMemUnmap(at, PAGE));
    }
    OK(cuMemAddressFree(at, PAGE));
}

static void arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1000, .Height = 1000, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUarray a, b;
    CUmipmappedArray m;
    memset(&desc, 0, sizeof desc);
    desc.Width = desc.Height = 100;
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 1;
    bool has_a = DID(cuArrayCreate(&a, &flat)), has_b = DID(cuArray3DCreate(&b, &desc));
    bool has_m = DID(cuMipmappedArrayCreate(&m, &desc, 3));
    settle("arrays");
    if (has_a)
        FREED(cuArrayDestroy(a));
    if (has_b)
        FREED(cuArrayDestroy(b));
    if (has_m)
        FREED(cuMipmappedArrayDestroy(m));
}

static void graphs(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode alloc, release;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = 40 * MIB;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    OK(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
    if (DID(cuGraphInstantiate(&exec, graph, 0))) {
        DID(cuGraphUpload(exec, NULL));
        settle("cuGraphUpload");
        DID(cuGraphLaunch(exec, NULL));
        settle("cuGraphLaunch");
        OK(cuCtxSynchronize());
        FREED(cuGraphExecDestroy(exec));
    }
    OK(cuGraphDestroy(graph));
    FREED(cuDeviceGraphMemTrim(0));
}

static void code_and_limits(void)
{
    CUstream stream;
    CUmodule module;
    if (DID(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
        FREED(cuStreamDestroy(stream));
    if (DID(cuModuleLoadData(&module, "\n.version 8.0\n.visible .entry fill(){}")))
        FREED(cuModuleUnload(module));
    DID(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    settle("cuCtxSetLimit");
    FREED(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
}

static void contexts(void)
{
    CUcontext own, primary;
    OK(cuCtxGetCurrent(&primary));
    if (DID(cuCtxCreate(&own, NULL, 0, 0))) {
        CUdeviceptr p;
        DID(cuMemAlloc(&p, 3 * MIB));
        settle("cuCtxCreate");
        FREED(cuCtxDestroy(own));
    }
    OK(cuCtxSetCurrent(primary));
}

static void shared_names(void)
{
    CUdeviceptr p;
    CUipcMemHandle name;
    if (!DID(cuMemAlloc(&p, 3 * MIB)))
        return;
    DID(cuIpcGetMemHandle(&name, p));
    FREED(cuMemFree(p));
}

static uint64_t without_context(void)
{
    return held_by_nvml(0);
}

int main(void)
{
    CUcontext context;
    OK(cuInit(0));
    if (!DID(cuDevicePrimaryCtxRetain(&context, 0))) {
        SAME(held_by_nvml(0), 0);
        OK(cuDevicePrimaryCtxRetain(&context, 0));
    }
    OK(cuCtxSetCurrent(context));
    settle("the start");
    linear();
    pools();
    virtual_memory();
    arrays();
    graphs();
    code_and_limits();
    contexts();
    shared_names();
    OK(cuCtxSynchronize());
    if (!DID(cuDevicePrimaryCtxRelease(0)))
        OK(cuDevicePrimaryCtxRelease(0));
    if (!agrees_soon(without_context, card_own, 0))
        fail("at the end");
    SAME(card_own(0), 0);
    return 0;
}
