/*
 * host_facts: what host memory costs that a job's bytes move to, one "name = value" a line.
 *
 * Pages that were never touched against such that were, by kind of memory, way of touching and number of
 * threads; what is left of that after MADV_FREE; copies between pinned and ordinary memory by number of threads;
 * and, with a device, pinning by several threads at once and what the copies to it then reach.
 *
 *   host_facts [GIB [SECONDS]]     GiB to measure with (default 4); no new measurement after so long (default 55)
 *
 * It asks nothing that could fail a test: all values depend on the machine.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
enum { MOST_THREADS = 32 };

static double began, limit_s = 55;
static size_t bytes;
static const int threads_tried[] = {1, 2, 4, 8, 16};
#define EACH_COUNT(n)                                                                              \
    for (const int *n = threads_tried;                                                             \
         n < threads_tried + sizeof threads_tried / sizeof *threads_tried; n++)

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool late(void)
{
    return now_s() - began > limit_s;
}

static void fact(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fact(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s = ", name);
    vprintf(format, args);
    printf("  [%.1f s]\n", now_s() - began);
    fflush(stdout);
    va_end(args);
}

static double rate(double seconds)
{
    return seconds > 0 ? (double)bytes / seconds * 1e-9 : 0;
}

/* --- several threads over one range ---------------------------------------------------------------------- */

typedef void step_fn(unsigned char *at, size_t size);

static struct {
    unsigned char *base;
    size_t chunk;
    step_fn *step;
    _Atomic size_t next;
    CUcontext context;
} job;

static void *take_part(void *unused)
{
    (void)unused;
    if (job.context)
        cuCtxSetCurrent(job.context);
    for (;;) {
        size_t at = atomic_fetch_add(&job.next, job.chunk);
        if (at >= bytes)
            return NULL;
        job.step(job.base + at, bytes - at < job.chunk ? bytes - at : job.chunk);
    }
}

static double in_parallel(int threads, void *base, size_t chunk, step_fn *step)
{
    pthread_t ids[MOST_THREADS];
    job.base = base;
    job.chunk = chunk;
    job.step = step;
    atomic_store(&job.next, 0);
    double t0 = now_s();
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, take_part, NULL);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return now_s() - t0;
}

/* --- touching -------------------------------------------------------------------------------------------- */

static void touch_pages(unsigned char *at, size_t size)
{
    for (size_t i = 0; i < size; i += 4096)
        *(volatile unsigned char *)(at + i) = 1;
}

static _Atomic int populate_failed;
static void populate(unsigned char *at, size_t size)
{
    if (madvise(at, size, MADV_POPULATE_WRITE) != 0)
        atomic_fetch_add(&populate_failed, 1);
}

static unsigned char *source; /* touched or pinned, 16 MiB a thread at least */
static void copy_in(unsigned char *at, size_t size)
{
    memcpy(at, source + ((size_t)(at - job.base) % (256 * MIB)), size);
}

enum kind { PLAIN, HUGE, MEMFD, MEMFD_HUGE };
static const char *const kind_name[] = {"plain", "huge", "memfd", "memfd_huge"};

static void *make(enum kind kind)
{
    int fd = -1;
    if (kind >= MEMFD) {
        fd = memfd_create("host_facts", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
            return NULL;
    }
    void *p = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE,
                   fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return NULL;
    if (kind == HUGE || kind == MEMFD_HUGE)
        madvise(p, bytes + 2 * MIB, MADV_HUGEPAGE);
    else
        madvise(p, bytes + 2 * MIB, MADV_NOHUGEPAGE);
    return p;
}

static void drop(void *p)
{
    munmap(p, bytes + 2 * MIB);
}

static void touching(enum kind kind, const char *how, step_fn *step, int threads, int rounds)
{
    char name[96], text[128] = "";
    for (int r = 0; r < rounds && !late(); r++) {
        void *p = make(kind);
        if (!p)
            return fact(kind_name[kind], "cannot be had");
        atomic_store(&populate_failed, 0);
        double s = in_parallel(threads, p, 8 * MIB, step);
        snprintf(text + strlen(text), sizeof text - strlen(text), " %.1f%s", rate(s),
                 atomic_load(&populate_failed) ? "(refused)" : "");
        drop(p);
    }
    snprintf(name, sizeof name, "%s.%s.threads_%d", kind_name[kind], how, threads);
    if (text[0])
        fact(name, "GB/s%s", text);
}

static void reuse(enum kind kind, int threads)
{
    char name[96];
    unsigned char *p = late() ? NULL : make(kind);
    if (!p)
        return;
    double first = in_parallel(threads, p, 8 * MIB, copy_in);
    double kept = in_parallel(threads, p, 8 * MIB, copy_in);
    double t0 = now_s();
    int freed = madvise(p, bytes, MADV_FREE);
    double took = now_s() - t0;
    double again = in_parallel(threads, p, 8 * MIB, copy_in);
    int freed_again = madvise(p, bytes, MADV_FREE);
    sleep(3); /* does the machine take free pages away meanwhile? */
    double later = in_parallel(threads, p, 8 * MIB, copy_in);
    drop(p);
    snprintf(name, sizeof name, "reuse.%s.threads_%d", kind_name[kind], threads);
    fact(name,
         "copied into new %.1f, kept %.1f, after MADV_FREE (%d, %.0f ms) %.1f, (%d) and 3 s %.1f "
         "GB/s",
         rate(first), rate(kept), freed, took * 1e3, rate(again), freed_again, rate(later));
}

/* --- pinning --------------------------------------------------------------------------------------------- */

static CUdevice dev;
static CUdeviceptr card;
static CUstream stream;
static _Atomic int refused;
static void *pinned_parts[1024];
static CUmemGenericAllocationHandle numa_parts[1024];
static size_t part_bytes;

static size_t part_of(unsigned char *at)
{
    return (size_t)(at - job.base) / part_bytes;
}

static void pin(unsigned char *at, size_t size)
{
    if (cuMemHostRegister(at, size, 0) != CUDA_SUCCESS)
        atomic_fetch_add(&refused, 1);
}

static void unpin(unsigned char *at, size_t size)
{
    (void)size;
    cuMemHostUnregister(at);
}

static void alloc_pinned(unsigned char *at, size_t size)
{
    if (cuMemHostAlloc(&pinned_parts[part_of(at)], size, 0) != CUDA_SUCCESS)
        atomic_fetch_add(&refused, 1);
}

static void free_pinned(unsigned char *at, size_t size)
{
    (void)size;
    cuMemFreeHost(pinned_parts[part_of(at)]);
}

static void create_numa(unsigned char *at, size_t size)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (cuMemCreate(&numa_parts[part_of(at)], size, &prop, 0) != CUDA_SUCCESS)
        atomic_fetch_add(&refused, 1);
}

static void release_numa(unsigned char *at, size_t size)
{
    (void)size;
    cuMemRelease(numa_parts[part_of(at)]);
}

static double copies(unsigned char *to, bool out)
{
    double best = 1e30;
    for (int i = 0; i < 2; i++) {
        double t0 = now_s();
        for (size_t at = 0; at < bytes; at += part_bytes) {
            CUresult r = out ? cuMemcpyDtoHAsync(to + at, card + at, part_bytes, stream)
                             : cuMemcpyHtoDAsync(card + at, to + at, part_bytes, stream);
            if (r != CUDA_SUCCESS)
                return 1e30;
        }
        if (cuStreamSynchronize(stream) != CUDA_SUCCESS)
            return 1e30;
        double s = now_s() - t0;
        best = s < best ? s : best;
    }
    return best;
}

static void registering(enum kind kind, int threads)
{
    char name[96];
    unsigned char *p = late() ? NULL : make(kind);
    if (!p)
        return;
    double touched = in_parallel(threads, p, 8 * MIB, touch_pages);
    atomic_store(&refused, 0);
    double s = in_parallel(threads, p, part_bytes, pin);
    double out = copies(p, true), in = copies(p, false);
    double off = in_parallel(threads, p, part_bytes, unpin);
    snprintf(name, sizeof name, "register.%s.threads_%d", kind_name[kind], threads);
    fact(name, "touch %.1f, register %.1f (%d refused), out %.1f, in %.1f, unregister %.1f GB/s",
         rate(touched), rate(s), atomic_load(&refused), rate(out), rate(in), rate(off));
    drop(p);
}

static void making(const char *what, step_fn *step, step_fn *undo, int threads)
{
    char name[96];
    if (late())
        return;
    atomic_store(&refused, 0);
    double s = in_parallel(threads, (void *)4096, part_bytes, step);
    int failed = atomic_load(&refused);
    double off = failed ? 0 : in_parallel(threads, (void *)4096, part_bytes, undo);
    snprintf(name, sizeof name, "%s.threads_%d", what, threads);
    fact(name, "made %.1f (%d refused), freed %.1f GB/s", rate(s), failed, rate(off));
}

static void with_device(void)
{
    part_bytes = 256 * MIB;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&dev, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&job.context, dev) != CUDA_SUCCESS ||
        cuCtxSetCurrent(job.context) != CUDA_SUCCESS || cuMemAlloc(&card, bytes) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, 1) != CUDA_SUCCESS)
        return fact("device", "none");
    cuMemsetD8(card, 3, bytes);
    cuCtxSynchronize();
    registering(HUGE, 1);
    registering(HUGE, 8);
    registering(HUGE, 16);
    registering(PLAIN, 8);
    making("host_alloc", alloc_pinned, free_pinned, 1);
    making("host_alloc", alloc_pinned, free_pinned, 8);
    making("numa", create_numa, release_numa, 1);
    making("numa", create_numa, release_numa, 8);
    making("numa", create_numa, release_numa, 16);
    unsigned char *p = late() ? NULL : make(HUGE);
    if (!p)
        return;
    in_parallel(8, p, 8 * MIB, touch_pages);
    fact("unpinned", "out %.1f, in %.1f GB/s", rate(copies(p, true)), rate(copies(p, false)));
    drop(p);
}

/* --- the machine ------------------------------------------------------------------------------------------- */

static void show_file(const char *path, int lines)
{
    char line[256];
    FILE *file = fopen(path, "r");
    for (; file && lines > 0 && fgets(line, sizeof line, file); lines--) {
        line[strcspn(line, "\n")] = '\0';
        fact(path, "%s", line);
    }
    if (file)
        fclose(file);
}

static void machine(void)
{
    fact("processors", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    show_file("/proc/version", 1);
    show_file("/proc/meminfo", 3);
    show_file("/sys/kernel/mm/transparent_hugepage/enabled", 1);
    show_file("/sys/kernel/mm/transparent_hugepage/defrag", 1);
    show_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", 1);
    show_file("/sys/fs/cgroup/memory.max", 1);
    show_file("/sys/fs/cgroup/memory.current", 1);
    show_file("/sys/devices/virtual/dmi/id/product_name", 1);
    show_file("/sys/devices/system/node/online", 1);
}

int main(int argc, char **argv)
{
    began = now_s();
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 4) * GIB;
    if (argc > 2)
        limit_s = strtod(argv[2], NULL);
    if (bytes == 0 || bytes / GIB > 64) {
        fprintf(stderr, "host_facts: expected 1 to 64 GiB\n");
        return 2;
    }
    machine();
    /* The first ones may meet pages that the machine itself never gave out before. */
    touching(HUGE, "touch", touch_pages, 16, 3);
    EACH_COUNT(n) touching(HUGE, "touch", touch_pages, *n, 1);
    touching(HUGE, "populate", populate, 1, 1);
    touching(HUGE, "populate", populate, 8, 1);
    touching(HUGE, "populate", populate, 16, 1);
    touching(PLAIN, "touch", touch_pages, 1, 1);
    touching(PLAIN, "touch", touch_pages, 8, 1);
    touching(PLAIN, "populate", populate, 8, 1);
    touching(MEMFD, "touch", touch_pages, 8, 1);
    touching(MEMFD_HUGE, "touch", touch_pages, 8, 1);
    source = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (source == MAP_FAILED)
        return 1;
    madvise(source, 256 * MIB, MADV_HUGEPAGE);
    memset(source, 5, 256 * MIB);
    reuse(HUGE, 8);
    reuse(HUGE, 16);
    reuse(PLAIN, 8);
    with_device();
    show_file("/proc/meminfo", 3);
    return 0;
}
