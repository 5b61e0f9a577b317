/* torch_layout.c: see torch_layout.h. The second pass: everything is given its place. */
#include "torch_layout.h"

#include <stdlib.h>
#include <string.h>

#include "torch_layout_private.h"

enum { PAGE = 2 << 20 }; /* the driver's */
static const uint64_t made_up_begin = UINT64_C(1) << 60;

/* --- tables ------------------------------------------------------------------------------------------- */

static bool room(void *array, size_t size, uint32_t count, uint32_t *capacity)
{
    void **items = array;
    if (count < *capacity)
        return true;
    if (count >= UINT32_MAX / 2 - 1)
        return false;
    uint32_t grown = *capacity ? *capacity * 2 : 64;
    void *moved = realloc(*items, grown * size);
    if (!moved)
        return false;
    *items = moved;
    *capacity = grown;
    return true;
}

/* Numbers of what has ended are used again: the next free one stands where `event` was. */
static bool new_segment(struct ull__layout *l, uint32_t *number)
{
    if (l->free_segment) {
        *number = l->free_segment - 1;
        l->free_segment = l->segments[*number].event;
        return true;
    }
    if (!room(&l->segments, sizeof *l->segments, l->segment_count, &l->segment_capacity))
        return false;
    *number = l->segment_count++;
    return true;
}

static bool new_block(struct ull__layout *l, uint32_t *number)
{
    if (l->free_block) {
        *number = l->free_block - 1;
        l->free_block = l->blocks[*number].event;
        return true;
    }
    if (!room(&l->blocks, sizeof *l->blocks, l->block_count, &l->block_capacity))
        return false;
    *number = l->block_count++;
    return true;
}

static void tell(struct ull__layout *l, enum ull__layout_action action, uint64_t address,
                 uint64_t size, const struct ull__event *event, const struct ull__event *began)
{
    l->tell(l->context, &(struct ull__layout_entry){.action = action,
                                                    .address = address,
                                                    .size = size,
                                                    .event = event,
                                                    .began = began ? began : event});
}

/* --- placing ------------------------------------------------------------------------------------------ */

/* A place that nobody has, for what has no address of its own that would do. */
static uint64_t make_up(struct ull__layout *l, uint64_t size)
{
    const struct ull__extent *there;
    uint64_t begin = l->made_up;
    while ((there = ull__extents_find(&l->segment_places, begin, begin + size)) != NULL)
        begin = ull__layout_round_up(there->end);
    l->made_up = begin + ull__layout_round_up(size);
    return begin;
}

static bool add_segment(struct ull__layout *l, uint32_t event, uint64_t begin, uint64_t size,
                        const struct ull__event *cause, uint32_t *number)
{
    if (!new_segment(l, number))
        return false;
    struct ull__extent place = {.begin = begin, .end = begin + size, .value = *number};
    l->segments[*number] = (struct ull__layout_segment){
        .begin = begin, .end = place.end, .event = event, .in_use = true};
    if (!ull__extents_add(&l->segment_places, &place))
        return false;
    tell(l, l->processes[cause->process].grows ? ULL_LAYOUT_SEGMENT_MAP : ULL_LAYOUT_SEGMENT_ALLOC,
         begin, size, cause, NULL);
    return true;
}

static bool add_block(struct ull__layout *l, const struct ull__layout_block *block,
                      const struct ull__event *cause, uint32_t *number)
{
    if (!new_block(l, number))
        return false;
    l->blocks[*number] = *block;
    l->blocks[*number].in_use = true;
    if (block->hidden)
        return true;
    struct ull__extent place = {
        .begin = block->begin, .end = block->begin + block->size, .value = *number};
    if (!ull__extents_add(&l->block_places, &place))
        return false;
    l->segments[block->segment].blocks++;
    tell(l, ULL_LAYOUT_ALLOC, block->begin, block->wanted, cause, NULL);
    return true;
}

/* The segment that it makes is no block of its own. */
static bool is_hidden(const struct ull__layout *l, uint32_t number)
{
    const struct ull__event *event = &l->history->events[number];
    return l->hosts[number] ||
           (l->history->origin == ULL_ORIGIN_TORCH && l->processes[event->process].has_chunks);
}

/*
 * The segment of the same process that has room for it at its own address, or the first of several that adjoin,
 * are the process's, and have nothing but chunks in them.
 */
static bool find_home(struct ull__layout *l, const struct ull__event *event, uint64_t begin,
                      uint64_t size, uint32_t *segment)
{
    const struct ull__extent *in = ull__extents_find(&l->segment_places, begin, begin + 1);
    if (!in || ull__extents_find(&l->block_places, begin, begin + size))
        return false;
    *segment = (uint32_t)in->value;
    const struct ull__event *first = &l->history->events[l->segments[*segment].event];
    bool whole = in->end >= begin + size;
    bool may_span = event->kind == ULL_EVENT_CHUNK_ALLOC && l->processes[event->process].grows;
    if (first->process != event->process || (!whole && !may_span))
        return false;
    for (uint64_t at = begin; !whole && at < begin + size; at = in->end) {
        in = ull__extents_find(&l->segment_places, at, at + 1);
        if (!in)
            return false;
        uint32_t owner = l->segments[in->value].event;
        const struct ull__event *began = &l->history->events[owner];
        if (!is_hidden(l, owner) || began->process != event->process || began->stream != first->stream)
            return false;
    }
    return true;
}

static bool is_free(const struct ull__layout *l, uint64_t begin, uint64_t size)
{
    return begin <= UINT64_MAX - size && !ull__extents_find(&l->segment_places, begin, begin + size);
}

/* Where the pages begin that the driver took for a small block, if they are the block's alone so far. */
static uint64_t pages_begin(const struct ull__event *event, uint64_t begin)
{
    uint64_t size = (uint64_t)event->charged, first = begin / PAGE * PAGE;
    bool in_pages = event->kind == ULL_EVENT_ALLOC && event->charged > 0 && size % PAGE == 0 &&
                    begin + ull__layout_wanted(event) <= first + size;
    return in_pages ? first : begin;
}

/* A segment for a block of the driver's, or for a chunk without one. */
static bool place_segment(struct ull__layout *l, uint32_t event_number, uint64_t *begin,
                          uint32_t *segment)
{
    const struct ull__event *event = &l->history->events[event_number];
    uint64_t size = ull__layout_taken(event), segment_begin;
    if (!ull__layout_natural(event, begin)) {
        segment_begin = *begin = make_up(l, size);
    } else {
        segment_begin = pages_begin(event, *begin);
        if (!is_free(l, segment_begin, size))
            segment_begin = *begin;
        if (!is_free(l, segment_begin, size)) {
            size = ull__layout_round_up(ull__layout_wanted(event));
            if (!is_free(l, segment_begin, size))
                segment_begin = *begin = make_up(l, size);
        }
    }
    return add_segment(l, event_number, segment_begin, size, event, segment);
}

static void drop_segment(struct ull__layout *l, uint32_t number, const struct ull__event *cause)
{
    struct ull__layout_segment *segment = &l->segments[number];
    struct ull__extent gone;
    ull__extents_take(&l->segment_places, segment->begin, segment->end, &gone);
    const struct ull__event *began = &l->history->events[segment->event];
    tell(l, l->processes[began->process].grows ? ULL_LAYOUT_SEGMENT_UNMAP : ULL_LAYOUT_SEGMENT_FREE,
         segment->begin, segment->end - segment->begin, cause, began);
    *segment = (struct ull__layout_segment){.event = l->free_segment};
    l->free_segment = number + 1;
}

/* The block is no more in its process's table. */
static void drop_block(struct ull__layout *l, uint32_t number, const struct ull__event *cause)
{
    struct ull__layout_block block = l->blocks[number];
    struct ull__layout_segment *segment = &l->segments[block.segment];
    struct ull__extent gone;
    if (!block.hidden) {
        const struct ull__event *began = &l->history->events[block.event];
        ull__extents_take(&l->block_places, block.begin, block.begin + block.size, &gone);
        tell(l, ULL_LAYOUT_FREE, block.begin, block.wanted, cause, began);
        segment->blocks--;
    }
    l->blocks[number] = (struct ull__layout_block){.event = l->free_block};
    l->free_block = number + 1;
    if (block.event == segment->event)
        segment->owner_ended = true;
    if (segment->owner_ended && segment->blocks == 0)
        drop_segment(l, block.segment, cause);
}

/* --- events ------------------------------------------------------------------------------------------- */

static void end_driver(struct ull__layout *l, struct ull__layout_process *process, uint32_t number,
                       const struct ull__event *cause)
{
    const struct ull__layout_block block = l->blocks[number];
    const struct ull__layout_segment segment = l->segments[block.segment];
    /* Chunks whose end was not recorded go with the block in which they lay. */
    for (const struct ull__extent *in;
         block.hidden &&
         (in = ull__extents_find(&l->block_places, segment.begin, segment.end)) != NULL;) {
        uint32_t chunk = (uint32_t)in->value;
        const struct ull__event *began = &l->history->events[l->blocks[chunk].event];
        ull__map_take(began->kind == ULL_EVENT_CHUNK_ALLOC ? &process->chunks : &process->driver,
                      began->address);
        drop_block(l, chunk, cause);
    }
    drop_block(l, number, cause);
}

static bool on_alloc(struct ull__layout *l, uint32_t number)
{
    const struct ull__event *event = &l->history->events[number];
    struct ull__layout_process *process = &l->processes[event->process];
    uint32_t before = ull__map_take(&process->driver, event->address), block_number;
    if (before != ULL_MAP_NONE)
        end_driver(l, process, before, event);
    if (ull__layout_wanted(event) == 0 || (process->homeless && !is_hidden(l, number)))
        return true;
    struct ull__layout_block block = {.size = ull__layout_wanted(event),
                                      .wanted = ull__layout_wanted(event),
                                      .event = number,
                                      .owns = true,
                                      .hidden = is_hidden(l, number)};
    if (block.hidden || !ull__layout_natural(event, &block.begin) ||
        !find_home(l, event, block.begin, block.size, &block.segment)) {
        if (!place_segment(l, number, &block.begin, &block.segment))
            return false;
    }
    return add_block(l, &block, event, &block_number) &&
           ull__map_put(&process->driver, event->address, block_number);
}

static bool on_chunk(struct ull__layout *l, uint32_t number)
{
    const struct ull__event *event = &l->history->events[number];
    struct ull__layout_process *process = &l->processes[event->process];
    uint32_t before = ull__map_take(&process->chunks, event->address), block_number;
    if (before != ULL_MAP_NONE)
        drop_block(l, before, event);
    if (ull__layout_wanted(event) == 0)
        return true;
    struct ull__layout_block block = {
        .size = ull__layout_taken(event), .wanted = ull__layout_wanted(event), .event = number};
    if (!ull__layout_natural(event, &block.begin) ||
        !find_home(l, event, block.begin, block.size, &block.segment)) {
        if (!place_segment(l, number, &block.begin, &block.segment))
            return false;
        block.owns = true;
        if (block.size > l->segments[block.segment].end - block.begin)
            block.size = l->segments[block.segment].end - block.begin;
    }
    return add_block(l, &block, event, &block_number) &&
           ull__map_put(&process->chunks, event->address, block_number);
}

/* A reserve of another size is another block. */
static bool on_charge(struct ull__layout *l, uint32_t number)
{
    const struct ull__event *event = &l->history->events[number];
    struct ull__layout_process *process = &l->processes[event->process];
    if (process->pooled[event->class] || process->homeless)
        return true;
    uint32_t *reserve = &process->reserves[event->class];
    if (*reserve)
        drop_block(l, *reserve - 1, event);
    *reserve = 0;
    process->reserved[event->class] += event->charged;
    if (process->reserved[event->class] <= 0)
        return true;
    uint64_t size = (uint64_t)process->reserved[event->class];
    struct ull__layout_block block = {.size = size, .wanted = size, .event = number, .owns = true};
    block.begin = make_up(l, size);
    uint32_t block_number;
    if (!add_segment(l, number, block.begin, size, event, &block.segment) ||
        !add_block(l, &block, event, &block_number))
        return false;
    *reserve = block_number + 1;
    return true;
}

static void end_table(struct ull__layout *l, struct ull__layout_process *process,
                      struct ull__map *table, const struct ull__event *cause)
{
    for (size_t i = 0; i < table->capacity;) {
        if (table->slots[i].value == 0) {
            i++;
            continue;
        }
        /* Another may move here when this one goes. */
        uint32_t number = ull__map_take(table, table->slots[i].key);
        if (table == &process->driver)
            end_driver(l, process, number, cause);
        else
            drop_block(l, number, cause);
    }
}

/* The process is gone, and all that it held with it. */
static void on_end(struct ull__layout *l, const struct ull__event *event)
{
    struct ull__layout_process *process = &l->processes[event->process];
    end_table(l, process, &process->chunks, event);
    end_table(l, process, &process->driver, event);
    for (int class = 0; class < ULL_CLASSES; class ++) {
        if (process->reserves[class])
            drop_block(l, process->reserves[class] - 1, event);
        process->reserves[class] = 0;
        process->reserved[class] = 0;
    }
}

static void on_refusal(struct ull__layout *l, const struct ull__event *event)
{
    const struct ull__history_device *device = &l->history->devices[l->device];
    uint64_t most = device->budget_bytes ? device->budget_bytes : device->total_bytes;
    tell(l, ULL_LAYOUT_OOM, most > l->held ? most - l->held : 0, event->size, event, NULL);
}

static void count_held(struct ull__layout *l, const struct ull__event *event)
{
    bool grows = event->kind == ULL_EVENT_ALLOC || event->kind == ULL_EVENT_CHARGE;
    if ((grows || event->kind == ULL_EVENT_FREE) && event->result == 0)
        l->held += grows ? (uint64_t)event->charged : 0 - (uint64_t)event->charged;
    if ((int64_t)l->held < 0)
        l->held = 0;
}

static bool on_event(struct ull__layout *l, uint32_t number)
{
    const struct ull__event *event = &l->history->events[number];
    struct ull__layout_process *process = &l->processes[event->process];
    uint32_t block;
    if (event->kind == ULL_EVENT_END) { /* of all devices */
        on_end(l, event);
        return true;
    }
    if (event->device != l->device)
        return true;
    count_held(l, event);
    switch (event->kind) {
    case ULL_EVENT_ALLOC:
    case ULL_EVENT_CHUNK_ALLOC:
        if (event->result == 0)
            return event->kind == ULL_EVENT_ALLOC ? on_alloc(l, number) : on_chunk(l, number);
        if (event->kind == ULL_EVENT_ALLOC)
            on_refusal(l, event);
        return true;
    case ULL_EVENT_FREE:
        block = ull__map_take(&process->driver, event->address);
        if (block != ULL_MAP_NONE)
            end_driver(l, process, block, event);
        return true;
    case ULL_EVENT_CHUNK_FREE:
        block = ull__map_take(&process->chunks, event->address);
        if (block != ULL_MAP_NONE)
            drop_block(l, block, event);
        return true;
    case ULL_EVENT_CHARGE:
        return on_charge(l, number);
    case ULL_EVENT_MARK:
        tell(l, ULL_LAYOUT_MARK, 0, 0, event, NULL);
        return true;
    default:
        return true;
    }
}

bool ull__layout_play(struct ull__layout *layout, const struct ull__history *history,
                      uint8_t device, ull__layout_fn *fn, void *context)
{
    *layout = (struct ull__layout){
        .history = history, .device = device, .tell = fn, .context = context, .made_up = made_up_begin};
    layout->hosts = calloc(history->event_count + 1, 1);
    layout->processes = calloc(history->process_count + 1u, sizeof *layout->processes);
    if (!layout->hosts || !layout->processes || history->event_count >= UINT32_MAX / 2)
        return false;
    bool good = ull__layout_find_hosts(layout);
    for (uint32_t i = 0; good && i < history->event_count; i++)
        good = on_event(layout, i);
    return good;
}

void ull__layout_finish(struct ull__layout *layout)
{
    for (uint32_t i = 0; layout->processes && i < layout->history->process_count; i++) {
        ull__map_finish(&layout->processes[i].driver);
        ull__map_finish(&layout->processes[i].chunks);
    }
    free(layout->processes);
    free(layout->hosts);
    free(layout->segments);
    free(layout->blocks);
    ull__extents_finish(&layout->segment_places);
    ull__extents_finish(&layout->block_places);
    *layout = (struct ull__layout){0};
}
