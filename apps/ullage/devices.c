/* devices.c: see devices.h. Budgets are in budget.c. */
#include "devices.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "error.h"

/* --- CUDA_VISIBLE_DEVICES ----------------------------------------------------------------------- */

static bool is_uuid_text(const char *text)
{
    return strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
}

/* The place of the only device whose UUID begins with text; -1 for none, -2 for several. */
static int match_uuid(const struct machine *machine, const char *text, size_t length)
{
    int match = -1;
    if (length <= 4)
        return -1;
    for (int i = 0; i < machine->count; i++) {
        const char *uuid = machine->devices[i].uuid;
        /* The prefix in capitals, the digits in either case, as the driver reads them. */
        if (strncmp(uuid, text, 4) != 0 || strncasecmp(uuid, text, length) != 0)
            continue;
        if (match >= 0)
            return -2;
        match = i;
    }
    return match;
}

static bool contains(const struct selection *selection, int place)
{
    for (int i = 0; i < selection->count; i++) {
        if (selection->place[i] == place)
            return true;
    }
    return false;
}

/* One entry as the driver reads it; -1 where it stops. */
static int visible_entry(const struct machine *machine, const char *entry, bool by_uuid)
{
    char *end;
    if (is_uuid_text(entry) != by_uuid)
        return -1;
    if (by_uuid) {
        size_t length = strlen(entry);
        while (length > 0 && isspace((unsigned char)entry[length - 1]))
            length--;
        int place = match_uuid(machine, entry, length);
        return place >= 0 && !machine->devices[place].divided ? place : -1;
    }
    long value = strtol(entry, &end, 10);
    int index = (int)(unsigned int)(unsigned long)value; /* 4294967296 is 0 for the driver */
    if (end == entry || index < 0 || index >= machine->cuda_count)
        return -1;
    return machine->cuda_order[index];
}

void devices_visible(const struct machine *machine, const char *text, struct selection *visible)
{
    visible->count = 0;
    if (!text) {
        visible->count = machine->cuda_count;
        memcpy(visible->place, machine->cuda_order, sizeof visible->place);
        return;
    }
    bool by_uuid = is_uuid_text(text);
    for (;;) {
        char entry[256];
        size_t length = strcspn(text, ",");
        if (length >= sizeof entry)
            return;
        memcpy(entry, text, length);
        entry[length] = 0;
        int place = visible_entry(machine, entry, by_uuid);
        if (place < 0)
            return;
        if (contains(visible, place)) {
            visible->count = 0; /* cuInit answers "invalid device" */
            return;
        }
        visible->place[visible->count++] = place;
        if (text[length] == 0)
            return;
        text += length + 1;
    }
}

/* --- option -g ------------------------------------------------------------------------------------ */

static void describe_devices(const struct machine *machine, char *text, size_t size)
{
    int last = -1;
    for (int i = 0; i < machine->count; i++) {
        if (machine->devices[i].physical > last)
            last = machine->devices[i].physical;
    }
    if (machine->count == 0)
        snprintf(text, size, "this machine has no GPU");
    else if (last <= 0)
        snprintf(text, size, "this machine has one GPU, index 0 (%s)", machine->devices[0].uuid);
    else
        snprintf(text, size, "this machine has GPUs 0 to %d", last);
}

static int match_index(const struct machine *machine, long index)
{
    int divided = -1;
    for (int i = 0; i < machine->count; i++) {
        if (machine->devices[i].physical != index)
            continue;
        if (!machine->devices[i].divided && strncmp(machine->devices[i].uuid, "MIG-", 4) != 0)
            return i;
        if (machine->devices[i].divided)
            divided = i;
    }
    return divided;
}

/* Digits only, in the range of an int. */
static bool read_index(const char *text, long *index)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    *index = strtol(text, &end, 10);
    return *end == 0 && errno == 0 && *index <= INT_MAX;
}

static ull_status select_one(const struct machine *machine, const char *entry, int *place,
                             struct ull_error *err)
{
    char have[160];
    long index;
    describe_devices(machine, have, sizeof have);
    if (is_uuid_text(entry)) {
        *place = match_uuid(machine, entry, strlen(entry));
        if (*place == -2)
            return ull__fail(err, ULL_E_NO_DEVICE, "-g %s fits several GPUs: give more of the UUID",
                             entry);
        if (*place < 0)
            return ull__fail(err, ULL_E_NO_DEVICE, "-g %s: no such GPU: %s", entry, have);
    } else if (read_index(entry, &index)) {
        *place = match_index(machine, index);
        if (*place < 0)
            return ull__fail(err, ULL_E_NO_DEVICE, "-g %s: no such GPU: %s", entry, have);
    } else {
        return ull__fail(
            err, ULL_E_INVALID,
            "-g '%.80s' is not a GPU: expected indexes as nvidia-smi counts them, UUIDs "
            "(GPU-... or MIG-...) or 'local'",
            entry);
    }
    if (machine->devices[*place].divided)
        return ull__fail(
            err, ULL_E_NO_DEVICE,
            "-g %s is divided into MIG instances: name one by its UUID (nvidia-smi -L)", entry);
    return ULL_OK;
}

static ull_status select_local(const struct selection *visible, char *(*get)(const char *),
                               struct selection *selected, struct ull_error *err)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK",
                                            "SLURM_LOCALID", "HOROVOD_LOCAL_RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = get(variables[i]);
        long rank;
        if (!text)
            continue;
        if (!read_index(text, &rank))
            return ull__fail(err, ULL_E_INVALID, "%s is '%.80s': expected a local rank such as 0",
                             variables[i], text);
        if (visible->count == 0)
            return ull__fail(err, ULL_E_NO_DEVICE, "-g local: no GPU is visible here");
        selected->count = 1;
        selected->place[0] = visible->place[rank % visible->count];
        return ULL_OK;
    }
    return ull__fail(
        err, ULL_E_INVALID,
        "-g local needs OMPI_COMM_WORLD_LOCAL_RANK, LOCAL_RANK, SLURM_LOCALID or "
        "HOROVOD_LOCAL_RANK: none is set (is this started by mpirun, torchrun or srun?)");
}

ull_status devices_select(const struct machine *machine, const char *text,
                          const struct selection *visible, char *(*get)(const char *),
                          struct selection *selected, struct ull_error *err)
{
    struct selection found = {.count = 0};
    if (strcmp(text, "local") == 0)
        return select_local(visible, get, selected, err);
    for (;;) {
        char entry[ULL_UUID_TEXT];
        int place = -1;
        size_t length = strcspn(text, ",");
        if (length >= sizeof entry)
            return ull__fail(err, ULL_E_INVALID, "-g '%.80s' is too long for a GPU", text);
        memcpy(entry, text, length);
        entry[length] = 0;
        ull_status status = select_one(machine, entry, &place, err);
        if (status != ULL_OK)
            return status;
        if (contains(&found, place))
            return ull__fail(err, ULL_E_INVALID, "-g names GPU %s twice", entry);
        found.place[found.count++] = place;
        if (text[length] == 0)
            break;
        text += length + 1;
    }
    *selected = found;
    return ULL_OK;
}

char *devices_uuid_list(const struct machine *machine, const struct selection *selection,
                        char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = 0;
    for (int i = 0; i < selection->count && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? "," : "",
                                 machine->devices[selection->place[i]].uuid);
    return buffer;
}

const char *device_map_text(const struct ull__device_spec *device, char buffer[DEVICE_MAP_TEXT])
{
    int used = device->logical < 0
                   ? snprintf(buffer, DEVICE_MAP_TEXT, "not visible = ")
                   : snprintf(buffer, DEVICE_MAP_TEXT, "logical %d = ", device->logical);
    if (device->physical < 0)
        snprintf(buffer + used, (size_t)(DEVICE_MAP_TEXT - used), "%s", device->uuid);
    else
        snprintf(buffer + used, (size_t)(DEVICE_MAP_TEXT - used), "physical %d (%s)",
                 device->physical, device->uuid);
    return buffer;
}
