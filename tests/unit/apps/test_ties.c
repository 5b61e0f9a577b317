/* test_ties.c: which processes the driver must not move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "suspend/ties.h"

static void drivers(void **state)
{
    (void)state;
    assert_false(ties_can_move("580.159.04"));
    assert_false(ties_can_move("609.99"));
    assert_false(ties_can_move(""));
    assert_false(ties_can_move("unknown"));
    assert_true(ties_can_move("610.10"));
    assert_true(ties_can_move("1000"));
}

static void what_is_shared(void **state)
{
    struct ull__process_view process = {.pid = (uint32_t)getpid()};
    (void)state;
    assert_null(ties_of(&process));
    process.ties = ULL_TIE_IPC;
    assert_string_equal(ties_of(&process), "memory or events with other processes (CUDA IPC)");
    process.ties = ULL_TIE_IPC | ULL_TIE_MULTICAST;
    assert_string_equal(ties_of(&process), "memory by multicast objects");
    process.ties = ULL_TIE_HANDLE;
    assert_non_null(ties_of(&process));
    process.gated = true; /* it moves itself */
    assert_null(ties_of(&process));
}

static void ranks_of_nccl(void **state)
{
    char path[] = "/dev/shm/nccl-XXXXXX";
    struct ull__process_view process = {.pid = (uint32_t)getpid()};
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_null(ties_of(&process)); /* open is not mapped */
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_string_equal(ties_of(&process), "memory with other ranks (NCCL)");
    munmap(map, 4096);
    assert_null(ties_of(&process));
    close(fd);
    process.pid = 0; /* nobody's */
    assert_null(ties_of(&process));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers),
        cmocka_unit_test(what_is_shared),
        cmocka_unit_test(ranks_of_nccl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
