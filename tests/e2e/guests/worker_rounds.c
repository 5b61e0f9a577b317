/*
 * worker_rounds.c: work on blocks of memory: kernels, memsets and copies whose result is known only if every one
 * ran once, in order, over the right bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker.h"

enum { GRID = 64, THREADS = 256, PIECE = 4 << 20, HOST_BYTES = 64 << 10 };

void launch_words(CUfunction function, CUstream stream, CUdeviceptr at, size_t words, uint32_t value)
{
    unsigned long long count = words;
    void *params[] = {&at, &count, &value};
    CU(cuLaunchKernel(function, GRID, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
    if (worker.progress)
        __atomic_fetch_add((uint64_t *)worker.progress, 1, __ATOMIC_RELAXED);
}

void launch_wait(CUstream stream, CUdeviceptr word)
{
    void *params[] = {&word};
    CU(cuLaunchKernel(worker.wait, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void sum_bytes(CUdeviceptr at, size_t bytes)
{
    static unsigned char *piece;
    if (!piece && !(piece = malloc(PIECE)))
        fail("no memory", 0);
    for (size_t done = 0; done < bytes; done += PIECE) {
        size_t n = bytes - done < PIECE ? bytes - done : PIECE;
        CU(cuMemcpyDtoH(piece, at + done, n));
        for (size_t i = 0; i + 8 <= n; i += 8) {
            uint64_t word;
            memcpy(&word, piece + i, 8);
            worker.sum = (worker.sum ^ word) * 1099511628211ull;
        }
        for (size_t i = n / 8 * 8; i < n; i++)
            worker.sum = (worker.sum ^ piece[i]) * 1099511628211ull;
    }
}

struct block *block_room(void)
{
    if (worker.count == worker.room) {
        worker.room = worker.room ? 2 * worker.room : 256;
        worker.blocks = realloc(worker.blocks, worker.room * sizeof *worker.blocks);
        if (!worker.blocks)
            fail("no memory", 0);
    }
    return &worker.blocks[worker.count];
}

void block_new(size_t bytes)
{
    struct block *block = block_room();
    block->bytes = bytes < 4 ? 4 : bytes / 4 * 4;
    CU(cuMemAlloc(&block->at, block->bytes));
    block->value = (uint32_t)any(1u << 31);
    launch_words(worker.fill, worker.stream[0], block->at, block->bytes / 4, block->value);
    worker.count++;
}

void block_end(size_t i)
{
    CU(cuStreamSynchronize(worker.stream[0]));
    CU(cuStreamSynchronize(worker.stream[1]));
    sum_bytes(worker.blocks[i].at, worker.blocks[i].bytes);
    CU(cuMemFree(worker.blocks[i].at));
    worker.blocks[i] = worker.blocks[--worker.count];
}

/* The first stream goes on when the other has done what it has so far. */
static void after(CUstream stream, CUstream other)
{
    CU(cuEventRecord(worker.event, other));
    CU(cuStreamWaitEvent(stream, worker.event, 0));
}

static void one_round(void)
{
    static unsigned char host[HOST_BYTES];
    struct block *a = &worker.blocks[any(worker.count)], *b = &worker.blocks[any(worker.count)];
    size_t turn = any(2), n = a->bytes < b->bytes ? a->bytes : b->bytes;
    size_t small = n < HOST_BYTES ? n : HOST_BYTES;
    CUstream s = worker.stream[turn], other = worker.stream[!turn];
    after(s, other);
    launch_words(worker.add, s, a->at, a->bytes / 4, (uint32_t)any(1000));
    switch (any(6)) {
    case 0:
        CU(cuMemsetD32Async(b->at, (unsigned int)any(1u << 30), small / 4, s));
        break;
    case 1:
        if (a != b)
            CU(cuMemcpyDtoDAsync(b->at, a->at, n, s));
        break;
    case 2:
        CU(cuMemcpyDtoHAsync(host, a->at, small, s));
        CU(cuStreamSynchronize(s));
        CU(cuMemcpyHtoDAsync(b->at, host, small, s));
        CU(cuStreamSynchronize(s));
        break;
    case 3:
        CU(cuStreamSynchronize(s));
        CU(cuMemcpyDtoH(host, a->at, small));
        CU(cuMemcpyHtoD(b->at, host, small));
        break;
    case 4:
        launch_words(worker.fill, s, b->at, small / 4, (uint32_t)any(1u << 31));
        break;
    default:
        after(other, s);
        launch_words(worker.add, other, b->at, b->bytes / 4, (uint32_t)any(1000));
    }
}

static void rounds(long count, long ms)
{
    for (long i = 0; i < count; i++) {
        one_round();
        if (ms > 0)
            pause_ms(ms);
    }
    CU(cuCtxSynchronize());
}

/* Up to 64 blocks more than there were, of sizes from a word to `largest`. */
static void churn(long count, long ms, size_t largest)
{
    size_t kept = worker.count;
    for (long i = 0; i < count; i++) {
        if (worker.count < kept + 64 && (worker.count == kept || any(2)))
            block_new(any(4) ? 4 + any(largest / 64) : 4 + any(largest));
        else
            block_end(kept + any(worker.count - kept));
        one_round();
        if (ms > 0)
            pause_ms(ms);
    }
    while (worker.count > kept)
        block_end(kept + any(worker.count - kept));
}

static void ordered_by_stream(long count, long ms)
{
    CUstream s = worker.stream[0];
    for (long i = 0; i < count; i++) {
        CUdeviceptr at[4];
        size_t bytes[4];
        for (int j = 0; j < 4; j++) {
            bytes[j] = 4 * (1 + any(1 << 18));
            CU(cuMemAllocAsync(&at[j], bytes[j], s));
            launch_words(worker.fill, s, at[j], bytes[j] / 4, (uint32_t)any(1u << 31));
        }
        if (ms > 0)
            pause_ms(ms);
        CU(cuStreamSynchronize(s));
        for (int j = 0; j < 4; j++) {
            launch_words(worker.add, s, at[j], bytes[j] / 4, 1);
            CU(cuStreamSynchronize(s));
            sum_bytes(at[j], bytes[j]);
            CU(cuMemFreeAsync(at[j], s));
        }
    }
    CU(cuStreamSynchronize(s));
}

/* For many bytes, of which nothing but the kernel that filled them has written any. */
static void verify(void)
{
    void *pinned;
    long wrong = 0;
    CU(cuMemHostAlloc(&pinned, PIECE, 0));
    for (size_t i = 0; i < worker.count; i++)
        for (size_t done = 0; done < worker.blocks[i].bytes; done += PIECE) {
            const struct block *block = &worker.blocks[i];
            size_t n = block->bytes - done < PIECE ? block->bytes - done : PIECE;
            CU(cuMemcpyDtoH(pinned, block->at + done, n));
            wrong += memcmp(pinned, &block->value, 4) != 0 ||
                     memcmp(pinned, (char *)pinned + 4, n - 4) != 0;
        }
    CU(cuMemFreeHost(pinned));
    tell("wrong %ld", wrong);
}

/* Launches that do nothing, one after the other. */
static void time_launches(long count)
{
    unsigned long long none = 0;
    void *params[] = {&none};
    struct timespec before, after;
    CU(cuCtxSynchronize());
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (long i = 0; i < count; i++)
        CU(cuLaunchKernel(worker.spin, 1, 1, 1, 1, 1, 1, 0, worker.stream[0], params, NULL));
    clock_gettime(CLOCK_MONOTONIC, &after);
    CU(cuCtxSynchronize());
    tell("launch_ns %.1f",
         ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) /
             (double)count);
}

static long long number(CUpointer_attribute what, CUdeviceptr at, CUresult *result)
{
    long long value = 0;
    *result = cuPointerGetAttribute(&value, what, at);
    return value;
}

/* All of it relative to the block, so that runs can be compared. */
static void show_pointers(void)
{
    static const int plain[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                CU_POINTER_ATTRIBUTE_MAPPED,
                                CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    const struct block *block = &worker.blocks[worker.count - 1];
    CUdeviceptr at = block->at + block->bytes / 2, base = 0;
    size_t size = 0;
    CUresult r;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        long long value = number(plain[i], at, &r);
        tell("pointer %d %d %lld", plain[i], r, value);
    }
    long long start = number(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at, &r);
    tell("pointer start %d %lld", r, start - (long long)block->at);
    long long context = number(CU_POINTER_ATTRIBUTE_CONTEXT, at, &r);
    tell("pointer context %d %d", r, (CUcontext)(uintptr_t)context == worker.context);
    long long itself = number(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at, &r);
    tell("pointer itself %d %lld", r, itself - (long long)at);
    number(CU_POINTER_ATTRIBUTE_HOST_POINTER, at, &r);
    tell("pointer host %d", r);
    r = cuMemGetAddressRange(&base, &size, at);
    tell("range %d %lld %zu", r, (long long)base - (long long)block->at, size);
    r = cuMemGetAddressRange(&base, &size, block->at + block->bytes - 1);
    tell("range of the last byte %d %lld %zu", r, (long long)base - (long long)block->at, size);
    int on = 1;
    tell("set %d", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    CUmemGenericAllocationHandle handle;
    tell("handle %d", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at));
    CUdeviceptr gone;
    CU(cuMemAlloc(&gone, 3 << 20));
    tell("free inside %d", cuMemFree(gone + 512));
    CU(cuMemFree(gone));
    tell("free twice %d", cuMemFree(gone));
    tell("range of what is free %d", cuMemGetAddressRange(&base, &size, gone));
    tell("alloc of nothing %d", cuMemAlloc(&gone, 0));
    tell("alloc of too much %d", cuMemAlloc(&gone, (size_t)1 << 44));
}

bool rounds_word(const char *word, char ***at)
{
    char **words = *at;
    if (strcmp(word, "alloc") == 0) {
        for (long i = 0; i < atol(words[1]); i++)
            block_new(size_of(words[0]));
        *at += 2;
    } else if (strcmp(word, "free") == 0) {
        for (long i = 0; i < atol(words[0]); i++)
            block_end(worker.count - 1);
        *at += 1;
    } else if (strcmp(word, "rounds") == 0) {
        rounds(atol(words[0]), atol(words[1]));
        *at += 2;
    } else if (strcmp(word, "churn") == 0) {
        churn(atol(words[0]), atol(words[1]), 12 << 20);
        *at += 2;
    } else if (strcmp(word, "small") == 0) {
        churn(atol(words[0]), atol(words[1]), 4096);
        *at += 2;
    } else if (strcmp(word, "async") == 0) {
        ordered_by_stream(atol(words[0]), atol(words[1]));
        *at += 2;
    } else if (strcmp(word, "launches") == 0) {
        time_launches(atol(words[0]));
        *at += 1;
    } else if (strcmp(word, "verify") == 0) {
        verify();
    } else if (strcmp(word, "pointers") == 0) {
        show_pointers();
    } else {
        return false;
    }
    return true;
}
