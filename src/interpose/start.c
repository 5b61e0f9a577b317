/*
 * start.c: how a process becomes a member of its job.
 *
 * The first cuInit decides. Without ULLAGE_JOB in the environment the library only passes calls on.
 * With it, the process joins the job's ledger before the driver is initialized, or cuInit fails: a
 * budget that cannot be read is never taken for no budget.
 *
 * A forked child starts undecided. It is known by a page that the kernel clears in children, since
 * handlers for fork do not run in a child made by the bare system call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "async.h"
#include "interpose.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct ull__state ull__state;
static _Atomic int alive_without_page = 1;
_Atomic int *_Atomic ull__alive = &alive_without_page;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- fork --------------------------------------------------------------------------------------- */

static void forget_parent(void)
{
    pthread_mutex_init(&start_lock, NULL);
    atomic_store(&ull__state.member, NULL);
    atomic_store(&ull__state.gpu_count, 0);
    atomic_store(&ull__state.turns, 0);
    ull__blocks_forget();
    ull__pages_forget();
    ull__reserves_forget();
    ull__handles_forget();
    ull__arrays_forget();
    ull__graphs_forget();
    ull__contexts_forget();
    ull__rest_forget();
    ull__backing_forget();
    ull__async_forget();
    ull__passing_forget();
    ull__mover_forget();
    ull__measure_forget();
    ull__recorder_forget();
    atomic_store(&ull__state.phase, ULL_UNDECIDED);
    atomic_store(ull__alive, 1);
}

void ull__check_fork(void)
{
    if (atomic_load(ull__alive) == 0)
        forget_parent();
}

static void watch_for_forks(void)
{
    if (atomic_load(&ull__alive) != &alive_without_page)
        return;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0) {
        atomic_store((_Atomic int *)page, 1);
        atomic_store(&ull__alive, (_Atomic int *)page);
    } else {
        /* A kernel before 4.14: fork() of the C library is seen, the bare system call is not. */
        pthread_atfork(NULL, NULL, forget_parent);
    }
}

/* --- the driver and its devices ------------------------------------------------------------------- */

static void uuid_text(const CUuuid *uuid, char text[ULL_UUID_TEXT])
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(text, ULL_UUID_TEXT,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* The ledger's device with these 16 bytes, whether it is called GPU-... or MIG-... there. */
static int ledger_device(struct ull__member *member, const char *digits, char uuid[ULL_UUID_TEXT])
{
    static const char *const prefixes[] = {"GPU-", "MIG-"};
    for (int i = 0; i < 2; i++) {
        snprintf(uuid, ULL_UUID_TEXT, "%s%.40s", prefixes[i], digits);
        int device = ull__member_device(member, uuid);
        if (device >= 0)
            return device;
    }
    return -1;
}

static void learn_gpu(const union ull__cuda *real, struct ull__member *member, CUdevice ordinal,
                      struct ull__gpu *gpu)
{
    CUuuid uuid;
    char digits[ULL_UUID_TEXT];
    int integrated = 0, multiprocessors = 0, threads = 0;
    gpu->device = -1;
    gpu->page = 2 << 20;
    CUresult result = real->cuDeviceGetUuid_v2 ? real->cuDeviceGetUuid_v2(&uuid, ordinal)
                                               : real->cuDeviceGetUuid(&uuid, ordinal);
    if (result != CUDA_SUCCESS)
        return;
    uuid_text(&uuid, digits);
    gpu->device = ledger_device(member, digits, gpu->uuid);
    real->cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, ordinal);
    real->cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
    real->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal);
    gpu->integrated = integrated != 0;
    gpu->stack_threads = (uint64_t)multiprocessors * (uint64_t)threads;
    /* The driver takes device memory in its mapping granularity; see tests/gpu/driver_facts.c. */
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
    size_t page = 0;
    if (real->cuMemGetAllocationGranularity &&
        real->cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
            CUDA_SUCCESS &&
        page >= 4096 && (page & (page - 1)) == 0)
        gpu->page = page;
}

/* Two threads may do this at once; the first one's findings count, and they are the same. */
static void learn_gpus(const union ull__cuda *real, struct ull__member *member)
{
    struct ull__gpu found[MAX_ORDINALS];
    int count = 0;
    if (real->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    if (count > MAX_ORDINALS)
        count = MAX_ORDINALS;
    memset(found, 0, sizeof found);
    for (CUdevice i = 0; i < count; i++)
        learn_gpu(real, member, i, &found[i]);
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&ull__state.gpu_count) == 0) {
        memcpy(ull__state.gpus, found, sizeof found);
        atomic_store(&ull__state.gpu_count, count);
    }
    pthread_mutex_unlock(&start_lock);
    ull__member_wake(member); /* the parked thread has something to do now */
}

const struct ull__gpu *ull__gpu_of(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < ull__state.gpu_count ? &ull__state.gpus[ordinal] : NULL;
}

const struct ull__gpu *ull__current_gpu(void)
{
    CUdevice ordinal;
    return ull__driver->cuCtxGetDevice(&ordinal) == CUDA_SUCCESS ? ull__gpu_of(ordinal) : NULL;
}

/* --- cuInit ------------------------------------------------------------------------------------------ */

static void decide(const char *job)
{
    struct ull_error err = {""};
    if (!job || !job[0]) {
        atomic_store(&ull__state.phase, ULL_FREE);
        return;
    }
    ull_status status = ull__keeper_start(job, &err);
    if (status == ULL_OK) {
        atomic_store(&ull__state.phase, ULL_HELD);
        ull__route_report(atomic_load(&ull__state.member));
        return;
    }
    atomic_store(&ull__state.phase, ULL_BARRED);
    ull__say(
        "this process (%d) belongs to a job but cannot join its ledger: %s; CUDA is refused to it. "
        "Start it under its own `ullage run`, or without ULLAGE_JOB and LD_PRELOAD",
        (int)getpid(), err.message[0] ? err.message : ull_status_text(status));
}

CUresult ull__do_cuInit(unsigned int flags)
{
    const union ull__cuda *real = ull__driver;
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&ull__state.phase) == ULL_UNDECIDED) {
        watch_for_forks();
        decide(getenv("ULLAGE_JOB"));
    }
    pthread_mutex_unlock(&start_lock);
    if (atomic_load(&ull__state.phase) == ULL_BARRED)
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = real->cuInit(flags);
    if (result == CUDA_SUCCESS && ull__held() && atomic_load(&ull__state.gpu_count) == 0)
        learn_gpus(real, atomic_load(&ull__state.member));
    return result;
}
