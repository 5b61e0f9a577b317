/* job_json.c: the JSON of a job; see job_json.h. The summary line is in summary.c. */
#include "job_json.h"

#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "json_keys.h"
#include "size.h"
#include "suggest.h"

/* --- devices -------------------------------------------------------------------------------------- */

bool job_shows_device(struct ull__ledger *ledger, int device)
{
    if (ull__ledger_spec(ledger)->devices[device].logical >= 0)
        return true;
    struct ull__account_view account;
    for (int a = 0; a < ULL_MAX_ACCOUNTS && ull__ledger_account(ledger, a, &account); a++) {
        if (account.usage[device].peak_bytes > 0)
            return true;
    }
    return false;
}

/* Where the size of contexts on a device comes from, by the best of its processes; NULL: none there. */
static const char *context_source(const struct shown_job *job, uint32_t account, int device)
{
    static const char *const names[] = {"estimated", "card", "process"};
    int best = -1;
    for (int i = 0; i < job->history->process_count; i++) {
        const struct ull__process_view *view = &job->history->processes[i].view;
        if (view->account == account && view->usage[device].peak_by_class[ULL_CLASS_CONTEXT] > 0 &&
            (int)view->context_source[device] > best)
            best = (int)view->context_source[device];
    }
    return best < 0 ? NULL : names[best];
}

static void add_device(struct ull_json *json, const struct shown_job *job,
                       const struct ull__job_view *view, const struct ull__account_view *account,
                       int d)
{
    const struct ull__device_spec *device = &ull__ledger_spec(job->ledger)->devices[d];
    const struct ull__usage *usage = &account->usage[d];
    uint64_t suggested =
        ull__suggest(job_needed(job, account, d), device->total_bytes, ULL_ROLE_TRAINING);
    const char *source = context_source(job, account->number, d);
    ull__json_object(json);
    key_index(json, "logical", device->logical);
    key_index(json, "physical", device->physical);
    key_string(json, "uuid", device->uuid);
    key_string(json, "name", device->name);
    key_u64(json, "budget_bytes", view->budget_bytes[d]);
    key_u64(json, "held_bytes", usage->held_bytes);
    key_u64(json, "unlisted_bytes", account->hidden_bytes[d]);
    key_u64(json, "peak_bytes", usage->peak_bytes);
    /* Two clocks meet in the average, so that it can round to just above the peak; a job shorter than
     * the time between two samples has none. */
    key_maybe(json, "average_bytes", account->average_bytes[d] > 0 || usage->peak_bytes == 0,
              account->average_bytes[d] < usage->peak_bytes ? account->average_bytes[d]
                                                            : usage->peak_bytes);
    key_maybe(json, "suggested_bytes", suggested > 0 && !view->preallocated[d], suggested);
    key_bool(json, "preallocated", view->preallocated[d]);
    key_maybe(json, "total_bytes", device->total_bytes > 0, device->total_bytes);
    key_classes(json, "by_class", usage->by_class);
    key_classes(json, "peak_by_class", usage->peak_by_class);
    ull__json_key(json, "context_source");
    if (source)
        ull__json_string(json, source);
    else
        ull__json_null(json);
    ull__json_object_end(json);
}

static void add_devices(struct ull_json *json, const struct shown_job *job,
                        const struct ull__job_view *view, const struct ull__account_view *account)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    ull__json_key(json, "devices");
    ull__json_array(json);
    for (int d = 0; d < spec->device_count; d++) {
        if (job_shows_device(job->ledger, d))
            add_device(json, job, view, account, d);
    }
    ull__json_array_end(json);
    ull__json_key(json, "device_map");
    ull__json_array(json);
    for (int d = 0; d < spec->device_count; d++) {
        char text[DEVICE_MAP_TEXT];
        if (job_shows_device(job->ledger, d))
            ull__json_string(json, device_map_text(&spec->devices[d], text));
    }
    ull__json_array_end(json);
}

/* --- processes ------------------------------------------------------------------------------------ */

static void add_process(struct ull_json *json, const struct shown_job *job,
                        const struct seen_process *seen)
{
    static const char *const residency[] = {"running", "suspending", "suspended", "resuming"};
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    uint64_t held = 0, peak = 0;
    for (int d = 0; d < spec->device_count; d++) {
        held += seen->view.usage[d].held_bytes;
        peak += seen->view.usage[d].peak_bytes;
    }
    ull__json_object(json);
    key_u64(json, "pid", seen->view.pid);
    key_maybe(json, "driver_pid", seen->view.driver_pid != 0, seen->view.driver_pid);
    key_string(json, "command", seen->view.command);
    key_u64(json, "account", seen->view.account);
    key_string(json, "state",
               !seen->present        ? "ended"
               : seen->view.draining ? "draining"
                                     : residency[seen->view.residency]);
    key_u64(json, "held_bytes", held);
    key_u64(json, "peak_bytes", peak);
    ull__json_key(json, "devices");
    ull__json_array(json);
    for (int d = 0; d < spec->device_count; d++) {
        const struct ull__usage *usage = &seen->view.usage[d];
        if (usage->peak_bytes == 0)
            continue;
        ull__json_object(json);
        key_index(json, "logical", spec->devices[d].logical);
        key_string(json, "uuid", spec->devices[d].uuid);
        key_u64(json, "held_bytes", usage->held_bytes);
        key_u64(json, "unlisted_bytes", seen->view.hidden_bytes[d]);
        key_u64(json, "evicted_bytes", seen->view.evicted_bytes[d]);
        key_u64(json, "peak_bytes", usage->peak_bytes);
        key_classes(json, "by_class", usage->by_class);
        key_classes(json, "peak_by_class", usage->peak_by_class);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
    ull__json_object_end(json);
}

static void add_outside(struct ull_json *json, const struct shown_job *job)
{
    if (!job->outside)
        return;
    ull__json_key(json, "outside");
    ull__json_array(json);
    for (int i = 0; i < job->outside_count; i++) {
        const struct outside_process *process = &job->outside[i];
        ull__json_object(json);
        key_u64(json, "pid", process->pid);
        key_string(json, "command", process->command);
        key_string(json, "uuid", process->uuid);
        key_maybe(json, "held_bytes", process->used_bytes != UINT64_MAX, process->used_bytes);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

/* --- refusals ------------------------------------------------------------------------------------- */

static void add_refusal(struct ull_json *json, const struct shown_job *job,
                        const struct ull__refusal *refusal)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    bool known = refusal->device >= 0 && refusal->device < spec->device_count;
    const struct ull__device_spec *device = known ? &spec->devices[refusal->device] : NULL;
    uint64_t need = refusal->wanted_bytes + (refusal->by_max_request ? 0 : refusal->held_bytes);
    uint64_t enough = ull__round_up_tenth(need);
    bool possible = need >= refusal->wanted_bytes;
    if (device && device->total_bytes > 0) {
        possible = possible && need <= device->total_bytes;
        enough = enough > device->total_bytes ? device->total_bytes : enough;
    }
    ull__json_object(json);
    key_u64(json, "number", refusal->number);
    key_u64(json, "wanted_bytes", refusal->wanted_bytes);
    key_u64(json, "held_bytes", refusal->held_bytes);
    key_u64(json, "budget_bytes", refusal->budget_bytes);
    key_u64(json, "own_bytes", refusal->own_bytes);
    key_string(json, "class", ull__class_name(refusal->class));
    key_u64(json, "pid", refusal->pid);
    key_string(json, "command", refusal->command);
    key_u64(json, "account", refusal->account);
    key_index(json, "device", device ? device->logical : -1);
    key_string(json, "uuid", device ? device->uuid : NULL);
    key_string(json, "call", refusal->call);
    key_string(json, "refused_by", refusal->by_max_request ? "max_request" : "budget");
    key_classes(json, "by_class", refusal->by_class);
    ull__json_key(json, "holders");
    ull__json_array(json);
    for (int i = 0; i < refusal->holder_count && i < ULL_MAX_HOLDERS; i++) {
        ull__json_object(json);
        key_u64(json, "bytes", refusal->holders[i].bytes);
        key_string(json, "class", ull__class_name(refusal->holders[i].class));
        ull__json_key(json, "age_seconds");
        ull__json_number(json, (double)refusal->holders[i].age_ns / 1e9);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
    key_maybe(json, "sufficient_bytes", possible, enough);
    key_bool(json, "survived", refusal->survived);
    ull__json_object_end(json);
}

/* In this order, whatever happened: first what is in force, then what a user can do about it. */
static void add_advice(struct ull_json *json, const struct shown_job *job,
                       const struct ull__job_view *view)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    char text[1024];
    ull__json_key(json, "advice");
    ull__json_array(json);
    if (view->refusals > 0) {
        bool preallocated = false;
        for (int d = 0; d < spec->device_count; d++)
            preallocated |= view->preallocated[d];
        snprintf(text, sizeof text, "in force: %s; a larger -m gives the job more%s", spec->set_by,
                 preallocated ? "; the program took most of the card at its start: --growth makes "
                                "frameworks take only what they use"
                              : "");
        ull__json_string(json, text);
        ull__json_string(json, "a smaller batch, or the same batch by gradient accumulation over "
                               "smaller ones, lowers what activations take");
        ull__json_string(json, "16-bit activations (mixed precision), or recomputation (gradient "
                               "checkpointing), lower it further at the same batch");
        ull__json_string(json,
                         "if what is held grows from step to step, look for tensors kept alive "
                         "on the host side: a data pipeline that prefetches to the device, or "
                         "a list of losses that keeps their graphs");
    }
    ull__json_array_end(json);
}

static void add_refusals(struct ull_json *json, const struct shown_job *job,
                         const struct ull__job_view *view, uint32_t account)
{
    uint64_t shown = 0, survived = 0;
    bool each = ull__ledger_spec(job->ledger)->each;
    ull__json_key(json, "refusals");
    ull__json_array(json);
    for (int i = 0; i < job->history->refusal_count; i++) {
        const struct ull__refusal *refusal = &job->history->refusals[i];
        if (refusal->account != account)
            continue;
        add_refusal(json, job, refusal);
        shown++;
        survived += refusal->survived;
    }
    ull__json_array_end(json);
    /* The ledger counts for the whole job; of a single account only those kept are known. */
    key_u64(json, "refusals_total", each ? shown : view->refusals);
    key_u64(json, "refusals_survived", each ? survived : view->refusals_survived);
}

/* --- a job ---------------------------------------------------------------------------------------- */

static void add_configuration(struct ull_json *json, const char *set_by)
{
    ull__json_key(json, "configuration");
    ull__json_array(json);
    while (*set_by) {
        const char *end = strstr(set_by, "; ");
        size_t length = end ? (size_t)(end - set_by) : strlen(set_by);
        ull__json_bytes(json, set_by, length);
        set_by += length + (end ? 2 : 0);
    }
    ull__json_array_end(json);
}

/* Where the memory is, and the job's place among others on the card. */
static void add_sharing(struct ull_json *json, const struct ull__job_spec *spec,
                        const struct ull__job_view *view, const struct ull__account_view *account)
{
    uint64_t held = 0, request = 0, evicted = 0, spilled = 0;
    for (int d = 0; d < spec->device_count; d++) {
        held += account->usage[d].held_bytes;
        request += spec->devices[d].request_bytes;
        evicted += account->evicted_bytes[d];
        spilled += account->spilled_bytes[d];
    }
    key_string(json, "state", ull__job_state_name(view->state));
    ull__json_key(json, "priority");
    ull__json_i64(json, view->priority);
    key_bool(json, "suspendable", spec->suspendable);
    key_string(json, "group", spec->group[0] ? spec->group : NULL);
    key_u64(json, "request_bytes", request);
    key_u64(json, "evicted_bytes", evicted);
    key_u64(json, "spilled_bytes", spilled);
    key_u64(json, "spilled_peak_bytes", view->spilled_peak_bytes);
    key_u64(json, "spill_bytes", spec->spill_bytes);
    key_u64(json, "pinned_bytes", account->pinned_bytes);
    key_u64(json, "resident_bytes", held > evicted ? held - evicted : 0);
}

static void add_account(struct ull_json *json, const struct shown_job *job,
                        const struct ull__job_view *view, const struct ull__account_view *account)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    char name[ULL_NAME_TEXT + 16], id[32];
    bool sub = account->number > 0;
    snprintf(name, sizeof name, sub ? "%s.%u" : "%s", spec->name, account->number);
    snprintf(id, sizeof id, sub ? "%s.%u" : "%s", view->id, account->number);
    ull__json_object(json);
    key_string(json, "name", name);
    key_string(json, "id", id);
    key_string(json, "command", spec->command);
    ull__json_key(json, "exit_code");
    if (job->ended && !sub)
        ull__json_i64(json, job->exit_code);
    else
        ull__json_null(json);
    key_u64(json, "supervisor_pid", view->supervisor_pid);
    key_maybe(json, "root_pid", sub, account->root_pid);
    add_configuration(json, spec->set_by);
    add_sharing(json, spec, view, account);
    key_maybe(json, "max_request_bytes", spec->max_request > 0, spec->max_request);
    key_string(json, "parent", spec->parent[0] ? spec->parent : NULL);
    add_devices(json, job, view, account);
    ull__json_key(json, "processes");
    ull__json_array(json);
    for (int i = 0; i < job->history->process_count; i++) {
        if (job->history->processes[i].view.account == account->number)
            add_process(json, job, &job->history->processes[i]);
    }
    ull__json_array_end(json);
    if (!sub)
        add_outside(json, job);
    add_refusals(json, job, view, account->number);
    ull__json_key(json, "unknown_variants");
    ull__json_array(json);
    for (int i = 0; i < view->variant_count; i++)
        ull__json_string(json, view->variants[i]);
    ull__json_array_end(json);
    add_advice(json, job, view);
    ull__json_object_end(json);
}

void job_json_begin(struct ull_json *json)
{
    ull__json_object(json);
    key_u64(json, "version", JOB_JSON_VERSION);
    key_string(json, "ullage", ULLAGE_VERSION);
    ull__json_key(json, "jobs");
    ull__json_array(json);
}

bool job_json_end(struct ull_json *json)
{
    ull__json_array_end(json);
    ull__json_object_end(json);
    return ull__json_finish(json);
}

void job_json_add(struct ull_json *json, const struct shown_job *job)
{
    struct ull__job_view view;
    struct ull__account_view account;
    ull__ledger_job(job->ledger, &view);
    for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
        if (a > 0 && !ull__ledger_spec(job->ledger)->each)
            break;
        if (ull__ledger_account(job->ledger, a, &account))
            add_account(json, job, &view, &account);
    }
}
