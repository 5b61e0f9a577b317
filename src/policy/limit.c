/*
 * limit.c: at most so many bytes through here at a time.
 *
 * Bytes are reserved before upstream is asked and given back if it refuses: a check without a reservation
 * lets two threads through together. The reservation is a compare-and-swap loop, not an addition that is
 * taken back when it was too much, since with that two large requests can refuse each other although
 * either one fits. A free lowers the count only after upstream has taken the memory.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "error.h"
#include "policy_private.h"
#include "size.h"

struct limit {
    struct ull_alloc alloc;
    struct ull_alloc *upstream;
    _Atomic uint64_t bytes, used, peak;
    pthread_mutex_t lock; /* over sizes */
    struct ull__sizes sizes;
};

static void raise_peak(struct limit *limit, uint64_t used)
{
    uint64_t peak = atomic_load(&limit->peak);
    while (used > peak && !atomic_compare_exchange_weak(&limit->peak, &peak, used))
        ;
}

static bool reserve(struct limit *limit, uint64_t bytes, uint64_t *used)
{
    *used = atomic_load(&limit->used);
    for (;;) {
        uint64_t most = atomic_load(&limit->bytes);
        if (*used > most || bytes > most - *used)
            return false;
        if (atomic_compare_exchange_weak(&limit->used, used, *used + bytes))
            return true;
    }
}

static ull_status refuse(struct limit *limit, const struct ull_request *request, uint64_t used,
                         struct ull_report *report)
{
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT], c[ULL_SIZE_TEXT];
    ull__report_begin(report, limit->alloc.ops->name);
    ull__report_add(report,
                    "limit: refused %s (%llu bytes)%s%s: %s of %s are in use through this limit",
                    ull__size_text(request->bytes, a), (unsigned long long)request->bytes,
                    request->tag ? " for " : "", request->tag ? request->tag : "",
                    ull__size_text(used, b), ull__size_text(atomic_load(&limit->bytes), c));
    return ULL_E_NO_MEMORY;
}

static bool promise(struct limit *limit)
{
    pthread_mutex_lock(&limit->lock);
    bool promised = ull__sizes_promise(&limit->sizes);
    pthread_mutex_unlock(&limit->lock);
    return promised;
}

static void settle(struct limit *limit, const struct ull__size_entry *entry)
{
    pthread_mutex_lock(&limit->lock);
    if (entry)
        ull__sizes_add(&limit->sizes, entry);
    else
        ull__sizes_unpromise(&limit->sizes);
    pthread_mutex_unlock(&limit->lock);
}

static ull_status limit_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                                 struct ull_report *report, void **address)
{
    struct limit *limit = (struct limit *)alloc;
    uint64_t bytes, used = atomic_load(&limit->used);
    if (!ull__round(request->bytes, &bytes) || !reserve(limit, bytes, &used))
        return refuse(limit, request, used, report);
    ull_status status = ULL_E_NO_MEMORY;
    if (promise(limit)) {
        status = limit->upstream->ops->allocate(limit->upstream, request, report, address);
        struct ull__size_entry entry = {.bytes = bytes};
        if (status == ULL_OK)
            entry.address = (uintptr_t)*address;
        settle(limit, status == ULL_OK ? &entry : NULL);
    } else {
        ull__report_begin(report, alloc->ops->name);
        ull__report_add(report, "limit: no host memory to account for a request");
    }
    if (status == ULL_OK)
        raise_peak(limit, used + bytes);
    else
        atomic_fetch_sub(&limit->used, bytes);
    return status;
}

static ull_status limit_free(struct ull_alloc *alloc, void *address, void *stream)
{
    struct limit *limit = (struct limit *)alloc;
    struct ull__size_entry entry;
    /* Out of the table first: once upstream has it, another thread may be given the same address. */
    pthread_mutex_lock(&limit->lock);
    bool known = ull__sizes_take(&limit->sizes, address, &entry);
    if (known)
        limit->sizes.count++; /* a place to put it back into */
    pthread_mutex_unlock(&limit->lock);
    if (!known)
        return ULL_E_INVALID;
    ull_status status = limit->upstream->ops->free(limit->upstream, address, stream);
    settle(limit, status == ULL_OK ? NULL : &entry);
    if (status == ULL_OK)
        atomic_fetch_sub(&limit->used, entry.bytes);
    return status;
}

static ull_status limit_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    struct limit *limit = (struct limit *)alloc;
    return limit->upstream->ops->use_on(limit->upstream, address, stream);
}

static void limit_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct limit *limit = (struct limit *)alloc;
    limit->upstream->ops->info(limit->upstream, info);
    info->in_use = atomic_load(&limit->used);
    info->peak = atomic_load(&limit->peak);
    info->limit = atomic_load(&limit->bytes);
}

static ull_status limit_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    struct limit *limit = (struct limit *)alloc;
    return limit->upstream->ops->trim(limit->upstream, bytes, returned);
}

static void limit_destroy(struct ull_alloc *alloc)
{
    struct limit *limit = (struct limit *)alloc;
    ull__sizes_finish(&limit->sizes);
    pthread_mutex_destroy(&limit->lock);
    free(limit);
}

static const struct ull_alloc_ops limit_ops = {.name = "limit",
                                               .allocate = limit_allocate,
                                               .free = limit_free,
                                               .use_on = limit_use_on,
                                               .info = limit_info,
                                               .trim = limit_trim,
                                               .destroy = limit_destroy};

ull_status ull_limit_create(struct ull_alloc *upstream, uint64_t bytes, struct ull_alloc **out,
                            struct ull_error *err)
{
    if (bytes == 0)
        return ull__fail(err, ULL_E_INVALID, "a limit of 0 bytes: expected at least 1");
    struct limit *limit = calloc(1, sizeof *limit);
    if (!limit)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a limit");
    limit->alloc.ops = &limit_ops;
    limit->upstream = upstream;
    limit->bytes = bytes;
    pthread_mutex_init(&limit->lock, NULL);
    *out = &limit->alloc;
    return ULL_OK;
}

ull_status ull_limit_set(struct ull_alloc *alloc, uint64_t bytes)
{
    if (bytes == 0 || alloc->ops != &limit_ops)
        return ULL_E_INVALID;
    atomic_store(&((struct limit *)alloc)->bytes, bytes);
    return ULL_OK;
}
