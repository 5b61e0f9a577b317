/*
 * cuda_order.c: streams, events and copies of the CUDA device. A stream is the driver's, so what a
 * program gives us is what it uses itself; NULL is the legacy default stream.
 *
 * Events are made without timing and used again: a new one takes the driver ten times as long as a
 * record. A wait with a limit looks again and again, with pauses that grow to 100 us, since the driver
 * has none with a limit.
 *
 * copy_in from pageable memory has taken the bytes when it returns, as the driver promises; from
 * pinned memory it has not, so leave that as it is until the stream has passed.
 */
#include <time.h>

#include "cuda_private.h"

static CUevent event_of(ull__event event)
{
    return (CUevent)(uintptr_t)event;
}

/* --- events -------------------------------------------------------------------------------------- */

static CUevent take_idle(struct ull__cuda_device *cuda)
{
    CUevent event = NULL;
    pthread_mutex_lock(&cuda->lock);
    if (cuda->idle_count > 0)
        event = cuda->idle[--cuda->idle_count];
    pthread_mutex_unlock(&cuda->lock);
    return event;
}

/* Puts an event aside for the next record; false if there are enough. */
static bool keep_idle(struct ull__cuda_device *cuda, CUevent event)
{
    pthread_mutex_lock(&cuda->lock);
    bool kept = cuda->idle_count < ULL_CUDA_IDLE_EVENTS;
    if (kept)
        cuda->idle[cuda->idle_count++] = event;
    pthread_mutex_unlock(&cuda->lock);
    return kept;
}

static void drop_event(struct ull__cuda_device *cuda, CUevent event)
{
    if (event && !keep_idle(cuda, event))
        cuda->driver->cuEventDestroy_v2(event);
}

/* Not CUDA_SUCCESS without a context, or on the legacy stream while another one is captured. */
static CUresult capture_status(struct ull__cuda_device *cuda, ull__stream stream, bool *captured)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult code = CUDA_SUCCESS;
    if (cuda->driver->cuStreamIsCapturing)
        code = cuda->driver->cuStreamIsCapturing(stream, &status);
    *captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return code;
}

ull_status ull__cuda_record(struct ull__device *device, ull__stream stream, ull__event *event)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    bool captured = false;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    /* An event that is recorded into a capture is never reached, and the attempt may break it. */
    CUresult code = capture_status(cuda, stream, &captured);
    if (code == CUDA_SUCCESS && captured)
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUevent made = code == CUDA_SUCCESS ? take_idle(cuda) : NULL;
    if (code == CUDA_SUCCESS && !made)
        code = cuda->driver->cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
    if (code == CUDA_SUCCESS)
        code = cuda->driver->cuEventRecord(made, stream);
    if (code == CUDA_SUCCESS)
        *event = (uintptr_t)made;
    else
        drop_event(cuda, made);
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}

/*
 * Any other answer than "not yet" is of a context that is broken for good (an illegal address in a
 * kernel, say): nothing of it runs any more, and who waits would wait for ever.
 */
static bool reached(CUresult code)
{
    return code != CUDA_ERROR_NOT_READY &&
           (code < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || code > CUDA_ERROR_CAPTURED_EVENT);
}

bool ull__cuda_done(struct ull__device *device, ull__event event)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return false;
    CUresult code = cuda->driver->cuEventQuery(event_of(event));
    ull__cuda_leave(cuda, &scope);
    return reached(code);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool poll_event(struct ull__cuda_device *cuda, CUevent event, uint64_t timeout_ns)
{
    uint64_t from = now_ns(), pause = 1000;
    for (;;) {
        if (reached(cuda->driver->cuEventQuery(event)))
            return true;
        uint64_t spent = now_ns() - from;
        if (spent >= timeout_ns)
            return false;
        uint64_t left = timeout_ns - spent;
        struct timespec t = {.tv_nsec = (long)(pause < left ? pause : left)};
        nanosleep(&t, NULL);
        pause = pause * 2 < 100000 ? pause * 2 : 100000;
    }
}

bool ull__cuda_wait(struct ull__device *device, ull__event event, uint64_t timeout_ns)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return false;
    bool is = timeout_ns == UINT64_MAX ? reached(cuda->driver->cuEventSynchronize(event_of(event)))
                                       : poll_event(cuda, event_of(event), timeout_ns);
    ull__cuda_leave(cuda, &scope);
    return is;
}

void ull__cuda_forget(struct ull__device *device, ull__event event)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (keep_idle(cuda, event_of(event)) || ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return;
    cuda->driver->cuEventDestroy_v2(event_of(event));
    ull__cuda_leave(cuda, &scope);
}

/* --- streams ------------------------------------------------------------------------------------- */

/*
 * The pool asks at every request and free, so the driver is called once if that will do: a stream that is
 * an object knows its context, and the driver says so if it wants one to be current nevertheless.
 * The legacy default stream cannot be captured. On an H200 asking for the context and for this took 80 ns.
 */
bool ull__cuda_capturing(struct ull__device *device, ull__stream stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    CUresult code = CUDA_ERROR_INVALID_CONTEXT;
    bool captured = false;
    if (!stream || stream == (ull__stream)CU_STREAM_LEGACY)
        return false;
    if (stream != (ull__stream)CU_STREAM_PER_THREAD)
        code = capture_status(cuda, stream, &captured);
    if (code == CUDA_ERROR_INVALID_CONTEXT && ull__cuda_enter_context(cuda, &scope) == CUDA_SUCCESS) {
        capture_status(cuda, stream, &captured);
        ull__cuda_leave(cuda, &scope);
    }
    return captured;
}

ull_status ull__cuda_stream_create(struct ull__device *device, ull__stream *stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    CUstream made = NULL;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    ull__cuda_leave(cuda, &scope);
    if (code == CUDA_SUCCESS)
        *stream = made;
    return ull__cuda_status(code);
}

void ull__cuda_stream_destroy(struct ull__device *device, ull__stream stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return;
    cuda->driver->cuStreamDestroy_v2(stream);
    ull__cuda_leave(cuda, &scope);
}

ull_status ull__cuda_synchronize(struct ull__device *device, ull__stream stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuStreamSynchronize(stream);
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}

/* --- bytes --------------------------------------------------------------------------------------- */

ull_status ull__cuda_copy_in(struct ull__device *device, uint64_t to, const void *from,
                             uint64_t bytes, ull__stream stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}

ull_status ull__cuda_copy_out(struct ull__device *device, void *to, uint64_t from, uint64_t bytes,
                              ull__stream stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}

ull_status ull__cuda_fill(struct ull__device *device, uint64_t to, uint8_t value, uint64_t bytes,
                          ull__stream stream)
{
    struct ull__cuda_device *cuda = ull__cuda_of(device);
    struct ull__cuda_scope scope;
    if (ull__cuda_enter(cuda, &scope) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    CUresult code = cuda->driver->cuMemsetD8Async(to, value, bytes, stream);
    ull__cuda_leave(cuda, &scope);
    return ull__cuda_status(code);
}
