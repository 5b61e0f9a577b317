/*
 * worker_shared.c: memory that two processes have open, two devices that reach into each other, and two processes
 * whose kernels wait for each other, as those of a collective do.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker.h"

enum { SHARED_WORDS = 1 << 18, MAX_ROUNDS = 1000, FILE_BYTES = 64 << 10 };

/* What both processes see. A flag is set once, so that nobody can miss it. */
struct meeting {
    CUipcMemHandle handle[2];
    _Atomic uint32_t ready[2], done[2];
    uint32_t arrived[2][MAX_ROUNDS], left[2][MAX_ROUNDS];
};
_Static_assert(sizeof(struct meeting) <= FILE_BYTES, "the file is large enough");

static struct meeting *meet(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, FILE_BYTES) != 0)
        fail(path, fd);
    struct meeting *meeting = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (meeting == MAP_FAILED)
        fail("mmap", 0);
    return meeting;
}

static void wait_for(_Atomic uint32_t *word)
{
    while (*word == 0)
        pause_ms(1);
}

/* --- a block of one process, worked on by another ----------------------------------------------------------- */

static void export_block(const char *path)
{
    struct meeting *meeting = meet(path);
    struct block *block = &worker.blocks[worker.count - 1];
    CU(cuCtxSynchronize());
    CU(cuIpcGetMemHandle(&meeting->handle[0], block->at));
    meeting->ready[0] = 1;
    wait_for(&meeting->done[0]);
    tell("exported");
}

static void import_block(const char *path, long count, long ms)
{
    struct meeting *meeting = meet(path);
    CUdeviceptr at, base = 0;
    size_t size = 0;
    wait_for(&meeting->ready[0]);
    CU(cuIpcOpenMemHandle(&at, meeting->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CU(cuMemGetAddressRange(&base, &size, at));
    tell("imported %lld %zu", (long long)(at - base), size);
    for (long i = 0; i < count; i++) {
        launch_words(worker.add, worker.stream[0], at, size / 4, (uint32_t)i + 1);
        if (ms > 0)
            pause_ms(ms);
    }
    CU(cuStreamSynchronize(worker.stream[0]));
    CU(cuIpcCloseMemHandle(at));
    meeting->done[0] = 1;
}

/* --- kernels of two processes that wait for each other -------------------------------------------------------- */

static void set_word(void *word)
{
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
}

/* The peer's buffer is read after both have written theirs, and written again after both have read. */
static void ring_round(struct meeting *m, int rank, long k, CUdeviceptr flags, CUdeviceptr own,
                       CUdeviceptr theirs, CUdeviceptr scratch)
{
    CUstream s = worker.stream[0];
    int peer = !rank;
    size_t half = SHARED_WORDS * 2;
#define ON_DEVICE(field) (flags + (CUdeviceptr)((char *)&(field) - (char *)m))
    launch_words(worker.add, s, own, SHARED_WORDS, (uint32_t)(k * 2 + rank + 1));
    CU(cuLaunchHostFunc(s, set_word, &m->arrived[rank][k]));
    launch_wait(s, ON_DEVICE(m->arrived[peer][k]));
    CU(cuMemcpyDtoDAsync(scratch, theirs, half, s));
    CU(cuLaunchHostFunc(s, set_word, &m->left[rank][k]));
    launch_wait(s, ON_DEVICE(m->left[peer][k]));
    CU(cuMemcpyDtoDAsync(own + half, scratch, half, s));
}

static void ring(const char *path, int rank, long count, long ms)
{
    struct meeting *meeting = meet(path);
    CUdeviceptr own, theirs, scratch, flags;
    count = count < MAX_ROUNDS ? count : MAX_ROUNDS;
    CU(cuMemHostRegister(meeting, FILE_BYTES, 2 /* DEVICEMAP */));
    CU(cuMemHostGetDevicePointer(&flags, meeting, 0));
    CU(cuMemAlloc(&own, SHARED_WORDS * 4));
    CU(cuMemAlloc(&scratch, SHARED_WORDS * 4));
    CU(cuMemsetD32(own, (unsigned int)rank + 40, SHARED_WORDS));
    CU(cuCtxSynchronize());
    CU(cuIpcGetMemHandle(&meeting->handle[rank], own));
    meeting->ready[rank] = 1;
    wait_for(&meeting->ready[!rank]);
    CU(cuIpcOpenMemHandle(&theirs, meeting->handle[!rank], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    for (long k = 0; k < count; k++) {
        ring_round(meeting, rank, k, flags, own, theirs, scratch);
        CU(cuStreamSynchronize(worker.stream[0]));
        if (ms > 0)
            pause_ms(ms);
    }
    sum_bytes(own, SHARED_WORDS * 4);
    CU(cuIpcCloseMemHandle(theirs));
    meeting->done[rank] = 1;
    wait_for(&meeting->done[!rank]);
    CU(cuMemFree(own));
    CU(cuMemFree(scratch));
    CU(cuMemHostUnregister(meeting));
    tell("ring %d %016llx", rank, (unsigned long long)worker.sum);
}

/* --- two devices ------------------------------------------------------------------------------------------------ */

static void peer(long count, long ms)
{
    CUcontext other;
    CUdeviceptr before, here, there;
    CU(cuDevicePrimaryCtxRetain(&other, !worker.device));
    CU(cuCtxSetCurrent(other));
    CU(cuMemAlloc(&before, SHARED_WORDS * 4)); /* from before the access is there */
    CU(cuMemsetD32(before, 1, SHARED_WORDS));
    CU(cuCtxSynchronize());
    CU(cuCtxEnablePeerAccess(worker.context, 0));
    CU(cuCtxSetCurrent(worker.context));
    CU(cuCtxEnablePeerAccess(other, 0));
    CU(cuMemAlloc(&here, SHARED_WORDS * 4));
    CU(cuMemsetD32(here, 2, SHARED_WORDS));
    CU(cuCtxSynchronize());
    CU(cuCtxSetCurrent(other));
    CU(cuMemAlloc(&there, SHARED_WORDS * 4)); /* and from after */
    CU(cuMemsetD32(there, 3, SHARED_WORDS));
    CU(cuCtxSynchronize());
    CU(cuCtxSetCurrent(worker.context));
    for (long i = 0; i < count; i++) {
        CUstream s = worker.stream[0];
        launch_words(worker.add, s, before, SHARED_WORDS, (uint32_t)i);
        launch_words(worker.add, s, there, SHARED_WORDS, (uint32_t)i + 1);
        CU(cuMemcpyPeerAsync(here, worker.context, there, other, SHARED_WORDS * 2, s));
        CU(cuMemcpyDtoDAsync(before + SHARED_WORDS * 2, here, SHARED_WORDS, s));
        if (ms > 0)
            pause_ms(ms);
    }
    CU(cuCtxSynchronize());
    sum_bytes(before, SHARED_WORDS * 4);
    sum_bytes(here, SHARED_WORDS * 4);
    sum_bytes(there, SHARED_WORDS * 4);
    CU(cuMemFree(here));
    CU(cuCtxSetCurrent(other));
    CU(cuMemFree(before));
    CU(cuMemFree(there));
    CU(cuCtxSetCurrent(worker.context));
    tell("peer");
}

bool shared_word(const char *word, char ***at)
{
    char **words = *at;
    if (strcmp(word, "export") == 0) {
        export_block(words[0]);
        *at += 1;
    } else if (strcmp(word, "import") == 0) {
        import_block(words[0], atol(words[1]), atol(words[2]));
        *at += 3;
    } else if (strcmp(word, "ring") == 0) {
        ring(words[0], atoi(words[1]), atol(words[2]), atol(words[3]));
        *at += 4;
    } else if (strcmp(word, "peer") == 0) {
        peer(atol(words[0]), atol(words[1]));
        *at += 2;
    } else {
        return false;
    }
    return true;
}
