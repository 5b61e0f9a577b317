/*
 * nvml_api.h: the part of NVIDIA's management library that ullage calls or answers.
 *
 * As with cuda_api.h, no header of NVIDIA is needed: only what is used is declared, in the layout of
 * the library's ABI. Sizes are bytes throughout. The entry points are in nvml_api.def.
 */
#ifndef ULLAGE_NVML_API_H
#define ULLAGE_NVML_API_H

typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used; /* includes what v2 calls reserved */
} nvmlMemory_t;

typedef struct {
    unsigned int version; /* NVML_MEMORY_V2 */
    unsigned long long total;
    unsigned long long reserved; /* by the driver and firmware; used + reserved + free = total */
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;
#define NVML_MEMORY_V2 ((unsigned int)(sizeof(nvmlMemory_v2_t) | (2u << 24)))

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory; /* NVML_VALUE_NOT_AVAILABLE where the system does not say */
    unsigned int gpuInstanceId;       /* 0xffffffff outside MIG */
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;
#define NVML_VALUE_NOT_AVAILABLE (~0ULL)

/* What nvmlDeviceGetComputeRunningProcesses without a suffix fills. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

/*
 * Drivers 535.43 to 535.86 put this in place of nvmlProcessInfo_t, under the same name and without any
 * version word: rows are longer than the caller thinks.
 */
typedef struct {
    nvmlProcessInfo_t info;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessInfo_long_t;

typedef struct {
    unsigned int gpu; /* percent of the last sample period in which a kernel ran */
    unsigned int memory;
} nvmlUtilization_t;

/* One value of many, asked for by number. */
typedef struct {
    unsigned int fieldId;
    unsigned int scopeId;
    long long timestamp;
    long long latencyUsec;
    int valueType; /* NVML_VALUE_... */
    nvmlReturn_t nvmlReturn;
    union {
        double d;
        int si;
        unsigned int ui;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
        unsigned short us;
    } value;
} nvmlFieldValue_t;
enum {
    NVML_FI_DEV_MEMORY_TEMP = 82,
    NVML_FI_DEV_POWER_AVERAGE = 185, /* milliwatts */
    NVML_FI_DEV_POWER_INSTANT = 186,
};
enum { NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO };

typedef struct {
    char busIdLegacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

/* One function type per entry point that has a signature: ull_fn_nvmlInit_v2 and so on. */
#define NVML_HOOK(symbol, params, args) typedef nvmlReturn_t ull_fn_##symbol params;
#define NVML_CALL(symbol, params) typedef nvmlReturn_t ull_fn_##symbol params;
#define NVML_PASS(symbol)
#include "nvml_api.def"

#endif
