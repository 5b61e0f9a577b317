/*
 * cuda_private.h: what the parts of the CUDA device share. cuda.c is life and memory, cuda_order.c
 * streams, events and copies, cuda_plain.c memory where the driver cannot map.
 */
#ifndef ULLAGE_CUDA_PRIVATE_H
#define ULLAGE_CUDA_PRIVATE_H

#include <pthread.h>

#include "cuda_load.h"
#include "device.h"

enum { ULL_CUDA_IDLE_EVENTS = 256 };

struct ull__cuda_device {
    struct ull__device device;
    const union ull__cuda *driver;
    CUdevice number;
    CUcontext context;                  /* primary, retained */
    pthread_mutex_t lock;               /* over all that follows */
    CUevent idle[ULL_CUDA_IDLE_EVENTS]; /* made, and in nobody's use */
    size_t idle_count;
};

/*
 * Fills in a device over a driver that is loaded already, in a context that the caller keeps alive; *cuda is zero.
 * The preload library makes its own of it (src/interpose/async_device.c), with memory calls that charge.
 */
void ull__cuda_init(struct ull__cuda_device *cuda, const union ull__cuda *driver, CUdevice number,
                    CUcontext context);
extern const struct ull__device_ops ull__cuda_mapped_ops;

/* What a thread had before a call of ours. */
struct ull__cuda_scope {
    bool pushed, relaxed;
    CUstreamCaptureMode mode;
};

static inline struct ull__cuda_device *ull__cuda_of(struct ull__device *device)
{
    return (struct ull__cuda_device *)device;
}

/*
 * Makes the device's context current, and lets this thread make calls that would otherwise break a
 * capture that is going on elsewhere. Not CUDA_SUCCESS: nothing to leave.
 */
CUresult ull__cuda_enter(struct ull__cuda_device *cuda, struct ull__cuda_scope *scope);
void ull__cuda_leave(struct ull__cuda_device *cuda, const struct ull__cuda_scope *scope);
/* The context only, for calls that no capture minds. */
CUresult ull__cuda_enter_context(struct ull__cuda_device *cuda, struct ull__cuda_scope *scope);

ull_status ull__cuda_status(CUresult code);

/* cuda_order.c */
ull_status ull__cuda_record(struct ull__device *, ull__stream, ull__event *);
bool ull__cuda_done(struct ull__device *, ull__event);
bool ull__cuda_wait(struct ull__device *, ull__event, uint64_t timeout_ns);
void ull__cuda_forget(struct ull__device *, ull__event);
bool ull__cuda_capturing(struct ull__device *, ull__stream);
ull_status ull__cuda_copy_in(struct ull__device *, uint64_t, const void *, uint64_t, ull__stream);
ull_status ull__cuda_copy_out(struct ull__device *, void *, uint64_t, uint64_t, ull__stream);
ull_status ull__cuda_fill(struct ull__device *, uint64_t, uint8_t, uint64_t, ull__stream);
ull_status ull__cuda_stream_create(struct ull__device *, ull__stream *);
void ull__cuda_stream_destroy(struct ull__device *, ull__stream);
ull_status ull__cuda_synchronize(struct ull__device *, ull__stream);

/* cuda_plain.c */
ull_status ull__cuda_plain_create(struct ull__device *device, size_t count, ull__page *pages);
void ull__cuda_plain_destroy_pages(struct ull__device *device, size_t count, const ull__page *pages);

#endif
