/*
 * route.c: from an address that the driver handed out to the hook for it.
 *
 * cuGetProcAddress is asked by the program with a name, a version and a stream flag, and the driver
 * decides by rules of its own which of its functions that means. So the real one is called, and what
 * is mapped to a hook is the address that it returned, never the name.
 */
#include <string.h>

#include "interpose.h"
#include "suspend.h"

enum { ROUTES = 4096 }; /* a power of two, well above twice the entry points */

static struct {
    void *real;
    int index; /* in cuda_api.def */
} routes[ROUTES];

static void *const hooks[ULL_CU_COUNT] = {
#define CU_HOOK(symbol, base, since, since_pt, params, args) (void *)ull__hook_##symbol,
#define CU_CALL(symbol, base, since, since_pt, exempt, params) NULL,
#define CU_PASS(symbol, base, since, since_pt, exempt) NULL,
#include "cuda_api.def"
};

static void *hook_of(int index)
{
    return hooks[index] ? hooks[index] : ull__gated(index);
}

static unsigned hash(const void *address)
{
    return (unsigned)((uint64_t)(uintptr_t)address * 0x9e3779b97f4a7c15ull >> 52);
}

static void add(void *real, int index)
{
    unsigned at = hash(real);
    if (!real)
        return;
    while (routes[at].real && routes[at].real != real)
        at = (at + 1) % ROUTES;
    /* Two names for one function: the hooked one counts. */
    if (!routes[at].real || hook_of(index)) {
        routes[at].real = real;
        routes[at].index = index;
    }
}

static int find(void *real)
{
    unsigned at = hash(real);
    while (routes[at].real && routes[at].real != real)
        at = (at + 1) % ROUTES;
    return routes[at].real ? routes[at].index : -1;
}

void ull__route_build(const union ull__cuda *real)
{
    for (int i = 0; i < ULL_CU_COUNT; i++)
        add(real->all[i], i);
    /* A driver may answer cuGetProcAddress with other addresses than it exports. */
    for (int i = 0; i < ULL_CU_COUNT && real->cuGetProcAddress; i++) {
        const struct ull__cuda_entry *entry = &ull__cuda_entries[i];
        void *address = NULL;
        if (!hook_of(i))
            continue;
        if (entry->since &&
            real->cuGetProcAddress(entry->base, &address, entry->since,
                                   CU_GET_PROC_ADDRESS_LEGACY_STREAM) == CUDA_SUCCESS &&
            find(address) < 0)
            add(address, i);
        address = NULL;
        if (entry->since_pt &&
            real->cuGetProcAddress(entry->base, &address, entry->since_pt,
                                   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS &&
            find(address) < 0)
            add(address, i);
    }
}

void *ull__route(void *real)
{
    int index = real ? find(real) : -1;
    void *hook = index >= 0 ? hook_of(index) : NULL;
    return hook ? hook : real;
}

bool ull__route_known(void *real)
{
    return find(real) >= 0;
}

bool ull__route_is_hooked_base(const char *base)
{
    for (int i = 0; i < ULL_CU_COUNT; i++)
        if (ull__cuda_entries[i].hook && strcmp(ull__cuda_entries[i].base, base) == 0)
            return true;
    return false;
}

/* --- the program's look-ups -------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    int count;
    char names[ULL_MAX_VARIANTS][ULL_NAME_TEXT];
} early = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The CUDA runtime looks everything up before it calls cuInit, when there is no ledger yet. */
static void remember(const char *name)
{
    pthread_mutex_lock(&early.lock);
    bool known = early.count == ULL_MAX_VARIANTS || strlen(name) >= ULL_NAME_TEXT;
    for (int i = 0; i < early.count && !known; i++)
        known = strcmp(early.names[i], name) == 0;
    if (!known)
        strcpy(early.names[early.count++], name);
    pthread_mutex_unlock(&early.lock);
}

void ull__route_report(struct ull__member *member)
{
    pthread_mutex_lock(&early.lock);
    for (int i = 0; i < early.count; i++)
        ull__member_unknown_variant(member, early.names[i]);
    pthread_mutex_unlock(&early.lock);
}

static void answer(const char *symbol, void **pfn)
{
    void *real = *pfn;
    *pfn = ull__route(real);
    if (*pfn != real || ull__route_known(real) || !symbol || !ull__route_is_hooked_base(symbol))
        return;
    /* A form of a call that we hook, but newer than this list: only NVML will show what it takes. */
    if (ull__held())
        ull__member_unknown_variant(atomic_load(&ull__state.member), symbol);
    else if (atomic_load(&ull__state.phase) == ULL_UNDECIDED)
        remember(symbol);
}

CUresult ull__do_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUresult result = ull__driver->cuGetProcAddress(symbol, pfn, version, flags);
    if (result == CUDA_SUCCESS && pfn && *pfn)
        answer(symbol, pfn);
    return result;
}

CUresult ull__do_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *found)
{
    CUresult result = ull__driver->cuGetProcAddress_v2(symbol, pfn, version, flags, found);
    if (result == CUDA_SUCCESS && pfn && *pfn)
        answer(symbol, pfn);
    return result;
}
