/*
 * guard_settle.c: the memory of a guard.
 *
 * A guard holds one piece of memory that nobody uses, as large as what may still be asked for within it.
 * To serve a request the piece is freed, the request made, and the rest taken again; nobody else can come
 * between, since the lock is held for writing. The pool below can serve a request from any free pages, so
 * the rest need not be a part of the old piece. A guard costs two more calls of the pool for each request.
 *
 * The pool below can move pages, but only whole ones: a page that somebody else's memory touches is not
 * free. So the piece is whole grains of 2 MiB (CUDA's page), aligned, and so are requests of whole grains.
 * Others are packed tightly, and at each end of one a page may be shared and lost when it is freed.
 *
 * The piece is freed on the stream on which it was taken: what was there before may still be in use by
 * that stream's work.
 */
#include <stdlib.h>

#include "guard_private.h"
#include "size.h"

void ull__guard_unreference(struct ull_guard *guard)
{
    while (guard && --guard->references == 0) {
        struct ull_guard *outer = guard->outer;
        free(guard);
        guard = outer;
    }
}

void ull__guard_release(struct ull_guard *guard)
{
    struct ull_alloc *upstream = guard->owner->upstream;
    if (!guard->held)
        return;
    struct ull_guard **at = &guard->owner->holding;
    while (*at != guard)
        at = &(*at)->next_holding;
    *at = guard->next_holding;
    upstream->ops->free(upstream, guard->held, guard->stream);
    atomic_fetch_sub(&guard->owner->set_aside, guard->held_bytes);
    guard->held = NULL;
    guard->held_bytes = 0;
}

static ull_status hold_exactly(struct ull_guard *guard, uint64_t bytes, void *stream,
                               struct ull_report *report)
{
    struct ull_alloc *upstream = guard->owner->upstream;
    struct ull_request request = {.bytes = bytes,
                                  .alignment = bytes % ULL_GUARD_GRAIN == 0 ? ULL_GUARD_GRAIN : 0,
                                  .stream = stream,
                                  .tag = "set aside by a guard"};
    ull_status status = upstream->ops->allocate(upstream, &request, report, &guard->held);
    if (status == ULL_OK) {
        guard->held_bytes = bytes;
        guard->stream = stream;
        guard->next_holding = guard->owner->holding;
        guard->owner->holding = guard;
        atomic_fetch_add(&guard->owner->set_aside, bytes);
    }
    return status;
}

/* What is held for `bytes`: whole grains, unless it is less than one. */
static uint64_t in_grains(uint64_t bytes)
{
    uint64_t whole = (bytes + ULL_GUARD_GRAIN - 1) / ULL_GUARD_GRAIN * ULL_GUARD_GRAIN;
    return bytes < ULL_GUARD_GRAIN || whole < bytes ? bytes : whole;
}

static ull_status hold(struct ull_guard *guard, uint64_t bytes, void *stream,
                       struct ull_report *report)
{
    ull_status status = hold_exactly(guard, in_grains(bytes), stream, report);
    if (status == ULL_E_NO_MEMORY && in_grains(bytes) != bytes)
        status = hold_exactly(guard, bytes, stream, report);
    return status;
}

static uint64_t wanted(const struct ull_guard *guard)
{
    uint64_t gone = guard->used + guard->lent;
    return guard->bytes > gone ? guard->bytes - gone : 0;
}

void ull__guard_settle(struct ull_guard *guard, void *stream)
{
    uint64_t bytes = wanted(guard);
    if (in_grains(bytes) == guard->held_bytes)
        return;
    ull__guard_release(guard);
    struct ull_report report = {.by = ""};
    if (bytes == 0 || hold(guard, bytes, stream, &report) == ULL_OK)
        return;
    /* Small requests can have taken pages of their own: keep what is left. */
    uint64_t left = report.pool.free_pages + report.pool.left;
    if (left > 0 && left < bytes)
        hold(guard, left, stream, &report);
}

ull_status ull__guard_reserve(struct ull_guard *guard, struct ull_report *report)
{
    struct ull_guard *outer = guard->outer;
    uint64_t from_outer = 0;
    if (outer) {
        from_outer = outer->held_bytes < guard->bytes ? outer->held_bytes : guard->bytes;
        ull__guard_release(outer);
        outer->lent += from_outer;
    }
    ull_status status = hold(guard, guard->bytes, guard->options.stream, report);
    if (outer) {
        if (status != ULL_OK)
            outer->lent -= from_outer;
        ull__guard_settle(outer, outer->stream);
    }
    if (status != ULL_OK)
        return status;
    guard->from_outer = from_outer;
    guard->open = true;
    guard->references = 1;
    if (outer)
        outer->references++;
    return ULL_OK;
}

static ull_status refuse(const struct ull_guard *guard, const struct ull_request *request,
                         struct ull_report *report, const char *why, uint64_t bytes)
{
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT], c[ULL_SIZE_TEXT];
    ull__report_begin(report, guard->owner->alloc.ops->name);
    ull__report_add(report,
                    "guard: refused %s (%llu bytes)%s%s: %s %s; %s are in use within the guard",
                    ull__size_text(request->bytes, a), (unsigned long long)request->bytes,
                    request->tag ? " for " : "", request->tag ? request->tag : "", why,
                    ull__size_text(bytes, b), ull__size_text(guard->used, c));
    return ULL_E_NO_MEMORY;
}

ull_status ull__guard_serve(struct ull_guard *guard, const struct ull_request *request,
                            struct ull_report *report, void **address)
{
    const struct ull_guard_options *options = &guard->options;
    struct guarded *owner = guard->owner;
    uint64_t bytes;
    if (options->max_request && request->bytes > options->max_request)
        return refuse(guard, request, report, "single requests may be", options->max_request);
    bool counts = ull__round(request->bytes, &bytes) && bytes <= UINT64_MAX - guard->used;
    if (options->cap && (!counts || guard->used > guard->bytes || bytes > guard->bytes - guard->used))
        return refuse(guard, request, report, "the guard's cap is", options->bytes);
    if (!ull__sizes_promise(&owner->sizes)) {
        ull__report_begin(report, owner->alloc.ops->name);
        ull__report_add(report, "guard: no host memory to account for a request");
        return ULL_E_NO_MEMORY;
    }
    ull__guard_release(guard);
    struct ull_request aligned = *request;
    if (request->bytes % ULL_GUARD_GRAIN == 0 && request->alignment < ULL_GUARD_GRAIN)
        aligned.alignment = ULL_GUARD_GRAIN;
    ull_status status = owner->upstream->ops->allocate(owner->upstream, &aligned, report, address);
    if (status == ULL_OK) {
        struct ull__size_entry entry = {
            .address = (uintptr_t)*address, .bytes = bytes, .owner = guard};
        ull__sizes_add(&owner->sizes, &entry);
        atomic_fetch_add(&owner->recorded, 1);
        guard->references++;
        guard->used += bytes;
        guard->peak = guard->used > guard->peak ? guard->used : guard->peak;
    } else {
        ull__sizes_unpromise(&owner->sizes);
    }
    ull__guard_settle(guard, guard->stream);
    return status;
}

bool ull__guard_holds(const struct guarded *owner, const void *address)
{
    const struct ull_guard *guard = owner->holding;
    while (guard && guard->held != address)
        guard = guard->next_holding;
    return guard;
}

ull_status ull__guard_take_back(struct guarded *owner, void *address, void *stream)
{
    struct ull__size_entry entry;
    if (!ull__sizes_take(&owner->sizes, address, &entry))
        return ULL_E_NOT_FOUND;
    owner->sizes.count++; /* a place to put it back into */
    ull_status status = owner->upstream->ops->free(owner->upstream, address, stream);
    if (status != ULL_OK) {
        ull__sizes_add(&owner->sizes, &entry);
        return status;
    }
    ull__sizes_unpromise(&owner->sizes);
    atomic_fetch_sub(&owner->recorded, 1);
    struct ull_guard *guard = entry.owner;
    while (guard && !guard->open)
        guard = guard->outer;
    if (guard) {
        guard->used -= entry.bytes;
        ull__guard_settle(guard, stream);
    }
    ull__guard_unreference(entry.owner);
    return ULL_OK;
}

void ull__guard_close(struct ull_guard *guard)
{
    struct ull_guard *outer = guard->outer;
    ull__guard_release(guard);
    guard->open = false;
    if (outer) {
        outer->lent -= guard->from_outer;
        outer->used += guard->used;
        outer->peak = outer->used > outer->peak ? outer->used : outer->peak;
        ull__guard_settle(outer, outer->stream);
    }
    ull__guard_unreference(guard);
}
