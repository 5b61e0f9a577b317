/* collect_jobs.c: jobs, their accounts, processes and refusals, from the ledgers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "collect_private.h"

enum { SHOWN_REFUSALS = 8, ANCESTORS = 64 };

struct who *collect__identify(struct round *round, const struct ull__process_view *view)
{
    const uint32_t numbers[] = {view->pid, view->driver_pid};
    for (int i = 0; i < 2; i++) {
        struct who *who = who_look(&round->collector->who, numbers[i]);
        if (who && who->start_ticks == view->start_ticks)
            return who;
    }
    return NULL;
}

static void add_process_shares(struct round *round, const struct ull__job_spec *spec,
                               const struct ull__process_view *view, struct sample_process *process)
{
    process->shares.first = round->sample->share_count;
    for (int d = 0; d < spec->device_count; d++) {
        if (view->usage[d].peak_bytes == 0)
            continue;
        int device = collect__device_of(round, &spec->devices[d]);
        struct sample_share *share = device < 0 ? NULL : sample_add_share(round->sample);
        if (!share) {
            round->failed = true;
            return;
        }
        share->device = device;
        share->logical = spec->devices[d].logical;
        share->usage = view->usage[d];
        process->held_bytes += view->usage[d].held_bytes;
        process->peak_bytes += view->usage[d].peak_bytes;
        process->shares.count++;
    }
}

static void add_member(struct round *round, const struct ull__job_spec *spec, int job,
                       const struct ull__process_view *view)
{
    struct sample_process *process = sample_add_process(round->sample);
    if (!process) {
        round->failed = true;
        return;
    }
    struct who *who = collect__identify(round, view);
    struct sample_job *of = &round->sample->jobs[job];
    process->kind = view->draining ? SAMPLE_DRAINING : SAMPLE_HELD;
    process->job = job;
    process->parent = -1;
    process->pid = who ? who->pid : view->pid;
    process->start_ticks = view->start_ticks;
    process->place = who ? PROC_HERE : PROC_UNSEEN;
    collect__put(process->user, sizeof process->user, "%s", who ? who->user : of->user);
    collect__put(process->command, sizeof process->command, "%s", who ? who->command : view->command);
    add_process_shares(round, spec, view, process);
    collect__follow(round, of->id, of->account, process->pid, process->start_ticks,
                    process->held_bytes, &process->trend);
    of->processes.count++;
}

static void add_job_shares(struct round *round, struct ull__ledger *ledger,
                           const struct ull__job_view *view,
                           const struct ull__account_view *account, struct sample_job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    uint64_t all = 0;
    job->shares.first = round->sample->share_count;
    for (int d = 0; d < spec->device_count; d++) {
        if (!job_shows_device(ledger, d))
            continue;
        int device = collect__device_of(round, &spec->devices[d]);
        struct sample_share *share = device < 0 ? NULL : sample_add_share(round->sample);
        if (!share) {
            round->failed = true;
            return;
        }
        share->device = device;
        share->logical = spec->devices[d].logical;
        share->budget_bytes = view->budget_bytes[d];
        share->average_bytes = account->average_bytes[d];
        share->evicted_bytes = account->evicted_bytes[d];
        share->usage = account->usage[d];
        all += share->budget_bytes;
        job->budget_bytes += share->usage.peak_bytes ? share->budget_bytes : 0;
        job->held_bytes += share->usage.held_bytes;
        job->peak_bytes += share->usage.peak_bytes;
        double fill =
            share->budget_bytes ? (double)share->usage.held_bytes / (double)share->budget_bytes : 0;
        job->fill = fill > job->fill ? fill : job->fill;
        job->shares.count++;
    }
    /* Cards that it could use and does not would make the budget look roomy. */
    if (job->budget_bytes == 0)
        job->budget_bytes = all;
}

static void add_refusals(struct round *round, struct ull__ledger *ledger, struct sample_job *job)
{
    job->shown_refusals.first = round->sample->refusal_count;
    uint64_t from = job->refusals > ULL_MAX_REFUSALS ? job->refusals - ULL_MAX_REFUSALS : 0;
    for (uint64_t n = job->refusals; n > from && job->shown_refusals.count < SHOWN_REFUSALS; n--) {
        struct ull__refusal refusal;
        if (!ull__ledger_refusal(ledger, n, &refusal) || refusal.account != job->account)
            continue;
        struct ull__refusal *entry = sample_add_refusal(round->sample);
        if (!entry) {
            round->failed = true;
            return;
        }
        *entry = refusal;
        job->shown_refusals.count++;
    }
}

static void describe_job(struct round *round, struct ull__ledger *ledger,
                         const struct ull__job_view *view, const struct ull__account_view *account,
                         struct sample_job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    struct stat file;
    uint32_t pid = account->number ? account->root_pid : view->supervisor_pid;
    struct who *who = who_look(&round->collector->who, pid);
    collect__put(job->id, sizeof job->id, "%s", view->id);
    job->account = account->number;
    collect__put(job->name, sizeof job->name, account->number ? "%s.%u" : "%s", spec->name,
                 account->number);
    collect__put(job->command, sizeof job->command, "%s", spec->command);
    collect__put(job->set_by, sizeof job->set_by, "%s", spec->set_by);
    if (stat(ull__ledger_path(ledger), &file) == 0)
        collect__put(job->user, sizeof job->user, "%s",
                     who_user_name(&round->collector->who, file.st_uid));
    job->pid = pid;
    job->start_ticks = who && (account->number || view->supervisor_alive) ? who->start_ticks : 0;
    job->start_unix_ns = view->start_unix_ns;
    job->refusals = view->refusals;
    job->refusals_survived = view->refusals_survived;
    job->state = view->state;
    job->priority = view->priority;
}

/* The nearest ancestor in the same job becomes the parent. */
static void find_parents(struct round *round, struct sample_span members)
{
    struct sample_process *all = round->sample->processes;
    for (int i = 0; i < members.count; i++) {
        struct sample_process *child = &all[members.first + i];
        struct who *who =
            child->place == PROC_UNSEEN ? NULL : who_look(&round->collector->who, child->pid);
        for (int depth = 0; who && child->parent < 0 && depth < ANCESTORS && who->parent > 1;
             depth++) {
            for (int k = 0; k < members.count; k++)
                if (k != i && all[members.first + k].pid == who->parent &&
                    all[members.first + k].place != PROC_UNSEEN)
                    child->parent = members.first + k;
            who = who_look(&round->collector->who, who->parent);
        }
    }
}

/* number: of the job in the list, for processes outside, which are shown with its first account. */
static void add_account(struct round *round, int number, int parent,
                        const struct ull__job_view *view, const struct ull__account_view *account)
{
    struct sample *sample = round->sample;
    struct ull__ledger *ledger = round->collector->jobs.jobs[number].report.ledger;
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    struct sample_job *job = sample_add_job(sample);
    if (!job) {
        round->failed = true;
        return;
    }
    int place = sample->job_count - 1;
    job->parent = parent;
    describe_job(round, ledger, view, account, job);
    add_job_shares(round, ledger, view, account, job);
    add_refusals(round, ledger, job);
    collect__follow(round, job->id, job->account, 0, 0, job->held_bytes, &job->trend);
    job->processes.first = sample->process_count;
    for (int slot = 0, left = view->process_count; slot < ULL_MAX_SLOTS && left > 0; slot++) {
        struct ull__process_view process;
        if (!ull__ledger_process(ledger, slot, &process))
            continue;
        left--;
        if (process.account == account->number)
            add_member(round, spec, place, &process);
    }
    if (account->number == 0)
        collect__add_listed(round, number, place);
    find_parents(round, sample->jobs[place].processes);
}

static void add_job(struct round *round, int number, int *places, int depth)
{
    struct ull__ledger *ledger = round->collector->jobs.jobs[number].report.ledger;
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    struct ull__job_view view;
    struct ull__account_view account;
    int parent = -1;
    if (places[number] >= 0 || depth > ULL_MAX_CHAIN)
        return;
    for (int i = 0; spec->parent[0] && i < round->collector->jobs.count && parent < 0; i++) {
        if (strcmp(ull__ledger_path(round->collector->jobs.jobs[i].report.ledger), spec->parent) == 0 &&
            i != number) {
            add_job(round, i, places, depth + 1);
            parent = places[i];
        }
    }
    places[number] = round->sample->job_count;
    ull__ledger_job(ledger, &view);
    for (int a = 0; a < ULL_MAX_ACCOUNTS && !round->failed; a++)
        if ((a == 0 || spec->each) && ull__ledger_account(ledger, a, &account))
            add_account(round, number, parent, &view, &account);
}

/* Processes in any ledger, by every number that the driver may list them under. */
static void note_member(struct round *round, uint32_t pid)
{
    if (round->member_count == round->member_capacity) {
        int capacity = round->member_capacity ? 2 * round->member_capacity : 64;
        uint32_t *grown = realloc(round->members, (size_t)capacity * sizeof *grown);
        if (!grown) {
            round->failed = true;
            return;
        }
        round->members = grown;
        round->member_capacity = capacity;
    }
    round->members[round->member_count++] = pid;
}

void collect__members(struct round *round)
{
    for (int j = 0; j < round->collector->jobs.count; j++) {
        struct ull__ledger *ledger = round->collector->jobs.jobs[j].report.ledger;
        struct ull__job_view job;
        struct ull__process_view view;
        ull__ledger_job(ledger, &job);
        for (int slot = 0, left = job.process_count; slot < ULL_MAX_SLOTS && left > 0; slot++) {
            if (!ull__ledger_process(ledger, slot, &view))
                continue;
            left--;
            struct who *who = collect__identify(round, &view);
            note_member(round, who ? who->pid : view.pid);
            if (view.driver_pid)
                note_member(round, view.driver_pid);
        }
    }
}

void collect__jobs(struct round *round)
{
    int *places = calloc((size_t)round->collector->jobs.count + 1, sizeof *places);
    if (!places) {
        round->failed = true;
        return;
    }
    for (int j = 0; j < round->collector->jobs.count; j++)
        places[j] = -1;
    for (int j = 0; j < round->collector->jobs.count && !round->failed; j++)
        add_job(round, j, places, 0);
    free(places);
    round->sample->strangers.first = round->sample->process_count;
    collect__add_listed(round, -1, -1);
    round->sample->strangers.count = round->sample->process_count - round->sample->strangers.first;
}
