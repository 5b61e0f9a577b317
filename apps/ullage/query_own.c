/*
 * query_own.c: the fields of `ullage query` that nvidia-smi does not have: what the jobs of `ullage run`
 * may hold and do hold, on each card and by each process.
 *
 * A job inside another one counts in that one too, so sums take only jobs that are in no other of the
 * list. On a card in MIG mode they are those of its instances.
 */
#include <string.h>

#include "query.h"

/* --- jobs of a card --- */

static bool is_inner(const struct job_list *jobs, const struct live_job *job)
{
    const char *parent = ull__ledger_spec(job->report.ledger)->parent;
    for (int j = 0; j < jobs->count && parent[0]; j++) {
        if (strcmp(ull__ledger_path(jobs->jobs[j].report.ledger), parent) == 0)
            return true;
    }
    return false;
}

/* Whether a job's device is the row's card, or an instance of it. */
static bool is_of(const struct query_row *row, const char *uuid)
{
    const struct gpus *gpus = row->round->gpus;
    if (strcmp(row->gpu->device.uuid, uuid) == 0)
        return true;
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpu[i].card >= 0 && &gpus->gpu[gpus->gpu[i].card] == row->gpu &&
            strcmp(gpus->gpu[i].device.uuid, uuid) == 0)
            return true;
    }
    return false;
}

struct sum {
    uint64_t jobs, budget, held, peak, refusals;
};

static void add_device(struct sum *sum, const struct live_job *job,
                       const struct ull__job_view *view, int device)
{
    struct ull__account_view account;
    bool each = ull__ledger_spec(job->report.ledger)->each;
    for (int a = 0; a < (each ? ULL_MAX_ACCOUNTS : 1); a++) {
        if (!ull__ledger_account(job->report.ledger, a, &account))
            continue;
        sum->budget += view->budget_bytes[device];
        sum->held += account.usage[device].held_bytes;
        sum->peak += account.usage[device].peak_bytes;
    }
}

static struct sum sum_of(const struct query_row *row)
{
    struct sum sum = {0};
    const struct job_list *jobs = row->round->jobs;
    for (int j = 0; jobs && j < jobs->count; j++) {
        const struct live_job *job = &jobs->jobs[j];
        const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
        struct ull__job_view view;
        bool here = false;
        if (is_inner(jobs, job))
            continue;
        ull__ledger_job(job->report.ledger, &view);
        for (int d = 0; d < spec->device_count; d++) {
            if (!is_of(row, spec->devices[d].uuid) || !job_shows_device(job->report.ledger, d))
                continue;
            add_device(&sum, job, &view, d);
            here = true;
        }
        sum.jobs += here;
        sum.refusals += here ? view.refusals : 0;
    }
    return sum;
}

void query_get_own_jobs(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, sum_of(row).jobs);
}

void query_get_own_budgets(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, sum_of(row).budget);
}

void query_get_own_held(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, sum_of(row).held);
}

void query_get_own_peak(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, sum_of(row).peak);
}

void query_get_own_refusals(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, sum_of(row).refusals);
}

/* --- the card, also where host and card are one --- */

static uint64_t used_of(const struct gpu *gpu)
{
    if (gpu->device.used_bytes != ULL_NVML_UNKNOWN)
        return gpu->device.used_bytes;
    uint64_t sum = 0;
    for (int p = 0; p < gpu->process_count; p++) {
        if (gpu->processes[p].used_bytes == ULL_NVML_UNKNOWN)
            return ULL_NVML_UNKNOWN;
        sum += gpu->processes[p].used_bytes;
    }
    return gpu->processes_known ? sum : ULL_NVML_UNKNOWN;
}

void query_get_own_total(const struct query_row *row, struct query_value *value)
{
    query_set_bytes(value, row->gpu->offered_bytes);
}

void query_get_own_used(const struct query_row *row, struct query_value *value)
{
    query_set_bytes(value, used_of(row->gpu));
}

void query_get_own_others(const struct query_row *row, struct query_value *value)
{
    uint64_t used = used_of(row->gpu), held = sum_of(row).held;
    /* A request is charged before the driver serves it, so that held may be ahead. */
    query_set_bytes(value, used == ULL_NVML_UNKNOWN ? used : used > held ? used - held : 0);
}

void query_get_own_processes(const struct query_row *row, struct query_value *value)
{
    if (row->gpu->processes_known)
        query_set_number(value, (uint64_t)row->gpu->process_count);
    else
        query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
}

/* --- the job of a process --- */

struct membership {
    const struct live_job *job;              /* NULL: of no job */
    const struct ull__process_view *process; /* NULL: not held by it */
    const struct outside_process *outside;
    int device; /* -1 */
};

static bool same_process(const struct query_row *row, const struct ull__process_view *view)
{
    /* By the driver's number where it is known: a job in a container counts its own. */
    return (view->driver_pid ? view->driver_pid : view->pid) == row->process->pid;
}

/* The device that a process is on: of a card in MIG mode the instance that the driver names. */
static const char *uuid_of(const struct query_row *row)
{
    const struct gpus *gpus = row->round->gpus;
    for (int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->gpu[i];
        if (gpu->card >= 0 && &gpus->gpu[gpu->card] == row->gpu &&
            gpu->device.gpu_instance == row->process->gpu_instance &&
            gpu->device.compute_instance == row->process->compute_instance)
            return gpu->device.uuid;
    }
    return row->gpu->device.uuid;
}

static int device_of(const struct query_row *row, const struct live_job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
    const char *uuid = uuid_of(row);
    for (int d = 0; d < spec->device_count; d++) {
        if (strcmp(spec->devices[d].uuid, uuid) == 0)
            return d;
    }
    return -1;
}

static bool contains(const struct live_job *outer, const struct live_job *inner)
{
    return strcmp(ull__ledger_spec(inner->report.ledger)->parent,
                  ull__ledger_path(outer->report.ledger)) == 0;
}

/* The innermost job that a process is in. */
static struct membership membership_of(const struct query_row *row)
{
    struct membership found = {.device = -1};
    const struct job_list *jobs = row->round->jobs;
    for (int j = 0; jobs && j < jobs->count; j++) {
        const struct live_job *job = &jobs->jobs[j];
        struct membership here = {.job = job, .device = device_of(row, job)};
        for (int p = 0; p < job->history.process_count; p++) {
            const struct seen_process *seen = &job->history.processes[p];
            if (seen->present && same_process(row, &seen->view))
                here.process = &seen->view;
        }
        for (int o = 0; o < job->report.outside_count; o++) {
            if (job->outside[o].pid == row->process->pid)
                here.outside = &job->outside[o];
        }
        if (here.process || here.outside)
            if (!found.job || contains(found.job, job))
                found = here;
    }
    return found;
}

void query_get_own_job(const struct query_row *row, struct query_value *value)
{
    struct membership member = membership_of(row);
    if (member.job)
        query_set_text(value, ull__ledger_spec(member.job->report.ledger)->name);
    else
        query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
}

void query_get_own_state(const struct query_row *row, struct query_value *value)
{
    struct membership member = membership_of(row);
    query_set_text(value, member.process ? "held" : member.job ? "outside" : "free");
}

void query_get_own_budget(const struct query_row *row, struct query_value *value)
{
    struct membership member = membership_of(row);
    struct ull__job_view view;
    query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
    if (!member.job || member.device < 0)
        return;
    ull__ledger_job(member.job->report.ledger, &view);
    query_set_number(value, view.budget_bytes[member.device]);
}

void query_get_own_process_held(const struct query_row *row, struct query_value *value)
{
    struct membership member = membership_of(row);
    query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
    if (member.process && member.device >= 0)
        query_set_number(value, member.process->usage[member.device].held_bytes);
}

void query_get_own_process_peak(const struct query_row *row, struct query_value *value)
{
    struct membership member = membership_of(row);
    query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
    if (member.process && member.device >= 0)
        query_set_number(value, member.process->usage[member.device].peak_bytes);
}

/* --- more of a process --- */

void query_get_own_where(const struct query_row *row, struct query_value *value)
{
    static const char *const names[] = {
        [PROC_HERE] = "here", [PROC_INSIDE] = "inside", [PROC_UNSEEN] = "unseen"};
    query_set_text(value, names[row->process->place]);
}

void query_get_own_command(const struct query_row *row, struct query_value *value)
{
    if (row->process->command[0])
        query_set_text(value, row->process->command);
    else
        query_set_missing(value, NVML_ERROR_NOT_FOUND);
}

static void give_instance(struct query_value *value, int number)
{
    if (number >= 0)
        query_set_number(value, (uint64_t)number);
    else
        query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
}

void query_get_own_gpu_instance(const struct query_row *row, struct query_value *value)
{
    give_instance(value, row->process->gpu_instance);
}

void query_get_own_compute_instance(const struct query_row *row, struct query_value *value)
{
    give_instance(value, row->process->compute_instance);
}
