/*
 * work.c: turns a copy, a memset or a kernel into something that a stream can run.
 *
 * Addresses are checked when the work is submitted and looked up again when it runs. If memory was
 * unmapped in between, the context breaks with CUDA_ERROR_ILLEGAL_ADDRESS, as it would on a card;
 * that is what finds an eviction that did not wait for the work in flight.
 */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct run {
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
};

struct job {
    struct fake_work work;
    struct run *runs;
    size_t count, room;
};

static size_t set_bytes(const struct fake_work *w)
{
    return w->set.width * w->set.element;
}

static bool side_ok(CUdeviceptr at, size_t size, bool is_host)
{
    return fake_device_range(at, size) || (is_host && at && !fake_span_at(at));
}

CUresult fake_work_check(const struct fake_work *w)
{
    if (w->kind == FAKE_WORK_COPY) {
        if (w->copy.width == 0 || w->copy.height == 0)
            return CUDA_SUCCESS;
        for (size_t row = 0; row < w->copy.height; row++)
            if (!side_ok(w->copy.dst + row * w->copy.dst_pitch, w->copy.width, w->copy.dst_is_host) ||
                !side_ok(w->copy.src + row * w->copy.src_pitch, w->copy.width, w->copy.src_is_host))
                return CUDA_ERROR_INVALID_VALUE;
    }
    if (w->kind == FAKE_WORK_SET) {
        if (w->set.element == 0 || w->set.dst % w->set.element != 0)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t row = 0; row < w->set.height; row++)
            if (!fake_device_range(w->set.dst + row * w->set.pitch, set_bytes(w)))
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static bool add_run(struct job *job, unsigned char *dst, const unsigned char *src, size_t bytes)
{
    if (job->count == job->room) {
        size_t room = job->room ? 2 * job->room : 4;
        struct run *more = realloc(job->runs, room * sizeof *more);
        if (!more)
            return false;
        job->runs = more;
        job->room = room;
    }
    job->runs[job->count++] = (struct run){dst, src, bytes};
    return true;
}

/* Bytes at an address: how many in one piece, and where. */
static size_t piece(CUdeviceptr at, size_t size, bool is_host, unsigned char **host)
{
    struct fake_range range;
    if (fake_resolve(at, &range) && range.host) {
        if (range.kind == FAKE_MANAGED)
            fake_touch_managed(at, size);
        *host = range.host;
        return range.length < size ? range.length : size;
    }
    *host = (unsigned char *)(uintptr_t)at;
    return is_host && !fake_span_at(at) ? size : 0;
}

static bool add_row(struct job *job, CUdeviceptr dst, bool dst_host, CUdeviceptr src, bool src_host,
                    size_t size)
{
    while (size > 0) {
        unsigned char *d = NULL, *s = NULL;
        size_t n = piece(dst, size, dst_host, &d);
        if (src) {
            n = piece(src, n, src_host, &s);
            src += n;
        }
        if (n == 0 || !add_run(job, d, s, n))
            return false;
        dst += n;
        size -= n;
    }
    return true;
}

static void prepare(struct fake_op *op)
{
    struct job *job = fake_op_data(op);
    const struct fake_work *w = &job->work;
    bool ok = true;
    if (w->kind == FAKE_WORK_COPY && w->copy.width > 0)
        for (size_t row = 0; ok && row < w->copy.height; row++)
            ok = add_row(job, w->copy.dst + row * w->copy.dst_pitch, w->copy.dst_is_host,
                         w->copy.src + row * w->copy.src_pitch, w->copy.src_is_host, w->copy.width);
    if (w->kind == FAKE_WORK_SET)
        for (size_t row = 0; ok && row < w->set.height; row++)
            ok = add_row(job, w->set.dst + row * w->set.pitch, false, 0, false, set_bytes(w));
    if (w->kind == FAKE_WORK_KERNEL && w->kernel.what >= FAKE_KERNEL_FILL)
        ok = add_row(job, w->kernel.argument[0], false, 0, false, w->kernel.argument[1] * 4);
    if (w->kind == FAKE_WORK_KERNEL && w->kernel.what == FAKE_KERNEL_WAIT)
        ok = add_row(job, w->kernel.argument[0], false, 0, false, 4);
    if (!ok) {
        op->failed = CUDA_ERROR_ILLEGAL_ADDRESS;
        free(job->runs);
        job->runs = NULL;
    }
}

static void set_run(const struct run *run, unsigned int value, unsigned int element)
{
    if (element == 1) {
        memset(run->dst, (int)value, run->bytes);
        return;
    }
    for (size_t i = 0; i + element <= run->bytes; i += element)
        memcpy(run->dst + i, &value, element); /* little endian: the low bytes come first */
}

static void add_to_run(const struct run *run, uint32_t value)
{
    for (size_t i = 0; i + 4 <= run->bytes; i += 4) {
        uint32_t old;
        memcpy(&old, run->dst + i, 4);
        old += value;
        memcpy(run->dst + i, &old, 4);
    }
}

static void spin(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

/* The memory may be the host's or, mapped by us, the device's; it is looked up once. */
static void wait_for_word(const struct job *job)
{
    const unsigned char *at = job->count ? job->runs[0].dst : NULL;
    uint32_t word = 0;
    while (at && word == 0) {
        spin(50000);
        __atomic_load((const uint32_t *)(const void *)at, &word, __ATOMIC_ACQUIRE);
    }
}

static void run(struct fake_op *op)
{
    struct job *job = fake_op_data(op);
    const struct fake_work *w = &job->work;
    if (w->kind == FAKE_WORK_HOST && w->host.callback)
        w->host.callback(w->host.stream, op->ctx->sticky, w->host.data);
    else if (w->kind == FAKE_WORK_HOST)
        w->host.function(w->host.data);
    if (w->kind == FAKE_WORK_KERNEL && w->kernel.what == FAKE_KERNEL_SPIN)
        spin(w->kernel.argument[0]);
    if (w->kind == FAKE_WORK_KERNEL && w->kernel.what == FAKE_KERNEL_WAIT) {
        wait_for_word(job);
        job->count = 0;
    }
    for (size_t i = 0; i < job->count; i++) {
        const struct run *r = &job->runs[i];
        if (w->kind == FAKE_WORK_COPY)
            memmove(r->dst, r->src, r->bytes);
        else if (w->kind == FAKE_WORK_SET)
            set_run(r, w->set.value, w->set.element);
        else if (w->kernel.what == FAKE_KERNEL_FILL)
            set_run(r, (unsigned int)w->kernel.argument[2], 4);
        else
            add_to_run(r, (uint32_t)w->kernel.argument[2]);
    }
    free(job->runs);
}

struct fake_op *fake_work_op(const struct fake_work *work)
{
    struct fake_op *op = fake_op_new(sizeof(struct job), prepare, run);
    if (op) {
        struct job *job = fake_op_data(op);
        job->work = *work;
        op->slow = work->kind == FAKE_WORK_HOST ||
                   (work->kind == FAKE_WORK_KERNEL && work->kernel.what == FAKE_KERNEL_SPIN &&
                    work->kernel.argument[0] > 0) ||
                   (work->kind == FAKE_WORK_KERNEL && work->kernel.what == FAKE_KERNEL_WAIT);
    }
    return op;
}

CUresult fake_submit(CUstream stream, const struct fake_work *work)
{
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = fake_work_check(work);
    if (r != CUDA_SUCCESS)
        return r;
    if (fake_capturing(stream))
        return fake_capture_add(stream, work, NULL);
    struct fake_op *op = fake_work_op(work);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_enqueue(stream, op);
    return CUDA_SUCCESS;
}
