/*
 * test_torch.cpp: libullage-torch.so on the fake driver, called as PyTorch calls it.
 *
 * usage: test_torch SCENE     each scene is a process of its own, since pools live as long as one
 */
#include <random>
#include <thread>
#include <vector>

#include "scenes.h"

namespace
{

CUstream stream()
{
    CUstream made;
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

/* Keeps a stream busy for so long. */
void spin(CUstream on, unsigned long long ns)
{
    static CUfunction function = [] {
        CUmodule module;
        CUfunction found;
        OK(cuModuleLoadData(&module, "any image"));
        OK(cuModuleGetFunction(&found, module, "spin"));
        return found;
    }();
    void *parameters[] = {&ns};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, nullptr));
}

void basics()
{
    char message[300] = "";
    CHECK(ullage_torch_configure("4 apples", 1, nullptr, 0, message, sizeof message) == ULL_E_INVALID);
    CHECK(std::strstr(message, "4 apples"));
    CHECK(ullage_torch_configure("50%", 1, nullptr, 0, message, sizeof message) == ULL_OK);
    CHECK(!message[0] && !ullage_torch_is_open(0));
    CHECK(ullage_torch_alloc(0, 0, nullptr) == nullptr);
    CHECK(!ullage_torch_is_open(0));

    start_cuda();
    auto memory = static_cast<char *>(ullage_torch_alloc(3 * MiB, 0, nullptr));
    CHECK(memory && reinterpret_cast<uintptr_t>(memory) % 256 == 0);
    CHECK(stats().in_use == 3 * MiB && stats().limit == uint64_t{3} << 30);
    OK(cuMemsetD8(reinterpret_cast<CUdeviceptr>(memory), 7, 3 * MiB));
    char last = 0;
    OK(cuMemcpyDtoH(&last, reinterpret_cast<CUdeviceptr>(memory + 3 * MiB - 1), 1));
    CHECK(last == 7);
    CHECK(ullage_torch_configure("1GiB", 1, nullptr, 0, message, sizeof message) == ULL_E_STARTED);
    CHECK(std::strstr(message, "exists already"));
    ullage_torch_free(memory, 3 * MiB, 0, nullptr);
    ullage_torch_free(nullptr, 0, 0, nullptr);
    CHECK(stats().in_use == 0 && stats().held > 0);

    uint64_t free_before, free_after, total;
    CHECK(ullage_torch_memory(0, &free_before, &total) == ULL_OK);
    ullage_torch_empty_cache();
    CHECK(ullage_torch_memory(0, &free_after, &total) == ULL_OK);
    CHECK(stats().held == 0 && free_after > free_before);
    ullage_torch_memory_fraction(0.25, 0);
    CHECK(stats().limit == total / 4);
    CHECK(!error_of([] { ullage_torch_memory_fraction(1.5, 0); }).empty());

    /* What the pool does not know is said on standard error, and nothing more happens. */
    ullage_torch_free(memory, 3 * MiB, 0, nullptr);
    ullage_torch_free(memory, 3 * MiB, 5, nullptr);
}

void refusals()
{
    CHECK(ullage_torch_configure("1GiB", 1, nullptr, 0, nullptr, 0) == ULL_OK);
    start_cuda();
    void *held = ullage_torch_alloc(600 * MiB, 0, nullptr);
    std::string text = refusal(500 * MiB);
    CHECK(begins(text,
                 "CUDA out of memory. Tried to allocate 500.0 MiB on GPU 0. ullage pool: refused"));
    CHECK(begins(report(), text.c_str()));
    CHECK(report().find("device 0: in use 600.0 MiB in 1 piece") != std::string::npos);
    CHECK(!refusal(-1).empty());
    CHECK(!refusal(ssize_t{1} << 62).empty());
    CHECK(refusal(400 * MiB).empty()); /* goes on */
    char small[20];
    CHECK(ullage_torch_report(small, sizeof small) > 20 && small[19] == 0);
    ullage_torch_free(held, 600 * MiB, 0, nullptr);

    /* The limit would allow it, the card has no room: a refusal, and the same exception. */
    CHECK(ullage_torch_set_limit(0, 0) == ULL_OK);
    CHECK(refusal(ssize_t{1} << 40).find("ullage pool:") != std::string::npos);
    CHECK(stats().in_use == 0);
}

void guards()
{
    CHECK(ullage_torch_configure("1GiB", 1, nullptr, 0, nullptr, 0) == ULL_OK);
    start_cuda();
    char message[4096] = "";
    void *guard = nullptr, *inner = nullptr;
    CHECK(ullage_torch_guard_begin(0, 0, 0, nullptr, &guard, message, sizeof message) ==
          ULL_E_INVALID);
    CHECK(ullage_torch_guard_begin(0, 2048 * uint64_t{MiB}, 0, nullptr, &guard, message,
                                   sizeof message) == ULL_E_NO_MEMORY);
    CHECK(message[0] && !guard);
    CHECK(ullage_torch_guard_begin(0, 800 * MiB, 0, nullptr, &guard, message, sizeof message) ==
          ULL_OK);
    /* Set aside, also for other threads: a backward pass runs in one. */
    void *memory = nullptr;
    std::thread([&memory] { memory = ullage_torch_alloc(700 * MiB, 0, nullptr); }).join();
    CHECK(memory);
    ullage_torch_free(memory, 700 * MiB, 0, nullptr);
    CHECK(ullage_torch_guard_begin(0, 100 * MiB, 10 * MiB, nullptr, &inner, message,
                                   sizeof message) == ULL_OK);
    CHECK(begins(refusal(11 * MiB), "CUDA out of memory. Tried to allocate 11.0 MiB on GPU 0."));
    CHECK(refusal(10 * MiB).empty());
    CHECK(ullage_torch_guard_end(guard) != ULL_OK); /* the inner one first */
    CHECK(ullage_torch_guard_end(inner) == ULL_OK);
    CHECK(refusal(11 * MiB).empty());
    CHECK(ullage_torch_guard_end(guard) == ULL_OK);
    CHECK(stats().in_use == 0);
}

void devices()
{
    start_cuda();
    start_cuda(1);
    void *first = ullage_torch_alloc(MiB, 0, nullptr);
    void *second = ullage_torch_alloc(2 * MiB, 1, nullptr);
    CHECK(stats(0).in_use == MiB && stats(1).in_use == 2 * MiB);
    CHECK(!ullage_torch_is_open(2));
    CHECK(error_of([] { ullage_torch_alloc(1, 2, nullptr); }).find("device 2") != std::string::npos);
    CHECK(!error_of([] { ullage_torch_alloc(1, -1, nullptr); }).empty());
    CHECK(!error_of([] { ullage_torch_alloc(1, 1000, nullptr); }).empty());
    ull_stats none = {};
    none.size = sizeof none;
    CHECK(ullage_torch_stats(2, &none) == ULL_E_NOT_FOUND);
    CHECK(ullage_torch_set_limit(-1, 1) == ULL_E_NOT_FOUND);
    ullage_torch_record_stream(second, nullptr);
    CHECK(!error_of([&] { ullage_torch_record_stream(&none, nullptr); }).empty());
    ullage_torch_free(first, MiB, 0, nullptr);
    ullage_torch_free(second, 2 * MiB, 1, nullptr);
    CHECK(stats(0).in_use == 0 && stats(1).in_use == 0);
}

void streams()
{
    start_cuda();
    CUstream a = stream(), b = stream();
    const unsigned long long LONG = 300000000;
    /* Freed on a busy stream: at once for that stream, not yet for another. */
    void *memory = ullage_torch_alloc(8 * MiB, 0, a);
    spin(a, LONG);
    ullage_torch_free(memory, 8 * MiB, 0, a);
    void *other = ullage_torch_alloc(8 * MiB, 0, b);
    CHECK(other != memory);
    CHECK(ullage_torch_alloc(8 * MiB, 0, a) == memory);
    /* Recorded on a busy stream: for nobody until that has passed. */
    OK(cuStreamSynchronize(a));
    ullage_torch_record_stream(memory, b);
    spin(b, LONG);
    ullage_torch_free(memory, 8 * MiB, 0, a);
    void *third = ullage_torch_alloc(8 * MiB, 0, a);
    CHECK(third != memory);
    OK(cuStreamSynchronize(b));
    CHECK(ullage_torch_alloc(8 * MiB, 0, a) == memory);
}

void graphs()
{
    ullage_torch_callbacks_registered();
    start_cuda();
    CUstream a = stream(), b = stream();
    ullage_torch_pool_id id{0, 7};
    void *before = ullage_torch_alloc(4 * MiB, 0, a);
    ullage_torch_free(before, 4 * MiB, 0, a);
    ullage_torch_empty_cache();
    CUgraph graph;
    for (int capture = 0; capture < 2; capture++) { /* the second one shares the pool */
        ullage_torch_begin_pool(0, id, [a](void *stream) { return stream == a; });
        CHECK(!error_of([&] { ullage_torch_begin_pool(0, id, [](void *) { return true; }); }).empty());
        OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        void *inner = ullage_torch_alloc(4 * MiB, 0, a);
        ullage_torch_free(inner, 4 * MiB, 0, a);
        CHECK(ullage_torch_alloc(4 * MiB, 0, a) == inner); /* the graph's own, at once */
        ullage_torch_free(inner, 4 * MiB, 0, a);
        ullage_torch_end_pool(0, id);
        OK(cuStreamEndCapture(a, &graph));
        /* Nobody else has it while the graph may be launched. */
        void *mine = ullage_torch_alloc(4 * MiB, 0, a), *yours = ullage_torch_alloc(4 * MiB, 0, b);
        CHECK(mine != inner && yours != inner);
        ullage_torch_free(mine, 4 * MiB, 0, a);
        ullage_torch_free(yours, 4 * MiB, 0, b);
    }
    ullage_torch_empty_cache();
    CHECK(stats().held >= 4 * MiB);
    ullage_torch_release_pool(0, id);
    ullage_torch_empty_cache();
    CHECK(stats().held >= 4 * MiB); /* the other graph is still there */
    ullage_torch_release_pool(0, id);
    ullage_torch_empty_cache();
    CHECK(stats().held == 0);
    ullage_torch_release_pool(0, id); /* unknown by now */
    ullage_torch_end_pool(0, id);
}

void graphs_unregistered()
{
    start_cuda();
    CUstream a = stream();
    CUgraph graph;
    for (int capture = 0; capture < 2; capture++) {
        OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
        std::string text = error_of([a] { ullage_torch_alloc(MiB, 0, a); });
        CHECK(text.find("ullage.torch.use()") != std::string::npos);
        OK(cuStreamEndCapture(a, &graph));
        void *memory = ullage_torch_alloc(MiB, 0, a);
        ullage_torch_free(memory, MiB, 0, a);
    }
    ullage_torch_empty_cache();
    CHECK(stats().in_use == 0 && stats().held == 0);
}

/* Random life of tensors; sizes as a program has them. */
void churn(int device, CUstream on, unsigned int seed, int operations)
{
    std::mt19937 random(seed);
    std::vector<std::pair<void *, ssize_t>> live;
    for (int i = 0; i < operations; i++) {
        if (live.size() > 200 || (!live.empty() && random() % 2)) {
            size_t which = random() % live.size();
            ullage_torch_free(live[which].first, live[which].second, device, on);
            live[which] = live.back();
            live.pop_back();
        } else {
            ssize_t size = random() % 8 ? 1 + random() % 65536 : 1 + random() % (4 * MiB);
            live.emplace_back(ullage_torch_alloc(size, device, on), size);
            if (random() % 64 == 0)
                ullage_torch_record_stream(live.back().first, nullptr);
        }
    }
    for (const auto &[memory, size] : live)
        ullage_torch_free(memory, size, device, on);
}

void many()
{
    start_cuda();
    churn(0, nullptr, 1, 100000);
    CHECK(stats().in_use == 0 && stats().allocations == stats().frees);
    CHECK(stats().allocations > 49000);
}

void threads()
{
    start_cuda();
    start_cuda(1);
    std::vector<std::thread> all;
    for (unsigned int i = 0; i < 6; i++) {
        CUstream on = i < 3 ? nullptr : stream(); /* of device 1, which is current */
        all.emplace_back([i, on] { churn(i < 3 ? 0 : 1, on, i, 10000); });
    }
    for (std::thread &thread : all)
        thread.join();
    for (int device = 0; device < 2; device++)
        CHECK(stats(device).in_use == 0 && stats(device).refusals == 0);
}

} // namespace

int main(int argc, char **argv)
{
    static const Scene scenes[] = {{"basics", basics},
                                   {"refusals", refusals},
                                   {"guards", guards},
                                   {"devices", devices},
                                   {"streams", streams},
                                   {"graphs", graphs},
                                   {"graphs_unregistered", graphs_unregistered},
                                   {"many", many},
                                   {"threads", threads}};
    return run_scene(scenes, argc, argv);
}
