/*
 * perfetto.c: `ullage report -f perfetto`: a trace in Chrome's JSON format, which the Perfetto UI and chrome://tracing
 * read. Times are microseconds with three digits.
 *
 * A device is a "process" of the trace with a counter of what is held by class and one of what is live; so is each
 * process of the job, with its largest allocations as slices, its requests that were refused or had to wait, and its
 * host memory. Viewers know processes by number: devices have 1 to 255, a process of the job its pid, or, where a
 * pid came twice or is that low, 10,000,000 and its number.
 *
 * Whatever the history holds, the trace stays below some 60 MB: counters have so many points at most
 * (perfetto_counters.c), and there are at most SLICES slices and MARKS marks of a sort.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "json_keys.h"
#include "perfetto.h"

enum { SLICES = 20000, MARKS = 20000, NUMBERED = 10000000 };

/* --- names ---------------------------------------------------------------------------------------------- */

static void name_process(struct perfetto *work, uint32_t pid, const char *name, uint64_t order)
{
    perfetto_begin(work, "M", "process_name", pid, 0);
    perfetto_args(work);
    key_string(&work->json, "name", name);
    perfetto_end(work);
    perfetto_begin(work, "M", "process_sort_index", pid, 0);
    perfetto_args(work);
    key_u64(&work->json, "sort_index", order);
    perfetto_end(work);
}

static int by_pid(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Of those with the same pid the first keeps it. */
static bool number_processes(struct perfetto *work)
{
    const struct ull__history *history = work->input->history;
    uint64_t *sorted = calloc((size_t)history->process_count + 1, sizeof *sorted);
    work->pids = calloc((size_t)history->process_count + 1, sizeof *work->pids);
    if (!sorted || !work->pids) {
        free(sorted);
        return false;
    }
    for (uint32_t p = 0; p < history->process_count; p++)
        sorted[p] = (uint64_t)history->processes[p].pid << 32 | p;
    qsort(sorted, history->process_count, sizeof *sorted, by_pid);
    for (uint32_t i = 0; i < history->process_count; i++) {
        uint32_t pid = (uint32_t)(sorted[i] >> 32), process = (uint32_t)sorted[i];
        bool again = i > 0 && (uint32_t)(sorted[i - 1] >> 32) == pid;
        work->pids[process] = again || pid < 256 || pid >= NUMBERED ? NUMBERED + process : pid;
    }
    free(sorted);
    return true;
}

static void put_names(struct perfetto *work)
{
    const struct ull__history *history = work->input->history;
    char name[400];
    for (uint32_t d = 0; d < history->device_count; d++) {
        const struct ull__history_device *device = &history->devices[d];
        const char *model = ull__history_string(history, device->name);
        if (device->logical >= 0)
            snprintf(name, sizeof name, "GPU %d%s%.200s", device->logical, model[0] ? ", " : "",
                     model);
        else
            snprintf(name, sizeof name, "GPU %.100s", ull__history_string(history, device->uuid));
        name_process(work, d + 1, name, d);
    }
    for (uint32_t p = 0; p < history->process_count; p++) {
        const struct ull__history_process *process = &history->processes[p];
        snprintf(name, sizeof name, "%.300s (pid %u)", ull__history_string(history, process->name),
                 process->pid);
        name_process(work, work->pids[p], name, 256 + p);
    }
}

/* --- slices --------------------------------------------------------------------------------------------- */

static void put_stack(struct perfetto *work, uint32_t number)
{
    const struct ull__history *history = work->input->history;
    const struct ull__stack *stack = &history->stacks[number];
    char key[16], text[600];
    for (uint32_t i = 0; i < stack->count && i < 24; i++) {
        const struct ull__frame *frame = &history->frames[stack->first + i];
        snprintf(key, sizeof key, "frame %02u", i);
        snprintf(text, sizeof text, "%.250s (%.250s:%u)",
                 ull__history_string(history, frame->function),
                 ull__history_string(history, frame->file), frame->line);
        key_string(&work->json, key, text);
    }
}

static void put_slice(struct perfetto *work, size_t number)
{
    const struct ull__span *span = &work->spans->spans[number];
    const struct ull__span_kind *kind = &work->spans->kinds[span->kind];
    const struct ull__history *history = work->input->history;
    const char *name = ull__history_string(history, kind->tag);
    uint32_t pid = work->pids[kind->process];
    if (!name[0])
        name = ull__class_name(kind->class);
    for (int end = 0; end < 2; end++) {
        uint64_t at = end == 0 ? span->from : span->to == ULL_NEVER ? work->spans->end : span->to;
        perfetto_begin(work, end ? "e" : "b", name, pid, at);
        key_string(&work->json, "cat", "allocation");
        key_u64(&work->json, "id", number);
        key_u64(&work->json, "tid", pid);
        perfetto_args(work);
        if (end == 0) {
            key_u64(&work->json, "bytes", span->size);
            key_string(&work->json, "class", ull__class_name(kind->class));
            if (kind->device != ULL_EVENT_NO_DEVICE)
                key_u64(&work->json, "device", kind->device);
            put_stack(work, kind->stack);
        }
        perfetto_end(work);
    }
}

/* The largest, in order of time. */
static void put_slices(struct perfetto *work)
{
    const struct ull__spans *spans = work->spans;
    size_t left = SLICES, equals = 0;
    uint64_t *sizes = malloc((spans->span_count + 1) * sizeof *sizes), least = 0;
    if (!sizes) {
        work->failed = true;
        return;
    }
    for (size_t i = 0; i < spans->span_count; i++)
        sizes[i] = spans->spans[i].size;
    qsort(sizes, spans->span_count, sizeof *sizes, perfetto_by_size);
    if (spans->span_count > SLICES)
        least = sizes[SLICES - 1];
    for (size_t i = 0; i < spans->span_count && i < SLICES; i++)
        equals += sizes[i] == least; /* so many of the smallest are to be shown */
    free(sizes);
    for (size_t i = 0; i < spans->span_count && left > 0; i++) {
        if (spans->spans[i].size < least || (spans->spans[i].size == least && equals == 0))
            continue;
        equals -= spans->spans[i].size == least;
        put_slice(work, i);
        left--;
    }
}

/* --- what happened besides ------------------------------------------------------------------------------ */

static const char *moment_name(const struct ull__event *event)
{
    if (ull__is_alloc(event) && event->result != 0)
        return "refused";
    if (ull__is_alloc(event) && event->wait != 0)
        return "waited";
    return event->kind == ULL_EVENT_MARK ? "mark" : NULL;
}

static void put_moment(struct perfetto *work, const struct ull__event *event, size_t at)
{
    const struct ull__history *history = work->input->history;
    bool mark = event->kind == ULL_EVENT_MARK, refused = !mark && event->result != 0;
    const char *tag = ull__history_string(history, event->tag);
    perfetto_begin(work, "i", mark && tag[0] ? tag : moment_name(event), work->pids[event->process],
                   event->time_ns);
    key_u64(&work->json, "tid", work->pids[event->process]);
    key_string(&work->json, "cat", moment_name(event));
    key_string(&work->json, "s", refused ? "g" : "p");
    perfetto_args(work);
    if (!mark) {
        key_u64(&work->json, "bytes", event->size);
        perfetto_time(&work->json, "took_us", event->latency_ns);
        if (event->tag)
            key_string(&work->json, "tag", tag);
    }
    if (refused)
        key_string(&work->json, "after",
                   ull__facts_survived(work->input->facts, at) ? "the program went on"
                                                               : "no more requests");
    perfetto_end(work);
}

/* Budgets and host memory are counters; of too many of a sort every second, third ... is there. */
static void put_events(struct perfetto *work, bool (*is)(const struct ull__event *),
                       void (*put)(struct perfetto *, const struct ull__event *, size_t))
{
    const struct ull__history *history = work->input->history;
    size_t count = 0, seen = 0;
    for (size_t i = 0; i < history->event_count; i++)
        count += is(&history->events[i]);
    size_t stride = (count + MARKS - 1) / MARKS;
    for (size_t i = 0; count > 0 && i < history->event_count; i++) {
        if (is(&history->events[i]) && seen++ % stride == 0)
            put(work, &history->events[i], i);
    }
}

static bool is_moment(const struct ull__event *event)
{
    return moment_name(event) != NULL;
}

static bool is_counter(const struct ull__event *event)
{
    return event->kind == ULL_EVENT_HOST ||
           (event->kind == ULL_EVENT_BUDGET && event->device != ULL_EVENT_NO_DEVICE);
}

static void put_value(struct perfetto *work, const char *name, uint32_t pid, uint64_t ns,
                      uint64_t bytes)
{
    perfetto_begin(work, "C", name, pid, ns);
    perfetto_args(work);
    key_u64(&work->json, "bytes", bytes);
    perfetto_end(work);
}

static void put_other(struct perfetto *work, const struct ull__event *event, size_t at)
{
    (void)at;
    if (event->kind == ULL_EVENT_HOST)
        put_value(work, "host memory", work->pids[event->process], event->time_ns, event->size);
    else
        put_value(work, "budget", event->device + 1u, event->time_ns, event->size);
}

static void put_budgets(struct perfetto *work)
{
    const struct ull__history *history = work->input->history;
    for (uint32_t d = 0; d < history->device_count; d++) {
        if (history->devices[d].budget_bytes)
            put_value(work, "budget", d + 1, 0, history->devices[d].budget_bytes);
    }
}

/* --- pieces of JSON ----------------------------------------------------------------------------------- */

void perfetto_time(struct ull_json *json, const char *key, uint64_t ns)
{
    ull__json_key(json, key);
    ull__json_number(json, (double)ns / 1e3);
}

/* Opens an event; its args and its end are the caller's. */
void perfetto_begin(struct perfetto *work, const char *phase, const char *name, uint32_t pid,
                    uint64_t ns)
{
    ull__json_object(&work->json);
    key_string(&work->json, "ph", phase);
    key_string(&work->json, "name", name);
    key_u64(&work->json, "pid", pid);
    perfetto_time(&work->json, "ts", ns);
}

void perfetto_args(struct perfetto *work)
{
    ull__json_key(&work->json, "args");
    ull__json_object(&work->json);
}

void perfetto_end(struct perfetto *work)
{
    ull__json_object_end(&work->json);
    ull__json_object_end(&work->json);
}

/* --- all -------------------------------------------------------------------------------------------------- */

static void put_all(struct perfetto *work)
{
    struct ull_json *json = &work->json;
    const struct ull__history *history = work->input->history;
    json->compact = true;
    ull__json_object(json);
    key_string(json, "displayTimeUnit", "ms");
    ull__json_key(json, "otherData");
    ull__json_object(json);
    key_string(json, "ullage", ULLAGE_VERSION);
    key_string(json, "command", ull__history_string(history, history->command));
    ull__json_object_end(json);
    ull__json_key(json, "traceEvents");
    ull__json_array(json);
    put_names(work);
    put_budgets(work);
    perfetto_counters(work);
    put_slices(work);
    put_events(work, is_moment, put_moment);
    put_events(work, is_counter, put_other);
    ull__json_array_end(json);
    ull__json_object_end(json);
}

ull_status report_perfetto(const struct report_input *input, FILE *out, struct ull_error *err)
{
    struct perfetto work = {.input = input};
    struct ull__spans *spans = NULL;
    ull_status status = ull__spans_create(input->facts, input->figures, 0, 0, &spans, err);
    if (status != ULL_OK)
        return status;
    work.spans = spans;
    ull__json_init(&work.json, out);
    if (number_processes(&work))
        put_all(&work);
    else
        work.failed = true;
    bool good =
        ull__json_finish(&work.json) || ferror(out); /* what the stream refuses its owner tells */
    ull__json_free(&work.json);
    ull__spans_destroy(spans);
    free(work.pids);
    return good && !work.failed ? ULL_OK : ull__fail(err, ULL_E_SYSTEM, "no memory for the trace");
}
