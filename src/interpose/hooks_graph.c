/*
 * hooks_graph.c: graphs that allocate.
 *
 * Memory nodes take nothing when they are added or instantiated. At upload or launch the device's
 * reserve for graph memory grows, in the same steps as a pool; it is shared by graphs and kept until
 * cuDeviceGraphMemTrim (all measured, driver_facts graph.*). Graphs that run one after another share it;
 * those that run at the same time do not, so that each may need its whole worst case. Graphs without
 * memory nodes cost one test of a counter per launch.
 */
#include <string.h>

#include "interpose.h"
#include "table.h"

enum { GRAPH_STEP = 32 << 20, MAX_DEPTH = 8 };

struct exec {
    uint64_t worst; /* bytes of its memory nodes, each in whole steps */
    const struct ull__gpu *gpu;
};

static struct {
    pthread_mutex_t lock;
    struct ull__table execs;      /* CUgraphExec -> struct exec * */
    uint64_t worst[MAX_ORDINALS]; /* the sum of all of a device, should they run at once */
    _Atomic size_t count;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Adds up the memory nodes of a graph and its child graphs. */
static uint64_t graph_bytes(CUgraph graph, const struct ull__gpu **gpu, int depth)
{
    const union ull__cuda *real = ull__driver;
    size_t count = 0;
    uint64_t sum = 0;
    if (depth > MAX_DEPTH || !real->cuGraphMemAllocNodeGetParams ||
        real->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return 0;
    CUgraphNode *nodes = malloc(count * sizeof *nodes);
    if (!nodes || real->cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        if (real->cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
            real->cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
            sum += graph_bytes(child, gpu, depth + 1);
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            real->cuGraphMemAllocNodeGetParams(nodes[i], &params) == CUDA_SUCCESS) {
            sum += (params.bytesize + GRAPH_STEP - 1) / GRAPH_STEP * GRAPH_STEP;
            if (params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
                *gpu = ull__gpu_of(params.poolProps.location.id);
        }
    }
    free(nodes);
    return sum;
}

static CUresult instantiated(CUresult result, const CUgraphExec *handle, CUgraph graph)
{
    if (result != CUDA_SUCCESS)
        return result;
    const struct ull__gpu *gpu = ull__current_gpu();
    uint64_t worst = graph_bytes(graph, &gpu, 0);
    struct exec *exec = worst && gpu ? malloc(sizeof *exec) : NULL;
    if (exec) {
        *exec = (struct exec){.worst = worst, .gpu = gpu};
        pthread_mutex_lock(&books.lock);
        if (ull__table_add(&books.execs, (uint64_t)(uintptr_t)*handle, (uint64_t)(uintptr_t)exec)) {
            books.worst[gpu - ull__state.gpus] += worst;
            atomic_fetch_add(&books.count, 1);
        }
        pthread_mutex_unlock(&books.lock);
    }
    atomic_store_explicit(&ull__state.code_changed, true, memory_order_relaxed);
    return result;
}

static bool find(CUgraphExec handle, struct exec *found, uint64_t *all)
{
    if (likely(atomic_load_explicit(&books.count, memory_order_relaxed) == 0))
        return false;
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = ull__table_find(&books.execs, (uint64_t)(uintptr_t)handle);
    if (entry) {
        *found = *(struct exec *)(uintptr_t)entry->value;
        *all = books.worst[found->gpu - ull__state.gpus];
    }
    pthread_mutex_unlock(&books.lock);
    return entry != NULL;
}

/* Where all graphs together fit into the reserve as it is, a launch cannot make it grow. */
static CUresult launch(CUgraphExec handle, CUstream stream, bool per_thread, const char *name,
                       CUresult (*call)(CUgraphExec, CUstream))
{
    struct exec exec;
    uint64_t all;
    if (!find(handle, &exec, &all) || ull__capturing(stream, per_thread, false))
        return call(handle, stream);
    struct ull__reserve *reserve = ull__reserve_of(exec.gpu, NULL);
    CUstream order = per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
    if (!reserve)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ull__reserve_charged(reserve) >= all) {
        CUresult result = call(handle, stream);
        ull__reserve_refresh(reserve);
        return result;
    }
    struct ull__charge charge = {.began_ns = ull__moment_now()};
    if (!ull__reserve_begin(reserve, exec.worst, exec.worst, name, order, &charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = call(handle, stream);
    ull__reserve_end(reserve, exec.worst);
    return result;
}

static CUresult call_launch(CUgraphExec exec, CUstream stream)
{
    return ull__driver->cuGraphLaunch(exec, stream);
}

static CUresult call_launch_ptsz(CUgraphExec exec, CUstream stream)
{
    return ull__driver->cuGraphLaunch_ptsz(exec, stream);
}

static CUresult call_upload(CUgraphExec exec, CUstream stream)
{
    return ull__driver->cuGraphUpload(exec, stream);
}

static CUresult call_upload_ptsz(CUgraphExec exec, CUstream stream)
{
    return ull__driver->cuGraphUpload_ptsz(exec, stream);
}

CUresult ull__do_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, false, "cuGraphLaunch", call_launch);
}

CUresult ull__do_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, true, "cuGraphLaunch", call_launch_ptsz);
}

CUresult ull__do_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, false, "cuGraphUpload", call_upload);
}

CUresult ull__do_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, true, "cuGraphUpload", call_upload_ptsz);
}

static bool may_instantiate(void)
{
    return ull__may_grow(ull__current_gpu(), ULL_CLASS_GRAPH, "cuGraphInstantiate");
}

CUresult ull__do_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                    char *log_buffer, size_t buffer_size)
{
    if (!may_instantiate())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(
        ull__driver->cuGraphInstantiate(exec, graph, error_node, log_buffer, buffer_size), exec,
        graph);
}

CUresult ull__do_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                       char *log_buffer, size_t buffer_size)
{
    if (!may_instantiate())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(
        ull__driver->cuGraphInstantiate_v2(exec, graph, error_node, log_buffer, buffer_size), exec,
        graph);
}

CUresult ull__do_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                             unsigned long long flags)
{
    if (!may_instantiate())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(ull__driver->cuGraphInstantiateWithFlags(exec, graph, flags), exec, graph);
}

CUresult ull__do_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params)
{
    if (!may_instantiate())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(ull__driver->cuGraphInstantiateWithParams(exec, graph, instantiate_params),
                        exec, graph);
}

CUresult ull__do_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params)
{
    if (!may_instantiate())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(
        ull__driver->cuGraphInstantiateWithParams_ptsz(exec, graph, instantiate_params), exec, graph);
}

CUresult ull__do_cuGraphExecDestroy(CUgraphExec handle)
{
    struct exec *exec = NULL;
    if (atomic_load(&books.count) > 0) {
        pthread_mutex_lock(&books.lock);
        struct ull__table_entry *entry = ull__table_find(&books.execs, (uint64_t)(uintptr_t)handle);
        if (entry) {
            exec = (struct exec *)(uintptr_t)entry->value;
            ull__table_remove(&books.execs, entry);
            books.worst[exec->gpu - ull__state.gpus] -= exec->worst;
            atomic_fetch_sub(&books.count, 1);
        }
        pthread_mutex_unlock(&books.lock);
    }
    CUresult result = ull__driver->cuGraphExecDestroy(handle);
    if (exec)
        ull__reserve_refresh(ull__reserve_of(exec->gpu, NULL));
    free(exec);
    return result;
}

CUresult ull__do_cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = ull__driver->cuDeviceGraphMemTrim(device);
    const struct ull__gpu *gpu = ull__gpu_of(device);
    if (gpu && gpu->device >= 0)
        ull__reserve_refresh(ull__reserve_of(gpu, NULL));
    return result;
}

void ull__graphs_forget(void)
{
    memset(&books.execs, 0, sizeof books.execs);
    memset(books.worst, 0, sizeof books.worst);
    atomic_store(&books.count, 0);
    pthread_mutex_init(&books.lock, NULL);
}
