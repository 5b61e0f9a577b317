/*
 * wishes.c: people's wishes: to suspend a job, to resume it, and that they do not wait for it any more.
 *
 * A wish is the arbiter's event like any other, so it is carried out when that says so; who is out by a person's wish is noted
 * in the ledger, for the daemon after this one.
 */
#include <stdio.h>

#include "daemon.h"
#include "error.h"

/* At once in what is known of it, too, by which its worker is started. */
static void set_by_user(struct job *job, bool by_user)
{
    ull__ledger_set_flag(job->ledger, ULL_FLAG_BY_USER, by_user);
    job->view.flags = by_user ? job->view.flags | ULL_FLAG_BY_USER
                              : job->view.flags & ~(uint32_t)ULL_FLAG_BY_USER;
}

static ull_status not_joined(const struct job *job, struct ull_error *err)
{
    bool moves = job->view.state == ULL_JOB_SUSPENDING || job->view.state == ULL_JOB_RESUMING;
    return ull__fail(err, ULL_E_INVALID,
                     moves ? "the job is being moved: ask again in a moment"
                           : "the job does not run yet");
}

/* The others of its group, too, by the same person's wish: who is there already says so, which is nothing to tell. */
static void with_group(struct daemon *d, const struct job *first, bool suspend)
{
    for (int j = 0; j < d->job_count && book_group(first) != 0; j++) {
        struct job *job = d->jobs[j];
        struct ull__arbiter_view view;
        struct ull__arbiter_event event = {
            .kind = suspend ? ULL_ARB_USER_SUSPEND : ULL_ARB_USER_RESUME, .job = job->number};
        if (job == first || !job->joined || book_group(job) != book_group(first))
            continue;
        job->away_s = first->away_s;
        if (suspend)
            set_by_user(job, true);
        shell_tell(d, &event, NULL);
        if (ull__arbiter_job(d->arbiter, job->number, &view))
            set_by_user(job, view.by_user);
    }
}

/* The arbiter had it out before, so nothing will be moved for the one who asks. */
static void answer_if_out(struct daemon *d, struct job *job)
{
    struct ull__arbiter_view view;
    struct ull__ipc_message done = {.kind = ULL_IPC_DONE};
    if (!job->suspend.client || !ull__arbiter_job(d->arbiter, job->number, &view) ||
        view.state != ULL_JOB_SUSPENDED)
        return;
    for (int c = 0; c < CARDS; c++)
        done.moved_bytes += job->evicted[c];
    client_answer(d, &job->suspend, &done, true);
}

/* One without a client, as the page's, takes nobody's place who waits for an answer. */
ull_status wish_suspend(struct daemon *d, struct job *job, struct wish wish, struct ull_error *err)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_USER_SUSPEND, .job = job->number};
    struct ull__arbiter_view view;
    unsigned int away_s = job->away_s;
    if (!job->joined)
        return not_joined(job, err);
    if (wish.client)
        job->suspend = wish; /* the answer may come at once */
    job->away_s = wish.expected_s;
    set_by_user(job, true);
    ull_status status = shell_tell(d, &event, err);
    if (status == ULL_OK) {
        with_group(d, job, true);
        answer_if_out(d, job);
        return ULL_OK;
    }
    if (wish.client)
        job->suspend = (struct wish){0};
    job->away_s = away_s;
    set_by_user(job, ull__arbiter_job(d->arbiter, job->number, &view) && view.by_user);
    return status;
}

ull_status wish_resume(struct daemon *d, struct job *job, struct wish wish, struct ull_error *err)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_USER_RESUME, .job = job->number};
    if (!job->joined)
        return not_joined(job, err);
    if (wish.client)
        job->resume = wish;
    ull_status status = shell_tell(d, &event, err);
    if (status != ULL_OK) {
        if (wish.client)
            job->resume = (struct wish){0};
        return status;
    }
    set_by_user(job, false);
    with_group(d, job, false);
    if (job->resume.client && !job->moving && !job->wants_worker) {
        struct ull__ipc_message waits = {.kind = ULL_IPC_WAITS};
        snprintf(waits.text, sizeof waits.text, "it comes back as soon as there is room for it");
        client_answer(d, &job->resume, &waits, true);
    }
    return ULL_OK;
}

/* What was moved comes back. Of a group, the worker of any may be the one that moves. */
static void stop_moving_out(struct daemon *d, const struct job *first)
{
    for (int j = 0; j < d->job_count; j++) {
        struct job *job = d->jobs[j];
        bool with_it = book_group(first) != 0 && book_group(job) == book_group(first);
        if (job == first || with_it)
            moves_stop(d, job);
    }
}

void wishes_forget(struct daemon *d, const struct client *client)
{
    for (int j = 0; j < d->job_count; j++) {
        struct job *job = d->jobs[j];
        if (job->run.client == client) {
            job->run = (struct wish){0};
            if (job->joined && job->view.state == ULL_JOB_WAITING) {
                job->joined = false; /* it may ask again, should it live */
                shell_tell(d, &(struct ull__arbiter_event){.kind = ULL_ARB_LEAVE, .job = job->number},
                           NULL);
            }
        }
        if (job->suspend.client == client) {
            job->suspend = (struct wish){0};
            stop_moving_out(d, job);
        }
        if (job->resume.client == client)
            job->resume = (struct wish){0};
    }
}
