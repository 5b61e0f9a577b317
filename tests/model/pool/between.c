/*
 * between.c: a device between pool and host device that notes which page is mapped at which address.
 */
#include "model.h"

enum { ADDRESSES = 1 << 16, ROUND = 64 * PAGE };

static struct {
    struct ull__device device;
    struct ull__device *host;
    struct ull__device_ops ops;
    uint64_t base, whole, whole_bytes;
    ull__page page_at[ADDRESSES]; /* by page of addresses from base */
    uint64_t held;
} between;

struct ull__device *host(void)
{
    return between.host;
}

static ull_status b_memory(struct ull__device *d, uint64_t *f, uint64_t *t)
{
    (void)d;
    return host()->ops->memory(host(), f, t);
}

static ull_status b_reserve(struct ull__device *d, uint64_t bytes, uint64_t *address)
{
    (void)d;
    if (bytes / PAGE > ADDRESSES)
        return ULL_E_NO_MEMORY;
    /* At a round address, so that a seed means the same each time. */
    ull_status status = host()->ops->reserve(host(), bytes + ROUND, &between.whole);
    between.whole_bytes = bytes + ROUND;
    between.base = (between.whole + ROUND - 1) / ROUND * ROUND;
    if (status == ULL_OK)
        *address = between.base;
    return status;
}

static void b_release(struct ull__device *d, uint64_t address, uint64_t bytes)
{
    (void)d;
    if (address != between.base || bytes + ROUND != between.whole_bytes)
        fail("other addresses were released than were reserved", address, bytes);
    host()->ops->release(host(), between.whole, between.whole_bytes);
}

static ull_status b_create(struct ull__device *d, size_t count, ull__page *pages)
{
    (void)d;
    ull_status status = host()->ops->create(host(), count, pages);
    between.held += status == ULL_OK ? count : 0;
    return status;
}

static void b_destroy_pages(struct ull__device *d, size_t count, const ull__page *pages)
{
    (void)d;
    between.held -= count;
    for (size_t i = 0; i < count; i++)
        page_returned(pages[i]);
    host()->ops->destroy_pages(host(), count, pages);
}

static ull_status b_map(struct ull__device *d, uint64_t address, size_t count, const ull__page *pages)
{
    (void)d;
    ull_status status = host()->ops->map(host(), address, count, pages);
    for (size_t i = 0; i < count && status == ULL_OK; i++)
        between.page_at[(address - between.base) / PAGE + i] = pages[i];
    return status;
}

static void b_unmap(struct ull__device *d, uint64_t address, size_t count)
{
    (void)d;
    memset(&between.page_at[(address - between.base) / PAGE], 0, count * sizeof(ull__page));
    host()->ops->unmap(host(), address, count);
}

static ull_status b_record(struct ull__device *d, ull__stream stream, ull__event *event)
{
    (void)d;
    return host()->ops->record(host(), stream, event);
}

static bool b_done(struct ull__device *d, ull__event event)
{
    (void)d;
    return host()->ops->done(host(), event);
}

static bool b_wait(struct ull__device *d, ull__event event, uint64_t ns)
{
    (void)d;
    return host()->ops->wait(host(), event, ns);
}

static void b_forget(struct ull__device *d, ull__event event)
{
    (void)d;
    host()->ops->forget(host(), event);
}

static bool b_capturing(struct ull__device *d, ull__stream stream)
{
    (void)d;
    return host()->ops->capturing(host(), stream);
}

static ull_status b_synchronize(struct ull__device *d, ull__stream stream)
{
    (void)d;
    return host()->ops->synchronize(host(), stream);
}

struct ull__device *place_between(struct ull__device *below)
{
    between.host = below;
    between.ops = (struct ull__device_ops){.name = "between",
                                           .memory = b_memory,
                                           .reserve = b_reserve,
                                           .release = b_release,
                                           .create = b_create,
                                           .destroy_pages = b_destroy_pages,
                                           .map = b_map,
                                           .unmap = b_unmap,
                                           .record = b_record,
                                           .done = b_done,
                                           .wait = b_wait,
                                           .forget = b_forget,
                                           .capturing = b_capturing,
                                           .synchronize = b_synchronize};
    between.device = (struct ull__device){.ops = &between.ops, .page_bytes = PAGE};
    return &between.device;
}

uint64_t pages_held(void)
{
    return between.held;
}

ull__page page_at(uint64_t address)
{
    ull__page page = between.page_at[(address - between.base) / PAGE];
    if (page == 0 || page > PAGES)
        fail("handed out an address without a page", address, page);
    return page;
}
