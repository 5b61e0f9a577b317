/*
 * train_job.c: a training as a job of its own: `ullage ps` and `top` list it on a device `cpu`, `ullage budget` changes what it may
 * hold; and what follows from a change: another plan, between steps.
 *
 * Where shared memory is missing or full the training runs without a job, and says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapt.h"
#include "error.h"
#include "host_memory.h"
#include "member.h"
#include "self.h"
#include "size.h"
#include "train_plan.h"

/* Between two looks at the machine's memory, seconds. */
#define LOOK_EVERY 0.5

struct train_job {
    struct ull__ledger *ledger; /* NULL: no job */
    struct ull__member *member;
    uint64_t charged;
    uint64_t budget; /* the last one that was acted upon */
    double changed_at, looked_at;
};

static double now(void)
{
    return (double)cli_monotonic_ns() / 1e9;
}

/* The job is that of all ranks: its budget is the sum of theirs. */
static uint64_t ranks_of(const struct training *training)
{
    const struct ull__world *world = training->options->world;
    return world != NULL ? (uint64_t)ull__world_ranks(world) : 1;
}

static void describe(const struct training *training, struct ull__job_spec *spec)
{
    struct ull__device_spec *device = &spec->devices[0];
    *spec = (struct ull__job_spec){.quiet = true, .device_count = 1};
    snprintf(spec->name, sizeof(spec->name), "%.*s", (int)strcspn(training->options->model, ":"),
             training->options->model);
    snprintf(spec->command, sizeof(spec->command), "ullage train %.200s", training->model_text);
    if (ranks_of(training) > 1) {
        snprintf(spec->set_by, sizeof(spec->set_by), "%d times --memory of ullage train",
                 (int)ranks_of(training));
    } else {
        snprintf(spec->set_by, sizeof(spec->set_by), "--memory of ullage train");
    }
    snprintf(device->uuid, sizeof(device->uuid), "cpu");
    snprintf(device->name, sizeof(device->name), "cpu");
    device->physical = -1;
    device->integrated = true;
    device->total_bytes = ull__host_memory_total();
    device->budget_bytes = (uint64_t)training->options->memory * ranks_of(training);
    device->total_bytes =
        device->total_bytes > device->budget_bytes ? device->total_bytes : device->budget_bytes;
}

/* Without them there is nothing to list, and nobody who changes the budget. */
static void leave(struct train_job *job)
{
    if (job->member != NULL) {
        ull__member_release(job->member, 0, ULL_CLASS_DATA, job->charged);
    }
    if (job->ledger != NULL) {
        unlink(ull__ledger_path(job->ledger));
        ull__ledger_close(job->ledger);
    }
    job->member = NULL;
    job->ledger = NULL;
}

/* The ledger of all ranks, which rank 0 makes, and this one's place in it. */
static ull_status enter(const struct training *training, struct train_job *job, struct ull_error *err)
{
    struct ull__job_spec spec;
    struct ull__identity identity = {.pid = (uint32_t)getpid(),
                                     .start_ticks = ull__own_start_ticks()};
    struct ull__world *world = training->options->world;
    char path[512] = "";
    ull_status status = ULL_OK;
    ull__own_command(identity.command);
    describe(training, &spec);
    if (train_speaks(training->options)) {
        status = ull__ledger_create(&spec, &job->ledger, err);
        snprintf(path, sizeof(path), "%s", status == ULL_OK ? ull__ledger_path(job->ledger) : "");
    }
    if (world != NULL) {
        ull_status told = ull__world_tell(world, path, sizeof(path), status == ULL_OK ? err : NULL);
        status = status == ULL_OK ? told : status;
    }
    return status == ULL_OK && path[0] != '\0' ? ull__member_join(path, &identity, &job->member, err)
                                               : status;
}

void train_job_open(struct training *training)
{
    struct ull__world *world = training->options->world;
    struct ull_error err;
    struct train_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        if (world != NULL) { /* which expects it where the job is told of */
            ull__world_fail(world, "no memory for a job");
        }
        return;
    }
    training->job = job;
    job->budget = (uint64_t)training->options->memory * ranks_of(training);
    job->changed_at = now();
    if (enter(training, job, &err) == ULL_OK) {
        train_job_charge(training);
    } else {
        /* It stays: a rank that has no place still follows rank 0's budget, or it would be alone with the old plan. */
        bool failed = world != NULL &&
                      ull__world_failed(world) >= 0; /* which ends it all, and is told then */
        if (!failed && train_speaks(training->options)) {
            train_print_note(training, err.message);
        } else if (!failed) {
            cli_say("rank %d is not in the job's account: %s", ull__world_rank(world), err.message);
        }
        leave(job);
    }
}

void train_job_close(struct training *training)
{
    if (training->job != NULL) {
        leave(training->job);
        free(training->job);
        training->job = NULL;
    }
}

/* The regions of the plan in force, budget or not: they are there. */
void train_job_charge(struct training *training)
{
    struct train_job *job = training->job;
    struct ull__session_info info;
    if (job == NULL || job->member == NULL) {
        return;
    }
    ull__session_info(training->session, &info);
    if (info.predicted_peak_bytes > job->charged) {
        ull__member_charge(job->member, 0, ULL_CLASS_DATA, info.predicted_peak_bytes - job->charged);
    } else {
        ull__member_release(job->member, 0, ULL_CLASS_DATA, job->charged - info.predicted_peak_bytes);
    }
    job->charged = info.predicted_peak_bytes;
}

/* --- Following the budget --- */

static void note_switch(struct training *training, const char *why)
{
    struct ull__session_info info;
    char words[256], text[512], size[ULL_SIZE_TEXT];
    ull__session_info(training->session, &info);
    struct ull__save_switch *more =
        realloc(training->switches, sizeof(*more) * (training->switch_count + 1));
    if (more != NULL) {
        training->switches = more;
        struct ull__save_switch *made = &more[training->switch_count++];
        *made = (struct ull__save_switch){.step = training->seen,
                                          .micro_batch = (uint64_t)info.chosen->micro_batch,
                                          .budget_bytes = training->job->budget};
        snprintf(made->plan, sizeof(made->plan), "%.120s",
                 train_plan_words(info.chosen, words, sizeof(words)));
        snprintf(made->why, sizeof(made->why), "%.120s", why);
    }
    snprintf(text, sizeof(text), "step %llu: %s: now %s, %s, %.3g s a step predicted",
             (unsigned long long)training->seen, why,
             train_plan_words(info.chosen, words, sizeof(words)),
             ull__size_text(info.predicted_peak_bytes, size),
             info.buckets[info.bucket_count - 1].predicted_seconds);
    train_print_note(training, text);
}

static void replan(struct training *training, uint64_t budget, int64_t least, int64_t most,
                   const char *why)
{
    struct ull_error err;
    bool changed = false;
    ull_status status = ull__session_replan(training->session, budget, least, most, &changed, &err);
    if (status != ULL_OK) {
        /* Nothing is lost: it goes on as it is. */
        train_print_note(training, err.message);
    } else if (changed) {
        training->job->changed_at = now();
        train_job_charge(training);
        note_switch(training, why);
        if (train_plan_write(training, &err) != ULL_OK) {
            train_print_note(training, err.message);
        }
    }
}

/* The peak of the fastest plan with at least twice the micro-batch; 0: none. */
static uint64_t doubled_peak(const struct ull__session_info *info)
{
    int count;
    const struct ull__plan *plans = ull__planner_plans(info->planner, &count);
    int64_t least = INT64_MAX;
    for (int i = 0; i < count; ++i) {
        bool doubled = plans[i].micro_batch >= 2 * info->chosen->micro_batch &&
                       plans[i].precision == info->chosen->precision &&
                       plans[i].offload_optimizer == info->chosen->offload_optimizer;
        least = doubled && plans[i].bound_bytes < least ? plans[i].bound_bytes : least;
    }
    return least != INT64_MAX ? (uint64_t)least : 0;
}

/* `ullage budget` has spoken. */
static void follow_budget(struct training *training, uint64_t budget)
{
    char text[160], size[ULL_SIZE_TEXT];
    training->job->budget = budget;
    snprintf(text, sizeof(text), "the budget is %s", ull__size_text(budget, size));
    replan(training, budget / ranks_of(training), training->options->min_batch,
           training->options->max_batch, text);
}

/*
 * --memory auto: the machine has more to give, or less, or a control group that this runs in. Each of them may ask for less, all must
 * allow more.
 */
static void follow_machine(struct training *training, double at)
{
    struct ull__session_info info;
    struct ull__host_scope scopes[ULL_HOST_SCOPES];
    enum ull__adapt what = ULL_ADAPT_KEEP;
    int count = ull__host_scopes("", 0, scopes);
    uint64_t outside = training->options->profile.outside_bytes, room = UINT64_MAX;
    ull__session_info(training->session, &info);
    struct ull__adapt_input input = {.now = at,
                                     .changed_at = training->job->changed_at,
                                     .own_bytes = info.predicted_peak_bytes,
                                     .doubled_bytes = doubled_peak(&info),
                                     .micro_batch = info.chosen->micro_batch,
                                     .least = training->options->min_batch,
                                     .most = training->options->max_batch};
    for (int i = 0; i < count; ++i) {
        input.total_bytes = scopes[i].total;
        input.used_bytes = scopes[i].total - scopes[i].left;
        enum ull__adapt here = ull__adapt(&input);
        what = i == 0 || here == ULL_ADAPT_HALVE ||
                       (what == ULL_ADAPT_DOUBLE && here == ULL_ADAPT_KEEP)
                   ? here
                   : what;
        if (here == ULL_ADAPT_HALVE) {
            break;
        }
        uint64_t others = input.used_bytes > input.own_bytes ? input.used_bytes - input.own_bytes : 0;
        uint64_t most = (uint64_t)(ULL_ADAPT_HIGH * (double)scopes[i].total);
        most = most > others ? most - others : 0;
        room = most < room ? most : room;
    }
    switch (what) {
    case ULL_ADAPT_HALVE:
        replan(training, info.predicted_peak_bytes + outside, input.least, input.micro_batch / 2,
               "memory is short");
        break;
    case ULL_ADAPT_DOUBLE:
        replan(training, room + outside, 2 * input.micro_batch, input.most,
               "there is memory to spare");
        break;
    default:
        break;
    }
}

ull_status train_job_follow(struct training *training, struct ull_error *err)
{
    struct train_job *job = training->job;
    uint64_t budget = 0, held;
    double at = now();
    if (job != NULL && job->ledger != NULL && job->member != NULL) {
        ull__member_room(job->member, 0, &budget, &held);
        ull__ledger_sample(job->ledger);
        ull__ledger_keep_name(job->ledger, NULL);
    }
    ull_status status = train_ranks_agree(training, &budget, err);
    if (status != ULL_OK || job == NULL) {
        return status;
    }
    if (budget > 0 && budget != job->budget) {
        follow_budget(training, budget);
    }
    if (training->options->automatic && at - job->looked_at >= LOOK_EVERY) {
        job->looked_at = at;
        follow_machine(training, at);
    }
    return ULL_OK;
}
