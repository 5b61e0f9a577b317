/*
 * cmd_suspend.c: `ullage suspend JOB` and `ullage resume JOB`.
 *
 * Both work through the job's ledger, without a daemon. Root acts on another user's job as that user, so that
 * it never works in a file that somebody else may change under it.
 */
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "control.h"
#include "error.h"
#include "jobs.h"
#include "mover.h"
#include "service.h"
#include "size.h"

enum { TIMEOUT_S = 120, COMES_BACK_S = 30, BAR = 24 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = number;
}

static void print_help(bool suspend)
{
    if (suspend)
        printf("Usage: ullage suspend JOB [-q] [--timeout SECONDS] [--expect SECONDS]\n"
               "\n"
               "Moves all GPU memory of a job to the host and frees it on the card. The job waits "
               "and\n"
               "goes on where it was after ullage resume; it notices nothing but the time.\n"
               "\n"
               "A job that was started with ullage run --suspendable moves itself, as fast as the "
               "bus\n"
               "allows, and keeps its contexts on the card. Any other is moved by the driver (570 "
               "and\n"
               "newer), contexts and all, at about 2 GB/s; with drivers before 610 not if its\n"
               "processes share GPU memory. Interrupt it, and what was moved comes back. With it "
               "go all\n"
               "jobs of its group (ullage run --group), or none.\n");
    else
        printf(
            "Usage: ullage resume JOB [-q] [--timeout SECONDS]\n"
            "\n"
            "Brings the memory of a suspended job back to where it was. If the card has no room "
            "for\n"
            "all of it, the job stays suspended. With it come all jobs of its group, or none.\n");
    printf(
        "\n"
        "  JOB                  its name or id, as ullage ps shows them (-o json)\n"
        "      --timeout SECONDS how long a process may take without getting further (default %d)\n"
        "%s"
        "  -q, --quiet          no progress and no summary\n"
        "  -h, --help           this text\n",
        TIMEOUT_S,
        suspend ? "      --expect SECONDS  how long it will be away: refused where a group's "
                  "collectives wait\n"
                  "                       less long (ullage run --collective-timeout; default: the "
                  "moves alone)\n"
                : "");
}

/* --- what is shown ---------------------------------------------------------------------------------------- */

struct shown {
    bool suspend, terminal, drawn;
};

static bool show(const struct move_progress *p, void *data)
{
    struct shown *shown = data;
    char done[ULL_SIZE_TEXT], all[ULL_SIZE_TEXT], bar[BAR + 1];
    if (shown->terminal && p->to_move_bytes > 0) {
        int full = (int)((double)p->moved_bytes / (double)p->to_move_bytes * BAR);
        for (int i = 0; i < BAR; i++)
            bar[i] = i < full ? '#' : '.';
        bar[BAR] = 0;
        fprintf(stderr, "\r[%s] %s of %s, %d of %d processes   ", bar,
                ull__size_text(p->moved_bytes, done), ull__size_text(p->to_move_bytes, all),
                p->there, p->processes);
        shown->drawn = true;
    }
    return interrupted != 0;
}

static void say_done(const char *name, bool suspend, const struct move_progress *moved, double seconds)
{
    char size[ULL_SIZE_TEXT], rate[48] = "";
    if (moved->moving_ns > 0)
        snprintf(rate, sizeof rate, ", at %.1f GB/s",
                 (double)moved->moved_bytes / (double)moved->moving_ns);
    cli_say("job %s is %s: %s in %.2f s%s%s%s", name, suspend ? "suspended" : "running again",
            ull__size_text(moved->moved_bytes, size), seconds, rate,
            suspend ? "; resume it with ullage resume " : "", suspend ? name : "");
}

/* --- acting ------------------------------------------------------------------------------------------------ */

/* Root becomes the owner of the job; others can only see their own. */
static ull_status become_owner(const char *path, struct ull_error *err)
{
    struct stat st;
    int fd = ull__ledger_file(path, O_RDONLY);
    bool known = fd >= 0 && fstat(fd, &st) == 0;
    if (fd >= 0)
        close(fd);
    if (geteuid() != 0 || !known || st.st_uid == 0)
        return ULL_OK;
    if (setgroups(0, NULL) != 0 || setgid(st.st_gid) != 0 || setuid(st.st_uid) != 0)
        return ull__fail(err, ULL_E_PERMISSION, "cannot act as the owner of the job (user %u)",
                         (unsigned int)st.st_uid);
    return ULL_OK;
}

static ull_status open_job(const char *text, struct ull__ledger **ledger, struct ull_error *err)
{
    struct job_list list;
    struct live_job *job;
    char path[ULL_PATH_TEXT] = "";
    if (!jobs_gather(&list))
        return ull__fail(err, ULL_E_SYSTEM, "no memory for the list of jobs");
    ull_status status = jobs_find(&list, text, &job, err);
    if (status == ULL_OK)
        snprintf(path, sizeof path, "%s", ull__ledger_path(job->report.ledger));
    jobs_free(&list);
    if (status == ULL_OK)
        status = become_owner(path, err);
    return status == ULL_OK ? ull__ledger_open(path, ledger, err) : status;
}

static int exit_code(ull_status status)
{
    return status == ULL_OK ? EXIT_OK : status == ULL_E_PERMISSION ? EXIT_PERMISSION : EXIT_FAILED;
}

/* What became of it besides a status. */
struct outcome {
    bool waits;     /* it comes back once there is room */
    bool no_daemon; /* there is one, which cannot be asked */
};

/* By the daemon that serves the job, since it would undo what is done without it; else by ourselves. */
static ull_status carry_out(struct ull__ledger *ledger, bool suspend,
                            const struct move_options *options, struct move_progress *moved,
                            struct outcome *outcome, struct ull_error *err)
{
    unsigned int patience_s = options->timeout_s < COMES_BACK_S ? options->timeout_s : COMES_BACK_S;
    uint64_t until = cli_monotonic_ns() + patience_s * 1000000000ull;
    uint32_t daemon_pid;
    while ((daemon_pid = ull__ledger_served(ledger)) != 0) {
        struct ull_error why = {""};
        ull_status status =
            service_move(ledger, daemon_pid, suspend, options, moved, &outcome->waits, &why);
        if (status != ULL_E_NOT_FOUND) {
            *err = why;
            return status;
        }
        /* It is just being started again, or gone: its stamp on the ledger tells soon. */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        if (interrupted)
            return ull__fail(err, ULL_E_SYSTEM, "it was stopped");
        outcome->no_daemon = cli_monotonic_ns() > until;
        if (outcome->no_daemon)
            return ull__fail(err, ULL_E_NOT_FOUND,
                             "the daemon that serves the job, process %u, cannot be asked: %.200s; "
                             "name its socket by `socket` in ullage.conf or by ULLAGE_SOCKET",
                             daemon_pid, why.message);
    }
    return suspend ? job_move_out(ledger, options, moved, err)
                   : job_move_back(ledger, options, moved, err);
}

static int move(const char *text, bool suspend, bool quiet, unsigned int timeout_s,
                unsigned int expected_s)
{
    struct ull_error err = {""};
    struct ull__ledger *ledger;
    struct outcome outcome = {0};
    struct move_progress moved = {0};
    struct shown shown = {.suspend = suspend, .terminal = !quiet && isatty(STDERR_FILENO)};
    struct move_options options = {.timeout_s = timeout_s,
                                   .expected_s = expected_s,
                                   .by_user = true,
                                   .step = show,
                                   .data = &shown};
    struct sigaction action = {.sa_handler = on_interrupt};
    ull_status status = open_job(text, &ledger, &err);
    if (status != ULL_OK) {
        cli_say("%s", err.message);
        return exit_code(status);
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    uint64_t began = cli_monotonic_ns();
    status = carry_out(ledger, suspend, &options, &moved, &outcome, &err);
    double seconds = (double)(cli_monotonic_ns() - began) / 1e9;
    if (shown.drawn)
        fprintf(stderr, "\r\033[K");
    if (status != ULL_OK)
        cli_say("%s", err.message);
    else if (outcome.waits && !quiet)
        cli_say("job %s comes back as soon as there is room for it", ull__ledger_spec(ledger)->name);
    else if (moved.waits_for_outer && !quiet)
        cli_say("job %s comes back with the job around it, which is suspended",
                ull__ledger_spec(ledger)->name);
    else if (!quiet)
        say_done(ull__ledger_spec(ledger)->name, suspend, &moved, seconds);
    ull__ledger_close(ledger);
    if (interrupted && status != ULL_OK)
        return EXIT_SIGNAL + (int)interrupted;
    return outcome.no_daemon ? EXIT_NO_DAEMON : exit_code(status);
}

static int cmd_move(int argc, char **argv, bool suspend)
{
    enum { TIMEOUT = 256, EXPECT };
    static const struct option longs[] = {{"timeout", required_argument, NULL, TIMEOUT},
                                          {"expect", required_argument, NULL, EXPECT},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    const char *verb = suspend ? "suspend" : "resume";
    unsigned long timeout_s = TIMEOUT_S, expected_s = 0;
    bool quiet = false;
    char *end;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, ":qh", longs, NULL)) != -1) {
        switch (option) {
        case TIMEOUT:
            timeout_s = strtoul(optarg, &end, 10);
            if (*end || end == optarg || optarg[0] == '-' || timeout_s < 1 || timeout_s > 86400)
                return cli_usage_error(verb, "--timeout is '%.40s': expected 1 to 86400 seconds",
                                       optarg);
            break;
        case EXPECT:
            expected_s = strtoul(optarg, &end, 10);
            if (!suspend)
                return cli_usage_error(verb, "--expect is for ullage suspend");
            if (*end || end == optarg || optarg[0] == '-' || expected_s > 31536000)
                return cli_usage_error(verb, "--expect is '%.40s': expected 0 to 31536000 seconds",
                                       optarg);
            break;
        case 'q':
            quiet = true;
            break;
        case 'h':
            print_help(suspend);
            return EXIT_OK;
        default:
            return cli_bad_option(verb, option, argv);
        }
    }
    if (optind >= argc)
        return cli_usage_error(verb, "which job? expected its name or id, as ullage ps shows them");
    if (optind + 1 < argc)
        return cli_usage_error(verb, "'%.80s' is too much: expected one job", argv[optind + 1]);
    return move(argv[optind], suspend, quiet, (unsigned int)timeout_s, (unsigned int)expected_s);
}

int cmd_suspend(int argc, char **argv)
{
    return cmd_move(argc, argv, true);
}

int cmd_resume(int argc, char **argv)
{
    return cmd_move(argc, argv, false);
}
