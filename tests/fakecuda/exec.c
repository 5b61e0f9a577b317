/*
 * exec.c: running graphs, and the memory set aside for them.
 *
 * An executable graph needs the largest sum of its allocations that live at once, in steps of
 * 32 MiB. That much is taken at upload or launch, unless earlier graphs that are not running left
 * enough, and is kept until cuDeviceGraphMemTrim. Graphs that run at the same time do not share.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    struct CUgraphExec_st *next; /* all that there are */
    struct fake_work *steps;     /* in an order that all needs allow */
    size_t count, room;
    uint64_t need[FAKE_MAX_CARDS];
};

/* A run that holds part of the reserve until its stream got to `number` and its memory is freed. */
struct running {
    struct running *next;
    CUgraphExec exec;
    CUstream stream;
    uint64_t number;
    int card;
    uint64_t bytes;
};

static CUgraphExec all;
static struct running *runs;
static struct {
    uint64_t reserved, reserved_high, used_high;
} reserve[FAKE_MAX_CARDS];

static const uint64_t step = 32 * FAKE_MIB;

/* --- memory of nodes --- */

static bool resolve(const struct fake_span *span, CUdeviceptr at, struct fake_range *range)
{
    struct fake_graph_memory *memory = span->object;
    if (at >= memory->ptr + memory->asked)
        return false;
    range->host = memory->block.host + (at - memory->ptr);
    range->length = memory->ptr + memory->asked - at;
    range->base = memory->ptr;
    range->size = memory->asked;
    range->card = memory->card;
    return true;
}

void fake_graph_memory_drop(struct fake_graph_memory *memory)
{
    if (--memory->references > 0 || memory->active)
        return;
    fake_span_remove(memory->ptr);
    fake_addresses_free(memory->ptr, memory->size);
    fake_block_drop(&memory->block);
    free(memory);
}

CUresult fake_graph_add_alloc(CUgraph graph, const CUgraphNode *needs, size_t count, int card,
                              size_t bytes, CUgraphNode *out, CUdeviceptr *ptr)
{
    struct fake_graph_memory *memory = calloc(1, sizeof *memory);
    if (!memory || bytes > 1ull << 46) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->references = 1;
    memory->card = card;
    memory->asked = bytes;
    memory->size = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    memory->ptr = fake_addresses_reserve(memory->size, FAKE_PAGE);
    if (!memory->ptr || !fake_block_take(memory->size, &memory->block)) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_span_add((struct fake_span){memory->ptr, memory->size, FAKE_GRAPH, memory, resolve});
    struct fake_work work = {.kind = FAKE_WORK_ALLOC, .memory = memory};
    CUresult r = fake_graph_add(graph, needs, count, &work, out);
    if (r == CUDA_SUCCESS)
        *ptr = memory->ptr;
    else
        fake_graph_memory_drop(memory);
    return r;
}

CUresult fake_graph_add_free(CUgraph graph, const CUgraphNode *needs, size_t count, CUdeviceptr ptr,
                             CUgraphNode *out)
{
    const struct fake_span *span = fake_span_at(ptr);
    if (!span || span->kind != FAKE_GRAPH || span->start != ptr)
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_work work = {.kind = FAKE_WORK_FREE, .memory = span->object};
    return fake_graph_add(graph, needs, count, &work, out);
}

bool fake_graph_free(CUdeviceptr ptr)
{
    const struct fake_span *span = fake_span_at(ptr);
    struct fake_graph_memory *memory = span->object;
    if (span->start != ptr || !memory->active)
        return false;
    memory->active = false;
    memory->references++;
    fake_graph_memory_drop(memory);
    return true;
}

/* --- executables --- */

static bool known(CUgraphExec exec)
{
    CUgraphExec e = all;
    while (e && e != exec)
        e = e->next;
    return e != NULL;
}

static bool add_step(CUgraphExec exec, const struct fake_work *work)
{
    if (exec->count == exec->room) {
        size_t room = exec->room ? 2 * exec->room : 16;
        struct fake_work *more = realloc(exec->steps, room * sizeof *more);
        if (!more)
            return false;
        exec->steps = more;
        exec->room = room;
    }
    exec->steps[exec->count++] = *work;
    return true;
}

static bool can_go(const struct CUgraphNode_st *node)
{
    for (size_t i = 0; i < node->need_count; i++)
        if (!node->needs[i]->placed)
            return false;
    return !node->placed;
}

/* Appends the nodes of a graph, earlier added first wherever needs allow it. */
static CUresult flatten(CUgraphExec exec, CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->placed = false;
    size_t placed = 0;
    for (bool moved = true; moved && placed < graph->count;) {
        moved = false;
        for (size_t i = 0; i < graph->count; i++) {
            CUgraphNode node = graph->nodes[i];
            if (!can_go(node))
                continue;
            node->placed = moved = true;
            placed++;
            if (node->work.kind == FAKE_WORK_GRAPH) {
                CUresult r = flatten(exec, node->work.child);
                if (r != CUDA_SUCCESS)
                    return r;
            } else if (!add_step(exec, &node->work)) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return placed == graph->count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* a circle */
}

static void measure(CUgraphExec exec)
{
    uint64_t now[FAKE_MAX_CARDS] = {0};
    for (size_t i = 0; i < exec->count; i++) {
        const struct fake_work *work = &exec->steps[i];
        if (work->kind == FAKE_WORK_ALLOC) {
            int card = work->memory->card;
            work->memory->references++;
            now[card] += work->memory->size;
            if (now[card] > exec->need[card])
                exec->need[card] = now[card];
        } else if (work->kind == FAKE_WORK_FREE) {
            uint64_t size = work->memory->size;
            now[work->memory->card] -=
                size < now[work->memory->card] ? size : now[work->memory->card];
        }
    }
    for (int c = 0; c < FAKE_MAX_CARDS; c++)
        exec->need[c] = (exec->need[c] + step - 1) / step * step;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph)
{
    if (!out || !fake_graph_known(graph))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = flatten(exec, graph);
    if (r != CUDA_SUCCESS) {
        free(exec->steps);
        free(exec);
        return r;
    }
    measure(exec);
    exec->next = all;
    all = exec;
    *out = exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t size)
{
    FAKE_ENTER(cuGraphInstantiate, FAKE_INIT | FAKE_ALLOC);
    (void)error_node, (void)log, (void)size;
    return instantiate(exec, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t size)
{
    FAKE_ENTER(cuGraphInstantiate_v2, FAKE_INIT | FAKE_ALLOC);
    (void)error_node, (void)log, (void)size;
    return instantiate(exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    FAKE_ENTER(cuGraphInstantiateWithFlags, FAKE_INIT | FAKE_ALLOC);
    (void)flags;
    return instantiate(exec, graph);
}

/* What the driver reads and writes of the parameters: flags, upload stream, failing node, result. */
struct instantiate_params {
    cuuint64_t flags;
    CUstream upload;
    CUgraphNode error;
    int result;
};

static uint64_t busy(int card, CUstream except)
{
    uint64_t sum = 0;
    for (const struct running *r = runs; r; r = r->next)
        if (r->card == card && r->stream != except)
            sum += r->bytes;
    return sum;
}

static void forget_finished(void)
{
    for (struct running **at = &runs; *at;) {
        struct running *r = *at;
        bool held = r->stream->done < r->number;
        for (size_t i = 0; !held && r->exec && i < r->exec->count; i++)
            held = r->exec->steps[i].kind == FAKE_WORK_ALLOC && r->exec->steps[i].memory->active;
        if (held) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r);
    }
}

static CUresult set_aside(CUgraphExec exec, CUstream stream)
{
    forget_finished();
    for (int card = 0; card < FAKE_MAX_CARDS; card++) {
        uint64_t need = exec->need[card] ? exec->need[card] + busy(card, stream) : 0;
        if (need <= reserve[card].reserved)
            continue;
        CUresult r = fake_charge(card, need - reserve[card].reserved, 0);
        if (r != CUDA_SUCCESS)
            return r;
        reserve[card].reserved = need;
        if (need > reserve[card].reserved_high)
            reserve[card].reserved_high = need;
    }
    return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec exec, CUstream stream)
{
    if (!known(exec) || !stream)
        return CUDA_ERROR_INVALID_VALUE;
    return set_aside(exec, stream);
}

static CUresult with_params(CUgraphExec *exec, CUgraph graph,
                            CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params, bool per_thread)
{
    struct instantiate_params *params = (struct instantiate_params *)instantiate_params;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = instantiate(exec, graph);
    if (r == CUDA_SUCCESS && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        r = upload(*exec, fake_stream(params->upload, per_thread));
    params->error = NULL;
    params->result = r == CUDA_SUCCESS ? 0 : 1;
    return r;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    FAKE_ENTER(cuGraphInstantiateWithParams, FAKE_CONTEXT | FAKE_ALLOC);
    return with_params(exec, graph, params, false);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    FAKE_ENTER(cuGraphInstantiateWithParams_ptsz, FAKE_CONTEXT | FAKE_ALLOC);
    return with_params(exec, graph, params, true);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(cuGraphUpload, FAKE_CONTEXT | FAKE_ALLOC);
    return upload(exec, fake_stream(stream, false));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(cuGraphUpload_ptsz, FAKE_CONTEXT | FAKE_ALLOC);
    return upload(exec, fake_stream(stream, true));
}

static CUresult run_step(const struct fake_work *work, CUstream stream)
{
    switch (work->kind) {
    case FAKE_WORK_EMPTY:
        return CUDA_SUCCESS;
    case FAKE_WORK_ALLOC:
        if (work->memory->active)
            return CUDA_ERROR_INVALID_VALUE; /* the last run's memory was never freed */
        work->memory->active = true;
        return CUDA_SUCCESS;
    case FAKE_WORK_FREE:
        work->memory->active = false;
        return CUDA_SUCCESS;
    case FAKE_WORK_RECORD:
        return fake_record_now(stream, work->event);
    case FAKE_WORK_WAIT:
        return fake_wait_now(stream, work->event);
    default: {
        struct fake_op *op = fake_work_op(work);
        if (!op)
            return CUDA_ERROR_OUT_OF_MEMORY;
        fake_enqueue(stream, op);
        return CUDA_SUCCESS;
    }
    }
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    if (!known(exec) || !stream)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_capturing(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult r = set_aside(exec, stream);
    for (size_t i = 0; r == CUDA_SUCCESS && i < exec->count; i++)
        r = run_step(&exec->steps[i], stream);
    for (int card = 0; r == CUDA_SUCCESS && card < FAKE_MAX_CARDS; card++) {
        struct running *run = exec->need[card] ? malloc(sizeof *run) : NULL;
        if (!run)
            continue;
        *run = (struct running){runs, exec, stream, stream->queued, card, exec->need[card]};
        runs = run;
        if (busy(card, NULL) > reserve[card].used_high)
            reserve[card].used_high = busy(card, NULL);
    }
    return r;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(cuGraphLaunch, FAKE_CONTEXT | FAKE_ALLOC);
    return launch(exec, fake_stream(stream, false));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(cuGraphLaunch_ptsz, FAKE_CONTEXT | FAKE_ALLOC);
    return launch(exec, fake_stream(stream, true));
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    FAKE_ENTER(cuGraphExecDestroy, FAKE_INIT);
    if (!known(exec))
        return CUDA_ERROR_INVALID_VALUE;
    forget_finished();
    for (struct running *r = runs; r; r = r->next)
        if (r->exec == exec)
            r->exec = NULL;
    for (size_t i = 0; i < exec->count; i++)
        if (exec->steps[i].kind == FAKE_WORK_ALLOC)
            fake_graph_memory_drop(exec->steps[i].memory);
    for (CUgraphExec *at = &all; *at; at = &(*at)->next)
        if (*at == exec) {
            *at = exec->next;
            break;
        }
    free(exec->steps);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    FAKE_ENTER(cuDeviceGraphMemTrim, FAKE_INIT);
    int card = fake_card_of(dev);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    forget_finished();
    uint64_t keep = busy(card, NULL);
    if (keep < reserve[card].reserved) {
        fake_uncharge(card, reserve[card].reserved - keep, 0);
        reserve[card].reserved = keep;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    FAKE_ENTER(cuDeviceGetGraphMemAttribute, FAKE_INIT);
    int card = fake_card_of(dev);
    cuuint64_t *out = value;
    if (card < 0 || !out)
        return card < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    forget_finished();
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *out = busy(card, NULL);
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *out = reserve[card].used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *out = reserve[card].reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *out = reserve[card].reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    FAKE_ENTER(cuDeviceSetGraphMemAttribute, FAKE_INIT);
    int card = fake_card_of(dev);
    if (card < 0 || !value || *(cuuint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        reserve[card].used_high = busy(card, NULL);
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        reserve[card].reserved_high = reserve[card].reserved;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
