/*
 * torch_write_segments.c: the segments of a written snapshot, with the blocks and gaps that fill them.
 */
#include <stdlib.h>

#include "torch_write_private.h"

enum { SMALL_SEGMENT = 2 << 20 }; /* PyTorch's for requests of at most a MiB */

/* What there is at the end, by address. */
struct sorted {
    const struct ull__layout_block **blocks;
    struct ull__layout_segment *segments; /* adjoining pieces of one that grows are one */
    uint32_t count, segment_count;
};

static int by_place(const void *a, const void *b)
{
    const struct ull__layout_block *left = *(const struct ull__layout_block *const *)a;
    const struct ull__layout_block *right = *(const struct ull__layout_block *const *)b;
    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

static int by_begin(const void *a, const void *b)
{
    const struct ull__layout_segment *left = a, *right = b;
    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

static bool grows(const struct torch_writer *w, const struct ull__layout *layout,
                  const struct ull__layout_segment *segment)
{
    return layout->processes[w->history->events[segment->event].process].grows;
}

/* As the viewer does it: by address and stream. */
static bool adjoin(const struct torch_writer *w, const struct ull__layout *layout,
                   const struct ull__layout_segment *left, const struct ull__layout_segment *right)
{
    return left->end == right->begin && grows(w, layout, left) && grows(w, layout, right) &&
           w->history->events[left->event].stream == w->history->events[right->event].stream;
}

static void join_segments(const struct torch_writer *w, const struct ull__layout *layout,
                          struct sorted *sorted)
{
    uint32_t to = 0;
    for (uint32_t i = 1; i < sorted->segment_count; i++) {
        if (adjoin(w, layout, &sorted->segments[to], &sorted->segments[i]))
            sorted->segments[to].end = sorted->segments[i].end;
        else
            sorted->segments[++to] = sorted->segments[i];
    }
    sorted->segment_count = sorted->segment_count ? to + 1 : 0;
}

static bool sort(const struct torch_writer *w, const struct ull__layout *layout, struct sorted *sorted)
{
    sorted->blocks = malloc((layout->block_count + 1u) * sizeof *sorted->blocks);
    sorted->segments = malloc((layout->segment_count + 1u) * sizeof *sorted->segments);
    if (!sorted->blocks || !sorted->segments)
        return false;
    for (uint32_t i = 0; i < layout->block_count; i++)
        if (layout->blocks[i].in_use && !layout->blocks[i].hidden)
            sorted->blocks[sorted->count++] = &layout->blocks[i];
    for (uint32_t i = 0; i < layout->segment_count; i++)
        if (layout->segments[i].in_use)
            sorted->segments[sorted->segment_count++] = layout->segments[i];
    qsort(sorted->blocks, sorted->count, sizeof *sorted->blocks, by_place);
    qsort(sorted->segments, sorted->segment_count, sizeof *sorted->segments, by_begin);
    join_segments(w, layout, sorted);
    return true;
}

/* Where the block ends: one that is the segment's own has all up to the next. */
static uint64_t block_end(const struct ull__layout_segment *segment, const struct sorted *sorted,
                          uint32_t i)
{
    const struct ull__layout_block *block = sorted->blocks[i];
    if (!block->owns)
        return block->begin + block->size;
    bool last = i + 1 == sorted->count || sorted->blocks[i + 1]->begin >= segment->end;
    return last ? segment->end : sorted->blocks[i + 1]->begin;
}

static void write_block(struct torch_writer *w, uint64_t begin, uint64_t end,
                        const struct ull__layout_block *block)
{
    ull__pickler_dict(&w->pickle);
    ull__torch_write_number(w, WORD_address, begin);
    ull__torch_write_number(w, WORD_size, end - begin);
    ull__torch_write_number(w, WORD_requested_size, block ? block->wanted : 0);
    ull__torch_write_choice(w, WORD_state, block ? WORD_active_allocated : WORD_inactive);
    if (block) {
        const struct ull__event *event = &w->history->events[block->event];
        ull__torch_write_frames(w, event);
        ull__torch_write_word(w, WORD_user_metadata);
        ull__torch_write_history_text(w, event->tag);
    } else {
        ull__torch_write_word(w, WORD_frames);
        ull__pickler_list(&w->pickle);
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
}

/* The blocks from number `first` on and the gaps between them fill the segment. */
static void write_blocks(struct torch_writer *w, const struct ull__layout_segment *segment,
                         const struct sorted *sorted, uint32_t first)
{
    uint64_t next = segment->begin;
    ull__torch_write_word(w, WORD_blocks);
    ull__pickler_list(&w->pickle);
    for (uint32_t i = first; i < sorted->count && sorted->blocks[i]->begin < segment->end; i++) {
        if (sorted->blocks[i]->begin > next)
            write_block(w, next, sorted->blocks[i]->begin, NULL);
        next = block_end(segment, sorted, i);
        write_block(w, sorted->blocks[i]->begin, next, sorted->blocks[i]);
    }
    if (next < segment->end)
        write_block(w, next, segment->end, NULL);
    ull__pickler_close(&w->pickle);
}

static uint32_t first_block(const struct ull__layout_segment *segment, const struct sorted *sorted)
{
    uint32_t low = 0, high = sorted->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sorted->blocks[middle]->begin < segment->begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void write_segment(struct torch_writer *w, const struct ull__layout *layout,
                          const struct ull__layout_segment *segment, const struct sorted *sorted)
{
    uint32_t first = first_block(segment, sorted);
    uint64_t active = 0, asked = 0, size = segment->end - segment->begin;
    for (uint32_t i = first; i < sorted->count && sorted->blocks[i]->begin < segment->end; i++) {
        active += block_end(segment, sorted, i) - sorted->blocks[i]->begin;
        asked += sorted->blocks[i]->wanted;
    }
    const struct ull__event *event = &w->history->events[segment->event];
    ull__pickler_dict(&w->pickle);
    ull__torch_write_number(w, WORD_device, (uint64_t)w->index[layout->device]);
    ull__torch_write_number(w, WORD_address, segment->begin);
    ull__torch_write_number(w, WORD_total_size, size);
    ull__torch_write_number(w, WORD_allocated_size, active);
    ull__torch_write_number(w, WORD_active_size, active);
    ull__torch_write_number(w, WORD_requested_size, asked);
    ull__torch_write_number(w, WORD_stream, event->stream);
    ull__torch_write_choice(w, WORD_segment_type, size > SMALL_SEGMENT ? WORD_large : WORD_small);
    ull__torch_write_word(w, WORD_segment_pool_id);
    ull__pickler_pair(&w->pickle, 0, 0);
    ull__torch_write_word(w, WORD_is_expandable);
    ull__pickler_bool(&w->pickle, grows(w, layout, segment));
    ull__torch_write_frames(w, event);
    write_blocks(w, segment, sorted, first);
    ull__pickler_close(&w->pickle);
}

bool ull__torch_write_segments(struct torch_writer *w)
{
    bool good = true;
    ull__pickler_text(&w->pickle, "segments");
    ull__pickler_list(&w->pickle);
    for (uint32_t device = 0; good && device < w->history->device_count; device++) {
        const struct ull__layout *layout = &w->layouts[device];
        struct sorted sorted = {0};
        good = sort(w, layout, &sorted);
        for (uint32_t i = 0; good && i < sorted.segment_count; i++)
            write_segment(w, layout, &sorted.segments[i], &sorted);
        free(sorted.blocks);
        free(sorted.segments);
    }
    ull__pickler_close(&w->pickle);
    return good;
}
