/*
 * cuda_load.c: finds the driver's library and its entry points.
 *
 * It is opened by path: in a guest program our own library already has the name libcuda.so.1, and a
 * path is never taken for it.
 */
#include "cuda_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "find.h"

const struct ull__cuda_entry ull__cuda_entries[ULL_CU_COUNT] = {
#define CU_HOOK(symbol, base, since, since_pt, params, args)                                       \
    {#symbol, #base, since, since_pt, true},
#define CU_CALL(symbol, base, since, since_pt, exempt, params)                                     \
    {#symbol, #base, since, since_pt, false},
#define CU_PASS(symbol, base, since, since_pt, exempt) {#symbol, #base, since, since_pt, false},
#include "cuda_api.def"
};

static union ull__cuda table;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static const union ull__cuda *_Atomic loaded;

const union ull__cuda *ull__cuda_load(ull__open_fn *open, const char *preferred)
{
    if (loaded)
        return loaded;
    char path[ULL_LIBRARY_PATH];
    pthread_mutex_lock(&load_lock);
    if (!loaded) {
        void *handle = preferred ? open(preferred, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (!handle && ull__find_library("libcuda.so.1", "ULLAGE_LIBCUDA", path))
            handle = open(path, RTLD_NOW | RTLD_LOCAL);
        for (int i = 0; handle && i < ULL_CU_COUNT; i++)
            table.all[i] = dlsym(handle, ull__cuda_entries[i].symbol);
        if (handle && table.cuInit)
            loaded = &table;
    }
    pthread_mutex_unlock(&load_lock);
    return loaded;
}
