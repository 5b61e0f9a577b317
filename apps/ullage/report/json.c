/* json.c: `ullage report -f json`. Bytes, seconds and ratios; what is not known is null. */
#include <math.h>
#include <string.h>

#include "error.h"
#include "json_keys.h"
#include "report.h"

static void key_text(struct ull_json *json, const char *key, const struct ull__history *history,
                     uint32_t text)
{
    key_string(json, key, text ? ull__history_string(history, text) : NULL);
}

static void key_seconds(struct ull_json *json, const char *key, uint64_t ns)
{
    key_number(json, key, (double)ns / 1e9);
}

static void course(struct ull_json *json, const struct ull__course *course)
{
    bool any = course->peak_event != ULL_NO_EVENT;
    key_u64(json, "peak_bytes", course->peak_bytes);
    ull__json_key(json, "peak_seconds");
    if (any)
        ull__json_number(json, (double)course->peak_ns / 1e9);
    else
        ull__json_null(json);
    key_maybe(json, "average_bytes", !any || !isnan(course->peak_to_average), course->average_bytes);
    key_number(json, "peak_to_average", course->peak_to_average);
    key_u64(json, "live_peak_bytes", course->live_peak_bytes);
    key_classes(json, "peak_by_class", course->peak_by_class);
}

static void latency(struct ull_json *json, const char *key, const struct ull__latency *latency)
{
    ull__json_key(json, key);
    ull__json_object(json);
    key_number(json, "p50", latency->p50);
    key_number(json, "p99", latency->p99);
    key_number(json, "max", latency->max);
    ull__json_object_end(json);
}

/* --- parts ---------------------------------------------------------------------------------------------- */

static void about(struct ull_json *json, const struct report_input *input)
{
    const struct ull__history *history = input->history;
    key_u64(json, "version", 1);
    key_string(json, "ullage", ULLAGE_VERSION);
    key_string(json, "file", input->path);
    key_string(json, "origin", history->origin == ULL_ORIGIN_TORCH ? "torch" : "record");
    key_text(json, "job", history, history->job);
    key_text(json, "command", history, history->command);
    key_text(json, "written_by", history, history->version);
    key_maybe(json, "started_unix_seconds", history->unix_ns > 0, history->unix_ns / 1000000000);
    key_seconds(json, "seconds", history->end_ns);
    key_bool(json, "over", history->over);
    key_u64(json, "events", history->event_count);
    key_u64(json, "dropped", history->dropped);
    key_bool(json, "truncated", history->truncated);
    key_maybe(json, "truncated_offset", history->truncated, history->broken_offset);
    key_u64(json, "torn_blocks", history->torn_blocks);
    key_string(json, "role", input->role == ULL_ROLE_INFERENCE ? "inference" : "training");
}

/* Those that scripts rely on, of the device that held most. */
static void main_figures(struct ull_json *json, const struct report_input *input)
{
    const struct ull__figures *figures = input->figures;
    const struct ull__device_figures *device =
        figures->main >= 0 ? &figures->devices[figures->main] : NULL;
    const struct ull__latency *calls = figures->driver.count ? &figures->driver : &figures->chunks;
    course(json, device ? &device->course : &figures->all);
    key_number(json, "fragmentation", device ? device->fragmentation : (double)NAN);
    latency(json, "latency_seconds", calls);
    key_maybe(json, "suggested_bytes", device && device->suggested_bytes > 0 && !device->preallocated,
              device ? device->suggested_bytes : 0);
    key_maybe(json, "smallest_bytes", device && !device->preallocated,
              device ? device->needed_bytes : 0);
    ull__json_key(json, "alone");
    if (device && device->alone != ULL_ALONE_UNKNOWN)
        ull__json_bool(json, device->alone == ULL_ALONE_YES);
    else
        ull__json_null(json);
}

void report_json_verdict(struct ull_json *json, const struct ull__verdict *verdict, const char *prefix)
{
    char key[64];
    const char *names[] = {"verdict", "confidence", "evidence"};
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, names[i]);
        ull__json_key(json, key);
        if (i == 0)
            ull__json_string(json, verdict ? ull__verdict_name(verdict->kind) : NULL);
        else if (i == 1 && !verdict)
            ull__json_null(json);
        else if (i == 1)
            ull__json_number(json, verdict->confidence);
        else {
            ull__json_array(json);
            for (int e = 0; verdict && e < verdict->evidence_count; e++)
                ull__json_string(json, verdict->evidence[e]);
            ull__json_array_end(json);
        }
    }
}

static void period(struct ull_json *json, const struct ull__verdict *verdict)
{
    key_maybe(json, "periods", verdict->periods > 0, verdict->periods);
    key_number(json, "period_seconds", verdict->period_seconds);
    key_number(json, "growth_bytes_per_period", verdict->bytes_per_period);
    key_number(json, "growth_bytes_per_second", verdict->bytes_per_second);
}

static void pressure(struct ull_json *json, const struct ull__pressure *pressure)
{
    static const char *const waits[] = {"books", "stream", "trim", "others", "merge", "retry"};
    ull__json_key(json, "pressure");
    ull__json_object(json);
    key_u64(json, "waited_requests", pressure->waited);
    key_number(json, "waited_seconds", pressure->waited_seconds);
    ull__json_key(json, "waited_for");
    ull__json_object(json);
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        key_u64(json, waits[i], pressure->by_wait[i]);
    ull__json_object_end(json);
    key_u64(json, "refusals", pressure->refusals);
    key_u64(json, "refusals_survived", pressure->survived);
    key_maybe(json, "more_bytes", pressure->more_bytes > 0, pressure->more_bytes);
    ull__json_object_end(json);
}

static void stack(struct ull_json *json, const struct ull__history *history, uint32_t number)
{
    const struct ull__stack *stack = &history->stacks[number];
    ull__json_key(json, "stack");
    ull__json_array(json);
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ull__frame *frame = &history->frames[stack->first + i];
        ull__json_object(json);
        key_text(json, "function", history, frame->function);
        key_text(json, "file", history, frame->file);
        key_maybe(json, "line", frame->line > 0, frame->line);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void holders(struct ull_json *json, const struct report_input *input)
{
    const struct ull__figures *figures = input->figures;
    ull__json_key(json, "holders");
    ull__json_array(json);
    for (int i = 0; i < figures->holder_count; i++) {
        const struct ull__holder *holder = &figures->holders[i];
        ull__json_object(json);
        key_u64(json, "bytes", holder->bytes);
        key_u64(json, "count", holder->count);
        key_u64(json, "largest_bytes", holder->largest);
        key_text(json, "tag", input->history, holder->tag);
        key_string(json, "class", ull__class_name(holder->class));
        key_string(json, "layer", holder->layer == ULL_LAYER_CHUNK ? "allocator" : "driver");
        key_u64(json, "device", holder->device);
        key_u64(json, "pid", input->history->processes[holder->process].pid);
        key_seconds(json, "age_seconds",
                    figures->holder_ns > holder->since_ns ? figures->holder_ns - holder->since_ns
                                                          : 0);
        stack(json, input->history, holder->stack);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
    key_u64(json, "holders_rest_bytes", figures->rest_bytes);
    key_u64(json, "holders_charged_bytes", figures->charged_bytes);
}

static void buckets(struct ull_json *json, const char *key, const char *bound,
                    const uint64_t *counts, const uint64_t *bytes, int count, int shift, double unit)
{
    ull__json_key(json, key);
    ull__json_array(json);
    for (int i = 0; i < count; i++) {
        if (counts[i] == 0)
            continue;
        ull__json_object(json);
        key_number(json, bound, i == 0 ? 0 : (double)(1ull << i * shift) * unit);
        key_u64(json, "count", counts[i]);
        key_u64(json, "bytes", bytes[i]);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void devices(struct ull_json *json, const struct report_input *input)
{
    ull__json_key(json, "devices");
    ull__json_array(json);
    for (uint32_t d = 0; d < input->figures->device_count; d++) {
        const struct ull__history_device *device = &input->history->devices[d];
        const struct ull__device_figures *figures = &input->figures->devices[d];
        ull__json_object(json);
        key_index(json, "logical", device->logical);
        key_index(json, "physical", device->physical);
        key_text(json, "uuid", input->history, device->uuid);
        key_text(json, "name", input->history, device->name);
        key_maybe(json, "total_bytes", figures->total_bytes > 0, figures->total_bytes);
        key_maybe(json, "budget_bytes", figures->budget_bytes > 0, figures->budget_bytes);
        course(json, &figures->course);
        key_number(json, "fragmentation", figures->fragmentation);
        key_number(json, "free_share", figures->free_share);
        key_maybe(json, "suggested_bytes", figures->suggested_bytes > 0 && !figures->preallocated,
                  figures->suggested_bytes);
        key_maybe(json, "smallest_bytes", !figures->preallocated, figures->needed_bytes);
        key_bool(json, "stopped_short", figures->stopped_short);
        key_bool(json, "preallocated", figures->preallocated);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void processes(struct ull_json *json, const struct report_input *input)
{
    ull__json_key(json, "processes");
    ull__json_array(json);
    for (uint32_t p = 0; p < input->figures->process_count; p++) {
        const struct ull__history_process *process = &input->history->processes[p];
        const struct ull__process_figures *figures = &input->figures->processes[p];
        ull__json_object(json);
        key_u64(json, "pid", process->pid);
        key_maybe(json, "parent_pid", process->parent > 0, process->parent);
        key_text(json, "command", input->history, process->name);
        ull__json_key(json, "exit_code");
        if (process->ended && process->exit_code >= 0)
            ull__json_i64(json, process->exit_code);
        else
            ull__json_null(json);
        course(json, &figures->course);
        key_u64(json, "allocations", figures->allocs);
        key_u64(json, "frees", figures->frees);
        key_u64(json, "refusals", figures->refusals);
        key_u64(json, "dropped", process->dropped);
        key_maybe(json, "host_peak_bytes", figures->host_samples > 0, figures->host_peak);
        key_maybe(json, "host_last_bytes", figures->host_samples > 0, figures->host_last);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

/* --- diff ------------------------------------------------------------------------------------------------ */

static ull_status diff(struct ull_json *json, const struct report_input *input, struct ull_error *err)
{
    const struct report_input *before = input->before;
    struct ull__diff *diff;
    ull_status status =
        ull__diff_create(before->facts, before->figures, input->facts, input->figures, &diff, err);
    if (status != ULL_OK)
        return status;
    ull__json_key(json, "diff");
    ull__json_object(json);
    key_string(json, "file", before->path);
    for (int way = 0; way < ULL_DIFF_WAYS; way++) {
        ull__json_key(json, ull__diff_way((enum ull__diff_by)way));
        ull__json_array(json);
        for (size_t i = 0; i < diff->counts[way]; i++) {
            const struct ull__diff_row *row = &diff->rows[way][i];
            ull__json_object(json);
            key_string(json, "name", row->name);
            key_u64(json, "before_bytes", row->before_bytes);
            key_u64(json, "after_bytes", row->after_bytes);
            key_u64(json, "before_count", row->before_count);
            key_u64(json, "after_count", row->after_count);
            ull__json_object_end(json);
        }
        ull__json_array_end(json);
    }
    ull__json_object_end(json);
    ull__diff_destroy(diff);
    return ULL_OK;
}

ull_status report_json(const struct report_input *input, FILE *out, struct ull_error *err)
{
    const struct ull__figures *figures = input->figures;
    struct ull_json json;
    ull__json_init(&json, out);
    ull__json_object(&json);
    about(&json, input);
    main_figures(&json, input);
    report_json_verdict(&json, input->verdict, "");
    period(&json, input->verdict);
    report_json_verdict(&json, input->host_verdict, "host_");
    pressure(&json, &figures->pressure);
    latency(&json, "allocator_latency_seconds", &figures->chunks);
    holders(&json, input);
    buckets(&json, "sizes", "from_bytes", figures->sizes, figures->size_bytes, ULL_SIZE_BUCKETS, 1,
            1);
    buckets(&json, "lifetimes", "from_seconds", figures->ages, figures->age_bytes, ULL_AGE_BUCKETS,
            2, 1e-6);
    key_u64(&json, "never_freed", figures->never_freed);
    key_u64(&json, "never_freed_bytes", figures->never_freed_bytes);
    devices(&json, input);
    processes(&json, input);
    ull_status status = input->before ? diff(&json, input, err) : ULL_OK;
    ull__json_object_end(&json);
    bool good = ull__json_finish(&json) || ferror(out); /* what the stream refuses its owner tells */
    ull__json_free(&json);
    if (status != ULL_OK)
        return status;
    return good ? ULL_OK : ull__fail(err, ULL_E_SYSTEM, "no memory for the report");
}
