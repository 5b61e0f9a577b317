/*
 * perfetto.c: `ullage report -f perfetto`: a trace in Chrome's JSON format, which the Perfetto UI and chrome://tracing
 * read. Times are microseconds with three digits.
 *
 * A device is a "process" of the trace with a counter of what is held by class and one of what is live; so is each
 * process of the job, with its largest allocations as slices, its requests that were refused or had to wait, and its
 * host memory. Viewers know processes by number: devices have 1 to 255, a process of the job its pid, or, where a
 * pid came twice or is that low, 10,000,000 and its number.
 *
 * Whatever the history holds, the trace stays below some 60 MB: counters have at most POINTS points each, in which
 * no peak is lost, of the PROCESSES processes that held most; and there are at most SLICES slices and MARKS marks of
 * a sort.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "json_keys.h"
#include "report.h"
#include "spans.h"

enum {
    POINTS = 12000,
    ALL_POINTS = 120000,
    PROCESSES = 200,
    SLICES = 20000,
    MARKS = 20000,
    NUMBERED = 10000000
};

struct work {
    const struct report_input *input;
    const struct ull__spans *spans;
    struct ull_json json;
    uint32_t *pids; /* by process: of the trace */
    bool failed;
};

/* --- pieces of JSON ----------------------------------------------------------------------------------- */

static void key_time(struct ull_json *json, const char *key, uint64_t ns)
{
    ull__json_key(json, key);
    ull__json_number(json, (double)ns / 1e3);
}

/* Opens an event; its args and its end are the caller's. */
static void begin(struct work *work, const char *phase, const char *name, uint32_t pid, uint64_t ns)
{
    ull__json_object(&work->json);
    key_string(&work->json, "ph", phase);
    key_string(&work->json, "name", name);
    key_u64(&work->json, "pid", pid);
    key_time(&work->json, "ts", ns);
}

static void begin_args(struct work *work)
{
    ull__json_key(&work->json, "args");
    ull__json_object(&work->json);
}

static void end_args(struct work *work)
{
    ull__json_object_end(&work->json);
    ull__json_object_end(&work->json);
}

static void name_process(struct work *work, uint32_t pid, const char *name, uint64_t order)
{
    begin(work, "M", "process_name", pid, 0);
    begin_args(work);
    key_string(&work->json, "name", name);
    end_args(work);
    begin(work, "M", "process_sort_index", pid, 0);
    begin_args(work);
    key_u64(&work->json, "sort_index", order);
    end_args(work);
}

/* --- names ---------------------------------------------------------------------------------------------- */

static int by_pid(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Of those with the same pid the first keeps it. */
static bool number_processes(struct work *work)
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

static void put_names(struct work *work)
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

/* --- counters ------------------------------------------------------------------------------------------- */

/* Of one device (process -1) or one process (device -1), with the last point of each piece of time that is worth one. */
struct counter {
    int device, process;
    uint64_t by_class[ULL_CLASSES], live;
    uint64_t held;
    bool ever[ULL_CLASSES]; /* classes that it ever has anything of */
};

static bool counts(const struct counter *counter, uint32_t process, uint32_t device)
{
    return (counter->device < 0 || (uint32_t)counter->device == device) &&
           (counter->process < 0 || (uint32_t)counter->process == process);
}

/* Viewers draw a line for each class that is named. */
static void find_classes(const struct ull__spans *spans, struct counter *counter)
{
    for (size_t i = 0; i < spans->span_count; i++) {
        const struct ull__span_kind *kind = &spans->kinds[spans->spans[i].kind];
        if (spans->spans[i].held > 0 && counts(counter, kind->process, kind->device))
            counter->ever[kind->class] = true;
    }
    for (size_t i = 0; i < spans->adjust_count; i++) {
        const struct ull__adjust *adjust = &spans->adjusts[i];
        if (adjust->held != 0 && counts(counter, adjust->process, adjust->device))
            counter->ever[adjust->class] = true;
    }
}

/* False if the change is not of this counter. */
static bool apply(const struct ull__spans *spans, const struct ull__change *change,
                  struct counter *counter)
{
    if (change->what == ULL_CHANGE_ADJUSTED) {
        const struct ull__adjust *adjust = &spans->adjusts[change->number];
        if (!counts(counter, adjust->process, adjust->device))
            return false;
        counter->by_class[adjust->class] += (uint64_t)adjust->held;
        counter->held += (uint64_t)adjust->held;
        counter->live += (uint64_t)adjust->live;
        return true;
    }
    const struct ull__span *span = &spans->spans[change->number];
    const struct ull__span_kind *kind = &spans->kinds[span->kind];
    uint64_t sign = change->what == ULL_CHANGE_CAME ? 1 : UINT64_MAX;
    if (!counts(counter, kind->process, kind->device))
        return false;
    counter->by_class[kind->class] += sign * span->held;
    counter->held += sign * span->held;
    counter->live += kind->live ? sign * span->size : 0;
    return true;
}

static void put_counter(struct work *work, const struct counter *counter, uint64_t ns, uint32_t pid)
{
    begin(work, "C", "held", pid, ns);
    begin_args(work);
    for (int c = 0; c < ULL_CLASSES; c++)
        if (counter->ever[c])
            key_u64(&work->json, ull__class_name((enum ull__class)c), counter->by_class[c]);
    end_args(work);
    begin(work, "C", "live", pid, ns);
    begin_args(work);
    key_u64(&work->json, "bytes", counter->live);
    end_args(work);
}

/* What is kept of a piece of time: the highest and lowest of held and of live, and the last. */
enum { KEEPS = 5 };

struct piece {
    struct counter counters[KEEPS];
    uint64_t at[KEEPS];
    bool any;
};

static void keep(struct piece *piece, const struct counter *now, uint64_t moment)
{
    const bool wins[KEEPS] = {!piece->any || now->held > piece->counters[0].held,
                              !piece->any || now->held < piece->counters[1].held,
                              !piece->any || now->live > piece->counters[2].live,
                              !piece->any || now->live < piece->counters[3].live, true};
    for (int i = 0; i < KEEPS; i++) {
        if (wins[i]) {
            piece->counters[i] = *now;
            piece->at[i] = moment;
        }
    }
    piece->any = true;
}

/* In order of time, each once. */
static void put_piece(struct work *work, struct piece *piece, uint32_t pid)
{
    uint64_t done = 0;
    for (bool first = true; piece->any; first = false) {
        int next = -1;
        for (int i = 0; i < KEEPS; i++) {
            if ((first || piece->at[i] > done) && (next < 0 || piece->at[i] < piece->at[next]))
                next = i;
        }
        if (next < 0)
            break;
        done = piece->at[next];
        put_counter(work, &piece->counters[next], done, pid);
    }
    piece->any = false;
}

static void put_course(struct work *work, int device, int process, uint32_t pid, size_t points)
{
    const struct ull__spans *spans = work->spans;
    struct counter counter = {.device = device, .process = process};
    struct piece piece = {.any = false};
    find_classes(spans, &counter);
    uint64_t length = spans->end / (points / KEEPS) + 1, until = length;
    for (size_t i = 0; i < spans->change_count; i++) {
        const struct ull__change *change = &spans->changes[i];
        if (!apply(spans, change, &counter))
            continue;
        if (change->moment >= until) {
            put_piece(work, &piece, pid);
            until = change->moment / length * length + length;
        }
        keep(&piece, &counter, change->moment);
    }
    put_piece(work, &piece, pid);
}

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The peak that a process must reach to be shown. False without memory. */
static bool find_least_peak(const struct ull__figures *figures, uint64_t *least)
{
    uint64_t *peaks = malloc(((size_t)figures->process_count + 1) * sizeof *peaks);
    if (!peaks)
        return false;
    for (uint32_t p = 0; p < figures->process_count; p++)
        peaks[p] = figures->processes[p].course.peak_bytes;
    qsort(peaks, figures->process_count, sizeof *peaks, by_size);
    *least = figures->process_count > PROCESSES ? peaks[PROCESSES - 1] : 1;
    *least = *least > 0 ? *least : 1;
    free(peaks);
    return true;
}

static void put_counters(struct work *work)
{
    const struct ull__figures *figures = work->input->figures;
    uint64_t least;
    uint32_t shown = 0;
    if (!find_least_peak(figures, &least)) {
        work->failed = true;
        return;
    }
    for (uint32_t p = 0; p < figures->process_count; p++)
        shown += figures->processes[p].course.peak_bytes >= least;
    shown = shown < PROCESSES ? shown : PROCESSES;
    size_t points = ALL_POINTS / (figures->device_count + shown + 1);
    points = points > POINTS ? POINTS : points < KEEPS * 4 ? KEEPS * 4 : points;
    for (uint32_t d = 0; d < figures->device_count; d++)
        put_course(work, (int)d, -1, d + 1, points);
    for (uint32_t p = 0; p < figures->process_count && shown > 0; p++) {
        if (figures->processes[p].course.peak_bytes >= least) {
            put_course(work, -1, (int)p, work->pids[p], points);
            shown--;
        }
    }
}

/* --- slices --------------------------------------------------------------------------------------------- */

static void put_stack(struct work *work, uint32_t number)
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

static void put_slice(struct work *work, size_t number)
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
        begin(work, end ? "e" : "b", name, pid, at);
        key_string(&work->json, "cat", "allocation");
        key_u64(&work->json, "id", number);
        key_u64(&work->json, "tid", pid);
        begin_args(work);
        if (end == 0) {
            key_u64(&work->json, "bytes", span->size);
            key_string(&work->json, "class", ull__class_name(kind->class));
            if (kind->device != ULL_EVENT_NO_DEVICE)
                key_u64(&work->json, "device", kind->device);
            put_stack(work, kind->stack);
        }
        end_args(work);
    }
}

/* The largest, in order of time. */
static void put_slices(struct work *work)
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
    qsort(sizes, spans->span_count, sizeof *sizes, by_size);
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

static void put_moment(struct work *work, const struct ull__event *event, size_t at)
{
    const struct ull__history *history = work->input->history;
    bool mark = event->kind == ULL_EVENT_MARK, refused = !mark && event->result != 0;
    const char *tag = ull__history_string(history, event->tag);
    begin(work, "i", mark && tag[0] ? tag : moment_name(event), work->pids[event->process],
          event->time_ns);
    key_u64(&work->json, "tid", work->pids[event->process]);
    key_string(&work->json, "cat", moment_name(event));
    key_string(&work->json, "s", refused ? "g" : "p");
    begin_args(work);
    if (!mark) {
        key_u64(&work->json, "bytes", event->size);
        key_time(&work->json, "took_us", event->latency_ns);
        if (event->tag)
            key_string(&work->json, "tag", tag);
    }
    if (refused)
        key_string(&work->json, "after",
                   ull__facts_survived(work->input->facts, at) ? "the program went on"
                                                               : "no more requests");
    end_args(work);
}

/* Budgets and host memory are counters; of too many of a sort every second, third ... is there. */
static void put_events(struct work *work, bool (*is)(const struct ull__event *),
                       void (*put)(struct work *, const struct ull__event *, size_t))
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

static void put_value(struct work *work, const char *name, uint32_t pid, uint64_t ns, uint64_t bytes)
{
    begin(work, "C", name, pid, ns);
    begin_args(work);
    key_u64(&work->json, "bytes", bytes);
    end_args(work);
}

static void put_other(struct work *work, const struct ull__event *event, size_t at)
{
    (void)at;
    if (event->kind == ULL_EVENT_HOST)
        put_value(work, "host memory", work->pids[event->process], event->time_ns, event->size);
    else
        put_value(work, "budget", event->device + 1u, event->time_ns, event->size);
}

static void put_budgets(struct work *work)
{
    const struct ull__history *history = work->input->history;
    for (uint32_t d = 0; d < history->device_count; d++) {
        if (history->devices[d].budget_bytes)
            put_value(work, "budget", d + 1, 0, history->devices[d].budget_bytes);
    }
}

/* --- all -------------------------------------------------------------------------------------------------- */

static void put_all(struct work *work)
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
    put_counters(work);
    put_slices(work);
    put_events(work, is_moment, put_moment);
    put_events(work, is_counter, put_other);
    ull__json_array_end(json);
    ull__json_object_end(json);
}

ull_status report_perfetto(const struct report_input *input, FILE *out, struct ull_error *err)
{
    struct work work = {.input = input};
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
