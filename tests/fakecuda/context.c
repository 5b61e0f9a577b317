/*
 * context.c: contexts, their limits, and which one is current.
 *
 * A context takes a fixed amount (ULLAGE_FAKE_CONTEXT); 5.5625 MiB of it show only in the card's
 * figure and not in the process's. Everything made in a context goes with it.
 *
 * Green contexts and contexts of graphics APIs are not supported.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

enum { STACK_DEPTH = 32 };
static const uint64_t hidden_bytes = 5696 * FAKE_KIB;

static _Thread_local CUcontext stack[STACK_DEPTH];
static _Thread_local int depth;
static CUcontext all;
static CUcontext primary[FAKE_MAX_CARDS];
static unsigned int primary_count[FAKE_MAX_CARDS];
static unsigned int primary_flags[FAKE_MAX_CARDS];
static unsigned long long last_id;

CUcontext fake_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

static CUresult context_new(int card, unsigned int flags, CUcontext *out)
{
    CUcontext ctx = calloc(1, sizeof *ctx);
    uint64_t bytes = fake_config()->context_bytes;
    uint64_t hidden = bytes > hidden_bytes ? hidden_bytes : 0;
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = fake_charge(card, bytes - hidden, hidden);
    if (r != CUDA_SUCCESS) {
        free(ctx);
        return r;
    }
    ctx->live = true;
    ctx->card = card;
    ctx->flags = flags;
    ctx->id = ++last_id;
    ctx->limit[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 8650752;
    ctx->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608;
    ctx->limit[3] = 2;    /* depth of device-side synchronisation */
    ctx->limit[4] = 2048; /* pending device-side launches */
    ctx->next = all;
    all = ctx;
    ctx->null_stream = fake_stream_new(ctx, 0, 0);
    if (!ctx->null_stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = ctx;
    return CUDA_SUCCESS;
}

static void context_end(CUcontext ctx)
{
    uint64_t bytes = fake_config()->context_bytes;
    uint64_t hidden = bytes > hidden_bytes ? hidden_bytes : 0;
    fake_wait_context(ctx);
    fake_capture_break(ctx);
    ctx->live = false;
    fake_linear_release_all(ctx);
    fake_module_release_all(ctx);
    fake_stream_release_all(ctx);
    fake_uncharge(ctx->card, bytes - hidden + ctx->stack_bytes + ctx->stream_bytes, hidden);
    ctx->stream_bytes = ctx->stack_bytes = 0;
}

static CUresult push(CUcontext ctx)
{
    if (depth == STACK_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

static bool known(CUcontext ctx)
{
    for (CUcontext c = all; c; c = c->next)
        if (c == ctx)
            return true;
    return false;
}

static CUresult create(CUcontext *out, unsigned int flags, CUdevice dev)
{
    int card = fake_card_of(dev);
    CUcontext ctx = NULL;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult r = context_new(card, flags, &ctx);
    if (r == CUDA_SUCCESS)
        r = push(ctx);
    if (r == CUDA_SUCCESS)
        *out = ctx;
    return r;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
    FAKE_ENTER(cuCtxCreate_v2, FAKE_INIT | FAKE_ALLOC);
    return create(ctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int count, unsigned int flags,
                        CUdevice dev)
{
    FAKE_ENTER(cuCtxCreate_v3, FAKE_INIT | FAKE_ALLOC);
    (void)params;
    return count != 0 ? CUDA_ERROR_NOT_SUPPORTED : create(ctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
    FAKE_ENTER(cuCtxCreate_v4, FAKE_INIT | FAKE_ALLOC);
    (void)params;
    return create(ctx, flags, dev);
}

static CUresult destroy(CUcontext ctx)
{
    if (!known(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->live)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_end(ctx);
    if (fake_current() == ctx)
        depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    FAKE_ENTER(cuCtxDestroy, FAKE_INIT);
    return destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    FAKE_ENTER(cuCtxDestroy_v2, FAKE_INIT);
    return destroy(ctx);
}

CUresult cuCtxDetach(CUcontext ctx)
{
    FAKE_ENTER(cuCtxDetach, FAKE_INIT);
    return destroy(ctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    FAKE_ENTER(cuCtxSetCurrent, FAKE_INIT);
    if (ctx && !known(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx && !ctx->live)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (depth > 0)
        depth--;
    return ctx ? push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    FAKE_ENTER(cuCtxGetCurrent, FAKE_INIT);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = fake_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    FAKE_ENTER(cuCtxPushCurrent_v2, FAKE_INIT);
    if (!ctx || !known(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return ctx->live ? push(ctx) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    FAKE_ENTER(cuCtxPopCurrent_v2, FAKE_INIT);
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ctx)
        *ctx = stack[depth];
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext ctx)
{
    if (fake_capture_break(ctx))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    fake_wait_context(ctx);
    fake_pool_synchronized(NULL, 0);
    return ctx->sticky;
}

CUresult cuCtxSynchronize(void)
{
    FAKE_ENTER(cuCtxSynchronize, fake_lenient("context.none") ? FAKE_INIT : FAKE_CONTEXT);
    return fake_current() ? synchronize(fake_current()) : CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    FAKE_ENTER(cuCtxSynchronize_v2, FAKE_INIT);
    if (!ctx)
        ctx = fake_current();
    if (!known(ctx) || !ctx->live)
        return CUDA_ERROR_INVALID_CONTEXT;
    return synchronize(ctx);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    FAKE_ENTER(cuCtxGetDevice, FAKE_CONTEXT);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = fake_device_of(fake_current()->card);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    FAKE_ENTER(cuCtxGetDevice_v2, FAKE_INIT);
    if (!ctx)
        ctx = fake_current();
    if (!device || !known(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = fake_device_of(ctx->card);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    FAKE_ENTER(cuCtxGetApiVersion, FAKE_INIT);
    (void)ctx;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    FAKE_ENTER(cuCtxGetFlags, FAKE_CONTEXT);
    *flags = fake_current()->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    FAKE_ENTER(cuCtxSetFlags, FAKE_CONTEXT);
    fake_current()->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    FAKE_ENTER(cuCtxGetId, FAKE_INIT);
    if (!ctx)
        ctx = fake_current();
    if (!id || !known(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    *id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_ENTER(cuCtxGetStreamPriorityRange, FAKE_CONTEXT);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(int *config)
{
    FAKE_ENTER(cuCtxGetCacheConfig, FAKE_CONTEXT);
    *config = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(int config)
{
    FAKE_ENTER(cuCtxSetCacheConfig, FAKE_CONTEXT);
    (void)config;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    FAKE_ENTER(cuCtxEnablePeerAccess, FAKE_CONTEXT);
    (void)flags;
    return known(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    FAKE_ENTER(cuCtxDisablePeerAccess, FAKE_CONTEXT);
    return known(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* --- limits --- */

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    FAKE_ENTER(cuCtxGetLimit, FAKE_CONTEXT);
    if (!value || limit < 0 || limit >= 16)
        return CUDA_ERROR_INVALID_VALUE;
    *value = fake_current()->limit[limit];
    return CUDA_SUCCESS;
}

/* Every thread that a card can run at once has its stack in memory, from the moment it is asked for. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    FAKE_ENTER(cuCtxSetLimit, FAKE_CONTEXT | FAKE_ALLOC);
    CUcontext ctx = fake_current();
    if (limit < 0 || limit >= 16)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_STACK_SIZE) {
        const struct fake_card_config *card = &fake_config()->card[ctx->card];
        uint64_t threads = (uint64_t)card->multiprocessors * (uint64_t)card->threads;
        value = (value + 15) / 16 * 16;
        if (value > 512 * FAKE_KIB)
            return CUDA_ERROR_INVALID_VALUE;
        uint64_t bytes = value > 1024 ? (value - 1024) * threads : 0;
        if (bytes > ctx->stack_bytes) {
            CUresult r = fake_charge(ctx->card, bytes - ctx->stack_bytes, 0);
            if (r != CUDA_SUCCESS)
                return r;
        } else {
            fake_uncharge(ctx->card, ctx->stack_bytes - bytes, 0);
        }
        ctx->stack_bytes = bytes;
    }
    ctx->limit[limit] = value;
    return CUDA_SUCCESS;
}

/* --- primary contexts --- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxRetain, FAKE_INIT | FAKE_ALLOC);
    int card = fake_card_of(dev);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!primary[card] || !primary[card]->live) {
        CUcontext made = NULL;
        CUresult r = context_new(card, primary_flags[card], &made);
        if (r != CUDA_SUCCESS)
            return r;
        made->primary = true;
        primary[card] = made;
    }
    primary_count[card]++;
    *ctx = primary[card];
    return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice dev, bool reset)
{
    int card = fake_card_of(dev);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (primary_count[card] == 0)
        return reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (!reset && --primary_count[card] > 0)
        return CUDA_SUCCESS;
    if (primary[card]->live)
        context_end(primary[card]);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxRelease, FAKE_INIT);
    return primary_release(dev, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxRelease_v2, FAKE_INIT);
    return primary_release(dev, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxReset, FAKE_INIT);
    return primary_release(dev, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxReset_v2, FAKE_INIT);
    return primary_release(dev, true);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    FAKE_ENTER(cuDevicePrimaryCtxGetState, FAKE_INIT);
    int card = fake_card_of(dev);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags)
        *flags = primary_flags[card];
    if (active)
        *active = primary[card] && primary[card]->live;
    return CUDA_SUCCESS;
}

static CUresult set_primary_flags(CUdevice dev, unsigned int flags)
{
    int card = fake_card_of(dev);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    primary_flags[card] = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    FAKE_ENTER(cuDevicePrimaryCtxSetFlags, FAKE_INIT);
    return set_primary_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    FAKE_ENTER(cuDevicePrimaryCtxSetFlags_v2, FAKE_INIT);
    return set_primary_flags(dev, flags);
}
