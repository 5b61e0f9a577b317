/*
 * reserve.c: memory that the driver holds in bulk: stream-ordered pools, and graph memory.
 *
 * What a pool takes from the device is its reserve, not the sum of its allocations. It grows in steps
 * (32 MiB on an H200) when an allocation does not fit into it, and shrinks at any synchronization,
 * which is not hooked. So the books follow the driver's own figure for the reserve:
 *
 *   charged = what the ledger holds for it; pending = the part of that which belongs to calls under way.
 *
 * A call first reserves the most by which it can make the reserve grow. Afterwards the figure is read
 * and the charge falls to figure + pending, but is never raised above what has been reserved, unless
 * the driver really took more. Calls that ended while the figure was being read may have grown the
 * reserve after the reading, so what they had reserved is added once more, until the next reading.
 *
 * A pool that is destroyed in use cannot be asked any more. What its live allocations hold, and what
 * their frees leave behind until the program synchronizes, is then followed through NVML's figure for
 * the process (measure.c), or where there is none kept until the last allocation is freed.
 */
#include <stdlib.h>

#include "async.h"

struct ull__reserve {
    struct ull__reserve *next; /* never removed: handles may come back */
    const struct ull__gpu *gpu;
    CUmemoryPool pool; /* NULL: graph memory of the device */
    pthread_mutex_t lock;
    uint64_t charged;
    uint64_t pending;
    uint64_t told;      /* of what is charged and settled, the record knows so much */
    uint64_t ended;     /* bytes that calls had reserved which have ended, ever */
    uint64_t unsettled; /* of these: of calls that have not looked at the figure since */
    uint64_t readings;  /* of the figure that were begun, ever */
    uint64_t newest;    /* the last of them to be begun that was used */
    uint64_t blocks;    /* live allocations, to know when a destroyed pool is really gone */
    bool destroyed;
};

static struct ull__reserve *_Atomic reserves;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

static enum ull__class class_of(const struct ull__reserve *reserve)
{
    return reserve->pool ? ULL_CLASS_POOL : ULL_CLASS_GRAPH;
}

static CUdevice ordinal_of(const struct ull__reserve *reserve)
{
    return (CUdevice)(reserve->gpu - ull__state.gpus);
}

static struct ull__reserve *find(const struct ull__gpu *gpu, CUmemoryPool pool)
{
    struct ull__reserve *reserve = atomic_load(&reserves);
    while (reserve && (reserve->pool != pool || (!pool && reserve->gpu != gpu)))
        reserve = reserve->next;
    return reserve;
}

struct ull__reserve *ull__reserve_of(const struct ull__gpu *gpu, CUmemoryPool pool)
{
    struct ull__reserve *reserve = find(gpu, pool);
    if (reserve && !reserve->destroyed)
        return reserve;
    pthread_mutex_lock(&list_lock);
    reserve = find(gpu, pool);
    if (!reserve || reserve->destroyed) {
        /* A new pool under the handle of a destroyed one goes in front of it. */
        reserve = calloc(1, sizeof *reserve);
        if (reserve) {
            reserve->gpu = gpu;
            reserve->pool = pool;
            pthread_mutex_init(&reserve->lock, NULL);
            reserve->next = atomic_load(&reserves);
            atomic_store(&reserves, reserve);
        }
    }
    pthread_mutex_unlock(&list_lock);
    return reserve;
}

const struct ull__gpu *ull__reserve_gpu(CUmemoryPool pool)
{
    struct ull__reserve *reserve = pool ? find(NULL, pool) : NULL;
    return reserve && !reserve->destroyed ? reserve->gpu : NULL;
}

/* The driver's figure. False if it cannot be read. */
static bool read_figure(const struct ull__reserve *reserve, uint64_t *bytes)
{
    const union ull__cuda *real = ull__driver;
    cuuint64_t value = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (!reserve->pool)
        result = real->cuDeviceGetGraphMemAttribute
                     ? real->cuDeviceGetGraphMemAttribute(
                           ordinal_of(reserve), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value)
                     : CUDA_ERROR_NOT_SUPPORTED;
    else if (real->cuMemPoolGetAttribute)
        ULL_RELAXED(real, result = real->cuMemPoolGetAttribute(
                              reserve->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    *bytes = value;
    return result == CUDA_SUCCESS;
}

/*
 * The lock is held. What calls under way have reserved may never be taken, so the record does not know it, nor
 * what they seem to have taken: each tells of its own once it is in the job's peak.
 */
static void tell(struct ull__reserve *reserve, uint64_t figure)
{
    uint64_t open = reserve->pending + reserve->unsettled;
    uint64_t settled = reserve->charged > open ? reserve->charged - open : 0;
    uint64_t most = settled > reserve->told ? settled : reserve->told;
    uint64_t now = figure < most ? figure : most;
    if (!ull__recording())
        return;
    ull__tell_change(reserve->gpu, class_of(reserve), (int64_t)(now - reserve->told));
    reserve->told = now;
}

/* Makes the charge follow; at most `figure + open` bytes are taken now. The reserve's lock is held. */
static void follow(struct ull__reserve *reserve, uint64_t figure, uint64_t open)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    uint64_t target = figure + open;
    if (target > reserve->charged)
        target = figure > reserve->charged ? figure : reserve->charged;
    uint64_t before = reserve->charged;
    if (target > before)
        ull__member_charge(member, reserve->gpu->device, class_of(reserve), target - before);
    reserve->charged = target;
    tell(reserve, figure);
    if (target < before)
        ull__member_release(member, reserve->gpu->device, class_of(reserve), before - target);
}

/* `own`: what the caller had reserved for a call that has ended. */
static void refresh(struct ull__reserve *reserve, uint64_t own)
{
    uint64_t figure = 0;
    pthread_mutex_lock(&reserve->lock);
    uint64_t ended = reserve->ended, reading = ++reserve->readings;
    bool skip = reserve->destroyed || reserve->gpu->device < 0;
    pthread_mutex_unlock(&reserve->lock);
    bool known = !skip && read_figure(reserve, &figure);
    pthread_mutex_lock(&reserve->lock);
    reserve->unsettled -= own;
    /* Of two threads that look at once, the first to begin may have read what is long gone. */
    if (known && !reserve->destroyed && reading > reserve->newest) {
        reserve->newest = reading;
        follow(reserve, figure, reserve->pending + (reserve->ended - ended));
    } else if (own) {
        tell(reserve, reserve->charged);
    }
    pthread_mutex_unlock(&reserve->lock);
}

void ull__reserve_refresh(struct ull__reserve *reserve)
{
    refresh(reserve, 0);
}

bool ull__reserve_begin(struct ull__reserve *reserve, uint64_t worst, uint64_t asked,
                        const char *call, CUstream stream, struct ull__charge *charge)
{
    *charge = (struct ull__charge){.gpu = reserve->gpu,
                                   .class = class_of(reserve),
                                   .bytes = worst,
                                   .call = call,
                                   .ordered = true,
                                   .stream = stream,
                                   .began_ns = charge->began_ns};
    if (!ull__reserve(charge, asked))
        return false;
    pthread_mutex_lock(&reserve->lock);
    reserve->charged += worst;
    reserve->pending += worst;
    pthread_mutex_unlock(&reserve->lock);
    return true;
}

void ull__reserve_end(struct ull__reserve *reserve, uint64_t worst)
{
    pthread_mutex_lock(&reserve->lock);
    reserve->pending -= worst;
    reserve->ended += worst;
    reserve->unsettled += worst;
    pthread_mutex_unlock(&reserve->lock);
    refresh(reserve, worst);
    ull__member_settled_to(atomic_load(&ull__state.member), reserve->gpu->device, class_of(reserve));
    ull__turn(ULL_TURN_END);
}

uint64_t ull__reserve_charged(struct ull__reserve *reserve)
{
    pthread_mutex_lock(&reserve->lock);
    uint64_t charged = reserve->charged - reserve->pending;
    pthread_mutex_unlock(&reserve->lock);
    return charged;
}

/* Lets the driver free what the reserve holds unused. */
static void trim(struct ull__reserve *reserve)
{
    const union ull__cuda *real = ull__driver;
    pthread_mutex_lock(&reserve->lock);
    bool skip = reserve->destroyed || reserve->charged == 0;
    pthread_mutex_unlock(&reserve->lock);
    if (skip)
        return;
    if (!reserve->pool)
        ULL_RELAXED(real, real->cuDeviceGraphMemTrim(ordinal_of(reserve)));
    else
        ULL_RELAXED(real, real->cuMemPoolTrimTo(reserve->pool, 0));
}

void ull__reserves_refresh(const struct ull__gpu *gpu, bool with_trim)
{
    for (struct ull__reserve *r = atomic_load(&reserves); r; r = r->next) {
        if (gpu && r->gpu != gpu)
            continue;
        if (with_trim)
            trim(r);
        ull__reserve_refresh(r);
    }
    if (with_trim)
        ull__async_trim(gpu, 0);
}

/* --- the end of a pool -------------------------------------------------------------------------------- */

/* Nothing lives in a destroyed pool any more; what was freed without waiting is still taken. */
static void emptied(struct ull__reserve *reserve)
{
    atomic_store(&ull__state.code_changed, true);
    if (ull__measure_works())
        return; /* it goes when NVML no longer shows it */
    uint64_t before = reserve->charged;
    reserve->charged = 0;
    tell(reserve, 0);
    ull__give_back(reserve->gpu, class_of(reserve), before);
}

/* Trimmed while it can be asked, it is in the books as it is then. */
void ull__reserve_pool_destroyed(CUmemoryPool pool, bool before)
{
    struct ull__reserve *reserve = find(NULL, pool);
    if (!reserve || !pool)
        return;
    if (before) {
        trim(reserve);
        ull__reserve_refresh(reserve);
        return;
    }
    pthread_mutex_lock(&reserve->lock);
    reserve->destroyed = true;
    atomic_store(&ull__state.code_changed, true);
    if (reserve->blocks == 0)
        emptied(reserve);
    pthread_mutex_unlock(&reserve->lock);
}

uint64_t ull__reserves_destroyed(const struct ull__gpu *gpu)
{
    uint64_t sum = 0;
    for (struct ull__reserve *r = atomic_load(&reserves); r; r = r->next) {
        pthread_mutex_lock(&r->lock);
        if (r->gpu == gpu && r->destroyed)
            sum += r->charged;
        pthread_mutex_unlock(&r->lock);
    }
    return sum;
}

void ull__reserves_lower_destroyed(const struct ull__gpu *gpu, uint64_t bytes)
{
    for (struct ull__reserve *r = atomic_load(&reserves); r && bytes; r = r->next) {
        pthread_mutex_lock(&r->lock);
        uint64_t less = r->gpu != gpu || !r->destroyed ? 0
                        : r->charged < bytes           ? r->charged
                                                       : bytes;
        r->charged -= less;
        tell(r, r->charged);
        ull__give_back(gpu, ULL_CLASS_POOL, less);
        bytes -= less;
        pthread_mutex_unlock(&r->lock);
    }
}

void ull__reserve_block_added(struct ull__reserve *reserve)
{
    pthread_mutex_lock(&reserve->lock);
    reserve->blocks++;
    pthread_mutex_unlock(&reserve->lock);
}

void ull__reserve_block_freed(struct ull__reserve *reserve)
{
    pthread_mutex_lock(&reserve->lock);
    if (reserve->blocks > 0 && --reserve->blocks == 0 && reserve->destroyed)
        emptied(reserve);
    pthread_mutex_unlock(&reserve->lock);
}

void ull__reserves_forget(void)
{
    atomic_store(&reserves, NULL);
    pthread_mutex_init(&list_lock, NULL);
}
