/*
 * share.c: a job that grows block by block, then works, and checks that no byte changed behind its back.
 *
 *   share BLOCKS SIZE ROUNDS [FILE]    prints "right" if all was as it must be; makes FILE at its end
 *
 * In every block words of its own are written all over it as it comes, and read back in every round. Exit code 1 and
 * the first difference, or the driver's error, if there is any.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { BLOCKS = 64, PROBES = 256, PAUSE_MS = 50 };

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s %d\n", what, (int)result);
    exit(1);
}

static size_t size_of(const char *text)
{
    char *unit;
    size_t size = strtoull(text, &unit, 10);
    return size << (strcmp(unit, "GiB") == 0 ? 30 : 20);
}

static uint32_t pattern(int block, size_t probe)
{
    return 0x9e3779b9u * (uint32_t)(block + 1) + (uint32_t)getpid() + (uint32_t)probe;
}

static size_t place(size_t size, size_t probe)
{
    return (size - sizeof(uint32_t)) / PROBES * probe & ~(size_t)3;
}

static void fill(CUdeviceptr block, int number, size_t size)
{
    for (size_t p = 0; p < PROBES; p++) {
        uint32_t word = pattern(number, p);
        must(cuMemcpyHtoD_v2(block + place(size, p), &word, sizeof word), "set");
    }
}

static void verify(const CUdeviceptr *blocks, int count, size_t size)
{
    for (int b = 0; b < count; b++) {
        for (size_t p = 0; p < PROBES; p++) {
            uint32_t word;
            size_t at = place(size, p);
            must(cuMemcpyDtoH_v2(&word, blocks[b] + at, sizeof word), "copy");
            if (word == pattern(b, p))
                continue;
            printf("block %d at %zu: %08x, expected %08x\n", b, at, word, pattern(b, p));
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    CUdeviceptr blocks[BLOCKS];
    CUcontext context;
    if (argc < 4)
        return 2;
    int count = atoi(argv[1]), rounds = atoi(argv[3]);
    size_t size = size_of(argv[2]);
    must(cuInit(0), "init");
    must(cuDevicePrimaryCtxRetain(&context, 0), "context");
    must(cuCtxSetCurrent(context), "current");
    for (int b = 0; b < count && b < BLOCKS; b++) {
        must(cuMemAlloc_v2(&blocks[b], size), "alloc");
        fill(blocks[b], b, size);
        verify(blocks, b + 1, size);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
    }
    for (int r = 0; r < rounds; r++) {
        verify(blocks, count, size);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
    }
    for (int b = 0; b < count; b++)
        must(cuMemFree_v2(blocks[b]), "free");
    FILE *end = argc > 4 ? fopen(argv[4], "w") : NULL;
    if (end)
        fclose(end);
    printf("right\n");
    return 0;
}
