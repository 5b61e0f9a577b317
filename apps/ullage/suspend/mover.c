/* mover.c: see mover.h. */
#include "mover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "cli.h"
#include "control.h"
#include "error.h"
#include "group.h"
#include "move_parts.h"
#include "stand.h"
#include "ties.h"

enum { POLL_NS = 20000000 };

static struct move_part *part_of(const struct move *move, const struct move_place *at)
{
    return &move->parts[at->part];
}

static bool is_there(const struct move *move, const struct ull__process_view *process)
{
    return process->residency == (move->out ? ULL_MOVED_OUT : ULL_RESIDENT);
}

static void look(struct move *move)
{
    struct ull__process_view process;
    struct move_progress *p = &move->progress;
    *p = (struct move_progress){0};
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++) {
        p->processes++;
        p->there += is_there(move, &process);
        p->moved_bytes += process.moved_bytes;
        p->to_move_bytes += process.to_move_bytes;
        p->moving_ns = process.moving_ns > p->moving_ns ? process.moving_ns : p->moving_ns;
    }
    if (!move->stopped && move->options->step)
        move->stopped = move->options->step(p, move->options->data);
}

/* --- processes that the driver moves --------------------------------------------------------------------- */

static void report(struct move *move, const struct move_place *at,
                   const struct ull__process_view *process, enum ull__residency residency, bool done)
{
    struct move_part *part = part_of(move, at);
    struct ull__residency_report say = {.residency = residency, .done = done ? part->number : 0};
    uint64_t held = move_held(process);
    bool out = residency == ULL_MOVED_OUT || residency == ULL_MOVING_IN;
    say.to_move_bytes = held;
    say.moved_bytes = done ? held : 0;
    for (int d = 0; d < ULL_MAX_DEVICES && out; d++)
        say.evicted_bytes[d] = process->usage[d].held_bytes; /* contexts too */
    if (residency == ULL_MOVED_OUT && !move->out)
        say.moved_by = relatives_keep_out(&part->relatives, process)    ? ULL_BY_INNER
                       : relatives_out_around(&part->relatives) != NULL ? ULL_BY_OUTER
                                                                        : ULL_BY_JOB;
    ull__ledger_report(part->ledger, at->slot, process->pid, &say);
    relatives_report(&part->relatives, process, residency);
}

/* Of the process that the driver is about to move. */
struct moved_one {
    struct ull__ledger *ledger;
    int slot;
};

static bool is_tied(void *data)
{
    const struct moved_one *one = data;
    struct ull__process_view process;
    return ull__ledger_process(one->ledger, one->slot, &process) && ties_of(&process);
}

static ull_status move_by_driver(struct move *move, const struct move_place *at,
                                 const struct ull__process_view *process, struct ull_error *err)
{
    struct moved_one one = {.ledger = part_of(move, at)->ledger, .slot = at->slot};
    report(move, at, process, move->out ? ULL_MOVING_OUT : ULL_MOVING_IN, false);
    look(move);
    ull_status status = move->stopped && move->out
                            ? ull__fail(err, ULL_E_SYSTEM, "it was stopped")
                            : checkpoint_move(process->pid, move->out, move->options->timeout_s,
                                              move->moves_shared ? NULL : is_tied, &one, err);
    bool out = (status == ULL_OK) == move->out;
    report(move, at, process, out ? ULL_MOVED_OUT : ULL_RESIDENT, status == ULL_OK);
    return status;
}

static bool driver_moves(const struct move *move, const struct ull__process_view *process)
{
    return !process->gated && !is_there(move, process) &&
           (move_held(process) > 0 || process->residency != ULL_RESIDENT);
}

/* On the way back: another job that has it wants it out still. */
static bool stays_out(const struct move *move, const struct move_place *at,
                      const struct ull__process_view *process)
{
    const struct relatives *relatives = &part_of(move, at)->relatives;
    return !move->out && process->residency == ULL_MOVED_OUT &&
           (relatives_out_around(relatives) || relatives_keep_out(relatives, process));
}

static ull_status move_ungated(struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++) {
        if (!driver_moves(move, &process))
            continue;
        if (stays_out(move, &at, &process)) {
            report(move, &at, &process, ULL_MOVED_OUT, true);
            continue;
        }
        ull_status status = move_by_driver(move, &at, &process, err);
        if (status != ULL_OK)
            return status;
    }
    return ULL_OK;
}

/* --- processes that move themselves ----------------------------------------------------------------------- */

static ull_status answers(struct move *move, bool *all, struct ull_error *err)
{
    struct ull__process_view process;
    *all = true;
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++) {
        if (!process.gated)
            continue;
        if (process.done < part_of(move, &at)->number)
            *all = false;
        else if (!is_there(move, &process) && (move->out || process.moved_by == ULL_BY_JOB))
            return ull__fail(err, move->out ? ULL_E_DRIVER : ULL_E_NO_MEMORY,
                             "process %u (%s) could not be %s: %s", process.pid, process.command,
                             move->out ? "moved out" : "brought back",
                             process.trouble[0] ? process.trouble : "it did not say why");
    }
    return ULL_OK;
}

/* Who did not answer says meanwhile what is in its way, if it knows. */
static ull_status fail_in_time(const struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++)
        if (process.gated && process.done < part_of(move, &at)->number && process.trouble[0])
            return ull__fail(err, ULL_E_SYSTEM, "process %u (%s) did not come to rest in %u s: %s",
                             process.pid, process.command, move->options->timeout_s, process.trouble);
    return ull__fail(err, ULL_E_SYSTEM, "some of its processes did not answer in %u s",
                     move->options->timeout_s);
}

static ull_status wait_for_gated(struct move *move, struct ull_error *err)
{
    uint64_t until = cli_monotonic_ns() + move->options->timeout_s * 1000000000ull;
    uint64_t moved = 0;
    for (;;) {
        bool all;
        look(move);
        ull_status status = answers(move, &all, err);
        if (status != ULL_OK || all)
            return status;
        if (move->stopped && move->out)
            return ull__fail(err, ULL_E_SYSTEM, "it was stopped");
        if (move->progress.moved_bytes != moved) /* time counts only while nothing moves */
            until = cli_monotonic_ns() + move->options->timeout_s * 1000000000ull;
        moved = move->progress.moved_bytes;
        if (cli_monotonic_ns() > until)
            return fail_in_time(move, err);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

static ull_status carry_out(struct move *move, struct ull_error *err)
{
    enum ull__wanted wanted = move->out ? ULL_WANT_MOVED_OUT : ULL_WANT_RESIDENT;
    for (int i = 0; i < move->count; i++) {
        move->parts[i].number = ull__ledger_command(move->parts[i].ledger, wanted);
        if (move->parts[i].number == 0)
            return ull__fail(err, ULL_E_PERMISSION, "the job's ledger %s cannot be written",
                             ull__ledger_path(move->parts[i].ledger));
    }
    ull_status status = move_ungated(move, err);
    if (status == ULL_OK)
        status = wait_for_gated(move, err);
    look(move);
    return status;
}

/* --- a group --------------------------------------------------------------------------------------------------- */

static bool is_stopped(void *data)
{
    struct move *move = data;
    look(move);
    return move->stopped;
}

/* Several processes may wait for each other on their devices: all of them come to rest at one point, or none does. */
static ull_status stand_together(struct move *move, struct ull_error *err)
{
    unsigned int patience = move_patience(move);
    struct stand_options options = {
        .timeout_s = move->options->timeout_s, .stopped = is_stopped, .data = move};
    struct ull__ledger **ledgers = calloc((size_t)move->count, sizeof *ledgers);
    if (!ledgers)
        return ull__fail(err, ULL_E_SYSTEM, "no memory");
    for (int i = 0; i < move->count; i++)
        ledgers[i] = move->parts[i].ledger;
    if (patience > 0 && patience < options.timeout_s)
        options.timeout_s = patience;
    ull_status status = stand_count(ledgers, move->count) < 2
                            ? ULL_OK
                            : stand_by(ledgers, move->count, &options, err);
    free(ledgers);
    return status;
}

/* All or none: who found no room, or could not be brought back, is out, so the others go out too. */
static void all_out(const struct move *failed, struct ull_error *err)
{
    struct move_options quiet = *failed->options;
    struct move out = *failed;
    out.options = &quiet;
    out.out = true;
    out.stopped = false;
    struct ull_error also = {""};
    quiet.step = NULL;
    if (carry_out(&out, &also) != ULL_OK && err) {
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof err->message - used,
                 "; and some of its processes stay on the card: %.200s", also.message);
    }
}

/* The driver's part needs to know of the jobs inside, too. */
static void open_relatives(struct move_part *part)
{
    struct move one = {.parts = part, .count = 1};
    struct ull__process_view process;
    bool by_driver = false;
    for (struct move_place at = {0}; move_next(&one, &at, &process); at.slot++)
        by_driver |= !process.gated;
    relatives_open(&part->relatives, part->ledger, by_driver);
}

static ull_status move_out(struct move *move, struct ull_error *err)
{
    ull_status status = may_move_out(move, err);
    if (status == ULL_OK)
        status = stand_together(move, err);
    if (status != ULL_OK)
        return status;
    status = carry_out(move, err);
    if (status == ULL_OK)
        return ULL_OK;
    struct move back = *move;
    struct ull_error also = {""};
    back.out = false;
    back.stopped = true;
    ull_status came = carry_out(&back, &also);
    if (came != ULL_OK && err) {
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof err->message - used,
                 "; and then not all came back: %.200s; try `ullage resume`", also.message);
    }
    if (came == ULL_E_NO_MEMORY || came == ULL_E_DRIVER)
        all_out(move, err);
    return status;
}

static ull_status move_back(struct move *move, struct ull_error *err)
{
    ull_status status = may_move_back(move, err);
    if (status == ULL_OK)
        status = carry_out(move, err);
    if (status == ULL_E_NO_MEMORY || status == ULL_E_DRIVER)
        all_out(move, err);
    return status;
}

/* The job, and those of its group that are where it is. */
static ull_status gather(struct move *move, struct ull__ledger *ledger, struct job_group *group,
                         struct ull_error *err)
{
    ull_status status = group_open(ledger, group, err);
    if (status != ULL_OK)
        return status;
    move->parts = calloc((size_t)group->count, sizeof *move->parts);
    if (!move->parts) {
        group_close(group);
        return ull__fail(err, ULL_E_SYSTEM, "no memory");
    }
    for (int i = 0; i < group->count; i++) {
        struct ull__job_view job;
        ull__ledger_job(group->ledgers[i], &job);
        bool there = job.state == (move->out ? ULL_JOB_SUSPENDED : ULL_JOB_RUNNING);
        if (i > 0 && (there || job.state == ULL_JOB_WAITING))
            continue;
        move->parts[move->count].ledger = group->ledgers[i];
        open_relatives(&move->parts[move->count++]);
    }
    return ULL_OK;
}

static ull_status act(struct ull__ledger *ledger, bool out, const struct move_options *options,
                      struct move_progress *moved, struct ull_error *err)
{
    struct move move = {.options = options, .out = out};
    struct job_group group;
    ull_status status = gather(&move, ledger, &group, err);
    if (status != ULL_OK)
        return status;
    status = out ? move_out(&move, err) : move_back(&move, err);
    if (status == ULL_OK) {
        *moved = move.progress;
        moved->waits_for_outer = !out && relatives_out_around(&move.parts[0].relatives) != NULL;
    }
    for (int i = 0; i < move.count; i++) {
        if (status == ULL_OK && options->by_user)
            ull__ledger_set_flag(move.parts[i].ledger, ULL_FLAG_BY_USER, out);
        relatives_close(&move.parts[i].relatives);
    }
    free(move.parts);
    group_close(&group);
    return status;
}

ull_status job_move_out(struct ull__ledger *ledger, const struct move_options *options,
                        struct move_progress *moved, struct ull_error *err)
{
    return act(ledger, true, options, moved, err);
}

ull_status job_move_back(struct ull__ledger *ledger, const struct move_options *options,
                         struct move_progress *moved, struct ull_error *err)
{
    return act(ledger, false, options, moved, err);
}
