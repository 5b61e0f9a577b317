/* torch.c: see torch.h. The whole of a snapshot: its devices, its times, what belongs to no device. */
#include "torch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "torch_private.h"

enum { MOST_DEVICES = 255 };
static const uint64_t last_time_us = UINT64_C(9000000000000000); /* in the year 2255 */
static const uint64_t most_allocated = UINT64_C(1) << 62;

bool ull__torch_broken(struct torch *t, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    t->status = ull__fail(t->err, ULL_E_FORMAT, "'%.200s' is no snapshot of PyTorch's memory: %s",
                          t->file, what);
    return false;
}

bool ull__torch_no_memory(struct torch *t)
{
    t->status = ull__fail(t->err, ULL_E_SYSTEM, "no memory for the events of '%.200s'", t->file);
    return false;
}

enum torch_action ull__torch_action(const struct torch *t, ull__pickled entry)
{
    ull__pickled action = ull__torch_at(entry, t->keys.action);
    for (unsigned int i = TORCH_other + 1; action != ULL_PICKLED_MISSING && i < TORCH_ACTION_COUNT;
         i++)
        if (t->actions[i] == action)
            return (enum torch_action)i;
    return TORCH_other;
}

bool ull__torch_time(const struct torch *t, ull__pickled entry, uint64_t *time_us)
{
    int64_t time;
    if (!ull__pickled_i64(ull__torch_at(entry, t->keys.time_us), &time) || time < 0 ||
        (uint64_t)time > last_time_us)
        return false;
    *time_us = (uint64_t)time;
    return true;
}

bool ull__torch_is_text(ull__pickled value, const char *text)
{
    const char *found;
    size_t size;
    return ull__pickled_string(value, &found, &size) && size == strlen(text) &&
           memcmp(found, text, size) == 0;
}

bool ull__torch_add(struct torch *t, const struct ull__event *event)
{
    t->allocated += event->size + (uint64_t)event->charged; /* each at most 2^48 */
    if (t->allocated > most_allocated || t->history->event_count >= UINT32_MAX - 1)
        return ull__torch_broken(t, "its blocks have more than 4 EiB together");
    return ull__history_add(t->history, event) || ull__torch_no_memory(t);
}

/* --- devices ------------------------------------------------------------------------------------------ */

static bool has_entries(ull__pickled list)
{
    struct ull__pickled_walk walk;
    ull__pickled value;
    ull__pickled_walk(&walk, list);
    return ull__pickled_next(&walk, &value);
}

static struct torch_device *device_at(struct torch *t, int64_t index)
{
    if (index < 0 || index >= MOST_DEVICES) {
        ull__torch_broken(t, "device number %" PRId64 ": 0 to %d are expected", index,
                          MOST_DEVICES - 1);
        return NULL;
    }
    if ((uint64_t)index >= t->device_count) {
        struct torch_device *grown = realloc(t->devices, ((size_t)index + 1) * sizeof *grown);
        if (!grown) {
            ull__torch_no_memory(t);
            return NULL;
        }
        t->devices = grown;
        for (; t->device_count <= (uint64_t)index; t->device_count++)
            grown[t->device_count] = (struct torch_device){.index = (int)t->device_count};
    }
    return &t->devices[index];
}

/* What kind of trace it is, before it is played. */
static void look_ahead(struct torch *t, struct torch_device *d)
{
    struct ull__pickled_walk walk;
    ull__pickled entry;
    bool completes = false, requests = false;
    for (ull__pickled_walk(&walk, d->trace); ull__pickled_next(&walk, &entry);) {
        enum torch_action action = ull__torch_action(t, entry);
        completes = completes || action == TORCH_free_completed;
        requests = requests || action == TORCH_free_requested;
        d->has_segments =
            d->has_segments || (action >= TORCH_segment_alloc && action <= TORCH_segment_unmap);
        uint64_t time_us;
        if (ull__torch_time(t, entry, &time_us) && (!t->has_time || time_us < t->first_us)) {
            t->first_us = time_us;
            t->has_time = true;
        }
    }
    d->frees_at_request = requests && !completes;
}

static bool find_devices(struct torch *t, ull__pickled traces)
{
    struct ull__pickled_walk walk;
    ull__pickled value;
    int64_t index = 0;
    for (ull__pickled_walk(&walk, traces); ull__pickled_next(&walk, &value); index++) {
        struct torch_device *d = device_at(t, index);
        if (!d)
            return false;
        d->trace = value;
        look_ahead(t, d);
    }
    index = 0;
    for (ull__pickled_walk(&walk, t->segments); ull__pickled_next(&walk, &value); index++) {
        if (ull__pickled_kind(value) != ULL_PICKLED_DICT)
            return ull__torch_broken(t, "segment %" PRId64 " is no dict", index);
        int64_t device = 0;
        ull__pickled_i64(ull__torch_at(value, t->keys.device), &device);
        struct torch_device *d = device_at(t, device);
        if (!d)
            return false;
        d->has_segments = d->has_final = true;
    }
    return true;
}

static bool play_devices(struct torch *t)
{
    for (uint32_t i = 0; i < t->device_count; i++) {
        struct torch_device *d = &t->devices[i];
        if (!d->has_final && !has_entries(d->trace))
            continue;
        char name[24];
        int size = snprintf(name, sizeof name, "cuda:%d", d->index);
        struct ull__history_device device = {
            .name = ull__history_text(t->history, name, (size_t)size),
            .logical = d->index,
            .physical = -1,
        };
        uint32_t number =
            device.name == UINT32_MAX ? UINT32_MAX : ull__history_device(t->history, &device);
        if (number == UINT32_MAX)
            return ull__torch_no_memory(t);
        d->number = (uint8_t)number;
        if (!ull__torch_device(t, d))
            return false;
    }
    return true;
}

/* --- what belongs to no device ------------------------------------------------------------------------ */

static uint64_t absolute_ns(uint64_t time_us)
{
    return TORCH_FIRST_NS + time_us * 1000;
}

static bool annotation(struct torch *t, ull__pickled entry)
{
    const char *name;
    size_t size;
    uint64_t time_us;
    int64_t index = -1;
    if (!ull__pickled_string(ull__torch_at(entry, t->keys.name), &name, &size) ||
        !ull__torch_time(t, entry, &time_us))
        return true;
    uint32_t tag = ull__torch_text(t, ull__torch_at(entry, t->keys.name));
    if (ull__torch_is_text(ull__torch_at(entry, t->keys.stage), "END")) {
        char text[256];
        int length = snprintf(text, sizeof text, "%.240s end", name);
        tag = ull__history_text(t->history, text, (size_t)length);
    }
    if (tag == UINT32_MAX)
        return ull__torch_no_memory(t);
    ull__pickled_i64(ull__torch_at(entry, t->keys.device), &index);
    bool known = index >= 0 && index < t->device_count &&
                 (t->devices[index].has_final || has_entries(t->devices[index].trace));
    return ull__torch_add(
        t, &(struct ull__event){.time_ns = absolute_ns(time_us),
                                .tag = tag,
                                .kind = ULL_EVENT_MARK,
                                .device = known ? t->devices[index].number : ULL_EVENT_NO_DEVICE});
}

/* The oldest annotation may be older than the oldest entry. */
static bool annotations(struct torch *t, ull__pickled list)
{
    struct ull__pickled_walk walk;
    ull__pickled entry;
    for (ull__pickled_walk(&walk, list); ull__pickled_next(&walk, &entry);)
        if (!annotation(t, entry))
            return false;
    return true;
}

/* --- pinned host memory ------------------------------------------------------------------------------- */

/* By how much an entry changes what is pinned: by segments if the trace tells of them, else by blocks. */
static int64_t host_change(const struct torch *t, ull__pickled entry, bool by_segments)
{
    uint64_t size = 0;
    ull__pickled_u64(ull__torch_at(entry, t->keys.size), &size);
    if (size > most_allocated >> 16)
        return 0;
    switch (ull__torch_action(t, entry)) {
    case TORCH_segment_alloc:
    case TORCH_segment_map:
        return by_segments ? (int64_t)size : 0;
    case TORCH_segment_free:
    case TORCH_segment_unmap:
        return by_segments ? -(int64_t)size : 0;
    case TORCH_alloc:
        return by_segments ? 0 : (int64_t)size;
    case TORCH_free_completed:
        return by_segments ? 0 : -(int64_t)size;
    default:
        return 0;
    }
}

struct host {
    bool by_segments;
    int64_t pinned, lowest;
    bool write; /* events; else it is only summed up */
};

/* Entries may lie in one list, or in a list of lists. */
static bool host_trace(struct torch *t, ull__pickled list, struct host *host)
{
    struct ull__pickled_walk walk;
    ull__pickled entry;
    for (ull__pickled_walk(&walk, list); ull__pickled_next(&walk, &entry);) {
        int64_t change = host_change(t, entry, host->by_segments);
        uint64_t time_us;
        if (change == 0 || host->pinned + change > (int64_t)(most_allocated >> 1) ||
            host->pinned + change < -(int64_t)(most_allocated >> 1))
            continue;
        host->pinned += change;
        if (host->pinned < host->lowest)
            host->lowest = host->pinned;
        if (!host->write || !ull__torch_time(t, entry, &time_us))
            continue;
        struct ull__event event = {.time_ns = absolute_ns(time_us),
                                   .size = host->pinned > 0 ? (uint64_t)host->pinned : 0,
                                   .kind = ULL_EVENT_HOST,
                                   .device = ULL_EVENT_NO_DEVICE};
        if (!ull__history_add(t->history, &event))
            return ull__torch_no_memory(t);
    }
    return true;
}

static bool host_traces(struct torch *t, ull__pickled traces, struct host *host)
{
    struct ull__pickled_walk walk;
    ull__pickled trace;
    ull__pickled_walk(&walk, traces);
    if (!ull__pickled_next(&walk, &trace))
        return true;
    if (ull__pickled_kind(trace) == ULL_PICKLED_DICT)
        return host_trace(t, traces, host);
    do
        if (!host_trace(t, trace, host))
            return false;
    while (ull__pickled_next(&walk, &trace));
    return true;
}

static bool tells_of_segments(const struct torch *t, ull__pickled traces, int depth)
{
    struct ull__pickled_walk walk;
    ull__pickled entry;
    for (ull__pickled_walk(&walk, traces); ull__pickled_next(&walk, &entry);) {
        enum torch_action action = ull__torch_action(t, entry);
        if (action >= TORCH_segment_alloc && action <= TORCH_segment_unmap)
            return true;
        if (depth > 0 && ull__pickled_kind(entry) == ULL_PICKLED_LIST &&
            tells_of_segments(t, entry, depth - 1))
            return true;
    }
    return false;
}

/* What was pinned before the trace: what is at the end, less what the trace added; at least what it freed. */
static bool host_memory(struct torch *t, ull__pickled traces, ull__pickled segments)
{
    struct host host = {.by_segments = tells_of_segments(t, traces, 1)};
    struct ull__pickled_walk walk;
    ull__pickled segment;
    uint64_t at_end = 0;
    if (!has_entries(traces))
        return true;
    for (ull__pickled_walk(&walk, segments); ull__pickled_next(&walk, &segment);) {
        uint64_t size = 0;
        if (!ull__pickled_u64(ull__torch_at(segment, t->keys.total_size), &size))
            ull__pickled_u64(ull__torch_at(segment, t->keys.size), &size);
        if (size < most_allocated >> 16 && at_end < most_allocated >> 1)
            at_end += size;
    }
    if (!host_traces(t, traces, &host))
        return false;
    int64_t before = (int64_t)at_end - host.pinned;
    host.pinned = before > -host.lowest ? before : -host.lowest;
    host.write = true;
    struct ull__event first = {
        .size = (uint64_t)host.pinned, .kind = ULL_EVENT_HOST, .device = ULL_EVENT_NO_DEVICE};
    return (ull__history_add(t->history, &first) || ull__torch_no_memory(t)) &&
           host_traces(t, traces, &host);
}

/* --- the whole ---------------------------------------------------------------------------------------- */

static bool is_row(ull__pickled value)
{
    enum ull__pickled_kind kind = ull__pickled_kind(value);
    return kind == ULL_PICKLED_LIST || kind == ULL_PICKLED_TUPLE;
}

static bool fill(struct torch *t, ull__pickled root)
{
    ull__pickled traces = ull__torch_at(root, t->keys.device_traces);
    t->segments = is_row(root) ? root : ull__torch_at(root, t->keys.segments);
    if (t->segments == ULL_PICKLED_MISSING && traces == ULL_PICKLED_MISSING)
        return ull__torch_broken(t, "it is a pickle with neither 'segments' nor 'device_traces'");
    if ((t->segments != ULL_PICKLED_MISSING && !is_row(t->segments)) ||
        (traces != ULL_PICKLED_MISSING && !is_row(traces)))
        return ull__torch_broken(t, "its 'segments' or 'device_traces' are no list");
    struct ull__history_process process = {.exit_code = -1};
    process.name = ull__history_text(t->history, "PyTorch", 7);
    t->history->version = ull__history_text(t->history, "PyTorch snapshot", 16);
    if (process.name == UINT32_MAX || t->history->version == UINT32_MAX)
        return ull__torch_no_memory(t);
    if (!find_devices(t, traces) || !play_devices(t))
        return false;
    process.end_ns = absolute_ns(t->end_us);
    if (ull__history_process(t->history, &process) == UINT32_MAX)
        return ull__torch_no_memory(t);
    return annotations(t, ull__torch_at(root, t->keys.external_annotations)) &&
           host_memory(t, ull__torch_at(root, t->keys.host_traces),
                       ull__torch_at(root, t->keys.host_segments));
}

/* The oldest entries of a full ring are gone: how many is not told. */
static bool mark_lost(struct torch *t, ull__pickled root)
{
    bool lost = false;
    ull__pickled settings = ull__torch_at(root, t->keys.allocator_settings);
    ull__pickled_bool(ull__torch_at(settings, t->keys.trace_alloc_overflowed), &lost);
    if (!lost)
        return true;
    static const char text[] = "older entries were lost: the trace was full";
    uint32_t tag = ull__history_text(t->history, text, sizeof text - 1);
    return tag != UINT32_MAX &&
           ull__history_add(t->history, &(struct ull__event){.tag = tag,
                                                             .kind = ULL_EVENT_MARK,
                                                             .device = ULL_EVENT_NO_DEVICE});
}

static ull_status convert(struct ull__pickle *pickle, const char *name,
                          struct ull__history **history, struct ull_error *err)
{
    struct torch t = {.file = name, .pickle = pickle, .err = err, .history = ull__history_create()};
#define X(key) t.keys.key = ull__pickle_text(pickle, #key);
    TORCH_KEYS(X)
#undef X
#define X(key) t.actions[TORCH_##key] = ull__pickle_text(pickle, #key);
    TORCH_ACTIONS(X)
#undef X
    ull__pickled root = ull__pickle_root(pickle);
    bool good = t.history ? fill(&t, root) && (mark_lost(&t, root) || ull__torch_no_memory(&t))
                          : ull__torch_no_memory(&t);
    for (uint32_t i = 0; i < t.device_count; i++)
        ull__torch_device_finish(&t.devices[i]);
    free(t.devices);
    ull__map_finish(&t.names);
    ull__map_finish(&t.stacks);
    ull__pickle_destroy(pickle); /* before the events are sorted, which takes memory again */
    if (good) {
        t.history->origin = ULL_ORIGIN_TORCH;
        t.history->unix_ns = t.has_time ? t.first_us * 1000 : 0;
        t.history->end_ns = absolute_ns(t.end_us);
        t.status = ull__history_finish(t.history, absolute_ns(t.first_us), err);
    }
    if (t.status != ULL_OK) {
        ull__history_destroy(t.history);
        return t.status;
    }
    *history = t.history;
    return ULL_OK;
}

/* The reader's message, with the file's name in front. */
static ull_status unreadable(ull_status status, const char *name, const struct ull_error *why,
                             struct ull_error *err)
{
    if (status != ULL_E_FORMAT)
        return ull__fail(err, status, "%.500s", why->message);
    return ull__fail(err, status, "cannot read '%.200s' as a snapshot of PyTorch's: %.270s", name,
                     why->message);
}

ull_status ull__history_from_torch(const char *path, struct ull__history **history,
                                   struct ull_error *err)
{
    struct ull__pickle *pickle;
    struct ull_error why = {""};
    ull_status status = ull__unpickle(path, &pickle, &why);
    return status == ULL_OK ? convert(pickle, path, history, err)
                            : unreadable(status, path, &why, err);
}

ull_status ull__history_from_torch_bytes(const void *data, size_t size, const char *name,
                                         struct ull__history **history, struct ull_error *err)
{
    struct ull__pickle *pickle;
    struct ull_error why = {""};
    ull_status status = ull__unpickle_bytes(data, size, &pickle, &why);
    return status == ULL_OK ? convert(pickle, name, history, err)
                            : unreadable(status, name, &why, err);
}

bool ull__is_torch(const void *first_bytes, size_t size)
{
    const unsigned char *at = first_bytes;
    if (size < 3 || at[0] != 0x80 || at[1] < 2 || at[1] > 5)
        return false;
    size_t next = at[2] == 0x95 ? 11 : 2; /* behind a frame's length */
    return size > next && (at[next] == '}' || at[next] == ']');
}
