/*
 * worker_streams.c: what makes a suspension hard: captures that stay open, graphs, kernels and callbacks that wait,
 * threads that launch all the time.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker.h"

static CUgraphExec graph;

static void capture(const char *until, int mode)
{
    CUgraph captured;
    CUstream s = worker.stream[0];
    struct block *first = &worker.blocks[0], *last = &worker.blocks[worker.count - 1];
    CU(cuCtxSynchronize());
    CU(cuStreamBeginCapture(s, mode));
    launch_words(worker.add, s, first->at, first->bytes / 4, 3);
    tell("capturing");
    wait_for_file(until);
    CU(cuMemsetD32Async(last->at, 77, 16, s));
    CU(cuMemcpyDtoDAsync(last->at + 64, first->at, 64, s));
    launch_words(worker.add, s, last->at, last->bytes / 4, 5);
    CU(cuStreamEndCapture(s, &captured));
    CU(cuGraphInstantiate(&graph, captured, 0));
    CU(cuGraphDestroy(captured));
    tell("captured");
}

static void replay(long count, long ms)
{
    for (long i = 0; i < count; i++) {
        CU(cuGraphLaunch(graph, worker.stream[i % 2]));
        CU(cuEventRecord(worker.event, worker.stream[i % 2]));
        CU(cuStreamWaitEvent(worker.stream[!(i % 2)], worker.event, 0));
        if (worker.progress)
            __atomic_fetch_add((uint64_t *)worker.progress, 1, __ATOMIC_RELAXED);
        if (ms > 0)
            pause_ms(ms);
    }
    CU(cuCtxSynchronize());
}

/* --- what waits for the host ------------------------------------------------------------------------------- */

static void wait_for_flag(const char *until)
{
    unsigned int *word;
    CUdeviceptr on_device;
    struct block *block = &worker.blocks[0];
    CU(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&on_device, word, 0));
    *word = 0;
    launch_wait(worker.stream[0], on_device);
    launch_words(worker.add, worker.stream[0], block->at, block->bytes / 4, 9);
    tell("waiting");
    wait_for_file(until);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    CU(cuStreamSynchronize(worker.stream[0]));
    CU(cuMemFreeHost(word));
    tell("waited");
}

static void wait_in_callback(void *until)
{
    wait_for_file(until);
}

static void callback(char *until)
{
    struct block *block = &worker.blocks[0];
    CU(cuLaunchHostFunc(worker.stream[0], wait_in_callback, until));
    launch_words(worker.add, worker.stream[0], block->at, block->bytes / 4, 11);
    tell("waiting");
    CU(cuStreamSynchronize(worker.stream[0]));
    tell("waited");
}

/* --- threads ------------------------------------------------------------------------------------------------ */

enum { THREAD_WORDS = 1 << 16, MAX_THREADS = 16 };

struct launcher {
    const char *until;
    CUdeviceptr at;
    uint32_t launches;
};

/* Each launch adds one to every word, so that at the end the words say how many ran. */
static void *launch_all_the_time(void *data)
{
    struct launcher *launcher = data;
    CUstream stream;
    CU(cuCtxSetCurrent(worker.context));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (access(launcher->until, F_OK) != 0) {
        for (int i = 0; i < 20; i++, launcher->launches++)
            launch_words(worker.add, stream, launcher->at, THREAD_WORDS, 1);
        CU(cuStreamSynchronize(stream));
    }
    CU(cuStreamDestroy(stream));
    return NULL;
}

static void threads(int count, const char *until)
{
    static uint32_t words[THREAD_WORDS];
    struct launcher launchers[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    count = count < MAX_THREADS ? count : MAX_THREADS;
    for (int i = 0; i < count; i++) {
        launchers[i] = (struct launcher){.until = until};
        CU(cuMemAlloc(&launchers[i].at, sizeof words));
        CU(cuMemsetD32(launchers[i].at, 0, THREAD_WORDS));
    }
    CU(cuCtxSynchronize());
    tell("launching");
    for (int i = 0; i < count; i++)
        if (pthread_create(&ids[i], NULL, launch_all_the_time, &launchers[i]) != 0)
            fail("pthread_create", i);
    long lost = 0, most = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(ids[i], NULL);
        CU(cuMemcpyDtoH(words, launchers[i].at, sizeof words));
        for (int j = 0; j < THREAD_WORDS; j++)
            lost += words[j] != launchers[i].launches;
        most = launchers[i].launches > most ? launchers[i].launches : most;
        CU(cuMemFree(launchers[i].at));
    }
    tell("lost %ld", lost);
    tell("launches %s", most > 0 ? "some" : "none");
}

bool streams_word(const char *word, char ***at)
{
    char **words = *at;
    if (strcmp(word, "capture") == 0) {
        capture(words[0], atoi(words[1]));
        *at += 2;
    } else if (strcmp(word, "replay") == 0) {
        replay(atol(words[0]), atol(words[1]));
        *at += 2;
    } else if (strcmp(word, "flag") == 0) {
        wait_for_flag(words[0]);
        *at += 1;
    } else if (strcmp(word, "callback") == 0) {
        callback(words[0]);
        *at += 1;
    } else if (strcmp(word, "threads") == 0) {
        threads(atoi(words[0]), words[1]);
        *at += 2;
    } else {
        return false;
    }
    return true;
}
