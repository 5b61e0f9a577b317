/* catcher.cpp: stands in for libtorch_python.so: a library that knows libc10.so and catches its types. */
#include <cstring>

#include "check.h"
#include "fake_c10.h"
#include "ullage_torch.h"

/* 0 if a refusal is all that PyTorch expects of its own. */
extern "C" __attribute__((visibility("default"))) int refuse_with_pytorch()
{
    static const char begin[] =
        "CUDA out of memory. Tried to allocate 2.0 GiB on GPU 0. ullage pool:";
    try {
        ullage_torch_alloc(ssize_t{2} << 30, 0, nullptr);
    } catch (const c10::OutOfMemoryError &error) {
        CHECK(std::strncmp(error.what_without_backtrace(), begin, sizeof begin - 1) == 0);
        CHECK(std::strstr(error.what(), "\nException raised from fake"));
        CHECK(error.where == "ullage_torch_alloc");
        const c10::Error *base = &error;
        CHECK(dynamic_cast<const c10::OutOfMemoryError *>(base) == &error);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "some other exception: %s\n", error.what());
    }
    return 1;
}
