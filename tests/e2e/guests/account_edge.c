/*
 * account_edge.c: threads that allocate and free at the edge of the budget.
 *
 * Usage: account_edge MODE THREADS STEPS SEED [crowd FILE COUNT|endless]   MODE: linear, async, vmm or mixed
 *
 * Every result must be 0 or 2. Prints "grants G refusals R". At the end all is freed, and the account
 * must be the card's. With `crowd` it is one of COUNT processes: it waits for the others to have their
 * contexts too, of which each leaves a byte in FILE, and leaves the comparison to its caller, as it does whether the card's peak ever passed
 * the budget. With `endless` it waits for room for a context, and goes on until it is killed.
 */
#include "account.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64, MAX_THREADS = 64 };

static const char *mode;
static long steps;
static uint64_t seed;
static CUcontext context;
static atomic_long grants, refusals;

struct piece {
    char kind; /* 'l', 'a', 'v' */
    uint64_t value;
};

static uint64_t next(uint64_t *state, uint64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state >> 11) % below;
}

static void release(const struct piece *piece, bool wait)
{
    switch (piece->kind) {
    case 'l':
        OK(cuMemFree(piece->value));
        break;
    case 'a':
        OK(cuMemFreeAsync(piece->value, NULL));
        if (wait)
            OK(cuStreamSynchronize(NULL));
        break;
    default:
        OK(cuMemRelease(piece->value));
    }
}

static bool take(struct piece *piece, uint64_t *state)
{
    CUmemAllocationProp prop;
    CUresult result;
    char kind = mode[0] == 'm' ? "lav"[next(state, 3)] : mode[0];
    uint64_t size = next(state, 4) ? 1 + next(state, 9 * MIB) : 1 + next(state, 4096);
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    piece->kind = kind;
    if (kind == 'l')
        result = cuMemAlloc((CUdeviceptr *)&piece->value, size);
    else if (kind == 'a')
        result = cuMemAllocAsync((CUdeviceptr *)&piece->value, size, NULL);
    else
        result = cuMemCreate((CUmemGenericAllocationHandle *)&piece->value,
                             (size + PAGE - 1) / PAGE * PAGE, &prop, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        fail("an allocation (%c) gave %d", kind, result);
    atomic_fetch_add(result == CUDA_SUCCESS ? &grants : &refusals, 1);
    return result == CUDA_SUCCESS;
}

static void *work(void *data)
{
    struct piece pieces[MOST];
    uint64_t state = seed * 1000003 + (uint64_t)(uintptr_t)data * 7919 + 1;
    int count = 0;
    OK(cuCtxSetCurrent(context));
    for (long i = 0; i < steps; i++) {
        /* Rather more than there is: the edge is where it happens. */
        if (count < MOST && next(&state, 8) < 5) {
            if (take(&pieces[count], &state))
                count++;
        } else if (count > 0) {
            int at = (int)next(&state, (uint64_t)count);
            release(&pieces[at], next(&state, 4) == 0);
            pieces[at] = pieces[--count];
        }
    }
    while (count > 0)
        release(&pieces[--count], false);
    return NULL;
}

static void meet(const char *file, long count)
{
    struct stat seen = {0};
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, ".", 1) != 1)
        fail("cannot write to %s", file);
    while (fstat(fd, &seen) == 0 && seen.st_size < count)
        usleep(1000);
    close(fd);
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    if (argc < 5)
        return 2;
    mode = argv[1];
    long count = strtol(argv[2], NULL, 10);
    steps = strtol(argv[3], NULL, 10);
    seed = strtoull(argv[4], NULL, 10);
    bool crowd = argc > 7 && strcmp(argv[5], "crowd") == 0;
    OK(cuInit(0));
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    for (; result == CUDA_ERROR_OUT_OF_MEMORY && argc > 5 && !crowd; usleep(1000))
        result = cuDevicePrimaryCtxRetain(&context, 0);
    OK(result);
    if (crowd)
        meet(argv[6], strtol(argv[7], NULL, 10));
    for (long i = 0; i < count && i < MAX_THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) != 0)
            fail("no thread");
    for (long i = 0; i < count && i < MAX_THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSetCurrent(context));
    printf("grants %ld refusals %ld\n", (long)grants, (long)refusals);
    OK(cuCtxSynchronize());
    if (!crowd && !agrees_soon(held, card_own, 0))
        fail("the account is not the card's");
    return 0;
}
