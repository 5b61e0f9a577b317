/*
 * c10.cpp: throws c10::OutOfMemoryError without PyTorch's headers, at build time or later.
 *
 * The class cannot be declared here and thrown: its members changed between versions (the backtrace was
 * a string until 2.3), and whoever catches it reads them. So nothing is assumed of its layout. The
 * object is made by PyTorch's own constructor, c10::Error(SourceLocation, std::string), which libc10
 * has exported with this name since 1.5; c10::OutOfMemoryError adds no members to it, so making one out
 * of the other is a change of the table of virtual functions. The table and the type are exported by every
 * library of PyTorch that throws or catches it; the destructor is the table's first entry, as the C++ ABI
 * has it. What is needed is looked up in the libraries that are loaded already: Python loads them
 * privately, so they are not in the global scope.
 *
 * The other way, a small extension built on first use by torch.utils.cpp_extension, would need a
 * compiler and PyTorch's headers where programs run, and a minute at the first start.
 */
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <typeinfo>

#include "out_of_memory.h"

#if _GLIBCXX_USE_CXX11_ABI
#define ABI cxx11
#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#else
#define ABI cxx98
#define STRING "Ss"
#endif

extern "C" void *__cxa_allocate_exception(size_t size) noexcept;
extern "C" void __cxa_free_exception(void *object) noexcept;
extern "C" void __cxa_throw(void *object, void *type, void (*destroy)(void *))
    __attribute__((noreturn));

namespace ullage
{
namespace ABI
{
namespace
{

/* Of c10. Passed by value in memory, like any struct of more than 16 bytes. */
struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

/* Larger than c10::Error of any version by far: it has 136 bytes in 2.11. */
constexpr size_t OBJECT_BYTES = 1024;

struct Names {
    void (*construct)(void *object, SourceLocation where, std::string text) = nullptr;
    void **table = nullptr; /* of virtual functions, from its first entry on */
    void *type = nullptr;

    bool complete() const
    {
        return construct && table && type;
    }
};

void *find(const char *symbol)
{
    static const char *const libraries[] = {"libc10.so", "libc10_cuda.so", "libtorch_python.so",
                                            "libtorch_cuda.so", "libtorch_cpu.so"};
    if (void *found = dlsym(RTLD_DEFAULT, symbol))
        return found;
    for (const char *library : libraries) {
        void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        if (!handle)
            continue;
        void *found = dlsym(handle, symbol);
        dlclose(handle); /* one user fewer; whoever loaded it keeps it */
        if (found)
            return found;
    }
    return nullptr;
}

Names look_up()
{
    Names names;
    void *construct = find("_ZN3c105ErrorC1ENS_14SourceLocationE" STRING);
    static_assert(sizeof construct == sizeof names.construct, "as POSIX has it");
    std::memcpy(&names.construct, &construct, sizeof construct);
    /* In front of the entries: the offset to the top and the type. */
    if (void *table = find("_ZTVN3c1016OutOfMemoryErrorE"))
        names.table = static_cast<void **>(table) + 2;
    names.type = find("_ZTIN3c1016OutOfMemoryErrorE");
    return names;
}

} // namespace

bool knows()
{
    return look_up().complete();
}

void throw_c10(const char *text)
{
    Names c10 = look_up(); /* each time, since PyTorch may have been loaded meanwhile */
    if (!c10.complete())
        return;
    void *object = __cxa_allocate_exception(OBJECT_BYTES);
    std::memset(object, 0, OBJECT_BYTES);
    try {
        c10.construct(object, SourceLocation{"ullage_torch_alloc", "ullage", 0}, std::string(text));
    } catch (...) {
        __cxa_free_exception(object);
        throw;
    }
    void (*destroy)(void *);
    std::memcpy(&destroy, &c10.table[0], sizeof destroy);
    std::memcpy(object, &c10.table, sizeof c10.table);
    __cxa_throw(object, c10.type, destroy);
}

} // namespace ABI
} // namespace ullage
