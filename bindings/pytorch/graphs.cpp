/*
 * graphs.cpp: captured graphs and user pools (torch.cuda.graph, torch.cuda.use_mem_pool).
 *
 * PyTorch names a pool by a pair of numbers and tells by a filter which streams allocate from it; ullage
 * names a graph by one number and is told the streams. A stream joins at its first request that the
 * filter accepts. Several graphs may share a pool one after the other: each begin counts as a user, each
 * release takes one away, and the memory is free for others when the last has gone.
 *
 * Until then tensors freed in the capture are reused by that pool only. The wait when it goes is for the
 * whole device, since PyTorch does not say where the graph was launched; it cannot be made while another
 * capture runs, which it would spoil, so it is put off to the end of that.
 */
#include "graphs.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

extern "C" {
#include "settle.h"
}
#include "ullage_torch.h"

namespace ullage
{
namespace
{

struct Graph {
    int device;
    ullage_torch_pool_id id;
    std::function<bool(void *)> filter; /* empty when no capture runs */
    uint64_t name;                      /* ullage's; 0 before the first request */
    std::vector<void *> streams;        /* that joined in this capture */
    unsigned int users;
};

struct State {
    std::atomic<unsigned int> capturing{0}; /* graphs with a filter: read without the lock */
    std::atomic<bool> registered{false};
    std::mutex lock;
    std::vector<Graph> graphs;
    std::vector<std::pair<int, uint64_t>> over; /* (device, name): to be released */
    std::vector<std::pair<void *, uint64_t>> refused;
};

State &state()
{
    static State *const the_state = new State; /* as in pools.cpp */
    return *the_state;
}

Graph *find(State &all, int device, const ullage_torch_pool_id &id)
{
    for (Graph &graph : all.graphs) {
        if (graph.device == device && graph.id == id)
            return &graph;
    }
    return nullptr;
}

void leave(State &all, Graph &graph)
{
    if (!graph.filter)
        return;
    if (Pool *pool = find_pool(graph.device)) {
        for (void *stream : graph.streams)
            ull_pool_graph_end(pool->pool, stream);
    }
    graph.streams.clear();
    graph.filter = nullptr;
    all.capturing--;
}

/* The default stream stands for all of them: everything on the device is over. */
void release_what_is_over(State &all)
{
    if (all.capturing != 0 || all.over.empty())
        return;
    for (const auto &[device, name] : all.over) {
        Pool *pool = find_pool(device);
        if (!pool)
            continue;
        if (!pool->host && ullage_torch_settle(device) != ULL_OK)
            continue; /* the driver is gone or broken: the memory stays the graph's */
        ull_pool_graph_release(pool->pool, name, nullptr);
    }
    all.over.clear();
}

} // namespace

void join_graphs(Pool &pool, void *stream)
{
    State &all = state();
    if (all.capturing.load(std::memory_order_acquire) == 0)
        return;
    std::lock_guard<std::mutex> hold(all.lock);
    for (Graph &graph : all.graphs) {
        if (graph.device != pool.device || !graph.filter)
            continue;
        if (std::find(graph.streams.begin(), graph.streams.end(), stream) != graph.streams.end())
            return;
        if (!graph.filter(stream))
            continue;
        graph.streams.push_back(stream);
        ull_status status = ull_pool_graph_begin(pool.pool, stream, &graph.name);
        if (status != ULL_OK) {
            graph.streams.pop_back();
            throw std::runtime_error(std::string("ullage: the graph could not begin: ") +
                                     ull_status_text(status));
        }
        return;
    }
}

void refuse_capture(Pool &pool, void *address, void *stream)
{
    State &all = state();
    if (all.registered.load(std::memory_order_relaxed))
        return;
    uint64_t graph = ull_pool_graph_of(pool.pool, stream);
    if (graph == 0)
        return;
    {
        std::lock_guard<std::mutex> hold(all.lock);
        auto last = std::find_if(all.refused.begin(), all.refused.end(),
                                 [&](const auto &known) { return known.first == stream; });
        if (last == all.refused.end())
            all.refused.emplace_back(stream, graph);
        else if (last->second == graph)
            return; /* that capture was refused, and is over */
        else
            last->second = graph;
    }
    ull_alloc_free(pool.alloc, address, stream);
    ull_pool_graph_release(pool.pool, graph, stream);
    throw std::runtime_error(
        "ullage: memory was asked for in the capture of a graph, and the callbacks for graphs are "
        "not "
        "registered: call ullage.torch.use() in place of CUDAPluggableAllocator()");
}

} // namespace ullage

using namespace ullage;

void ullage_torch_callbacks_registered(void)
{
    state().registered = true;
}

void ullage_torch_begin_pool(int device, ullage_torch_pool_id id, std::function<bool(void *)> filter)
{
    State &all = state();
    std::lock_guard<std::mutex> hold(all.lock);
    Graph *graph = find(all, device, id);
    if (!graph) {
        all.graphs.push_back(Graph{device, id, nullptr, 0, {}, 0});
        graph = &all.graphs.back();
    }
    if (graph->filter)
        throw std::runtime_error("ullage: this pool is already being allocated to");
    graph->users++;
    graph->filter = std::move(filter);
    all.capturing++;
}

void ullage_torch_end_pool(int device, ullage_torch_pool_id id)
{
    State &all = state();
    std::lock_guard<std::mutex> hold(all.lock);
    if (Graph *graph = find(all, device, id))
        leave(all, *graph);
    release_what_is_over(all);
}

void ullage_torch_release_pool(int device, ullage_torch_pool_id id)
{
    State &all = state();
    std::lock_guard<std::mutex> hold(all.lock);
    Graph *graph = find(all, device, id);
    if (!graph || --graph->users != 0)
        return;
    leave(all, *graph);
    if (graph->name)
        all.over.emplace_back(device, graph->name);
    all.graphs.erase(all.graphs.begin() + (graph - all.graphs.data()));
    release_what_is_over(all);
}
