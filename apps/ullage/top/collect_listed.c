/*
 * collect_listed.c: processes that the driver lists and that are in no ledger: outside of a job that they
 * belong to, or strangers to all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collect_private.h"

enum { OWNER_ROUNDS = 30 };

static bool is_member(const struct round *round, uint32_t pid)
{
    for (int i = 0; i < round->member_count; i++)
        if (round->members[i] == pid)
            return true;
    return false;
}

/* Which job: remembered, since the answer costs a look into many environments. */
static int owner_of(struct round *round, struct who *who)
{
    uint64_t now = round->collector->round;
    if (!who->placed || who->owner_round + OWNER_ROUNDS < now) {
        int owner = jobs_owner(&round->collector->jobs, who->pid);
        collect__put(who->owner, sizeof who->owner, "%s",
                     owner < 0 ? ""
                               : ull__ledger_path(round->collector->jobs.jobs[owner].report.ledger));
        who->placed = true;
        who->owner_round = now;
    }
    for (int i = 0; who->owner[0] && i < round->collector->jobs.count; i++)
        if (strcmp(ull__ledger_path(round->collector->jobs.jobs[i].report.ledger), who->owner) == 0)
            return i;
    return -1;
}

static void note(struct round *round, const struct gpu_process *process, int device)
{
    if (round->listed_count == round->listed_capacity) {
        int capacity = round->listed_capacity ? 2 * round->listed_capacity : 64;
        struct listed *grown = realloc(round->listed, (size_t)capacity * sizeof *grown);
        if (!grown) {
            round->failed = true;
            return;
        }
        round->listed = grown;
        round->listed_capacity = capacity;
    }
    struct who *who = who_look(&round->collector->who, process->pid);
    round->listed[round->listed_count++] = (struct listed){
        .process = process, .who = who, .device = device, .owner = who ? owner_of(round, who) : -1};
}

static int by_pid(const void *left, const void *right)
{
    const struct listed *a = left, *b = right;
    if (a->process->pid != b->process->pid)
        return a->process->pid < b->process->pid ? -1 : 1;
    return a->device - b->device;
}

/* A card in MIG mode lists what its instances do, where those may be asked. */
static bool told_by_instances(const struct gpus *gpus, int card)
{
    for (int i = card + 1; i < gpus->count; i++)
        if (gpus->gpu[i].card == card && gpus->gpu[i].processes_known)
            return true;
    return false;
}

void collect__listed(struct round *round)
{
    const struct gpus *gpus = &round->collector->gpus;
    for (int i = 0; round->collector->has_gpus && i < gpus->count; i++) {
        if (told_by_instances(gpus, i))
            continue;
        for (int p = 0; p < gpus->gpu[i].process_count; p++)
            if (!is_member(round, gpus->gpu[i].processes[p].pid))
                note(round, &gpus->gpu[i].processes[p], i);
    }
    if (round->listed_count)
        qsort(round->listed, (size_t)round->listed_count, sizeof *round->listed, by_pid);
}

static struct sample_process *add(struct round *round, const struct listed *listed, int sample_job)
{
    struct sample_process *process = sample_add_process(round->sample);
    if (!process) {
        round->failed = true;
        return NULL;
    }
    const struct who *who = listed->who;
    process->kind = sample_job < 0 ? SAMPLE_STRANGER : SAMPLE_OUTSIDE;
    process->job = sample_job;
    process->parent = -1;
    process->pid = listed->process->pid;
    process->place = who ? who->place : PROC_UNSEEN;
    process->start_ticks = who ? who->start_ticks : 0;
    process->peak_bytes = SAMPLE_UNKNOWN;
    process->shares.first = round->sample->share_count;
    collect__put(process->user, sizeof process->user, "%s", who ? who->user : "");
    collect__put(process->command, sizeof process->command, "%s", who ? who->command : "");
    if (sample_job >= 0)
        round->sample->jobs[sample_job].processes.count++;
    return process;
}

static void add_share(struct round *round, const struct listed *listed, struct sample_process *process)
{
    struct sample_share *share = sample_add_share(round->sample);
    if (!share) {
        round->failed = true;
        return;
    }
    uint64_t held = listed->process->used_bytes;
    share->device = listed->device;
    share->logical = -1;
    share->usage.held_bytes = held;
    share->usage.peak_bytes = SAMPLE_UNKNOWN;
    process->shares.count++;
    process->held_bytes = held == ULL_NVML_UNKNOWN || process->held_bytes == SAMPLE_UNKNOWN
                              ? SAMPLE_UNKNOWN
                              : process->held_bytes + held;
}

void collect__add_listed(struct round *round, int owner, int sample_job)
{
    struct sample_process *process = NULL;
    uint32_t last = 0;
    for (int i = 0; i < round->listed_count && !round->failed; i++) {
        const struct listed *listed = &round->listed[i];
        if (listed->owner != owner)
            continue;
        if (!process || listed->process->pid != last)
            process = add(round, listed, sample_job);
        last = listed->process->pid;
        if (process)
            add_share(round, listed, process);
    }
    /* Courses at the end: only then is the sum over devices known. */
    const struct sample *sample = round->sample;
    struct sample_span span = {sample->process_count, 0};
    while (span.first > 0 && sample->processes[span.first - 1].kind >= SAMPLE_OUTSIDE &&
           sample->processes[span.first - 1].job == sample_job)
        span.first--;
    for (int p = span.first; p < sample->process_count; p++) {
        struct sample_process *one = &sample->processes[p];
        const char *id = sample_job < 0 ? "" : sample->jobs[sample_job].id;
        collect__follow(round, id, 0, one->pid, one->start_ticks, one->held_bytes, &one->trend);
    }
}
