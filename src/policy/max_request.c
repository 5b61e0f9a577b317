/*
 * max_request.c: no single request above a size. A wrong shape asks for terabytes, or for all that is
 * left; refusing it by size leaves the rest of the program its memory and names the culprit.
 */
#include <stdlib.h>

#include "error.h"
#include "policy_private.h"
#include "size.h"

struct max_request {
    struct ull_alloc alloc;
    struct ull_alloc *upstream;
    uint64_t bytes;
};

static ull_status max_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                               struct ull_report *report, void **address)
{
    struct max_request *max = (struct max_request *)alloc;
    if (request->bytes <= max->bytes)
        return max->upstream->ops->allocate(max->upstream, request, report, address);
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT];
    ull__report_begin(report, alloc->ops->name);
    ull__report_add(report, "max_request: refused %s (%llu bytes)%s%s: single requests may be %s",
                    ull__size_text(request->bytes, a), (unsigned long long)request->bytes,
                    request->tag ? " for " : "", request->tag ? request->tag : "",
                    ull__size_text(max->bytes, b));
    return ULL_E_NO_MEMORY;
}

static ull_status max_free(struct ull_alloc *alloc, void *address, void *stream)
{
    struct max_request *max = (struct max_request *)alloc;
    return max->upstream->ops->free(max->upstream, address, stream);
}

static ull_status max_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    struct max_request *max = (struct max_request *)alloc;
    return max->upstream->ops->use_on(max->upstream, address, stream);
}

static void max_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct max_request *max = (struct max_request *)alloc;
    max->upstream->ops->info(max->upstream, info);
}

static ull_status max_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    struct max_request *max = (struct max_request *)alloc;
    return max->upstream->ops->trim(max->upstream, bytes, returned);
}

static void max_destroy(struct ull_alloc *alloc)
{
    free(alloc);
}

static const struct ull_alloc_ops max_ops = {.name = "max_request",
                                             .allocate = max_allocate,
                                             .free = max_free,
                                             .use_on = max_use_on,
                                             .info = max_info,
                                             .trim = max_trim,
                                             .destroy = max_destroy};

ull_status ull_max_request_create(struct ull_alloc *upstream, uint64_t bytes,
                                  struct ull_alloc **out, struct ull_error *err)
{
    if (bytes == 0)
        return ull__fail(err, ULL_E_INVALID, "a largest request of 0 bytes: expected at least 1");
    struct max_request *max = malloc(sizeof *max);
    if (!max)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for an adaptor");
    *max = (struct max_request){.alloc = {.ops = &max_ops}, .upstream = upstream, .bytes = bytes};
    *out = &max->alloc;
    return ULL_OK;
}
