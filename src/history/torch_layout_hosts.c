/* torch_layout_hosts.c: the first pass of torch_layout.h: which driver's blocks have chunks in them. */
#include "torch_layout_private.h"

static bool note_alloc(struct ull__layout *l, struct ull__extents *driver, uint32_t number)
{
    const struct ull__event *event = &l->history->events[number];
    uint64_t begin;
    if (event->result != 0 || !ull__layout_natural(event, &begin))
        return true;
    if (event->charged == 0)
        l->processes[event->process].pooled[event->class] = true;
    struct ull__extent extent = {
        .begin = begin, .end = begin + ull__layout_taken(event), .value = number};
    return ull__extents_find(driver, extent.begin, extent.end) || ull__extents_add(driver, &extent);
}

static void note_free(struct ull__extents *driver, const struct ull__event *event)
{
    uint64_t begin;
    struct ull__extent gone;
    struct ull__event small = *event;
    small.size = small.size ? small.size : 1;
    if (!ull__layout_natural(&small, &begin))
        return;
    const struct ull__extent *there = ull__extents_find(driver, begin, begin + 1);
    if (there && there->begin == begin)
        ull__extents_take(driver, begin, begin + 1, &gone);
}

/* Calls for every driver's block in which a part of the range lies; false if some of it lies in none. */
typedef void in_block_fn(struct ull__layout *l, const struct ull__extent *block);

static bool covered(struct ull__layout *l, const struct ull__extents *extents, uint64_t begin,
                    uint64_t end, in_block_fn *call)
{
    while (begin < end) {
        const struct ull__extent *in = ull__extents_find(extents, begin, begin + 1);
        if (!in)
            return false;
        if (call)
            call(l, in);
        begin = in->end;
    }
    return true;
}

static void mark_host(struct ull__layout *l, const struct ull__extent *block)
{
    l->hosts[block->value] = 1;
}

static void note_chunk(struct ull__layout *l, const struct ull__extents *driver,
                       const struct ull__event *event)
{
    struct ull__layout_process *process = &l->processes[event->process];
    uint64_t begin;
    if (event->result != 0 || !ull__layout_natural(event, &begin))
        return;
    process->has_chunks = true;
    uint64_t end = begin + ull__layout_taken(event);
    if (!covered(l, driver, begin, end, NULL)) {
        process->homeless = true;
        return;
    }
    covered(l, driver, begin, end, mark_host);
    if (ull__extents_find(driver, begin, begin + 1)->end < end)
        process->grows = true;
}

bool ull__layout_find_hosts(struct ull__layout *l)
{
    struct ull__extents driver = {0};
    bool good = true;
    for (uint32_t i = 0; good && i < l->history->event_count; i++) {
        const struct ull__event *event = &l->history->events[i];
        if (event->device != l->device)
            continue;
        if (event->kind == ULL_EVENT_ALLOC)
            good = note_alloc(l, &driver, i);
        else if (event->kind == ULL_EVENT_FREE)
            note_free(&driver, event);
        else if (event->kind == ULL_EVENT_CHUNK_ALLOC)
            note_chunk(l, &driver, event);
    }
    ull__extents_finish(&driver);
    return good;
}
