/*
 * device_cuda.c: the CUDA device over the fake driver: what is of it alone. Calls that fail in the
 * middle of a run, threads without a context, captures that must survive, streams that lag, a driver
 * that cannot map, and a pool over each.
 *
 * Every test is a process of its own (a child), because the fake reads its environment once, with cards
 * of its own below ULLAGE_FAKE_STATE: run it with tests/unit/fakecuda/in_own_world.sh.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "device.h"
#include "pool_private.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);                               \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

enum { PAGES = 4 };

static unsigned int refused; /* calls of the device that did not succeed */

static struct ull__device *open_device(void)
{
    struct ull__device *device = NULL;
    struct ull_error err = {""};
    if (ull__device_cuda_create(0, &device, &err) != ULL_OK)
        printf("# %s\n", err.message);
    CHECK(device);
    return device;
}

static uint64_t free_bytes(struct ull__device *device)
{
    uint64_t free_now = 0, total = 0;
    while (device->ops->memory(device, &free_now, &total) != ULL_OK)
        refused++;
    CHECK(total > 0 && free_now <= total);
    return free_now;
}

/* Repeats a call that may fail once; what it was to change is as before then. */
#define INSIST(call)                                                                               \
    for (unsigned int refused_before = refused; (call) != ULL_OK;)                                 \
    CHECK(++refused == refused_before + 1)

static void check_bytes(struct ull__device *device, uint64_t at, uint64_t bytes, uint8_t value,
                        ull__stream stream)
{
    uint8_t *got = malloc(bytes);
    CHECK(got);
    INSIST(device->ops->copy_out(device, got, at, bytes, stream));
    INSIST(device->ops->synchronize(device, stream));
    for (uint64_t i = 0; i < bytes; i++)
        CHECK(got[i] == value);
    free(got);
}

/* --- one of everything ------------------------------------------------------------------------------- */

static void use_everything(void)
{
    struct ull__device *device = open_device();
    const struct ull__device_ops *ops = device->ops;
    uint64_t page = device->page_bytes, at = 0, before = free_bytes(device);
    ull__page pages[PAGES], more[PAGES];
    ull__stream stream;
    ull__event event;
    INSIST(ops->reserve(device, 3 * PAGES * page, &at));
    CHECK(at % page == 0);
    while (ops->create(device, PAGES, pages) != ULL_OK) {
        refused++;
        CHECK(free_bytes(device) == before); /* none of them is left */
    }
    CHECK(before - free_bytes(device) == PAGES * page);
    INSIST(ops->create(device, PAGES, more));
    INSIST(ops->map(device, at, PAGES, pages));
    INSIST(ops->map(device, at + PAGES * page, PAGES, more));
    ull__page mixed[PAGES] = {more[3], pages[0], more[1], pages[2]};
    INSIST(ops->map(device, at + 2 * PAGES * page, PAGES, mixed));
    INSIST(ops->stream_create(device, &stream));
    INSIST(ops->fill(device, at, 0x11, PAGES * page, stream));
    INSIST(ops->fill(device, at + PAGES * page, 0x22, PAGES * page, stream));
    check_bytes(device, at + 2 * PAGES * page, page, 0x22, stream);
    check_bytes(device, at + (2 * PAGES + 1) * page, page, 0x11, stream);
    uint8_t text[3] = {7, 7, 7};
    INSIST(ops->copy_in(device, at + 5, text, sizeof text, stream));
    INSIST(ops->record(device, stream, &event));
    CHECK(event != 0);
    while (!ops->wait(device, event, UINT64_MAX))
        refused++;
    while (!ops->done(device, event))
        refused++;
    ops->forget(device, event);
    check_bytes(device, at + (2 * PAGES + 1) * page + 5, 3, 7, stream);
    ops->stream_destroy(device, stream);
    /* Runs that other map calls made, in one unmap. */
    ops->unmap(device, at + page, 2 * PAGES - 2);
    ops->unmap(device, at + 2 * PAGES * page, PAGES);
    ops->unmap(device, at, 1);
    ops->unmap(device, at + (2 * PAGES - 1) * page, 1);
    ops->destroy_pages(device, PAGES, pages);
    ops->destroy_pages(device, PAGES, more);
    ops->release(device, at, 3 * PAGES * page);
    CHECK(free_bytes(device) == before);
    ull__device_destroy(device);
}

/* The n-th call of a name fails once; nothing is lost and the next try works. */
static void test_everything(void)
{
    use_everything();
    CHECK(refused == 0);
}

static const char *rule;

static void test_failure(void)
{
    setenv("ULLAGE_FAKE_FAIL", rule, 1);
    use_everything();
    CHECK(refused == 1);
}

/* --- order -------------------------------------------------------------------------------------------- */

static struct {
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void **, void **);
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    CUresult (*end)(CUstream, CUgraph *);
    CUresult (*current)(CUcontext *);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set)(CUcontext);
} cu;

static void *symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    CHECK(found);
    return found;
}

static void find_driver(void)
{
    *(void **)&cu.load = symbol("cuModuleLoadData");
    *(void **)&cu.function = symbol("cuModuleGetFunction");
    *(void **)&cu.launch = symbol("cuLaunchKernel");
    *(void **)&cu.begin = symbol("cuStreamBeginCapture_v2");
    *(void **)&cu.end = symbol("cuStreamEndCapture");
    *(void **)&cu.current = symbol("cuCtxGetCurrent");
    *(void **)&cu.retain = symbol("cuDevicePrimaryCtxRetain");
    *(void **)&cu.set = symbol("cuCtxSetCurrent");
}

/* As a program does that has the context current. */
static void be_a_program(void)
{
    CUcontext context;
    CHECK(cu.retain(&context, 0) == CUDA_SUCCESS && cu.set(context) == CUDA_SUCCESS);
}

static void spin(ull__stream stream, uint64_t ns)
{
    CUmodule module;
    CUfunction function;
    void *arguments[] = {&ns};
    CHECK(cu.load(&module, "any image") == CUDA_SUCCESS);
    CHECK(cu.function(&function, module, "spin") == CUDA_SUCCESS);
    CHECK(cu.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL) == CUDA_SUCCESS);
}

static void test_events(void)
{
    struct ull__device *device = open_device();
    const struct ull__device_ops *ops = device->ops;
    ull__stream slow, quick;
    ull__event late, early;
    find_driver();
    be_a_program();
    CHECK(ops->stream_create(device, &slow) == ULL_OK);
    CHECK(ops->stream_create(device, &quick) == ULL_OK);
    spin(slow, 300000000);
    CHECK(ops->record(device, slow, &late) == ULL_OK);
    CHECK(ops->record(device, quick, &early) == ULL_OK);
    CHECK(ops->wait(device, early, 100000000) && ops->done(device, early));
    CHECK(!ops->done(device, late) && !ops->wait(device, late, 0));
    CHECK(!ops->wait(device, late, 2000000));
    CHECK(ops->wait(device, late, UINT64_MAX) && ops->done(device, late));
    ops->forget(device, late);
    ops->forget(device, early);
    CHECK(ops->record(device, NULL, &late) == ULL_OK && ops->wait(device, late, UINT64_MAX));
    ops->forget(device, late);
    /* More at a time than are kept for later. */
    enum { MANY = 300 };
    static ull__event many[MANY];
    for (int i = 0; i < MANY; i++)
        CHECK(ops->record(device, quick, &many[i]) == ULL_OK);
    for (int i = 0; i < MANY; i++)
        CHECK(ops->wait(device, many[i], UINT64_MAX));
    for (int i = 0; i < MANY; i++)
        ops->forget(device, many[i]);
    ops->stream_destroy(device, slow);
    ops->stream_destroy(device, quick);
    ull__device_destroy(device);
}

static void *from_elsewhere(void *argument)
{
    struct ull__device *device = argument;
    CUcontext context = NULL;
    CHECK(cu.current(&context) == CUDA_SUCCESS && !context);
    use_everything();
    CHECK(free_bytes(device) > 0);
    CHECK(cu.current(&context) == CUDA_SUCCESS && !context); /* left as it was */
    return NULL;
}

static void test_threads(void)
{
    struct ull__device *device = open_device();
    pthread_t thread;
    find_driver();
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&thread, NULL, from_elsewhere, device) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(refused == 0);
    ull__device_destroy(device);
}

static ull__stream captured;

/* From a thread that has no context current. */
static void *sees_capture(void *device)
{
    CHECK(((struct ull__device *)device)->ops->capturing(device, captured));
    return NULL;
}

/* A capture of any mode in this thread survives all that the device does, here and in another. */
static void test_capture(void)
{
    struct ull__device *device = open_device();
    const struct ull__device_ops *ops = device->ops;
    ull__stream stream;
    ull__event event;
    find_driver();
    be_a_program();
    CHECK(ops->stream_create(device, &stream) == ULL_OK);
    CHECK(!ops->capturing(device, stream) && !ops->capturing(device, NULL));
    for (CUstreamCaptureMode mode = 0; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        CUgraph graph = NULL;
        CHECK(cu.begin(stream, mode) == CUDA_SUCCESS);
        CHECK(ops->capturing(device, stream) && !ops->capturing(device, NULL));
        CHECK(ops->record(device, stream, &event) == ULL_E_DRIVER);
        use_everything();
        pthread_t thread;
        captured = stream;
        CHECK(pthread_create(&thread, NULL, sees_capture, device) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(cu.end(stream, &graph) == CUDA_SUCCESS && graph);
        CHECK(!ops->capturing(device, stream));
    }
    CHECK(refused == 0);
    ops->stream_destroy(device, stream);
    ull__device_destroy(device);
}

/* The same where giving back takes cuMemFree, which a capture in another mode would not survive. */
static void test_plain_capture(void)
{
    setenv("ULLAGE_FAKE_VMM", "0", 1);
    struct ull__device *device = open_device();
    const struct ull__device_ops *ops = device->ops;
    ull__stream stream;
    CUgraph graph = NULL;
    ull__page at;
    find_driver();
    be_a_program();
    CHECK(ops->stream_create(device, &stream) == ULL_OK);
    CHECK(cu.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(ops->create(device, 1, &at) == ULL_OK);
    ops->destroy_pages(device, 1, &at);
    CHECK(cu.end(stream, &graph) == CUDA_SUCCESS && graph);
    ops->stream_destroy(device, stream);
    ull__device_destroy(device);
}

/* --- bad input ------------------------------------------------------------------------------------------ */

static void test_refusals(void)
{
    struct ull__device *device = open_device(), *other = device;
    const struct ull__device_ops *ops = device->ops;
    struct ull_error err = {""};
    uint64_t page = device->page_bytes, at = 1, before = free_bytes(device);
    ull__page some[PAGES];
    CHECK(strcmp(ops->name, "cuda") == 0);
    CHECK(ull__device_cuda_create(7, &other, &err) == ULL_E_NO_DEVICE);
    CHECK(other == device && strstr(err.message, "cuda:7"));
    CHECK(ull__device_cuda_create(-1, &other, NULL) == ULL_E_NO_DEVICE);
    CHECK(ops->reserve(device, 0, &at) == ULL_E_INVALID);
    CHECK(ops->reserve(device, page + 1, &at) == ULL_E_INVALID && at == 1);
    CHECK(ops->reserve(device, (uint64_t)1 << 50, &at) == ULL_E_NO_MEMORY && at == 1);
    CHECK(ops->reserve(device, PAGES * page, &at) == ULL_OK);
    size_t too_many = before / page + 1;
    ull__page *all = malloc(too_many * sizeof *all);
    CHECK(all && ops->create(device, too_many, all) == ULL_E_NO_MEMORY);
    CHECK(free_bytes(device) == before);
    CHECK(ops->create(device, PAGES, some) == ULL_OK);
    CHECK(ops->map(device, at + 1, 1, some) == ULL_E_INVALID);
    CHECK(ops->map(device, at + page, 1, some) == ULL_OK);
    CHECK(ops->map(device, at, PAGES, some) != ULL_OK); /* the second page is in the way */
    CHECK(ops->map(device, at, 1, some + 1) == ULL_OK); /* and the first was taken back */
    ops->unmap(device, at, 2);
    ops->destroy_pages(device, PAGES, some);
    ops->release(device, at, PAGES * page);
    CHECK(free_bytes(device) == before);
    ull__device_destroy(device);
    free(all);
}

static void test_no_driver(void)
{
    struct ull__device *device = NULL;
    struct ull_error err = {""};
    if (dlopen("libcuda.so.1", RTLD_NOW))
        return; /* then there is one */
    CHECK(ull__device_cuda_create(0, &device, &err) == ULL_E_NO_DEVICE && !device);
    CHECK(strstr(err.message, "libcuda.so.1"));
}

/* --- pools ------------------------------------------------------------------------------------------------ */

static void fill_and_check(struct ull_pool *pool, struct ull__device *device, uint64_t most)
{
    enum { BLOCKS = 40 };
    void *at[BLOCKS];
    uint64_t size[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size[i] = most / BLOCKS / (unsigned)(1 + (i * 7 + round) % 5) + (unsigned)i;
            CHECK(ull_pool_allocate(pool, size[i], NULL, &at[i]) == ULL_OK);
            CHECK(device->ops->fill(device, (uintptr_t)at[i], (uint8_t)i, size[i], NULL) == ULL_OK);
        }
        for (int i = 0; i < BLOCKS; i++) {
            check_bytes(device, (uintptr_t)at[i], size[i] < 4096 ? size[i] : 4096, (uint8_t)i, NULL);
            check_bytes(device, (uintptr_t)at[i] + size[i] - 1, 1, (uint8_t)i, NULL);
        }
        for (int i = 0; i < BLOCKS; i++)
            CHECK(ull_pool_free(pool, at[(i * 7) % BLOCKS], NULL) == ULL_OK);
    }
}

static void use_pool(const char *name, uint64_t small_bytes)
{
    struct ull__device *device = open_device();
    struct ull_pool_options options;
    struct ull_pool *pool;
    struct ull_error err = {""};
    uint64_t before = free_bytes(device);
    CHECK(strcmp(device->ops->name, name) == 0);
    ull_pool_options_init(&options);
    options.small_bytes = small_bytes;
    options.limit = (uint64_t)256 << 20;
    CHECK(ull_pool_create(device, &options, &pool, &err) == ULL_OK);
    fill_and_check(pool, device, (uint64_t)200 << 20);
    struct ull_stats stats = {.size = sizeof stats};
    CHECK(ull_pool_stats(pool, &stats) == ULL_OK);
    CHECK(stats.in_use == 0 && stats.refusals == 0 && stats.peak_held <= options.limit);
    void *at = NULL;
    CHECK(ull_pool_allocate(pool, options.limit + 1, NULL, &at) == ULL_E_NO_MEMORY && !at);
    ull_pool_destroy(pool);
    CHECK(free_bytes(device) == before); /* nothing leaked */
    ull__device_destroy(device);
}

static void test_pool(void)
{
    use_pool("cuda", (uint64_t)1 << 20);
}

/* --- without virtual memory ------------------------------------------------------------------------------ */

static void test_plain(void)
{
    setenv("ULLAGE_FAKE_VMM", "0", 1);
    struct ull__device *device = open_device();
    const struct ull__device_ops *ops = device->ops;
    uint64_t page = device->page_bytes, before = free_bytes(device);
    ull__page first[2], second[4], none = 1;
    CHECK(strcmp(ops->name, "cuda-plain") == 0 && device->regions);
    CHECK(ops->create(device, 2, first) == ULL_OK);
    CHECK(ops->create(device, 4, second) == ULL_OK && second[3] == second[0] + 3 * page);
    CHECK(before - free_bytes(device) == 6 * page);
    CHECK(ops->fill(device, second[0], 3, 4 * page, NULL) == ULL_OK);
    check_bytes(device, second[3] + page - 9, 9, 3, NULL);
    ops->destroy_pages(device, 2, first);
    check_bytes(device, second[0], 9, 3, NULL);
    CHECK(ops->create(device, SIZE_MAX, &none) == ULL_E_NO_MEMORY && none == 1);
    CHECK(ops->create(device, SIZE_MAX / page, &none) == ULL_E_NO_MEMORY && none == 1);
    CHECK(ops->create(device, 0, &none) == ULL_OK && none == 1);
    ops->destroy_pages(device, 0, &none);
    ops->destroy_pages(device, 4, second);
    CHECK(free_bytes(device) == before);
    ull__device_destroy(device);
}

static void test_plain_pool(void)
{
    setenv("ULLAGE_FAKE_VMM", "0", 1);
    use_pool("cuda-plain", (uint64_t)1 << 20);
}

/* The n-th region is refused once: for want of memory, smaller ones do; otherwise one request is lost. */
static void test_plain_pool_failure(void)
{
    setenv("ULLAGE_FAKE_VMM", "0", 1);
    setenv("ULLAGE_FAKE_FAIL", rule, 1);
    struct ull__device *device = open_device();
    struct ull_pool_options options;
    struct ull_pool *pool;
    uint64_t before = free_bytes(device), lost = 0;
    enum { BLOCKS = 60 };
    void *at[BLOCKS];
    char what[256] = "";
    ull_pool_options_init(&options);
    options.reserve = (uint64_t)16 << 20;
    options.limit = (uint64_t)256 << 20;
    while (ull_pool_create(device, &options, &pool, NULL) != ULL_OK) {
        CHECK(++lost == 1);
        CHECK(free_bytes(device) == before);
    }
    for (unsigned int i = 0; i < BLOCKS; i++) {
        if (ull_pool_allocate(pool, (i % 7 + 1) << 20, NULL, &at[i]) != ULL_OK) {
            at[i] = NULL;
            lost++;
        }
        CHECK(ull__pool_check(pool, what, sizeof what));
    }
    CHECK(lost <= 1);
    for (int i = 0; i < BLOCKS; i++)
        CHECK(ull_pool_free(pool, at[i], NULL) == ULL_OK);
    CHECK(ull_pool_trim(pool, UINT64_MAX, NULL) == ULL_OK);
    CHECK(before - free_bytes(device) <= (uint64_t)32 << 20); /* about the reserve */
    void *all = NULL;
    while (ull_pool_allocate(pool, options.limit, NULL, &all) != ULL_OK)
        CHECK(++lost == 1);
    ull_pool_destroy(pool);
    CHECK(free_bytes(device) == before);
    ull__device_destroy(device);
}

/* --- running ------------------------------------------------------------------------------------------------ */

static int count, failed;

static void run(const char *name, void (*test)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* Not the cards of the test before, whose memory goes back some time after its death. */
        const char *state = getenv("ULLAGE_FAKE_STATE");
        char own[512];
        snprintf(own, sizeof own, "%s.%d", state ? state : "/tmp/ullage-device-cuda", count);
        setenv("ULLAGE_FAKE_STATE", own, 1);
        test();
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    failed += status != 0;
    printf("%s %d - %s\n", status == 0 ? "ok" : "not ok", ++count, name);
}

/* Calls fail in one thread: the thread sanitizer, with which a process takes half a second, sees the first of each. */
#ifdef __SANITIZE_THREAD__
enum { FAILURES = 1 };
#else
enum { FAILURES = 100 };
#endif

static void run_failures(const char *call, int most, CUresult code, void (*test)(void))
{
    char text[80];
    for (int n = 1; n <= most && n <= FAILURES; n++) {
        snprintf(text, sizeof text, "%s:%d=%d", call, n, code);
        rule = text;
        run(text, test);
    }
}

static void run_everything(const char *call, int most)
{
    bool takes = strcmp(call, "cuMemCreate") == 0;
    run_failures(call, most, takes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN, test_failure);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "no-driver") == 0) {
        run("no driver", test_no_driver);
        return failed > 0;
    }
    run("one of everything", test_everything);
    run_everything("cuMemAddressReserve", 1);
    run_everything("cuMemCreate", 2 * PAGES);
    run_everything("cuMemMap", 3 * PAGES);
    run_everything("cuMemSetAccess", 3);
    run_everything("cuMemGetInfo_v2", 2);
    run_everything("cuStreamCreate", 1);
    run_everything("cuEventCreate", 1);
    run_everything("cuEventRecord", 1);
    run_everything("cuMemcpyHtoDAsync_v2", 1);
    run_everything("cuMemcpyDtoHAsync_v2", 2);
    run_everything("cuMemsetD8Async", 2);
    run_everything("cuStreamSynchronize", 2);
    run("events", test_events);
    run("threads without a context", test_threads);
    run("captures survive", test_capture);
    run("captures survive without virtual memory", test_plain_capture);
    run("refusals", test_refusals);
    run("a pool", test_pool);
    run("without virtual memory", test_plain);
    run("a pool without virtual memory", test_plain_pool);
    run_failures("cuMemAlloc_v2", 9, CUDA_ERROR_OUT_OF_MEMORY, test_plain_pool_failure);
    run_failures("cuMemAlloc_v2", 9, CUDA_ERROR_UNKNOWN, test_plain_pool_failure);
    run_failures("cuMemGetInfo_v2", 9, CUDA_ERROR_UNKNOWN, test_plain_pool_failure);
    printf("1..%d\n", count);
    return failed > 0;
}
