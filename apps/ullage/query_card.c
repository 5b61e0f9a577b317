/*
 * query_card.c: values of `ullage query` that the driver is asked for, one call each. Where the card or
 * the library has no answer, the reason goes into the value.
 */
#include <stdio.h>
#include <string.h>

#include "query.h"

/* The result of an entry point for the row's device. Without a library there is no handle. */
#define ASK(row, entry, ...)                                                                       \
    ((row)->round->gpus->nvml.call.entry && (row)->gpu->device.handle                              \
         ? (row)->round->gpus->nvml.call.entry((row)->gpu->device.handle, __VA_ARGS__)             \
         : NVML_ERROR_NOT_SUPPORTED)

/* A getter that asks for one number. */
#define NUMBER(getter, entry)                                                                      \
    void query_get_##getter(const struct query_row *row, struct query_value *value)                \
    {                                                                                              \
        unsigned int number = 0;                                                                   \
        nvmlReturn_t result = ASK(row, entry, &number);                                            \
        give_number(value, result, &number);                                                       \
    }

static void give_number(struct query_value *value, nvmlReturn_t result, const unsigned int *number)
{
    if (result == NVML_SUCCESS)
        query_set_number(value, *number);
    else
        query_set_missing(value, result);
}

static void give_text(struct query_value *value, nvmlReturn_t result, const char *text)
{
    if (result == NVML_SUCCESS)
        query_set_text(value, text);
    else
        query_set_missing(value, result);
}

/* --- what it is --- */

void query_get_serial(const struct query_row *row, struct query_value *value)
{
    char text[96] = "";
    give_text(value, ASK(row, nvmlDeviceGetSerial, text, sizeof text), text);
}

void query_get_vbios(const struct query_row *row, struct query_value *value)
{
    char text[96] = "";
    give_text(value, ASK(row, nvmlDeviceGetVbiosVersion, text, sizeof text), text);
}

void query_get_compute_cap(const struct query_row *row, struct query_value *value)
{
    char text[32];
    int major = 0, minor = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetCudaComputeCapability, &major, &minor);
    snprintf(text, sizeof text, "%d.%d", major, minor);
    give_text(value, result, text);
}

/* --- where it is --- */

static void pci(const struct query_row *row, struct query_value *value, int digits,
                unsigned int (*part)(const nvmlPciInfo_t *pci))
{
    nvmlPciInfo_t info;
    char text[32];
    memset(&info, 0, sizeof info);
    nvmlReturn_t result = ASK(row, nvmlDeviceGetPciInfo_v3, &info);
    snprintf(text, sizeof text, "0x%0*X", digits, part(&info));
    give_text(value, result, text);
}

#define PCI(getter, digits, member)                                                                \
    static unsigned int part_##member(const nvmlPciInfo_t *info)                                   \
    {                                                                                              \
        return info->member;                                                                       \
    }                                                                                              \
    void query_get_##getter(const struct query_row *row, struct query_value *value)                \
    {                                                                                              \
        pci(row, value, digits, part_##member);                                                    \
    }
PCI(pci_domain, 4, domain)
PCI(pci_bus, 2, bus)
PCI(pci_device, 2, device)
PCI(pci_device_id, 8, pciDeviceId)
PCI(pci_sub_device_id, 8, pciSubSystemId)

NUMBER(pcie_gen, nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(pcie_gen_max, nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(pcie_gen_card, nvmlDeviceGetGpuMaxPcieLinkGeneration)
NUMBER(pcie_width, nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(pcie_width_max, nvmlDeviceGetMaxPcieLinkWidth)

/* --- modes --- */

static void give_mode(struct query_value *value, nvmlReturn_t result, int enabled)
{
    give_text(value, result, enabled ? "Enabled" : "Disabled");
}

void query_get_display_active(const struct query_row *row, struct query_value *value)
{
    int active = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetDisplayActive, &active);
    give_mode(value, result, active);
}

void query_get_persistence(const struct query_row *row, struct query_value *value)
{
    int enabled = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetPersistenceMode, &enabled);
    give_mode(value, result, enabled);
}

void query_get_ecc(const struct query_row *row, struct query_value *value)
{
    int current = 0, pending = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetEccMode, &current, &pending);
    give_mode(value, result, current);
}

void query_get_ecc_pending(const struct query_row *row, struct query_value *value)
{
    int current = 0, pending = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetEccMode, &current, &pending);
    give_mode(value, result, pending);
}

void query_get_mig(const struct query_row *row, struct query_value *value)
{
    unsigned int current = 0, pending = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetMigMode, &current, &pending);
    give_mode(value, result, current == 1);
}

void query_get_mig_pending(const struct query_row *row, struct query_value *value)
{
    unsigned int current = 0, pending = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetMigMode, &current, &pending);
    give_mode(value, result, pending == 1);
}

void query_get_compute_mode(const struct query_row *row, struct query_value *value)
{
    static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited",
                                        "Exclusive_Process"};
    int mode = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetComputeMode, &mode);
    if (result == NVML_SUCCESS && (mode < 0 || mode > 3))
        result = NVML_ERROR_UNKNOWN;
    give_text(value, result, result == NVML_SUCCESS ? names[mode] : "");
}

void query_get_pstate(const struct query_row *row, struct query_value *value)
{
    char text[32];
    int state = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetPerformanceState, &state);
    if (result == NVML_SUCCESS && (state < 0 || state > 15)) /* 32 means that it is not known */
        result = NVML_ERROR_UNKNOWN;
    snprintf(text, sizeof text, "P%d", state);
    give_text(value, result, text);
}

/* --- how it is --- */

void query_get_busy(const struct query_row *row, struct query_value *value)
{
    nvmlUtilization_t rates = {0, 0};
    nvmlReturn_t result = ASK(row, nvmlDeviceGetUtilizationRates, &rates);
    give_number(value, result, &rates.gpu);
}

void query_get_memory_busy(const struct query_row *row, struct query_value *value)
{
    nvmlUtilization_t rates = {0, 0};
    nvmlReturn_t result = ASK(row, nvmlDeviceGetUtilizationRates, &rates);
    give_number(value, result, &rates.memory);
}

void query_get_encoder(const struct query_row *row, struct query_value *value)
{
    unsigned int percent = 0, period = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetEncoderUtilization, &percent, &period);
    give_number(value, result, &percent);
}

void query_get_decoder(const struct query_row *row, struct query_value *value)
{
    unsigned int percent = 0, period = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetDecoderUtilization, &percent, &period);
    give_number(value, result, &percent);
}

void query_get_temperature(const struct query_row *row, struct query_value *value)
{
    unsigned int celsius = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetTemperature, 0, &celsius);
    give_number(value, result, &celsius);
}

/* What has no entry point of its own but a number in a list. */
static void field(const struct query_row *row, struct query_value *value, unsigned int id)
{
    nvmlFieldValue_t asked;
    memset(&asked, 0, sizeof asked);
    asked.fieldId = id;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetFieldValues, 1, &asked);
    if (result == NVML_SUCCESS)
        result = asked.nvmlReturn;
    give_number(value, result, &asked.value.ui);
}

void query_get_memory_temperature(const struct query_row *row, struct query_value *value)
{
    field(row, value, NVML_FI_DEV_MEMORY_TEMP);
}

void query_get_power_average(const struct query_row *row, struct query_value *value)
{
    field(row, value, NVML_FI_DEV_POWER_AVERAGE);
}

void query_get_power_instant(const struct query_row *row, struct query_value *value)
{
    field(row, value, NVML_FI_DEV_POWER_INSTANT);
}

NUMBER(fan, nvmlDeviceGetFanSpeed)
NUMBER(power, nvmlDeviceGetPowerUsage)
NUMBER(power_limit, nvmlDeviceGetPowerManagementLimit)
NUMBER(power_enforced, nvmlDeviceGetEnforcedPowerLimit)
NUMBER(power_default, nvmlDeviceGetPowerManagementDefaultLimit)

void query_get_power_least(const struct query_row *row, struct query_value *value)
{
    unsigned int least = 0, most = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetPowerManagementLimitConstraints, &least, &most);
    give_number(value, result, &least);
}

void query_get_power_most(const struct query_row *row, struct query_value *value)
{
    unsigned int least = 0, most = 0;
    nvmlReturn_t result = ASK(row, nvmlDeviceGetPowerManagementLimitConstraints, &least, &most);
    give_number(value, result, &most);
}

#define CLOCK(getter, entry, which)                                                                \
    void query_get_##getter(const struct query_row *row, struct query_value *value)                \
    {                                                                                              \
        unsigned int mhz = 0;                                                                      \
        nvmlReturn_t result = ASK(row, entry, which, &mhz);                                        \
        give_number(value, result, &mhz);                                                          \
    }
CLOCK(clock_graphics, nvmlDeviceGetClockInfo, NVML_CLOCK_GRAPHICS)
CLOCK(clock_sm, nvmlDeviceGetClockInfo, NVML_CLOCK_SM)
CLOCK(clock_memory, nvmlDeviceGetClockInfo, NVML_CLOCK_MEM)
CLOCK(clock_video, nvmlDeviceGetClockInfo, NVML_CLOCK_VIDEO)
CLOCK(clock_graphics_max, nvmlDeviceGetMaxClockInfo, NVML_CLOCK_GRAPHICS)
CLOCK(clock_sm_max, nvmlDeviceGetMaxClockInfo, NVML_CLOCK_SM)
CLOCK(clock_memory_max, nvmlDeviceGetMaxClockInfo, NVML_CLOCK_MEM)
