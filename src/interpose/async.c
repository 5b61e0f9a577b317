/*
 * async.c: with `run --suspendable`, a pool of ours in the place of the driver's default pool of a device, so that
 * what a program orders by streams can be moved out like the rest.
 *
 * Ours to serve: allocations from the default pool, on a stream of the device's primary context that is not being
 * captured. The driver's as before: pools of the program's own, allocations in a capture (graph memory), contexts
 * of the program's own, and the default streams of threads, whose one handle means another stream in each. Both
 * may be in use at a time; each block is freed where it came from.
 *
 * The pool charges a page when it takes it (async_device.c), and waits for nothing under its lock. When it has
 * nothing, this file does what the driver does at that point: the stream waits for what other streams freed. Then it
 * reserves what is missing, as every other call does (charge.c), which may wait, and asks the pool again.
 *
 * Free pages stay with the pool until a budget needs them, the program trims, or it synchronizes and nothing needed
 * them for a second. The driver's gives back what is above its threshold at each synchronization.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "async.h"
#include "move.h"

#define SECOND_NS 1000000000ull
enum { UNIT = 512, TRIES = 4 };

static struct ull__async pools[MAX_ORDINALS];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int used; /* from this ordinal on none ever had a pool */

struct ull__async *ull__async_of(int ordinal)
{
    struct ull__async *async = &pools[ordinal];
    return ull__async_pool(async) ? async : NULL;
}

void ull__async_forget(void)
{
    memset(pools, 0, sizeof pools);
    pthread_mutex_init(&making, NULL);
    atomic_store(&used, 0);
    ull__async_free_forget();
    ull__async_move_forget();
}

/* --- the pool of a device -------------------------------------------------------------------------------------- */

CUcontext ull__context_of_stream(CUstream stream)
{
    const union ull__cuda *real = ull__driver;
    CUcontext context = NULL;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        !real->cuStreamGetCtx || real->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
        context = NULL;
        real->cuCtxGetCurrent(&context);
    }
    return context;
}

const struct ull__gpu *ull__async_gpu(CUcontext context)
{
    for (int i = 0; i < atomic_load_explicit(&used, memory_order_relaxed); i++)
        if (ull__async_pool(&pools[i]) && pools[i].context == context)
            return &ull__state.gpus[i];
    return NULL;
}

/* What the program asked of the driver's pool before there was one of ours. */
static void learn(struct ull__async *async, int ordinal)
{
    const union ull__cuda *real = ull__driver;
    enum { INTERNAL_DEPENDENCIES = 3 };
    cuuint64_t threshold = 0;
    int dependencies = 1;
    ULL_RELAXED(real, {
        real->cuMemPoolGetAttribute(async->default_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                    &threshold);
        real->cuMemPoolGetAttribute(async->default_pool, INTERNAL_DEPENDENCIES, &dependencies);
    });
    atomic_store(&async->threshold, threshold);
    atomic_store(&async->no_dependencies, dependencies == 0);
    for (int i = 0; i < atomic_load(&ull__state.gpu_count) && real->cuMemPoolGetAccess; i++) {
        CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, i};
        CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (i != ordinal &&
            real->cuMemPoolGetAccess(&flags, async->default_pool, &location) == CUDA_SUCCESS)
            ull__async_device_access(async->device, i, flags);
    }
}

static struct ull_pool *make_pool(struct ull__async *async, const struct ull__gpu *gpu)
{
    struct ull_pool_options options;
    struct ull_pool *pool = NULL;
    int ordinal = (int)(gpu - ull__state.gpus);
    ull_pool_options_init(&options);
    options.watermark_percent = 100; /* ull__pool_rest is called instead */
    options.idle_ns = UINT64_MAX;
    options.wait_ns = 0;
    async->device = ull__async_device_create(gpu, async->context);
    if (async->device && ull_pool_create(async->device, &options, &pool, NULL) != ULL_OK) {
        ull__async_device_destroy(async->device);
        async->device = NULL;
    }
    if (!pool)
        return NULL;
    learn(async, ordinal);
    atomic_store(&async->used_floor, 0);
    atomic_store(&async->held_floor, 0);
    if (atomic_load(&used) <= ordinal) /* only one thread makes pools */
        atomic_store(&used, ordinal + 1);
    atomic_store_explicit(&async->pool, pool, memory_order_release);
    return pool;
}

/* `run --driver-pools`. */
static bool left_to_the_driver(void)
{
    const char *text = getenv("ULLAGE_DRIVER_POOLS");
    return text && strcmp(text, "1") == 0;
}

static struct ull_pool *first_use(struct ull__async *async, const struct ull__gpu *gpu,
                                  CUmemoryPool of, CUcontext context)
{
    CUdevice ordinal = (CUdevice)(gpu - ull__state.gpus);
    CUmemoryPool by_default = NULL;
    struct ull_pool *pool = NULL;
    if (gpu->device < 0 || gpu->integrated || !context || context != ull__primary_context(ordinal) ||
        !ull__driver->cuDeviceGetDefaultMemPool || !ull__driver->cuMemPoolGetAttribute ||
        ull__driver->cuDeviceGetDefaultMemPool(&by_default, ordinal) != CUDA_SUCCESS ||
        by_default != of)
        return NULL;
    pthread_mutex_lock(&making);
    pool = ull__async_pool(async);
    if (!pool && left_to_the_driver())
        atomic_store(&async->impossible, true);
    if (!pool && !atomic_load(&async->impossible)) {
        async->default_pool = of;
        async->context = context;
        pool = make_pool(async, gpu);
        atomic_store(&async->impossible, !pool);
    }
    pthread_mutex_unlock(&making);
    return pool;
}

static struct ull_pool *pool_for(const struct ull__gpu *gpu, CUmemoryPool of, CUcontext context)
{
    struct ull__async *async = &pools[gpu - ull__state.gpus];
    struct ull_pool *pool = ull__async_pool(async);
    if (likely(pool))
        return of == async->default_pool && context == async->context ? pool : NULL;
    return atomic_load_explicit(&async->impossible, memory_order_relaxed)
               ? NULL
               : first_use(async, gpu, of, context);
}

/* --- serving ------------------------------------------------------------------------------------------------------ */

struct asking {
    struct ull__async *async;
    struct ull_pool *pool;
    const struct ull__gpu *gpu;
    size_t bytes;
    CUstream stream; /* as the pool knows it */
    const char *call;
    uint64_t began_ns;
    void *address;
};

/* Whole units, as the driver does it: so all addresses are multiples of them too. */
static bool ask(struct asking *asking, struct ull_refusal *refusal)
{
    size_t bytes = asking->bytes <= INT64_MAX ? (asking->bytes + UNIT - 1) & ~(size_t)(UNIT - 1)
                                              : asking->bytes;
    struct ull_request request = {.bytes = bytes, .stream = asking->stream};
    return ull_pool_request(asking->pool, &request, refusal, &asking->address) == ULL_OK;
}

static uint64_t missing(const struct asking *asking, const struct ull_refusal *refusal)
{
    uint64_t least = asking->gpu->page, most = INT64_MAX / 2;
    uint64_t bytes = refusal->wanted_pages > refusal->free_pages
                         ? refusal->wanted_pages - refusal->free_pages
                         : 0;
    return bytes < least ? least : bytes > most ? most : bytes;
}

/* What is freed but not over: the driver lets the stream wait for other streams, and so do we. */
static bool ask_for_pending(struct asking *asking, struct ull_refusal *refusal)
{
    if (refusal->pending == 0)
        return false;
    if (!atomic_load(&asking->async->no_dependencies) &&
        ull__pool_follow(asking->pool, asking->stream, ull__async_device_follow,
                         asking->async->device) &&
        ask(asking, refusal))
        return true;
    if (refusal->pending == 0)
        return false;
    /* Parts of pages that wait and parts that nothing waits for are whole pages only when the stream is idle. */
    ull__wait_for_stream(asking->stream);
    ull_pool_trim(asking->pool, 0, NULL);
    return ask(asking, refusal);
}

static struct ull__charge charge_for(const struct asking *asking, uint64_t bytes)
{
    return (struct ull__charge){.gpu = asking->gpu,
                                .class = ULL_CLASS_POOL,
                                .bytes = bytes,
                                .call = asking->call,
                                .ordered = true,
                                .stream = asking->stream,
                                .began_ns = asking->began_ns};
}

/* With so many bytes reserved, which the pool takes pages for. *refused: that was told already. */
static bool ask_with_more(struct asking *asking, struct ull_refusal *refusal, bool *refused)
{
    struct ull__charge charge = charge_for(asking, missing(asking, refusal));
    *refused = !ull__reserve(&charge, asking->bytes);
    if (*refused)
        return false;
    bool got = false, full = false;
    uint64_t left;
    do {
        ull__async_credit(charge.bytes);
        got = ask(asking, refusal);
        left = ull__async_credit(0);
        full = !got && left == charge.bytes && ull__async_card_full();
    } while (full && ull__again(&charge, CUDA_ERROR_OUT_OF_MEMORY));
    if (!full)
        charge.bytes = left; /* the rest is the pool's */
    ull__cancel(&charge, full ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    *refused = full;
    return got;
}

/* Other threads may take what was free a moment ago, so more than once. */
static CUresult serve_more(struct asking *asking, struct ull_refusal *refusal)
{
    bool refused = false;
    ull__async_free_due();
    if (ask_for_pending(asking, refusal))
        return CUDA_SUCCESS;
    for (int i = 0; i < TRIES && !refused; i++)
        if (ask_with_more(asking, refusal, &refused))
            return CUDA_SUCCESS;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A request that is larger than any may be is refused and told before the pool is asked. */
static bool too_large(struct asking *asking)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    uint64_t most = ull__ledger_spec(ull__member_ledger(member))->max_request;
    struct ull__charge charge = charge_for(asking, asking->gpu->page);
    if (likely(!most || asking->bytes <= most))
        return false;
    if (ull__reserve(&charge, asking->bytes)) /* the limit was lifted meanwhile */
        ull__cancel(&charge, CUDA_SUCCESS);
    else
        return true;
    return false;
}

static CUresult served(const struct asking *asking)
{
    struct ull__block block = {.address = (uint64_t)(uintptr_t)asking->address,
                               .bytes = asking->bytes,
                               .context = asking->async->context,
                               .owner = asking->async,
                               .ordinal = (int)(asking->gpu - ull__state.gpus),
                               .class = ULL_CLASS_POOL,
                               .kind = BLOCK_ORDERED};
    if (!ull__block_add(&block)) {
        ull_pool_free(asking->pool, asking->address, asking->stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ull__member_granted(atomic_load(&ull__state.member), asking->gpu->device, asking->bytes);
    if (ull__recording()) {
        struct ull__charge charge = charge_for(asking, 0);
        charge.asked = asking->bytes;
        charge.address = block.address;
        ull__tell_call(&charge, 0, CUDA_SUCCESS); /* the books rose with the pool's pages */
    }
    return CUDA_SUCCESS;
}

bool ull__async_alloc(const struct ull__gpu *gpu, CUmemoryPool pool, CUdeviceptr *dptr,
                      size_t bytes, CUstream stream, bool per_thread, const char *call,
                      uint64_t began_ns, CUresult *result)
{
    if (ull__is_per_thread(stream, per_thread))
        return false;
    struct asking asking = {.async = &pools[gpu - ull__state.gpus],
                            .gpu = gpu,
                            .bytes = bytes,
                            .stream = stream == CU_STREAM_LEGACY ? NULL : stream,
                            .call = call,
                            .began_ns = began_ns};
    struct ull_refusal refusal;
    asking.pool = pool_for(gpu, pool, ull__context_of_stream(stream));
    if (!asking.pool)
        return false;
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (too_large(&asking))
        return true;
    *result = likely(ask(&asking, &refusal)) ? CUDA_SUCCESS : serve_more(&asking, &refusal);
    if (*result == CUDA_SUCCESS)
        *result = served(&asking);
    if (*result == CUDA_SUCCESS)
        *dptr = (CUdeviceptr)(uintptr_t)asking.address;
    return true;
}

/* --- giving back ---------------------------------------------------------------------------------------------------- */

void ull__async_trim(const struct ull__gpu *gpu, uint64_t keep)
{
    ull__async_free_due();
    for (int i = 0; i < atomic_load(&used); i++) {
        struct ull_pool *pool = ull__async_pool(&pools[i]);
        if (pool && (!gpu || gpu == &ull__state.gpus[i]))
            ull__pool_trim_to(pool, keep);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static void look_at(struct ull__async *async, uint64_t now)
{
    uint64_t last = atomic_load(&async->looked_ns);
    if (!ull__async_pool(async) || now - last < SECOND_NS ||
        !atomic_compare_exchange_strong(&async->looked_ns, &last, now))
        return;
    struct ull__gate_lane *lane = ull__gate_enter(false);
    struct ull_pool *pool = ull__async_pool(async);
    if (pool)
        ull__pool_rest(pool, atomic_load(&async->threshold));
    ull__gate_leave(lane);
}

void ull__async_synchronized(void)
{
    if (ull__async_frees_wait()) {
        struct ull__gate_lane *lane = ull__gate_enter(false);
        ull__async_free_due();
        ull__gate_leave(lane);
    }
    int count = atomic_load_explicit(&used, memory_order_relaxed);
    uint64_t now = count > 0 ? now_ns() : 0;
    for (int i = 0; i < count; i++)
        look_at(&pools[i], now);
}

/* --- ends ------------------------------------------------------------------------------------------------------------- */

void ull__async_stream_gone(CUstream stream)
{
    for (int i = 0; i < atomic_load(&used); i++) {
        struct ull_pool *pool = ull__async_pool(&pools[i]);
        if (pool && stream)
            ull_pool_forget_stream(pool, stream);
    }
}

void ull__async_context_ended(CUcontext context)
{
    for (int i = 0; i < atomic_load(&used); i++) {
        struct ull__async *async = &pools[i];
        if (!ull__async_pool(async) || async->context != context)
            continue;
        struct ull_pool *pool = atomic_exchange(&async->pool, NULL);
        ull__async_device_dead(async->device);
        ull_pool_destroy(pool);
        ull__async_device_destroy(async->device);
        async->device = NULL;
    }
}
