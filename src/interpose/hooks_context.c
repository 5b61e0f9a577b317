/*
 * hooks_context.c: contexts. What grows with them is in hooks_stacks.c.
 *
 * A context takes hundreds of MiB, and no argument tells how much. It is charged before it is made with
 * the size that the device's last one had, and settled to NVML's figure for this process afterwards if
 * nothing else of this process ran meanwhile; and to what it takes beyond that figure (measure.c). Every
 * context costs the same again; the primary one is made at its first retain and ends with its last release.
 */
#include "async.h"
#include "interpose.h"

static struct {
    pthread_mutex_t lock;
    CUcontext primary[MAX_ORDINALS];
    bool changing[MAX_ORDINALS]; /* a thread is about to make, retain or release the primary context */
    pthread_cond_t changed;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct making {
    struct ull__charge charge;
    CUdevice ordinal;
    uint64_t hidden; /* of the charge: what the last one took beyond the figure for its process */
    uint64_t before, card_before, turns;
    struct ull__unnamed unnamed_before;
    bool measurable, card_measurable, unnamed_measurable;
};

static void look(struct making *making)
{
    const struct ull__gpu *gpu = making->charge.gpu;
    making->measurable = ull__measure(gpu, &making->before);
    making->card_measurable = ull__measure_card(gpu, &making->card_before);
    making->unnamed_measurable = ull__measure_unnamed(gpu, &making->unnamed_before);
}

static bool begin(struct making *making, CUdevice ordinal, const char *call)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    const struct ull__gpu *gpu = ull__gpu_of(ordinal);
    *making = (struct making){
        .ordinal = ordinal,
        .charge = {
            .gpu = gpu, .class = ULL_CLASS_CONTEXT, .call = call, .began_ns = ull__moment_now()}};
    if (!gpu)
        return true; /* no such device: the driver will say so */
    if (gpu->device >= 0) {
        making->hidden = ull__ledger_hidden_bytes(ull__member_ledger(member), gpu->device);
        making->charge.bytes =
            ull__ledger_context_bytes(ull__member_ledger(member), gpu->device) + making->hidden;
    }
    ull__measure_before(gpu);
    uint64_t turns = atomic_load(&ull__state.turns);
    look(making);
    if (!ull__reserve(&making->charge, making->charge.bytes))
        return false;
    making->turns = atomic_load(&ull__state.turns);
    if (making->turns != turns + ULL_TURN_BEGUN) /* other calls of this process came in between */
        making->measurable = making->card_measurable = making->unnamed_measurable = false;
    return true;
}

/* The card was full and a daemon has made room: the same from the beginning. */
static bool again(struct making *making, CUresult result)
{
    if (!ull__again(&making->charge, result))
        return false;
    making->turns = atomic_load(&ull__state.turns);
    look(making);
    return true;
}

/* A card's use says what a context took only if it is about what one takes. */
static bool plausible(uint64_t bytes, uint64_t expected)
{
    return bytes >= expected / 4 && bytes / 4 <= expected;
}

/* Beside the `named` bytes by which the figure for this process grew. */
static void learn_hidden(struct making *making, uint64_t named)
{
    enum { MOST = 64 << 20, SMALL = 8 << 20 };
    const struct ull__gpu *gpu = making->charge.gpu;
    struct ull__unnamed before = making->unnamed_before, after;
    struct ull__member *member = atomic_load(&ull__state.member);
    if (!making->unnamed_measurable || !ull__measure_unnamed(gpu, &after))
        return;
    bool alone = after.others == before.others; /* nobody else made or ended a context meanwhile */
    uint64_t hidden = after.bytes > before.bytes ? after.bytes - before.bytes : 0;
    if (hidden > 0 && hidden <= MOST && (hidden <= named / 4 || hidden <= SMALL))
        ull__member_hidden_measured(member, gpu->device, hidden, alone);
    else if (alone && after.bytes == before.bytes) /* it lies in another process, as under MPS */
        ull__member_hidden_measured(member, gpu->device, 0, true);
    making->hidden = ull__ledger_hidden_bytes(ull__member_ledger(member), gpu->device);
}

/*
 * What the new context took: by NVML's figure for this process and what is hidden from it, or where there is none by
 * the card's use, in which all of it shows, if nothing else changed meanwhile; else what the last one took.
 */
static uint64_t size_of_new(struct making *making)
{
    const struct ull__gpu *gpu = making->charge.gpu;
    struct ull__member *member = atomic_load(&ull__state.member);
    enum ull__context_source source = ULL_CONTEXT_BY_PROCESS;
    uint64_t after = 0, before = making->before;
    ull__measure_find_pid(gpu);
    if (making->turns != atomic_load(&ull__state.turns) || ull__calls_under_way(making->turns) != 1)
        return making->charge.bytes;
    bool measured = making->measurable && ull__measure(gpu, &after) && after > before;
    if (!measured && making->card_measurable && !ull__measure_works()) {
        source = ULL_CONTEXT_BY_CARD;
        before = making->card_before;
        measured = ull__measure_card(gpu, &after) && after > before &&
                   plausible(after - before, making->charge.bytes);
    }
    if (!measured)
        return making->charge.bytes;
    uint64_t named = after - before;
    if (source == ULL_CONTEXT_BY_PROCESS)
        learn_hidden(making, named);
    else if (making->hidden < named)
        named -= making->hidden;
    else
        making->hidden = 0;
    ull__member_context_measured(member, gpu->device, named, source);
    atomic_store(&ull__state.context_measured[making->ordinal], true);
    return named + making->hidden;
}

static CUresult end(struct making *making, CUresult result, CUcontext context)
{
    const struct ull__gpu *gpu = making->charge.gpu;
    struct ull__block known;
    if (!gpu)
        return result;
    if (result != CUDA_SUCCESS || ull__block_find((uint64_t)(uintptr_t)context, &known)) {
        ull__cancel(&making->charge, result); /* none was made: an error, or another thread was first */
        return result;
    }
    struct ull__block block = {.address = (uint64_t)(uintptr_t)context,
                               .bytes = making->charge.bytes,
                               .ordinal = making->ordinal,
                               .class = ULL_CLASS_CONTEXT,
                               .kind = BLOCK_CONTEXT};
    block.charged = size_of_new(making);
    block.hidden = making->hidden;
    ull__block_add(&block);
    ull__member_hidden_add(atomic_load(&ull__state.member), gpu->device, (int64_t)block.hidden);
    making->charge.address = block.address;
    making->charge.asked = block.charged;
    ull__settle(&making->charge, block.charged);
    ull__measure_lower_hidden(gpu); /* of those before, if this one has shown that it is less */
    return result;
}

/* Everything that lived in the context is gone with it. */
static void ended(CUcontext context, uint64_t began_ns)
{
    struct ull__block block;
    struct ull__moment moment = {.began_ns = began_ns};
    ull__async_free_context_ended(context);
    while (ull__block_take_of_context(context, &block)) {
        if (ull__backing_wanted() && (block.kind == BLOCK_LINEAR || block.kind == BLOCK_SPILLED))
            ull__backing_drop(block.address);
        ull__block_ended(&block, NULL);
    }
    if (ull__block_take((uint64_t)(uintptr_t)context, &block)) {
        const struct ull__gpu *gpu = ull__gpu_of(block.ordinal);
        ull__member_hidden_add(atomic_load(&ull__state.member), gpu->device, -(int64_t)block.hidden);
        ull__block_ended(&block, &moment);
    }
    ull__async_context_ended(context);
    ull__reserves_refresh(NULL, false);
    atomic_store(&ull__state.code_changed, true);
}

/* --- contexts of the program's own ----------------------------------------------------------------------------- */

CUresult ull__do_cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
    struct making making;
    if (!begin(&making, dev, "cuCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = ull__driver->cuCtxCreate(ctx, flags, dev);
    while (again(&making, result));
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
    struct making making;
    if (!begin(&making, dev, "cuCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = ull__driver->cuCtxCreate_v2(ctx, flags, dev);
    while (again(&making, result));
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params_array, int num_params,
                                unsigned int flags, CUdevice dev)
{
    struct making making;
    if (!begin(&making, dev, "cuCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = ull__driver->cuCtxCreate_v3(ctx, params_array, num_params, flags, dev);
    while (again(&making, result));
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params,
                                unsigned int flags, CUdevice dev)
{
    struct making making;
    if (!begin(&making, dev, "cuCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = ull__driver->cuCtxCreate_v4(ctx, ctx_create_params, flags, dev);
    while (again(&making, result));
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuGLCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    struct making making;
    if (!begin(&making, device, "cuGLCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuGLCtxCreate(ctx, flags, device);
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuGLCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    struct making making;
    if (!begin(&making, device, "cuGLCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuGLCtxCreate_v2(ctx, flags, device);
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuVDPAUCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device,
                                  VdpDevice vdp_device, VdpGetProcAddress *vdp_get_proc_address)
{
    struct making making;
    if (!begin(&making, device, "cuVDPAUCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        ull__driver->cuVDPAUCtxCreate(ctx, flags, device, vdp_device, vdp_get_proc_address);
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuVDPAUCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device,
                                     VdpDevice vdp_device, VdpGetProcAddress *vdp_get_proc_address)
{
    struct making making;
    if (!begin(&making, device, "cuVDPAUCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        ull__driver->cuVDPAUCtxCreate_v2(ctx, flags, device, vdp_device, vdp_get_proc_address);
    return end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
}

CUresult ull__do_cuCtxDestroy(CUcontext ctx)
{
    uint64_t began_ns = ull__moment_now();
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = ull__driver->cuCtxDestroy(ctx);
    if (result == CUDA_SUCCESS)
        ended(ctx, began_ns);
    ull__turn(ULL_TURN_END);
    return result;
}

CUresult ull__do_cuCtxDestroy_v2(CUcontext ctx)
{
    uint64_t began_ns = ull__moment_now();
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = ull__driver->cuCtxDestroy_v2(ctx);
    if (result == CUDA_SUCCESS)
        ended(ctx, began_ns);
    ull__turn(ULL_TURN_END);
    return result;
}

/* The old pair cuCtxAttach and cuCtxDetach counts uses: is the context still there? */
CUresult ull__do_cuCtxDetach(CUcontext ctx)
{
    CUcontext popped;
    uint64_t began_ns = ull__moment_now();
    CUresult result = ull__driver->cuCtxDetach(ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (ull__driver->cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS)
        ull__driver->cuCtxPopCurrent_v2(&popped);
    else
        ended(ctx, began_ns);
    return result;
}

/* --- the primary context ------------------------------------------------------------------------------------------ */

static bool primary_active(CUdevice ordinal)
{
    unsigned int flags = 0;
    int active = 0;
    return ull__driver->cuDevicePrimaryCtxGetState &&
           ull__driver->cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS &&
           active;
}

/*
 * One thread at a time, as in the driver. Several that make it at once must not reserve room for several; and one that is
 * made again while its last release is on the way back from the driver would be taken for the one that has just ended.
 */
void ull__context_change_begin(CUdevice ordinal)
{
    for (;;) {
        pthread_mutex_lock(&books.lock);
        bool first = !books.changing[ordinal];
        books.changing[ordinal] = true;
        if (!first)
            ull__gate_pause(); /* who makes it may be waiting outside */
        while (!first && books.changing[ordinal])
            pthread_cond_wait(&books.changed, &books.lock);
        pthread_mutex_unlock(&books.lock);
        if (first)
            return;
        ull__gate_go_on();
    }
}

void ull__context_change_end(CUdevice ordinal)
{
    pthread_mutex_lock(&books.lock);
    books.changing[ordinal] = false;
    pthread_cond_broadcast(&books.changed);
    pthread_mutex_unlock(&books.lock);
}

/* The primary context of a device, as it is from now on; what it was before. */
static CUcontext set_primary(CUdevice ordinal, CUcontext context)
{
    pthread_mutex_lock(&books.lock);
    CUcontext before = books.primary[ordinal];
    books.primary[ordinal] = context;
    pthread_mutex_unlock(&books.lock);
    return before;
}

static CUresult make_primary(CUcontext *ctx, CUdevice dev)
{
    struct making making;
    if (!begin(&making, dev, "cuDevicePrimaryCtxRetain"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = ull__driver->cuDevicePrimaryCtxRetain(ctx, dev);
    while (again(&making, result));
    result = end(&making, result, result == CUDA_SUCCESS ? *ctx : NULL);
    if (result == CUDA_SUCCESS)
        set_primary(dev, *ctx);
    return result;
}

CUresult ull__do_cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    if (!ull__gpu_of(dev))
        return ull__driver->cuDevicePrimaryCtxRetain(ctx, dev);
    ull__context_change_begin(dev);
    CUresult result = primary_active(dev) ? ull__driver->cuDevicePrimaryCtxRetain(ctx, dev)
                                          : make_primary(ctx, dev);
    ull__context_change_end(dev);
    return result;
}

static CUresult primary_released(CUresult (*call)(CUdevice), CUdevice ordinal)
{
    uint64_t began_ns = ull__moment_now();
    if (!ull__gpu_of(ordinal))
        return call(ordinal);
    ull__context_change_begin(ordinal);
    ull__turn(ULL_TURN_BEGIN);
    CUresult result = call(ordinal);
    CUcontext gone =
        result == CUDA_SUCCESS && !primary_active(ordinal) ? set_primary(ordinal, NULL) : NULL;
    if (gone)
        ended(gone, began_ns);
    ull__turn(ULL_TURN_END);
    ull__context_change_end(ordinal);
    return result;
}

CUresult ull__do_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return primary_released(ull__driver->cuDevicePrimaryCtxRelease, dev);
}

CUresult ull__do_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return primary_released(ull__driver->cuDevicePrimaryCtxRelease_v2, dev);
}

CUresult ull__do_cuDevicePrimaryCtxReset(CUdevice dev)
{
    return primary_released(ull__driver->cuDevicePrimaryCtxReset, dev);
}

CUresult ull__do_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return primary_released(ull__driver->cuDevicePrimaryCtxReset_v2, dev);
}

CUcontext ull__primary_context(CUdevice ordinal)
{
    pthread_mutex_lock(&books.lock);
    CUcontext context = books.primary[ordinal];
    pthread_mutex_unlock(&books.lock);
    return context;
}

void ull__contexts_forget(void)
{
    for (int i = 0; i < MAX_ORDINALS; i++)
        books.primary[i] = NULL, books.changing[i] = false;
    pthread_mutex_init(&books.lock, NULL);
    pthread_cond_init(&books.changed, NULL);
}
