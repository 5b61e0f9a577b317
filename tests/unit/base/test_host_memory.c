/* test_host_memory.c: what a host has left, by texts of the kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "host_memory.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static const char plain[] =
    "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"
    "Buffers:          50 kB\nCached:          400 kB\nActive:          700 kB\n"
    "Active(file):    200 kB\nInactive(file):  150 kB\nShmem:           100 kB\n";
/* As before, with 300 kB more on the files' list, which are no cache. */
static const char given_back[] =
    "MemAvailable:    900 kB\nBuffers:          50 kB\nCached:          400 kB\n"
    "Active(file):    200 kB\nInactive(file):  450 kB\nShmem:           100 kB\n";

static void the_machine(void **state)
{
    (void)state;
    assert_int_equal(ull__host_memory_of_machine(plain, 0), 600 * KIB);
    assert_int_equal(ull__host_memory_of_machine(plain, 50 * KIB), 600 * KIB);
    /* Not known to be free: they count as used. */
    assert_int_equal(ull__host_memory_of_machine(given_back, 0), 600 * KIB);
    assert_int_equal(ull__host_memory_of_machine(given_back, 100 * KIB), 700 * KIB);
    assert_int_equal(ull__host_memory_of_machine(given_back, 300 * KIB), 900 * KIB);
    assert_int_equal(ull__host_memory_of_machine(given_back, 1000 * KIB), 900 * KIB);
    assert_int_equal(ull__host_memory_of_machine("MemFree: 5 kB\n", 0), UINT64_MAX);
    assert_int_equal(ull__host_memory_of_machine("", 0), UINT64_MAX);
}

static void a_group(void **state)
{
    (void)state;
    const char *stat = "anon 500\nfile 300\nkernel 10\nshmem 100\n";
    assert_int_equal(ull__host_memory_of_group("max\n", "5\n", stat, 0), UINT64_MAX);
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", "", 0), 100);
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", stat, 0), 300); /* caches go */
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", stat, 150), 450);
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", stat, 5000), 1000);
    assert_int_equal(ull__host_memory_of_group("1000\n", "1200\n", stat, 0), 0);
}

/* What this process gives back is known, and no more once it is used again. */
static void this_machine(void **state)
{
    (void)state;
    assert_true(ull__host_memory_left(0) > MIB);
    assert_int_equal(ull__host_memory_lazy("0"), 0);
    const size_t bytes = 16 * MIB;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    uint64_t before = ull__host_memory_lazy("self");
    if (madvise(memory, bytes, MADV_FREE) != 0 || ull__host_memory_lazy("self") == before) {
        munmap(memory, bytes);
        print_message("skipped: this kernel gives nothing back lazily, or does not tell\n");
        skip();
    }
    assert_true(ull__host_memory_lazy("self") >= before + bytes / 2);
    memset(memory, 2, bytes);
    assert_true(ull__host_memory_lazy("self") < before + bytes / 2);
    munmap(memory, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine),
        cmocka_unit_test(a_group),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
