/*
 * cmd_run.c: `ullage run` runs a command inside a budget.
 *
 * The order matters: everything that can be wrong is found out before the command starts. Then the
 * ledger is made, the environment prepared, the command run while the ledger is sampled and swept, and
 * at the end the summary, the report and what was learned are written.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "contexts.h"
#include "control.h"
#include "environ.h"
#include "error.h"
#include "file.h"
#include "job_json.h"
#include "jobs.h"
#include "peaks.h"
#include "recording.h"
#include "run_options.h"
#include "service.h"
#include "supervise.h"

enum {
    SWEEP_EVERY = 10, /* ticks */
    DRAIN_WAIT_MS = 300,
    COLLECTIVE_TIMEOUT_S = 600 /* as NCCL's under PyTorch */
};

struct run {
    struct run_options options;
    struct machine machine;
    struct selection visible;
    struct preload_paths libraries;
    struct ull__job_spec job;
    struct ull__ledger *ledger;
    struct seen history;
    struct recording *recording; /* NULL: not asked for */
    int held;                    /* job_hold */
    unsigned int ticks;
    char report[ULL_FILE_PATH]; /* "" if there is nowhere to write one */
    bool report_asked;
    bool lost; /* its ledger's name */
};

/* --- before the start --------------------------------------------------------------------------- */

static int resolve_devices(struct run *run)
{
    struct ull_error err, why;
    const struct run_options *options = &run->options;
    int capped;
    machine_discover(&run->machine, &why);
    if (run->machine.count == 0) {
        if (options->budget_from_call || options->gpus) {
            cli_say("no GPU was found: %s", why.message[0] ? why.message : "the driver lists none");
            return EXIT_NO_DEVICE;
        }
        if (!options->quiet)
            cli_say("no GPU was found, so there is nothing to hold the command to");
    }
    devices_visible(&run->machine, getenv("CUDA_VISIBLE_DEVICES"), &run->visible);
    if (options->gpus) {
        struct selection chosen;
        ull_status status =
            devices_select(&run->machine, options->gpus, &run->visible, getenv, &chosen, &err);
        if (status != ULL_OK) {
            cli_say("%s", err.message);
            return status == ULL_E_INVALID ? EXIT_USAGE : EXIT_NO_DEVICE;
        }
        run->visible = chosen;
    }
    if (budget_apply(&options->budget, &run->machine, &run->visible, &run->job, &capped, &err) !=
        ULL_OK) {
        const struct ull__conf_item *memory = &options->conf.item[ULL_CONF_MEMORY];
        cli_say("%s (%s)", err.message, memory->set_by);
        return EXIT_NO_DEVICE;
    }
    if (capped >= 0 && !options->quiet) {
        char size[ULL_SIZE_TEXT];
        const struct ull__device_spec *device = &run->job.devices[capped];
        cli_say("the budget is more than %s has: its %s are the budget there", device->name,
                ull__size_text(device->total_bytes, size));
    }
    return 0;
}

/* A later chdir of the command must not move the report. */
static ull_status absolute_path(const char *path, char whole[ULL_FILE_PATH], struct ull_error *err)
{
    char folder[ULL_FILE_PATH];
    if (path[0] == '/')
        snprintf(folder, sizeof folder, "%s", "");
    else if (!getcwd(folder, sizeof folder))
        return ull__fail(err, ULL_E_SYSTEM, "the working folder has no path");
    size_t need = strlen(folder) + strlen(path) + 2;
    if (need > ULL_FILE_PATH)
        return ull__fail(err, ULL_E_INVALID, "the path '%.200s...' is too long", path);
    memcpy(whole, folder, strlen(folder) + 1);
    snprintf(whole + strlen(whole), ULL_FILE_PATH - strlen(whole), "%s%s", folder[0] ? "/" : "",
             path);
    return ULL_OK;
}

static int prepare_report(struct run *run)
{
    struct ull_error err;
    const struct ull__conf_item *asked = &run->options.conf.item[ULL_CONF_REPORT];
    char folder[ULL_FILE_PATH];
    if (asked->set) {
        run->report_asked = true;
        if (absolute_path(asked->value, run->report, &err) != ULL_OK ||
            ull__file_check(run->report, &err) != ULL_OK) {
            cli_say("the report cannot be written, so the command was not started: %s (%s)",
                    err.message, asked->set_by);
            return EXIT_OWN_FAILURE;
        }
    } else if (ull__state_folder(folder) && strlen(folder) + 40 < sizeof run->report &&
               ull__folder_create(folder, &err) == ULL_OK) {
        memcpy(run->report, folder, strlen(folder) + 1);
        snprintf(run->report + strlen(folder), 40, "/ullage-report-%ld.json", (long)getpid());
        if (ull__file_check(run->report, &err) != ULL_OK)
            run->report[0] = 0; /* nobody asked for it: a read-only home is no reason to stop */
    }
    return 0;
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%.*s", (int)size - 1, from);
}

static void describe_job(struct run *run)
{
    struct ull__job_spec *job = &run->job;
    char **command = run->options.command;
    const char *slash = strrchr(command[0], '/');
    const char *outer = getenv("ULLAGE_JOB");
    copy_text(job->name, sizeof job->name,
              run->options.name ? run->options.name
              : slash           ? slash + 1
                                : command[0]);
    size_t used = 0;
    for (char **word = command; *word && used < sizeof job->command; word++)
        used += (size_t)snprintf(job->command + used, sizeof job->command - used, "%s%s",
                                 word == command ? "" : " ", *word);
    /* A path that the ledger cannot hold is named by the summary only. */
    if (strlen(run->report) < sizeof job->report)
        copy_text(job->report, sizeof job->report, run->report);
    run_options_describe(&run->options, job->set_by, sizeof job->set_by);
    if (outer)
        copy_text(job->parent, sizeof job->parent, outer);
    job->quiet = run->options.quiet;
    job->each = run->options.each;
    job->max_request = run->options.max_request;
    job->suspendable = run->options.suspendable;
    job->spill_bytes = run->options.spill;
    job->pinned_bytes = run->options.pinned;
    /* Measured on an H200: a ring of buffers is faster than pinning the destination on the way. */
    job->never_pins = run->options.never_pins || run->options.pinned == 0;
    contexts_recall(job, run->machine.driver);
}

/* Sizes by device, as -m gives them; where none speaks of a device it keeps what it has. */
static int apply_sizes(struct run *run, const struct budget *sizes, const char *option, bool room)
{
    struct ull_error err;
    struct ull__job_spec job = {0};
    int capped;
    if (sizes->count == 0)
        return 0;
    if (budget_apply(sizes, &run->machine, &run->visible, &job, &capped, &err) != ULL_OK) {
        cli_say("%s: %s", option, err.message);
        return EXIT_NO_DEVICE;
    }
    for (int d = 0; d < run->job.device_count && d < job.device_count; d++) {
        struct ull__device_spec *to = &run->job.devices[d];
        const struct ull__device_spec *from = &job.devices[d];
        char asked[ULL_SIZE_TEXT], budget[ULL_SIZE_TEXT];
        if (from->logical < 0 || !budget_speaks_of(sizes, from))
            continue;
        if (from->budget_bytes > to->budget_bytes || capped == d)
            return cli_usage_error("run", "%s of %s on device %d is above the budget of %s", option,
                                   ull__size_text(from->budget_bytes, asked), to->logical,
                                   ull__size_text(to->budget_bytes, budget));
        *(room ? &to->room_bytes : &to->request_bytes) = from->budget_bytes;
    }
    return 0;
}

/* What it asks of the daemon, if anything. */
static int describe_sharing(struct run *run)
{
    const struct run_options *options = &run->options;
    struct ull__job_spec *job = &run->job;
    int code = apply_sizes(run, &options->request, "--request", false);
    if (code == 0)
        code = apply_sizes(run, &options->prewarm, "--prewarm", true);
    if (code != 0)
        return code;
    job->priority = options->priority;
    copy_text(job->group, sizeof job->group, options->group ? options->group : "");
    job->collective_timeout_s =
        options->has_collective_timeout ? options->collective_timeout_s : COLLECTIVE_TIMEOUT_S;
    job->may_queue = options->wait;
    job->waits = options->wait || options->request.count > 0 || options->prewarm.count > 0 ||
                 options->prewarm_last;
    if (job->waits && job->parent[0]) {
        cli_say("--wait, --request and --prewarm are for jobs of their own, and this one is inside "
                "another; the command was not started");
        return EXIT_USAGE;
    }
    if (options->prewarm_last && !peaks_recall(job) && !options->quiet)
        cli_say("no job called %s has ended yet, so nothing is known to be freed for it", job->name);
    for (int d = 0; d < job->device_count && options->wait; d++) {
        struct ull__device_spec *device = &job->devices[d];
        if (device->logical >= 0 && device->room_bytes == 0)
            device->room_bytes = device->request_bytes ? device->request_bytes : device->budget_bytes;
    }
    return 0;
}

/* 0 once the command may start. */
static int wait_for_start(struct run *run)
{
    if (!run->job.waits) {
        bool served = run->job.parent[0] || service_announce(run->ledger);
        if (!served && run->options.priority && !run->options.quiet)
            cli_say("no daemon shares the cards: a priority counts once ullaged runs");
        return 0;
    }
    int code = service_wait(run->ledger, run->options.wait, run->options.wait_s, run->options.quiet);
    if (code == 0)
        ull__ledger_set_waiting(run->ledger, false);
    return code;
}

struct other_budgets {
    struct run *run;
    uint64_t sum[ULL_MAX_DEVICES];
    int jobs[ULL_MAX_DEVICES];
};

static void sweep(struct run *run, struct ull__ledger *ledger)
{
    if (run->machine.has_nvml)
        ull__ledger_sweep(ledger, ull__nvml_listed, &run->machine.nvml);
    else
        ull__ledger_sweep(ledger, NULL, NULL);
}

/* Also removes what is left of a job that died together with its `ullage run`. */
static void add_other_job(struct ull__ledger *ledger, void *data)
{
    struct other_budgets *others = data;
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    struct ull__job_view view;
    if (strcmp(ull__ledger_path(ledger), ull__ledger_path(others->run->ledger)) == 0)
        return;
    sweep(others->run, ledger);
    if (job_is_over(ledger))
        return;
    ull__ledger_job(ledger, &view);
    /* A job inside another one is already counted there. */
    if (spec->parent[0] ||
        strcmp(ull__ledger_path(ledger), ull__ledger_path(others->run->ledger)) == 0 ||
        (!view.supervisor_alive && view.process_count == 0))
        return;
    for (int d = 0; d < others->run->job.device_count; d++) {
        for (int i = 0; i < spec->device_count; i++) {
            if (strcmp(spec->devices[i].uuid, others->run->job.devices[d].uuid) != 0)
                continue;
            others->sum[d] += view.budget_bytes[i];
            others->jobs[d]++;
        }
    }
}

static void note_overcommitment(struct run *run)
{
    struct other_budgets others = {.run = run};
    ull__ledger_each(add_other_job, &others);
    if (run->options.quiet || run->job.parent[0])
        return;
    for (int d = 0; d < run->job.device_count; d++) {
        const struct ull__device_spec *device = &run->job.devices[d];
        uint64_t sum = others.sum[d] + device->budget_bytes;
        char all[ULL_SIZE_TEXT], total[ULL_SIZE_TEXT];
        if (others.jobs[d] == 0 || device->logical < 0 || sum <= device->total_bytes)
            continue;
        cli_say("note: with this one, %d jobs have budgets of %s on %s (physical %d), which has %s",
                others.jobs[d] + 1, ull__size_text(sum, all), device->name, device->physical,
                ull__size_text(device->total_bytes, total));
    }
}

static int prepare_record(struct run *run)
{
    struct ull_error err;
    char path[ULL_FILE_PATH];
    if (!run->options.record)
        return 0;
    if (absolute_path(run->options.record, path, &err) == ULL_OK &&
        recording_create(path, run->options.stacks, run->ledger, &run->machine, &run->recording,
                         &err) == ULL_OK)
        return 0;
    cli_say("%s; the command was not started", err.message);
    return EXIT_OWN_FAILURE;
}

/* Everything up to the start of the command; 0 to go on. */
static int prepare(struct run *run)
{
    struct ull_error err;
    int code = resolve_devices(run);
    if (code == 0)
        code = prepare_report(run);
    if (code != 0)
        return code;
    describe_job(run);
    code = describe_sharing(run);
    if (code != 0)
        return code;
    if (environ_find_libraries(&run->libraries, &err) != ULL_OK ||
        ull__ledger_create(&run->job, &run->ledger, &err) != ULL_OK) {
        cli_say("%s; the command was not started", err.message);
        return EXIT_OWN_FAILURE;
    }
    note_overcommitment(run);
    if (run->options.gpus) {
        static char list[MACHINE_DEVICES * ULL_UUID_TEXT];
        setenv("CUDA_VISIBLE_DEVICES",
               devices_uuid_list(&run->machine, &run->visible, list, sizeof list), 1);
    }
    if (run->options.growth)
        environ_set_growth(run->options.quiet);
    if (environ_enter_job(&run->libraries, ull__ledger_path(run->ledger), &err) != ULL_OK) {
        cli_say("%s; the command was not started", err.message);
        return EXIT_OWN_FAILURE;
    }
    if (run->options.suspendable)
        setenv("ULLAGE_SUSPENDABLE", "1",
               1); /* read before the first call, when there is no ledger yet */
    if (run->options.driver_pools)
        setenv("ULLAGE_DRIVER_POOLS", "1", 1); /* of this job and those in it */
    if (run->options.spill)
        setenv("ULLAGE_SPILL", "1", 1); /* likewise */
    code = prepare_record(run);
    return code == 0 ? wait_for_start(run) : code;
}

/* --- while the command runs --------------------------------------------------------------------- */

static void tick(void *data)
{
    struct run *run = data;
    ull__ledger_sample(run->ledger);
    seen_update(&run->history, run->ledger);
    recording_tick(run->recording, &run->history);
    if (++run->ticks % SWEEP_EVERY != 0)
        return;
    sweep(run, run->ledger);
    struct ull_error err;
    bool lost = ull__ledger_keep_name(run->ledger, &err) != ULL_OK;
    if (lost && !run->lost)
        cli_say(
            "the job's ledger was removed, and others do not find it now: %s; its limit holds, and "
            "CUDA is refused to processes that it starts from now on",
            err.message);
    run->lost = lost;
}

/* The command has its own environment now, by which it is seen to belong to the job. */
static void let_go(struct run *run)
{
    if (run->held >= 0)
        close(run->held);
    run->held = -1;
}

static void started(void *data, pid_t command)
{
    let_go(data);
    recording_started(((struct run *)data)->recording, command);
}

static void reaped(void *data, pid_t pid, int exit_code)
{
    recording_reaped(((struct run *)data)->recording, pid, exit_code);
}

/* --- after the end ------------------------------------------------------------------------------ */

static bool everyone_is_dead(const struct run *run)
{
    for (int slot = 0; slot < ULL_MAX_SLOTS; slot++) {
        struct ull__process_view view;
        if (ull__ledger_process(run->ledger, slot, &view) && !view.draining)
            return false;
    }
    return true;
}

/* The driver frees a dead process's memory a little later; its bytes stay in the books till then. */
static void drain(struct run *run)
{
    for (int ms = 0; ms < DRAIN_WAIT_MS; ms += 5) {
        struct ull__job_view view;
        seen_update(&run->history, run->ledger);
        sweep(run, run->ledger);
        ull__ledger_job(run->ledger, &view);
        if (view.process_count == 0 || !everyone_is_dead(run))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static ull_status write_report(const struct run *run, const struct shown_job *job,
                               struct ull_error *err)
{
    struct ull_json json;
    ull__json_init(&json, NULL);
    job_json_begin(&json);
    job_json_add(&json, job);
    ull_status status = job_json_end(&json)
                            ? ull__file_write(run->report, json.text, json.size, err)
                            : ull__fail(err, ULL_E_SYSTEM, "no memory for the report");
    ull__json_free(&json);
    return status;
}

static void append_log(const struct run *run, const char *summary)
{
    const struct ull__conf_item *log = &run->options.conf.item[ULL_CONF_LOG];
    char line[SUMMARY_TEXT + 256], when[32];
    time_t now = time(NULL);
    struct tm parts;
    if (!log->set)
        return;
    int fd = open(log->value, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    int length =
        snprintf(line, sizeof line, "%s %ld %s: %s\n", when, (long)getpid(), run->job.name, summary);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        cli_say("cannot append to the log '%s' (%s)", log->value, log->set_by);
    if (fd >= 0)
        close(fd);
}

static void finish(struct run *run, const struct supervise_result *result)
{
    struct ull_error err;
    struct ull__job_view view;
    char summary[SUMMARY_TEXT];
    ull__ledger_sample(run->ledger);
    seen_update(&run->history, run->ledger);
    struct shown_job job = {.ledger = run->ledger,
                            .history = &run->history,
                            .ended = true,
                            .exit_code = result->exit_code,
                            .signal = result->signal};
    drain(run);
    seen_update(&run->history, run->ledger);
    ull__ledger_job(run->ledger, &view);
    bool written = false;
    if (run->report[0] && (run->report_asked || view.refusals > 0)) {
        written = write_report(run, &job, &err) == ULL_OK;
        if (!written)
            cli_say("the report was not written: %s", err.message);
    }
    job_summary(&job, written ? run->report : NULL, run->options.growth, summary);
    if (!run->options.quiet)
        cli_say("%s", summary);
    append_log(run, summary);
    contexts_remember(run->ledger, run->machine.driver);
    peaks_remember(run->ledger);
}

static void clean_up(struct run *run)
{
    let_go(run);
    if (run->ledger) {
        job_remove_if_over(run->ledger);
        ull__ledger_close(run->ledger);
    }
    machine_close(&run->machine);
    seen_free(&run->history);
}

int cmd_run(int argc, char **argv)
{
    static struct run run = {.held = -1};
    struct supervise_result result;
    struct ull_error err;
    int code = run_options_parse(argc, argv, &run.options);
    if (code != 0)
        return code < 0 ? EXIT_OK : code;
    supervise_prepare();
    code = prepare(&run);
    if (code == 0) {
        /* By its own pid the library tells the command's direct children from their descendants. */
        const char *own_pid = run.options.each ? "ULLAGE_EACH" : NULL;
        const struct supervise_calls calls = {started, tick, reaped, &run};
        run.held = job_hold(run.ledger);
        ull_status status = supervise_command(run.options.command, own_pid, &calls, &result, &err);
        let_go(&run);
        if (status != ULL_OK) {
            cli_say("%s", err.message);
            code = EXIT_OWN_FAILURE;
        } else if (result.exec_error) {
            cli_say("cannot run '%.200s': %s", run.options.command[0], strerror(result.exec_error));
            code = result.exit_code;
        } else {
            finish(&run, &result);
            code = result.exit_code;
        }
    }
    recording_finish(run.recording, code);
    clean_up(&run);
    return code;
}
