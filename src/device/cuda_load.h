/*
 * cuda_load.h: the real CUDA driver, found at run time.
 *
 * One table holds the address of every entry point of cuda_api.def, NULL where this driver has none.
 * Loading is done once per process, on first use, and is thread safe. It initializes nothing.
 */
#ifndef ULLAGE_CUDA_LOAD_H
#define ULLAGE_CUDA_LOAD_H

#include <stdbool.h>

#include "cuda_api.h"

enum {
#define CU_HOOK(symbol, base, since, since_pt, params, args) ULL_CU_##symbol,
#define CU_CALL(symbol, base, since, since_pt, exempt, params) ULL_CU_##symbol,
#define CU_PASS(symbol, base, since, since_pt, exempt) ULL_CU_##symbol,
#include "cuda_api.def"
    ULL_CU_COUNT
};

union ull__cuda {
    void *all[ULL_CU_COUNT];
    struct {
#define CU_HOOK(symbol, base, since, since_pt, params, args) ull_fn_##symbol *symbol;
#define CU_CALL(symbol, base, since, since_pt, exempt, params) ull_fn_##symbol *symbol;
#define CU_PASS(symbol, base, since, since_pt, exempt) void *symbol;
#include "cuda_api.def"
    };
};

/* What is known of an entry point besides its address. */
struct ull__cuda_entry {
    const char *symbol;
    const char *base;
    int since;    /* cuGetProcAddress answers base with it from this version on; 0: never */
    int since_pt; /* the same with the per-thread default stream */
    bool hook;
};
extern const struct ull__cuda_entry ull__cuda_entries[ULL_CU_COUNT];

typedef void *ull__open_fn(const char *path, int flags);

/*
 * Loads the driver with `open` (dlopen, or the real one behind a hook) from `preferred` if that is
 * not NULL, else from where ull__find_library finds libcuda.so.1. Returns NULL when there is none.
 */
const union ull__cuda *ull__cuda_load(ull__open_fn *open, const char *preferred);

#endif
