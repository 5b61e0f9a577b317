/*
 * nvml_exports.c: every entry point of the management library; those that nvml.c does not define
 * return NVML_ERROR_NOT_SUPPORTED. As in exports.c, no prototypes are seen here.
 */
enum { NOT_SUPPORTED = 3 };

#define WEAK(symbol)                                                                               \
    __attribute__((weak)) int symbol(void);                                                        \
    int symbol(void)                                                                               \
    {                                                                                              \
        return NOT_SUPPORTED;                                                                      \
    }

#define NVML_HOOK(symbol, params, args) WEAK(symbol)
#define NVML_CALL(symbol, params) WEAK(symbol)
#define NVML_PASS(symbol) WEAK(symbol)
#include "nvml_api.def"
