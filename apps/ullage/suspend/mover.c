/* mover.c: see mover.h. */
#include "mover.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "cli.h"
#include "control.h"
#include "error.h"
#include "procfs.h"
#include "relatives.h"
#include "size.h"
#include "ties.h"

enum { POLL_NS = 20000000 };

struct move {
    struct ull__ledger *ledger;
    const struct move_options *options;
    const struct relatives *relatives;
    bool out;
    uint64_t number; /* of the command */
    bool stopped;
    bool moves_shared; /* known: the driver moves what is shared */
    struct move_progress progress;
};

static uint64_t held_by(const struct ull__process_view *process)
{
    uint64_t sum = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        sum += process->usage[d].held_bytes;
    return sum;
}

static uint64_t evicted_of(const struct ull__process_view *process)
{
    uint64_t sum = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        sum += process->evicted_bytes[d];
    return sum;
}

/* The processes of the job that are alive, from `*slot` on; false when there are no more. */
static bool next_process(struct ull__ledger *ledger, int *slot, struct ull__process_view *process)
{
    for (; *slot < ULL_MAX_SLOTS; ++*slot)
        if (ull__ledger_process(ledger, *slot, process) && !process->draining)
            return true;
    return false;
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
    for (int slot = 0; next_process(move->ledger, &slot, &process); slot++) {
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

static void report(struct move *move, int slot, const struct ull__process_view *process,
                   enum ull__residency residency, bool done)
{
    struct ull__residency_report say = {.residency = residency, .done = done ? move->number : 0};
    uint64_t held = held_by(process);
    bool out = residency == ULL_MOVED_OUT || residency == ULL_MOVING_IN;
    say.to_move_bytes = held;
    say.moved_bytes = done ? held : 0;
    for (int d = 0; d < ULL_MAX_DEVICES && out; d++)
        say.evicted_bytes[d] = process->usage[d].held_bytes; /* contexts too */
    if (residency == ULL_MOVED_OUT && !move->out)
        say.moved_by = relatives_keep_out(move->relatives, process)    ? ULL_BY_INNER
                       : relatives_out_around(move->relatives) != NULL ? ULL_BY_OUTER
                                                                       : ULL_BY_JOB;
    ull__ledger_report(move->ledger, slot, process->pid, &say);
    relatives_report(move->relatives, process, residency);
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

static ull_status move_by_driver(struct move *move, int slot,
                                 const struct ull__process_view *process, struct ull_error *err)
{
    struct moved_one one = {.ledger = move->ledger, .slot = slot};
    report(move, slot, process, move->out ? ULL_MOVING_OUT : ULL_MOVING_IN, false);
    look(move);
    ull_status status = move->stopped && move->out
                            ? ull__fail(err, ULL_E_SYSTEM, "it was stopped")
                            : checkpoint_move(process->pid, move->out, move->options->timeout_s,
                                              move->moves_shared ? NULL : is_tied, &one, err);
    bool out = (status == ULL_OK) == move->out;
    report(move, slot, process, out ? ULL_MOVED_OUT : ULL_RESIDENT, status == ULL_OK);
    return status;
}

static bool driver_moves(const struct move *move, const struct ull__process_view *process)
{
    return !process->gated && !is_there(move, process) &&
           (held_by(process) > 0 || process->residency != ULL_RESIDENT);
}

/* On the way back: another job that has it wants it out still. */
static bool stays_out(const struct move *move, const struct ull__process_view *process)
{
    return !move->out && process->residency == ULL_MOVED_OUT &&
           (relatives_out_around(move->relatives) || relatives_keep_out(move->relatives, process));
}

static ull_status move_ungated(struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    for (int slot = 0; next_process(move->ledger, &slot, &process); slot++) {
        if (!driver_moves(move, &process))
            continue;
        if (stays_out(move, &process)) {
            report(move, slot, &process, ULL_MOVED_OUT, true);
            continue;
        }
        ull_status status = move_by_driver(move, slot, &process, err);
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
    for (int slot = 0; next_process(move->ledger, &slot, &process); slot++) {
        if (!process.gated)
            continue;
        if (process.done < move->number)
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
    for (int slot = 0; next_process(move->ledger, &slot, &process); slot++)
        if (process.gated && process.done < move->number && process.trouble[0])
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
    move->number =
        ull__ledger_command(move->ledger, move->out ? ULL_WANT_MOVED_OUT : ULL_WANT_RESIDENT);
    if (move->number == 0)
        return ull__fail(err, ULL_E_PERMISSION, "the job's ledger %s cannot be written",
                         ull__ledger_path(move->ledger));
    ull_status status = move_ungated(move, err);
    if (status == ULL_OK)
        status = wait_for_gated(move, err);
    look(move);
    return status;
}

/* --- before anything moves -------------------------------------------------------------------------------- */

static ull_status check_host(struct ull__ledger *ledger, struct ull_error *err)
{
    struct ull__process_view process;
    uint64_t needed = 0, available = proc_memory_available();
    char need[ULL_SIZE_TEXT], have[ULL_SIZE_TEXT];
    for (int slot = 0; next_process(ledger, &slot, &process); slot++) {
        uint64_t out = evicted_of(&process), held = held_by(&process);
        uint64_t moves = held > out ? held - out : 0, there = out > 0 ? 0 : process.pinned_bytes;
        needed += moves > there ? moves - there : 0;
    }
    if (needed <= available)
        return ULL_OK;
    return ull__fail(
        err, ULL_E_NO_MEMORY,
        "the host has %s of memory left, and the job's %s would have to be moved there; "
        "nothing was moved",
        ull__size_text(available, have), ull__size_text(needed, need));
}

/* What the driver would move out and not bring back. */
static ull_status check_ties(struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    char driver[CHECKPOINT_DRIVER_TEXT] = "";
    const char *tie = NULL;
    for (int slot = 0; !tie && next_process(move->ledger, &slot, &process); slot++)
        tie = ties_of(&process);
    if (!tie)
        return ULL_OK;
    checkpoint_driver(driver);
    move->moves_shared = ties_can_move(driver);
    if (move->moves_shared)
        return ULL_OK;
    return ull__fail(
        err, ULL_E_DRIVER,
        "process %u (%s) shares %s, which drivers before 610 move out but do not "
        "bring back (this one is %s); nothing was moved. Start the job with `ullage run "
        "--suspendable`",
        process.pid, process.command, tie, driver[0] ? driver : "not known");
}

static ull_status check_state(struct ull__ledger *ledger, bool out,
                              const struct relatives *relatives, struct ull_error *err)
{
    struct ull__job_view job;
    enum ull__wanted wanted;
    ull__ledger_job(ledger, &job);
    ull__ledger_commanded(ledger, &wanted);
    struct ull__ledger *around = relatives_out_around(relatives);
    bool with_outer = job.state == ULL_JOB_SUSPENDED && wanted == ULL_WANT_RESIDENT;
    const char *name = ull__ledger_spec(ledger)->name, *state = ull__job_state_name(job.state);
    if (job.state == ULL_JOB_WAITING)
        return ull__fail(err, ULL_E_INVALID, "job %s has not started yet", name);
    if (!out && with_outer && around)
        return ull__fail(err, ULL_E_INVALID,
                         "job %s is suspended as a part of job %s: resume that one", name,
                         ull__ledger_spec(around)->name);
    if (out && job.state != ULL_JOB_RUNNING && !with_outer)
        return ull__fail(err, ULL_E_INVALID, "job %s is %s already", name, state);
    if (!out && job.state == ULL_JOB_RUNNING)
        return ull__fail(err, ULL_E_INVALID, "job %s is running, there is nothing to resume", name);
    return ULL_OK;
}

static ull_status check_processes(struct ull__ledger *ledger, struct ull_error *err)
{
    struct ull__process_view process;
    bool any = false;
    for (int slot = 0; next_process(ledger, &slot, &process); slot++) {
        any |= held_by(&process) > 0;
        if (!process.gated && !proc_is(process.pid, process.start_ticks))
            return ull__fail(
                err, ULL_E_INVALID,
                "process %u (%s) is in another pid namespace: suspend the job there, or start "
                "it with `ullage run --suspendable`",
                process.pid, process.command);
    }
    return any ? ULL_OK
               : ull__fail(err, ULL_E_NOT_FOUND, "no process of job %s holds memory of a GPU",
                           ull__ledger_spec(ledger)->name);
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
static void open_relatives(struct relatives *relatives, struct ull__ledger *ledger)
{
    struct ull__process_view process;
    bool by_driver = false;
    for (int slot = 0; next_process(ledger, &slot, &process); slot++)
        by_driver |= !process.gated;
    relatives_open(relatives, ledger, by_driver);
}

static ull_status move_out(struct move *move, struct ull_error *err)
{
    ull_status status = check_state(move->ledger, true, move->relatives, err);
    if (status == ULL_OK)
        status = check_processes(move->ledger, err);
    if (status == ULL_OK)
        status = check_ties(move, err);
    if (status == ULL_OK)
        status = check_host(move->ledger, err);
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
    ull_status status = check_state(move->ledger, false, move->relatives, err);
    if (status == ULL_OK)
        status = carry_out(move, err);
    if (status == ULL_E_NO_MEMORY || status == ULL_E_DRIVER)
        all_out(move, err);
    return status;
}

static ull_status act(struct move *move, struct move_progress *moved, struct ull_error *err)
{
    struct relatives relatives;
    open_relatives(&relatives, move->ledger);
    move->relatives = &relatives;
    ull_status status = move->out ? move_out(move, err) : move_back(move, err);
    if (status == ULL_OK) {
        *moved = move->progress;
        moved->waits_for_outer = !move->out && relatives_out_around(&relatives) != NULL;
    }
    relatives_close(&relatives);
    return status;
}

ull_status job_move_out(struct ull__ledger *ledger, const struct move_options *options,
                        struct move_progress *moved, struct ull_error *err)
{
    struct move move = {.ledger = ledger, .options = options, .out = true};
    return act(&move, moved, err);
}

ull_status job_move_back(struct ull__ledger *ledger, const struct move_options *options,
                         struct move_progress *moved, struct ull_error *err)
{
    struct move move = {.ledger = ledger, .options = options, .out = false};
    return act(&move, moved, err);
}
