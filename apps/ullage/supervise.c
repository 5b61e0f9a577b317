/*
 * supervise.c: see supervise.h. There are no signal handlers: all signals of interest are blocked and
 * taken by sigtimedwait, which also tells who sent them and serves as the clock.
 */
#include "supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"

enum { TICK_NS = 10000000, MAX_FD = 4096 };

static sigset_t user_mask;
static struct sigaction user_sigchld;
static bool user_descriptors[MAX_FD];

/* Signals that we wait for. The rest (SIGSEGV and so on) keep their default. */
static void fill_waited(sigset_t *set)
{
    static const int plain[] = {SIGCHLD, SIGHUP,   SIGINT,  SIGQUIT, SIGTERM,   SIGUSR1, SIGUSR2,
                                SIGALRM, SIGWINCH, SIGCONT, SIGTSTP, SIGVTALRM, SIGURG,  SIGIO};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        sigaddset(set, plain[i]);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        sigaddset(set, number);
}

static void each_descriptor(void (*visit)(int fd))
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(dir) && fd > STDERR_FILENO)
            visit(fd);
    }
    if (dir)
        closedir(dir);
}

static void note_descriptor(int fd)
{
    if (fd < MAX_FD)
        user_descriptors[fd] = true;
}

/* Whatever a driver library opened in us is no business of the command's. */
static void close_at_exec(int fd)
{
    if (fd < MAX_FD && !user_descriptors[fd])
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void supervise_prepare(void)
{
    sigset_t blocked;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    each_descriptor(note_descriptor);
    fill_waited(&blocked);
    sigaddset(&blocked, SIGPIPE); /* a summary into a closed pipe must not change the exit code */
    sigaddset(&blocked, SIGXFSZ); /* nor a record or a log that becomes too large */
    sigprocmask(SIG_BLOCK, &blocked, &user_mask);
    sigaction(SIGCHLD, &standard, &user_sigchld); /* ignored, it would leave nothing to wait for */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void run_child(char **argv, const char *own_pid, int failed)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    if (own_pid && setenv(own_pid, pid, 1) != 0)
        _exit(EXIT_OWN_FAILURE);
    sigaction(SIGCHLD, &user_sigchld, NULL);
    sigprocmask(SIG_SETMASK, &user_mask, NULL);
    execvp(argv[0], argv);
    int error = errno;
    ssize_t written = write(failed, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? EXIT_COMMAND_NOT_FOUND : EXIT_OWN_FAILURE);
}

static pid_t start(char **argv, const char *own_pid, int *exec_error)
{
    int ends[2];
    *exec_error = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    each_descriptor(close_at_exec);
    pid_t child = fork();
    if (child == 0)
        run_child(argv, own_pid, ends[1]);
    int error = errno;
    close(ends[1]);
    if (child > 0) {
        ssize_t got;
        do
            got = read(ends[0], exec_error, sizeof *exec_error);
        while (got < 0 && errno == EINTR);
    }
    close(ends[0]);
    errno = error;
    return child;
}

static int exit_code_of(int status)
{
    return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* True if the command itself ended; its status is then in *status. */
static bool reap(pid_t child, const struct supervise_calls *calls, int *status)
{
    bool ended = false;
    for (;;) {
        int one;
        pid_t pid = waitpid(-1, &one, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return ended;
        if (calls->reaped)
            calls->reaped(calls->data, pid, exit_code_of(one));
        if (pid == child) {
            *status = one;
            ended = true;
        }
    }
}

static void handle(pid_t child, const siginfo_t *info)
{
    /* Positive codes come from the kernel: the terminal sent it to the group, or it is an error. */
    bool from_somebody = info->si_code <= 0;
    if (from_somebody)
        kill(child, info->si_signo);
    if (info->si_signo == SIGTSTP)
        raise(SIGSTOP); /* we are blocked against it, but the shell must see us stop */
}

static void watch(pid_t child, const struct supervise_calls *calls, int *status)
{
    sigset_t waited;
    uint64_t next = cli_monotonic_ns() + TICK_NS;
    fill_waited(&waited);
    while (!reap(child, calls, status)) {
        uint64_t now = cli_monotonic_ns();
        if (now >= next) {
            calls->tick(calls->data);
            now = cli_monotonic_ns();
            next = next + TICK_NS > now ? next + TICK_NS : now + TICK_NS;
        }
        uint64_t left = next > now ? next - now : 0;
        struct timespec timeout = {.tv_nsec = (long)left};
        siginfo_t info;
        int number = sigtimedwait(&waited, &info, &timeout);
        if (number > 0 && number != SIGCHLD)
            handle(child, &info);
    }
}

ull_status supervise_command(char **argv, const char *own_pid, const struct supervise_calls *calls,
                             struct supervise_result *result, struct ull_error *err)
{
    int exec_error, status = 0;
    memset(result, 0, sizeof *result);
    pid_t child = start(argv, own_pid, &exec_error);
    if (child < 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot start a process: %s", strerror(errno));
    if (calls->started && !exec_error)
        calls->started(calls->data, child);
    watch(child, calls, &status);
    result->exec_error = exec_error;
    result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result->exit_code = exit_code_of(status);
    if (exec_error)
        result->exit_code = exec_error == ENOENT ? EXIT_COMMAND_NOT_FOUND : EXIT_CANNOT_EXECUTE;
    return ULL_OK;
}
