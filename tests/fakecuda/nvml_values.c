/*
 * nvml_values.c: temperature, power, clocks and the like of the fake cards. All of it is constant.
 *
 *   ULLAGE_FAKE_UTIL=37,12        percent of time in kernels, and of memory in use (default 0,0)
 *   ULLAGE_FAKE_NVML=noutil       the card does not tell that, as in MIG mode
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml_state.h"

#define CONSTANT(call, type, value)                                                                \
    nvmlReturn_t call(nvmlDevice_t device, type *out)                                              \
    {                                                                                              \
        CARD_OR_RETURN(card, device, out);                                                         \
        (void)card;                                                                                \
        *out = (value);                                                                            \
        return NVML_SUCCESS;                                                                       \
    }

CONSTANT(nvmlDeviceGetComputeMode, int, 0)
CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 4)
CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
CONSTANT(nvmlDeviceGetDisplayActive, int, 0)
CONSTANT(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 700000)
CONSTANT(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, 5)
CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 5)
CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
CONSTANT(nvmlDeviceGetPerformanceState, int, 0)
CONSTANT(nvmlDeviceGetPersistenceMode, int, 1)
CONSTANT(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, 700000)
CONSTANT(nvmlDeviceGetPowerManagementLimit, unsigned int, 700000)
CONSTANT(nvmlDeviceGetPowerUsage, unsigned int, 125838)

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    CARD_OR_RETURN(card, device, rates);
    const char *text = getenv("ULLAGE_FAKE_UTIL");
    if (fake_nvml_mode("noutil") || card->instances > 0 || card->parent >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *rates = (nvmlUtilization_t){0, 0};
    if (text && sscanf(text, "%u,%u", &rates->gpu, &rates->memory) < 1)
        return NVML_ERROR_UNKNOWN;
    return NVML_SUCCESS;
}

static nvmlReturn_t engine(nvmlDevice_t device, unsigned int *percent, unsigned int *period)
{
    CARD_OR_RETURN(card, device, percent);
    if (fake_nvml_mode("noutil") || card->instances > 0 || card->parent >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *percent = 0;
    *period = 167000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us)
{
    return engine(device, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us)
{
    return engine(device, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    CARD_OR_RETURN(card, device, major);
    (void)card;
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *celsius)
{
    CARD_OR_RETURN(card, device, celsius);
    (void)card;
    if (sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = 41;
    return NVML_SUCCESS;
}

static nvmlReturn_t clock_of(nvmlDevice_t device, int clock, unsigned int *mhz)
{
    static const unsigned int clocks[] = {1980, 1980, 3201, 1545};
    CARD_OR_RETURN(card, device, mhz);
    (void)card;
    if (clock < 0 || clock > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = clocks[clock];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int clock, unsigned int *mhz)
{
    return clock_of(device, clock, mhz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int clock, unsigned int *mhz)
{
    return clock_of(device, clock, mhz);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int *current, int *pending)
{
    CARD_OR_RETURN(card, device, current);
    (void)card;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least,
                                                          unsigned int *most)
{
    CARD_OR_RETURN(card, device, least);
    (void)card;
    *least = 200000;
    *most = 700000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    CARD_OR_RETURN(card, device, values);
    (void)card;
    for (int i = 0; i < count; i++) {
        values[i].nvmlReturn = NVML_SUCCESS;
        values[i].valueType = 1; /* unsigned int */
        if (values[i].fieldId == NVML_FI_DEV_MEMORY_TEMP)
            values[i].value.ui = 40;
        else if (values[i].fieldId == NVML_FI_DEV_POWER_AVERAGE)
            values[i].value.ui = 125832;
        else if (values[i].fieldId == NVML_FI_DEV_POWER_INSTANT)
            values[i].value.ui = 126006;
        else
            values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t copy_text(char *out, unsigned int length, const char *text)
{
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    char text[32];
    CARD_OR_RETURN(card, device, serial);
    snprintf(text, sizeof text, "16537240507%02d", card->parent >= 0 ? card->parent : device->card);
    return copy_text(serial, length, text);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    CARD_OR_RETURN(card, device, version);
    (void)card;
    return copy_text(version, length, "96.00.FA.4E.01");
}
