/*
 * device.h: memory to make pools of: a card of the CUDA driver, or this machine's memory as if it were
 * one, for tests and for machines without a GPU.
 *
 * A device must outlive its pools. Thread safe, apart from close. No header of NVIDIA's is needed, and
 * the driver is looked for when a card is opened, so a program that uses this starts without one.
 * Streams are void * here and in pool.h: a CUstream or cudaStream_t of a card, or what
 * ull_device_stream_open gave; NULL is the (legacy) default stream.
 */
#ifndef ULLAGE_PUBLIC_DEVICE_H
#define ULLAGE_PUBLIC_DEVICE_H

#include <stdint.h>

#include "ullage/status.h"

struct ull__device;
typedef struct ull__device ull_device;

/*
 * A device of `bytes` (rounded down to pages of 2 MiB) of this machine's memory. It takes memory only
 * for pages that are written to. ULL_E_INVALID: less than a page. ULL_E_SYSTEM.
 */
ull_status ull_device_open_host(uint64_t bytes, ull_device **device, struct ull_error *err);

/*
 * Device `ordinal` as the CUDA driver counts, in its primary context, which is the runtime's too.
 * ULL_E_NO_DEVICE: no driver, or no such device. ULL_E_NO_MEMORY: no room for a context. ULL_E_DRIVER.
 */
ull_status ull_device_open_cuda(int ordinal, ull_device **device, struct ull_error *err);

/* Pre: its pools are destroyed and its streams closed. NULL is fine. */
void ull_device_close(ull_device *device);

/*
 * "host", "cuda", or "cuda-plain": a card that cannot map pages. A pool over that one cannot put free
 * pages side by side and gives them back in the pieces in which it took them; see pool.h.
 */
const char *ull_device_name(const ull_device *device);
/* What a pool takes and gives back at a time, a power of two. */
uint64_t ull_device_page_bytes(const ull_device *device);
/* What the device has, and what is free for anybody right now. ULL_E_DRIVER. */
ull_status ull_device_memory(ull_device *device, uint64_t *free_bytes, uint64_t *total_bytes);

/*
 * Bytes to, from and within the device's memory, in the stream's order: synchronize before you look.
 * Addresses are those that a pool gave, or within. From pinned host memory copy_in reads later.
 * ULL_E_INVALID: not memory of the device, as far as the driver noticed. ULL_E_DRIVER.
 */
ull_status ull_device_copy_in(ull_device *device, void *to, const void *from, uint64_t bytes,
                              void *stream);
ull_status ull_device_copy_out(ull_device *device, void *to, const void *from, uint64_t bytes,
                               void *stream);
ull_status ull_device_fill(ull_device *device, void *to, uint8_t value, uint64_t bytes, void *stream);

/* A stream of its own, which waits for no other. Tell pools before it ends: ull_pool_forget_stream. */
ull_status ull_device_stream_open(ull_device *device, void **stream);
void ull_device_stream_close(ull_device *device, void *stream);
/* Waits for all work of the stream. */
ull_status ull_device_synchronize(ull_device *device, void *stream);

#endif
