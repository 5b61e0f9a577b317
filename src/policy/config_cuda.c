/*
 * config_cuda.c: the cards that the CUDA driver shows to this process, and how they are opened.
 *
 * Listing makes no context, so it takes no device memory, and what is free is not known yet: it is read
 * when a visible card is opened, with its context in place, as TensorFlow does. Cards that are not
 * visible are never opened.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda_load.h"
#include "error.h"
#include "ullage/config.h"
#include "ullage/device.h"

enum { MAJOR = 75, MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_... */

static void read_uuid(const union ull__cuda *driver, CUdevice number, struct ull_card *card)
{
    CUuuid uuid;
    bool known =
        driver->cuDeviceGetUuid_v2
            ? driver->cuDeviceGetUuid_v2(&uuid, number) == CUDA_SUCCESS
            : driver->cuDeviceGetUuid && driver->cuDeviceGetUuid(&uuid, number) == CUDA_SUCCESS;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    if (known)
        snprintf(card->uuid, sizeof card->uuid,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                 b[14], b[15]);
}

static bool read_card(const union ull__cuda *driver, int ordinal, struct ull_card *card)
{
    CUdevice number;
    size_t total;
    if (driver->cuDeviceGet(&number, ordinal) != CUDA_SUCCESS ||
        driver->cuDeviceTotalMem_v2(&total, number) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&card->major, MAJOR, number) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&card->minor, MINOR, number) != CUDA_SUCCESS)
        return false;
    driver->cuDeviceGetName(card->name, sizeof card->name, number);
    card->total_bytes = card->free_bytes = total;
    read_uuid(driver, number, card);
    return true;
}

ull_status ull_config_create_cuda(struct ull_config **config, struct ull_error *err)
{
    const union ull__cuda *driver = ull__cuda_load(dlopen, "libcuda.so.1");
    if (!driver || !driver->cuInit || !driver->cuDeviceGetCount || !driver->cuDeviceGet ||
        !driver->cuDeviceTotalMem_v2 || !driver->cuDeviceGetAttribute || !driver->cuDeviceGetName)
        return ull__fail(err, ULL_E_NO_DEVICE,
                         "no CUDA driver: libcuda.so.1 was not found; ULLAGE_LIBCUDA may name it");
    int count = 0;
    CUresult code = driver->cuInit(0);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NO_DEVICE)
        return ull__fail(err, ULL_E_DRIVER, "cuInit failed with CUDA error %d", code);
    if (code == CUDA_SUCCESS && driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "the CUDA driver does not count its devices");
    struct ull_card cards[ULL_CARDS];
    memset(cards, 0, sizeof cards);
    count = count < ULL_CARDS ? count : ULL_CARDS;
    for (int i = 0; i < count; i++) {
        if (!read_card(driver, i, &cards[i]))
            return ull__fail(err, ULL_E_DRIVER, "the CUDA driver does not describe its device %d", i);
    }
    return ull_config_create(cards, count, config, err);
}

static ull_status open_cuda(void *context, int card, const struct ull_card *facts,
                            struct ull__device **device, struct ull_error *err)
{
    (void)context;
    (void)facts;
    return ull_device_open_cuda(card, device, err);
}

static void close_cuda(void *context, struct ull__device *device)
{
    (void)context;
    ull_device_close(device);
}

struct ull_opener ull_opener_cuda(void)
{
    return (struct ull_opener){.open = open_cuda, .close = close_cuda};
}
