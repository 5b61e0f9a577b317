/*
 * resolve.c: which exported function a name and a version stand for.
 *
 * Answers what the real driver answered when it was asked for every name: the table is the list's.
 * ULLAGE_FAKE_DRIVER_VERSION makes an older driver of it, which does not know what came later.
 *
 *   ULLAGE_FAKE_UNLISTED="cuMemAlloc=12000"   from this version on the name stands for a newer form,
 *                                             which no list has (and which always fails with 801)
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

/* The addresses come from exports.c, which may not see the prototypes. */
struct fake_export_entry {
    const char *symbol, *base;
    int since, since_pt;
    void *address;
};
extern const struct fake_export_entry fake_exports[];
extern const size_t fake_export_count;

static CUresult newer_form(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_unlisted(const char *name, int version)
{
    const char *rule = getenv("ULLAGE_FAKE_UNLISTED");
    size_t length = strlen(name);
    return rule && strncmp(rule, name, length) == 0 && rule[length] == '=' &&
           version >= atoi(rule + length + 1);
}

static CUresult find(const char *name, void **pfn, int version, cuuint64_t flags, int *found)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int driver = fake_config()->driver_version, best = 0;
    bool known = false;
    if (!name || !pfn || version > driver || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = NULL;
    for (size_t i = 0; i < fake_export_count; i++) {
        const struct fake_export_entry *entry = &fake_exports[i];
        int since = per_thread ? entry->since_pt : entry->since;
        if (strcmp(entry->base, name) != 0 || since == 0 || since > driver)
            continue;
        known = true;
        if (since <= version && since > best) {
            best = since;
            *pfn = entry->address;
        }
    }
    if (*pfn && is_unlisted(name, version))
        *pfn = (void *)newer_form;
    *found = *pfn    ? CU_GET_PROC_ADDRESS_SUCCESS
             : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    FAKE_ENTER(cuGetProcAddress_v2, FAKE_ANY);
    int found = 0;
    CUresult r = find(symbol, pfn, version, flags, &found);
    if (r == CUDA_SUCCESS && status)
        *status = found;
    return r;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    FAKE_ENTER(cuGetProcAddress, FAKE_ANY);
    int found = 0;
    CUresult r = find(symbol, pfn, version, flags, &found);
    return r == CUDA_SUCCESS && found != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : r;
}

/* Private tables of the driver: there are none. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    FAKE_ENTER(cuGetExportTable, FAKE_ANY);
    (void)id;
    if (table)
        *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
