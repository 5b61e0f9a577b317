/* scene.c: see scene.h. */
#include "scene.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define GIB (1ull << 30)
#define MIB (1ull << 20)

static struct sample *begin(void)
{
    struct sample *sample = sample_create();
    assert(sample);
    sample->number = 1;
    sample->time_ns = 5000000000ull;
    sample->unix_ns = 1795953731ull * 1000000000ull;
    return sample;
}

void scene_course(struct trend *trend, uint64_t first, uint64_t step, int count)
{
    for (int i = 0; i < count; i++)
        trend_add(trend, first + step * (uint64_t)i);
}

struct sample_device *scene_card(struct sample *sample, uint64_t total, uint64_t used)
{
    struct sample_device *card = sample_add_device(sample);
    int place = sample->device_count - 1;
    snprintf(card->uuid, sizeof card->uuid, "GPU-00000000-fa4e-4000-8000-%012d", place);
    snprintf(card->name, sizeof card->name, "NVIDIA H200");
    card->physical = place;
    card->instance = card->card = -1;
    card->total_bytes = total;
    card->reserved_bytes = total / 200;
    card->used_bytes = used;
    card->free_bytes = total - used - total / 200;
    card->other_bytes = used;
    card->busy_percent = 37;
    return card;
}

static void share(struct sample *sample, struct sample_span *span, uint64_t budget, uint64_t held)
{
    struct sample_share *share = sample_add_share(sample);
    *span = (struct sample_span){sample->share_count - 1, 1};
    share->budget_bytes = budget;
    share->average_bytes = budget ? held / 2 : 0;
    share->usage.held_bytes = held;
    share->usage.peak_bytes = held + held / 10;
    share->usage.by_class[ULL_CLASS_CONTEXT] = held / 4;
    share->usage.by_class[ULL_CLASS_DATA] = held - held / 4;
    share->usage.peak_by_class[ULL_CLASS_CONTEXT] = held / 4;
    share->usage.peak_by_class[ULL_CLASS_DATA] = held;
}

struct sample_job *scene_job(struct sample *sample, const char *name, uint64_t budget, uint64_t held)
{
    struct sample_job *job = sample_add_job(sample);
    int place = sample->job_count - 1;
    snprintf(job->id, sizeof job->id, "id%d", place);
    snprintf(job->name, sizeof job->name, "%s", name);
    snprintf(job->command, sizeof job->command, "python3 %s.py", name);
    snprintf(job->user, sizeof job->user, "ada");
    snprintf(job->set_by, sizeof job->set_by, "-m %llu", (unsigned long long)budget);
    job->parent = -1;
    job->state = ULL_JOB_RUNNING;
    job->pid = 1000 + (uint32_t)place;
    job->start_ticks = 77;
    job->start_unix_ns = sample->unix_ns - 90ull * 60 * 1000000000;
    job->budget_bytes = budget;
    job->held_bytes = held;
    job->peak_bytes = held + held / 10;
    job->fill = budget ? (double)held / (double)budget : 0;
    job->processes.first = sample->process_count;
    share(sample, &job->shares, budget, held);
    if (sample->device_count > 0) {
        sample->devices[0].job_bytes += held;
        sample->devices[0].other_bytes -=
            held < sample->devices[0].other_bytes ? held : sample->devices[0].other_bytes;
    }
    scene_course(&job->trend, held, 0, 20);
    return job;
}

static struct sample_process *process(struct sample *sample, const char *command, uint64_t held)
{
    struct sample_process *process = sample_add_process(sample);
    process->pid = 2000 + (uint32_t)sample->process_count;
    process->start_ticks = 500 + (uint64_t)sample->process_count;
    process->parent = process->job = -1;
    process->held_bytes = held;
    process->peak_bytes = held + held / 10;
    snprintf(process->user, sizeof process->user, "ada");
    snprintf(process->command, sizeof process->command, "%s", command);
    share(sample, &process->shares, 0, held);
    scene_course(&process->trend, held, 0, 20);
    return process;
}

struct sample_process *scene_process(struct sample *sample, const char *command, uint64_t held,
                                     int parent)
{
    struct sample_process *added = process(sample, command, held);
    added->job = sample->job_count - 1;
    added->parent = parent;
    sample->jobs[added->job].processes.count++;
    return added;
}

struct sample_process *scene_stranger(struct sample *sample, const char *command, uint64_t held)
{
    struct sample_process *added = process(sample, command, held);
    added->kind = SAMPLE_STRANGER;
    added->peak_bytes = SAMPLE_UNKNOWN;
    if (sample->strangers.count++ == 0)
        sample->strangers.first = sample->process_count - 1;
    return added;
}

struct sample *scene_usual(void)
{
    struct sample *sample = begin();
    scene_card(sample, 140 * GIB, 66 * GIB);
    scene_card(sample, 140 * GIB, 0);
    scene_job(sample, "notebook", 8 * GIB, 7900 * MIB);
    scene_process(sample, "/usr/bin/python3 -m ipykernel_launcher -f kernel.json", 7900 * MIB, -1);
    struct sample_job *job = scene_job(sample, "inner", 2 * GIB, 1 * GIB);
    job->parent = 0;
    job->state = ULL_JOB_SUSPENDED;
    scene_process(sample, "inner", 1 * GIB, -1)->kind = SAMPLE_OUTSIDE;
    job = scene_job(sample, "train", 64 * GIB, 48 * GIB);
    memset(&job->trend, 0, sizeof job->trend);
    scene_course(&job->trend, 30 * GIB, GIB / 3, 55);
    struct ull__refusal *refusal = sample_add_refusal(sample);
    *refusal = (struct ull__refusal){.number = 3,
                                     .wanted_bytes = 20 * GIB,
                                     .held_bytes = 48 * GIB,
                                     .budget_bytes = 64 * GIB,
                                     .pid = 2003,
                                     .class = ULL_CLASS_DATA,
                                     .survived = true,
                                     .command = "python3",
                                     .call = "cuMemAlloc_v2"};
    job->refusals = 3;
    job->refusals_survived = 2;
    job->shown_refusals = (struct sample_span){0, 1};
    int first = sample->process_count;
    scene_process(sample, "python3 train.py --epochs 90", 30 * GIB, -1);
    scene_process(sample, "python3 worker 0", 10 * GIB, first);
    scene_process(sample, "python3 worker 0 helper", 3 * GIB, first + 1);
    scene_process(sample, "python3 worker 1", 5 * GIB, first)->kind = SAMPLE_DRAINING;
    scene_stranger(sample, "Xorg", 200 * MIB);
    scene_stranger(sample, "", 100 * MIB)->place = PROC_UNSEEN;
    return sample;
}

struct sample *scene_hostile(void)
{
    static const char *const names[] = {
        "a\033[2J\033[1;1Hgotcha\r\n\tx",
        "\xe5\xad\xa6\xe4\xb9\xa0\xe8\xae\xad\xe7\xbb\x83\xe7\xa8\x8b\xe5\xba\x8f\xe5\xbe\x88\xe9"
        "\x95\xbf",
        "\xff\xfe\x80\xc3(\xe2\x82",
        "e\xcc\x81\xcc\x81\xcc\x81\xcc\x81 combining",
        "\xe2\x80\xaereversed\xe2\x81\xa6 bidi \xe2\x80\x8b",
        "\xf0\x9f\x94\xa5\xf0\x9f\x94\xa5 emoji \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb",
        "\xc2\x9b"
        "31m c1 \xc2\x85",
        "%s%n%d ''\"\\",
        "",
    };
    struct sample *sample = begin();
    size_t count = sizeof names / sizeof *names;
    scene_card(sample, 140 * GIB, 66 * GIB);
    snprintf(sample->devices[0].name, sizeof sample->devices[0].name, "%s", names[1]);
    for (size_t i = 0; i < count; i++) {
        struct sample_job *job = scene_job(sample, names[i], GIB, GIB / (i + 1));
        snprintf(job->user, sizeof job->user, "%.32s", names[(i + 1) % count]);
        scene_process(sample, names[i], GIB / (i + 1), -1);
    }
    for (size_t i = 0; i < count; i++)
        scene_stranger(sample, names[i], GIB);
    return sample;
}

struct sample *scene_many(int jobs, int processes, int cards)
{
    struct sample *sample = begin();
    char name[64];
    for (int i = 0; i < cards; i++)
        scene_card(sample, 140 * GIB, 66 * GIB);
    for (int j = 0; j < jobs; j++) {
        snprintf(name, sizeof name, "job%03d", j);
        scene_job(sample, name, 64 * GIB, (uint64_t)(jobs - j) * 10 * MIB);
        for (int p = 0; p < processes; p++) {
            /* A chain, deeper than a screen is wide. */
            int above = p == 0 ? -1 : sample->process_count - 1;
            snprintf(name, sizeof name, "process %d of job %d", p, j);
            scene_process(sample, name, 10 * MIB, above);
        }
    }
    return sample;
}

struct sample *scene_nothing(const char *why)
{
    struct sample *sample = begin();
    snprintf(sample->no_cards, sizeof sample->no_cards, "%s", why);
    return sample;
}
