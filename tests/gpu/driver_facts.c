/*
 * driver_facts: asks a CUDA driver how it takes and gives back memory, one "name = value" a line.
 *
 * The same program runs on a real card and on tests/fakecuda. Its output on an H200 is kept beside
 * it (driver_facts.h200.txt) and a test compares the fake driver's answers with that file, so the
 * fake cannot become more lenient than the real thing without being seen. Lines that start with
 * "info." depend on the card and are not compared.
 *
 * Sizes are in KiB unless the name says otherwise; status values are numbers of CUresult.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static CUdevice dev;
static CUcontext ctx;

static void fact(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s = ", name);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}

/* Bytes of the device in use by everybody, as the driver says. */
static size_t device_used(void)
{
    size_t free_bytes = 0, total = 0;
    cuMemGetInfo(&free_bytes, &total);
    return total - free_bytes;
}

static long long grown_kib(size_t before)
{
    return ((long long)device_used() - (long long)before) / 1024;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* A kernel that runs for a given number of nanoseconds. */
static const char *spin_ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 n){.reg .u64 %r<5>;.reg .pred %p;"
    "ld.param.u64 %r1,[n];mov.u64 %r2,%globaltimer;"
    "L: mov.u64 %r3,%globaltimer;sub.u64 %r3,%r3,%r2;setp.lt.u64 %p,%r3,%r1;@%p bra L;ret;}\n";
static CUmodule spin_module;
static CUfunction spin_function;

static CUresult spin(CUstream stream, unsigned long long ms)
{
    unsigned long long ns = ms * 1000000;
    void *args[] = {&ns};
    return cuLaunchKernel(spin_function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* --- linear allocations ------------------------------------------------------------------- */

static void packing(void)
{
    static const size_t sizes[] = {1,           256 * KIB,   512 * KIB,   768 * KIB,
                                   1 * MIB,     1 * MIB + 1, 2 * MIB - 1, 2 * MIB,
                                   2 * MIB + 1, 5 * MIB,     33 * MIB};
    CUdeviceptr p[16];
    char name[64];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t before = device_used();
        for (int j = 0; j < 16; j++)
            cuMemAlloc(&p[j], sizes[i]);
        snprintf(name, sizeof name, "linear.16x%zu.grown", sizes[i]);
        fact(name, "%lld", grown_kib(before));
        if (i == 0)
            fact("linear.one_byte.distance_bytes", "%lld", (long long)p[9] - (long long)p[8]);
        for (int j = 0; j < 16; j++)
            cuMemFree(p[j]);
        snprintf(name, sizeof name, "linear.16x%zu.after_free", sizes[i]);
        fact(name, "%lld", grown_kib(before));
    }
    CUdeviceptr *many = malloc(1000 * sizeof *many);
    size_t before = device_used();
    for (int i = 0; i < 1000; i++)
        cuMemAlloc(&many[i], 1);
    fact("linear.1000x1.grown", "%lld", grown_kib(before));
    for (int i = 0; i < 1000; i++)
        cuMemFree(many[i]);
    fact("linear.1000x1.after_free", "%lld", grown_kib(before));
    free(many);
}

/*
 * Does "a 2 MiB page of addresses is charged while any allocation touches it" explain what the
 * driver takes? Random allocations and frees; the largest difference seen between the two.
 */
enum { MODEL_LIVE = 400, MODEL_PAGES = 1 << 16 };
static void page_model(const char *name, size_t max_size, unsigned seed)
{
    static CUdeviceptr ptr[MODEL_LIVE];
    static size_t size[MODEL_LIVE];
    static struct {
        unsigned long long page;
        int refs;
    } table[MODEL_PAGES];
    memset(ptr, 0, sizeof ptr);
    memset(table, 0, sizeof table);
    long long pages = 0, worst_over = 0, worst_under = 0;
    size_t before = device_used();
    srand(seed);
    for (int step = 0; step < 4000; step++) {
        int i = rand() % MODEL_LIVE;
        int sign = ptr[i] ? -1 : 1;
        if (!ptr[i]) {
            size[i] = 1 + (size_t)rand() % max_size;
            if (rand() % 4 == 0)
                size[i] = 1 + (size_t)rand() % (64 * KIB);
            if (cuMemAlloc(&ptr[i], size[i]) != CUDA_SUCCESS) {
                ptr[i] = 0;
                continue;
            }
        }
        for (unsigned long long a = ptr[i] >> 21; a <= (ptr[i] + size[i] - 1) >> 21; a++) {
            unsigned h = (unsigned)(a * 2654435761u) % MODEL_PAGES;
            while (table[h].page && table[h].page != a)
                h = (h + 1) % MODEL_PAGES;
            table[h].page = a;
            if (sign > 0 && table[h].refs++ == 0)
                pages++;
            if (sign < 0 && --table[h].refs == 0)
                pages--;
        }
        if (sign < 0) {
            cuMemFree(ptr[i]);
            ptr[i] = 0;
        }
        long long diff = ((long long)device_used() - (long long)before) / (long long)MIB - pages * 2;
        if (diff > worst_over)
            worst_over = diff;
        if (diff < worst_under)
            worst_under = diff;
    }
    fact(name, "over %lld under %lld MiB", worst_over, worst_under);
    for (int i = 0; i < MODEL_LIVE; i++)
        if (ptr[i])
            cuMemFree(ptr[i]);
    char left[80];
    snprintf(left, sizeof left, "%s.after_free", name);
    fact(left, "%lld", grown_kib(before));
}

static void linear_errors(void)
{
    CUdeviceptr p = 0, base = 0;
    size_t size = 0, pitch = 0;
    fact("linear.zero", "%d", cuMemAlloc(&p, 0));
    fact("linear.whole_terabyte", "%d", cuMemAlloc(&p, (size_t)1 << 40));
    fact("linear.null_out", "%d", cuMemAlloc(NULL, 1));
    cuMemAlloc(&p, 1000);
    CUresult range = cuMemGetAddressRange(&base, &size, p + 5);
    fact("linear.range.1000", "%d size %zu offset %lld", range, size, (long long)(p - base));
    fact("linear.free_inner", "%d", cuMemFree(p + 256));
    fact("linear.free", "%d", cuMemFree(p));
    fact("linear.double_free", "%d", cuMemFree(p));
    fact("linear.free_unknown", "%d", cuMemFree(0x1000));
    fact("linear.free_null", "%d", cuMemFree(0));
    fact("linear.use_after_free", "%d", cuMemsetD8(p, 0, 16));
    static const size_t widths[] = {1, 511, 512, 513, 1000, 5000, 100000, 1 << 20};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        char name[64];
        CUresult r = cuMemAllocPitch(&p, &pitch, widths[i], 10, 4);
        snprintf(name, sizeof name, "pitch.%zu", widths[i]);
        fact(name, "%d pitch %zu", r, pitch);
        cuMemFree(p);
    }
    fact("info.pitch_null", "%d", cuMemGetInfo(NULL, &size));
    fact("meminfo.null_total", "%d", cuMemGetInfo(&size, NULL));
}

static void contexts(void)
{
    CUcontext other = NULL;
    CUdeviceptr p = 0, q = 0;
    CUstream s = NULL;
    size_t before = device_used();
    CUresult r = cuCtxCreate(&other, NULL, 0, dev);
    fact("context.second", "%d", r);
    fact("info.context.second.grown", "%lld", grown_kib(before));
    cuMemAlloc(&q, 8 * MIB);
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuCtxSetCurrent(ctx);
    fact("context.stream_of_other", "%d", cuStreamSynchronize(s));
    fact("context.record_on_stream_of_other", "%d", cuMemsetD8Async(q, 1, 16, s));
    fact("context.memset_of_other", "%d", cuMemsetD8(q, 1, 16));
    cuStreamSynchronize(s);
    cuCtxSynchronize();
    fact("context.free_of_other", "%d", cuMemFree(q));
    cuCtxSetCurrent(other);
    cuMemAlloc(&q, 8 * MIB);
    cuCtxSetCurrent(ctx);
    cuCtxDestroy(other);
    fact("context.destroyed.grown", "%lld", grown_kib(before) / 1024);
    fact("context.free_after_destroy", "%d", cuMemFree(q));
    while (cuCtxPopCurrent(&other) == CUDA_SUCCESS && other)
        ;
    fact("context.none.alloc", "%d", cuMemAlloc(&p, 1));
    fact("context.none.meminfo", "%d", cuMemGetInfo(&before, &before));
    fact("context.none.sync", "%d", cuCtxSynchronize());
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
    CUmemGenericAllocationHandle h = 0;
    fact("context.none.create", "%d", cuMemCreate(&h, 2 * MIB, &prop, 0));
    fact("context.none.release", "%d", cuMemRelease(h));
    cuCtxSetCurrent(ctx);
    CUcontext again = NULL;
    before = device_used();
    fact("context.retain_again", "%d", cuDevicePrimaryCtxRetain(&again, dev));
    fact("context.retain_again.grown", "%lld", grown_kib(before));
    cuDevicePrimaryCtxRelease(dev);
    static const int limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE,
                                 CU_LIMIT_MALLOC_HEAP_SIZE};
    static const size_t values[] = {16 * KIB, 64 * MIB, 256 * MIB};
    for (int i = 0; i < 3; i++) {
        char name[64];
        size_t old = 0;
        before = device_used();
        cuCtxGetLimit(&old, limits[i]);
        r = cuCtxSetLimit(limits[i], values[i]);
        snprintf(name, sizeof name, "info.limit.%d.grown", limits[i]);
        fact(name, "%d %lld (was %zu)", r, grown_kib(before), old);
        spin(NULL, 1);
        cuCtxSynchronize();
        snprintf(name, sizeof name, "info.limit.%d.after_launch", limits[i]);
        fact(name, "%lld", grown_kib(before));
        cuCtxSetLimit(limits[i], old);
        snprintf(name, sizeof name, "info.limit.%d.restored", limits[i]);
        fact(name, "%lld", grown_kib(before));
    }
    int sms = 0, threads = 0;
    cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev);
    cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, dev);
    fact("info.multiprocessors", "%d threads each %d", sms, threads);
    before = device_used();
    CUstream many[256];
    for (int i = 0; i < 256; i++)
        cuStreamCreate(&many[i], CU_STREAM_NON_BLOCKING);
    fact("info.256_streams.grown", "%lld", grown_kib(before));
    for (int i = 0; i < 256; i++)
        cuStreamDestroy(many[i]);
}

/* --- managed memory ------------------------------------------------------------------------ */

static void managed(void)
{
    CUdeviceptr p = 0, q = 0;
    size_t before = device_used();
    fact("managed.alloc", "%d", cuMemAllocManaged(&p, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    fact("managed.grown", "%lld", grown_kib(before));
    cuMemAllocManaged(&q, 1, CU_MEM_ATTACH_GLOBAL);
    fact("info.managed.page_distance", "%llx %llx", (unsigned long long)p, (unsigned long long)q);
    cuMemsetD8(p, 7, 3 * MIB);
    cuCtxSynchronize();
    fact("info.managed.touched.grown", "%lld", grown_kib(before));
    fact("managed.on_host", "%d", *(unsigned char *)p);
    fact("info.managed.host_touch.grown", "%lld", grown_kib(before));
    fact("managed.free", "%d", cuMemFree(p));
    cuMemFree(q);
    fact("info.managed.freed.grown", "%lld", grown_kib(before));
}

/* --- stream-ordered pools ------------------------------------------------------------------ */

static CUmemoryPool pool;
static size_t pool_attr(CUmemoryPool p, int attr)
{
    cuuint64_t v = 0;
    cuMemPoolGetAttribute(p, attr, &v);
    return v;
}

static void pool_line(const char *name, size_t before)
{
    fact(name, "reserved %zu used %zu device %lld",
         pool_attr(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) / KIB,
         pool_attr(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) / KIB, grown_kib(before));
}

static void pools(void)
{
    static const size_t sizes[] = {1,        1 * MIB,  31 * MIB,      32 * MIB, 32 * MIB + 1,
                                   40 * MIB, 64 * MIB, 100 * MIB + 1, 3 * MIB};
    CUstream s;
    CUdeviceptr p[9], q;
    char name[64];
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuDeviceGetDefaultMemPool(&pool, dev);
    size_t before = device_used();
    for (int i = 0; i < 9; i++) {
        cuMemAllocAsync(&p[i], sizes[i], s);
        snprintf(name, sizeof name, "pool.alloc.%d.%zu", i, sizes[i]);
        pool_line(name, before);
    }
    cuMemFreeAsync(p[7], s);
    pool_line("pool.freed_async", before);
    cuMemAllocAsync(&q, 90 * MIB, s);
    pool_line("pool.reuse_same_stream", before);
    cuMemFreeAsync(q, s);
    cuStreamSynchronize(s);
    pool_line("pool.synchronized", before);
    cuMemFreeAsync(p[6], s);
    cuStreamQuery(s);
    usleep(20000);
    pool_line("pool.freed_no_sync", before);
    fact("pool.trim", "%d", cuMemPoolTrimTo(pool, 0));
    pool_line("pool.trimmed", before);
    fact("pool.sync_free", "%d", cuMemFree(p[5]));
    pool_line("pool.after_sync_free", before);
    for (int i = 0; i < 5; i++)
        cuMemFreeAsync(p[i], s);
    cuMemFreeAsync(p[8], s);
    cuStreamSynchronize(s);
    pool_line("pool.all_freed", before);
    fact("pool.double_free", "%d", cuMemFreeAsync(p[0], s));
    fact("pool.zero", "%d", cuMemAllocAsync(&q, 0, s));
    fact("pool.terabyte", "%d", cuMemAllocAsync(&q, (size_t)1 << 40, s));

    for (int k = 0; k < 4; k++) {
        size_t size = (size_t[]){1, 3 * MIB, 33 * MIB, 65 * MIB}[k];
        before = device_used();
        cuMemAllocAsync(&q, size, s);
        snprintf(name, sizeof name, "pool.fresh.%zu", size);
        pool_line(name, before);
        cuMemFreeAsync(q, s);
        cuStreamSynchronize(s);
    }
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
    before = device_used();
    fact("pool.create", "%d", cuMemPoolCreate(&pool, &props));
    cuuint64_t keep = UINT64_MAX;
    cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    cuMemAllocFromPoolAsync(&q, 70 * MIB, pool, s);
    pool_line("pool.own.alloc", before);
    cuMemFreeAsync(q, s);
    cuStreamSynchronize(s);
    pool_line("pool.own.kept", before);
    cuMemAllocFromPoolAsync(&q, 10 * MIB, pool, s);
    cuMemPoolTrimTo(pool, 0);
    pool_line("pool.own.trimmed", before);
    fact("pool.destroy_in_use", "%d", cuMemPoolDestroy(pool));
    fact("pool.destroyed.device", "%lld", grown_kib(before));
    fact("pool.destroyed.attr", "%d",
         cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &keep));
    fact("pool.destroyed.free", "%d", cuMemFreeAsync(q, s));
    cuStreamSynchronize(s);
    fact("pool.destroyed.freed.device", "%lld", grown_kib(before));
    cuStreamDestroy(s);
}

/* --- virtual memory ------------------------------------------------------------------------ */

static void vmm(void)
{
    const size_t g = 2 * MIB;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h = 0, again = 0;
    CUdeviceptr v = 0;
    size_t gran = 0, before = device_used();
    cuMemGetAllocationGranularity(&gran, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    fact("vmm.granularity.minimum", "%zu", gran);
    cuMemGetAllocationGranularity(&gran, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    fact("vmm.granularity.recommended", "%zu", gran);
    fact("vmm.create_odd", "%d", cuMemCreate(&h, g + 1, &prop, 0));
    fact("vmm.create_zero", "%d", cuMemCreate(&h, 0, &prop, 0));
    fact("vmm.create_terabyte", "%d", cuMemCreate(&h, (size_t)1 << 40, &prop, 0));
    fact("vmm.create", "%d", cuMemCreate(&h, 4 * g, &prop, 0));
    fact("vmm.created.grown", "%lld", grown_kib(before));
    fact("vmm.reserve", "%d", cuMemAddressReserve(&v, 16 * g, 0, 0, 0));
    fact("vmm.map", "%d", cuMemMap(v, 4 * g, 0, h, 0));
    fact("vmm.map_part", "%d", cuMemMap(v + 8 * g, g, 0, h, 0));
    fact("vmm.map_offset", "%d", cuMemMap(v + 6 * g, g, g, h, 0));
    fact("vmm.map_over", "%d", cuMemMap(v + 2 * g, 4 * g, 0, h, 0));
    fact("vmm.memset_no_access", "%d", cuMemsetD8(v, 1, 16));
    fact("vmm.access", "%d", cuMemSetAccess(v, 4 * g, &access, 1));
    fact("vmm.access_hole", "%d", cuMemSetAccess(v, 8 * g, &access, 1));
    fact("vmm.memset", "%d", cuMemsetD8(v, 1, 16));
    fact("vmm.alias", "%d", cuMemMap(v + 8 * g, 4 * g, 0, h, 0));
    cuMemSetAccess(v + 8 * g, 4 * g, &access, 1);
    unsigned char byte = 0;
    cuMemcpyDtoH(&byte, v + 8 * g, 1);
    fact("vmm.alias_reads", "%d", byte);
    fact("vmm.unmap_half", "%d", cuMemUnmap(v, 2 * g));
    CUresult r = cuMemRetainAllocationHandle(&again, (void *)v);
    fact("vmm.retain", "%d same %d", r, again == h);
    fact("vmm.release", "%d", cuMemRelease(h));
    fact("vmm.release_again", "%d", cuMemRelease(h));
    fact("vmm.release_third", "%d", cuMemRelease(h));
    fact("vmm.released_mapped.grown", "%lld", grown_kib(before));
    fact("vmm.free_mapped_range", "%d", cuMemAddressFree(v, 16 * g));
    fact("vmm.unmap", "%d", cuMemUnmap(v, 4 * g));
    fact("vmm.unmapped_once.grown", "%lld", grown_kib(before));
    fact("vmm.unmap_alias", "%d", cuMemUnmap(v + 8 * g, 4 * g));
    fact("vmm.unmapped.grown", "%lld", grown_kib(before));
    fact("vmm.memset_unmapped", "%d", cuMemsetD8(v, 1, 16));
    fact("vmm.unmap_twice", "%d", cuMemUnmap(v, 4 * g));
    fact("vmm.free_range", "%d", cuMemAddressFree(v, 16 * g));
    fact("vmm.free_range_twice", "%d", cuMemAddressFree(v, 16 * g));
    /* one unmap over two whole handles, and a release before the map is gone */
    CUmemGenericAllocationHandle a = 0, b = 0;
    cuMemAddressReserve(&v, 4 * g, 0, 0, 0);
    cuMemCreate(&a, g, &prop, 0);
    cuMemCreate(&b, g, &prop, 0);
    cuMemMap(v, g, 0, a, 0);
    cuMemMap(v + g, g, 0, b, 0);
    cuMemRelease(a);
    fact("vmm.map_released", "%d", cuMemMap(v + 2 * g, g, 0, a, 0));
    fact("vmm.unmap_two", "%d", cuMemUnmap(v, 2 * g));
    fact("vmm.unmap_two.grown", "%lld", grown_kib(before));
    cuMemRelease(b);
    fact("vmm.end.grown", "%lld", grown_kib(before));
    cuMemAddressFree(v, 4 * g);
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    prop.location.id = 0;
    before = device_used();
    r = cuMemCreate(&h, 2 * MIB, &prop, 0);
    fact("vmm.host_numa", "%d grown %lld", r, grown_kib(before));
    if (r == CUDA_SUCCESS)
        cuMemRelease(h);
    CUipcMemHandle ipc;
    cuMemAddressReserve(&v, g, 0, 0, 0);
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev};
    cuMemCreate(&h, g, &prop, 0);
    cuMemMap(v, g, 0, h, 0);
    cuMemSetAccess(v, g, &access, 1);
    fact("vmm.ipc_handle", "%d", cuIpcGetMemHandle(&ipc, v));
    CUdeviceptr base = 0;
    size_t size = 0;
    r = cuMemGetAddressRange(&base, &size, v + 5);
    fact("vmm.range", "%d offset %lld size %zu", r, (long long)(v - base), size);
    cuMemUnmap(v, g);
    cuMemRelease(h);
    cuMemAddressFree(v, g);
}

/* --- arrays -------------------------------------------------------------------------------- */

static void array_case(const char *name, size_t w, size_t h, size_t d, int channels, int count)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = w, .Height = h, .Depth = d, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = channels};
    CUarray arrays[64];
    CUarray twin = NULL;
    CUDA_ARRAY_MEMORY_REQUIREMENTS need = {0};
    size_t before = device_used();
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = cuArray3DCreate(&arrays[i], &desc);
    long long grown = grown_kib(before);
    for (int i = 0; i < count; i++)
        cuArrayDestroy(arrays[i]);
    long long left = grown_kib(before);
    desc.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    before = device_used();
    CUresult t = cuArray3DCreate(&twin, &desc);
    if (t == CUDA_SUCCESS)
        t = cuArrayGetMemoryRequirements(&need, twin, dev);
    long long twin_grown = grown_kib(before);
    cuArrayDestroy(twin);
    fact(name, "%d x%d grown %lld left %lld; deferred %d size %zu alignment %zu grown %lld", r,
         count, grown, left, t, need.size, need.alignment, twin_grown);
}

static void arrays(void)
{
    array_case("array.1x1", 1, 1, 0, 1, 1);
    array_case("array.1x1.many", 1, 1, 0, 1, 64);
    array_case("array.100x100", 100, 100, 0, 1, 1);
    array_case("array.100x100.many", 100, 100, 0, 1, 64);
    array_case("array.500x500.many", 500, 500, 0, 1, 16);
    array_case("array.1000x1000", 1000, 1000, 0, 1, 1);
    array_case("array.1000x1000x4", 1000, 1000, 0, 4, 1);
    array_case("array.4096x4096", 4096, 4096, 0, 1, 1);
    array_case("array.1d.100000", 100000, 0, 0, 1, 1);
    array_case("array.3d.100", 100, 100, 100, 1, 1);
    array_case("array.3d.130", 130, 130, 130, 4, 1);
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUmipmappedArray mip = NULL;
    size_t before = device_used();
    CUresult r = cuMipmappedArrayCreate(&mip, &desc, 5);
    fact("array.mipmap.1024x4.5", "%d grown %lld", r, grown_kib(before));
    cuMipmappedArrayDestroy(mip);
    fact("array.mipmap.left", "%lld", grown_kib(before));
    CUarray arr = NULL;
    cuArray3DCreate(&arr, &desc);
    cuArrayDestroy(arr);
    fact("array.double_destroy", "%d", cuArrayDestroy(arr));
}

/* --- capture and graphs -------------------------------------------------------------------- */

static void *sync_elsewhere(void *relaxed)
{
    cuCtxSetCurrent(ctx);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (relaxed)
        cuThreadExchangeStreamCaptureMode(&mode);
    return (void *)(long)cuCtxSynchronize();
}

static void captures(void)
{
    CUstream s;
    CUgraph graph = NULL;
    CUdeviceptr p = 0;
    char name[64];
    void *result = NULL;
    pthread_t thread;
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    for (long relaxed = 0; relaxed < 2; relaxed++) {
        cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
        spin(s, 1);
        pthread_create(&thread, NULL, sync_elsewhere, (void *)relaxed);
        pthread_join(thread, &result);
        snprintf(name, sizeof name, "capture.sync_elsewhere.%s", relaxed ? "relaxed" : "global");
        fact(name, "%ld end %d", (long)result, cuStreamEndCapture(s, &graph));
    }
    static const int modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                CU_STREAM_CAPTURE_MODE_RELAXED};
    for (int i = 0; i < 3; i++) {
        cuStreamBeginCapture(s, modes[i]);
        spin(s, 1);
        CUresult r = cuMemAlloc(&p, 64);
        CUresult info = cuMemGetInfo(&(size_t){0}, &(size_t){0});
        snprintf(name, sizeof name, "capture.alloc.mode%d", modes[i]);
        fact(name, "%d meminfo %d end %d", r, info, cuStreamEndCapture(s, &graph));
    }
    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    spin(s, 1);
    CUresult r = cuStreamSynchronize(s);
    fact("capture.sync_stream", "%d end %d", r, cuStreamEndCapture(s, &graph));
    cuMemRelease(0);
    CUmemoryPool def;
    cuuint64_t v = 0;
    cuDeviceGetDefaultMemPool(&def, dev);
    for (int k = 0; k < 7; k++) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CUstreamCaptureStatus status = 0;
        static const char *names[] = {"pool_attr",         "pool_trim",         "graph_attr",
                                      "pool_attr.relaxed", "pool_trim.relaxed", "is_capturing",
                                      "get_pool"};
        cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
        spin(s, 1);
        if (k == 3 || k == 4)
            cuThreadExchangeStreamCaptureMode(&mode);
        r = k == 0 || k == 3 ? cuMemPoolGetAttribute(def, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &v)
            : k == 1 || k == 4 ? cuMemPoolTrimTo(def, 0)
            : k == 2 ? cuDeviceGetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &v)
            : k == 5 ? cuStreamIsCapturing(s, &status)
                     : cuDeviceGetMemPool(&def, dev);
        if (k == 3 || k == 4)
            cuThreadExchangeStreamCaptureMode(&mode);
        snprintf(name, sizeof name, "capture.%s", names[k]);
        fact(name, "%d end %d", r, cuStreamEndCapture(s, &graph));
    }
    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}};
    CUmemGenericAllocationHandle h = 0;
    r = cuMemCreate(&h, 2 * MIB, &prop, 0);
    fact("capture.create", "%d end %d", r, cuStreamEndCapture(s, &graph));
    cuMemRelease(h);
}

static size_t graph_reserved(void)
{
    cuuint64_t v = 0;
    cuDeviceGetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &v);
    return v;
}

static void graph_line(const char *name, int status, size_t before)
{
    fact(name, "%d reserved %zu device %lld", status, graph_reserved() / KIB, grown_kib(before));
}

static void graphs(void)
{
    CUgraph graph, captured = NULL;
    CUgraphExec exec = NULL, exec2 = NULL;
    CUgraphNode alloc_node, free_node;
    CUstream s;
    CUdeviceptr p = 0;
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuGraphCreate(&graph, 0);
    size_t before = device_used();
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, dev},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev}},
                                         .accessDescs = &access,
                                         .accessDescCount = 1,
                                         .bytesize = 50 * MIB};
    CUresult r = cuGraphAddMemAllocNode(&alloc_node, graph, NULL, 0, &params);
    graph_line("graph.add_alloc", r, before);
    cuGraphAddMemFreeNode(&free_node, graph, &alloc_node, 1, params.dptr);
    graph_line("graph.instantiate", cuGraphInstantiate(&exec, graph, 0), before);
    graph_line("graph.upload", cuGraphUpload(exec, s), before);
    cuStreamSynchronize(s);
    graph_line("graph.uploaded", 0, before);
    graph_line("graph.launch", cuGraphLaunch(exec, s), before);
    cuStreamSynchronize(s);
    graph_line("graph.launched", 0, before);
    graph_line("graph.trim", cuDeviceGraphMemTrim(dev), before);
    graph_line("graph.launch_again", cuGraphLaunch(exec, s), before);
    cuStreamSynchronize(s);
    graph_line("graph.exec_destroy", cuGraphExecDestroy(exec), before);
    graph_line("graph.destroy", cuGraphDestroy(graph), before);
    graph_line("graph.trim_all", cuDeviceGraphMemTrim(dev), before);
    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    r = cuMemAllocAsync(&p, 70 * MIB + 1, s);
    cuMemsetD8Async(p, 1, 16, s);
    cuMemFreeAsync(p, s);
    CUresult e = cuStreamEndCapture(s, &captured);
    graph_line("graph.captured", r * 1000 + e, before);
    graph_line("graph.captured.instantiate", cuGraphInstantiate(&exec2, captured, 0), before);
    graph_line("graph.captured.launch", cuGraphLaunch(exec2, s), before);
    cuStreamSynchronize(s);
    cuGraphExecDestroy(exec2);
    cuGraphDestroy(captured);
    cuStreamSynchronize(s);
    graph_line("graph.captured.destroyed", 0, before);
    cuDeviceGraphMemTrim(dev);
    graph_line("graph.end", 0, before);
    /* two graphs alive at once: do they share the reserve? */
    CUgraphExec both[2];
    for (int i = 0; i < 2; i++) {
        cuGraphCreate(&graph, 0);
        cuGraphAddMemAllocNode(&alloc_node, graph, NULL, 0, &params);
        cuGraphAddMemFreeNode(&free_node, graph, &alloc_node, 1, params.dptr);
        cuGraphInstantiate(&both[i], graph, 0);
        cuGraphLaunch(both[i], s);
        cuStreamSynchronize(s);
        char name[64];
        snprintf(name, sizeof name, "graph.two.%d", i);
        graph_line(name, 0, before);
    }
    cuGraphExecDestroy(both[0]);
    cuGraphExecDestroy(both[1]);
    cuDeviceGraphMemTrim(dev);
    graph_line("graph.two.end", 0, before);
}

/* --- other processes ----------------------------------------------------------------------- */

/* Run this program again as `self role [fd]`, so that CUDA starts fresh in the child. */
static pid_t spawn(const char *role, int fd)
{
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "driver_facts", role, number, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int role_holder(int fd)
{
    CUdeviceptr p = 0;
    CUipcMemHandle handle;
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 16; i++)
        r |= cuMemAlloc(&p, 256 * MIB);
    cuMemsetD8(p, 9, 16);
    cuCtxSynchronize();
    r |= cuIpcGetMemHandle(&handle, p);
    if (r != CUDA_SUCCESS || write(fd, &handle, sizeof handle) != sizeof handle)
        return 1;
    for (;;)
        pause();
}

static void deaths(void)
{
    int pipe_fd[2];
    CUipcMemHandle handle;
    if (pipe(pipe_fd) != 0)
        return;
    size_t before = device_used();
    pid_t child = spawn("holder", pipe_fd[1]);
    if (read(pipe_fd[0], &handle, sizeof handle) != sizeof handle)
        return;
    fact("info.death.held", "%lld", grown_kib(before));
    CUdeviceptr p = 0;
    size_t imported = device_used();
    CUresult r = cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("ipc.open", "%d grown %lld", r, grown_kib(imported));
    CUdeviceptr again = 0;
    r = cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact("ipc.open_twice", "%d same %d", r, again == p);
    double start = now_ms();
    kill(child, SIGKILL);
    double reaped = 0, freed = 0;
    while (now_ms() - start < 5000) {
        if (!reaped && waitpid(child, NULL, WNOHANG) == child)
            reaped = now_ms() - start;
        if (!freed && grown_kib(before) < 1024 * 1024)
            freed = now_ms() - start;
        if (reaped && freed)
            break;
        usleep(200);
    }
    fact("info.death.reaped_ms", "%.1f freed_ms %.1f", reaped, freed);
    fact("death.freed_at_once", "%d", freed < 40);
    usleep(500000);
    fact("ipc.owner_dead.grown", "%lld", grown_kib(before));
    unsigned char byte = 0;
    r = cuMemcpyDtoH(&byte, p, 1);
    fact("ipc.owner_dead.read", "%d value %d", r, byte);
    fact("ipc.close", "%d", cuIpcCloseMemHandle(p));
    fact("ipc.close_second", "%d", cuIpcCloseMemHandle(again));
    fact("ipc.closed.grown", "%lld", grown_kib(before));
}

/* The owner frees what an importer has open: does the memory live on? */
static int role_freer(int fd)
{
    CUdeviceptr p = 0;
    CUipcMemHandle handle;
    CUresult r = cuMemAlloc(&p, 256 * MIB);
    r |= cuIpcGetMemHandle(&handle, p);
    if (r != CUDA_SUCCESS || write(fd, &handle, sizeof handle) != sizeof handle)
        return 1;
    raise(SIGSTOP);
    cuMemFree(p);
    raise(SIGSTOP);
    return 0;
}

static void owner_frees(void)
{
    int pipe_fd[2], status = 0;
    CUipcMemHandle handle;
    if (pipe(pipe_fd) != 0)
        return;
    pid_t child = spawn("freer", pipe_fd[1]);
    if (read(pipe_fd[0], &handle, sizeof handle) != sizeof handle)
        return;
    CUdeviceptr p = 0;
    CUresult r = cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    waitpid(child, &status, WUNTRACED);
    size_t before = device_used();
    kill(child, SIGCONT);
    waitpid(child, &status, WUNTRACED);
    fact("ipc.owner_freed.grown", "%d %lld", r, grown_kib(before));
    r = cuIpcCloseMemHandle(p);
    fact("ipc.owner_freed.closed", "%d %lld", r, grown_kib(before));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

static void modules(void)
{
    CUmodule more[32];
    size_t before = device_used();
    for (int i = 0; i < 32; i++)
        cuModuleLoadData(&more[i], spin_ptx);
    fact("info.32_modules.grown", "%lld", grown_kib(before));
    for (int i = 0; i < 32; i++)
        cuModuleUnload(more[i]);
    fact("info.32_modules.unloaded", "%lld", grown_kib(before));
    fact("module.unload_twice", "%d", cuModuleUnload((CUmodule)0));
}

int main(int argc, char **argv)
{
    CUdeviceptr p = 0;
    CUresult early = cuMemAlloc(&p, 1);
    CUresult r = cuInit(0);
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "driver_facts: cuInit failed with %d; a CUDA driver is needed\n", r);
        return 3;
    }
    cuDeviceGet(&dev, 0);
    if (cuDevicePrimaryCtxRetain(&ctx, dev) != CUDA_SUCCESS || cuCtxSetCurrent(ctx) != CUDA_SUCCESS)
        return 3;
    if (argc == 3 && strcmp(argv[1], "holder") == 0)
        return role_holder(atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "freer") == 0)
        return role_freer(atoi(argv[2]));
    char name[128];
    int version = 0;
    cuDeviceGetName(name, sizeof name, dev);
    cuDriverGetVersion(&version);
    fact("info.device", "%s, driver API %d", name, version);
    fact("init.alloc_before", "%d", early);
    size_t before = device_used();
    fact("module.load", "%d", cuModuleLoadData(&spin_module, spin_ptx));
    cuModuleGetFunction(&spin_function, spin_module, "spin");
    spin(NULL, 1);
    cuCtxSynchronize();
    fact("info.module.grown", "%lld", grown_kib(before));
    packing();
    page_model("linear.model.small", 1 * MIB, 1);
    page_model("linear.model.mixed", 9 * MIB, 2);
    linear_errors();
    managed();
    pools();
    vmm();
    arrays();
    captures();
    graphs();
    contexts();
    modules();
    deaths();
    owner_frees();
    return 0;
}
