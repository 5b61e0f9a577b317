/*
 * test_throw.cpp: a refusal is PyTorch's OutOfMemoryError where PyTorch is loaded.
 *
 * usage: test_throw CATCHER     opens that library between two refusals, as Python does: privately
 */
#include <cstring>
#include <dlfcn.h>
#include <new>

#include "check.h"
#include "ullage_torch.h"

static bool refuse_without_pytorch()
{
    try {
        ullage_torch_alloc(ssize_t{2} << 30, 0, nullptr);
    } catch (const std::bad_alloc &error) {
        return std::strstr(error.what(), "CUDA out of memory. Tried to allocate 2.0 GiB on GPU 0.");
    }
    return false;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(ullage_torch_configure("1GiB", 1, "host:4GiB", 0, nullptr, 0) == 0);
    CHECK(refuse_without_pytorch());
    void *catcher = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(catcher);
    auto refuse = reinterpret_cast<int (*)()>(dlsym(catcher, "refuse_with_pytorch"));
    CHECK(refuse);
    for (int i = 0; i < 100; i++)
        CHECK(refuse() == 0);
    void *memory = ullage_torch_alloc(1 << 20, 0, nullptr);
    CHECK(memory);
    ullage_torch_free(memory, 1 << 20, 0, nullptr);
    return 0;
}
