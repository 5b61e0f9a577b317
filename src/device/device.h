/*
 * device.h: the seam to memory. A device gives address space and pages, maps pages into addresses,
 * moves bytes, and orders work on streams. It knows nothing of allocators, limits or tensors.
 *
 * Implementations: host.c (one file of memory, mapped; always there), cuda.c (the driver's
 * virtual-memory calls) and cuda_plain.c (a driver without them). All of them pass
 * tests/conformance/device_suite.c.
 *
 * A device that cannot map has `regions` set: memory and addresses come only together. create gives one
 * region, `count` pages that lie side by side, and each page's name is its address, a multiple of 256
 * bytes; what one create gave goes back whole, by one destroy_pages. Such a device has no reserve,
 * release, map and unmap (they are NULL), since there is nothing that they could do.
 *
 * Sizes and addresses are bytes and multiples of ull__device_page() unless said otherwise. Calls are
 * thread safe for different ranges and pages. A call either does all that it is asked or changes nothing.
 */
#ifndef ULLAGE_DEVICE_H
#define ULLAGE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

struct ull__device;

/* A page of device memory, by the implementation's own name for it (regions: its address). Never 0. */
typedef uint64_t ull__page;
/* An order of work. NULL is the default stream of the device. */
typedef void *ull__stream;
/* A point in a stream's order. Never 0. */
typedef uint64_t ull__event;

struct ull__device_ops {
    const char *name;

    void (*destroy)(struct ull__device *device);
    /* What the device has, and what is free for anybody right now. */
    ull_status (*memory)(struct ull__device *device, uint64_t *free_bytes, uint64_t *total_bytes);

    /* Addresses without memory, aligned to a page. ULL_E_NO_MEMORY when there is no room for them. */
    ull_status (*reserve)(struct ull__device *device, uint64_t bytes, uint64_t *address);
    /* Gives addresses back. Pre: nothing is mapped there. */
    void (*release)(struct ull__device *device, uint64_t address, uint64_t bytes);

    /* Memory without addresses: `count` pages, or none (ULL_E_NO_MEMORY: the device is full). */
    ull_status (*create)(struct ull__device *device, size_t count, ull__page *pages);
    /* Pre: they are mapped nowhere, and work that touches them is over. */
    void (*destroy_pages)(struct ull__device *device, size_t count, const ull__page *pages);

    /*
     * Makes pages[i] readable and writable at address + i * page size. A page may be mapped in several
     * places at once; all of them see the same bytes. Pre: the addresses are reserved and unmapped.
     */
    ull_status (*map)(struct ull__device *device, uint64_t address, size_t count,
                      const ull__page *pages);
    /*
     * Pre: every page in the range is mapped, by whole earlier map calls or parts of them, and work
     * that uses these addresses is over: unmapping waits for nothing.
     */
    void (*unmap)(struct ull__device *device, uint64_t address, size_t count);

    /* Order. record puts a point behind all work that the stream has now; done never waits. */
    ull_status (*record)(struct ull__device *device, ull__stream stream, ull__event *event);
    bool (*done)(struct ull__device *device, ull__event event);
    /* Waits at most timeout_ns for the point; true if it was reached. */
    bool (*wait)(struct ull__device *device, ull__event event, uint64_t timeout_ns);
    void (*forget)(struct ull__device *device, ull__event event);
    /* Is the stream being captured into a graph? Then its order is not time. */
    bool (*capturing)(struct ull__device *device, ull__stream stream);

    /* Moves bytes between device addresses and host memory, in the stream's order. Any size. */
    ull_status (*copy_in)(struct ull__device *device, uint64_t to, const void *from, uint64_t bytes,
                          ull__stream stream);
    ull_status (*copy_out)(struct ull__device *device, void *to, uint64_t from, uint64_t bytes,
                           ull__stream stream);
    ull_status (*fill)(struct ull__device *device, uint64_t to, uint8_t value, uint64_t bytes,
                       ull__stream stream);
    ull_status (*stream_create)(struct ull__device *device, ull__stream *stream);
    void (*stream_destroy)(struct ull__device *device, ull__stream stream);
    /* Waits for all work of the stream. */
    ull_status (*synchronize)(struct ull__device *device, ull__stream stream);
};

/* Implementations embed this first. */
struct ull__device {
    const struct ull__device_ops *ops;
    uint64_t page_bytes; /* mapping granularity, a power of two */
    bool regions;        /* pages have their place from the start, and go back as they came */
    bool has_uuid;       /* it is a card, or a part of one, */
    uint8_t uuid[16];    /* which the driver knows by this */
};

/*
 * Memory of this machine as a device of total_bytes with pages of page_bytes (0: 2 MiB). Streams do
 * their work when they are synchronized, or at once: see ull__device_host_delay.
 */
ull_status ull__device_host_create(uint64_t total_bytes, uint64_t page_bytes,
                                   struct ull__device **out, struct ull_error *err);
/*
 * Test hook of the host device: work on a stream, and so its events, completes only at this stream's
 * ull__device_host_advance (steps pieces of work), at a synchronize, or within a wait.
 */
void ull__device_host_delay(struct ull__device *device, bool delayed);
void ull__device_host_advance(struct ull__device *device, ull__stream stream, unsigned steps);
/* Makes the n-th call from now of any op that can fail do so (ULL_E_NO_MEMORY); 0: none. */
void ull__device_host_fail_at(struct ull__device *device, uint64_t n);
/* How many calls are left until then; 0: it has come, or none was asked for. */
uint64_t ull__device_host_fail_at_left(struct ull__device *device);
/* Says that the stream is being captured, or no longer. */
void ull__device_host_capture(struct ull__device *device, ull__stream stream, bool capturing);
/* Calls of create, map and unmap so far: a steady state makes none. */
struct ull__device_calls {
    uint64_t creates, maps, unmaps, destroys, records;
};
struct ull__device_calls ull__device_host_calls(struct ull__device *device);
/* What is held now, so that a test can show that nothing leaked, and broken preconditions so far. */
struct ull__device_held {
    uint64_t pages, mappings, reserved_bytes, events, streams;
    uint64_t misuses;
};
struct ull__device_held ull__device_host_held(struct ull__device *device);

/* Device `ordinal` of the CUDA driver, in its primary context. ULL_E_NO_DEVICE. */
ull_status ull__device_cuda_create(int ordinal, struct ull__device **out, struct ull_error *err);

void ull__device_destroy(struct ull__device *device);

#endif
