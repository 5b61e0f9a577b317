/* state.c: what the daemon knows, as metrics in Prometheus' text format and as JSON for the page. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "others.h"
#include "web.h"

static const enum ull__job_state states[] = {ULL_JOB_WAITING, ULL_JOB_RUNNING, ULL_JOB_SUSPENDING,
                                             ULL_JOB_SUSPENDED, ULL_JOB_RESUMING};
enum { STATES = sizeof states / sizeof *states };

static const char *name_of(const struct job *job)
{
    return ull__ledger_spec(job->ledger)->name;
}

/* By what the arbiter thinks, which knows of a queue; else by the ledger. */
static enum ull__job_state state_of(const struct daemon *d, const struct job *job)
{
    struct ull__arbiter_view view;
    return job->joined && ull__arbiter_job(d->arbiter, job->number, &view) ? view.state
                                                                           : job->view.state;
}

/* --- metrics ---------------------------------------------------------------------------------------------- */

/* Values are UTF-8, or the whole scrape is refused; a name may be any bytes. */
static void label(FILE *out, const char *text)
{
    for (; *text; text++) {
        size_t length = ull__utf8_length((const unsigned char *)text, strlen(text));
        if (length > 1) {
            fwrite(text, 1, length, out);
            text += length - 1;
            continue;
        }
        if (length == 0) {
            fputs("\xef\xbf\xbd", out);
            continue;
        }
        if (*text == '\\' || *text == '"')
            fputc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    }
}

static void family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_devices(FILE *out, const struct daemon *d)
{
    family(out, "ullage_device_memory_bytes", "gauge",
           "Memory of a card: used by anybody, held by jobs, reserved by the driver, free.");
    for (int c = 0; c < d->cards.count; c++) {
        const struct card *card = &d->cards.card[c];
        uint64_t used = atomic_load(&d->cards.used[c]);
        const struct {
            const char *state;
            uint64_t bytes;
        } rows[] = {{"used", used},
                    {"held", card->held_bytes},
                    {"reserved", atomic_load(&d->cards.reserved[c])},
                    {"free", used < card->total_bytes ? card->total_bytes - used : 0}};
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            fprintf(out,
                    "ullage_device_memory_bytes{device=\"%d\",uuid=\"%s\",state=\"%s\"} %" PRIu64
                    "\n",
                    card->physical, card->uuid, rows[r].state, rows[r].bytes);
    }
}

static void write_watermarks(FILE *out, const struct daemon *d)
{
    family(out, "ullage_device_watermark_bytes", "gauge",
           "What jobs may hold of a card before idle caches are given back.");
    for (int c = 0; c < d->cards.count; c++)
        fprintf(out, "ullage_device_watermark_bytes{device=\"%d\",uuid=\"%s\"} %.0f\n",
                d->cards.card[c].physical, d->cards.card[c].uuid,
                ull__arbiter_watermark(d->arbiter, c) * (double)d->cards.card[c].capacity);
    family(out, "ullage_other_daemons", "gauge",
           "Daemons that share the cards with this one and do not know its promises.");
    fprintf(out, "ullage_other_daemons %d\n", others_count());
    family(out, "ullage_trims_total", "counter",
           "Times that a job was asked to give back idle caches.");
    fprintf(out, "ullage_trims_total %" PRIu64 "\n", d->trims);
}

static void write_row(FILE *out, const struct daemon *d, const struct job *job, int card,
                      const char *kind, uint64_t bytes)
{
    fprintf(out, "ullage_job_memory_bytes{job=\"%s\",device=\"%d\",kind=\"%s\"} %" PRIu64 "\n",
            job->view.id, d->cards.card[card].physical, kind, bytes);
}

static void write_memory(FILE *out, const struct daemon *d, const struct job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    for (int i = 0; i < spec->device_count; i++) {
        int c = job->card_of[i];
        if (c < 0 || (spec->devices[i].logical < 0 && job->peak[c] == 0))
            continue;
        write_row(out, d, job, c, "budget", job->view.budget_bytes[i]);
        write_row(out, d, job, c, "request", spec->devices[i].request_bytes);
        write_row(out, d, job, c, "held", job->held[c] + job->evicted[c]);
        write_row(out, d, job, c, "peak", job->peak[c]);
        write_row(out, d, job, c, "spilled", job->spilled[c]);
        write_row(out, d, job, c, "idle", job->idle[c]);
        write_row(out, d, job, c, "evicted", job->evicted[c]);
        write_row(out, d, job, c, "resident", job->held[c]);
    }
}

static void write_processes(FILE *out, const struct daemon *d)
{
    struct ull__process_view process;
    family(out, "ullage_process_memory_bytes", "gauge", "What a process of a job holds.");
    for (int j = 0; j < d->job_count; j++) {
        const struct job *job = d->jobs[j];
        for (int slot = 0; slot < job->view.slots_used && !job->nested; slot++) {
            if (!ull__ledger_process(job->ledger, slot, &process))
                continue;
            for (int i = 0; i < ull__ledger_spec(job->ledger)->device_count; i++)
                if (job->card_of[i] >= 0 && process.usage[i].peak_bytes > 0)
                    fprintf(
                        out,
                        "ullage_process_memory_bytes{job=\"%s\",pid=\"%u\",device=\"%d\"} %" PRIu64
                        "\n",
                        job->view.id, process.pid, d->cards.card[job->card_of[i]].physical,
                        process.usage[i].held_bytes);
        }
    }
}

static void write_swaps(FILE *out, const struct daemon *d)
{
    static const char *const directions[] = {"out", "in"};
    family(out, "ullage_swap_bytes_total", "counter", "Moved between cards and the host.");
    for (int i = 0; i < 2; i++)
        fprintf(out, "ullage_swap_bytes_total{direction=\"%s\"} %" PRIu64 "\n", directions[i],
                d->swap_bytes[i]);
    family(out, "ullage_swap_seconds_total", "counter", "Time that moving took.");
    for (int i = 0; i < 2; i++)
        fprintf(out, "ullage_swap_seconds_total{direction=\"%s\"} %.6f\n", directions[i],
                (double)d->swap_ns[i] / 1e9);
}

static void write_jobs(FILE *out, const struct daemon *d)
{
    family(out, "ullage_job_info", "gauge", "Always 1; what a job is called and whose it is.");
    for (int j = 0; j < d->job_count; j++) {
        if (d->jobs[j]->nested)
            continue;
        fprintf(out, "ullage_job_info{job=\"%s\",name=\"", d->jobs[j]->view.id);
        label(out, name_of(d->jobs[j]));
        fprintf(out, "\",user=\"%u\"} 1\n", d->jobs[j]->uid);
    }
    family(out, "ullage_job_memory_bytes", "gauge", "Memory of a job on a device, by kind.");
    for (int j = 0; j < d->job_count; j++)
        if (!d->jobs[j]->nested)
            write_memory(out, d, d->jobs[j]);
    family(out, "ullage_job_state", "gauge", "1 for the state that a job is in.");
    for (int j = 0; j < d->job_count; j++)
        for (int s = 0; s < STATES && !d->jobs[j]->nested; s++)
            fprintf(out, "ullage_job_state{job=\"%s\",state=\"%s\"} %d\n", d->jobs[j]->view.id,
                    ull__job_state_name(states[s]), state_of(d, d->jobs[j]) == states[s]);
    family(out, "ullage_refusals_total", "counter", "Allocations that a budget refused.");
    for (int j = 0; j < d->job_count; j++)
        if (!d->jobs[j]->nested)
            fprintf(out, "ullage_refusals_total{job=\"%s\"} %" PRIu64 "\n", d->jobs[j]->view.id,
                    d->jobs[j]->view.refusals);
}

char *state_metrics(const struct daemon *d)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    family(out, "ullage_build_info", "gauge", "Always 1; the version is a label.");
    fprintf(out, "ullage_build_info{version=\"%s\"} 1\n", ULLAGE_VERSION);
    write_devices(out, d);
    write_watermarks(out, d);
    write_jobs(out, d);
    if (d->settings.processes)
        write_processes(out, d);
    write_swaps(out, d);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* --- JSON ------------------------------------------------------------------------------------------------- */

static void key_u64(struct ull_json *json, const char *key, uint64_t value)
{
    ull__json_key(json, key);
    ull__json_u64(json, value);
}

static void key_string(struct ull_json *json, const char *key, const char *value)
{
    ull__json_key(json, key);
    ull__json_string(json, value);
}

static void add_card(struct ull_json *json, const struct daemon *d, int c)
{
    const struct card *card = &d->cards.card[c];
    ull__json_object(json);
    key_string(json, "name", card->name);
    key_string(json, "uuid", card->uuid);
    ull__json_key(json, "physical");
    ull__json_i64(json, card->physical);
    key_u64(json, "total_bytes", card->total_bytes);
    key_u64(json, "used_bytes", atomic_load(&d->cards.used[c]));
    key_u64(json, "held_bytes", card->held_bytes);
    key_u64(json, "for_jobs_bytes", card->capacity);
    ull__json_object_end(json);
}

static void add_job(struct ull_json *json, const struct daemon *d, const struct job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    uint64_t held = 0, evicted = 0, budget = 0, request = 0;
    for (int i = 0; i < spec->device_count; i++) {
        if (job->card_of[i] < 0 || spec->devices[i].logical < 0)
            continue;
        held += job->held[job->card_of[i]];
        evicted += job->evicted[job->card_of[i]];
        budget += job->view.budget_bytes[i];
        request += spec->devices[i].request_bytes;
    }
    ull__json_object(json);
    key_string(json, "id", job->view.id);
    key_string(json, "name", spec->name);
    key_u64(json, "user", job->uid);
    key_string(json, "state", ull__job_state_name(state_of(d, job)));
    ull__json_key(json, "priority");
    ull__json_i64(json, job->view.priority);
    key_u64(json, "budget_bytes", budget);
    key_u64(json, "request_bytes", request);
    key_u64(json, "resident_bytes", held);
    key_u64(json, "evicted_bytes", evicted);
    ull__json_key(json, "waits");
    ull__json_bool(json, job->wants);
    ull__json_object_end(json);
}

char *state_json(const struct daemon *d)
{
    struct ull_json json;
    char *text = NULL;
    ull__json_init(&json, NULL);
    ull__json_object(&json);
    key_string(&json, "version", ULLAGE_VERSION);
    ull__json_key(&json, "devices");
    ull__json_array(&json);
    for (int c = 0; c < d->cards.count; c++)
        add_card(&json, d, c);
    ull__json_array_end(&json);
    ull__json_key(&json, "jobs");
    ull__json_array(&json);
    for (int j = 0; j < d->job_count; j++)
        if (!d->jobs[j]->nested)
            add_job(&json, d, d->jobs[j]);
    ull__json_array_end(&json);
    ull__json_object_end(&json);
    if (ull__json_finish(&json))
        text = strndup(json.text, json.size);
    ull__json_free(&json);
    return text;
}
