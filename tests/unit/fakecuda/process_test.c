/*
 * process_test.c: cards between processes: what each sees, what death, fork and exec give back, and
 * the controls that tests use. Runs itself again in other roles with other environments.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>
#include <nvml_api.h>

#include "check.h"

#define NVML_HOOK(symbol, params, args) nvmlReturn_t symbol params;
#define NVML_CALL(symbol, params) nvmlReturn_t symbol params;
#define NVML_PASS(symbol)
#include <nvml_api.def>

#define MIB ((size_t)1 << 20)

static const char *self;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static CUresult start(void)
{
    CUcontext ctx;
    CUresult r = cuInit(0);
    if (r == CUDA_SUCCESS)
        r = cuDevicePrimaryCtxRetain(&ctx, 0);
    return r == CUDA_SUCCESS ? cuCtxSetCurrent(ctx) : r;
}

/* Starts `self role` with one more variable in its environment, its output into *fd. */
static pid_t spawn(const char *role, const char *name, const char *value, int *fd)
{
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        if (name)
            setenv(name, value, 1);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(self, self, role, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *fd = ends[0];
    return pid;
}

static void run(const char *role, const char *name, const char *value)
{
    int fd, status = 0;
    pid_t pid = spawn(role, name, value, &fd);
    close(fd);
    waitpid(pid, &status, 0);
    if (status != 0) {
        fprintf(stderr, "role %s with %s=%s failed\n", role, name ? name : "", value ? value : "");
        check_failures++;
    }
}

static unsigned long long nvml_used(unsigned int pid, bool *listed)
{
    nvmlDevice_t device;
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    nvmlProcessInfo_t infos[64];
    unsigned int count = 64;
    CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
    CHECK_IS(nvmlDeviceGetMemoryInfo_v2(device, &memory), 0);
    CHECK_IS(memory.total, memory.used + memory.free + memory.reserved);
    CHECK_IS(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), 0);
    *listed = false;
    for (unsigned int i = 0; i < count; i++)
        *listed |= infos[i].pid == pid;
    return memory.used;
}

/* --- roles --- */

/* Takes 256 MiB, shows an IPC handle and waits to be killed. */
static int role_holder(void)
{
    CUdeviceptr p;
    CUipcMemHandle handle;
    if (start() != 0 || cuMemAlloc(&p, 256 * MIB) != 0 || cuMemsetD32(p, 77, 16) != 0 ||
        cuIpcGetMemHandle(&handle, p) != 0 ||
        write(STDOUT_FILENO, &handle, sizeof handle) != sizeof handle)
        return 1;
    for (;;)
        pause();
}

/* Allocates and frees without end, to be killed anywhere. */
static int role_churner(void)
{
    CUdeviceptr p[64] = {0};
    srand((unsigned)getpid());
    if (start() != 0 || write(STDOUT_FILENO, "", 1) != 1)
        return 1;
    for (;;) {
        int i = rand() % 64;
        if (p[i])
            cuMemFree(p[i]);
        p[i] = 0;
        cuMemAlloc(&p[i], 1 + (size_t)rand() % (MIB / 4));
    }
}

static int role_forker(void)
{
    CUdeviceptr p;
    int status = 0;
    CHECK_IS(start(), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cuMemAlloc(&p, 1) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    waitpid(pid, &status, 0);
    CHECK_IS(status, 0);
    CHECK_IS(cuMemAlloc(&p, 1), 0);
    return check_failures != 0;
}

/* Becomes another program, which must find the card empty a little later. */
static int role_execer(void)
{
    CUdeviceptr p;
    CHECK_IS(start(), 0);
    CHECK_IS(cuMemAlloc(&p, 512 * MIB), 0);
    char begun[40];
    snprintf(begun, sizeof begun, "%.1f", now_ms());
    setenv("BEGUN_MS", begun, 1);
    execl(self, self, "after_exec", (char *)NULL);
    return 1;
}

static int role_after_exec(void)
{
    bool listed;
    nvmlInit_v2();
    unsigned long long used = nvml_used(0, &listed);
    CHECK(used > 512 * MIB || now_ms() - atof(getenv("BEGUN_MS")) > 90);
    usleep(200000);
    CHECK_IS(nvml_used((unsigned)getpid(), &listed), 0);
    CHECK(!listed);
    return check_failures != 0;
}

static int role_failing(void)
{
    CUdeviceptr p;
    CHECK_IS(start(), 0);
    CHECK_IS(cuMemAlloc(&p, 1), 0);
    CHECK_IS(cuMemAlloc(&p, 1), 0);
    CHECK_IS(cuMemAlloc(&p, 1), CUDA_ERROR_OUT_OF_MEMORY); /* its third */
    CHECK_IS(cuMemAlloc(&p, 1), CUDA_ERROR_UNKNOWN);       /* the fifth that takes memory */
    CHECK_IS(cuMemAlloc(&p, 1), 0);
    return check_failures != 0;
}

static int role_slow(void)
{
    CUdeviceptr p;
    CHECK_IS(start(), 0);
    double t = now_ms();
    CHECK_IS(cuMemAlloc(&p, 1), 0);
    CHECK(now_ms() - t >= 30);
    return check_failures != 0;
}

static int role_old(void)
{
    void *p = NULL;
    int version = 0, found = 9;
    CHECK_IS(cuDriverGetVersion(&version), 0);
    CHECK_IS(version, 11040);
    CHECK_IS(cuGetProcAddress("cuCtxCreate", &p, 11040, 0, &found), 0);
    CHECK(p == (void *)cuCtxCreate_v3);
    CHECK_IS(cuGetProcAddress("cuCtxCreate", &p, 12050, 0, &found), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuGetProcAddress("cuLibraryLoadData", &p, 11040, 0, &found), 0);
    CHECK(!p);
    CHECK_IS(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    return check_failures != 0;
}

/* Prints which devices it sees, each by the last digit of its UUID. */
static int role_lister(void)
{
    int count = 0;
    CUuuid uuid;
    CUresult r = cuInit(0);
    if (r == 0)
        cuDeviceGetCount(&count);
    else
        printf("error %d", r);
    for (int i = 0; i < count; i++)
        if (cuDeviceGetUuid(&uuid, i) == 0)
            printf("%x", uuid.bytes[15]);
    return 0;
}

/* Out of 4 GiB: instance of 2 GiB that CUDA sees, card with two instances that NVML sees. */
static int role_mig(void)
{
    nvmlDevice_t card, mig, parent;
    nvmlMemory_t memory;
    unsigned int mode = 0;
    char uuid[64];
    int count = 0;
    size_t total = 0;
    CHECK_IS(start(), 0);
    cuDeviceGetCount(&count);
    CHECK_IS(count, 1);
    cuDeviceTotalMem(&total, 0);
    CHECK_IS(total, 2048 * MIB);
    CHECK_IS(nvmlInit_v2(), 0);
    CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &card), 0);
    CHECK_IS(nvmlDeviceGetMigMode(card, &mode, NULL), 0);
    CHECK_IS(mode, 1);
    CHECK_IS(nvmlDeviceGetMigDeviceHandleByIndex(card, 1, &mig), 0);
    CHECK_IS(nvmlDeviceGetUUID(mig, uuid, sizeof uuid), 0);
    CHECK(strncmp(uuid, "MIG-", 4) == 0);
    CHECK_IS(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &parent), 0);
    CHECK(parent == card);
    CHECK_IS(nvmlDeviceGetMemoryInfo(card, &memory), 0);
    CHECK(memory.used > 300 * MIB);
    CHECK_IS(nvmlDeviceGetMigDeviceHandleByIndex(card, 2, &mig), NVML_ERROR_NOT_FOUND);
    return check_failures != 0;
}

/* Host and card are one: pinned memory counts, and NVML tells nothing. */
static int role_integrated(void)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    unsigned int count = 0;
    size_t before = 0, after = 0;
    void *pinned;
    int integrated = 0;
    CHECK_IS(start(), 0);
    cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0);
    CHECK_IS(integrated, 1);
    cuMemGetInfo(&before, NULL);
    CHECK_IS(cuMemAllocHost(&pinned, 64 * MIB), 0);
    cuMemGetInfo(&after, NULL);
    CHECK_IS(before - after, 64 * MIB);
    nvmlInit_v2();
    CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
    CHECK_IS(nvmlDeviceGetMemoryInfo(device, &memory), NVML_ERROR_NOT_SUPPORTED);
    CHECK_IS(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL), NVML_ERROR_NOT_SUPPORTED);
    return check_failures != 0;
}

/* What ULLAGE_FAKE_NVML=nopids, otherpids and notsupported hide. */
static int role_nvml(void)
{
    const char *mode = getenv("ULLAGE_FAKE_NVML");
    nvmlDevice_t device;
    nvmlProcessInfo_t info;
    unsigned int count = 1;
    CHECK_IS(start(), 0);
    if (strcmp(mode, "notsupported") == 0)
        return nvmlInit_v2() == NVML_ERROR_DRIVER_NOT_LOADED ? 0 : 1;
    CHECK_IS(nvmlInit_v2(), 0);
    CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
    CHECK_IS(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, &info), 0);
    CHECK_IS(count, strcmp(mode, "nopids") == 0 ? 0 : 1);
    if (count == 1)
        CHECK_IS(info.pid, getpid() + 100000);
    return check_failures != 0;
}

static int role_tagged(void)
{
    CUdeviceptr p;
    CHECK_IS(start(), 0);
    CHECK_IS(cuMemAlloc(&p, 100 * MIB), 0);
    CHECK_IS(cuMemFree(p), 0);
    return check_failures != 0;
}

/* --- the tests --- */

static void sees(const char *list, const char *wanted)
{
    int fd, status;
    char seen[64] = "";
    pid_t pid = spawn("lister", list ? "CUDA_VISIBLE_DEVICES" : NULL, list, &fd);
    ssize_t n = read(fd, seen, sizeof seen - 1);
    seen[n > 0 ? n : 0] = '\0';
    close(fd);
    waitpid(pid, &status, 0);
    if (strcmp(seen, wanted) != 0) {
        fprintf(stderr, "CUDA_VISIBLE_DEVICES=%s shows %s, not %s\n", list ? list : "(unset)", seen,
                wanted);
        check_failures++;
    }
}

static void visible_devices(void)
{
    char state[300];
    const char *old = getenv("ULLAGE_FAKE_STATE");
    snprintf(state, sizeof state, "%s.three", old);
    char *saved = strdup(old);
    setenv("ULLAGE_FAKE_STATE", state, 1);
    setenv("ULLAGE_FAKE_GPUS", "1GiB,2GiB,3GiB", 1);
    sees(NULL, "012");
    sees("2,0", "20");
    sees("", "error 100");
    sees("1,1", "error 100");
    sees("0,7,1", "0");
    sees("-1,0", "error 100");
    sees("GPU-00000002-fa4e-4000-8000-000000000002", "error 100");
    sees("GPU-00000000-fa4e-4000-8000-000000000002,0", "2"); /* one kind in a list */
    sees("GPU-00000000-fa4e", "error 100");                  /* fits all three */
    sees("1,GPU-nonsense,0", "1");
    setenv("ULLAGE_FAKE_FASTEST", "2,1,0", 1);
    sees(NULL, "210");
    sees("0", "2");
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    sees("0", "0");
    unsetenv("CUDA_DEVICE_ORDER");
    unsetenv("ULLAGE_FAKE_FASTEST");
    snprintf(state, sizeof state, "%s.mig", saved);
    setenv("ULLAGE_FAKE_STATE", state, 1);
    setenv("ULLAGE_FAKE_GPUS", "4GiB", 1);
    run("mig", "ULLAGE_FAKE_MIG", "0:2GiB+2GiB");
    unsetenv("ULLAGE_FAKE_GPUS");
    setenv("ULLAGE_FAKE_STATE", saved, 1);
    free(saved);
}

static void resolution(void)
{
    void *p = NULL;
    int found = 9;
    CHECK_IS(cuGetProcAddress("cuMemAlloc", &p, 13000, 0, &found), 0);
    CHECK(p == (void *)cuMemAlloc_v2);
    CHECK_IS(found, 0);
    CHECK_IS(cuGetProcAddress("cuMemAllocAsync", &p, 12000,
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found),
             0);
    CHECK(p == (void *)cuMemAllocAsync_ptsz);
    CHECK_IS(cuGetProcAddress("cuNoSuchThing", &p, 13000, 0, &found), 0);
    CHECK(!p);
    CHECK_IS(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK_IS(cuGetProcAddress("cuMemAllocAsync", &p, 10000, 0, &found), 0);
    CHECK_IS(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK_IS(cuGetProcAddress("cuMemAlloc", &p, 13010, 0, &found), CUDA_ERROR_INVALID_VALUE);
    run("old", "ULLAGE_FAKE_DRIVER_VERSION", "11040");
}

static void death_and_import(void)
{
    int fd, status;
    bool listed;
    CUipcMemHandle handle;
    CUdeviceptr p;
    unsigned word = 0;
    unsigned long long before = nvml_used(0, &listed);
    pid_t pid = spawn("holder", NULL, NULL, &fd);
    CHECK_IS(read(fd, &handle, sizeof handle), sizeof handle);
    CHECK(nvml_used((unsigned)pid, &listed) - before > 500 * MIB);
    CHECK(listed);
    CHECK_IS(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), 0);
    double killed = now_ms();
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    unsigned long long after = nvml_used((unsigned)pid, &listed) - before;
    /* Not yet cleaned up, unless this process has waited that long for a processor. */
    CHECK((after > 500 * MIB && listed) || now_ms() - killed > 90);
    usleep(180000);
    CHECK_IS(nvml_used((unsigned)pid, &listed) - before, 256 * MIB);
    CHECK(!listed);
    CHECK_IS(cuMemcpyDtoH(&word, p + 60, 4), 0);
    CHECK_IS(word, 77);
    CHECK_IS(cuIpcCloseMemHandle(p), 0);
    CHECK_IS(nvml_used(0, &listed), before);
    close(fd);
}

static void kills(void)
{
    enum { ROUNDS = 40, AT_ONCE = 4 };
    bool listed;
    int status;
    unsigned long long before = nvml_used(0, &listed);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            int fd;
            char c;
            pid[i] = spawn("churner", "ULLAGE_FAKE_CONTEXT", "8MiB", &fd);
            CHECK_IS(read(fd, &c, 1), 1);
            close(fd);
        }
        usleep(1000 + (useconds_t)(rand() % 3000));
        for (int i = 0; i < AT_ONCE; i++)
            kill(pid[i], SIGKILL);
        for (int i = 0; i < AT_ONCE; i++)
            waitpid(pid[i], &status, 0);
    }
    usleep(250000);
    CHECK_IS(nvml_used(0, &listed), before);
}

/* A file descriptor for a handle: another name for the same bytes, in this process here. */
static void shared_handle(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle a, b;
    CUdeviceptr v;
    int fd = -1;
    unsigned word = 0;
    bool listed;
    unsigned long long before = nvml_used(0, &listed);
    CHECK_IS(cuMemCreate(&a, 2 * MIB, &prop, 0), 0);
    CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), 0);
    CHECK_IS(cuMemImportFromShareableHandle(&b, (void *)(intptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             0);
    close(fd);
    CHECK_IS(cuMemAddressReserve(&v, 4 * MIB, 0, 0, 0), 0);
    CHECK_IS(cuMemMap(v, 2 * MIB, 0, a, 0), 0);
    CHECK_IS(cuMemMap(v + 2 * MIB, 2 * MIB, 0, b, 0), 0);
    CHECK_IS(cuMemSetAccess(v, 4 * MIB, &access, 1), 0);
    CHECK_IS(cuMemsetD32(v, 42, 1), 0);
    CHECK_IS(cuMemcpyDtoH(&word, v + 2 * MIB, 4), 0);
    CHECK_IS(word, 42);
    CHECK_IS(cuMemUnmap(v, 4 * MIB), 0);
    CHECK_IS(cuMemRelease(a), 0);
    CHECK_IS(nvml_used(0, &listed), before + 2 * MIB);
    CHECK_IS(cuMemRelease(b), 0);
    CHECK_IS(nvml_used(0, &listed), before);
    CHECK_IS(cuMemAddressFree(v, 4 * MIB), 0);
}

static void tags(const char *fakectl)
{
    char command[400], line[400];
    bool found = false;
    run("tagged", "ULLAGE_FAKE_TAG", "job-a");
    snprintf(command, sizeof command, "'%s' status", fakectl);
    FILE *out = popen(command, "r");
    while (out && fgets(line, sizeof line, out))
        found |= strstr(line, "\"job-a\": {\"used\": 0, \"peak_used\": 419430400}") != NULL;
    if (out)
        pclose(out);
    CHECK(found);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } roles[] = {
        {"holder", role_holder},
        {"churner", role_churner},
        {"forker", role_forker},
        {"execer", role_execer},
        {"after_exec", role_after_exec},
        {"failing", role_failing},
        {"slow", role_slow},
        {"old", role_old},
        {"lister", role_lister},
        {"mig", role_mig},
        {"tagged", role_tagged},
        {"integrated", role_integrated},
        {"nvml", role_nvml},
    };
    self = argv[0];
    for (size_t i = 0; argc == 2 && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].run();
    CHECK_IS(nvmlInit_v2(), 0);
    run("forker", NULL, NULL);
    run("execer", NULL, NULL);
    run("failing", "ULLAGE_FAKE_FAIL", "cuMemAlloc_v2:3=2,*:5=999");
    run("slow", "ULLAGE_FAKE_DELAY", "cuMemAlloc_v2=30ms");
    run("integrated", "ULLAGE_FAKE_INTEGRATED", "1");
    run("nvml", "ULLAGE_FAKE_NVML", "nopids");
    run("nvml", "ULLAGE_FAKE_NVML", "otherpids");
    run("nvml", "ULLAGE_FAKE_NVML", "notsupported");
    tags(argc == 2 ? argv[1] : "fakectl");
    visible_devices();
    CHECK_IS(start(), 0);
    resolution();
    death_and_import();
    shared_handle();
    kills();
    return check_failures != 0;
}
