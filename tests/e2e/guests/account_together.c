/*
 * account_together.c: memory with several holders in one process, which threads give back at the same moment.
 *
 * Usage: account_together KIND ROUNDS
 *   packed:   small blocks in one page        retained: a handle that was retained several times
 *   arrays:   small arrays in one page        names:    another process's block, opened several times
 *   contexts: the primary context, which each retains and releases at its own pace, so that it ends and is made
 *             again all the time: the books may neither miss one nor keep one that has ended
 *
 * The last of them to reach the driver frees the page. Meanwhile the main thread takes all that the budget has
 * beside contexts whenever it may, so the card's peak shows when the books let go of the page before the driver
 * has. That is one page, or two for what is packed, since each is a page of its own until its place is known.
 */
#include "account.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOLDERS = 4 };

static char kind;
static CUcontext context;
static uint64_t held_by[HOLDERS];
static CUipcMemHandle name;
static atomic_int left;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t together;

static bool is_packed(void)
{
    return kind == 'p' || kind == 'a';
}

/* Takes all there is: true if it was there; with `wait` it must be at last. */
static bool room(CUdeviceptr *at, bool wait)
{
    CUresult result;
    for (int i = 0;; i++, usleep(1000)) {
        result = cuMemAlloc(at, is_packed() ? 2 * PAGE : PAGE);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
            fail("cuMemAlloc gave %d", result);
        if (result == CUDA_SUCCESS || !wait)
            return result == CUDA_SUCCESS;
        if (i == 5000)
            fail("still no room");
    }
}

/* --- what there is several of ------------------------------------------------------------------------------- */

static void make_handle(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr at;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemCreate(&handle, PAGE, &prop, 0));
    OK(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    OK(cuMemMap(at, PAGE, 0, handle, 0));
    held_by[0] = handle;
    for (int i = 1; i < HOLDERS; i++) {
        OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at));
        held_by[i] = handle;
    }
    OK(cuMemUnmap(at, PAGE));
    OK(cuMemAddressFree(at, PAGE));
}

static void take(uint64_t *holder)
{
    CUDA_ARRAY_DESCRIPTOR small = {
        .Width = 100, .Height = 100, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    switch (kind) {
    case 'p':
        OK(cuMemAlloc((CUdeviceptr *)holder, PAGE / 8));
        break;
    case 'a':
        OK(cuArrayCreate(&array, &small));
        *holder = (uint64_t)(uintptr_t)array;
        break;
    case 'n':
        OK(cuIpcOpenMemHandle((CUdeviceptr *)holder, name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        break;
    default: /* a handle's holders are made at once */
        break;
    }
}

static void give_back(uint64_t holder)
{
    switch (kind) {
    case 'p':
        OK(cuMemFree(holder));
        break;
    case 'a':
        OK(cuArrayDestroy((CUarray)(uintptr_t)holder));
        break;
    case 'n':
        OK(cuIpcCloseMemHandle(holder));
        break;
    default:
        OK(cuMemRelease(holder));
    }
}

/* --- the process whose block is opened ------------------------------------------------------------------------ */

static void owner(int socket)
{
    CUdeviceptr at;
    start();
    for (char order; read(socket, &order, 1) == 1;) {
        room(&at, true);
        OK(cuIpcGetMemHandle(&name, at));
        say(socket, &name, sizeof name);
        hear(socket, &order, 1);
        OK(cuMemFree(at)); /* from now on only those who have it open hold it */
        say(socket, &order, 1);
    }
    exit(0);
}

/* --- rounds ---------------------------------------------------------------------------------------------------- */

static void *hold(void *data)
{
    uint64_t *holder = data;
    OK(cuCtxSetCurrent(context));
    if (is_packed())
        pthread_mutex_lock(&one_at_a_time);
    take(holder);
    if (is_packed())
        pthread_mutex_unlock(&one_at_a_time);
    pthread_barrier_wait(&together); /* all have it */
    pthread_barrier_wait(&together); /* and nobody else does */
    give_back(*holder);
    atomic_fetch_sub(&left, 1);
    return NULL;
}

static void round_of(int socket)
{
    pthread_t threads[HOLDERS];
    CUdeviceptr at;
    char order = 0;
    if (kind == 'n') {
        say(socket, &order, 1);
        hear(socket, &name, sizeof name);
    } else if (kind == 'r') {
        make_handle();
    }
    atomic_store(&left, HOLDERS);
    for (int i = 0; i < HOLDERS; i++)
        if (pthread_create(&threads[i], NULL, hold, &held_by[i]) != 0)
            fail("no thread");
    pthread_barrier_wait(&together);
    if (kind == 'n') {
        say(socket, &order, 1);
        hear(socket, &order, 1);
    }
    pthread_barrier_wait(&together);
    while (atomic_load(&left) > 0)
        if (room(&at, false))
            OK(cuMemFree(at));
    for (int i = 0; i < HOLDERS; i++)
        pthread_join(threads[i], NULL);
    room(&at, true);
    OK(cuMemFree(at));
}

/* --- the primary context ------------------------------------------------------------------------------------------ */

static void *come_and_go(void *data)
{
    for (long i = *(long *)data; i > 0; i--) {
        CUcontext primary;
        CUdeviceptr at;
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        OK(cuCtxSetCurrent(primary));
        OK(cuMemAlloc(&at, PAGE));
        OK(cuMemFree(at));
        OK(cuCtxSetCurrent(NULL));
        OK(cuDevicePrimaryCtxRelease(0));
    }
    return NULL;
}

static int contexts(long rounds)
{
    pthread_t threads[HOLDERS];
    OK(cuInit(0));
    for (int i = 0; i < HOLDERS; i++)
        if (pthread_create(&threads[i], NULL, come_and_go, &rounds) != 0)
            fail("no thread");
    for (int i = 0; i < HOLDERS; i++)
        pthread_join(threads[i], NULL);
    start();
    if (!agrees_soon(held, card_own, 0))
        fail("with one context");
    return 0;
}

int main(int argc, char **argv)
{
    int sockets[2], status = 0;
    pid_t child = 0;
    if (argc < 3)
        return 2;
    kind = argv[1][0];
    if (kind == 'c')
        return contexts(strtol(argv[2], NULL, 10));
    pthread_barrier_init(&together, NULL, HOLDERS + 1);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        fail("no sockets");
    if (kind == 'n' && (child = fork()) == 0) {
        close(sockets[0]);
        owner(sockets[1]);
    }
    close(sockets[1]);
    context = start();
    for (long i = strtol(argv[2], NULL, 10); i > 0; i--)
        round_of(sockets[0]);
    close(sockets[0]);
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        fail("the owner ended with %d", status);
    return 0;
}
