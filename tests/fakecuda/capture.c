/*
 * capture.c: streams that record a graph instead of working.
 *
 * A call that could wait for the device breaks a capture: in the thread that captures, or in any
 * thread when the capture is global; a thread in relaxed mode may call it. cuCtxSynchronize breaks
 * every capture of the context whatever the mode. A broken capture ends with error 901.
 *
 * Streams join by waiting for an event of the capture. That they all come back before the end is not
 * checked, nor is the legacy default stream implicitly caught.
 */
#include "graph.h"

#include <stdlib.h>

enum { MAX_TAILS = 16 };

struct fake_capture {
    struct fake_capture *next;
    CUgraph graph;
    CUstream origin;
    CUcontext ctx;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool broken;
    unsigned long long id;
};

/* What the next node of a stream comes after. Beside the stream, because few streams ever capture. */
struct tails {
    struct tails *next;
    CUstream stream;
    CUgraphNode node[MAX_TAILS];
    size_t count;
};

static struct fake_capture *captures;
static struct tails *all_tails;
static unsigned long long last_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct tails *tails_of(CUstream stream)
{
    struct tails *t = all_tails;
    while (t && t->stream != stream)
        t = t->next;
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t)
            abort(); /* a test that runs out of memory has nothing left to say */
        t->stream = stream;
        t->next = all_tails;
        all_tails = t;
    }
    return t;
}

bool fake_capturing(CUstream stream)
{
    return stream->capture != NULL;
}

static bool forbids(bool others_too)
{
    bool forbidden = false;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    for (struct fake_capture *c = captures; c; c = c->next) {
        bool mine = pthread_equal(c->thread, pthread_self());
        if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
            (!mine && (!others_too || c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
                       thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)))
            continue;
        c->broken = true;
        forbidden = true;
    }
    return forbidden;
}

bool fake_capture_forbids(void)
{
    return forbids(true);
}

bool fake_capture_forbids_here(void)
{
    return forbids(false);
}

bool fake_capture_break(CUcontext ctx)
{
    bool any = false;
    for (struct fake_capture *c = captures; c; c = c->next)
        if (c->ctx == ctx)
            any = c->broken = true;
    return any;
}

void fake_capture_break_stream(CUstream stream)
{
    if (stream->capture)
        stream->capture->broken = true;
}

static void set_tail(CUstream stream, CUgraphNode node)
{
    struct tails *t = tails_of(stream);
    t->node[0] = node;
    t->count = node ? 1 : 0;
}

CUresult fake_capture_add(CUstream stream, const struct fake_work *work, CUgraphNode *out)
{
    struct tails *t = tails_of(stream);
    CUgraphNode node = NULL;
    if (stream->capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult r = fake_graph_add(stream->capture->graph, t->node, t->count, work, &node);
    if (r == CUDA_SUCCESS)
        set_tail(stream, node);
    if (out)
        *out = node;
    return r;
}

CUresult fake_capture_alloc(CUstream stream, size_t bytes, CUdeviceptr *out)
{
    struct tails *t = tails_of(stream);
    CUgraphNode node = NULL;
    if (stream->capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult r = fake_graph_add_alloc(stream->capture->graph, t->node, t->count, stream->ctx->card,
                                      bytes, &node, out);
    if (r == CUDA_SUCCESS)
        set_tail(stream, node);
    return r;
}

CUresult fake_capture_free(CUstream stream, CUdeviceptr ptr)
{
    struct tails *t = tails_of(stream);
    CUgraphNode node = NULL;
    if (stream->capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult r = fake_graph_add_free(stream->capture->graph, t->node, t->count, ptr, &node);
    if (r == CUDA_SUCCESS)
        set_tail(stream, node);
    return r;
}

CUresult fake_capture_record(CUstream stream, CUevent event)
{
    struct tails *t = tails_of(stream);
    if (stream->capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (t->count > 1) { /* several things to wait for: one node that stands for them */
        struct fake_work join = {.kind = FAKE_WORK_EMPTY};
        CUresult r = fake_capture_add(stream, &join, NULL);
        if (r != CUDA_SUCCESS)
            return r;
    }
    event->capture = stream->capture;
    event->node = t->count ? t->node[0] : NULL;
    event->recorded = false;
    return CUDA_SUCCESS;
}

CUresult fake_capture_wait(CUstream stream, CUevent event)
{
    if (!event->capture) {
        fake_capture_break_stream(stream); /* work from outside cannot be waited for */
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    bool going_on = false;
    for (struct fake_capture *c = captures; c; c = c->next)
        going_on |= c == event->capture;
    if (!going_on)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (stream->capture && stream->capture != event->capture) {
        fake_capture_break_stream(stream);
        event->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    struct tails *t = tails_of(stream);
    if (!stream->capture) {
        stream->capture = event->capture;
        t->count = 0;
    }
    for (size_t i = 0; i < t->count; i++)
        if (t->node[i] == event->node)
            return CUDA_SUCCESS;
    if (event->node && t->count < MAX_TAILS)
        t->node[t->count++] = event->node;
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
    if (!stream || mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture || stream == stream->ctx->null_stream)
        return stream->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct fake_capture *c = calloc(1, sizeof *c);
    CUgraph graph = fake_graph_new();
    if (!c || !graph) {
        free(c);
        free(graph);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *c = (struct fake_capture){captures, graph,          stream, stream->ctx,
                               mode,     pthread_self(), false,  ++last_id};
    captures = c;
    stream->capture = c;
    set_tail(stream, NULL);
    return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph *out)
{
    struct fake_capture *c = stream ? stream->capture : NULL;
    if (!out || !c)
        return c ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    for (CUstream s = fake_streams(); s; s = s->next)
        if (s->capture == c)
            s->capture = NULL;
    for (struct fake_capture **at = &captures; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    CUresult r = c->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    *out = c->broken ? NULL : c->graph;
    if (c->broken)
        fake_graph_delete(c->graph);
    free(c);
    return r;
}

static CUresult info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **needs, size_t *count)
{
    if (!stream || !status)
        return CUDA_ERROR_INVALID_VALUE;
    const struct fake_capture *c = stream->capture;
    *status = !c          ? CU_STREAM_CAPTURE_STATUS_NONE
              : c->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    struct tails *t = tails_of(stream);
    if (id)
        *id = c->id;
    if (graph)
        *graph = c->graph;
    if (needs)
        *needs = t->node;
    if (count)
        *count = t->count;
    return CUDA_SUCCESS;
}

/* --- the driver's calls, each for both meanings of the default stream --- */

#define CAPTURE_CALLS(twin, thread)                                                                \
    CUresult cuStreamBeginCapture##twin(CUstream stream)                                           \
    {                                                                                              \
        FAKE_ENTER(cuStreamBeginCapture##twin, FAKE_CONTEXT);                                      \
        return begin(fake_stream(stream, thread), CU_STREAM_CAPTURE_MODE_GLOBAL);                  \
    }                                                                                              \
    CUresult cuStreamBeginCapture_v2##twin(CUstream stream, CUstreamCaptureMode mode)              \
    {                                                                                              \
        FAKE_ENTER(cuStreamBeginCapture_v2##twin, FAKE_CONTEXT);                                   \
        return begin(fake_stream(stream, thread), mode);                                           \
    }                                                                                              \
    CUresult cuStreamEndCapture##twin(CUstream stream, CUgraph *graph)                             \
    {                                                                                              \
        FAKE_ENTER(cuStreamEndCapture##twin, FAKE_CONTEXT);                                        \
        return end(fake_stream(stream, thread), graph);                                            \
    }                                                                                              \
    CUresult cuStreamIsCapturing##twin(CUstream stream, CUstreamCaptureStatus *status)             \
    {                                                                                              \
        FAKE_ENTER(cuStreamIsCapturing##twin, FAKE_CONTEXT);                                       \
        return info(fake_stream(stream, thread), status, NULL, NULL, NULL, NULL);                  \
    }                                                                                              \
    CUresult cuStreamGetCaptureInfo##twin(CUstream stream, CUstreamCaptureStatus *status,          \
                                          cuuint64_t *id)                                          \
    {                                                                                              \
        FAKE_ENTER(cuStreamGetCaptureInfo##twin, FAKE_CONTEXT);                                    \
        return info(fake_stream(stream, thread), status, id, NULL, NULL, NULL);                    \
    }                                                                                              \
    CUresult cuStreamGetCaptureInfo_v2##twin(CUstream stream, CUstreamCaptureStatus *status,       \
                                             cuuint64_t *id, CUgraph *graph,                       \
                                             const CUgraphNode **needs, size_t *count)             \
    {                                                                                              \
        FAKE_ENTER(cuStreamGetCaptureInfo_v2##twin, FAKE_CONTEXT);                                 \
        return info(fake_stream(stream, thread), status, id, graph, needs, count);                 \
    }                                                                                              \
    CUresult cuStreamGetCaptureInfo_v3##twin(                                                      \
        CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,            \
        const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count)                   \
    {                                                                                              \
        FAKE_ENTER(cuStreamGetCaptureInfo_v3##twin, FAKE_CONTEXT);                                 \
        if (edges)                                                                                 \
            *edges = NULL;                                                                         \
        return info(fake_stream(stream, thread), status, id, graph, needs, count);                 \
    }

CAPTURE_CALLS(, false)
CAPTURE_CALLS(_ptsz, true)

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    FAKE_ENTER(cuThreadExchangeStreamCaptureMode, FAKE_INIT);
    if (!mode || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
