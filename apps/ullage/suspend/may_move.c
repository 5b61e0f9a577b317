/*
 * may_move.c: what forbids a move, found out before anything moves: each a refusal that names what stands in the way.
 */
#include "checkpoint.h"
#include "error.h"
#include "move_parts.h"
#include "procfs.h"
#include "size.h"
#include "ties.h"

enum { COLLECTIVE_RATE = 4 }; /* bytes a nanosecond each way: less than was measured anywhere */

static uint64_t evicted_of(const struct ull__process_view *process)
{
    uint64_t sum = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        sum += process->evicted_bytes[d];
    return sum;
}

/*
 * Where the job was out before, which it keeps as long as nobody needs it. Telling that takes the kernel a look at every
 * page of its processes, so it is asked for only where the rest is not enough.
 */
static uint64_t given_back_by(const struct move *move)
{
    struct ull__process_view process;
    uint64_t sum = 0;
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++)
        if (process.gated)
            sum += proc_memory_given_back(process.pid);
    return sum;
}

static ull_status check_host(const struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    uint64_t needed = 0, available = proc_memory_available();
    char need[ULL_SIZE_TEXT], have[ULL_SIZE_TEXT];
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++) {
        uint64_t out = evicted_of(&process), held = move_held(&process);
        uint64_t moves = held > out ? held - out : 0, there = out > 0 ? 0 : process.pinned_bytes;
        needed += moves > there ? moves - there : 0;
    }
    if (needed <= available || needed <= (available += given_back_by(move)))
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
    for (struct move_place at = {0}; !tie && move_next(move, &at, &process); at.slot++)
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

static ull_status check_processes(const struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    bool any = false;
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++) {
        any |= at.part == 0 && move_held(&process) > 0;
        if (!process.gated && !proc_is(process.pid, process.start_ticks))
            return ull__fail(
                err, ULL_E_INVALID,
                "process %u (%s) is in another pid namespace: suspend the job there, or start "
                "it with `ullage run --suspendable`",
                process.pid, process.command);
    }
    return any ? ULL_OK
               : ull__fail(err, ULL_E_NOT_FOUND, "no process of job %s holds memory of a GPU",
                           ull__ledger_spec(move->parts[0].ledger)->name);
}

unsigned int move_patience(const struct move *move)
{
    unsigned int least = 0;
    for (int i = 0; i < move->count; i++) {
        const struct ull__job_spec *spec = ull__ledger_spec(move->parts[i].ledger);
        unsigned int own = spec->group[0] ? spec->collective_timeout_s : 0;
        if (own > 0 && (least == 0 || own < least))
            least = own;
    }
    return least;
}

static ull_status check_patience(const struct move *move, struct ull_error *err)
{
    struct ull__process_view process;
    unsigned int patience = move_patience(move);
    uint64_t bytes = 0;
    for (struct move_place at = {0}; move_next(move, &at, &process); at.slot++)
        bytes += move_held(&process);
    uint64_t seconds = move->options->expected_s + 2 * bytes / COLLECTIVE_RATE / 1000000000u;
    if (patience == 0 || seconds <= patience)
        return ULL_OK;
    return ull__fail(
        err, ULL_E_INVALID,
        "group %s would be away for about %llu s, and its collectives wait for %u s (ullage run "
        "--collective-timeout); nothing was moved",
        ull__ledger_spec(move->parts[0].ledger)->group, (unsigned long long)seconds, patience);
}

ull_status may_move_back(const struct move *move, struct ull_error *err)
{
    ull_status status = ULL_OK;
    for (int i = 0; i < move->count && status == ULL_OK; i++)
        status = check_state(move->parts[i].ledger, move->out, &move->parts[i].relatives, err);
    return status;
}

ull_status may_move_out(struct move *move, struct ull_error *err)
{
    ull_status status = may_move_back(move, err);
    if (status == ULL_OK)
        status = check_processes(move, err);
    if (status == ULL_OK)
        status = check_ties(move, err);
    if (status == ULL_OK)
        status = check_host(move, err);
    if (status == ULL_OK)
        status = check_patience(move, err);
    return status;
}
