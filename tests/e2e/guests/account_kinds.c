/*
 * account_kinds.c: a random program over every kind of memory. Usage: account_kinds SEED STEPS
 *
 * After every step what ullage says is held must be what the card says this process has taken, to the
 * byte; at the end, when all has been freed in random order, exactly nothing. The card does not count
 * managed memory for the process, ullage counts all of it at its allocation; so it is added.
 */
#include "account.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 512, OWN_CONTEXTS = 2, STREAMS = 3, POOLS = 3 };

enum kind { LINEAR, MANAGED, ASYNC, HANDLE, MAPPING, ARRAY, MIPMAP, GRAPH };

struct thing {
    enum kind kind;
    uint64_t value, size;
    uint64_t managed;
    int context; /* that it ends with; -1: none */
    CUgraph graph;
    CUdeviceptr escaped; /* memory that a graph allocated and did not free */
};

static struct thing things[MAX];
static int count;
static CUcontext contexts[1 + OWN_CONTEXTS]; /* the primary first */
static CUstream streams[STREAMS];            /* of the primary context */
static CUmemoryPool pools[POOLS], default_pool;
static uint64_t managed;
static const char *last = "the start";
static bool doubt; /* what is left of destroyed pools and the places of small arrays are measured */
static bool lags;  /* something happened whose memory only NVML shows */

static uint64_t some_size(void)
{
    static const uint64_t sizes[] = {1,       512,           70000,   1 << 20, (1 << 20) + 1,
                                     2 << 20, (2 << 20) + 1, 5 << 20, 33 << 20};
    uint64_t size = sizes[any(sizeof sizes / sizeof *sizes)];
    return any(3) ? size : 1 + any(size);
}

static struct thing *add(enum kind kind, uint64_t value, uint64_t size)
{
    if (count == MAX)
        fail("too many things");
    things[count] = (struct thing){.kind = kind, .value = value, .size = size, .context = -1};
    return &things[count++];
}

static int current_index(void)
{
    CUcontext current;
    OK(cuCtxGetCurrent(&current));
    for (int i = 0; i <= OWN_CONTEXTS; i++)
        if (contexts[i] == current)
            return i;
    fail("an unknown context is current");
}

static CUstream some_stream(void)
{
    return streams[any(STREAMS)];
}

static CUmemAllocationProp device_memory(void)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

/* --- taking ----------------------------------------------------------------------------------------- */

static void take_linear(void)
{
    last = __func__;
    CUdeviceptr p;
    size_t pitch = 0;
    uint64_t size = some_size();
    if (any(4) == 0) {
        uint64_t height = 1 + any(64);
        OK(cuMemAllocPitch(&p, &pitch, 1 + any(60000), height, 4));
        size = pitch * height;
    } else {
        OK(cuMemAlloc(&p, size));
    }
    add(LINEAR, p, size)->context = current_index();
}

static void take_managed(void)
{
    last = __func__;
    CUdeviceptr p;
    uint64_t size = some_size(), whole = (size + PAGE - 1) / PAGE * PAGE;
    OK(cuMemAllocManaged(&p, size, CU_MEM_ATTACH_GLOBAL));
    struct thing *thing = add(MANAGED, p, size);
    thing->managed = whole;
    managed += whole;
}

static struct thing *some_thing(enum kind kind)
{
    int start = count ? (int)any((uint64_t)count) : 0;
    for (int i = 0; i < count; i++)
        if (things[(start + i) % count].kind == kind)
            return &things[(start + i) % count];
    return NULL;
}

static void touch_managed(void)
{
    last = __func__;
    struct thing *thing = some_thing(MANAGED);
    if (thing)
        OK(cuMemsetD8(thing->value, 1, thing->size));
}

static void take_async(void)
{
    last = __func__;
    CUdeviceptr p;
    uint64_t size = some_size();
    CUmemoryPool pool = pools[any(POOLS)];
    if (pool && any(2))
        OK(cuMemAllocFromPoolAsync(&p, size, pool, some_stream()));
    else
        OK(cuMemAllocAsync(&p, size, some_stream()));
    add(ASYNC, p, size);
}

static void take_handle(void)
{
    last = __func__;
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle handle;
    uint64_t size = (1 + any(4)) * PAGE;
    OK(cuMemCreate(&handle, size, &prop, 0));
    add(HANDLE, handle, size);
}

/* Maps one handle, or two side by side that one unmap will end. */
static void map_handle(void)
{
    last = __func__;
    struct thing *a = some_thing(HANDLE), *b = some_thing(HANDLE);
    CUdeviceptr at;
    if (!a)
        return;
    uint64_t size = a->size + (a != b ? b->size : 0);
    OK(cuMemAddressReserve(&at, size, 0, 0, 0));
    OK(cuMemMap(at, a->size, 0, a->value, 0));
    if (a != b)
        OK(cuMemMap(at + a->size, b->size, 0, b->value, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, a->size, 0, a->value, 0)); /* taken */
    add(MAPPING, at, size);
}

static void retain_handle(void)
{
    last = __func__;
    struct thing *mapping = some_thing(MAPPING);
    CUmemGenericAllocationHandle handle;
    if (!mapping)
        return;
    OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)mapping->value));
    uint64_t size = PAGE; /* of the handle itself if it is known here, else it is not mapped again */
    for (int i = 0; i < count; i++)
        if (things[i].kind == HANDLE && things[i].value == handle)
            size = things[i].size;
    if (size == PAGE) {
        OK(cuMemRelease(handle));
        return;
    }
    add(HANDLE, handle, size);
}

static void take_array(void)
{
    last = __func__;
    doubt = true;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    memset(&desc, 0, sizeof desc);
    desc.Width = 1 + any(1500);
    desc.Height = any(3) ? 1 + any(1500) : 0;
    desc.Depth = any(5) || !desc.Height ? 0 : 1 + any(4);
    desc.Format = any(2) ? CU_AD_FORMAT_FLOAT : CU_AD_FORMAT_UNSIGNED_INT8;
    desc.NumChannels = 1u << any(3);
    struct thing *thing;
    if (any(3) == 0) {
        CUmipmappedArray array;
        OK(cuMipmappedArrayCreate(&array, &desc, 1 + (unsigned int)any(4)));
        thing = add(MIPMAP, (uint64_t)(uintptr_t)array, 0);
    } else if (any(2) && desc.Depth == 0) {
        CUDA_ARRAY_DESCRIPTOR flat = {.Width = desc.Width,
                                      .Height = desc.Height,
                                      .Format = desc.Format,
                                      .NumChannels = desc.NumChannels};
        CUarray array;
        OK(cuArrayCreate(&array, &flat));
        thing = add(ARRAY, (uint64_t)(uintptr_t)array, 0);
    } else {
        CUarray array;
        OK(cuArray3DCreate(&array, &desc));
        thing = add(ARRAY, (uint64_t)(uintptr_t)array, 0);
    }
    thing->context = current_index();
}

/* A graph that allocates, by nodes or by capture, launched at once; sometimes the memory outlives it. */
static void take_graph(void)
{
    last = __func__;
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream = some_stream();
    CUdeviceptr p;
    bool keep = any(3) == 0;
    if (any(2)) {
        CUgraphNode alloc, release;
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        params.bytesize = some_size();
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
        p = params.dptr;
        if (!keep)
            OK(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, p));
    } else {
        OK(cuStreamBeginCapture(stream, any(2) ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                               : CU_STREAM_CAPTURE_MODE_RELAXED));
        uint64_t before = card_own(0);
        OK(cuMemAllocAsync(&p, some_size(), stream));
        SAME(card_own(0), before); /* nothing until it is launched */
        if (!keep)
            OK(cuMemFreeAsync(p, stream));
        OK(cuStreamEndCapture(stream, &graph));
    }
    OK(cuGraphInstantiate(&exec, graph, 0));
    if (any(2))
        OK(cuGraphUpload(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    if (!keep)
        for (uint64_t again = any(3); again; again--)
            OK(cuGraphLaunch(exec, stream));
    struct thing *thing = add(GRAPH, (uint64_t)(uintptr_t)exec, 0);
    thing->graph = graph;
    thing->escaped = keep ? p : 0;
}

/* --- giving back ------------------------------------------------------------------------------------- */

struct freeing {
    CUcontext context;
    CUdeviceptr address;
    CUstream stream;
    bool async;
    CUresult result;
};

static void *free_elsewhere(void *data)
{
    struct freeing *freeing = data;
    OK(cuCtxSetCurrent(freeing->context));
    freeing->result = freeing->async ? cuMemFreeAsync(freeing->address, freeing->stream)
                                     : cuMemFree(freeing->address);
    return NULL;
}

/* Under this context and thread, or others. */
static void release_address(CUdeviceptr address, bool async)
{
    struct freeing freeing = {.address = address, .async = async, .stream = some_stream()};
    pthread_t thread;
    freeing.context = contexts[0];
    for (int i = 1; i <= OWN_CONTEXTS && !async; i++)
        if (contexts[i] && any(2))
            freeing.context = contexts[i];
    if (any(2)) {
        if (pthread_create(&thread, NULL, free_elsewhere, &freeing) != 0 ||
            pthread_join(thread, NULL) != 0)
            fail("no thread");
    } else {
        CUcontext current;
        OK(cuCtxGetCurrent(&current));
        free_elsewhere(&freeing);
        OK(cuCtxSetCurrent(current));
    }
    OK(freeing.result);
}

static void give_back(int i)
{
    struct thing thing = things[i];
    static const char *const names[] = {"free of linear",      "free of managed", "free of async",
                                        "release of a handle", "unmap",           "end of an array",
                                        "end of a mipmap",     "end of a graph"};
    last = names[thing.kind];
    things[i] = things[--count];
    switch (thing.kind) {
    case LINEAR:
        release_address(thing.value, false);
        break;
    case MANAGED:
        release_address(thing.value, false);
        managed -= thing.managed;
        break;
    case ASYNC:
        release_address(thing.value, any(4) != 0);
        break;
    case HANDLE:
        OK(cuMemRelease(thing.value));
        break;
    case MAPPING:
        if (any(2)) /* still mapped: refused, and nothing changes */
            GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(thing.value, thing.size));
        OK(cuMemUnmap(thing.value, thing.size));
        OK(cuMemAddressFree(thing.value, thing.size));
        break;
    case ARRAY:
        OK(cuArrayDestroy((CUarray)(uintptr_t)thing.value));
        break;
    case MIPMAP:
        OK(cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)thing.value));
        break;
    case GRAPH:
        OK(cuStreamSynchronize(streams[0]));
        if (thing.escaped)
            release_address(thing.escaped, any(2));
        OK(cuGraphExecDestroy((CUgraphExec)(uintptr_t)thing.value));
        OK(cuGraphDestroy(thing.graph));
        if (any(2))
            OK(cuDeviceGraphMemTrim(0));
        break;
    }
}

static void give_back_some(void)
{
    if (count)
        give_back((int)any((uint64_t)count));
}

/* --- other things ------------------------------------------------------------------------------------ */

static void change_pools(void)
{
    last = __func__;
    int i = (int)any(POOLS);
    CUmemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (!pools[i]) {
        uint64_t threshold = any(2) ? UINT64_MAX : 0;
        OK(cuMemPoolCreate(&pools[i], &props));
        OK(cuMemPoolSetAttribute(pools[i], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
        return;
    }
    switch (any(3)) {
    case 0:
        OK(cuDeviceSetMemPool(0, any(2) ? pools[i] : default_pool));
        break;
    case 1:
        OK(cuMemPoolTrimTo(pools[i], any(2) * 64 * MIB));
        break;
    default: /* in use or not */
        OK(cuMemPoolDestroy(pools[i]));
        pools[i] = NULL;
        doubt = true;
    }
}

static void synchronize(void)
{
    last = __func__;
    if (any(2))
        OK(cuCtxSynchronize());
    else
        OK(cuStreamSynchronize(some_stream()));
}

/* Makes a context of its own, uses it, or destroys it with live memory in it. */
static void change_contexts(void)
{
    last = __func__;
    int i = 1 + (int)any(OWN_CONTEXTS);
    if (!contexts[i]) {
        OK(cuCtxCreate(&contexts[i], NULL, 0, 0));
        OK(cuCtxPopCurrent(NULL));
        return;
    }
    if (any(2)) {
        OK(cuCtxSetCurrent(contexts[i]));
        any(2) ? take_linear() : take_array();
        if (any(3) == 0)
            OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 * (1 + any(8))));
        lags = true;
        OK(cuCtxSetCurrent(contexts[0]));
        return;
    }
    for (int k = count; k-- > 0;)
        if (things[k].context == i)
            things[k] = things[--count];
    OK(cuCtxDestroy(contexts[i]));
    contexts[i] = NULL;
    lags = true;
}

static void change_what_only_nvml_shows(void)
{
    last = __func__;
    CUmodule module;
    CUstream more[5];
    lags = true;
    switch (any(3)) {
    case 0:
        OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 * (1 + any(16))));
        break;
    case 1:
        for (int i = 0; i < 5; i++)
            OK(cuStreamCreate(&more[i], CU_STREAM_NON_BLOCKING));
        for (int i = 0; i < 5; i++)
            OK(cuStreamDestroy(more[i]));
        break;
    default:
        OK(cuModuleLoadData(&module, "\n.version 8.0\n.visible .entry fill(){}"));
        OK(cuModuleUnload(module));
    }
}

static void retain_primary(void)
{
    last = __func__;
    CUcontext again;
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    SAME(again == contexts[0], true);
    OK(cuDevicePrimaryCtxRelease(0));
}

/* What is refused by the driver changes nothing. */
static void do_wrong(void)
{
    last = __func__;
    CUdeviceptr p = 0;
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle handle;
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(0x123456789000));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE + 1, &prop, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(0x7000, PAGE));
    struct thing *linear = some_thing(LINEAR);
    if (linear && linear->size > 1)
        GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(linear->value + 1));
    struct thing *mapping = some_thing(MAPPING);
    if (mapping) /* reaches into the next reservation, or past the end of this one */
        GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(mapping->value, mapping->size + PAGE));
}

static void step(void)
{
    switch (any(16)) {
    case 0:
    case 1:
        take_linear();
        break;
    case 2:
        take_managed();
        break;
    case 3:
    case 4:
        take_async();
        break;
    case 5:
        take_handle();
        break;
    case 6:
        map_handle();
        break;
    case 7:
        take_array();
        break;
    case 8:
        any(2) ? take_graph() : retain_handle();
        break;
    case 9:
        change_pools();
        break;
    case 10:
        any(3) ? synchronize() : touch_managed();
        break;
    case 11:
        any(8) ? retain_primary() : change_contexts();
        break;
    case 12:
        any(8) ? do_wrong() : change_what_only_nvml_shows();
        break;
    default:
        give_back_some();
    }
    while (count > MAX / 8)
        give_back_some();
}

static void compare(const char *when, long number)
{
    uint64_t ours = held(), cards = card_own(0) + managed;
    if (ours == cards)
        return;
    bool may_lag = lags || (doubt && ours > cards);
    if (!may_lag || !agrees_soon(held, card_own, managed))
        fail("%s %ld (%s): ullage says %llu, the card %llu", when, number, last,
             (unsigned long long)ours, (unsigned long long)cards);
    lags = false;
}

static void end_all(void)
{
    while (count) {
        give_back_some();
        compare("at the end, left", count);
    }
    for (int i = 0; i < POOLS; i++)
        if (pools[i])
            OK(cuMemPoolDestroy(pools[i]));
    for (int i = 1; i <= OWN_CONTEXTS; i++)
        if (contexts[i])
            OK(cuCtxDestroy(contexts[i]));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    OK(cuCtxSynchronize());
    OK(cuDeviceGraphMemTrim(0));
    lags = true;
    compare("when all is freed", 0);
    if (any(2))
        OK(cuDevicePrimaryCtxRelease(0));
    else
        OK(cuDevicePrimaryCtxReset(0));
}

static uint64_t held_without_context(void)
{
    return held_by_nvml(0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    long steps = strtol(argv[2], NULL, 10);
    seed_with(seed);
    contexts[0] = start();
    OK(cuDeviceGetDefaultMemPool(&default_pool, 0));
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : 0));
    lags = true;
    for (long i = 0; i < steps; i++) {
        step();
        compare("step", i);
    }
    end_all();
    if (!agrees_soon(held_without_context, card_own, 0))
        fail("without a context");
    SAME(card_own(0), 0);
    SAME(held_by_nvml(0), 0);
    return 0;
}
