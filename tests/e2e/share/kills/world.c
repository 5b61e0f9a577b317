/* world.c: one world of the test of kills: see kills.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kills.h"

enum { LOOK_NS = 4000000 };

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

unsigned int any(struct world *w, unsigned int below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (unsigned int)(w->random * 0x2545f4914f6cdd1dull >> 33) % below;
}

void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)},
              NULL);
}

/* --- processes -------------------------------------------------------------------------------------------- */

pid_t spawn(struct world *w, const char *output, const char *const argv[])
{
    pid_t child = fork();
    if (child < 0)
        fail(w, "cannot start a process: %s", strerror(errno));
    if (child > 0)
        return child;
    int to = open(output, O_WRONLY | O_CREAT | O_APPEND, 0666), null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    close(null);
    close(to);
    execv(argv[0], (char *const *)argv); /* which does not write there */
    _exit(127);
}

pid_t start_client(struct world *w, const struct job *job, const char *verb, const char *argument)
{
    static char log[] = "/dev/null", ullage[PATH];
    const char *argv[] = {ullage, verb, (job ? job->name : argument), (job ? argument : NULL), NULL};
    snprintf(ullage, sizeof ullage, "%s/ullage", getenv("BUILD_DIR"));
    if (w->client_count == CLIENTS)
        fail(w, "%d clients are at work at once: they hang", CLIENTS);
    pid_t pid = spawn(w, log, argv);
    w->clients[w->client_count++] = (struct client){.pid = pid, .job = job};
    atomic_fetch_add(&w->tally->clients, 1);
    return pid;
}

int children_of(pid_t pid, pid_t *pids, int most)
{
    char path[64];
    int count = 0, one;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    while (file && count < most && fscanf(file, "%d", &one) == 1)
        pids[count++] = one;
    if (file)
        fclose(file);
    return count;
}

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    int parent = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[got] = 0;
    const char *end = strrchr(text, ')');
    if (end)
        sscanf(end + 1, " %*c %d", &parent);
    if (file)
        fclose(file);
    return parent;
}

bool kill_child(pid_t pid, pid_t parent)
{
    int fd = pidfd_open(pid, 0);
    if (fd < 0)
        return false;
    pid_t of = parent_of(pid);
    bool killed = (of == parent || of == getpid()) && pidfd_send_signal(fd, SIGKILL, NULL, 0) == 0;
    close(fd);
    return killed;
}

bool is_called(pid_t pid, const char *name)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    bool same = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    text[strcspn(text, "\n")] = 0;
    return same && strcmp(text, name) == 0;
}

/* --- the daemon ------------------------------------------------------------------------------------------- */

static void start_daemon(struct world *w)
{
    static char path[PATH];
    const char *argv[] = {path, NULL};
    snprintf(path, sizeof path, "%s/ullaged", getenv("BUILD_DIR"));
    struct stat st;
    w->log_size = stat(w->log, &st) == 0 ? st.st_size : 0;
    w->daemon = spawn(w, w->log, argv);
    w->ready = false;
    w->daemon_bytes = 0;
    atomic_fetch_add(&w->tally->daemons, 1);
}

/* By its own word: connections may still be taken by what the one before it was just starting. */
static bool serves(const struct world *w)
{
    char text[4096];
    FILE *log = fopen(w->log, "re");
    if (!log)
        return false;
    size_t got = fseek(log, w->log_size, SEEK_SET) == 0 ? fread(text, 1, sizeof text - 1, log) : 0;
    text[got] = 0;
    fclose(log);
    return strstr(text, "ullaged: serves ") != NULL;
}

/* Who was not served yet will not wait for the next daemon. */
void kill_daemon(struct world *w)
{
    for (int j = 0; j < w->job_count; j++) {
        struct job *job = &w->jobs[j];
        job->unserved |= !job->ledger || ull__ledger_served(job->ledger) == 0;
        job->not_asked |= moment_of(job) == M_QUEUE;
    }
    if (w->daemon > 0) {
        kill(w->daemon, SIGKILL);
        waitpid(w->daemon, NULL, 0);
    }
    w->daemon = 0;
    w->ready = false;
    w->daemon_starts_ns = now_ns() + (any(w, 2) ? 0 : any(w, 300) * MS);
}

void need_daemon(struct world *w)
{
    for (uint64_t until = now_ns() + 60 * SECOND; !w->ready; nap(LOOK_NS)) {
        if (now_ns() > until)
            fail(w, "the daemon does not answer");
        w->daemon_starts_ns = 0;
        look(w);
    }
}

/* --- looking ---------------------------------------------------------------------------------------------- */

static void was_reaped(struct world *w, pid_t pid, int status)
{
    for (int j = 0; j < w->job_count; j++)
        if (w->jobs[j].run == pid) {
            w->jobs[j].run = 0;
            w->jobs[j].status = status;
        }
    for (int c = 0; c < w->client_count; c++)
        if (w->clients[c].pid == pid)
            w->clients[c] = w->clients[--w->client_count];
    if (pid != w->daemon)
        return;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail(w, "the daemon ended with status %x", status);
    w->daemon = 0;
}

void look(struct world *w)
{
    int status;
    pid_t pid;
    if (atomic_load(&w->tally->failed))
        _exit(1); /* another world has something to say */
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        was_reaped(w, pid, status);
    if (w->daemon == 0 && now_ns() >= w->daemon_starts_ns)
        start_daemon(w);
    if (w->daemon > 0 && !w->ready)
        w->ready = serves(w);
    find_ledgers(w);
}

void go_on(struct world *w, uint64_t ns)
{
    for (uint64_t until = now_ns() + ns, now; (now = now_ns()) < until;) {
        look(w);
        nap(until - now < LOOK_NS ? until - now : LOOK_NS);
    }
}

/* --- beginning and end ------------------------------------------------------------------------------------ */

static void make_folder(struct world *w, char path[PATH], const char *name, const char *variable)
{
    if (snprintf(path, PATH, "%s/%s", w->folder, name) >= PATH ||
        (mkdir(path, 0755) != 0 && errno != EEXIST) ||
        snprintf(path, PATH, "%s/%s/%d", w->folder, name, w->number) >= PATH ||
        mkdir(path, 0755) != 0)
        fail(w, "cannot make %s: %s", path, strerror(errno));
    if (variable)
        setenv(variable, path, 1);
}

/* On a busy machine a move takes long, and then slices are long, too: nobody gives up because of that. */
void configure(struct world *w, const char *host_memory)
{
    char path[2 * PATH], fresh[2 * PATH];
    snprintf(path, sizeof path, "%s/ullage/ullage.conf", w->config);
    snprintf(fresh, sizeof fresh, "%s/fresh", w->config);
    FILE *file = fopen(fresh, "we");
    if (!file ||
        fprintf(file, "listen = none\nhistory = none\nslice = 200ms\nallocation_wait = 300s\nhost_memory = %s\n",
                host_memory) < 0 ||
        fclose(file) != 0 || rename(fresh, path) != 0)
        fail(w, "cannot write %s: %s", path, strerror(errno));
    if (w->daemon > 0)
        kill(w->daemon, SIGHUP);
}

void world_open(struct world *w, struct tally *tally, const char *folder, int number, uint64_t seed)
{
    char path[2 * PATH];
    w->number = number;
    w->tally = tally;
    w->random = (seed * 1000 + (uint64_t)number) * 0x9e3779b97f4a7c15ull | 1;
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    make_folder(w, w->ledgers, "shm", "ULLAGE_SHM_DIR");
    make_folder(w, w->state, "state", "XDG_STATE_HOME");
    make_folder(w, w->cards, "cards", "ULLAGE_FAKE_STATE");
    make_folder(w, w->out, "out", NULL);
    snprintf(w->log, sizeof w->log, "%.200s/out/%d.log", folder, number);
    if (snprintf(w->socket, sizeof w->socket, "%s/%d.sock", folder, number) >= 100)
        fail(w, "the path of the socket is too long: %s", w->socket);
    setenv("ULLAGE_SOCKET", w->socket, 1);
    setenv("TMPDIR", w->out, 1);
    setenv("ULLAGE_FAKE_GPUS", CARD, 1);
    setenv("ULLAGE_FAKE_CONTEXT", CONTEXT, 1);
    make_folder(w, w->config, "config", "XDG_CONFIG_HOME");
    snprintf(path, sizeof path, "%s/ullage", w->config);
    mkdir(path, 0755);
    configure(w, MUCH);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    w->card = fake_shared_open(true);
    if (!w->card)
        fail(w, "no card");
    need_daemon(w);
}
