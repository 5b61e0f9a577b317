/*
 * torch_trace.c: one device of a snapshot: its trace is played, with the books of what is there, and then compared
 * with the segments that were there at the end.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "torch_private.h"

enum { ROUNDING = 512, OUT_OF_MEMORY = 2 /* CUDA_ERROR_OUT_OF_MEMORY */ };
static const uint64_t most_bytes = UINT64_C(1) << 48; /* of one block: 256 TiB */

/* What is read of an entry, a segment or a block. */
struct item {
    uint64_t address, size, charged, stream, time_ns;
    uint32_t stack, tag;
};

static bool bad_item(struct torch *t, const struct torch_device *d, const char *what)
{
    if (t->status != ULL_OK)
        return false;
    return ull__torch_broken(t, "device %d, entry %zu: %s", d->index, d->entry, what);
}

/* --- events ------------------------------------------------------------------------------------------- */

static bool add(struct torch *t, const struct torch_device *d, enum ull__event_kind kind,
                const struct item *item)
{
    if (item->stack == UINT32_MAX || item->tag == UINT32_MAX)
        return ull__torch_no_memory(t);
    return ull__torch_add(t, &(struct ull__event){.time_ns = item->time_ns,
                                                  .address = item->address,
                                                  .size = item->size,
                                                  .charged = (int64_t)item->charged,
                                                  .stream = item->stream,
                                                  .stack = item->stack,
                                                  .tag = item->tag,
                                                  .kind = (uint8_t)kind,
                                                  .class = ULL_CLASS_DATA,
                                                  .device = d->number});
}

/* The end of what an event began. */
static bool add_free(struct torch *t, const struct torch_device *d, uint32_t begun,
                     uint64_t time_ns, uint32_t stack)
{
    const struct ull__event *event = &t->history->events[begun];
    struct item item = {.address = event->address,
                        .size = event->size,
                        .charged = (uint64_t)event->charged,
                        .stream = event->stream,
                        .time_ns = time_ns,
                        .stack = stack,
                        .tag = event->tag};
    return add(t, d, event->kind == ULL_EVENT_ALLOC ? ULL_EVENT_FREE : ULL_EVENT_CHUNK_FREE, &item);
}

/* The number of the event that was just added. */
static uint32_t newest(const struct torch *t)
{
    return (uint32_t)(t->history->event_count - 1);
}

/* --- chunks ------------------------------------------------------------------------------------------- */

static bool chunk_alloc(struct torch *t, struct torch_device *d, const struct item *item)
{
    uint32_t before = ull__map_take(&d->chunks, item->address);
    if (before != ULL_MAP_NONE && !add_free(t, d, before, item->time_ns, 0)) /* its end was lost */
        return false;
    if (!add(t, d, d->has_segments ? ULL_EVENT_CHUNK_ALLOC : ULL_EVENT_ALLOC, item))
        return false;
    return ull__map_put(&d->chunks, item->address, newest(t)) || ull__torch_no_memory(t);
}

static bool chunk_free(struct torch *t, struct torch_device *d, const struct item *item)
{
    uint32_t begun = ull__map_take(&d->chunks, item->address);
    if (begun == ULL_MAP_NONE) {
        struct item before = *item;
        before.time_ns = TORCH_CHUNKS_BEFORE_NS;
        before.stack = 0; /* the entry's is where it was freed */
        if (!add(t, d, d->has_segments ? ULL_EVENT_CHUNK_ALLOC : ULL_EVENT_ALLOC, &before))
            return false;
        begun = newest(t);
    }
    return add_free(t, d, begun, item->time_ns, item->stack);
}

/* --- segments ----------------------------------------------------------------------------------------- */

static bool segment_add(struct torch *t, struct torch_device *d, const struct item *item)
{
    if (!add(t, d, ULL_EVENT_ALLOC, item))
        return false;
    struct ull__extent extent = {
        .begin = item->address, .end = item->address + item->size, .value = newest(t)};
    return ull__extents_add(&d->segments, &extent) || ull__torch_no_memory(t);
}

/* A part of what `begun` began is a block of its own, from just before, so that what lies in it has a place. */
static bool segment_keep(struct torch *t, struct torch_device *d, uint32_t begun, uint64_t begin,
                         uint64_t end)
{
    const struct ull__event *event = &t->history->events[begun];
    struct item rest = {.address = begin,
                        .size = end - begin,
                        .charged = end - begin,
                        .stream = event->stream,
                        .time_ns = event->time_ns - (event->time_ns >= TORCH_FIRST_NS),
                        .stack = event->stack,
                        .tag = event->tag};
    return begin >= end || segment_add(t, d, &rest);
}

/*
 * Of the block that `piece` is, only the part from `begin` to `end` goes: then it was several blocks from the
 * beginning, since what a block's part holds stays where it is.
 */
static bool segment_cut(struct torch *t, struct torch_device *d, const struct ull__extent *piece,
                        uint64_t begin, uint64_t end)
{
    uint32_t begun = (uint32_t)piece->value;
    begin = begin > piece->begin ? begin : piece->begin;
    end = end < piece->end ? end : piece->end;
    if (!segment_keep(t, d, begun, piece->begin, begin) ||
        !segment_keep(t, d, begun, end, piece->end))
        return false;
    struct ull__event *event = &t->history->events[begun];
    event->address = begin;
    event->size = end - begin;
    event->charged = (int64_t)(end - begin);
    return true;
}

static int by_address(const void *a, const void *b)
{
    const struct ull__extent *left = a, *right = b;
    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

struct taken {
    struct ull__extent *extents;
    size_t count, capacity;
};

/* What overlaps leaves the books, sorted by address. */
static bool take_overlapping(struct torch_device *d, uint64_t begin, uint64_t end, struct taken *taken)
{
    struct ull__extent extent;
    while (ull__extents_take(&d->segments, begin, end, &extent)) {
        if (taken->count == taken->capacity) {
            size_t capacity = taken->capacity ? taken->capacity * 2 : 16;
            void *grown = realloc(taken->extents, capacity * sizeof extent);
            if (!grown)
                return false;
            taken->extents = grown;
            taken->capacity = capacity;
        }
        taken->extents[taken->count++] = extent;
    }
    if (taken->count > 1)
        qsort(taken->extents, taken->count, sizeof extent, by_address);
    return true;
}

/* What of the item's range was not in the books must have been there before. */
static bool segment_before(struct torch *t, const struct torch_device *d, const struct item *item,
                           uint64_t begin, uint64_t end, uint32_t stack)
{
    if (begin >= end)
        return true;
    struct item before = *item;
    before.address = begin;
    before.size = before.charged = end - begin;
    before.time_ns = TORCH_SEGMENTS_BEFORE_NS;
    before.stack = stack;
    return add(t, d, ULL_EVENT_ALLOC, &before);
}

static bool end_pieces(struct torch *t, struct torch_device *d, const struct item *item,
                       const struct taken *taken, bool was_there)
{
    uint64_t end = item->address + item->size, next = item->address;
    for (size_t i = 0; i <= taken->count; i++) {
        uint64_t gap_end = i < taken->count ? taken->extents[i].begin : end;
        if (was_there && gap_end > next &&
            (!segment_before(t, d, item, next, gap_end, 0) ||
             !add_free(t, d, newest(t), item->time_ns, item->stack)))
            return false;
        if (i == taken->count)
            break;
        const struct ull__extent *piece = &taken->extents[i];
        uint32_t begun = (uint32_t)piece->value;
        if (!segment_cut(t, d, piece, item->address, end) ||
            !add_free(t, d, begun, item->time_ns, item->stack))
            return false;
        next = piece->end;
    }
    return true;
}

/*
 * The item's range goes back: whole segments, or parts of those that grow and shrink. `was_there`: what the books
 * lack of it was there before the trace.
 */
static bool segment_end(struct torch *t, struct torch_device *d, const struct item *item,
                        bool was_there)
{
    struct taken taken = {0};
    bool good = take_overlapping(d, item->address, item->address + item->size, &taken) ||
                ull__torch_no_memory(t);
    good = good && end_pieces(t, d, item, &taken, was_there);
    free(taken.extents);
    return good;
}

static bool segment_begin(struct torch *t, struct torch_device *d, const struct item *item)
{
    return segment_end(t, d, item, false) && segment_add(t, d, item);
}

/* --- the trace ---------------------------------------------------------------------------------------- */

/* Time never runs backwards within a trace, and an entry without a time is a microsecond after the last. */
static uint64_t entry_time(struct torch *t, struct torch_device *d, ull__pickled entry)
{
    uint64_t time_us;
    if (!ull__torch_time(t, entry, &time_us))
        time_us = d->seen_time ? d->last_us + 1 : t->first_us;
    if (d->seen_time && time_us < d->last_us)
        time_us = d->last_us;
    d->last_us = time_us;
    d->seen_time = true;
    if (time_us > t->end_us)
        t->end_us = time_us;
    return TORCH_FIRST_NS + time_us * 1000;
}

static bool check_range(struct torch *t, const struct torch_device *d, const struct item *item)
{
    if (item->size > most_bytes || item->charged > most_bytes)
        return bad_item(t, d, "a block of more than 256 TiB");
    uint64_t size = item->size > item->charged ? item->size : item->charged;
    return item->address <= UINT64_MAX - size || bad_item(t, d, "a block past the end of memory");
}

static bool read_entry(struct torch *t, struct torch_device *d, ull__pickled entry,
                       enum torch_action action, struct item *item)
{
    *item = (struct item){.time_ns = entry_time(t, d, entry)};
    if (!ull__pickled_u64(ull__torch_at(entry, t->keys.size), &item->size))
        return bad_item(t, d, "no 'size', or one that is no number");
    if (action != TORCH_oom && !ull__pickled_u64(ull__torch_at(entry, t->keys.addr), &item->address))
        return bad_item(t, d, "no 'addr', or one that is no number");
    if (!check_range(t, d, item))
        return false;
    ull__pickled_u64(ull__torch_at(entry, t->keys.stream), &item->stream);
    item->stack = ull__torch_stack(t, ull__torch_at(entry, t->keys.frames));
    item->tag = ull__torch_tag(t, entry);
    bool is_chunk =
        action == TORCH_alloc || action == TORCH_free_requested || action == TORCH_free_completed;
    item->charged = item->size;
    if (is_chunk && d->has_segments)
        item->charged = (item->size + ROUNDING - 1) / ROUNDING * ROUNDING;
    return true;
}

static bool add_mark(struct torch *t, struct torch_device *d, ull__pickled entry)
{
    struct item item = {.time_ns = entry_time(t, d, entry)};
    item.tag = ull__torch_text(t, ull__torch_at(entry, t->keys.action));
    return item.tag == 0 || add(t, d, ULL_EVENT_MARK, &item);
}

static bool refusal(struct torch *t, struct torch_device *d, const struct item *item)
{
    if (item->stack == UINT32_MAX || item->tag == UINT32_MAX)
        return ull__torch_no_memory(t);
    return ull__torch_add(t, &(struct ull__event){.time_ns = item->time_ns,
                                                  .size = item->size,
                                                  .stream = item->stream,
                                                  .stack = item->stack,
                                                  .tag = item->tag,
                                                  .result = OUT_OF_MEMORY,
                                                  .kind = ULL_EVENT_ALLOC,
                                                  .class = ULL_CLASS_DATA,
                                                  .device = d->number});
}

static bool play(struct torch *t, struct torch_device *d, ull__pickled entry)
{
    if (ull__pickled_kind(entry) != ULL_PICKLED_DICT)
        return bad_item(t, d, "no dict");
    enum torch_action action = ull__torch_action(t, entry);
    if (action == TORCH_snapshot || action == TORCH_other)
        return add_mark(t, d, entry);
    if (action == TORCH_free_requested && !d->frees_at_request) {
        entry_time(t, d, entry);
        return true;
    }
    struct item item;
    if (!read_entry(t, d, entry, action, &item))
        return false;
    if (action == TORCH_oom)
        return refusal(t, d, &item);
    if (item.size == 0)
        return true;
    switch (action) {
    case TORCH_alloc:
        return chunk_alloc(t, d, &item);
    case TORCH_segment_alloc:
    case TORCH_segment_map:
        return segment_begin(t, d, &item);
    case TORCH_segment_free:
    case TORCH_segment_unmap:
        return segment_end(t, d, &item, true);
    default:
        return chunk_free(t, d, &item);
    }
}

/* --- the end ------------------------------------------------------------------------------------------ */

/* The first versions kept what was asked for, and where, in a list of the block's past. */
static bool read_block(struct torch *t, struct torch_device *d, ull__pickled block,
                       uint64_t address, struct item *item)
{
    *item = (struct item){.address = address, .time_ns = TORCH_CHUNKS_BEFORE_NS};
    if (!ull__pickled_u64(ull__torch_at(block, t->keys.size), &item->charged))
        return bad_item(t, d, "a block without a 'size'");
    ull__pickled_u64(ull__torch_at(block, t->keys.address), &item->address);
    item->size = item->charged;
    ull__pickled frames = ull__torch_at(block, t->keys.frames);
    struct ull__pickled_walk walk;
    ull__pickled first;
    ull__pickled_walk(&walk, ull__torch_at(block, t->keys.history));
    if (frames == ULL_PICKLED_MISSING && ull__pickled_next(&walk, &first)) {
        frames = ull__torch_at(first, t->keys.frames);
        ull__pickled_u64(ull__torch_at(first, t->keys.real_size), &item->size);
    }
    ull__pickled_u64(ull__torch_at(block, t->keys.requested_size), &item->size);
    item->stack = ull__torch_stack(t, frames);
    item->tag = ull__torch_tag(t, block);
    return check_range(t, d, item);
}

static bool is_active(const struct torch *t, ull__pickled block)
{
    const char *state;
    size_t size;
    return ull__pickled_string(ull__torch_at(block, t->keys.state), &state, &size) &&
           strncmp(state, "active", 6) == 0;
}

/*
 * Chunks that are there at the end: their true size is known now. Those that were met are put aside under
 * another key, so that what is left in the books is what the segments do not have.
 */
static bool final_block(struct torch *t, struct torch_device *d, ull__pickled block,
                        uint64_t stream, uint64_t *address, struct ull__map *met)
{
    struct item item;
    if (!read_block(t, d, block, *address, &item))
        return false;
    item.stream = stream;
    *address = item.address + item.charged;
    if (!is_active(t, block) || item.charged == 0)
        return true;
    uint32_t begun = ull__map_take(&d->chunks, item.address);
    if (begun != ULL_MAP_NONE) {
        t->history->events[begun].charged = (int64_t)item.charged;
        return true;
    }
    if (ull__map_get(met, item.address) != ULL_MAP_NONE)
        return true;
    return (ull__map_put(met, item.address, 0) || ull__torch_no_memory(t)) &&
           add(t, d, ULL_EVENT_CHUNK_ALLOC, &item);
}

static bool final_blocks(struct torch *t, struct torch_device *d, ull__pickled segment,
                         const struct item *item, struct ull__map *met)
{
    struct ull__pickled_walk walk;
    ull__pickled block;
    uint64_t address = item->address;
    for (ull__pickled_walk(&walk, ull__torch_at(segment, t->keys.blocks));
         ull__pickled_next(&walk, &block);)
        if (!final_block(t, d, block, item->stream, &address, met))
            return false;
    return true;
}

/* What the trace did not tell of a segment was there before. */
static bool final_gaps(struct torch *t, struct torch_device *d, const struct item *item)
{
    struct taken taken = {0};
    uint64_t next = item->address, end = item->address + item->size;
    bool good = take_overlapping(d, next, end, &taken) || ull__torch_no_memory(t);
    for (size_t i = 0; good && i < taken.count; i++) {
        good = segment_before(t, d, item, next, taken.extents[i].begin, item->stack);
        next = taken.extents[i].end;
    }
    good = good && segment_before(t, d, item, next, end, item->stack);
    free(taken.extents);
    return good;
}

static bool final_segment(struct torch *t, struct torch_device *d, ull__pickled segment,
                          struct ull__map *met)
{
    struct item item = {.time_ns = TORCH_SEGMENTS_BEFORE_NS};
    if (!ull__pickled_u64(ull__torch_at(segment, t->keys.total_size), &item.size) ||
        !ull__pickled_u64(ull__torch_at(segment, t->keys.address), &item.address))
        return bad_item(t, d, "a segment without 'address' or 'total_size'");
    item.charged = item.size;
    if (!check_range(t, d, &item))
        return false;
    ull__pickled_u64(ull__torch_at(segment, t->keys.stream), &item.stream);
    item.stack = ull__torch_stack(t, ull__torch_at(segment, t->keys.frames));
    return (item.size == 0 || final_gaps(t, d, &item)) && final_blocks(t, d, segment, &item, met);
}

static bool final_segments(struct torch *t, struct torch_device *d)
{
    struct ull__map met = {0};
    struct ull__pickled_walk walk;
    ull__pickled segment;
    bool good = true;
    d->entry = 0;
    for (ull__pickled_walk(&walk, t->segments); good && ull__pickled_next(&walk, &segment);
         d->entry++) {
        int64_t device = 0;
        ull__pickled_i64(ull__torch_at(segment, t->keys.device), &device);
        if (device == d->index)
            good = final_segment(t, d, segment, &met);
    }
    ull__map_finish(&met);
    return good;
}

/* What the trace left and the segments do not have: its end was not recorded. */
static bool end_rest(struct torch *t, struct torch_device *d)
{
    uint64_t end_ns = TORCH_FIRST_NS + d->last_us * 1000;
    struct ull__extent extent;
    for (size_t i = 0; i < d->chunks.capacity; i++) {
        uint32_t value = d->chunks.slots[i].value;
        if (value != 0 && !add_free(t, d, value - 1, end_ns, 0))
            return false;
    }
    while (ull__extents_pop(&d->segments, &extent))
        if (!add_free(t, d, (uint32_t)extent.value, end_ns, 0))
            return false;
    return true;
}

bool ull__torch_device(struct torch *t, struct torch_device *d)
{
    struct ull__pickled_walk walk;
    ull__pickled entry;
    for (ull__pickled_walk(&walk, d->trace); ull__pickled_next(&walk, &entry); d->entry++)
        if (!play(t, d, entry))
            return false;
    return !d->has_final || (final_segments(t, d) && end_rest(t, d));
}

void ull__torch_device_finish(struct torch_device *d)
{
    ull__extents_finish(&d->segments);
    ull__map_finish(&d->chunks);
}
