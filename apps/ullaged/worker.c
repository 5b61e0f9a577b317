/* worker.c: see worker.h. */
#include "worker.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "group.h"
#include "jobs.h"
#include "mover.h"
#include "nvml.h"

enum { PIPE = 3, TIMEOUT_S = 120, LOCK_TRIES = 600, GROUP_TRIES = 3000, SWEEPS = 40 };

static const char word[] = "--worker";
static const char *const tasks[] = {"out", "back", "settle", "sweep"};

/* --- in the daemon ---------------------------------------------------------------------------------------- */

static void become_worker(enum worker_task task, const char *path, unsigned int expected_s, int to)
{
    char expected[16];
    char *argv[] = {(char *)"ullaged", (char *)word, (char *)tasks[task],
                    (char *)path,      expected,     NULL};
    snprintf(expected, sizeof expected, "%u", expected_s);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(to, PIPE) == PIPE) {
        close_range(PIPE + 1, ~0u, 0);
        setsid();
        execv("/proc/self/exe", argv);
    }
    _exit(1);
}

ull_status worker_start(enum worker_task task, const char *path, unsigned int expected_s,
                        pid_t *pid, int *from, struct ull_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        if (ends[1] == PIPE) /* as it must not be closed at exec */
            fcntl(ends[1], F_SETFD, 0);
        become_worker(task, path, expected_s, ends[1]);
    }
    int error = errno;
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return ull__fail(err, ULL_E_SYSTEM, "cannot start a process: %s", strerror(error));
    }
    *pid = child;
    *from = ends[0];
    return ULL_OK;
}

/* --- in the worker ---------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;

static void on_stop(int number)
{
    stopped = number;
}

/* A daemon that is gone, or slow, is no reason to wait. */
static void tell(const struct worker_report *report)
{
    ssize_t written = write(PIPE, report, sizeof *report);
    for (int i = 0; report->last && written < 0 && errno == EAGAIN && i < 100; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        written = write(PIPE, report, sizeof *report);
    }
}

static bool step(const struct move_progress *p, void *data)
{
    static uint64_t last;
    uint64_t now = cli_monotonic_ns();
    (void)data;
    if (now - last > 100000000) {
        last = now;
        tell(&(struct worker_report){.moved_bytes = p->moved_bytes,
                                     .to_move_bytes = p->to_move_bytes});
    }
    return stopped != 0;
}

static ull_status become_owner(const char *path, struct ull_error *err)
{
    struct stat st;
    int fd = ull__ledger_file(path, O_RDONLY);
    bool known = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (fd >= 0)
        close(fd);
    if (!known)
        return ull__fail(err, ULL_E_NOT_FOUND, "the job is gone");
    if (geteuid() != 0 || st.st_uid == 0)
        return ULL_OK;
    if (setgroups(0, NULL) != 0 || setgid(st.st_gid) != 0 || setuid(st.st_uid) != 0)
        return ull__fail(err, ULL_E_PERMISSION, "cannot act as user %u", (unsigned int)st.st_uid);
    return ULL_OK;
}

/* Held until this process ends. *waited: somebody else had it. */
static ull_status lock(const char *path, int tries, bool *waited, struct ull_error *err)
{
    int fd = ull__ledger_file(path, O_RDONLY);
    for (int i = 0; fd >= 0 && i < tries && !stopped; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return ULL_OK;
        *waited = true;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return ull__fail(err, ULL_E_SYSTEM,
                     stopped ? "it was stopped" : "somebody else is moving the job");
}

static int by_path(const void *left, const void *right)
{
    return strcmp(ull__ledger_path(*(struct ull__ledger *const *)left),
                  ull__ledger_path(*(struct ull__ledger *const *)right));
}

/* All jobs of its group, in one order for everybody. One of them that ends meanwhile is nobody's. */
static ull_status lock_group(struct ull__ledger *ledger, bool *waited, struct ull_error *err)
{
    struct job_group group;
    ull_status status = group_open(ledger, &group, err);
    if (status != ULL_OK)
        return status;
    struct ull__ledger **sorted = malloc((size_t)group.count * sizeof *sorted);
    if (!sorted)
        status = ull__fail(err, ULL_E_SYSTEM, "no memory");
    for (int i = 0; sorted && i < group.count; i++)
        sorted[i] = group.ledgers[i];
    if (sorted)
        qsort(sorted, (size_t)group.count, sizeof *sorted, by_path);
    for (int i = 0; i < group.count && status == ULL_OK; i++)
        if (access(ull__ledger_path(sorted[i]), F_OK) == 0 || sorted[i] == ledger)
            status = lock(ull__ledger_path(sorted[i]), group.count > 1 ? GROUP_TRIES : LOCK_TRIES,
                          waited, err);
    free(sorted);
    group_close(&group);
    return status;
}

/* Another worker had the group, and was to do the same with it. Where it failed, this one finds out why. */
static bool is_done(struct ull__ledger *ledger, bool out)
{
    struct ull__job_view view;
    ull__ledger_job(ledger, &view);
    return view.state == (out ? ULL_JOB_SUSPENDED : ULL_JOB_RUNNING);
}

static bool anyone_drains(struct ull__ledger *ledger)
{
    struct ull__process_view view;
    for (int slot = 0; slot < ULL_MAX_SLOTS; slot++)
        if (ull__ledger_process(ledger, slot, &view) && view.draining)
            return true;
    return false;
}

/* The driver frees what the dead held a little later. */
static void sweep(struct ull__ledger *ledger)
{
    static const struct ull__linker linker = {.open = dlopen, .symbol = dlsym};
    struct ull__nvml nvml;
    bool has_nvml = ull__nvml_init(&nvml, &linker, NULL, NULL) == ULL_OK;
    for (int i = 0; i < SWEEPS; i++) {
        ull__ledger_sweep(ledger, has_nvml ? ull__nvml_listed : NULL, &nvml);
        if (!anyone_drains(ledger))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    job_remove_if_over(ledger);
}

/* Whoever was moving it is gone: back with all of it, or out with all of it. */
static ull_status settle(struct ull__ledger *ledger, const struct move_options *options,
                         struct move_progress *moved, struct ull_error *err)
{
    struct ull__job_view view;
    ull__ledger_job(ledger, &view);
    if (view.state != ULL_JOB_SUSPENDING && view.state != ULL_JOB_RESUMING)
        return ULL_OK;
    return job_move_back(ledger, options, moved, err);
}

static ull_status act(enum worker_task task, const char *path, unsigned int expected_s,
                      struct move_progress *moved, struct ull_error *err)
{
    struct move_options options = {.timeout_s = TIMEOUT_S, .expected_s = expected_s, .step = step};
    struct ull__ledger *ledger;
    bool waited = false;
    ull_status status = become_owner(path, err);
    if (status == ULL_OK)
        status = ull__ledger_open(path, &ledger, err);
    if (status != ULL_OK)
        return status;
    if (task != WORKER_SWEEP)
        status = lock_group(ledger, &waited, err);
    bool in_group = ull__ledger_spec(ledger)->group[0] != 0;
    if (status != ULL_OK) {
        ull__ledger_close(ledger);
        return status;
    }
    if (task == WORKER_SWEEP)
        sweep(ledger);
    else if (task == WORKER_SETTLE)
        status = settle(ledger, &options, moved, err);
    else if (!(in_group && waited && is_done(ledger, task == WORKER_OUT)))
        status = task == WORKER_OUT ? job_move_out(ledger, &options, moved, err)
                                    : job_move_back(ledger, &options, moved, err);
    ull__ledger_close(ledger);
    return status;
}

bool worker_main(int argc, char **argv, int *code)
{
    struct sigaction stop = {.sa_handler = on_stop}, ignore = {.sa_handler = SIG_IGN};
    struct worker_report report = {.last = 1};
    struct move_progress moved = {0};
    struct ull_error err = {""};
    int task = 0;
    if (argc != 5 || strcmp(argv[1], word) != 0)
        return false;
    while (task <= WORKER_SWEEP && strcmp(argv[2], tasks[task]) != 0)
        task++;
    *code = 2;
    if (task > WORKER_SWEEP)
        return true;
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    fcntl(PIPE, F_SETFD, FD_CLOEXEC);
    uint64_t began = cli_monotonic_ns();
    report.status =
        act((enum worker_task)task, argv[3], (unsigned int)strtoul(argv[4], NULL, 10), &moved, &err);
    report.nanoseconds = cli_monotonic_ns() - began;
    report.moved_bytes = moved.moved_bytes;
    report.to_move_bytes = moved.to_move_bytes;
    snprintf(report.text, sizeof report.text, "%.399s", err.message);
    tell(&report);
    *code = report.status == ULL_OK ? 0 : 1;
    return true;
}
