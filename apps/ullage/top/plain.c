/* plain.c: see plain.h. */
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>

#include "json.h"

bool plain_table(const struct sample *sample, const struct view *view, int width, bool ascii)
{
    struct grid grid;
    char *line = malloc(4 * (size_t)width + 8);
    if (!line)
        return false;
    bool good = layout_whole(&grid, sample, view, width, ascii);
    for (int y = 0; good && y < grid.height; y++) {
        grid_line(&grid, y, line, 4 * (size_t)width + 8);
        good = puts(line) >= 0;
    }
    if (grid.cells)
        grid_finish(&grid);
    free(line);
    return good && fflush(stdout) == 0;
}

static void bytes(struct ull_json *json, const char *key, uint64_t value)
{
    ull__json_key(json, key);
    if (value == SAMPLE_UNKNOWN)
        ull__json_null(json);
    else
        ull__json_u64(json, value);
}

static void text(struct ull_json *json, const char *key, const char *value)
{
    ull__json_key(json, key);
    ull__json_string(json, value[0] ? value : NULL);
}

static void number(struct ull_json *json, const char *key, int value)
{
    ull__json_key(json, key);
    if (value < 0)
        ull__json_null(json);
    else
        ull__json_i64(json, value);
}

static void device(struct ull_json *json, const struct sample_device *device)
{
    ull__json_object(json);
    number(json, "physical", device->physical);
    number(json, "instance", device->instance);
    text(json, "uuid", device->uuid);
    text(json, "name", device->name);
    ull__json_key(json, "divided");
    ull__json_bool(json, device->divided);
    bytes(json, "total_bytes", device->total_bytes);
    bytes(json, "used_bytes", device->used_bytes);
    bytes(json, "reserved_bytes", device->reserved_bytes);
    bytes(json, "free_bytes", device->free_bytes);
    bytes(json, "job_bytes", device->job_bytes);
    bytes(json, "other_bytes", device->other_bytes);
    ull__json_key(json, "busy");
    if (device->busy_percent < 0)
        ull__json_null(json);
    else
        ull__json_number(json, device->busy_percent / 100.0);
    ull__json_object_end(json);
}

static void shares(struct ull_json *json, const struct sample *sample, struct sample_span span,
                   bool of_job)
{
    ull__json_key(json, "devices");
    ull__json_array(json);
    for (int i = 0; i < span.count; i++) {
        const struct sample_share *share = &sample->shares[span.first + i];
        ull__json_object(json);
        text(json, "uuid", sample->devices[share->device].uuid);
        number(json, "logical", share->logical);
        if (of_job) {
            bytes(json, "budget_bytes", share->budget_bytes);
            bytes(json, "evicted_bytes", share->evicted_bytes);
        }
        bytes(json, "held_bytes", share->usage.held_bytes);
        bytes(json, "peak_bytes", share->usage.peak_bytes);
        ull__json_key(json, "by_class");
        ull__json_object(json);
        for (int c = 0; c < ULL_CLASSES; c++)
            bytes(json, ull__class_name((enum ull__class)c), share->usage.by_class[c]);
        ull__json_object_end(json);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void verdict(struct ull_json *json, const struct trend *trend)
{
    ull__json_key(json, "verdict");
    ull__json_string(json, trend_verdict(trend) ? trend_verdict_name(trend_verdict(trend)) : NULL);
}

static void process(struct ull_json *json, const struct sample *sample,
                    const struct sample_process *process)
{
    ull__json_object(json);
    bytes(json, "pid", process->pid);
    bytes(json, "parent",
          process->parent < 0 ? SAMPLE_UNKNOWN : sample->processes[process->parent].pid);
    text(json, "kind", sample_kind_name(process->kind));
    ull__json_key(json, "pid_is_ours");
    ull__json_bool(json, process->place != PROC_UNSEEN);
    text(json, "user", process->user);
    text(json, "command", process->command);
    bytes(json, "held_bytes", process->held_bytes);
    bytes(json, "peak_bytes", process->peak_bytes);
    verdict(json, &process->trend);
    shares(json, sample, process->shares, false);
    ull__json_object_end(json);
}

static void job(struct ull_json *json, const struct sample *sample, const struct sample_job *job)
{
    ull__json_object(json);
    text(json, "name", job->name);
    text(json, "id", job->id);
    ull__json_key(json, "account");
    ull__json_u64(json, job->account);
    text(json, "inside", job->parent < 0 ? "" : sample->jobs[job->parent].name);
    text(json, "command", job->command);
    text(json, "user", job->user);
    bytes(json, "pid", job->pid);
    text(json, "state", ull__job_state_name(job->state));
    ull__json_key(json, "priority");
    ull__json_i64(json, job->priority);
    bytes(json, "budget_bytes", job->budget_bytes);
    bytes(json, "held_bytes", job->held_bytes);
    bytes(json, "peak_bytes", job->peak_bytes);
    ull__json_key(json, "use");
    ull__json_number(json, job->fill);
    verdict(json, &job->trend);
    bytes(json, "refusals", job->refusals);
    shares(json, sample, job->shares, true);
}

/* Rows in their order: a job's object stays open for its processes. */
static void rows(struct ull_json *json, const struct sample *sample, const struct rows *rows)
{
    int at = 0;
    ull__json_key(json, "jobs");
    ull__json_array(json);
    while (at < rows->count && rows->row[at].kind == ROW_JOB) {
        job(json, sample, &sample->jobs[rows->row[at++].job]);
        ull__json_key(json, "processes");
        ull__json_array(json);
        for (; at < rows->count && rows->row[at].kind == ROW_PROCESS; at++)
            process(json, sample, &sample->processes[rows->row[at].process]);
        ull__json_array_end(json);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
    ull__json_key(json, "in_no_job");
    ull__json_array(json);
    for (; at < rows->count; at++)
        if (rows->row[at].kind == ROW_PROCESS)
            process(json, sample, &sample->processes[rows->row[at].process]);
    ull__json_array_end(json);
}

bool plain_json(const struct sample *sample, const struct view *view, bool one_line)
{
    struct ull_json json;
    struct rows list;
    if (!rows_build(&list, sample, view))
        return false;
    ull__json_init(&json, stdout);
    json.compact = one_line;
    ull__json_object(&json);
    number(&json, "version", PLAIN_VERSION);
    ull__json_key(&json, "time");
    ull__json_number(&json, (double)sample->unix_ns / 1e9);
    ull__json_key(&json, "collect_seconds");
    ull__json_number(&json, (double)sample->collect_ns / 1e9);
    text(&json, "no_cards", sample->no_cards);
    ull__json_key(&json, "devices");
    ull__json_array(&json);
    for (int i = 0; i < sample->device_count; i++)
        device(&json, &sample->devices[i]);
    ull__json_array_end(&json);
    rows(&json, sample, &list);
    ull__json_object_end(&json);
    rows_finish(&list);
    return ull__json_finish(&json);
}
