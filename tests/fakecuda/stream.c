/*
 * stream.c: the driver's calls for streams and events.
 *
 * A stream takes about 560 KiB of the card, in steps of 2 MiB. Priorities are remembered and ignored.
 */
#include "fake.h"

#include <stdlib.h>

static const uint64_t stream_bytes = 560 * FAKE_KIB;

static CUresult charge_streams(CUcontext ctx, int change)
{
    uint64_t count = (uint64_t)(ctx->stream_count + change);
    uint64_t bytes = (count * stream_bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    if (bytes > ctx->stream_bytes) {
        CUresult r = fake_charge(ctx->card, bytes - ctx->stream_bytes, 0);
        if (r != CUDA_SUCCESS)
            return r;
    } else {
        fake_uncharge(ctx->card, ctx->stream_bytes - bytes, 0);
    }
    ctx->stream_bytes = bytes;
    ctx->stream_count += change;
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *out, unsigned int flags, int priority)
{
    CUcontext ctx = fake_current();
    if (!out || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = charge_streams(ctx, 1);
    if (r != CUDA_SUCCESS)
        return r;
    CUstream stream = fake_stream_new(ctx, flags, priority);
    if (!stream) {
        charge_streams(ctx, -1);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    FAKE_ENTER(cuStreamCreate, FAKE_CONTEXT | FAKE_ALLOC);
    return create(stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    FAKE_ENTER(cuStreamCreateWithPriority, FAKE_CONTEXT | FAKE_ALLOC);
    return create(stream, flags, priority);
}

static CUresult destroy(CUstream stream)
{
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !stream->live)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_capture_break_stream(stream);
    stream->live = false; /* what is queued still runs */
    charge_streams(stream->ctx, -1);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    FAKE_ENTER(cuStreamDestroy, FAKE_INIT);
    return destroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    FAKE_ENTER(cuStreamDestroy_v2, FAKE_INIT);
    return destroy(stream);
}

static CUresult query(CUstream stream)
{
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fake_capturing(stream)) {
        fake_capture_break_stream(stream);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream->done >= stream->queued ? stream->ctx->sticky : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream stream)
{
    FAKE_ENTER(cuStreamQuery, FAKE_CONTEXT | FAKE_UNSAFE);
    return query(fake_stream(stream, false));
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
    FAKE_ENTER(cuStreamQuery_ptsz, FAKE_CONTEXT | FAKE_UNSAFE);
    return query(fake_stream(stream, true));
}

static CUresult synchronize(CUstream stream)
{
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fake_capturing(stream)) {
        fake_capture_break_stream(stream);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    uint64_t number = stream->queued;
    if (stream == stream->ctx->null_stream)
        for (CUstream s = fake_streams(); s; s = s->next)
            if (s->ctx == stream->ctx && !(s->flags & CU_STREAM_NON_BLOCKING))
                fake_wait_stream(s, s->queued);
    fake_wait_stream(stream, number);
    fake_pool_synchronized(stream, number);
    return stream->ctx->sticky;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    FAKE_ENTER(cuStreamSynchronize, FAKE_CONTEXT | FAKE_UNSAFE);
    return synchronize(fake_stream(stream, false));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    FAKE_ENTER(cuStreamSynchronize_ptsz, FAKE_CONTEXT | FAKE_UNSAFE);
    return synchronize(fake_stream(stream, true));
}

/* Questions about a stream, each in its two forms. */
#define STREAM_QUESTION(name, type, expression)                                                    \
    static CUresult answer_##name(CUstream stream, type *out)                                      \
    {                                                                                              \
        if (!stream)                                                                               \
            return CUDA_ERROR_INVALID_HANDLE;                                                      \
        if (!out)                                                                                  \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *out = (expression);                                                                       \
        return CUDA_SUCCESS;                                                                       \
    }                                                                                              \
    CUresult name(CUstream stream, type *out)                                                      \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return answer_##name(fake_stream(stream, false), out);                                     \
    }                                                                                              \
    CUresult name##_ptsz(CUstream stream, type *out)                                               \
    {                                                                                              \
        FAKE_ENTER(name##_ptsz, FAKE_CONTEXT);                                                     \
        return answer_##name(fake_stream(stream, true), out);                                      \
    }

STREAM_QUESTION(cuStreamGetFlags, unsigned int, stream->flags)
STREAM_QUESTION(cuStreamGetId, unsigned long long, stream->id)
STREAM_QUESTION(cuStreamGetPriority, int, stream->priority)
STREAM_QUESTION(cuStreamGetDevice, CUdevice, fake_device_of(stream->ctx->card))
STREAM_QUESTION(cuStreamGetCtx, CUcontext, stream->ctx)

/* --- events --- */

/* Events are never freed but used again, so that a stale handle is an error and not a crash. */
static CUevent all_events, dead_events;

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    FAKE_ENTER(cuEventCreate, FAKE_CONTEXT);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = dead_events;
    if (event) {
        dead_events = event->next_dead;
    } else {
        event = calloc(1, sizeof *event);
        if (!event)
            return CUDA_ERROR_OUT_OF_MEMORY;
        event->next = all_events;
        all_events = event;
    }
    *event = (struct CUevent_st){.next = event->next,
                                 .live = true,
                                 .ctx = fake_current(),
                                 .flags = flags,
                                 .turn = event->turn + 1};
    *out = event;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    if (!event || !event->live)
        return CUDA_ERROR_INVALID_HANDLE;
    event->live = false;
    event->turn++;
    event->next_dead = dead_events;
    dead_events = event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    FAKE_ENTER(cuEventDestroy, FAKE_INIT);
    return event_destroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    FAKE_ENTER(cuEventDestroy_v2, FAKE_INIT);
    return event_destroy(event);
}

struct stamp {
    CUevent event;
    uint64_t turn;
};

static void stamp_time(struct fake_op *op)
{
    struct stamp *stamp = fake_op_data(op);
    if (stamp->event->turn == stamp->turn)
        stamp->event->time_ns = fake_now_ns();
}

static CUresult record(CUevent event, CUstream stream)
{
    if (!event || !event->live || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fake_capturing(stream))
        return fake_capture_record(stream, event);
    return fake_record_now(stream, event);
}

CUresult fake_record_now(CUstream stream, CUevent event)
{
    struct fake_op *op = fake_op_new(sizeof(struct stamp), stamp_time, NULL);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->capture = NULL;
    event->recorded = true;
    event->turn++;
    event->stream = stream;
    event->number = stream->queued + 1;
    struct stamp *stamp = fake_op_data(op);
    *stamp = (struct stamp){event, event->turn};
    fake_enqueue(stream, op);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    FAKE_ENTER(cuEventRecord, FAKE_CONTEXT);
    return record(event, fake_stream(stream, false));
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    FAKE_ENTER(cuEventRecord_ptsz, FAKE_CONTEXT);
    return record(event, fake_stream(stream, true));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    FAKE_ENTER(cuEventRecordWithFlags, FAKE_CONTEXT);
    (void)flags;
    return record(event, fake_stream(stream, false));
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    FAKE_ENTER(cuEventRecordWithFlags_ptsz, FAKE_CONTEXT);
    (void)flags;
    return record(event, fake_stream(stream, true));
}

CUresult cuEventQuery(CUevent event)
{
    FAKE_ENTER(cuEventQuery, FAKE_INIT | FAKE_UNSAFE);
    if (!event || !event->live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    return event->recorded && event->stream->done < event->number ? CUDA_ERROR_NOT_READY
                                                                  : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    FAKE_ENTER(cuEventSynchronize, FAKE_INIT | FAKE_UNSAFE);
    if (!event || !event->live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->recorded)
        return CUDA_SUCCESS;
    CUstream stream = event->stream;
    uint64_t number = event->number;
    fake_wait_stream(stream, number);
    fake_pool_synchronized(stream, number);
    return stream->ctx->sticky;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    if (!start || !end || !start->live || !end->live || !start->recorded || !end->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ms || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->stream->done < start->number || end->stream->done < end->number)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(end->time_ns - start->time_ns) * 1e-6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    FAKE_ENTER(cuEventElapsedTime, FAKE_INIT);
    return elapsed(ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    FAKE_ENTER(cuEventElapsedTime_v2, FAKE_INIT);
    return elapsed(ms, start, end);
}

static CUresult wait_event(CUstream stream, CUevent event)
{
    if (!stream || !event || !event->live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture || fake_capturing(stream))
        return fake_capture_wait(stream, event);
    return fake_wait_now(stream, event);
}

CUresult fake_wait_now(CUstream stream, CUevent event)
{
    if (!event->recorded || event->stream->done >= event->number)
        return CUDA_SUCCESS;
    struct fake_op *op = fake_op_new(0, NULL, NULL);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_op_wait(op, event->stream, event->number);
    fake_enqueue(stream, op);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    FAKE_ENTER(cuStreamWaitEvent, FAKE_CONTEXT);
    (void)flags;
    return wait_event(fake_stream(stream, false), event);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    FAKE_ENTER(cuStreamWaitEvent_ptsz, FAKE_CONTEXT);
    (void)flags;
    return wait_event(fake_stream(stream, true), event);
}
