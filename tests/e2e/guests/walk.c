/*
 * walk.c: what a program gets from cuGetProcAddress for every name, version and stream flag.
 *
 *   walk NAMES VERSION...   asks for every name of the file NAMES (one a line)
 *   walk call               calls what it gets for a few names, to see where the call arrives
 *
 * A line for every question: name, version, flags, result of both forms, status, and the address as
 * FILE+OFFSET:SYMBOL, where the symbol is known and named exactly. The same program with and without
 * the interposer is what routes.py compares.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

typedef CUresult ask_fn(const char *, void **, int, cuuint64_t);
typedef CUresult ask_v2_fn(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static ask_fn *ask;
static ask_v2_fn *ask_v2;

static void describe(void *address, char *text, size_t size)
{
    Dl_info info;
    if (!address || !dladdr(address, &info)) {
        snprintf(text, size, "%s", address ? "?" : "null");
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(text, size, "%s+%lx:%s", slash ? slash + 1 : info.dli_fname,
             (unsigned long)((uintptr_t)address - (uintptr_t)info.dli_fbase),
             info.dli_saddr == address ? info.dli_sname : "");
}

static void ask_one(const char *name, int version, cuuint64_t flags)
{
    char where[512], where_old[512];
    void *address = (void *)1, *old = (void *)1;
    CUdriverProcAddressQueryResult status = 77;
    CUresult result = ask_v2(name, &address, version, flags, &status);
    CUresult result_old = ask(name, &old, version, flags);
    /* What is not written stays 1. */
    describe(address == (void *)1 ? NULL : address, where, sizeof where);
    describe(old == (void *)1 ? NULL : old, where_old, sizeof where_old);
    printf("%s %d %d %d %d %d %s %s\n", name, version, (int)flags, (int)result, (int)result_old,
           (int)status, where, strcmp(where, where_old) == 0 ? "same" : where_old);
}

static void walk(const char *path, char **versions)
{
    char name[128];
    FILE *names = fopen(path, "r");
    if (!names)
        exit(91);
    while (fscanf(names, "%127s", name) == 1)
        for (char **version = versions; *version; version++)
            for (cuuint64_t flags = 0; flags <= 2; flags++)
                ask_one(name, atoi(*version), flags);
    fclose(names);
}

static void *get(const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    if (ask_v2(name, &address, version, flags, &status) != CUDA_SUCCESS || !address)
        exit(92);
    return address;
}

/* Both forms of a call, old and new, legacy and per-thread: which the fake driver was told to fail. */
static void call(void)
{
    CUdeviceptr pointer = 0;
    CUdeviceptr_v1 pointer32 = 0;
    CUcontext context = NULL;
    CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))get("cuInit", 11040, 0);
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))get("cuDevicePrimaryCtxRetain", 11040, 0);
    CUresult (*use)(CUcontext) = (CUresult(*)(CUcontext))get("cuCtxSetCurrent", 11040, 0);
    CUresult (*alloc1)(CUdeviceptr_v1 *, unsigned int) =
        (CUresult(*)(CUdeviceptr_v1 *, unsigned int))get("cuMemAlloc", 2000, 0);
    CUresult (*alloc2)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))get("cuMemAlloc", 12000, 0);
    CUresult (*async)(CUdeviceptr *, size_t, CUstream) =
        (CUresult(*)(CUdeviceptr *, size_t, CUstream))get("cuMemAllocAsync", 12000, 1);
    CUresult (*async_pt)(CUdeviceptr *, size_t, CUstream) =
        (CUresult(*)(CUdeviceptr *, size_t, CUstream))get("cuMemAllocAsync", 12000, 2);
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS || use(context) != CUDA_SUCCESS)
        exit(93);
    printf("cuMemAlloc %d\n", alloc1(&pointer32, 1 << 20));
    printf("cuMemAlloc_v2 %d\n", alloc2(&pointer, 1 << 20));
    printf("cuMemAllocAsync %d\n", async(&pointer, 1 << 20, NULL));
    printf("cuMemAllocAsync_ptsz %d\n", async_pt(&pointer, 1 << 20, NULL));
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || argc < 2)
        return 94;
    *(void **)&ask = dlsym(driver, "cuGetProcAddress");
    *(void **)&ask_v2 = dlsym(driver, "cuGetProcAddress_v2");
    if (!ask || !ask_v2)
        return 95;
    if (strcmp(argv[1], "call") == 0)
        call();
    else
        walk(argv[1], argv + 2);
    return 0;
}
