/*
 * torch_write.c: see torch_write.h. Traces are written while the layout is played, device by device, and segments
 * after them, from what the layouts have at the end.
 */
#include "torch_write.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "pickle_write.h"
#include "torch_layout.h"

enum { MOST_CATEGORIES = 32, SMALL_SEGMENT = 2 << 20 };

#define WORDS(X)                                                                                   \
    X(action)                                                                                      \
    X(active_allocated)                                                                            \
    X(active_size)                                                                                 \
    X(addr)                                                                                        \
    X(address)                                                                                     \
    X(alloc)                                                                                       \
    X(allocated_size)                                                                              \
    X(blocks)                                                                                      \
    X(category)                                                                                    \
    X(compile_context)                                                                             \
    X(device)                                                                                      \
    X(device_free)                                                                                 \
    X(filename)                                                                                    \
    X(frames)                                                                                      \
    X(free_completed)                                                                              \
    X(free_requested)                                                                              \
    X(inactive)                                                                                    \
    X(is_expandable)                                                                               \
    X(large)                                                                                       \
    X(line)                                                                                        \
    X(name)                                                                                        \
    X(oom)                                                                                         \
    X(requested_size)                                                                              \
    X(segment_alloc)                                                                               \
    X(segment_free)                                                                                \
    X(segment_map)                                                                                 \
    X(segment_pool_id)                                                                             \
    X(segment_type)                                                                                \
    X(segment_unmap)                                                                               \
    X(size)                                                                                        \
    X(small)                                                                                       \
    X(snapshot)                                                                                    \
    X(stage)                                                                                       \
    X(state)                                                                                       \
    X(stream)                                                                                      \
    X(time_us)                                                                                     \
    X(total_size)                                                                                  \
    X(unknown)                                                                                     \
    X(user_metadata)

enum word {
#define X(name) WORD_##name,
    WORDS(X)
#undef X
        WORD_COUNT
};

static const char *const words[] = {
#define X(name) #name,
    WORDS(X)
#undef X
};

struct writer {
    const struct ull__history *history;
    struct ull__pickler pickle;
    uint32_t *kept_words;  /* ours, then the history's texts */
    uint32_t *kept_stacks; /* by number: as what it was kept, + 1 */
    struct ull__layout *layouts;
    int *index; /* by device: PyTorch's number */
    int index_count;
    bool categories;
};

/* --- small parts -------------------------------------------------------------------------------------- */

static void word(struct writer *w, enum word number)
{
    ull__pickler_word(&w->pickle, number, words[number]);
}

static void history_text(struct writer *w, uint32_t text)
{
    ull__pickler_word(&w->pickle, WORD_COUNT + text, w->history->texts[text]);
}

static void number(struct writer *w, enum word key, uint64_t value)
{
    word(w, key);
    ull__pickler_int(&w->pickle, (int64_t)value);
}

static void choice(struct writer *w, enum word key, enum word value)
{
    word(w, key);
    word(w, value);
}

static void stack_frames(struct writer *w, const struct ull__stack *stack)
{
    ull__pickler_list(&w->pickle);
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ull__frame *frame = &w->history->frames[stack->first + i];
        ull__pickler_dict(&w->pickle);
        word(w, WORD_name);
        history_text(w, frame->function);
        word(w, WORD_filename);
        history_text(w, frame->file);
        number(w, WORD_line, frame->line);
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
}

/* What has no stack but is of a class that explains it gets that for one. */
static void class_frames(struct writer *w, const struct ull__event *event)
{
    ull__pickler_list(&w->pickle);
    if (event->kind == ULL_EVENT_CHARGE) {
        ull__pickler_dict(&w->pickle);
        word(w, WORD_name);
        ull__pickler_text(&w->pickle, ull__class_name(event->class));
        word(w, WORD_filename);
        history_text(w, 0);
        number(w, WORD_line, 0);
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
}

static void frames(struct writer *w, const struct ull__event *event)
{
    word(w, WORD_frames);
    if (event->stack == 0) {
        class_frames(w, event);
    } else if (w->kept_stacks[event->stack]) {
        ull__pickler_again(&w->pickle, w->kept_stacks[event->stack] - 1);
    } else {
        stack_frames(w, &w->history->stacks[event->stack]);
        w->kept_stacks[event->stack] = ull__pickler_keep(&w->pickle) + 1;
    }
}

static uint64_t time_us(const struct writer *w, const struct ull__event *event)
{
    return (w->history->unix_ns + event->time_ns) / 1000;
}

/* --- traces ------------------------------------------------------------------------------------------- */

/*
 * The viewer needs every entry to have a category if one has, and one of them to be "unknown"; so the first
 * entry of a trace, a mark, is.
 */
static void owner(struct writer *w, uint32_t tag)
{
    word(w, WORD_compile_context);
    ull__pickler_text(&w->pickle, "N/A");
    word(w, WORD_user_metadata);
    history_text(w, tag);
    if (!w->categories)
        return;
    word(w, WORD_category);
    if (tag)
        history_text(w, tag);
    else
        word(w, WORD_unknown);
}

static void entry(struct writer *w, enum word action, const struct ull__layout_entry *e)
{
    ull__pickler_dict(&w->pickle);
    choice(w, WORD_action, action);
    number(w, action == WORD_oom ? WORD_device_free : WORD_addr, e->address);
    number(w, WORD_size, e->size);
    number(w, WORD_stream, e->began->stream);
    number(w, WORD_time_us, time_us(w, e->event));
    owner(w, e->event->kind == ULL_EVENT_MARK ? 0 : e->began->tag);
    frames(w, e->event);
    ull__pickler_close(&w->pickle);
}

static void tell(void *context, const struct ull__layout_entry *e)
{
    struct writer *w = context;
    switch (e->action) {
    case ULL_LAYOUT_SEGMENT_ALLOC:
        entry(w, WORD_segment_alloc, e);
        break;
    case ULL_LAYOUT_SEGMENT_FREE:
        entry(w, WORD_segment_free, e);
        break;
    case ULL_LAYOUT_SEGMENT_MAP:
        entry(w, WORD_segment_map, e);
        break;
    case ULL_LAYOUT_SEGMENT_UNMAP:
        entry(w, WORD_segment_unmap, e);
        break;
    case ULL_LAYOUT_ALLOC:
        entry(w, WORD_alloc, e);
        break;
    case ULL_LAYOUT_FREE:
        entry(w, WORD_free_requested, e);
        entry(w, WORD_free_completed, e);
        break;
    case ULL_LAYOUT_OOM:
        entry(w, WORD_oom, e);
        break;
    case ULL_LAYOUT_MARK:
        if (strcmp(w->history->texts[e->event->tag], "snapshot") == 0)
            entry(w, WORD_snapshot, e);
        break;
    }
}

static void first_entry(struct writer *w)
{
    static const struct ull__event beginning = {.kind = ULL_EVENT_MARK};
    entry(w, WORD_snapshot, &(struct ull__layout_entry){.event = &beginning, .began = &beginning});
}

static bool has_events(const struct ull__history *history, uint32_t device)
{
    for (size_t i = 0; i < history->event_count; i++)
        if (history->events[i].device == device)
            return true;
    return false;
}

static bool traces(struct writer *w)
{
    bool good = true;
    ull__pickler_text(&w->pickle, "device_traces");
    ull__pickler_list(&w->pickle);
    for (int index = 0; index < w->index_count; index++) {
        ull__pickler_list(&w->pickle);
        for (uint32_t device = 0; good && device < w->history->device_count; device++) {
            if (w->index[device] != index || !has_events(w->history, device))
                continue;
            if (w->categories)
                first_entry(w);
            good = ull__layout_play(&w->layouts[device], w->history, (uint8_t)device, tell, w);
        }
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
    return good;
}

/* --- segments ----------------------------------------------------------------------------------------- */

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

static bool grows(const struct writer *w, const struct ull__layout *layout,
                  const struct ull__layout_segment *segment)
{
    return layout->processes[w->history->events[segment->event].process].grows;
}

/* As the viewer does it: by address and stream. */
static bool adjoin(const struct writer *w, const struct ull__layout *layout,
                   const struct ull__layout_segment *left, const struct ull__layout_segment *right)
{
    return left->end == right->begin && grows(w, layout, left) && grows(w, layout, right) &&
           w->history->events[left->event].stream == w->history->events[right->event].stream;
}

static void join_segments(const struct writer *w, const struct ull__layout *layout,
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

static bool sort(const struct writer *w, const struct ull__layout *layout, struct sorted *sorted)
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

static void write_block(struct writer *w, uint64_t begin, uint64_t end,
                        const struct ull__layout_block *block)
{
    ull__pickler_dict(&w->pickle);
    number(w, WORD_address, begin);
    number(w, WORD_size, end - begin);
    number(w, WORD_requested_size, block ? block->wanted : 0);
    choice(w, WORD_state, block ? WORD_active_allocated : WORD_inactive);
    if (block) {
        const struct ull__event *event = &w->history->events[block->event];
        frames(w, event);
        word(w, WORD_user_metadata);
        history_text(w, event->tag);
    } else {
        word(w, WORD_frames);
        ull__pickler_list(&w->pickle);
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
}

/* The blocks from number `first` on and the gaps between them fill the segment. */
static void write_blocks(struct writer *w, const struct ull__layout_segment *segment,
                         const struct sorted *sorted, uint32_t first)
{
    uint64_t next = segment->begin;
    word(w, WORD_blocks);
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

static void write_segment(struct writer *w, const struct ull__layout *layout,
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
    number(w, WORD_device, (uint64_t)w->index[layout->device]);
    number(w, WORD_address, segment->begin);
    number(w, WORD_total_size, size);
    number(w, WORD_allocated_size, active);
    number(w, WORD_active_size, active);
    number(w, WORD_requested_size, asked);
    number(w, WORD_stream, event->stream);
    choice(w, WORD_segment_type, size > SMALL_SEGMENT ? WORD_large : WORD_small);
    word(w, WORD_segment_pool_id);
    ull__pickler_pair(&w->pickle, 0, 0);
    word(w, WORD_is_expandable);
    ull__pickler_bool(&w->pickle, grows(w, layout, segment));
    frames(w, event);
    write_blocks(w, segment, sorted, first);
    ull__pickler_close(&w->pickle);
}

static bool segments(struct writer *w)
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

/* --- the rest ----------------------------------------------------------------------------------------- */

/* A mark's tag ends in " end" where it closes what the same one without that opened. */
static void annotation(struct writer *w, const struct ull__event *event)
{
    const char *tag = w->history->texts[event->tag];
    size_t size = strlen(tag);
    bool ends = size > 4 && size < 256 && strcmp(tag + size - 4, " end") == 0;
    char name[256];
    ull__pickler_dict(&w->pickle);
    word(w, WORD_name);
    if (ends) {
        memcpy(name, tag, size - 4);
        name[size - 4] = '\0';
        ull__pickler_text(&w->pickle, name);
    } else {
        history_text(w, event->tag);
    }
    word(w, WORD_stage);
    ull__pickler_text(&w->pickle, ends ? "END" : "START");
    number(w, WORD_device,
           event->device < w->history->device_count ? (uint64_t)w->index[event->device] : 0);
    number(w, WORD_time_us, time_us(w, event));
    ull__pickler_close(&w->pickle);
}

static void annotations(struct writer *w)
{
    ull__pickler_text(&w->pickle, "external_annotations");
    ull__pickler_list(&w->pickle);
    for (size_t i = 0; i < w->history->event_count; i++) {
        const struct ull__event *event = &w->history->events[i];
        if (event->kind == ULL_EVENT_MARK && strcmp(w->history->texts[event->tag], "snapshot") != 0)
            annotation(w, event);
    }
    ull__pickler_close(&w->pickle);
}

static void settings(struct writer *w)
{
    ull__pickler_text(&w->pickle, "allocator_settings");
    ull__pickler_dict(&w->pickle);
    ull__pickler_text(&w->pickle, "expandable_segments");
    ull__pickler_bool(&w->pickle, false);
    ull__pickler_close(&w->pickle);
}

/* A legend of more owners than this is of no use. */
static bool few_tags(const struct ull__history *history)
{
    uint32_t tags[MOST_CATEGORIES], count = 0;
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        uint32_t at = 0;
        if (event->tag == 0 || event->kind == ULL_EVENT_MARK)
            continue;
        while (at < count && tags[at] != event->tag)
            at++;
        if (at == MOST_CATEGORIES)
            return false;
        if (at == count)
            tags[count++] = event->tag;
    }
    return count > 0;
}

/* The program's numbers of its devices if each has one of its own, else the job's. */
static void number_devices(struct writer *w)
{
    const struct ull__history *history = w->history;
    bool used[ULL_EVENT_NO_DEVICE] = {false}, usable = true;
    for (uint32_t i = 0; i < history->device_count; i++) {
        int logical = history->devices[i].logical;
        usable = usable && logical >= 0 && logical < ULL_EVENT_NO_DEVICE && !used[logical];
        if (usable)
            used[logical] = true;
    }
    for (uint32_t i = 0; i < history->device_count; i++) {
        w->index[i] = usable ? history->devices[i].logical : (int)i;
        if (w->index[i] >= w->index_count)
            w->index_count = w->index[i] + 1;
    }
}

static bool write_all(struct writer *w, FILE *out)
{
    const struct ull__history *history = w->history;
    w->kept_words = calloc(WORD_COUNT + (size_t)history->text_count, sizeof *w->kept_words);
    w->kept_stacks = calloc(history->stack_count + 1u, sizeof *w->kept_stacks);
    w->layouts = calloc(history->device_count + 1u, sizeof *w->layouts);
    w->index = calloc(history->device_count + 1u, sizeof *w->index);
    if (!w->kept_words || !w->kept_stacks || !w->layouts || !w->index)
        return false;
    number_devices(w);
    w->categories = few_tags(history);
    ull__pickler_init(&w->pickle, out, w->kept_words);
    ull__pickler_dict(&w->pickle);
    bool good = traces(w) && segments(w);
    if (good) {
        annotations(w);
        settings(w);
        ull__pickler_close(&w->pickle);
        ull__pickler_finish(&w->pickle);
    }
    for (uint32_t i = 0; i < history->device_count; i++)
        ull__layout_finish(&w->layouts[i]);
    return good;
}

ull_status ull__history_to_torch(const struct ull__history *history, FILE *out, struct ull_error *err)
{
    struct writer w = {.history = history};
    bool good = write_all(&w, out);
    free(w.kept_words);
    free(w.kept_stacks);
    free(w.layouts);
    free(w.index);
    return good ? ULL_OK
                : ull__fail(err, ULL_E_SYSTEM, "no memory for a snapshot of %zu events",
                            history->event_count);
}
