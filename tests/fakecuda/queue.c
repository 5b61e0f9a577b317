/*
 * queue.c: the order of work. Each stream is a queue that one thread at a time works off.
 *
 * Work that finds its stream idle is done at once by the caller, unless it is slow (a kernel that
 * waits, a host function); then, and for whatever queues up behind it, the stream gets a thread of
 * its own, which leaves when there was nothing to do for a while. The legacy default stream waits
 * for the blocking streams of its context and they for it.
 */
#include "fake.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static CUstream all;
static unsigned long long last_id;
bool fake_at_work;

CUstream fake_streams(void)
{
    return all;
}

CUstream fake_stream_new(CUcontext ctx, unsigned int flags, int priority)
{
    CUstream s = all;
    while (s && (s->live || s->has_worker || s->running || s->head || s->capture))
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return NULL;
        s->tail = &s->head;
        s->next = all;
        all = s;
    }
    s->live = true;
    s->ctx = ctx;
    s->flags = flags;
    s->priority = priority;
    s->per_thread = false;
    s->id = ++last_id;
    return s;
}

/* The stream that stands for "default" in this thread. */
static CUstream per_thread_stream(CUcontext ctx)
{
    for (CUstream s = all; s; s = s->next)
        if (s->live && s->per_thread && s->ctx == ctx && pthread_equal(s->owner, pthread_self()))
            return s;
    CUstream s = fake_stream_new(ctx, 0, 0);
    if (s) {
        s->per_thread = true;
        s->owner = pthread_self();
    }
    return s;
}

CUstream fake_stream(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
        return fake_current() ? per_thread_stream(fake_current()) : NULL;
    if (!stream || stream == CU_STREAM_LEGACY)
        return fake_current() ? fake_current()->null_stream : NULL;
    return stream->live ? stream : NULL;
}

void fake_stream_release_all(CUcontext ctx)
{
    for (CUstream s = all; s; s = s->next)
        if (s->ctx == ctx)
            s->live = false;
}

struct fake_op *fake_op_new(size_t data_size, fake_op_run *prepare, fake_op_run *run)
{
    struct fake_op *op = calloc(1, sizeof *op + data_size);
    if (op) {
        op->prepare = prepare;
        op->run = run;
    }
    return op;
}

void fake_op_wait(struct fake_op *op, CUstream stream, uint64_t number)
{
    if (stream->done >= number)
        return;
    struct fake_wait *more = realloc(op->waits, (size_t)(op->wait_count + 1) * sizeof *more);
    if (!more)
        return;
    more[op->wait_count++] = (struct fake_wait){stream, number};
    op->waits = more;
}

static bool ready(const struct fake_op *op)
{
    for (int i = 0; i < op->wait_count; i++)
        if (op->waits[i].stream->done < op->waits[i].number)
            return false;
    return true;
}

/* Does the first thing in the queue; the lock is dropped meanwhile. */
static void run_head(CUstream stream)
{
    struct fake_op *op = stream->head;
    stream->head = op->next;
    if (!stream->head)
        stream->tail = &stream->head;
    stream->running = true;
    fake_at_work = true;
    if (op->prepare)
        op->prepare(op);
    fake_at_work = false;
    pthread_mutex_unlock(&fake_mutex);
    if (op->run && op->failed == CUDA_SUCCESS)
        op->run(op);
    pthread_mutex_lock(&fake_mutex);
    if (op->failed != CUDA_SUCCESS)
        op->ctx->sticky = op->failed;
    stream->running = false;
    stream->done = op->number;
    atomic_fetch_sub(&fake_shared_state()->process[fake_slot()].queued, 1);
    free(op->waits);
    free(op);
    pthread_cond_broadcast(&fake_moved);
}

static void *work_off(void *argument)
{
    CUstream stream = argument;
    pthread_mutex_lock(&fake_mutex);
    for (;;) {
        if (stream->head && !stream->running && ready(stream->head)) {
            run_head(stream);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 300000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&fake_moved, &fake_mutex, &until) == ETIMEDOUT && !stream->head)
            break;
    }
    stream->has_worker = false;
    pthread_mutex_unlock(&fake_mutex);
    return NULL;
}

static void need_worker(CUstream stream)
{
    pthread_cond_broadcast(&fake_moved);
    if (stream->has_worker)
        return;
    sigset_t full, old;
    pthread_t thread;
    sigfillset(&full);
    pthread_sigmask(SIG_SETMASK, &full, &old);
    stream->has_worker = pthread_create(&thread, NULL, work_off, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (stream->has_worker)
        pthread_detach(thread);
    else
        while (stream->head && !stream->running) /* no threads to be had: be slow instead */
            run_head(stream);
}

void fake_enqueue(CUstream stream, struct fake_op *op)
{
    CUcontext ctx = stream->ctx;
    op->ctx = ctx;
    if (stream == ctx->null_stream) {
        for (CUstream s = all; s; s = s->next)
            if (s->ctx == ctx && s != stream && !(s->flags & CU_STREAM_NON_BLOCKING))
                fake_op_wait(op, s, s->queued);
    } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
        fake_op_wait(op, ctx->null_stream, ctx->null_stream->queued);
    }
    op->number = ++stream->queued;
    atomic_fetch_add(&fake_shared_state()->process[fake_slot()].queued, 1);
    op->next = NULL;
    *stream->tail = op;
    stream->tail = &op->next;
    if (stream->head == op && !op->slow && !stream->running && ready(op))
        run_head(stream);
    if (stream->head)
        need_worker(stream);
}

void fake_wait_stream(CUstream stream, uint64_t number)
{
    while (stream->done < number)
        pthread_cond_wait(&fake_moved, &fake_mutex);
}

void fake_wait_context(CUcontext ctx)
{
    for (CUstream s = all; s; s = s->next)
        if (s->ctx == ctx)
            fake_wait_stream(s, s->queued);
}
