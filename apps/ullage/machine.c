/* machine.c: see machine.h. */
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ull__linker libc_linker = {.open = dlopen, .symbol = dlsym};

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%.*s", (int)size - 1, from);
}

static void add_from_nvml(struct machine *machine, const struct ull__nvml_device *from)
{
    struct machine_device *to = &machine->devices[machine->count++];
    memset(to, 0, sizeof *to);
    copy_text(to->uuid, sizeof to->uuid, from->uuid);
    copy_text(to->name, sizeof to->name, from->name);
    copy_text(to->bus_id, sizeof to->bus_id, from->bus_id);
    to->physical = from->index;
    to->divided = from->divided;
    to->total_bytes = from->total_bytes == ULL_NVML_UNKNOWN ? 0 : from->total_bytes;
}

static void ask_nvml(struct machine *machine, struct ull_error *why)
{
    if (ull__nvml_init(&machine->nvml, &libc_linker, NULL, why) != ULL_OK) {
        ull__nvml_finish(&machine->nvml);
        return;
    }
    machine->has_nvml = true;
    if (!machine->nvml.call.nvmlSystemGetDriverVersion ||
        machine->nvml.call.nvmlSystemGetDriverVersion(machine->driver, sizeof machine->driver) !=
            NVML_SUCCESS)
        machine->driver[0] = 0;
    machine->driver[sizeof machine->driver - 1] = 0;
    struct ull__nvml_device *found = calloc(MACHINE_DEVICES, sizeof *found);
    int count = found ? ull__nvml_devices(&machine->nvml, found, MACHINE_DEVICES) : 0;
    for (int i = 0; i < count && i < MACHINE_DEVICES; i++)
        add_from_nvml(machine, &found[i]);
    if (count == 0)
        snprintf(why->message, sizeof why->message, "NVML lists no GPU");
    free(found);
}

/* The 32 digits behind "GPU-" or "MIG-": the driver gives a MIG instance's without saying which. */
static bool same_device(const char *left, const char *right)
{
    return strlen(left) > 4 && strlen(right) > 4 && strcmp(left + 4, right + 4) == 0;
}

static int find_device(const struct machine *machine, const char *uuid)
{
    for (int i = 0; i < machine->count; i++) {
        if (same_device(machine->devices[i].uuid, uuid))
            return i;
    }
    return -1;
}

/* Takes what the driver says: order, and whatever NVML did not know. */
static bool ask_driver(struct machine *machine)
{
    struct probe_device *found = calloc(MACHINE_DEVICES, sizeof *found);
    int count = found ? probe_cuda(found, MACHINE_DEVICES) : -1;
    if (count > 0)
        machine->cuda_count = 0;
    for (int i = 0; i < count; i++) {
        int place = find_device(machine, found[i].uuid);
        if (place < 0) {
            if (machine->count == MACHINE_DEVICES)
                continue;
            place = machine->count++;
            struct machine_device *device = &machine->devices[place];
            memset(device, 0, sizeof *device);
            copy_text(device->uuid, sizeof device->uuid, found[i].uuid);
            copy_text(device->name, sizeof device->name, found[i].name);
            /* Without NVML there is no other count of cards than CUDA's. */
            device->physical = machine->has_nvml ? -1 : i;
        }
        if (machine->devices[place].total_bytes == 0)
            machine->devices[place].total_bytes = found[i].total_bytes;
        machine->devices[place].integrated = found[i].integrated != 0;
        machine->cuda_order[machine->cuda_count++] = place;
    }
    free(found);
    return count > 0;
}

/* NVML and CUDA_DEVICE_ORDER=PCI_BUS_ID both go by bus id; NVML's own order is already that. */
static void order_as_nvml(struct machine *machine)
{
    machine->cuda_count = 0;
    for (int i = 0; i < machine->count; i++) {
        if (!machine->devices[i].divided)
            machine->cuda_order[machine->cuda_count++] = i;
    }
}

static bool order_is_plain(const struct machine *machine)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    for (int i = 0; i < machine->count; i++) {
        const struct machine_device *device = &machine->devices[i];
        if (device->divided || device->total_bytes == 0)
            return false;
        if (!by_bus && (strcmp(device->name, machine->devices[0].name) != 0 ||
                        device->total_bytes != machine->devices[0].total_bytes))
            return false;
    }
    return machine->count > 0;
}

void machine_discover(struct machine *machine, struct ull_error *why)
{
    memset(machine, 0, sizeof *machine);
    why->message[0] = 0;
    ask_nvml(machine, why);
    order_as_nvml(machine);
    if (!order_is_plain(machine))
        ask_driver(machine);
}

void machine_close(struct machine *machine)
{
    if (machine->has_nvml)
        ull__nvml_finish(&machine->nvml);
    machine->has_nvml = false;
}
