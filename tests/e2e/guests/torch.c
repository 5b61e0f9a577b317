/*
 * torch.c: a program that uses libullage-torch.so as PyTorch does: tensors come and go on the default stream, freed as
 * soon as the kernels that use them are launched, and the device always has the next step before it ends one.
 *
 *   torch LIBRARY KEEP LIVE MS DONE STOP
 *
 * Takes KEEP MiB as pieces beside LIVE MiB of weights, drops them, makes the file DONE and then works in steps of MS
 * milliseconds of the device with another LIVE MiB, without a pause, until the file STOP is there. Prints
 * "steps right" if every step's result was.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "cuda.h"

enum { PIECES = 8 };
#define MIB ((size_t)1 << 20)

static void *(*take)(ssize_t size, int device, void *stream);
static void (*drop)(void *at, ssize_t size, int device, void *stream);
static CUfunction spin, add;
static CUevent ended[2];
static volatile uint32_t *result;

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    printf("%s: %d\n", what, code);
    exit(1);
}
#define CU(call) must((int)(call), #call)

/* The fake card goes by the names; this runs there only. */
static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin(){ret;}\n"
    ".visible .entry add(){ret;}\n";

static void start(const char *library)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    void *handle = dlopen(library, RTLD_NOW);
    must(handle == NULL, "dlopen");
    *(void **)&take = dlsym(handle, "ullage_torch_alloc");
    *(void **)&drop = dlsym(handle, "ullage_torch_free");
    must(!take || !drop, "dlsym");
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    CU(cuModuleLoadData(&module, image));
    CU(cuModuleGetFunction(&spin, module, "spin"));
    CU(cuModuleGetFunction(&add, module, "add"));
    CU(cuEventCreate(&ended[0], CU_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&ended[1], CU_EVENT_DISABLE_TIMING));
    CU(cuMemAllocHost((void **)&result, 2 * sizeof *result));
}

static void launch(CUfunction function, void **arguments)
{
    CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
}

/* As (weights @ weights).sum(): the product is freed while the device is still at it. */
static void step(size_t bytes, uint64_t ns, uint32_t number)
{
    uint64_t words = bytes / 4;
    void *product = take((ssize_t)bytes, 0, NULL), *sum = take(512, 0, NULL);
    CU(cuMemsetD32Async((CUdeviceptr)product, 0, words, NULL));
    launch(spin, (void *[]){&ns});
    launch(add, (void *[]){&product, &words, &number});
    CU(cuMemcpyDtoDAsync((CUdeviceptr)sum, (CUdeviceptr)product + bytes - 4, 4, NULL));
    drop(product, (ssize_t)bytes, 0, NULL);
    CU(cuMemcpyDtoHAsync((void *)&result[number % 2], (CUdeviceptr)sum, 4, NULL));
    drop(sum, 512, 0, NULL);
    CU(cuEventRecord(ended[number % 2], NULL));
}

static void check(uint32_t number)
{
    CU(cuEventSynchronize(ended[number % 2]));
    must(result[number % 2] != number, "step");
}

int main(int argc, char **argv)
{
    must(argc != 7, "torch LIBRARY KEEP LIVE MS DONE STOP");
    size_t keep = (size_t)atol(argv[2]) * MIB, live = (size_t)atol(argv[3]) * MIB;
    uint64_t ns = (uint64_t)atol(argv[4]) * 1000000;
    void *piece[PIECES];
    uint32_t number = 1;
    start(argv[1]);
    void *weights = take((ssize_t)live, 0, NULL);
    step(live, ns, number);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = take((ssize_t)(keep / PIECES), 0, NULL);
        CU(cuMemsetD8Async((CUdeviceptr)piece[i], 1, keep / PIECES, NULL));
    }
    CU(cuCtxSynchronize());
    for (int i = 0; i < PIECES; i++)
        drop(piece[i], (ssize_t)(keep / PIECES), 0, NULL);
    fclose(fopen(argv[5], "w"));
    step(live, ns, number);
    while (access(argv[6], F_OK) != 0) {
        step(live, ns, number + 1); /* the next one is there before this one ends */
        check(number++);
    }
    check(number);
    drop(weights, (ssize_t)live, 0, NULL);
    puts("steps right");
    return 0;
}
