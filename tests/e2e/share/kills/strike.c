/*
 * strike.c: a round of the test of kills: see kills.h.
 *
 * First the moment: a job is looked for, or brought to it. Then somebody dies. What is only there for an instant, as a job that
 * is suspending, may be over when that happens; what is counted is where the job was seen last before it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kills.h"

enum { LIVE = 3, STEP_US = 500, LOOK_STEPS = 8 };
#if defined(__SANITIZE_ADDRESS__)
enum { COMES_MS = 3000 };
#else
enum { COMES_MS = 400 };
#endif

/* --- the moment ------------------------------------------------------------------------------------------- */

static bool lives(const struct job *job)
{
    return job->run > 0 && !job->run_killed && !job->command_killed;
}

static int living(const struct world *w)
{
    int count = 0;
    for (int j = 0; j < w->job_count; j++)
        count += lives(&w->jobs[j]);
    return count;
}

/* Waits until the job is in one of two moments, or a while. */
static bool comes_to(struct world *w, const struct job *job, enum moment one, enum moment other)
{
    uint64_t until = now_ns() + COMES_MS * MS;
    for (int step = 0; now_ns() < until; nap(STEP_US * 1000)) {
        if (step++ % LOOK_STEPS == 0)
            look(w);
        enum moment at = moment_of(job);
        if (at == one || at == other)
            return true;
        if (job->run == 0)
            return false;
    }
    return false;
}

/* Any that is in this moment; else any that lives; else a new one. */
static struct job *any_at(struct world *w, enum moment moment)
{
    struct job *found = NULL;
    int seen = 0;
    for (int pass = 0; pass < 2 && !found; pass++)
        for (int j = 0; j < w->job_count; j++)
            if (lives(&w->jobs[j]) && (pass == 1 || moment_of(&w->jobs[j]) == moment) &&
                any(w, (unsigned int)++seen) == 0)
                found = &w->jobs[j];
    return found ? found : start_job(w, K_ANY);
}

static struct job *suspend_one(struct world *w, pid_t *client)
{
    struct job *job = any_at(w, M_RUNNING);
    comes_to(w, job, M_RUNNING, M_WANTING);
    *client = start_client(w, job, "suspend", "-q");
    return job;
}

/* The job that it is about. *client: who asked for what happens to it; 0: nobody. */
static struct job *bring_about(struct world *w, enum moment moment, pid_t *client)
{
    struct job *job;
    *client = 0;
    switch (moment) {
    case M_START:
        job = start_job(w, K_ANY);
        nap(any(w, 15000) * 1000ull);
        break;
    case M_QUEUE:
        job = any_at(w, M_QUEUE);
        if (moment_of(job) != M_QUEUE)
            job = start_job(w, K_QUEUED);
        comes_to(w, job, M_QUEUE, M_WANTING);
        break;
    case M_SUSPENDING:
        job = suspend_one(w, client);
        comes_to(w, job, M_SUSPENDING, M_SUSPENDED);
        nap(any(w, 4) * MS);
        break;
    case M_SUSPENDED:
        job = suspend_one(w, client);
        comes_to(w, job, M_SUSPENDED, M_SUSPENDED);
        break;
    case M_RESUMING:
        job = any_at(w, M_SUSPENDED);
        if (moment_of(job) != M_SUSPENDED) {
            job = suspend_one(w, client);
            comes_to(w, job, M_SUSPENDED, M_SUSPENDED);
        }
        *client = start_client(w, job, "resume", "-q");
        comes_to(w, job, M_RESUMING, M_RUNNING);
        break;
    case M_ENDING:
        job = start_job(w, K_SHORT);
        comes_to(w, job, M_ENDING, M_ENDING);
        nap(any(w, 3) * 2 * MS);
        break;
    default:
        job = any_at(w, moment);
        comes_to(w, job, moment, moment);
    }
    return job;
}

/* --- the victim ------------------------------------------------------------------------------------------- */

static bool kill_run(struct job *job)
{
    if (job->run <= 0)
        return false;
    job->must_be_right |= command_of(job) > 0;
    job->run_killed = true;
    return kill(job->run, SIGKILL) == 0;
}

static bool kill_command(struct job *job)
{
    pid_t command = command_of(job);
    bool killed = command > 0 && kill_child(command, job->run);
    job->command_killed |= killed;
    return killed;
}

static bool kill_both(struct world *w, struct job *job)
{
    pid_t command = command_of(job);
    if (job->run <= 0)
        return false;
    bool first = any(w, 2);
    job->command_killed |= first && command > 0 && kill_child(command, job->run);
    job->run_killed = true;
    kill(job->run, SIGKILL);
    job->command_killed |= !first && command > 0 && kill_child(command, job->run);
    return true;
}

static bool kill_workers(const struct world *w)
{
    pid_t pids[16];
    bool killed = false;
    for (uint64_t until = now_ns() + 50 * MS; !killed && now_ns() < until; nap(STEP_US * 1000)) {
        int count = w->daemon > 0 ? children_of(w->daemon, pids, 16) : 0;
        for (int i = 0; i < count; i++)
            killed |= kill_child(pids[i], w->daemon);
    }
    return killed;
}

/* The one that asked, or another, at any time of its short life. */
static bool kill_client(struct world *w, const struct job *job, pid_t client)
{
    static const struct {
        const char *verb, *argument;
    } clients[] = {{"suspend", "-q"}, {"resume", "-q"}, {"budget", "12MiB"}, {"budget", "14MiB"}};
    unsigned int which = any(w, 5);
    bool lives_still = false;
    for (int c = 0; c < w->client_count; c++)
        lives_still |= w->clients[c].pid == client;
    if (!lives_still) {
        client = which < 4 ? start_client(w, job, clients[which].verb, clients[which].argument)
                           : start_client(w, NULL, "ps", NULL);
        nap(any(w, 8000) * 1000ull);
    }
    return kill(client, SIGKILL) == 0; /* nobody waited for it yet, so the number is its own */
}

static bool kill_all(struct world *w)
{
    kill_daemon(w);
    for (int j = 0; j < w->job_count; j++)
        kill_run(&w->jobs[j]);
    return true;
}

static bool strike(struct world *w, enum victim victim, struct job *job, pid_t client)
{
    switch (victim) {
    case V_RUN:
        return kill_run(job);
    case V_COMMAND:
        return kill_command(job);
    case V_BOTH:
        return kill_both(w, job);
    case V_DAEMON:
        kill_daemon(w);
        return true;
    case V_WORKER:
        return kill_workers(w);
    case V_CLIENT:
        return kill_client(w, job, client);
    default:
        return kill_all(w);
    }
}

/* Until somebody has died. */
void play_round(struct world *w)
{
    /* Workers and their work are there for moments only, and everything at once ends the batch's jobs. */
    static const enum victim victims[] = {V_RUN,     V_RUN,    V_RUN,    V_COMMAND, V_COMMAND,
                                          V_COMMAND, V_BOTH,   V_BOTH,   V_DAEMON,  V_DAEMON,
                                          V_WORKER,  V_WORKER, V_CLIENT, V_CLIENT,  V_ALL};
    for (bool struck = false; !struck;) {
        pid_t client;
        while (living(w) < LIVE)
            start_job(w, K_ANY);
        enum victim victim = victims[any(w, sizeof victims / sizeof *victims)];
        enum moment moment = (enum moment)any(w, MOMENTS);
        if (victim == V_WORKER && moment != M_RESUMING)
            moment = M_SUSPENDING;
        if (victim == V_WORKER)
            need_daemon(w);
        struct job *job = bring_about(w, moment, &client);
        look(w);
        moment = moment_of(job);
        struck = strike(w, victim, job, client);
        atomic_fetch_add(struck ? &w->tally->struck[victim][moment] : &w->tally->missed[victim], 1);
        go_on(w, any(w, 40) * MS);
    }
}
