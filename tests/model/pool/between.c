/*
 * between.c: a device between pool and host device that notes which page is mapped at which address. Or
 * one that cannot map, and gives out regions at random places, next to each other at times.
 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

enum { ADDRESSES = 1 << 16, ROUND = 64 * PAGE };

static struct {
    struct ull__device device;
    struct ull__device *host;
    struct ull__device_ops ops;
    uint64_t base, whole, whole_bytes;
    ull__page page_at[ADDRESSES]; /* by page of addresses from base */
    uint64_t held;
    bool shifts;            /* of regions */
    struct region *regions; /* of a device that cannot map */
    uint64_t refused;
} between;

struct ull__device *host(void)
{
    return between.host;
}

static ull_status b_memory(struct ull__device *d, uint64_t *f, uint64_t *t)
{
    (void)d;
    *t = (uint64_t)PAGES * PAGE;
    *f = (PAGES - between.held) * PAGE;
    return ULL_OK;
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
    if (count > PAGES - between.held)
        return ULL_E_NO_MEMORY;
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

/* --- without mapping ----------------------------------------------------------------------------------------- */

static uint64_t find_gap(uint64_t pages)
{
    uint64_t start = random_below(ADDRESSES - pages), run = 0;
    for (uint64_t i = 0; i < (uint64_t)2 * ADDRESSES; i++) {
        uint64_t at = (start + i) % ADDRESSES;
        run = at == 0 || between.page_at[at] ? 0 : run + 1;
        if (run == pages)
            return at + 1 - pages;
    }
    fail("the model has no addresses left", pages, 0);
}

static ull_status p_create(struct ull__device *d, size_t count, ull__page *pages)
{
    (void)d;
    uint64_t shift = between.shifts ? UNIT * random_below(UNITS) : 0;
    size_t below = count + (shift != 0);
    if (count > PAGES - between.held)
        return ULL_E_NO_MEMORY;
    if (random_below(16) == 0) { /* somebody else was quicker */
        between.refused++;
        return ULL_E_NO_MEMORY;
    }
    struct region *r = malloc(sizeof *r);
    uint64_t first = find_gap(below);
    ull__page *names = &between.page_at[first];
    if (!r || host()->ops->create(host(), below, names) != ULL_OK ||
        host()->ops->map(host(), between.base + first * PAGE, below, names) != ULL_OK)
        fail("the host device has no memory", count, between.held);
    *r = (struct region){.next = between.regions,
                         .address = between.base + first * PAGE + shift,
                         .pages = count,
                         .first = first,
                         .below = below};
    between.regions = r;
    between.held += count;
    for (size_t i = 0; i < count; i++)
        pages[i] = r->address + i * PAGE;
    return ULL_OK;
}

static void p_destroy_pages(struct ull__device *d, size_t count, const ull__page *pages)
{
    (void)d;
    struct region **at = &between.regions;
    while (*at && (*at)->address != pages[0])
        at = &(*at)->next;
    struct region *r = *at;
    if (!r || r->pages != count)
        fail("pages went back otherwise than they were taken", pages[0], count);
    *at = r->next;
    between.held -= count;
    for (size_t i = 0; i < r->below; i++)
        page_returned(between.page_at[r->first + i]);
    host()->ops->unmap(host(), between.base + r->first * PAGE, r->below);
    host()->ops->destroy_pages(host(), r->below, &between.page_at[r->first]);
    memset(&between.page_at[r->first], 0, r->below * sizeof *between.page_at);
    free(r);
}

const struct region *regions_held(void)
{
    return between.regions;
}

uint64_t regions_refused(void)
{
    return between.refused;
}

/* --- order ------------------------------------------------------------------------------------------------------ */

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

struct ull__device *place_plain_between(struct ull__device *below, bool shifts)
{
    uint64_t base;
    place_between(below);
    between.device.regions = true;
    between.shifts = shifts;
    between.ops.create = p_create;
    between.ops.destroy_pages = p_destroy_pages;
    between.ops.reserve = NULL;
    between.ops.release = NULL;
    between.ops.map = NULL;
    between.ops.unmap = NULL;
    if (b_reserve(&between.device, (uint64_t)ADDRESSES * PAGE, &base) != ULL_OK)
        fail("the host device has no addresses", ADDRESSES, 0);
    return &between.device;
}

void end_between(void)
{
    if (between.device.regions)
        b_release(&between.device, between.base, (uint64_t)ADDRESSES * PAGE);
}

uint64_t pages_held(void)
{
    return between.held;
}

ull__page page_at(uint64_t address)
{
    ull__page page = between.page_at[(address - between.base) / PAGE];
    if (page == 0 || page > HOST_PAGES)
        fail("handed out an address without a page", address, page);
    return page;
}
