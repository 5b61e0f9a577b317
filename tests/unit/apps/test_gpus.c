/*
 * test_gpus.c: what the driver says of cards and processes, over the fake one in all the ways in which
 * real drivers differ. Each case is a process of its own, which holds memory on the card and looks.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpus.h"

#define MIB (1ull << 20)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct gpus gpus;

/* A context and 100 MiB on the first device that CUDA sees. */
static void hold(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("FAKE"));
    void *cuda = dlopen(path, RTLD_NOW), *context;
    unsigned long long address;
    CHECK(cuda);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*create)(void **, unsigned, int) =
        (int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2");
    int (*alloc)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    CHECK(init(0) == 0 && create(&context, 0, 0) == 0 && alloc(&address, 100 * MIB) == 0);
}

static void look(void)
{
    struct ull_error err;
    ull_status status = gpus_open(&gpus, &err);
    if (status != ULL_OK)
        fprintf(stderr, "%s\n", err.message);
    CHECK(status == ULL_OK);
    gpus_update_memory(&gpus);
    gpus_update_busy(&gpus);
    gpus_update_processes(&gpus);
}

static const struct gpu_process *myself(const struct gpu *gpu)
{
    for (int p = 0; p < gpu->process_count; p++)
        if (gpu->processes[p].pid == (uint32_t)getpid())
            return &gpu->processes[p];
    return NULL;
}

/* Runs a case with cards and a state of its own. */
static void run(void (*body)(void), const char *mode)
{
    static int worlds;
    int status;
    char state[300];
    snprintf(state, sizeof state, "%s/%d", getenv("STATE"), worlds++);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("ULLAGE_FAKE_STATE", state, 1);
        setenv("ULLAGE_FAKE_NVML", mode, 1);
        body();
        gpus_close(&gpus);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void usual_body(void)
{
    setenv("ULLAGE_FAKE_UTIL", "37,12", 1);
    hold();
    look();
    CHECK(gpus.count == 1 && gpus.cards == 1);
    const struct ull__nvml_device *device = &gpus.gpu[0].device;
    CHECK(device->reserved_bytes > 0);
    CHECK(device->used_bytes + device->free_bytes == device->total_bytes);
    CHECK(gpus.gpu[0].busy_percent == 37 && gpus.gpu[0].memory_busy_percent == 12);
    const struct gpu_process *me = myself(&gpus.gpu[0]);
    CHECK(me && me->place == PROC_HERE && me->gpu_instance == -1);
    CHECK(me->used_bytes >= 390 * MIB && me->used_bytes <= device->used_bytes);
    CHECK(strstr(me->command, "test_apps_gpus"));
}

static void usual(void **state)
{
    (void)state;
    run(usual_body, "");
}

/* The library knows all calls, the driver answers none of the new ones. */
static void old_body(void)
{
    hold();
    look();
    const struct ull__nvml_device *device = &gpus.gpu[0].device;
    CHECK(device->reserved_bytes == ULL_NVML_UNKNOWN);
    CHECK(device->used_bytes + device->free_bytes == device->total_bytes);
    const struct gpu_process *me = myself(&gpus.gpu[0]);
    CHECK(me && me->used_bytes >= 390 * MIB && me->gpu_instance == -1);
}

static void old(void **state)
{
    (void)state;
    run(old_body, "old");
}

/* Rows that are longer than the caller thinks are only told from others by what is in them. */
static void long_rows_body(void)
{
    int ready[2], end[2];
    CHECK(pipe(ready) == 0 && pipe(end) == 0);
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            char byte = 0;
            hold();
            if (write(ready[1], &byte, 1) != 1)
                _exit(1);
            close(end[1]);
            _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
        }
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1);
    }
    look();
    CHECK(gpus.gpu[0].process_count == 3);
    for (int p = 0; p < 3; p++) {
        const struct gpu_process *process = &gpus.gpu[0].processes[p];
        CHECK(process->place == PROC_HERE && process->used_bytes >= 390 * MIB &&
              process->used_bytes < 500 * MIB);
    }
    close(end[1]);
    while (wait(NULL) > 0)
        ;
}

static void long_rows(void **state)
{
    (void)state;
    run(long_rows_body, "longrows");
    run(long_rows_body, "");
}

static void nonsense_body(void)
{
    hold();
    look();
    CHECK(gpus.gpu[0].processes_known && gpus.gpu[0].process_count == 1);
    CHECK(myself(&gpus.gpu[0]));
}

static void nonsense(void **state)
{
    (void)state;
    run(nonsense_body, "badrows");
    run(nonsense_body, "badrows,old");
}

static void unknown_body(void)
{
    hold();
    look();
    const struct gpu *gpu = &gpus.gpu[0];
    CHECK(gpu->busy_percent == -1);
    CHECK(gpu->device.used_bytes == ULL_NVML_UNKNOWN && gpu->device.total_bytes == ULL_NVML_UNKNOWN);
    CHECK(myself(gpu) && myself(gpu)->used_bytes == ULL_NVML_UNKNOWN);
}

static void unknown(void **state)
{
    (void)state;
    run(unknown_body, "nomemory,noutil,unknownuse");
}

static void elsewhere_body(void)
{
    hold();
    look();
    const struct gpu *gpu = &gpus.gpu[0];
    CHECK(gpu->process_count == 1);
    CHECK(gpu->processes[0].place == PROC_UNSEEN && gpu->processes[0].command[0] == 0);
}

static void elsewhere(void **state)
{
    (void)state;
    run(elsewhere_body, "otherpids");
}

static void instances_body(void)
{
    setenv("ULLAGE_FAKE_MIG", "0:2GiB+1GiB", 1);
    hold();
    look();
    CHECK(gpus.count == 3 && gpus.cards == 1);
    CHECK(gpus.gpu[0].device.divided && gpus.gpu[1].card == 0 && gpus.gpu[2].card == 0);
    CHECK(gpus.gpu[0].busy_percent == -1);
    bool one = strstr(getenv("ULLAGE_FAKE_NVML"), "onegi") != NULL;
    CHECK(gpus.gpu[1].memory_of == 1 && gpus.gpu[2].memory_of == (one ? 1 : 2));
    CHECK(myself(&gpus.gpu[0]) && myself(&gpus.gpu[0])->gpu_instance == 1);
    CHECK(myself(&gpus.gpu[1]) && !myself(&gpus.gpu[2]));
    uint64_t sum = 0;
    for (int i = 1; i < 3; i++)
        sum += gpus.gpu[i].memory_of == i ? gpus.gpu[i].device.used_bytes : 0;
    CHECK(sum == gpus.gpu[0].device.used_bytes);
    if (one)
        CHECK(gpus.gpu[1].device.used_bytes == gpus.gpu[2].device.used_bytes);
}

static void instances(void **state)
{
    (void)state;
    run(instances_body, "");
    run(instances_body, "onegi");
}

static void refused(void **state)
{
    struct ull_error err;
    (void)state;
    setenv("ULLAGE_FAKE_NVML", "notsupported", 1);
    assert_int_equal(gpus_open(&gpus, &err), ULL_E_DRIVER);
    assert_non_null(strstr(err.message, "not loaded"));
}

int main(void)
{
    char folder[] = "/tmp/ullage-gpus.XXXXXX", command[64];
    if (!mkdtemp(folder))
        return 1;
    setenv("STATE", folder, 1);
    setenv("LD_LIBRARY_PATH", getenv("FAKE"), 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual),     cmocka_unit_test(old),     cmocka_unit_test(long_rows),
        cmocka_unit_test(nonsense),  cmocka_unit_test(unknown), cmocka_unit_test(elsewhere),
        cmocka_unit_test(instances), cmocka_unit_test(refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failed != 0;
}
