/*
 * replay_pool_print.c: the result of `ullage replay --pool` for people and for programs, and the figures
 * of the recorded program beside it. Those are in recorded.jsonl in the folder of the trace, one
 * object a line: bench/traces/README.md says what is in it. Only its own form is understood.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "json_keys.h"
#include "replay_pool.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- what was recorded ------------------------------------------------------------------------------- */

static bool read_figure(const char *line, const char *key, uint64_t *value)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(line, quoted);
    return at && sscanf(at + strlen(quoted), "%" SCNu64, value) == 1;
}

ull_status replay_recorded_load(const char *trace_path, struct replay_recorded *recorded,
                                struct ull_error *err)
{
    const char *name = base_name(trace_path);
    size_t folder = strlen(trace_path) - strlen(name), stem = strcspn(name, ".");
    char path[4096], wanted[300], line[4096];
    snprintf(path, sizeof path, "%.*srecorded.jsonl", (int)folder, trace_path);
    snprintf(wanted, sizeof wanted, "\"trace\": \"%.*s\"", (int)stem, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return ull__fail(err, ULL_E_NOT_FOUND, "--compare: %.300s: %m", path);
    ull_status status = ULL_E_NOT_FOUND;
    while (status == ULL_E_NOT_FOUND && fgets(line, sizeof line, file)) {
        if (!strstr(line, wanted))
            continue;
        status = read_figure(line, "peak_requested", &recorded->peak_requested_bytes) &&
                         read_figure(line, "peak_alloc", &recorded->peak_allocated_bytes) &&
                         read_figure(line, "peak_reserved", &recorded->peak_held_bytes)
                     ? ULL_OK
                     : ULL_E_FORMAT;
    }
    fclose(file);
    if (status == ULL_E_NOT_FOUND)
        return ull__fail(err, status, "--compare: %.300s has no line with %.100s", path, wanted);
    if (status == ULL_E_FORMAT)
        return ull__fail(err, status,
                         "--compare: %.300s: the line with %.100s lacks peak_requested, peak_alloc "
                         "or peak_reserved",
                         path, wanted);
    return ULL_OK;
}

/* --- output ------------------------------------------------------------------------------------------ */

static double ratio(uint64_t held, uint64_t requested)
{
    return requested ? (double)held / (double)requested : NAN;
}

static void outcome(const struct replay_pool_result *result, char text[96])
{
    if (result->failures == 0)
        snprintf(text, 96, "completed");
    else
        snprintf(text, 96, "out of memory: %" PRIu64 " of the requests, first at line %" PRIu64,
                 result->failures, result->line);
}

static void print_percentiles(struct ull_json *json, const char *key,
                              const struct replay_latency *latency)
{
    ull__json_key(json, key);
    ull__json_object(json);
    key_u64(json, "p50", latency->p50);
    key_u64(json, "p99", latency->p99);
    key_u64(json, "p999", latency->p999);
    key_u64(json, "max", latency->max);
    ull__json_object_end(json);
}

static void print_latency(struct ull_json *json, const struct replay_pool_result *result)
{
    print_percentiles(json, "latency_ns", &result->latency_ns);
    print_percentiles(json, "latency_once_ns", &result->latency_once_ns);
    ull__json_key(json, "latency_histogram");
    ull__json_array(json);
    for (int i = 0; i < REPLAY_BUCKETS; i++) {
        if (result->latency_buckets[i] == 0)
            continue;
        ull__json_object(json);
        key_u64(json, "up_to_ns", (uint64_t)1 << i);
        key_u64(json, "count", result->latency_buckets[i]);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void print_json(const char *trace_path, const struct replay_pool_request *request,
                       const struct replay_pool_result *result,
                       const struct replay_recorded *recorded)
{
    struct ull_json json;
    char text[96];
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    key_u64(&json, "version", 1);
    ull__json_key(&json, "trace");
    ull__json_string(&json, base_name(trace_path));
    ull__json_key(&json, "device");
    ull__json_string(&json, result->device);
    ull__json_key(&json, "growth");
    ull__json_bool(&json, result->growth);
    key_u64(&json, "limit_bytes", result->limit_bytes);
    key_u64(&json, "repeat", (uint64_t)request->repeat);
    key_u64(&json, "peak_requested_bytes", result->peak_requested_bytes);
    key_u64(&json, "peak_held_bytes", result->peak_held_bytes);
    key_number(&json, "ratio", ratio(result->peak_held_bytes, result->peak_requested_bytes));
    key_u64(&json, "failures", result->failures);
    key_u64(&json, "operations", result->operations);
    key_number(&json, "ns_per_operation", result->ns_per_operation);
    key_number(&json, "wall_ns_per_operation", result->wall_ns_per_operation);
    print_latency(&json, result);
    key_u64(&json, "maps", result->maps);
    key_u64(&json, "unmaps", result->unmaps);
    outcome(result, text);
    ull__json_key(&json, "outcome");
    ull__json_string(&json, text);
    if (recorded) {
        ull__json_key(&json, "recorded");
        ull__json_object(&json);
        key_u64(&json, "peak_requested_bytes", recorded->peak_requested_bytes);
        key_u64(&json, "peak_allocated_bytes", recorded->peak_allocated_bytes);
        key_u64(&json, "peak_held_bytes", recorded->peak_held_bytes);
        key_number(&json, "ratio", ratio(recorded->peak_held_bytes, recorded->peak_requested_bytes));
        ull__json_object_end(&json);
    }
    ull__json_object_end(&json);
    ull__json_finish(&json);
}

static void print_histogram(const struct replay_pool_result *result)
{
    static const char bar[] = "########################################";
    uint64_t most = 1;
    for (int i = 0; i < REPLAY_BUCKETS; i++)
        most = result->latency_buckets[i] > most ? result->latency_buckets[i] : most;
    for (int i = 0; i < REPLAY_BUCKETS; i++) {
        uint64_t count = result->latency_buckets[i];
        if (count)
            printf("  up to %10" PRIu64 " ns  %10" PRIu64 " %.*s\n", (uint64_t)1 << i, count,
                   (int)(count * (sizeof bar - 1) / most), bar);
    }
}

static void print_latency_line(const char *name, const struct replay_latency *latency)
{
    printf("%-20s p50 %" PRIu64 ", p99 %" PRIu64 ", p99.9 %" PRIu64 ", max %" PRIu64 " ns\n", name,
           latency->p50, latency->p99, latency->p999, latency->max);
}

static void print_table(const char *trace_path, const struct replay_pool_result *result,
                        const struct replay_recorded *recorded)
{
    char requested[ULL_SIZE_TEXT], held[ULL_SIZE_TEXT], limit[ULL_SIZE_TEXT], text[96];
    printf("trace                %s, %" PRIu64 " operations\n", base_name(trace_path),
           result->operations);
    printf("device               %s\n", result->device);
    printf("limit                %s, %s\n", ull__size_text(result->limit_bytes, limit),
           result->growth ? "growing" : "taken at the start");
    printf("peak requested       %s\n", ull__size_text(result->peak_requested_bytes, requested));
    printf("peak held            %s, %.4f of the requested\n",
           ull__size_text(result->peak_held_bytes, held),
           ratio(result->peak_held_bytes, result->peak_requested_bytes));
    if (recorded)
        printf("recorded program     %s, %.4f of the requested\n",
               ull__size_text(recorded->peak_held_bytes, held),
               ratio(recorded->peak_held_bytes, recorded->peak_requested_bytes));
    outcome(result, text);
    printf("failures             %" PRIu64 "\n", result->failures);
    printf("maps, unmaps         %" PRIu64 ", %" PRIu64 "\n", result->maps, result->unmaps);
    printf("time an operation    %.1f ns of the processor, %.1f ns elapsed\n",
           result->ns_per_operation, result->wall_ns_per_operation);
    print_latency_line("latency", &result->latency_ns);
    print_latency_line("  timed once", &result->latency_once_ns);
    print_histogram(result);
    printf("outcome              %s\n", text);
}

void replay_pool_print(const char *trace_path, const struct replay_pool_request *request,
                       const struct replay_pool_result *result,
                       const struct replay_recorded *recorded, enum output_format format)
{
    if (format == OUTPUT_JSON)
        print_json(trace_path, request, result, recorded);
    else
        print_table(trace_path, result, recorded);
}
