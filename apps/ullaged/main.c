/*
 * main.c: ullaged, the daemon: sockets, signals and timers around the arbiter.
 *
 * One thread, which never waits for anybody: what may take long is done by workers. Ten times a second it looks at
 * the ledgers. It has no state of its own that matters: a daemon that starts again finds all jobs as they are, so
 * an upgrade is a restart, and a crash does no job any harm.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients.h"
#include "daemon.h"
#include "others.h"
#include "say.h"
#include "self.h"
#include "web.h"

enum { TICK_MS = 100, FIRST_FD = 3 };
#define MS 1000000ull

struct loop {
    struct daemon d;
    int listener, signals, wishes; /* wishes: from the page */
    bool activated;                /* systemd listens for us, and keeps the socket */
    bool stop;
    int told_jobs; /* of how many systemd knows; -1: of none yet */
    uint64_t next_look_ns, watchdog_ns, next_watchdog_ns;
    int argc;
    char **argv;
};

static void watch(struct loop *loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(loop->d.epoll, EPOLL_CTL_ADD, fd, &event);
}

static bool open_signals(struct loop *loop)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    loop->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return loop->signals >= 0;
}

static ull_status open_arbiter(struct daemon *d, struct ull_error *err)
{
    struct ull__arbiter_options options = d->settings.arbiter;
    options.device_count = d->cards.count;
    return ull__arbiter_create(&options, &d->arbiter, err);
}

static bool prepare(struct loop *loop)
{
    struct daemon *d = &loop->d;
    struct ull_error err = {""};
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* a client and a worker for every job */
        files.rlim_cur = files.rlim_max < 8192 ? files.rlim_max : 8192;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (d->epoll < 0 || !open_signals(loop)) {
        say(LOG_ERROR, "cannot begin: %s", strerror(errno));
        return false;
    }
    loop->activated = listen_descriptors() > 0;
    loop->listener = FIRST_FD;
    if (!loop->activated && clients_listen(d->settings.socket, &loop->listener, &err) != ULL_OK) {
        say(LOG_ERROR, "%s", err.message);
        return false;
    }
    cards_open(&d->cards);
    if (open_arbiter(d, &err) != ULL_OK) {
        say(LOG_ERROR, "%s", err.message);
        return false;
    }
    ull_status status = web_start(&d->settings, &loop->wishes, &err);
    if (status != ULL_OK) {
        say(status == ULL_E_SYSTEM ? LOG_WARN : LOG_ERROR, "%s", err.message);
        if (status != ULL_E_SYSTEM)
            return false;
    }
    if (loop->wishes >= 0)
        watch(loop, loop->wishes);
    watch(loop, loop->signals);
    watch(loop, loop->listener);
    return true;
}

/* What needs a socket or a file stays as it is. */
static void keep_places(struct settings *fresh, const struct settings *old)
{
    const struct {
        const char *key;
        char *now;
        const char *before;
        size_t size;
    } places[] = {{"socket", fresh->socket, old->socket, sizeof fresh->socket},
                  {"listen", fresh->listen, old->listen, sizeof fresh->listen},
                  {"token_file", fresh->token_file, old->token_file, sizeof fresh->token_file},
                  {"history", fresh->history, old->history, sizeof fresh->history}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (strcmp(places[i].now, places[i].before) != 0)
            say(LOG_WARN, "%s is '%.100s' now: that takes effect when ullaged starts again",
                places[i].key, places[i].now);
        snprintf(places[i].now, places[i].size, "%s", places[i].before);
    }
}

/* All of it or nothing. */
static void reload(struct loop *loop)
{
    static struct settings fresh;
    struct daemon *d = &loop->d;
    struct ull_error err = {""};
    memset(&fresh, 0, sizeof fresh);
    notify("RELOADING=1");
    bool good = settings_parse(loop->argc, loop->argv, &fresh) == 0;
    if (good) {
        keep_places(&fresh, &d->settings);
        if (fresh.host_percent == d->settings.host_percent && fresh.host_percent > 0)
            fresh.arbiter.host_bytes = d->settings.arbiter.host_bytes; /* of what was free then */
        good = ull__arbiter_configure(d->arbiter, &fresh.arbiter, &err) == ULL_OK;
    }
    if (good)
        d->settings = fresh;
    say(good ? LOG_TELL : LOG_ERROR, "%s%s",
        good ? "read its configuration again" : "the configuration stays as it was: it cannot be read",
        err.message);
    notify("READY=1");
}

static void take_signals(struct loop *loop)
{
    struct signalfd_siginfo info;
    while (read(loop->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            loop->stop = true;
        if (info.ssi_signo == SIGHUP)
            reload(loop);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
}

static struct job *of_worker(struct daemon *d, int fd)
{
    for (int j = 0; j < d->job_count; j++)
        if (d->jobs[j]->moving && d->jobs[j]->from == fd)
            return d->jobs[j];
    return NULL;
}

static void serve(struct loop *loop, const struct epoll_event *event)
{
    struct job *job;
    int fd = event->data.fd;
    if (fd == loop->signals)
        take_signals(loop);
    else if (fd == loop->listener)
        clients_accept(&loop->d, fd);
    else if (fd == loop->wishes)
        web_serve(&loop->d);
    else if ((job = of_worker(&loop->d, fd)))
        moves_worker(&loop->d, job);
    else
        clients_ready(&loop->d, fd, event->events);
}

/* For `systemctl status`; the first time that it is ready, too. */
static void tell_status(struct loop *loop)
{
    int cards = loop->d.cards.count, jobs = loop->d.job_count;
    char text[128];
    if (jobs == loop->told_jobs)
        return;
    snprintf(text, sizeof text, "%sSTATUS=%d card%s, %d job%s",
             loop->told_jobs < 0 ? "READY=1\n" : "", cards, cards == 1 ? "" : "s", jobs,
             jobs == 1 ? "" : "s");
    notify(text);
    loop->told_jobs = jobs;
}

/* Where it lies among the ledgers it may be removed with them, as the one of a user who logs out. */
static void keep_socket(struct loop *loop)
{
    struct stat st;
    const char *path = loop->d.settings.socket;
    int fd;
    if (loop->activated || lstat(path, &st) == 0 || clients_listen(path, &fd, NULL) != ULL_OK)
        return;
    close(loop->listener);
    loop->listener = fd;
    watch(loop, fd);
    say(LOG_WARN, "the socket %s was removed, and is there again", path);
}

static void look(struct loop *loop, uint64_t now)
{
    struct daemon *d = &loop->d;
    book_look(d);
    if (ull__arbiter_deadline(d->arbiter) <= now)
        shell_tell(d, &(struct ull__arbiter_event){.kind = ULL_ARB_TICK}, NULL);
    clients_tick(d);
    web_show(d);
    others_look(now);
    keep_socket(loop);
    tell_status(loop);
    loop->next_look_ns = now_ns() + TICK_MS * MS;
    if (loop->watchdog_ns > 0 && now >= loop->next_watchdog_ns) {
        notify("WATCHDOG=1"); /* after a whole round: one that hangs in it is not alive */
        loop->next_watchdog_ns = now + loop->watchdog_ns / 2;
    }
}

static void run(struct loop *loop)
{
    struct epoll_event events[64];
    while (!loop->stop) {
        uint64_t now = now_ns(), due = ull__arbiter_deadline(loop->d.arbiter);
        due = due < loop->next_look_ns ? due : loop->next_look_ns;
        int wait = due <= now ? 0 : (int)((due - now) / MS) + 1;
        int count = epoll_wait(loop->d.epoll, events, 64, wait);
        for (int i = 0; i < count; i++)
            serve(loop, &events[i]);
        now = now_ns();
        if (now >= loop->next_look_ns || ull__arbiter_deadline(loop->d.arbiter) <= now)
            look(loop, now);
    }
}

static void finish(struct loop *loop)
{
    struct daemon *d = &loop->d;
    notify("STOPPING=1");
    web_stop();
    clients_close(d);
    if (!loop->activated)
        unlink(d->settings.socket);
    book_close(d);
    others_close();
    cards_close(&d->cards);
    ull__arbiter_destroy(d->arbiter);
}

int main(int argc, char **argv)
{
    static struct loop loop;
    int code = 0;
    ull__hold_standard_streams();
    if (worker_main(argc, argv, &code))
        return code;
    code = settings_parse(argc, argv, &loop.d.settings);
    if (code != 0)
        return code < 0 ? 0 : code;
    loop.argc = argc;
    loop.argv = argv;
    loop.watchdog_ns = watchdog_ns();
    if (!prepare(&loop))
        return 1;
    loop.told_jobs = -1;
    look(&loop, now_ns());
    say(LOG_TELL, "serves %d cards at %s", loop.d.cards.count, loop.d.settings.socket);
    run(&loop);
    finish(&loop);
    return 0;
}
