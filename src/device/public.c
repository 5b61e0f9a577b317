/* public.c: see ullage/device.h. The seam of device.h under public names, which cannot change as it does. */
#include "ullage/device.h"

#include "device.h"
#include "error.h"

static uint64_t address_of(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

ull_status ull_device_open_host(uint64_t bytes, ull_device **device, struct ull_error *err)
{
    if (!device)
        return ull__fail(err, ULL_E_INVALID, "device is NULL: expected where to put it");
    return ull__device_host_create(bytes, 0, device, err);
}

ull_status ull_device_open_cuda(int ordinal, ull_device **device, struct ull_error *err)
{
    if (!device)
        return ull__fail(err, ULL_E_INVALID, "device is NULL: expected where to put it");
    return ull__device_cuda_create(ordinal, device, err);
}

void ull_device_close(ull_device *device)
{
    ull__device_destroy(device);
}

const char *ull_device_name(const ull_device *device)
{
    return device->ops->name;
}

uint64_t ull_device_page_bytes(const ull_device *device)
{
    return device->page_bytes;
}

ull_status ull_device_memory(ull_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    return device->ops->memory(device, free_bytes, total_bytes);
}

ull_status ull_device_copy_in(ull_device *device, void *to, const void *from, uint64_t bytes,
                              void *stream)
{
    return device->ops->copy_in(device, address_of(to), from, bytes, stream);
}

ull_status ull_device_copy_out(ull_device *device, void *to, const void *from, uint64_t bytes,
                               void *stream)
{
    return device->ops->copy_out(device, to, address_of(from), bytes, stream);
}

ull_status ull_device_fill(ull_device *device, void *to, uint8_t value, uint64_t bytes, void *stream)
{
    return device->ops->fill(device, address_of(to), value, bytes, stream);
}

ull_status ull_device_stream_open(ull_device *device, void **stream)
{
    return device->ops->stream_create(device, stream);
}

void ull_device_stream_close(ull_device *device, void *stream)
{
    if (stream)
        device->ops->stream_destroy(device, stream);
}

ull_status ull_device_synchronize(ull_device *device, void *stream)
{
    return device->ops->synchronize(device, stream);
}
