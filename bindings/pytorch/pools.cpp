/*
 * pools.cpp: makes the pools, and says what they hold.
 *
 * Pools are never destroyed: PyTorch frees tensors until the last destructor of the process has run, and
 * the driver takes everything back when it ends.
 */
#include "pools.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

extern "C" {
#include "error.h"
#include "size.h"
}
#include "out_of_memory.h"
#include "settings.h"
#include "ullage_torch.h"

namespace ullage
{
namespace
{

/* What gives memory back on shortage. */
struct Relief {
    const char *name;
    ull_relief_fn function;
    void *context;
};

/* Never destroyed either, for the same reason. */
struct State {
    std::mutex lock; /* over all but the pointers, which are set once */
    Settings settings;
    std::vector<Relief> reliefs;
    std::set<std::string> names; /* of all reliefs there were: a report may still use them */
    std::atomic<Pool *> pools[MAX_DEVICES] = {};
    std::string refusal;
    bool started = false;
};

State &state()
{
    static State *const the_state = new State;
    return *the_state;
}

struct Started : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string &text)
{
    throw std::runtime_error("ullage: " + text);
}

/* pool -> guard -> retry, as ull_config_start does. */
ull_status make_chain(Pool &pool, const ull_pool_options &options, const State &all, ull_error *error)
{
    ull_status status = ull_pool_create(pool.seam, &options, &pool.pool, error);
    if (status == ULL_OK)
        status = ull_alloc_over_pool(pool.pool, &pool.base);
    if (status == ULL_OK)
        status = ull_guard_create(pool.base, &pool.guarded, error);
    if (status == ULL_OK)
        status = ull_retry_create(pool.guarded, nullptr, all.settings.wait_ns, &pool.alloc, error);
    if (status == ULL_OK)
        status = ull_guard_add_fallback(pool.guarded, "callbacks of the program", ull_retry_relieve,
                                        pool.alloc);
    for (const Relief &relief : all.reliefs) {
        if (status == ULL_OK)
            status = ull_retry_add_callback(pool.alloc, relief.name, relief.function, relief.context);
    }
    return status;
}

void destroy_pool(Pool *pool)
{
    ull_alloc_destroy(pool->alloc);
    ull_alloc_destroy(pool->guarded);
    ull_alloc_destroy(pool->base);
    ull_pool_destroy(pool->pool);
    ull__device_destroy(pool->seam);
    delete pool;
}

/* Pre: the lock is held. */
Pool *make_pool(const State &all, int device)
{
    uint64_t host_bytes = all.settings.host_bytes;
    std::unique_ptr<Pool, void (*)(Pool *)> made(new Pool, destroy_pool);
    made->device = device;
    made->host = host_bytes != 0;
    ull_error error = {};
    ull_status status = host_bytes ? ull__device_host_create(host_bytes, 0, &made->seam, &error)
                                   : ull__device_cuda_create(device, &made->seam, &error);
    if (status == ULL_OK) {
        ull_pool_options options;
        ull_plan_device plan = plan_device(all.settings, device, made->seam);
        ull_plan_pool_options(&plan, &options);
        status = make_chain(*made, options, all, &error);
    }
    if (status != ULL_OK)
        fail("no pool on device " + std::to_string(device) + ": " +
             (error.message[0] ? error.message : ull_status_text(status)));
    return made.release();
}

std::string size_text(uint64_t bytes)
{
    char buffer[ULL_SIZE_TEXT];
    return ull__size_text(bytes, buffer);
}

struct Holders {
    std::vector<ull_holder> largest;
    uint64_t count = 0;
};

bool collect(void *context, const ull_chunk_info *chunk)
{
    auto holders = static_cast<Holders *>(context);
    if (chunk->state != ULL_CHUNK_IN_USE)
        return true;
    holders->count++;
    auto &largest = holders->largest;
    auto larger = [](const ull_holder &a, const ull_holder &b) { return a.bytes > b.bytes; };
    ull_holder holder = {};
    holder.address = chunk->address;
    holder.bytes = chunk->requested;
    if (chunk->tag)
        std::strncat(holder.tag, chunk->tag, sizeof holder.tag - 1);
    if (largest.size() == ULL_REFUSAL_HOLDERS && !larger(holder, largest.back()))
        return true;
    largest.insert(std::upper_bound(largest.begin(), largest.end(), holder, larger), holder);
    if (largest.size() > ULL_REFUSAL_HOLDERS)
        largest.pop_back();
    return true;
}

std::string describe(const Pool &pool)
{
    ull_stats stats = {};
    stats.size = sizeof stats;
    ull_pool_stats(pool.pool, &stats);
    /* Room first, since nothing may throw or allocate from this pool inside the walk. */
    Holders holders;
    holders.largest.reserve(ULL_REFUSAL_HOLDERS + 1);
    ull_pool_walk(pool.pool, collect, &holders);
    std::string text = "device " + std::to_string(pool.device) + ": in use " +
                       size_text(stats.in_use) + " in " + std::to_string(holders.count) +
                       (holders.count == 1 ? " piece" : " pieces") + ", held " +
                       size_text(stats.held) + ", peak held " + size_text(stats.peak_held) +
                       ", limit of this pool " + size_text(stats.limit);
    uint64_t free_bytes, total;
    if (pool.seam->ops->memory(pool.seam, &free_bytes, &total) == ULL_OK)
        text += ", the device has " + size_text(free_bytes) + " free of " + size_text(total);
    for (const ull_holder &holder : holders.largest) {
        text += "\n  " + size_text(holder.bytes);
        if (holder.tag[0])
            text += std::string(" ") + holder.tag;
    }
    return text;
}

/* Runs what may throw, and turns an exception into a status and a message. */
template <typename Work> ull_status guarded(Work work, char *message, size_t size)
{
    ull_status status = ULL_OK;
    std::string text;
    try {
        work();
    } catch (const Started &error) {
        status = ULL_E_STARTED;
        text = error.what();
    } catch (const std::runtime_error &error) {
        status = ULL_E_INVALID;
        text = error.what();
    } catch (const std::exception &error) { /* out of memory, ours or PyTorch's */
        status = ULL_E_NO_MEMORY;
        text = error.what();
    }
    if (message && size)
        message[text.copy(message, size - 1)] = 0;
    return status;
}

} // namespace

Pool *find_pool(int device)
{
    if (device < 0 || device >= MAX_DEVICES)
        return nullptr;
    return state().pools[device].load(std::memory_order_acquire);
}

Pool &open_pool(int device)
{
    if (Pool *pool = find_pool(device))
        return *pool;
    if (device < 0 || device >= MAX_DEVICES)
        fail("device " + std::to_string(device) + ": expected 0 to " +
             std::to_string(MAX_DEVICES - 1));
    State &all = state();
    std::lock_guard<std::mutex> hold(all.lock);
    Pool *pool = find_pool(device);
    if (!pool) {
        pool = make_pool(all, device);
        all.started = true;
        all.pools[device].store(pool, std::memory_order_release);
    }
    return *pool;
}

std::string refused(const Pool &pool, uint64_t bytes, const ull_report &report)
{
    /* Programs look for the beginning. */
    std::string text = "CUDA out of memory. Tried to allocate " + size_text(bytes) + " on GPU " +
                       std::to_string(pool.device) + ". ullage " + report.text;
    State &all = state();
    std::lock_guard<std::mutex> hold(all.lock);
    all.refusal = text;
    return text;
}

} // namespace ullage

using namespace ullage;

int ullage_torch_configure(const char *memory, int growth, const char *device, uint64_t wait_ns,
                           char *message, size_t message_size)
{
    return guarded(
        [&] {
            Settings wanted = read_settings(memory, growth, device, wait_ns);
            State &all = state();
            std::lock_guard<std::mutex> hold(all.lock);
            if (all.started)
                throw Started(
                    "ullage: a pool exists already: set this before the first use of CUDA "
                    "memory");
            all.settings = wanted;
        },
        message, message_size);
}

int ullage_torch_export(char *text, size_t size, char *message, size_t message_size)
{
    return guarded(
        [&] {
            State &all = state();
            std::unique_lock<std::mutex> hold(all.lock);
            Settings settings = all.settings;
            hold.unlock();
            std::string exported = export_settings(settings);
            if (exported.size() >= size)
                fail("the settings take " + std::to_string(exported.size() + 1) + " bytes");
            text[exported.copy(text, size - 1)] = 0;
        },
        message, message_size);
}

int ullage_torch_add_callback(const char *name, ullage_torch_relief callback, void *context)
{
    State &all = state();
    std::lock_guard<std::mutex> hold(all.lock);
    for (const Relief &relief : all.reliefs) {
        if (relief.function == callback && relief.context == context)
            return ULL_E_INVALID;
    }
    if (all.reliefs.size() == ULL_RELIEFS)
        return ULL_E_FULL;
    const char *kept = all.names.insert(name).first->c_str();
    ull_status status = ULL_OK;
    each_pool([&](Pool &pool) {
        if (status == ULL_OK)
            status = ull_retry_add_callback(pool.alloc, kept, callback, context);
    });
    if (status == ULL_OK)
        all.reliefs.push_back({kept, callback, context});
    return status;
}

int ullage_torch_remove_callback(ullage_torch_relief callback, void *context)
{
    State &all = state();
    std::unique_lock<std::mutex> hold(all.lock);
    auto found = std::find_if(all.reliefs.begin(), all.reliefs.end(), [&](const Relief &relief) {
        return relief.function == callback && relief.context == context;
    });
    if (found == all.reliefs.end())
        return ULL_E_NOT_FOUND;
    all.reliefs.erase(found);
    /* A callback that runs may need the lock; a pool made from here on does not have it. */
    hold.unlock();
    each_pool([&](Pool &pool) { ull_retry_remove_callback(pool.alloc, callback, context); });
    return ULL_OK;
}

int ullage_torch_try_alloc(ssize_t size, int device, void *stream, void **ptr, char *message,
                           size_t message_size)
{
    return guarded([&] { *ptr = ullage_torch_alloc(size, device, stream); }, message, message_size);
}

int ullage_torch_open(int device, char *message, size_t message_size)
{
    return guarded([&] { open_pool(device); }, message, message_size);
}

int ullage_torch_is_open(int device)
{
    return find_pool(device) != nullptr;
}

int ullage_torch_stats(int device, ull_stats *stats)
{
    Pool *pool = find_pool(device);
    return pool ? ull_pool_stats(pool->pool, stats) : ULL_E_NOT_FOUND;
}

int ullage_torch_stats_reset(int device)
{
    Pool *pool = find_pool(device);
    if (pool)
        ull_pool_stats_reset(pool->pool);
    return pool ? ULL_OK : ULL_E_NOT_FOUND;
}

int ullage_torch_set_limit(int device, uint64_t bytes)
{
    Pool *pool = find_pool(device);
    return pool ? ull_pool_set_limit(pool->pool, bytes) : ULL_E_NOT_FOUND;
}

int ullage_torch_trim(int device, uint64_t bytes, uint64_t *returned)
{
    Pool *pool = find_pool(device);
    return pool ? ull_pool_trim(pool->pool, bytes, returned) : ULL_E_NOT_FOUND;
}

int ullage_torch_guard_begin(int device, uint64_t bytes, uint64_t max_request, void *stream,
                             void **guard, char *message, size_t message_size)
{
    return guarded(
        [&] {
            Pool &pool = open_pool(device);
            ull_guard_options options = {};
            options.bytes = bytes;
            options.max_request = max_request;
            options.max_fallbacks = 1; /* the callbacks; the caller's own come after this */
            options.all_threads = true;
            options.stream = stream;
            ull_report report;
            ull_guard *begun;
            ull_status status = ull_guard_begin_with(pool.guarded, &options, &begun, &report);
            if (status == ULL_E_NO_MEMORY)
                throw OutOfMemory(report.text);
            if (status != ULL_OK)
                fail(std::string("no guard: ") + ull_status_text(status));
            *guard = begun;
        },
        message, message_size);
}

int ullage_torch_guard_end(void *guard)
{
    return ull_guard_end(static_cast<ull_guard *>(guard));
}

int ullage_torch_memory(int device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    Pool *pool = find_pool(device);
    return pool ? pool->seam->ops->memory(pool->seam, free_bytes, total_bytes) : ULL_E_NOT_FOUND;
}

size_t ullage_torch_report(char *text, size_t size)
{
    std::string report;
    try {
        {
            State &all = state();
            std::lock_guard<std::mutex> hold(all.lock);
            report = all.refusal;
        }
        each_pool([&](const Pool &pool) { report += (report.empty() ? "" : "\n") + describe(pool); });
    } catch (const std::bad_alloc &) {
        report = "";
    }
    if (text && size)
        text[report.copy(text, size - 1)] = 0;
    return report.size();
}
