/*
 * memory.c: bytes and addresses.
 *
 * The data file of the process is cut into windows. A window is mapped once, where only the fake
 * looks at it, and owns as many addresses elsewhere, which no host program can read: a device
 * pointer that a program dereferences is a fault here as it is on a real machine. Blocks of whole
 * pages are found in a window's bit map; freeing one punches a hole, so only pages that were written
 * and are still allocated cost memory of the host.
 *
 * Windows are never unmapped. Their mappings are not inherited by children.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake_window {
    struct fake_window *next;
    uint64_t offset; /* in the data file */
    uint64_t pages;
    unsigned char *host;
    CUdeviceptr dev;
    uint64_t *used; /* a bit a page */
    void **owner;   /* an entry a page: what linear allocation its address belongs to */
    uint64_t hint;  /* no free page below */
};

static struct fake_window *windows;
static uint64_t file_end;

static struct fake_span *spans;
static size_t span_count, span_room;

/* --- addresses --- */

CUdeviceptr fake_addresses_reserve(uint64_t size, uint64_t alignment)
{
    unsigned char *p =
        mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    CUdeviceptr start = ((CUdeviceptr)p + alignment - 1) / alignment * alignment;
    if (start > (CUdeviceptr)p)
        munmap(p, start - (CUdeviceptr)p);
    if ((CUdeviceptr)p + alignment > start)
        munmap((void *)(start + size), (CUdeviceptr)p + alignment - start);
    return start;
}

void fake_addresses_free(CUdeviceptr start, uint64_t size)
{
    munmap((void *)start, size);
}

/* Index of the first span that ends above the address. */
static size_t span_index(CUdeviceptr at)
{
    size_t low = 0, high = span_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (spans[middle].start + spans[middle].size > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

const struct fake_span *fake_span_at(CUdeviceptr at)
{
    size_t i = span_index(at);
    return i < span_count && spans[i].start <= at ? &spans[i] : NULL;
}

bool fake_span_add(struct fake_span span)
{
    if (span_count == span_room) {
        size_t room = span_room ? 2 * span_room : 64;
        struct fake_span *more = realloc(spans, room * sizeof *more);
        if (!more)
            return false;
        spans = more;
        span_room = room;
    }
    size_t i = span_index(span.start);
    memmove(&spans[i + 1], &spans[i], (span_count - i) * sizeof *spans);
    spans[i] = span;
    span_count++;
    return true;
}

void fake_span_remove(CUdeviceptr start)
{
    size_t i = span_index(start);
    if (i == span_count || spans[i].start != start)
        return;
    memmove(&spans[i], &spans[i + 1], (span_count - i - 1) * sizeof *spans);
    span_count--;
}

bool fake_resolve(CUdeviceptr at, struct fake_range *range)
{
    const struct fake_span *span = fake_span_at(at);
    if (!span)
        return false;
    memset(range, 0, sizeof *range);
    range->kind = span->kind;
    range->object = span->object;
    return span->resolve(span, at, range);
}

bool fake_device_range(CUdeviceptr at, size_t size)
{
    struct fake_range range;
    if (size == 0)
        return true;
    while (fake_resolve(at, &range) && range.host) {
        if (range.length >= size)
            return true;
        at += range.length;
        size -= range.length;
    }
    return false;
}

/* --- windows --- */

static bool window_resolve(const struct fake_span *span, CUdeviceptr at, struct fake_range *range)
{
    struct fake_window *window = span->object;
    uint64_t page = (at - window->dev) / FAKE_PAGE;
    if (!window->owner[page] || !fake_linear_resolve(window->owner[page], at, range))
        return false;
    range->host = window->host + (at - window->dev);
    return true;
}

void *fake_window_owner(CUdeviceptr at)
{
    const struct fake_span *span = fake_span_at(at);
    if (!span || span->kind != FAKE_LINEAR)
        return NULL;
    struct fake_window *window = span->object;
    return window->owner[(at - window->dev) / FAKE_PAGE];
}

static struct fake_window *window_new(uint64_t size)
{
    uint64_t least = 1024 * FAKE_MIB;
    for (int i = 0; i < fake_config()->count; i++)
        if (fake_config()->card[i].total > least)
            least = fake_config()->card[i].total;
    if (size < least)
        size = (least + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    struct fake_window *window = calloc(1, sizeof *window);
    int fd = fake_data_file();
    if (!window || fd < 0 || ftruncate(fd, (off_t)(file_end + size)) != 0)
        goto fail;
    window->pages = size / FAKE_PAGE;
    window->offset = file_end;
    window->used = calloc((window->pages + 63) / 64, sizeof *window->used);
    window->owner = calloc(window->pages, sizeof *window->owner);
    window->dev = fake_addresses_reserve(size, FAKE_PAGE);
    window->host =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)file_end);
    if (!window->used || !window->owner || !window->dev || window->host == MAP_FAILED)
        goto fail;
    for (uint64_t i = window->pages; i < (window->pages + 63) / 64 * 64; i++)
        window->used[i / 64] |= 1ull << i % 64;
    madvise(window->host, size, MADV_DONTFORK);
    madvise(window->host, size, MADV_DONTDUMP);
    if (!fake_span_add((struct fake_span){window->dev, size, FAKE_LINEAR, window, window_resolve}))
        goto fail;
    file_end += size;
    window->next = windows;
    windows = window;
    return window;
fail:
    if (window) {
        free(window->used);
        free(window->owner);
    }
    free(window);
    return NULL;
}

static bool page_used(const struct fake_window *window, uint64_t page)
{
    return window->used[page / 64] >> page % 64 & 1;
}

static void mark(struct fake_window *window, uint64_t first, uint64_t count, bool used)
{
    for (uint64_t i = first; i < first + count; i++) {
        if (used)
            window->used[i / 64] |= 1ull << i % 64;
        else
            window->used[i / 64] &= ~(1ull << i % 64);
    }
}

/* First fit. */
static bool window_find(struct fake_window *window, uint64_t count, uint64_t *first)
{
    uint64_t page = window->hint;
    bool low = true;
    while (page + count <= window->pages) {
        if (page % 64 == 0 && window->used[page / 64] == UINT64_MAX) {
            page += 64;
            continue;
        }
        if (page_used(window, page)) {
            page++;
            continue;
        }
        if (low)
            window->hint = page;
        low = false;
        uint64_t run = 1;
        while (run < count && !page_used(window, page + run))
            run++;
        if (run == count) {
            *first = page;
            return true;
        }
        page += run;
    }
    return false;
}

bool fake_block_take(uint64_t size, struct fake_block *block)
{
    uint64_t count = size / FAKE_PAGE, first = 0;
    struct fake_window *window = windows;
    fake_export_collect();
    while (window && !window_find(window, count, &first))
        window = window->next;
    if (!window) {
        window = window_new(size);
        first = 0;
    }
    if (!window)
        return false;
    mark(window, first, count, true);
    block->window = window;
    block->size = size;
    block->offset = window->offset + first * FAKE_PAGE;
    block->host = window->host + first * FAKE_PAGE;
    block->dev = window->dev + first * FAKE_PAGE;
    return true;
}

void fake_block_own(const struct fake_block *block, void *owner)
{
    uint64_t first = (block->offset - block->window->offset) / FAKE_PAGE;
    for (uint64_t i = 0; i < block->size / FAKE_PAGE; i++)
        block->window->owner[first + i] = owner;
}

void fake_block_drop(struct fake_block *block)
{
    struct fake_window *window = block->window;
    uint64_t first = (block->offset - window->offset) / FAKE_PAGE;
    fallocate(fake_data_file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)block->offset,
              (off_t)block->size);
    fake_block_own(block, NULL);
    mark(window, first, block->size / FAKE_PAGE, false);
    if (first < window->hint)
        window->hint = first;
    block->window = NULL;
}

void fake_block_forget(struct fake_block *block)
{
    fake_block_own(block, NULL);
    block->window = NULL;
}
