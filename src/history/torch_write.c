/*
 * torch_write.c: see torch_write.h. Traces are written while the layout is played, device by device, and segments
 * after them, from what the layouts have at the end.
 */
#include "torch_write.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "torch_write_private.h"

enum { MOST_CATEGORIES = 32 };

static const char *const words[] = {
#define X(name) #name,
    TORCH_WORDS(X)
#undef X
};

/* --- small parts -------------------------------------------------------------------------------------- */

void ull__torch_write_word(struct torch_writer *w, enum torch_word number)
{
    ull__pickler_word(&w->pickle, number, words[number]);
}

void ull__torch_write_history_text(struct torch_writer *w, uint32_t text)
{
    ull__pickler_word(&w->pickle, WORD_COUNT + text, w->history->texts[text]);
}

void ull__torch_write_number(struct torch_writer *w, enum torch_word key, uint64_t value)
{
    ull__torch_write_word(w, key);
    ull__pickler_int(&w->pickle, (int64_t)value);
}

void ull__torch_write_choice(struct torch_writer *w, enum torch_word key, enum torch_word value)
{
    ull__torch_write_word(w, key);
    ull__torch_write_word(w, value);
}

static void stack_frames(struct torch_writer *w, const struct ull__stack *stack)
{
    ull__pickler_list(&w->pickle);
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ull__frame *frame = &w->history->frames[stack->first + i];
        ull__pickler_dict(&w->pickle);
        ull__torch_write_word(w, WORD_name);
        ull__torch_write_history_text(w, frame->function);
        ull__torch_write_word(w, WORD_filename);
        ull__torch_write_history_text(w, frame->file);
        ull__torch_write_number(w, WORD_line, frame->line);
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
}

/* What has no stack but is of a class that explains it gets that for one. */
static void class_frames(struct torch_writer *w, const struct ull__event *event)
{
    ull__pickler_list(&w->pickle);
    if (event->kind == ULL_EVENT_CHARGE) {
        ull__pickler_dict(&w->pickle);
        ull__torch_write_word(w, WORD_name);
        ull__pickler_text(&w->pickle, ull__class_name(event->class));
        ull__torch_write_word(w, WORD_filename);
        ull__torch_write_history_text(w, 0);
        ull__torch_write_number(w, WORD_line, 0);
        ull__pickler_close(&w->pickle);
    }
    ull__pickler_close(&w->pickle);
}

void ull__torch_write_frames(struct torch_writer *w, const struct ull__event *event)
{
    ull__torch_write_word(w, WORD_frames);
    if (event->stack == 0) {
        class_frames(w, event);
    } else if (w->kept_stacks[event->stack]) {
        ull__pickler_again(&w->pickle, w->kept_stacks[event->stack] - 1);
    } else {
        stack_frames(w, &w->history->stacks[event->stack]);
        w->kept_stacks[event->stack] = ull__pickler_keep(&w->pickle) + 1;
    }
}

static uint64_t time_us(const struct torch_writer *w, const struct ull__event *event)
{
    return (w->history->unix_ns + event->time_ns) / 1000;
}

/* --- traces ------------------------------------------------------------------------------------------- */

/*
 * The viewer needs every entry to have a category if one has, and one of them to be "unknown"; so the first
 * entry of a trace, a mark, is.
 */
static void owner(struct torch_writer *w, uint32_t tag)
{
    ull__torch_write_word(w, WORD_compile_context);
    ull__pickler_text(&w->pickle, "N/A");
    ull__torch_write_word(w, WORD_user_metadata);
    ull__torch_write_history_text(w, tag);
    if (!w->categories)
        return;
    ull__torch_write_word(w, WORD_category);
    if (tag)
        ull__torch_write_history_text(w, tag);
    else
        ull__torch_write_word(w, WORD_unknown);
}

static void entry(struct torch_writer *w, enum torch_word action, const struct ull__layout_entry *e)
{
    ull__pickler_dict(&w->pickle);
    ull__torch_write_choice(w, WORD_action, action);
    ull__torch_write_number(w, action == WORD_oom ? WORD_device_free : WORD_addr, e->address);
    ull__torch_write_number(w, WORD_size, e->size);
    ull__torch_write_number(w, WORD_stream, e->began->stream);
    ull__torch_write_number(w, WORD_time_us, time_us(w, e->event));
    owner(w, e->event->kind == ULL_EVENT_MARK ? 0 : e->began->tag);
    ull__torch_write_frames(w, e->event);
    ull__pickler_close(&w->pickle);
}

static void tell(void *context, const struct ull__layout_entry *e)
{
    struct torch_writer *w = context;
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

static void first_entry(struct torch_writer *w)
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

static bool traces(struct torch_writer *w)
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

/* --- the rest ----------------------------------------------------------------------------------------- */

/* A mark's tag ends in " end" where it closes what the same one without that opened. */
static void annotation(struct torch_writer *w, const struct ull__event *event)
{
    const char *tag = w->history->texts[event->tag];
    size_t size = strlen(tag);
    bool ends = size > 4 && size < 256 && strcmp(tag + size - 4, " end") == 0;
    char name[256];
    ull__pickler_dict(&w->pickle);
    ull__torch_write_word(w, WORD_name);
    if (ends) {
        memcpy(name, tag, size - 4);
        name[size - 4] = '\0';
        ull__pickler_text(&w->pickle, name);
    } else {
        ull__torch_write_history_text(w, event->tag);
    }
    ull__torch_write_word(w, WORD_stage);
    ull__pickler_text(&w->pickle, ends ? "END" : "START");
    ull__torch_write_number(
        w, WORD_device,
        event->device < w->history->device_count ? (uint64_t)w->index[event->device] : 0);
    ull__torch_write_number(w, WORD_time_us, time_us(w, event));
    ull__pickler_close(&w->pickle);
}

static void annotations(struct torch_writer *w)
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

static void settings(struct torch_writer *w)
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
static void number_devices(struct torch_writer *w)
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

static bool write_all(struct torch_writer *w, FILE *out)
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
    bool good = traces(w) && ull__torch_write_segments(w);
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
    struct torch_writer w = {.history = history};
    bool good = write_all(&w, out);
    free(w.kept_words);
    free(w.kept_stacks);
    free(w.layouts);
    free(w.index);
    return good ? ULL_OK
                : ull__fail(err, ULL_E_SYSTEM, "no memory for a snapshot of %zu events",
                            history->event_count);
}
