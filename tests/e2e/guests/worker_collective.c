/*
 * worker_collective.c: several processes whose kernels wait for each other's, as those of a collective do. They share no
 * memory of a device, only a file that all of them have mapped and registered.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker.h"

enum { LAST = 20, OWN_WORDS = 1 << 18, RANKS = 8, MOST = 1000, FILE_BYTES = 96 << 10 };

/* What all ranks see. A flag is set once, so that nobody can miss it. tests/e2e/suspend/group.sh reads `came`. */
struct gathering {
    uint32_t came[RANKS][MOST];   /* the rank's device is in the collective */
    uint32_t passed[RANKS][MOST]; /* what the others' devices wait for */
    _Atomic uint32_t ready[RANKS];
};
_Static_assert(sizeof(struct gathering) <= FILE_BYTES, "the file is large enough");

struct rank {
    struct gathering *g;
    CUdeviceptr flags; /* where the device sees g */
    int own, count;
    bool helped;
    long collectives;
};

static CUdeviceptr on_device(const struct rank *r, const void *field)
{
    return r->flags + (CUdeviceptr)((const char *)field - (const char *)r->g);
}

static void gather(struct rank *r, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, FILE_BYTES) != 0)
        fail(path, fd);
    r->g = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (r->g == MAP_FAILED)
        fail("mmap", 0);
    CU(cuMemHostRegister(r->g, FILE_BYTES, 2 /* DEVICEMAP */));
    CU(cuMemHostGetDevicePointer(&r->flags, r->g, 0));
}

static void set_word(void *word)
{
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
}

/* One launch, as a collective's is: says that this process came to it, and waits for all others. */
static CUgraphExec make_collective(struct rank *r, long k)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstream s = worker.stream[0];
    CU(cuStreamBeginCapture(s, 2 /* RELAXED */));
    CU(cuLaunchHostFunc(s, set_word, &r->g->came[r->own][k]));
    if (!r->helped)
        CU(cuLaunchHostFunc(s, set_word, &r->g->passed[r->own][k]));
    for (int other = 0; other < r->count; other++)
        if (other != r->own || r->helped)
            launch_wait(s, on_device(r, &r->g->passed[other][k]));
    CU(cuStreamEndCapture(s, &graph));
    CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CU(cuGraphDestroy(graph));
    return exec;
}

/* As a proxy of a library that copies for a collective: all ranks' devices wait in it until every helper has copied. */
static void *help(void *data)
{
    struct rank *r = data;
    static uint32_t one = 1;
    CU(cuCtxSetCurrent(worker.context));
    for (long k = 0; k < r->collectives; k++) {
        while (!__atomic_load_n(&r->g->came[r->own][k], __ATOMIC_ACQUIRE))
            usleep(200);
        usleep(3000); /* long enough for a gate to close meanwhile, with nobody's device at rest */
        CU(cuMemcpyHtoDAsync(on_device(r, &r->g->passed[r->own][k]), &one, sizeof one,
                             worker.stream[1]));
        CU(cuStreamSynchronize(worker.stream[1]));
    }
    return NULL;
}

/*
 * Some work of its own lies between two collectives, more in one process than in another, and the host is up to `ahead`
 * collectives ahead of the device. The last ones come once the file `go` is there.
 */
static void launch_all(struct rank *r, CUgraphExec *collective, CUdeviceptr own, long ms,
                       long ahead, const char *go)
{
    CUstream s = worker.stream[0];
    for (long k = 0; k < r->collectives; k++) {
        if (k == r->collectives - LAST)
            wait_for_file(go);
        for (uint64_t i = any(4) + (r->own ? 3 : 0); i > 0; i--)
            launch_words(worker.add, s, own, OWN_WORDS, (uint32_t)(k + r->own));
        CU(cuGraphLaunch(collective[k], s));
        CU(cuMemcpyDtoDAsync(own, own + OWN_WORDS * 2, OWN_WORDS * 2, s));
        if (k % ahead == ahead - 1)
            CU(cuStreamSynchronize(s));
        uint64_t pause = any(200);
        if (pause < 100)
            pause_ms((long)pause * ms / 50);
    }
    CU(cuStreamSynchronize(s));
}

/* `rank` is "1", of two, or "1/5". */
static void collectives(const char *path, const char *rank, long count, long ms, long ahead,
                        bool helped)
{
    const char *of = strchr(rank, '/');
    struct rank r = {.own = atoi(rank), .count = of ? atoi(of + 1) : 2, .helped = helped};
    CUgraphExec collective[MOST];
    CUdeviceptr own;
    pthread_t helper;
    char go[4096];
    if (r.count > RANKS || r.own >= r.count)
        fail(rank, r.count);
    r.collectives = count < MOST ? count : MOST;
    gather(&r, path);
    CU(cuMemAlloc(&own, OWN_WORDS * 4));
    CU(cuMemsetD32(own, (unsigned int)r.own + 40, OWN_WORDS));
    CU(cuCtxSynchronize());
    for (long k = 0; k < r.collectives; k++)
        collective[k] = make_collective(&r, k);
    r.g->ready[r.own] = 1;
    for (int other = 0; other < r.count; other++)
        while (r.g->ready[other] == 0)
            pause_ms(1);
    if (helped && pthread_create(&helper, NULL, help, &r) != 0)
        fail("pthread_create", 0);
    snprintf(go, sizeof go, "%s.go", path);
    launch_all(&r, collective, own, ms, ahead, go);
    if (helped)
        pthread_join(helper, NULL);
    sum_bytes(own, OWN_WORDS * 4);
    CU(cuMemFree(own));
    CU(cuMemHostUnregister(r.g));
    tell("collectives %d %016llx", r.own, (unsigned long long)worker.sum);
}

bool collective_word(const char *word, char ***at)
{
    char **words = *at;
    bool helped = strcmp(word, "helped") == 0;
    if (!helped && strcmp(word, "collectives") != 0)
        return false;
    collectives(words[0], words[1], atol(words[2]), atol(words[3]), atol(words[4]), helped);
    *at += 5;
    return true;
}
