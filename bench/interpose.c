/*
 * interpose.c: times driver calls from inside a program; bench/interpose.sh runs it with and without
 * `ullage run` around it and takes the difference.
 *
 * Prints one JSON object of nanoseconds: per allocation and per free (with 1,000 live, half of them
 * below 1 MiB), per cuMemGetInfo, per cuGetProcAddress, per cuLaunchKernel as cuGetProcAddress gives it out, and
 * from the start of main to the end of the first cuInit.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_api.h"

enum { LIVE = 1000, ROUNDS = 300, LOOKUPS = 200000, LAUNCHES = 2000000 };

typedef CUresult launch_fn(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                           unsigned int, unsigned int, unsigned int, CUstream, void **, void **);

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *find(void *driver, const char *name)
{
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "bench/interpose: the driver has no %s\n", name);
        exit(1);
    }
    return found;
}

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "bench/interpose: %s failed with %d\n", what, result);
    exit(1);
}

int main(void)
{
    double start = now_ns();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "bench/interpose: %s\n", dlerror());
        return 3;
    }
    ull_fn_cuInit *init = find(driver, "cuInit");
    ull_fn_cuDevicePrimaryCtxRetain *retain = find(driver, "cuDevicePrimaryCtxRetain");
    ull_fn_cuCtxSetCurrent *set_current = find(driver, "cuCtxSetCurrent");
    ull_fn_cuMemAlloc_v2 *alloc = find(driver, "cuMemAlloc_v2");
    ull_fn_cuMemFree_v2 *release = find(driver, "cuMemFree_v2");
    ull_fn_cuMemGetInfo_v2 *info = find(driver, "cuMemGetInfo_v2");
    ull_fn_cuGetProcAddress_v2 *look_up = find(driver, "cuGetProcAddress_v2");
    check(init(0), "cuInit");
    double init_ns = now_ns() - start;

    CUcontext context;
    check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(set_current(context), "cuCtxSetCurrent");
    static CUdeviceptr live[LIVE];
    double alloc_ns = 0, free_ns = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double t0 = now_ns();
        for (int i = 0; i < LIVE; i++)
            check(alloc(&live[i], i % 2 ? 4096 : 4 << 20), "cuMemAlloc");
        double t1 = now_ns();
        for (int i = 0; i < LIVE; i++)
            check(release(live[i]), "cuMemFree");
        alloc_ns += t1 - t0;
        free_ns += now_ns() - t1;
    }
    size_t free_bytes, total;
    double t0 = now_ns();
    for (int i = 0; i < LOOKUPS; i++)
        info(&free_bytes, &total);
    double info_ns = now_ns() - t0;
    void *address;
    CUdriverProcAddressQueryResult found;
    t0 = now_ns();
    for (int i = 0; i < LOOKUPS; i++)
        look_up("cuMemAlloc", &address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    double look_up_ns = now_ns() - t0;
    launch_fn *launch;
    check(look_up("cuLaunchKernel", &address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found),
          "cuGetProcAddress");
    *(void **)&launch = address;
    t0 = now_ns();
    for (int i = 0; i < LAUNCHES; i++)
        launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    double launch_ns = now_ns() - t0;
    printf("{\"alloc\": %.1f, \"free\": %.1f, \"mem_get_info\": %.1f, \"get_proc_address\": %.1f, "
           "\"launch\": %.1f, \"init\": %.0f}\n",
           alloc_ns / (LIVE * ROUNDS), free_ns / (LIVE * ROUNDS), info_ns / LOOKUPS,
           look_up_ns / LOOKUPS, launch_ns / LAUNCHES, init_ns);
    return 0;
}
