/*
 * probe.c: asks the CUDA driver which devices there are and in which order, in a child process, so that
 * nothing of the driver stays in ours. cuInit makes no context. A driver that hangs is given up on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "cuda_api.h"
#include "find.h"
#include "machine.h"

enum { PROBE_TIMEOUT_MS = 20000 };

#define LOOK_UP(name) ull_fn_##name *name = (ull_fn_##name *)dlsym(driver, #name)

static void format_uuid(const CUuuid *uuid, char text[ULL_UUID_TEXT])
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(text, ULL_UUID_TEXT,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static void report_devices(void *driver, int out)
{
    LOOK_UP(cuInit);
    LOOK_UP(cuDeviceGetCount);
    LOOK_UP(cuDeviceGet);
    LOOK_UP(cuDeviceGetName);
    LOOK_UP(cuDeviceGetUuid);
    LOOK_UP(cuDeviceGetUuid_v2);
    LOOK_UP(cuDeviceTotalMem_v2);
    LOOK_UP(cuDeviceGetAttribute);
    int count = 0;
    if (!cuInit || !cuDeviceGetCount || !cuDeviceGet || !cuDeviceGetName || !cuDeviceTotalMem_v2 ||
        !cuDeviceGetAttribute || !(cuDeviceGetUuid_v2 || cuDeviceGetUuid))
        _exit(1);
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        _exit(1);
    for (int i = 0; i < count; i++) {
        struct probe_device found;
        CUdevice device;
        CUuuid uuid;
        size_t total = 0;
        memset(&found, 0, sizeof found);
        if (cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            (cuDeviceGetUuid_v2 ? cuDeviceGetUuid_v2 : cuDeviceGetUuid)(&uuid, device) != CUDA_SUCCESS)
            _exit(1);
        format_uuid(&uuid, found.uuid);
        cuDeviceGetName(found.name, (int)sizeof found.name - 1, device);
        cuDeviceTotalMem_v2(&total, device);
        found.total_bytes = total;
        cuDeviceGetAttribute(&found.integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, device);
        if (write(out, &found, sizeof found) != (ssize_t)sizeof found)
            _exit(1);
    }
    _exit(0);
}

static void probe_child(int out)
{
    char path[ULL_LIBRARY_PATH];
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere >= 0) { /* drivers talk on standard error now and then */
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    bool found = ull__find_library("libcuda.so.1", "ULLAGE_LIBCUDA", path);
    void *driver = dlopen(found ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        _exit(1);
    report_devices(driver, out);
}

/* Reads whole records until the end or the timeout; true at the end of the pipe. */
static bool read_records(int in, char *buffer, size_t capacity, size_t *used)
{
    uint64_t deadline = cli_monotonic_ns() + PROBE_TIMEOUT_MS * 1000000ull;
    for (;;) {
        uint64_t now = cli_monotonic_ns();
        struct pollfd wait = {.fd = in, .events = POLLIN};
        if (now >= deadline || poll(&wait, 1, (int)((deadline - now) / 1000000) + 1) == 0)
            return false;
        ssize_t got = read(in, buffer + *used, capacity - *used);
        if (got == 0)
            return true;
        if (got < 0 && errno != EINTR)
            return false;
        if (got > 0)
            *used += (size_t)got;
    }
}

int probe_cuda(struct probe_device *devices, int capacity)
{
    int ends[2], status = 0;
    size_t used = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0)
        probe_child(ends[1]);
    close(ends[1]);
    bool whole = child > 0 &&
                 read_records(ends[0], (char *)devices, (size_t)capacity * sizeof *devices, &used);
    close(ends[0]);
    if (child < 0)
        return -1;
    if (!whole)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    bool good = whole && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return good ? (int)(used / sizeof *devices) : -1;
}
