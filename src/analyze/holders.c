/* holders.c: see figures_private.h. */
#include <stdlib.h>

#include "error.h"
#include "figures_private.h"

/* Without a name and a stack the size is what tells one kind of block from another. */
static uint64_t size_key(const struct ull__holder *holder)
{
    return holder->tag == 0 && holder->stack == 0 ? holder->largest : 0;
}

#define BY(field)                                                                                  \
    if (a->field != b->field)                                                                      \
    return a->field < b->field ? -1 : 1

static int by_kind(const void *left, const void *right)
{
    const struct ull__holder *a = left, *b = right;
    BY(process);
    BY(layer);
    BY(class);
    BY(tag);
    BY(stack);
    return size_key(a) < size_key(b) ? -1 : size_key(a) > size_key(b);
}

static int by_bytes(const void *left, const void *right)
{
    const struct ull__holder *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return by_kind(left, right);
}

static struct ull__holder holder_of(const struct ull__walk *walk, const struct ull__block *block)
{
    const struct ull__event *event =
        block->event == ULL_NO_EVENT ? NULL : &walk->history->events[block->event];
    return (struct ull__holder){.bytes = block->size,
                                .count = 1,
                                .largest = block->size,
                                .since_ns = block->since_ns,
                                .tag = event ? event->tag : 0,
                                .stack = event ? event->stack : 0,
                                .process = block->process,
                                .device = block->device,
                                .class = block->class,
                                .layer = block->layer};
}

static size_t merge_kinds(struct ull__holder *holders, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || by_kind(&holders[kept - 1], &holders[i]) != 0) {
            holders[kept++] = holders[i];
            continue;
        }
        struct ull__holder *into = &holders[kept - 1];
        into->bytes += holders[i].bytes;
        into->count++;
        if (holders[i].largest > into->largest)
            into->largest = holders[i].largest;
        if (holders[i].since_ns < into->since_ns)
            into->since_ns = holders[i].since_ns;
    }
    return kept;
}

static bool collect(const struct ull__walk *walk, struct ull__figures *figures)
{
    struct ull__holder *holders = malloc(((size_t)walk->block_count + 1) * sizeof *holders);
    size_t count = 0;
    uint64_t charged = 0;
    if (!holders)
        return false;
    for (uint32_t i = 0; i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer == ULL_LAYER_NONE || block->device != (uint32_t)figures->main)
            continue;
        if (block->layer == ULL_LAYER_DRIVER)
            charged += block->charged;
        if (ull__block_is_live(walk->facts, block))
            holders[count++] = holder_of(walk, block);
    }
    qsort(holders, count, sizeof *holders, by_kind);
    count = merge_kinds(holders, count);
    qsort(holders, count, sizeof *holders, by_bytes);
    for (size_t i = 0; i < count; i++) {
        if (i < ULL_HOLDERS)
            figures->holders[figures->holder_count++] = holders[i];
        else
            figures->rest_bytes += holders[i].bytes;
    }
    uint64_t held = walk->devices[figures->main].held;
    figures->charged_bytes = held > charged ? held - charged : 0;
    free(holders);
    return true;
}

ull_status ull__figures_holders(const struct ull__facts *facts, struct ull__figures *figures,
                                struct ull_error *err)
{
    if (figures->main < 0)
        return ULL_OK;
    const struct ull__course *course = &figures->devices[figures->main].course;
    struct ull__walk *walk = ull__walk_create(facts);
    bool good = walk != NULL;
    if (good && course->live_peak_event != ULL_NO_EVENT) {
        good = ull__walk_through(walk, course->live_peak_event);
        figures->holder_ns = course->live_peak_ns;
    }
    good = good && collect(walk, figures);
    ull__walk_destroy(walk);
    return good ? ULL_OK : ull__fail(err, ULL_E_SYSTEM, "no memory for the peak's contents");
}
