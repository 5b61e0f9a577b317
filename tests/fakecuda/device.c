/*
 * device.c: cuInit, which cards this process sees, and what it is told about them.
 *
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are read as the driver reads them. Of a card in MIG
 * mode a process sees one instance.
 */
#include "fake.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int visible[FAKE_MAX_CARDS]; /* ordinal to card */
static int visible_count;
static bool initialised;

/* What a process sees when it asks for nothing: whole cards, or else one instance. */
static int enumerate(int *cards)
{
    const struct fake_config *config = fake_config();
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    int count = 0;
    for (int i = 0; i < config->physical; i++) {
        int card = by_bus ? i : config->fastest[i];
        if (config->card[card].instances == 0)
            cards[count++] = card;
    }
    for (int i = config->physical; count == 0 && i < config->count; i++)
        cards[count++] = i;
    return count;
}

/* A UUID or the start of one that fits exactly one device; -1 otherwise. */
static int by_uuid(const char *text, size_t length)
{
    const struct fake_config *config = fake_config();
    int found = -1;
    for (int i = 0; i < config->count; i++) {
        char uuid[48];
        fake_uuid_text(&config->card[i], uuid);
        if (config->card[i].instances > 0 || length > strlen(uuid) ||
            strncasecmp(uuid, text, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

static bool is_uuid(const char *text)
{
    return strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
}

/* As driver 580.159 read it: whatever strtol makes of an entry, cut to 32 bits; junk behind is fine. */
static int by_index(const char *text, const int *cards, int count)
{
    char *after = NULL;
    int index = (int)(unsigned int)strtol(text, &after, 10);
    return after != text && index >= 0 && index < count ? cards[index] : -1;
}

/*
 * A list up to its first invalid entry; the first one decides whether it is of indexes or of UUIDs.
 * A device that appears twice makes the list worthless: no device at all. The unit test of the
 * command line, tests/unit/apps/test_devices.c, has the table of what the driver answered.
 */
static void read_visible(const char *text)
{
    int cards[FAKE_MAX_CARDS];
    int count = enumerate(cards);
    bool uuids = is_uuid(text);
    visible_count = 0;
    while (*text && is_uuid(text) == uuids) {
        size_t length = strcspn(text, ",");
        while (length > 0 && isspace((unsigned char)text[length - 1]))
            length--;
        int card = !uuids ? by_index(text, cards, count) : length > 4 ? by_uuid(text, length) : -1;
        if (card < 0)
            break;
        for (int i = 0; i < visible_count; i++)
            if (visible[i] == card) {
                visible_count = 0;
                return;
            }
        visible[visible_count++] = card;
        if (fake_config()->card[card].parent >= 0)
            break; /* one instance is all that a process can use */
        text += strcspn(text, ",");
        text += *text == ',';
    }
}

CUresult cuInit(unsigned int flags)
{
    FAKE_ENTER(cuInit, FAKE_ANY);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = fake_open();
    if (r != CUDA_SUCCESS)
        return r;
    if (!initialised) {
        const char *list = getenv("CUDA_VISIBLE_DEVICES");
        if (list)
            read_visible(list);
        else
            visible_count = enumerate(visible);
        initialised = true;
    }
    if (visible_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    return fake_attach();
}

int fake_card_of(CUdevice dev)
{
    return dev >= 0 && dev < visible_count ? visible[dev] : -1;
}

CUdevice fake_device_of(int card)
{
    for (int i = 0; i < visible_count; i++)
        if (visible[i] == card)
            return i;
    return -1;
}

CUresult cuDriverGetVersion(int *version)
{
    FAKE_ENTER(cuDriverGetVersion, FAKE_ANY);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = fake_config()->driver_version;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    FAKE_ENTER(cuDeviceGetCount, FAKE_INIT);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = visible_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    FAKE_ENTER(cuDeviceGet, FAKE_INIT);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_card_of(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* Checks the two arguments that all questions have, and finds the card. */
#define CARD_OR_RETURN(card, dev, out)                                                             \
    int card = fake_card_of(dev);                                                                  \
    if (!(out))                                                                                    \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    if (card < 0)                                                                                  \
    return CUDA_ERROR_INVALID_DEVICE

CUresult cuDeviceGetName(char *name, int size, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetName, FAKE_INIT);
    CARD_OR_RETURN(card, dev, name);
    const struct fake_card_config *c = &fake_config()->card[card];
    if (size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->parent >= 0)
        snprintf(name, (size_t)size, "Ullage Fake GPU %d MIG %d", c->parent, c->instance);
    else
        snprintf(name, (size_t)size, "Ullage Fake GPU %d", card);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
    CARD_OR_RETURN(card, dev, uuid);
    memcpy(uuid->bytes, fake_config()->card[card].uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetUuid_v2, FAKE_INIT);
    return get_uuid(uuid, dev);
}

/* The old form names the card that an instance belongs to. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetUuid, FAKE_INIT);
    CARD_OR_RETURN(card, dev, uuid);
    int parent = fake_config()->card[card].parent;
    memcpy(uuid->bytes, fake_config()->card[parent >= 0 ? parent : card].uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    FAKE_ENTER(cuDeviceTotalMem_v2, FAKE_INIT);
    CARD_OR_RETURN(card, dev, bytes);
    *bytes = fake_config()->card[card].total;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    FAKE_ENTER(cuMemGetInfo_v2, FAKE_CONTEXT);
    int card = fake_current()->card;
    uint64_t used = 0;
    fake_card_figures(card, &used);
    if (free_bytes)
        *free_bytes = fake_config()->card[card].total - used;
    if (total)
        *total = fake_config()->card[card].total;
    return CUDA_SUCCESS;
}

static int bus_card(int card)
{
    int parent = fake_config()->card[card].parent;
    return parent >= 0 ? parent : card;
}

static int attribute(int card, CUdevice_attribute what)
{
    const struct fake_card_config *c = &fake_config()->card[card];
    switch (what) {
    case 1: /* threads per block, and block and grid sizes */
    case 2:
    case 3:
        return 1024;
    case 4:
        return 64;
    case 5:
        return 2147483647;
    case 6:
    case 7:
        return 65535;
    case 8: /* shared memory per block */
        return 49152;
    case 9:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case 11: /* pitch */
        return 2147483647;
    case 12: /* registers */
    case 82:
        return 65536;
    case 13: /* clocks, in kHz */
    case 36:
        return 1500000;
    case 14: /* texture alignment */
    case 30:
        return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return c->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        return fake_config()->integrated;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return bus_card(card) + 1;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        return 0;
    case 37: /* bus width */
        return 256;
    case 38: /* second-level cache */
        return 4194304;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return c->threads;
    case 40: /* copy engines */
        return 2;
    case 51:
        return 32;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 0;
    case 81: /* shared memory per multiprocessor and per block on request */
        return 102400;
    case 97:
        return 101376;
    case 106:
        return 16;
    case 119: /* pools: file descriptors */
        return 1;
    case 15: /* yes to all of these */
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case 31:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case 78:
    case 79:
    case 80:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case 90:
    case 91:
    case 95:
    case 99:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case 121: /* deferred mapping */
    case 125: /* IPC events */
    case 141: /* virtual memory on the host */
    case 145:
        return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return !fake_config()->no_vmm;
    default:
        return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetAttribute, FAKE_INIT);
    CARD_OR_RETURN(card, dev, value);
    if (what <= 0 || what > 147)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute(card, what);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    FAKE_ENTER(cuDeviceComputeCapability, FAKE_INIT);
    CARD_OR_RETURN(card, dev, major);
    *major = attribute(card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute(card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *bus_id, int length, CUdevice dev)
{
    FAKE_ENTER(cuDeviceGetPCIBusId, FAKE_INIT);
    CARD_OR_RETURN(card, dev, bus_id);
    if (length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(bus_id, (size_t)length, "0000:%02X:00.0", (unsigned)(bus_card(card) + 1) & 0xff);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *bus_id)
{
    FAKE_ENTER(cuDeviceGetByPCIBusId, FAKE_INIT);
    unsigned int domain = 0, bus = 0, device = 0;
    if (!dev || !bus_id ||
        (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &device) != 3 &&
         (domain = 0, sscanf(bus_id, "%x:%x", &bus, &device) != 2)))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < visible_count; i++)
        if (domain == 0 && device == 0 && bus_card(visible[i]) + 1 == (int)bus) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    FAKE_ENTER(cuDeviceCanAccessPeer, FAKE_INIT);
    CARD_OR_RETURN(card, dev, can);
    *can = fake_card_of(peer) >= 0 && fake_card_of(peer) != card;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, int what, CUdevice src, CUdevice dst)
{
    FAKE_ENTER(cuDeviceGetP2PAttribute, FAKE_INIT);
    CARD_OR_RETURN(card, src, value);
    (void)card, (void)dst;
    *value = what == 2; /* access: yes; the rest is not imitated */
    return CUDA_SUCCESS;
}

/* --- results in words --- */

struct text {
    CUresult code;
    const char *name, *words;
};
static const struct text texts[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted while a stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "a previous error broke the stream capture"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct text *find_text(CUresult code)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return &texts[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    const struct text *found = find_text(error);
    if (text)
        *text = found ? found->name : NULL;
    return text && found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct text *found = find_text(error);
    if (text)
        *text = found ? found->words : NULL;
    return text && found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart(void)
{
    FAKE_ENTER(cuProfilerStart, FAKE_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    FAKE_ENTER(cuProfilerStop, FAKE_CONTEXT);
    return CUDA_SUCCESS;
}
