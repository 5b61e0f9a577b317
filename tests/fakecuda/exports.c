/*
 * exports.c: every entry point of the driver, so that each can be linked, loaded and looked up.
 *
 * What no other file defines is defined here, weakly: it returns CUDA_ERROR_NOT_SUPPORTED. This file
 * sees no prototypes, because it declares all functions alike.
 */
#include <stddef.h>

enum { NOT_SUPPORTED = 801 };

#define WEAK(symbol)                                                                               \
    __attribute__((weak)) int symbol(void);                                                        \
    int symbol(void)                                                                               \
    {                                                                                              \
        return fake_unsupported(#symbol);                                                          \
    }

int fake_unsupported(const char *symbol);
int fake_unsupported(const char *symbol)
{
    (void)symbol; /* for a breakpoint */
    return NOT_SUPPORTED;
}

#define CU_HOOK(symbol, base, since, since_pt, params, args) WEAK(symbol)
#define CU_CALL(symbol, base, since, since_pt, exempt, params) WEAK(symbol)
#define CU_PASS(symbol, base, since, since_pt, exempt) WEAK(symbol)
#include "cuda_api.def"

struct fake_export_entry {
    const char *symbol, *base;
    int since, since_pt;
    void *address;
};

#define ENTRY(symbol, base, since, since_pt) {#symbol, #base, since, since_pt, (void *)symbol},
extern const struct fake_export_entry fake_exports[];
const struct fake_export_entry fake_exports[] = {
#define CU_HOOK(symbol, base, since, since_pt, params, args) ENTRY(symbol, base, since, since_pt)
#define CU_CALL(symbol, base, since, since_pt, exempt, params) ENTRY(symbol, base, since, since_pt)
#define CU_PASS(symbol, base, since, since_pt, exempt) ENTRY(symbol, base, since, since_pt)
#include "cuda_api.def"
};
extern const size_t fake_export_count;
const size_t fake_export_count = sizeof fake_exports / sizeof *fake_exports;
