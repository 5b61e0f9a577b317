/*
 * share.c: jobs that share a card, and check that no byte changed behind their backs.
 *
 *   share BLOCKS SIZE ROUNDS [FILE [MS]]  grows block by block, then works; makes FILE at its end, "" for none; rests so long
 *                                        after each block and round (50)
 *   share serve MOST ROUNDS [FILE]       takes some blocks, MOST bytes of them together, and gives them back, round by
 *                                        round, as an inference server does
 *
 * Both print "right" if all was as it must be. Every byte of every block is written as it comes and read back in
 * every round; blocks differ, and so do their parts. Exit code 1 and the first difference, or the driver's error, if
 * there is any.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { BLOCKS = 64, CHUNK = 1 << 20, NOISE_WORDS = 1 << 16 };

/* Every chunk is a piece of this from a place of its own. */
static uint64_t noise[NOISE_WORDS + CHUNK / sizeof(uint64_t)];
static unsigned char back[CHUNK];
static long pause_ms = 50;

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

static void begin(void)
{
    uint64_t state = 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
    CUcontext context;
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise[i] = state;
    }
    must(cuInit(0), "init");
    must(cuDevicePrimaryCtxRetain(&context, 0), "context");
    must(cuCtxSetCurrent(context), "current");
}

static const void *pattern(uint64_t number, size_t at)
{
    return &noise[(number * 1000003u + at / CHUNK * 7919u) % NOISE_WORDS];
}

static size_t part(size_t size, size_t at)
{
    return size - at < CHUNK ? size - at : CHUNK;
}

static void fill(CUdeviceptr block, uint64_t number, size_t size)
{
    for (size_t at = 0; at < size; at += CHUNK)
        must(cuMemcpyHtoD_v2(block + at, pattern(number, at), part(size, at)), "set");
}

static void verify(CUdeviceptr block, uint64_t number, size_t size)
{
    for (size_t at = 0; at < size; at += CHUNK) {
        const unsigned char *wanted = pattern(number, at);
        size_t i = 0, length = part(size, at);
        must(cuMemcpyDtoH_v2(back, block + at, length), "copy");
        if (memcmp(back, wanted, length) == 0)
            continue;
        while (back[i] == wanted[i])
            i++;
        printf("block %llu at %zu: %02x, expected %02x\n", (unsigned long long)number, at + i,
               back[i], wanted[i]);
        exit(1);
    }
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
}

static void grow(int count, size_t size, int rounds)
{
    CUdeviceptr blocks[BLOCKS];
    count = count < BLOCKS ? count : BLOCKS;
    for (int b = 0; b < count; b++) {
        must(cuMemAlloc_v2(&blocks[b], size), "alloc");
        fill(blocks[b], (uint64_t)b, size);
        verify(blocks[b / 2], (uint64_t)b / 2, size);
        rest();
    }
    for (int r = 0; r < rounds; r++) {
        for (int b = 0; b < count; b++)
            verify(blocks[b], (uint64_t)b, size);
        rest();
    }
    for (int b = 0; b < count; b++)
        must(cuMemFree_v2(blocks[b]), "free");
}

static void serve(size_t most, int rounds)
{
    CUdeviceptr blocks[BLOCKS];
    for (int r = 0; r < rounds; r++) {
        int count = 1 + r * 7 % 5;
        size_t size = most / (size_t)count;
        for (int b = 0; b < count; b++) {
            must(cuMemAlloc_v2(&blocks[b], size), "alloc");
            fill(blocks[b], (uint64_t)(r * BLOCKS + b), size);
        }
        rest();
        for (int b = 0; b < count; b++) {
            verify(blocks[b], (uint64_t)(r * BLOCKS + b), size);
            must(cuMemFree_v2(blocks[b]), "free");
        }
        rest();
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    if (argc > 5)
        pause_ms = atoi(argv[5]);
    begin();
    if (strcmp(argv[1], "serve") == 0)
        serve(size_of(argv[2]) / (2 << 20) * (2 << 20), atoi(argv[3]));
    else
        grow(atoi(argv[1]), size_of(argv[2]), atoi(argv[3]));
    FILE *end = argc > 4 && argv[4][0] ? fopen(argv[4], "w") : NULL;
    if (end)
        fclose(end);
    printf("right\n");
    return 0;
}
