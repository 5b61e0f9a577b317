/*
 * host_stream.c: order on the host device. A stream is a queue of copies, fills and marks. Usually a
 * piece of work is done as it is issued; once delayed (a test hook), it waits for an advance, a
 * synchronize or a wait for an event behind it, so that a test decides how far each stream lags.
 *
 * Work is done by the thread that advances it, under the device's lock. Streams do not wait for each
 * other, and the default stream is a stream like any other.
 */
#include <stdlib.h>
#include <string.h>

#include "host_private.h"

static struct ull__host *host_of(struct ull__device *device)
{
    return (struct ull__host *)device;
}

static struct ull__host_stream *stream_of(struct ull__host *host, ull__stream stream)
{
    return stream ? stream : &host->default_stream;
}

static struct ull__host_work *work_at(const struct ull__host_stream *stream, uint64_t position)
{
    return &stream->work[position & (stream->capacity - 1)];
}

static bool touches(const struct ull__host_stream *stream, uint64_t address, uint64_t bytes)
{
    for (uint64_t i = stream->finished; i < stream->issued; i++) {
        const struct ull__host_work *work = work_at(stream, i);
        if (work->kind != ULL_HOST_MARK && work->address < address + bytes &&
            address < work->address + work->bytes)
            return true;
    }
    return false;
}

bool ull__host_busy(const struct ull__host *host, uint64_t address, uint64_t bytes)
{
    for (const struct ull__host_stream *s = &host->default_stream; s; s = s->next) {
        if (touches(s, address, bytes))
            return true;
    }
    return false;
}

/* --- work ------------------------------------------------------------------------------------------ */

static void perform(struct ull__host_work *work)
{
    void *device = (void *)(uintptr_t)work->address;
    if (work->kind == ULL_HOST_IN)
        memcpy(device, work->host, work->bytes);
    else if (work->kind == ULL_HOST_OUT)
        memcpy(work->host, device, work->bytes);
    else if (work->kind == ULL_HOST_FILL)
        memset(device, work->value, work->bytes);
    if (work->kind == ULL_HOST_IN)
        free(work->host);
}

static void advance_to(struct ull__host_stream *stream, uint64_t position)
{
    while (stream->finished < position && stream->finished < stream->issued)
        perform(work_at(stream, stream->finished++));
}

static bool make_room(struct ull__host_stream *stream)
{
    if (stream->issued - stream->finished < stream->capacity)
        return true;
    size_t capacity = stream->capacity ? stream->capacity * 2 : 16;
    struct ull__host_work *work = malloc(capacity * sizeof *work);
    if (!work)
        return false;
    for (uint64_t i = stream->finished; i < stream->issued; i++)
        work[i & (capacity - 1)] = *work_at(stream, i);
    free(stream->work);
    stream->work = work;
    stream->capacity = capacity;
    return true;
}

static ull_status issue(struct ull__host *host, struct ull__host_stream *stream,
                        struct ull__host_work work)
{
    if (!make_room(stream))
        return ULL_E_NO_MEMORY;
    *work_at(stream, stream->issued++) = work;
    if (!host->delayed)
        advance_to(stream, stream->issued);
    return ULL_OK;
}

static ull_status issue_locked(struct ull__device *device, ull__stream stream,
                               struct ull__host_work work)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    ull_status status = ULL_E_DRIVER;
    if (!ull__host_fails(host))
        status = issue(host, stream_of(host, stream), work);
    pthread_mutex_unlock(&host->lock);
    return status;
}

ull_status ull__host_copy_in(struct ull__device *device, uint64_t to, const void *from,
                             uint64_t bytes, ull__stream stream)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        return ULL_E_NO_MEMORY;
    memcpy(copy, from, bytes);
    struct ull__host_work work = {.kind = ULL_HOST_IN, .address = to, .bytes = bytes, .host = copy};
    ull_status status = issue_locked(device, stream, work);
    if (status != ULL_OK)
        free(copy);
    return status;
}

ull_status ull__host_copy_out(struct ull__device *device, void *to, uint64_t from, uint64_t bytes,
                              ull__stream stream)
{
    struct ull__host_work work = {.kind = ULL_HOST_OUT, .address = from, .bytes = bytes, .host = to};
    return issue_locked(device, stream, work);
}

ull_status ull__host_fill(struct ull__device *device, uint64_t to, uint8_t value, uint64_t bytes,
                          ull__stream stream)
{
    struct ull__host_work work = {
        .kind = ULL_HOST_FILL, .value = value, .address = to, .bytes = bytes};
    return issue_locked(device, stream, work);
}

ull_status ull__host_synchronize(struct ull__device *device, ull__stream stream)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    bool fails = ull__host_fails(host);
    struct ull__host_stream *s = stream_of(host, stream);
    if (!fails)
        advance_to(s, s->issued);
    pthread_mutex_unlock(&host->lock);
    return fails ? ULL_E_DRIVER : ULL_OK;
}

/* --- events ---------------------------------------------------------------------------------------- */

static struct ull__host_event *new_event(struct ull__host *host)
{
    for (size_t i = 0; i < host->event_capacity; i++) {
        size_t at = (host->event_hint + i) % host->event_capacity;
        if (!host->events[at].used) {
            host->event_hint = at + 1;
            return &host->events[at];
        }
    }
    size_t capacity = host->event_capacity ? host->event_capacity * 2 : 16;
    struct ull__host_event *events = realloc(host->events, capacity * sizeof *events);
    if (!events)
        return NULL;
    memset(events + host->event_capacity, 0, (capacity - host->event_capacity) * sizeof *events);
    host->events = events;
    host->event_hint = host->event_capacity + 1;
    host->event_capacity = capacity;
    return &events[host->event_hint - 1];
}

static struct ull__host_event *find_event(struct ull__host *host, ull__event event)
{
    if (event == 0 || event > host->event_capacity || !host->events[event - 1].used) {
        host->held.misuses++;
        return NULL;
    }
    return &host->events[event - 1];
}

static bool passed(const struct ull__host_event *event)
{
    return !event || !event->stream || event->stream->finished >= event->position;
}

ull_status ull__host_record(struct ull__device *device, ull__stream stream, ull__event *event)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    host->calls.records++;
    ull_status status = ull__host_fails(host) ? ULL_E_DRIVER : ULL_OK;
    struct ull__host_event *e = status == ULL_OK ? new_event(host) : NULL;
    struct ull__host_stream *s = stream_of(host, stream);
    if (status == ULL_OK && !e)
        status = ULL_E_NO_MEMORY;
    if (status == ULL_OK)
        status = issue(host, s, (struct ull__host_work){.kind = ULL_HOST_MARK});
    if (status == ULL_OK) {
        *e = (struct ull__host_event){.stream = s, .position = s->issued, .used = true};
        host->held.events++;
        *event = (ull__event)(e - host->events) + 1;
    }
    pthread_mutex_unlock(&host->lock);
    return status;
}

bool ull__host_done(struct ull__device *device, ull__event event)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    bool is = passed(find_event(host, event));
    pthread_mutex_unlock(&host->lock);
    return is;
}

/* Nobody else makes the time pass, so a wait does the work itself; without time it only looks. */
bool ull__host_wait(struct ull__device *device, ull__event event, uint64_t timeout_ns)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__host_event *e = find_event(host, event);
    if (timeout_ns > 0 && e && e->stream)
        advance_to(e->stream, e->position);
    bool is = passed(e);
    pthread_mutex_unlock(&host->lock);
    return is;
}

void ull__host_forget(struct ull__device *device, ull__event event)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__host_event *e = find_event(host, event);
    if (e) {
        e->used = false;
        host->held.events--;
    }
    pthread_mutex_unlock(&host->lock);
}

/* --- streams --------------------------------------------------------------------------------------- */

ull_status ull__host_stream_create(struct ull__device *device, ull__stream *stream)
{
    struct ull__host *host = host_of(device);
    struct ull__host_stream *s = calloc(1, sizeof *s);
    if (!s)
        return ULL_E_NO_MEMORY;
    pthread_mutex_lock(&host->lock);
    bool fails = ull__host_fails(host);
    if (!fails) {
        s->next = host->default_stream.next;
        host->default_stream.next = s;
        host->held.streams++;
        *stream = s;
    }
    pthread_mutex_unlock(&host->lock);
    if (fails)
        free(s);
    return fails ? ULL_E_DRIVER : ULL_OK;
}

static void finish_stream(struct ull__host *host, struct ull__host_stream *stream)
{
    advance_to(stream, stream->issued);
    for (size_t i = 0; i < host->event_capacity; i++) {
        if (host->events[i].stream == stream)
            host->events[i].stream = NULL;
    }
    free(stream->work);
    stream->work = NULL;
    stream->capacity = 0;
}

void ull__host_stream_destroy(struct ull__device *device, ull__stream stream)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__host_stream **at = &host->default_stream.next;
    while (*at && *at != stream)
        at = &(*at)->next;
    struct ull__host_stream *s = *at;
    if (s) {
        *at = s->next;
        finish_stream(host, s);
        host->held.streams--;
        free(s);
    } else {
        host->held.misuses++;
    }
    pthread_mutex_unlock(&host->lock);
}

void ull__host_streams_finish(struct ull__host *host)
{
    while (host->default_stream.next)
        ull__host_stream_destroy(&host->device, host->default_stream.next);
    finish_stream(host, &host->default_stream);
}

bool ull__host_capturing(struct ull__device *device, ull__stream stream)
{
    return atomic_load_explicit(&stream_of(host_of(device), stream)->capturing, memory_order_relaxed);
}

/* --- test hooks ------------------------------------------------------------------------------------ */

void ull__device_host_delay(struct ull__device *device, bool delayed)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    host->delayed = delayed;
    for (struct ull__host_stream *s = &host->default_stream; s && !delayed; s = s->next)
        advance_to(s, s->issued);
    pthread_mutex_unlock(&host->lock);
}

void ull__device_host_advance(struct ull__device *device, ull__stream stream, unsigned steps)
{
    struct ull__host *host = host_of(device);
    pthread_mutex_lock(&host->lock);
    struct ull__host_stream *s = stream_of(host, stream);
    advance_to(s, s->finished + steps);
    pthread_mutex_unlock(&host->lock);
}

void ull__device_host_capture(struct ull__device *device, ull__stream stream, bool capturing)
{
    struct ull__host *host = host_of(device);
    atomic_store_explicit(&stream_of(host, stream)->capturing, capturing, memory_order_relaxed);
}
