/* sweep.c: see sweep.h; the page is in sweep_page.c. */
#include "sweep.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "json_keys.h"
#include "report/report.h"
#include "report/words.h"
#include "size.h"
#include "table.h"

enum { REPORT_MOST = 64 << 20 };

const char *sweep_outcome_name(enum sweep_outcome outcome)
{
    static const char *const names[] = {"ok", "out_of_memory", "failed", "not_started",
                                        "interrupted"};
    return names[outcome];
}

static uint64_t number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

static bool read_job(const json_t *job, struct sweep_run *run)
{
    const json_t *devices = json_object_get(job, "devices");
    size_t count = json_array_size(devices);
    if (!json_is_array(devices))
        return false;
    run->refusals = number(job, "refusals_total");
    run->survived = number(job, "refusals_survived");
    for (size_t d = 0; d < count; d++) {
        const json_t *device = json_array_get(devices, d);
        if (d > 0 && number(device, "peak_bytes") <= run->peak)
            continue;
        run->peak = number(device, "peak_bytes");
        run->average = number(device, "average_bytes");
        run->budget = number(device, "budget_bytes");
    }
    run->known = true;
    return true;
}

ull_status sweep_read_report(const char *path, struct sweep_run *run, struct ull_error *err)
{
    char *text = NULL;
    size_t size;
    json_error_t why;
    ull_status status = ull__file_read(path, REPORT_MOST, &text, &size, err);
    if (status != ULL_OK)
        return status;
    json_t *root = json_loadb(text, size, 0, &why);
    free(text);
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    if (!root || !read_job(job, run))
        status = ull__fail(err, ULL_E_FORMAT, "'%.200s' is no report of a job (%.100s)", path,
                           root ? "it has no devices" : why.text);
    json_decref(root);
    return status;
}

ull_status sweep_read_record(const char *path, struct sweep_run *run, struct ull_error *err)
{
    struct ull__history *history;
    ull_status status = report_open(path, &history, err);
    if (status != ULL_OK)
        return status;
    struct ull__facts *facts = ull__facts_create(history);
    status = facts ? ull__verdict_device(facts, &run->verdict, err)
                   : ull__fail(err, ULL_E_SYSTEM, "no memory for %zu events", history->event_count);
    if (status == ULL_OK)
        status = ull__verdict_host(facts, &run->host_verdict, err);
    run->judged = status == ULL_OK;
    ull__facts_destroy(facts);
    ull__history_destroy(history);
    return status;
}

/* --- what it comes to -------------------------------------------------------------------------------------- */

int sweep_smallest(const struct sweep *sweep)
{
    int best = -1;
    for (int i = 0; i < sweep->count; i++) {
        if (sweep->runs[i].outcome == SWEEP_OK &&
            (best < 0 || sweep->runs[i].budget < sweep->runs[best].budget))
            best = i;
    }
    return best;
}

int sweep_fastest(const struct sweep *sweep)
{
    int best = -1;
    for (int i = 0; i < sweep->count; i++) {
        if (sweep->runs[i].outcome == SWEEP_OK &&
            (best < 0 || sweep->runs[i].seconds < sweep->runs[best].seconds))
            best = i;
    }
    return best;
}

static bool host_leaks(const struct sweep_run *run)
{
    return run->judged && run->verdict.kind != ULL_VERDICT_LEAK &&
           run->host_verdict.kind == ULL_VERDICT_LEAK;
}

const char *sweep_verdict_name(const struct sweep_run *run)
{
    if (!run->judged)
        return "-";
    return host_leaks(run) ? "host leak" : ull__verdict_name(run->verdict.kind);
}

const char *sweep_leak_evidence(const struct sweep_run *run)
{
    const struct ull__verdict *verdict = host_leaks(run) ? &run->host_verdict : &run->verdict;
    if (!run->judged || verdict->kind != ULL_VERDICT_LEAK || verdict->evidence_count == 0)
        return NULL;
    return verdict->evidence[0];
}

/* The run whose leak is surest, or -1. */
static int surest_leak(const struct sweep *sweep)
{
    int best = -1;
    double most = -1;
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_run *run = &sweep->runs[i];
        double sure = (host_leaks(run) ? &run->host_verdict : &run->verdict)->confidence;
        if (sweep_leak_evidence(run) && sure > most) {
            most = sure;
            best = i;
        }
    }
    return best;
}

static void outcome_words(const struct sweep_run *run, char *text, size_t size)
{
    char count[WORDS_TEXT];
    switch (run->outcome) {
    case SWEEP_OK:
        if (run->survived > 0)
            snprintf(text, size, "ok, though %s refused", words_count(run->survived, count));
        else
            snprintf(text, size, "ok");
        return;
    case SWEEP_OUT_OF_MEMORY:
        snprintf(text, size, "out of memory (exit %d)", run->exit_code);
        return;
    case SWEEP_NOT_STARTED:
        snprintf(text, size, "not started (exit %d)", run->exit_code);
        return;
    case SWEEP_INTERRUPTED:
        snprintf(text, size, "interrupted");
        return;
    case SWEEP_FAILED:
        break;
    }
    snprintf(text, size, "failed (exit %d)", run->exit_code);
}

void sweep_table(const struct sweep *sweep, FILE *out)
{
    fputs("     LIMIT       HELD    AVERAGE          TIME  VERDICT    OUTCOME\n", out);
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_run *run = &sweep->runs[i];
        char held[ULL_SIZE_TEXT], average[ULL_SIZE_TEXT], time[WORDS_TEXT], outcome[96];
        table_cell(out, run->limit, 10, true);
        table_cell(out, run->known ? ull__size_text(run->peak, held) : "-", 11, true);
        table_cell(out, run->average ? ull__size_text(run->average, average) : "-", 11, true);
        table_cell(out, words_time(run->seconds, time), 14, true);
        outcome_words(run, outcome, sizeof outcome);
        fprintf(out, "  %-9s  %s\n", sweep_verdict_name(run), outcome);
    }
    int smallest = sweep_smallest(sweep), fastest = sweep_fastest(sweep);
    if (smallest >= 0)
        fprintf(out, "smallest that ran: %s, in %.2f times the time of the fastest (%s)\n",
                sweep->runs[smallest].limit,
                sweep->runs[smallest].seconds / sweep->runs[fastest].seconds,
                sweep->runs[fastest].limit);
    else if (sweep->count > 0)
        fputs("none of them ran\n", out);
    int leak = surest_leak(sweep);
    if (leak >= 0)
        fprintf(out, "%s with %s: %s\n", sweep_verdict_name(&sweep->runs[leak]),
                sweep->runs[leak].limit, sweep_leak_evidence(&sweep->runs[leak]));
}

/* --- JSON ---------------------------------------------------------------------------------------------------- */

static void add_run(struct ull_json *json, const struct sweep_run *run)
{
    ull__json_object(json);
    ull__json_key(json, "limit");
    ull__json_string(json, run->limit);
    key_maybe(json, "budget_bytes", run->known, run->budget);
    key_maybe(json, "peak_bytes", run->known, run->peak);
    key_maybe(json, "average_bytes", run->average > 0, run->average);
    key_maybe(json, "refusals", run->known, run->refusals);
    key_maybe(json, "refusals_survived", run->known, run->survived);
    ull__json_key(json, "seconds");
    ull__json_number(json, run->seconds);
    ull__json_key(json, "exit_code");
    ull__json_i64(json, run->exit_code);
    ull__json_key(json, "outcome");
    ull__json_string(json, sweep_outcome_name(run->outcome));
    report_json_verdict(json, run->judged ? &run->verdict : NULL, "");
    report_json_verdict(json, run->judged ? &run->host_verdict : NULL, "host_");
    ull__json_object_end(json);
}

bool sweep_json(const struct sweep *sweep, FILE *out)
{
    struct ull_json json;
    int smallest = sweep_smallest(sweep);
    ull__json_init(&json, out);
    ull__json_object(&json);
    ull__json_key(&json, "version");
    ull__json_u64(&json, 1);
    ull__json_key(&json, "command");
    ull__json_array(&json);
    for (char *const *word = sweep->command; *word; word++)
        ull__json_string(&json, *word);
    ull__json_array_end(&json);
    ull__json_key(&json, "runs");
    ull__json_array(&json);
    for (int i = 0; i < sweep->count; i++)
        add_run(&json, &sweep->runs[i]);
    ull__json_array_end(&json);
    ull__json_key(&json, "smallest");
    ull__json_string(&json, smallest >= 0 ? sweep->runs[smallest].limit : NULL);
    ull__json_object_end(&json);
    bool good = ull__json_finish(&json);
    ull__json_free(&json);
    return good;
}
