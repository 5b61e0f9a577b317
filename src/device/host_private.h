/*
 * host_private.h: what the two halves of the host device share. host.c is memory, host_stream.c order.
 */
#ifndef ULLAGE_HOST_PRIVATE_H
#define ULLAGE_HOST_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device.h"

/* One piece of work of a stream. */
struct ull__host_work {
    enum { ULL_HOST_MARK, ULL_HOST_IN, ULL_HOST_OUT, ULL_HOST_FILL } kind;
    uint8_t value;    /* FILL */
    uint64_t address; /* of the device */
    uint64_t bytes;
    void *host; /* IN: a copy of the source, owned; OUT: where the bytes go */
};

struct ull__host_stream {
    struct ull__host_stream *next;
    struct ull__host_work *work; /* a ring of `capacity`, a power of two */
    size_t capacity;
    uint64_t issued, finished; /* pieces of work so far */
    _Atomic bool capturing;
};

struct ull__host_event {
    struct ull__host_stream *stream; /* NULL: passed */
    uint64_t position;               /* reached when the stream has finished so many pieces */
    bool used;
};

/* Addresses that were given out. */
struct ull__host_reservation {
    struct ull__host_reservation *next;
    uint64_t address, bytes;
    void *base; /* what mmap returned, before alignment */
    size_t base_bytes;
    uint32_t *pages; /* one a page of addresses: the page that is mapped there, 0 for none */
};

struct ull__host {
    struct ull__device device;
    pthread_mutex_t lock; /* over all that follows */
    int fd;
    uint64_t total_pages, lowest_free;
    uint32_t *mappings; /* by page: how often it is mapped */
    bool *created;      /* by page */
    struct ull__host_reservation *reservations;
    struct ull__host_stream default_stream;
    struct ull__host_event *events;
    size_t event_capacity, event_hint;
    bool delayed;
    uint64_t fail_at;
    struct ull__device_calls calls;
    struct ull__device_held held;
};

/* With the lock held: does this call have to fail, because a test asked for it? */
bool ull__host_fails(struct ull__host *host);
/* With the lock held: is unfinished work going to touch these addresses? */
bool ull__host_busy(const struct ull__host *host, uint64_t address, uint64_t bytes);
void ull__host_streams_finish(struct ull__host *host);

/* The operations of host_stream.c. */
ull_status ull__host_record(struct ull__device *, ull__stream, ull__event *);
bool ull__host_done(struct ull__device *, ull__event);
bool ull__host_wait(struct ull__device *, ull__event, uint64_t timeout_ns);
void ull__host_forget(struct ull__device *, ull__event);
bool ull__host_capturing(struct ull__device *, ull__stream);
ull_status ull__host_copy_in(struct ull__device *, uint64_t, const void *, uint64_t, ull__stream);
ull_status ull__host_copy_out(struct ull__device *, void *, uint64_t, uint64_t, ull__stream);
ull_status ull__host_fill(struct ull__device *, uint64_t, uint8_t, uint64_t, ull__stream);
ull_status ull__host_stream_create(struct ull__device *, ull__stream *);
void ull__host_stream_destroy(struct ull__device *, ull__stream);
ull_status ull__host_synchronize(struct ull__device *, ull__stream);

#endif
