/* left.c: what must not be left when all jobs of a world are over: see kills.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kills.h"

enum { CLEAN_S = 60, SAID = 1024 };
#if defined(__SANITIZE_ADDRESS__)
enum { GROWS = 1 << 30 }; /* what is freed is kept for a while */
#else
enum { GROWS = 1 << 20 };
#endif

/* --- the card --------------------------------------------------------------------------------------------- */

static bool card_is_empty(struct world *w, char *said)
{
    struct fake_shared *card = w->card;
    bool empty = true;
    fake_shared_lock(card);
    fake_shared_reap(card);
    if (card->card[0].used > 0)
        snprintf(said, SAID, "%llu bytes are left on the card",
                 (unsigned long long)card->card[0].used);
    empty = card->card[0].used == 0;
    for (int i = 0; i < FAKE_MAX_PROCESSES && empty; i++)
        if (card->process[i].state != 0) {
            snprintf(said, SAID, "the card has process %d still", card->process[i].pid);
            empty = false;
        }
    for (int i = 0; i < FAKE_MAX_EXPORTS && empty; i++)
        if (card->export[i].state != 0) {
            snprintf(said, SAID, "the card has named memory still");
            empty = false;
        }
    fake_shared_unlock(card);
    return empty;
}

/* --- the host --------------------------------------------------------------------------------------------- */

/* Nothing but the names of these, or what begins as they do, in a folder and those below. */
static bool has_only(const char *folder, const char *const *names, char *said)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool good = true;
    while (dir && good && (entry = readdir(dir))) {
        char path[3 * PATH];
        struct stat st;
        bool known = entry->d_name[0] == '.' && (!entry->d_name[1] || entry->d_name[1] == '.');
        for (int i = 0; names[i]; i++)
            known |= strncmp(entry->d_name, names[i], strlen(names[i])) == 0;
        if (known)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            good = has_only(path, names, said);
        } else if (errno != ENOENT) {
            snprintf(said, SAID, "there is %s", path);
            good = false;
        }
    }
    if (dir)
        closedir(dir);
    return good;
}

static bool host_is_clean(const struct world *w, char *said)
{
    char sign[32];
    /* In the state folder is what is to stay there: a report, too, of a job that was refused something. */
    snprintf(sign, sizeof sign, "ullaged-%u", (unsigned int)geteuid()); /* the daemon's, for others */
    const char *const none[] = {NULL}, *const signs[] = {sign, NULL}, *const card[] = {"state", NULL},
                      *const known[] = {"contexts", "peaks", "ullage-report-", NULL};
    return has_only(w->ledgers, signs, said) && has_only(w->cards, card, said) &&
           has_only(w->state, known, said) && has_only(w->out, none, said);
}

static bool processes_are_gone(const struct world *w, char *said)
{
    pid_t pids[4];
    int count = children_of(getpid(), pids, 4);
    if (count == 1 && children_of(w->daemon, pids, 4) == 0)
        return true;
    snprintf(said, SAID, "process %d is there still", (int)pids[count > 1]);
    return false;
}

/* --- the daemon ------------------------------------------------------------------------------------------- */

static int files_of(pid_t pid)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Of its own. *ledgers: how many it has mapped. */
static uint64_t memory_of(pid_t pid, const char *folder, int *ledgers)
{
    char path[64], line[1024];
    unsigned long long kib = 0;
    *ledgers = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps))
        *ledgers += strstr(line, folder) != NULL;
    if (maps)
        fclose(maps);
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib * 1024;
}

static bool daemon_is_idle(struct world *w, char *said)
{
    int files = files_of(w->daemon), ledgers;
    uint64_t bytes = memory_of(w->daemon, w->ledgers, &ledgers);
    if (w->daemon_files == 0 || files < w->daemon_files) /* a client may just have been there */
        w->daemon_files = files;
    if (w->daemon_bytes == 0)
        w->daemon_bytes = bytes;
    uint64_t grown = bytes > w->daemon_bytes ? bytes - w->daemon_bytes : 0;
    snprintf(said, SAID, "the daemon has %d files open of %d, %d ledgers mapped, %llu bytes more",
             files, w->daemon_files, ledgers, (unsigned long long)grown);
    if (files > w->daemon_files || ledgers > 0)
        return false;
    if (grown > w->tally->grown)
        w->tally->grown = grown;
    return grown < GROWS;
}

/* --- all of it -------------------------------------------------------------------------------------------- */

void check_left(struct world *w)
{
    char said[SAID] = "", last[SAID] = "";
    uint64_t began = now_ns();
    while (!card_is_empty(w, said) || !processes_are_gone(w, said) || !host_is_clean(w, said) ||
           !daemon_is_idle(w, said)) {
        if (now_ns() > began + CLEAN_S * SECOND)
            fail(w, "%d s after all jobs were over %s", CLEAN_S, said);
        memcpy(last, said, sizeof last);
        nap(5 * MS);
        look(w);
    }
    uint64_t took = now_ns() - began;
    if (took > w->tally->slowest_ns) {
        w->tally->slowest_ns = took;
        snprintf(w->tally->slowest, sizeof w->tally->slowest, "%s", last);
    }
    atomic_fetch_add(&w->tally->checks, 1);
}

/* --- whoever comes after ---------------------------------------------------------------------------------- */

static void wait_until(struct world *w, const char *what,
                       bool is_so(const struct world *, const char *), const char *name)
{
    for (uint64_t until = now_ns() + CLEAN_S * SECOND; !is_so(w, name); nap(2 * MS)) {
        if (now_ns() > until)
            fail(w, "%s: not within %d s", what, CLEAN_S);
        look(w);
    }
}

static bool exists(const struct world *w, const char *name)
{
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/%s", w->out, name);
    return access(path, F_OK) == 0;
}

static bool is_over(const struct world *w, const char *name)
{
    for (int j = 0; j < w->job_count; j++)
        if (strcmp(w->jobs[j].name, name) == 0)
            return w->jobs[j].run == 0;
    return true;
}

/*
 * The lower one has as much as the daemon may keep in the host's memory, the upper one needs the card without it. So if the daemon
 * took a byte of either for somebody's who is gone, the upper one would have to wait until the lower one ends, which ends after it.
 */
void check_room(struct world *w)
{
    char low[2 * PATH], high[2 * PATH], has[2 * PATH], go[2 * PATH], ullage[PATH], guest[PATH];
    snprintf(ullage, sizeof ullage, "%s/ullage", getenv("BUILD_DIR"));
    snprintf(guest, sizeof guest, "%s/tests/e2e/guests/guest", getenv("BUILD_DIR"));
    snprintf(low, sizeof low, "%s/low", w->out);
    snprintf(high, sizeof high, "%s/high", w->out);
    snprintf(has, sizeof has, "%s/has", w->out);
    snprintf(go, sizeof go, "%s/go", w->out);
    const char *const lower[] = {
        ullage, "run",  "-q",   "--suspendable", "-m",   "100%",  "--name", "low",
        "--",   guest,  "init", "device",        "0",    "alloc", ENOUGH,   "touch",
        has,    "wait", go,     "free",          "free", NULL};
    const char *const upper[] = {ullage,       "run",    "-q",     "--wait=40", "-m",    "24MiB",
                                 "--priority", "1",      "--name", "high",      "--",    guest,
                                 "init",       "device", "0",      "alloc",     "22MiB", NULL};
    configure(w, ENOUGH);
    w->jobs[0] = (struct job){.name = "low", .run = spawn(w, low, lower)};
    w->job_count = 1;
    wait_until(w, "a job has its memory", exists, "has");
    w->jobs[1] = (struct job){.name = "high", .run = spawn(w, high, upper)};
    w->job_count = 2;
    wait_until(w, "room is made for a job of higher priority", is_over, "high");
    int fd = open(go, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    close(fd);
    wait_until(w, "the one that made room comes back and ends", is_over, "low");
    for (int j = 0; j < 2; j++)
        if (w->jobs[j].status != 0)
            fail(w, "%s ended with status %x, where nobody was killed", w->jobs[j].name,
                 w->jobs[j].status);
    unlink(low);
    unlink(high);
    unlink(has);
    unlink(go);
    for (int j = 0; j < 2; j++)
        ull__ledger_close(w->jobs[j].ledger);
    w->job_count = 0;
    configure(w, MUCH);
}

void check_end(struct world *w)
{
    const char *const none[] = {NULL};
    char said[SAID];
    int status = 0;
    pid_t daemon = w->daemon, ended = 0;
    w->daemon = 0;
    kill(daemon, SIGTERM);
    for (uint64_t until = now_ns() + CLEAN_S * SECOND; ended == 0 && now_ns() < until; nap(2 * MS))
        ended = waitpid(daemon, &status, WNOHANG);
    if (ended != daemon || status != 0)
        fail(w, "the daemon that was told to end did not, or with status %x", status);
    if (!has_only(w->ledgers, none, said))
        fail(w, "after the daemon's end %s", said);
    if (access(w->socket, F_OK) == 0)
        fail(w, "after the daemon's end there is its socket");
}
