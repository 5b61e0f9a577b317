/*
 * plain_host.c: see plain_host.h. A region is addresses of the host's with pages created and mapped
 * there. What was not taken as it is given back is a fault of the pool's, and ends the program.
 */
#include "plain_host.h"

#include <stdio.h>
#include <stdlib.h>

struct region {
    struct region *next;
    uint64_t address;
    size_t asked, count;
    ull__page names[];
};

/* The device finds it by its ops. */
struct plain {
    struct ull__device_ops ops;
    const struct ull__device_ops *host;
    struct region *regions;
    uint64_t shift;
};

static struct plain *plain_of(struct ull__device *d)
{
    return (struct plain *)(uintptr_t)d->ops;
}

static void destroy(struct ull__device *d)
{
    struct plain *plain = plain_of(d);
    d->ops = plain->host;
    d->ops->destroy(d);
    while (plain->regions) {
        struct region *r = plain->regions;
        plain->regions = r->next;
        free(r);
    }
    free(plain);
}

static ull_status place(struct ull__device *d, struct region *r)
{
    const struct ull__device_ops *host = plain_of(d)->host;
    ull_status status = host->reserve(d, r->count * d->page_bytes, &r->address);
    if (status != ULL_OK)
        return status;
    status = host->map(d, r->address, r->count, r->names);
    if (status != ULL_OK)
        host->release(d, r->address, r->count * d->page_bytes);
    return status;
}

static ull_status create(struct ull__device *d, size_t count, ull__page *pages)
{
    struct plain *plain = plain_of(d);
    if (count > SIZE_MAX / d->page_bytes / 2)
        return ULL_E_NO_MEMORY;
    struct region *r = calloc(1, sizeof *r + (count + 1) * sizeof *r->names);
    if (!r)
        return ULL_E_NO_MEMORY;
    r->asked = count;
    r->count = count + (plain->shift != 0);
    ull_status status = plain->host->create(d, r->count, r->names);
    if (status == ULL_OK) {
        status = place(d, r);
        if (status != ULL_OK)
            plain->host->destroy_pages(d, r->count, r->names);
    }
    if (status != ULL_OK) {
        free(r);
        return status;
    }
    r->next = plain->regions;
    plain->regions = r;
    for (size_t i = 0; i < count; i++)
        pages[i] = r->address + plain->shift + i * d->page_bytes;
    return ULL_OK;
}

static void destroy_pages(struct ull__device *d, size_t count, const ull__page *pages)
{
    struct plain *plain = plain_of(d);
    struct region **at = &plain->regions, *r;
    while (*at && (*at)->address + plain->shift != pages[0])
        at = &(*at)->next;
    r = *at;
    if (!r || r->asked != count) {
        printf("plain_host: %zu pages at 0x%llx given back, which is not how they were taken\n",
               count, (unsigned long long)pages[0]);
        abort();
    }
    *at = r->next;
    plain->host->unmap(d, r->address, r->count);
    plain->host->destroy_pages(d, r->count, r->names);
    plain->host->release(d, r->address, r->count * d->page_bytes);
    free(r);
}

struct ull__device *plain_host(struct ull__device *host, uint64_t shift)
{
    struct plain *plain = calloc(1, sizeof *plain);
    if (!plain) {
        ull__device_destroy(host);
        return NULL;
    }
    plain->ops = *host->ops;
    plain->host = host->ops;
    plain->shift = shift;
    plain->ops.name = "host-plain";
    plain->ops.destroy = destroy;
    plain->ops.create = create;
    plain->ops.destroy_pages = destroy_pages;
    plain->ops.reserve = NULL;
    plain->ops.release = NULL;
    plain->ops.map = NULL;
    plain->ops.unmap = NULL;
    host->ops = &plain->ops;
    host->regions = true;
    return host;
}
