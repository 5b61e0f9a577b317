/*
 * scenes.h: what tests of libullage-torch.so on the fake driver share. A test is a program of several scenes;
 * each is run in a process of its own, since pools live as long as one.
 */
#ifndef BINDINGS_SCENES_H
#define BINDINGS_SCENES_H

#include <cstring>
#include <stdexcept>
#include <string>

#include "check.h"
#define _Static_assert static_assert /* cuda.h is C */
#include "cuda.h"
#include "ullage_torch.h"

extern "C" {
#include "ullage/stats.h"
#include "ullage/status.h"
}

constexpr ssize_t MiB = 1 << 20;

#define OK(call) CHECK((call) == CUDA_SUCCESS)

/* As PyTorch: the primary context is current before the first tensor. */
inline void start_cuda(int device = 0)
{
    CUdevice handle;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&handle, device));
    OK(cuDevicePrimaryCtxRetain(&context, handle));
    OK(cuCtxSetCurrent(context));
}

inline ull_stats stats(int device = 0)
{
    ull_stats result = {};
    result.size = sizeof result;
    CHECK(ullage_torch_stats(device, &result) == ULL_OK);
    return result;
}

inline std::string report()
{
    std::string text(ullage_torch_report(nullptr, 0), ' ');
    CHECK(ullage_torch_report(&text[0], text.size() + 1) == text.size());
    return text;
}

/* The text of the refusal; "" if there was none. */
inline std::string refusal(ssize_t size, int device = 0)
{
    try {
        ullage_torch_free(ullage_torch_alloc(size, device, nullptr), size, device, nullptr);
    } catch (const std::bad_alloc &error) {
        return error.what();
    }
    return "";
}

template <typename Call> std::string error_of(Call call)
{
    try {
        call();
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return "";
}

inline bool begins(const std::string &text, const char *with)
{
    return text.compare(0, std::strlen(with), with) == 0;
}

struct Scene {
    const char *name;
    void (*run)();
};

template <size_t N> int run_scene(const Scene (&scenes)[N], int argc, char **argv)
{
    for (const Scene &scene : scenes) {
        if (argc == 2 && std::strcmp(argv[1], scene.name) == 0) {
            scene.run();
            return 0;
        }
    }
    std::fprintf(stderr, "usage: %s SCENE\n", argv[0]);
    return 2;
}

#endif
