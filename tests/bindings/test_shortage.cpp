/*
 * test_shortage.cpp: what libullage-torch.so tries before it refuses a request of PyTorch's.
 *
 * usage: test_shortage SCENE
 */
#include <atomic>
#include <chrono>
#include <thread>

#include "scenes.h"

namespace
{

constexpr int MOST_CALLBACKS = 16; /* ULL_RELIEFS */

struct Cache {
    void *memory = nullptr;
    ssize_t size = 0;
    int calls = 0;
    uint64_t wanted = 0;
};

uint64_t empty(void *context, uint64_t wanted)
{
    auto cache = static_cast<Cache *>(context);
    cache->calls++;
    cache->wanted = wanted;
    uint64_t freed = cache->memory ? static_cast<uint64_t>(cache->size) : 0;
    ullage_torch_free(cache->memory, cache->size, 0, nullptr);
    cache->memory = nullptr;
    return freed;
}

void fill(Cache &cache, ssize_t size)
{
    cache.memory = ullage_torch_alloc(size, 0, nullptr);
    cache.size = size;
}

void callbacks()
{
    Cache early, late;
    CHECK(ullage_torch_configure("1GiB", 1, nullptr, 0, nullptr, 0) == ULL_OK);
    CHECK(ullage_torch_add_callback("early cache", empty, &early) == ULL_OK);
    start_cuda();
    fill(early, 300 * MiB);
    fill(late, 300 * MiB);
    CHECK(ullage_torch_add_callback("late cache", empty, &late) == ULL_OK);
    CHECK(ullage_torch_add_callback("again", empty, &late) == ULL_E_INVALID);
    CHECK(refusal(600 * MiB).empty()); /* the first one is enough */
    CHECK(early.calls == 1 && early.wanted == 600 * MiB && late.calls == 0);
    fill(early, 300 * MiB);
    CHECK(refusal(900 * MiB).empty());
    CHECK(early.calls == 2 && late.calls == 1);
    std::string text = refusal(1025 * MiB);
    CHECK(text.find("callback 'early cache': 0 B given back") != std::string::npos);
    CHECK(text.find("callback 'late cache'") != std::string::npos);
    CHECK(text.find("waiting for other threads: off") != std::string::npos);

    /* Guards have them too, before what the caller tries. */
    fill(late, 300 * MiB);
    void *guard = nullptr;
    CHECK(ullage_torch_guard_begin(0, 1000 * MiB, 0, nullptr, &guard, nullptr, 0) == ULL_OK);
    CHECK(!late.memory && ullage_torch_guard_end(guard) == ULL_OK);

    CHECK(ullage_torch_remove_callback(empty, &late) == ULL_OK);
    CHECK(ullage_torch_remove_callback(empty, &late) == ULL_E_NOT_FOUND);
    int calls = late.calls;
    CHECK(!refusal(1025 * MiB).empty() && late.calls == calls);
    /* A device that is opened later has what is registered then. */
    start_cuda(1);
    calls = early.calls;
    CHECK(!refusal(1025 * MiB, 1).empty() && early.calls == calls + 1 && late.calls <= calls);
    Cache more[MOST_CALLBACKS];
    for (int i = 0; i < MOST_CALLBACKS; i++)
        CHECK(ullage_torch_add_callback("more", empty, &more[i]) ==
              (i + 1 < MOST_CALLBACKS ? ULL_OK : ULL_E_FULL));
}

void waits()
{
    CHECK(ullage_torch_configure("1GiB", 1, nullptr, 20000000000, nullptr, 0) == ULL_OK);
    start_cuda();
    /* Alone: refused at once, since nobody could free. A wait would be 20 s. */
    CHECK(refusal(1025 * MiB).find("no other thread could free") != std::string::npos);
    std::atomic<bool> taken{false}, go{false};
    std::thread other([&] {
        void *memory = ullage_torch_alloc(800 * MiB, 0, nullptr);
        taken = true;
        while (!go)
            std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ullage_torch_free(memory, 800 * MiB, 0, nullptr);
    });
    while (!taken)
        std::this_thread::yield();
    go = true;
    CHECK(refusal(800 * MiB).empty());
    other.join();
}

} // namespace

int main(int argc, char **argv)
{
    static const Scene scenes[] = {{"callbacks", callbacks}, {"waits", waits}};
    return run_scene(scenes, argc, argv);
}
