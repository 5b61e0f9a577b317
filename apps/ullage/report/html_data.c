/*
 * html_data.c: the data that the page is drawn from: every block of the run with its beginning and end (html_pack.c),
 * what kinds of allocations there are, and what happened besides. Rows are arrays of numbers whose meaning is in
 * the comments here and in page/model.js.
 */
#include <stdlib.h>
#include <string.h>

#include "html.h"

const struct html_limits html_limits = {.spans = 600000,
                                        .pieces = 4000,
                                        .kinds = 30000,
                                        .nodes = 60000,
                                        .text_bytes = 1 << 20,
                                        .marks = 2000};

struct work {
    const struct report_input *input;
    const struct html_limits *limits;
    const struct ull__spans *spans;
    struct html_names *names;
    uint32_t *kinds; /* the page's, by the spans' number */
    bool failed;
};

/* --- kinds ---------------------------------------------------------------------------------------------- */

struct ranked {
    uint64_t bytes;
    uint32_t number;
    uint64_t like; /* the same for those that become one when there are too many */
};

static int by_bytes(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int by_likeness(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    return a->like < b->like ? -1 : a->like > b->like;
}

static struct ranked *rank_kinds(const struct ull__spans *spans)
{
    struct ranked *ranked = calloc(spans->kind_count + 1, sizeof *ranked);
    if (!ranked)
        return NULL;
    for (uint32_t i = 0; i < spans->kind_count; i++) {
        const struct ull__span_kind *kind = &spans->kinds[i];
        ranked[i].number = i;
        ranked[i].like = (uint64_t)kind->process << 32 | (uint64_t)kind->device << 24 |
                         (uint64_t)kind->class << 16 | (uint64_t)kind->layer << 8 | kind->before;
    }
    for (size_t i = 0; i < spans->span_count; i++)
        ranked[spans->spans[i].kind].bytes += spans->spans[i].size;
    qsort(ranked, spans->kind_count, sizeof *ranked, by_bytes);
    return ranked;
}

/* process, device, class, layer, 1 live + 2 held + 4 existed before + 8 of several, tag, stack's node */
static void put_kind(struct ull_json *json, const struct ull__span_kind *kind, bool several,
                     uint32_t tag, uint32_t node)
{
    ull__json_u64(json, kind->process);
    ull__json_u64(json, kind->device);
    ull__json_u64(json, kind->class);
    ull__json_u64(json, kind->layer);
    ull__json_u64(json, (uint64_t)kind->live | (uint64_t)kind->held << 1 |
                            (uint64_t)kind->before << 2 | (uint64_t)several << 3);
    ull__json_u64(json, tag);
    ull__json_u64(json, node);
}

static void put_kinds(struct ull_json *json, struct work *work)
{
    const struct ull__spans *spans = work->spans;
    struct ranked *ranked = rank_kinds(spans);
    if (!ranked) {
        work->failed = true;
        return;
    }
    size_t whole = spans->kind_count > work->limits->kinds ? work->limits->kinds : spans->kind_count;
    uint32_t count = 0;
    ull__json_key(json, "kinds");
    ull__json_array(json);
    for (size_t i = 0; i < whole; i++) {
        const struct ull__span_kind *kind = &spans->kinds[ranked[i].number];
        uint32_t tag = html_names_text(work->names, kind->tag);
        work->kinds[ranked[i].number] = count++;
        put_kind(json, kind, false, tag, html_names_stack(work->names, kind->stack));
    }
    qsort(ranked + whole, spans->kind_count - whole, sizeof *ranked, by_likeness);
    for (size_t i = whole; i < spans->kind_count; i++) {
        if (i == whole || ranked[i].like != ranked[i - 1].like) {
            put_kind(json, &spans->kinds[ranked[i].number], true, 0, 0);
            count++;
        }
        work->kinds[ranked[i].number] = count - 1;
    }
    ull__json_array_end(json);
    free(ranked);
}

/* --- what happened besides ------------------------------------------------------------------------------ */

typedef bool is_fn(const struct ull__event *event);
typedef void put_fn(struct ull_json *json, struct work *work, size_t at);

static bool is_refusal(const struct ull__event *event)
{
    return ull__is_alloc(event) && event->result != 0;
}

/* time, process, device, size, 1: the program went on, tag, node */
static void put_refusal(struct ull_json *json, struct work *work, size_t at)
{
    const struct ull__event *event = &work->input->history->events[at];
    uint32_t tag = html_names_text(work->names, event->tag);
    uint32_t node = html_names_stack(work->names, event->stack);
    ull__json_u64(json, event->time_ns);
    ull__json_u64(json, event->process);
    ull__json_u64(json, event->device);
    ull__json_u64(json, event->size);
    ull__json_u64(json, ull__facts_survived(work->input->facts, at));
    ull__json_u64(json, tag);
    ull__json_u64(json, node);
}

static bool is_wait(const struct ull__event *event)
{
    return ull__is_alloc(event) && event->wait != 0;
}

/* time, process, device, size, nanoseconds, bits of enum ull__event_wait */
static void put_wait(struct ull_json *json, struct work *work, size_t at)
{
    const struct ull__event *event = &work->input->history->events[at];
    ull__json_u64(json, event->time_ns);
    ull__json_u64(json, event->process);
    ull__json_u64(json, event->device);
    ull__json_u64(json, event->size);
    ull__json_u64(json, event->latency_ns);
    ull__json_u64(json, event->wait);
}

static bool is_budget(const struct ull__event *event)
{
    return event->kind == ULL_EVENT_BUDGET;
}

/* time, device, bytes */
static void put_budget(struct ull_json *json, struct work *work, size_t at)
{
    const struct ull__event *event = &work->input->history->events[at];
    ull__json_u64(json, event->time_ns);
    ull__json_u64(json, event->device);
    ull__json_u64(json, event->size);
}

static bool is_mark(const struct ull__event *event)
{
    return event->kind == ULL_EVENT_MARK;
}

/* time, process, text */
static void put_mark(struct ull_json *json, struct work *work, size_t at)
{
    const struct ull__event *event = &work->input->history->events[at];
    ull__json_u64(json, event->time_ns);
    ull__json_u64(json, event->process);
    ull__json_u64(json, html_names_text(work->names, event->tag));
}

static bool is_host(const struct ull__event *event)
{
    return event->kind == ULL_EVENT_HOST;
}

/* time, process, bytes */
static void put_host(struct ull_json *json, struct work *work, size_t at)
{
    const struct ull__event *event = &work->input->history->events[at];
    ull__json_u64(json, event->time_ns);
    ull__json_u64(json, event->process);
    ull__json_u64(json, event->size);
}

/* Of too many every second, third ... is shown; how many there were is in NAME_count. */
static void put_events(struct ull_json *json, struct work *work, const char *name, is_fn *is,
                       put_fn *put)
{
    const struct ull__history *history = work->input->history;
    size_t count = 0, seen = 0, most = work->limits->marks;
    char key[32];
    for (size_t i = 0; i < history->event_count; i++)
        count += is(&history->events[i]);
    size_t stride = most ? (count + most - 1) / most : 0;
    snprintf(key, sizeof key, "%s_count", name);
    ull__json_key(json, key);
    ull__json_u64(json, count);
    ull__json_key(json, name);
    ull__json_array(json);
    for (size_t i = 0; stride > 0 && i < history->event_count; i++) {
        if (is(&history->events[i]) && seen++ % stride == 0)
            put(json, work, i);
    }
    ull__json_array_end(json);
}

/* --- all -------------------------------------------------------------------------------------------------- */

static void put_lists(struct ull_json *json, struct work *work)
{
    const struct ull__history *history = work->input->history;
    ull__json_key(json, "classes");
    ull__json_array(json);
    for (int c = 0; c < ULL_CLASSES; c++)
        ull__json_string(json, ull__class_name((enum ull__class)c));
    ull__json_array_end(json);
    ull__json_key(json, "budget_begin"); /* by device, 0: none */
    ull__json_array(json);
    for (uint32_t d = 0; d < history->device_count; d++)
        ull__json_u64(json, history->devices[d].budget_bytes);
    ull__json_array_end(json);
}

bool html_data(struct ull_json *json, const struct report_input *input,
               const struct html_limits *limits)
{
    struct ull__spans *spans = NULL;
    struct work work = {.input = input, .limits = limits};
    if (ull__spans_create(input->facts, input->figures, limits->spans, limits->pieces, &spans,
                          NULL) != ULL_OK)
        return false;
    work.spans = spans;
    work.names = html_names_create(input->history, limits);
    work.kinds = calloc(spans->kind_count + 1, sizeof *work.kinds);
    if (work.names && work.kinds) {
        json->compact = true;
        ull__json_object(json);
        put_lists(json, &work);
        put_kinds(json, &work);
        put_events(json, &work, "refusals", is_refusal, put_refusal);
        put_events(json, &work, "waits", is_wait, put_wait);
        put_events(json, &work, "budgets", is_budget, put_budget);
        put_events(json, &work, "marks", is_mark, put_mark);
        put_events(json, &work, "host", is_host, put_host);
        html_names_write(work.names, json);
        if (!work.failed)
            html_pack(json, spans, work.kinds, &work.failed);
        ull__json_object_end(json);
    }
    bool good = work.names && work.kinds && !work.failed;
    html_names_destroy(work.names);
    free(work.kinds);
    ull__spans_destroy(spans);
    return good;
}
