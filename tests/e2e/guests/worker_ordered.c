/*
 * worker_ordered.c: memory that streams order (cuMemAllocAsync), in all ways that the driver allows: several streams
 * that use each other's blocks, frees on other streams than the allocation's, blocks of cuMemAlloc freed in a
 * stream's order and the reverse, streams that end. What is printed must not depend on whose pool it is.
 *
 *   ordered N MS        N steps at random, MS between two; the sum of what the blocks held is printed
 *   limited FILE N      allocations up to what there is. Which the driver's pool refuses is written to FILE if that is
 *                       not there; else those are not asked for, and no other may be refused
 *   pairs N             what an allocation and free of a size that was just freed take
 *   keep SIZE COUNT     blocks that stay, for `verify` and `sum` (worker_rounds.c)
 *   idle                all is freed, and the pool holds nothing after a trim
 *   about               what the driver says of the default pool and of a block in it
 *   reset               the primary context ends with all that is in it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

enum { STREAMS = 4, LIVE = 40, HOST = 1 << 16, MIB = 1 << 20 };

/* Those of programs that are compiled for the default streams of threads. */
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream);

struct ordered {
    CUdeviceptr at;
    size_t words;
    uint32_t value;
    int stream;  /* that used it last */
    bool linear; /* of cuMemAlloc */
};

static struct ordered live[LIVE];
static int count;
static CUstream streams[STREAMS]; /* the last is the default stream, the one before comes and goes */
static CUmemoryPool by_default;
static bool frees_linear; /* the driver frees blocks of cuMemAlloc in a stream's order: today's does */
static uint32_t *host;

static void begin(void)
{
    streams[0] = worker.stream[0];
    streams[1] = worker.stream[1];
    CU(cuDeviceGetDefaultMemPool(&by_default, worker.device));
    if (!host)
        CU(cuMemHostAlloc((void **)&host, HOST, 0));
}

/* Some work takes long, so that what comes after it too early is seen. */
static void dawdle(int stream)
{
    unsigned long long ns = 1000 * any(300);
    void *params[] = {&ns};
    if (any(3) == 0)
        CU(cuLaunchKernel(worker.spin, 1, 1, 1, 1, 1, 1, 0, streams[stream], params, NULL));
}

static void move_to(struct ordered *block, int stream)
{
    if (block->stream != stream) {
        CU(cuEventRecord(worker.event, streams[block->stream]));
        CU(cuStreamWaitEvent(streams[stream], worker.event, 0));
        block->stream = stream;
    }
}

static size_t some_size(void)
{
    switch (any(8)) {
    case 0:
        return 4 + any(6 * MIB);
    case 1:
    case 2:
        return 4 + any(MIB);
    default:
        return 4 + any(65536);
    }
}

static void take(struct ordered *block)
{
    size_t bytes = some_size() / 4 * 4;
    int stream = (int)any(STREAMS);
    *block = (struct ordered){.words = bytes / 4, .value = (uint32_t)any(1u << 31), .stream = stream};
    switch (any(6)) {
    case 0:
        CU(cuMemAlloc(&block->at, bytes));
        block->linear = true;
        break;
    case 1:
        CU(cuMemAllocFromPoolAsync(&block->at, bytes, by_default, streams[stream]));
        break;
    case 2:
        if (streams[stream]) { /* else another stream would be meant */
            CU(cuMemAllocAsync_ptsz(&block->at, bytes, streams[stream]));
            break;
        } /* fall through */
    default:
        CU(cuMemAllocAsync(&block->at, bytes, streams[stream]));
    }
    if (block->at % 256 != 0)
        fail("alignment", (long)(block->at % 256));
    dawdle(stream);
    launch_words(worker.fill, streams[stream], block->at, block->words, block->value);
}

/* Both ends of it, which is where neighbours would write. */
static void look(struct ordered *block)
{
    size_t n = block->words * 4 < HOST / 2 ? block->words * 4 : HOST / 2;
    CUstream s = streams[block->stream];
    CU(cuMemcpyDtoHAsync(host, block->at, n, s));
    CU(cuMemcpyDtoHAsync(host + HOST / 8, block->at + block->words * 4 - n, n, s));
    CU(cuStreamSynchronize(s));
    for (size_t i = 0; i < n / 4; i++)
        if (host[i] != block->value || host[HOST / 8 + i] != block->value)
            fail("a block holds what it should not, at word", (long)i);
    worker.sum = (worker.sum ^ block->value) * 1099511628211ull;
}

static void give(int i)
{
    struct ordered block = live[i];
    live[i] = live[--count];
    if (any(2))
        look(&block);
    if (any(2))
        move_to(&block, (int)any(STREAMS));
    CUstream s = streams[block.stream];
    uint64_t how = any(8);
    switch (block.linear && !frees_linear ? 0 : how) {
    case 0:
        CU(cuMemFree(block.at));
        break;
    case 1:
        CU(cuEventRecord(worker.event, s));
        CU(cuStreamWaitEvent(CU_STREAM_PER_THREAD, worker.event, 0));
        if (any(2))
            CU(cuMemFreeAsync(block.at, CU_STREAM_PER_THREAD));
        else
            CU(cuMemFreeAsync_ptsz(block.at, NULL));
        break;
    case 2:
        if (s) {
            CU(cuMemFreeAsync_ptsz(block.at, s));
            break;
        } /* fall through */
    default:
        CU(cuMemFreeAsync(block.at, s));
    }
}

static void use(struct ordered *block)
{
    uint32_t more = (uint32_t)any(1000);
    if (any(2))
        move_to(block, (int)any(STREAMS));
    dawdle(block->stream);
    launch_words(worker.add, streams[block->stream], block->at, block->words, more);
    block->value += more;
}

static void renew_stream(void)
{
    for (int i = 0; i < count; i++)
        if (live[i].stream == 2)
            move_to(&live[i], 0);
    CU(cuStreamDestroy(streams[2])); /* its work goes on */
    CU(cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING));
}

static CUresult free_linear(void)
{
    CUdeviceptr at;
    CU(cuMemAlloc(&at, 4096));
    return cuMemFreeAsync(at, streams[0]);
}

static void ordered(long steps, long ms)
{
    begin();
    CU(cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING));
    frees_linear = free_linear() == CUDA_SUCCESS;
    for (long i = 0; i < steps; i++) {
        uint64_t what = any(100);
        if (count < LIVE && (count == 0 || what < 35))
            take(&live[count++]);
        else if (what < 60)
            give((int)any((uint64_t)count));
        else if (what < 97)
            use(&live[any((uint64_t)count)]);
        else if (what < 98)
            CU(cuMemPoolTrimTo(by_default, any(64) * MIB));
        else if (what < 99)
            renew_stream();
        else
            CU(cuCtxSynchronize());
        if (ms > 0)
            pause_ms(ms);
    }
    for (int i = 0; i < count; i++)
        look(&live[i]);
    while (count > 0)
        give(count - 1);
    CU(cuCtxSynchronize());
    CU(cuStreamDestroy(streams[2]));
    tell("ordered %016llx", (unsigned long long)worker.sum);
}

/* --- up to what there is ------------------------------------------------------------------------------------------- */

/* A stream's frees wait for a kernel of some length, so that the other stream finds what is not over yet. */
static void limited(const char *path, long steps)
{
    unsigned char refused[4096] = {0};
    FILE *file = fopen(path, "rb");
    bool known = file && fread(refused, 1, sizeof refused, file) == sizeof refused;
    long wrong = 0, refusals = 0;
    begin();
    for (long i = 0; i < steps && i < (long)sizeof refused; i++) {
        struct ordered *block = &live[count];
        size_t bytes = any(4) ? 4 + any(16 * MIB) : 4 + any(MIB);
        int stream = (int)any(2);
        *block = (struct ordered){.words = bytes / 4, .value = (uint32_t)i, .stream = stream};
        bool wanted = count < LIVE && any(5) < 3;
        if (wanted && !(known && refused[i])) {
            CUresult result = cuMemAllocAsync(&block->at, block->words * 4, streams[stream]);
            refused[i] = result != CUDA_SUCCESS;
            refusals += refused[i];
            wrong += known && refused[i];
            if (result == CUDA_SUCCESS) {
                dawdle(stream);
                launch_words(worker.fill, streams[stream], block->at, block->words, block->value);
                count++;
            }
        }
        uint64_t which = any(LIVE);
        if (!wanted && count > 0) {
            int place = (int)(which % (uint64_t)count);
            struct ordered gone = live[place];
            live[place] = live[--count];
            look(&gone);
            dawdle(gone.stream);
            CU(cuMemFreeAsync(gone.at, streams[gone.stream]));
        }
    }
    for (; count > 0; count--)
        CU(cuMemFreeAsync(live[count - 1].at, streams[live[count - 1].stream]));
    CU(cuCtxSynchronize());
    if (!known && (!(file = fopen(path, "wb")) || fwrite(refused, sizeof refused, 1, file) != 1))
        fail("cannot write", 0);
    if (file)
        fclose(file);
    tell("refused wrongly %ld", wrong);
    if (!known)
        tell("refusals %s", refusals > 20 ? "some" : "too few");
}

/* --- what it takes -------------------------------------------------------------------------------------------------- */

static void pairs(long n)
{
    static const size_t sizes[] = {512, 65536, 4 * MIB, 64 * MIB};
    CUstream s = worker.stream[0];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        CUdeviceptr at;
        struct timespec before, after;
        CU(cuMemAllocAsync(&at, sizes[k], s));
        CU(cuMemFreeAsync(at, s));
        clock_gettime(CLOCK_MONOTONIC, &before);
        for (long i = 0; i < n; i++) {
            CU(cuMemAllocAsync(&at, sizes[k], s));
            CU(cuMemFreeAsync(at, s));
        }
        clock_gettime(CLOCK_MONOTONIC, &after);
        CU(cuStreamSynchronize(s));
        double ns =
            (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
        tell("pair %zu ns %.0f", sizes[k], ns / (double)n);
    }
}

/* --- what is told ---------------------------------------------------------------------------------------------------- */

static unsigned long long pool_is(CUmemPool_attribute what)
{
    cuuint64_t value = 0;
    CU(cuMemPoolGetAttribute(by_default, what, &value));
    return value;
}

static void idle(void)
{
    begin();
    CU(cuCtxSynchronize());
    CU(cuMemPoolTrimTo(by_default, 0));
    tell("held %llu", pool_is(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static void keep(size_t bytes)
{
    struct block *block = block_room();
    *block = (struct block){.bytes = bytes / 4 * 4, .value = (uint32_t)any(1u << 31)};
    CU(cuMemAllocAsync(&block->at, block->bytes, worker.stream[0]));
    launch_words(worker.fill, worker.stream[0], block->at, block->bytes / 4, block->value);
    worker.count++;
}

static void about_pointer(CUdeviceptr at, CUdeviceptr inside)
{
    static const int plain[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,         CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,          CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    CUdeviceptr base = 0;
    CUmemoryPool pool = NULL;
    size_t size = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        long long value = 0;
        CUresult result = cuPointerGetAttribute(&value, plain[i], inside);
        tell("pointer %d %d %lld", plain[i], result, value);
    }
    CUresult result = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside);
    tell("pool %d %d", result, pool == by_default);
    result = cuMemGetAddressRange(&base, &size, inside);
    tell("range %d %lld %zu", result, (long long)base - (long long)at, size);
    CUmemGenericAllocationHandle handle;
    tell("handle %d", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)inside));
}

static void about(void)
{
    CUdeviceptr at, other;
    cuuint64_t zero = 0, threshold = 1 << 30;
    begin();
    CU(cuMemAllocAsync(&at, 5 * MIB + 100, streams[0]));
    CU(cuMemAllocAsync(&other, 3 * MIB, streams[0]));
    CU(cuMemFreeAsync(other, streams[0]));
    CU(cuStreamSynchronize(streams[0]));
    about_pointer(at, at + 5 * MIB);
    about_pointer(at, at);
    tell("used %llu high %llu", pool_is(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >> 20,
         pool_is(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >> 20);
    CU(cuMemPoolSetAttribute(by_default, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    tell("high after that %llu", pool_is(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >> 20);
    CU(cuMemPoolSetAttribute(by_default, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    tell("threshold %llu", pool_is(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    tell("free of cuMemAlloc's in a stream's order %d", free_linear());
    tell("free inside %d", cuMemFreeAsync(at + 512, streams[0]));
    CU(cuMemFreeAsync(at, streams[0]));
    tell("free twice %d", cuMemFreeAsync(at, streams[0]));
    tell("free of nothing %d", cuMemFreeAsync(0, streams[0]));
    tell("alloc of nothing %d", cuMemAllocAsync(&at, 0, streams[0]));
    tell("alloc of too much %d", cuMemAllocAsync(&at, (size_t)1 << 44, streams[0]));
    CU(cuStreamSynchronize(streams[0]));
    CU(cuMemPoolTrimTo(by_default, 0));
    tell("range of what is free %d", cuMemGetAddressRange(&other, NULL, at));
}

bool ordered_word(const char *word, char ***at)
{
    char **words = *at;
    if (strcmp(word, "ordered") == 0) {
        ordered(atol(words[0]), atol(words[1]));
        *at += 2;
    } else if (strcmp(word, "limited") == 0) {
        limited(words[0], atol(words[1]));
        *at += 2;
    } else if (strcmp(word, "pairs") == 0) {
        pairs(atol(words[0]));
        *at += 1;
    } else if (strcmp(word, "idle") == 0) {
        idle();
    } else if (strcmp(word, "about") == 0) {
        about();
    } else if (strcmp(word, "reset") == 0) {
        CU(cuDevicePrimaryCtxReset(worker.device));
        worker.count = 0;
        host = NULL;
    } else if (strcmp(word, "keep") == 0) {
        for (long i = 0; i < atol(words[1]); i++)
            keep(size_of(words[0]));
        *at += 2;
    } else {
        return false;
    }
    return true;
}
