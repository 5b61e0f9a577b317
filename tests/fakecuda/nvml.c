/*
 * nvml.c: what the management library says of the cards.
 *
 *   ULLAGE_FAKE_NVML=WORD[,WORD]   how it is not what one expects:
 *     notsupported    nvmlInit fails
 *     old             the library knows newer calls, but its driver does not answer them
 *     nomemory        no memory figures of cards, as where host and card are one
 *     onegi           all instances of a card are compute instances of one GPU instance
 *   and more in nvml_processes.c and nvml_values.c
 *   ULLAGE_FAKE_NAME=TEXT          the name of every card
 *
 * The list of processes does not name all that is in use: 5.5625 MiB of each context, and memory
 * that outlived its owner, show only in the card's figure. CUDA_VISIBLE_DEVICES means nothing here.
 */
#include "nvml.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config.h"
#include "nvml_state.h"
#include "shared.h"

static struct nvmlDevice_st devices[FAKE_MAX_CARDS];
static struct fake_shared *shared;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int users;

bool fake_nvml_mode(const char *name)
{
    size_t length = strlen(name);
    for (const char *mode = getenv("ULLAGE_FAKE_NVML"); mode && *mode;) {
        size_t size = strcspn(mode, ",");
        if (size == length && memcmp(mode, name, size) == 0)
            return true;
        mode += size + (mode[size] == ',');
    }
    return false;
}

struct fake_shared *fake_nvml_shared(void)
{
    return shared;
}

static nvmlReturn_t init(void)
{
    nvmlReturn_t r = NVML_SUCCESS;
    if (fake_nvml_mode("notsupported"))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    pthread_mutex_lock(&mutex);
    if (!shared)
        shared = fake_shared_open(true);
    for (int i = 0; i < FAKE_MAX_CARDS; i++)
        devices[i].card = i;
    if (shared)
        users++;
    else
        r = NVML_ERROR_UNKNOWN;
    pthread_mutex_unlock(&mutex);
    return r;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return init();
}

nvmlReturn_t nvmlInit(void)
{
    return init();
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return init();
}

nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t r = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&mutex);
    return r;
}

static bool ready(void)
{
    pthread_mutex_lock(&mutex);
    bool is = users > 0;
    pthread_mutex_unlock(&mutex);
    return is;
}

nvmlReturn_t fake_nvml_card(nvmlDevice_t device, const void *out, const struct fake_card_config **card)
{
    if (!ready())
        return NVML_ERROR_UNINITIALIZED;
    if (!out || device < devices || device >= devices + fake_config()->count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *card = &fake_config()->card[device->card];
    return NVML_SUCCESS;
}

/* --- which devices there are --- */

static nvmlReturn_t get_count(unsigned int *count)
{
    if (!ready())
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)fake_config()->physical;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    return get_count(count);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return get_count(count);
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device)
{
    if (!ready())
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= (unsigned int)fake_config()->physical)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    return by_index(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return by_index(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (!ready())
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < fake_config()->count; i++) {
        char text[48];
        fake_uuid_text(&fake_config()->card[i], text);
        if (strcasecmp(text, uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t by_bus(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus = 0, slot = 0;
    if (!ready())
        return NVML_ERROR_UNINITIALIZED;
    if (!bus_id || !device || sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (domain != 0 || slot != 0 || bus == 0 || bus > (unsigned int)fake_config()->physical)
        return NVML_ERROR_NOT_FOUND;
    *device = &devices[bus - 1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return by_bus(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return by_bus(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    CARD_OR_RETURN(card, device, index);
    *index = (unsigned int)(card->parent >= 0 ? card->instance : device->card);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    CARD_OR_RETURN(card, device, minor);
    *minor = (unsigned int)(card->parent >= 0 ? card->parent : device->card);
    return NVML_SUCCESS;
}

/* --- MIG --- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    CARD_OR_RETURN(card, device, current);
    *current = card->instances > 0;
    if (pending)
        *pending = *current;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    CARD_OR_RETURN(card, device, count);
    *count = card->instances > 0 ? 7 : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig)
{
    CARD_OR_RETURN(card, device, mig);
    (void)card;
    for (int i = fake_config()->physical; i < fake_config()->count; i++)
        if (fake_config()->card[i].parent == device->card &&
            fake_config()->card[i].instance == (int)index) {
            *mig = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    CARD_OR_RETURN(card, mig, device);
    if (card->parent < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[card->parent];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    CARD_OR_RETURN(card, device, is_mig);
    *is_mig = card->parent >= 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    CARD_OR_RETURN(card, device, id);
    if (card->parent < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = fake_nvml_gpu_instance(card);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    CARD_OR_RETURN(card, device, id);
    if (card->parent < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = fake_nvml_mode("onegi") ? (unsigned int)card->instance : 0;
    return NVML_SUCCESS;
}

unsigned int fake_nvml_gpu_instance(const struct fake_card_config *card)
{
    return fake_nvml_mode("onegi") ? 1 : (unsigned int)card->instance + 1;
}

/* --- names --- */

static nvmlReturn_t copy_text(char *out, unsigned int length, const char *text)
{
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    char text[96];
    const char *named = getenv("ULLAGE_FAKE_NAME");
    CARD_OR_RETURN(card, device, name);
    if (named)
        snprintf(text, sizeof text, "%.90s", named);
    else if (card->parent >= 0)
        snprintf(text, sizeof text, "Ullage Fake GPU %d MIG %d", card->parent, card->instance);
    else
        snprintf(text, sizeof text, "Ullage Fake GPU %d", device->card);
    return copy_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char text[48];
    CARD_OR_RETURN(card, device, uuid);
    fake_uuid_text(card, text);
    return copy_text(uuid, length, text);
}

static nvmlReturn_t get_pci(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    CARD_OR_RETURN(card, device, pci);
    unsigned int bus = (unsigned int)(card->parent >= 0 ? card->parent : device->card) + 1;
    memset(pci, 0, sizeof *pci);
    pci->bus = bus;
    pci->pciDeviceId = 0xfa4e10de;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", bus & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", bus & 0xff);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return get_pci(device, pci);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return ready() ? copy_text(version, length, fake_config()->driver_name)
                   : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return ready() ? copy_text(version, length, "13.580.159.fake") : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = fake_config()->driver_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = fake_config()->driver_version;
    return NVML_SUCCESS;
}

/* Words and capitals as those of driver 580.159: they get into tables. */
const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    default:
        return "Unknown Error";
    }
}

/* --- memory --- */

/* Whether `card`'s memory is part of what the card or instance at `index` shows. */
static bool counts_in(int card, int index)
{
    const struct fake_card_config *all = fake_config()->card;
    return card == index || all[card].parent == index ||
           (fake_nvml_mode("onegi") && all[index].parent >= 0 &&
            all[card].parent == all[index].parent);
}

/* A card in MIG mode is the sum of its GPU instances. */
static uint64_t used_of(int index)
{
    uint64_t used = 0;
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    for (int i = 0; i < fake_config()->count; i++)
        if (counts_in(i, index))
            used += shared->card[i].used;
    fake_shared_unlock(shared);
    return used;
}

static uint64_t total_of(int index)
{
    uint64_t total = 0;
    for (int i = 0; i < fake_config()->count; i++)
        if (i == index || (fake_config()->card[index].parent >= 0 && counts_in(i, index)))
            total += fake_config()->card[i].total;
    return total;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    CARD_OR_RETURN(card, device, memory);
    if (fake_config()->integrated || fake_nvml_mode("nomemory"))
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = total_of(device->card) + card->reserved;
    memory->used = used_of(device->card) + card->reserved;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    CARD_OR_RETURN(card, device, memory);
    /* Driver 580.159 has these words for a version that it does not know. */
    if (fake_nvml_mode("old") || memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    if (fake_config()->integrated || fake_nvml_mode("nomemory"))
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = total_of(device->card) + card->reserved;
    memory->reserved = card->reserved;
    memory->used = used_of(device->card);
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}
