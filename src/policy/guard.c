/*
 * guard.c: memory set aside for a part of a program, as an adaptor.
 *
 * A check before a big step tells nothing: between the check and the step another thread takes the
 * memory. So a guard takes it, and hands it out to the thread that began it (guard_settle.c). Without an
 * open guard a request only passes a read lock.
 *
 * Guards belong to a thread and are kept in a list of the thread's own, so that finding the innermost one
 * takes no lock. Work that runs in other threads (a framework's backward pass) is reached with all_threads.
 */
#include <stdlib.h>

#include "error.h"
#include "guard_private.h"
#include "size.h"

static _Thread_local struct ull_guard *innermost;

static struct ull_guard *find(const struct guarded *owner)
{
    struct ull_guard *guard = innermost;
    while (guard && guard->owner != owner)
        guard = guard->below;
    return guard;
}

/* --- the allocator ---------------------------------------------------------------------------------------- */

static ull_status guard_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                                 struct ull_report *report, void **address)
{
    struct guarded *owner = (struct guarded *)alloc;
    struct ull_guard *guard = find(owner);
    ull_status status;
    if (guard || atomic_load(&owner->shared)) {
        pthread_rwlock_wrlock(&owner->swap);
        guard = guard ? guard : atomic_load(&owner->shared);
        if (guard)
            status = ull__guard_serve(guard, request, report, address);
        else
            status = owner->upstream->ops->allocate(owner->upstream, request, report, address);
    } else {
        pthread_rwlock_rdlock(&owner->swap);
        status = owner->upstream->ops->allocate(owner->upstream, request, report, address);
    }
    pthread_rwlock_unlock(&owner->swap);
    return status;
}

static ull_status guard_free(struct ull_alloc *alloc, void *address, void *stream)
{
    struct guarded *owner = (struct guarded *)alloc;
    if (atomic_load(&owner->recorded) > 0 || atomic_load(&owner->set_aside) > 0) {
        pthread_rwlock_wrlock(&owner->swap);
        ull_status status = ull__guard_take_back(owner, address, stream);
        if (status == ULL_E_NOT_FOUND && ull__guard_holds(owner, address))
            status = ULL_E_INVALID; /* freed a second time: the guard has set it aside again */
        pthread_rwlock_unlock(&owner->swap);
        if (status != ULL_E_NOT_FOUND)
            return status;
    }
    return owner->upstream->ops->free(owner->upstream, address, stream);
}

static ull_status guard_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    struct guarded *owner = (struct guarded *)alloc;
    pthread_rwlock_rdlock(&owner->swap);
    bool held = ull__guard_holds(owner, address);
    pthread_rwlock_unlock(&owner->swap);
    if (held)
        return ULL_E_INVALID;
    return owner->upstream->ops->use_on(owner->upstream, address, stream);
}

static void guard_alloc_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct guarded *owner = (struct guarded *)alloc;
    owner->upstream->ops->info(owner->upstream, info);
    uint64_t set_aside = atomic_load(&owner->set_aside);
    info->in_use -= set_aside < info->in_use ? set_aside : info->in_use;
}

static ull_status guard_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    struct guarded *owner = (struct guarded *)alloc;
    return owner->upstream->ops->trim(owner->upstream, bytes, returned);
}

static void guard_destroy(struct ull_alloc *alloc)
{
    struct guarded *owner = (struct guarded *)alloc;
    /* What is still in use is the last to know its guard. */
    for (size_t i = 0; i < owner->sizes.capacity; i++) {
        if (owner->sizes.entries[i].address)
            ull__guard_unreference(owner->sizes.entries[i].owner);
    }
    ull__sizes_finish(&owner->sizes);
    ull__reliefs_finish(&owner->fallbacks);
    pthread_rwlock_destroy(&owner->swap);
    free(owner);
}

static const struct ull_alloc_ops guard_ops = {.name = "guard",
                                               .allocate = guard_allocate,
                                               .free = guard_free,
                                               .use_on = guard_use_on,
                                               .info = guard_alloc_info,
                                               .trim = guard_trim,
                                               .destroy = guard_destroy};

ull_status ull_guard_create(struct ull_alloc *upstream, struct ull_alloc **out, struct ull_error *err)
{
    struct guarded *owner = calloc(1, sizeof *owner);
    if (!owner)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for an adaptor");
    owner->alloc.ops = &guard_ops;
    owner->upstream = upstream;
    /* Ordinary requests of other threads must not keep a guard waiting. */
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&owner->swap, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    ull__reliefs_init(&owner->fallbacks);
    *out = &owner->alloc;
    return ULL_OK;
}

ull_status ull_guard_add_fallback(struct ull_alloc *guarded, const char *name,
                                  ull_relief_fn fallback, void *context)
{
    if (guarded->ops != &guard_ops)
        return ULL_E_INVALID;
    return ull__reliefs_add(&((struct guarded *)guarded)->fallbacks, name, fallback, context);
}

/* --- guards ----------------------------------------------------------------------------------------------- */

static bool is_own(const struct ull_guard *guard)
{
    const struct ull_guard *own = innermost;
    while (own && own != guard)
        own = own->below;
    return own;
}

static ull_status reserve(struct ull_guard *guard, struct ull_report *report)
{
    struct guarded *owner = guard->owner;
    ull_status status = ULL_OK;
    pthread_rwlock_wrlock(&owner->swap);
    struct ull_guard *shared = atomic_load(&owner->shared);
    if (guard->options.all_threads && shared && !is_own(shared)) {
        ull__report_begin(report, guard_ops.name);
        ull__report_add(report, "guard: another guard for all threads is open");
        status = ULL_E_INVALID;
    }
    if (status == ULL_OK)
        status = ull__guard_reserve(guard, report);
    if (status == ULL_OK && guard->options.all_threads) {
        guard->before = shared;
        atomic_store(&owner->shared, guard);
    }
    pthread_rwlock_unlock(&owner->swap);
    return status;
}

/* Until they gave back enough together, or max_fallbacks have run. */
static ull_status with_fallbacks(struct ull_guard *guard, struct ull_report *report)
{
    char text[ULL_SIZE_TEXT];
    uint64_t id = 0, sum = 0, returned = 0;
    const char *name;
    unsigned int count = 0;
    struct ull_report tried;
    ull__report_begin(&tried, guard_ops.name);
    while (count < guard->options.max_fallbacks && sum < guard->bytes &&
           ull__reliefs_next(&guard->owner->fallbacks, guard->bytes, &id, &name, &returned)) {
        ull__report_add(&tried, "%s'%.60s' (%s)", count ? ", " : "", name,
                        ull__size_text(returned, text));
        sum = returned > UINT64_MAX - sum ? UINT64_MAX : sum + returned;
        count++;
    }
    ull_status status = count > 0 ? reserve(guard, report) : ULL_E_NO_MEMORY;
    if (status == ULL_E_NO_MEMORY)
        ull__report_add(report,
                        "\nguard: %s could not be set aside; fallbacks run, at most %u: %.600s",
                        ull__size_text(guard->options.bytes, text), guard->options.max_fallbacks,
                        count ? tried.text : "none");
    return status;
}

ull_status ull_guard_begin_with(struct ull_alloc *guarded, const struct ull_guard_options *options,
                                struct ull_guard **out, struct ull_report *report)
{
    struct ull_report unread;
    report = report ? report : &unread;
    ull__report_begin(report, guard_ops.name);
    if (guarded->ops != &guard_ops || options->bytes == 0)
        return ULL_E_INVALID;
    struct ull_guard *guard = calloc(1, sizeof *guard);
    if (!guard)
        return ULL_E_NO_MEMORY;
    guard->owner = (struct guarded *)guarded;
    guard->options = *options;
    guard->outer = find(guard->owner);
    ull_status status = ULL_E_NO_MEMORY;
    if (ull__round(options->bytes, &guard->bytes))
        status = reserve(guard, report);
    if (status == ULL_E_NO_MEMORY && !ull__in_relief())
        status = with_fallbacks(guard, report);
    if (status != ULL_OK) {
        free(guard);
        return status;
    }
    guard->below = innermost;
    innermost = guard;
    *out = guard;
    return ULL_OK;
}

ull_status ull_guard_begin(struct ull_alloc *guarded, uint64_t bytes, struct ull_guard **guard,
                           struct ull_report *report)
{
    struct ull_guard_options options = {.bytes = bytes, .max_fallbacks = ULL_RELIEFS};
    return ull_guard_begin_with(guarded, &options, guard, report);
}

ull_status ull_guard_end(struct ull_guard *guard)
{
    /* Only the pointer is compared until it is known to be one of this thread's. */
    if (!guard || !is_own(guard) || find(guard->owner) != guard)
        return ULL_E_INVALID;
    struct ull_guard **at = &innermost;
    while (*at != guard)
        at = &(*at)->below;
    *at = guard->below;
    struct guarded *owner = guard->owner;
    pthread_rwlock_wrlock(&owner->swap);
    if (guard->options.all_threads)
        atomic_store(&owner->shared, guard->before);
    ull__guard_close(guard);
    pthread_rwlock_unlock(&owner->swap);
    return ULL_OK;
}

void ull_guard_info(struct ull_guard *guard, struct ull_guard_info *info)
{
    pthread_rwlock_wrlock(&guard->owner->swap);
    uint64_t gone = guard->used + guard->lent, left = guard->bytes > gone ? guard->bytes - gone : 0;
    *info = (struct ull_guard_info){.bytes = guard->options.bytes,
                                    .in_use = guard->used,
                                    .peak = guard->peak,
                                    .left = guard->held_bytes < left ? guard->held_bytes : left};
    pthread_rwlock_unlock(&guard->owner->swap);
}
