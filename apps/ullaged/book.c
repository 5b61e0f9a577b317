/*
 * book.c: the jobs, as their ledgers show them. Nobody registers: a job is found by its file, also by a daemon that
 * has only just started, and is gone when its file is, or when nobody is left in it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"
#include "file.h"
#include "say.h"

enum { LEDGER_NAME = 32 };
#define SECOND 1000000000ull
#define WANT_AGAIN_NS (SECOND / 2)
#define RETRY_NS (5 * SECOND)
#define SWEEP_NS (SECOND / 2)
#define ODD_NS (SECOND / 2)
#define NAME_BACK_NS SECOND
#define BLIND_AGAIN_NS (60 * SECOND)

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

struct job *book_find(struct daemon *d, const char *id)
{
    for (int j = 0; j < d->job_count; j++)
        if (!d->jobs[j]->nested && strcmp(d->jobs[j]->view.id, id) == 0)
            return d->jobs[j];
    return NULL;
}

uint64_t book_group(const struct job *job)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ job->uid;
    const char *group = ull__ledger_spec(job->ledger)->group;
    for (const char *c = group; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
    return group[0] ? hash | 1 : 0;
}

struct job *book_of_number(struct daemon *d, uint64_t number)
{
    for (int j = 0; j < d->job_count; j++)
        if (d->jobs[j]->number == number)
            return d->jobs[j];
    return NULL;
}

/* --- one job ---------------------------------------------------------------------------------------------- */

/* Of what a process holds, what moving it out will not free. Of those that the driver moves, nothing. */
static uint64_t stays_of(const struct ull__process_view *process, int device)
{
    const uint64_t *of = process->usage[device].by_class;
    if (process->draining)
        return process->usage[device].held_bytes;
    return process->gated ? of[ULL_CLASS_CONTEXT] + of[ULL_CLASS_MODULE] + of[ULL_CLASS_ARRAY] +
                                of[ULL_CLASS_GRAPH]
                          : 0;
}

static void add_process(struct job *job, const struct ull__process_view *process, int devices)
{
    for (int i = 0; i < devices; i++) {
        int card = job->card_of[i];
        uint64_t held = process->usage[i].held_bytes, out = process->evicted_bytes[i];
        if (card < 0)
            continue;
        out = out < held ? out : held;
        job->held[card] += held - out;
        job->evicted[card] += out;
        uint64_t stays = stays_of(process, i);
        job->stays[card] += stays < held - out ? stays : held - out;
        job->want[card] += process->draining ? 0 : process->want_bytes[i];
        uint64_t idle = process->residency == ULL_RESIDENT ? process->idle_bytes[i] : 0;
        job->idle[card] += idle < held - out ? idle : held - out;
        job->spilled[card] += process->spilled_bytes[i];
    }
}

bool book_read(struct daemon *d, struct job *job)
{
    struct ull__process_view process;
    int devices = ull__ledger_spec(job->ledger)->device_count;
    uint64_t held[CARDS], stays[CARDS], idle[CARDS], spilled[CARDS];
    bool tied = false;
    if (!ull__ledger_refresh(job->ledger))
        return false;
    ull__ledger_notice(job->ledger);
    ull__ledger_job(job->ledger, &job->view);
    memcpy(held, job->held, sizeof held);
    memcpy(stays, job->stays, sizeof stays);
    memcpy(idle, job->idle, sizeof idle);
    memcpy(spilled, job->spilled, sizeof spilled);
    memset(job->held, 0, sizeof job->held);
    memset(job->evicted, 0, sizeof job->evicted);
    memset(job->stays, 0, sizeof job->stays);
    memset(job->want, 0, sizeof job->want);
    memset(job->spilled, 0, sizeof job->spilled);
    memset(job->idle, 0, sizeof job->idle);
    for (int slot = 0; slot < job->view.slots_used; slot++)
        if (ull__ledger_process(job->ledger, slot, &process)) {
            add_process(job, &process, devices);
            tied |= !process.draining && !process.gated && process.ties != 0;
        }
    if (tied && !d->cards.moves_shared) /* the driver would not bring it back: all of it stays */
        memcpy(job->stays, job->held, sizeof job->stays);
    job->changed |= memcmp(held, job->held, sizeof held) != 0 ||
                    memcmp(stays, job->stays, sizeof stays) != 0 ||
                    memcmp(idle, job->idle, sizeof idle) != 0 ||
                    memcmp(spilled, job->spilled, sizeof spilled) != 0;
    for (int c = 0; c < CARDS; c++)
        if (job->held[c] + job->evicted[c] > job->peak[c])
            job->peak[c] = job->held[c] + job->evicted[c];
    job->dead = !job->view.supervisor_alive && job->view.process_count == 0;
    return true;
}

static struct job *open_job(struct daemon *d, const char *path)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job || d->job_count == JOBS || ull__ledger_look(path, &job->ledger, NULL) != ULL_OK) {
        free(job);
        return NULL;
    }
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    snprintf(job->path, sizeof job->path, "%s", path);
    job->number = ++d->next_number;
    job->uid = ull__ledger_owner(job->ledger);
    job->nested = spec->parent[0] != 0;
    job->from = -1;
    for (int i = 0; i < ULL_MAX_DEVICES; i++)
        job->card_of[i] = i < spec->device_count ? cards_find(&d->cards, spec->devices[i].uuid) : -1;
    d->jobs[d->job_count++] = job;
    return job;
}

static void close_job(struct daemon *d, int at)
{
    struct job *job = d->jobs[at];
    job->dead = true;
    shell_leave(d, job);
    ull__ledger_close(job->ledger);
    free(job);
    memmove(&d->jobs[at], &d->jobs[at + 1], (size_t)(--d->job_count - at) * sizeof *d->jobs);
}

void book_close(struct daemon *d)
{
    for (int j = 0; j < d->job_count; j++) {
        ull__ledger_close(d->jobs[j]->ledger);
        free(d->jobs[j]);
    }
    d->job_count = 0;
}

/* --- finding them ----------------------------------------------------------------------------------------- */

/* A folder must belong to whom its name says, and so must what lies in it. */
static bool owner_of(const char *folder, uint32_t *uid)
{
    struct stat st;
    const char *dash = strrchr(folder, '-');
    if (!dash || lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode) ||
        strtoul(dash + 1, NULL, 10) != st.st_uid)
        return false;
    *uid = st.st_uid;
    return true;
}

static struct job *of_path(struct daemon *d, const char *path)
{
    for (int j = 0; j < d->job_count; j++)
        if (strcmp(d->jobs[j]->path, path) == 0)
            return d->jobs[j];
    return NULL;
}

static void look_in(const char *folder, void *data)
{
    struct daemon *d = data;
    uint32_t uid;
    int count = 0;
    if (!owner_of(folder, &uid))
        return;
    DIR *dir = opendir(folder);
    d->blind |= !dir && ull__no_descriptor(errno);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[ULL_PATH_TEXT];
        if (strlen(entry->d_name) != LEDGER_NAME || ++count > JOBS_OF_USER ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        struct job *job = of_path(d, path);
        if (!job)
            job = open_job(d, path);
        if (job && job->uid == uid)
            job->present = true;
    }
    if (dir)
        closedir(dir);
}

/*
 * One that has no file any more. While its supervisor lives that may be a name that was removed and comes back in a moment
 * (src/ledger/name.c): what is known of it stays.
 */
static bool is_gone(struct daemon *d, struct job *job, uint64_t now)
{
    if (job->present && (job->nested || book_read(d, job))) {
        job->missed_ns = 0;
        return false;
    }
    if (job->missed_ns == 0)
        job->missed_ns = now;
    return now > job->missed_ns + NAME_BACK_NS || !ull__ledger_supervised(job->ledger);
}

/* Who is not seen is not gone then. */
static void tell_blind(struct daemon *d, uint64_t now)
{
    if (!d->blind || (d->told_blind_ns != 0 && now < d->told_blind_ns + BLIND_AGAIN_NS))
        return;
    d->told_blind_ns = now;
    say(LOG_WARN,
        "no file can be opened (the limit is `ulimit -n`): which jobs are there is not seen");
}

/* --- what changed ----------------------------------------------------------------------------------------- */

/* The dead are tidied up after by a worker, since that may take as long as the driver does. */
static void tidy(struct daemon *d, struct job *job, uint64_t now)
{
    struct ull__process_view process;
    bool draining = job->dead;
    if (job->view.supervisor_alive || job->moving || job->retry_ns > now || d->workers >= WORKERS)
        return;
    for (int slot = 0; slot < job->view.slots_used && !draining; slot++)
        draining = ull__ledger_process(job->ledger, slot, &process) && process.draining;
    /* In a copy of another user's it cannot be seen who is dead. */
    if (!draining && job->uid == geteuid())
        return;
    job->retry_ns = now + (draining ? SWEEP_NS : RETRY_NS);
    if (worker_start(WORKER_SWEEP, job->path, 0, &job->worker, &job->from, NULL) != ULL_OK)
        return;
    job->moving = true;
    job->task = WORKER_SWEEP;
    d->workers++;
    struct epoll_event watch = {.events = EPOLLIN, .data.fd = job->from};
    epoll_ctl(d->epoll, EPOLL_CTL_ADD, job->from, &watch);
}

static void tell_want(struct daemon *d, struct job *job, uint64_t now)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_WANT, .job = job->number};
    bool wants = false, same = memcmp(job->want, job->told_want, sizeof job->want) == 0;
    for (int c = 0; c < CARDS; c++)
        wants |= job->want[c] > 0;
    if (!wants && !job->wants)
        return;
    if (wants && same && job->wants && now < job->want_told_ns + WANT_AGAIN_NS)
        return;
    struct ull__arbiter_view view;
    if (wants && (!ull__arbiter_job(d->arbiter, job->number, &view) ||
                  (view.state != ULL_JOB_RUNNING && view.state != ULL_JOB_SUSPENDING)))
        return;
    if (!wants)
        event.kind = ULL_ARB_WANT_OVER;
    memcpy(event.bytes, job->want, sizeof event.bytes);
    memcpy(job->told_want, job->want, sizeof job->want);
    job->wants = wants;
    job->want_told_ns = now;
    shell_tell(d, &event, NULL); /* a want that passes the budget by now is the process's to find out */
}

/* By a person, straight through the ledger. */
static void tell_budget(struct daemon *d, struct job *job)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_BUDGET, .job = job->number};
    bool automatic = job->view.flags & ULL_FLAG_AUTOMATIC, changed = automatic != job->automatic;
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    for (int i = 0; i < spec->device_count; i++) {
        int c = job->card_of[i];
        if (c < 0)
            continue;
        changed |= job->view.budget_bytes[i] != job->budget[c];
        uint64_t most = d->cards.card[c].capacity;
        job->budget[c] = job->view.budget_bytes[i];
        event.bytes[c] = job->budget[c] < most ? job->budget[c] : most;
    }
    if (!changed)
        return;
    job->automatic = automatic;
    event.amount = automatic;
    shell_tell(d, &event, NULL);
}

/* A budget that follows use, as the arbiter has it by now. */
static void follow(struct daemon *d, struct job *job)
{
    struct ull__arbiter_view view;
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    if (!job->automatic || !ull__arbiter_job(d->arbiter, job->number, &view))
        return;
    for (int i = 0; i < spec->device_count; i++) {
        int c = job->card_of[i];
        if (c < 0 || view.budget[c] == job->budget[c])
            continue;
        job->budget[c] = view.budget[c];
        ull__ledger_set_budget(job->ledger, i, view.budget[c]);
    }
}

/* Somebody moved it without us, or what was moved out died: it begins anew. */
static void agree(struct daemon *d, struct job *job, uint64_t now)
{
    struct ull__arbiter_view view;
    enum ull__job_state seen = job->view.state;
    if (job->moving || job->wants_worker || !ull__arbiter_job(d->arbiter, job->number, &view) ||
        (seen != ULL_JOB_RUNNING && seen != ULL_JOB_SUSPENDED) || view.state == seen ||
        (view.state != ULL_JOB_RUNNING && view.state != ULL_JOB_SUSPENDED)) {
        job->odd_ns = 0;
        return;
    }
    if (job->odd_ns == 0)
        job->odd_ns = now;
    if (now < job->odd_ns + ODD_NS)
        return;
    job->odd_ns = 0;
    job->joined = false; /* and joins again as it is found */
    shell_tell(d, &(struct ull__arbiter_event){.kind = ULL_ARB_LEAVE, .job = job->number}, NULL);
}

/* Another daemon's, which lives. The stamp of one that was killed looks fresh for a while. */
static bool is_foreign(const struct job *job)
{
    uint32_t server = ull__ledger_served(job->ledger);
    return server != 0 && server != (uint32_t)getpid() &&
           (kill((pid_t)server, 0) == 0 || errno == EPERM);
}

static void join(struct daemon *d, struct job *job, uint64_t now)
{
    bool moves = job->view.state == ULL_JOB_SUSPENDING || job->view.state == ULL_JOB_RESUMING;
    job->foreign = is_foreign(job);
    if (job->foreign || (job->retry_ns > now && !moves) ||
        (job->view.state == ULL_JOB_WAITING && !job->run.client))
        return;
    if (!moves) {
        shell_join(d, job);
        if (!job->joined)
            job->retry_ns = now + (job->run.client ? SECOND : RETRY_NS);
        return;
    }
    /*
     * Somebody is moving it, or died doing so: a worker waits for him, or does it to the end. That may take a while, in
     * which what waits in the job must not think that nobody serves it.
     */
    ull__ledger_serve(job->ledger, (uint32_t)getpid());
    if (d->workers >= WORKERS || job->moving || job->retry_ns > now)
        return;
    job->retry_ns = now + RETRY_NS;
    if (worker_start(WORKER_SETTLE, job->path, 0, &job->worker, &job->from, NULL) != ULL_OK)
        return;
    job->moving = true;
    job->task = WORKER_SETTLE;
    d->workers++;
    struct epoll_event watch = {.events = EPOLLIN, .data.fd = job->from};
    epoll_ctl(d->epoll, EPOLL_CTL_ADD, job->from, &watch);
}

static void look_at_cards(struct daemon *d)
{
    bool moving = false;
    for (int c = 0; c < d->cards.count; c++)
        d->cards.card[c].held_bytes = 0;
    for (int j = 0; j < d->job_count; j++) {
        const struct job *job = d->jobs[j];
        moving |= job->moving && job->task != WORKER_SWEEP;
        for (int c = 0; c < d->cards.count && !job->refused && !job->foreign; c++)
            d->cards.card[c].held_bytes += job->held[c];
    }
    struct ull__arbiter_event event = {.kind = ULL_ARB_DEVICE};
    if (!cards_update(&d->cards, moving) && d->told_cards)
        return;
    d->told_cards = true;
    for (int c = 0; c < d->cards.count; c++)
        event.bytes[c] = d->cards.card[c].capacity;
    shell_tell(d, &event, NULL);
}

void book_look_again(struct daemon *d)
{
    for (int j = 0; j < d->job_count; j++)
        if (!d->jobs[j]->nested && !d->jobs[j]->foreign)
            book_read(d, d->jobs[j]);
}

void book_look(struct daemon *d)
{
    uint64_t now = now_ns();
    bool changed = false;
    for (int j = 0; j < d->job_count; j++)
        d->jobs[j]->present = false;
    d->blind = false;
    if (!ull__ledger_each_folder(look_in, d))
        d->blind = true;
    tell_blind(d, now);
    for (int j = d->job_count; !d->blind && j-- > 0;)
        if (is_gone(d, d->jobs[j], now))
            close_job(d, j);
    look_at_cards(d);
    for (int j = 0; j < d->job_count; j++) {
        struct job *job = d->jobs[j];
        if (job->nested)
            continue;
        tidy(d, job, now);
        if (job->dead && job->joined)
            shell_leave(d, job);
        if (!job->joined && !job->dead)
            join(d, job, now);
    }
    for (int j = 0; j < d->job_count; j++) {
        struct job *job = d->jobs[j];
        if (!job->joined)
            continue;
        if (job->comes_back)
            wish_resume(d, job, (struct wish){0}, NULL);
        job->comes_back = false;
        ull__ledger_serve(job->ledger, (uint32_t)getpid());
        tell_budget(d, job);
        shell_trimmed(d, job);
        tell_want(d, job, now);
        agree(d, job, now);
        follow(d, job);
        changed |= job->changed;
    }
    if (changed) /* a card may have come above its watermark */
        shell_tell(d, &(struct ull__arbiter_event){.kind = ULL_ARB_TICK}, NULL);
}
