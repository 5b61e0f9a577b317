/*
 * graph.c: building graphs: nodes, their order, and the memory they allocate.
 *
 * Graphs of kernels, copies, memsets, host functions, events, child graphs and memory nodes.
 * Conditional nodes, semaphores, updates and cuGraphAddNode are not supported.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static CUgraph all;

CUgraph fake_graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph) {
        graph->next = all;
        if (all)
            all->previous = graph;
        all = graph;
    }
    return graph;
}

bool fake_graph_known(CUgraph graph)
{
    CUgraph g = all;
    while (g && g != graph)
        g = g->next;
    return g != NULL;
}

void fake_graph_delete(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->nodes[i];
        if (node->work.kind == FAKE_WORK_ALLOC)
            fake_graph_memory_drop(node->work.memory);
        if (node->work.kind == FAKE_WORK_GRAPH)
            fake_graph_delete(node->work.child);
        free(node->needs);
        free(node);
    }
    if (graph->previous)
        graph->previous->next = graph->next;
    else
        all = graph->next;
    if (graph->next)
        graph->next->previous = graph->previous;
    free(graph->nodes);
    free(graph);
}

CUresult fake_graph_add(CUgraph graph, const CUgraphNode *needs, size_t count,
                        const struct fake_work *work, CUgraphNode *out)
{
    if (!graph || (count > 0 && !needs))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->count == graph->room) {
        size_t room = graph->room ? 2 * graph->room : 16;
        CUgraphNode *more = realloc(graph->nodes, room * sizeof *more);
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        graph->nodes = more;
        graph->room = room;
    }
    CUgraphNode node = calloc(1, sizeof *node);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->needs = malloc((count + 1) * sizeof(CUgraphNode));
    if (!node->needs) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (count > 0)
        memcpy(node->needs, needs, count * sizeof(CUgraphNode));
    node->need_count = count;
    node->graph = graph;
    node->work = *work;
    graph->nodes[graph->count++] = node;
    if (out)
        *out = node;
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    FAKE_ENTER(cuGraphCreate, FAKE_INIT);
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = fake_graph_new();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    FAKE_ENTER(cuGraphDestroy, FAKE_INIT);
    if (!fake_graph_known(graph))
        return CUDA_ERROR_INVALID_VALUE;
    fake_graph_delete(graph);
    return CUDA_SUCCESS;
}

/* A deep copy; memory nodes cannot be copied, as on the real driver. */
static CUresult copy_graph(CUgraph original, CUgraph *out)
{
    CUgraph copy = fake_graph_new();
    CUresult r = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; r == CUDA_SUCCESS && i < original->count; i++) {
        struct fake_work work = original->nodes[i]->work;
        if (work.kind == FAKE_WORK_ALLOC || work.kind == FAKE_WORK_FREE)
            r = CUDA_ERROR_NOT_SUPPORTED;
        else if (work.kind == FAKE_WORK_GRAPH)
            r = copy_graph(original->nodes[i]->work.child, &work.child);
        if (r == CUDA_SUCCESS)
            r = fake_graph_add(copy, original->nodes[i]->needs, original->nodes[i]->need_count,
                               &work, NULL);
    }
    for (size_t i = 0; r == CUDA_SUCCESS && i < copy->count; i++)
        for (size_t k = 0; k < copy->nodes[i]->need_count; k++)
            for (size_t j = 0; j < original->count; j++)
                if (copy->nodes[i]->needs[k] == original->nodes[j])
                    copy->nodes[i]->needs[k] = copy->nodes[j];
    if (r == CUDA_SUCCESS)
        *out = copy;
    else if (copy)
        fake_graph_delete(copy);
    return r;
}

CUresult cuGraphClone(CUgraph *out, CUgraph original)
{
    FAKE_ENTER(cuGraphClone, FAKE_INIT);
    return out && original ? copy_graph(original, out) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    FAKE_ENTER(cuGraphAddEmptyNode, FAKE_INIT);
    struct fake_work work = {.kind = FAKE_WORK_EMPTY};
    return fake_graph_add(graph, needs, count, &work, node);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    FAKE_ENTER(cuGraphAddKernelNode, FAKE_CONTEXT);
    struct fake_work work;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = fake_kernel_work(params->func, params->kernelParams, params->extra, &work);
    return r == CUDA_SUCCESS ? fake_graph_add(graph, needs, count, &work, node) : r;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    FAKE_ENTER(cuGraphAddKernelNode_v2, FAKE_CONTEXT);
    struct fake_work work;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUfunction function = params->func ? params->func : (CUfunction)params->kern;
    CUresult r = fake_kernel_work(function, params->kernelParams, params->extra, &work);
    return r == CUDA_SUCCESS ? fake_graph_add(graph, needs, count, &work, node) : r;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
    FAKE_ENTER(cuGraphAddMemsetNode, FAKE_INIT);
    (void)ctx;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_work work = {.kind = FAKE_WORK_SET,
                             .set = {.dst = params->dst,
                                     .value = params->value,
                                     .element = params->elementSize,
                                     .width = params->width,
                                     .height = params->height,
                                     .pitch = params->pitch}};
    CUresult r = fake_work_check(&work);
    return r == CUDA_SUCCESS ? fake_graph_add(graph, needs, count, &work, node) : r;
}

/* One plane of a three-dimensional copy, which is what programs use it for. */
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                              size_t count, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
    FAKE_ENTER(cuGraphAddMemcpyNode, FAKE_INIT);
    (void)ctx;
    if (!p || p->Depth > 1 || p->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
        p->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct fake_work work = {.kind = FAKE_WORK_COPY};
    bool src_host = p->srcMemoryType == CU_MEMORYTYPE_HOST;
    bool dst_host = p->dstMemoryType == CU_MEMORYTYPE_HOST;
    work.copy.src = (src_host ? (CUdeviceptr)(uintptr_t)p->srcHost : p->srcDevice) +
                    p->srcY * p->srcPitch + p->srcXInBytes;
    work.copy.dst = (dst_host ? (CUdeviceptr)(uintptr_t)p->dstHost : p->dstDevice) +
                    p->dstY * p->dstPitch + p->dstXInBytes;
    work.copy.src_is_host = src_host || p->srcMemoryType == CU_MEMORYTYPE_UNIFIED;
    work.copy.dst_is_host = dst_host || p->dstMemoryType == CU_MEMORYTYPE_UNIFIED;
    work.copy.width = p->WidthInBytes;
    work.copy.height = p->Height ? p->Height : 1;
    work.copy.src_pitch = p->srcPitch ? p->srcPitch : p->WidthInBytes;
    work.copy.dst_pitch = p->dstPitch ? p->dstPitch : p->WidthInBytes;
    CUresult r = fake_work_check(&work);
    return r == CUDA_SUCCESS ? fake_graph_add(graph, needs, count, &work, node) : r;
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                            size_t count, const CUDA_HOST_NODE_PARAMS *params)
{
    FAKE_ENTER(cuGraphAddHostNode, FAKE_INIT);
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_work work = {.kind = FAKE_WORK_HOST,
                             .host = {.function = params->fn, .data = params->userData}};
    return fake_graph_add(graph, needs, count, &work, node);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                  size_t count, CUgraph child)
{
    FAKE_ENTER(cuGraphAddChildGraphNode, FAKE_INIT);
    struct fake_work work = {.kind = FAKE_WORK_GRAPH};
    CUresult r = child ? copy_graph(child, &work.child) : CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? fake_graph_add(graph, needs, count, &work, node) : r;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    FAKE_ENTER(cuGraphChildGraphNodeGetGraph, FAKE_INIT);
    if (!node || !graph || node->work.kind != FAKE_WORK_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->work.child;
    return CUDA_SUCCESS;
}

static CUresult add_dependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                 size_t count)
{
    if (!graph || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUgraphNode node = to[i];
        CUgraphNode *more = realloc(node->needs, (node->need_count + 1) * sizeof *more);
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        more[node->need_count++] = from[i];
        node->needs = more;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count)
{
    FAKE_ENTER(cuGraphAddDependencies, FAKE_INIT);
    return add_dependencies(graph, from, to, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count)
{
    FAKE_ENTER(cuGraphAddDependencies_v2, FAKE_INIT);
    (void)edges;
    return add_dependencies(graph, from, to, count);
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots)
{
    size_t found = 0;
    if (!graph || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->count; i++) {
        if (roots && graph->nodes[i]->need_count > 0)
            continue;
        if (nodes && found < *count)
            nodes[found] = graph->nodes[i];
        found++;
    }
    if (nodes)
        for (size_t i = found; i < *count; i++)
            nodes[i] = NULL;
    if (!nodes || found < *count)
        *count = found;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    FAKE_ENTER(cuGraphGetNodes, FAKE_INIT);
    return list_nodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    FAKE_ENTER(cuGraphGetRootNodes, FAKE_INIT);
    return list_nodes(graph, nodes, count, true);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    FAKE_ENTER(cuGraphNodeGetType, FAKE_INIT);
    static const CUgraphNodeType types[] = {
        [FAKE_WORK_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
        [FAKE_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [FAKE_WORK_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
        [FAKE_WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [FAKE_WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [FAKE_WORK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        [FAKE_WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
        [FAKE_WORK_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,
        [FAKE_WORK_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [FAKE_WORK_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
    };
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = types[node->work.kind];
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    FAKE_ENTER(cuGraphAddMemAllocNode, FAKE_INIT);
    if (!params || params->bytesize == 0 ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    int card = fake_card_of(params->poolProps.location.id);
    if (card < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_graph_add_alloc(graph, needs, count, card, params->bytesize, node, &params->dptr);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs,
                               size_t count, CUdeviceptr dptr)
{
    FAKE_ENTER(cuGraphAddMemFreeNode, FAKE_INIT);
    return fake_graph_add_free(graph, needs, count, dptr, node);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    FAKE_ENTER(cuGraphMemAllocNodeGetParams, FAKE_INIT);
    if (!node || !params || node->work.kind != FAKE_WORK_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    const struct fake_graph_memory *memory = node->work.memory;
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = memory->asked, .dptr = memory->ptr};
    params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params->poolProps.location.id = fake_device_of(memory->card);
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *dptr)
{
    FAKE_ENTER(cuGraphMemFreeNodeGetParams, FAKE_INIT);
    if (!node || !dptr || node->work.kind != FAKE_WORK_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr = node->work.memory->ptr;
    return CUDA_SUCCESS;
}
