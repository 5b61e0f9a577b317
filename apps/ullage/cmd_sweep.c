/*
 * cmd_sweep.c: `ullage sweep` runs a command once for each of several limits, each under `ullage run`, and shows
 * side by side what it held, how long it took and how it ended.
 *
 * Each run is recorded, for its verdict; the record goes when it has been judged. The command's output goes to
 * standard error, so that the result is alone on standard output. Ctrl-C ends the run that is under way and the sweep;
 * what is known by then is shown.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "file.h"
#include "report/words.h"
#include "size.h"
#include "sweep.h"

enum { LIMITS = 64 };

enum form { FORM_TABLE, FORM_JSON, FORM_HTML };

struct options {
    char *list; /* of limits; cut into pieces in place */
    const char *limits[LIMITS];
    int count;
    enum form form;
    bool quiet;
    char **command;
};

static volatile sig_atomic_t child, stopped; /* pid; signal that ends the sweep */

static void print_help(void)
{
    printf(
        "Usage: ullage sweep -m LIMIT,LIMIT,... [OPTION...] -- COMMAND [ARG...]\n"
        "\n"
        "Runs COMMAND once for each limit and shows what it held, how long it took, whether it\n"
        "leaks (as ullage report says) and how it ended: to try limits before one is set.\n"
        "\n"
        "  -m, --memory LIST        limits: 2GiB,4GiB,50%%\n"
        "  -o table|json|html       form of the result (default table); html has a plot\n"
        "  -q, --quiet              no line after each run\n"
        "  -h, --help               this text\n"
        "\n"
        "What COMMAND prints goes to standard error. Exit code: 0 it ran with one of the limits\n"
        "at least; 1 with none; 2 usage; 128+N a signal stopped the sweep.\n");
}

/* --- options ---------------------------------------------------------------------------------------------- */

static int cut_limits(struct options *options)
{
    struct ull_error err;
    struct ull_size size;
    options->count = 0;
    for (char *save = NULL, *word = strtok_r(options->list, ",", &save); word;
         word = strtok_r(NULL, ",", &save)) {
        if (options->count == LIMITS)
            return cli_usage_error("sweep", "more than %d limits", LIMITS);
        if (ull__size_or_share_parse(word, &size, &err) != ULL_OK)
            return cli_usage_error("sweep", "-m: %s", err.message);
        options->limits[options->count++] = word;
    }
    if (options->count == 0)
        return cli_usage_error("sweep", "-m has no limit: expected some, as 2GiB,4GiB");
    return 0;
}

static int parse_options(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {{"memory", required_argument, NULL, 'm'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "+:m:o:qh", longs, NULL)) != -1) {
        switch (option) {
        case 'm':
            options->list = optarg;
            break;
        case 'o':
            if (strcmp(optarg, "html") == 0)
                options->form = FORM_HTML;
            else if (strcmp(optarg, "json") == 0)
                options->form = FORM_JSON;
            else if (strcmp(optarg, "table") == 0)
                options->form = FORM_TABLE;
            else
                return cli_usage_error("sweep", "-o is '%.40s': expected table, json or html",
                                       optarg);
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cli_bad_option("sweep", option, argv);
        }
    }
    if (!options->list)
        return cli_usage_error("sweep", "no limits: expected -m with some, as 2GiB,4GiB");
    if (optind == argc)
        return cli_usage_error("sweep", "no command to run");
    options->command = argv + optind;
    return cut_limits(options);
}

/* --- signals ------------------------------------------------------------------------------------------------ */

/* What the terminal sends reaches the child anyway; what somebody sends to us is passed on. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    stopped = number;
    if (info->si_code <= 0 && child > 0)
        kill((pid_t)child, number);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

/* --- runs --------------------------------------------------------------------------------------------------- */

static void run_child(const struct options *options, const char *limit, const char *report,
                      const char *record)
{
    size_t words = 0;
    while (options->command[words])
        words++;
    char **argv = calloc(words + 11, sizeof *argv);
    if (!argv)
        _exit(EXIT_OWN_FAILURE);
    const char *own[] = {"ullage",   "run",  "-q",       "-m",   limit,
                         "--report", report, "--record", record, "--"};
    memcpy(argv, own, sizeof own);
    memcpy(argv + sizeof own / sizeof *own, options->command, words * sizeof *argv);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv("/proc/self/exe", argv);
    _exit(EXIT_OWN_FAILURE);
}

static void judge(struct sweep_run *run, const char *report, const char *record, int status)
{
    struct ull_error err;
    run->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
    if (access(report, F_OK) == 0 && sweep_read_report(report, run, &err) != ULL_OK)
        cli_say("%s", err.message);
    if (run->known && access(record, F_OK) == 0 && sweep_read_record(record, run, &err) != ULL_OK)
        cli_say("no verdict with %s: %s", run->limit, err.message);
    if (stopped)
        run->outcome = SWEEP_INTERRUPTED;
    else if (!run->known)
        run->outcome = SWEEP_NOT_STARTED;
    else if (run->exit_code == 0)
        run->outcome = SWEEP_OK;
    else
        run->outcome = run->refusals > run->survived ? SWEEP_OUT_OF_MEMORY : SWEEP_FAILED;
}

/* False if it could not even be tried. */
static bool run_one(const struct options *options, const char *folder, struct sweep_run *run)
{
    char report[ULL_FILE_PATH + 16], record[ULL_FILE_PATH + 16];
    int status = 0;
    sigset_t all, before;
    snprintf(report, sizeof report, "%s/report.json", folder);
    snprintf(record, sizeof record, "%s/record", folder);
    uint64_t begin = cli_monotonic_ns();
    /* Held back until it is known whom to pass a signal on to. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t pid = stopped ? -1 : fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        run_child(options, run->limit, report, record);
    }
    child = pid > 0 ? (sig_atomic_t)pid : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        if (!stopped)
            cli_say("cannot start another process: %s", strerror(errno));
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    run->seconds = (double)(cli_monotonic_ns() - begin) / 1e9;
    judge(run, report, record, status);
    unlink(report);
    unlink(record);
    return true;
}

static void tell(const struct options *options, const struct sweep_run *run)
{
    char size[ULL_SIZE_TEXT], time[WORDS_TEXT];
    if (options->quiet)
        return;
    cli_say("sweep %s: %s after %s, held %s", run->limit, sweep_outcome_name(run->outcome),
            words_time(run->seconds, time), run->known ? ull__size_text(run->peak, size) : "unknown");
}

static void run_all(const struct options *options, const char *folder, struct sweep *sweep)
{
    for (int i = 0; i < options->count && !stopped; i++) {
        struct sweep_run *run = &sweep->runs[sweep->count];
        *run = (struct sweep_run){.limit = options->limits[i]};
        if (!run_one(options, folder, run))
            return;
        sweep->count++;
        tell(options, run);
    }
}

static bool show(const struct options *options, const struct sweep *sweep)
{
    if (options->form == FORM_JSON)
        sweep_json(sweep, stdout);
    else if (options->form == FORM_HTML)
        sweep_page(sweep, stdout);
    else
        sweep_table(sweep, stdout);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    cli_say("cannot write the result: %s", strerror(errno));
    return false;
}

int cmd_sweep(int argc, char **argv)
{
    static struct options options;
    static struct sweep_run runs[LIMITS];
    const char *place = getenv("TMPDIR");
    char folder[ULL_FILE_PATH];
    int code = parse_options(argc, argv, &options);
    if (code != 0)
        return code < 0 ? EXIT_OK : code;
    struct sweep sweep = {.command = options.command, .runs = runs};
    if ((size_t)snprintf(folder, sizeof folder, "%s/ullage-sweep.XXXXXX",
                         place && place[0] == '/' ? place : "/tmp") >= sizeof folder - 16 ||
        !mkdtemp(folder)) {
        cli_say("cannot make a folder for reports in '%.200s': %s", place ? place : "/tmp",
                strerror(errno));
        return EXIT_FAILED;
    }
    catch_signals();
    run_all(&options, folder, &sweep);
    rmdir(folder);
    if (!show(&options, &sweep))
        return EXIT_FAILED;
    if (stopped)
        return EXIT_SIGNAL + (int)stopped;
    return sweep_smallest(&sweep) >= 0 ? EXIT_OK : EXIT_FAILED;
}
